"""A release holds weights, architecture and the statement; brute searches find nothing else in its bytes."""

import doctest
import io
import json
import os
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

import adaclip_tf
from adaclip_tf import DPAdaClipSGD, DPFixedClipSGD, PrivacyBudget, check_release, core, poisson_batches, release
from adaclip_tf._internal import keras
from adaclip_tf.privacy import events, statement
from adaclip_tf.releasing import layer_state, release_files
from adaclip_tf.releasing import release as releasing
from tests import models

EXAMPLES, BATCH = 40, 10
layers = tf.keras.layers


def trained(model, optimizer=None, **compile_arguments):
    """The model after an epoch of Poisson batches."""
    optimizer = optimizer or DPFixedClipSGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0, expected_batch_size=BATCH)
    model.compile(optimizer, models.per_example_loss(), **compile_arguments)
    model.fit(poisson_batches(models.data(EXAMPLES), expected_batch_size=BATCH, seed=3), verbose=0)
    return model


def counted(model, steps=4, **optimizer_arguments):
    """The model as if it had trained: tracing a step takes a second, and what layers hold is there without it."""
    settings = {"noise_multiplier": 1.0, "l2_norm_clip": 1.0, "expected_batch_size": BATCH, **optimizer_arguments}
    model.compile(DPFixedClipSGD(0.1, **settings), models.per_example_loss())
    model.optimizer.build(model.trainable_variables)
    model.optimizer.private_step.past.see_step(settings["noise_multiplier"], BATCH)
    model.optimizer.noised_steps.assign(steps)
    return model


@pytest.fixture(scope="module")
def run():
    """A trained model with metrics and optimizer state of all kinds, and its privacy report."""
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential(
        [layers.Dense(5, activation="tanh", input_shape=(4,)), layers.Dropout(0.1), layers.Dense(models.CLASSES)]
    )
    optimizer = DPAdaClipSGD(0.1, momentum=0.9, noise_multiplier=1.0, expected_batch_size=BATCH)
    trained(model, optimizer=optimizer, metrics=["accuracy"])
    report = statement.privacy_report(
        noise_multiplier=1.0, delta=1e-3, num_examples=EXAMPLES, batch_size=BATCH, steps=4, accountants=("rdp",)
    )
    return model, report


def everything_in(path):
    """Every byte of the file, of its members and of its arrays, as a list of byte strings."""
    data = path.read_bytes()
    found = [data]
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            found += [archive.read(name) for name in archive.namelist()]
    for each in list(found):
        if each.startswith(b"\x89HDF"):
            with h5py.File(io.BytesIO(each), "r") as file:
                file.visititems(
                    lambda _, item: found.append(np.asarray(item[()]).tobytes()) if hasattr(item, "dtype") else None
                )
    return found


def occurs(value, path):
    """Whether a number or an array is in the file, as float32, float64 or text."""
    array = np.asarray(value)
    needles = [array.astype(kind).tobytes() for kind in (np.float32, np.float64)]
    if array.dtype.kind in "iu":
        needles.append(array.tobytes())
    if array.ndim == 0:
        needles.append(repr(float(array)).encode() if float(array) > 1000 or float(array) % 1 else needles[0])
    else:
        needles.append(json.dumps(array.tolist()).encode())
    return any(needle in each for needle in needles for each in everything_in(path))


def secrets(model):
    """What the trainer's process knows and nobody else may: metrics, data, the noise key."""
    inputs, _ = models.data(EXAMPLES)
    found = {f"{metric.name} {v.name}": v.numpy() for metric in model.metrics for v in metric.variables}
    found.update({f"row {index}": row for index, row in enumerate(inputs)})
    for name, value in vars(model.optimizer.private_step.noise_sources.here()).items():
        if (tf.is_tensor(value) or isinstance(value, (tf.Variable, np.ndarray))) and np.size(value) > 1:
            found[f"noise {name}"] = np.asarray(value)
    assert any(name.startswith("noise") for name in found)
    return found


