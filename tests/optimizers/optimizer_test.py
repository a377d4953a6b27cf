"""DPAdaClipSGD and DPFixedClipSGD through real Keras training."""

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPAdaClipSGD, DPFixedClipSGD
from adaclip_tf._internal import keras
from adaclip_tf.core import noise
from tests import generations, models
from tests.oracle import Oracle

PATHS = ("auto", "jacobian")
SHAPES = [(models.FEATURES, models.CLASSES), (models.CLASSES,)]


def _adaclip(**arguments):
    return DPAdaClipSGD(**{"noise_multiplier": 0.0, "learning_rate": 0.5, "initial_std": 0.1, "h2": 0.1, **arguments})


def _max_difference(one, other):
    return max(np.abs(p - q).max() for p, q in zip(one.get_weights(), other.get_weights()))


def _losses_of(model):
    loss = models.per_example_loss()
    return lambda x, y: loss(y, model(x, training=True))


# What it computes.


@pytest.mark.parametrize(
    "path, noise_multiplier",
    [("auto", 0.0), ("auto", 0.7), pytest.param("jacobian", 0.0, marks=pytest.mark.slow), ("jacobian", 0.7)],
)
def test_ten_fit_steps_equal_the_oracle(path, noise_multiplier):
    inputs, labels = models.data(13)
    model = models.softmax_regression()
    weights = [w.astype(np.float64) for w in model.get_weights()]
    oracle = Oracle(SHAPES, noise_multiplier=noise_multiplier, divisor=5, initial_std=0.1, h2=0.1)
    draws = noise.NoiseSource(seed=7)
    optimizer = _adaclip(noise_multiplier=noise_multiplier, expected_batch_size=5, seed=7, gradient_path=path)
    models.fit(model, optimizer, inputs, labels, batch_size=5, epochs=4)  # batches of 5, 5 and 3

    for _ in range(4):
        for start in (0, 5, 10):
            batch = slice(start, start + 5)
            normals = [draw.numpy() for draw in draws.fresh_normals(SHAPES)]
            mean = oracle.step(models.softmax_gradients(weights, inputs[batch], labels[batch]), normals)
            weights = [w - 0.5 * g for w, g in zip(weights, mean)]
    for ours, theirs in zip(model.get_weights(), weights):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    state = optimizer.private_step.state()
    for ours, theirs in zip([*state.mean, *state.variance], [*oracle.mean, *oracle.variance]):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-6)
    assert int(optimizer.noised_steps) == int(optimizer.iterations) == 12


