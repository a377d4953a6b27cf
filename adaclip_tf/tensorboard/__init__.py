"""Watching private training in TensorBoard: noise, epsilon, the learnt scales.

| module        | holds                                              |
|---------------|----------------------------------------------------|
| `callback`    | `PrivacyTensorBoard`, the Keras callback            |
| `arguments`   | its arguments, checked                              |
| `summaries`   | what it writes, tag by tag                          |
| `hparams`     | the HPARAMS tab                                     |
| `names`       | names of variables that runs have in common         |
| `by_epsilon`  | metrics against epsilon, of this run and its neighbours |
| `figures`     | the pictures                                        |
| `event_files` | one writer for each run (folder)                    |
| `protos`      | the package `tensorboard`, or how to get it         |

May import `privacy` and `_internal`. Nothing of the library imports it.
"""

from adaclip_tf.tensorboard.callback import PrivacyTensorBoard

__all__ = ["PrivacyTensorBoard"]
