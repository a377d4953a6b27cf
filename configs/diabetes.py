"""Linear regression on scikit-learn's diabetes data, 354 examples."""

from configs import base


def get_config():
    config = base.get_config()
    config.dataset = "diabetes"
    config.model = "linear"
    config.delta = 1e-4
    config.target_epsilon = 3.0
    config.expected_batch_size = 128
    config.epochs = 30
    config.learning_rate = 0.1
    return config
