"""Measures how far one example moves the clipped sum, and compares the sum with single-example gradients.

Only public names of the library are used, so that what is measured is what a user gets. Learning rates are B / C, so
that a step takes sum_k u_k itself off the weights. The reference is TensorFlow's GradientTape on batches of one,
clipped in NumPy; it shares no code with the library.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import gc

import numpy as np
import tensorflow as tf

import adaclip_tf
from adaclip_tf._internal import keras
from tests.attack.case import Case, Problem
from tests.attack.errors import in_words, summary, xla_cannot
from tests.attack.modes import EXPECTED_BATCH_SIZE, MODES, Mode, Stepper, dataset, num_examples, scaled, take

SLACK = 1e-4  # of the bound on an example's move


@dataclasses.dataclass
class Outcome:
    """What happened to a case in a mode."""

    kind: str  # "accepted", "refused", "crash" (an error not in the library's words), "n/a" (TensorFlow itself fails)
    message: str = ""
    move: float = 0.0  # the largest move of the sum, over the bound
    mismatch: float = 0.0  # |sum - reference| over the number of examples
    residue: float = 0.0  # how far an example changed what a step leaves behind besides the noised weights
    size: float = 0.0  # |sum| over the number of examples

    def __str__(self):
        if self.kind != "accepted":
            return f"{self.kind}: {self.message}"
        text = f"accepted: move {self.move:.4g}, mismatch {self.mismatch:.2g}"
        return text + (f", LEFT BEHIND {self.residue:.3g}" if self.residue else "")


def private_optimizer(mode: Mode, clip: float, num_weights: int):
    """The library's optimizer, without noise, with b = clip everywhere."""
    common = {
        "learning_rate": EXPECTED_BATCH_SIZE / clip,
        "noise_multiplier": 0.0,
        "expected_batch_size": EXPECTED_BATCH_SIZE,
        "gradient_path": mode.path,
    }
    if mode.adaptive:  # s = const and m = 0: b = s sqrt(d)
        std = clip / np.sqrt(num_weights)
        return adaclip_tf.DPAdaClipSGD(initial_std=std, h1=std**2 / 4, h2=4 * std**2, **common)
    if mode.wrapped:
        inner = tf.keras.optimizers.SGD(common.pop("learning_rate"))
        return adaclip_tf.DPFixedClip(inner, l2_norm_clip=clip, **common)
    return adaclip_tf.DPFixedClipSGD(l2_norm_clip=clip, **common)


def plain_optimizer(mode: Mode, clip: float, num_weights: int):
    """No protection at all. What TensorFlow can run, it can run with this one."""
    del mode, num_weights
    return tf.keras.optimizers.SGD(1 / clip)


def attack(
    case: Case, mode_name: str, *, sizes=(8,), removals=None, optimizer=private_optimizer, infinite=True
) -> Outcome:
    """Runs a case in a mode.

    Args:
      case: what to train.
      mode_name: one of `MODES`.
      sizes: the batch sizes.
      removals: how many examples of each batch are removed in turn, spread over it; None for all.
      optimizer: what is attacked, (mode, clip, number of weights) -> optimizer.
      infinite: whether an example with infinite features is tried as well.
    """
    mode = MODES[mode_name]
    if (mode.mirrored or mode.executions > 1 or mode.fit) and case.own_step_only:
        return Outcome("n/a", "a step of one's own has no `fit`")
    with _setting(case):
        problem, batches = _prepare(case, sizes)
        reference = Reference(problem, case)
        clips = [_clip(norms, case.clip) for norms in reference.norms(batches[0])]
        if mode.mirrored:  # the reference stays outside, where plain functions may call it
            weights = problem.model.get_weights()
            with _scope(mode):
                problem, batches = _prepare(case, sizes)
                problem.model.set_weights(weights)
        try:
            with _scope(mode):
                stepper = Stepper(problem, case, mode, optimizer, clips)
            return _measure(case, stepper, reference, clips, batches, removals, infinite)
        except Poisoned as poisoned:
            return Outcome("refused", str(poisoned))
        except Exception as error:
            if mode.jit and xla_cannot(error):
                return Outcome("n/a", summary(error))
            outcome = Outcome("refused" if in_words(error) else "crash", summary(error))
    why = _unrunnable(case, mode, sizes)
    return Outcome("n/a", why) if why else outcome


