"""Tests of `examples.reproduce` and its parts: grids, resuming, the choice, tables; a tiny experiment end to end."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf.privacy import accountants
from configs import paper
from examples.common import data, models
from examples.reproduce import experiments, gradient_error, jobs, report, results, tables
from examples.reproduce import runs as reproduce_runs

TINY = experiments.Experiment(
    name="tiny",
    title="Tiny",
    note="Batch {expected_batch_size:,}.",
    parameters=650,
    epsilons=(8.0,),
    methods={
        "abadi": experiments.Method(
            "Abadi et al., clip tuned", [{"learning_rate": rate, "l2_norm_clip": 1.0} for rate in (1e-6, 1.0)]
        ),
        "adaclip": experiments.Method(
            "AdaCliP",
            [{"learning_rate": rate, "h2": 1e-3, "initial_std": 0.03} for rate in (1e-6, 1.0)],
            experiments.Published("AdaCliP elsewhere", (60.0,)),
        ),
    },
    measures_error=True,
)
SETTINGS = {"dataset": "digits", "model": "softmax", "expected_batch_size": 144, "epochs": 5, "delta": 1e-4}


@pytest.fixture(scope="module", autouse=True)
def tiny():
    """Makes the tiny experiment known; RDP instead of PLD, which takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(experiments.EXPERIMENTS, "tiny", TINY)
        patch.setitem(paper.EXPERIMENTS, "tiny", SETTINGS)
        patch.setitem(accountants.REGISTERED, "pld", accountants.RDP)
        yield


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(tuned, chosen, final, folder) with two seeds."""
    folder = tmp_path_factory.mktemp("runs")
    tuned = reproduce_runs.run_all(jobs.tuning_jobs(TINY), folder, workers=1)
    chosen = jobs.choose(TINY, tuned)
    final = reproduce_runs.run_all(jobs.final_jobs(TINY, chosen, 2), folder, workers=1)
    return tuned, chosen, final, folder


@pytest.mark.parametrize("name", ["softmax", "mlp", "momentum", "cnn", "cnn_tanh"])
def test_every_method_has_a_grid_of_the_same_size_and_different_candidates(name):
    experiment = experiments.EXPERIMENTS[name]
    assert len({len(method.grid) for method in experiment.methods.values()}) == 1
    for label, grid, published in experiment.methods.values():
        assert len({json.dumps(candidate, sort_keys=True) for candidate in grid}) == len(grid), label
        assert published is None or len(published.accuracies) == len(experiment.epsilons)
    assert set(experiment.methods) <= set(paper.METHODS) and set(experiment.adjustments) <= set(experiment.epsilons)


@pytest.mark.parametrize("name", ["softmax", "mlp", "momentum", "cnn", "cnn_tanh"])
def test_methods_differ_in_nothing_but_their_own_fields(name):
    own = {"optimizer", "learning_rate", "l2_norm_clip", "h2", "initial_std", "largest_gradient_norm", "momentum"}
    experiment = experiments.EXPERIMENTS[name]
    todo = jobs.tuning_jobs(experiment)
    if not todo:  # one candidate each
        todo = jobs.final_jobs(experiment, jobs.choose(experiment, []), seeds=1)
    assert len({job.key for job in todo}) == len(todo)
    for epsilon in experiment.epsilons:
        configs = [job.config for job in todo if job.epsilon == epsilon]
        shared = {json.dumps({k: v for k, v in config.items() if k not in own}, sort_keys=True) for config in configs}
        assert len(shared) == 1
    assert all(not job.config["reproducible"] for job in todo)


@pytest.mark.parametrize("name", ["softmax", "mlp", "momentum", "cnn", "cnn_tanh", "tiny"])
def test_experiments_know_their_dimension(name):
    experiment = experiments.EXPERIMENTS[name]
    config = paper.make_config(name, next(iter(experiment.methods)), 1.0)
    shape = (config.pca_components,) if config.pca_components else (8, 8, 1) if name == "tiny" else (28, 28, 1)
    assert models.make_model(config, shape, 10).count_params() == experiment.parameters


def test_tuning_never_sees_the_test_set():
    loaded = data.load("digits")
    split = jobs.split(loaded, "tune")
    assert len(split.x_train) + len(split.x_test) == len(loaded.x_train)
    np.testing.assert_array_equal(np.concatenate([split.x_train, split.x_test]), loaded.x_train)
    np.testing.assert_array_equal(np.concatenate([split.y_train, split.y_test]), loaded.y_train)
    assert jobs.split(loaded, "final") is loaded


@pytest.mark.slow
def test_the_better_candidate_is_chosen_and_trained_with_every_seed(ran):
    tuned, chosen, final, _ = ran
    assert len(tuned) == 4
    for name, method in TINY.methods.items():
        assert chosen[name]["8"] == method.grid[1]  # a learning rate of 1e-6 learns nothing
    assert len(final) == 4 and {run["number"] for run in final} == {0, 1}
    for run in final:
        assert 0.99 * run["epsilon"] < run["epsilon_spent"] <= run["epsilon"]
        assert run["num_examples"] == 1438 and run["steps"] == 50 and run["by_epoch"] == []
        assert run["gradient_error"] > 0.0
    assert {run["num_examples"] for run in tuned} == {1438 - 287}
    assert all(run["gradient_error"] is None and run["by_epoch"] == [] for run in tuned)


def test_accuracy_after_every_epoch_where_it_is_drawn(tmp_path):
    abadi = TINY.methods["abadi"]._replace(grid=TINY.methods["abadi"].grid[1:])
    experiment = TINY._replace(methods={"abadi": abadi}, shows_convergence=True)
    chosen = {"abadi": {"8": abadi.grid[0]}}
    (final,) = reproduce_runs.run_all(jobs.final_jobs(experiment, chosen, 1), tmp_path, workers=1)
    assert len(final["by_epoch"]) == 5
    assert final["by_epoch"][-1] == pytest.approx(final["accuracy"], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["scales", "abadi", "adaclip"])
def test_the_cnn_with_tanh_trains_small(method, tmp_path, monkeypatch):
    """Scikit-learn's digits, three times as large with a margin. The epsilon by PLD (here RDP) counts the queries."""

    def large(x):
        return np.pad(x.repeat(3, axis=1).repeat(3, axis=2), [(0, 0), (2, 2), (2, 2), (0, 0)])

    loaded = data.load("digits")
    loaded = loaded._replace(x_train=large(loaded.x_train[:300]), y_train=loaded.y_train[:300])
    monkeypatch.setattr(reproduce_runs, "_load", lambda *_: loaded._replace(x_test=large(loaded.x_test)))
    settings = {**paper.EXPERIMENTS["cnn_tanh"], "expected_batch_size": 100, "epochs": 1}
    monkeypatch.setitem(paper.EXPERIMENTS, "cnn_tanh", settings)
    experiment = experiments.EXPERIMENTS["cnn_tanh"]
    todo = next(job for job in jobs.final_jobs(experiment, jobs.choose(experiment, []), 1) if job.method == method)
    (ran,) = reproduce_runs.run_all([todo], tmp_path, workers=1)
    assert ran["steps"] == 3 and 0.0 <= ran["accuracy"] <= 1.0
    assert 0.99 * 2.93 < ran["epsilon_spent"] <= 2.93
    assert (ran["scales_noise"] is None) == (method != "scales")
    assert results.pld_epsilon(experiment, [ran], 2.93) == pytest.approx(ran["epsilon_spent"])


