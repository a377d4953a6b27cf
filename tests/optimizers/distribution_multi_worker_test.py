"""MultiWorkerMirroredStrategy: real processes on the loopback, started by examples/launch.py."""

import itertools
import json

import numpy as np
import pytest

from tests.optimizers import distribution_checks as checks
from tests.optimizers import distribution_runs

_VARIANTS = ("train", "train:path=jacobian,parts=2", "train:model=embedding", "train:parts=2,expected_batch_size=14")


def _one_device(folder, *variants):
    runs = {
        variant: f"train:replicas=1{''.join(',' + part for part in variant.split(':')[1:])}" for variant in variants
    }
    results = checks.mirrored(folder, *runs.values())
    return {variant: results[run] for variant, run in runs.items()}


def _assert_same_training(one, workers, variant):
    for worker in workers:
        checks.assert_same_training(one[variant], worker[variant])
    steps = zip(*(worker[variant]["digests"] for worker in workers))
    checks.assert_same_everywhere([list(itertools.chain(*replicas)) for replicas in steps])


def _assert_noise(workers, run):
    noise = [worker[run] for worker in workers]
    assert all(each["noise"] == noise[0]["noise"] for each in noise)
    assert len({tuple(key) for each in noise for key in each["keys"]}) == len(workers)
    return noise[0]


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory):
    return checks.launched(tmp_path_factory.mktemp("two"), 2, "train", "noise:seed=1")


@pytest.mark.slow
def test_weights_and_state_are_those_of_one_device(two_workers):
    _assert_same_training({"train": distribution_runs.train(replicas=1)}, two_workers, "train")


@pytest.mark.slow
def test_noise_is_on_the_sum_once(two_workers):
    """With one seed on all workers, their shares must differ all the same."""
    checks.assert_noise(_assert_noise(two_workers, "noise:seed=1"), 2)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 3])
class TestAll:
    """Three workers, and what takes long."""

    @pytest.fixture(scope="class")
    def one(self, tmp_path_factory):
        return _one_device(tmp_path_factory.mktemp("one"), *_VARIANTS)

    @pytest.fixture(scope="class")
    def results(self, tmp_path_factory):
        runs = [*_VARIANTS, "train:z=1.0", "noise", "noise:seed=2", "noise:seed=4,parts=2,path=jacobian"]
        runs += ["poisson", "poisson:parts=2", "plain_poisson_fails", "callbacks"]
        return {n: checks.launched(tmp_path_factory.mktemp(f"workers_{n}"), n, *runs) for n in (2, 3)}

    @pytest.mark.parametrize("variant", _VARIANTS)
    def test_variants(self, one, results, workers, variant):
        _assert_same_training(one, results[workers], variant)

    def test_with_noise_workers_stay_the_same(self, results, workers):
        steps = zip(*(worker["train:z=1.0"]["digests"] for worker in results[workers]))
        checks.assert_same_everywhere([list(itertools.chain(*replicas)) for replicas in steps])

    def test_noise(self, results, workers):
        checks.assert_noise(_assert_noise(results[workers], "noise:seed=2"), workers)
        # Keys of the operating system's, one for each worker: a key that is broadcast would show in both of these.
        unseeded = _assert_noise(results[workers], "noise")
        np.testing.assert_allclose(np.std(unseeded["noise"]), distribution_runs.NOISE_MULTIPLIER, rtol=0.05)

    def test_noise_of_accumulated_batches(self, results, workers):
        parts = np.array(_assert_noise(results[workers], "noise:seed=4,parts=2,path=jacobian")["noise"])
        assert not parts[0::2].any()
        checks.assert_noise({"noise": parts[1::2]}, workers)

    def test_poisson(self, results, workers):
        by_step = zip(*(worker["poisson"] for worker in results[workers]))
        checks.assert_poisson([[row for (part,) in parts for row in part] for parts in by_step], 24, 0.25)
        for number, worker in enumerate(results[workers]):  # nobody reads another one's rows
            assert {row % workers for (part,) in worker["poisson"] for row in part} == {number}
        parts = list(zip(*(worker["poisson:parts=2"] for worker in results[workers])))
        logical = [
            [row for (part,) in first + second for row in part] for first, second in zip(parts[::2], parts[1::2])
        ]
        checks.assert_poisson(logical, 24, 0.25)

    def test_one_process_can_not_draw_for_all(self, results, workers):
        assert all("unshardable source dataset" in worker["plain_poisson_fails"] for worker in results[workers])

    def test_callbacks(self, results, workers):
        every = [worker["callbacks"] for worker in results[workers]]
        assert all(each["epsilon"] == each["by_event"] == every[0]["epsilon"] <= 6.0 for each in every)
        assert all(each["remaining"] == 0 for each in every)
        assert [each["files"] for each in every] == [["by_epsilon", "events", "privacy"]] + [[]] * (workers - 1)


