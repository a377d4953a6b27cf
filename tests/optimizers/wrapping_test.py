"""DPAdaClip and DPFixedClip: any optimizer of Keras on private gradients."""

import re

import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf import DPAdaClip, DPAdaClipSGD, DPFixedClip
from adaclip_tf._internal import keras
from adaclip_tf.core import noise
from tests import generations, models
from tests.oracle import Oracle

SHAPES = [(models.FEATURES, models.CLASSES), (models.CLASSES,)]
OPTIMIZERS = tf.keras.optimizers


def _schedule():
    return OPTIMIZERS.schedules.ExponentialDecay(0.1, 2, 0.5)


def _adaclip(inner, **arguments):
    return DPAdaClip(inner, **{"noise_multiplier": 0.7, "initial_std": 0.1, "h2": 0.1, "seed": 7, **arguments})


class _Adam:
    """Kingma & Ba 2015 in NumPy, over a list of arrays."""

    def __init__(self, shapes, rate, beta_1=0.9, beta_2=0.999, epsilon=1e-7):
        self._rate, self._betas, self._epsilon, self._steps = rate, (beta_1, beta_2), epsilon, 0
        self._m, self._v = ([np.zeros(shape) for shape in shapes] for _ in range(2))

    def step(self, weights, gradients):
        self._steps += 1
        beta_1, beta_2 = self._betas
        self._m = [beta_1 * m + (1 - beta_1) * g for m, g in zip(self._m, gradients)]
        self._v = [beta_2 * v + (1 - beta_2) * g * g for v, g in zip(self._v, gradients)]
        rate = self._rate * np.sqrt(1 - beta_2**self._steps) / (1 - beta_1**self._steps)
        return [w - rate * m / (np.sqrt(v) + self._epsilon) for w, m, v in zip(weights, self._m, self._v)]


