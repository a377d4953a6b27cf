"""Fields of a config on the command line: a name that there is not is answered with the nearest one that there is."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Collection, Sequence

from absl import app

from configs import base

# What others call it.
_ALSO_CALLED = {
    "batch_size": "expected_batch_size",
    "clip": "l2_norm_clip",
    "eps": "target_epsilon",
    "epsilon": "target_epsilon",
    "lr": "learning_rate",
}


def complaint(arguments: Sequence[str], fields: Collection[str]) -> str | None:
    """What is wrong with the first `--config.FIELD` that is no field; None if nothing.

    >>> complaint(["--config.lr=3"], ["learning_rate", "h2"])
    '--config.lr: a config has no field of that name. Did you mean --config.learning_rate?'
    >>> complaint(["--config.rate", "1"], ["learning_rate", "h2"])
    '--config.rate: a config has no field of that name. The fields are: h2, learning_rate.'
    """
    for argument in arguments:
        flag = argument.split("=")[0].lstrip("-")
        name = flag[len("config.") :]
        if not argument.startswith("-") or not flag.startswith("config.") or name in fields:
            continue
        near = [_ALSO_CALLED[name]] if _ALSO_CALLED.get(name) in fields else difflib.get_close_matches(name, fields, 1)
        hint = f"Did you mean --config.{near[0]}?" if near else f"The fields are: {', '.join(sorted(fields))}."
        return f"--config.{name}: a config has no field of that name. {hint}"
    return None


def parse(argv: Sequence[str]) -> list[str]:
    """For `app.run(main, flags_parser=parse)`: as absl does it, and in words where there is no such field."""
    said = complaint(argv[1:], list(base.get_config()))
    if said:
        sys.exit(f"FATAL Flags parsing error:\n{said}\n{base.__name__.replace('.', '/')}.py lists all.")
    return app.parse_flags_with_usage(list(argv))
