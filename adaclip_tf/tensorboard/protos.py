"""What is taken from the package `tensorboard`, which TensorFlow 2.21 and later no longer bring along."""

from __future__ import annotations

MISSING: ImportError | None = None
try:
    from tensorboard.compat.proto import summary_pb2
    from tensorboard.plugins.custom_scalar import layout_pb2
    from tensorboard.plugins.custom_scalar import summary as custom_scalar
    from tensorboard.plugins.histogram import summary_v2 as histogram
    from tensorboard.plugins.hparams import api_pb2 as hparams_api
    from tensorboard.plugins.hparams import summary as hparams_v1
    from tensorboard.plugins.scalar import summary_v2 as scalar
    from tensorboard.plugins.text import summary_v2 as text
except ImportError as error:  # the library's other names are to be had without it
    MISSING = error
    summary_pb2 = layout_pb2 = custom_scalar = histogram = hparams_api = hparams_v1 = scalar = text = None


def require() -> None:
    """Raises ImportError, with the fix, where the package is missing or can't be imported."""
    if MISSING is not None:
        raise ImportError(
            f"PrivacyTensorBoard needs the package tensorboard ({MISSING}): pip install 'adaclip-tf[tensorboard]'."
        ) from MISSING


__all__ = [
    "custom_scalar",
    "histogram",
    "hparams_api",
    "hparams_v1",
    "layout_pb2",
    "require",
    "scalar",
    "summary_pb2",
    "text",
]
