"""The arguments that a class takes, for `help`, editors and `inspect.signature`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def of_constructor(constructor: Callable[..., Any], passed_on_to: Callable[..., Any]) -> inspect.Signature:
    """The signature of `constructor` without `self`, with the keyword arguments that its `**arguments` pass on.

    >>> def base(self, *, z, seed=None, **keras): ...
    >>> def own(self, rate=0.1, *, clip, **arguments): ...
    >>> print(of_constructor(own, base))
    (rate=0.1, *, clip, z, seed=None, **keras)
    """
    own = list(inspect.signature(constructor).parameters.values())[1:]
    if not own or own[-1].kind is not inspect.Parameter.VAR_KEYWORD or constructor is passed_on_to:
        return inspect.Signature(own)
    names = {parameter.name for parameter in own}
    theirs = [
        parameter
        for parameter in inspect.signature(passed_on_to).parameters.values()
        if parameter.name not in names
        and parameter.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    ]
    return inspect.Signature([*own[:-1], *theirs])
