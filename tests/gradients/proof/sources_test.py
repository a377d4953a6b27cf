"""`proof.sources`: which constants tell nothing of places."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients.proof import sources


@pytest.mark.parametrize(
    ("value", "expected"), [([[3.0]], True), ([2.0, 2.0], True), ([2.0, 3.0], False), (np.zeros([0]), False)], ids=str
)
def test_constants_that_are_one_number_are_alike_everywhere(value, expected):
    with tf.Graph().as_default():
        assert sources.is_one_number(tf.constant(value)) is expected
