"""Wrong calls as people make them. Each is refused before it does harm, in words that name it and the way out.

Every row of the tables is a wrong call, the exception that it gets, and words that the message must hold. Where a
model is at hand, it must be as it was: weights, state and the count of noised steps. Not among them, for it is no
error: an example with NaN or infinity. An error that one example can cause would tell that it is there, so such an
example is left out without a word (`test_examples_that_are_not_finite_are_no_error`). A label out of range is not in
our hands: on a CPU TensorFlow's loss raises before the optimizer sees a gradient (docs/security.md says what to do).
"""

import contextlib
import json
import os
import resource

import dp_accounting
import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf import (
    AdaClipSumQuery,
    ClippedSumQuery,
    DPAdaClipSGD,
    DPFixedClipSGD,
    PrivacyBudget,
    PrivacyTensorBoard,
    PrivatePCA,
    poisson_batches,
)
from adaclip_tf._internal import keras
from adaclip_tf.privacy import __main__ as privacy
from adaclip_tf.privacy import accountants, statement
from configs import base
from examples.common import data, idx, training, workdirs
from examples.common import models as example_models
from tests import generations, models

NAN, INF = float("nan"), float("inf")
X, Y = models.data(8)
RUN = {"delta": 1e-3, "num_examples": 8, "batch_size": 4}


def check(wrong, error, words):
    with pytest.raises(error) as caught:
        wrong()
    message = str(caught.value)
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


def table(*rows):
    """Parameters from rows (name, wrong call, exception, words...)."""
    return pytest.mark.parametrize(
        ("wrong", "error", "words"), [pytest.param(row[1], row[2], row[3:], id=row[0]) for row in rows]
    )


# ---------------------------------------------------------------------------------------------------
# Constructors and functions: nothing to lose yet.


def adaclip(**arguments):
    return lambda: DPAdaClipSGD(**{"noise_multiplier": 1.0, **arguments})


def fixed(**arguments):
    return lambda: DPFixedClipSGD(**{"noise_multiplier": 1.0, "l2_norm_clip": 1.0, **arguments})


