"""Pictures of `PrivacyTensorBoard`, as arrays of shape [height, width, 3]."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from adaclip_tf._internal import plotting, validate


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
    figure, axes = _figure(4.0, 3.4)
    drawn = axes.imshow(picture, cmap="viridis", interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(f"b of {name}, mean over outputs", fontsize=9)
    figure.colorbar(drawn, ax=axes, format="%.2g")
    return _pixels(figure)


def metric_by_epsilon(points: Sequence[tuple[float, Mapping[str, float]]], delta: float | None) -> np.ndarray:
    """Accuracy, or the loss where there is none, against epsilon."""
    tags = sorted({tag for _, metrics in points for tag in metrics})
    accuracies = [tag for tag in tags if "acc" in tag]
    figure, axes = _figure(5.4, 3.4)
    for tag in accuracies or [tag for tag in tags if tag.endswith("/loss")]:
        known = [(epsilon, metrics[tag]) for epsilon, metrics in points if tag in metrics]
        axes.plot(*zip(*known), marker="o", markersize=3, linewidth=1, label=tag)
    axes.set_xlabel("epsilon" if delta is None else f"epsilon at delta = {delta:g}")
    axes.set_ylabel("accuracy" if accuracies else "loss")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return _pixels(figure)


def warm_up() -> None:
    """Draws once: importing matplotlib and finding its fonts takes a second, better before training than in it."""
    scale_picture("", np.zeros((2, 2)))


def _figure(width: float, height: float) -> tuple[Any, Any]:
    try:
        return plotting.new_figure(width, height)
    except ImportError as error:
        raise ValueError(f"`image_freq` needs matplotlib ({error}); install it, or use image_freq=0.") from error


def _pixels(figure: Any) -> np.ndarray:
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()
