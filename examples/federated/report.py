"""The tables, the page and the results file of the federated comparison."""

from __future__ import annotations

import dataclasses
import json
import math
import pathlib
from typing import Any, NamedTuple

import numpy as np

from examples.federated import federation

TRUST = """\
| who        | sees                                                 | is trusted with                               |
|------------|------------------------------------------------------|-----------------------------------------------|
| client     | its own rows; the model, a and b of the round        | clipping its own record to norm 1             |
| worker     | its clients' rows and records (simulated here)       | running the clients' part, and adding up      |
| aggregator | the un-noised sum of each of its workers             | not looking, or not telling                   |
| server     | the un-noised sum of each aggregator; who is sampled | the noise; keeping sums and samples to itself |
| the world  | the model and the query's state after each round     | nothing: this is what epsilon is about        |"""


class Paths(NamedTuple):
    """Where a report goes."""

    page: pathlib.Path
    results: pathlib.Path

    @classmethod
    def folder(cls, folder: str) -> Paths:
        root = pathlib.Path(folder)
        return cls(root / "federated.md", root / "federated.json")

    @classmethod
    def docs(cls) -> Paths:
        """The committed report."""
        root = pathlib.Path(__file__).parents[2] / "docs"
        return cls(root / "federated.md", root / "results" / "federated.json")


def table(results: dict[str, list[federation.Result]], dataset: str) -> str:
    """Mean (standard deviation over runs) of the test accuracy, and epsilon per user, in Markdown."""
    lines = ["| | options | server's learning rate | test accuracy | epsilon per user | noise norm, last round |"]
    lines.append("|---|---|--:|--:|--:|--:|")
    for name, method in federation.methods(dataset).items():
        runs = results[name]
        spent = f"{runs[0].epsilon:.3f}" if math.isfinite(runs[0].epsilon) else "infinite"
        accuracy = _cell([run.accuracy for run in runs])
        noise = f"{np.mean([run.noise_norm for run in runs]):.3f}"
        lines.append(
            f"| {method.label} | {method.options} | {method.learning_rate:g} | {accuracy} | {spent} | {noise} |"
        )
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    spread = f" ({np.std(values, ddof=1):.3f})" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{spread}"


PAGE = """# Federated: a user is the unit

Written by `{command}`; do not edit by hand.

`AdaClipSumQuery` works record by record, so a record can be a user's whole contribution, computed and clipped where the
user's data is (the paper's "B random users"). `examples/federated` simulates that: {users:,} clients who hold
{dataset}, each its own rows of one or two labels and in unequal numbers; {aggregators} aggregators and {all_workers}
workers, each a process of the operating system; {rounds} rounds.

In a round every client is sampled with probability {per_round} / {users:,}, by the operating system's entropy. A
sampled client takes {local_steps} steps of SGD from the model it is sent; the record is the change.
`derive_sample_params` is made at the server and sent out as plain arrays; `preprocess_record` runs in the worker
processes; sums are merged from workers to aggregators to the server (`merge_sample_states`); `get_noised_result` adds
noise of noise multiplier {z:.3f}, once, at the server, which takes a step with momentum {momentum:g} along the noised
mean.

Epsilon is per user, at delta = {delta:g}: the accountant's example is a user, with q = {q:g} and {rounds} rounds,
under the addition or removal of one user with all of their rows. A user with a hundred times the rows of another
moves the sum by no more than 1 all the same (`tests/examples/federation_test.py`). No group privacy is needed.

## What came out

Softmax regression, test accuracy: mean (standard deviation) over {seeds} runs, which differ in noise and sampling.

{table}

Both private rows have the same epsilon, the same rounds and users, and the same noise multiplier; only (a, b) and the
server's learning rate differ. Options and learning rates were chosen by trying some on this very data, about 50
settings for AdaCliP and 15 for the fixed clip: good enough to compare them, but no private way to choose. The
runs are separate releases: publishing all of them would cost the sum.

Do not expect more of AdaCliP than of a fixed clip here. The variance that one round shows it of a coordinate carries
noise of about d z^2 / B times the variance itself: {dimension:,} * {z:.3f}^2 / {per_round} = {ratio:.0f}. So
few rounds cannot average that out, and s stays between h1 and h2, much the same in all coordinates. It takes more
users in a round, fewer weights or less noise before the coordinates can be told apart. With
`clamp="after_average"` and the default h1, 1e-12, s falls to the floor and nothing is learnt.

## Who is trusted with what

{trust}

It is central differential privacy: the noise comes in at the top, and everything below it is un-noised. A client
that does not clip, or a worker that lies, can move the sum as far as it likes: that harms the model, and its own
privacy, but no other user's, whose share of the sum is still at most 1 under the same noise. A NaN or an infinite
record counts as zero.

What would take trust away, and where it would fit:

- **Secure aggregation** (Bonawitz et al. 2017) replaces the additions of `merge_sample_states`: clients round
  their clipped records to integers, mask them, and aggregators and server see the sum of all and no part of it.
  Rounding can lengthen a record, so the bound of 1 must hold after it (clip again, or count the longer norm), and sums
  are modulo a power of two that the noised sum does not reach. The rest of the round stays.
- **Noise in shares.** A sum of K independent N(0, z^2 / K) is N(0, z^2): each of K workers can add its share to its
  sample state, and the server none, so that nobody knows all the noise and no un-noised sum leaves a worker. If
  up to t of the K may drop out or tell their shares, each takes z^2 / (K - t). Here the server adds it all.

Not covered: the broadcast tells workers who was sampled, and amplification by sampling holds against those who do not
know that; clients that drop out of a round (their record is then missing, which costs utility, not privacy); and
training loss or per-client metrics, of which this program computes none.

## Run it

    python -m examples.federated                     # digits
    python -m examples.federated --dataset=mnist     # see examples/common/data.py for where MNIST is looked for

`examples/federated/federation.py` is the server, `clients.py` what clients compute, `tree.py` the processes and what
travels between them.
"""


def write(
    results: dict[str, list[federation.Result]],
    plan: federation.Plan,
    dataset: str,
    paths: Paths,
    command: str,
    *,
    dimension: int,
    **more: Any,
) -> Paths:
    """Writes page and results (`dimension` is the number of weights, `more` goes into the latter); returns where."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
    paths.page.write_text(
        PAGE.format(
            command=command,
            dataset={"digits": "scikit-learn's digits", "mnist": "MNIST"}[dataset],
            users=plan.users,
            per_round=plan.users_per_round,
            q=plan.users_per_round / plan.users,
            rounds=plan.rounds,
            aggregators=plan.aggregators,
            all_workers=plan.aggregators * plan.workers,
            local_steps=plan.local_steps,
            momentum=plan.momentum,
            z=plan.noise_multiplier,
            delta=plan.delta,
            seeds=len(next(iter(results.values()))),
            dimension=dimension,
            ratio=dimension * plan.noise_multiplier**2 / plan.users_per_round,
            table=table(results, dataset),
            trust=TRUST,
        )
    )
    held = {
        "command": command,
        "dataset": dataset,
        "plan": {**dataclasses.asdict(plan), "noise_multiplier": plan.noise_multiplier},
        # JSON has no infinity.
        "runs": {
            name: [{k: v if math.isfinite(v) else None for k, v in run._asdict().items()} for run in runs]
            for name, runs in results.items()
        },
        "dimension": dimension,
        **more,
    }
    paths.results.write_text(json.dumps(held, indent=1) + "\n")
    return paths
