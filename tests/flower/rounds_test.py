"""Tests of what rounds cost, of the end before the target, and of servers that are killed."""

import fcntl
import math
import os
import signal
import subprocess
import sys

import dp_accounting
import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'adaclip-tf[flower]'")

from flwr.app import ConfigRecord
from flwr.serverapp import strategy as strategies

import adaclip_tf
from adaclip_tf import core
from adaclip_tf.flower import saved
from adaclip_tf.flower.rounds import Rounds
from adaclip_tf.privacy.mechanism import Mechanism
from examples.federated.grid import InProcessGrid
from tests.flower import federation
from tests.flower.federation import MODEL, flat, private

FEW = {"num_clients": 40, "clients_per_round": 4, "delta": 1e-3}


def grid(client=federation.trains):
    return InProcessGrid(client, 4)


def start(strategy, num_rounds, **options):
    return strategy.start(grid(), federation.record(MODEL), num_rounds=num_rounds, **options)


def by_hand(event, rounds, delta=1e-3, relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE):
    """dp_accounting's epsilon of so many events, composed one by one."""
    accountant = dp_accounting.rdp.RdpAccountant(neighboring_relation=relation)
    for _ in range(rounds):
        accountant.compose(event)
    return accountant.get_epsilon(delta)


def test_epsilon_is_dp_accountings_composition():
    strategy = private(noise_multiplier=1.2, **FEW)
    result = start(strategy, 3)
    event = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.2))
    for rounds in (1, 2, 3):
        told = result.train_metrics_clientapp[rounds]["epsilon"]
        assert told == pytest.approx(by_hand(event, rounds), rel=1e-9)
    assert strategy.epsilon == told
    assert told == pytest.approx(
        adaclip_tf.epsilon(noise_multiplier=1.2, num_examples=40, batch_size=4, steps=3, delta=1e-3), rel=1e-9
    )


def test_epsilon_of_a_fixed_number_is_that_of_its_own_event():
    strategy = private(
        noise_multiplier=3.0, num_clients=4, clients_per_round=2, delta=1e-3, sampling="without_replacement"
    )
    start(strategy, 2)
    event = dp_accounting.SampledWithoutReplacementDpEvent(4, 2, dp_accounting.GaussianDpEvent(1.5))
    assert strategy.epsilon == pytest.approx(
        by_hand(event, 2, relation=dp_accounting.NeighboringRelation.REPLACE_ONE), rel=1e-9
    )


def test_training_ends_before_the_target():
    event = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.2))
    target = by_hand(event, 3) + 1e-6
    strategy = private(noise_multiplier=1.2, target_epsilon=target, **FEW)
    seen = []
    result = start(strategy, 10, evaluate_fn=lambda number, arrays: seen.append(number))
    assert strategy.rounds_done == 3 and sorted(result.train_metrics_clientapp) == [1, 2, 3]
    assert seen == [0, 1, 2, 3]
    assert strategy.epsilon <= target < by_hand(event, 4)
    with pytest.raises(adaclip_tf.PrivacyBudgetSpentError, match="3 rounds have cost"):
        strategy.configure_train(4, federation.record(MODEL), ConfigRecord(), grid())
    again = start(strategy, 10)
    assert strategy.rounds_done == 3
    np.testing.assert_array_equal(flat(federation.arrays_of(again.arrays)), flat(MODEL))  # what it was given


def test_a_target_that_not_even_one_round_meets():
    strategy = private(noise_multiplier=0.3, target_epsilon=0.1, **FEW)
    result = start(strategy, 2)
    assert strategy.rounds_done == 0 and strategy.epsilon == 0.0
    np.testing.assert_array_equal(flat(federation.arrays_of(result.arrays)), flat(MODEL))


def test_without_noise_epsilon_is_infinite():
    strategy = private()
    start(strategy, 1)
    assert math.isinf(strategy.epsilon)


