"""What was spent stays spent: other optimizers, older states, other budgets, questions that cost the same twice."""

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf import DPAdaClipSGD, DPFixedClipSGD, Ledger, PrivacyBudget, PrivatePCA, core, poisson_batches
from adaclip_tf.privacy import events, past_steps, session
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.privacy.meter import PrivacyMeter
from adaclip_tf.privacy.taken import Taken
from tests import models
from tests.optimizers import pool

N, BATCH, DELTA, Z, PER_EPOCH = 32, 4, 1e-3, 2.0, 3
STEP = Mechanism(Z, N, BATCH)
ASKED = 6.0  # noise of the scales


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.json"


def optimizer():
    return DPFixedClipSGD(0.1, l2_norm_clip=1.0, noise_multiplier=Z, expected_batch_size=BATCH)


def scaled(name):
    """An optimizer with scales that cost `ASKED`."""
    shapes = [np.ones([1] * len(variable.shape)) for variable in models.softmax_regression().trainable_variables]
    scales = core.Scales(1.0, shapes, noise_multiplier=ASKED, name=name)
    made = DPAdaClipSGD(0.1, noise_multiplier=Z, expected_batch_size=BATCH, scales=scales)
    return DPAdaClipSGD.from_config(made.get_config())  # as one that was saved


def compiled(with_optimizer=None):
    model = models.softmax_regression()
    model.compile(with_optimizer or optimizer(), models.per_example_loss())
    model.optimizer.build(model.trainable_variables)
    return model


_POOL = pool.Pool(compiled)


@pytest.fixture(autouse=True)
def _begin():
    _POOL.begin()


def batches(steps=PER_EPOCH):
    return poisson_batches(models.data(N), expected_batch_size=BATCH, steps=steps)


def train(model, budget, *more, epochs=1):
    model.fit(batches(), epochs=epochs, verbose=0, callbacks=[budget, *more])


def made_budget(**options):
    return PrivacyBudget.of(batches(), delta=DELTA, **options)


def epsilon(steps, *others):
    event = dp_accounting.ComposedDpEvent([*others, *([STEP.event(steps=steps)] if steps else [])])
    return pytest.approx(adaclip_tf.epsilon_of(event, delta=DELTA), rel=1e-9)


def asked(name):
    return events.named(events.gaussian_event(ASKED), name)


# ---------------------------------------------------------------------------------------------------
# One budget without a ledger.


def test_a_new_optimizer_does_not_make_a_budget_forget():
    model, budget = _POOL.take(), made_budget()
    train(model, budget)
    model.compile(optimizer(), models.per_example_loss())
    assert budget.epsilon == epsilon(PER_EPOCH)
    model.fit(batches(), verbose=0)  # without the budget, which is asked all the same
    assert budget.epsilon == epsilon(2 * PER_EPOCH)
    assert budget.report()["guarantee"]["rdp"] == epsilon(2 * PER_EPOCH)


def test_an_older_state_does_not_make_a_budget_forget(tmp_path):
    model, budget = _POOL.take(), made_budget()
    train(model, budget)
    old = [np.array(variable) for variable in model.optimizer.variables]
    train(model, budget)
    for variable, value in zip(model.optimizer.variables, old):
        variable.assign(value)
    assert budget.noised_steps == PER_EPOCH
    assert budget.epsilon == epsilon(2 * PER_EPOCH)
    train(model, budget)
    assert budget.epsilon == epsilon(3 * PER_EPOCH)


def test_steps_in_no_fit_of_the_budget_are_told_once(caplog):
    """Of those it can't know how batches were drawn: these are shuffled ones."""
    model, budget = _POOL.take(), made_budget()

    def told():
        caplog.clear()
        with caplog.at_level("WARNING", logger="absl"):
            assert budget.epsilon == budget.report(("rdp",))["guarantee"]["rdp"]
        return [record.getMessage() for record in caplog.records if "in no `fit` that had" in record.getMessage()]

    train(model, budget)
    assert not told()
    model.fit(*models.data(N), batch_size=BATCH, verbose=0)
    (message,) = told()
    assert message.startswith(f"{N // BATCH} noised steps were taken")
    assert not told()
    train(model, budget)
    assert not told()


