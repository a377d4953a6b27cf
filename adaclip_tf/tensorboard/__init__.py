"""Watching private training in TensorBoard: noise, epsilon, the learnt scales.

| module        | holds                                              |
|---------------|----------------------------------------------------|
| `callback`    | `PrivacyTensorBoard`, the Keras callback            |
| `summaries`   | what it writes, tag by tag                          |
| `figures`     | the pictures                                        |
| `event_files` | event files of earlier runs, read when one resumes  |

May import `optimizers`, `privacy`, `_internal`. Nothing of the library imports it.
"""

from adaclip_tf.tensorboard.callback import PrivacyTensorBoard

__all__ = ["PrivacyTensorBoard"]
