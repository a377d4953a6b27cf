"""A `PrivacyBudget` is told what the batches are like, or takes it from them, and refuses what it can see is false."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf import DPFixedClipSGD, PrivacyBudget, PrivacyTensorBoard, poisson_batches
from adaclip_tf.data import sampling
from adaclip_tf.privacy import claims, events
from adaclip_tf.privacy.drawn import Drawn, drawn_of
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.privacy.past_steps import PastSteps
from tests import models
from tests.optimizers import pool

N, BATCH, DELTA, Z = 64, 8, 1e-3, 4.0
WHERE = {"num_examples": N, "batch_size": BATCH, "delta": DELTA}
SHUFFLED = {**WHERE, "sampling": "shuffled"}


def made(size=BATCH, **arguments):
    model = models.softmax_regression()
    arguments = {"noise_multiplier": Z, "expected_batch_size": size, **arguments}
    model.compile(DPFixedClipSGD(0.1, l2_norm_clip=1.0, **arguments), models.per_example_loss())
    model.optimizer.build(model.trainable_variables)  # a step that makes variables is traced twice
    return model


_POOL = pool.Pool(made)


@pytest.fixture(autouse=True)
def _begin():
    _POOL.begin()


def compiled(**arguments):
    return made(**arguments) if arguments else _POOL.take()


def poisson(parts=1, n=N, size=BATCH):
    return poisson_batches(models.data(n), expected_batch_size=size, steps=4, accumulation_steps=parts)


def slices(n=N):
    return tf.data.Dataset.from_tensor_slices(models.data(n))


def fit(model, data, *callbacks, **options):
    return model.fit(data, callbacks=list(callbacks), **{"verbose": 0, **options}).history


def refused(words, model, data, callback, steps=0, **options):
    """Refused in these words, before a step is taken beyond those that there were."""
    with pytest.raises(ValueError, match=words):
        fit(model, data, callback, **options)
    model.optimizer.build(model.trainable_variables)
    assert int(model.optimizer.noised_steps) == steps


# ---------------------------------------------------------------------------------------------------
# Taken from the batches.


def test_of_takes_all_from_the_batches():
    batches = poisson()
    budget = PrivacyBudget.of(batches, delta=DELTA, target_epsilon=9.0, accountant="pld")
    assert (budget.num_examples, budget.batch_size, budget.sampling) == (N, BATCH, "poisson")
    assert (budget.delta, budget.target_epsilon, budget.accountant) == (DELTA, 9.0, "pld")
    history = fit(compiled(), batches, PrivacyBudget.of(batches, delta=DELTA))
    assert history["epsilon"] == [pytest.approx(adaclip_tf.epsilon(noise_multiplier=Z, steps=4, **WHERE), rel=1e-9)]


def test_of_takes_it_from_distributed_batches():
    """Worker or replica, q is B / n: not multiplied by their number."""
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    batches = sampling.distributed_poisson_batches(strategy, models.data(N), expected_batch_size=BATCH)
    budget = PrivacyBudget.of(batches, delta=DELTA)
    assert (budget.num_examples, budget.batch_size, budget.sampling) == (N, BATCH, "poisson")


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_together_draw_with_probability_q(workers):
    """Each of W workers draws its own n / W rows with q = B / n, not W B / n. 500 draws of 60 rows: sd 0.0023."""
    drawn = []

    class Strategy:
        def distribute_datasets_from_function(self, of_worker):
            for worker in range(workers):
                drawn.append(of_worker(tf.distribute.InputContext(workers, worker, workers)).take(500))
            return drawn[0]

    batches = sampling.distributed_poisson_batches(Strategy(), np.arange(60), expected_batch_size=12, seed=1)
    counts = np.zeros(60)
    for dataset in drawn:
        for rows in dataset:
            counts[rows.numpy()] += 1
    assert counts.mean() / 500 == pytest.approx(12 / 60, abs=0.01)
    assert abs(counts / 500 - 0.2).max() < 0.1  # sd 0.018
    assert drawn_of(batches) == Drawn(60, 12, 1)


@pytest.mark.parametrize("change", [lambda b: b.map(lambda *a: a), lambda b: b.prefetch(2), lambda b: b.take(1)])
def test_of_says_where_the_knowledge_was_lost(change):
    with pytest.raises(ValueError, match=r"`batches` must be what `poisson_batches`.*`\.map`, `\.prefetch`"):
        PrivacyBudget.of(change(poisson()), delta=DELTA)


def test_of_knows_the_original_of_what_fit_gets():
    batches = poisson()
    history = fit(compiled(), batches.map(lambda x, y: (x + 0.0, y)), PrivacyBudget.of(batches, delta=DELTA))
    assert history["epsilon"] == [pytest.approx(adaclip_tf.epsilon(noise_multiplier=Z, steps=4, **WHERE), rel=1e-9)]


def test_of_takes_a_mechanism():
    """n, B and sampling are its own; the noise, of which it has another, is the optimizer's to say."""
    claimed = Mechanism(9.0, WHERE["num_examples"], WHERE["batch_size"])
    history = fit(compiled(), poisson(), PrivacyBudget.of(claimed, delta=DELTA))
    assert history["epsilon"] == [pytest.approx(adaclip_tf.epsilon(noise_multiplier=Z, steps=4, **WHERE), rel=1e-9)]
    refused(
        "`num_examples` is 70",
        compiled(),
        poisson(),
        PrivacyBudget.of(Mechanism(9.0, 70, WHERE["batch_size"]), delta=DELTA),
    )


