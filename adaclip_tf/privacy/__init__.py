"""What training costs: from a mechanism to epsilon, and who keeps count. `python -m adaclip_tf.privacy` is its command.

| module                             | holds                                                                          |
|------------------------------------|--------------------------------------------------------------------------------|
| `mechanism`                        | n, B, z, sampling, sensitivity as one frozen value: what all others take       |
| `events`                           | which dp_accounting event a training is, and what is proven for it             |
| `accountants`                      | the registry: RDP, PLD, and any other, by one small class each                 |
| `epsilon`, `group`                 | from an event to epsilon; for users who have several examples                  |
| `calibration`                      | `noise_multiplier`, `split_budget`: the least noise for an epsilon             |
| `curve`                            | epsilon after every step of a run                                              |
| `statement`                        | `privacy_statement`: what is promised, in words and numbers                    |
| `private_optimizer`, `past_steps`  | what is asked of an optimizer, of whatever class                               |
| `drawn`                            | the note on batches that says how they were drawn                              |
| `meter`, `claims`                  | `PrivacyMeter`: what an optimizer's steps cost; what is refused as false       |
| `ledger`, `session`, `event_json`  | what was spent in all phases, on disk                                          |
| `account`, `horizon`               | a meter with its ledger; how far a run may go                                  |
| `budget`, `run_checks`, `fit_data` | `PrivacyBudget`, the Keras callback, and what it asks of the `fit` around it   |
| `auditing`, `dependent_trials`     | lower bounds on epsilon from attacks                                           |
| `__main__`                         | the command line                                                               |

An epsilon question goes from top to bottom: a mechanism makes an event, an accountant judges it.

May import `_internal`. Only the last line of modules before `auditing` (`budget`, `run_checks`, `fit_data`) knows
TensorFlow and Keras; all others work without. `tests/project/rooms_test.py` sees to it.
"""
