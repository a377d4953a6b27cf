"""Tests of `examples.workdirs`: what a folder may hold for a run to go on in it."""

import os
import shutil

import pytest

from configs import digits
from examples.common import data, training, workdirs


def config(**changes):
    result = digits.get_config()
    result.update({"optimizer": "sgd", "epochs": 1, **changes})
    return result


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """The folder of a real run."""
    folder = tmp_path_factory.mktemp("complete")
    training.run(config(), folder, loaded=data.load("digits"))
    return folder


@pytest.fixture
def folder(complete, tmp_path):
    return shutil.copytree(complete, tmp_path / "run")


def _shard(folder):
    (path,) = (folder / workdirs.BACKUP / "chief").glob("*.data-*")
    return path


def test_a_run_goes_on_in_its_folder(folder):
    assert workdirs.prepare(config(), folder) == folder
    assert set(workdirs.read_history(folder)) >= {"loss", "accuracy", "val_accuracy"}


def test_another_config_is_refused(folder):
    with pytest.raises(ValueError, match="another config: epochs, h2 differ"):
        workdirs.prepare(config(epochs=2, h2=1e-5), folder)


def test_the_data_may_have_moved(folder):
    workdirs.prepare(config(data_dir="/elsewhere"), folder)


def _truncate(folder):
    os.truncate(_shard(folder), 100)


def _overwrite(folder):
    path = _shard(folder)
    path.write_bytes(bytes(path.stat().st_size))


def _lose_shard(folder):
    _shard(folder).unlink()


def _lose_all(folder):
    shutil.rmtree(folder / workdirs.BACKUP)


@pytest.mark.parametrize("damage", [_truncate, _overwrite, _lose_shard, _lose_all])
def test_a_damaged_backup_is_refused_and_kept(folder, damage):
    """Silently starting again would forget the epsilon that was spent."""
    damage(folder)
    before = sorted(path.name for path in folder.rglob("*"))
    with pytest.raises(ValueError, match=r"backup is damaged: .*another --workdir; .* sum of their epsilons"):
        training.run(config(), folder, loaded=data.load("digits"))
    assert sorted(path.name for path in folder.rglob("*")) == before


def test_killed_before_the_first_backup_starts_anew(folder):
    _lose_all(folder)
    (folder / workdirs.HISTORY).write_text("epoch,loss\n")
    workdirs.prepare(config(), folder)