def test_adam_gets_what_the_oracle_publishes():
    """Twelve steps of AdaCliP and of Adam in NumPy, with the library's draws of noise."""
    inputs, labels = models.data(13)
    model = models.softmax_regression()
    weights = [w.astype(np.float64) for w in model.get_weights()]
    oracle = Oracle(SHAPES, noise_multiplier=0.7, divisor=5, initial_std=0.1, h2=0.1)
    adam, draws = _Adam(SHAPES, 0.05), noise.NoiseSource(seed=7)
    optimizer = _adaclip(OPTIMIZERS.Adam(0.05), expected_batch_size=5)
    models.fit(model, optimizer, inputs, labels, batch_size=5, epochs=4)  # batches of 5, 5 and 3
    for _ in range(4):
        for start in (0, 5, 10):
            batch = slice(start, start + 5)
            normals = [draw.numpy() for draw in draws.fresh_normals(SHAPES)]
            mean = oracle.step(models.softmax_gradients(weights, inputs[batch], labels[batch]), normals)
            weights = adam.step(weights, mean)
    for ours, theirs in zip(model.get_weights(), weights):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    state = optimizer.private_step.state()
    for ours, theirs in zip([*state.mean, *state.variance], [*oracle.mean, *oracle.variance]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    assert int(optimizer.noised_steps) == int(optimizer.iterations) == 12


@pytest.mark.parametrize(
    "make_inner",
    [
        lambda: OPTIMIZERS.AdamW(_schedule(), weight_decay=0.1, clipnorm=0.1, use_ema=True, ema_overwrite_frequency=2),
        lambda: keras.optimizer_called("lion"),
        pytest.param(lambda: OPTIMIZERS.SGD(0.1, 0.9, True, global_clipnorm=0.2), marks=pytest.mark.slow),
        pytest.param(lambda: OPTIMIZERS.Nadam(0.1), marks=pytest.mark.slow),
        pytest.param(lambda: OPTIMIZERS.RMSprop(0.1, momentum=0.5, centered=True), marks=pytest.mark.slow),
        pytest.param(lambda: OPTIMIZERS.Adafactor(0.1), marks=pytest.mark.slow),
    ],
)
def test_the_inner_optimizer_is_keras_own(make_inner):
    """The same inner optimizer, fed by hand with what a twin publishes, ends at the same weights."""
    inputs, labels = models.data(12)
    loss = models.per_example_loss()
    model, by_hand = models.softmax_regression(), models.softmax_regression()
    arguments = {"l2_norm_clip": 0.5, "noise_multiplier": 1.0, "seed": 5}
    private = DPFixedClip(make_inner(), **arguments)
    publisher, inner = DPFixedClip("sgd", **arguments), make_inner()
    private.build(model.trainable_variables)
    publisher.build(by_hand.trainable_variables)
    inner.build(by_hand.trainable_variables)

    @tf.function(input_signature=[tf.TensorSpec([4, models.FEATURES]), tf.TensorSpec([4], tf.int64)])
    def step(x, y):
        private.minimize(lambda: loss(y, model(x, training=True)), model.trainable_variables)
        pairs = publisher.compute_gradients(lambda: loss(y, by_hand(x, training=True)), by_hand.trainable_variables)
        inner.apply_gradients(pairs)

    for start in (0, 4, 8, 4):
        step(tf.constant(inputs[start : start + 4]), tf.constant(labels[start : start + 4]))
    assert any(np.abs(w).max() > 0 for w in model.get_weights())
    for ours, theirs in zip(model.get_weights(), by_hand.get_weights()):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    private.finalize_variable_values(model.trainable_variables)
    inner.finalize_variable_values(by_hand.trainable_variables)
    for ours, theirs in zip(model.get_weights(), by_hand.get_weights()):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_around_sgd_it_is_the_optimizer_with_sgd_built_in():
    inputs, labels = models.data(8)
    arguments = {"noise_multiplier": 1.0, "initial_std": 0.1, "h2": 0.1, "seed": 1, "num_microbatches": 2}
    one = models.fit(models.mlp(), DPAdaClipSGD(0.3, 0.9, **arguments), inputs, labels, 4, 2)
    other = models.fit(models.mlp(), DPAdaClip(OPTIMIZERS.SGD(0.3, 0.9), **arguments), inputs, labels, 4, 2)
    for ours, theirs in zip(one.get_weights(), other.get_weights()):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert other.optimizer.microbatch_sensitivity == one.optimizer.microbatch_sensitivity == 2.0


def test_the_inner_optimizer_moves_when_the_logical_batch_is_complete():
    inputs, labels = models.data(4)
    inner = OPTIMIZERS.AdamW(_schedule(), weight_decay=0.1)
    optimizer = _adaclip(inner, accumulation_steps=2)
    model = models.fit(models.softmax_regression(), optimizer, inputs, labels, batch_size=2)
    assert int(optimizer.noised_steps) == int(optimizer.iterations) == int(inner.iterations) == 1
    before = [*model.get_weights(), *(v.numpy() for v in inner.variables)]
    model.fit(inputs[:2], labels[:2], batch_size=2, verbose=0)
    for old, new in zip(before, [*model.get_weights(), *(v.numpy() for v in inner.variables)]):
        np.testing.assert_array_equal(old, new)
    model.fit(inputs[2:], labels[2:], batch_size=2, verbose=0)
    assert int(optimizer.noised_steps) == int(inner.iterations) == 2
    assert any((p != q).any() for p, q in zip(before, model.get_weights()))


# Saving.


@pytest.fixture(scope="module")
def trained():
    """A model that AdamW has trained, with averages of its weights."""
    inputs, labels = models.data(8)
    inner = OPTIMIZERS.AdamW(0.05, weight_decay=0.1, use_ema=True)
    optimizer = _adaclip(inner, noise_multiplier=0.0, seed=None, expected_batch_size=4)
    return models.fit(models.mlp(), optimizer, inputs, labels, 4, 2)


def _state(optimizer):
    return [variable.numpy() for variable in optimizer.variables if "phase" not in variable.name]


def _assert_goes_on_alike(model, other):
    assert int(other.optimizer.noised_steps) == int(other.optimizer.iterations) == int(model.optimizer.iterations)
    assert len(_state(model.optimizer)) == len(_state(other.optimizer))
    for ours, theirs in zip(_state(model.optimizer), _state(other.optimizer)):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["model.keras", pytest.param("model.h5", marks=generations.keras2_only)])