@pytest.mark.parametrize(
    "path, momentum, nesterov",
    [
        ("auto", 0.0, False),
        ("auto", 0.9, False),
        ("auto", 0.9, True),
        pytest.param("jacobian", 0.0, False, marks=pytest.mark.slow),
        pytest.param("jacobian", 0.9, False, marks=pytest.mark.slow),
        ("jacobian", 0.9, True),
    ],
)
def test_no_clipping_and_no_noise_is_keras_sgd(path, momentum, nesterov):
    inputs, labels = models.data()
    ours = DPFixedClipSGD(0.1, momentum, nesterov, l2_norm_clip=1e6, noise_multiplier=0.0, gradient_path=path)
    private = models.fit(models.mlp(), ours, inputs, labels, batch_size=5, epochs=3)
    plain = models.mlp()
    plain.compile(
        tf.keras.optimizers.SGD(0.1, momentum, nesterov),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    plain.fit(inputs, labels, batch_size=5, epochs=3, shuffle=False, verbose=0)
    assert _max_difference(private, plain) < 1e-5


@generations.keras2_only
def test_fixed_clip_is_tensorflow_privacys_optimizer():
    # Not with tf-keras: the package as a whole can't be imported on TensorFlow 2.16 or later.
    tensorflow_privacy = pytest.importorskip("tensorflow_privacy", exc_type=ImportError)
    inputs, labels = models.data(20)
    theirs = tensorflow_privacy.DPKerasSGDOptimizer(
        l2_norm_clip=0.5, noise_multiplier=0.0, learning_rate=0.3, num_microbatches=4
    )
    reference = models.fit(models.mlp(), theirs, inputs, labels, batch_size=4, epochs=2)
    for path in PATHS:
        ours = DPFixedClipSGD(0.3, l2_norm_clip=0.5, noise_multiplier=0.0, gradient_path=path)
        model = models.fit(models.mlp(), ours, inputs, labels, batch_size=4, epochs=2)  # ten steps
        assert _max_difference(model, reference) < 1e-5


@pytest.mark.slow
def test_every_way_of_training_gives_the_same_weights():
    inputs, labels = models.data(8)
    reference = models.fit(models.mlp(), _adaclip(), inputs, labels, batch_size=4)
    loss = models.per_example_loss()

    def batches():
        for start in (0, 4):
            yield tf.constant(inputs[start : start + 4]), tf.constant(labels[start : start + 4])

    def with_tape(model, optimizer, x, y):
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        optimizer.minimize(value, model.trainable_variables, tape)

    def with_callable(model, optimizer, x, y):
        optimizer.minimize(lambda: loss(y, model(x, training=True)), model.trainable_variables)

    for path in PATHS:
        for step in (with_tape, with_callable):
            model, optimizer = models.mlp(), _adaclip(gradient_path=path)
            optimizer.build(model.trainable_variables)
            run = tf.function(step)
            for x, y in batches():
                run(model, optimizer, x, y)
            assert _max_difference(model, reference) < 1e-5, (path, step)
        model, optimizer = models.mlp(), _adaclip(gradient_path=path)
        losses = _losses_of(model)
        for x, y in batches():
            optimizer.minimize(losses, model.trainable_variables, data=(x, y))
        assert _max_difference(model, reference) < 1e-5, (path, "eager loop")
        for arguments in ({"jit_compile": True}, {"steps_per_execution": 2}):
            model = models.mlp()
            models.fit(model, _adaclip(gradient_path=path), inputs, labels, 4, **arguments)
            assert _max_difference(model, reference) < 1e-5, (path, arguments)
            assert int(model.optimizer.noised_steps) == 2


@pytest.mark.parametrize("path", PATHS)
def test_accumulation_is_one_large_batch(path):
    inputs, labels = models.data(24)
    arguments = {"momentum": 0.9, "gradient_path": path}
    whole = models.fit(models.mlp(), _adaclip(**arguments), inputs, labels, 12, 3)
    parts = models.fit(models.mlp(), _adaclip(accumulation_steps=3, **arguments), inputs, labels, 4, 3)
    assert _max_difference(whole, parts) < 1e-5
    assert int(parts.optimizer.noised_steps) == int(parts.optimizer.iterations) == 6


def test_accumulation_draws_noise_once_and_stands_still_in_between():
    inputs, labels = models.data(4)
    optimizer = _adaclip(noise_multiplier=1.0, accumulation_steps=2, momentum=0.9, weight_decay=0.1, seed=1)
    model = models.fit(models.softmax_regression(), optimizer, inputs, labels, batch_size=2)
    before = model.get_weights()
    model.fit(inputs[:2], labels[:2], batch_size=2, verbose=0)
    assert all((p == q).all() for p, q in zip(before, model.get_weights()))
    model.fit(inputs[2:], labels[2:], batch_size=2, verbose=0)
    assert any((p != q).any() for p, q in zip(before, model.get_weights()))
    assert int(optimizer.noised_steps) == 2
    # Eagerly too.
    losses, before = _losses_of(model), model.get_weights()
    optimizer.minimize(losses, model.trainable_variables, data=(inputs[:2], labels[:2]))
    assert all((p == q).all() for p, q in zip(before, model.get_weights()))
    optimizer.minimize(losses, model.trainable_variables, data=(inputs[:2], labels[:2]))
    assert any((p != q).any() for p, q in zip(before, model.get_weights()))


@pytest.mark.parametrize("path", PATHS)
def test_microbatches_average_their_examples(path):
    inputs, labels = models.data(6)
    optimizer = DPFixedClipSGD(1.0, l2_norm_clip=0.4, noise_multiplier=0.0, num_microbatches=2, gradient_path=path)
    model = models.softmax_regression()
    weights = model.get_weights()
    records = [g.reshape(2, 3, *g.shape[1:]).mean(axis=1) for g in models.softmax_gradients(weights, inputs, labels)]
    oracle = Oracle(SHAPES, kind="fixed", l2_norm_clip=0.4, noise_multiplier=0.0, divisor=2)
    mean = oracle.step(records, [np.zeros(shape) for shape in SHAPES])
    models.fit(model, optimizer, inputs, labels, batch_size=6)
    for ours, w, g in zip(model.get_weights(), weights, mean):
        np.testing.assert_allclose(ours, w - g, rtol=1e-5, atol=1e-6)
    assert optimizer.microbatch_sensitivity == 2.0
    assert _adaclip().microbatch_sensitivity == 1.0


def test_a_poisson_batch_is_divided_by_the_expected_size_and_may_be_empty():
    inputs, labels = models.data(7)
    sizes = [0, 2, 5]
    batches = np.split(np.arange(7), np.cumsum(sizes)[:-1])

    def generate():
        for rows in batches:
            yield inputs[rows], labels[rows]

    signature = (tf.TensorSpec([None, models.FEATURES]), tf.TensorSpec([None], tf.int64))
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    for path in PATHS:
        model = models.softmax_regression()
        weights = [w.astype(np.float64) for w in model.get_weights()]
        optimizer = _adaclip(expected_batch_size=4, noise_multiplier=1.0, seed=3, gradient_path=path)
        model.compile(optimizer, models.per_example_loss())
        model.fit(dataset, verbose=0)
        oracle = Oracle(SHAPES, noise_multiplier=1.0, divisor=4, initial_std=0.1, h2=0.1)
        draws = noise.NoiseSource(seed=3)
        for rows in batches:
            normals = [draw.numpy() for draw in draws.fresh_normals(SHAPES)]
            mean = oracle.step(models.softmax_gradients(weights, inputs[rows], labels[rows]), normals)
            weights = [w - 0.5 * g for w, g in zip(weights, mean)]
        for ours, theirs in zip(model.get_weights(), weights):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
        assert int(optimizer.noised_steps) == 3


# Models of every kind.


def _functional():
    one, two = tf.keras.Input([4]), tf.keras.Input([2])
    joined = tf.keras.layers.Concatenate()([tf.keras.layers.Dense(3, "relu")(one), two])
    outputs = [
        tf.keras.layers.Dense(3, name="classes")(joined),
        tf.keras.layers.Dense(1, name="value")(joined),
    ]
    return tf.keras.Model([one, two], outputs)


class Subclassed(tf.keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = tf.keras.layers.Dense(4, "gelu"), tf.keras.layers.Dense(3)
        self.skip = tf.keras.layers.Dense(4)

    def call(self, inputs, training=None):
        return self.out(self.hidden(inputs) + self.skip(inputs))


def test_functional_model_with_two_inputs_and_outputs():
    inputs, labels = models.data(8)
    results = []
    for path in PATHS:
        tf.keras.utils.set_random_seed(0)
        model = _functional()
        model.compile(
            _adaclip(gradient_path=path),
            loss={
                "classes": models.per_example_loss(),
                "value": tf.keras.losses.MeanSquaredError(reduction="none"),
            },
            loss_weights={"classes": 1.0, "value": 0.5},
        )
        model.optimizer.build(model.trainable_variables)
        model.fit([inputs, inputs[:, :2]], [labels, inputs[:, 0]], batch_size=3, epochs=2, verbose=0, shuffle=False)
        results.append(model)
    assert _max_difference(*results) < 1e-5


def _embedding_model():
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Embedding(11, 4), layers.GlobalAveragePooling1D(), layers.Dense(3)])


