"""`audit`: attacks real training runs of the user's own model, and sets what it proves beside what is claimed.

The attacker is the one whom the guarantee is about. He knows the model, the settings and all data but for the coins:
each canary, an example that he made up, is in the data or not by a fair coin of its own. He sees all that every step
releases, and guesses the coins. An (epsilon, delta) guarantee bounds how often he can be right.

The data of a run is the canaries whose coins say so, and nothing else. The guarantee is for any data set, so for this
one too, and it is the one in which a canary is easiest to find: no other example hides it. A batch is drawn by
`poisson_batches` from n rows, of which the canaries are some; the others are blank. So each canary is in each batch
with probability q = B / n, as in training on n examples.

What is read in here without noise is gradients of canaries. They are nobody's data, unless they are made of rows of
somebody's data: then models, results and canaries of the audit must stay where the data is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from adaclip_tf._internal import keras, signatures, validate
from adaclip_tf.auditing import canaries as making
from adaclip_tf.auditing.gradients import CanaryGradients
from adaclip_tf.auditing.guessing import Guesser
from adaclip_tf.auditing.recording import Recorder
from adaclip_tf.auditing.result import AuditResult
from adaclip_tf.data import sampling
from adaclip_tf.optimizers.dp_optimizer import DPOptimizer
from adaclip_tf.privacy import accountants, auditing
from adaclip_tf.privacy.epsilon import check_delta, epsilon_of_run
from adaclip_tf.privacy.mechanism import Mechanism

_TRIALS = 1000  # canaries of all runs together, by default
_CANARIES = 64  # of one run, by default and at most
_COORDINATES = 4  # of the model for each canary: so many directions are there to be found in
_NUMBERS = 5 * 10**7  # that all canaries' gradients may have: 200 MB


@signatures.other_names(
    batch_size="it is the optimizer's `expected_batch_size`",
    noise_multiplier="it is the optimizer's",
    epochs="give `steps`: epochs times n / B",
    epsilon="it is computed from the optimizer's noise, `num_examples` and `steps`",
    model="give `make_model`, a function that returns the compiled model",
)
def audit(
    make_model: Callable[[], Any],
    data: Any,
    *,
    steps: int = 4,
    num_examples: int | None = None,
    runs: int | None = None,
    canaries: int | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    accountant: str = "pld",
    seed: int | None = None,
    verbose: bool = True,
) -> AuditResult:
    """Attacks training runs of a model, and compares the epsilon that this proves with the one that is claimed.

    Example:
      >>> def make_model():
      ...     model = tf.keras.Sequential([tf.keras.Input([20]), tf.keras.layers.Dense(5)])
      ...     model.compile(DPAdaClipSGD(noise_multiplier=1.0, expected_batch_size=100), loss="mse")
      ...     return model
      >>> result = audit(make_model, 100, steps=4)             # doctest: +SKIP
      >>> result.lower_bound <= result.claimed                 # doctest: +SKIP
      True

    The model that `make_model` returns is trained and thrown away. With a number of examples instead of data,
    no real data is used: that is the right way if your data is private. Fewer steps and a larger share of the data in
    each batch let an attack see more (docs/guides/auditing.md).

    Args:
      make_model: a function without arguments that returns a new model, compiled with a private optimizer of this
        library that has an `expected_batch_size`, B.
      data: n, the number of examples that is claimed for: canaries are then random numbers in the model's shapes. Or
        rows `(x, y)`, as for `poisson_batches`, from which canaries are made (labels exchanged, features ten times as
        large): for models whose inputs are not just numbers. These rows are trained on, and the result depends on
        them without noise: give made-up or public rows, or keep all of it where you keep the data.
      steps: T, noised steps of every run.
      num_examples: n, where `data` are rows; None for their number.
      runs: how often training is started again; None for about a thousand canaries in all.
      canaries: in each run; None for 64, or fewer where the model has few weights.
      delta: for which epsilon is reported.
      confidence: of the bound.
      accountant: of the claim.
      seed: for tests only: of canaries, coins and batches, not of the optimizer's noise.
      verbose: prints the result.

    Returns:
      An `AuditResult`. `lower_bound` above `claimed` means that something is wrong; below it, nothing is proven.
    """
    steps = validate.positive_integer("steps", steps)
    auditing.check_confidence(confidence)
    accountants.named(accountant)
    validate.boolean("verbose", verbose)
    generator = np.random.default_rng(validate.seed("seed", seed))
    model = _made(make_model)
    rows, n = _rows_of(data, num_examples)
    check_delta(delta, n)
    mechanism = Mechanism(model.optimizer.noise_multiplier, n, _batch_size(model.optimizer, n))
    number, runs = _how_many(model, n, canaries, runs)
    candidates = _candidates(model, rows, number, generator)
    gradients = _gradients_of(model, candidates)
    chosen = _chosen(gradients, candidates, number)
    coins = generator.random((runs, number)) < 0.5
    recorder = Recorder(model, chosen, gradients, mechanism.batch_size / n)
    scores = _attack(model, recorder, chosen, coins, mechanism, steps, seed)
    guesser = Guesser(mechanism, steps, coins.size, float(delta), float(confidence))
    views = {view: guesser.proven(found, coins) for view, found in scores.items()}
    result = AuditResult(
        lower_bound=max(proven.best for proven in views.values()),
        claimed=epsilon_of_run(mechanism, delta=delta, steps=steps, accountant=accountant),
        confidence=float(confidence),
        delta=float(delta),
        accountant=accountant,
        noise_multiplier=mechanism.noise_multiplier,
        num_examples=n,
        batch_size=mechanism.batch_size,
        steps=steps,
        runs=runs,
        canaries=number,
        most_provable=guesser.most_provable,
        views=views,
    )
    if verbose:
        print(result)
    return result


# ---------------------------------------------------------------------------------------------------
# What is audited.


def _made(make_model: Any) -> Any:
    if not callable(make_model) or isinstance(make_model, tf.keras.Model):
        raise ValueError(
            "`make_model` must be a function that returns a new compiled model, such as `lambda: build_and_compile()`: "
            f"an audit trains it and throws it away; got {type(make_model).__name__}."
        )
    model = make_model()
    if not isinstance(model, tf.keras.Model):
        raise ValueError(f"`make_model` must return a compiled Keras model; it returned a {type(model).__name__}.")
    optimizer = getattr(model, "optimizer", None)
    if not isinstance(optimizer, DPOptimizer):
        raise ValueError(
            "`make_model` must return a model that is compiled with a private optimizer of this library, such as "
            f"`DPAdaClipSGD`; its optimizer is {'missing' if optimizer is None else type(optimizer).__name__}."
        )
    if optimizer.noise_multiplier == 0.0:
        raise ValueError("The optimizer has `noise_multiplier=0`: epsilon is infinite, and no attack can refute that.")
    if optimizer.private_step.built and optimizer.past_steps().steps:
        raise ValueError("`make_model` must return a new model; this one has taken steps already.")
    if model.distribute_strategy.num_replicas_in_sync > 1:
        raise ValueError("Audit the model without a strategy of several replicas: the noise is the same in total.")
    if keras.steps_per_execution(model) != 1:
        raise ValueError("Compile the model with `steps_per_execution=1`: the attacker looks at every step.")
    return model


def _batch_size(optimizer: DPOptimizer, n: int) -> int:
    size = optimizer.expected_batch_size
    if size is None or optimizer.microbatch_sensitivity != 1.0:
        raise ValueError(
            "An audit is of Poisson batches with a gradient for each example: give the optimizer "
            "`expected_batch_size`, and `num_microbatches=None`."
        )
    if size > n:
        raise ValueError(
            f"The optimizer's `expected_batch_size`={size} is more than the number of examples, {n}: give the size of "
            "the whole data as `data` or `num_examples`."
        )
    return size


def _rows_of(data: Any, num_examples: int | None) -> tuple[Any, int]:
    """(a function from row numbers to rows, how many there are) or None; and n."""
    if isinstance(data, (int, np.integer)) and not isinstance(data, bool):
        if num_examples is not None:
            raise ValueError(f"`num_examples`={num_examples} is for rows: `data`={data} is the number already.")
        return None, validate.positive_integer("data", data)
    if callable(data):
        raise ValueError("`data` must be the number of examples, or rows `(x, y)`; got a function.")
    load, rows = sampling.loader(data, None)
    example = load(np.array([0]))
    if not isinstance(example, tuple) or not 2 <= len(example) <= 3:
        raise ValueError("`data` must be the number of examples, or a tuple `(x, y)` of rows.")
    return (load, rows), rows if num_examples is None else validate.positive_integer("num_examples", num_examples)


def _how_many(model: Any, n: int, canaries: int | None, runs: int | None) -> tuple[int, int]:
    """Canaries of a run, and runs."""
    if not model.built and canaries is None:
        canaries = 16  # the number of weights is not known yet
    if canaries is None:
        weights = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
        canaries = max(1, min(_CANARIES, weights // _COORDINATES, _NUMBERS // max(weights, 1), n))
    number = validate.positive_integer("canaries", canaries)
    if number > n:
        raise ValueError(f"`canaries` must be at most the number of examples, {n}; got {number}.")
    if runs is None:
        runs = -(-_TRIALS // number)
    return number, validate.positive_integer("runs", runs)


def _candidates(model: Any, rows: Any, number: int, generator: np.random.Generator) -> Any:
    weights = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    wanted = max(number, min(making.CANDIDATES * number, _NUMBERS // max(weights, 1)))
    if rows is None:
        return making.from_model(model, wanted, generator)
    load, available = rows
    return making.from_rows(load, available, wanted, generator)


# ---------------------------------------------------------------------------------------------------
# The attack.


def _gradients_of(model: Any, candidates: Any) -> CanaryGradients:
    """Builds model and optimizer, too."""
    if not model.built:
        model(tf.nest.map_structure(tf.convert_to_tensor, candidates[0]))
    model.optimizer.build(model.trainable_variables)
    return CanaryGradients(model, model.optimizer)


def _chosen(gradients: CanaryGradients, candidates: Any, number: int) -> Any:
    """The canaries."""
    gram = gradients.moves(tf.nest.map_structure(tf.convert_to_tensor, candidates)).gram.numpy()
    if not np.any(np.nan_to_num(np.diag(gram)) > 0.0):
        raise ValueError("No canary has a gradient in this model: give rows `(x, y)` as it takes them as `data`.")
    return making.take(candidates, making.choose(gram, number))


def _attack(
    model: Any, recorder: Recorder, chosen: Any, coins: np.ndarray, mechanism: Mechanism, steps: int, seed: int | None
) -> dict[str, np.ndarray]:
    """Scores by view, [runs, canaries], from one `fit` in which every epoch is a run."""
    runs, number = coins.shape
    parts = model.optimizer.accumulation_steps
    present, values = tf.constant(coins), tf.nest.map_structure(tf.constant, chosen)
    drawn = sampling.poisson_batches(
        np.arange(mechanism.num_examples),
        expected_batch_size=mechanism.batch_size,
        steps=runs * steps,
        seed=seed,
        accumulation_steps=parts,
    )

    def of_canaries(index, rows):
        rows = tf.boolean_mask(rows, rows < number)
        there = tf.boolean_mask(rows, tf.gather(present[index // (steps * parts)], rows))
        return tf.nest.map_structure(lambda leaf: tf.gather(leaf, there), values)

    model.fit(
        drawn.enumerate().map(of_canaries).prefetch(2),
        epochs=runs,
        steps_per_epoch=steps * parts,
        callbacks=[recorder],
        shuffle=False,
        verbose=0,
    )
    return recorder.scores()