@contextlib.contextmanager
def _setting(case):
    tf.keras.backend.clear_session()
    gc.collect()
    gc.freeze()  # TensorFlow keeps graphs of the cases before: each collection would take longer than the last
    tf.keras.utils.set_random_seed(1)
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(case.policy)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)


@functools.lru_cache(maxsize=1)
def _strategy():
    return tf.distribute.MirroredStrategy(["CPU:0"])


def _scope(mode):
    return _strategy().scope() if mode.mirrored else contextlib.nullcontext()


def _prepare(case, sizes):
    """The problem, with a model that is built, and its batches."""
    problem = case.build()
    rng = np.random.default_rng(7)
    batches = [problem.data(rng, size) for size in sizes]
    if not problem.model.built:
        problem.model(batches[0][0])
    if not case.own_step_only:
        problem.model.compile(loss=problem.loss, **problem.compile)  # for loops that only use its loss
    return problem, batches


def _measure(case, stepper, reference, clips, batches, removals, infinite) -> Outcome:
    outcome = Outcome("accepted")
    if stepper.mode.jit and not any(np.any(total) for total in _run(stepper, batches[0])[0]):
        return Outcome("refused", "the result is poisoned: no example counts")  # those that were run alone
    for data in batches:
        _remove_in_turn(case, stepper, reference, clips, data, removals, outcome)
    if case.hostile and not case.random:
        loud = scaled(batches[0], 1, 1e3)
        # Saturated activations have gradients that are differences of large numbers: ten times the rounding.
        leniency = np.inf if case.saturates else 10.0
        _remove_in_turn(case, stepper, reference, clips, loud, 2, outcome, leniency=leniency)
    if case.hostile and case.infinite and not case.random and infinite:
        # One example whose gradient is no number must not spoil the others; what it adds itself is left open.
        broken = scaled(batches[0], 1, np.inf)
        _remove_in_turn(case, stepper, reference, clips, broken, 1, outcome, leniency=np.inf)
    return outcome


def _clip(norms, factor):
    known = norms[np.isfinite(norms) & (norms > 0)]
    return factor * float(np.median(known)) if len(known) else 0.1


def _remove_in_turn(case, stepper, reference, clips, data, removals, outcome, leniency=1.0):
    """Takes steps on the data and on the data without an example, and notes the worst."""
    size = num_examples(data)
    whole, kept = _run(stepper, data)
    outcome.size = max([outcome.size, *[np.linalg.norm(total) / size for total in whole]])
    if not case.random and case.fixed is None and np.isfinite(leniency):
        stepper.restore()
        expected = reference.clipped_sums(data, clips)
        outcome.mismatch = max([outcome.mismatch, *[_norm(t - e) / size / leniency for t, e in zip(whole, expected)]])
    # The second example is the one that a hostile batch scales; the first and the last are what others lean on.
    order = list(dict.fromkeys([1 % size, 0, size - 1, *range(size)]))
    for k in order[:removals]:
        rows = [row for row in range(size) if row != k]
        replaced = case.fixed is not None or (case.size_only and stepper.mode.knows_batch_size)
        if replaced:  # by its neighbour, twice the bound
            rows.insert(k, (k + 1) % size)
        bound = 2.0 if replaced else 1.0
        rest, left = _run(stepper, take(data, rows))
        if not case.random:
            outcome.move = max([outcome.move, *[_norm(t - r) / bound for t, r in zip(whole, rest)]])
        changed = [_norm((a - b).ravel()) if a.shape == b.shape else np.inf for a, b in zip(kept, left)]
        changed += [np.inf] * (len(kept) != len(left))
        outcome.residue = max([outcome.residue, *changed])


class Poisoned(Exception):
    """How a check speaks where XLA drops assertions: all weights are NaN."""


def _run(stepper, data):
    stepper.restore()
    total = stepper.total(data)
    if stepper.mode.jit and all(np.all(np.isnan(part)) for part in total):
        raise Poisoned("the result is poisoned: all weights are NaN")
    return total, stepper.left_behind()


def _norm(vector) -> float:
    """Its length; numbers that are not finite on one side only are infinitely far. Equal ones (NaN twice) are not."""
    norm = np.linalg.norm(vector)
    return float(norm) if np.isfinite(norm) else np.inf


