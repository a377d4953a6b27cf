"""What every room needs and no user sees. Imports nothing of the library.

| module             | holds                                                                                  |
|--------------------|----------------------------------------------------------------------------------------|
| `validate`         | checks of arguments: the argument, its value and the fix                               |
| `files`, `locking` | files that are whole whenever someone looks; locks                                     |
| `keras`            | what is asked of Keras, answered by the generation that `tf.keras` is                  |
| `keras2`, `keras3` | the answers: a function for each question, and Keras's private names                   |
| `keras_both`       | what both generations answer alike                                                     |
| `dp_query`         | tensorflow-privacy's base class, or one of its shape                                   |
| `regularizers`     | regularizers of Keras layers, which a per-example loss cannot have                     |
| `plotting`         | figures without pyplot                                                                 |
| `variables`        | variables of one process                                                               |
| `versions`         | which versions work                                                                    |
"""