@table(
    ("no noise multiplier", lambda: DPAdaClipSGD(0.1), TypeError, "noise_multiplier"),
    ("noise multiplier by position", lambda: DPAdaClipSGD(0.1, 0.9, True, 1.1), TypeError, "positional"),
    ("noise NaN", adaclip(noise_multiplier=NAN), ValueError, "`noise_multiplier`", "finite", "nan"),
    ("noise as text", adaclip(noise_multiplier="1.1"), ValueError, "`noise_multiplier`", "finite number", "'1.1'"),
    ("noise True", adaclip(noise_multiplier=True), ValueError, "`noise_multiplier`", "True"),
    ("noise negative", adaclip(noise_multiplier=-1), ValueError, "`noise_multiplier`", "0 or more", "-1"),
    ("noise an array", adaclip(noise_multiplier=np.ones(2)), ValueError, "`noise_multiplier`", "array"),
    ("noise complex", adaclip(noise_multiplier=1j), ValueError, "`noise_multiplier`", "1j"),
    ("noise that rounds to none", adaclip(noise_multiplier=1e-60), ValueError, "`noise_multiplier`", "1e-60", "0 ("),
    ("noise absurdly large", adaclip(noise_multiplier=1e30), ValueError, "`noise_multiplier`", "1e+30", "between"),
    ("noise beyond float64", adaclip(noise_multiplier=10**400), ValueError, "`noise_multiplier`", "finite", "1000"),
    ("learning rate as text", adaclip(learning_rate="fast"), ValueError, "`learning_rate`", "'fast'", "Schedule"),
    ("learning rate None", adaclip(learning_rate=None), ValueError, "`learning_rate`", "None", "number"),
    ("learning rate a list", adaclip(learning_rate=[0.1]), ValueError, "`learning_rate`", "[0.1]"),
    ("learning rate True", adaclip(learning_rate=True), ValueError, "`learning_rate`", "True"),
    ("learning rate negative", adaclip(learning_rate=-0.1), ValueError, "`learning_rate`", "0 or more", "-0.1"),
    ("the old name lr", adaclip(lr=0.1), TypeError, "`lr`", "use `learning_rate`"),
    ("the old argument decay", adaclip(decay=1e-6), TypeError, "`decay`", "LearningRateSchedule"),
    ("batch_size", adaclip(batch_size=60), TypeError, "`batch_size`", "`expected_batch_size`"),
    ("a clip for AdaCliP", adaclip(l2_norm_clip=1.0), TypeError, "`l2_norm_clip`", "DPFixedClipSGD"),
    ("a misspelt argument", adaclip(noise_multiplyer=1.0), TypeError, "`noise_multiplyer`", "help(DPAdaClipSGD)"),
    ("Keras's clipnorm", adaclip(clipnorm=1.0), ValueError, "`clipnorm`", "`h2`"),
    ("weight decay NaN", adaclip(weight_decay=NAN), ValueError, "`weight_decay`", "nan"),
    ("weight decay as text", adaclip(weight_decay="0.1"), ValueError, "`weight_decay`", "'0.1'"),
    ("momentum above 1", adaclip(momentum=1.5), ValueError, "`momentum`", "between 0 and 1", "1.5"),
    ("nesterov as text", adaclip(nesterov="no", momentum=0.9), ValueError, "`nesterov`", "True or False", "'no'"),
    ("nesterov without momentum", adaclip(nesterov=True), ValueError, "`nesterov=True`", "`momentum` above 0"),
    ("non-private as text", adaclip(nonprivate_metrics="no"), ValueError, "`nonprivate_metrics`", "'no'"),
    ("microbatches 0", adaclip(num_microbatches=0), ValueError, "`num_microbatches`", "1 or more", "0"),
    ("microbatches 2.0", adaclip(num_microbatches=2.0), ValueError, "`num_microbatches`", "whole number", "2.0"),
    ("batch size 600.0", adaclip(expected_batch_size=600.0), ValueError, "`expected_batch_size`", "600.0"),
    (
        "batch size not a multiple",
        adaclip(expected_batch_size=10, num_microbatches=4),
        ValueError,
        *("`expected_batch_size`", "multiple", "4", "10"),
    ),
    ("accumulation None", adaclip(accumulation_steps=None), ValueError, "`accumulation_steps`", "None"),
    ("beta_1 of 1", adaclip(beta_1=1.0), ValueError, "`beta_1`", "below 1", "1.0"),
    ("beta_2 NaN", adaclip(beta_2=NAN), ValueError, "`beta_2`", "nan"),
    ("h1 above h2", adaclip(h1=1.0, h2=0.1), ValueError, "`h1`", "`h2`", "1.0", "0.1"),
    ("h1 of 0", adaclip(h1=0.0), ValueError, "`h1`", "greater than 0"),
    ("h2 infinite", adaclip(h2=INF), ValueError, "`h2`", "finite", "inf"),
    ("h1 h2 underflow", adaclip(h1=1e-30, h2=1e-20), ValueError, "`h1` * `h2`", "1e-30", "`initial_std`"),
    ("gamma of 0", adaclip(gamma=0), ValueError, "`gamma`", "greater than 0"),
    ("gamma that makes b vanish", adaclip(gamma=1e30), ValueError, "`gamma`", "1e+30", "between 0.1 and 1"),
    ("gamma that makes b overflow", adaclip(gamma=1e-30), ValueError, "`gamma`", "1e-30", "float32"),
    ("initial_std of 0", adaclip(initial_std=0.0), ValueError, "`initial_std`", "greater than 0"),
    ("unknown scaling", adaclip(variance_scaling="batch"), ValueError, "`variance_scaling`", "'per_example'"),
    ("unknown clamp", adaclip(clamp=None), ValueError, "`clamp`", "'before_average'", "None"),
    ("unknown path", adaclip(gradient_path="fast"), ValueError, "`gradient_path`", "'auto'", "'fast'"),
    ("seed as text", adaclip(seed="a"), ValueError, "`seed`", "None or a whole number", "'a'"),
    ("seed negative", adaclip(seed=-1), ValueError, "`seed`", "0 or more", "-1"),
    ("no clip", lambda: DPFixedClipSGD(noise_multiplier=1.0), TypeError, "l2_norm_clip"),
    ("clip 0", fixed(l2_norm_clip=0), ValueError, "`l2_norm_clip`", "greater than 0"),
    ("clip beyond float32", fixed(l2_norm_clip=1e50), ValueError, "`l2_norm_clip`", "float32", "1e+50"),
    (
        "a config without noise",
        lambda: DPAdaClipSGD.from_config({"learning_rate": 0.1}),
        TypeError,
        "noise_multiplier",
    ),
    (
        "state before there is any",
        lambda: DPAdaClipSGD(noise_multiplier=1.0).noised_steps,
        ValueError,
        *("no state yet", "build"),
    ),
)
def test_optimizers(wrong, error, words):
    check(wrong, error, words)


def test_numpy_scalars_are_numbers():
    optimizer = DPAdaClipSGD(
        np.float32(0.5), noise_multiplier=np.float64(1.0), expected_batch_size=np.int64(4), seed=np.int64(3)
    )
    assert json.loads(json.dumps(optimizer.get_config()))["seed"] == 3


def query(*arguments, **options):
    return lambda: AdaClipSumQuery(*arguments, **options)


def record(value):
    def give():
        two = AdaClipSumQuery(tf.TensorSpec([2]), 1.0, 4.0)
        two.preprocess_record(two.derive_sample_params(two.initial_global_state()), value)

    return give


SPEC = tf.TensorSpec([2])


def result(sample=None, spec_of_state=SPEC):
    def ask():
        two, other = (AdaClipSumQuery(spec, 1.0, 4.0) for spec in (SPEC, spec_of_state))
        two.get_noised_result(sample or two.initial_sample_state(), other.initial_global_state())

    return ask


