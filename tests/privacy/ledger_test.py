"""Tests of the ledger as a file: what it adds up, what it refuses, who may write."""

import doctest
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import dp_accounting
import pytest

import adaclip_tf
from adaclip_tf._internal import locking
from adaclip_tf.privacy import __main__ as privacy
from adaclip_tf.privacy import event_json, events, ledger
from adaclip_tf.privacy import session as session_lib
from adaclip_tf.privacy.ledger import Ledger, Phase
from adaclip_tf.privacy.mechanism import Mechanism

DELTA = 1e-5
STEP = Mechanism(1.1, num_examples=60000, batch_size=600)
SHUFFLED = Mechanism(20.0, num_examples=1000, batch_size=100, sampling="shuffled")


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "private" / "ledger.json")


def read(path):
    return pathlib.Path(path).read_text()


def session(path, phase="a", count=0, mechanism=STEP, other=None, fresh=None):
    return session_lib.Session(
        Ledger(path), phase=phase, optimizer="DP", mechanism=mechanism, count=count, other_event=other, fresh=fresh
    )


def run(path, *, phase="a", begin=0, end=10, **options):
    """A run that ends."""
    one = session(path, phase, begin, **options)
    one.reserve(end, end)
    one.close(end)
    return one


def killed(path, *, begin, taken, reserved, phase="a", **options):
    """A run that is killed: nothing is written any more, and the lock is free."""
    one = session(path, phase, begin, **options)
    one.reserve(reserved, reserved)
    one.seen = taken
    one.abandon()
    return one


def steps(path):
    return {phase.id: phase.steps for phase in Ledger(path).read()[0]}


def epsilon(*events):
    return adaclip_tf.epsilon_of(dp_accounting.ComposedDpEvent(list(events)), delta=DELTA)


# ---------------------------------------------------------------------------------------------------
# Adding up.


def test_no_file_is_nothing_spent(path):
    assert Ledger(path).read() == ((), ())
    assert Ledger(path).epsilon(delta=DELTA) == 0.0
    assert not os.path.exists(path)


def test_everything_counts_together(path):
    pca = events.gaussian_event(8.0, 2)
    Ledger(path).add("pca", pca)
    run(path, phase="a", end=100)
    run(path, phase="b", end=30, mechanism=SHUFFLED)
    assert Ledger(path).epsilon(delta=DELTA) == pytest.approx(
        epsilon(pca, STEP.event(steps=100), SHUFFLED.event(steps=30))
    )
    assert Ledger(path).event(without="b") == dp_accounting.ComposedDpEvent([pca, STEP.event(steps=100)])


def test_a_release_that_is_added_twice_counts_twice(path):
    for _ in range(2):
        Ledger(path).add("pca", events.gaussian_event(8.0))
    assert Ledger(path).epsilon(delta=DELTA) == pytest.approx(epsilon(events.gaussian_event(8.0, 2)))


def test_stopping_and_resuming_costs_what_one_run_costs(path):
    for begin, end in ((0, 10), (10, 17), (17, 100)):
        run(path, begin=begin, end=end)
    assert steps(path) == {"a": 100}
    assert Ledger(path).epsilon(delta=DELTA) == epsilon(STEP.event(steps=100))


def test_a_run_that_ends_early_gives_back_what_it_did_not_take(path):
    one = session(path)
    one.reserve(1, 80)
    assert steps(path) == {"a": 80}
    one.settle(30)
    assert steps(path) == {"a": 30}
    one.reserve(31, 60)
    one.close(50)
    assert steps(path) == {"a": 50}
    assert not Ledger(path).read()[0][0].open


def test_a_count_that_went_back_gives_nothing_back(path):
    one = session(path)
    one.reserve(1, 50)
    one.seen = 30
    one.settle(20)
    assert steps(path) == {"a": 30}
    one.close(10)
    assert steps(path) == {"a": 30}


