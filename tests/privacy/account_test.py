"""What a training has cost, with and without a ledger, by an optimizer that only says what it did."""

import dp_accounting
import pytest

import adaclip_tf
from adaclip_tf import Ledger
from adaclip_tf._internal.prior import Prior
from adaclip_tf.privacy import events
from adaclip_tf.privacy.account import Account
from adaclip_tf.privacy.ledger import Release
from adaclip_tf.privacy.mechanism import Mechanism
from tests.privacy.saying import Optimizer

STEP, DELTA = Mechanism(2.0, 1000, 100), 1e-5
PCA, SCALES = events.gaussian_event(5.0), Prior(6.0, "scales-1")


def account(ledger=None, other_event=None, new_phase=False, num_examples=1000):
    claimed = Mechanism(1.0, num_examples, 100)
    return Account(claimed, other_event=other_event, ledger=ledger, new_phase=new_phase, delta=DELTA)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.json")


def cost(*steps_and_events):
    parts = [part if isinstance(part, dp_accounting.DpEvent) else STEP.event(steps=part) for part in steps_and_events]
    return pytest.approx(adaclip_tf.epsilon_of(dp_accounting.ComposedDpEvent(parts), delta=DELTA), rel=1e-9)


def run(book, optimizer, end, wished=None):
    """A run up to `end` steps of the optimizer's count, with all hooks."""
    book.broken_off(optimizer, 1)
    book.begin(optimizer)
    while optimizer.past.steps < end:
        steps = optimizer.past.steps
        book.before_call(steps, 1, wished)
        optimizer.at(steps + 1, optimizer.past.phase)
        book.after_call(optimizer, steps + 1, thorough=False)
    book.end(end)
    return book


def test_without_a_ledger_all_optimizers_count():
    first, book = Optimizer().at(0), account(other_event=PCA)
    run(book, first, 5)
    assert book.meter.epsilon(first) == cost(PCA, 5)
    second = Optimizer().at(0, "b")
    run(book, second, 3)
    assert book.meter.epsilon(second) == cost(PCA, 5, 3)
    run(book, first.at(2), 4)  # an older state: three steps are gone from its count
    assert book.meter.epsilon(first) == cost(PCA, 3, 4, 3)


def test_scales_count_once_for_all_runs():
    first, book = Optimizer().at(0), account()
    first.prior = SCALES
    asked = events.named(events.gaussian_event(6.0), "scales-1")
    for end in (2, 5):
        run(book, first, end)
        assert book.meter.epsilon(first) == cost(asked, end)
    second = Optimizer().at(0, "b")
    run(book, second, 3)
    assert book.meter.epsilon(second) == cost(asked, 5, 3)


def test_a_ledger_holds_what_was_taken_and_adds_it_up(ledger):
    ledger.add("before", PCA)
    first, book = Optimizer().at(0), account(ledger, other_event=events.gaussian_event(7.0))
    run(book, first, 5)
    everything = cost(PCA, events.gaussian_event(7.0), 5)
    assert ledger.epsilon(delta=DELTA) == book.meter.epsilon(first) == everything
    first.at(7)  # two more, of which the ledger does not know
    assert book.meter.epsilon(first) == cost(PCA, events.gaussian_event(7.0), 7)
    later = account(ledger)
    assert later.meter.epsilon(first) == cost(PCA, events.gaussian_event(7.0), 7)
    assert later.meter.epsilon(Optimizer().at(0, "b")) == everything
    other = account(ledger, other_event=events.gaussian_event(8.0))  # not written yet
    assert other.meter.epsilon(first) == cost(PCA, events.gaussian_event(7.0), events.gaussian_event(8.0), 7)


def test_the_ledger_knows_better_what_its_steps_were(ledger):
    optimizer = Optimizer().at(0)
    run(account(ledger), optimizer, 5)
    later = account(ledger, num_examples=100_000)  # by which the same steps would cost next to nothing
    assert later.meter.epsilon(optimizer) == cost(5)
    assert later.meter.epsilon(optimizer.at(7)) == cost(5, Mechanism(2.0, 100_000, 100).event(steps=2))


def test_steps_are_in_the_ledger_before_they_are_taken(ledger):
    optimizer, book = Optimizer().at(0), account(ledger)
    book.begin(optimizer)
    book.before_call(0, 3, None)
    (phase,) = ledger.read()[0]
    assert phase.steps == 100 and phase.open
    book.after_call(optimizer.at(3), 3, thorough=True)
    book.settle(3)
    assert ledger.read()[0][0].steps == 3
    assert book.meter.epsilon(optimizer) == cost(3)
    assert book.rewound(2) and not book.rewound(3)
    book.end(3)
    assert not ledger.read()[0][0].open


