"""`make reproduce`: the paper's experiments on MNIST.

| module                         | holds                                                             |
|--------------------------------|-------------------------------------------------------------------|
| `experiments`                  | one record per experiment: methods, grids, epsilons; add one here |
| `jobs`, `runs`                 | its training runs; running them side by side, resuming            |
| `gradient_error`               | a model that measures how far a private gradient is from the true |
| `results`                      | the results file, and the numbers that are read off it            |
| `tables`, `drawings`, `report` | docs/results.md and the tables of docs/summary.md                  |
"""
