"""Tests of `PrivacyTensorBoard`: what real training writes, read back from the event files."""

import doctest
import importlib
import json
import logging as python_logging
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import tensorflow as tf
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import metadata as hparams_metadata

import adaclip_tf
from adaclip_tf import tensorboard
from adaclip_tf.privacy import budget
from adaclip_tf.privacy.mechanism import Mechanism
from adaclip_tf.privacy.meter import PrivacyMeter
from adaclip_tf.tensorboard import PrivacyTensorBoard, figures, summaries
from adaclip_tf.tensorboard import names as run_names
from tests import models

N, BATCH, Z, DELTA = 24, 6, 2.0, 1e-3
WHERE = {"num_examples": N, "batch_size": BATCH, "delta": DELTA}
VARIABLES = ("dense/kernel", "dense/bias")
D = models.FEATURES * models.CLASSES + models.CLASSES


def events(folder):
    """All values of the run's event files, in order: (tag, step, summary value)."""
    found = []
    for path in sorted(pathlib.Path(folder).glob("events.*"), key=lambda p: (os.path.getmtime(p), p.name)):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            found += [(value.tag, event.step, value) for value in event.summary.value]
    return found


def plugin(value):
    return value.metadata.plugin_data.plugin_name


def scalars(folder):
    """{tag: {step: number}}; a tag that has a step twice is an error."""
    found = {}
    for tag, step, value in events(folder):
        if plugin(value) == "scalars":
            assert step not in found.setdefault(tag, {}), f"{tag} has step {step} twice"
            found[tag][step] = float(tf.make_ndarray(value.tensor))
    return found


def make_model(make=adaclip_tf.DPAdaClipSGD, strategy=None, compile_arguments=None, **options):
    options = {"noise_multiplier": Z, "expected_batch_size": BATCH, "learning_rate": 0.1, **options}
    tf.keras.backend.clear_session()
    tf.keras.utils.set_random_seed(1)
    with (strategy or tf.distribute.get_strategy()).scope():
        layer = tf.keras.layers.Dense(models.CLASSES, name="dense")
        model = tf.keras.Sequential([tf.keras.Input((models.FEATURES,)), layer])
        model.compile(make(**options), models.per_example_loss(), metrics=["accuracy"], **(compile_arguments or {}))
    return model


def fit(model, *callbacks, epochs=1, **options):
    dataset = models.out_of_sight(tf.data.Dataset.from_tensor_slices(models.data(N)).batch(BATCH))
    options = {"epochs": epochs, "verbose": 0, **options}
    return model.fit(dataset, callbacks=list(callbacks), **options).history


class Spy(tf.keras.callbacks.Callback):
    """Keeps a copy of the optimizer's private state after every step."""

    def __init__(self):
        super().__init__()
        self.states = {}

    def on_train_batch_end(self, batch, logs=None):
        made = self.model.optimizer
        copy = {
            name.removeprefix(f"{self.model.name}/"): {
                key: value.numpy().astype(np.float64) for key, value in part.items()
            }
            for name, part in made.private_state().items()
        }
        self.states[int(made.noised_steps)] = copy


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """Two epochs of four steps with everything switched on, beside Keras's own callback."""
    folder = tmp_path_factory.mktemp("full")
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 1, 0.5)
    model = make_model(nonprivate_metrics=True, learning_rate=schedule, seed=1)  # histograms of constants are left out
    spy = Spy()
    board = PrivacyTensorBoard(
        folder,
        **WHERE,
        update_freq=1,
        reference_l2_norm_clip=4.0,
        histogram_freq=1,
        image_freq=1,
        hparams={"layers": 1},
    )
    # It records at every second step: Keras 3 drops what an epoch comes to if its last step is none of them.
    keras = tf.keras.callbacks.TensorBoard(folder, update_freq=2)
    history = fit(model, keras, spy, board, epochs=2, validation_data=models.data(8, seed=3))
    return {"folder": folder, "model": model, "states": spy.states, "history": history}


@pytest.fixture(scope="module")
def traced():
    return make_model()


@pytest.fixture
def fresh(traced):
    return models.forget_steps(traced)


def epsilon_after(steps):
    return adaclip_tf.epsilon(noise_multiplier=Z, **WHERE, steps=steps)


# ---------------------------------------------------------------------------------------------------
# Scalars, against NumPy on the optimizer's state.


def flat(state, key):
    return np.concatenate([state[name][key].ravel() for name in VARIABLES])


