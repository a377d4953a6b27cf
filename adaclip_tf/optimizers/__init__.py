"""Keras optimizers whose every step is private.

| module                           | holds                                                              |
|----------------------------------|--------------------------------------------------------------------|
| `step`                           | the private step in named phases, which knows no Keras             |
| `settings`, `rule_state`, `past` | what a step is told, what it learns, what it notes for accountants |
| `unnoised`                       | what is remembered before noise is added, and saved nowhere        |
| `replicas`                       | several devices: noise in shares                                   |
| `dp_optimizer`                   | `DPOptimizer`, for any clipping rule                               |
| `shell`                          | what it is to Keras: variables that are saved, an update           |
| `handed_over`                    | losses that Keras 3's training step hands over                     |
| `tags`, `traced`, `checks`       | its helpers                                                        |
| `adaclip`, `fixed_clip`          | the paper's optimizer, and DP-SGD                                  |
| `wrapping`, `adaclip_any`,       | the same around any optimizer of Keras                             |
| `fixed_clip_any`                 |                                                                    |
| `whitening`, `per_layer_clip`,   | optimizers to compare with                                         |
| `per_coordinate_clip`,           |                                                                    |
| `quantile_clip`                  |                                                                    |
| `check_model`, `fix_model`       | names layers that will be refused, before training; replaces them  |

May import `core`, `gradients`, `privacy`, `_internal`.
"""
