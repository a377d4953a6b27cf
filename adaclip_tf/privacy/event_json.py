"""dp_accounting events as JSON, and back. Only the few kinds that are listed: nothing in a file is ever executed."""

from __future__ import annotations

from typing import Any

import dp_accounting
from dp_accounting import dp_event

from adaclip_tf._internal import validate
from adaclip_tf.privacy import choice, events

_LAWS = {choice.PrivateChoice(1.0, law).event(dp_accounting.NoOpDpEvent()).shape: law for law in choice.LAWS}


def dump(event: dp_accounting.DpEvent) -> dict[str, Any]:
    """`event` as nested dicts, lists and numbers."""
    if isinstance(event, dp_accounting.NoOpDpEvent):
        return {"kind": "nothing"}
    if isinstance(event, dp_accounting.GaussianDpEvent):
        return {"kind": "gaussian", "noise_multiplier": float(event.noise_multiplier)}
    if isinstance(event, dp_accounting.LaplaceDpEvent):
        return {"kind": "laplace", "noise_multiplier": float(event.noise_multiplier)}
    if isinstance(event, dp_accounting.PoissonSampledDpEvent):
        return {"kind": "poisson", "probability": float(event.sampling_probability), "event": dump(event.event)}
    if isinstance(event, dp_accounting.SampledWithoutReplacementDpEvent):
        sizes = {"of": int(event.source_dataset_size), "size": int(event.sample_size)}
        return {"kind": "without replacement", **sizes, "event": dump(event.event)}
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return {"kind": "repeated", "count": int(event.count), "event": dump(event.event)}
    if isinstance(event, dp_event.RepeatAndSelectDpEvent) and event.shape in _LAWS:
        return {"kind": "chosen", "law": _LAWS[event.shape], "mean": float(event.mean), "event": dump(event.event)}
    if isinstance(event, events.NamedEvent):
        return {"kind": "named", "name": str(event.name), "event": dump(event.events[0])}
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return {"kind": "composed", "events": [dump(part) for part in event.events]}
    raise ValueError(
        f"`event` is a {type(event).__name__}, which a ledger can't hold. It takes Gaussian and Laplace "
        "events, sampled (Poisson, or without replacement), self-composed and composed, and choices among runs."
    )


def load(value: Any) -> dp_accounting.DpEvent:
    """The event that `dump` made `value` of. Raises ValueError for anything else."""
    if not isinstance(value, dict):
        raise ValueError(f"an event that is {value!r}")
    kind = value.get("kind")
    if kind == "nothing":
        return dp_accounting.NoOpDpEvent()
    if kind == "gaussian":
        noise = validate.noise_multiplier("noise_multiplier", value.get("noise_multiplier"))
        return dp_accounting.GaussianDpEvent(noise)
    if kind == "laplace":
        return dp_accounting.LaplaceDpEvent(validate.non_negative("noise_multiplier", value.get("noise_multiplier")))
    if kind == "poisson":
        probability = validate.positive("probability", value.get("probability"))
        if probability > 1.0:
            raise ValueError(f"`probability` must be at most 1; got {probability!r}")
        return dp_accounting.PoissonSampledDpEvent(probability, load(value.get("event")))
    if kind == "without replacement":
        of, size = (
            validate.positive_integer("of", value.get("of")),
            validate.positive_integer("size", value.get("size")),
        )
        if size > of:
            raise ValueError(f"`size` must be at most `of`; got {size!r} and {of!r}")
        return dp_accounting.SampledWithoutReplacementDpEvent(of, size, load(value.get("event")))
    if kind == "repeated":
        count = validate.positive_integer("count", value.get("count"))
        return dp_accounting.SelfComposedDpEvent(load(value.get("event")), count)
    if kind == "chosen":
        return choice.PrivateChoice(value.get("mean", 0.0), value.get("law", "")).event(load(value.get("event")))
    if kind == "named" and isinstance(value.get("name"), str):
        return events.named(load(value.get("event")), value["name"])
    if kind == "composed" and isinstance(value.get("events"), list):
        return dp_accounting.ComposedDpEvent([load(part) for part in value["events"]])
    raise ValueError(f"an event of the unknown kind {kind!r}")
