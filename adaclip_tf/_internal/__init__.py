"""What every room needs and no user sees. Imports nothing of the library.

| module             | holds                                                                                  |
|--------------------|----------------------------------------------------------------------------------------|
| `validate`         | checks of arguments: the argument, its value and the fix                               |
| `files`, `locking` | files that are whole whenever someone looks; locks                                     |
| `keras2`           | Keras 2's private names, one function for each question, for all but the optimizers    |
| `regularizers`     | regularizers of Keras layers, which a per-example loss cannot have                     |
| `plotting`         | figures without pyplot                                                                 |
| `variables`        | variables of one process                                                               |
| `versions`         | which versions work                                                                    |
"""
