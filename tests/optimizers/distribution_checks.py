"""Checks that the tests of MirroredStrategy and of MultiWorkerMirroredStrategy share."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
from scipy import stats

from tests.optimizers import distribution_runs

ROOT = pathlib.Path(__file__).parents[2]
# A process that hangs is an error; one that is slow is not.
TIMEOUT = 1800


def environment():
    return {**os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}


def output_of(arguments):
    """What `python *arguments` prints."""
    command = [sys.executable, *arguments]
    result = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert result.returncode == 0, result.stderr[-5000:]
    return result.stdout


def mirrored(folder, *runs):
    """The results of `runs` in processes with four logical CPUs.

    Those on four replicas have one of their own: TensorFlow 2.15 can't reduce over groups of two sizes in one process.
    """
    path = folder / "results.json"
    results = {}
    for group in ([run for run in runs if "replicas=4" not in run], [run for run in runs if "replicas=4" in run]):
        if group:
            output_of(["-m", "tests.optimizers.distribution_runs", "mirrored", str(path), *group])
            results.update(json.loads(path.read_text()))
    return results


def launched(folder, workers, *runs, restarts=0):
    """The results of `runs` on each of so many workers, started by examples/launch.py."""
    program = ["-m", "tests.optimizers.distribution_runs", "multi_worker", str(folder), *runs]
    options = [f"--workers={workers}", f"--restarts={restarts}"]
    output_of(["-m", "examples.launch", *options, "--", *program])
    return [json.loads((folder / f"{worker}.json").read_text()) for worker in range(workers)]


def assert_same_training(one, other):
    """Weights and state agree to 1e-5, and so do the metrics; and the comparison means something."""
    assert one["noised_steps"] == other["noised_steps"] > 0
    assert len(one["values"]) == len(other["values"])
    for ours, theirs in zip(one["values"], other["values"]):
        scale = max(np.abs(ours).max(), 1e-3)
        np.testing.assert_allclose(theirs, ours, rtol=0, atol=1e-5 * scale)
    assert len(one["names"]) == len(other["names"]) > 0
    for name, value in one["metrics"].items():
        np.testing.assert_allclose(other["metrics"][name], value, rtol=1e-4, atol=1e-7, err_msg=name)
    assert 0.2 < one["metrics"]["nonprivate/transformed_norm_mean"] < 5  # neither all nor none are clipped


def assert_same_everywhere(digests):
    """All replicas held the same bits after every step, and these changed. `digests`: by step, by replica."""
    assert all(len(set(replicas)) == 1 for replicas in digests)
    assert len({replicas[0] for replicas in digests}) > 1


def assert_noise(result, replicas):
    """N(0, z^2) on the global sum, once; another draw at each step."""
    z = distribution_runs.NOISE_MULTIPLIER
    noise = np.array(result["noise"])
    assert stats.kstest(noise.ravel() / z, "norm").pvalue > 1e-3
    for wrong in (z / np.sqrt(replicas), z * np.sqrt(replicas)):
        assert stats.kstest(noise.ravel() / wrong, "norm").pvalue < 1e-9
    correlations = np.corrcoef(noise)[np.triu_indices(len(noise), 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(noise.shape[1])


def assert_poisson(draws, n, q):
    """Each row in each logical batch with probability q, independently. `draws`: by logical batch, the rows drawn."""
    counts = np.zeros(n)
    for rows in draws:
        assert len(set(rows)) == len(rows), "an example was drawn twice"
        counts[rows] += 1
    steps = len(draws)
    # Each row's count is Binomial(steps, q), and each batch's size Binomial(n, q).
    assert np.abs(counts / steps - q).max() < 5 * np.sqrt(q * (1 - q) / steps)
    sizes = np.array([len(rows) for rows in draws])
    assert abs(sizes.mean() - n * q) < 5 * np.sqrt(n * q * (1 - q) / steps)
    assert 0.6 < sizes.var() / (n * q * (1 - q)) < 1.6
    # Drawing one row says nothing of another.
    member = np.zeros((steps, n))
    for step, rows in enumerate(draws):
        member[step, rows] = 1
    correlations = np.corrcoef(member.T)[np.triu_indices(n, 1)]
    assert np.abs(correlations).max() < 5.5 / np.sqrt(steps)
