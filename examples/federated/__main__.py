"""Federated learning with user-level privacy: 1,000 clients, several processes, AdaCliP beside a fixed clip.

    python -m examples.federated                              # digits; writes into runs/federated
    python -m examples.federated --dataset=mnist --seeds=2
    python -m examples.federated --seeds=5 --docs             # the committed page and numbers under docs/

examples/federated/federation.py says what a round is and what is guaranteed.
"""

from __future__ import annotations

import shlex
import sys
import time

import tensorflow as tf
import tqdm
from absl import app, flags, logging

from examples.common import data
from examples.federated import federation, report

LEAST_ACCURACY = 0.6


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}; see --help for the flags.")
    values = flags.FLAGS
    tf.get_logger().setLevel("ERROR")
    if values.seed is not None:
        logging.warning("--seed makes noise and sampling predictable: NOT private.")
    started = time.monotonic()
    plan = federation.Plan(
        users=values.clients,
        users_per_round=values.per_round,
        rounds=values.rounds,
        target_epsilon=values.epsilon,
        delta=values.delta,
        aggregators=values.aggregators,
        workers=values.workers,
    )
    try:
        loaded = data.load(values.dataset, values.data_dir)
        z = plan.noise_multiplier
    except (ValueError, data.DataUnavailableError) as error:
        raise app.UsageError(str(error)) from error
    print(
        f"{plan.users} clients with {loaded.name} from {loaded.source}; each joins a round with probability "
        f"{plan.users_per_round}/{plan.users}; {plan.rounds} rounds; noise multiplier {z:.3f}"
    )
    results = federation.compare(loaded, plan, values.seeds, seed=values.seed, start_run=_progress(plan.rounds))
    print(f"\n{report.table(results, loaded.name)}\n\n{report.TRUST}\n")
    paths = report.Paths.docs() if values.docs else report.Paths.folder(values.output)
    dimension = sum(weight.size for weight in federation.initial_weights(loaded))
    seconds = round(time.monotonic() - started)
    command = shlex.join(["python", "-m", "examples.federated", *sys.argv[1:]])
    report.write(results, plan, loaded.name, paths, command, dimension=dimension, seconds=seconds)
    for path in paths:
        print(f"wrote {path}")
    least = LEAST_ACCURACY if values.rounds >= 50 else 0.0
    print(f"{federation.check(results, plan, least)} ({seconds} s)")


def _progress(rounds: int):
    """A bar for each run that shows epsilon; a line for every quarter of it where there is no terminal."""

    def start_run(label: str, run: int):
        title = f"{label}, run {run + 1}"
        bar = tqdm.tqdm(total=rounds, desc=title, unit="round", disable=None)

        def on_round(done: int, epsilon: float) -> None:
            bar.set_postfix_str(f"epsilon per user {epsilon:.3f}", refresh=False)
            bar.update()
            if done == rounds:
                bar.close()
            if (bar.disable and done % -(-rounds // 4) == 0) or done == rounds:
                print(f"{title}: round {done} of {rounds}, epsilon per user {epsilon:.3f}", flush=True)

        return on_round

    return start_run


if __name__ == "__main__":  # other programs in this folder have flags of the same names
    flags.DEFINE_enum("dataset", "digits", federation.DATASETS, "Whose rows the clients hold.")
    flags.DEFINE_string("data_dir", None, "Folder with MNIST's files, if they are at hand.")
    flags.DEFINE_integer("clients", 1000, "How many clients; public.", lower_bound=1)
    flags.DEFINE_integer("per_round", 100, "How many of them a round has, in the mean.", lower_bound=1)
    flags.DEFINE_integer("rounds", 100, "How many rounds.", lower_bound=1)
    flags.DEFINE_float("epsilon", 2.0, "What all rounds together may cost a user.")
    flags.DEFINE_float("delta", 1e-4, "The delta of (epsilon, delta); below 1 / clients.")
    flags.DEFINE_integer("seeds", 3, "Runs of each method, for a mean and a standard deviation.", lower_bound=1)
    flags.DEFINE_integer("seed", None, "For tests only: makes noise and sampling predictable, so NOT private.")
    flags.DEFINE_integer("aggregators", 2, "Processes that merge.", lower_bound=1)
    flags.DEFINE_integer("workers", 2, "Processes with clients, for each aggregator.", lower_bound=1)
    flags.DEFINE_string("output", "runs/federated", "Folder for the page and the numbers.")
    flags.DEFINE_bool("docs", False, "Write docs/federated.md and docs/results/federated.json instead.")
    app.run(main)
