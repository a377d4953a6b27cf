"""Softmax regression on MNIST, as in the paper: batch 600, delta 1e-5."""

from configs import base


def get_config():
    config = base.get_config()
    config.dataset = "mnist"
    config.epochs = 20
    return config
