"""Rows: which coordinates of a variable share a scale.

All that share every index but the last one. So row i of a kernel [inputs, outputs] is its i-th input, a row of an
embedding is a token, of a recurrent kernel an input, of an attention's projection a feature (of a head). A convolution
is a dense layer on patches, so its rows are the inputs of that layer, the kernel's entries (height, width, channel):
with one row per channel the first layer of a gray picture would have a single one. Where noise hides the differences
between entries, they are shrunk to one scale per variable anyway. Vectors (biases, the scales of a normalisation) and
single numbers are one row.

| variable                        | shape of its scales      |
|---------------------------------|--------------------------|
| []                              | []                       |
| [units]                         | [1]                      |
| [inputs, outputs]               | [inputs, 1]              |
| [height, width, channels, outputs] | [height, width, channels, 1] |
"""

from __future__ import annotations

from collections.abc import Sequence


def row_shape(shape: Sequence[int]) -> list[int]:
    """The shape of the scales of a variable of `shape`.

    >>> row_shape([784, 10]), row_shape([10]), row_shape([])
    ([784, 1], [1], [])
    """
    sizes = [int(size) for size in shape]
    return [*sizes[:-1], 1] if sizes else []