def test_steps_are_reserved_in_blocks_that_hold_a_call(path):
    one = session(path)
    one.reserve(1, 10**6)
    assert steps(path) == {"a": ledger.BLOCK}
    one.reserve(ledger.BLOCK, 10**6)  # there is room
    assert steps(path) == {"a": ledger.BLOCK}
    one.reserve(10 * ledger.BLOCK, 10**6)  # a call of many steps
    assert steps(path) == {"a": 10 * ledger.BLOCK}
    one.abandon()


def test_a_killed_run_counts_what_it_may_have_taken(path):
    killed(path, begin=0, taken=37, reserved=50)
    assert steps(path) == {"a": 50}
    resumed = session(path, count=30)  # from a checkpoint
    assert steps(path) == {"a": 50}
    resumed.reserve(45, 45)
    resumed.close(45)
    assert steps(path) == {"a": 50 + 15}
    assert resumed.paid_before + 45 == 65
    run(path, begin=45, end=50)
    assert steps(path) == {"a": 70}


def test_a_run_killed_again_and_again_never_counts_less_than_was_taken(path):
    taken = 0
    for begin, end, reserved in ((0, 9, 10), (4, 19, 20), (0, 3, 100), (3, 3, 4)):
        killed(path, begin=begin, taken=end, reserved=reserved)
        taken += end - begin
        assert steps(path)["a"] >= taken


def test_steps_that_were_taken_without_the_ledger_are_added(path):
    run(path, end=10)
    run(path, begin=25, end=30)
    assert steps(path) == {"a": 30}
    run(path, phase="never seen", begin=40, end=41)
    assert steps(path)["never seen"] == 41


def test_an_epoch_that_was_broken_off_is_an_epoch(path):
    """10 steps an epoch. 5 steps, then 5 of another shuffle: an example can be in both."""
    run(path, end=5, mechanism=SHUFFLED)
    again = session(path, count=5, mechanism=SHUFFLED)
    assert again.paid_before == 5
    again.reserve(10, 10)
    again.close(10)
    assert SHUFFLED.releases(steps(path)["a"]) == 2
    run(path, begin=10, end=20, mechanism=SHUFFLED)  # that one is whole
    assert SHUFFLED.releases(steps(path)["a"]) == 3


def test_whole_epochs_cost_no_more_in_pieces(path):
    for begin in (0, 10, 20):
        run(path, begin=begin, end=begin + 10, mechanism=SHUFFLED)
    assert Ledger(path).event() == dp_accounting.ComposedDpEvent([SHUFFLED.event(steps=30)])


def test_other_events_are_written_once_for_a_phase(path):
    pca, more = events.gaussian_event(8.0), events.gaussian_event(8.0, 2)
    for _ in range(2):
        assert run(path, end=0, other=pca).others == dp_accounting.ComposedDpEvent([pca])
    assert run(path, end=0, other=more).others == dp_accounting.ComposedDpEvent([pca, more])
    assert run(path, end=0).others == dp_accounting.ComposedDpEvent([pca, more])  # forgotten by the program only
    run(path, phase="b", end=0, other=pca)
    assert len(Ledger(path).read()[1]) == 3


# ---------------------------------------------------------------------------------------------------
# Refusing.


def test_a_model_behind_its_ledger_is_refused(path):
    run(path, end=100)
    before = read(path)
    with pytest.raises(
        ValueError, match=r"counts 60 noised steps, and `ledger`=.* has 100 of this phase.*new_phase=True"
    ):
        session(path, count=60)
    assert read(path) == before
    locking.acquire(f"{path}.lock")  # nobody holds it
    locking.release(f"{path}.lock")


def test_a_model_behind_its_ledger_may_be_a_new_phase(path):
    run(path, end=100)
    run(path, begin=60, end=70, fresh="b")
    assert steps(path) == {"a": 100, "b": 10}
    # One that is ahead loses nothing by it, and one that the ledger never saw is as new as it can be.
    run(path, begin=105, end=106, fresh="c")
    assert steps(path)["c"] == 6
    run(path, phase="d", begin=7, end=8, fresh="e")
    assert steps(path)["d"] == 8