@table(
    ("no specs", query([], 1.0, 4.0), ValueError, "`record_specs`", "at least one"),
    ("shapes for specs", query((2, 3), 1.0, 4.0), ValueError, "`record_specs`", "tf.TensorSpec", "2"),
    ("unknown size", query(tf.TensorSpec([None]), 1.0, 4.0), ValueError, "`record_specs`", "known shapes"),
    ("integers", query(tf.TensorSpec([2], tf.int32), 1.0, 4.0), ValueError, "`record_specs`", "floating"),
    ("divisor 0", query(SPEC, 1.0, 0), ValueError, "`expected_num_records`", "greater than 0"),
    ("seed", query(SPEC, 1.0, 4.0, seed="a"), ValueError, "`seed`", "'a'"),
    (
        "a name for a rule",
        lambda: ClippedSumQuery("adaclip", SPEC, 1.0, 4.0),
        ValueError,
        *("`rule`", "core.FixedClip", "'adaclip'"),
    ),
    ("record of another shape", record(tf.zeros([3])), ValueError, "`record_specs`", "(3,)"),
    ("record that would broadcast", record(tf.zeros([1])), ValueError, "`record_specs`", "(1,)"),
    ("record of another structure", record({"a": tf.zeros([2])}), ValueError, "structure", "`record_specs`"),
    ("record of text", record(tf.constant(["a", "b"])), ValueError, "real numbers", "string"),
    ("record of complex numbers", record(tf.zeros([2], tf.complex64)), ValueError, "real numbers", "complex64"),
    ("record None", record(None), ValueError, "`record_specs`", "NoneType"),
    ("sums of another query", result({"a": tf.zeros([2])}), ValueError, "`sample_state`", "structure"),
    (
        "state of another query",
        result(spec_of_state=tf.TensorSpec([3])),
        ValueError,
        "`global_state`",
        "[3]",
        "initial",
    ),
)
def test_query(wrong, error, words):
    check(wrong, error, words)


def cost(function=adaclip_tf.epsilon, **arguments):
    run = {"noise_multiplier": 1.0, "delta": 1e-5, "num_examples": 1000, "batch_size": 10, "epochs": 1, **arguments}
    return lambda: function(**{name: value for name, value in run.items() if value != "left out"})


def noise(**arguments):
    return cost(adaclip_tf.noise_multiplier, **{"noise_multiplier": "left out", "target_epsilon": 1.0, **arguments})


@table(
    ("delta 0", cost(delta=0), ValueError, "`delta`", "above 0"),
    ("delta 1", cost(delta=1.0), ValueError, "`delta`", "below 1"),
    ("no examples", cost(num_examples=0), ValueError, "`num_examples`", "1 or more"),
    ("examples as a float", cost(num_examples=1e3), ValueError, "`num_examples`", "whole number", "1000.0"),
    ("batch above n", cost(batch_size=2000), ValueError, "`batch_size`", "at most `num_examples`", "2000"),
    ("epochs and steps", cost(steps=3), ValueError, "either `epochs` or `steps`", "3"),
    ("neither", cost(epochs=None), ValueError, "either `epochs` or `steps`"),
    ("epochs negative", cost(epochs=-1), ValueError, "`epochs`", "-1"),
    ("steps beyond counting", cost(epochs=None, steps=10**30), ValueError, "`steps`", "at most"),
    ("unknown accountant", cost(accountant="moments"), ValueError, "`accountant`", "'rdp'", "'moments'"),
    ("unknown sampling", cost(sampling="uniform"), ValueError, "`sampling`", "'poisson'", "'uniform'"),
    ("sensitivity 0", cost(microbatch_sensitivity=0), ValueError, "`microbatch_sensitivity`", "1 (", "2 ("),
    ("noise that vanishes", cost(noise_multiplier=1e-300), ValueError, "`noise_multiplier`", "1e-300"),
    ("half an example", cost(examples_per_user=1.5), ValueError, "`examples_per_user`", "1.5"),
    ("target 0", noise(target_epsilon=0), ValueError, "`target_epsilon`", "greater than 0"),
    ("target as text", noise(target_epsilon="1"), ValueError, "`target_epsilon`", "'1'"),
    ("target without privacy", noise(target_epsilon=1e9), ValueError, "`target_epsilon`", "smaller epsilon"),
    ("tolerance 0", noise(tolerance=0), ValueError, "`tolerance`", "greater than 0"),
    (
        "all for the PCA",
        cost(adaclip_tf.split_budget, noise_multiplier="left out", target_epsilon=1.0, pca_fraction=1),
        ValueError,
        *("`pca_fraction`", "below 1"),
    ),
    ("no event", lambda: adaclip_tf.epsilon_of(3, delta=1e-5), ValueError, "`event`", "DpEvent", "3"),
    (
        "an optimizer that does not count",
        lambda: adaclip_tf.optimizer_event(tf.keras.optimizers.SGD(), num_examples=8, batch_size=4),
        ValueError,
        *("`optimizer`", "DPAdaClipSGD", "SGD"),
    ),
    ("statement with a typo", cost(adaclip_tf.privacy_statement, batchsize=10), TypeError, "batchsize"),
    ("statement, no event", cost(adaclip_tf.privacy_statement, other_event=3), ValueError, "`other_event`", "event"),
)
def test_accounting(wrong, error, words):
    check(wrong, error, words)


