"""Softmax regression on scikit-learn's digits: seconds, and no network."""

from configs import base


def get_config():
    config = base.get_config()
    config.delta = 1e-4
    config.target_epsilon = 3.0
    config.expected_batch_size = 256
    config.epochs = 30
    config.learning_rate = 1.0
    config.h2 = 1e-3
    return config
