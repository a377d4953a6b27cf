"""Models that leave the house: writing a release, and reading what a file holds that is not privatised.

| module                             | holds                                                       |
|------------------------------------|-------------------------------------------------------------|
| `release`                          | `release`: weights, architecture, statement, nothing else   |
| `inspection`                       | `check_release`, and the command line                       |
| `release_files`, `release_statement` | the parts of a release, written and read                  |
| `findings`, `checkpoints`          | what may not be published, by kind of file                  |
| `twins`, `layer_state`             | models without training state; what Keras layers keep       |

May import `optimizers`, `privacy`, `_internal`. Nothing of the library imports it.
"""