EXPECTED = {
    "1_overview/noise_norm": lambda state: Z * np.linalg.norm(flat(state, "scale")) / BATCH,
    "2_noise/ratio_to_fixed_clip": lambda state: np.linalg.norm(flat(state, "scale")) / (4.0 * np.sqrt(D)),
    "3_gradient/std_mean": lambda state: flat(state, "std").mean(),
    "3_gradient/std_min": lambda state: flat(state, "std").min(),
    "3_gradient/std_max": lambda state: flat(state, "std").max(),
    "3_gradient/mean_norm": lambda state: np.linalg.norm(flat(state, "center")),
    **{
        f"4_variables/{name}/{key}": (lambda state, name=name, of=of, part=part: of(state[name][part].ravel()))
        for name in VARIABLES
        for key, of, part in (("std_mean", np.mean, "std"), ("mean_norm", np.linalg.norm, "center"))
    },
    **{
        f"2_noise/share/{name}": (
            lambda state, name=name: np.sum(state[name]["scale"] ** 2) / np.sum(flat(state, "scale") ** 2)
        )
        for name in VARIABLES
    },
}


@pytest.mark.parametrize("tag", EXPECTED)
def test_scalar_is_what_the_optimizer_s_state_gives(full, tag):
    written = scalars(full["folder"])[tag]
    assert written == pytest.approx({step: EXPECTED[tag](full["states"][step]) for step in range(1, 9)}, rel=1e-5)


def test_nothing_but_the_documented_tags(full):
    keras = {f"1_overview/{split}_{name}" for split in ("train", "validation") for name in ("loss", "accuracy")}
    written = scalars(full["folder"])
    assert written.keys() == {*EXPECTED, "1_overview/epsilon", "3_gradient/learning_rate", *keras}


def test_every_tag_is_in_the_docs(full):
    text = (pathlib.Path(__file__).parents[2] / "docs/tensorboard.md").read_text()
    for tag, _, value in events(full["folder"]):
        if plugin(value) in ("scalars", "histograms", "images", "text"):
            for name in VARIABLES:
                tag = tag.replace(name, "<variable>")
            tag = re.sub(r"(train_|validation_|1_overview/)(loss|accuracy)", r"\1<metric>", tag)
            assert f"`{tag}`" in text, tag


def test_epsilon_and_its_delta(full):
    written = scalars(full["folder"])["1_overview/epsilon"]
    assert written == pytest.approx({step: epsilon_after(step) for step in range(1, 9)}, rel=1e-6)
    found = [value for tag, _, value in events(full["folder"]) if tag == "1_overview/epsilon"]
    assert all("delta = 0.001" in value.metadata.summary_description for value in found)


def test_learning_rate_of_a_schedule(full):
    written = scalars(full["folder"])["3_gradient/learning_rate"]
    assert written == pytest.approx({step: 0.1 * 0.5 ** (step - 1) for step in range(1, 9)}, rel=1e-5)


def test_loss_and_accuracy_are_keras_s(full):
    written, history = scalars(full["folder"]), full["history"]
    for name in ("loss", "accuracy"):
        train, validation = written[f"1_overview/train_{name}"], written[f"1_overview/validation_{name}"]
        assert [train[4], train[8]] == pytest.approx(history[name], rel=1e-5)
        assert sorted(train) == list(range(1, 9))
        assert validation == pytest.approx(dict(zip((4, 8), history[f"val_{name}"])), rel=1e-5)


def test_accuracy_against_epsilon(full):
    points = json.loads((full["folder"] / "by_epsilon.json").read_text())["points"]
    assert [epsilon for epsilon, _ in points] == pytest.approx([epsilon_after(4), epsilon_after(8)], rel=1e-6)
    reached = [metrics["validation_accuracy"] for _, metrics in points]
    assert reached == pytest.approx(full["history"]["val_accuracy"], rel=1e-5)


def test_what_matters_comes_first(full):
    """TensorBoard sorts groups by name; a dashboard's first one must hold epsilon, accuracy and noise."""
    tags = sorted({tag for tag, _, value in events(full["folder"]) if plugin(value) in ("scalars", "images")})
    first = [tag for tag in tags if tag.split("/")[0] == tags[0].split("/")[0]]
    assert {tag.split("/")[1] for tag in first} == {
        "accuracy_by_epsilon",
        "epsilon",
        "noise_norm",
        "train_accuracy",
        "train_loss",
        "validation_accuracy",
        "validation_loss",
    }


def test_keras_s_own_callback_is_left_alone(full):
    written = scalars(full["folder"] / "train")
    assert sorted(written["epoch_loss"]) == [0, 1]
    assert "1_overview/epsilon" not in written