@pytest.mark.parametrize("name", ["model.keras", "weights.h5"])
def test_nothing_un_noised_is_in_a_release(run, tmp_path, name):
    model, report = run
    total, count = (v.numpy() for v in model.metrics[0].variables)
    assert count > 20 and total > 1.0
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["metrics/mean/vars/0"], file["metrics/mean/vars/1"] = total, count
    for known in (total, count, np.float32([total])):  # the search finds what is there
        assert occurs(known, tmp_path / "plain.h5")
    release(model, tmp_path / name, statement=report)
    for known in model.get_weights():
        assert occurs(known, tmp_path / name)
    for what, value in secrets(model).items():
        assert not occurs(value, tmp_path / name), what
    for variable in model.optimizer.variables:  # m, s, momentum: noised, but not asked for
        if np.prod(variable.shape) > 1:
            assert not occurs(variable.numpy(), tmp_path / name), variable.name


def test_a_release_holds_these_members_and_arrays(run, tmp_path):
    model, report = run
    contents = release(model, tmp_path / "model.keras", statement=report)
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        assert sorted(archive.namelist()) == [
            *("config.json", "metadata.json", "model.weights.h5", "privacy_statement.json", "privacy_statement.txt"),
        ]
        config = json.loads(archive.read("config.json"))
        assert "compile_config" not in config
        assert "date" not in archive.read("metadata.json").decode()
        assert json.loads(archive.read("privacy_statement.json")) == contents
        text = archive.read("privacy_statement.txt").decode()
        with h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r") as file:
            arrays = []
            file.visititems(lambda name, item: arrays.append(name) if hasattr(item, "dtype") else None)
    assert (
        sorted(arrays)
        == sorted(contents["weights"])
        == [f"layers/{layer}/vars/{index}" for layer in ("dense", "dense_1") for index in range(2)]
    )
    assert set(contents["weights"].values()) == {"trained with noise"}
    assert contents["training"]["noised_steps"] == 4
    assert contents["report"] == report
    assert statement.describe(report) in text and "4 arrays trained with noise" in text


@pytest.mark.slow
def test_it_loads_where_there_is_no_adaclip_and_predicts_the_same(run, tmp_path):
    model, report = run
    release(model, tmp_path / "model.keras", statement=report)
    np.save(tmp_path / "inputs.npy", models.data(EXAMPLES)[0])
    program = (
        "import sys; sys.modules['adaclip_tf'] = None\n"
        "import numpy as np, tensorflow as tf\n"
        "model = tf.keras.models.load_model('model.keras')\n"
        "np.save('outputs.npy', model.predict(np.load('inputs.npy'), verbose=0))\n"
        "assert getattr(model, 'optimizer', None) is None\n"  # Keras 3 has no such attribute then
    )
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True, capture_output=True)
    outputs = model.predict(np.load(tmp_path / "inputs.npy"), verbose=0)
    np.testing.assert_allclose(np.load(tmp_path / "outputs.npy"), outputs, rtol=1e-5, atol=1e-6)  # another process


def test_two_releases_are_the_same_bytes_and_leave_the_model_alone(run, tmp_path):
    model, report = run
    before = [v.numpy() for v in [*model.weights, *model.optimizer.variables, *model.metrics[0].variables]]
    for name in ("a.keras", "b.keras", "a.h5", "b.h5"):
        release(model, tmp_path / name, statement=report)
    after = [v.numpy() for v in [*model.weights, *model.optimizer.variables, *model.metrics[0].variables]]
    for one, other in zip(before, after):
        np.testing.assert_array_equal(one, other)
    assert (tmp_path / "a.keras").read_bytes() == (tmp_path / "b.keras").read_bytes()
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_weights_alone_are_read_by_a_model_of_the_same_code(run, tmp_path):
    model, _ = run
    contents = release(model, tmp_path / "weights.h5")
    assert contents["report"] is None and len(contents["weights"]) == 4
    other = tf.keras.models.clone_model(model)
    other.load_weights(tmp_path / "weights.h5")
    for ours, theirs in zip(model.get_weights(), other.get_weights()):
        np.testing.assert_array_equal(ours, theirs)
    with h5py.File(tmp_path / "weights.h5", "r") as file:
        assert "No epsilon is stated" in file["privacy_statement/text"][()].decode()


