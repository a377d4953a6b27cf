"""Checks of what an optimizer is given: arguments, variables, losses. Each error names the fix."""

from __future__ import annotations

import tensorflow as tf

from adaclip_tf import _validate


def optional_integer(name, value):
    return None if value is None else _validate.positive_integer(name, value)


def refuse_keras_clipping(arguments) -> None:
    for name in ("clipnorm", "clipvalue", "global_clipnorm"):
        if arguments.pop(name, None) is not None:
            raise ValueError(
                f"`{name}` would clip the noised mean gradient, which protects nobody and biases training. Examples "
                "are clipped already: by `h2` and `gamma` in DPAdaClipSGD, by `l2_norm_clip` in DPFixedClipSGD."
            )


def check_variable(variable) -> None:
    if variable.dtype.base_dtype in (tf.float16, tf.bfloat16):
        raise ValueError(
            f"Variable {variable.name!r} is {variable.dtype.base_dtype.name}: updates and noise would be rounded away. "
            "Use the `mixed_float16` or `mixed_bfloat16` policy, which keeps variables in float32."
        )
    if not variable.shape.is_fully_defined():
        raise ValueError(f"Variable {variable.name!r} has the unknown shape {variable.shape}; give it a fixed one.")


def check_loss(loss, num_microbatches, replicas=1) -> None:
    if loss.shape.rank == 0:
        raise ValueError(
            "The loss is a scalar: it has been reduced over the batch, and examples can't be told apart. Compile "
            'the model with a loss object made with `reduction="none"`, e.g. '
            '`SparseCategoricalCrossentropy(reduction="none")`.'
        )
    if loss.shape.rank != 1:
        raise ValueError(
            f"The loss must have one entry per example, shape [batch]; got shape {loss.shape}. Sum or average it over "
            "all axes but the first, e.g. `tf.reduce_mean(loss, axis=list(range(1, rank)))`."
        )
    if num_microbatches is None:
        return
    message = f"`num_microbatches` must divide the batch size; got num_microbatches={num_microbatches}"
    fix = "Use `drop_remainder=True` or None."
    if replicas > 1:
        message += f" on each of {replicas} replicas"
        tf.debugging.assert_positive(tf.shape(loss)[0], message=f"{message} and one replica without examples. {fix}")
    if loss.shape[0] is not None and loss.shape[0] % num_microbatches:
        raise ValueError(f"{message} and a batch of {loss.shape[0]}. {fix}")
    tf.debugging.assert_equal(tf.shape(loss)[0] % num_microbatches, 0, message=f"{message}. {fix}")
