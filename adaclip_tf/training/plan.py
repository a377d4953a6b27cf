"""The numbers of a training that needs no tuning, from what is public: n, B, epochs, the target, the number of classes.

    z0:  T x Poisson(q, Gauss z0)                                            = epsilon     DP-SGD alone
    z_y: the questions about targets, if they are asked: f_y of the squared budget, or what n asks for
    z:   T x Poisson(q, Gauss z) + the queries of `PrivateScales` + Gauss z_y   = epsilon     with z_w, sigma_c from z0

and, on both sides, whatever a ledger says was spent before.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import dp_accounting

from adaclip_tf._internal import validate
from adaclip_tf.data import target_questions
from adaclip_tf.privacy import calibration, events
from adaclip_tf.privacy.epsilon import epsilon_of
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.scales.method import Method

_NOTHING_LEFT = 0.99  # of the target: what is left then is noise without a signal
_TARGETS, _MOST_TARGETS = 0.02, 0.3  # of the squared budget: f_y, and the most that few examples may make of it


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is decided before the data is looked at.

    Attributes:
      num_examples, batch_size, epochs, steps: n, B, epochs, T.
      target_epsilon, delta, accountant: what it may cost, counted how.
      noise_alone: z0, the noise multiplier that training alone would need.
      noise_multiplier: z, the one that it gets.
      rows_noise, counts_noise: z_w and sigma_c.
      classes: K.
      learning_rate: at the first step.
      rate_fall: e, in whose power it falls to 0.
      targets_noise: z_y; None where targets are taken as they are.
    """

    num_examples: int
    batch_size: int
    epochs: int
    steps: int
    target_epsilon: float
    delta: float
    accountant: str
    noise_alone: float
    noise_multiplier: float
    rows_noise: float
    counts_noise: float
    classes: int
    learning_rate: float
    rate_fall: float
    targets_noise: float | None = None

    @property
    def mechanism(self) -> Mechanism:
        """Of one training step."""
        return Mechanism(self.noise_multiplier, self.num_examples, self.batch_size)

    def epsilon(self, other_event: dp_accounting.DpEvent) -> float:
        """Of the whole training and of what else was spent."""
        event = dp_accounting.ComposedDpEvent([other_event, self.mechanism.event(steps=self.steps)])
        return epsilon_of(event, delta=self.delta, accountant=self.accountant)

    def notes(self) -> dict[str, Any]:
        """As plain numbers, to be saved."""
        return dataclasses.asdict(self)

    @classmethod
    def from_notes(cls, notes: dict[str, Any], wanted: dict[str, Any]) -> Plan:
        """The plan that `notes` were made of, if it is for what is `wanted` now; else a ValueError."""
        try:
            plan = cls(**notes)
        except TypeError as error:
            raise ValueError(f"it holds no plan of `make_private` ({error})") from error
        for name, value in wanted.items():
            if getattr(plan, name) != value:
                raise ValueError(f"it is of a training with {name}={getattr(plan, name)!r}, and not {value!r}")
        return plan


def make_plan(
    *,
    num_examples: int,
    batch_size: int,
    epochs: int,
    target_epsilon: float,
    delta: float,
    classes: int,
    kernels: int,
    accountant: str,
    before: dp_accounting.DpEvent | None,
    settings: Method,
    target_columns: int = 0,
) -> Plan:
    """Calibrates a training.

    Args:
      kernels: how many variables of the model are matrices or more.
      before: what was spent on the same data, within the target.
      settings: the constants of the method.
      target_columns: how many targets are to be scaled for each example; 0 for none.
      The rest: as for `make_private`.
    """
    steps = Mechanism(1.0, num_examples, batch_size).count(epochs=validate.positive_integer("epochs", epochs))
    target = calibration.Target(validate.positive("target_epsilon", target_epsilon), delta, accountant)
    if before is not None:
        spent = epsilon_of(before, delta=delta, accountant=accountant)
        if spent > _NOTHING_LEFT * target_epsilon:
            raise ValueError(
                f"`target_epsilon`={target_epsilon:g} is for all that was spent on this data, and the ledger holds "
                f"{spent:.4g} already. Ask for more, or use other data."
            )
    mechanism = Mechanism(1.0, num_examples, batch_size)
    alone = calibration.noise_for_run(mechanism, target, steps=steps, other_event=before)
    noise = settings.noise(alone, batch_size / num_examples, steps)
    asked = [settings.event(noise)] if before is None else [before, settings.event(noise)]
    targets_noise = None
    if target_columns:
        targets_noise = _noise_of_targets(
            alone / (batch_size / num_examples * math.sqrt(steps)), num_examples, target_columns
        )
        asked.append(events.gaussian_event(targets_noise))
    others = events.composed(asked)
    return Plan(
        num_examples=num_examples,
        batch_size=batch_size,
        epochs=epochs,
        steps=steps,
        target_epsilon=float(target_epsilon),
        delta=float(delta),
        accountant=accountant,
        noise_alone=alone,
        noise_multiplier=calibration.noise_for_run(mechanism, target, steps=steps, other_event=others),
        rows_noise=noise.rows,
        counts_noise=noise.counts,
        classes=classes,
        learning_rate=settings.learning_rate(alone, batch_size, steps, classes, kernels),
        rate_fall=settings.rate_fall,
        targets_noise=targets_noise,
    )


def _noise_of_targets(of_training: float, num_examples: int, columns: int) -> float:
    """z_y, from z0 / (q sqrt T)."""
    noise = target_questions.noise_for(of_training / math.sqrt(_TARGETS), num_examples, columns)
    if noise * math.sqrt(_MOST_TARGETS) < of_training:
        raise ValueError(
            f"`scale_targets`: to see mean and deviation of {columns} target(s) in {num_examples:,} examples would "
            f"take {(of_training / noise) ** 2:.0%} of the squared budget. Scale them by numbers that you know without "
            "the data, or give a larger `target_epsilon`."
        )
    return noise