# ----------------------------------------------------------------------------------------------------------------
# What layers hold besides what was trained.


class Secretive(layers.Layer):
    """Keeps a metric and a variable where Keras saves the one and not the other."""

    def __init__(self, **arguments):
        super().__init__(**arguments)
        self.seen = tf.keras.metrics.Mean(name="seen")
        self._box = [type("Box", (), {})()]
        self._box[0].value = tf.Variable(123.25, trainable=False)

    def call(self, inputs):
        return inputs


def test_layers_that_were_adapted_or_frozen_must_be_named(tmp_path):
    inputs, _ = models.data(EXAMPLES)
    norm = layers.Normalization(name="norm")
    norm.adapt(inputs)
    frozen = layers.Dense(4, trainable=False, name="frozen")
    inner = tf.keras.Sequential([layers.Input((4,)), norm], name="inner")
    model = trained(tf.keras.Sequential([layers.Input((4,)), inner, frozen, Secretive(), layers.Dense(models.CLASSES)]))
    path = tmp_path / "model.keras"
    with pytest.raises(
        ValueError, match=r"inner/norm \(Normalization\): means(.|\n)*frozen \(Dense\): kernel, bias: not "
    ):
        release(model, path)
    with pytest.raises(ValueError, match=r"not trained with noise:\n  frozen(.|\n)*public=\[\"frozen\"\]"):
        release(model, path, public=["norm"])
    with pytest.raises(ValueError, match="`public` names 'nrom', but the layers are "):
        release(model, path, public=["nrom"])
    with pytest.raises(ValueError, match="`allow` must be a list of layer names"):
        release(model, path, allow="norm")
    with pytest.raises(ValueError, match="`public` must be a list of layer names; got None"):
        release(model, path, public=None)
    assert not path.exists()
    # Declared public: the file has it, the checker is content. The outer layer's name covers the inner one.
    model.layers[2].seen.update_state(77.5)
    contents = release(model, path, public=["inner", "frozen"])
    assert contents["weights"]["layers/sequential/layers/normalization/vars/0"] == "declared public"
    assert check_release(path).may_be_published
    assert not occurs(np.float32(77.5), path) and not occurs(np.float32(123.25), path)
    loaded = tf.keras.models.load_model(path, custom_objects={"Secretive": Secretive})
    np.testing.assert_array_equal(loaded.predict(inputs, verbose=0), model.predict(inputs, verbose=0))
    # Allowed: the file has it, the statement and the checker name it.
    contents = release(model, path, public=["frozen"], allow=["norm"])
    assert contents["weights"]["layers/sequential/layers/normalization/vars/0"] == "NOT covered"
    with zipfile.ZipFile(path) as archive:
        assert archive.read("privacy_statement.txt").decode().startswith("NOT COVERED by this statement")
    found = {finding.entry: finding for finding in check_release(path).findings}
    np.testing.assert_allclose(
        found["layers/sequential/layers/normalization/vars/0"].value, inputs.mean(axis=0), atol=1e-6
    )
    assert "layer norm" in found and not any("dense" in entry or "frozen" in entry for entry in found)


