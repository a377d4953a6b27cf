"""From a per-example loss to the clipped sum of its gradients. Start with `paths`.

| module     | holds                                                                             |
|------------|-----------------------------------------------------------------------------------|
| `paths`    | `clipped_sum`: which way each variable takes                                       |
| `row_norms` | `clipped_row_norms`: sums of the norms of rows, for `scales`                      |
| `proof/`   | that example k's loss and gradient depend on example k alone, or why not           |
| `ghost/`   | norms and weighted sums read off the backward pass of the whole batch              |
| `isolated` | every microbatch run by itself: right for any function of one example              |
| `spelled_out` | a backward pass without calls, and without sums inside of loops                |
| `gathers`  | the gradient of a gather within each example, as a product                         |
| `graph/`   | questions about TensorFlow's graphs, which all of these ask there                   |
| `reduced`  | from the mean over a batch back to the loss of each example                        |
| `divisors` | what a sum over the batch was divided by: is it a mean?                              |
| `weighted` | weights of examples, which clipping does not undo                                  |
| `backward` | one backward pass, and what it was made from                                       |

May import `core` and `_internal`. Knows TensorFlow's graphs and no Keras.
"""

from adaclip_tf.gradients.ghost.inverses import know_reciprocals
from adaclip_tf.gradients.paths import MUST_DIVIDE, PATHS, ClippedSum, clipped_sum
from adaclip_tf.gradients.reduced import per_example
from adaclip_tf.gradients.row_norms import ClippedRowNorms, clipped_row_norms

__all__ = [
    "MUST_DIVIDE",
    "PATHS",
    "ClippedRowNorms",
    "ClippedSum",
    "clipped_row_norms",
    "clipped_sum",
    "know_reciprocals",
    "per_example",
]