def test_a_loaded_model_goes_on_where_the_saved_one_stopped(trained, name, tmp_path):
    trained.save(str(tmp_path / name))
    loaded = tf.keras.models.load_model(str(tmp_path / name))
    assert type(loaded.optimizer) is DPAdaClip
    assert type(loaded.optimizer.inner_optimizer) is OPTIMIZERS.AdamW
    assert loaded.optimizer.get_config() == trained.optimizer.get_config()
    _assert_goes_on_alike(trained, loaded)


def test_a_checkpoint_restores_into_a_model_that_has_not_trained(trained, tmp_path):
    path = tf.train.Checkpoint(model=trained).write(str(tmp_path / "checkpoint"))
    fresh = models.mlp(seed=99)
    fresh.compile(DPAdaClip.from_config(trained.optimizer.get_config()), models.per_example_loss())
    tf.train.Checkpoint(model=fresh).restore(path)
    fresh.optimizer.build(fresh.trainable_variables)
    _assert_goes_on_alike(trained, fresh)
    found = adaclip_tf.check_release(path).findings
    assert not [each for each in found if "no noise" in each.why]
    assert any("weights" in each.what for each in found)


def test_set_weights_sets_all_or_nothing(trained):
    optimizer = DPAdaClip.from_config(trained.optimizer.get_config())
    model = models.mlp()
    optimizer.build(model.trainable_variables)
    values = [variable.numpy() for variable in trained.optimizer.variables]
    before = _state(optimizer)
    with pytest.raises(ValueError, match="To load it, use the same arguments"):
        optimizer.set_weights(values[:-1])
    for ours, theirs in zip(before, _state(optimizer)):
        np.testing.assert_array_equal(ours, theirs)
    optimizer.set_weights(values)
    for ours, theirs in zip(_state(trained.optimizer), _state(optimizer)):
        np.testing.assert_array_equal(ours, theirs)
    for inner in optimizer.inner_optimizer.variables:  # Adam's moments, too
        assert any(inner is variable for variable in optimizer.variables)


def test_a_schedule_comes_back():
    optimizer = DPFixedClip(OPTIMIZERS.SGD(_schedule()), l2_norm_clip=0.3, noise_multiplier=1.0, name="mine")
    again = DPFixedClip.from_config(optimizer.get_config())
    assert again.get_config() == optimizer.get_config()
    assert (again.l2_norm_clip, again.name) == (0.3, "mine")
    assert "learning_rate" not in optimizer.get_config()


# What goes through to the inner optimizer.


