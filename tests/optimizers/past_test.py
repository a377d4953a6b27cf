"""What past steps were like is in the optimizer's state, however it is saved and restored."""

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf import DPAdaClipSGD, DPFixedClipSGD, PrivacyBudget, optimizer_event, poisson_batches
from adaclip_tf._internal import keras
from adaclip_tf.privacy import past_steps
from tests import models

N, BATCH, DELTA = 32, 4, 1e-3
WHERE = {"num_examples": N, "batch_size": BATCH}


def compiled(z=0.5, size=BATCH, jit_compile=False, **arguments):
    arguments = {"noise_multiplier": z, "expected_batch_size": size, **arguments}
    model = models.softmax_regression()
    model.compile(
        DPFixedClipSGD(0.1, l2_norm_clip=1.0, **arguments), models.per_example_loss(), jit_compile=jit_compile
    )
    return model


def train(model, steps=5, size=BATCH, **options):
    batches = poisson_batches(models.data(N), expected_batch_size=size, steps=steps)
    model.optimizer.build(model.trainable_variables)  # a step that makes variables is traced twice
    model.fit(batches, verbose=0, **options)
    return model


@pytest.fixture(scope="module")
def trained():
    """Five steps at z = 0.5."""
    return train(compiled())


def budget(**arguments):
    return PrivacyBudget(**{**WHERE, "delta": DELTA, **arguments})


def test_the_state_says_what_the_steps_were(trained):
    past = trained.optimizer.past_steps()
    assert past[:4] == (5, 0.5, 1.0, BATCH)
    assert compiled().optimizer.past_steps()[:4] == (0, 0.0, 1.0, 0)


@pytest.mark.parametrize("name", ["noise_multiplier", "num_microbatches", "expected_batch_size", "accumulation_steps"])
def test_what_accounting_hangs_on_is_read_only(trained, name):
    before = getattr(trained.optimizer, name)
    with pytest.raises(AttributeError, match=f"`{name}` of DPFixedClipSGD can't be changed.*Make a new optimizer"):
        setattr(trained.optimizer, name, 5)
    assert getattr(trained.optimizer, name) == before
    assert trained.optimizer.get_config()[name] == before


def test_the_learning_rate_is_not(trained):
    trained.optimizer.learning_rate = 0.2
    assert float(trained.optimizer.learning_rate) == pytest.approx(0.2)


# ---------------------------------------------------------------------------------------------------
# Resumed with other noise: refused, in whatever way the state is restored.


def by_weights_file(source, target, tmp_path):
    source.save_weights(tmp_path / "x.weights.h5")
    target.optimizer.build(target.trainable_variables)
    target.load_weights(tmp_path / "x.weights.h5")


def by_set_weights(source, target, tmp_path):
    target.optimizer.build(target.trainable_variables)
    target.optimizer.set_weights([v.numpy() for v in source.optimizer.variables])


def by_store(source, target, tmp_path):
    target.optimizer.build(target.trainable_variables)
    target.optimizer.load_own_variables({str(i): v.numpy() for i, v in enumerate(source.optimizer.variables)})


@pytest.mark.parametrize("restore", [by_weights_file, by_set_weights, by_store])
@pytest.mark.parametrize(
    "change,words",
    [
        ({"z": 5.0}, r"`noise_multiplier`=5, and the 5 noised steps .* with 0\.5.*ledger"),
        ({"size": 8}, "`expected_batch_size`=8, and the 5 noised steps .* with 4.*ledger"),
    ],
)
def test_a_file_of_steps_with_other_noise_is_refused(trained, restore, change, words, tmp_path):
    target = compiled(**change)
    with pytest.raises(ValueError, match=words):
        restore(trained, target, tmp_path)
    assert int(target.optimizer.noised_steps) == 0
    restore(trained, compiled(), tmp_path)  # and of steps with the same is not


@pytest.mark.parametrize("lazily", [False, True])
def test_a_checkpoint_of_steps_with_other_noise_is_refused(trained, lazily, tmp_path):
    path = tf.train.Checkpoint(model=trained).write(str(tmp_path / "checkpoint"))
    target = compiled(z=5.0)
    if not lazily:
        target.optimizer.build(target.trainable_variables)
    tf.train.Checkpoint(model=target).restore(path)
    with pytest.raises(ValueError, match=r"`noise_multiplier`=5, .* with 0\.5"):
        train(target, callbacks=[budget()])
    assert int(target.optimizer.noised_steps) == 5