class Reference:
    """Gradients of batches of one."""

    def __init__(self, problem: Problem, case: Case):
        self._problem, self._case = problem, case
        self._functions = None

    def gradients(self, data) -> list[np.ndarray]:
        """[examples, weights] of every player, float64."""
        singles = [dataset(self._problem, take(data, [k]), static=False) for k in range(num_examples(data))]
        if self._functions is None:
            spec = singles[0].element_spec
            self._functions = [
                tf.function(_gradient(loss_fn, self._problem.mean, variables), input_signature=[spec])
                for loss_fn, variables in self._problem.all_players()
            ]
        start = [(v, v.numpy()) for v in self._problem.model.non_trainable_variables]
        rows = []
        for batch in singles:
            rows.append([np.asarray(function(next(iter(batch))), np.float64) for function in self._functions])
            for variable, value in start:  # what the example wrote must not reach the next
                variable.assign(value)
            if self._problem.reset:
                self._problem.reset()
        return [np.stack(of_player) for of_player in zip(*rows)]

    def norms(self, data) -> list[np.ndarray]:
        if self._case.fixed is not None:  # can't run alone; a guess does
            return [np.ones(1) for _ in self._problem.all_players()]
        return [np.linalg.norm(gradients, axis=1) for gradients in self.gradients(data)]

    def clipped_sums(self, data, clips) -> list[np.ndarray]:
        """sum_k g_k / max(C, |g_k|). A weight per example counts after clipping if it is at most 1."""
        after = np.ones(num_examples(data))
        if self._problem.loss_fn is None and not self._problem.players and len(data) == 3 and _per_example(data[2]):
            small = data[2] <= 1.0
            after = np.where(small, data[2], 1.0).reshape(-1)
            data = (*data[:2], np.where(small, 1.0, data[2]).astype(data[2].dtype))
        sums = []
        for gradients, clip in zip(self.gradients(data), clips):
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
            sums.append((after[:, np.newaxis] * gradients / np.maximum(clip, norms)).sum(axis=0))
        return sums


def _per_example(weights) -> bool:
    """Whether the step sees one weight per example. Keras 2 makes a vector of a column, Keras 3 multiplies by it."""
    return weights.ndim == 1 or (weights.ndim == 2 and weights.shape[1] == 1 and keras.GENERATION == 2)


def _gradient(loss_fn, mean, variables):
    def gradient(batch):
        with tf.GradientTape() as tape:
            loss = tf.cast(loss_fn(batch), tf.float32)
            loss = mean(batch, loss) if mean else tf.reduce_mean(loss)
        native = [keras.native(variable) for variable in variables]  # zeros of Keras 3's own have no type
        gradients = tape.gradient(loss, native, unconnected_gradients="zero")
        return tf.concat([tf.reshape(tf.cast(tf.convert_to_tensor(g), tf.float32), [-1]) for g in gradients], 0)

    return gradient


def _unrunnable(case, mode, sizes) -> str:
    """Why TensorFlow can't run the case in this mode without the library either, or ""."""
    try:
        with _setting(case), _scope(mode):
            problem, batches = _prepare(case, sizes)
            clips = [1.0 for _ in problem.all_players()]
            Stepper(problem, case, mode, plain_optimizer, clips).total(batches[0])
    except Exception as error:
        return summary(error)
    return ""


def verdict(case: Case, mode_name: str, outcome: Outcome) -> str:
    """What is wrong with the outcome, or ""."""
    if outcome.kind == "n/a":
        return ""
    if outcome.kind == "crash":
        return f"failed, but not in words: {outcome.message}"
    if outcome.kind == "refused":
        if case.expect == "accepted" and MODES[mode_name].strict:
            return f"a right model was refused: {outcome.message}"
        return ""
    if not outcome.move <= 1 + SLACK:
        return f"one example moved the sum by {outcome.move:.4g} times the bound"
    if not outcome.size <= 1 + SLACK:
        return f"a sum of {outcome.size:.4g} per example"
    if outcome.residue:
        return f"an example left a trace of size {outcome.residue:.3g} besides the noised weights"
    # What is known to mix may be run alone. Where the batch size is fixed that is a batch of copies, on which a model
    # may do other things than on a batch of one; then the moves alone count.
    mode = MODES[mode_name]
    compared = case.expect == "accepted" or not (mode.fixes_batch_size or (case.size_only and mode.knows_batch_size))
    if compared and not outcome.mismatch <= case.tolerance:
        return f"not the sum of clipped single-example gradients: {outcome.mismatch:.3g} off per example"
    return ""
