"""AdaCliP's rule from an optimizer's arguments: the paper's, which learns as it goes, or one with given scales."""

from __future__ import annotations

import dataclasses
from typing import Any

from adaclip_tf import core
from adaclip_tf._internal import validate


def adaclip_rule(
    moments: core.MomentEstimator,
    gamma: float,
    *,
    scales: Any,
    precondition: bool,
    noise_multiplier: float,
    expected_batch_size: int | None,
) -> core.ClippingRule:
    """`core.AdaClip`, or `core.ScaledClip` where there are `scales`.

    Args:
      moments, gamma: of the paper's rule. With scales they have nothing to do, and must be the defaults.
      scales: None; a fitted `PrivateScales` (or whatever has its `for_training`), a `core.Scales`, or its config.
      precondition: steps by g~ / s.
      noise_multiplier, expected_batch_size: z and B, from which `PrivateScales` takes the multiplier.
    """
    if scales is None:
        if validate.boolean("precondition", precondition):
            raise ValueError("`precondition=True` needs `scales`, such as a fitted `PrivateScales`; got scales=None.")
        return core.AdaClip(moments, gamma)
    if moments != core.MomentEstimator() or gamma != 1.0:
        raise ValueError(
            "`scales` fix what is clipped to, so that `h1`, `h2`, `beta_1`, `beta_2`, `gamma`, `initial_std`, "
            f"`variance_scaling` and `clamp` have nothing to do: leave them out. Got {moments} and gamma={gamma!r}."
        )
    if hasattr(scales, "for_training"):
        scales = scales.for_training(noise_multiplier, expected_batch_size)
    elif isinstance(scales, dict):
        scales = core.Scales.from_config(scales)
    if not isinstance(scales, core.Scales):
        raise ValueError(f"`scales` must be a fitted `PrivateScales`, a `core.Scales` or None; got {scales!r}.")
    return core.ScaledClip(scales, precondition)


def config_of(rule: Any) -> dict[str, Any]:
    """The arguments that `adaclip_rule` made `rule` of."""
    if isinstance(rule, core.ScaledClip):
        shared = {**dataclasses.asdict(core.MomentEstimator()), "gamma": 1.0}
        return {**shared, "scales": rule.scales.get_config(), "precondition": rule.precondition}
    return {**dataclasses.asdict(rule.moments), "gamma": rule.gamma, "scales": None, "precondition": False}
