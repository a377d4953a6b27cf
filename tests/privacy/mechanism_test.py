"""Tests of `Mechanism`: how many steps an epoch has, and how many releases they are."""

import dataclasses
import doctest
import itertools
import math

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf.data import sampling
from adaclip_tf.privacy import mechanism, statement
from adaclip_tf.privacy.mechanism import Mechanism


def counted(n, batch, epochs):
    return Mechanism(1.0, n, batch).count(epochs=epochs)


def test_steps_are_exact():
    assert counted(60000, 600, 10) == 1000
    assert counted(60000, 600, 0.1) == 10  # the double 0.1 is above one tenth
    assert counted(60000, 600, 0.07) == 7  # and 0.07 * 100 is above 7
    assert Mechanism(1.0, 60000, 600).count(steps=7) == 7
    assert counted(1500, 1000, 20) == 40  # not 30
    assert counted(1000, 300, 2) == 8
    assert counted(1000, 300, 0.5) == 2
    assert counted(1000, 300, 0.26) == 2  # 1.04 steps
    # A floating-point quotient would be one step off, either way, as in 3 / (7 / 49).
    for n, batch, epochs in ((49, 7, 3), (10**9, 1, 1.5), (3, 1, 100)):
        assert counted(n, batch, epochs) == epochs * n / batch


@pytest.mark.parametrize("n,batch", itertools.product((7, 10, 31), (1, 3, 7)))
def test_an_epoch_is_as_long_as_poisson_batches_make_it(n, batch):
    batches = sampling.poisson_batches(np.arange(n), expected_batch_size=batch)
    assert counted(n, batch, 5) == 5 * int(batches.cardinality()) == sum(1 for _ in range(5) for _ in batches)


@pytest.mark.parametrize("integer", [np.uint8, np.int16, np.uint32, np.uint64, np.array, tf.constant])
def test_numbers_of_numpy_and_tensorflow_count_as_pythons(integer):
    """Theirs wrap around: -np.uint8(10) is 246, and ten epochs would be a negative number of steps."""
    step = Mechanism(np.float32(1.5), integer(200), integer(16))
    assert step == Mechanism(1.5, 200, 16)
    assert [type(value) for value in dataclasses.astuple(step)] == [float, int, int, str, float]
    assert step.steps_in(integer(10)) == step.count(steps=integer(130)) == 130
    assert step.event(epochs=integer(10)) == Mechanism(1.5, 200, 16).event(steps=130)
    assert Mechanism(1.5, integer(200), 16, "shuffled").event(epochs=np.float64(1.5)).count == 2


def test_shuffled_counts_epochs_begun():
    step = Mechanism(2.0, 1000, 300, "shuffled")
    # Three steps are the fewest that an epoch can take.
    assert [step.releases(steps) for steps in (1, 3, 4, 6, 7)] == [1, 1, 2, 2, 3]
    assert step.event(epochs=2.5).count == 3
    assert step.event(steps=4).count == 2
    # And nothing is amplified: not the Poisson sampled event.
    assert step.release == dp_accounting.GaussianDpEvent(2.0)


def test_poisson_counts_steps():
    step = Mechanism(2.0, 1000, 300)
    assert step.releases(7) == step.event(steps=7).count == 7
    assert step.release.sampling_probability == 0.3
    assert Mechanism(2.0, 1000, 300, microbatch_sensitivity=2.0).release.event.noise_multiplier == 1.0


def test_each_sampling_has_its_relation():
    assert Mechanism(2.0, 1000, 300).relation == "add or remove one"
    assert "contributes nothing" in Mechanism(2.0, 1000, 300, "shuffled").relation
    assert Mechanism(2.0, 1000, 300, "without_replacement").relation == "replace one by any other"


def test_without_replacement_a_record_that_is_replaced_moves_the_sum_by_two():
    step = Mechanism(3.0, 1000, 300, "without_replacement")
    assert step.releases(7) == step.event(steps=7).count == 7
    assert step.release == dp_accounting.SampledWithoutReplacementDpEvent(1000, 300, dp_accounting.GaussianDpEvent(1.5))
    everybody = adaclip_tf.epsilon(
        noise_multiplier=3.0, num_examples=50, batch_size=50, steps=7, delta=1e-4, sampling="without_replacement"
    )
    plain = adaclip_tf.epsilon_of(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(1.5), 7), delta=1e-4)
    assert everybody == pytest.approx(plain, rel=1e-9)  # nobody is left out: no amplification
    assert math.isinf(
        adaclip_tf.epsilon(
            noise_multiplier=0.0, num_examples=50, batch_size=5, steps=7, delta=1e-4, sampling="without_replacement"
        )
    )


def test_it_is_not_for_the_batches_of_a_fit():
    with pytest.raises(ValueError, match="`sampling` must be one of 'poisson', 'shuffled'"):
        adaclip_tf.PrivacyBudget(num_examples=50, batch_size=5, delta=1e-4, sampling="without_replacement")
    with pytest.raises(ValueError, match="`sampling` must be one of 'poisson', 'shuffled'"):
        statement.report_on(Mechanism(2.0, 50, 5, "without_replacement"), delta=1e-4, steps=3)


def test_it_cannot_be_changed():
    with pytest.raises(AttributeError):
        Mechanism(2.0, 1000, 300).noise_multiplier = 5.0


def test_examples_in_the_docstrings():
    assert doctest.testmod(mechanism).failed == 0