def test_little_noise_takes_neither_hours_nor_gigabytes():
    """PLD at dp_accounting's own interval asks for 38 GB here. What it finds is an upper bound all the same."""
    run = {"noise_multiplier": 0.01, "delta": 1e-5, "num_examples": 1000, "batch_size": 1000, "steps": 1}
    exact = 1 / (2 * 0.01**2)  # epsilon of one Gaussian mechanism is about 1 / (2 z^2) + 4.3 / z at this delta
    assert exact < adaclip_tf.epsilon(accountant="pld", **run) < 1.2 * exact
    fine = dp_accounting.pld.PLDAccountant().compose(dp_accounting.GaussianDpEvent(0.6)).get_epsilon(1e-5)
    assert adaclip_tf.epsilon_of(dp_accounting.GaussianDpEvent(0.6), delta=1e-5, accountant="pld") == fine


def budget(**arguments):
    return lambda: PrivacyBudget(**{**RUN, "sampling": "shuffled", **arguments})


def board(log_dir="unused", **arguments):
    return lambda: PrivacyTensorBoard(log_dir, **arguments)


@table(
    ("budget: target 0", budget(target_epsilon=0), ValueError, "`target_epsilon`", "greater than 0"),
    ("budget: unknown accountant", budget(accountant="x"), ValueError, "`accountant`", "'x'"),
    ("budget: batch above n", budget(batch_size=9), ValueError, "`batch_size`", "9", "8"),
    ("budget: a number for an event", budget(other_event=3.0), ValueError, "`other_event`", "PrivatePCA", "3.0"),
    ("budget: a number for a path", budget(statement_path=5), ValueError, "`statement_path`", "path", "5"),
    ("budget: an empty path", budget(statement_path=""), ValueError, "`statement_path`", "''"),
    ("board: no folder", board(None), ValueError, "`log_dir`", "path", "None"),
    ("board: empty folder", board(""), ValueError, "`log_dir`", "''"),
    ("board: update_freq", board(update_freq="batch"), ValueError, "`update_freq`", "'epoch'", "'batch'"),
    ("board: histogram_freq", board(histogram_freq=-1), ValueError, "`histogram_freq`", "-1"),
    ("board: image_shape", board(image_shape=28), ValueError, "`image_shape`", "(height, width)", "28"),
    ("board: hparams", board(hparams=[1]), ValueError, "`hparams`", "dict", "[1]"),
    ("board: keras_metrics as text", board(keras_metrics="no"), ValueError, "`keras_metrics`", "'no'"),
    ("board: nonprivate as text", board(nonprivate="no"), ValueError, "`nonprivate`", "'no'"),
    ("board: not a budget", board(budget=2.0), ValueError, "`budget`", "PrivacyBudget", "2.0"),
    ("board: half of it", board(num_examples=8), ValueError, "`batch_size` is missing"),
)
def test_callbacks_alone(wrong, error, words):
    check(wrong, error, words)


def batches(arrays=(X, Y), **arguments):
    return lambda: poisson_batches(arrays, **{"expected_batch_size": 4, **arguments})


@table(
    ("a list", batches([X, Y]), ValueError, "`arrays`", "tuple or dict", "(x, y)"),
    ("None", batches((X, None)), ValueError, "`arrays`", "first dimension"),
    ("different lengths", batches((X, Y[:5])), ValueError, "`arrays`", "same number", "[5, 8]"),
    ("no examples", batches((X[:0], Y[:0])), ValueError, "`arrays`", "1 or more"),
    ("a dataset of batches", batches(tf.data.Dataset.range(3).batch(2)), ValueError, "`arrays`", "unbatch"),
    ("Python objects", batches(np.array([object()] * 8)), ValueError, "`arrays`", "Python objects"),
    ("batch above n", batches(expected_batch_size=9), ValueError, "`expected_batch_size`", "8", "9"),
    ("batch 2.5", batches(expected_batch_size=2.5), ValueError, "`expected_batch_size`", "2.5"),
    ("steps 0", batches(steps=0), ValueError, "`steps`", "1 or more"),
    ("seed as text", batches(seed="a"), ValueError, "`seed`", "'a'"),
    ("wrong n", batches(num_examples=9), ValueError, "`num_examples`", "8", "9"),
    ("function without n", batches(lambda rows: X[rows]), ValueError, "`num_examples`", "function"),
    ("function, n too large", batches(lambda rows: X[rows], num_examples=80), ValueError, "`num_examples`=80", "79"),
    ("function of nothing", batches(lambda rows: None, num_examples=8), ValueError, "`arrays`", "returns"),
)
def test_poisson_batches(wrong, error, words):
    check(wrong, error, words)


def pca(**arguments):
    return PrivatePCA(**{"num_components": 2, "noise_multiplier": 1.0, **arguments})


