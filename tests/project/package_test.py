"""The package: what its page shows, what the source archive holds, and that the wheel trains where nothing else is."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

import adaclip_tf
from tests.project import pages

ROOT = pages.ROOT
# What a clone has at its top and an archive need not hold: made by commands, or by setuptools itself.
MADE = re.compile(
    r"\.venv.*|build|dist|runs|node_modules|.*\.egg-info|\.\w*_cache|\.hypothesis|\.git|__pycache__|PKG-INFO|setup\.cfg"
)


@pytest.fixture(scope="module")
def setup():
    spec = importlib.util.spec_from_file_location("setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_on_an_index_has_no_links_into_the_dark(setup):
    readme = (ROOT / "README.md").read_text()
    without = setup.long_description(readme, repository="")
    assert set(re.findall(r"\]\((.+?)\)", without)) == {setup.PAPER} and "<img" not in without
    assert "First private model".lower() + " (docs/tutorial.md)" in without
    here = "https://host.example/owner/name"
    with_one = setup.long_description(readme, repository=here, version="1.2.3")
    targets = re.findall(r"\]\((.+?)\)", with_one) + re.findall(r'src="(.+?)"', with_one)
    assert all(target.startswith((f"{here}/blob/v1.2.3/", f"{here}/raw/v1.2.3/", setup.PAPER)) for target in targets)
    assert f"{here}/raw/v1.2.3/docs/figures/tabular.png" in targets
    programs = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    assert all(program in text for program in programs for text in (without, with_one))


def test_no_address_is_made_up(setup):
    assert setup.urls(repository="") == {"Paper": setup.PAPER}
    assert setup.urls("https://host.example/a")["Changelog"] == "https://host.example/a/blob/main/CHANGELOG.md"


def test_version_and_date_are_the_same_everywhere():
    newest = re.search(r"^## (\S+), (\S+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    citation = (ROOT / "CITATION.cff").read_text()
    assert newest.group(1) == adaclip_tf.__version__
    assert f"\nversion: {adaclip_tf.__version__}\n" in citation
    assert f"\ndate-released: {newest.group(2)}\n" in citation


def test_the_archive_names_all_that_a_clone_has():
    manifest = (ROOT / "MANIFEST.in").read_text()
    named = set(re.search(r"^include (.*)$", manifest, flags=re.MULTILINE).group(1).split())
    named |= set(re.findall(r"^graft (\S+)$", manifest, flags=re.MULTILINE)) | {"setup.py", "MANIFEST.in"}
    there = {path.name for path in ROOT.iterdir() if not MADE.fullmatch(path.name)}
    assert there <= named, there - named


# ----------------------------------------------------------------------------------------------------------------
# The wheel, outside of the repository.

UV = pathlib.Path(sys.executable).with_name("uv")
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
UNREACHABLE = re.compile(r"connect|dns|timed out|timeout|network|offline|error sending request", flags=re.IGNORECASE)


def interpreter(version: str) -> str | None:
    """A Python of that version on this machine: in use, on the path, or one of pyenv's."""
    if version == "{}.{}".format(*sys.version_info[:2]):
        return sys.executable
    known = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv")) / "versions"
    for path in (*sorted(known.glob(f"{version}.*/bin/python")), shutil.which(f"python{version}")):
        # A name on the path may be a stand-in of pyenv's that runs nothing.
        if path and subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0:
            return str(path)
    return None


def call(*command, cwd, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, "UV_PYTHON_DOWNLOADS": "never", "TF_CPP_MIN_LOG_LEVEL": "2", **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """Source archive and wheel, of a copy: setuptools leaves files behind. The wheel is made from the archive."""
    if not UV.exists():
        pytest.skip("uv is not installed beside this Python: requirements/install.sh puts it there.")
    copy, out = tmp_path_factory.mktemp("copy") / "adaclip_tf", tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT, copy, ignore=lambda folder, names: [name for name in names if MADE.fullmatch(name)])
    done = call(UV, "build", "--no-build-isolation", "--python", sys.executable, "--out-dir", out, copy, cwd=out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture
def folder(tmp_path):
    """Outside of the repository, and gone afterwards: pytest would keep gigabytes."""
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.slow
def test_the_archive_holds_tests_and_documentation(dist):
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        held = {name.partition("/")[2] for name in file.getnames()}
    for path in (
        "README.md",
        "CITATION.cff",
        "mkdocs.yml",
        "Makefile",
        "docs/guides/tables.md",
        "requirements/docs.lock",
    ):
        assert path in held, path
    for folder, kind in (("tests", "py"), ("docs", "md"), ("docs", "png"), ("examples", "py"), ("adaclip_tf", "py")):
        files = {file.relative_to(ROOT).as_posix() for file in (ROOT / folder).rglob(f"*.{kind}")}
        assert files <= held, files - held


@pytest.mark.slow
@pytest.mark.parametrize("version", PYTHONS)
def test_the_wheel_installs_and_trains_outside_of_the_repository(dist, version, folder):
    """The README's program, by what `pip install` brings along; the command line; nothing of this folder."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"There is no Python {version} on this machine, neither on the path nor in pyenv's folder.")
    (wheel,) = dist.glob("*.whl")
    assert call(UV, "venv", "--python", python, folder / "venv", cwd=folder).returncode == 0
    inside = folder / "venv" / "bin"
    done = call(UV, "pip", "install", "--python", inside / "python", wheel, cwd=folder)
    if done.returncode and UNREACHABLE.search(done.stderr):
        pytest.skip(f"What the wheel needs can't be had here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    (program,) = pages.programs(ROOT / "README.md")
    (folder / "program.py").write_text(f"{program}\nimport adaclip_tf\nprint('from', adaclip_tf.__file__)\n")
    done = call(inside / "python", "program.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "100 noised steps" in done.stdout and f"from {folder}/venv/lib/python{version}/" in done.stdout
    run = ("--num_examples=60000", "--batch_size=600", "--epochs=10", "--noise_multiplier=1.1", "--delta=1e-5")
    done = call(inside / "adaclip-privacy", *run, cwd=folder)
    assert done.returncode == 0 and "1.71" in done.stdout, done.stderr