@pytest.mark.parametrize("name", ["num_examples", "batch_size", "sampling"])
def test_of_refuses_to_be_told_twice(name):
    with pytest.raises(ValueError, match=f"`{name}` is known from the batches"):
        PrivacyBudget.of(poisson(), delta=DELTA, **{name: 3})


def test_of_refuses_an_optimizer_that_does_not_fit():
    batches = poisson(parts=2)
    budget = PrivacyBudget.of(batches, delta=DELTA)
    for data in (batches, batches.prefetch(1)):
        refused("in 2 parts each and the optimizer has `accumulation_steps`=1", compiled(), data, budget)
    two = compiled(accumulation_steps=2)
    refused("in 1 part each and the optimizer has `accumulation_steps`=2", two, poisson(), budget)
    refused("no `expected_batch_size`", compiled(size=None), poisson(), PrivacyBudget.of(poisson(), delta=DELTA))
    refused("`expected_batch_size` is 16", compiled(size=16), poisson(), PrivacyBudget.of(poisson(), delta=DELTA))


# ---------------------------------------------------------------------------------------------------
# What can be seen is false.


@pytest.mark.parametrize("n", [64, 61])
def test_arrays_accounted_as_poisson_are_refused(n):
    """Where B divides n the batch has a static size, and where it does not it has not."""
    x, y = models.data(n)
    where = {**WHERE, "num_examples": n}
    refused(
        "Poisson sampling, and `fit` was given arrays", compiled(), x, PrivacyBudget(**where), y=y, batch_size=BATCH
    )
    fit(compiled(), x, PrivacyBudget(**where, sampling="shuffled"), y=y, batch_size=BATCH)


def test_batches_of_a_static_size_accounted_as_poisson_are_refused():
    dataset = slices().shuffle(N).batch(BATCH, drop_remainder=True)
    refused("Poisson sampling, and `fit` was given batches of fixed size", compiled(), dataset, PrivacyBudget(**WHERE))
    fit(compiled(), dataset, PrivacyBudget(**SHUFFLED))


def test_the_whole_data_set_as_one_batch_is_both():
    x, y = models.data(N)
    fit(compiled(size=N), x, PrivacyBudget(**{**WHERE, "batch_size": N}), y=y, batch_size=N)


def test_another_batch_size_is_refused():
    x, y = models.data(N)
    refused("`batch_size` is 8, and `fit` was given batches of 16", compiled(), x, PrivacyBudget(**SHUFFLED), y=y,
            batch_size=16)  # fmt: skip
    refused("batches of 4", compiled(), slices().batch(4, drop_remainder=True), PrivacyBudget(**SHUFFLED))
    two = compiled(accumulation_steps=2)
    refused(r"8 in 2 parts \(`accumulation_steps`\).*batches of 8", two, slices().batch(8, drop_remainder=True),
            PrivacyBudget(**SHUFFLED))  # fmt: skip
    fit(two, slices().batch(4, drop_remainder=True), PrivacyBudget(**SHUFFLED))