def test_fixed_clipping_is_compared_with_itself(tmp_path):
    model = make_model(adaclip_tf.DPFixedClipSGD, l2_norm_clip=3.0)
    fit(model, PrivacyTensorBoard(tmp_path, image_freq=1))
    written = scalars(tmp_path)
    assert written["2_noise/ratio_to_fixed_clip"] == {4: pytest.approx(1.0)}
    assert written["1_overview/noise_norm"] == {4: pytest.approx(Z * 3.0 * np.sqrt(D) / BATCH)}
    assert not any("std" in tag for tag in written)
    assert "1_overview/epsilon" not in written


def test_adaptive_clipping_is_compared_with_clipping_at_one(fresh, tmp_path):
    fit(fresh, PrivacyTensorBoard(tmp_path))
    written = scalars(tmp_path)
    fixed = Z * np.sqrt(D) / BATCH
    assert written["2_noise/ratio_to_fixed_clip"][4] == pytest.approx(written["1_overview/noise_norm"][4] / fixed)


# ---------------------------------------------------------------------------------------------------
# How often.


@pytest.mark.parametrize(
    ("update_freq", "steps"), [(1, [1, 2, 3, 4, 5, 6, 7, 8]), (3, [3, 4, 6, 8]), ("epoch", [4, 8])]
)
def test_update_freq_counts_noised_steps(fresh, tmp_path, update_freq, steps):
    fit(fresh, PrivacyTensorBoard(tmp_path, update_freq=update_freq, image_freq=0, hparams=False), epochs=2)
    assert sorted(scalars(tmp_path)["1_overview/noise_norm"]) == steps
    assert sorted(path.name.split(".")[0] for path in tmp_path.iterdir()) == ["events"]  # one run


def test_the_default_measures_every_fifty_steps(fresh, tmp_path, monkeypatch):
    calls = []
    measure = summaries.Measurement.__call__
    monkeypatch.setattr(summaries.Measurement, "__call__", lambda self: calls.append(1) or measure(self))
    inputs, labels = models.data(N)
    many = tf.data.Dataset.from_tensor_slices((inputs, labels)).repeat().batch(BATCH).take(120)
    fresh.fit(many, verbose=0, callbacks=[PrivacyTensorBoard(tmp_path)])
    assert sorted(scalars(tmp_path)["1_overview/noise_norm"]) == [50, 100, 120]
    assert len(calls) == 3 + 1  # one to trace it before training


def test_all_scalars_come_from_one_graph_that_is_traced_once(fresh, tmp_path, monkeypatch):
    traces = []
    trace = summaries.Measurement._trace
    monkeypatch.setattr(summaries.Measurement, "_trace", lambda self: traces.append(1) or trace(self))
    fit(fresh, PrivacyTensorBoard(tmp_path, update_freq=1), epochs=2)
    assert len(traces) == 1


@pytest.mark.slow
def test_several_steps_per_call(tmp_path):
    model = make_model(compile_arguments={"steps_per_execution": 4})
    fit(model, PrivacyTensorBoard(tmp_path, **WHERE, update_freq=3), epochs=3)
    assert sorted(scalars(tmp_path)["1_overview/epsilon"]) == [4, 8, 12]


def test_a_logical_batch_counts_once(tmp_path):
    model = make_model(accumulation_steps=2, expected_batch_size=2 * BATCH)
    fit(model, PrivacyTensorBoard(tmp_path, update_freq=1), epochs=2)
    assert sorted(scalars(tmp_path)["1_overview/noise_norm"]) == [1, 2, 3, 4]


def test_the_budget_of_the_same_fit_counts(fresh, tmp_path):
    counting = budget.PrivacyBudget(**{**WHERE, "delta": 1e-4})
    history = fit(fresh, PrivacyTensorBoard(tmp_path, budget=counting, update_freq=2), counting, epochs=2)
    written = scalars(tmp_path)["1_overview/epsilon"]
    assert sorted(written) == [2, 4, 6, 8]
    assert [written[4], written[8]] == pytest.approx(history["epsilon"], rel=1e-6)


def test_a_meter_counts_without_a_budget(fresh, tmp_path):
    claimed = Mechanism(1.0, WHERE["num_examples"], WHERE["batch_size"])
    counting = PrivacyMeter(claimed, delta=WHERE["delta"])
    fit(fresh, PrivacyTensorBoard(tmp_path, budget=counting, update_freq=2), epochs=1)
    expected = {steps: epsilon_after(steps) for steps in (2, 4)}
    assert scalars(tmp_path)["1_overview/epsilon"] == pytest.approx(expected, rel=1e-6)
    false = PrivacyMeter(Mechanism(1.0, WHERE["num_examples"], WHERE["batch_size"] + 1), delta=WHERE["delta"])
    with pytest.raises(ValueError, match="expected_batch_size"):
        fit(fresh, PrivacyTensorBoard(tmp_path, budget=false))


