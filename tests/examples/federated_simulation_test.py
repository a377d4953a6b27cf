"""The comparison on Flower's simulation engine: the numbers of the grid in one process, and nobody is told."""

import json
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'adaclip-tf[flower]'")

import dp_accounting
from flwr.app import ConfigRecord, Message, RecordDict

from examples.federated import clients, comparison, simulation
from examples.federated.grid import InProcessGrid

# So little noise, and labels dealt so evenly, that three rounds learn something whoever is drawn.
PLAN = comparison.Plan(clients=40, per_round=20, rounds=3, target_epsilon=60.0, delta=1e-3, alpha=10.0)
SEED = 7


def by_hand(rounds):
    """dp_accounting's epsilon of so many rounds of 20 of 40 clients, composed one by one."""
    accountant = dp_accounting.rdp.RdpAccountant()
    for _ in range(rounds):
        accountant.compose(
            dp_accounting.PoissonSampledDpEvent(0.5, dp_accounting.GaussianDpEvent(PLAN.noise_multiplier))
        )
    return accountant.get_epsilon(PLAN.delta)


def client():
    """The comparison's client, which also tells its partition: the engine draws the ids of nodes."""

    def tell(message, context, call_next):
        reply = call_next(message, context)
        reply.content[clients.METRICS]["partition"] = int(context.node_config["partition-id"])
        return reply

    return clients.client_app(clients.Digits(PLAN.clients, PLAN.alpha), PLAN.local, [tell])


def partitions(grid, loaded):
    """Partition -> node, by asking them all."""
    model = clients.record_of(clients.initial_weights(loaded.x_train[0].size, loaded.num_classes))
    content = RecordDict({clients.ARRAYS: model, "config": ConfigRecord({"server-round": 1})})
    asked = [Message(content, dst_node_id=node, message_type="train") for node in grid.get_node_ids()]
    replies = list(grid.send_and_receive(asked, timeout=300.0))
    return {reply.content[clients.METRICS]["partition"]: reply.metadata.src_node_id for reply in replies}


def train(name, loaded, grid):
    told = []
    result = comparison.train(
        comparison.methods()[name], PLAN, loaded, grid, seed=SEED, on_round=lambda *what: told.append(what)
    )
    return result, told


@pytest.fixture(scope="module")
def both():
    """(on the engine, in one process): every method with the same seed, and with the ids that the engine drew."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'adaclip-tf[simulation]'")
    loaded, _ = clients.digits(PLAN.clients, PLAN.alpha)
    names = list(comparison.methods())

    def serve(grid):
        return {name: train(name, loaded, grid) for name in names}, partitions(grid, loaded)

    on_engine, nodes = simulation.run(client(), PLAN.clients, serve, workers=2)
    assert sorted(nodes) == list(range(PLAN.clients))
    alone = InProcessGrid(client(), [nodes[partition] for partition in range(PLAN.clients)])
    return on_engine, {name: train(name, loaded, alone) for name in names}


@pytest.mark.slow
def test_the_engine_gives_the_numbers_of_one_process(both):
    """Answers come in another order, so that sums differ in float64's last bits, and nothing else does."""
    loaded, _ = clients.digits(PLAN.clients, PLAN.alpha)
    on_engine, alone = both
    for name, (result, told) in on_engine.items():
        expected, expected_told = alone[name]
        assert told == expected_told
        assert result.epsilon == expected.epsilon
        assert result.noise_norm == pytest.approx(expected.noise_norm, rel=1e-4)
        # A digit or two may be decided by a last bit.
        assert result.accuracy == pytest.approx(expected.accuracy, abs=2.5 / len(loaded.y_test))


@pytest.mark.slow
def test_rounds_on_the_engine_are_counted_and_learn(both):
    on_engine, _ = both
    for name in ("adaclip", "fixed", "quantile"):
        result, told = on_engine[name]
        assert [rounds for rounds, _ in told] == [1, 2, 3]
        for rounds, epsilon in told:
            assert epsilon == pytest.approx(by_hand(rounds), rel=1e-9)
        assert 0.95 * PLAN.target_epsilon < result.epsilon <= PLAN.target_epsilon
        assert result.accuracy > 0.2  # twice what guessing gives


