"""Tests of `adaclip_tf.audit`: right optimizers are not refuted, and wrong ones are."""

import sys

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf import core
from adaclip_tf.auditing import __main__ as program
from adaclip_tf.auditing.result import AuditResult, Proven
from adaclip_tf.optimizers.step import PrivateStep
from tests import models

NUMBER = 50  # of examples, all of which are in each batch
FEATURES = 60
# `most_provable` of so many guesses is far above the claim of z = 2, T = 2.
ARGUMENTS = {"steps": 2, "runs": 24, "canaries": 20, "confidence": 0.99, "seed": 5, "verbose": False}
PRIVATE = {"noise_multiplier": 2.0, "expected_batch_size": NUMBER, "seed": 7}


def _softmax(optimizer, **compile_arguments):
    model = models.softmax_regression(FEATURES)
    model.compile(optimizer, loss=models.per_example_loss(), **compile_arguments)
    return model


def _fixed(**arguments):
    return adaclip_tf.DPFixedClipSGD(0.1, l2_norm_clip=0.5, **{**PRIVATE, **arguments})


def _audit(optimizer, make=_softmax, data=NUMBER, **arguments):
    return adaclip_tf.audit(lambda: make(optimizer), data, **{**ARGUMENTS, **arguments})


def _check_is_right(result):
    assert not result.refuted, str(result)
    assert result.views["gradient"].best > 0.15 * result.claimed, str(result)
    return result


def test_a_right_optimizer_is_not_refuted(capsys):
    result = _check_is_right(_audit(_fixed(), verbose=True))
    expected = adaclip_tf.epsilon(
        noise_multiplier=2.0, delta=1e-5, num_examples=NUMBER, batch_size=NUMBER, steps=2, accountant="pld"
    )
    assert result.claimed == pytest.approx(expected)
    assert (result.runs, result.canaries, result.confidence) == (24, 20, 0.99)
    assert result.most_provable > result.claimed
    # SGD: the weights say all that the gradient does.
    assert result.views["weights"].correct == pytest.approx(result.views["gradient"].correct, abs=2)
    assert capsys.readouterr().out.strip() == str(result).strip()
    assert f"No attack proved more than epsilon {result.lower_bound:.2f}" in str(result)


class _QuarterOfTheNoise(PrivateStep):
    @property
    def _share(self):
        return super()._share / 4.0


class _LooseClip(core.FixedClip):
    """Says that it clips at C, and clips at 4 C."""

    def clip(self, specs):
        del specs
        return core.NormClip(radius=4.0)


def test_too_little_noise_is_found():
    optimizer = _fixed()
    optimizer.private_step.__class__ = _QuarterOfTheNoise
    result = _audit(optimizer)
    assert result.refuted, str(result)
    assert "!!! THE CLAIM IS FALSE" in str(result)
    assert all(proven.best > result.claimed for proven in result.views.values())


@pytest.mark.slow
def test_a_clip_that_does_not_clip_is_found():
    assert _audit(adaclip_tf.DPOptimizer(_LooseClip(0.1), 0.1, **PRIVATE)).refuted


