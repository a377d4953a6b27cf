"""Large tensors in weighted sums: by one branch for all, and the same sums."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf.gradients import ghost
from adaclip_tf.gradients.ghost import keeping, terms

N, WIDTHS = 5, (keeping._WIDE, keeping._WIDE + 7, 3)


def _sums(together):
    """The traced function of arrays and weights, and the types of its ops."""

    def sums(arrays, weights):
        several = [terms.PerExample(array) for array in (*arrays, arrays[0])]  # the first one's rows are used twice
        if together:
            ghost.keep_together(several, weights)
        return [term.weighted_sum(weights)[0] for term in several]

    specs = [tf.TensorSpec([None, width]) for width in WIDTHS], tf.TensorSpec([None])
    traced = tf.function(sums, input_signature=specs, autograph=False).get_concrete_function()
    return traced, [op.type for op in traced.graph.get_operations()]


@pytest.mark.parametrize("together", [True, False])
def test_rows_of_weight_zero_add_nothing(together, rng):
    """The expected sums are over the other rows alone: with weight 0 a row of NaN and infinity is left out."""
    run, _ = _sums(together)
    arrays = [rng.normal(size=[N, width]).astype(np.float32) for width in WIDTHS]
    weights = rng.uniform(0.1, 1.0, N).astype(np.float32)
    for left_out in ([], [1, 3], list(range(N))):
        spoilt, used = [array.copy() for array in arrays], np.delete(np.arange(N), left_out)
        for array in spoilt:
            array[left_out, 0], array[left_out, -1] = np.nan, np.inf
        given = np.where(np.isin(np.arange(N), used), weights, 0.0).astype(np.float32)
        results = run(*map(tf.constant, [*spoilt, given]))
        for result, array in zip(results, [*arrays, arrays[0]]):
            np.testing.assert_allclose(result, weights[used] @ array[used], rtol=1e-4, atol=1e-5)


def test_one_branch_for_all():
    """Without it one for each that is wide; what is used twice is kept once either way."""
    counts = [sum(kind in ("If", "StatelessIf") for kind in _sums(together)[1]) for together in (True, False)]
    assert counts == [1, 2]
