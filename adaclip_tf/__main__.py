"""`python -m adaclip_tf` lists what there is to run and to import, one line each."""

from __future__ import annotations

import importlib
import sys

PROGRAMS = {
    "adaclip-privacy, python -m adaclip_tf.privacy": "the epsilon of a training, the noise for an epsilon, a ledger",
    "python -m adaclip_tf.auditing": "attacks training runs of a model: epsilon as proven beside that claimed",
    "python -m adaclip_tf.releasing FILE": "what a saved model holds that is not privatised",
}


def text() -> str:
    """What the program prints."""
    adaclip_tf = importlib.import_module("adaclip_tf")  # all of its public names, whatever they are
    lines = [f"adaclip_tf {adaclip_tf.__version__}", "", "Programs (--help tells more):"]
    lines += [f"  {name}\n      {what}" for name, what in PROGRAMS.items()]
    lines += ["", "Names to import from adaclip_tf (`help(name)` tells more):"]
    width = max(map(len, adaclip_tf.__all__))
    for name in adaclip_tf.__all__:
        first_line = (getattr(adaclip_tf, name).__doc__ or "").strip().splitlines()[0]
        lines.append(f"  {name:{width}s}  {first_line}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(text())
    sys.exit(0)
