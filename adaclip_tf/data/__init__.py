"""Data that goes into training: Poisson sampling, private principal components.

| module     | holds                                                         |
|------------|---------------------------------------------------------------|
| `sampling` | `poisson_batches`, `distributed_poisson_batches`              |
| `pca`      | `PrivatePCA`: a projection learnt with noise, and its event   |

May import `privacy` and `_internal`. Knows no Keras.
"""
