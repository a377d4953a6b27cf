"""What is wrong with the arguments of `make_private`, told before the data is asked: that costs privacy."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from adaclip_tf._internal import files, validate
from adaclip_tf.optimizers.check_model import check_model
from adaclip_tf.privacy import private_optimizer, statement


def check(model: Any, loss: Any, example: Any, ledger: Any) -> None:
    """What is wrong with the model, the loss or the first `example`, told before the data is asked."""
    if not isinstance(model, tf.keras.Model):
        raise ValueError(f"`model` must be a Keras model; got {type(model).__name__}.")
    if loss is None:
        raise ValueError("`loss` is None: give what `model.compile` would get, e.g. 'binary_crossentropy'.")
    if not isinstance(example, tuple) or not 2 <= len(example) <= 3:
        raise ValueError("`data` must be a tuple, `(x, y)` or `(x, y, sample_weight)`.")
    if _is_of_keras(loss) and any(part.dtype == tf.string for part in tf.nest.flatten(example[1:])):
        raise ValueError(
            "`data` has texts for labels, and a loss needs numbers: number the classes by a list that you know without "
            "the data, such as `tf.keras.layers.StringLookup(vocabulary=[...], num_oov_indices=0)`."
        )
    _try(model, example[0])
    check_model(model)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not private_optimizer.is_private(optimizer) or ledger is not None:
        return
    if optimizer.prior is not None and not private_optimizer.noised_steps(optimizer):
        raise ValueError(
            "`model` was prepared by `make_private`, or with scales, before: the data was asked for these, and "
            "this call would not count it. Go on with what was returned then; or give both calls one `ledger`."
        )
    taken = private_optimizer.noised_steps(optimizer)
    if taken:
        raise ValueError(
            f"`model` has taken {taken:,} noised steps, which this call would not count. Start from a fresh model, "
            "or give the `ledger` that holds them, to train further on top."
        )


def _is_of_keras(loss: Any) -> bool:
    """Whether none of the losses is somebody's own."""
    parts = [part for part in tf.nest.flatten(loss) if not isinstance(part, str)]
    return all(type(part).__module__.split(".")[0] in ("keras", "tf_keras") for part in parts)


def for_compile(arguments: Any) -> dict[str, Any]:
    """Further arguments of `model.compile`: what is wrong with them is told before the data is asked."""
    if arguments is None:
        return {}
    if not isinstance(arguments, dict):
        raise ValueError(
            f"`compile_arguments` must be a dict, such as {{'loss_weights': [1.0, 0.5]}}; got {arguments!r}."
        )
    own = {"optimizer": "it chooses one itself", "loss": "give `loss`", "metrics": "give `metrics`"}
    for name, why in own.items():
        if name in arguments:
            raise ValueError(f"`compile_arguments` may not hold {name!r}; {why}. Got {arguments[name]!r}.")
    if arguments.get("run_eagerly"):
        raise ValueError(
            "`compile_arguments` has run_eagerly=True, and without a graph nothing shows that an example changes its "
            "own gradient only. Leave it out."
        )
    return dict(arguments)


def check_files(**paths: Any) -> None:
    """Whether what is to be written can be, told before the data is asked."""
    for name, path in paths.items():
        if path is not None:
            checked = validate.path(name, path)
            files.check_writable(name, checked if name != "statement_path" else f"{statement.base_path(checked)}.json")


def _try(model: Any, inputs: Any) -> None:
    """Calls the model with one example, which builds it; what fails is told in words."""
    try:
        model(inputs)
    except (tf.errors.OpError, TypeError, ValueError) as error:
        got = tf.nest.map_structure(lambda part: f"{part.dtype.name} of shape {part.shape[1:]}", inputs)
        raise ValueError(
            f"`model` can't be called with the first example of `data`, {got}: {error}. Give inputs as the model takes "
            "them."
        ) from error
