"""Logistic regression on scikit-learn's breast cancer data, 456 examples."""

from configs import base


def get_config():
    config = base.get_config()
    config.dataset = "breast_cancer"
    config.model = "logistic"
    config.delta = 1e-4
    config.target_epsilon = 3.0
    config.expected_batch_size = 128
    config.epochs = 30
    config.learning_rate = 1.0
    return config