@pytest.mark.slow
def test_a_server_that_fails_ends_the_engine_with_its_own_words():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'adaclip-tf[simulation]'")

    def fails(grid):
        raise ArithmeticError(f"{len(list(grid.get_node_ids())) <= 3}: no more than there are")

    with pytest.raises(ArithmeticError, match="True: no more"):
        simulation.run(client(), 3, fails, workers=1)


@pytest.mark.slow
def test_strangers_are_not_let_in():
    """Ray's processes listen on all addresses: who has no token must not be able to send them anything."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'adaclip-tf[simulation]'")

    def serve(grid):
        import ray

        partitions(grid, clients.digits(PLAN.clients, PLAN.alpha)[0])  # Ray has started when somebody answers
        program = f"import ray; ray.init({ray.get_runtime_context().gcs_address!r}); print('is in')"
        held = dict(os.environ)
        found = []
        for token in (held["RAY_AUTH_TOKEN"], "0" * 64):
            environment = {**held, "RAY_AUTH_TOKEN": token}
            found.append(
                subprocess.run(
                    [sys.executable, "-c", program],
                    capture_output=True,
                    text=True,
                    timeout=300,
                    check=False,
                    env=environment,
                )
            )
        return found

    friend, stranger = simulation.run(client(), 3, serve, workers=1)
    assert "is in" in friend.stdout, friend.stderr
    assert stranger.returncode != 0 and "is in" not in stranger.stdout
    assert "uthentication" in stranger.stderr


@pytest.mark.slow
def test_the_program_runs_on_the_engine_and_reaches_out_to_nobody(tmp_path):
    """Every address that its process asks for or connects to is this machine's."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'adaclip-tf[simulation]'")
    program = """
import runpy, sys
def hook(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo"):
        address = arguments[1] if event == "socket.connect" else arguments[0]
        host = str(address[0] if isinstance(address, tuple) else address)
        print("ADDRESS", host, flush=True)
        if not host.startswith(("127.", "/", "localhost")):
            raise PermissionError(host)
sys.addaudithook(hook)
runpy.run_module("examples.federated", run_name="__main__")
"""
    small = ["--clients=12", "--per_round=4", "--rounds=2", "--seeds=1", "--epsilon=20", "--delta=1e-2"]
    command = [sys.executable, "-c", program, "--engine=simulation", *small, f"--output={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert "engine: simulation" in done.stdout and "ok: every run learnt" in done.stdout
    assert json.loads((tmp_path / "federated.json").read_text())["engine"] == "simulation"
    asked = {line.partition(" ")[2] for line in done.stdout.splitlines() if line.startswith("ADDRESS")}
    others = {address for address in asked if not address.startswith(("127.", "/", "localhost"))}
    assert asked and not others


def test_without_ray_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(simulation, "available", lambda: False)
    with pytest.raises(RuntimeError, match=r"pip install 'adaclip-tf\[simulation\]'"):
        simulation.run(client(), 3, lambda grid: None)


def test_what_clients_hold_travels_as_two_numbers():
    held = clients.Digits(40, 0.5)
    loaded, _ = clients.digits(40, 0.5)
    dealt = clients.deal(loaded.x_train, loaded.y_train, 40, 0.5)
    travelled = pickle.loads(pickle.dumps(held))  # noqa: S301  its own
    assert len(pickle.dumps(held)) < 200 and len(travelled) == 40
    for mine, theirs in zip(travelled, dealt):
        np.testing.assert_array_equal(mine.x, theirs.x)
        np.testing.assert_array_equal(mine.y, theirs.y)


def test_a_grid_takes_other_ids():
    grid = InProcessGrid(client(), [30, 10, 20])
    loaded, _ = clients.digits(PLAN.clients, PLAN.alpha)
    assert partitions(grid, loaded) == {0: 30, 1: 10, 2: 20}