@table(
    ("components 0", lambda: pca(num_components=0), ValueError, "`num_components`", "1 or more"),
    ("noise NaN", lambda: pca(noise_multiplier=NAN), ValueError, "`noise_multiplier`", "nan"),
    ("seed 1.5", lambda: pca(seed=1.5), ValueError, "`seed`", "1.5"),
    ("images", lambda: pca().fit(X[None]), ValueError, "`x`", "[examples, dimensions]", "Flatten"),
    ("no rows", lambda: pca().fit(X[:0]), ValueError, "`x`", "[0, 4]"),
    ("text", lambda: pca().fit(np.full((8, 4), "secret")), ValueError, "`x`", "real numbers"),
    ("complex", lambda: pca().fit(X.astype(complex)), ValueError, "`x`", "complex128"),
    ("objects", lambda: pca().fit(np.full((8, 4), None)), ValueError, "`x`", "object"),
    ("rows of different lengths", lambda: pca().fit([[1.0], [1.0, 2.0]]), ValueError, "`x`", "different lengths"),
    ("too few columns", lambda: pca().fit(X[:, :1]), ValueError, "`num_components`", "1 columns"),
    ("transform before fit", lambda: pca().transform(X), ValueError, "`fit` first"),
    ("other columns", lambda: pca().fit(X).transform(X[:, :3]), ValueError, "`x`", "4 columns", "3"),
)
def test_pca(wrong, error, words):
    check(wrong, error, words)


def test_a_refused_fit_is_not_paid_for_and_shows_no_data():
    both = pca()
    with pytest.raises(ValueError) as caught:
        both.fit(np.full((8, 4), "secret"))
    assert "secret" not in str(caught.value)
    assert both._fits.count == 0


COMMAND = {"num_examples": 1000, "batch_size": 10, "delta": 1e-5, "epochs": 1, "noise_multiplier": 1}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_examples": None}, ["--num_examples", "required"]),
        ({"num_examples": "1e3"}, ["--num_examples=1e3", "int"]),
        ({"steps": 3}, ["either --epochs or --steps"]),
        ({"noise_multiplier": -1}, ["`noise_multiplier`", "0 or more", "-1"]),
        ({"delta": "nan"}, ["`delta`", "nan"]),
        ({"sampling": "uniform"}, ["--sampling=uniform", "poisson"]),
        ({"microbatch_size": 0}, ["--microbatch_size", "1 or more"]),
        ({"nosuch": 1}, ["nosuch"]),
        ({"plot": "/dev/full", "epochs": None, "steps": 1, "noise_multiplier": 5}, ["--plot=/dev/full", "No space"]),
        ({"plot": "/nosuch/a.png"}, ["--plot=/nosuch/a.png", "does not exist"]),
    ],
)
def test_command_line(changes, words, capsys):
    flags = {name: value for name, value in {**COMMAND, **changes}.items() if value is not None}
    assert privacy.main(["privacy", *[f"--{name}={value}" for name, value in flags.items()]]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and all(word in said for word in words), said


# ---------------------------------------------------------------------------------------------------
# Training: the model must be as it was.


def snapshot(model):
    optimizer = model.optimizer
    state = optimizer.variables if getattr(optimizer, "_built", False) else []
    return [variable.numpy() for variable in [*model.variables, *state]]


def unchanged(model, before, function):
    """Runs `function` and, whatever it raises, checks that the model is as `before`."""
    try:
        function()
    finally:
        after = snapshot(model)
        assert len(before) == len(after)
        for old, new in zip(before, after):
            np.testing.assert_array_equal(old, new)


def fit(build=models.softmax_regression, loss=None, x=X, y=Y, optimizer=None, callbacks=(), **options):
    """A call of `fit` that is to fail; the model and the optimizer's state are there beforehand."""

    def run():
        model = build()
        model.compile(
            optimizer() if optimizer else DPAdaClipSGD(noise_multiplier=1.0, expected_batch_size=4),
            models.per_example_loss() if loss is None else loss,
        )
        with contextlib.suppress(ValueError):  # what the optimizer has to say, it is to say in `fit`
            model.optimizer.build(model.trainable_variables)
        made = [callback() for callback in callbacks]
        arguments = {"batch_size": 4, "verbose": 0, "callbacks": made, **options}
        unchanged(model, snapshot(model), lambda: model.fit(x, y, **arguments))

    return run


def dense(**arguments):
    return lambda: tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(4,), **arguments)])


def normalised():
    return tf.keras.Sequential([tf.keras.layers.BatchNormalization(input_shape=(4,)), tf.keras.layers.Dense(3)])


def stateful():
    return tf.keras.Sequential([tf.keras.Input(batch_size=4, shape=(2, 2)), tf.keras.layers.LSTM(3, stateful=True)])


class Complex(tf.keras.Model):
    """A model with a complex weight."""

    def __init__(self):
        super().__init__()
        self.w = self.add_weight(name="w", shape=[4, 3], dtype="complex64", initializer="zeros")

    def call(self, inputs):
        return tf.math.real(tf.matmul(tf.cast(inputs, tf.complex64), self.w))


LOSSES = tf.keras.losses


