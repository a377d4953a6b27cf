"""`Scales`: the sizes of gradients, learnt before training; `ScaledClip`: the rule that clips and steps by them.

Symbols. Row i of a variable is a set of its coordinates that share a scale (`scales.rows`); C is one clip for all, h_i
the shape of row i, mu the multiplier (how much of a typical gradient is kept against noise). Then

    a = 0,  b_i = mu C h_i                                 fixed during training
    direction_i = max(1, mu) W_i / (B C h_i) = g~_i max(1, mu) / (mu C^2 h_i^2)

The direction is g~ divided by h^2, up to a constant: with h = s^(1/2) that is g~ / s, and b is Theorem 1's. Damping:
with p a moving average of (W / z)^2, by coordinate and with its bias taken out, the direction is divided by

    max(1, p^(1/2) / D),

so that a coordinate which is far above the noise, D times, moves by about D z whatever its gradient. Where noise rules
nothing changes. All this is a function of g~, earlier ones and public vectors: post-processing, which costs nothing.

Everything here is public by the time it is used: scales come from a query that was paid for (`PrivateScales`), or from
other data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import validate
from adaclip_tf._internal.prior import Prior
from adaclip_tf.core.framework import Transform
from adaclip_tf.core.rules import ClippingRule

LEAST, LARGEST = 1e-15, 1e15  # of C h and of mu C h: float32 holds the squares of both


@dataclasses.dataclass(frozen=True, eq=False)
class Scales:
    """C, the shapes and the multiplier.

    >>> Scales(clip=2.0, shapes=[np.ones([3, 1]), np.ones([1])]).get_config()["shapes"]
    [[[1.0], [1.0], [1.0]], [1.0]]

    Attributes:
      clip: C.
      shapes: h, an array for each trainable variable, which broadcasts against it.
      multiplier: mu.
      damping: D; None for no damping.
      damping_decay: of the moving average p.
      noise_multiplier: of the queries that found them, all together as one Gaussian mechanism; None for public scales.
      name: tells these queries from others, for those who count epsilon: `PrivateScales.name`.
    """

    clip: float
    shapes: Sequence[np.ndarray]
    multiplier: float = 1.0
    damping: float | None = None
    damping_decay: float = 0.9
    noise_multiplier: float | None = None
    name: str | None = None

    def __post_init__(self):
        shapes = tuple(np.asarray(shape, np.float32) for shape in self.shapes)
        clip, multiplier = validate.positive("clip", self.clip), validate.positive("multiplier", self.multiplier)
        object.__setattr__(self, "clip", clip)
        object.__setattr__(self, "shapes", shapes)
        object.__setattr__(self, "multiplier", multiplier)
        validate.fields(self, damping=validate.optional(validate.positive_float32), damping_decay=validate.fraction)
        for index, shape in enumerate(shapes):
            sizes = clip * max(multiplier, 1.0) * shape.astype(np.float64), clip * min(multiplier, 1.0) * shape
            if not shape.size or not (np.all(sizes[0] <= LARGEST) and np.all(sizes[1] >= LEAST)):
                raise ValueError(
                    f"`shapes[{index}]` times `clip` must be numbers between {LEAST:g} and {LARGEST:g}; got a clip of "
                    f"{clip:g}, a multiplier of {multiplier:g} and a shape from {shape.min(initial=np.inf):g} to "
                    f"{shape.max(initial=-np.inf):g}."
                )

    def get_config(self) -> dict[str, Any]:
        """As plain numbers and lists; exact."""
        return {
            "clip": self.clip,
            "shapes": [shape.tolist() for shape in self.shapes],
            "multiplier": self.multiplier,
            "damping": self.damping,
            "damping_decay": self.damping_decay,
            "noise_multiplier": self.noise_multiplier,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Scales:
        return cls(**config)


@dataclasses.dataclass(frozen=True, eq=False)
class ScaledClip(ClippingRule):
    """a = 0, b = mu C h; steps by W / (C h), damped.

    Attributes:
      scales: C, h, mu and D.
      precondition: whether the direction is g~ / h^2, up to a constant, and damped; otherwise it is g~ itself.
    """

    scales: Scales
    precondition: bool = True
    positive_state = ("shape", "clip", "multiplier")

    def __post_init__(self):
        if not isinstance(self.scales, Scales):
            raise ValueError(f"`scales` must be a `core.Scales`; got {type(self.scales).__name__}.")
        validate.fields(self, precondition=validate.boolean)

    @property
    def prior(self):
        noise = self.scales.noise_multiplier
        return None if noise is None else Prior(noise, self.scales.name)

    def initial_state(self, specs):
        """The scales, which never change and are saved with the weights that were trained by them; and p."""
        shapes = self.scales.shapes
        if len(shapes) != len(specs):
            raise ValueError(
                f"`scales` are of {len(shapes)} variables, and {len(specs)} are trained: fit them on this model, with "
                "the same layers frozen."
            )
        for shape, spec in zip(shapes, specs):
            wide = list(spec.shape)
            if len(shape.shape) != len(wide) or any(size not in (1, full) for size, full in zip(shape.shape, wide)):
                raise ValueError(
                    f"`scales` of {spec.name!r} have the shape {list(shape.shape)}, which does not fit a variable of "
                    f"shape {wide}: fit them on this model."
                )
        state = {
            "shape": [tf.constant(shape) for shape in shapes],
            "clip": tf.constant(self.scales.clip, tf.float32),
            "multiplier": tf.constant(self.scales.multiplier, tf.float32),
        }
        if self._damps:
            state["power"] = [tf.zeros(spec.shape) for spec in specs]
            state["unseen"] = tf.constant(1.0)  # the weight that a moving average still gives to its start
        return state

    @property
    def _damps(self) -> bool:
        return self.precondition and self.scales.damping is not None

    def transform(self, state, specs):
        size = state["clip"] * state["multiplier"]
        return Transform([tf.constant(0.0)] * len(specs), [size * shape for shape in state["shape"]])

    def direction(self, state, mean):
        if not self.precondition:
            return mean
        factor = tf.maximum(state["multiplier"], 1.0) / state["multiplier"]
        sizes = [state["clip"] * shape for shape in state["shape"]]
        directions = [factor * (g / size) / size for g, size in zip(mean, sizes)]
        if not self._damps:
            return directions
        seen = tf.maximum(1.0 - state["unseen"], 1e-6)
        powers = [tf.sqrt(power / seen) / self.scales.damping for power in state["power"]]
        return [direction / tf.maximum(power, 1.0) for direction, power in zip(directions, powers)]

    def next_state(self, state, published):
        """p, from W = B g~ / b over the noise z. Without noise there is nothing to be above of, and no damping."""
        if not self._damps:
            return state
        decay = self.scales.damping_decay
        noise = tf.cast(published.noise_multiplier, tf.float32)
        unit = tf.math.divide_no_nan(tf.cast(published.divisor, tf.float32), noise)
        ratios = [g / b * unit for g, b in zip(published.mean, published.transform.scale)]
        power = [decay * p + (1.0 - decay) * tf.square(ratio) for p, ratio in zip(state["power"], ratios)]
        return {**state, "power": power, "unseen": decay * state["unseen"]}

    def metrics(self, state):
        """`l2_norm_clip`, mu C, and the least and the largest h."""
        return {
            "l2_norm_clip": state["clip"] * state["multiplier"],
            "shape_min": tf.reduce_min([tf.reduce_min(shape) for shape in state["shape"]]),
            "shape_max": tf.reduce_max([tf.reduce_max(shape) for shape in state["shape"]]),
        }