def test_scales_are_in_the_ledger_once(ledger):
    optimizer, asked = Optimizer().at(0), dp_accounting.GaussianDpEvent(6.0)
    optimizer.prior = Prior(6.0)
    run(account(ledger), optimizer, 2)
    run(account(ledger), optimizer, 4)
    assert [release.event for release in ledger.read()[1]] == [asked]
    assert ledger.epsilon(delta=DELTA) == cost(asked, 4)


def test_what_the_ledger_has_under_its_name_is_not_added_again(ledger):
    asked = events.gaussian_event(6.0)
    ledger.release(Release("scales-1", asked))
    optimizer = Optimizer().at(0)
    optimizer.prior = SCALES
    assert account(ledger).meter.epsilon(optimizer) == cost(asked)
    run(account(ledger), optimizer, 3)
    assert len(ledger.read()[1]) == 1
    optimizer.prior = Prior(6.0, "scales-2")  # others, that cost as much
    run(account(ledger), optimizer, 4)
    assert ledger.epsilon(delta=DELTA) == cost(asked, asked, 4)


@pytest.mark.parametrize("with_ledger", [True, False])
def test_steps_that_turn_out_worse_are_refused_and_paid_for(with_ledger, ledger):
    optimizer, book = Optimizer().at(0), account(ledger if with_ledger else None)
    book.begin(optimizer)
    book.before_call(0, 1, None)
    optimizer.past = optimizer.at(1).past._replace(noise_multiplier=1.0)
    book.after_call(optimizer, 1, thorough=False)  # is looked at now and then
    with pytest.raises(ValueError, match="planned for 2"):
        book.after_call(optimizer, 1, thorough=True)
    assert book.meter.epsilon(Optimizer().at(0, "b")) == cost(STEP.with_noise(1.0).event(steps=1))
    if with_ledger:
        assert not ledger.read()[0][0].open


@pytest.mark.parametrize("with_ledger", [True, False])
def test_another_phase_is_noticed(with_ledger, ledger):
    book = account(ledger if with_ledger else None)
    book.begin(Optimizer().at(0))
    assert not book.has_another_phase(Optimizer().at(5))
    assert book.has_another_phase(Optimizer().at(0, "b"))
    book.begin(Optimizer().at(0, "b"))
    assert book.has_another_phase(Optimizer().at(0))
    book.end(0)


def test_a_new_phase_is_the_optimizer_s_from_now_on(ledger):
    optimizer = Optimizer().at(0)
    run(account(ledger), optimizer, 5)
    with pytest.raises(ValueError, match="older than its ledger"):
        run(account(ledger), optimizer.at(2), 3)
    run(account(ledger, new_phase=True), optimizer.at(2), 3)
    assert optimizer.past.phase != "a"
    assert sorted(phase.steps for phase in ledger.read()[0]) == [1, 5]
    assert account(ledger).meter.epsilon(optimizer) == cost(1, 5)


@pytest.mark.parametrize("with_ledger", [True, False])
def test_a_run_that_was_broken_off_counts_the_call_that_it_was_in(with_ledger, ledger):
    optimizer, book = Optimizer().at(0), account(ledger if with_ledger else None)
    book.begin(optimizer)
    book.before_call(0, 2, 50)
    book.after_call(optimizer.at(2), 2, thorough=False)
    book.before_call(2, 2, 50)
    book.broken_off(optimizer, 2)  # the next run begins
    assert optimizer.dropped == 1
    other = Optimizer().at(0, "b")
    assert book.meter.epsilon(other) == cost(4)
    if with_ledger:
        assert ledger.read()[0][0].steps == 4


def test_what_nobody_counts_is_told(ledger):
    optimizer, known, unknown = Optimizer().at(0), Optimizer().at(4, "b").past, Optimizer().at(3, "c").past
    run(account(ledger), Optimizer().at(0, "b"), 4)
    optimizer.others = [known, unknown]
    assert account().forgotten(optimizer) == 7
    assert account(ledger).forgotten(optimizer) == 3
    assert account(other_event=PCA).forgotten(optimizer) == 0
    book = account()
    run(book, Optimizer().at(0, "c"), 3)
    assert book.forgotten(optimizer) == 4


def test_others_may_spend_meanwhile(ledger):
    optimizer, book = Optimizer().at(0), account(ledger)
    book.begin(optimizer)
    assert not book.has_more()
    ledger.add("pca", PCA)
    assert book.has_more() and not book.has_more()
    assert book.meter.epsilon_at(optimizer, 4) == cost(PCA, 4)
    book.end(0)
    assert not account().has_more()