@table(
    (
        "summed loss",
        fit(loss=LOSSES.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")),
        ValueError,
        *("scalar", 'reduction="none"'),
    ),
    ("no loss", fit(loss=lambda y, p: None), ValueError, "None"),
    # These are Keras's own words, which each generation has its own of.
    ("no labels", fit(y=None), ValueError, {2: "Target data is missing", 3: "None values"}[keras.GENERATION]),
    ("labels of another length", fit(y=Y[:5]), ValueError, "sizes: 8", "sizes: 5"),
    ("labels one-hot", fit(y=np.eye(3)[Y]), ValueError, {2: "logits.shape", 3: "target.shape"}[keras.GENERATION]),
    (
        "labels as text",
        fit(y=np.array(["a"] * 8)),
        *{2: (tf.errors.UnimplementedError, "string to int64"), 3: (ValueError, "Invalid dtype: str")}[
            keras.GENERATION
        ],
    ),
    ("labels out of range", fit(y=np.full(8, 3)), tf.errors.InvalidArgumentError, "label value of 3", "[0, 3)"),
    ("inputs of another width", fit(x=X[:, :3]), ValueError, "(4, 3)"),
    ("batch normalisation", fit(normalised), ValueError, "over the batch", "LayerNormalization"),
    ("a stateful layer", fit(stateful, x=X.reshape(8, 2, 2)), ValueError, "later batches", "stateful=False"),
    ("float16 weights", fit(dense(dtype="float16")), ValueError, "float16", "mixed_float16"),
    ("complex weights", fit(Complex), ValueError, "complex64", "two parts"),
    (
        "microbatches that do not divide",
        fit(optimizer=adaclip(num_microbatches=3)),
        ValueError,
        *("`num_microbatches`", "divide", "3", "a batch of 4", "drop_remainder"),
    ),
    (
        "budget without a private optimizer",
        fit(optimizer=tf.keras.optimizers.SGD, callbacks=[budget()]),
        ValueError,
        *("DPAdaClipSGD", "SGD"),
    ),
    (
        "board without a private optimizer",
        fit(optimizer=tf.keras.optimizers.SGD, callbacks=[board()]),
        ValueError,
        *("DPAdaClipSGD", "SGD"),
    ),
    (
        "budget of another batch size",
        fit(callbacks=[budget(batch_size=2)]),
        ValueError,
        *("`expected_batch_size` is 4", "`batch_size` is 2", "equal"),
    ),
    (
        "a target that allows no step",
        fit(callbacks=[budget(target_epsilon=1e-3)]),
        adaclip_tf.PrivacyBudgetSpentError,
        *("`target_epsilon`=0.001", "allows 0"),
    ),
    (
        "a weight regularizer",
        fit(dense(kernel_regularizer="l2"), callbacks=[budget()]),
        ValueError,
        *("kernel regularizer", "`weight_decay`"),
    ),
    (
        "an activity regularizer",
        fit(dense(activity_regularizer="l2"), callbacks=[budget()]),
        ValueError,
        *("activity regularizer", "remove"),
    ),
    (
        "non-private values that nobody records",
        fit(callbacks=[board(nonprivate=True)]),
        ValueError,
        *("nonprivate=True", "`nonprivate_metrics=True`"),
    ),
)
def test_training(wrong, error, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(wrong, error, words)


@generations.keras2_only  # Keras 3 warns, and does nothing
@table(
    ("no examples", fit(x=X[:0], y=Y[:0]), ValueError, "non-empty"),
    ("nothing to train", fit(dense(trainable=False)), ValueError, "no trainable variables", "`trainable = True`"),
)
def test_training_on_nothing(wrong, error, words):
    check(wrong, error, words)


def test_a_remainder_that_is_no_whole_microbatch_is_told_in_words():
    """The batch before it was right, and counts."""
    model = models.softmax_regression()
    model.compile(DPAdaClipSGD(noise_multiplier=1.0, num_microbatches=4), models.per_example_loss())
    with pytest.raises(tf.errors.InvalidArgumentError, match="`num_microbatches` must divide the batch size"):
        model.fit(X[:6], Y[:6], batch_size=4, verbose=0)
    assert int(model.optimizer.noised_steps) == 1
    assert all(np.isfinite(weight).all() for weight in model.get_weights())


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_examples_that_are_not_finite_are_no_error(bad):
    """They contribute nothing, without a word: an error, or a NaN in the weights, would tell that they are there."""
    model = models.fit(models.softmax_regression(), DPAdaClipSGD(noise_multiplier=1.0), np.full_like(X, bad), Y, 4)
    assert int(model.optimizer.noised_steps) == 2
    assert all(np.isfinite(value).all() for value in snapshot(model))


def made(**arguments):
    """A model and its optimizer, built."""
    model = models.softmax_regression()
    model.compile(DPAdaClipSGD(**{"noise_multiplier": 1.0, **arguments}), models.per_example_loss())
    model.optimizer.build(model.trainable_variables)
    return model


OTHER = tf.Variable([1.0], name="other")


def step(use):
    """A training step by hand that is to fail: `use(optimizer, loss, variables, tape)`."""

    def run():
        model = made()

        @tf.function
        def take(x, y):
            with tf.GradientTape() as tape:
                loss = models.per_example_loss()(y, model(x))
            use(model.optimizer, loss, model.trainable_variables, tape)

        unchanged(model, snapshot(model), lambda: take(X, Y))

    return run


@table(
    (
        "gradients of one's own",
        step(lambda o, loss, v, tape: o.apply_gradients(zip(tape.gradient(loss, v), v))),
        ValueError,
        *("not made by this optimizer", "`minimize"),
    ),
    ("no variables", step(lambda o, loss, v, tape: o.minimize(loss, [], tape)), ValueError, "no trainable variables"),
    ("another order", step(lambda o, loss, v, tape: o.minimize(loss, v[::-1], tape)), ValueError, "others", "bias"),
    (
        "one of them twice",
        step(lambda o, loss, v, tape: o.minimize(loss, [v[0], v[0]], tape)),
        ValueError,
        *("others", "kernel"),
    ),
    (
        "other variables",
        step(lambda o, loss, v, tape: o.minimize(loss, [OTHER], tape)),
        ValueError,
        *("others", "other:0", "new optimizer"),
    ),
    (
        "an integer loss",
        step(lambda o, loss, v, tape: o.minimize(lambda: tf.constant([1, 2]), v)),
        ValueError,
        *("real numbers", "int32"),
    ),
)
def test_steps_by_hand(wrong, error, words):
    check(wrong, error, words)


# ---------------------------------------------------------------------------------------------------
# Files.


def truncate(path, part=0.5):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * part)])
    return str(path)


