"""An audit of the user's own model: `adaclip_tf.audit` attacks real training runs. `python -m adaclip_tf.auditing` too.

| module      | holds                                                                                        |
|-------------|----------------------------------------------------------------------------------------------|
| `audit`     | the call: checks, and the runs                                                               |
| `canaries`  | examples that are easy to find: made of rows, or of what the model takes, and chosen         |
| `recording` | the callback that starts every run anew and keeps what an attacker sees of every step        |
| `gradients` | what a canary adds to the sum, u_k, at the weights of the moment                             |
| `scores`    | from what was seen to how likely each canary was in the data. NumPy alone                     |
| `guessing`  | from scores to guesses, from right guesses to bounds                                         |
| `result`    | `AuditResult`: the bound beside the claim, in numbers and in words                            |
| `__main__`  | the command line                                                                             |

The bounds are `privacy.auditing` and `privacy.dependent_trials`.

May import `core`, `optimizers`, `data`, `privacy` and `_internal`. Nothing imports it.
"""
