"""The small CNN of tensorflow-privacy's tutorial, on MNIST."""

from configs import base


def get_config():
    config = base.get_config()
    config.dataset = "mnist"
    config.model = "cnn"
    config.target_epsilon = 3.0
    config.expected_batch_size = 1000
    config.epochs = 20
    config.h2 = 1e-4
    return config
