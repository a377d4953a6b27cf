"""Who takes part in a round, drawn so that the accountant's words are true.

| sampling              | who takes part                            | protects against                           |
|-----------------------|-------------------------------------------|--------------------------------------------|
| "poisson"             | every client by itself, with q = B / n    | the addition or removal of one client      |
| "without_replacement" | B clients, all sets of B alike            | the replacement of one client by any other |

"poisson": q is a constant. A client that is not registered when a round begins takes part with probability 0, which
is less than q; one that is, whoever else is there, with q. So n need not be exact, and a round may be empty.

"without_replacement": with fewer than n clients each of them would be drawn more often than B / n. So a round waits
until n are registered; with more of them each is drawn less often.

The draws are the operating system's (`random.SystemRandom`): `random.seed`, which Flower's own sampling obeys, would
let whoever knows the seed tell who took part, and amplification by sampling rests on nobody knowing that.
"""

from __future__ import annotations

import random
import time
from collections.abc import Hashable, Iterable
from typing import Any, Callable

from adaclip_tf.privacy.mechanism import WITHOUT_REPLACEMENT, Mechanism

_POLL_SECONDS = 1.0


class ClientSampler:
    """Draws nodes for a round: one of each client that takes part.

    Args:
      mechanism: n, B and the way of sampling.
      least: how many clients must be registered before a round begins; None for n where the sampling needs that, and 1
        otherwise.
      user_of: from a node's id to whose node it is; None where every node is a client. Of a client's nodes the one
        with the largest id is asked, so that a client counts once, however often it is registered.
      timeout: seconds to wait for `least` clients.
      seed: None for use; an integer is for tests, and makes the draws predictable.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        *,
        least: int | None = None,
        user_of: Callable[[int], Hashable] | None = None,
        timeout: float = 3600.0,
        seed: int | None = None,
    ):
        needed = mechanism.num_examples if mechanism.sampling == WITHOUT_REPLACEMENT else 1
        if least is not None and least < needed:
            raise ValueError(
                f"`min_clients` must be at least {needed} with sampling={mechanism.sampling!r}; got {least}."
            )
        self._mechanism, self._least, self._timeout = mechanism, needed if least is None else least, timeout
        self._user_of = user_of or (lambda node: node)
        self._random = random.SystemRandom() if seed is None else random.Random(seed)

    def draw(self, grid: Any) -> list[int]:
        """The nodes of the coming round, in the order of their ids.

        Raises:
          TimeoutError: where too few clients are registered for too long.
        """
        nodes = self._registered(grid)
        if self._mechanism.sampling == WITHOUT_REPLACEMENT:
            return sorted(self._random.sample(nodes, self._mechanism.batch_size))
        probability = self._mechanism.batch_size / self._mechanism.num_examples
        return [node for node in nodes if self._random.random() < probability]

    def _registered(self, grid: Any) -> list[int]:
        """One node of each registered client, once enough of them are there."""
        end = time.monotonic() + self._timeout
        while len(nodes := self._one_each(grid.get_node_ids())) < self._least:
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{len(nodes)} clients are registered and a round needs {self._least} (`min_clients`, or "
                    f"`num_clients` with sampling={WITHOUT_REPLACEMENT!r}); waited {self._timeout:g} s."
                )
            time.sleep(_POLL_SECONDS)
        return nodes

    def _one_each(self, nodes: Iterable[int]) -> list[int]:
        return sorted({self._user_of(node): node for node in sorted(nodes)}.values())
