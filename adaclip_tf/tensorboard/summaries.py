"""What `PrivacyTensorBoard` writes, as TensorBoard's protocol buffers: tags, descriptions, values."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras
from adaclip_tf.tensorboard.protos import (
    custom_scalar,
    histogram,
    hparams_api,
    hparams_v1,
    hparams_v2,
    layout_pb2,
    scalar,
    summary_pb2,
)

State = Mapping[str, Mapping[str, Any]]  # {a variable's name: what is known of its gradient}

PRIVACY_RUN, HPARAMS_RUN, NONPRIVATE_RUN = "privacy", "hparams", "nonprivate"
EPSILON_STEPS = 1000  # TensorBoard's steps are whole numbers: the charts by epsilon count thousandths

DESCRIPTIONS = {
    "privacy/noise_norm": "z |b| / B: the root mean square norm of the noise in the mean gradient.",
    "privacy/scale_norm": "|b|, over all coordinates.",
    "bound/clipping_bias": "|s / b|^2 = E|w|^2, the clipping term of the convergence bound. AdaCliP holds it at gamma.",
    "bound/noise_variance": "z^2 |b|^2 / B^2, the noise term of the convergence bound. AdaCliP makes it least.",
    "gradient/mean_norm": "|m|, where m is the running mean of the noised gradients.",
    "learning_rate": "The learning rate of the last step.",
}
NOISE_IMAGE = "b of the first layer, averaged over its outputs: where in the input the noise goes."
# Constant but for float32's rounding, which a chart would blow up.
_CONSTANT = {"privacy/noise_norm_abadi", "bound/clipping_bias"}


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
            "privacy/epsilon": f"The epsilon spent up to this step{at_delta}.",
            "privacy/noise_norm_abadi": f"z C sqrt(d) / B: the noise of clipping every gradient at C = {clip:g}.",
            "privacy/noise_ratio": f"Noise norm over that of clipping at C = {clip:g}: below 1 is less noise.",
        }

    def __call__(self) -> dict[str, float]:
        numbers = self._values().numpy()  # the first call fills in the tags
        values = dict(zip(self._tags, numbers.tolist()))
        for tag in _CONSTANT.intersection(values):
            values[tag] = float(f"{values[tag]:.6g}")
        return values

    def _trace(self) -> tf.Tensor:
        optimizer = self._optimizer
        metrics, state = optimizer.private_metrics(), self._state()
        ratio = metrics["scale_norm"] / self._reference_scale_norm
        noise_per_scale = metrics["noise_norm"] / metrics["scale_norm"]  # z / B
        values = {
            "privacy/noise_norm": metrics["noise_norm"],
            "privacy/noise_norm_abadi": noise_per_scale * self._reference_scale_norm,
            "privacy/noise_ratio": ratio,
            "privacy/scale_norm": metrics["scale_norm"],
            "bound/noise_variance": tf.square(metrics["noise_norm"]),
            "learning_rate": tf.cast(keras.last_learning_rate(optimizer), tf.float32),
        }
        for name in ("std_mean", "std_min", "std_max", "mean_norm"):
            if name in metrics:
                values[f"gradient/{name}"] = metrics[name]
        bias = []
        for name, part in state.items():
            values[f"variables/{name}/scale_norm"] = tf.norm(part["scale"])
            if "std" in part:
                bias.append(tf.reduce_sum(tf.square(part["std"] / part["scale"])))
                values[f"variables/{name}/std_mean"] = tf.reduce_mean(part["std"])
                values[f"variables/{name}/std_min"] = tf.reduce_min(part["std"])
                values[f"variables/{name}/std_max"] = tf.reduce_max(part["std"])
                values[f"variables/{name}/mean_norm"] = tf.norm(part["center"])
        if bias:
            values["bound/clipping_bias"] = tf.add_n(bias)
        self._tags = list(values)
        return tf.stack(list(values.values()))


def state_by_tag(optimizer: Any, model_name: str) -> dict[str, Any]:
    """`private_state()` without the model's own name, which Keras 3 puts first: "sequential_3" differs by run."""
    state, prefix = optimizer.private_state(), f"{model_name}/"
    if not all(name.startswith(prefix) for name in state):
        return state
    return {name[len(prefix) :]: part for name, part in state.items()}


def scalars(values: Mapping[str, float], descriptions: Mapping[str, str] | None = None) -> Any:
    """One summary with a value for each tag."""
    summary = summary_pb2.Summary()
    for tag, value in values.items():
        summary.MergeFrom(scalar.scalar_pb(tag, value, (descriptions or {}).get(tag)))
    return summary