def test_a_backup_of_steps_with_other_noise_is_refused_wherever_it_is_in_the_list(tmp_path):
    class Killed(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    def backup():
        return tf.keras.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False)

    with pytest.raises(KeyboardInterrupt):
        train(compiled(), epochs=9, callbacks=[backup(), Killed()])
    for callbacks in ([budget(), backup()], [backup(), budget()]):
        target = compiled(z=5.0)
        with pytest.raises(ValueError, match="`noise_multiplier`=5"):
            train(target, epochs=9, callbacks=callbacks)
        # Keras 2 has restored it by then, Keras 3 restores nothing.
        assert int(target.optimizer.noised_steps) == {2: 5, 3: 0}[keras.GENERATION]


def test_a_loaded_model_has_the_noise_that_it_was_saved_with(trained, tmp_path):
    for name in ("model.keras", "model.h5")[: {2: 2, 3: 1}[keras.GENERATION]]:
        trained.save(tmp_path / name)
        loaded = tf.keras.models.load_model(tmp_path / name)
        assert loaded.optimizer.past_steps() == trained.optimizer.past_steps()
        assert loaded.optimizer.noise_multiplier == 0.5


# ---------------------------------------------------------------------------------------------------
# Where nobody asks, the state still knows: never too small.


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_steps_that_were_mixed_unseen_count_as_the_worst(trained, tmp_path, jit_compile):
    path = tf.train.Checkpoint(model=trained).write(str(tmp_path / "checkpoint"))
    target = compiled(z=5.0, size=2, jit_compile=jit_compile)
    tf.train.Checkpoint(model=target).restore(path)
    if jit_compile:
        target.fit(*models.data(N), batch_size=2, steps_per_epoch=7, verbose=0)
    else:
        train(target, steps=7, size=2)
    past = target.optimizer.past_steps()
    assert past[:4] == (12, 0.5, 1.0, BATCH)
    event = optimizer_event(target.optimizer, **WHERE)
    assert event == adaclip_tf.training_event(noise_multiplier=0.5, steps=12, **WHERE)
    with pytest.raises(ValueError, match=r"`batch_size` is 2, .* batches of 4"):
        optimizer_event(target.optimizer, num_examples=N, batch_size=2)
    with pytest.raises(ValueError, match="`noise_multiplier`=5"):
        train(target, size=2, callbacks=[budget(batch_size=2)])


def test_less_noise_later_counts_for_all(trained, tmp_path):
    path = tf.train.Checkpoint(model=trained).write(str(tmp_path / "checkpoint"))
    target = compiled(z=0.25)
    tf.train.Checkpoint(model=target).restore(path)
    target.optimizer.build(target.trainable_variables)
    assert optimizer_event(target.optimizer, **WHERE) == adaclip_tf.training_event(
        noise_multiplier=0.5, steps=5, **WHERE
    )
    train(target, steps=2)
    assert target.optimizer.past_steps()[:2] == (7, 0.25)


def test_a_count_that_starts_again_starts_with_its_own_noise(trained, tmp_path):
    target = compiled(z=5.0)
    tf.train.Checkpoint(model=target).restore(tf.train.Checkpoint(model=trained).write(str(tmp_path / "checkpoint")))
    target.optimizer.build(target.trainable_variables)
    assert target.optimizer.past_steps()[:2] == (5, 0.5)
    target.optimizer.noised_steps.assign(0)
    train(target, steps=1)
    assert target.optimizer.past_steps()[:2] == (1, 5.0)


# ---------------------------------------------------------------------------------------------------
# Batches of fixed size, and microbatches.


def test_without_an_expected_size_the_largest_batch_is_remembered():
    model = compiled(size=None)
    inputs, labels = models.data(14)
    model.fit(inputs, labels, batch_size=4, verbose=0)
    assert model.optimizer.past_steps()[:4] == (4, 0.5, 1.0, 4)
    model.fit(inputs, labels, batch_size=7, verbose=0)
    assert model.optimizer.past_steps()[:4] == (6, 0.5, 1.0, 7)


