"""Tests of `examples.demo`: a short run of all of it, its fallback to digits, and its own check."""

import copy
import json

import numpy as np
import pytest

from adaclip_tf.privacy import accountants
from examples.common import data
from examples.demo import experiment, report


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """(results, folder) of the quick demonstration, in a folder that holds an earlier one and a file of someone's."""
    folder = tmp_path_factory.mktemp("demo")
    (folder / "adaclip").mkdir()
    (folder / "adaclip" / "config.json").write_text('{"epochs": 7}')
    (folder / "mine").write_text("kept")
    with pytest.MonkeyPatch.context() as patch:  # PLD takes seconds
        patch.setattr(accountants, "REGISTERED", {"rdp": accountants.RDP})
        results = experiment.run(str(folder), quick=True, verbose=0)
    return results, folder


def test_it_writes_what_it_says(ran):
    results, folder = ran
    written = report.write(results, str(folder))
    assert [path.name for path in written] == ["demo.png", "demo.json", "privacy.txt", "privacy.txt"]
    for path in written:
        assert path.stat().st_size > 500, path
    assert (folder / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((folder / "demo.json").read_text())["dataset"] == "digits"
    for optimizer in experiment.LABELS:
        assert list((folder / optimizer / "tensorboard").rglob("events.out.tfevents*"))


def test_the_table_has_a_row_for_each(ran):
    results, _ = ran
    rows = report.table(results).splitlines()
    assert len(rows) == 4 and len({len(row) for row in rows}) == 1
    for row, optimizer in zip(rows[2:], experiment.LABELS):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        run = results["runs"][optimizer]
        assert cells[:3] == [experiment.LABELS[optimizer], f"{run['metric']:.3f}", f"{run['epsilon']:.3f}"]


def test_both_have_the_same_budget(ran):
    runs = ran[0]["runs"].values()
    assert all(0.99 < run["epsilon"] <= 1.0 for run in runs)
    for name in ("target_epsilon", "delta", "expected_batch_size", "epochs", "hidden", "pca_components"):
        assert len({run["config"][name] for run in runs}) == 1
    assert len({run["noise_multiplier"] for run in runs}) == 1


def test_an_earlier_demonstration_is_no_obstacle_and_others_files_stay(ran):
    results, folder = ran
    assert len(results["runs"]["adaclip"]["history"]["epsilon"]) == 2
    assert (folder / "mine").read_text() == "kept"


def test_its_check_finds_what_is_wrong(ran):
    results = ran[0]
    assert experiment.check(results).startswith("ok: AdaCliP")
    spent = copy.deepcopy(results)
    spent["runs"]["adaclip"]["epsilon"] = 1.01
    with pytest.raises(RuntimeError, match=r"AdaCliP spent epsilon 1\.0100 of 1"):
        experiment.check(spent)
    poor = copy.deepcopy(results)
    poor.update(quick=False)
    poor["runs"]["fixed_clip"]["metric"] = poor["runs"]["adaclip"]["metric"] = 0.2
    with pytest.raises(RuntimeError, match=r"reached 0\.200; expected more than"):
        experiment.check(poor)


def test_without_mnist_it_says_so_and_takes_digits(monkeypatch, capsys):
    load = data.load

    def offline(name, data_dir=None):
        if name == "mnist":
            raise data.DataUnavailableError("No mnist to be had.")
        return load(name, data_dir)

    monkeypatch.setattr(data, "load", offline)
    assert experiment.load(None, quick=False).name == "digits"
    said = capsys.readouterr().out
    assert "No mnist to be had." in said and "takes scikit-learn's digits" in said


def test_with_mnist_it_takes_mnist(monkeypatch):
    pixels, labels = np.zeros([2, 28, 28, 1], np.float32), np.zeros([2], np.int32)
    fake = data.Data("mnist", pixels, labels, pixels, labels, 10, "a test")
    monkeypatch.setattr(data, "load", lambda name, data_dir=None: {"mnist": fake}[name])
    assert experiment.load(None, quick=False).name == "mnist"
    config = experiment.make_config("mnist", "fixed_clip", quick=False)
    assert (config.dataset, config.pca_components, config.hidden, config.target_epsilon) == ("mnist", 60, 1000, 1.0)
