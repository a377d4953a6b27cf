"""Federated learning on Flower with client-level privacy: 1,000 clients, AdaCliP beside a fixed and a quantile clip.

    python -m examples.federated                              # writes into runs/federated
    python -m examples.federated --engine=in_process          # the same without Ray, a tenth of the work
    python -m examples.federated --engine=in_process --seeds=5 --docs   # the committed page and numbers under docs/

Clients run on Flower's simulation engine where it is installed. `python -m examples.federated.processes` has a process
for each, and few of them.
"""

from __future__ import annotations

import logging as python_logging
import shlex
import sys

import tqdm
from absl import app, flags, logging

import adaclip_tf.flower  # noqa: F401  says what to install where Flower is missing
from examples.common import data
from examples.federated import clients, comparison, report, simulation
from examples.federated.grid import InProcessGrid

LEAST_ACCURACY = 0.6
SIMULATION, IN_PROCESS = "simulation", "in_process"


def main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments {argv[1:]}; see --help for the flags.")
    values = flags.FLAGS
    python_logging.getLogger("flwr").setLevel(python_logging.ERROR)  # a bar shows what its lines would
    if values.seed is not None:
        logging.warning("--seed makes noise and sampling predictable: NOT private.")
    plan = comparison.Plan(
        clients=values.clients,
        per_round=values.per_round,
        rounds=values.rounds,
        target_epsilon=values.epsilon,
        delta=values.delta,
        alpha=values.alpha,
    )
    try:
        z = plan.noise_multiplier
    except ValueError as error:
        raise app.UsageError(str(error)) from error
    loaded = data.load("digits")
    print(
        f"{plan.clients} clients with {loaded.name} from {loaded.source}; each joins a round with probability "
        f"{plan.per_round}/{plan.clients}; {plan.rounds} rounds; noise multiplier {z:.3f}; engine: {values.engine}"
    )

    def serve(grid):
        return comparison.compare(loaded, plan, grid, values.seeds, seed=values.seed, start_run=_progress(plan.rounds))

    client = comparison.client_app(plan)
    if values.engine == SIMULATION:
        results = simulation.run(client, plan.clients, serve)  # all runs in one: Ray takes a while to start
    else:
        results = serve(InProcessGrid(client, plan.clients))
    print(f"\n{report.table(results)}\n\n{report.TRUST}\n")
    paths = report.Paths.docs() if values.docs else report.Paths.folder(values.output)
    initial = clients.initial_weights(loaded.x_train[0].size, loaded.num_classes or 1)
    command = shlex.join(["python", "-m", "examples.federated", *sys.argv[1:]])
    dimension = sum(array.size for array in initial.values())
    report.write(results, plan, paths, command, engine=values.engine, dimension=dimension)
    for path in paths:
        print(f"wrote {path}")
    print(comparison.check(results, plan, LEAST_ACCURACY if values.rounds >= 50 else 0.0))


def _progress(rounds: int):
    """A bar for each run that shows epsilon; a line for every quarter of it where there is no terminal."""

    def start_run(label: str, run: int):
        title = f"{label}, run {run + 1}"
        bar = tqdm.tqdm(total=rounds, desc=title, unit="round", disable=None)

        def on_round(done: int, epsilon: float) -> None:
            bar.set_postfix_str(f"epsilon per client {epsilon:.3f}", refresh=False)
            bar.update()
            if done == rounds:
                bar.close()
            if (bar.disable and done % -(-rounds // 4) == 0) or done == rounds:
                print(f"{title}: round {done} of {rounds}, epsilon per client {epsilon:.3f}", flush=True)

        return on_round

    return start_run


if __name__ == "__main__":  # other programs in this folder have flags of the same names
    flags.DEFINE_integer("clients", 1000, "How many clients; public.", lower_bound=1)
    flags.DEFINE_integer("per_round", 100, "How many of them a round has, in the mean.", lower_bound=1)
    flags.DEFINE_integer("rounds", 100, "How many rounds.", lower_bound=1)
    flags.DEFINE_float("epsilon", 2.0, "What all rounds together may cost a client.")
    flags.DEFINE_float("delta", 1e-4, "The delta of (epsilon, delta); below 1 / clients.")
    flags.DEFINE_float("alpha", 0.3, "Dirichlet's parameter: the smaller, the fewer labels a client has seen.")
    flags.DEFINE_integer("seeds", 3, "Runs of each method, for a mean and a standard deviation.", lower_bound=1)
    flags.DEFINE_integer("seed", None, "For tests only: makes noise and sampling predictable, so NOT private.")
    flags.DEFINE_enum(
        "engine",
        SIMULATION if simulation.available() else IN_PROCESS,
        [SIMULATION, IN_PROCESS],
        "Where the clients run: Flower's simulation engine, on Ray's workers; or a grid without anything in between.",
    )
    flags.DEFINE_string("output", "runs/federated", "Folder for the page and the numbers.")
    flags.DEFINE_bool("docs", False, "Write docs/federated.md and docs/results/federated.json instead.")
    app.run(main)
