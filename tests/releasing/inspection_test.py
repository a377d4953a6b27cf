"""`check_release` names what files hold that is not privatised, in every format that Keras and TensorFlow write."""

import doctest
import json
import warnings
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPAdaClipSGD, check_release, poisson_batches, release
from adaclip_tf._internal import keras
from adaclip_tf.releasing import inspection
from tests import models

EXAMPLES, BATCH = 40, 10
layers = tf.keras.layers


def fit(model, **optimizer_arguments):
    """Trains on Poisson batches and returns the model."""
    settings = {"noise_multiplier": 1.0, "expected_batch_size": BATCH, **optimizer_arguments}
    model.compile(DPAdaClipSGD(0.1, **settings), models.per_example_loss(), metrics=["accuracy"])
    model.fit(poisson_batches(models.data(EXAMPLES), expected_batch_size=BATCH, seed=3), verbose=0)
    return model


@pytest.fixture(scope="module")
def model():
    return fit(models.mlp(), momentum=0.9)


@pytest.fixture(scope="module")
def files(model, tmp_path_factory):
    """The model in all formats."""
    folder = tmp_path_factory.mktemp("formats")
    for name in ("whole.keras", "whole.h5"):
        model.save(folder / name)
    save_as_saved_model(model, folder / "whole")
    for name in ("v3.weights.h5", "old.h5", "tf_weights") if keras.GENERATION == 2 else ("v3.weights.h5",):
        model.save_weights(folder / name)
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(str(folder / "checkpoint-1"))
    model.export(folder / "exported")
    release(model, folder / "release.keras")
    release(model, folder / "release.h5")
    return folder


def save_as_saved_model(model, path):
    """With all that TensorFlow tracks of the model."""
    if keras.GENERATION == 2:
        model.save(path)
    else:
        tf.saved_model.save(model, str(path))


def found_in(path):
    """Findings by entry."""
    return {finding.entry: finding for finding in check_release(path).findings}


def un_noised(path):
    return {finding.entry for finding in check_release(path).findings if finding.kind == "un-noised"}


