"""What an attacker sees of the runs, and what he makes of it.

Two views of every step, both of which the guarantee covers:

| view       | sees                                                   | W is known                                    |
|------------|--------------------------------------------------------|-----------------------------------------------|
| "gradient" | the noised mean that the optimizer hands to its update | exactly                                       |
| "weights"  | how far the weights moved                              | exactly for plain SGD; momentum, weight decay,|
|            |                                                        | Adam and other inner optimizers mix steps and |
|            |                                                        | change sizes: up to a factor, a weaker view   |

"gradient" is sharp for every optimizer, as inner optimizers get nothing else. "weights" is what is left if something
goes round it: a `train_step` or an update that uses more than the noised mean.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras
from adaclip_tf.auditing import scores
from adaclip_tf.auditing.gradients import CanaryGradients, Moves, products

VIEWS = ("gradient", "weights")


class Recorder(tf.keras.callbacks.Callback):
    """Every epoch of the `fit` is a run: it starts from the same weights, with noise of its own.

    Args:
      model: compiled and built, with a private optimizer.
      canaries: a structure of arrays, a row for each canary.
      gradients: of the model.
      probability: q.
    """

    def __init__(self, model: Any, canaries: Any, gradients: CanaryGradients, probability: float):
        super().__init__()
        self._optimizer, self._probability = model.optimizer, probability
        self._canaries = tf.nest.map_structure(tf.convert_to_tensor, canaries)
        self._variables = [keras.native(variable) for variable in model.trainable_variables]
        self._gradients = gradients
        self._is_plain = _is_plain(self._optimizer)
        self._published = [tf.Variable(tf.zeros(v.shape), trainable=False) for v in self._variables]
        _watch(self._optimizer, self._published)
        restored = [*model.variables, *self._optimizer.variables]
        self._start = [(keras.native(variable), keras.native(variable).numpy()) for variable in restored]
        self._scores: dict[str, list[np.ndarray]] = {view: [] for view in VIEWS}
        self.moves: Moves = self._gradients.moves(self._canaries)

    def scores(self) -> dict[str, np.ndarray]:
        """By view: one row for each run that was finished, with a score for each canary."""
        return {view: np.stack(rows) for view, rows in self._scores.items()}

    def on_epoch_begin(self, epoch, logs=None):
        """Winds back all but the noise, which never repeats itself."""
        del epoch, logs
        for variable, value in self._start:
            variable.assign(value)
        self._optimizer.drop_unfinished()
        for rows in self._scores.values():
            rows.append(np.zeros(len(self.moves.gram)))
        self._look()

    def on_train_batch_end(self, batch, logs=None):
        """Scores the canaries, if the batch completed a step."""
        del batch, logs
        if int(self._optimizer.noised_steps) == self._steps:
            return  # a part of a logical batch
        divisor = tf.constant(float(self._optimizer.expected_batch_size))
        rate = tf.cast(keras.last_learning_rate(self._optimizer), tf.float32)
        seen = {
            "gradient": [tf.convert_to_tensor(part) for part in self._published],
            "weights": [(before - variable) / rate for before, variable in zip(self._weights, self._variables)],
        }
        for view, change in seen.items():
            known = view == "gradient" or self._is_plain
            mean = self._undirected(change)
            if not known:  # how much of a is in there is not known either
                mean = [part + a for part, a in zip(mean, self.moves.center)]
            found = products(self.moves, mean, divisor).numpy().astype(np.float64)
            self._scores[view][-1] += self._score(view, found, known)
        self._look()

    def _look(self):
        """At what the coming step starts from."""
        self._steps = int(self._optimizer.noised_steps)
        self._weights = [tf.identity(variable) for variable in self._variables]
        self.moves = self._gradients.moves(self._canaries)

    def _undirected(self, direction):
        """g~ from the direction that a rule makes of it, coordinate by coordinate, with its state after the step."""
        step = self._optimizer.private_step
        factors = step.rule.direction(step.state(), [tf.ones(part.shape) for part in direction])
        return [part / factor for part, factor in zip(direction, factors)]

    def _score(self, view, seen, known):
        gram, noise = self.moves.gram.numpy().astype(np.float64), self._optimizer.noise_multiplier
        if view == "weights":
            size = np.sqrt(scores.relative_size(gram, seen, noise, self._probability))
            if not known:
                seen = seen / size if size else np.zeros_like(seen)
            else:
                noise = noise * max(size, 1.0)  # small steps are rounded away: that is noise, too
        return scores.log_ratio(scores.observe(gram, seen, noise, self._probability), self._probability)


def _is_plain(optimizer: Any) -> bool:
    """Whether a step moves weights by the learning rate times the gradient, and by nothing else."""
    config = optimizer.get_config()
    others = ("inner_optimizer", "momentum", "weight_decay", "use_ema")
    return not any(config.get(name) for name in others)


def _watch(optimizer: Any, published: list[tf.Variable]) -> None:
    """Keeps a copy of what `compute_gradients` returns. That is noised already, and all that an update is made of."""
    compute_gradients = optimizer.compute_gradients

    def compute_and_keep(loss, var_list, tape=None):
        pairs = compute_gradients(loss, var_list, tape)
        for kept, (gradient, _) in zip(published, pairs):
            kept.assign(tf.cast(gradient, kept.dtype))
        return pairs

    optimizer.compute_gradients = tf.autograph.experimental.do_not_convert(compute_and_keep)
