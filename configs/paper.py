"""The paper's experiments on MNIST, with the hyper-parameters that examples/reproduce/__main__.py chose.

    --config=configs/paper.py:softmax/adaclip/0.5     # experiment / method / epsilon

paper.json holds what was chosen, by the grids of examples/reproduce/experiments.py on a held-out part of the training
set. docs/results.md tells how.
"""

import json
import pathlib

from configs import base

CHOSEN = pathlib.Path(__file__).with_name("paper.json")

EXPERIMENTS = {
    "softmax": {"model": "softmax", "expected_batch_size": 600, "epochs": 10, "learning_rate_end": 0.0},
    "mlp": {
        "model": "mlp",
        "pca_components": 60,
        "pca_fraction": 0.3,
        "expected_batch_size": 2000,
        "epochs": 8,
        "learning_rate_end": 0.0,
    },
    "momentum": {"model": "softmax", "expected_batch_size": 600, "epochs": 10},
    "cnn": {"model": "cnn", "expected_batch_size": 500, "epochs": 15, "learning_rate_end": 0.0},
    "cnn_tanh": {
        "model": "cnn",
        "activation": "tanh",
        "pixel_mean": 0.1,
        "pixel_std": 0.3,
        "expected_batch_size": 2048,
        "epochs": 40,
        "learning_rate_end": 0.0,
    },
}
METHODS = {
    "adaclip": {"optimizer": "adaclip"},
    "abadi": {"optimizer": "fixed_clip"},
    "scales": {"optimizer": "scales"},
    "abadi_4": {"optimizer": "fixed_clip", "l2_norm_clip": 4.0},
    "abadi_layers": {"optimizer": "per_layer", "l2_norm_clip": 4.0},
    "norm_bound": {"optimizer": "norm_bound", "largest_gradient_norm": 28.0},
    "momentum_0": {"optimizer": "norm_bound", "largest_gradient_norm": 28.0, "momentum": 0.0},
    "momentum_0.5": {"optimizer": "norm_bound", "largest_gradient_norm": 28.0, "momentum": 0.5},
    "momentum_0.9": {"optimizer": "norm_bound", "largest_gradient_norm": 28.0, "momentum": 0.9},
    "momentum_0.99": {"optimizer": "norm_bound", "largest_gradient_norm": 28.0, "momentum": 0.99},
}


def make_config(experiment: str, method: str, epsilon: float, **changes):
    """The config without what was chosen."""
    config = base.get_config()
    config.dataset = "mnist"
    config.target_epsilon = float(epsilon)
    config.update({**EXPERIMENTS[experiment], **METHODS[method], **changes})
    return config


def get_config(which: str = "softmax/adaclip/1"):
    """The config of one cell of docs/results.md."""
    try:
        experiment, method, epsilon = which.split("/")
        chosen = json.loads(CHOSEN.read_text())[experiment][method][f"{float(epsilon):g}"]
    except (KeyError, ValueError) as error:
        raise ValueError(
            f"configs/paper.py takes experiment/method/epsilon as {CHOSEN.name} has them, e.g. softmax/adaclip/1; "
            f"got {which!r}."
        ) from error
    return make_config(experiment, method, float(epsilon), **chosen)
