"""Philox4x32-10 in NumPy, from Salmon et al. 2011, and Box-Muller in float64: what `adaclip_tf.core.noise` should draw.

Shares no code with the library or TensorFlow. Works on many keys, or many counters, at once.
"""

import numpy as np

_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_WEYL = 0x9E3779B9, 0xBB67AE85
_MASK = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)


def block(key, low, high):
    """The four words (uint64 arrays below 2^32) of the block with 64-bit `key` and counter `low` + 2^64 `high`."""
    key, low, high = (np.asarray(x, np.uint64) for x in (key, low, high))
    x = [low & _MASK, low >> _32, high & _MASK, high >> _32]
    for turn in range(10):
        k = [
            ((half + np.uint64(turn * step & 0xFFFFFFFF)) & _MASK)
            for half, step in zip((key & _MASK, key >> _32), _WEYL)
        ]
        one, two = _MULTIPLIERS[0] * x[0], _MULTIPLIERS[1] * x[2]
        x = [(two >> _32) ^ x[1] ^ k[0], two & _MASK, (one >> _32) ^ x[3] ^ k[1], one & _MASK]
    return x


def words(key, counter, number):
    """`number` 32-bit words of the blocks with counters `counter`, `counter` + 1, ..., a Python integer below 2^128."""
    counters = [(counter + k) % 2**128 for k in range(-(-number // 4))]
    low, high = (np.array([c >> shift & (2**64 - 1) for c in counters], np.uint64) for shift in (0, 64))
    return np.stack(block(key, low, high), axis=-1).ravel()[:number]


def normals(radius_words, angle_words):
    """Box-Muller from uint64 radii and 32-bit angles (as int32 or uint32): the cosines and the sines, float64."""
    w = np.asarray(radius_words, np.uint64)
    # ln u with u = (w + 1/2) / 2^64, from the nearer of its ends: 1 - u is exact where float64's u is not.
    small = (w.astype(np.float64) + 0.5) * 2.0**-64
    rest = ((~w).astype(np.float64) + 0.5) * 2.0**-64
    with np.errstate(divide="ignore"):
        log = np.where(w < np.uint64(2**63), np.log(small), np.log1p(-rest))
    radius = np.sqrt(-2.0 * log)
    angle = np.asarray(angle_words).astype(np.float64) * 2.0 * np.pi / 2.0**32
    return radius * np.cos(angle), radius * np.sin(angle)


def draws(key, counter, size):
    """What a draw of `size` numbers whose blocks start at `counter` should be: a block for every two."""
    blocks = words(key, counter, 4 * -(-size // 2)).reshape(-1, 4)
    return np.stack(normals(blocks[:, 0] | blocks[:, 1] << _32, blocks[:, 2].astype(np.int64)), axis=-1).ravel()[:size]


def length(size):
    """How many blocks a draw of `size` numbers takes: for whole rows of 16 numbers."""
    return 8 * -(-size // 16)