def test_a_microbatch_for_each_example_has_sensitivity_1():
    """The port of a program for tensorflow-privacy: `num_microbatches=batch_size`."""
    inputs, labels = models.data(24)
    weights = []
    for size, microbatches in ((8, 8), (None, 8), (8, None)):
        model = compiled(size=size, num_microbatches=microbatches, seed=1)
        model.optimizer.build(model.trainable_variables)
        model.fit(inputs, labels, batch_size=8, shuffle=False, verbose=0)
        assert model.optimizer.microbatch_sensitivity == 1.0
        assert model.optimizer.past_steps()[:4] == (3, 0.5, 1.0, 8)
        weights.append(model.get_weights())
    for first, second, reference in zip(*weights):
        np.testing.assert_allclose(first, reference, atol=1e-6)
        np.testing.assert_allclose(second, reference, atol=1e-6)


def test_before_the_first_step_the_sensitivity_is_known_where_the_size_is():
    assert compiled(size=8, num_microbatches=8).optimizer.microbatch_sensitivity == 1.0
    assert compiled(size=8, num_microbatches=4, accumulation_steps=2).optimizer.microbatch_sensitivity == 1.0
    assert compiled(size=16, num_microbatches=8).optimizer.microbatch_sensitivity == 2.0
    assert compiled(size=None, num_microbatches=8).optimizer.microbatch_sensitivity == 2.0


@pytest.mark.parametrize("parts", [1, 2])
def test_one_batch_of_shared_microbatches_is_enough_for_sensitivity_2(parts):
    model = compiled(size=None, num_microbatches=8, accumulation_steps=parts)
    model.optimizer.build(model.trainable_variables)
    inputs, labels = models.data(16)
    dataset = tf.data.Dataset.from_tensor_slices((inputs, labels))
    model.fit(dataset.batch(8), verbose=0)
    assert model.optimizer.past_steps()[:4] == (2 // parts, 0.5, 1.0, 8 * parts)
    # The part of 16 comes first: the last one alone would not tell.
    model.fit(dataset.batch(16).concatenate(dataset.take(8).batch(8)), verbose=0)
    past = model.optimizer.past_steps()
    assert past.microbatch_sensitivity == model.optimizer.microbatch_sensitivity == 2.0
    assert past.batch_size >= 16


def test_where_the_expected_size_says_one_each_a_larger_batch_is_no_danger():
    """Not two to a microbatch, but a gradient for each."""
    inputs, labels = models.data(8)
    reference = compiled(size=4, seed=3)
    ours = compiled(size=4, num_microbatches=4, seed=3)
    for m in (reference, ours):
        m.optimizer.build(m.trainable_variables)
        m.fit(inputs, labels, batch_size=8, shuffle=False, verbose=0)
    for one, other in zip(reference.get_weights(), ours.get_weights()):
        np.testing.assert_allclose(one, other, atol=1e-5)  # two graphs, which may add up in another order


@pytest.mark.parametrize(
    "microbatches,size,parts,divisor", [(4, 16, 2, 8), (8, 16, 2, 16), (None, 16, 2, 16), (4, None, 2, 8)]
)
def test_the_divisor_counts_all_parts_of_a_logical_batch(microbatches, size, parts, divisor):
    model = compiled(z=1.0, size=size, num_microbatches=microbatches, accumulation_steps=parts)
    model.optimizer.build(model.trainable_variables)
    norms = model.optimizer.private_metrics()
    assert float(norms["noise_norm"] / norms["scale_norm"]) == pytest.approx(1.0 / divisor)


# ---------------------------------------------------------------------------------------------------
# Phases.


def test_each_optimizer_is_a_phase_and_a_restored_one_goes_on(trained, tmp_path):
    assert compiled().optimizer.past_steps().phase != compiled().optimizer.past_steps().phase
    copy = DPAdaClipSGD.from_config(DPAdaClipSGD(noise_multiplier=1.0).get_config())
    assert copy.past_steps().phase != DPAdaClipSGD(noise_multiplier=1.0).past_steps().phase
    fresh = compiled()
    before = fresh.optimizer.past_steps().phase
    fresh.optimizer.build(fresh.trainable_variables)
    assert fresh.optimizer.past_steps().phase == before
    by_set_weights(trained, fresh, tmp_path)
    assert fresh.optimizer.past_steps().phase == trained.optimizer.past_steps().phase


def test_phases_do_not_repeat():
    assert len({past_steps.phase_name(past_steps.new_phase()) for _ in range(1000)}) == 1000


def test_the_phase_is_deaf_to_seeds():
    found = set()
    for _ in range(2):
        np.random.seed(0)
        tf.random.set_seed(0)
        found.add(compiled().optimizer.past_steps().phase)
    assert len(found) == 2
