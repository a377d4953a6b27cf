"""`Progress`: where a training stands (the rule's state, the rounds, the file), and how a round moves it on."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
import tensorflow as tf
from flwr.app import ArrayRecord, RecordDict

from adaclip_tf import core
from adaclip_tf.flower import answers, saved, sums, wrapped
from adaclip_tf.flower.rounds import Rounds


class Progress:
    """What is known after the rounds up to now. All of it was published, or is a function of what was.

    Args:
      strategy: the one that is wrapped.
      rule: chooses (a, b), and learns from every round.
      rounds: counts.
      path: of the file to go on from; None for none.
      seed: as for `sums.PrivateSum`.
    """

    def __init__(self, strategy: Any, rule: core.ClippingRule, rounds: Rounds, path: str | None, seed: int | None):
        self.rounds, self.path = rounds, path
        self.rule_state: Any = None
        self._strategy, self._rule, self._seed = strategy, rule, seed
        self._phase = secrets.token_hex(16)
        self._sum: sums.PrivateSum | None = None

    @property
    def begun(self) -> bool:
        """Whether the model is known."""
        return self._sum is not None

    @property
    def sum(self) -> sums.PrivateSum:
        """Clips, and adds the noise."""
        if self._sum is None:
            raise RuntimeError("Nothing was begun: call `start`, or `configure_train` first.")
        return self._sum

    @property
    def token(self) -> str:
        """What tells the coming round from all others."""
        return f"{self._phase}/{self.rounds.done + 1}"

    def begin(self, initial: ArrayRecord) -> ArrayRecord:
        """Looks at the model and at the file; returns the arrays to start from."""
        model = answers.arrays_of(initial)
        answers.check_model(model)
        step = self.rounds.mechanism
        self._sum = sums.PrivateSum(
            self._rule,
            list(model),
            [array.shape for array in model.values()],
            noise_multiplier=step.noise_multiplier,
            divisor=float(step.batch_size),
            seed=self._seed,
        )
        fresh = self._sum.initial_state()
        known = None if self.path is None else saved.read(self.path)
        if known is None:
            self.rule_state = fresh if self.rule_state is None else self.rule_state
            self.rounds.open(self._phase, self.rounds.done)
            return initial
        shapes = [{name: array.shape for name, array in held.items()} for held in (model, known.model)]
        if shapes[0] != shapes[1]:
            raise ValueError(f"`state`={self.path!r} is of another model: {shapes[1]} and not {shapes[0]}.")
        self.rule_state = _unpacked(fresh, known.rule, str(self.path))
        wrapped.restore(self._strategy, known.strategy)
        self._phase = known.phase
        self.rounds.open(self._phase, known.done)
        return answers.record_of(known.model, known.model.values())

    def end(self) -> None:
        """The end of a run. The next one looks at its model, and at the file, again."""
        self.rounds.close()
        self._sum = None

    def publish(self, total: list[np.ndarray], sent: dict[str, np.ndarray], content: RecordDict) -> ArrayRecord:
        """From the sum of a round's records to the next model.

        Counted first: the ledger has the round before its noise is drawn. Then the noise, then the file, and only then
        does anything of the round go to anyone.

        Args:
          total: sum_k u_k.
          sent: the model that the clients were sent.
          content: of the messages to them.
        """
        self.rounds.spend()
        direction, self.rule_state = self.sum.publish(total, self.rule_state)
        moved = [array.astype(np.float64) + step for array, step in zip(sent.values(), direction)]
        moved = [new.astype(old.dtype) for new, old in zip(moved, sent.values())]
        stepped = wrapped.server_step(self._strategy, self.rounds.done, content, list(sent), moved)
        if stepped is None:
            raise RuntimeError(f"`strategy` ({type(self._strategy).__name__}) made no model of one client's answer.")
        # FedAdam and the like turn float32 into float64.
        arrays = answers.record_of(sent, [stepped[name].numpy().astype(old.dtype) for name, old in sent.items()])
        if self.path is not None:
            leaves = {str(i): np.asarray(leaf) for i, leaf in enumerate(tf.nest.flatten(self.rule_state))}
            model, others = answers.arrays_of(arrays), wrapped.arrays_of(self._strategy)
            saved.write(self.path, saved.Saved(self.rounds.done, self._phase, model, leaves, others))
        return arrays


def _unpacked(fresh: Any, leaves: dict[str, np.ndarray], path: str) -> Any:
    """The rule's state from a file, in the structure of `fresh`."""
    shapes = [tuple(leaf.shape) for leaf in tf.nest.flatten(fresh)]
    if [leaf.shape for leaf in leaves.values()] != shapes or not all(np.all(np.isfinite(v)) for v in leaves.values()):
        raise ValueError(f"`state`={path!r} is of another rule, or damaged: give the `rule` that it was trained with.")
    return tf.nest.pack_sequence_as(fresh, [tf.constant(leaf) for leaf in leaves.values()])