@pytest.mark.slow
def test_a_second_run_goes_on_where_the_first_stopped(ran, monkeypatch):
    tuned, _, _, folder = ran
    todo = jobs.tuning_jobs(TINY)
    calls = []
    monkeypatch.setattr(reproduce_runs, "run_one", lambda job, *_: calls.append(job.key))
    assert reproduce_runs.run_all(todo, folder, workers=1) == tuned
    assert calls == []
    changed = todo[0]._replace(config={**todo[0].config, "epochs": 4})  # another setting is another run
    reproduce_runs.run_all([changed], folder, workers=1)
    assert calls == [changed.key]


@pytest.mark.slow
def test_several_processes_give_files_too(tmp_path):
    todo = jobs.tuning_jobs(TINY)[:2]
    ran = reproduce_runs.run_all(todo, tmp_path, workers=2)
    assert [run["number"] for run in ran] == [0, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{job.key}.json" for job in todo)


_PROGRAM = """
import pathlib, sys
from examples.reproduce import experiments, jobs, runs

def main():
    todo = jobs.tuning_jobs(experiments.EXPERIMENTS["softmax"])
    todo = [job._replace(config={**job.config, "dataset": "digits", "epochs": 10**6}) for job in todo]
    runs.run_all(todo, pathlib.Path(sys.argv[1]), workers=2)

if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
def test_workers_end_with_a_program_that_is_killed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(paper.__file__).parent.parent)}
    with subprocess.Popen([sys.executable, str(program), str(tmp_path / "runs")], env=environment) as parent:
        children = pathlib.Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        _until(lambda: len(children.read_text().split()) >= 3)  # two workers, and multiprocessing's own
        workers = [pathlib.Path(f"/proc/{process}") for process in children.read_text().split()]
        time.sleep(20.0)  # they import TensorFlow and begin to train
        assert all(worker.exists() for worker in workers)
        parent.kill()
    try:
        _until(lambda: not any(worker.exists() for worker in workers), seconds=20.0)
    finally:
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(worker.name), signal.SIGKILL)


def _until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.slow
def test_the_report_has_tables_and_figures(ran, tmp_path):
    tuned, chosen, final, _ = ran
    path = results.store(TINY, tuned, chosen, final, tmp_path / "results")
    stored = json.loads(path.read_text())
    assert stored["chosen"] == chosen and len(stored["runs"]) == 4
    written = report.write(tmp_path)
    assert [file.name for file in written] == ["results.md", "tiny_error.png"]  # one epsilon makes no line
    page = written[0].read_text()
    mean = 100 * np.mean([run["accuracy"] for run in final if (run["method"], run["epsilon"]) == ("adaclip", 8.0)])
    assert f"| AdaCliP | {mean:.2f} (" in page and "| *AdaCliP elsewhere* | *60.00* |" in page and "2 seeds." in page
    for figure in written[1:]:
        assert figure.read_bytes().startswith(b"\x89PNG") and f"figures/{figure.name}" in page


def test_the_difference_has_its_standard_error():
    accuracies = {"adaclip": [0.90, 0.92], "abadi": [0.89, 0.91]}
    runs = [{"method": name, "epsilon": 1.0, "accuracy": a} for name, row in accuracies.items() for a in row]
    ahead, error = results.difference({"runs": runs}, 1.0)
    assert ahead == pytest.approx(1.0) and error == pytest.approx(
        np.sqrt(2.0)
    )  # two means, each of sd sqrt(2) / sqrt(2)


def test_what_the_grids_came_to_is_known_again_unless_they_changed(ran, tmp_path):
    tuned, chosen, final, _ = ran
    assert results.tuned(TINY, tmp_path) is None
    results.store(TINY, tuned, chosen, final, tmp_path / "results")
    assert jobs.choose(TINY, results.tuned(TINY, tmp_path)) == chosen
    other = TINY._replace(methods={"abadi": TINY.methods["abadi"]})
    assert results.tuned(other, tmp_path) is None


def test_committed_results_and_configs_agree():
    """docs/results.md is what its command makes of the results files, and configs/paper.json what they chose."""
    known = json.loads(paper.CHOSEN.read_text())
    docs = pathlib.Path(paper.__file__).parent.parent / "docs"
    page = (docs / "results.md").read_text()
    for name, chosen in known.items():
        committed = json.loads((docs / "results" / f"{name}.json").read_text())
        assert committed["chosen"] == chosen
        experiment = experiments.EXPERIMENTS[name]
        assert committed["settings"] == paper.EXPERIMENTS[name]
        assert {name: method.grid for name, method in experiment.methods.items()} == committed["grids"]
        assert tables.accuracy_table(experiment, committed) in page
        for method, cells in chosen.items():
            for epsilon, candidate in cells.items():
                config = paper.get_config(f"{name}/{method}/{epsilon}")
                assert {field: config[field] for field in candidate} == candidate


def test_the_summary_has_the_committed_results(tmp_path):
    copy = tmp_path / "summary.md"
    copy.write_text(report.SUMMARY.read_text())
    assert report.write_summary(copy).read_text() == report.SUMMARY.read_text()
    for name, experiment in experiments.EXPERIMENTS.items():
        assert copy.read_text().count(f"<!-- results: {name} -->") == experiment.in_summary


def test_an_unknown_cell_is_named():
    with pytest.raises(ValueError, match=r"experiment/method/epsilon.*got 'softmax/adam/1'"):
        paper.get_config("softmax/adam/1")


def test_gradient_error_by_hand():
    """Gradients (3, 0) and (0, 1), clip 1, no noise, B = 2: g = (1.5, 0.5), g~ = (0.5, 0.5), so |g - g~| = 1."""

    class Output(tf.keras.losses.Loss):
        def call(self, y_true, y_pred):
            return y_pred[:, 0]

    inner = tf.keras.Sequential([tf.keras.layers.InputLayer([2]), tf.keras.layers.Dense(1, use_bias=False)])
    model = gradient_error.MeasuringModel.around(inner)
    optimizer = adaclip_tf.DPFixedClipSGD(
        l2_norm_clip=1.0, noise_multiplier=0.0, expected_batch_size=2, learning_rate=1.0
    )
    model.compile(optimizer, Output(reduction="none"))
    before = model.get_weights()[0][:, 0].copy()
    history = model.fit(np.array([[3.0, 0.0], [0.0, 1.0]], np.float32), np.zeros(2), batch_size=2, verbose=0)
    assert history.history[gradient_error.NAME] == pytest.approx([1.0], abs=1e-5)
    np.testing.assert_allclose(before - model.get_weights()[0][:, 0], [0.5, 0.5], atol=1e-5)
    assert int(optimizer.noised_steps) == 1
