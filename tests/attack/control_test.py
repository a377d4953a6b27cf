"""The harness can fail: optimizers that protect nothing, or only half, are caught by it."""

import pytest
import tensorflow as tf

from tests import generations
from tests.attack import catalog, errors, harness
from tests.attack.case import case, features, net
from tests.attack.modes import EXPECTED_BATCH_SIZE

CASES = catalog.load()


class NaiveClipping(tf.keras.optimizers.SGD):
    """DP-SGD as one would write it at first: rows of the Jacobian of the whole batch, clipped. Right only for models
    that keep examples apart."""

    def __init__(self, clip, slack=1.0):
        super().__init__(EXPECTED_BATCH_SIZE / clip)
        self._clip, self._slack = clip, slack

    def minimize(self, loss, var_list, tape=None):
        rows = tape.jacobian(loss, var_list, unconnected_gradients="zero", experimental_use_pfor=False)
        flat = tf.concat([tf.reshape(tf.convert_to_tensor(r), [tf.shape(loss)[0], -1]) for r in rows], axis=1)
        norms = tf.norm(flat, axis=1) * self._slack
        weights = 1 / tf.maximum(norms, self._clip) * self._clip
        sums = [tf.tensordot(weights, tf.convert_to_tensor(row), 1) for row in rows]
        return self.apply_gradients([(total / EXPECTED_BATCH_SIZE, v) for total, v in zip(sums, var_list)])


def naive(mode, clip, num_weights):
    del mode, num_weights
    return NaiveClipping(clip)


def half_clipped(mode, clip, num_weights):
    """Clips to twice the bound."""
    del mode, num_weights
    return NaiveClipping(clip, slack=0.5)


def _verdict(name, optimizer, mode="graph", **options):
    one = CASES[name]
    outcome = harness.attack(one, mode, optimizer=optimizer, infinite=False, **options)
    assert outcome.kind == "accepted", outcome
    return harness.verdict(one, mode, outcome)


@pytest.mark.parametrize("mode", ["graph", "static", "eager"])
def test_plain_sgd_is_caught(mode):
    assert "moved the sum by" in _verdict("dense", harness.plain_optimizer, mode, removals=3)


@generations.keras2_only  # where an optimizer gets the tape
def test_clipping_to_twice_the_bound_is_caught():
    assert "moved the sum by" in _verdict("dense", half_clipped, removals=3)


@generations.keras2_only  # where an optimizer gets the tape
def test_naive_clipping_passes_where_examples_stay_apart():
    assert not _verdict("dense", naive, removals=3)


@generations.keras2_only  # where an optimizer gets the tape
def test_an_infinite_example_spoils_naive_clipping():
    """0 * inf: the rows of all the others are no numbers either."""
    outcome = harness.attack(CASES["dense"], "graph", optimizer=naive, removals=1)
    assert outcome.move == float("inf")


@generations.keras2_only
@pytest.mark.parametrize("name", ["first_example", "roll", "batch_norm", "loss_of_augmented_views", "memory_assign"])
def test_naive_clipping_is_caught_where_examples_mix(name):
    assert _verdict(name, naive)


MIXING = sorted(name for name, one in CASES.items() if one.expect == "refused" and not one.random)


@generations.keras2_only
@pytest.mark.slow
@pytest.mark.parametrize("name", MIXING)
def test_every_mixing_case_mixes(name):
    """A case that is expected to be refused must do harm where it is not: or it tests nothing."""
    one = CASES[name]
    outcome = harness.attack(one, "graph", optimizer=naive, infinite=False)
    if outcome.kind != "accepted":
        pytest.skip(f"naive clipping can't run it, so does no harm by it: {outcome}")
    wrong = harness.verdict(one, "graph", outcome)
    assert wrong, f"{name} is expected to be refused, yet naive clipping does no harm: {outcome}"


@generations.keras2_only  # where an optimizer gets the tape
def test_what_is_left_behind_is_seen():
    outcome = harness.attack(CASES["memory_never_read"], "graph", optimizer=naive, removals=3, infinite=False)
    assert outcome.move <= 1 + harness.SLACK and outcome.residue > 0


def test_a_case_has_one_name_and_one_expectation():
    with pytest.raises(ValueError, match="Two cases"):
        case("accepted")(CASES["dense"].build)
    with pytest.raises(ValueError, match="must be one of"):
        case("perhaps")


def test_errors_of_tensorflow_are_no_words_of_the_library():
    """A refusal is an error that the library raises itself."""
    try:
        net([tf.keras.layers.Dense(3)], features()).model(tf.zeros([2, 7]))
    except ValueError as error:
        assert not errors.in_words(error)
    assert not errors.in_words(TypeError("'NoneType' object cannot be interpreted as an integer"))
