"""The ways to run one training step that every case is tried in."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras
from tests.attack.case import Case, Problem, minimize

EXPECTED_BATCH_SIZE = 8  # of every optimizer, whatever the batch


@dataclasses.dataclass(frozen=True)
class Mode:
    """How the step is run."""

    name: str
    strict: bool = True  # whether a right model must be accepted
    static: bool = False  # the batch size is known when the step is traced
    eager: bool = False
    jit: bool = False
    own_loop: bool = False  # `minimize` in a function of one's own instead of `fit`
    fit: bool = False  # `model.fit` on arrays
    mirrored: bool = False
    executions: int = 1  # `steps_per_execution`
    path: str = "auto"
    adaptive: bool = False  # DPAdaClipSGD
    wrapped: bool = False  # DPFixedClip around Keras's SGD

    @property
    def fixes_batch_size(self) -> bool:
        """Whether a step is traced for one batch size."""
        return self.static or self.fit

    @property
    def knows_batch_size(self) -> bool:
        """Whether the model sees the batch size as a number when it is run."""
        return self.fixes_batch_size or self.eager


MODES = {
    mode.name: mode
    for mode in (
        Mode("graph"),
        Mode("static", static=True),
        Mode("eager", eager=True, strict=False),
        Mode("jit", jit=True),
        Mode("jit_static", jit=True, static=True),
        Mode("jacobian", path="jacobian"),
        Mode("jacobian_static", path="jacobian", static=True),
        Mode("jacobian_jit", path="jacobian", jit=True),
        Mode("loop", own_loop=True),
        Mode("loop_static", own_loop=True, static=True),
        Mode("loop_eager", own_loop=True, eager=True, strict=False),
        Mode("fit", fit=True),
        Mode("mirrored", mirrored=True),
        Mode("executions", executions=2),
        Mode("adaclip", adaptive=True),
        Mode("wrapped", wrapped=True),
    )
}


MAIN_MODES = ("graph", "static", "eager", "jit", "jacobian")  # of every case; the others of some


def dataset(problem: Problem, data, static: bool):
    """All the data as one batch, whose size is known to TensorFlow or not."""
    size = num_examples(data)
    batches = tf.data.Dataset.from_tensor_slices(data).batch(size, drop_remainder=static)
    return batches.map(problem.derive) if problem.derive else batches


def num_examples(data) -> int:
    leaf = tf.nest.flatten(data)[0]
    return int(leaf.shape[0])


def take(data, rows):
    """The rows of a structure of arrays, ragged and sparse tensors."""
    return tf.nest.map_structure(lambda leaf: _take(leaf, rows), data)


def _take(leaf, rows):
    if isinstance(leaf, tf.RaggedTensor):
        return tf.gather(leaf, rows)
    if isinstance(leaf, tf.SparseTensor):
        dense = tf.sparse.to_dense(leaf).numpy()[rows]
        return tf.sparse.from_dense(dense)
    return leaf[rows]


def scaled(data, row, factor):
    """The data with one example's real features multiplied; labels stay."""

    def scale(leaf):
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f":
            leaf = leaf.copy()
            leaf[row] *= factor
        return leaf

    return (tf.nest.map_structure(scale, data[0]), *data[1:])


class Stepper:
    """Takes one training step from the same start, as often as asked, and says how far the weights went."""

    def __init__(self, problem: Problem, case: Case, mode: Mode, make_optimizer, clips):
        self.problem, self.mode = problem, mode
        self._players = problem.all_players()
        self._variables = [list(variables) for _, variables in self._players]
        self._optimizers = [
            make_optimizer(mode, clip, sum(int(np.prod(v.shape)) for v in variables))
            for clip, variables in zip(clips, self._variables)
        ]
        self._own = mode.own_loop or case.own_step_only
        self._built = False
        self._steps = {}  # traced steps, by batch size where it is static
        self._start = [(variable, variable.numpy()) for variable in self._restored()]
        if not self._own:
            (optimizer,) = self._optimizers
            problem.model.compile(
                optimizer,
                problem.loss,
                run_eagerly=mode.eager,
                jit_compile=mode.jit,
                steps_per_execution=mode.executions,
                **problem.compile,
            )

    def _restored(self):
        unique = {}
        for variable in [*self.problem.model.variables, *[v for group in self._variables for v in group]]:
            unique[id(keras.native(variable))] = variable
        return list(unique.values())

    def total(self, data) -> list[np.ndarray]:
        """sum_k u_k of every player, flat: learning rates are such that it is what the step takes off the weights."""
        before = [np.concatenate([v.numpy().ravel() for v in group]).astype(np.float64) for group in self._variables]
        self._step(data)
        after = [np.concatenate([v.numpy().ravel() for v in group]).astype(np.float64) for group in self._variables]
        return [b - a for b, a in zip(before, after)]

    def left_behind(self) -> list[np.ndarray]:
        """What the last step may have written elsewhere."""
        trained = {id(keras.native(variable)) for group in self._variables for variable in group}
        kept = [keras.native(variable) for variable in self.problem.model.non_trainable_variables]
        kept = [
            variable for variable in kept if id(variable) not in trained and tf.as_dtype(variable.dtype).is_floating
        ]
        more = self.problem.memory() if self.problem.memory else []
        return [np.asarray(v, np.float64) for v in [*kept, *more]]

    def restore(self):
        for variable, value in self._start:
            variable.assign(value)
        if self.problem.reset:
            self.problem.reset()

    def _step(self, data):
        if not self._built:
            self._build_optimizers()
        if self.mode.fit and not self._own:
            self._fit(data)
            return
        batches = dataset(self.problem, data, self.mode.static)
        key = num_examples(data) if self.mode.static else None
        if key not in self._steps:
            self._steps[key] = self._make_step(batches.element_spec)
        if self._own:
            self._steps[key](next(iter(batches)))
        elif self.mode.mirrored or self.mode.executions > 1:
            self.problem.model.fit(batches, verbose=0)
        else:
            self._steps[key](iter(batches))

    def _build_optimizers(self):
        """Early, so that their state can be set back; short of the integers, which count steps and draws."""
        self._built = True
        for optimizer, variables in zip(self._optimizers, self._variables):
            optimizer.build(variables)
            state = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
            self._start += [
                (variable, variable.numpy()) for variable in state if tf.as_dtype(variable.dtype).is_floating
            ]

    def _fit(self, data):
        x, y, weights = (*data, None)[:3]
        size = num_examples(data)
        if size not in self._steps:
            self.problem.model.make_train_function(force=True)
            self._steps[size] = True
        if self.problem.derive or not isinstance(tf.nest.flatten(x)[0], np.ndarray):
            self.problem.model.fit(dataset(self.problem, data, static=True), verbose=0)
        else:
            self.problem.model.fit(x, y, sample_weight=weights, batch_size=size, shuffle=False, verbose=0)

    def _make_step(self, spec):
        if not self._own:
            self.problem.model.make_train_function(force=True)
            return self.problem.model.train_function

        def step(batch):
            # All losses first: a player's second half of the step must not see what the first wrote.
            tapes, losses = [], []
            for loss_fn, _ in self._players:
                with tf.GradientTape() as tape:
                    losses.append(loss_fn(batch))
                tapes.append(tape)
            for optimizer, loss, variables, tape in zip(self._optimizers, losses, self._variables, tapes):
                minimize(optimizer, loss, variables, tape)

        if self.mode.eager:
            return step
        return tf.function(step, input_signature=[spec], jit_compile=self.mode.jit or None)