def test_a_budget_earlier_in_the_list_is_read_from_the_logs(fresh, tmp_path):
    history = fit(fresh, budget.PrivacyBudget(**WHERE), PrivacyTensorBoard(tmp_path, update_freq=2), epochs=2)
    written = scalars(tmp_path)
    assert written["1_overview/epsilon"] == pytest.approx(dict(zip((4, 8), history["epsilon"])), rel=1e-6)
    assert "1_overview/train_epsilon" not in written


def test_pld_is_asked_once_per_epoch(fresh, tmp_path):
    counting = budget.PrivacyBudget(**WHERE, accountant="pld")
    fit(fresh, PrivacyTensorBoard(tmp_path, budget=counting, update_freq=1), epochs=2)
    expected = {
        steps: adaclip_tf.epsilon(noise_multiplier=Z, **WHERE, steps=steps, accountant="pld") for steps in (4, 8)
    }
    assert scalars(tmp_path)["1_overview/epsilon"] == pytest.approx(expected, rel=1e-4)


def test_a_batch_size_other_than_the_optimizer_s_is_refused(fresh, tmp_path):
    with pytest.raises(ValueError, match="expected_batch_size"):
        fit(fresh, PrivacyTensorBoard(tmp_path, **{**WHERE, "batch_size": 12}))
    assert int(fresh.optimizer.noised_steps) == 0


def test_no_noise_is_infinite_epsilon(tmp_path):
    fit(make_model(noise_multiplier=0.0), PrivacyTensorBoard(tmp_path, **WHERE, image_freq=1))
    written = scalars(tmp_path)
    assert written["1_overview/epsilon"] == {4: np.inf}
    assert written["1_overview/noise_norm"] == {4: 0.0}
    assert not (tmp_path / "by_epsilon.json").exists()


# ---------------------------------------------------------------------------------------------------
# Names.


class Dense:
    """A layer of that class, as far as names go."""

    def __init__(self, name):
        self.name = name


class Named:
    """A model of that name, with layers."""

    def __init__(self, name, *layers):
        self.name, self._layers = name, [Dense(layer) for layer in layers]

    def _flatten_layers(self, include_self):
        return self._layers


@pytest.mark.parametrize(
    ("layers", "names", "tags"),
    [
        ((), ("m/dense/kernel", "m/dense/bias"), ("dense/kernel", "dense/bias")),
        ((), ("dense/kernel", "dense/bias"), ("dense/kernel", "dense/bias")),
        ((), ("m/m/kernel", "m/kernel"), ("m/kernel", "kernel")),
        ((), ("m/dense/kernel", "dense/kernel"), ("m/dense/kernel", "dense/kernel")),
        ((), ("m2/dense/kernel",), ("m2/dense/kernel",)),
        (("dense_4", "dense_7"), ("dense_4/kernel", "m/dense_7/kernel"), ("dense/kernel", "m/dense_1/kernel")),
        (("block_4", "mine"), ("block_4/kernel", "mine/kernel"), ("block_4/kernel", "mine/kernel")),
        (("dense_4",), ("dense_4/kernel", "dense/kernel"), ("dense_4/kernel", "dense/kernel")),
    ],
    ids=[
        "in the model",
        "in no model",
        "a layer of the model's name",
        "some are in the model",
        "in another model",
        "numbered by Keras",
        "named by the user",
        "not clear",
    ],
)
def test_names_are_comparable(layers, names, tags):
    assert run_names.comparable(names, Named("m", *layers)) == list(tags)


def test_a_second_model_of_the_program_has_the_same_tags(traced, tmp_path):
    """Keras 3 names it sequential_1, and its variables after it; the layer is dense_1 or later in both."""
    tf.keras.layers.Dense(3)
    second = tf.keras.Sequential([tf.keras.Input((models.FEATURES,)), tf.keras.layers.Dense(3)])
    assert second.name != traced.name and second.layers[-1].name != "dense"
    second.compile(
        adaclip_tf.DPAdaClipSGD(0.1, noise_multiplier=Z, expected_batch_size=BATCH), models.per_example_loss()
    )
    fit(second, PrivacyTensorBoard(tmp_path))
    assert "4_variables/dense/kernel/std_mean" in scalars(tmp_path)


# ---------------------------------------------------------------------------------------------------
# Histograms, images, HParams, layout.