TRUE_TOTALS = {
    "whole.keras": ("metrics/mean/vars/0", "metrics/mean/vars/1"),
    "v3.weights.h5": ("metrics/mean/vars/0", "metrics/mean/vars/1"),
    "whole": tuple(f"keras_api/metrics/0/{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in ("total", "count")),
}


@pytest.mark.skipif(keras.GENERATION == 3, reason="Keras 3 saves no state of metrics")
@pytest.mark.parametrize("name", TRUE_TOTALS)
def test_the_true_loss_and_the_number_of_examples_drawn_are_found(model, files, name):
    """The numbers are those that Keras shows: total / count is the epoch's un-noised training loss."""
    found = found_in(files / name)
    total, count = (found[entry] for entry in TRUE_TOTALS[name])
    assert total.kind == count.kind == "un-noised"
    assert "its true total and the number of examples drawn" in total.why
    np.testing.assert_array_equal([total.value, count.value], [v.numpy() for v in model.metrics[0].variables])
    np.testing.assert_allclose(total.value / count.value, model.history.history["loss"][-1], rtol=1e-6)
    assert count.value == int(count.value) and count.value != EXAMPLES  # a Poisson draw, not n
    assert len(un_noised(files / name)) == 4  # the loss and the accuracy, nothing else


@pytest.mark.skipif(keras.GENERATION == 2, reason="Keras 2 saves the state of metrics")
@pytest.mark.parametrize("name", TRUE_TOTALS)
def test_keras_3_saves_no_metrics(model, files, name):
    """Neither the loss's total nor the accuracy's is in the bytes: that there is no finding is right."""
    totals = [v.numpy() for metric in model.metrics for v in metric.variables if v.numpy() % 1]
    assert totals  # the loss's at least; whole numbers may be there by chance
    paths = [files / name] if (files / name).is_file() else (files / name).rglob("*.*")
    held = b"".join(path.read_bytes() for path in paths if path.is_file())
    with h5py.File(files / "v3.weights.h5", "r") as file:
        assert file["layers/dense/vars/0"][()].tobytes() in held  # the search finds what is there
    assert not any(np.float32(total).tobytes() in held for total in totals)
    assert not un_noised(files / name)


NOT_TO_BE_PUBLISHED = {
    "whole.keras": "a Keras model",
    "whole.h5": "a Keras model in HDF5",
    "whole": "a SavedModel",
    "exported": "a SavedModel",
    "v3.weights.h5": "Keras weights",
    "old.h5": "Keras weights",
    "tf_weights": "a TensorFlow checkpoint",
    "checkpoint-1.index": "a TensorFlow checkpoint",
}


@pytest.mark.parametrize("name", NOT_TO_BE_PUBLISHED)
def test_only_releases_may_be_published(files, name, capsys):
    if keras.GENERATION == 3 and name in ("old.h5", "tf_weights"):
        pytest.skip("Keras 3 no longer writes this format")
    inspection_of = check_release(files / name)
    assert inspection_of.format == NOT_TO_BE_PUBLISHED[name]
    assert "(whole file)" in [finding.entry for finding in inspection_of.findings]
    assert inspection.main(["inspection", str(files / name)]) == 1
    printed = capsys.readouterr().out
    assert "may NOT be published" in printed and "no privacy statement" in printed


@pytest.mark.parametrize("name", ["release.keras", "release.h5"])
def test_releases_may_be_published(files, name, capsys):
    assert check_release(files / name).findings == ()
    assert inspection.main(["inspection", str(files / name)]) == 0
    assert "It may be published" in capsys.readouterr().out


def test_the_state_of_our_optimizer_is_known_to_be_private(files):
    for name in ("whole.keras", "whole.h5"):
        assert not any("optimizer" in entry for entry in found_in(files / name))
    # Keras 3's optimizer has the weights, too.
    entries = [entry for entry in found_in(files / "checkpoint-1") if "_trainable_variables" not in entry]
    checkpoint = [entry for entry in entries if "optimizer" in entry]
    # Its settings are not in the file, so nothing says whether batch sizes are public: the divisor's, the largest ones.
    assert "optimizer/_private_divisor/.ATTRIBUTES/VARIABLE_VALUE" in checkpoint and len(checkpoint) == 3
    assert "optimizer/vars/1" in found_in(files / "v3.weights.h5")  # nothing there says whose state it is


def test_the_size_of_the_last_batch_is_found(tmp_path):
    """Without `expected_batch_size` the divisor is how many examples the last Poisson batch had."""
    sizes = []
    model = models.softmax_regression()
    batches = poisson_batches(models.data(EXAMPLES), expected_batch_size=BATCH, seed=3)
    for inputs, _ in batches:
        sizes.append(len(inputs))
    fit(model, expected_batch_size=None)
    model.save(tmp_path / "model.keras")
    model.save(tmp_path / "model.h5")
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    last = float(model.optimizer.private_step.divisor)
    assert last in sizes
    (found,) = [f for f in check_release(tmp_path / "model.h5").findings if "/divisor" in f.entry]
    assert found.kind == "un-noised" and found.value == last
    # A .keras file has no names: all single numbers of the optimizer's but the count of iterations.
    found = [f for f in check_release(tmp_path / "model.keras").findings if "perhaps its divisor" in f.what]
    assert last in [f.value for f in found] and "optimizer/vars/0" not in [f.entry for f in found]
    assert not any(np.ndim(f.value) for f in found)
    (found,) = [f for f in check_release(path).findings if f.what == "the optimizer's divisor"]
    assert found.value == last


@pytest.mark.parametrize("arguments, entry", [({"seed": 5}, "optimizer: seed=5"), ({"noise_multiplier": 0.0}, "=0")])
def test_noise_that_is_none_is_found(tmp_path, arguments, entry):
    model = models.softmax_regression()
    model.compile(DPAdaClipSGD(**{"noise_multiplier": 1.0, "expected_batch_size": 4, **arguments}), "mse")
    model.save(tmp_path / "model.keras")
    assert any(found.endswith(entry) for found in un_noised(tmp_path / "model.keras"))


def test_the_state_of_other_optimizers_is_not_private(tmp_path):
    model = models.softmax_regression()
    model.compile(tf.keras.optimizers.Adam(), "mse")
    inputs, _ = models.data(8)
    model.fit(inputs, np.zeros((8, models.CLASSES)), verbose=0)
    model.save(tmp_path / "model.keras")
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "checkpoint"))
    assert "optimizer/vars/1" in un_noised(tmp_path / "model.keras")
    assert "layers" in found_in(tmp_path / "model.keras")
    assert sum(entry.startswith("model/optimizer/_variables") for entry in un_noised(path)) >= 4
    assert not any("_trainable_variables" in entry for entry in un_noised(path))  # weights, which are named as such
    assert any(finding.what == "weights" for finding in check_release(path).findings)


