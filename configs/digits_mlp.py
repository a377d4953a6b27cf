"""A small MLP on scikit-learn's digits: what `make demo` falls back to without MNIST.

--config=configs/digits_mlp.py              # AdaCliP
--config=configs/digits_mlp.py:fixed_clip   # Abadi et al.
"""

from configs import base


def get_config(optimizer: str = "adaclip"):
    config = base.get_config()
    config.dataset = "digits"
    config.model = "mlp"
    config.hidden = 64
    config.delta = 1e-5
    config.expected_batch_size = 256
    config.optimizer = optimizer
    config.epochs = 30
    config.learning_rate = 1.0
    config.h2 = 1e-4
    config.l2_norm_clip = 1.0
    return config