def test_callbacks_set_the_learning_rate_of_the_inner_optimizer():
    inputs, labels = models.data(4)
    model = models.softmax_regression()
    model.compile(_adaclip(OPTIMIZERS.SGD(0.1)), models.per_example_loss())
    seen = []
    callbacks = [
        tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2),
        tf.keras.callbacks.ReduceLROnPlateau("plateau", factor=0.1, patience=1, mode="min"),
    ]

    class Watch(tf.keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["plateau"] = 1.0
            seen.append(float(np.asarray(model.optimizer.learning_rate)))

    model.fit(inputs, labels, epochs=3, verbose=0, callbacks=[callbacks[0], Watch(), callbacks[1]])
    np.testing.assert_allclose(seen, [0.05, 0.025, 0.00125], rtol=1e-5)
    model.optimizer.learning_rate = 0.5
    assert float(np.asarray(model.optimizer.inner_optimizer.learning_rate)) == 0.5


def test_a_policy_of_mixed_precision_does_not_wrap_it_again():
    policy = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        inputs, labels = models.data(4)
        optimizer = _adaclip("adam")
        model = models.fit(models.softmax_regression(), optimizer, inputs, labels, 4)
    finally:
        tf.keras.mixed_precision.set_global_policy(policy)
    assert model.optimizer is optimizer and type(optimizer.inner_optimizer) is OPTIMIZERS.Adam
    assert int(optimizer.noised_steps) == 1 and all(np.isfinite(w).all() for w in model.get_weights())


def test_budget_and_release(tmp_path):
    inputs, labels = models.data(8)
    model = models.softmax_regression()
    optimizer = DPAdaClip(OPTIMIZERS.Adam(_schedule()), noise_multiplier=1.0, expected_batch_size=4)
    model.compile(optimizer, models.per_example_loss())
    batches = adaclip_tf.poisson_batches((inputs, labels), expected_batch_size=4)
    budget = adaclip_tf.PrivacyBudget.of(batches, delta=1e-2)
    model.fit(batches, verbose=0, callbacks=[budget])
    assert budget.epsilon > 0
    assert set(optimizer.private_metrics()) >= {"noise_norm", "std_mean"}
    np.testing.assert_allclose(float(keras.last_learning_rate(optimizer)), 0.1 * 0.5**0.5, rtol=1e-5)
    contents = adaclip_tf.release(model, tmp_path / "model.keras", statement=budget)
    assert set(contents["weights"].values()) == {"trained with noise"}
    # An update that the private optimizer did not make is found out.
    zeros = [tf.zeros(variable.shape) for variable in model.trainable_variables]
    optimizer.inner_optimizer.apply_gradients(list(zip(zeros, model.trainable_variables)))
    with pytest.raises(ValueError, match="made by another"):
        adaclip_tf.release(model, tmp_path / "model.keras", statement=budget)


@pytest.mark.slow
def test_tensorboard(tmp_path):
    inputs, labels = models.data(8)
    model = models.softmax_regression()
    model.compile(_adaclip(OPTIMIZERS.Adam(_schedule()), seed=None), models.per_example_loss())
    board = adaclip_tf.PrivacyTensorBoard(str(tmp_path), update_freq=1)
    model.fit(inputs, labels, batch_size=4, verbose=0, callbacks=[board])
    assert list(tmp_path.rglob("events*"))


# What is refused.


def _used():
    inner = OPTIMIZERS.Adam()
    inner.build([tf.Variable(1.0)])
    return inner


@pytest.mark.parametrize(
    ("make_inner", "says"),
    [
        (lambda: DPAdaClipSGD(noise_multiplier=1.0), "adds noise already"),
        (lambda: DPFixedClip("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), "adds noise already"),
        (lambda: tf.keras.mixed_precision.LossScaleOptimizer(OPTIMIZERS.SGD()), "need no scaling"),
        (lambda: OPTIMIZERS.Adam, "not its class Adam"),
        (lambda: "adamant", "is no optimizer of Keras"),
        (object, "must be an optimizer of this Keras"),
        (lambda: None, "must be an optimizer of this Keras"),
        pytest.param(lambda: OPTIMIZERS.legacy.Adam(0.1), "no legacy one", marks=generations.keras2_only),
        pytest.param(lambda: OPTIMIZERS.SGD(loss_scale_factor=8.0), "Leave it out", marks=generations.keras3_only),
        pytest.param(
            lambda: OPTIMIZERS.SGD(gradient_accumulation_steps=2),
            "give `accumulation_steps` to DPFixedClip",
            marks=generations.keras3_only,
        ),
        (_used, "has state already"),
    ],
)
def test_other_inner_optimizers_are_refused(make_inner, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        DPFixedClip(make_inner(), l2_norm_clip=1.0, noise_multiplier=1.0)


def test_an_inner_optimizer_that_was_used_in_between_is_refused():
    """Its moments would be of gradients without noise."""
    inner, model = OPTIMIZERS.Adam(), models.softmax_regression()
    optimizer = _adaclip(inner)
    inner.build(model.trainable_variables)
    with pytest.raises(ValueError, match="has state already"):
        optimizer.build(model.trainable_variables)


@pytest.mark.parametrize("argument", ["learning_rate", "momentum", "weight_decay", "use_ema", "clipnorm"])
def test_arguments_of_the_inner_optimizer_are_pointed_to_it(argument):
    with pytest.raises(TypeError, match=rf"`{argument}`: the update is the inner optimizer's.*Adam\({argument}"):
        _adaclip("adam", **{argument: 0.1})


def test_foreign_gradients_are_refused():
    model = models.softmax_regression()
    optimizer = _adaclip("adam")
    zeros = [(tf.zeros(variable.shape), variable) for variable in model.trainable_variables]
    with pytest.raises(ValueError, match="not made by this optimizer"):
        optimizer.apply_gradients(zeros)
