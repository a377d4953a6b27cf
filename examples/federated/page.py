"""The words of docs/federated.md."""

TRUST = """\
| who                  | sees                                                   | is trusted with                      |
|----------------------|--------------------------------------------------------|--------------------------------------|
| client               | its own rows; the models that it is sent, perhaps a, b | clipping its own, if it does         |
| SuperLink, ServerApp | every answer by itself, un-noised; who was sampled     | the noise; keeping that to itself    |
| reader of its files  | ledger, state, log: models and epsilon of all rounds   | nothing: all of it is published      |
| the world            | the models of all rounds, the rule's state, epsilon    | nothing: epsilon is about this       |
"""

PAGE = """# Federated training on Flower: a client is the unit

Written by `{command}`; do not edit by hand.

`adaclip_tf.flower` makes an existing [Flower](https://flower.ai) app private for every client, with all that the client
holds: any strategy that averages (FedAvg, FedAvgM, FedProx, FedAdam, FedYogi, ...), any clipping rule of this library
(AdaCliP, fixed, quantile, learnt scales), an epsilon that is counted by the accountant, and an end before it is passed.

    pip install 'adaclip-tf[flower]'        # flwr 1.23 or later

## Five lines

In the ServerApp, around the strategy that is there:

```python
from adaclip_tf import core
from adaclip_tf.flower import PrivateStrategy

strategy = PrivateStrategy(
    FedAvg(),
    core.AdaClip(),
    noise_multiplier=1.1,
    num_clients=1000,
    clients_per_round=100,
    delta=1e-4,
    target_epsilon=2.0,
    ledger="private/ledger.json",
    state="private/server.npz",
)
result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=100)
```

`adaclip_tf.noise_multiplier(target_epsilon=2.0, delta=1e-4, num_examples=1000, batch_size=100, steps=100)` finds the
noise for an epsilon: to the accountant a client is an example. ClientApps stay as they are. To clip where the data is,
`PrivateStrategy(..., clipping="client")` and, in the ClientApp, `ClientApp(mods=[clipping_mod(core.AdaClip())])`: then
what is not clipped, and metrics, never leave a client, and the server bounds what comes back all the same.

## What a round is

1. Clients are drawn by the operating system's entropy: each with probability B / n by itself (`sampling="poisson"`,
   under the addition or removal of a client), or exactly B of n (`"without_replacement"`, under the replacement of one,
   counted by the event that belongs to it). Flower's own sampling obeys `random.seed` and is not asked.
2. They train as ever. From an answer the change of the whole model is taken, transformed by the public (a, b), and
   clipped to norm 1 over all arrays. Numbers of examples and metrics are dropped: a client with a thousand times the
   examples of another weighs as much.
3. The sum, in float64, gets Gaussian noise once, is divided by B whoever answered, and un-transformed. The rule learns
   from that. The wrapped strategy takes its server's step as if one client had answered this mean.
4. The round is in the ledger, on the disk, before its noise is drawn; state and model are saved before anyone gets
   them. A killed server goes on from there. A round that was killed at the clients has published nothing and costs
   nothing; one that was killed between ledger and state counts, and is taken again.

A client that answers twice counts once. NaN, infinity, other names or shapes, an error, or no answer: it counts as
nothing, the round goes on, and the divisor stays. An empty round is noised and counted like any other.
(`tests/flower/strategy_test.py` does all of this to it.)

## What came out

{clients:,} clients with scikit-learn's digits, dealt out by Dirichlet({alpha:g}): most have one or two rows and have
seen one or two labels, some many times that. Softmax regression, {rounds} rounds; in a round every client takes part
with probability {per_round} / {clients:,}, and takes {local_steps} steps of SGD; FedAvgM with momentum {momentum:g};
noise multiplier {z:.3f}. Epsilon is per client, at delta = {delta:g}. Test accuracy: mean (standard deviation)
over {seeds} runs, which differ in noise and sampling.

{table}

The private rows have the same epsilon, rounds, clients and noise multiplier; only the rule and the server's learning
rate differ. These were chosen by trying some on this very data, dealt out otherwise for AdaCliP (about 50 settings) and
the fixed clip (15), as it is here for the quantile clip (2): good enough to compare them, but no private way to choose.
The runs are separate releases: publishing all of them would cost the sum.

Do not expect more of AdaCliP than of a fixed clip here. The variance that one round shows it of a coordinate carries
noise of about d z^2 / B times the variance itself: {dimension:,} * {z:.3f}^2 / {per_round} = {ratio:.0f}. So few rounds
cannot average that out, and s stays between h1 and h2, much the same in all coordinates. It takes more clients in a
round, fewer weights or less noise before the coordinates can be told apart.

{engine}

## On the simulation engine

    pip install 'adaclip-tf[flower,simulation]'
    python -m examples.federated --engine=simulation

runs the comparison with 1,000 simulated SuperNodes on Flower's simulation engine, where they take turns on Ray's
workers. It is the default where Ray is installed. ServerApp and ClientApp need no change for it:
`examples/federated/simulation.py` hands them to `flwr.simulation.run_simulation`, which Flower 1.41 still has and calls
deprecated. Ray wants NumPy 2; the lock file has both, on Python 3.11 to 3.13, and was run on 3.11.

A round of 100 clients took about 0.7 s of processor time there (40 rounds, all of Ray's processes together), 1.0 s on a
busy machine (250 rounds; the engine spends while it waits), and 0.08 s on the grid in one process: nearly all of it
is the way there and back, for clients that compute for a fraction of a millisecond. By that, 12 runs of 100 rounds take
15 to 20 minutes of processor time, and two in one process. `--engine=simulation --seeds=1` was run to its end once:
0.930, 0.922, 0.916 and 0.961 in the order of the table, each private row at epsilon 2.000. The private ones are within
a standard deviation of the table's; the last is 2 of 360 digits lower. The numbers are the same as in one process:
`tests/examples/federated_simulation_test.py` (slow) compares all four rows at the same seed.
The engine draws the ids of its nodes, so that `--seed` fixes the noise there, but not who takes part.

Flower's telemetry and Ray's statistics of use are off, and there is no dashboard. But Ray's processes listen on all
addresses of the machine and run what they are sent. The program makes them ask for a token (`RAY_AUTH_MODE=token`, Ray
2.52 or later). Do the same where you use the engine yourself.

## On processes

    python -m examples.federated.processes --clients=4 --rounds=5

starts a SuperLink, a SuperNode for each client, and `flwr run` with the app in `examples/federated/app`, all on this
machine, and ends them. Started again with the same `--folder` it goes on. `tests/examples/federated_processes_test.py`
(slow) kills a client in a round, and the server. Flower's telemetry and its look for a newer version are switched off
there (`FLWR_TELEMETRY_ENABLED=0`, `FLWR_DISABLE_UPDATE_CHECK=1`): both would reach out to the network.

## Who sees what

{trust}

It is central differential privacy: the noise comes in at the server. Against the others:

- A malicious client can send any record of norm 1, as any client can: that harms the model a little, and its own
  privacy, but no other client's.
- Evaluation on clients (`configure_evaluate`) is off: its metrics are not noised. `nonprivate_evaluation=True` turns it
  on, warns, and puts `nonprivate/` before their names. Evaluate on public data at the server (`evaluate_fn`) instead.

What is not protected:

- **Against the server.** It is trusted with every answer. Flower's secure aggregation (SecAgg, SecAgg+) can NOT be
  combined with this, in Flower 1.23 to 1.41: it is a workflow of the older API (`flwr.server.workflow`), which
  strategies of the message API do not run in. And it would change the promise: it weighs each client by its number
  of examples and divides by their sum, which is private, and a server that sees the sum alone can bound no client's
  record, so that all would rest on the clients' own clipping.
- **That somebody takes part at all.** Who is registered, asked and answering is seen by the server and on the network.
  Amplification by sampling holds against those who do not see who was asked.
- **A person with several nodes.** A client is a node. A SuperNode that is started anew without authentication gets a
  new id, and would be a second client: give `user_of`, from a node's id to whose it is, or authenticate SuperNodes.
- **Timing**, and what clients print or store themselves.
- What Flower logs itself: a SuperLink's log names the nodes that answer.

Flower's own wrappers (`DifferentialPrivacyServerSideFixedClipping` and so on) have a fixed or a quantile clip; Flower
1.41 can count their epsilon, without amplification by sampling and for FedAvg with equal weights, and does not save
what was spent.

The older API (`configure_fit`, `aggregate_fit`) is not wrapped: sampling, the reading of answers, the end before the
target and going on after a kill would have to be written a second time, for its client manager and its server's loop.

## Run it

    python -m examples.federated                              # on the simulation engine; writes into runs/federated
    python -m examples.federated --engine=in_process          # without Ray
    python -m examples.federated.processes                    # on Flower's processes
"""

ENGINES = {
    "simulation": """
The clients of this table ran on Flower's simulation engine (`examples/federated/simulation.py`), with Ray's workers.
""",
    "in_process": """
The clients of this table ran on a grid in one process (`examples/federated/grid.py`), which drives the strategy,
Flower's messages and a Flower ClientApp: nothing is serialized and nobody is late.
""",
}
