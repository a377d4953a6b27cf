r"""An audit of one's own model, on the command line.

    python -m adaclip_tf.auditing --model=package.module:make_model --num_examples=600 --steps=4

`make_model` is a function without arguments that returns a model compiled with a private optimizer. Canaries are random
numbers in its shapes, so that nobody's data is looked at; for other models call `adaclip_tf.audit` with rows. Ends with
exit code 1 where the claim is refuted.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags

from adaclip_tf.auditing.audit import audit

# Flags of this program alone: importing the module must not claim names such as `steps` for everyone.
FLAGS = flags.FlagValues()

flags.DEFINE_string("model", None, "package.module:function that returns the compiled model.", flag_values=FLAGS)
flags.DEFINE_integer("num_examples", None, "n, the number of examples.", flag_values=FLAGS)
flags.DEFINE_integer("steps", 4, "T, noised steps of each run.", flag_values=FLAGS)
flags.DEFINE_integer("runs", None, "Runs; by default enough for about 1,000 canaries in all.", flag_values=FLAGS)
flags.DEFINE_integer("canaries", None, "In each run; by default 64, fewer for small models.", flag_values=FLAGS)
flags.DEFINE_float("delta", 1e-5, "delta.", flag_values=FLAGS)
flags.DEFINE_float("confidence", 0.95, "Of the bound.", flag_values=FLAGS)
flags.DEFINE_string("accountant", "pld", "Of the claim.", flag_values=FLAGS)
flags.DEFINE_boolean("help", False, "Show this help.", flag_values=FLAGS)


def main(argv: Sequence[str]) -> int:
    """Runs the program; returns its exit code: 1 where the claim is refuted, 2 with one line for a bad argument."""
    try:
        rest = FLAGS(argv)[1:]
        if FLAGS.help:
            print(f"{__doc__}\n{FLAGS.get_help()}")
            return 0
        if rest:
            raise ValueError(f"Unexpected argument {rest[0]!r}; arguments are flags such as --steps=4.")
        for name in ("model", "num_examples"):
            if FLAGS[name].value is None:
                raise ValueError(f"--{name} is required; --help lists the flags.")
        options = ("steps", "runs", "canaries", "delta", "confidence", "accountant")
        arguments = {name: FLAGS[name].value for name in options}
        result = audit(_function(FLAGS.model), FLAGS.num_examples, **arguments)
    except (flags.Error, ValueError, ImportError) as error:
        print(f"adaclip_tf.auditing: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    finally:
        FLAGS.unparse_flags()
    return int(result.refuted)


def _function(name: str) -> Any:
    module, _, function = name.partition(":")
    if not module or not function:
        raise ValueError(f"--model must be package.module:function; got {name!r}.")
    sys.path.insert(0, os.getcwd())  # as `python -m` of the module itself would
    found = getattr(importlib.import_module(module), function, None)
    if found is None:
        raise ValueError(f"--model={name}: {module} has no {function!r}.")
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv))
