"""One run in a ledger, without a training: what the file holds at every moment, and what is refused."""

import dataclasses

import dp_accounting
import pytest

from adaclip_tf._internal import locking
from adaclip_tf.privacy import events
from adaclip_tf.privacy.ledger import BLOCK, Ledger, Phase, Release
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.privacy.session import Session

STEP = Mechanism(2.0, 1000, 100)
SHUFFLED = dataclasses.replace(STEP, sampling="shuffled")
PCA = events.gaussian_event(5.0)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.json")


def begun(ledger, count=0, *, mechanism=STEP, phase="a", other_event=None, fresh=None):
    return Session(
        ledger,
        phase=phase,
        optimizer="optimizer",
        mechanism=mechanism,
        count=count,
        other_event=other_event,
        fresh=fresh,
    )


def steps(ledger):
    return {phase.id: phase.steps for phase in ledger.read()[0]}


def ended(ledger, end, **options):
    session = begun(ledger, **options)
    session.close(end)
    return steps(ledger)


def test_steps_are_written_down_before_they_are_taken(ledger):
    session = begun(ledger)
    assert steps(ledger) == {"a": 0}
    session.reserve(3, 5)
    assert steps(ledger) == {"a": 5}
    session.reserve(5, 500)  # has been
    assert steps(ledger) == {"a": 5}
    session.reserve(6, 500)
    assert steps(ledger) == {"a": 5 + BLOCK}
    session.reserve(300, 200)  # more are needed than a block, or than was wished
    assert steps(ledger) == {"a": 300}
    session.settle(250)
    assert steps(ledger) == {"a": 250} and ledger.read()[0][0].open
    session.settle(240)  # a count goes back: they were taken all the same
    assert steps(ledger) == {"a": 250}
    session.close(251)
    assert steps(ledger) == {"a": 251} and not ledger.read()[0][0].open


def test_a_run_that_is_killed_has_spent_what_it_reserved(ledger):
    session = begun(ledger)
    session.reserve(10, 10)
    session.abandon()
    assert steps(ledger) == {"a": 10} and ledger.read()[0][0].open
    again = begun(ledger, 4)  # of which a checkpoint knows four
    assert again.paid_before == 10 - 4
    again.reserve(7, 7)
    again.close(7)
    assert steps(ledger) == {"a": 13}


def test_an_interrupted_call_counts(ledger):
    session = begun(ledger)
    session.reserve(50, 50)
    session.settle(20)
    session.reserve(30, 30)
    session.broken_off(4)
    assert steps(ledger) == {"a": 24}
    session = begun(ledger, 24)
    session.reserve(25, 25)
    session.broken_off(4)  # no more than was reserved
    assert steps(ledger) == {"a": 25}


def test_a_run_goes_on_where_it_stopped(ledger):
    assert ended(ledger, 10) == {"a": 10}
    assert ended(ledger, 15, count=10) == {"a": 15}
    assert ended(ledger, 22, count=20) == {"a": 22}  # five were taken without a ledger
    assert ended(ledger, 5, phase="b") == {"a": 22, "b": 5}
    assert ended(ledger, 7, phase="c", count=6) == {"a": 22, "b": 5, "c": 7}  # six before there was one


def test_an_epoch_that_was_begun_is_an_epoch(ledger):
    assert ended(ledger, 13, mechanism=SHUFFLED) == {"a": 13}
    assert ended(ledger, 20, count=13, mechanism=SHUFFLED) == {"a": 27}  # two epochs, and seven steps
    assert ledger.read()[0][0].event.count == 3


def test_a_model_that_is_older_than_its_ledger_is_refused(ledger):
    ended(ledger, 10)
    with pytest.raises(ValueError, match=r"counts 9 noised steps, .* has 10 of this phase"):
        begun(ledger, 9)
    assert ended(ledger, 12, count=9, fresh="b") == {"a": 10, "b": 3}
    assert ended(ledger, 14, count=12, phase="a", fresh="c") == {"a": 10, "b": 3, "c": 4}  # two of them beyond "a"


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Mechanism)])
def test_a_phase_is_one_kind_of_step(ledger, field):
    ended(ledger, 10)
    other = {"sampling": "shuffled", "microbatch_sensitivity": 2.0}.get(field, getattr(STEP, field) * 2)
    other = 500 if field == "num_examples" else other
    with pytest.raises(ValueError, match=f"has this phase with {field}="):
        begun(ledger, 10, mechanism=dataclasses.replace(STEP, **{field: other}))
    locking.acquire(ledger.lock_path)  # nobody holds it any more
    locking.release(ledger.lock_path)
    assert steps(ledger) == {"a": 10}


def test_what_else_was_paid_is_written_once_for_each_phase(ledger):
    for count in (0, 5):
        ended(ledger, count + 5, count=count, other_event=PCA)
    assert [(release.event, release.phase) for release in ledger.read()[1]] == [(PCA, "a")]
    ended(ledger, 10, count=10, other_event=events.gaussian_event(6.0))
    ended(ledger, 3, phase="b", other_event=PCA)
    assert [release.phase for release in ledger.read()[1]] == ["a", "a", "b"]
    expected = [PCA, events.gaussian_event(6.0), PCA, STEP.event(steps=10), STEP.event(steps=3)]
    assert ledger.event() == dp_accounting.ComposedDpEvent(expected)
    assert ledger.event(without="a") == dp_accounting.ComposedDpEvent([*expected[:3], expected[4]])


def test_steps_that_were_worse_are_written_so(ledger):
    session = begun(ledger)
    session.reserve(3, 3)
    worse = STEP.with_noise(1.0)
    session.worsen(worse)
    session.close(2)
    assert ledger.read()[0] == (Phase("a", "optimizer", worse, 0, 0, 2, False),)


def test_others_may_add_to_it_meanwhile(ledger):
    session = begun(ledger)
    assert not session.has_more()
    assert session.others == dp_accounting.NoOpDpEvent()
    ledger.release(Release("pca", PCA))
    assert session.has_more() and not session.has_more()
    assert session.others == dp_accounting.ComposedDpEvent([PCA])
    session.reserve(1, 1)
    session.close(1)
    assert ledger.event() == dp_accounting.ComposedDpEvent([PCA, STEP.event(steps=1)])


def test_a_session_holds_the_lock_until_its_end(ledger):
    session = begun(ledger)
    assert ledger.lock_path in locking._HELD
    session.close(0)
    session.close(5)  # nothing more happens
    session.broken_off(5)
    assert ledger.lock_path not in locking._HELD
    assert steps(ledger) == {"a": 0}
