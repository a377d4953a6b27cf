"""Private training in one call.

| module             | holds                                                                              |
|--------------------|------------------------------------------------------------------------------------|
| `make_private`     | the call: data, a model and a target in, a `PrivateTraining` out                   |
| `private_training` | `fit`, `statement`, `summary`                                                      |
| `plan`             | the numbers: noise of the queries and of the steps, learning rate. No TensorFlow   |
| `scaled_data`      | data whose targets are scaled, and back to their own units                         |

May import `scales`, `optimizers`, `data`, `privacy`, `core` and `_internal`.
"""