class Remembers(layers.Layer):
    """Keeps the data it was given as a constant of its function."""

    def __init__(self, data, **arguments):
        super().__init__(**arguments)
        self._data = data

    def get_config(self):
        return {"name": self.name}

    def call(self, inputs):
        return inputs + 0.0 * tf.reduce_sum(tf.constant(self._data))


def test_layers_that_hold_something_are_named(tmp_path):
    inputs, _ = models.data(EXAMPLES)
    norm = layers.Normalization(name="norm")
    norm.adapt(inputs)
    words = layers.StringLookup(output_mode="multi_hot", name="words")
    words.adapt(["a", "confidential", "word"])
    text, numbers = tf.keras.Input((1,), dtype=tf.string), tf.keras.Input((4,))
    hidden = layers.Dense(4, trainable=False, name="frozen")(Remembers(inputs, name="mine")(norm(numbers)))
    hidden = layers.add([layers.BatchNormalization(trainable=False, name="batch")(hidden), words(text)])
    model = tf.keras.Model([numbers, text], layers.Dense(models.CLASSES)(layers.Dropout(0.5)(hidden)))
    model.compile(DPAdaClipSGD(noise_multiplier=1.0, expected_batch_size=4), "mse")
    model.export(tmp_path / "saved")
    # In a SavedModel, constants and vocabularies are in the program.
    constants = [f.value for f in check_release(tmp_path / "saved").findings if f.what.startswith("a constant")]
    assert any(np.array_equal(value, inputs) for value in constants)
    assert any(b"confidential" in value for value in constants if value.dtype.kind == "O")
    model.save(tmp_path / "model.keras")
    found = found_in(tmp_path / "model.keras")
    for entry in ("config.json: norm", "config.json: words", "layer frozen", "layer batch", "layer mine"):
        assert entry in found, entry
    assert any(entry.endswith("vocabulary.txt") for entry in found)
    assert not any("dropout" in entry or "layer dense" in entry for entry in found)


def test_random_layers_count_the_examples(tmp_path):
    """The generator's counter moves with every random number, so with every example; in Keras 3 with every call."""
    shift = layers.RandomTranslation(0.1, 0.1, seed=1)
    model = tf.keras.Sequential([layers.Input((4, 4, 1)), shift, layers.Flatten()])
    counters = []
    for batch in (2, 3, 7):
        model(np.zeros((batch, 4, 4, 1)), training=True)
        path = tmp_path / f"saved_{batch}"
        (model.save if keras.GENERATION == 2 else model.export)(path)
        found, *_ = [f for f in check_release(path).findings if f.what == "state of a random generator"]
        counters.append(int(found.value[0 if keras.GENERATION == 2 else 1]))
    first, second = np.diff(counters)
    assert first > 0 and (second * 3 == first * 7 if keras.GENERATION == 2 else second == first)


