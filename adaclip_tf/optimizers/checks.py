"""Checks of what an optimizer is given: arguments, variables, losses. Each error names the fix."""

from __future__ import annotations

import contextlib

import numpy as np
import tensorflow as tf

from adaclip_tf import gradients
from adaclip_tf._internal import validate

CHOOSE_NOISE = (
    "the noise decides on epsilon. Choose it by `adaclip_tf.noise_multiplier(target_epsilon=..., delta=..., "
    "num_examples=..., batch_size=..., epochs=...)`; `adaclip_tf.make_private` does that, and the rest, for you."
)


def momentum(value) -> float:
    number = validate.real("momentum", value)
    if not 0.0 <= number <= 1.0:
        raise ValueError(f"`momentum` must be between 0 and 1; got {value!r}.")
    return number


def learning_rate(value) -> None:
    """A number, a variable that holds one, or a schedule."""
    if isinstance(value, tf.keras.optimizers.schedules.LearningRateSchedule):
        return
    number = value.numpy() if isinstance(value, (tf.Variable, tf.Tensor)) and tf.executing_eagerly() else value
    try:
        validate.non_negative("learning_rate", number.item() if hasattr(number, "item") else number)
    except ValueError:
        raise ValueError(
            f"`learning_rate` must be a number of 0 or more, or a `LearningRateSchedule`; got {value!r}."
        ) from None


def keras_arguments(arguments, name, allowed) -> None:
    """Refuses what Keras would ignore, mistake, or apply to the noised mean. `allowed` is what this Keras knows."""
    refuse_keras_clipping(arguments)
    for argument in _OF_SAVED_MODELS:
        if arguments.get(argument) is None or argument == "is_legacy_optimizer":
            arguments.pop(argument, None)
    for argument in _WITHOUT_MEANING:
        arguments.pop(argument, None)
    for argument in arguments:
        if argument in _RENAMED:
            raise TypeError(f"{name} has no argument `{argument}`; {_RENAMED[argument].rstrip('.')}.")
        if argument not in allowed:
            raise TypeError(
                f"{name} has no argument `{argument}`. Of Keras's own it takes {', '.join(allowed)}; "
                f"`help({name})` lists the others."
            )
    if arguments.get("weight_decay") is not None:
        validate.non_negative("weight_decay", arguments["weight_decay"])
    for argument in ("use_ema", "jit_compile"):
        if argument in arguments:
            validate.boolean(argument, arguments[argument])


_OF_SAVED_MODELS = ("is_legacy_optimizer", "loss_scale_factor")
# Of tensorflow-privacy: how its loop over microbatches is compiled, which changes no number.
_WITHOUT_MEANING = ("unroll_microbatches",)
_RENAMED = {
    "lr": "use `learning_rate`",
    "decay": "use a `LearningRateSchedule` as `learning_rate`, or `weight_decay`",
    "loss_scale_factor": "gradients are taken per example and need no scaling",
    "microbatches": "use `num_microbatches`",
    "batch_size": "use `expected_batch_size`",
    "epsilon": CHOOSE_NOISE,
    "target_epsilon": CHOOSE_NOISE,
    "delta": CHOOSE_NOISE,
    "stddev": "use `noise_multiplier`, the standard deviation over the clip",
    "sum_stddev": "use `noise_multiplier`, the standard deviation over the clip",
    "sigma": "use `noise_multiplier`; the paper's sigma is noise_multiplier / sqrt(expected_batch_size)",
    "max_grad_norm": "use `l2_norm_clip`, of DPFixedClipSGD",
    "clip_norm": "use `l2_norm_clip`, of DPFixedClipSGD",
    "l2_norm_clip": "it adapts what it clips to: see `h2` and `gamma`, or use DPFixedClipSGD",
}


def accumulation_steps(value, arguments):
    """`accumulation_steps`, which Keras 3 calls `gradient_accumulation_steps`; its own would keep un-noised sums."""
    theirs = arguments.pop("gradient_accumulation_steps", None)
    if theirs is None or theirs == value:
        return value
    if value != 1:
        raise ValueError(
            f"`gradient_accumulation_steps` is another name of `accumulation_steps`; got {theirs!r} and {value!r}."
        )
    return theirs


def refuse_keras_clipping(arguments) -> None:
    for name in ("clipnorm", "clipvalue", "global_clipnorm"):
        if arguments.pop(name, None) is not None:
            raise ValueError(
                f"`{name}` would clip the noised mean gradient, which protects nobody and biases training. Examples "
                "are clipped already: by `h2` and `gamma` in DPAdaClipSGD, by `l2_norm_clip` in DPFixedClipSGD."
            )


def check_variables(variables) -> None:
    if not variables:
        raise ValueError(
            "There are no trainable variables: nothing to train. Set `trainable = True` on some layer. (Keras 3 "
            "loads no optimizer from an `.h5` file, and with it the count of steps would be lost: save as `.keras`.)"
        )
    for variable in variables:
        check_variable(variable)


def check_known_variables(indices, variables, name) -> None:
    """`indices` are those of `variables` among the ones that the optimizer was built for; None where unknown."""
    if not variables:
        raise ValueError(f"{name} got no trainable variables: nothing to train. Set `trainable = True` on some layer.")
    if None in indices or len(set(indices)) != len(indices) or indices != sorted(indices):
        raise ValueError(
            f"{name} keeps its state for the variables that it was built with, and got others: "
            f"{[variable.name for variable in variables]}. Layers may be frozen between phases, and set free again if "
            "they were free when the optimizer was built. For another model, or more layers, use a new optimizer."
        )


