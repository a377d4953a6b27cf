"""`PrivateStrategy`: wraps any Flower strategy, so that a client is protected with all that it holds."""

from __future__ import annotations

import logging
import os
from collections.abc import Hashable, Iterable
from typing import Any, Callable, NamedTuple

import dp_accounting
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp.strategy import Result, Strategy

from adaclip_tf import core
from adaclip_tf._internal import validate
from adaclip_tf.flower import answers, sums, wrapped
from adaclip_tf.flower.progress import Progress
from adaclip_tf.flower.rounds import Rounds
from adaclip_tf.flower.sampling import ClientSampler
from adaclip_tf.privacy.budget import PrivacyBudgetSpentError
from adaclip_tf.privacy.mechanism import Mechanism

_LOG = logging.getLogger(answers.LOGGER)


class _Round(NamedTuple):
    """A round under way."""

    asked: answers.Asked
    content: RecordDict
    transform: core.Transform


class PrivateStrategy(Strategy):
    """Makes a strategy differentially private for every client, with all of the client's examples.

    Example:
      >>> strategy = PrivateStrategy(
      ...     FedAvg(), core.AdaClip(), noise_multiplier=1.1, num_clients=1000, clients_per_round=100, delta=1e-4)
      >>> result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=100)       # doctest: +SKIP

    In a round, clients are sampled (`adaclip_tf.flower.sampling`), and each trains as it does without this class. From
    its answer the change of the model is taken, transformed and clipped by `rule`, and nothing else. The sum gets noise
    once, is divided by `clients_per_round` whoever answered, and un-transformed; the rule learns from that. The wrapped
    strategy then takes its server's step as if one client had answered this mean. Of the wrapped strategy's options
    those about sampling and weights play no part.

    `adaclip_tf.noise_multiplier(..., num_examples=num_clients, batch_size=clients_per_round, steps=num_rounds)` finds
    the noise for an epsilon.

    Args:
      strategy: any strategy of `flwr.serverapp.strategy` that sends the same to all clients and averages what comes
        back, such as FedAvg, FedAvgM, FedProx, FedAdam, FedYogi.
      rule: how (a, b) is chosen: `core.AdaClip`, `core.FixedClip`, `core.QuantileClip`, `core.ScaledClip`, any other.
      noise_multiplier: z, standard deviation of the noise over the sensitivity of the sum, 1.
      num_clients: n, how many clients there are.
      clients_per_round: B, how many of them a round has on average, or exactly with sampling="without_replacement".
      delta: of (epsilon, delta); below 1 / num_clients.
      target_epsilon: `start` ends before the round that would pass it; None only counts.
      sampling: "poisson" or "without_replacement"; what each protects against: `adaclip_tf.flower.sampling`.
      clipping: "server"; or "client", for clients with `clipping_mod`: (a, b) are sent along, and what is not clipped
        never leaves a client. The server bounds what comes back all the same.
      accountant: "rdp", "pld", or another by its name.
      other_event: a dp_accounting event that these clients have paid for before.
      ledger: a file with all that is spent on these clients: see `adaclip_tf.privacy.ledger`.
      state: a file from which `start` goes on where a server was killed; needs a ledger. `num_rounds` then counts those
        from before too.
      min_clients: how many must be registered before a round begins; None for what the sampling needs.
      user_of: from a node's id to whose it is, where a client can be registered as several nodes.
      nonprivate_evaluation: True lets the wrapped strategy evaluate on clients. Their metrics are NOT noised and not
        counted: they come out with "nonprivate/" before their names.
      seed: None for use. An integer makes noise and sampling predictable, for tests only: it voids the guarantee.

    Raises:
      ValueError: if an argument is out of range; the message names it.
    """

    def __init__(
        self,
        strategy: Strategy,
        rule: core.ClippingRule,
        *,
        noise_multiplier: float,
        num_clients: int,
        clients_per_round: int,
        delta: float,
        target_epsilon: float | None = None,
        sampling: str = "poisson",
        clipping: str = "server",
        accountant: str = "rdp",
        other_event: dp_accounting.DpEvent | None = None,
        ledger: str | os.PathLike[str] | None = None,
        state: str | os.PathLike[str] | None = None,
        min_clients: int | None = None,
        user_of: Callable[[int], Hashable] | None = None,
        nonprivate_evaluation: bool = False,
        seed: int | None = None,
    ):
        if not isinstance(strategy, Strategy):
            raise ValueError(f"`strategy` must be a `flwr.serverapp.strategy.Strategy`; got {strategy!r}.")
        sums.check_rule(rule)
        if rule.prior is not None:
            raise ValueError(
                "The scales of `rule` were asked of examples, and here a client is the unit: with many examples it has "
                "paid many times. Give `core.Scales` of public data, or count what they cost a client by `other_event` "
                "and leave out `noise_multiplier`."
            )
        if state is not None and ledger is None:
            raise ValueError("`state` needs a `ledger`: without one a resumed run could not know what was spent.")
        validate.one_of("sampling", sampling, ("poisson", "without_replacement"))
        names = {"num_examples": num_clients, "batch_size": clients_per_round}
        for name, value in zip(("num_clients", "clients_per_round"), names.values()):
            validate.positive_integer(name, value)
        self.strategy, self.rule = strategy, rule
        self._clips_at_clients = validate.one_of("clipping", clipping, ("server", "client")) == "client"
        self._nonprivate_evaluation = validate.boolean("nonprivate_evaluation", nonprivate_evaluation)
        mechanism = Mechanism(noise_multiplier, sampling=sampling, **names)
        self._rounds = Rounds(
            mechanism,
            f"{type(strategy).__name__} of clients",
            delta=delta,
            target_epsilon=target_epsilon,
            accountant=accountant,
            other_event=other_event,
            ledger=ledger,
        )
        least = None if min_clients is None else validate.positive_integer("min_clients", min_clients)
        self._sampler = ClientSampler(mechanism, least=least, user_of=user_of, seed=validate.seed("seed", seed))
        path = None if state is None else validate.path("state", state)
        self._progress = Progress(strategy, rule, self._rounds, path, validate.seed("seed", seed))
        self._round: _Round | None = None
        if seed is not None:
            _LOG.warning("PrivateStrategy has a `seed`: noise and sampling are predictable, so NOT private.")
        if nonprivate_evaluation:
            _LOG.warning("Metrics of evaluation on clients are NOT private: they are neither noised nor counted.")

    # -----------------------------------------------------------------------------------------------
    # What a user may ask. All of it is published.

    @property
    def epsilon(self) -> float:
        """What a client has paid up to now, at `delta`, with all else that the ledger holds."""
        return self._rounds.epsilon

    @property
    def rounds_done(self) -> int:
        """How many rounds were published, those before a resume too."""
        return self._rounds.done

    @property
    def rule_state(self) -> Any:
        """The rule's state, such as AdaCliP's m and s^2; None before the first round."""
        return self._progress.rule_state

    # -----------------------------------------------------------------------------------------------
    # Flower's side.

    def start(
        self,
        grid: Any,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """As Flower's, with an end before `target_epsilon`; goes on where `state` was left."""
        before = self._rounds.done
        arrays = self._progress.begin(initial_arrays)
        done = self._rounds.done
        first = 0 if self._progress.path is None else done
        wanted = max(0, num_rounds - first)
        rounds = min(wanted, self._rounds.left)
        if rounds < wanted:
            _LOG.warning(
                "Training will end after %d of %d rounds: one more would pass target_epsilon=%g.",
                first + rounds,
                num_rounds,
                self._rounds.target_epsilon,
            )
        if done != before:
            _LOG.info("Going on after round %d, epsilon %.4f.", done, self.epsilon)

        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            return evaluate_fn(first + server_round, arrays) if evaluate_fn is not None else None

        try:
            result = super().start(
                grid, arrays, rounds, timeout, train_config, evaluate_config, evaluate if evaluate_fn else None
            )
        except BaseException:
            self._rounds.abandon()
            raise
        self._progress.end()
        for name in ("train_metrics_clientapp", "evaluate_metrics_clientapp", "evaluate_metrics_serverapp"):
            setattr(result, name, {first + number: held for number, held in getattr(result, name).items()})
        if not rounds:
            result.arrays = arrays
        return result

    def summary(self) -> None:
        """Logs what is promised, and the wrapped strategy's summary."""
        step = self._rounds.mechanism
        _LOG.info(
            "\t├──> Private for every client (%s): z = %g, %d of %d clients a round (%s), delta = %g",
            step.relation,
            step.noise_multiplier,
            step.batch_size,
            step.num_examples,
            step.sampling,
            self._rounds.delta,
        )
        _LOG.info("\t├──> Clipping: %s, at the %s", self.rule, "clients" if self._clips_at_clients else "server")
        _LOG.info("\t├──> Around %s, whose options of sampling and weights play no part:", type(self.strategy).__name__)
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any
    ) -> Iterable[Message]:
        """Samples clients and says what to send them: the same to all, of published values."""
        del server_round  # a resumed run counts from the first round of all
        if not self._progress.begun:
            if self._progress.path is not None:
                raise RuntimeError("With `state`, call `start`: the arrays to go on from are in the file.")
            self._progress.begin(arrays)
        if self._rounds.left < 1:
            raise PrivacyBudgetSpentError(
                f"{self._rounds.done} rounds have cost epsilon {self.epsilon:.6g}, and one more would pass "
                f"`target_epsilon`={self._rounds.target_epsilon:g}."
            )
        content = wrapped.content_of_a_round(self.strategy, self._rounds.done + 1, arrays, config)
        if content is None:
            return []
        model = answers.arrays_of(arrays)
        transform = self._progress.sum.transform(self.rule_state)
        if self._clips_at_clients:
            content = RecordDict(content)
            for name, vectors in ((answers.CENTER, transform.center), (answers.SCALE, transform.scale)):
                content[name] = answers.record_of(model, [vector.numpy() for vector in vectors])
        nodes = self._sampler.draw(grid)
        token = self._progress.token
        self._round = _Round(answers.Asked(nodes, token, model), content, transform)
        return [
            Message(content=content, message_type=MessageType.TRAIN, dst_node_id=node, group_id=token) for node in nodes
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Publishes the round: one noised sum of what the clients answered, counted before it is made."""
        del server_round
        if self._round is None:
            return None, None  # nobody was to be asked: the wrapped strategy does not train
        under_way, self._round = self._round, None
        total = self._total(under_way, list(replies))
        arrays = self._progress.publish(total, under_way.asked.arrays, under_way.content)
        metrics = {"epsilon": self.epsilon, **self._progress.sum.metrics(self.rule_state)}
        _LOG.info(
            "Round %d is published: epsilon %.4f per client, delta %g.",
            self.rounds_done,
            self.epsilon,
            self._rounds.delta,
        )
        return arrays, MetricRecord(metrics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any
    ) -> Iterable[Message]:
        """Nobody, unless metrics that are not private were asked for."""
        if not self._nonprivate_evaluation:
            return []
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The wrapped strategy's metrics, marked as not private, where they were asked for."""
        if not self._nonprivate_evaluation:
            return None
        metrics = self.strategy.aggregate_evaluate(server_round, replies)
        return None if metrics is None else MetricRecord({f"nonprivate/{name}": v for name, v in metrics.items()})

    # -----------------------------------------------------------------------------------------------

    def _total(self, under_way: _Round, replies: list[Message]) -> list[np.ndarray]:
        """sum_k u_k over the first usable answer of everyone who was asked: the only thing that is made of answers."""
        clipper, asked = self._progress.sum, under_way.asked
        if not self._clips_at_clients:
            return clipper.add_up(asked.usable(replies, asked.change), under_way.transform)
        total = clipper.zeros()
        for record in asked.usable(replies, lambda reply: asked.clipped(reply, clipper.shapes)):
            for part, more in zip(total, sums.within_one([array[np.newaxis] for array in record])):
                part += more[0]
        return total
