"""The ways of training that the benchmark compares: name -> a compiled model for a case."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from adaclip_tf import DPAdaClipSGD, DPFixedClipSGD, core
from benchmarks import cases

CLIP, NOISE, RATE = 1.0, 1.0, 0.1


class NotApplicableError(Exception):
    """This way of training can't train this model."""


def _loss(reduction):
    return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)


def _plain(make_optimizer, reduction="none"):
    def compile_model(case, batch_size):
        model = tf.keras.Model(*case.build())
        model.compile(make_optimizer(batch_size), _loss(reduction))
        return model

    return compile_model


def _adaclip(path):
    return _plain(
        lambda batch_size: DPAdaClipSGD(
            RATE, noise_multiplier=NOISE, expected_batch_size=batch_size, gradient_path=path, initial_std=1e-3
        )
    )


def _fixed(batch_size):
    return DPFixedClipSGD(RATE, l2_norm_clip=CLIP, noise_multiplier=NOISE, expected_batch_size=batch_size)


def _scaled(case, batch_size):
    """With given scales, one for every row, and damping: what `make_private` trains with."""
    model = tf.keras.Model(*case.build())
    shapes = [np.ones([*variable.shape[:-1], 1], np.float32) for variable in model.trainable_variables]
    scales = core.Scales(CLIP, shapes, damping=2.0)
    optimizer = DPAdaClipSGD(
        RATE, noise_multiplier=NOISE, expected_batch_size=batch_size, scales=scales, precondition=True
    )
    model.compile(optimizer, _loss("none"))
    return model


def _tensorflow_privacy(name):
    """A class of tensorflow-privacy, whose top-level package can't be imported on TensorFlow 2.16 or later."""
    try:
        import tensorflow_privacy

        return getattr(tensorflow_privacy, name)
    except (ImportError, AttributeError) as error:
        raise NotApplicableError(f"tensorflow-privacy has no {name} here ({error})") from error


def _tensorflow_privacy_optimizer(name):
    def make(batch_size):
        cls = _tensorflow_privacy(name)
        return cls(l2_norm_clip=CLIP, noise_multiplier=NOISE, num_microbatches=batch_size, learning_rate=RATE)

    return _plain(make)


def _tensorflow_privacy_model(with_registry):
    def compile_model(case, batch_size):
        del batch_size
        make_model = _tensorflow_privacy("DPModel")
        from tensorflow_privacy.privacy.fast_gradient_clipping import layer_registry

        source, out = case.build()
        registry = None
        if with_registry:
            registry = layer_registry.make_default_layer_registry()
            with_weights = [layer for layer in tf.keras.Model(source, out).layers if layer.trainable_variables]
            missing = [layer.name for layer in with_weights if not registry.is_elem(layer)]
            if missing:
                raise NotApplicableError(f"no registry entry for {', '.join(missing)}")
        model = make_model(
            l2_norm_clip=CLIP,
            noise_multiplier=NOISE,
            use_xla=False,
            layer_registry=registry,
            inputs=source,
            outputs=out,
        )
        # The registry path takes the loss apart by itself and wants it reduced.
        reduction = "sum_over_batch_size" if with_registry else "none"
        model.compile(tf.keras.optimizers.SGD(RATE), _loss(reduction))
        return model

    return compile_model


CONTENDERS: dict[str, Callable[[cases.Case, int], tf.keras.Model]] = {
    "Keras SGD": _plain(lambda batch_size: tf.keras.optimizers.SGD(RATE), "sum_over_batch_size"),
    "DPAdaClipSGD ghost": _adaclip("auto"),
    "DPFixedClipSGD ghost": _plain(_fixed),
    "DPAdaClipSGD scaled": _scaled,
    "DPAdaClipSGD jacobian": _adaclip("jacobian"),
    "tfp DPKerasSGDOptimizer": _tensorflow_privacy_optimizer("DPKerasSGDOptimizer"),
    "tfp VectorizedDPKerasSGDOptimizer": _tensorflow_privacy_optimizer("VectorizedDPKerasSGDOptimizer"),
    "tfp DPModel": _tensorflow_privacy_model(with_registry=False),
    "tfp DPModel with layer registry": _tensorflow_privacy_model(with_registry=True),
}
BASELINE, OURS = "Keras SGD", "DPAdaClipSGD ghost"
PRIVATE = (OURS, "DPFixedClipSGD ghost", "DPAdaClipSGD scaled")  # those without a gradient for every example
