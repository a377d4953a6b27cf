"""The arrows between the rooms of `adaclip_tf`: what may import what, what needs no Keras, how long a file may be."""

import subprocess
import sys

import pytest

from tests.project import rooms


def test_imports_between_rooms_point_one_way():
    assert rooms.wrong_arrows() == []


def test_no_modules_import_each_other():
    assert rooms.cycle() == []


def test_the_table_itself_has_no_cycle():
    for room, others in rooms.MAY_IMPORT.items():
        assert all(room not in rooms.MAY_IMPORT[other] for other in others)


def test_accounting_needs_no_keras():
    assert rooms.keras_in_privacy() == []


def test_accounting_works_without_tensorflow():
    """Neither directly nor by what it imports: in a process of its own, where nobody has imported it before."""
    names = [*rooms.without_tensorflow(), "adaclip_tf.data.pca"]
    assert "adaclip_tf.privacy.epsilon" in names
    program = (
        f"import importlib, sys\nfor name in {names}:\n    importlib.import_module(name)\n"
        "    if 'tensorflow' in sys.modules or 'keras' in sys.modules:\n        sys.exit(name)\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def test_private_names_of_keras_are_read_in_one_module():
    assert rooms.private_names() == []


def test_files_are_short():
    assert not rooms.long_files()


# ---------------------------------------------------------------------------------------------------
# That each of these can fail.


@pytest.fixture
def tree(tmp_path):
    """A function that makes a small library of {path: text}."""

    def make(files):
        for name in ("__init__", "privacy/__init__", "core/__init__", "core/one", "_internal/__init__"):
            files.setdefault(f"adaclip_tf/{name}.py", "")
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


@pytest.mark.parametrize(
    "file,text,complaint",
    [
        ("privacy/a.py", "from adaclip_tf.core import one\n", "privacy may not import core"),
        ("privacy/a.py", "import adaclip_tf.core.one\n", "privacy may not import core"),
        ("privacy/a.py", "from adaclip_tf import core\n", "privacy may not import core"),
        ("core/a.py", "def f():\n    from adaclip_tf.privacy import x\n", "core/a.py:2: core may not import privacy"),
        ("_internal/a.py", "from adaclip_tf.core.one import name\n", "_internal may not import core"),
        ("core/a.py", "from adaclip_tf import DPAdaClipSGD\n", "public name from the package"),
        ("core/a.py", "from . import one\n", "relative import"),
        ("core/a.py", "from examples import demo\n", "the library imports examples"),
        ("core/a.py", "import tests.models\n", "the library imports tests.models"),
        ("__init__.py", "import benchmarks\n", "the library imports benchmarks"),
        ("attic/a.py", "", "the room 'attic' is not in the table"),
    ],
)
def test_a_wrong_arrow_is_found(tree, file, text, complaint):
    (found,) = rooms.wrong_arrows(tree({f"adaclip_tf/{file}": text}))
    assert complaint in found


def test_right_arrows_are_left_alone(tree):
    files = {
        "adaclip_tf/__init__.py": "from adaclip_tf.core import one\n",
        "adaclip_tf/core/a.py": "from adaclip_tf.core import one\nfrom adaclip_tf import _internal, core\n",
        "adaclip_tf/core/one.py": "import math\nif TYPE_CHECKING:\n    from adaclip_tf.core.a import A\n",
        "adaclip_tf/query.py": "from adaclip_tf import core\nfrom adaclip_tf.core.one import name\n",
    }
    assert rooms.wrong_arrows(tree(files)) == []
    assert rooms.cycle(tree(files)) == []


def test_a_cycle_is_found(tree):
    files = {
        "adaclip_tf/core/a.py": "from adaclip_tf.core import one\n",
        "adaclip_tf/core/one.py": "def f():\n    from adaclip_tf.core.a import name\n",
    }
    assert {"adaclip_tf.core.a", "adaclip_tf.core.one"} == set(rooms.cycle(tree(files)))


@pytest.mark.parametrize(
    "text", ["import tensorflow as tf\n", "from keras import layers\n", "import tensorflow.keras\n"]
)
def test_keras_in_the_accounting_is_found(tree, text):
    root = tree({"adaclip_tf/privacy/a.py": text, "adaclip_tf/privacy/budget.py": text})
    assert len(rooms.keras_in_privacy(root)) == 1
    assert rooms.without_tensorflow(root) == ["adaclip_tf.privacy", "adaclip_tf.privacy.a"]


@pytest.mark.parametrize("text", ["model._steps\n", "getattr(model, '_steps', 1)\n", "f(x)._steps.y\n"])
def test_a_private_name_is_found(tree, text):
    own = "class A:\n    def f(self, other):\n        self._x = other._x.__class__\n"
    root = tree({"adaclip_tf/privacy/a.py": text, "adaclip_tf/privacy/b.py": own, "adaclip_tf/core/a.py": text})
    assert rooms.private_names(root) == ["adaclip_tf/privacy/a.py:1: _steps"]


def test_a_long_file_is_found(tree):
    root = tree({"adaclip_tf/core/a.py": "\n" * 301, "examples/b.py": "\n" * 301, "adaclip_tf/core/one.py": "\n" * 300})
    assert rooms.long_files(root) == ["adaclip_tf/core/a.py", "examples/b.py"]
