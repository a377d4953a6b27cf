"""Federated training on Flower (https://flower.ai) with a client as the unit of privacy.

    strategy = PrivateStrategy(
        FedAvg(), core.AdaClip(), noise_multiplier=1.1, num_clients=1000, clients_per_round=100, delta=1e-4
    )
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=100)

| module      | holds                                                                                       |
|-------------|---------------------------------------------------------------------------------------------|
| `strategy`  | `PrivateStrategy`, which wraps any Flower strategy: one round, from sampling to the next model |
| `mod`       | `clipping_mod`, for clients that clip before they send                                        |
| `sums`      | one client's change becomes a record of norm 1 at most; the sum becomes the private mean      |
| `answers`   | which of the messages that come back count, and what is in them                              |
| `sampling`  | who takes part in a round                                                                   |
| `rounds`    | epsilon of the rounds, the ledger, the end before the target                                 |
| `progress`  | where a training stands, and how a round moves it on                                        |
| `saved`     | the file from which a killed server goes on                                                  |
| `wrapped`   | what is asked of the strategy that is wrapped                                                |

Needs the extra: `pip install 'adaclip-tf[flower]'`. May import `core`, `privacy` and `_internal`; nothing imports it.

Formal guarantee. Let a client be one node of Flower (`user_of` joins several into one). Whatever a client holds and
answers, its record has norm at most 1 (`sums.within_one`, in float64), and at most one answer of a client counts in a
round (`answers`). No other client's record depends on it: the message that is sent is a function of published values,
and the divisor is a constant. So a round is the Gaussian mechanism of noise multiplier z on the sampled clients, and
all that leaves it (the arrays, the rule's state, the metrics) is a function of the noised sum: what clients answer
besides, their metrics and numbers of examples above all, is dropped. Sampling is the accountant's (`sampling`).
"""

try:
    import flwr.serverapp.strategy  # noqa: F401
except ImportError as error:
    raise ImportError(
        "`adaclip_tf.flower` needs Flower, with its message API: pip install 'adaclip-tf[flower]' (flwr 1.23 or later)."
    ) from error

from adaclip_tf.flower.mod import clipping_mod
from adaclip_tf.flower.strategy import PrivateStrategy

__all__ = ["PrivateStrategy", "clipping_mod"]
