"""The HPARAMS tab: one row for each training, called by its folder; what one compares first.

TensorBoard asks the first run that it finds which columns there are, and sorts those of hyper-parameters: first the
ones that "differ", then by name. So each run names the columns that any optimizer here may have.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from adaclip_tf.tensorboard import summaries
from adaclip_tf.tensorboard.protos import hparams_api, hparams_v1

FIRST = ("h2", "l2_norm_clip", "learning_rate", "noise_multiplier", "optimizer")
# Arguments of the other optimizers, which a run beside this one may have.
OTHERS = (
    "batch_size",
    "beta_1",
    "beta_2",
    "delta",
    "gamma",
    "initial_std",
    "momentum",
    "num_examples",
    "target_quantile",
    "value_clip",
)
_TEXT = ("optimizer", "sampling", "learning_rate_schedule", "inner_optimizer")
# Arguments of Keras's that these optimizers leave at their defaults.
_NOT_SHOWN = {
    "name",
    "jit_compile",
    "is_legacy_optimizer",
    "nonprivate_metrics",
    "ema_momentum",
    "ema_overwrite_frequency",
}


_OF_LEARNT_SCALES = (
    "scales",
    "h1",
    "h2",
    "beta_1",
    "beta_2",
    "gamma",
    "initial_std",
    "variance_scaling",
    "clamp",
)


def of(optimizer: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """The optimizer's arguments as TensorBoard takes them: numbers, strings and truth values."""
    values: dict[str, Any] = {"optimizer": type(optimizer).__name__}
    arguments = dict(optimizer.get_config())
    inner = arguments.get("inner_optimizer")
    if isinstance(inner, dict):  # of any other optimizer of Keras's, which has the rate
        arguments["learning_rate"] = inner.get("config", {}).get("learning_rate")
    if arguments.get("scales") is not None:  # b was asked for before training: nothing of this is used
        arguments = {name: value for name, value in arguments.items() if name not in _OF_LEARNT_SCALES}
    for name, value in {**arguments, **more}.items():
        if name == "learning_rate" and isinstance(value, dict):  # a schedule: where it starts, and what it is
            values["learning_rate_schedule"] = value.get("class_name", "schedule")
            value = value.get("config", {}).get("initial_learning_rate")
        if value is None or name in _NOT_SHOWN:
            continue
        if isinstance(value, dict):
            value = value.get("class_name", str(value))
        values[name] = value if isinstance(value, (bool, int, float, str)) else str(value)
    return values


def session_start(values: Mapping[str, Any]) -> Any:
    """One row of the tab. Without a name of its own TensorBoard calls it by its folder, as everywhere else."""
    return hparams_v1.session_start_pb(dict(values))


def session_end() -> Any:
    """Says that the run has ended."""
    return hparams_v1.session_end_pb(hparams_api.STATUS_SUCCESS)


def columns(values: Mapping[str, Any], own: Collection[str], metrics: Collection[str]) -> Any:
    """Which columns there are: clip, rate, noise and the user's own first; epsilon and accuracy before other metrics.

    Args:
      values: what `of` returned.
      own: names that the user has added.
      metrics: what `summaries.keras_metrics` names.
    """
    names = sorted({*FIRST, *OTHERS, *values})
    infos = [
        hparams_api.HParamInfo(name=name, type=_type(name, values.get(name)), differs=name in FIRST or name in own)
        for name in names
    ]
    tags = [summaries.EPSILON, *[f"{summaries.OVERVIEW}/{name}" for name in sorted(metrics, key=_metric_order)]]
    shown = [
        hparams_api.MetricInfo(name=hparams_api.MetricName(tag=tag), display_name=tag.split("/")[1])
        for tag in [*tags, summaries.NOISE_NORM]
    ]
    return hparams_v1.experiment_pb(hparam_infos=infos, metric_infos=shown)


def _type(name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return hparams_api.DATA_TYPE_BOOL
    text = isinstance(value, str) if value is not None else name in _TEXT
    return hparams_api.DATA_TYPE_STRING if text else hparams_api.DATA_TYPE_FLOAT64


def _metric_order(name: str) -> tuple[bool, bool, str]:
    """The loss last; of the others, what was not trained on first."""
    return name.endswith("_loss"), name.startswith("train_"), name
