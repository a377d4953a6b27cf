"""The paper's MLP on MNIST: PrivatePCA to 60 dimensions, 1,000 hidden units, epsilon 1 for both together.

--config=configs/mnist_mlp.py              # AdaCliP
--config=configs/mnist_mlp.py:fixed_clip   # Abadi et al.
"""

from configs import base


def get_config(optimizer: str = "adaclip"):
    config = base.get_config()
    config.dataset = "mnist"
    config.model = "mlp"
    config.pca_components = 60
    config.pca_fraction = 0.3
    config.expected_batch_size = 1000
    config.optimizer = optimizer
    config.epochs = 12
    config.learning_rate = 2.0
    config.h2 = 1e-4
    config.l2_norm_clip = 1.0
    return config