@pytest.mark.parametrize("build", [Subclassed, _embedding_model], ids=["subclassed", "embedding"])
def test_other_models_agree_on_both_paths(build):
    inputs, labels = models.data(8)
    if build is not Subclassed:
        inputs = np.random.default_rng(0).integers(0, 11, [8, 5])
    results = []
    for path in PATHS:
        tf.keras.utils.set_random_seed(0)
        results.append(models.fit(build(), _adaclip(gradient_path=path), inputs, labels, 3, 2))
    assert _max_difference(*results) < 1e-5


def test_dtype_policies_compute_in_float32():
    inputs, labels = models.data(8)
    results = {}
    weights = models.mlp().get_weights()
    try:
        for policy in ("float32", "mixed_float16", "mixed_bfloat16", "float64"):
            tf.keras.mixed_precision.set_global_policy(policy)
            optimizer, model = _adaclip(), models.mlp()
            model.set_weights(weights)
            results[policy] = models.fit(model, optimizer, inputs, labels, 4, 2)
            assert results[policy].optimizer is optimizer  # not wrapped in a loss scale
            assert {v.dtype for v in optimizer.private_step.state().variance} == {tf.float32}
    finally:
        tf.keras.mixed_precision.set_global_policy("float32")
    for policy, model in results.items():
        assert _max_difference(results["float32"], model) < 0.05, policy