@pytest.fixture(scope="module")
def trained():
    return models.fit(models.softmax_regression(), DPAdaClipSGD(noise_multiplier=1.0), X, Y, 4)


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.parametrize("part", [0.0, 0.5, 0.99])
def test_truncated_models_are_refused(trained, tmp_path, name, part):
    """In Keras's words, which name no file; what matters here is that no half of a state is taken for a whole one."""
    trained.save(tmp_path / name)
    with pytest.raises((OSError, ValueError, KeyError)):
        tf.keras.models.load_model(truncate(tmp_path / name, part))


@pytest.mark.parametrize("which", ["index", "data"])
def test_truncated_checkpoints_are_refused_and_lose_nothing(trained, tmp_path, which):
    path = tf.train.Checkpoint(model=trained).write(str(tmp_path / "saved"))
    truncate(next(tmp_path.glob(f"saved.{which}*")))
    model = made()

    def restore():
        tf.train.Checkpoint(model=model).restore(path)

    with pytest.raises((tf.errors.OpError, IndexError)):
        unchanged(model, snapshot(model), restore)


def test_a_checkpoint_of_another_model_is_refused_and_loses_nothing(trained, tmp_path):
    path = tf.train.Checkpoint(model=trained).write(str(tmp_path / "saved"))
    model = models.mlp()
    model.compile(DPAdaClipSGD(noise_multiplier=1.0), models.per_example_loss())
    model.optimizer.build(model.trainable_variables)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match=r"tensor with shape|expected dtype"):
        unchanged(model, snapshot(model), lambda: tf.train.Checkpoint(model=model).restore(path))


def _spoilt_state(name, value):
    def spoil(model, state):
        (index,) = [i for i, variable in enumerate(model.optimizer.variables) if name in variable.name]
        state[index] = value(state[index])
        return state

    return spoil


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda model, state: state[:-1], ["variables and", "same arguments"]),
        (
            _spoilt_state("divisor", lambda v: np.ones(2)),
            ["divisor", "[2]"],
        ),
        (_spoilt_state("noised_steps", lambda v: np.int64(-5)), ["noised_steps", "out of range", "earlier"]),
        (_spoilt_state("divisor", lambda v: np.float32(NAN)), ["divisor", "out of range"]),
        (_spoilt_state("divisor", lambda v: np.float32(np.inf)), ["divisor", "out of range"]),
    ],
)
@pytest.mark.parametrize("way", ["load_own_variables", "set_weights"])
def test_saved_state_that_does_not_fit_is_refused_whole(trained, spoil, words, way):
    model = made()
    state = spoil(model, [variable.numpy() for variable in trained.optimizer.variables])
    given = {str(i): value for i, value in enumerate(state)} if way == "load_own_variables" else state
    check(lambda: unchanged(model, snapshot(model), lambda: getattr(model.optimizer, way)(given)), ValueError, words)


def test_weights_of_a_training_that_was_not_private_are_told(tmp_path):
    """`tf.train.Checkpoint` restores what it can: weights and the count of updates, but no count of noised steps."""
    public = models.fit(models.softmax_regression(), tf.keras.optimizers.SGD(), X, Y, 4)
    path = tf.train.Checkpoint(model=public).write(str(tmp_path / "saved"))
    model = made(expected_batch_size=4)
    tf.train.Checkpoint(model=model).restore(path)
    wrong = lambda: model.fit(X, Y, batch_size=4, verbose=0, callbacks=[budget()()])  # noqa: E731
    check(lambda: unchanged(model, snapshot(model), wrong), ValueError, ["2 times", "0 noised steps", "`other_event`"])