def test_vocabularies_must_be_named(tmp_path):
    words = np.array([["confidential word"], ["word"]] * (EXAMPLES // 2))
    lookup = layers.TextVectorization(output_mode="tf_idf", name="words")
    lookup.adapt(words)
    model = counted(tf.keras.Sequential([layers.Input((1,), dtype=tf.string), lookup, layers.Dense(models.CLASSES)]))
    path = tmp_path / "model.keras"
    with pytest.raises(ValueError, match=r"words \(TextVectorization\): a vocabulary"):
        release(model, path)
    release(model, path, allow=["words"])
    assert any(b"confidential" in each for each in everything_in(path))
    assert any(finding.entry.endswith("vocabulary.txt") for finding in check_release(path).findings)
    release(model, path, public=["words"])
    assert check_release(path).may_be_published
    loaded = tf.keras.models.load_model(path)
    words = tf.constant(words)
    np.testing.assert_array_equal(loaded.predict(words, verbose=0), model.predict(words, verbose=0))


def test_numbers_in_the_architecture_must_be_named(tmp_path):
    """An operation on a constant array puts the array into the configuration."""
    rows, _ = models.data(EXAMPLES)
    inputs = tf.keras.Input((4,))
    outputs = layers.Dense(models.CLASSES)(inputs - rows[5])
    model = counted(tf.keras.Model(inputs, outputs))
    path = tmp_path / "model.keras"
    with pytest.raises(
        ValueError, match=r"subtract \((TFOpLambda\): 4 numbers in `y`|Subtract\): 4 numbers in `args`)"
    ):
        release(model, path)
    # In Keras 3 it is an operation, which is none of the model's layers.
    release(model, path, allow=["tf.math.subtract" if keras.GENERATION == 2 else "subtract"])
    assert occurs(rows[5].tolist(), path)  # the search does find a row where there is one
    assert not check_release(path).may_be_published


def test_the_size_of_the_first_batch_is_forgotten(tmp_path):
    """A model without an input shape takes it from the first batch that it is called on, its size included."""
    inputs, _ = models.data(EXAMPLES)
    # Keras numbers models and layers that have no name, its own input layers among them.
    tf.keras.backend.clear_session()
    model = tf.keras.Sequential([layers.Dense(models.CLASSES, name="only")], name="named")
    model(inputs[:37])
    counted(model)
    model.save(tmp_path / "plain.keras")
    assert "config.json: batch size 37" in [
        finding.entry for finding in check_release(tmp_path / "plain.keras").findings
    ]
    release(model, tmp_path / "model.keras")
    assert check_release(tmp_path / "model.keras").may_be_published
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        assert "37" not in archive.read("config.json").decode()


def test_what_models_inside_were_compiled_with_is_not_there(tmp_path):
    inner = tf.keras.Sequential([layers.Input((4,)), layers.Dense(4)])
    inner.compile(tf.keras.optimizers.Adam(0.015625), "mse")
    model = counted(tf.keras.Sequential([layers.Input((4,)), inner, layers.Dense(models.CLASSES)]))
    path = tmp_path / "model.keras"
    contents = release(model, path)
    assert set(contents["weights"].values()) == {"trained with noise"} and len(contents["weights"]) == 4
    assert check_release(path).may_be_published and not occurs(0.015625, path)
    with zipfile.ZipFile(path) as archive:
        assert b"Adam" not in archive.read("config.json")


def test_sizes_of_the_first_batch_of_several_inputs_are_forgotten():
    config = {"build_config": {"shapes_dict": {"query_shape": [37, 3], "value_shape": (37, 3, 4)}}, "units": [37, 3]}
    assert layer_state.batch_sizes(config) == [37, 37]
    opened = layer_state.without_batch_sizes(config)
    assert opened["build_config"]["shapes_dict"] == {"query_shape": [None, 3], "value_shape": (None, 3, 4)}
    assert opened["units"] == [37, 3] and layer_state.batch_sizes(opened) == []


@pytest.mark.skipif(keras.GENERATION == 2, reason="Keras 2 has no LoRA")
def test_adapted_kernels_are_public_where_they_are_named(tmp_path):
    """Of a layer with LoRA, Keras saves the sum of the frozen kernel and of what was trained."""
    model = tf.keras.Sequential([layers.Input((4,)), layers.Dense(4, name="adapted"), layers.Dense(models.CLASSES)])
    model.layers[0].enable_lora(2)
    model.layers[0].lora_kernel_b.assign(np.full((2, 4), 0.5, np.float32))
    counted(model)
    path = tmp_path / "model.keras"
    with pytest.raises(ValueError, match=r"adapted \(Dense\): kernel: not trained by the optimizer"):
        release(model, path)
    contents = release(model, path, public=["adapted"])
    kinds = [contents["weights"][f"layers/{name}/vars/0"] for name in ("dense", "dense_1")]
    assert kinds == ["declared public", "trained with noise"]
    assert contents["weights"]["layers/dense/vars/1"] == "trained with noise"
    inputs, _ = models.data(EXAMPLES)
    loaded = tf.keras.models.load_model(path)
    np.testing.assert_allclose(
        loaded.predict(inputs, verbose=0), model.predict(inputs, verbose=0), rtol=1e-5, atol=1e-6
    )


def test_architectures_with_many_parts_are_only_architecture(tmp_path):
    """Shapes and names of twenty inputs are no data, and neither are augmentation's ranges."""
    inputs = [tf.keras.Input((2, 2, 1), name=f"part_{index}") for index in range(20)]
    joined = layers.RandomZoom((-0.2, 0.3), (-0.1, 0.1))(layers.Concatenate(name="join")(inputs))
    outputs = layers.Dense(models.CLASSES)(layers.Flatten()(layers.Conv2D(2, 2)(joined)))
    release(counted(tf.keras.Model(inputs, outputs)), tmp_path / "model.keras")
    assert check_release(tmp_path / "model.keras").may_be_published


class NoConfig(tf.keras.Model):
    """Can't be rebuilt: its constructor takes a layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.watched = tf.keras.metrics.Mean(name="watched")

    def call(self, inputs):
        return self.layer(inputs)


def test_a_model_without_configuration_is_released_as_weights(tmp_path):
    model = trained(NoConfig(layers.Dense(models.CLASSES)))
    model.watched.update_state(77.5)
    with pytest.raises(ValueError, match=r"can't be rebuilt from its configuration(.|\n)*ends in .h5"):
        release(model, tmp_path / "model.keras")
    release(model, tmp_path / "model.h5")
    assert check_release(tmp_path / "model.h5").may_be_published
    assert not occurs(np.float32(77.5), tmp_path / "model.h5")
    inputs, _ = models.data(EXAMPLES)
    other = NoConfig(layers.Dense(models.CLASSES))
    other(inputs)
    other.load_weights(tmp_path / "model.h5")
    np.testing.assert_array_equal(other.predict(inputs, verbose=0), model.predict(inputs, verbose=0))


# ----------------------------------------------------------------------------------------------------------------
# What is refused.


def test_bad_paths_are_refused(run, tmp_path):
    model, _ = run
    (tmp_path / "folder.keras").mkdir()
    (tmp_path / "file").write_text("")
    for path, complaint in [
        (tmp_path / "model.pb", "must end in .keras"),
        (tmp_path / "model.weights.h5", "not .weights.h5"),
        (tmp_path / "folder.keras", "is a folder"),
        (tmp_path / "file" / "model.keras", "cannot be written"),
        ("gs://bucket/model.keras", "not on this machine"),
        (None, "must be a path"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            release(model, path)


def test_models_that_were_not_trained_with_noise_are_refused(tmp_path):
    path = tmp_path / "model.keras"

    def refused(model, complaint):
        with pytest.raises(ValueError, match=complaint):
            release(model, path)

    refused("model", "must be a Keras model")
    refused(models.softmax_regression(), "has no optimizer")
    plain = models.softmax_regression()
    plain.compile("sgd", "mse")
    refused(plain, "has the optimizer SGD")
    untrained = models.softmax_regression()
    untrained.compile(DPAdaClipSGD(0.1, noise_multiplier=1.0), models.per_example_loss())
    refused(untrained, "no noised steps")
    silent = counted(models.softmax_regression(), noise_multiplier=0.0)
    refused(silent, "noise_multiplier=0")
    seeded = counted(models.softmax_regression(), steps=2, seed=5)
    refused(seeded, "seed=5")
    seeded.optimizer.iterations.assign(7)
    refused(seeded, "7 updates and 2 noised steps")
    assert not path.exists() and not list(tmp_path.iterdir())


def test_statements_that_claim_too_much_are_refused(run, tmp_path):
    model, report = run
    path = tmp_path / "model.keras"
    release(model, path, statement=report)
    before = path.read_bytes()
    for change, complaint in [
        ({"steps": 3}, "says steps=3, but the optimizer has noised_steps=4"),
        ({"noise_multiplier": 1.5}, "says noise_multiplier=1.5"),
        ({"batch_size": 5}, "says batch_size=5, but the optimizer has expected_batch_size=10"),
        ({"microbatch_sensitivity": 0.5}, "says microbatch_sensitivity=0.5"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            release(model, path, statement={**report, **change})
    with pytest.raises(ValueError, match="in no `fit`"):
        release(model, path, statement=PrivacyBudget(num_examples=EXAMPLES, batch_size=BATCH, delta=1e-3))
    for wrong in (7, {"epsilon": 1.0}, " ", model):
        with pytest.raises(ValueError, match="`statement` must be"):
            release(model, path, statement=wrong)
    assert path.read_bytes() == before and [each.name for each in tmp_path.iterdir()] == ["model.keras"]
    release(model, path, statement={**report, "steps": 5})  # more than was spent is no lie
    release(model, path, statement="In words of my own.")
    with zipfile.ZipFile(path) as archive:
        assert archive.read("privacy_statement.txt").decode().startswith("In words of my own.\n")


def test_a_statement_that_leaves_out_what_the_scales_cost_is_refused(tmp_path):
    model = models.softmax_regression()
    shapes = [np.ones([1] * len(variable.shape)) for variable in model.trainable_variables]
    scales = core.Scales(1.0, shapes, noise_multiplier=1.5, name="scales-1")
    model.compile(
        DPAdaClipSGD(0.1, noise_multiplier=1.0, expected_batch_size=BATCH, scales=scales), models.per_example_loss()
    )
    model.optimizer.build(model.trainable_variables)
    model.optimizer.private_step.past.see_step(1.0, BATCH)
    model.optimizer.noised_steps.assign(4)
    about = {"noise_multiplier": 1.0, "delta": 1e-3, "num_examples": EXAMPLES, "batch_size": BATCH, "steps": 4}
    path = tmp_path / "model.keras"
    with pytest.raises(ValueError, match=r"says epsilon .* by RDP, but the optimizer's 4 noised steps, and what was "):
        release(model, path, statement=statement.privacy_report(**about))
    asked = events.named(events.gaussian_event(1.5), "scales-1")
    release(model, path, statement=statement.privacy_report(**about, other_event=asked))
    release(model, path)
    with zipfile.ZipFile(path) as archive:
        words = " ".join(archive.read("privacy_statement.txt").decode().split())
    assert (
        "the data was asked for the scales of gradients before the first step: in all one release with Gaussian"
        in words
    )


def test_an_epsilon_that_is_too_small_for_its_own_figures_is_refused(run, tmp_path):
    model, report = run
    forged = {**report, "guarantee": {"rdp": 0.9 * report["guarantee"]["rdp"]}}
    with pytest.raises(ValueError, match=r"`statement` says epsilon .* 4 noised steps cost"):
        release(model, tmp_path / "model.keras", statement=forged)
    release(model, tmp_path / "model.keras", statement={**report, "guarantee": {"rdp": None}})  # infinite


def test_a_private_divisor_does_not_go_with_poisson(tmp_path):
    model = counted(models.softmax_regression(), steps=2, expected_batch_size=None)
    arguments = {"noise_multiplier": 1.0, "delta": 0.01, "num_examples": 8, "batch_size": 4, "steps": 2}
    arguments["accountants"] = ("rdp",)
    with pytest.raises(ValueError, match="true size, which is private"):
        release(model, tmp_path / "model.keras", statement=statement.privacy_report(**arguments))
    report = statement.privacy_report(**arguments, sampling="shuffled")
    release(model, tmp_path / "model.keras", statement=report)
    release(model, tmp_path / "model.keras")
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        assert "one fixed size" in " ".join(archive.read("privacy_statement.txt").decode().split())


def test_a_file_that_lacks_some_of_the_weights_is_not_written():
    """Keras saves what it finds. What it does not find would be missing without a word."""
    model = counted(models.softmax_regression())
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        file["kernel"] = model.trainable_variables[0].numpy()
    with pytest.raises(ValueError, match=r"in no \.keras file"):
        release_files._verified(buffer.getvalue(), model, model, model.optimizer, [])


def test_the_example(tmp_path):
    names = {"adaclip_tf": adaclip_tf, "tf": tf, "np": np, "folder": str(tmp_path)}
    assert doctest.testmod(releasing, extraglobs=names).failed == 0