def test_keras_arguments_are_post_processing():
    inputs, labels = models.data(8)
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.5)
    optimizer = _adaclip(
        learning_rate=schedule, weight_decay=0.01, use_ema=True, ema_momentum=0.5, noise_multiplier=1.0
    )
    models.fit(models.softmax_regression(), optimizer, inputs, labels, 4)
    # Keras 2 tells the rate of the second step, Keras 3 that of the third.
    assert float(optimizer.learning_rate) == {2: 0.25, 3: 0.125}[keras.GENERATION]


@generations.keras3_only
def test_float8_layers_are_refused():
    """They overwrite scales and histories by their gradients, un-noised."""
    model = models.softmax_regression()
    model.layers[0].quantize("float8")
    model.compile(_adaclip(), "mse")
    with pytest.raises(ValueError, match="overwritten by its gradient"):
        model.optimizer.build(model.trainable_variables)


# Configuration and metrics.


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: DPAdaClipSGD(
            0.3, 0.9, True, noise_multiplier=1.1, num_microbatches=2, expected_batch_size=8, accumulation_steps=4,
            beta_1=0.5, beta_2=0.6, h1=1e-10, h2=1e-2, gamma=0.5, initial_std=1e-3, variance_scaling="paper",
            clamp="after_average", gradient_path="jacobian", nonprivate_metrics=True, seed=3, name="mine",
            weight_decay=0.1, use_ema=True,
        ),
        lambda: DPAdaClipSGD(noise_multiplier=1.0),
        lambda: DPFixedClipSGD(l2_norm_clip=0.1, noise_multiplier=1.0, momentum=0.5),
        lambda: DPFixedClipSGD(
            tf.keras.optimizers.schedules.CosineDecay(0.1, 10), l2_norm_clip=2.0, noise_multiplier=1.0
        ),
    ],
)  # fmt: skip
def test_config_round_trips(optimizer):
    original = optimizer()
    config = original.get_config()
    copy = type(original).from_config(original.get_config())
    assert copy.get_config() == config
    restored = tf.keras.optimizers.deserialize(tf.keras.optimizers.serialize(original))
    assert type(restored) is type(original)
    assert restored.get_config() == config
    assert isinstance(original, tf.keras.optimizers.Optimizer)
    assert not isinstance(original, tf.keras.optimizers.legacy.Optimizer)


def test_private_metrics_in_graph_and_eager_mode():
    inputs, labels = models.data(8)
    optimizer = _adaclip(noise_multiplier=1.5, expected_batch_size=4)
    models.fit(models.mlp(), optimizer, inputs, labels, 4)
    eager = optimizer.private_metrics()
    graph = tf.function(optimizer.private_metrics)()
    std = np.concatenate([np.sqrt(v.numpy()).ravel() for v in optimizer.private_step.state().variance])
    mean = np.concatenate([m.numpy().ravel() for m in optimizer.private_step.state().mean])
    scale_norm = np.sqrt(std.sum() * std.sum())  # |b|^2 = sum_i s_i * sum_j s_j
    expected = {
        "scale_norm": scale_norm,
        "noise_norm": 1.5 * scale_norm / 4,
        "std_mean": std.mean(),
        "std_min": std.min(),
        "std_max": std.max(),
        "mean_norm": np.linalg.norm(mean),
    }
    assert all(type(value) is float for value in eager.values())
    for name, value in expected.items():
        np.testing.assert_allclose(eager[name], value, rtol=1e-5)
        np.testing.assert_allclose(graph[name], value, rtol=1e-5)
    fixed = DPFixedClipSGD(0.1, l2_norm_clip=2.0, noise_multiplier=1.0)
    models.fit(models.softmax_regression(), fixed, inputs, labels, 4)
    np.testing.assert_allclose(fixed.private_metrics()["scale_norm"], 2.0 * np.sqrt(15), rtol=1e-6)
    np.testing.assert_allclose(fixed.private_metrics()["noise_norm"], 2.0 * np.sqrt(15) / 4, rtol=1e-6)


