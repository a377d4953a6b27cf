"""What every test shares: quiet TensorFlow, seeds that repeat, two workers that share two cores."""

import gc
import os
import random

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # oneDNN reorders sums from run to run
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # Flower looks once, when it is imported
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

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
    """Collects garbage seldom: tracing makes objects by the thousand, and hardly any of them is in a cycle."""
    del session
    gc.set_threshold(50_000, 20, 10)
    _leave_out_of_collections()


@pytest.fixture(scope="module", autouse=True)
def _left_out_of_collections():
    """What a module leaves behind, traced models above all, is not looked through again in those that follow.

    TensorFlow never lets go of some graphs. Without this each collection is slower than the one before it.
    """
    yield
    _leave_out_of_collections()


def _leave_out_of_collections():
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
