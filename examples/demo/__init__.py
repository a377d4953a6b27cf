"""`make demo`: private training with nothing tuned, on a table whose columns are far apart in size; or on MNIST.

| module       | holds                                                                        |
|--------------|------------------------------------------------------------------------------|
| `tables`     | `make_private` beside DP-SGD and DP-Adam with customary settings, on a table    |
| `images`     | the paper's MLP on MNIST: AdaCliP beside DP-SGD, both tuned                     |
| `results`    | what a demonstration came to, and the check that it came to what it should      |
| `report`     | the closing table, the figure, the numbers                                     |
"""