@pytest.mark.parametrize("name", VARIABLES)
def test_histograms_hold_every_coordinate(full, name):
    tag = f"5_histograms/log10_std/{name}"
    found = {s: tf.make_ndarray(v.tensor) for t, s, v in events(full["folder"]) if t == tag}
    assert sorted(found) == [4, 8]
    for step, buckets in found.items():
        values = np.log10(full["states"][step][name]["std"])
        assert buckets[:, 2].sum() == values.size
        assert buckets[0, 0] == pytest.approx(values.min(), abs=1e-5)
        assert buckets[-1, 1] == pytest.approx(values.max(), abs=1e-5)


def test_histograms_are_of_what_differs():
    same, other = tf.ones((4, 3)), tf.constant([1.0, 10.0])
    assert not summaries.histograms({"dense/kernel": {"scale": same}, "dense/bias": {"scale": other[:1]}}).value
    found = summaries.histograms({"dense/kernel": {"scale": same, "std": same}, "rows/kernel": {"scale": other}})
    assert [value.tag for value in found.value] == ["5_histograms/log10_scale/rows/kernel"]


@pytest.mark.parametrize("tag", ["2_noise/image/dense/kernel", "1_overview/accuracy_by_epsilon"])
def test_images_are_written_and_not_blank(full, tag):
    found = {step: value for name, step, value in events(full["folder"]) if name == tag}
    assert sorted(found) == [4, 8]
    png = tf.make_ndarray(found[8].tensor)[2]
    assert len(np.unique(tf.io.decode_png(png).numpy().reshape(-1, 3), axis=0)) > 20


def state_of(name, shape, value=None):
    scale = tf.ones(shape) if value is None else tf.constant(value, tf.float32)
    return {name: {"scale": scale, "std": scale, "center": scale}}


def test_the_picture_is_the_mean_over_outputs():
    value = np.arange(9.0)[:, None] + np.array([[-1.0, 0.0, 1.0]])
    name, picture = figures.first_layer_scale(state_of("first/kernel", None, value), None)
    assert name == "first/kernel"
    np.testing.assert_allclose(picture, np.arange(9.0).reshape(3, 3))


def test_the_picture_of_colours_is_the_mean_over_channels():
    value = np.arange(12.0)[:, None] * np.ones((1, 2))
    _, picture = figures.first_layer_scale(state_of("first/kernel", None, value), (2, 2, 3))
    np.testing.assert_allclose(picture, [[1.0, 4.0], [7.0, 10.0]])


@pytest.mark.parametrize(
    "state",
    [
        state_of("dense/kernel", (10, 3)),
        {**state_of("conv/kernel", (3, 3, 1, 4)), **state_of("dense/kernel", (16, 3))},
        state_of("embedding/embeddings", (100, 4)),
        {"dense/kernel": {"scale": tf.ones((4, 3)), "center": tf.zeros((4, 3))}},
    ],
    ids=["not a square", "convolution first", "embedding", "b is constant"],
)
def test_no_picture_where_b_has_no_such_form(state):
    assert figures.first_layer_scale(state, None) is None


def test_an_image_shape_that_does_not_fit_is_told_before_training(fresh, tmp_path):
    with pytest.raises(ValueError, match=r"`image_shape`=\(3, 3\) has 9 values and dense/kernel has 4 inputs"):
        fit(fresh, PrivacyTensorBoard(tmp_path, image_shape=(3, 3)))
    assert int(fresh.optimizer.noised_steps) == 0


def hparams_of(folder, tag):
    value = next(value for found, _, value in events(folder) if found == tag)
    return value.metadata.plugin_data.content


def test_hparams_of_a_run(full):
    content = hparams_of(full["folder"], hparams_metadata.SESSION_START_INFO_TAG)
    info = hparams_metadata.parse_session_start_info_plugin_data(content)
    written = dict(info.hparams.items())
    assert written["optimizer"].string_value == "DPAdaClipSGD"
    assert written["learning_rate_schedule"].string_value == "ExponentialDecay"
    names = ("learning_rate", "noise_multiplier", "h2", "gamma", "delta", "layers")
    numbers = {name: written[name].number_value for name in names}
    assert numbers == pytest.approx(
        {"learning_rate": 0.1, "noise_multiplier": Z, "h2": 1e-3, "gamma": 1.0, "delta": DELTA, "layers": 1}
    )
    assert info.group_name == ""  # so that TensorBoard calls it by its folder
    assert any(tag == hparams_metadata.SESSION_END_INFO_TAG for tag, _, _ in events(full["folder"]))


def test_hparams_show_what_one_compares_first(full):
    experiment = hparams_metadata.parse_experiment_plugin_data(
        hparams_of(full["folder"], hparams_metadata.EXPERIMENT_TAG)
    )
    first = [info.name for info in experiment.hparam_infos if info.differs]
    assert first == ["h2", "l2_norm_clip", "layers", "learning_rate", "noise_multiplier", "optimizer"]
    metrics = [info.name.tag for info in experiment.metric_infos]
    assert metrics[:3] == ["1_overview/epsilon", "1_overview/validation_accuracy", "1_overview/train_accuracy"]
    assert metrics[-1] == "1_overview/noise_norm"
    assert set(metrics) <= scalars(full["folder"]).keys()