# What each generation writes of a compiled model: arrays, and attributes by "group@name".
LAYOUTS = {
    2: {"layers/dense/vars/0": [1.5], "metrics/mean/vars/0": 834.25, "metrics/mean/vars/1": 453.0},
    3: {"layers/dense/vars/0": [1.5], "layers/dense/vars@name": "dense", "optimizer/vars@name": "sgd"},
}


def handmade(path, generation, optimizer):
    """A .keras file as `generation` writes it, whichever is installed, with a metric that is an attribute."""
    with h5py.File(path.with_suffix(".weights.h5"), "w") as file:
        for name, value in {**LAYOUTS[generation], "watched/vars/0": 77.5, "optimizer/vars/1": 9.0}.items():
            group, _, attribute = name.partition("@")
            if attribute:
                file.require_group(group).attrs[attribute] = value
            else:
                file[name] = np.float32(value)
    dense = {"class_name": "Dense", "module": "keras.layers", "config": {"name": "dense", "trainable": True}}
    inner = {"module": "keras", "class_name": "Sequential", "config": {"name": "inner", "layers": [dense]}}
    inner["build_config"] = {"shapes_dict": {"query_shape": [37, 3], "value_shape": [37, 3]}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps({**inner, "compile_config": {"optimizer": optimizer}}))
        archive.write(path.with_suffix(".weights.h5"), "model.weights.h5")
    return found_in(path)


@pytest.mark.parametrize("generation", LAYOUTS)
def test_files_of_the_other_generation_are_read_by_their_own_layout(tmp_path, generation):
    ours = {"class_name": "DPAdaClipSGD", "module": "adaclip_tf.optimizers", "config": {"noise_multiplier": 1.0}}
    of_ours, of_sgd = (handmade(tmp_path / "model.keras", generation, each) for each in (ours, "sgd"))
    totals = {"metrics/mean/vars/0", "metrics/mean/vars/1"} if generation == 2 else set()
    numbers = {"optimizer/vars/1", "watched/vars/0", "config.json: batch size 37"}
    assert set(of_ours) == {*totals, *numbers, "(whole file)"}
    assert set(of_sgd) == {*totals, *numbers, "(whole file)", "layers"}
    assert all(of_ours[entry].kind == "un-noised" for entry in totals)
    alone = found_in(tmp_path / "model.weights.h5")  # nothing there says what `watched` is
    assert {*totals, "watched/vars/0", "optimizer/vars/1", "weights", "(whole file)"} == set(alone)


def test_an_exported_model_s_statistics_are_found(tmp_path):
    """Keras 3 numbers its variables; their names are in the object graph."""
    model = tf.keras.Sequential([layers.Input((4,)), layers.BatchNormalization(), layers.Dense(2)])
    model.layers[0].moving_mean.assign([5.0, 6.0, 7.0, 8.0])
    model.export(tmp_path / "exported")
    found = [f.value for f in check_release(tmp_path / "exported").findings if f.what == "a statistic or metric"]
    assert any(np.array_equal(value, [5.0, 6.0, 7.0, 8.0]) for value in found)


