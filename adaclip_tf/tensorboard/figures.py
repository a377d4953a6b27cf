"""Pictures of `PrivacyTensorBoard`, as arrays of shape [height, width, 3]."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from adaclip_tf._internal import plotting, validate
from adaclip_tf.tensorboard.by_epsilon import Points


def check_image_shape(shape: Any) -> tuple[int, ...] | None:
    """Returns (height, width) or (height, width, channels), or says what is wrong."""
    if shape is None:
        return None
    if not isinstance(shape, Sequence) or len(shape) not in (2, 3):
        raise ValueError(f"`image_shape` must be (height, width) or (height, width, channels); got {shape!r}.")
    return tuple(validate.positive_integer("image_shape", length) for length in shape)


def first_layer_scale(
    state: Mapping[str, Mapping[str, Any]], shape: tuple[int, ...] | None
) -> tuple[str, np.ndarray] | None:
    """b of the first layer as (its kernel's name, a picture of the input), or None where it has no such form.

    The layer must be dense and its b adaptive (a constant makes no picture). b is averaged over the outputs, and over
    the channels of the input if there are any.
    """
    name, part = next(((n, p) for n, p in state.items() if n.split("/")[-1].startswith("kernel")), ("", {}))
    if "std" not in part or part["scale"].shape.rank != 2:
        return None
    inputs = part["scale"].shape[0]
    if shape is None:
        side = math.isqrt(inputs)
        if side < 2 or side * side != inputs:
            return None
        shape = (side, side)
    if math.prod(shape) != inputs:
        raise ValueError(f"`image_shape`={shape} has {math.prod(shape)} values and {name} has {inputs} inputs.")
    picture = np.mean(part["scale"].numpy(), axis=1).reshape(shape)
    return name, picture.mean(axis=2) if picture.ndim == 3 else picture


def scale_picture(name: str, picture: np.ndarray) -> np.ndarray:
    """The picture with its colour bar."""
    with _style():
        figure, axes = plotting.new_figure(4.0, 3.4)
        drawn = axes.imshow(picture, cmap="viridis", interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_title(f"b of {name}, mean over outputs")
        figure.colorbar(drawn, ax=axes, format="%.2g")
        return _pixels(figure)


def metric_by_epsilon(name: str, points: Points, delta: float | None, others: Mapping[str, Points]) -> np.ndarray:
    """A metric against epsilon: of this run in colours, of those beside it in grey."""
    with _style():
        figure, axes = plotting.new_figure(4.6, 3.2)
        for line, (run, theirs) in zip(itertools.cycle(("-", "--", ":", "-.")), others.items()):
            known = _known(theirs, f"validation_{name}") or _known(theirs, f"train_{name}")
            if known:
                axes.plot(*zip(*known), line, marker="", color=plotting.GREY, label=run)
        for part, words in (("validation", "validation"), ("train", "training: NOT private")):
            known = _known(points, f"{part}_{name}")
            if known:
                axes.plot(*zip(*known), linewidth=2, label=f"this run, {words}")
        axes.set_xlabel("epsilon" if delta is None else f"epsilon at delta = {delta:g}")
        axes.set_ylabel(name)
        axes.legend()
        return _pixels(figure)


def main_metric(points: Points) -> str | None:
    """What a picture is to show: accuracy, or else another metric, one of the validation data first, or the loss."""
    tags = sorted({tag for _, metrics in points for tag in metrics}, key=lambda tag: (tag.startswith("train_"), tag))
    names = [tag.split("_", 1)[1] for tag in tags]
    best = [name for name in names if "acc" in name] or [name for name in names if name != "loss"] or names
    return best[0] if best else None


def warm_up() -> None:
    """Draws once: importing matplotlib and finding its fonts takes a second, better before training than in it."""
    scale_picture("", np.zeros((2, 2)))


def _known(points: Points, tag: str) -> list[tuple[float, float]]:
    return [(epsilon, metrics[tag]) for epsilon, metrics in points if tag in metrics]


@contextlib.contextmanager
def _style() -> Iterator[None]:
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ValueError(f"`image_freq` needs matplotlib ({error}); install it, or use image_freq=0.") from error
    with plotting.style():
        yield


def _pixels(figure: Any) -> np.ndarray:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()