@pytest.mark.slow
def test_a_killed_worker_costs_nothing(tmp_path):
    """SIGKILL in the third of four epochs; the launcher starts all anew, and they go on from the second's backup."""
    folders = [tmp_path / name for name in ("killed", "undisturbed")]
    for folder in folders:
        folder.mkdir()
    runs = [f"fault:folder={folders[0]},kill_at=5", f"fault:folder={folders[1]}"]
    killed, undisturbed = (
        [next(iter(worker.values())) for worker in checks.launched(folder, 2, run, restarts=1)]
        for folder, run in zip(folders, runs)
    )
    assert [worker["first_step"] for worker in killed] == [22, 22]  # two epochs of 11 steps were in the backup
    assert all(worker["was_killed"] for worker in killed)
    assert [worker["first_step"] for worker in undisturbed] == [0, 0]
    for worker in [*killed, *undisturbed]:
        assert worker["noised_steps"] == 44
        assert worker["values"] == killed[0]["values"] or worker in undisturbed
        for ours, theirs in zip(undisturbed[0]["values"], worker["values"]):
            np.testing.assert_allclose(theirs, ours, atol=1e-5)


@pytest.mark.slow
def test_a_killed_worker_with_noise(tmp_path):
    """Fresh noise after the restart, and the epsilon of four epochs: what was lost with the worker was never used."""
    workers = checks.launched(tmp_path, 2, f"fault:folder={tmp_path},kill_at=5,z=1.0", restarts=1)
    first, second = (next(iter(worker.values())) for worker in workers)
    assert first["was_killed"] and first["first_step"] == 22
    assert first["noised_steps"] == second["noised_steps"] == 44
    assert first["values"] == second["values"]
    from adaclip_tf import epsilon

    expected = epsilon(
        noise_multiplier=1.0,
        delta=1e-4,
        num_examples=distribution_runs.EXAMPLES,
        batch_size=distribution_runs.BATCH,
        steps=44,
        sampling="shuffled",
    )
    assert first["epsilon"] == second["epsilon"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [
        ["-m", "examples.launch", "--workers=2", "--", "-m", "examples.train", "--strategy=multi_worker"],
        ["-m", "examples.train", "--strategy=mirrored", "--replicas=2"],
    ],
    ids=["multi_worker", "mirrored"],
)
def test_the_training_program(tmp_path, start):
    """One worker reports and writes; the budget is kept; the same command again finds nothing left to do."""
    options = ["--config=configs/digits.py", "--config.epochs=2", "--verbose=0", f"--workdir={tmp_path}"]
    for _ in range(2):
        printed = checks.output_of([*start, *options])
        assert printed.count("test accuracy") == 1
        folder = tmp_path / "seed_0"
        assert len((folder / "history.csv").read_text().splitlines()) == 3
        assert json.loads((folder / "privacy.json").read_text())["steps"] == 2 * 6
