"""The paper: AdaCliP as pure functions, state in, (result, state) out. Start reading here.

Pichapati, Suresh, Yu, Reddi, Kumar, "AdaCliP: Adaptive Clipping for Private SGD", 2019
(arXiv 1908.07643), called "the paper" below.

Symbols, and the names they have in this file:

| symbol | name                  | meaning                                                         |
|--------|-----------------------|-----------------------------------------------------------------|
| g_k    | `records`             | gradient of microbatch k, flattened over ALL variables           |
| a      | `Transform.center`    | public vector that is subtracted                                 |
| b      | `Transform.scale`     | public vector that is divided by, b > 0                          |
| w_k    | `Transform.apply`     | (g_k - a) / b                                                    |
| c_k    | `clip_weights`        | 1 / max(1, norm of w_k)                                          |
| u_k    | `clip_records`        | c_k w_k, of norm at most 1                                       |
| z      | `noise_multiplier`    | standard deviation of the noise on the sum, whose sensitivity is 1 |
| B      | `divisor`             | expected number of records in a batch, a public constant         |
| W      | `add_noise`           | sum_k u_k + N(0, z^2 I)                                          |
| g~     | `Transform.invert`    | b W / B + a, the private mean gradient                           |
| m, s^2 | `Moments`             | running mean and variance of the gradient, learnt from g~ only   |

| module       | holds                                                                                          |
|--------------|------------------------------------------------------------------------------------------------|
| `framework`  | transform, clip, noise, un-transform, learn: section 4.1                                        |
| `clipping`   | the norm clip, by groups of variables, by coordinate                                            |
| `rules`      | the choices of (a, b): AdaCliP, Abadi et al., whitening, per layer, per coordinate              |
| `quantile`   | a clip that follows a quantile of the norms                                                     |
| `scales`     | scales that were learnt before training, and the rule that clips and steps by them              |
| `moments`    | how m and s^2 are learnt                                                                        |
| `noise`      | where N(0, 1) comes from; `box_muller` makes it of random bits                                  |

Needs TensorFlow alone; of the library it imports `_internal`.

A record is a list with one tensor per variable. Everywhere below, lists run over variables, and
`records` have one more leading axis that runs over the microbatches. All arithmetic is float32.

Formal guarantee. Let u_k be what `clip_records` returns. |u_k|_2 <= 1 (up to float32 rounding) for
every record whatever its values, and u_k depends on record k alone. So adding or removing one
record moves sum_k u_k by at most 1 in L2 norm, and `private_step`, which sees nothing of the data but
that sum with N(0, z^2 I) on top, is one Gaussian mechanism of noise multiplier z. Its results
(g~ and the next state) are post-processing.

Edge cases.

| input                                      | result                                                |
|--------------------------------------------|-------------------------------------------------------|
| no records (empty batch)                   | the sum is 0; noise is added and the state moves       |
| a record with NaN or infinity              | contributes exactly 0                                  |
| norm of w_k above sqrt(max) of float32, 1.8e19 | contributes exactly 0                                  |
| a zero gradient                            | w_k = -a / b, clipped like any other                   |
| every s at its floor                       | b > 0 still, since h1 > 0                              |
"""

from adaclip_tf.core.clipping import (
    NORM,
    Clip,
    CoordinateClip,
    NormClip,
    Tensors,
    clip_weights,
    squared_norms,
    weigh_records,
)
from adaclip_tf.core.framework import (
    Published,
    Transform,
    add_noise,
    clip_records,
    clipped_sum,
    private_step,
    published_details,
    published_metrics,
    published_step,
    statistics_sum,
)
from adaclip_tf.core.moments import MomentEstimator, Moments
from adaclip_tf.core.quantile import QuantileClip
from adaclip_tf.core.rules import (
    AdaClip,
    ClippingRule,
    FixedClip,
    PerCoordinateClip,
    PerLayerClip,
    Whitening,
    norm_bound,
)
from adaclip_tf.core.scales import ScaledClip, Scales

__all__ = [
    "NORM",
    "AdaClip",
    "Clip",
    "ClippingRule",
    "CoordinateClip",
    "FixedClip",
    "MomentEstimator",
    "Moments",
    "NormClip",
    "PerCoordinateClip",
    "PerLayerClip",
    "Published",
    "QuantileClip",
    "ScaledClip",
    "Scales",
    "Tensors",
    "Transform",
    "Whitening",
    "add_noise",
    "clip_records",
    "clip_weights",
    "clipped_sum",
    "norm_bound",
    "private_step",
    "published_details",
    "published_metrics",
    "published_step",
    "squared_norms",
    "statistics_sum",
    "weigh_records",
]
