"""Tests of `adaclip_tf.core.philox`: word for word TensorFlow's own generator, and another implementation's."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.core import philox
from tests.core import philox as reference

KEY, HIGH = 0xFEDCBA9876543210, 2**64 - 1


@pytest.mark.parametrize("jit_compile", [None, True])
@pytest.mark.parametrize("low", [0, 2**32 - 3, 2**64 - 5], ids=["zero", "32 bits", "64 bits"])
def test_blocks(low, jit_compile):
    """Where the lower half of the counter overflows, too: 2^128 - 5 is followed by 0."""
    key, counter = tf.constant([KEY], tf.uint64), tf.constant([low, HIGH], tf.uint64)
    found = tf.function(lambda: philox.blocks(9, key, counter), jit_compile=jit_compile)()
    assert {words.dtype for words in found} == {tf.uint32}
    found = np.stack(found, axis=-1).ravel()
    np.testing.assert_array_equal(found, reference.words(KEY, low + 2**64 * HIGH, 36))
    own = tf.raw_ops.StatelessRandomUniformFullIntV2(shape=[36], key=key, counter=counter, alg=1, dtype=tf.uint32)
    np.testing.assert_array_equal(found, own)
