"""What is done to batches before a step gets them, as far as the dataset that `fit` was given tells."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from adaclip_tf._internal import keras
from adaclip_tf.gradients.proof import mapped, memory
from adaclip_tf.privacy.drawn import drawn_of


def check(batches: Any) -> None:
    """Raises ValueError if a function that is mapped over `batches` is known to mix examples."""
    mapped.check(batches, keras.made_of, keras.mapped_graph, drawn_of)


def to_running_fits() -> Iterator[Any]:
    """What the `fit` was given that is being run."""
    for model in memory.running_models():
        call = keras.running_fit(model)
        if call is not None and not call.cut:
            yield call.x
