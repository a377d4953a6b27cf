"""Logistic regression on scikit-learn's breast cancer data, 456 examples.

Learning rate and h2 are the best of six on a held-out fifth of the training set. gamma = 0.5: with so few coordinates s
must be able to grow where every example is clipped.
"""

from configs import base


def get_config():
    config = base.get_config()
    config.dataset = "breast_cancer"
    config.model = "logistic"
    config.delta = 1e-4
    config.target_epsilon = 3.0
    config.expected_batch_size = 128
    config.epochs = 30
    config.learning_rate = 3.0
    config.h2 = 1e-2
    config.gamma = 0.5
    return config