def test_the_privacy_statement_is_in_the_text(full):
    found = {step: value for tag, step, value in events(full["folder"]) if tag == "privacy_statement"}
    assert list(found) == [8]
    said = tf.make_ndarray(found[8].tensor).item().decode()
    assert "8 noised steps (2 epochs) over 24 examples" in said and f"{epsilon_after(8):.4f}" in said
    assert all(line.startswith("    ") for line in said.splitlines() if line)  # as it is, not as Markdown


def test_runs_beside_each_other_are_in_one_picture(fresh, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "by_epsilon.json").write_text('{"points": [[0.5, {"validation_accuracy": 0.5}]]}')
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "by_epsilon.json").write_text('{"points": [[0.5, {"vali')
    drawn = []
    monkeypatch.setattr(figures, "metric_by_epsilon", lambda *given: drawn.append(given) or np.zeros((2, 2, 3), "u1"))
    board = PrivacyTensorBoard(tmp_path / "mine", **WHERE)
    fit(fresh, board)
    fit(fresh, board)  # goes on with its own points
    (metric, points, delta, others), last = drawn[0], drawn[1]
    assert (metric, len(points), delta) == ("accuracy", 1, DELTA)
    assert others == {"other": [(0.5, {"validation_accuracy": 0.5})]}
    assert [point[0] for point in last[1]] == pytest.approx([epsilon_after(4), epsilon_after(8)])


def test_a_second_training_in_the_same_folder_is_told(fresh, tmp_path, caplog):
    (tmp_path / "events.out.tfevents.1.old").write_bytes(b"")
    with caplog.at_level(python_logging.WARNING, logger="absl"):
        fit(fresh, PrivacyTensorBoard(tmp_path))
    assert "holds an earlier training" in caplog.text


def test_every_custom_chart_has_something_to_show(full):
    found = events(full["folder"])
    value = next(value for _, _, value in found if plugin(value) == "custom_scalars")
    layout = layout_pb2.Layout.FromString(tf.make_ndarray(value.tensor).item())
    tags = {tag for tag, _, value in found if plugin(value) == "scalars"}
    charts = [chart for category in layout.category for chart in category.chart]
    assert len(charts) == 5
    for chart in charts:
        for expression in chart.multiline.tag:
            assert any(re.match(expression, tag) for tag in tags), expression


# ---------------------------------------------------------------------------------------------------
# Nothing private leaks.


def one_private_step(folder, target, **options):
    """A step on one example of a linear model. A larger target is a longer gradient in the same direction."""
    tf.keras.backend.clear_session()
    layer = tf.keras.layers.Dense(1, kernel_initializer="zeros", name="dense")
    model = tf.keras.Sequential([tf.keras.Input((4,)), layer])
    made = adaclip_tf.DPAdaClipSGD(0.1, noise_multiplier=1.0, expected_batch_size=1, seed=3, nonprivate_metrics=True)
    model.compile(made, tf.keras.losses.MeanSquaredError(reduction="none"))
    board = PrivacyTensorBoard(folder, update_freq=1, num_examples=9, batch_size=1, delta=1e-2, **options)
    example = np.ones((1, 4), np.float32), np.array([[target]], np.float32)
    model.fit(models.out_of_sight(tf.data.Dataset.from_tensor_slices(example).batch(1)), verbose=0, callbacks=[board])


def values_of(folder):
    """Everything in a run but the time: {(tag, step): bytes or numbers}."""
    found = {}
    for tag, step, value in events(folder):
        array = tf.make_ndarray(value.tensor) if value.HasField("tensor") else value.metadata.plugin_data.content
        found[tag, step] = array
    return found


@pytest.fixture(scope="module")
def neighbours(tmp_path_factory):
    """Two runs whose private example differs and whose noised sums are the same, since it is clipped in both."""
    folder = tmp_path_factory.mktemp("neighbours")
    one_private_step(folder / "one", 1.0, nonprivate=True)
    one_private_step(folder / "other", 256.0, nonprivate=True)
    return folder