def test_another_number_of_examples_is_refused():
    x, y = models.data(N)
    budget = PrivacyBudget(**{**SHUFFLED, "num_examples": 900})
    refused("`num_examples` is 900, and .* arrays of 64 rows", compiled(), x, budget, y=y, batch_size=BATCH)


DERIVED = {
    "themselves": lambda batches: batches,
    "map": lambda batches: batches.map(lambda *batch: batch),
    "prefetch": lambda batches: batches.prefetch(1),
    "repeat": lambda batches: batches.repeat(2),
}


@pytest.mark.parametrize("derived", DERIVED)
@pytest.mark.parametrize(
    "change,words",
    [
        ({"num_examples": 900}, "`num_examples` is 900, and the batches .* have 64"),
        ({"sampling": "shuffled"}, "`sampling` is 'shuffled', and the batches .* have 'poisson'"),
    ],
)
def test_batches_that_know_better_are_believed(change, words, derived):
    refused(words, compiled(), DERIVED[derived](poisson()), PrivacyBudget(**{**WHERE, **change}))


@pytest.mark.parametrize("derived", DERIVED)
def test_larger_draws_than_are_counted_are_refused(derived):
    batches = DERIVED[derived](poisson(size=4 * BATCH))
    refused("`batch_size` is 8, and the batches .* have 32", compiled(), batches, PrivacyBudget(**WHERE))


@pytest.mark.parametrize("derived", DERIVED)
def test_two_draws_are_no_parts_of_one(derived):
    """An example can be in both."""
    refused("in 1 part each", compiled(accumulation_steps=2), DERIVED[derived](poisson()), PrivacyBudget(**WHERE))


def test_a_poisson_batch_without_a_public_divisor_is_refused():
    for data in (poisson(), poisson().prefetch(1)):
        refused("no `expected_batch_size`.*private", compiled(size=None), data, PrivacyBudget(**WHERE))


def test_a_batch_that_is_larger_than_was_said_is_told_by_the_optimizer():
    """The size is not static, so nobody can see it before the first step."""
    model = compiled(size=None)
    with pytest.raises(ValueError, match="`batch_size` is 8, and a batch of 32 has come"):
        fit(model, models.out_of_sight(slices().repeat(8).batch(32)), PrivacyBudget(**SHUFFLED))
    assert int(model.optimizer.noised_steps) == 1
    with pytest.raises(ValueError, match="`batch_size` is 8, and the optimizer has taken steps on batches of 32"):
        fit(model, models.out_of_sight(slices().batch(8)), PrivacyBudget(**SHUFFLED))


def test_tensorboard_refuses_the_same(tmp_path):
    x, y = models.data(N)
    board = PrivacyTensorBoard(tmp_path, **WHERE)
    refused("Poisson sampling, and `fit` was given arrays", compiled(), x, board, y=y, batch_size=BATCH)


def test_what_cannot_be_seen_is_not_refused():
    generator = (models.data(BATCH) for _ in range(2))
    fit(compiled(), generator, PrivacyBudget(**WHERE), steps_per_epoch=2)


# ---------------------------------------------------------------------------------------------------
# Microbatches of one example each.


@pytest.mark.parametrize("way,size", [("arrays", None), ("dynamic", None), ("static", BATCH)])
def test_a_microbatch_for_each_example_costs_what_examples_cost(way, size):
    x, y = models.data(N)
    data, options = {
        "arrays": (x, {"y": y, "batch_size": BATCH}),
        "static": (slices().batch(BATCH, drop_remainder=True), {}),
        "dynamic": (slices().batch(BATCH), {}),
    }[way]
    expected = [adaclip_tf.epsilon_of(events.gaussian_event(Z, epochs), delta=DELTA) for epochs in (1, 2)]
    model = compiled(size=size, num_microbatches=BATCH)
    budget = PrivacyBudget(**SHUFFLED)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        history = fit(model, data, budget, epochs=2, shuffle=way == "arrays", **options)
    assert history["epsilon"] == pytest.approx(expected, rel=1e-9)
    assert budget.epsilon == pytest.approx(expected[1], rel=1e-9)


