"""Runs the jobs of an experiment, in several processes, and keeps every result in a file of its own.

A job whose file is there with the same config is not run again: an interrupted experiment goes on where it stopped.
"""

from __future__ import annotations

import concurrent.futures
import functools
import json
import multiprocessing
import os
import pathlib
import threading
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import files
from examples.common import data, training
from examples.reproduce import gradient_error
from examples.reproduce.jobs import Job, job_config, split


def run_all(
    jobs: list[Job],
    folder: pathlib.Path,
    *,
    workers: int,
    data_dir: str | None = None,
    progress: Any = lambda iterable, total: iterable,
) -> list[dict[str, Any]]:
    """The results of `jobs`, in their order; runs those that are missing from `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [job for job in jobs if read(job, folder) is None]
    for _ in progress(_run_missing(missing, folder, workers, data_dir), total=len(missing)):
        pass
    results = [read(job, folder) for job in jobs]
    return [result for result in results if result is not None]


def _run_missing(jobs, folder, workers, data_dir) -> Iterable[None]:
    if workers == 1:
        for job in jobs:
            run_one(job, folder, data_dir)
            yield
        return
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    threads = max(1, (os.cpu_count() or 1) // workers)
    with concurrent.futures.ProcessPoolExecutor(workers, context, _start_worker, (threads,)) as pool:
        futures = [pool.submit(run_one, job, folder, data_dir) for job in jobs]
        try:
            for future in concurrent.futures.as_completed(futures):
                yield future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _start_worker(threads: int) -> None:
    """Processes that share the cores fairly are faster than threads that fight for them."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    tf.get_logger().setLevel("ERROR")
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)


def _end_with_parent() -> None:
    """A killed program must not leave workers behind, which would train on for minutes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@functools.lru_cache(maxsize=2)
def _load(dataset: str, data_dir: str | None, stage: str) -> data.Data:
    return split(data.load(dataset, data_dir), stage)


def run_one(job: Job, folder: pathlib.Path, data_dir: str | None = None) -> None:
    """Trains, and writes what came out."""
    config = job_config(job)
    started = time.monotonic()
    result = training.run(
        config,
        loaded=_load(config.dataset, data_dir, job.stage),
        wrap=gradient_error.MeasuringModel.around if job.measures_error else None,
        validate=job.shows_convergence,
    )
    tf.keras.backend.clear_session()
    error = result.history.get(gradient_error.NAME)
    _write(
        job,
        folder,
        {
            "accuracy": result.metric,
            "epsilon_spent": result.epsilon,
            "noise_multiplier": result.noise_multiplier,
            "pca_noise_multiplier": result.pca_noise_multiplier,
            "scales_noise": result.scales_noise,
            "steps": result.accounted["steps"],
            "num_examples": result.accounted["num_examples"],
            "noise_norm": float(np.mean(result.history["noise_norm"])),
            "gradient_error": None if error is None else float(np.mean(error)),
            "by_epoch": [round(value, 4) for value in result.history.get("val_accuracy", [])],
            "seconds": round(time.monotonic() - started, 1),
        },
    )


def _path(job: Job, folder: pathlib.Path) -> pathlib.Path:
    return folder / f"{job.key}.json"


def read(job: Job, folder: pathlib.Path) -> dict[str, Any] | None:
    """What a job came to, or None if it was not run with this config."""
    path = _path(job, folder)
    if not path.exists():
        return None
    stored = json.loads(path.read_text())
    return stored if stored.pop("config") == json.loads(json.dumps(job.config)) else None


def _write(job: Job, folder: pathlib.Path, outcome: dict[str, Any]) -> None:
    identity = {name: getattr(job, name) for name in ("experiment", "stage", "method", "epsilon", "number", "config")}
    with files.replacing(_path(job, folder)) as file:
        file.write((json.dumps({**identity, **outcome}, indent=1) + "\n").encode())
