"""Marks for tests that mean something on one generation of Keras only."""

import pytest

from adaclip_tf._internal import keras

keras2_only = pytest.mark.skipif(keras.GENERATION != 2, reason="is of Keras 2")
keras3_only = pytest.mark.skipif(keras.GENERATION != 3, reason="is of Keras 3")
