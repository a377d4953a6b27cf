"""Proves, from the graph of a training step, that examples stay apart.

Why. Clipping bounds what one example adds to the sum, so the sum's sensitivity is 1 only if an example changes its own
gradient and nobody else's. `prove` shows that entry k of the loss depends on the data of example k only (and on public
things: variables, constants, random numbers), and that the gradient of each variable is a sum of one term per example
that depends on that example only. It looks at every op on the way, forwards and backwards: a table says which op types
are known to keep examples apart, and when. What is not in the table is not proven. A list of offenders is no proof.

| result                       | what follows                                                                        |
|------------------------------|-------------------------------------------------------------------------------------|
| proven                       | the ghost rules may be used                                                         |
| not known                    | every example is run by itself (`gradients.isolated`), safe for any function of one |
| known to mix examples        | refused, with the op's name                                                         |
| loss has no row per example  | refused                                                                             |
| keeps something of the batch | refused (`memory`)                                                                  |

| module         | holds                                                                 |
|----------------|-----------------------------------------------------------------------|
| `labels`       | what may be known of a tensor, run-time checks                        |
| `symbols`      | integers, as multiples of the number of examples                      |
| `sizes`        | integers that a graph computes from shapes                            |
| `sources`      | where data enters, how one example is cut out of it                   |
| `elements`     | what hands out elements of a dataset                                  |
| `walk`         | the walk over the graph                                               |
| `extents`      | labels of shapes, and of what is computed from them                   |
| `table`        | what is known of each type of op: filled by the next ones              |
| `elementwise`, `shapes`, `parts`, `contractions`, `reductions`, `calls`, `lists` | the table |
| `texts`        | texts that are split into words and padded to a length                |
| `publics`      | the table for what no data goes into                                  |
| `counted`      | the table for public arrays that are as long as the batch             |
| `memory`       | what a step keeps                                                     |
| `moved`        | whole numbers that are others in every step, which seeds must be      |
| `metrics`      | which variables are those of Keras metrics                            |
| `callers`      | what is done to data, and decided by it, around the step's function   |
| `numbers`      | single numbers that a step is given from further out                   |
| `captured`     | public arrays, as long as the batch, from further out                  |
| `mapped`       | what a dataset does to batches before a step gets them                |
| `repeated`     | public arrays with a part for each example; maps of sums              |
| `strided`      | what a strided slice does to each axis                                |
| `seeds`        | random numbers that somebody may know                                 |
| `verdict`      | `prove`, and the words of its errors                                  |
"""

from adaclip_tf.gradients.proof import (  # noqa: F401 (they fill the tables)
    calls,
    contractions,
    counted,
    elementwise,
    lists,
    parts,
    publics,
    reductions,
    shapes,
    texts,
)
from adaclip_tf.gradients.proof.callers import follow
from adaclip_tf.gradients.proof.captured import has_examples
from adaclip_tf.gradients.proof.elements import hands_out_examples
from adaclip_tf.gradients.proof.labels import Public
from adaclip_tf.gradients.proof.memory import exempt, privatised
from adaclip_tf.gradients.proof.parts import whole_slice
from adaclip_tf.gradients.proof.reductions import changes_nothing, reduced_axes
from adaclip_tf.gradients.proof.sources import Piece
from adaclip_tf.gradients.proof.verdict import Proof, prove
from adaclip_tf.gradients.proof.walk import Walk

__all__ = [
    "Piece",
    "Proof",
    "Public",
    "Walk",
    "changes_nothing",
    "exempt",
    "follow",
    "hands_out_examples",
    "has_examples",
    "privatised",
    "prove",
    "reduced_axes",
    "whole_slice",
]
