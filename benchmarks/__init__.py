"""How fast, how large, how well shared out. Read the ratios, not the seconds.

| `python -m ...`                   | measures                                                                       |
|-----------------------------------|--------------------------------------------------------------------------------|
| `benchmarks.speed`                | a `fit` step against Keras's SGD and tensorflow-privacy: `make bench`           |
| `benchmarks.quick`                | the same of SGD and ours only: steps, first steps, XLA, memory, in some minutes |
| `benchmarks.floors`               | the products and passes that a private step needs, alone; ops traced           |
| `benchmarks.tried`                | two ways to the same numbers, beside each other                                |
| `benchmarks.before`               | a step of this checkout against one of an earlier one                          |
| `benchmarks.scaling`              | a step on one and two replicas                                                 |
| `benchmarks.noise_terms`          | what `noise_terms` costs, and what it buys                                     |
| `benchmarks.tensorboard_overhead` | what the TensorBoard callback adds to training                                 |

`cases` are the models and `contenders` the ways of training them; `timing` and `memory` measure, `report` writes.
"""