@pytest.mark.parametrize(
    "change", [{"noise_multiplier": 2.0}, {"num_examples": 60001}, {"batch_size": 60}, {"sampling": "shuffled"}]
)
def test_a_phase_is_one_kind_of_step(path, change):
    run(path)
    ((name, value),) = change.items()
    other = Mechanism(**{**vars(STEP), **change})
    with pytest.raises(ValueError, match=f"has this phase with {name}=.*now it is {value!r}.*new optimizer"):
        session(path, count=10, mechanism=other)


def test_steps_that_turn_out_worse_are_rewritten(path):
    one = session(path)
    one.reserve(5, 5)
    worse = Mechanism(1.1, num_examples=60000, batch_size=600, microbatch_sensitivity=2.0)
    one.worsen(worse)
    one.close(5)
    assert Ledger(path).event() == dp_accounting.ComposedDpEvent([worse.event(steps=5)])


def _damage(change):
    def damaged(text):
        value = json.loads(text)
        change(value)
        return json.dumps(value)

    return damaged


DAMAGED = {
    "empty": lambda text: "",
    "cut off": lambda text: text[:-20],
    "binary": lambda text: "\x00\x01",
    "a list": lambda text: "[]",
    "another file": lambda text: '{"epsilon": 3}',
    "a later version": _damage(lambda v: v.update(version=2)),
    "no phases": _damage(lambda v: v.pop("phases")),
    "no releases": _damage(lambda v: v.pop("releases")),
    "negative steps": _damage(lambda v: v["phases"][0].update(reserved=-1)),
    "fewer than none": _damage(lambda v: v["phases"][0].update(start=11)),
    "half a step": _damage(lambda v: v["phases"][0].update(paid=0.5)),
    "steps in words": _damage(lambda v: v["phases"][0].update(reserved="10")),
    "no noise": _damage(lambda v: v["phases"][0]["mechanism"].pop("noise_multiplier")),
    "noise NaN": _damage(lambda v: v["phases"][0]["mechanism"].update(noise_multiplier=float("nan"))),
    "noise infinite": _damage(lambda v: v["phases"][0]["mechanism"].update(noise_multiplier=float("inf"))),
    "a batch too large": _damage(lambda v: v["phases"][0]["mechanism"].update(batch_size=60001)),
    "another field": _damage(lambda v: v["phases"][0].update(more=1)),
    "a phase twice": _damage(lambda v: v["phases"].append(v["phases"][0])),
    "an unknown event": _damage(lambda v: v["releases"][0].update(event={"kind": "magic"})),
    "an event that is none": _damage(lambda v: v["releases"][0].update(event=None)),
    "an event without noise": _damage(lambda v: v["releases"][0].update(event={"kind": "gaussian"})),
    "a probability of 2": _damage(
        lambda v: v["releases"][0].update(event={"kind": "poisson", "probability": 2, "event": {"kind": "nothing"}})
    ),
    "a release without a name": _damage(lambda v: v["releases"][0].update(name=None)),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_or_foreign_file_is_refused_and_left_alone(path, how):
    Ledger(path).add("pca", events.gaussian_event(8.0))
    run(path)
    text = DAMAGED[how](read(path))
    with open(path, "w") as file:
        file.write(text)
    for call in (Ledger, session, privacy_main):
        with pytest.raises(ValueError, match=r"`ledger`=.*ledger.json' is damaged, or no ledger.*left as it is"):
            call(path)
    assert read(path) == text


def privacy_main(path):
    """The command line, with its error as an exception."""
    privacy.FLAGS.unparse_flags()
    privacy.FLAGS(["privacy", f"--ledger={path}", "--delta=1e-5"])
    try:
        return privacy._run()
    finally:
        privacy.FLAGS.unparse_flags()


def test_a_folder_is_no_ledger(tmp_path):
    with pytest.raises(ValueError, match=r"`ledger`=.* can't be read"):
        Ledger(tmp_path)


@pytest.mark.parametrize(
    "call,words",
    [
        (lambda path: Ledger(3), "`ledger` must be a path"),
        (lambda path: Ledger(path).add("pca", 8.0), "`event` must be a `dp_accounting.DpEvent`"),
        (lambda path: Ledger(path).add("", events.gaussian_event(8.0)), "`name`"),
        (lambda path: Ledger(path).add("x", dp_accounting.UnsupportedDpEvent()), "UnsupportedDpEvent"),
        (lambda path: Ledger(path).add("x", events.gaussian_event(8.0, 0)), "count"),
        (lambda path: Ledger(path).add("x", events.gaussian_event(float("nan"))), "."),
    ],
)
def test_bad_arguments_are_named_and_nothing_is_written(path, call, words):
    with pytest.raises(ValueError, match=words):
        call(path)
    assert not os.path.exists(path)


EVENTS = [
    dp_accounting.NoOpDpEvent(),
    dp_accounting.GaussianDpEvent(1.5),
    dp_accounting.LaplaceDpEvent(2.0),
    STEP.event(steps=12345),
    dp_accounting.ComposedDpEvent([events.gaussian_event(3), STEP.event(steps=2)]),
    Mechanism(2.0, 1000, 100, "without_replacement").event(steps=4),
]


@pytest.mark.parametrize("event", EVENTS)
def test_events_come_back_as_they_went(event, path):
    assert event_json.load(json.loads(json.dumps(event_json.dump(event)))) == event
    Ledger(path).add("something", event)
    assert Ledger(path).read()[1][0].event == event


# ---------------------------------------------------------------------------------------------------
# Writing.


def test_a_write_that_fails_leaves_the_old_file(path, monkeypatch):
    run(path, end=10)
    before = read(path)

    def full(_):
        raise OSError("no space left")

    one = session(path, count=10)
    held = read(path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        one.reserve(20, 20)
    assert read(path) == held != before
    assert sorted(os.listdir(os.path.dirname(path))) == ["ledger.json", "ledger.json.lock"]
    one.abandon()


PROGRAM = """
import sys, time
from tests.privacy import ledger_test
one = ledger_test.session(sys.argv[1], phase="other program")
one.reserve(5, 5)
print("holds", flush=True)
time.sleep(60)
"""


def test_two_programs_cannot_write_at_once_and_a_killed_one_holds_nothing(path):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    other = subprocess.Popen([sys.executable, "-c", PROGRAM, path], stdout=subprocess.PIPE, env=environment)
    try:
        assert other.stdout.readline() == b"holds\n"
        for call in (session, lambda p: Ledger(p).add("pca", events.gaussian_event(8.0))):
            with pytest.raises(locking.LockedError, match=f"held by another program: process {other.pid} on "):
                call(path)
        assert steps(path) == {"other program": 5}  # anyone may read
    finally:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    run(path, end=3)
    assert steps(path) == {"other program": 5, "a": 3}


def test_one_program_may_write_in_a_session(path):
    one = session(path)
    Ledger(path).add("pca", events.gaussian_event(8.0))
    one.reserve(7, 7)
    one.close(7)
    assert steps(path) == {"a": 7}
    assert len(Ledger(path).read()[1]) == 1


def test_a_run_that_was_interrupted_pays_for_the_call_that_it_may_have_been_in(path):
    one = session(path)
    one.reserve(1, 50)
    one.seen = 12
    one.broken_off(steps_per_call=3)
    assert steps(path) == {"a": 15}
    assert Ledger(path).read()[0][0].open


# ---------------------------------------------------------------------------------------------------
# Reading.


def test_a_link_is_the_same_ledger(path, tmp_path):
    """Replaced in one rename, a link would become a file of its own, with a lock of its own."""
    Ledger(path).add("one", events.gaussian_event(5.0))
    link = tmp_path / "link.json"
    link.symlink_to(path)
    Ledger(link).add("two", events.gaussian_event(5.0))
    assert link.is_symlink()
    assert [release.name for release in Ledger(path).read()[1]] == ["one", "two"]
    assert Ledger(link).lock_path == Ledger(path).lock_path


def test_a_hard_link_is_refused_before_it_becomes_another_ledger(path, tmp_path):
    """Written under two names, each file would hold a part: .79 was told, and 1.16 spent."""
    Ledger(path).add("one", events.gaussian_event(5.0))
    other = tmp_path / "other.json"
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(ValueError, match="hard links"):
            Ledger(name).add("two", events.gaussian_event(5.0))
    other.unlink()
    Ledger(path).add("two", events.gaussian_event(5.0))
    assert [release.name for release in Ledger(path).read()[1]] == ["one", "two"]


def test_a_ledger_that_is_taken_away_in_the_middle_of_a_run_is_told(path):
    one = session(path)
    os.remove(path)
    with pytest.raises(ValueError, match="can't be found now"):
        one.reserve(10, 10)
    one.abandon()


def test_a_path_stays_what_it_was_when_the_program_changes_its_folder(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    one = session("ledger.json")
    monkeypatch.chdir("elsewhere")
    assert one._ledger.path == str(tmp_path / "ledger.json")
    one.reserve(10, 10)
    one.close(7)
    assert steps(tmp_path / "ledger.json") == {"a": 7}
    assert not list((tmp_path / "elsewhere").iterdir())


def test_threads_of_one_program_lose_nothing(path):
    """The lock is one for all of them."""

    def write(name):
        one = session(path, phase=name)
        for count in range(1, 6):
            one.reserve(count, count)
            Ledger(path).add(f"{name} {count}", events.gaussian_event(5.0))
        one.close(5)

    threads = [threading.Thread(target=write, args=[name]) for name in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert steps(path) == {"a": 5, "b": 5}
    assert len(Ledger(path).read()[1]) == 10


def test_the_command_line_prints_it(path, capsys):
    Ledger(path).add("pca", events.gaussian_event(8.0))
    run(path, end=100)
    killed(path, phase="b", begin=0, taken=1, reserved=7)
    assert privacy.main(["privacy", f"--ledger={path}", "--delta=1e-5"]) == 0
    out = capsys.readouterr().out
    for words in ("pca: ", "DP a: 100 steps, z = 1.1, n = 60,000, B = 600, poisson", "DP b: 7 steps", "killed"):
        assert words in out
    assert f"by RDP: {Ledger(path).epsilon(delta=DELTA):.4f}" in out
    assert f"by PLD: {Ledger(path).epsilon(delta=DELTA, accountant='pld'):.4f}" in out


@pytest.mark.parametrize(
    "flags,words",
    [
        (["--ledger=/no/such/file", "--delta=1e-5"], "/no/such/file is not there"),
        (["--ledger=x"], "takes --delta"),
        (["--ledger=x", "--delta=1e-5", "--epochs=3"], "no other flag"),
    ],
)
def test_bad_flags_are_one_line(flags, words, capsys):
    assert privacy.main(["privacy", *flags]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("name", "optimizer"), [("", "DP"), (1, "DP"), ("a", None)])
def test_a_phase_without_a_name_is_refused(name, optimizer):
    with pytest.raises(ValueError, match="a phase whose name is"):
        Phase(name, optimizer, STEP)


def test_a_phase_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="began at step 3 and ended at 2"):
        Phase("a", "DP", STEP, 0, 3, 2)


def test_examples_in_the_docstrings(path):
    names = {"path": path, "gaussian_event": events.gaussian_event}
    assert doctest.testmod(ledger, extraglobs=names).failed == 0


@pytest.mark.parametrize(("count", "paid", "start", "reserved"), [(4, 10, 4, 4), (10, 10, 10, 10), (13, 10, 10, 13)])
def test_a_phase_goes_on_from_what_was_taken(count, paid, start, reserved):
    """Steps beyond what was reserved were taken without the ledger: they count at once."""
    resumed = Phase("a", "DP", STEP, reserved=10).resumed(count)
    assert (resumed.paid, resumed.start, resumed.reserved) == (paid, start, reserved)
    assert resumed.open
