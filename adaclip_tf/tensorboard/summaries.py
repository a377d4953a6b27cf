"""What `PrivacyTensorBoard` writes, as TensorBoard's protocol buffers: tags, descriptions, values.

TensorBoard sorts groups of tags by name. Numbers in front put what matters first: epsilon, accuracy and noise.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras
from adaclip_tf.privacy import wording
from adaclip_tf.tensorboard.protos import custom_scalar, histogram, layout_pb2, scalar, summary_pb2, text

State = Mapping[str, Mapping[str, Any]]  # {a variable's name: what is known of its gradient}

TRAINING, NONPRIVATE_RUN = "", "nonprivate"  # runs: the folder itself, and one below it
OVERVIEW, NOISE, GRADIENT, VARIABLES, HISTOGRAMS = (
    "1_overview",
    "2_noise",
    "3_gradient",
    "4_variables",
    "5_histograms",
)
EPSILON, NOISE_NORM = f"{OVERVIEW}/epsilon", f"{OVERVIEW}/noise_norm"
STATEMENT = "privacy_statement"

DESCRIPTIONS = {
    NOISE_NORM: "z |b| / B: the root mean square norm of the noise in the mean gradient.",
    f"{GRADIENT}/mean_norm": "|m|, where m is the running mean of the noised gradients.",
    f"{GRADIENT}/learning_rate": "The learning rate of the last step.",
}
_NO_METRICS = ("epsilon", "noise_norm", "lr", "learning_rate")  # in Keras's logs, by callbacks; they have own tags
NOISE_IMAGE = "b of the first layer, averaged over its outputs: where in the input the noise goes."
BY_EPSILON = "What was reached for which epsilon, by this run and by those in the folders beside it."


class Measurement:
    """Computes all scalars of a step in one call of a graph, from privatised values only.

    Args:
      optimizer: with state.
      state: its `private_state()`, by the names that tags are to have.
      reference_clip: C of the comparison, or None for the optimizer's own, or 1.
      delta: for the description of epsilon.
    """

    def __init__(self, optimizer: Any, state: Callable[[], State], reference_clip: float | None, delta: float | None):
        self._optimizer, self._state = optimizer, state
        clip = reference_clip or optimizer.get_config().get("l2_norm_clip") or 1.0
        dimension = sum(math.prod(part["scale"].shape) for part in state().values())
        self._reference_scale_norm = clip * math.sqrt(dimension)
        self._tags: list[str] = []
        self._values = tf.function(self._trace, autograph=False)
        at_delta = "" if delta is None else f" at delta = {delta:g}"
        self.descriptions = {
            **DESCRIPTIONS,
            EPSILON: f"The epsilon spent up to this step{at_delta}.",
            f"{NOISE}/ratio_to_fixed_clip": f"Noise norm over that of clipping every gradient at C = {clip:g}, "
            "z C sqrt(d) / B: below 1 is less noise.",
        }

    def __call__(self) -> dict[str, float]:
        numbers = self._values().numpy()  # the first call fills in the tags
        return dict(zip(self._tags, numbers.tolist()))

    def _trace(self) -> tf.Tensor:
        optimizer = self._optimizer
        metrics, state = optimizer.private_metrics(), self._state()
        values = {
            NOISE_NORM: metrics["noise_norm"],
            f"{NOISE}/ratio_to_fixed_clip": metrics["scale_norm"] / self._reference_scale_norm,
            f"{GRADIENT}/learning_rate": tf.cast(keras.last_learning_rate(optimizer), tf.float32),
        }
        for name in ("std_mean", "std_min", "std_max", "mean_norm"):
            if name in metrics:
                values[f"{GRADIENT}/{name}"] = metrics[name]
        total = tf.square(metrics["scale_norm"])
        for name, part in state.items():
            values[f"{NOISE}/share/{name}"] = tf.reduce_sum(tf.square(part["scale"])) / total
            if "std" in part:
                values[f"{VARIABLES}/{name}/std_mean"] = tf.reduce_mean(part["std"])
                values[f"{VARIABLES}/{name}/mean_norm"] = tf.norm(part["center"])
        self._tags = list(values)
        return tf.stack(list(values.values()))


def scalars(values: Mapping[str, float], descriptions: Mapping[str, str] | None = None) -> Any:
    """One summary with a value for each tag."""
    summary = summary_pb2.Summary()
    for tag, value in values.items():
        summary.MergeFrom(scalar.scalar_pb(tag, value, (descriptions or {}).get(tag)))
    return summary


def keras_metrics(logs: Mapping[str, float]) -> dict[str, float]:
    """Keras's logs: train_loss, validation_loss, ..."""
    metrics = {}
    for name, value in logs.items():
        if name not in _NO_METRICS:
            metrics[f"validation_{name[4:]}" if name.startswith("val_") else f"train_{name}"] = value
    return metrics


def overview(metrics: Mapping[str, float]) -> dict[str, float]:
    """The same by tag."""
    return {f"{OVERVIEW}/{name}": value for name, value in metrics.items()}


def histograms(state: State) -> Any:
    """How s, or else b, is spread over each variable's coordinates. Both span decades, so of their logarithms.

    b follows from s where there is one. What is the same for all coordinates makes no histogram.
    """
    summary = summary_pb2.Summary()
    for name, part in state.items():
        key, symbol = ("std", "s, the deviation of the gradient") if "std" in part else ("scale", "b, the scale")
        values = np.log10(part[key].numpy().ravel())
        if values.size > 1 and np.ptp(values) > 1e-6:
            words = f"log10 of {symbol}, over the coordinates of {name}."
            summary.MergeFrom(histogram.histogram_pb(f"{HISTOGRAMS}/log10_{key}/{name}", values, description=words))
    return summary


def statement(report: dict[str, Any]) -> Any:
    """The privacy statement for the TEXT tab, letter by letter: Markdown would join its lines."""
    return text.text_pb(STATEMENT, textwrap.indent(wording.describe(report), "    "))


def layout() -> Any:
    """Charts of the CUSTOM SCALARS tab: what belongs into one picture."""

    def chart(title, *tags):
        return layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=list(tags)))

    categories = {
        "Privacy": [chart("epsilon spent", f"^{EPSILON}$"), chart("noise norm", f"^{NOISE_NORM}$")],
        "Training": [
            chart("accuracy", rf"^{OVERVIEW}/(train|validation)_.*acc.*$"),
            chart("loss", rf"^{OVERVIEW}/(train|validation)_loss$"),
        ],
        "Where the noise goes": [chart("share of each variable", rf"^{NOISE}/share/.*$")],
    }
    return custom_scalar.pb(
        layout_pb2.Layout(
            category=[layout_pb2.Category(title=title, chart=charts) for title, charts in categories.items()]
        )
    )
