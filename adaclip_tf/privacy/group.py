"""Group privacy: from the epsilon that protects one example to the one that protects a user who has several."""

from __future__ import annotations

import functools
import math
from typing import Callable

from scipy import optimize

from adaclip_tf._internal import validate


def group_epsilon(epsilon_at: Callable[[float], float], delta: float, size: int) -> float:
    """The epsilon that protects groups of `size` examples, from the curve that protects one.

    Vadhan, "The Complexity of Differential Privacy" (2017), Lemma 2.2, in the tighter form of its proof's
    last line but one: (eps, d) for one example is (k eps, d (e^(k eps) - 1) / (e^eps - 1)) for k of them. We
    look for the d that makes the second number `delta`, as tensorflow-privacy does.

    Returns:
      Infinity where the lemma gives no bound.
    """
    size = validate.positive_integer("examples_per_user", size)
    if size == 1:
        return float(epsilon_at(delta))
    log_target = math.log(delta)

    @functools.cache
    def excess(log_delta: float) -> float:
        eps = epsilon_at(math.exp(log_delta))
        if not math.isfinite(eps):
            return math.inf
        growth = math.log(size) if eps == 0.0 else _log_expm1(size * eps) - _log_expm1(eps)
        return log_delta + growth - log_target

    # excess(x) > 0 means that the answer lies below x - excess(x): a smaller d has a larger epsilon.
    upper, lower = log_target, log_target - math.log(10.0)
    while excess(lower) > 0.0:
        upper = lower - excess(lower)
        lower = upper - math.log(10.0)
        if not math.isfinite(excess(lower)) or lower < -700.0:
            return math.inf
    log_delta = optimize.brentq(excess, lower, upper)
    return size * float(epsilon_at(math.exp(log_delta)))


def _log_expm1(x: float) -> float:
    return x + math.log(-math.expm1(-x))
