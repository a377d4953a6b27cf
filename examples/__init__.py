"""Programs that use the library, and nothing that the library imports. Each says in its first lines how it is run.

| `python -m ...`       | does                                                                              |
|-----------------------|-----------------------------------------------------------------------------------|
| `examples.demo`       | a table at epsilon 1 with nothing tuned: `make demo`, a minute or two; or MNIST    |
| `examples.train`      | one private training run, as a file of configs/ says                              |
| `examples.launch`     | starts several workers of a program on this machine                               |
| `examples.reproduce`  | the paper's experiments on MNIST, hours: writes docs/results.md                    |
| `examples.regression` | the paper's regression experiment, minutes: writes docs/regression.md              |
| `examples.federated`  | federated on Flower, a client is the unit: writes docs/federated.md                |
| `examples.audit`      | attacks the library: the epsilon that is proven beside the one that is claimed     |
| `examples.tabular`    | training that needs no tuning against tuned competitors                            |

The parts of a program are in the folder with its name, what several share in `common/`.
"""