def test_microbatches_that_turn_out_to_be_shared_are_told_and_paid_for():
    model = compiled(size=None, num_microbatches=4)
    budget = PrivacyBudget(**{**SHUFFLED, "batch_size": 4})
    with pytest.raises(ValueError, match=r"`num_microbatches`=4 was to be one example each.*twice the sensitivity"):
        fit(model, models.out_of_sight(slices().repeat(2).batch(8)), budget)
    assert int(model.optimizer.noised_steps) == 1
    assert budget.epsilon == pytest.approx(adaclip_tf.epsilon_of(events.gaussian_event(Z / 2), delta=DELTA), rel=1e-9)


def test_shared_microbatches_cost_twice_from_the_start():
    model = compiled(size=None, num_microbatches=4)
    history = fit(model, slices().batch(BATCH), PrivacyBudget(**SHUFFLED))
    assert history["epsilon"] == [
        pytest.approx(adaclip_tf.epsilon_of(events.gaussian_event(Z / 2), delta=DELTA), rel=1e-9)
    ]


# ---------------------------------------------------------------------------------------------------
# Said in sight.


@pytest.mark.parametrize(
    "data,arguments,words",
    [
        (poisson, WHERE, "Poisson-sampled batches, 8 of 64 examples expected in each, which is what `fit` was given."),
        (lambda: poisson().prefetch(1), WHERE, "which is what `fit` was given."),
        (lambda: models.out_of_sight(slices().batch(BATCH)), WHERE, "It can't see whether these batches are"),
        (lambda: slices().batch(BATCH), SHUFFLED, "counts each of 64 examples once per epoch, in batches of 8"),
    ],
)
def test_what_is_assumed_is_one_line_once(data, arguments, words, capsys):
    budget = PrivacyBudget(**arguments)
    model = compiled()
    for _ in range(2):
        fit(model, data(), budget, verbose="auto")
    lines = [line for line in capsys.readouterr().out.splitlines() if "PrivacyBudget" in line]
    assert len(lines) == 1
    assert words in lines[0]


def test_what_is_known_is_not_said(capsys):
    fit(compiled(), poisson(), PrivacyBudget.of(poisson(), delta=DELTA), verbose="auto")
    assert "PrivacyBudget" not in capsys.readouterr().out


@pytest.mark.parametrize("verbose", ["auto", 1, 2, 0])
def test_the_end_is_said_once_and_on_a_line_of_its_own(verbose, capsys):
    target = adaclip_tf.epsilon(noise_multiplier=Z, steps=2, **WHERE) * 1.001
    budget = PrivacyBudget.of(poisson(), delta=DELTA, target_epsilon=target)
    fit(compiled(), poisson(), budget, verbose=verbose, epochs=3)
    lines = [line for line in capsys.readouterr().out.splitlines() if "PrivacyBudget" in line]
    assert len(lines) == (0 if verbose == 0 else 1)
    if lines:
        assert lines[0].startswith("PrivacyBudget has stopped the training: 2 noised steps have cost epsilon")
        assert "allows 2 in all" in lines[0]


def test_training_that_was_not_stopped_says_nothing(capsys):
    fit(compiled(), poisson(), PrivacyBudget.of(poisson(), delta=DELTA, target_epsilon=1e3), verbose="auto")
    assert "stopped" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        lambda batches: batches.cache().repeat(3),
        lambda batches: batches.unbatch().batch(30),
        lambda batches: batches.concatenate(batches),
        lambda batches: batches.map(lambda *batch: batch).rebatch(30),
        lambda batches: tf.data.Dataset.zip((batches, batches)).map(lambda one, other: one),
        lambda batches: tf.data.Dataset.zip((batches, poisson())).map(lambda one, other: one),
        lambda batches: tf.data.Dataset.zip((slices().batch(8), batches)).map(lambda one, other: one),
    ],
)
def test_what_no_longer_is_what_was_drawn_is_refused(change):
    batches = poisson()
    refused("drawn by Poisson sampling", compiled(), change(batches), PrivacyBudget.of(batches, delta=DELTA))