def test_metrics_print_as_short_numbers():
    optimizer = DPFixedClipSGD(l2_norm_clip=0.1, noise_multiplier=1.0, expected_batch_size=1)
    optimizer.build([tf.Variable(1.0)])
    assert {name: str(value) for name, value in optimizer.private_metrics().items()} == {
        "noise_norm": "0.1",
        "scale_norm": "0.1",
    }


def test_private_state_is_by_name_and_in_the_variables_shapes():
    inputs, labels = models.data(8)
    optimizer = _adaclip(noise_multiplier=1.0)
    model = models.fit(models.mlp(), optimizer, inputs, labels, 4)
    state = optimizer.private_state()
    assert list(state) == [keras.path_of(v) for v in model.trainable_variables]
    total = sum(float(tf.reduce_sum(part["std"])) for part in state.values())
    for variable, part in zip(model.trainable_variables, state.values()):
        assert part["center"].shape == part["scale"].shape == variable.shape
        np.testing.assert_allclose(part["scale"], np.sqrt(part["std"] * total), rtol=1e-5)
    same_name = [tf.Variable([1.0], name="w"), tf.Variable([2.0], name="w")]
    fixed = DPFixedClipSGD(l2_norm_clip=2.0, noise_multiplier=1.0)
    fixed.build(same_name)
    assert {name: part["scale"].numpy().tolist() for name, part in fixed.private_state().items()} == {
        "w": [2.0],
        "w_1": [2.0],
    }


def test_nonprivate_metrics_are_opt_in_and_tagged():
    inputs, labels = models.data(4)
    inputs[1] = np.nan
    optimizer = _adaclip()
    optimizer.build(models.softmax_regression().trainable_variables)
    with pytest.raises(ValueError, match="nonprivate_metrics=True"):
        optimizer.nonprivate_metrics()
    for path in PATHS:
        optimizer = DPFixedClipSGD(
            0.1, l2_norm_clip=1e-3, noise_multiplier=0.0, nonprivate_metrics=True, gradient_path=path
        )
        models.fit(models.softmax_regression(), optimizer, inputs, labels, 4)
        metrics = optimizer.nonprivate_metrics()
        assert all(name.startswith("nonprivate/") for name in metrics)
        assert float(metrics["nonprivate/nonfinite_examples"]) == 1.0
        assert float(metrics["nonprivate/clip_fraction"]) == 1.0
        # The other three examples' norms, over all four.
        kept = [0, 2, 3]
        parts = models.softmax_gradients(models.softmax_regression().get_weights(), inputs[kept], labels[kept])
        norms = np.sqrt(sum((part.reshape(3, -1) ** 2).sum(axis=1) for part in parts))
        np.testing.assert_allclose(metrics["nonprivate/gradient_norm_mean"], norms.sum() / 4, rtol=1e-4)
        np.testing.assert_allclose(metrics["nonprivate/transformed_norm_mean"], norms.sum() / 4 / 1e-3, rtol=1e-4)


# Errors.


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"noise_multiplier": -1.0}, ["noise_multiplier", "-1.0"]),
        ({"noise_multiplier": float("nan")}, ["noise_multiplier", "nan"]),
        ({"noise_multiplier": "1"}, ["noise_multiplier", "'1'"]),
        ({"learning_rate": -0.1}, ["learning_rate", "-0.1"]),
        ({"momentum": 1.5}, ["momentum", "1.5"]),
        ({"nesterov": True}, ["nesterov", "momentum"]),
        ({"num_microbatches": 0}, ["num_microbatches", "0"]),
        ({"num_microbatches": 2.5}, ["num_microbatches", "2.5"]),
        ({"expected_batch_size": -4}, ["expected_batch_size", "-4"]),
        ({"expected_batch_size": 5, "num_microbatches": 2}, ["expected_batch_size", "multiple"]),
        ({"accumulation_steps": 0}, ["accumulation_steps", "0"]),
        ({"beta_1": 1.0}, ["beta_1", "1.0"]),
        ({"beta_2": -0.1}, ["beta_2", "-0.1"]),
        ({"h1": 0.0}, ["h1", "0.0"]),
        ({"h2": -1.0}, ["h2", "-1.0"]),
        ({"h1": 1.0, "h2": 0.5}, ["h1", "h2", "1.0", "0.5"]),
        ({"gamma": 0.0}, ["gamma", "0.0"]),
        ({"initial_std": -1.0}, ["initial_std", "-1.0"]),
        ({"variance_scaling": "batch"}, ["variance_scaling", "batch", "per_example"]),
        ({"clamp": "never"}, ["clamp", "never", "after_average"]),
        ({"gradient_path": "fast"}, ["gradient_path", "fast", "ghost"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"clipnorm": 1.0}, ["clipnorm", "h2"]),
        ({"clipvalue": 1.0}, ["clipvalue"]),
        ({"global_clipnorm": 1.0}, ["global_clipnorm"]),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises(ValueError) as error:
        DPAdaClipSGD(**{"noise_multiplier": 1.0, **arguments})
    for word in words:
        assert word in str(error.value)