def test_what_is_written_depends_on_noised_sums_only(neighbours):
    one, other = (values_of(neighbours / name) for name in ("one", "other"))
    keras = {(tag, step) for tag, step in one if "/train_" in tag or "by_epsilon" in tag}
    assert {tag for tag, _ in keras} == {"1_overview/train_loss", "1_overview/loss_by_epsilon"}
    assert len(one.keys() - keras) > 15
    for key in one.keys() - keras:
        if one[key].dtype.kind == "f":
            np.testing.assert_allclose(one[key], other[key], rtol=1e-5, err_msg=str(key))
        else:
            assert np.array_equal(one[key], other[key]), key


def test_the_neighbours_do_differ(neighbours):
    one, other = (scalars(neighbours / name)["1_overview/train_loss"] for name in ("one", "other"))
    assert one[1] != other[1]
    one, other = (scalars(neighbours / name / "nonprivate") for name in ("one", "other"))
    assert one["nonprivate/transformed_norm_mean"] != other["nonprivate/transformed_norm_mean"]


def test_a_folder_to_publish(tmp_path):
    for name, target in (("one", 1.0), ("other", 256.0)):
        one_private_step(tmp_path / name, target, keras_metrics=False, image_freq=1)
        assert not (tmp_path / name / "by_epsilon.json").exists()
    one, other = (values_of(tmp_path / name) for name in ("one", "other"))
    one, other = ({k: v for k, v in found.items() if "_hparams_" not in k[0]} for found in (one, other))
    assert one.keys() == other.keys()
    assert not any("loss" in tag for tag, _ in one)
    for key, value in one.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(value, other[key], rtol=1e-5, err_msg=str(key))
        elif "image" in key[0]:
            pixels = [tf.io.decode_png(image[2]).numpy().astype(int) for image in (value, other[key])]
            assert np.mean(pixels[0] != pixels[1]) < 0.01


def test_unnoised_quantities_are_opt_in(full):
    assert full["model"].optimizer.nonprivate_metrics_recorded
    assert not (full["folder"] / "nonprivate").exists()
    assert not any("clip_fraction" in tag or "nonprivate" in tag for tag, _, _ in events(full["folder"]))


def test_unnoised_quantities_have_their_own_run_and_tags(neighbours):
    written = scalars(neighbours / "one" / "nonprivate")
    assert written["nonprivate/clip_fraction"] == {1: 1.0}
    assert all(tag.startswith("nonprivate/") for tag in written)
    assert not any(tag.startswith("nonprivate") for tag, _, _ in events(neighbours / "one"))


def test_unnoised_quantities_come_with_a_warning(tmp_path, caplog):
    with caplog.at_level(python_logging.WARNING, logger="absl"):
        PrivacyTensorBoard(tmp_path, nonprivate=True)
    assert "NOT private" in caplog.text


def test_unnoised_quantities_need_an_optimizer_that_records_them(fresh, tmp_path):
    with pytest.raises(ValueError, match="nonprivate_metrics=True"):
        fit(fresh, PrivacyTensorBoard(tmp_path, nonprivate=True))


# ---------------------------------------------------------------------------------------------------
# Resuming, strategies, folders.


@pytest.mark.slow
def test_a_resumed_run_goes_on(tmp_path):
    first = make_model()
    fit(first, PrivacyTensorBoard(tmp_path / "log", **WHERE, update_freq=2))
    path = tf.train.Checkpoint(model=first, optimizer=first.optimizer).save(str(tmp_path / "checkpoint"))
    second = make_model()
    second.optimizer.build(second.trainable_variables)
    tf.train.Checkpoint(model=second, optimizer=second.optimizer).restore(path)
    fit(second, PrivacyTensorBoard(tmp_path / "log", **WHERE, update_freq=2))
    written = scalars(tmp_path / "log")["1_overview/epsilon"]
    assert written == pytest.approx({step: epsilon_after(step) for step in (2, 4, 6, 8)}, rel=1e-6)


def test_one_callback_for_two_fits(fresh, tmp_path):
    board = PrivacyTensorBoard(tmp_path, update_freq=2)
    fit(fresh, board)
    fit(fresh, board)
    assert sorted(scalars(tmp_path)["1_overview/noise_norm"]) == [2, 4, 6, 8]


@pytest.mark.slow
def test_under_a_strategy_there_is_one_writer(tmp_path):
    model = make_model(strategy=tf.distribute.MirroredStrategy(["CPU:0"]))
    fit(model, PrivacyTensorBoard(tmp_path, **WHERE, update_freq=2, image_freq=1))
    assert sorted(scalars(tmp_path)["1_overview/epsilon"]) == [2, 4]
    assert len(list((tmp_path).glob("events.*"))) == 1


def test_a_worker_that_is_not_the_chief_writes_nothing(fresh, tmp_path, monkeypatch):
    extended = type(fresh.distribute_strategy.extended)
    monkeypatch.setattr(extended, "should_checkpoint", property(lambda self: False))
    fit(fresh, PrivacyTensorBoard(tmp_path / "log", **WHERE, update_freq=1))
    assert int(fresh.optimizer.noised_steps) == 4
    assert not (tmp_path / "log").exists()