def test_what_is_made_of_batches_one_by_one_is_still_drawn():
    batches = poisson()
    budget = PrivacyBudget.of(batches, delta=DELTA)
    fit(compiled(), batches.map(lambda *batch: batch).repeat(2).prefetch(1), budget)
    assert budget.noised_steps == 8


def test_drawn_batches_may_be_zipped_with_what_holds_no_examples():
    batches = poisson()
    budget = PrivacyBudget.of(batches, delta=DELTA)
    fit(compiled(), tf.data.Dataset.zip((batches, tf.data.Dataset.range(100))).map(lambda one, _: one), budget)
    assert budget.noised_steps == 4


# ---------------------------------------------------------------------------------------------------
# Epochs that are no epochs: shuffled batches are paid for once per epoch.


class _Break(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = True


@pytest.mark.parametrize("how", ["steps_per_epoch", "stopped"])
def test_after_an_epoch_that_was_broken_off_another_one_is_refused(how):
    """Eight runs of one step would use the first examples eight times, and count as one epoch of eight steps."""
    x, y = models.data(N)
    model, options = compiled(), {"y": y, "batch_size": BATCH}
    budget = PrivacyBudget(**SHUFFLED)
    if how == "stopped":
        model.fit(x, callbacks=[budget, _Break()], verbose=0, **options)
    else:
        fit(model, x, budget, steps_per_epoch=1, **options)
    assert int(model.optimizer.noised_steps) == 1
    refused("the last one was broken off", model, x, PrivacyBudget(**SHUFFLED), steps=1, **options)
    other = adaclip_tf.optimizer_event(model.optimizer, num_examples=N, batch_size=BATCH, sampling="shuffled")
    history = fit(compiled(), x, PrivacyBudget(**SHUFFLED, other_event=other), **options)
    twice = adaclip_tf.epsilon_of(events.gaussian_event(Z, 2), delta=DELTA)
    assert history["epsilon"] == [pytest.approx(twice, rel=1e-6)]


def test_an_epoch_is_as_long_as_what_fit_is_given_shows():
    """1,000 in batches of 300 are 4 steps, without the rest 3. In six runs up to 3, 4, 6, 8, 9, 12 they cost 13.8, and
    10.7 was told."""
    claimed = Mechanism(Z, 1000, 300, "shuffled")

    def is_refused(steps, given, parts=1):
        taken = SimpleNamespace(
            past_steps=lambda: PastSteps(steps, Z, 1.0, 300, "a"),
            noise_multiplier=Z,
            expected_batch_size=300,
            name="x",
            iterations=steps,
            accumulation_steps=parts,
        )
        try:
            claims.check_past(taken, claimed, given)
        except ValueError as error:
            return "broken off" in str(error)
        return False

    arrays, dropped = claims.Given(arrays=True), claims.Given(num_batches=3)
    assert [steps for steps in range(13) if not is_refused(steps, arrays)] == [0, 4, 8, 12]
    assert [steps for steps in range(13) if not is_refused(steps, dropped)] == [0, 3, 6, 9, 12]
    assert not is_refused(4, claims.Given(num_batches=8), parts=2)
    for unknown in (claims.Given(), claims.Given(num_batches=6)):  # two passes in one
        assert [steps for steps in range(7) if not is_refused(steps, unknown)] == [0, 3, 4, 6]


def test_whole_epochs_may_follow_one_another():
    x, y = models.data(N)
    model = compiled()
    for epochs in (1, 2):
        history = fit(model, x, PrivacyBudget(**SHUFFLED), y=y, batch_size=BATCH)
        expected = adaclip_tf.epsilon_of(events.gaussian_event(Z, epochs), delta=DELTA)
        assert history["epsilon"] == [pytest.approx(expected, rel=1e-6)]


def test_a_cut_that_the_pipeline_shows_is_no_poisson_sample():
    """Without `drop_remainder` no shape says it."""
    cut = slices().shuffle(N).batch(BATCH)
    for dataset in (cut, cut.prefetch(1), cut.map(lambda *batch: batch).repeat(2), slices().repeat().batch(BATCH)):
        words = "Poisson sampling, and `fit` was given batches of fixed size"
        refused(words, compiled(), dataset, PrivacyBudget(**WHERE), steps_per_epoch=2)
    fit(compiled(), cut, PrivacyBudget(**SHUFFLED))


@pytest.mark.parametrize("form", ["cut", "mapped, of a size that is known"])
def test_a_cut_of_another_size_is_no_poisson_sample_either(form):
    """Only a map that may change sizes can have drawn examples out of larger batches."""
    dataset = {
        "cut": lambda: slices().batch(2 * BATCH),
        "mapped, of a size that is known": lambda: slices().batch(2 * BATCH, drop_remainder=True).map(lambda *b: b),
    }[form]()
    refused(f"fit` was given batches of {2 * BATCH}", compiled(), dataset, PrivacyBudget(**WHERE))


def test_examples_that_are_drawn_out_of_larger_batches_are_believed():
    """Poisson sampling of one's own: each of all examples stays with probability q."""

    def draw(*batch):
        stays = tf.random.uniform([N]) < BATCH / N
        return tuple(tf.boolean_mask(part, stays) for part in batch)

    budget = PrivacyBudget(**WHERE)
    fit(compiled(), slices().batch(N).map(draw).repeat(2), budget)
    assert budget.noised_steps == 2


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (lambda: slices().shuffle(N).batch(4 * BATCH).repeat(), "batches of 32"),
        (lambda: slices().batch(4 * BATCH).map(lambda *batch: batch).repeat(), "batches of 32"),
        (lambda: slices().take(24).batch(BATCH).repeat(), "a dataset of 24 rows"),
        (lambda: slices().concatenate(slices()).batch(BATCH), "a dataset of 128 rows"),
        (lambda: slices().repeat().shuffle(N).batch(BATCH), "Put `repeat` behind `batch`"),
        (lambda: slices().repeat(3).batch(BATCH), "Put `repeat` behind `batch`"),
    ],
)
def test_epochs_that_are_shorter_than_they_are_counted_are_refused(dataset, words):
    refused(words, compiled(), dataset(), PrivacyBudget(**SHUFFLED), steps_per_epoch=N // BATCH)


def test_epochs_as_they_are_counted_are_taken():
    budget = PrivacyBudget(**SHUFFLED)
    fit(compiled(), slices().repeat(1).shuffle(N).batch(BATCH).repeat(), budget, steps_per_epoch=N // BATCH, epochs=2)
    assert budget.noised_steps == 2 * N // BATCH


@pytest.mark.parametrize("other", ["a generator", "a dataset", "saved batches"])
def test_a_budget_of_batches_is_for_these_batches(other, tmp_path):
    batches = poisson()
    if other == "saved batches":  # the same draws in each epoch
        batches.save(str(tmp_path / "batches"))
    data = {
        "a generator": lambda: (models.data(BATCH) for _ in range(2)),
        "a dataset": lambda: models.out_of_sight(slices().batch(BATCH)),
        "saved batches": lambda: tf.data.Dataset.load(str(tmp_path / "batches")),
    }[other]()
    budget = PrivacyBudget.of(batches, delta=DELTA)
    refused("something else, in which no such draw can be seen", compiled(), data, budget, steps_per_epoch=2)


def test_a_budget_of_batches_is_not_for_arrays():
    """Not even where both are the whole data."""
    x, y = models.data(N)
    budget = PrivacyBudget.of(poisson(size=N), delta=DELTA)
    refused("no such draw can be seen", compiled(size=N), x, budget, y=y, batch_size=N)


def test_what_a_strategy_hands_out_is_still_drawn():
    strategy = tf.distribute.MirroredStrategy(["CPU:0"])
    batches = poisson()
    with strategy.scope():
        model = made()
    budget = PrivacyBudget.of(batches, delta=DELTA)
    fit(model, strategy.experimental_distribute_dataset(batches), budget, steps_per_epoch=4)
    assert budget.noised_steps == 4


def test_a_dataset_that_is_shorter_than_an_epoch_is_refused():
    for batches in (1, 3):
        dataset = slices().batch(BATCH).take(batches)
        refused(f"ends after {batches} batches", compiled(), dataset, PrivacyBudget(**SHUFFLED))


# ---------------------------------------------------------------------------------------------------
# Callbacks that decide by what was not noised.


class Own(tf.keras.callbacks.EarlyStopping):
    """A subclass of one's own."""


DECIDING = tf.keras.callbacks


@pytest.mark.parametrize(
    ("callback", "told"),
    [
        (lambda: DECIDING.EarlyStopping("loss", patience=9), "EarlyStopping decides by 'loss'"),
        (lambda: Own("loss", patience=9), "Own decides by 'loss'"),
        (lambda: DECIDING.ReduceLROnPlateau("loss"), "ReduceLROnPlateau decides by 'loss'"),
        (lambda: DECIDING.EarlyStopping("epsilon", patience=9, mode="min"), None),
        (lambda: DECIDING.EarlyStopping("val_loss", patience=9), None),
    ],
)
def test_what_is_decided_by_the_training_loss_is_told_to_be_a_release(caplog, callback, told):
    model, batches = compiled(), poisson_batches(models.data(N), expected_batch_size=BATCH, steps=1, seed=0)
    budget = PrivacyBudget.of(batches, delta=DELTA)
    with caplog.at_level("WARNING", logger="absl"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            model.fit(batches, verbose=0, callbacks=[callback(), budget])
    said = [record.getMessage() for record in caplog.records if "is a release" in record.getMessage()]
    assert len(said) == (told is not None)  # once for a budget
    assert told is None or (said[0].startswith(told) and "('val_loss')" in said[0])


def test_to_stop_at_a_loss_that_is_no_number_tells_of_an_example(caplog):
    model, batches = compiled(), poisson_batches(models.data(N), expected_batch_size=BATCH, steps=1, seed=0)
    with caplog.at_level("WARNING", logger="absl"):
        fit(model, batches, tf.keras.callbacks.TerminateOnNaN(), PrivacyBudget.of(batches, delta=DELTA))
    assert "TerminateOnNaN stops by the loss of the training data" in caplog.text


def test_tensorboard_tells_it_where_there_is_no_budget(caplog, tmp_path):
    model, batches = compiled(), poisson_batches(models.data(N), expected_batch_size=BATCH, steps=1, seed=0)
    board = PrivacyTensorBoard(tmp_path, image_freq=0, histogram_freq=0)
    keep = DECIDING.ModelCheckpoint(
        str(tmp_path / "best.weights.h5"), "loss", save_best_only=True, save_weights_only=True
    )
    with caplog.at_level("WARNING", logger="absl"):
        model.fit(batches, verbose=0, callbacks=[board, keep])
    assert "ModelCheckpoint decides by 'loss'" in caplog.text


# ---------------------------------------------------------------------------------------------------
# Parts of logical batches.


@pytest.mark.parametrize(
    "change",
    [
        lambda batches: batches.shuffle(2),
        lambda batches: batches.take(3).repeat(2),
        lambda batches: batches.skip(1),
        lambda batches: batches.map(lambda *batch: batch, num_parallel_calls=2),
    ],
)
def test_what_puts_parts_of_two_draws_together_is_refused(change):
    batches, model = poisson(parts=2), compiled(accumulation_steps=2)
    refused("parts of two draws together", model, change(batches), PrivacyBudget.of(batches, delta=DELTA))


def test_parts_of_a_run_that_was_broken_off_are_not_completed_by_another_draw():
    batches, model = poisson(parts=2).map(lambda *batch: batch).prefetch(1), compiled(accumulation_steps=2)
    budget = PrivacyBudget.of(poisson(parts=2), delta=DELTA)
    model.fit(batches, callbacks=[budget, _Break()], verbose=0)
    assert int(model.optimizer.noised_steps) == 0
    fit(model, batches, budget)
    assert int(model.optimizer.noised_steps) == 4
    assert [int(sums._batches.numpy()) for sums in model.optimizer.private_step._accumulators.all()] == [0]


def test_before_the_first_fit_there_is_nobody_to_ask():
    with pytest.raises(ValueError, match="got none, before a model's `fit` has one"):
        _ = PrivacyBudget.of(poisson(), delta=DELTA).epsilon
