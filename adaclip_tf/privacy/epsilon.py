"""From an event, or a mechanism and a number of steps, to its epsilon. No TensorFlow is needed.

    event = dp_accounting.ComposedDpEvent([pca.event, training_event(...)])
    epsilon_of(event, delta=1e-5, accountant="pld")

`adaclip_tf.privacy.events` says which event a training is, and what is proven for it.
"""

from __future__ import annotations

import warnings
from typing import Union

import dp_accounting

from adaclip_tf._internal import signatures, validate
from adaclip_tf.privacy import accountants, group
from adaclip_tf.privacy import choice as choice_lib
from adaclip_tf.privacy.choice import PrivateChoice
from adaclip_tf.privacy.mechanism import Mechanism

AccountantName = Union[str, accountants.MakeAccountant]


@signatures.keywords_only
def epsilon(
    *,
    noise_multiplier: float,
    delta: float,
    num_examples: int,
    batch_size: int,
    epochs: float | None = None,
    steps: int | None = None,
    accountant: AccountantName = "rdp",
    sampling: str = "poisson",
    microbatch_sensitivity: float = 1.0,
    examples_per_user: int = 1,
    choice: PrivateChoice | None = None,
) -> float:
    """The epsilon of a training run, at `delta`: `epsilon_of_run` of the `Mechanism` that the arguments describe.

    Example:
      >>> round(epsilon(noise_multiplier=1.1, delta=1e-5, num_examples=60000, batch_size=600, epochs=10), 4)
      1.7118

    Args:
      noise_multiplier, num_examples, batch_size, sampling, microbatch_sensitivity:
        as in `adaclip_tf.privacy.mechanism.Mechanism`.
      epochs, steps: as in `training_event`.
      delta: the delta of (epsilon, delta); below 1 / num_examples, or a warning says so.
      accountant: "rdp" (Renyi: the moments accountant of Abadi et al. and of the paper), "pld" (privacy
        loss distributions: tighter), or a function that makes a `dp_accounting.PrivacyAccountant`.
      examples_per_user: protects a user who has up to this many examples, by group privacy.
      choice: a `PrivateChoice`, where this is one of a random number of runs and only the best run is published.

    Returns:
      An upper bound; infinity where `noise_multiplier` is 0.
    """
    return epsilon_of_run(
        Mechanism(noise_multiplier, num_examples, batch_size, sampling, microbatch_sensitivity),
        epochs=epochs,
        steps=steps,
        delta=delta,
        accountant=accountant,
        examples_per_user=examples_per_user,
        choice=choice,
    )


def epsilon_of_run(
    mechanism: Mechanism,
    *,
    delta: float,
    epochs: float | None = None,
    steps: int | None = None,
    accountant: AccountantName = "rdp",
    examples_per_user: int = 1,
    choice: PrivateChoice | None = None,
) -> float:
    """The epsilon of so many epochs or steps of `mechanism`, at `delta`.

    Example:
      >>> round(epsilon_of_run(Mechanism(1.1, num_examples=60000, batch_size=600), delta=1e-5, epochs=10), 4)
      1.7118
    """
    event = choice_lib.chosen(mechanism.event(epochs=epochs, steps=steps), choice)
    choice_lib.check_accountant(choice, accountant)
    check_delta(delta, mechanism.num_examples)
    return epsilon_of(event, delta=delta, accountant=accountant, examples_per_user=examples_per_user)


def epsilon_of(
    event: dp_accounting.DpEvent, *, delta: float, accountant: AccountantName = "rdp", examples_per_user: int = 1
) -> float:
    """The epsilon of any dp_accounting event, or composition of events, at `delta`.

    Example:
      >>> round(epsilon_of(dp_accounting.GaussianDpEvent(8.0), delta=1e-5), 3)
      0.478
    """
    delta = check_delta(delta)
    if not isinstance(event, dp_accounting.DpEvent):
        raise ValueError(f"`event` must be a `dp_accounting.DpEvent`, such as `training_event(...)`; got {event!r}.")
    return group.group_epsilon(accountants.get(accountant).of_event(event), delta, examples_per_user)


def check_delta(delta: float, num_examples: int | None = None) -> float:
    """Returns `delta` if it is in (0, 1); warns if it is so large that it protects nobody in particular."""
    number = validate.real("delta", delta)
    if not 0.0 < number < 1.0:
        raise ValueError(f"`delta` must be above 0 and below 1 (well below 1 / num_examples); got {delta!r}.")
    if num_examples is not None and number * num_examples >= 1.0:
        warnings.warn(
            f"delta={number:g} is not below 1 / num_examples = {1 / num_examples:g}: publishing one example "
            "outright, chosen at random, would satisfy it.",
            UserWarning,
            stacklevel=3,
        )
    return number
