"""What every test shares: quiet TensorFlow, seeds that repeat, two workers that share two cores."""

import gc
import os
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # oneDNN reorders sums from run to run

import hypothesis
import numpy as np
import pytest

hypothesis.settings.register_profile(
    "adaclip_tf",
    derandomize=True,
    deadline=None,
    max_examples=50,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("adaclip_tf")


def pytest_configure(config):
    del config
    if "PYTEST_XDIST_WORKER" in os.environ:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)


def pytest_collection_finish(session):
    """Leaves what was imported, half a million objects, out of every garbage collection from here on."""
    del session
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _seeds():
    """Every test starts from the same ordinary seeds. The library's noise must not notice."""
    import tensorflow as tf

    random.seed(0)  # Keras draws the seeds of its initializers from it
    np.random.seed(0)
    tf.random.set_seed(0)


@pytest.fixture
def rng():
    """NumPy draws that repeat from run to run."""
    return np.random.default_rng(20190822)