def test_rounds_are_in_the_ledger_before_they_are_published(tmp_path, monkeypatch):
    path = tmp_path / "ledger.json"
    strategy = private(noise_multiplier=1.2, ledger=path, **FEW)
    at_noise, at_clients = [], []

    def phases():
        return [phase.steps for phase in adaclip_tf.Ledger(path).read()[0]]

    fresh = core.noise.NoiseSource.fresh_normals
    monkeypatch.setattr(
        core.noise.NoiseSource, "fresh_normals", lambda *args: (at_noise.append(phases()), fresh(*args))[1]
    )

    def client(message, context):
        at_clients.append(phases())
        return federation.trains(message, context)

    strategy.start(InProcessGrid(client, 40), federation.record(MODEL), num_rounds=3)
    assert at_noise == [[1], [2], [3]]
    assert all(steps in ([0], [1], [2]) for steps in at_clients)  # a round that is killed at the clients costs nothing
    ledger = adaclip_tf.Ledger(path)
    assert ledger.epsilon(delta=1e-3) == pytest.approx(strategy.epsilon, rel=1e-9)
    (phase,) = ledger.read()[0]
    assert (phase.optimizer, phase.steps, phase.open) == ("FedAvg of clients", 3, False)


def test_all_that_the_ledger_holds_counts(tmp_path):
    path = tmp_path / "ledger.json"
    adaclip_tf.Ledger(path).add("a survey of the clients", dp_accounting.GaussianDpEvent(5.0))
    one, two = (private(noise_multiplier=1.2, ledger=path, **FEW) for _ in range(2))
    start(one, 2)
    start(two, 3)
    event = dp_accounting.ComposedDpEvent(
        [
            dp_accounting.GaussianDpEvent(5.0),
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.2)), 5
            ),
        ]
    )
    assert two.epsilon == pytest.approx(by_hand(event, 1), rel=1e-9)
    target = private(noise_multiplier=1.2, ledger=path, target_epsilon=two.epsilon, **FEW)
    start(target, 3)
    assert target.rounds_done == 0


# ---------------------------------------------------------------------------------------------------
# Resuming.


def resumable(tmp_path, wrapped=None, **options):
    files = {"ledger": tmp_path / "ledger.json", "state": tmp_path / "server.npz"}
    return private(strategy=wrapped, **{**files, "noise_multiplier": 0.0, **options})


@pytest.mark.parametrize("make", [strategies.FedAdam, strategies.FedAvgM])
def test_a_run_in_two_parts_is_the_run(make, tmp_path):
    """Without noise, all clients in every round: weights, AdaCliP's state, FedAdam's moments and round numbers."""
    options = {} if make is strategies.FedAdam else {"server_momentum": 0.9, "server_learning_rate": 0.5}
    whole = private(strategy=make(**options))
    expected = start(whole, 5)
    start(resumable(tmp_path, make(**options)), 2)
    numbers = []
    second = resumable(tmp_path, make(**options))
    result = second.start(
        grid(),
        federation.record({name: 0.0 * array for name, array in MODEL.items()}),  # the file's arrays are taken
        num_rounds=5,
        evaluate_fn=lambda number, arrays: numbers.append(number),
    )
    np.testing.assert_allclose(
        flat(federation.arrays_of(result.arrays)), flat(federation.arrays_of(expected.arrays)), rtol=1e-6
    )
    assert sorted(result.train_metrics_clientapp) == [3, 4, 5] and numbers == [2, 3, 4, 5]
    assert second.rounds_done == 5
    (phase,) = adaclip_tf.Ledger(tmp_path / "ledger.json").read()[0]
    assert phase.steps == 5


