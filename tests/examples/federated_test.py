"""Tests of the federated example: who holds what, what a client computes, that it learns within its epsilon."""

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'adaclip-tf[flower]'")

import adaclip_tf
from adaclip_tf import core
from examples.common import data
from examples.federated import clients, comparison, report
from examples.federated.grid import InProcessGrid


@pytest.fixture(scope="module")
def digits():
    loaded = data.load("digits")
    return loaded, clients.deal(loaded.x_train, loaded.y_train, 1000)


def test_every_row_is_dealt_once_unevenly_and_by_label(digits):
    loaded, held = digits
    rows = np.concatenate([client.x for client in held])
    assert sorted(map(bytes, rows)) == sorted(map(bytes, loaded.x_train.reshape(len(rows), -1).astype(np.float32)))
    sizes = np.array([len(client.y) for client in held])
    assert sizes.min() == 1 and sizes.max() >= 5
    few = clients.deal(loaded.x_train, loaded.y_train, 20, alpha=0.1)
    even = clients.deal(loaded.x_train, loaded.y_train, 20, alpha=100.0)

    def largest_share(dealt):
        return np.mean([np.bincount(client.y).max() / len(client.y) for client in dealt])

    assert largest_share(few) > 2 * largest_share(even)  # Dirichlet's alpha at work
    with pytest.raises(ValueError, match="`num_clients`"):
        clients.deal(loaded.x_train, loaded.y_train, 10**6)


def test_a_client_takes_steps_of_sgd():
    """One row, one step, from zeros: the gradient of the loss is x (p - e_y)^T with p = 1 / 2 each."""
    rows = clients.Rows(np.array([[1.0, 2.0]], np.float32), np.array([1]))
    local = clients.LocalTraining(steps=1, batch=3, learning_rate=0.1)
    trained = clients.train(clients.initial_weights(2, 2), rows, 1, local)
    np.testing.assert_allclose(trained["kernel"], 0.1 * np.array([[-0.5, 0.5], [-1.0, 1.0]]), rtol=1e-6)
    np.testing.assert_allclose(trained["bias"], [-0.05, 0.05], rtol=1e-6)


def test_rows_go_round_over_the_rounds():
    """Three rows and batches of two: rows 0 1, 2 0, 1 2 in three rounds of one step each."""
    seen = []

    class Seen(np.ndarray):
        def __getitem__(self, index):
            seen.append(list(index))
            return np.asarray(self)[index]

    rows = clients.Rows(np.eye(3, dtype=np.float32).view(Seen), np.array([0, 1, 0]))
    for number in (1, 2, 3):
        clients.train(clients.initial_weights(3, 2), rows, number, clients.LocalTraining(1, 2, 0.1))
    assert seen == [[0, 1], [2, 0], [1, 2]]


PLAN = comparison.Plan(rounds=12, target_epsilon=4.0)


@pytest.fixture(scope="module")
def compared(digits):
    """(results, what was reported): two of the methods once, seeded."""
    loaded, _ = digits
    grid = InProcessGrid(comparison.client_app(PLAN), PLAN.clients)
    reported = []
    chosen = {name: method for name, method in comparison.methods().items() if name in ("adaclip", "not_private")}
    results = {
        name: [
            comparison.train(
                method, PLAN, loaded, grid, seed=5, on_round=lambda *told, name=name: reported.append((name, *told))
            )
        ]
        for name, method in chosen.items()
    }
    return results, reported


def test_epsilon_is_the_accountants_for_clients(compared):
    results, reported = compared
    for done in (5, 12):
        truth = adaclip_tf.epsilon(
            noise_multiplier=PLAN.noise_multiplier, steps=done, delta=1e-4, num_examples=1000, batch_size=100
        )
        (told,) = [epsilon for name, rounds, epsilon in reported if (name, rounds) == ("adaclip", done)]
        assert told == pytest.approx(truth, rel=1e-9)
    assert results["adaclip"][0].epsilon == told and 3.9 < told <= 4.0
    assert results["not_private"][0].epsilon == math.inf


def test_it_learns(compared):
    results, _ = compared
    assert results["not_private"][0].accuracy > 0.8
    assert results["adaclip"][0].accuracy > 0.6


def test_the_check_finds_what_is_wrong(compared):
    results, _ = compared
    assert comparison.check(results, PLAN, 0.5).startswith("ok: every run learnt")
    with pytest.raises(RuntimeError, match="expected more than 1"):
        comparison.check(results, PLAN, 1.0)
    spent = {"adaclip": [results["adaclip"][0]._replace(epsilon=4.01)]}
    with pytest.raises(RuntimeError, match=r"adaclip spent epsilon 4\.0100 of 4"):
        comparison.check(spent, PLAN, 0.5)


def test_the_report_is_written_whole(compared, tmp_path):
    results, _ = compared
    whole = {
        name: results["adaclip" if method.private else "not_private"] for name, method in comparison.methods().items()
    }
    paths = report.Paths.folder(str(tmp_path / "new"))
    report.write(whole, PLAN, paths, "python -m examples.federated", engine="in_process", dimension=650)
    page = paths.page.read_text()
    for name, method in comparison.methods().items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| {method.label} |")]
        assert f"| {whole[name][0].accuracy:.3f} |" in row
    assert "Written by `python -m examples.federated`" in page and report.TRUST in page
    assert '"epsilon": null' in paths.results.read_text()


def test_the_methods_differ_in_the_rule_alone():
    rules = {name: type(method.rule) for name, method in comparison.methods().items()}
    assert rules == {
        "adaclip": core.AdaClip,
        "fixed": core.FixedClip,
        "quantile": core.QuantileClip,
        "not_private": core.FixedClip,
    }
    assert dataclasses.asdict(PLAN)["clients"] == 1000


@pytest.mark.slow
def test_the_program_runs_and_checks_itself(tmp_path):
    command = [sys.executable, "-m", "examples.federated", "--engine=in_process", "--seeds=1", f"--output={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr
    assert "ok: every run learnt, each private one within epsilon 2 per client" in done.stdout
    assert "round 50 of 100, epsilon per client" in done.stdout
    assert report.TRUST in done.stdout
    assert (tmp_path / "federated.json").exists()
