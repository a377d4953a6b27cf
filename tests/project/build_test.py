"""Every module and every test has a Bazel target with the deps that its imports call for."""

import pathlib
import shutil

import pytest

from tools import build_targets


def test_build_files_are_complete():
    found = build_targets.complaints()
    assert not found, "\n".join([*found, "`python tools/build_targets.py` does all of this."])


def test_every_python_file_is_looked_at():
    looked_at = {str(path) for path in build_targets.sources()}
    root = build_targets.ROOT
    not_ours = {"build", "dist", "node_modules", "runs"}
    folders = [p for p in root.iterdir() if p.is_dir() and p.name[0] != "." and p.name not in not_ours]
    everything = {path.relative_to(root).as_posix() for folder in folders for path in folder.rglob("*.py")}
    assert everything == looked_at


@pytest.fixture
def tree(tmp_path):
    """A small repository of the same layout, whose BUILD files are right."""
    files = {
        "adaclip_tf/__init__.py": "from adaclip_tf import one\n_HOME = {'Two': 'two'}\n",
        "adaclip_tf/one.py": "import math\n",
        "adaclip_tf/two.py": "def late():\n    from adaclip_tf import one\n",
        "adaclip_tf/sub/__init__.py": "",
        "adaclip_tf/sub/three.py": "import adaclip_tf.two\nfrom adaclip_tf.one import name\n",
        "tests/bazel_main.py": "",
        "tests/conftest.py": "",
        "tests/one_test.py": "import adaclip_tf\nfrom adaclip_tf.sub import three\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    write(tmp_path)
    return tmp_path


def write(root):
    for name, text in build_targets.build_files(root).items():
        (root / name).write_text(text)


def test_deps_come_from_the_imports(tree):
    deps = {label: target.deps for label, target in build_targets.wanted(tree).items()}
    assert deps["//adaclip_tf:adaclip_tf"] == ("//adaclip_tf:one", "//adaclip_tf:two")
    assert deps["//adaclip_tf:two"] == ("//adaclip_tf:one",)
    assert deps["//adaclip_tf/sub:three"] == ("//adaclip_tf:one", "//adaclip_tf:two")
    assert deps["//tests:one_test"] == ("//adaclip_tf/sub:three", "//adaclip_tf:adaclip_tf", "//tests:conftest")


def test_what_is_written_is_complete(tree):
    assert build_targets.complaints(tree) == []


def test_a_module_without_a_target_is_told_with_its_stanza(tree):
    (tree / "adaclip_tf/four.py").write_text("from adaclip_tf import one\n")
    (told,) = build_targets.complaints(tree)
    assert "adaclip_tf/BUILD has no target for four.py" in told
    assert 'py_library(\n    name = "four",\n    srcs = ["four.py"],\n    deps = [":one"],\n)' in told


def test_a_test_without_a_target_is_told(tree):
    (tree / "tests/two_test.py").write_text("")
    (told,) = build_targets.complaints(tree)
    assert "tests/BUILD has no target for two_test.py" in told
    assert "py_test(" in told


def test_a_missing_dep_is_told(tree):
    (tree / "adaclip_tf/one.py").write_text("from adaclip_tf.sub import three\n")
    (told,) = build_targets.complaints(tree)
    assert "//adaclip_tf:one lacks ['//adaclip_tf/sub:three'] and has [] too many" in told


def test_a_superfluous_dep_is_told(tree):
    (tree / "adaclip_tf/two.py").write_text("")
    (told,) = build_targets.complaints(tree)
    assert "//adaclip_tf:two lacks [] and has ['//adaclip_tf:one'] too many" in told


def test_a_target_whose_source_is_gone_is_told(tree):
    build = pathlib.Path(tree / "tests/BUILD")
    shutil.move(tree / "tests/one_test.py", tree / "one_test.py")
    assert any("remove //tests:one_test" in told for told in build_targets.complaints(tree))
    write(tree)
    assert "one_test" not in build.read_text()
    assert build_targets.complaints(tree) == []
