"""Names of variables that can be compared between runs.

Keras counts up the names of models and layers for as long as a program lives: the second model of a program has
"sequential_1/dense_2/kernel" where the first has "sequential/dense/kernel". Numbers that Keras gave are given anew,
from the first layer of the model on; names that the user gave stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from adaclip_tf._internal import keras


def comparable(names: Iterable[str], model: Any) -> list[str]:
    """The names without the model's own, layers that Keras has named numbered anew.

    Where two variables would get the same name they keep their own.
    """
    names, prefix = list(names), f"{model.name}/"
    if all(name.startswith(prefix) for name in names):
        names = [name[len(prefix) :] for name in names]
    given = {layer.name: _snake(type(layer).__name__) for layer in keras.layers_of(model)}
    kinds = {name: kind for name, kind in given.items() if re.fullmatch(rf"{re.escape(kind)}(_\d+)?", name)}
    renamed: dict[str, str] = {}
    counts: dict[str, int] = {}
    for part in (part for name in names for part in name.split("/")[:-1]):
        if part in kinds and part not in renamed:
            number = counts.get(kinds[part], 0)
            counts[kinds[part]] = number + 1
            renamed[part] = f"{kinds[part]}_{number}" if number else kinds[part]
    found = ["/".join([*[renamed.get(part, part) for part in _layers(name)], name.split("/")[-1]]) for name in names]
    return found if len(set(found)) == len(set(names)) else names


def _layers(name: str) -> list[str]:
    return name.split("/")[:-1]


def _snake(name: str) -> str:
    """As Keras makes names of classes.

    >>> _snake("BatchNormalization"), _snake("LSTMCell"), _snake("Conv2D")
    ('batch_normalization', 'lstm_cell', 'conv2d')
    """
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
