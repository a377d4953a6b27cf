"""The arguments that a class takes, for `help`, editors and `inspect.signature`."""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


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


def keywords_only(function: F) -> F:
    """A function whose arguments are all keywords says so to those who leave the keywords out.

    >>> @keywords_only
    ... def epsilon(*, delta, steps=1): ...
    >>> epsilon(1e-5)
    Traceback (most recent call last):
    TypeError: epsilon takes its arguments by name: epsilon(delta=..., ...).
    """
    parameters = inspect.signature(function).parameters.values()
    required = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    example = ", ".join([*(f"{name}=..." for name in required), "..."])

    @functools.wraps(function)
    def checked(*args, **kwargs):
        if args:
            raise TypeError(f"{function.__name__} takes its arguments by name: {function.__name__}({example}).")
        return function(**kwargs)

    return cast(F, checked)


def other_names(**hints: str) -> Callable[[F], F]:
    """Answers keyword arguments that there are not: by what `hints` say of them, or by the nearest that there is.

    >>> @other_names(lr="use `rate`")
    ... def train(*, rate, steps=1): ...
    >>> train(lr=1)
    Traceback (most recent call last):
    TypeError: train has no argument `lr`; use `rate`.
    >>> train(step=1)
    Traceback (most recent call last):
    TypeError: train has no argument `step`; did you mean `steps`?
    """

    def decorate(function: F) -> F:
        parameters = inspect.signature(function).parameters
        shown = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def checked(*args, **kwargs):
            for name in kwargs:
                if name not in parameters:
                    near = difflib.get_close_matches(name, parameters, 1)
                    hint = f"{hints[name]}." if name in hints else f"did you mean `{near[0]}`?" if near else ""
                    raise TypeError(f"{shown} has no argument `{name}`{'; ' if hint else '.'}{hint}")
            return function(*args, **kwargs)

        return cast(F, checked)

    return decorate


def requires(name: str, otherwise: str) -> Callable[[F], F]:
    """For a constructor: a TypeError that says `otherwise` where the keyword argument `name` is missing."""

    def decorate(constructor: F) -> F:
        signature = inspect.signature(constructor)
        parameter = signature.parameters.get(name)
        if parameter is None or parameter.default is not parameter.empty:
            return constructor

        @functools.wraps(constructor)
        def checked(self, *args, **kwargs):
            if name not in kwargs:
                signature.bind_partial(self, *args, **kwargs)  # whatever else is wrong comes first
                raise TypeError(f"{type(self).__name__} needs `{name}`: {otherwise}")
            return constructor(self, *args, **kwargs)

        return cast(F, checked)

    return decorate
