"""Scales of gradients, asked of the data before training: what makes private training need no tuning.

| module           | holds                                                                   |
|------------------|-------------------------------------------------------------------------|
| `private_scales` | `PrivateScales`: the warm-up, its event, saving. Start here             |
| `method`         | the constants of the method and the formulas around them, all in one place |
| `queries`        | what is asked of the data: counts and sums of row norms, without noise yet |
| `estimate`       | from noised answers to scales: post-processing                          |
| `rows`           | which coordinates of a variable share a scale                           |

May import `core`, `gradients`, `optimizers`, `data`, `privacy` and `_internal`.
"""