class _Interrupted(tf.keras.callbacks.Callback):
    """By the user, after two steps."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            raise KeyboardInterrupt


def test_a_run_that_was_broken_off_is_not_forgotten_with_its_optimizer():
    model, budget = _POOL.take(), made_budget()
    with pytest.raises(KeyboardInterrupt):
        train(model, budget, _Interrupted())
    model.compile(optimizer(), models.per_example_loss())
    train(model, budget)
    assert budget.epsilon == epsilon(2 + PER_EPOCH)


def test_the_call_that_an_interrupt_hit_is_not_forgotten_with_its_optimizer():
    """The step was taken, and the budget was not told: what comes before it in the list was interrupted."""
    model, budget = _POOL.take(), made_budget()
    with pytest.raises(KeyboardInterrupt):
        model.fit(batches(), verbose=0, callbacks=[_Interrupted(), budget])
    assert budget.noised_steps == 2
    model.compile(optimizer(), models.per_example_loss())
    assert budget.epsilon == epsilon(2)
    train(model, budget)
    assert budget.epsilon == epsilon(2 + PER_EPOCH)


def test_what_a_pca_is_asked_again_is_not_forgotten():
    pca, x = PrivatePCA(num_components=2, noise_multiplier=ASKED), models.data(N)[0]
    model, budget = _POOL.take(), made_budget(other_event=pca.fit(x).event)
    meter = PrivacyMeter(STEP, delta=DELTA, other_event=pca.event)
    train(model, budget)
    assert budget.epsilon == epsilon(PER_EPOCH, events.gaussian_event(ASKED))
    pca.fit(x)
    twice = epsilon(PER_EPOCH, events.gaussian_event(ASKED, 2))
    assert budget.epsilon == twice
    assert budget.report()["guarantee"]["rdp"] == twice
    assert meter.epsilon_at(optimizer(), PER_EPOCH) == twice


def test_scales_that_were_asked_again_count_as_they_are_now():
    meter, asking = PrivacyMeter(STEP, delta=DELTA), scaled("asked once")
    events.follow("asked once", events.named(events.gaussian_event(ASKED, 2), "asked twice"))
    assert meter.epsilon_at(asking, PER_EPOCH) == epsilon(PER_EPOCH, events.gaussian_event(ASKED, 2))


class _Replaced(tf.keras.callbacks.Callback):
    """Gives the model another optimizer, with which Keras does not train."""

    def __init__(self, hook):
        super().__init__()
        setattr(self, hook, self._replace)

    def _replace(self, *_, **__):
        self.model.optimizer = optimizer()
        self.model.optimizer.build(self.model.trainable_variables)


def traced():
    """A model that has no steps, and a graph of the optimizer that it has."""
    model = _POOL.take()
    model.fit(batches(1), verbose=0)
    model.optimizer.start_phase(past_steps.new_phase())
    return models.forget_steps(model)


@pytest.mark.parametrize(
    ("hook", "taken"), [("on_epoch_begin", 0), ("on_train_batch_begin", 1), ("on_train_batch_end", 1)]
)
@pytest.mark.parametrize("in_a_ledger", [False, True], ids=["no ledger", "ledger"])
def test_an_optimizer_is_not_replaced_while_fit_runs(path, hook, taken, in_a_ledger):
    """The graph of the one before went on: 3.44 was told, and stayed, where 8.59 was spent."""
    model, budget = traced(), made_budget(**({"ledger": path} if in_a_ledger else {}))
    before = model.optimizer
    with pytest.raises(ValueError, match="was replaced while `fit` runs"):
        train(model, budget, _Replaced(hook))
    model.optimizer = before
    assert int(before.noised_steps) == taken
    assert budget.epsilon == (epsilon(taken) if taken else 0.0)


@pytest.mark.parametrize("in_a_ledger", [False, True], ids=["no ledger", "ledger"])
def test_the_optimizer_that_a_model_was_traced_with_is_seen_at_its_first_step(path, in_a_ledger):
    model, budget = traced(), made_budget(**({"ledger": path} if in_a_ledger else {}))
    train(model, budget)
    before, model.optimizer = model.optimizer, optimizer()  # and no `compile`
    for more in (1, 2):
        with pytest.raises(ValueError, match="taken by another private optimizer"):
            train(model, budget)
        assert budget.epsilon == epsilon(PER_EPOCH + more)
    model.optimizer = before


def test_scales_of_an_earlier_optimizer_still_count():
    model, budget = compiled(scaled("one")), made_budget()
    train(model, budget)
    assert budget.epsilon == epsilon(PER_EPOCH, asked("one"))
    model.compile(optimizer(), models.per_example_loss())
    train(model, budget)
    assert budget.epsilon == epsilon(2 * PER_EPOCH, asked("one"))


def test_steps_that_were_worse_than_said_are_kept_as_what_they_were():
    taken, said, true = Taken(), Mechanism(9.0, N, BATCH), Mechanism(0.5, N, BATCH)
    taken.begin("one", said, 0, None)
    taken.see(5)
    taken.worsen(true)
    assert taken.events("two", 0) == [true.event(steps=5)]


def test_a_count_that_goes_back_takes_no_step_back():
    taken = Taken()
    taken.begin("one", STEP, 0, None)
    for count in (5, 3):
        taken.see(count)
    assert taken.events("two", 0) == [STEP.event(steps=5)]
    assert taken.events("one", 3) == [STEP.event(steps=2)]


@pytest.mark.parametrize("now", ["one", "two"])
def test_a_call_that_was_broken_off_counts_for_its_own_phase(now):
    taken, other = Taken(), {"one": "two", "two": "one"}[now]
    taken.begin(other, STEP, 0, None)
    taken.see(5)
    taken.begin(now, STEP, 0, None)
    taken.before_call(3)
    events_of = {name: taken.events(name, 0) for name in ("one", "two", "three")}
    assert events_of[now] == [STEP.event(steps=5)]  # whose own count is asked
    assert events_of[other] == [STEP.event(steps=3), STEP.event(steps=5)]
    assert events_of["three"] == [STEP.event(steps=5), STEP.event(steps=3)]


def test_a_second_budget_says_what_it_does_not_count(caplog, path):
    """The optimizer is another one, and the weights are the same."""

    def said(budget):
        caplog.clear()
        with caplog.at_level("WARNING", logger="absl"):
            train(model, budget)
        return [record.getMessage() for record in caplog.records if "does not count" in record.getMessage()]

    model, first = compiled(), made_budget()  # weights that no other test has trained
    assert not said(first)
    model.compile(optimizer(), models.per_example_loss())
    assert not said(first)  # which counts both
    words = "".join(said(made_budget()))
    assert f"have taken {PER_EPOCH} noised steps by another private optimizer" in words
    paid = STEP.event(steps=PER_EPOCH)
    assert not said(made_budget(other_event=paid))
    assert said(made_budget(ledger=path))
    model.compile(optimizer(), models.per_example_loss())
    assert said(made_budget(ledger=path))[0].startswith(f"The weights have taken {PER_EPOCH} noised steps")  # the first


# ---------------------------------------------------------------------------------------------------
# Questions that cost the same.


@pytest.mark.parametrize(
    ("said", "counted"), [(asked("one"), 1), (asked("other"), 2), (events.gaussian_event(ASKED), 2)]
)
def test_scales_are_known_by_their_name(said, counted):
    """Others of the same noise are others."""
    model, budget = compiled(scaled("one")), made_budget(other_event=said)
    train(model, budget)
    assert budget.epsilon == epsilon(PER_EPOCH, *[events.gaussian_event(ASKED)] * counted)


def test_scales_that_were_asked_again_are_not_what_was_said_before():
    said = events.named(events.gaussian_event(9.0), "one")
    model, budget = compiled(scaled("one")), made_budget(other_event=said)
    train(model, budget)
    assert budget.epsilon == epsilon(PER_EPOCH, events.gaussian_event(9.0), events.gaussian_event(ASKED))


def test_a_ledger_holds_scales_of_the_same_noise_one_by_one(path):
    for name in ("one", "two", "two"):
        train(compiled(scaled(name)), made_budget(ledger=path))
    assert Ledger(path).epsilon(delta=DELTA) == epsilon(3 * PER_EPOCH, asked("one"), asked("two"))


def test_what_a_ledger_holds_by_the_name_of_the_scales_is_not_paid_twice(path):
    Ledger(path).add("one", events.gaussian_event(ASKED))
    train(compiled(scaled("one")), made_budget(ledger=path))
    assert Ledger(path).epsilon(delta=DELTA) == epsilon(PER_EPOCH, asked("one"))


def test_two_private_objects_of_the_same_noise_are_two(path):
    """In one phase, too, where the same event again is a run that goes on."""
    x, model = np.random.default_rng(0).normal(size=(N, 4)), _POOL.take()
    pcas = [PrivatePCA(num_components=1, noise_multiplier=5.0).fit(x) for _ in range(2)]
    for each in (pcas[0], pcas[0], pcas[1]):
        train(model, made_budget(ledger=path, other_event=each.event))
    assert Ledger(path).epsilon(delta=DELTA) == epsilon(3 * PER_EPOCH, events.gaussian_event(5.0, 2))


def test_a_pca_keeps_its_name_in_its_file(tmp_path):
    pca = PrivatePCA(num_components=1, noise_multiplier=5.0).fit(np.random.default_rng(0).normal(size=(N, 4)))
    pca.save(tmp_path / "pca.npz")
    assert (
        PrivatePCA.load(tmp_path / "pca.npz").event
        == pca.event
        != PrivatePCA(num_components=1, noise_multiplier=5.0).event
    )


# ---------------------------------------------------------------------------------------------------
# A ledger that others write to.


def test_after_a_run_the_ledger_is_read_again(path):
    model, budget = _POOL.take(), made_budget(ledger=path)
    train(model, budget)
    train(_POOL.take(), made_budget(ledger=path))
    assert budget.epsilon == epsilon(2 * PER_EPOCH)
    Ledger(path).add("more", events.gaussian_event(5.0))
    assert budget.epsilon == epsilon(2 * PER_EPOCH, events.gaussian_event(5.0))
    assert budget.report()["guarantee"]["rdp"] == budget.epsilon
    assert budget.report()["steps"] == PER_EPOCH
    model.compile(optimizer(), models.per_example_loss())
    assert budget.epsilon == epsilon(2 * PER_EPOCH, events.gaussian_event(5.0))


def test_an_older_state_does_not_hide_what_the_ledger_holds(path):
    model, budget = _POOL.take(), made_budget(ledger=path)
    train(model, budget)
    old = [np.array(variable) for variable in model.optimizer.variables]
    train(model, budget)
    for variable, value in zip(model.optimizer.variables, old):
        variable.assign(value)
    assert budget.epsilon == epsilon(2 * PER_EPOCH)


class Once(tf.keras.callbacks.Callback):
    """Calls something after the first batch."""

    def __init__(self, call):
        super().__init__()
        self._call = call

    def on_train_batch_end(self, batch, logs=None):
        call, self._call = self._call, lambda: None
        call()


def test_a_run_sees_what_others_write_when_it_asks(path):
    """At once, not only when it writes itself; and says so once."""
    ledger = Ledger(path)
    run = session.Session(ledger, phase="one", optimizer="it", mechanism=STEP, count=0, other_event=None, fresh=None)
    try:
        run.reserve(1, 1)
        assert not run.has_more()
        ledger.add("more", events.gaussian_event(5.0))
        assert run.has_more() and not run.has_more()
        ledger.add("and more", events.gaussian_event(4.0))
        spent = adaclip_tf.epsilon_of(run.others, delta=DELTA)
    finally:
        run.close(1)
    assert spent == epsilon(0, events.gaussian_event(5.0), events.gaussian_event(4.0))


@pytest.mark.parametrize("what", ["a release", "a training"])
def test_what_is_spent_in_the_middle_of_a_run_counts_for_its_target(path, what):
    target = adaclip_tf.epsilon_of(STEP.event(steps=3 * PER_EPOCH), delta=DELTA)

    def spend():
        if what == "a release":
            Ledger(path).add("more", STEP.event(steps=PER_EPOCH))
        else:
            train(compiled(), made_budget(ledger=path, target_epsilon=target))

    model, budget = _POOL.take(), made_budget(ledger=path, target_epsilon=target)
    train(model, budget, Once(spend), epochs=5)
    assert budget.noised_steps == 2 * PER_EPOCH
    assert Ledger(path).epsilon(delta=DELTA) == epsilon(3 * PER_EPOCH) == budget.epsilon
