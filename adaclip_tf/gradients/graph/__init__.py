"""Questions about TensorFlow's graphs, asked in one place. Knows nothing of examples, labels or gradients.

| question                         | module  | for instance                                            |
|----------------------------------|---------|---------------------------------------------------------|
| what does this type of op do?    | `ops`   | `ENTRYWISE`, `RANDOM`, `READS`, `CALLS`, `may_write`      |
| what is computed from what?      | `reach` | `ancestors`, `in_order`, `behind`, `bodies`              |
| what is known before the run?    | `known` | `constant`, `axes`, `shape_of_shape`, `reduced_axes`      |
| what is this a sum of?           | `contributions` | `contributions`                                  |
| do these compute the same?       | `alike` | `fingerprint`                                           |
| what must a run establish?       | `extents` | `Fact`, `poison`                                        |
"""

# ruff: noqa: F401  (to hand these on is what this file is for)
from adaclip_tf.gradients.graph.alike import fingerprint
from adaclip_tf.gradients.graph.contributions import contributions
from adaclip_tf.gradients.graph.extents import Fact, poison
from adaclip_tf.gradients.graph.known import (
    axes,
    batch_operands,
    constant,
    describe,
    dimensions,
    einsum_letters,
    given_own_shape,
    is_zero,
    reduced_axes,
    reshaped_from,
    shape_of_shape,
    size,
    with_ones,
)
from adaclip_tf.gradients.graph.ops import (
    BATCH_NORM_GRADIENTS,
    BATCH_NORMS,
    BATCH_PRODUCTS,
    CALLS,
    COLLECTIVE,
    DRAWS,
    DRAWS_FROM_A_KEY,
    DRAWS_OF_A_STATE,
    ENTRYWISE,
    HARMLESS,
    LINEAR_MAPS,
    OLD_LOOPS,
    PYTHON,
    RANDOM,
    READS,
    SAME_ORDER,
    SHAPES,
    UNCHANGED,
    has_effects,
    has_functions,
    is_stateful,
    may_remember,
    may_write,
    rounds,
)
from adaclip_tf.gradients.graph.reach import ancestors, behind, bodies, called, in_order, inside, is_used, returns