@contextlib.contextmanager
def full_disk(room=100):
    """No file may grow beyond `room` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("place", ["under a file", "full disk"])
@pytest.mark.parametrize("kind", ["statement_path", "log_dir"])
def test_where_nothing_can_be_written_is_told_before_the_first_step(tmp_path, place, kind):
    (tmp_path / "file").write_text("mine")
    target = tmp_path / ("file/run" if place == "under a file" else "run")
    callback = budget(statement_path=target) if kind == "statement_path" else board(target)
    with full_disk() if place == "full disk" else contextlib.nullcontext():
        check(fit(callbacks=[callback]), ValueError, [f"`{kind}`", str(target), "cannot be written", "space"])
    assert (tmp_path / "file").read_text() == "mine"


def test_a_disk_that_fills_up_costs_the_statement_and_not_the_training(tmp_path, monkeypatch):
    """The last good statement stays, and no scraps."""
    monkeypatch.setattr(accountants, "REGISTERED", {"rdp": accountants.RDP})  # PLD takes seconds
    model = made(expected_batch_size=4)
    callback = budget(statement_path=tmp_path / "privacy")()
    model.fit(X, Y, batch_size=4, verbose=0, callbacks=[callback])
    good = (tmp_path / "privacy.json").read_text()
    fills_up = tf.keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    )
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        with pytest.raises(OSError, match=r"`statement_path`.*could not be written.*is trained"):
            model.fit(X, Y, batch_size=4, epochs=2, verbose=0, callbacks=[callback, fills_up])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert int(model.optimizer.noised_steps) == 6
    assert (tmp_path / "privacy.json").read_text() == good
    assert sorted(os.listdir(tmp_path)) == ["privacy.json", "privacy.txt"]


def test_a_good_file_is_not_overwritten_by_half_of_another(tmp_path):
    fitted, path = pca().fit(X), tmp_path / "pca.npz"
    fitted.save(path)
    report = statement.privacy_report(**RUN, noise_multiplier=1.0, steps=1, accountants=("rdp",))
    statement.write_report(report, tmp_path / "privacy")
    good = {name: (tmp_path / name).read_bytes() for name in sorted(os.listdir(tmp_path))}
    with full_disk():
        for write in (lambda: fitted.save(path), lambda: statement.write_report(report, tmp_path / "privacy")):
            with pytest.raises(OSError, match="File too large"):
                write()
    assert {name: (tmp_path / name).read_bytes() for name in sorted(os.listdir(tmp_path))} == good


@pytest.mark.parametrize(
    "spoil",
    [
        truncate,
        lambda path: truncate(path, 0.0),
        lambda path: path.write_bytes(b"hello"),
        lambda path: path.write_bytes(path.read_bytes().replace(b"components", b"Components")),
        lambda path: np.savez(path, a=1),
        lambda path: np.savez(path, components=np.ones(3), eigenvalues=np.ones(3), noise_multiplier=1.0, fits=1),
        lambda path: np.savez(path, components=np.ones([1, 3]), eigenvalues=np.ones(1), noise_multiplier=NAN, fits=1),
        lambda path: np.savez(path, components=np.ones([1, 3]), eigenvalues=np.ones(1), noise_multiplier=1.0, fits=0),
        lambda path: np.savez(path, components=np.full([1, 3], NAN), eigenvalues=[1.0], noise_multiplier=1.0, fits=1),
    ],
)
def test_pca_files_that_are_spoilt_or_something_else(tmp_path, spoil):
    path = tmp_path / "pca.npz"
    pca().fit(X).save(path)
    spoil(path)
    check(lambda: PrivatePCA.load(path), ValueError, ["`path`", str(path), "damaged"])


def test_a_pca_file_that_is_not_there(tmp_path):
    check(lambda: PrivatePCA.load(tmp_path / "pca.npz"), FileNotFoundError, ["pca.npz"])


# ---------------------------------------------------------------------------------------------------
# Examples.


def configured(**changes):
    config = base.get_config()
    config.update(changes)
    return config


def model_of(kind):
    return example_models.make_model(configured(model=kind), (8, 8, 1), 10)


@table(
    ("unknown data set", lambda: data.load("imagenet"), ValueError, "`name`", "mnist", "'imagenet'"),
    ("unknown model", lambda: model_of("rnn"), ValueError, "config.model", "softmax", "'rnn'"),
    ("a model that does not fit", lambda: model_of("linear"), ValueError, "config.model", "10"),
    (
        "unknown optimizer",
        lambda: training.make_optimizer(configured(optimizer="adam"), 1.0, 10),
        ValueError,
        *("config.optimizer", "adam"),
    ),
    ("PCA before a cnn", lambda: training.run(configured(model="cnn", pca_components=5)), ValueError, "cnn", "0"),
    ("batch above n", lambda: training.run(configured(expected_batch_size=9999)), ValueError, "`batch_size`", "9999"),
    ("a field of another type", lambda: configured(epochs="ten"), TypeError, "ten"),
)
def test_examples(wrong, error, words):
    check(wrong, error, words)


def test_a_workdir_of_another_config_is_refused_and_kept(tmp_path):
    workdirs.prepare(configured(), tmp_path)
    kept = (tmp_path / "config.json").read_text()
    check(lambda: training.run(configured(h2=1.0), tmp_path), ValueError, [str(tmp_path), "h2", "--workdir"])
    assert (tmp_path / "config.json").read_text() == kept


def test_an_idx_file_that_announces_more_than_it_holds():
    huge = bytes([0, 0, 8, 3]) + b"\xff\xff\xff\xff" * 3 + b"abc"
    check(lambda: idx.decode(huge), ValueError, ["3 bytes", "4294967295x4294967295x4294967295"])


def test_the_catalogue_is_large():
    rows = 0
    for name, value in globals().items():
        marks = getattr(value, "pytestmark", []) if name.startswith("test_") else []
        rows += sum(len(mark.args[1]) for mark in marks if mark.name == "parametrize")
    assert rows >= 160
