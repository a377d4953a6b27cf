"""Tests of `adaclip_tf._internal.versions`: one sentence, before anything else can fail."""

import ast
import os
import pathlib
import subprocess
import sys

import pytest

import adaclip_tf
from adaclip_tf._internal import versions

ROOT = pathlib.Path(__file__).parents[2]
# Run without site-packages, an interpreter has no TensorFlow at all.
BARE = [sys.executable, "-S", "-c", "import adaclip_tf"]


def import_error(command, *path):
    """What `import adaclip_tf` says in a fresh interpreter that must refuse it."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT])), "PYTHONNOUSERSITE": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode != 0
    return done.stderr.strip().splitlines()[-1]


def fake_tensorflow(folder, version):
    """A distribution that says it is TensorFlow and whose import would be an error of its own."""
    info = folder / f"tensorflow-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tensorflow\nVersion: {version}\n")
    (folder / "tensorflow.py").write_text("raise SystemExit('TensorFlow was imported before the check')\n")


@pytest.mark.parametrize("version", ["2.14.0", "1.15.0"])
def test_import_on_another_tensorflow_fails_with_one_sentence(tmp_path, version):
    fake_tensorflow(tmp_path, version)
    said = import_error(BARE, tmp_path)
    assert said == (
        "ImportError: adaclip_tf works with Python 3.9 to 3.13 and TensorFlow 2.15 or later, on Keras 3 or (TensorFlow "
        "2.15, or tf-keras and TF_USE_LEGACY_KERAS=1) Keras 2; this is TensorFlow "
        f"{version}: pip install -U tensorflow."
    )


def test_the_fake_tensorflow_would_show_if_it_were_imported(tmp_path):
    """Negative control: a supported version passes the check and then meets the fake module."""
    fake_tensorflow(tmp_path, "2.15.1")
    said = import_error([*BARE[:-1], "import adaclip_tf, tensorflow"], tmp_path)
    assert said == "TensorFlow was imported before the check"


def test_import_without_tensorflow_fails_with_one_sentence():
    said = import_error(BARE)
    assert said.startswith("ImportError: adaclip_tf works with Python 3.9 to 3.13 and TensorFlow 2.15 or later")
    assert "TensorFlow is not installed" in said


def test_numpy_2_beside_tensorflow_2_15_is_refused():
    with pytest.raises(ImportError, match=r"fails beside NumPy 2\.1\.0: pip install 'numpy<2'"):
        versions.check(tensorflow="2.15.1", numpy="2.1.0")
    versions.check(tensorflow="2.15.1", numpy="1.26.4")
    versions.check(tensorflow="2.16.1", numpy="2.1.0")


@pytest.mark.parametrize("python", [(3, 8), (3, 14), (2, 7)])
def test_other_pythons_are_refused(python):
    with pytest.raises(ImportError, match=rf"this is Python {python[0]}\.{python[1]}\."):
        versions.check(python=python, tensorflow="2.15.1")


@pytest.mark.parametrize("python", [(3, 9), (3, 11), (3, 13)])
@pytest.mark.parametrize("tensorflow", ["2.15.0.post1", "2.16.1", "2.21.0", "2.30.0rc1"])
def test_supported_versions_pass(python, tensorflow):
    versions.check(python=python, tensorflow=tensorflow, numpy="1.26.4")


@pytest.mark.parametrize("tensorflow", ["2.14.1", "1.15.0", "3.0.0"])
def test_other_tensorflows_are_refused(tensorflow):
    with pytest.raises(ImportError, match=r"works with Python 3\.9 to 3\.13 and TensorFlow 2\.15 or"):
        versions.check(python=(3, 11), tensorflow=tensorflow)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_other_backends_are_refused_in_one_sentence(backend):
    with pytest.raises(ImportError, match=f"backend is '{backend}': set KERAS_BACKEND=tensorflow"):
        versions.check(backend=backend)


def test_this_environment_is_supported():
    versions.check()


def test_importing_the_package_imports_neither_tensorflow_nor_keras():
    program = "import sys, adaclip_tf; sys.exit(bool({'tensorflow', 'keras'} & set(sys.modules)))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", program], env=env, check=True)


def test_every_public_name_can_be_imported():
    for name in adaclip_tf.__all__:
        assert getattr(adaclip_tf, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        adaclip_tf.Nothing  # noqa: B018


SOURCES = sorted(p for folder in ("adaclip_tf", "examples", "configs") for p in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_sources_are_python_3_9(source):
    """Syntax by the parser; annotations such as `int | None` by their being strings."""
    tree = ast.parse(source.read_text(), feature_version=(3, 9))
    nodes = list(ast.walk(tree))
    assert not [n for n in nodes if type(n).__name__ in ("Match", "TryStar", "TypeAlias")]
    deferred = any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body)
    annotations = [n.annotation for n in nodes if getattr(n, "annotation", None) is not None]
    annotations += [n.returns for n in nodes if getattr(n, "returns", None) is not None]
    unions = [a for note in annotations for a in ast.walk(note) if isinstance(a, ast.BinOp)]
    assert deferred or not unions, "needs `from __future__ import annotations` on Python 3.9"


def test_the_python_3_9_check_can_fail():
    with pytest.raises(SyntaxError):
        ast.parse("match x:\n    case 1:\n        pass\n", feature_version=(3, 9))
