"""A small MLP on scikit-learn's digits: what `make demo` falls back to without MNIST.

    --config=configs/digits_mlp.py              # AdaCliP
    --config=configs/digits_mlp.py:fixed_clip   # Abadi et al.

Learning rate and h2, or clip, are the best of 12 runs each on a held-out fifth of the training set: 81.5 % and 82.9 %.
"""

from configs import base


def get_config(optimizer: str = "adaclip"):
    config = base.get_config()
    config.dataset = "digits"
    config.model = "mlp"
    config.hidden = 64
    config.expected_batch_size = 256
    config.epochs = 30
    config.optimizer = optimizer
    config.learning_rate = 2.0 if optimizer == "fixed_clip" else 1.0
    config.h2 = 1e-4
    config.l2_norm_clip = 0.25
    return config