def test_a_release_with_something_added_is_found_out(files, tmp_path):
    """In every place: a member, an array, an attribute, a compile configuration, a changed list."""
    with zipfile.ZipFile(files / "release.keras") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}

    def findings(**changes):
        path = tmp_path / "changed.keras"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in {**members, **{key.replace("__", "."): value for key, value in changes.items()}}.items():
                archive.writestr(name, data)
        return found_in(path)

    def with_array(change):
        path = tmp_path / "weights.h5"
        path.write_bytes(members["model.weights.h5"])
        with h5py.File(path, "r+") as file:
            change(file)
        return path.read_bytes()

    assert findings() == {}
    assert "extra.txt" in findings(extra__txt=b"1")
    added = with_array(lambda file: file.create_dataset("metrics/mean/vars/0", data=7.0))
    assert "metrics/mean/vars/0" in findings(model__weights__h5=added)
    marked = with_array(lambda file: file["layers"].attrs.update({"loss": 7.0}))
    assert "layers@loss" in findings(model__weights__h5=marked)
    config = {**json.loads(members["config.json"]), "compile_config": {"optimizer": "sgd"}}
    assert "config.json: compile_config" in findings(config__json=json.dumps(config))
    del config["compile_config"]
    config["config"]["layers"].append({"class_name": "Sequential", "compile_config": {"optimizer": "sgd"}})
    assert "config.json: compile_config" in findings(config__json=json.dumps(config))
    named = with_array(lambda file: file["layers/dense/vars"].attrs.update({"name": "7.0"}))
    assert "layers/dense/vars@name" in findings(model__weights__h5=named)
    contents = json.loads(members["privacy_statement.json"])
    contents["weights"].pop("layers/dense/vars/0")
    assert "layers/dense/vars/0" in findings(privacy_statement__json=json.dumps(contents))
    assert "(whole file)" in findings(privacy_statement__json=b"{}")


def test_bytes_around_the_files_of_a_release_are_found(files, tmp_path):
    """Before the archive, between its files, in notes; a file that another one of its name hides; names of folders."""
    release = (files / "release.keras").read_bytes()
    path = tmp_path / "changed.keras"

    def findings(data=release, change=None):
        path.write_bytes(data)
        if change is not None:
            with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
                warnings.simplefilter("ignore")  # a name twice
                change(archive)
        return set(found_in(path))

    def noted(archive):
        info = zipfile.ZipInfo("assets/")
        info.comment = b"rows"
        archive.writestr(info, b"")

    assert findings() == set()
    assert "(zip archive)" in findings(b"rows" + release)
    assert "(zip archive)" in findings(change=lambda archive: archive.writestr("metadata.json", b"{}"))
    assert "(zip archive)" in findings(change=noted)
    assert "a person/" in findings(change=lambda archive: archive.writestr("a person/", b""))
    assert "assets/rows.txt" in findings(change=lambda archive: archive.writestr("assets/rows.txt", b"1"))


@pytest.mark.parametrize(
    ("number", "words"), [(3, "c: what"), (4, "c, d: what"), (5, "d and 1 more: what"), (7, "3 more")]
)
def test_what_is_alike_is_said_in_one_line(number, words):
    found = [inspection.Finding(entry, "what", "why") for entry in "abcdefg"[:number]]
    lines = str(inspection.Inspection("path", "a file", tuple(found))).splitlines()
    assert len(lines) == 2 and words in lines[1]


def test_other_files_are_unknown_and_bad_ones_are_named(files, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("accuracy 0.9")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a", "b")
    (tmp_path / "empty").mkdir()
    for name in ("notes.txt", "other.zip", "empty"):
        assert not check_release(tmp_path / name).may_be_published
    whole = (files / "whole.keras").read_bytes()
    with zipfile.ZipFile(tmp_path / "damaged.keras", "w") as archive:
        archive.writestr("config.json", "{")
        archive.writestr("model.weights.h5", whole[:100])
    (tmp_path / "damaged.index").write_bytes(b"nothing")
    for name in ("damaged.keras", "damaged.index", "none.keras"):
        with pytest.raises(ValueError, match=r"can't be read|does not exist"):
            check_release(tmp_path / name)
        assert inspection.main(["inspection", str(tmp_path / name)]) == 2
    assert inspection.main(["inspection"]) == 2
    assert "usage" in capsys.readouterr().err


def test_the_example(tmp_path):
    assert doctest.testmod(inspection, extraglobs={"tf": tf, "folder": str(tmp_path)}).failed == 0