KILLED = """
import os, signal, sys
from adaclip_tf.flower import saved, sums
from tests.flower import federation
from tests.flower.rounds_test import FEW, resumable, start
import pathlib

where, folder = sys.argv[1], pathlib.Path(sys.argv[2])
strategy, rounds = resumable(folder, noise_multiplier=1.2, **FEW), []

def die(*arguments):
    os.kill(os.getpid(), signal.SIGKILL)

def killing(original, last):
    def wrapped(*arguments):
        rounds.append(1)
        if len(rounds) == 3:
            if last == "after":
                original(*arguments)
            die()
        return original(*arguments)
    return wrapped

if where == "before the noise":
    strategy._total = killing(strategy._total, "before")
elif where == "before the file":
    saved.write = killing(saved.write, "before")
else:
    saved.write = killing(saved.write, "after")
start(strategy, 5)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "where,done,paid",
    [
        ("before the noise", 2, 2),  # of the third round nothing was published
        ("before the file", 2, 3),  # its noise was drawn: it counts, and is taken again
        ("after the file", 3, 3),
    ],
)
def test_a_killed_server_goes_on_with_the_right_epsilon(where, done, paid, tmp_path):
    command = [sys.executable, "-c", KILLED, where, str(tmp_path)]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=dict(os.environ))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert saved.read(str(tmp_path / "server.npz")).done == done
    (phase,) = adaclip_tf.Ledger(tmp_path / "ledger.json").read()[0]
    assert (phase.steps, phase.open) == (paid, True)
    second = resumable(tmp_path, noise_multiplier=1.2, **FEW)
    start(second, 5)
    event = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.2))
    assert second.rounds_done == 5
    assert second.epsilon == pytest.approx(by_hand(event, paid + 5 - done), rel=1e-9)
    assert adaclip_tf.Ledger(tmp_path / "ledger.json").epsilon(delta=1e-3) == pytest.approx(second.epsilon, rel=1e-9)


def is_free(ledger):
    """Whether another program could write now. A lock is one of an open file's, not of a process's."""
    with open(adaclip_tf.Ledger(ledger).lock_path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def test_what_was_under_way_ends_where_something_else_begins(tmp_path):
    path = tmp_path / "ledger.json"
    step = Mechanism(1.2, 40, 4)
    options = {"delta": 1e-3, "target_epsilon": None, "accountant": "rdp", "other_event": None}
    running = Rounds(step, "it", ledger=path, **options)
    for phase in ("one", "two"):
        running.open(phase, 0)
        running.spend()
    assert not is_free(path)
    assert [(phase.id, phase.steps, phase.open) for phase in adaclip_tf.Ledger(path).read()[0]] == [
        ("one", 1, False),
        ("two", 1, True),
    ]
    running.close()
    assert is_free(path)


def test_a_round_that_fails_leaves_what_was_written_down(tmp_path):
    strategy = resumable(tmp_path, noise_multiplier=1.2, **FEW)

    def full(*arguments):
        raise OSError("no space left")

    strategy.strategy.aggregate_train = full
    with pytest.raises(OSError, match="no space left"):
        start(strategy, 2)
    (phase,) = adaclip_tf.Ledger(tmp_path / "ledger.json").read()[0]
    assert (phase.steps, phase.open) == (1, True)
    assert is_free(tmp_path / "ledger.json")
    second = resumable(tmp_path, noise_multiplier=1.2, **FEW)
    start(second, 1)
    assert second.rounds_done == 1


def test_what_does_not_go_with_the_file_is_refused(tmp_path):
    start(resumable(tmp_path), 2)
    with pytest.raises(ValueError, match="of another model"):
        resumable(tmp_path).start(grid(), federation.record({"bias": MODEL["bias"]}), num_rounds=3)
    with pytest.raises(ValueError, match="of another rule"):
        start(resumable(tmp_path, rule=core.FixedClip(1.0)), 3)
    with pytest.raises(ValueError, match="noise_multiplier=0"):
        start(resumable(tmp_path, noise_multiplier=0.5), 3)
    old = (tmp_path / "server.npz").read_bytes()
    start(resumable(tmp_path), 3)
    (tmp_path / "server.npz").write_bytes(old)
    with pytest.raises(ValueError, match=r"older than its ledger.*put back the newest `state`"):
        start(resumable(tmp_path), 4)
    saved.write(str(tmp_path / "server.npz"), saved.read(str(tmp_path / "server.npz"))._replace(done=-1))
    with pytest.raises(ValueError, match=r"is damaged.*-1 rounds"):
        start(resumable(tmp_path), 4)
    (tmp_path / "server.npz").write_bytes(old[:-30])
    with pytest.raises(ValueError, match=r"`state`=.*is damaged"):
        start(resumable(tmp_path), 4)
    with pytest.raises(RuntimeError, match="call `start`"):
        resumable(tmp_path).configure_train(1, federation.record(MODEL), ConfigRecord(), grid())


@pytest.mark.slow
def test_two_servers_cannot_share_a_ledger_at_a_time(tmp_path):
    path = tmp_path / "ledger.json"
    command = [sys.executable, "-c", f"import adaclip_tf; adaclip_tf.Ledger({str(path)!r}).add('x', None)"]
    seen = []

    def other(number, arrays):
        if number == 1:
            program = command[-1].replace("None", "__import__('dp_accounting').GaussianDpEvent(1.0)")
            seen.append(subprocess.run([*command[:-1], program], capture_output=True, text=True, check=False).stderr)

    start(private(noise_multiplier=1.2, ledger=path, **FEW), 1, evaluate_fn=other)
    assert "is held by another program" in seen[0]
