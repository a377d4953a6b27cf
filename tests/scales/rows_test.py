"""Which coordinates share a scale."""

import pytest

from adaclip_tf.scales import rows


@pytest.mark.parametrize(
    "shape, expected",
    [
        ([], []),
        ([10], [1]),
        ([784, 10], [784, 1]),  # a row for each input
        ([5000, 16], [5000, 1]),  # for each token
        ([3, 3, 8, 4], [3, 3, 8, 1]),  # for each entry of a convolution's kernel
        ([6, 2, 3], [6, 2, 1]),
    ],
)
def test_rows(shape, expected):
    assert rows.row_shape(shape) == expected