def keras_metrics(logs: Mapping[str, float]) -> dict[str, float]:
    """Keras's logs by tag: train/loss, validation/loss, ... Epsilon, which a budget puts there, has its own tag."""
    metrics = {}
    for name, value in logs.items():
        if name not in ("epsilon", "lr", "learning_rate"):
            metrics[f"validation/{name[4:]}" if name.startswith("val_") else f"train/{name}"] = value
    return metrics


def flat(tag: str) -> str:
    """train/loss as one word."""
    return tag.replace("/", "_")


def epsilon_step(epsilon: float) -> int:
    return round(EPSILON_STEPS * epsilon)


def by_epsilon(metrics: Mapping[str, float], delta: float | None) -> Any:
    """The metrics for charts whose horizontal axis is epsilon, in thousandths."""
    at_delta = "" if delta is None else f", at delta = {delta:g}"
    text = f"The step is {EPSILON_STEPS} times epsilon{at_delta}."
    values = {f"by_epsilon_x{EPSILON_STEPS}/{flat(tag)}": value for tag, value in metrics.items()}
    return scalars(values, dict.fromkeys(values, text))


def histograms(state: State) -> Any:
    """Distributions of s and b by variable. They span decades, so of their logarithms."""
    summary = summary_pb2.Summary()
    for name, part in state.items():
        for key, symbol in (("std", "s"), ("scale", "b")):
            if key in part:
                values = np.log10(part[key].numpy().ravel())
                text = f"log10 of {symbol}, over the coordinates of {name}."
                summary.MergeFrom(histogram.histogram_pb(f"log10_{key}/{name}", values, description=text))
    return summary


def layout() -> Any:
    """Charts of the CUSTOM SCALARS tab: what belongs into one picture."""

    def chart(title, *tags):
        return layout_pb2.Chart(title=title, multiline=layout_pb2.MultilineChartContent(tag=list(tags)))

    epsilon = f"by_epsilon_x{EPSILON_STEPS}"
    categories = {
        "Privacy": [
            chart("epsilon spent", "^privacy/epsilon$"),
            chart("noise norm: ours and fixed clipping at C", "^privacy/noise_norm$", "^privacy/noise_norm_abadi$"),
            chart(f"accuracy against {EPSILON_STEPS} epsilon", rf"^{epsilon}/.*acc.*$"),
        ],
        "Training": [
            chart("accuracy", r"^(train|validation)/.*acc.*$"),
            chart("loss", r"^(train|validation)/loss$"),
        ],
        "Convergence bound": [
            chart("clipping bias |s/b|^2", "^bound/clipping_bias$"),
            chart("noise variance z^2 |b|^2 / B^2", "^bound/noise_variance$"),
        ],
    }
    return custom_scalar.pb(
        layout_pb2.Layout(
            category=[layout_pb2.Category(title=title, chart=charts) for title, charts in categories.items()]
        )
    )


# Arguments of Keras's that these optimizers leave at their defaults.
_NOT_SHOWN = {
    "name",
    "jit_compile",
    "is_legacy_optimizer",
    "nonprivate_metrics",
    "ema_momentum",
    "ema_overwrite_frequency",
}


def hparams_of(optimizer: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """The optimizer's arguments as TensorBoard takes them: numbers, strings and truth values."""
    values: dict[str, Any] = {"optimizer": type(optimizer).__name__}
    for name, value in {**optimizer.get_config(), **more}.items():
        if value is None or name in _NOT_SHOWN:
            continue
        if isinstance(value, dict):  # a learning-rate schedule
            value = value.get("class_name", str(value))
        values[name] = value if isinstance(value, (bool, int, float, str)) else str(value)
    return values


def session_start(hparams: Mapping[str, Any], log_dir: str) -> Any:
    """One row of the HPARAMS tab, named after the folder. The digest keeps folders of the same name apart."""
    path = log_dir if "://" in log_dir else os.path.abspath(log_dir)
    digest = hashlib.sha256(path.encode()).hexdigest()[:4]
    return hparams_v2.hparams_pb(dict(hparams), trial_id=f"{os.path.basename(path.rstrip('/'))} ({digest})")


def session_end() -> Any:
    """Says that the run has ended."""
    return hparams_v1.session_end_pb(hparams_api.STATUS_SUCCESS)
