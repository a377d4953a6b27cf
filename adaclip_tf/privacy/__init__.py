"""What training costs: from a mechanism to epsilon, and who keeps count. `python -m adaclip_tf.privacy` is its command.

| module                                | holds                                                                  |
|---------------------------------------|------------------------------------------------------------------------|
| `mechanism`                           | n, B, sampling, sensitivity as one frozen value                        |
| `accounting`                          | events and `epsilon`                                                   |
| `calibration`                         | `noise_multiplier`, `split_budget`: the least noise for an epsilon     |
| `curve`                               | epsilon after every step of a run                                      |
| `statement`                           | `privacy_statement`: what is promised, in words and numbers            |
| `ledger`, `session`, `event_json`     | what was spent in all phases, on disk                                  |
| `budget`, `account`, `run_checks`, `fit_data` | `PrivacyBudget`, the Keras callback, and what it asks of a run |
| `auditing`                            | lower bounds on epsilon from attacks                                   |
| `__main__`                            | the command line                                                       |

May import `_internal`. Only `budget` and what it uses know Keras.
"""