def test_unknown_argument_and_missing_noise_multiplier():
    with pytest.raises(TypeError, match="noise_multiplier"):
        DPAdaClipSGD()
    with pytest.raises(TypeError, match="l2_norm_clip"):
        DPAdaClipSGD(noise_multiplier=1.0, l2_norm_clip=1.0)
    with pytest.raises(ValueError, match="l2_norm_clip"):
        DPFixedClipSGD(noise_multiplier=1.0, l2_norm_clip=0.0)


def _train(loss, **arguments):
    inputs, labels = models.data(4)
    model = models.softmax_regression()
    model.compile(_adaclip(**arguments), loss)
    model.fit(inputs, labels, batch_size=4, verbose=0)


def test_losses_that_are_not_per_example_are_refused():
    with pytest.raises(ValueError, match='reduction="none"'):
        _train(tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"))


@pytest.mark.parametrize("masked", [False, True])
def test_a_loss_over_time_is_its_mean_per_example(masked):
    """Over the steps that the mask leaves, where there is one: weights move as for that mean, written out."""
    layers = tf.keras.layers
    tokens = np.random.default_rng(0).integers(1, 9, [6, 5])
    tokens[0, 2:] = tokens[3, 4:] = 0
    targets = np.random.default_rng(1).normal(size=[6, 5, 1])

    def build():
        tf.keras.utils.set_random_seed(3)
        return tf.keras.Sequential([tf.keras.Input([5]), layers.Embedding(9, 3, mask_zero=masked), layers.Dense(1)])

    def mean_loss(y, prediction):
        errors = tf.square(y[..., 0] - prediction[..., 0])
        weights = y[..., 1] if masked else tf.ones_like(errors)
        return tf.reduce_sum(errors * weights, axis=1) / tf.reduce_sum(weights, axis=1)

    model = build()
    model.compile(_adaclip(), tf.keras.losses.MeanSquaredError(reduction="none"))
    model.optimizer.build(model.trainable_variables)
    model.fit(tokens, targets, batch_size=3, shuffle=False, verbose=0)
    expected = build()
    expected.compile(_adaclip(), None)
    with_mask = np.concatenate([targets, (tokens != 0)[..., np.newaxis]], axis=2)
    losses = lambda x, y: mean_loss(y, expected(x, training=True))  # noqa: E731
    for start in (0, 3):
        batch = slice(start, start + 3)
        data = (tokens[batch], np.float32(with_mask[batch]))
        expected.optimizer.minimize(losses, expected.trainable_variables, data=data)
    assert _max_difference(model, expected) < 1e-5


def test_microbatches_must_divide_the_batch():
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="num_microbatches=3"):
        _train(models.per_example_loss(), num_microbatches=3)


def test_foreign_gradients_are_refused():
    model = models.softmax_regression()
    optimizer = _adaclip()
    pairs = [(tf.zeros_like(v), v) for v in model.trainable_variables]
    with pytest.raises(ValueError, match="not private"):
        optimizer.apply_gradients(pairs)
    optimizer.build(model.trainable_variables)
    other = _adaclip()

    @tf.function
    def steps(x):
        with tf.GradientTape() as tape:
            loss = models.per_example_loss()(tf.constant([0]), model(x))
        pairs = optimizer.compute_gradients(loss, model.trainable_variables, tape)
        with pytest.raises(ValueError, match="not private"):
            other.apply_gradients(pairs)
        with pytest.raises(ValueError, match="not private"):
            optimizer.apply_gradients([(2.0 * g, v) for g, v in pairs])
        optimizer.apply_gradients(pairs)

    steps(tf.ones([1, models.FEATURES]))
    assert int(optimizer.noised_steps) == 1


