"""Data that goes into training: Poisson sampling, private principal components, targets in deviations.

| module               | holds                                                                  |
|----------------------|------------------------------------------------------------------------|
| `sampling`           | `poisson_batches`, `distributed_poisson_batches`                       |
| `rows`, `structures` | rows by their numbers, from data as people have it                     |
| `streaming`          | the same of a `tf.data.Dataset` that does not fit into memory          |
| `pca`                | `PrivatePCA`: a projection learnt with noise, and its event            |
| `targets`            | `PrivateTargetScaling`: mean and deviation of targets, with noise      |
| `target_questions`   | what that asks, with the proof of its sensitivities                    |
| `fits`               | how often an object has looked at data, and the noise of each time     |

May import `privacy` and `_internal`. Knows no Keras.
"""
