"""Reads per-example gradient norms off the backward graph, without per-example gradients.

AdaCliP needs two things of the gradients g_k of the microbatches: |(g_k - a) / b|, and sum_k c_k g_k. For y = x W both
follow from x and dy, which the ordinary backward pass computes anyway. `analyse` finds x and dy in the graph.

Why it is exact. The backward pass is a linear function of the seed, the vector that says how much each example's
loss counts; microbatch k's gradient is its value at the seed that is 0 outside microbatch k. A tensor of the
backward pass has the label `Lead` if its rows, in memory order, fall into n equal chunks and chunk k depends,
linearly, on the seeds of microbatch k only. The seed itself is `Lead`. `flow` has a table of op types that says when an
op's output is `Lead` given that its seed-dependent inputs are; what the graph does not settle becomes a run-time
check, and an op that is not in the table ends the trail. `rules` has a registry of the ops that produce the gradient of
a variable, say G = sum_r x_r dy_r^T, from a `Lead` tensor dy and a tensor x that does not depend on the seed. With the
seed of microbatch k, the rows of dy outside chunk k are 0: so the sum over chunk k IS microbatch k's gradient,
whatever x holds and whatever the layer is called.

A variable that is used several times has a sum of such gradients (`several`); of one that is made into something else,
a kernel times a mask say, they go through a linear map (`maps`).

So a handle is exact or does not exist. `Plan.unrecognised` says why for each variable without one: an op without an
entry or a rule, control flow, gradients that cross between examples.

This proves that no gradient flows from one example's loss to another one's activations. It says nothing about
values that cross over without a gradient (batch statistics under `tf.stop_gradient`, say): the records are
then still the gradients that TensorFlow computes, but each depends on the whole batch.

| module         | holds                                                                       |
|----------------|-----------------------------------------------------------------------------|
| `labels`       | the labels, the run-time checks                                              |
| `flow`         | the walk over the graph; the table: elementwise ops                          |
| `flow_shapes`  | the table: ops that change the shape                                         |
| `flow_linear`  | the table: reductions, products, convolutions, pooling, normalisation        |
| `flow_lists`   | the table: loops, lists of tensors                                           |
| `rules`        | the registry, rules for dense layers, biases, scales, einsums                |
| `convolutions` | rules for kernels                                                            |
| `embeddings`, `places` | the rule for gathered tables, rows that are looked up more than once |
| `terms`        | the arithmetic of norms and weighted sums                                    |
| `cancelling`   | what is added up in one example's gradient, for rounding                     |
| `inverses`     | 1 / b and 1 / b^2, made once                                                  |
| `keeping`      | the branch that spares weighted sums a pass                                  |
| `single`       | norms of single outer products                                               |
| `outer_product`, `products` | terms of one outer product, and of sums of them                 |
| `transposed`   | terms whose axes are moved                                                   |
| `placing`      | where the gradients of a variable's parts lie                                |
| `several`      | variables that are used more than once                                       |
| `maps`         | variables that are made into something else before they are used             |
| `slices`       | work in slices of examples, within a memory budget                           |
| `plan`         | `analyse`, `Plan`, `Handle`                                                  |
"""

from adaclip_tf.gradients.ghost import (  # noqa: F401 (they fill the tables)
    convolutions,
    embeddings,
    flow_linear,
    flow_lists,
    flow_shapes,
)
from adaclip_tf.gradients.ghost.plan import Handle, Plan, analyse, keep_together
from adaclip_tf.gradients.ghost.terms import SquaredNorms

__all__ = ["Handle", "Plan", "SquaredNorms", "analyse", "keep_together"]