def test_an_eager_loss_is_refused_with_what_to_do():
    model, optimizer = models.softmax_regression(), _adaclip()
    inputs, labels = models.data(4)
    with pytest.raises(ValueError, match=r"data=\(x, y\)"):
        optimizer.minimize(lambda: models.per_example_loss()(labels, model(inputs)), model.trainable_variables)
    with pytest.raises(ValueError, match="run_eagerly"):
        models.fit(model, optimizer, inputs, labels, 2, run_eagerly=True)
    with pytest.raises(ValueError, match="tuple of the arrays"):
        optimizer.minimize(_losses_of(model), model.trainable_variables, data=inputs)


def test_an_eager_loop_is_traced_once():
    traces = []
    model, optimizer = models.softmax_regression(), _adaclip()
    losses = _losses_of(model)

    def counted(x, y):
        traces.append(x.shape)
        return losses(x, y)

    inputs, labels = models.data(9)
    for size in (2, 3, 4):
        optimizer.minimize(counted, model.trainable_variables, data=(inputs[:size], labels[:size]))
    assert len(traces) == 1
    assert int(optimizer.noised_steps) == 3


def test_layers_may_be_frozen_between_phases():
    """The second phase trains the other layers, with the state that they have."""
    inputs, labels = models.data(8)
    model, optimizer = models.mlp(), _adaclip(momentum=0.9)
    models.fit(model, optimizer, inputs, labels, 4)
    frozen, moving = model.layers[0].get_weights(), model.layers[-1].get_weights()

    def stds():
        return [part["std"].numpy() for part in optimizer.private_state().values()]

    before = stds()
    model.layers[0].trainable = False
    models.fit(model, optimizer, inputs, labels, 4)
    assert all((p == q).all() for p, q in zip(frozen, model.layers[0].get_weights()))
    assert any((p != q).any() for p, q in zip(moving, model.layers[-1].get_weights()))
    assert len(stds()) == 2  # of what is trained
    assert int(optimizer.noised_steps) == 4
    model.layers[0].trainable = True
    optimizer.private_step.train_only(range(4))
    assert [np.array_equal(p, q) for p, q in zip(before, stds())] == [True, True, False, False]
    models.fit(model, optimizer, inputs, labels, 4)
    assert any((p != q).any() for p, q in zip(frozen, model.layers[0].get_weights()))


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16])
def test_float16_variables_are_refused(dtype):
    variable = tf.Variable(tf.zeros([2], dtype))
    with pytest.raises(ValueError, match="mixed_float16"):
        _adaclip().build([variable])


def test_state_is_asked_for_too_early():
    with pytest.raises(ValueError, match="train a step"):
        _adaclip().private_metrics()
    with pytest.raises(ValueError, match="train a step"):
        _ = _adaclip().noised_steps


def test_no_noise_and_a_seed_are_warned_about(caplog):
    from absl import logging

    logging.get_absl_logger().addHandler(caplog.handler)
    try:
        DPAdaClipSGD(noise_multiplier=0.0)
        DPAdaClipSGD(noise_multiplier=1.0, seed=1)
    finally:
        logging.get_absl_logger().removeHandler(caplog.handler)
    assert "WITHOUT any privacy" in caplog.text
    assert "NOT private" in caplog.text


def test_a_first_step_is_traced_once():
    """The optimizer makes its variables in the first step; TensorFlow must not trace that step again for it."""
    traces = []

    def loss(labels, outputs):
        traces.append(type(outputs))
        return tf.reduce_sum(tf.square(outputs - labels), axis=1)

    model = tf.keras.Sequential([tf.keras.Input([3]), tf.keras.layers.Dense(1)])
    model.compile(DPAdaClipSGD(0.1, momentum=0.5, noise_multiplier=1.0, expected_batch_size=4), loss)
    x = np.ones([4, 3], np.float32)
    for _ in range(2):
        model.train_on_batch(x, x[:, :1])
    assert len(traces) == 1