def refuses_before_training(model, log_dir):
    with pytest.raises(ValueError, match=r"`log_dir`=.*cannot be written to"):
        fit(model, PrivacyTensorBoard(log_dir))
    assert int(model.optimizer.noised_steps) == 0


def test_a_log_dir_below_a_file_is_refused_before_training(fresh, tmp_path):
    (tmp_path / "file").write_text("")
    refuses_before_training(fresh, tmp_path / "file" / "log")


def test_a_read_only_log_dir_is_refused_before_training(fresh):
    root = tempfile.mkdtemp()
    log_dir = pathlib.Path(root) / "log"
    (log_dir).mkdir(parents=True)
    (log_dir).chmod(0o555)
    pathlib.Path(root).chmod(0o755)
    is_root = os.geteuid() == 0
    try:
        if is_root:  # may write everywhere
            os.seteuid(65534)
        refuses_before_training(fresh, log_dir)
    finally:
        if is_root:
            os.seteuid(0)
        shutil.rmtree(root)


def test_another_optimizer_is_refused(tmp_path):
    model = models.softmax_regression()
    model.compile(tf.keras.optimizers.SGD(), models.per_example_loss())
    with pytest.raises(ValueError, match="counts its noised steps, such as DPAdaClipSGD; got SGD"):
        fit(model, PrivacyTensorBoard(tmp_path))


# ---------------------------------------------------------------------------------------------------
# Arguments.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"log_dir": ""}, "`log_dir`"),
        ({"update_freq": 0}, "`update_freq`"),
        ({"update_freq": "batch"}, "`update_freq`.*'epoch'; got 'batch'"),
        ({"reference_l2_norm_clip": 0.0}, "`reference_l2_norm_clip`"),
        ({"histogram_freq": -1}, "`histogram_freq`.*0 for never"),
        ({"image_freq": 1.5}, "`image_freq`"),
        ({"image_shape": 28}, "`image_shape`"),
        ({"image_shape": (28, 0)}, "`image_shape`"),
        ({"hparams": "yes"}, "`hparams`"),
        ({"num_examples": 10, "batch_size": 2}, "`delta` is missing"),
        ({"num_examples": 10, "batch_size": 2, "delta": 2.0}, "delta"),
        ({"budget": 3.0}, "`budget`"),
        ({"budget": budget.PrivacyBudget(**WHERE), "delta": 1e-5}, "not both"),
    ],
)
def test_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        PrivacyTensorBoard(**{"log_dir": "never/made", **arguments})
    assert not os.path.exists("never")


WITHOUT_TENSORBOARD = """
import sys
sys.modules["tensorboard"] = None  # what an import meets where the package is missing
import adaclip_tf
board = adaclip_tf.PrivacyTensorBoard
try:
    board("never/made")
except ImportError as error:
    print(error)
"""


NEEDS_TENSORBOARD = re.compile(
    r"PrivacyTensorBoard needs the package tensorboard \(.*\): pip install 'adaclip-tf\[tensorboard\]'\."
)


def test_without_the_package_the_fix_is_said_once_it_is_needed(tmp_path, monkeypatch):
    """The modules are imported anew, as if nobody had imported TensorBoard before."""
    monkeypatch.setattr(adaclip_tf, "tensorboard", adaclip_tf.tensorboard)  # which the import below replaces
    for name in [*sys.modules]:
        if name.split(".")[0] == "tensorboard" or name.startswith("adaclip_tf.tensorboard"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # what an import meets where the package is missing
    board = importlib.import_module("adaclip_tf.tensorboard").PrivacyTensorBoard
    with pytest.raises(ImportError) as caught:
        board(tmp_path / "never_made")
    assert NEEDS_TENSORBOARD.fullmatch(str(caught.value))
    assert not (tmp_path / "never_made").exists()


@pytest.mark.slow
def test_without_the_package_all_else_is_there():
    """In a process of its own."""
    command = [sys.executable, "-c", WITHOUT_TENSORBOARD]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert NEEDS_TENSORBOARD.fullmatch(done.stdout.strip())
    assert not os.path.exists("never")


def test_docstring_example():
    globals_ = {"PrivacyTensorBoard": PrivacyTensorBoard}
    examples = doctest.DocTestFinder(recurse=False).find(PrivacyTensorBoard, globs=globals_)
    assert examples
    for example in examples:
        assert doctest.DocTestRunner().run(example).failed == 0
    assert tensorboard.__doc__