INNER = {
    "adam": lambda: tf.keras.optimizers.Adam(1e-3),
    "momentum": lambda: tf.keras.optimizers.SGD(0.1, momentum=0.9),
}
OTHERS = {
    "AdaCliP": lambda: adaclip_tf.DPAdaClipSGD(0.1, initial_std=1e-2, **PRIVATE),
    "AdaCliP around Adam": lambda: adaclip_tf.DPAdaClip(INNER["adam"](), initial_std=1e-2, **PRIVATE),
    "fixed clip around momentum": lambda: adaclip_tf.DPFixedClip(INNER["momentum"](), l2_norm_clip=0.5, **PRIVATE),
    "momentum": lambda: _fixed(momentum=0.9),
    "layers": lambda: adaclip_tf.DPPerLayerClipSGD(0.1, l2_norm_clip=0.5, **PRIVATE),
    "quantile": lambda: adaclip_tf.DPQuantileClipSGD(0.1, **PRIVATE),
    "accumulation": lambda: _fixed(accumulation_steps=2),
    "scales": lambda: adaclip_tf.DPAdaClipSGD(
        0.1, scales=core.Scales(0.5, [np.ones([FEATURES, 1]), np.ones([1])]), precondition=True, **PRIVATE
    ),
    "schedule": lambda: adaclip_tf.DPFixedClipSGD(
        tf.keras.optimizers.schedules.PolynomialDecay(0.1, 10), l2_norm_clip=0.5, **PRIVATE
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_right_optimizers_of_all_kinds_are_not_refuted(name):
    _check_is_right(_audit(OTHERS[name]()))


@pytest.mark.slow
def test_too_little_noise_is_found_behind_an_inner_optimizer():
    optimizer = OTHERS["AdaCliP around Adam"]()
    optimizer.private_step.__class__ = _QuarterOfTheNoise
    assert _audit(optimizer).refuted


@pytest.mark.slow
def test_sampled_batches_are_claimed_for_and_drawn_with_their_probability():
    arguments = {"steps": 2, "runs": 40}
    result = _audit(_fixed(noise_multiplier=1.0), data=2 * NUMBER, **arguments)
    assert 0.0 < result.lower_bound < result.claimed, str(result)
    liar = _fixed(noise_multiplier=2.0)
    liar.private_step.__class__ = _QuarterOfTheNoise
    result = _audit(liar, data=2 * NUMBER, **arguments)
    assert result.refuted, str(result)


def _reader(optimizer):
    """Words to a class: inputs that can't be made up."""
    tf.keras.utils.set_random_seed(1)
    layers = [tf.keras.layers.Embedding(20, 6), tf.keras.layers.GlobalAveragePooling1D(), tf.keras.layers.Dense(3)]
    model = tf.keras.Sequential([tf.keras.Input((5,), dtype="int32"), *layers])
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss=loss)
    return model


def _pictures(optimizer):
    tf.keras.utils.set_random_seed(1)
    layers = [tf.keras.layers.Conv2D(4, 3), tf.keras.layers.Flatten()]
    model = tf.keras.Sequential([tf.keras.Input((6, 6, 1)), *layers, tf.keras.layers.Dense(1)])
    model.compile(optimizer, loss="binary_crossentropy")
    return model


@pytest.mark.slow
def test_models_of_words_and_pictures(rng):
    rows = rng.integers(0, 20, (30, 5)).astype(np.int32), rng.integers(0, 3, 30)
    tight = adaclip_tf.DPFixedClipSGD(0.1, l2_norm_clip=0.02, **PRIVATE)
    _check_is_right(_audit(tight, make=_reader, data=rows, num_examples=NUMBER, canaries=8, runs=60))
    _check_is_right(_audit(_fixed(), make=_pictures, canaries=8, runs=60))


# ---------------------------------------------------------------------------------------------------
# What can't be audited is said, before anything is trained.


@pytest.mark.parametrize(
    ("make", "data", "arguments", "message"),
    [
        (lambda: _softmax("sgd"), NUMBER, {}, "compiled with a private optimizer.*SGD"),
        (lambda: "model", NUMBER, {}, "`make_model` must return.*str"),
        (lambda: _softmax(_fixed(noise_multiplier=0.0)), NUMBER, {}, "`noise_multiplier=0`"),
        (lambda: _softmax(_fixed(expected_batch_size=None)), NUMBER, {}, "`expected_batch_size`"),
        (lambda: _softmax(_fixed(num_microbatches=5)), NUMBER, {}, "`num_microbatches=None`"),
        (lambda: _softmax(_fixed(), steps_per_execution=2), NUMBER, {}, "`steps_per_execution=1`"),
        (lambda: _softmax(_fixed()), NUMBER - 1, {}, "`expected_batch_size`=50 is more than.*49"),
        (lambda: _softmax(_fixed()), 0, {}, "`data` must be a whole number"),
        (lambda: _softmax(_fixed()), np.zeros([NUMBER, 3]), {}, "`\\(x, y\\)`"),
        (lambda: _softmax(_fixed()), NUMBER, {"num_examples": 3}, "`num_examples`=3"),
        (lambda: _softmax(_fixed()), NUMBER, {"canaries": 51}, "`canaries` must be at most.*50; got 51"),
        (lambda: _softmax(_fixed()), NUMBER, {"runs": 0}, "`runs`"),
        (lambda: _softmax(_fixed()), NUMBER, {"steps": 1.5}, "`steps`"),
        (lambda: _softmax(_fixed()), NUMBER, {"confidence": 95}, "`confidence`"),
        (lambda: _softmax(_fixed()), NUMBER, {"accountant": "abacus"}, "accountant"),
        (lambda: _softmax(_fixed()), NUMBER, {"delta": 2.0}, "`delta`"),
    ],
)
def test_bad_arguments(make, data, arguments, message):
    with pytest.raises(ValueError, match=message):
        adaclip_tf.audit(make, data, **{**ARGUMENTS, **arguments})


def test_a_model_in_the_place_of_a_function():
    with pytest.raises(ValueError, match="`make_model` must be a function"):
        adaclip_tf.audit(_softmax(_fixed()), NUMBER)
    with pytest.raises(TypeError, match="`batch_size`; it is the optimizer's"):
        adaclip_tf.audit(lambda: _softmax(_fixed()), NUMBER, batch_size=3)


# ---------------------------------------------------------------------------------------------------
# The command line.


def _result(bound):
    return AuditResult(
        lower_bound=bound, claimed=4.38, confidence=0.95, delta=1e-5, accountant="pld", noise_multiplier=1.0,
        num_examples=100, batch_size=100, steps=1, runs=10, canaries=20, most_provable=6.0,
        views={"gradient": Proven(50, 45, 0.5 * bound, bound)},
    )  # fmt: skip


@pytest.mark.parametrize(("bound", "code"), [(2.1, 0), (4.5, 1)])
def test_the_program_tells_by_its_exit_code(tmp_path, monkeypatch, bound, code):
    (tmp_path / "their_model.py").write_text("def make():\n    return 'made'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    given = []

    def audit(make_model, data, **arguments):
        given.append((make_model(), data, arguments["steps"]))
        return _result(bound)

    monkeypatch.setattr(program, "audit", audit)
    assert program.main(["audit", "--model=their_model:make", "--num_examples=100", "--steps=3"]) == code
    assert given == [("made", 100, 3)]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num_examples=3"], "--model is required"),
        (["--model=os:nothing", "--num_examples=3"], "os has no 'nothing'"),
        (["--model=os", "--num_examples=3"], "package.module:function"),
        (["--model=no_such_module:f", "--num_examples=3"], "no_such_module"),
        (["--model=os:getcwd", "--num_examples=3", "more"], "'more'"),
        (["--model=os:getcwd", "--num_examples=3"], "`make_model` must return"),
    ],
)
def test_the_program_says_what_is_wrong_in_a_line(capsys, monkeypatch, flags, message):
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert program.main(["audit", *flags]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_what_is_printed():
    assert "No attack proved more than epsilon 2.10 (with confidence 0.95); claimed: 4.38 (PLD)" in " ".join(
        str(_result(2.1)).split()
    )
    assert "never that all is well" in " ".join(str(_result(2.1)).split())
    assert "!!! THE CLAIM IS FALSE" in str(_result(4.5)) and _result(4.5).refuted