def is_of_new_optimizer(values) -> bool:
    """Whether saved values are of an optimizer without any state: Keras's count of updates, 0, and a learning rate.

    There is nothing to restore then. What was built has a count of noised steps besides, and is never so short.
    """
    return 1 <= len(values) <= 2 and all(np.ndim(value) == 0 for value in values) and int(np.asarray(values[0])) == 0


def check_state(variables, values, name, positive=()) -> None:
    """Refuses saved values of an optimizer's variables unless all of them fit; those in `positive` are above 0."""
    fix = (
        "To load it, use the same arguments (`momentum`, `accumulation_steps`, ...) on the same model, and build the "
        "optimizer first: `optimizer.build(model.trainable_variables)`."
    )
    if len(values) != len(variables):
        raise ValueError(f"The saved optimizer has {len(values)} variables and {name} has {len(variables)}. {fix}")
    for variable, value in zip(variables, values):
        value = np.asarray(value)
        if value.shape != tuple(variable.shape):
            shapes = f"shape {list(value.shape)} and not {list(variable.shape)}"
            raise ValueError(f"The saved value of {variable.name!r} has {shapes}. {fix}")
        counts = tf.as_dtype(variable.dtype).is_integer
        least = np.nextafter(0.0, 1.0) if any(variable is other for other in positive) else 0.0 if counts else -np.inf
        if not np.all(np.isfinite(value)) or not np.all(value >= least):
            raise ValueError(
                f"The saved value of {variable.name!r} is out of range: the file is damaged, or training had diverged "
                "when it was saved. Load an earlier one."
            )


def check_overwritten(variables) -> None:
    """Refuses Keras 3's float8 scales, which are overwritten by what it calls their gradients: not private."""
    for variable in variables:
        if getattr(variable, "overwrite_with_gradient", False):
            raise ValueError(
                f"Variable {variable.name!r} is to be overwritten by its gradient, as in float8 layers: no update "
                "that noise could protect. Use float32, or the `mixed_bfloat16` policy."
            )


def check_variable(variable) -> None:
    if not variable.dtype.is_floating:
        raise ValueError(
            f"Variable {variable.name!r} is {variable.dtype.base_dtype.name}: noise is for real numbers. Make it "
            "float32 (a complex one as its two parts), or `trainable=False`."
        )
    if variable.dtype.base_dtype in (tf.float16, tf.bfloat16):
        raise ValueError(
            f"Variable {variable.name!r} is {variable.dtype.base_dtype.name}: updates and noise would be rounded away. "
            "Use the `mixed_float16` or `mixed_bfloat16` policy, which keeps variables in float32."
        )
    if not variable.shape.is_fully_defined():
        raise ValueError(f"Variable {variable.name!r} has the unknown shape {variable.shape}; give it a fixed one.")


def per_example_loss(loss, num_microbatches, replicas, tape=None, batch_size=None) -> tf.Tensor:
    """The loss as one entry per example, or a ValueError that says why it has none."""
    if not hasattr(loss, "graph"):
        raise ValueError(
            "This loss was computed eagerly. Without a graph nothing shows that an example changes its own gradient "
            "only, so it is refused. With `fit`, leave out `run_eagerly=True`. In a loop of your own, put the step "
            "into a `tf.function` that gets the batch as arguments, or let the optimizer do so: "
            "`optimizer.minimize(loss_function, variables, data=(x, y))`, where loss_function(x, y) returns the losses."
        )
    if loss.graph is not tf.compat.v1.get_default_graph():
        raise ValueError(
            "The loss was computed in another graph than the one in which the optimizer is called. Compute it, and "
            "call the optimizer, in the same `tf.function`, and not one of them inside `tf.cond` or a loop."
        )
    if not loss.dtype.is_floating:
        raise ValueError(f"The loss must be real numbers, one per example; got dtype {loss.dtype.name}.")
    if loss.shape.rank is None:
        raise ValueError("The loss has an unknown rank, so it is not known what an example is; use `tf.ensure_shape`.")
    with tape or contextlib.nullcontext():
        if loss.shape.rank == 0:
            # Keras divides by the number of replicas, whose gradients it adds up.
            loss = gradients.per_example(loss, replicas, batch_size) * float(replicas)
        elif loss.shape.rank > 1:
            loss = _mean_per_example(loss)
    _check_microbatches(loss, num_microbatches, replicas)
    return loss


def _mean_per_example(loss) -> tf.Tensor:
    """The mean over time steps, pixels and so on; over those that Keras's mask leaves, where the loss was masked."""
    axes = list(range(1, loss.shape.rank))
    mask = _mask_of(loss)
    if mask is None:
        return tf.reduce_mean(loss, axis=axes)
    counts = tf.reduce_sum(tf.cast(mask, loss.dtype), axis=axes)
    return tf.reduce_sum(loss, axis=axes) / tf.maximum(counts, 1.0)


def _mask_of(loss):
    """The mask that was multiplied into the loss, as Keras does it: a factor made of booleans."""
    pending = [loss]
    while pending:
        operation = pending.pop().op
        if operation.type in ("Identity", "Mul"):
            pending.extend(operation.inputs)
        elif operation.type == "Cast" and operation.inputs[0].dtype == tf.bool:
            mask = operation.inputs[0]
            if mask.shape.rank == loss.shape.rank:
                return mask
    return None


def _check_microbatches(loss, num_microbatches, replicas) -> None:
    if num_microbatches is None:
        return
    message, fix = gradients.MUST_DIVIDE.format(num_microbatches), "Use `drop_remainder=True` or None."
    if replicas > 1:
        message += f" on each of {replicas} replicas"
        tf.debugging.assert_positive(tf.shape(loss)[0], message=f"{message} and one replica without examples. {fix}")
    if loss.shape[0] is not None and loss.shape[0] % num_microbatches:
        raise ValueError(f"{message} and a batch of {loss.shape[0]}. {fix}")
