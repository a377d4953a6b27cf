"""Tests of `examples.workdirs`: what a folder may hold for a run to go on in it."""

import os
import shutil

import pytest
import tensorflow as tf

from adaclip_tf._internal import keras
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
    """The file that holds the weights."""
    (path,) = (folder / workdirs.BACKUP).rglob("latest.weights.h5" if keras.GENERATION == 3 else "*.data-*")
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


def _other_keras(folder):
    """A backup that the other generation of Keras has written: this one would start anew."""
    theirs = {2: "latest.weights.h5", 3: "chief/ckpt-1.index"}[keras.GENERATION]
    _lose_all(folder)
    (folder / workdirs.BACKUP / theirs).parent.mkdir(parents=True)
    (folder / workdirs.BACKUP / theirs).write_bytes(b"whole")


@pytest.mark.parametrize("damage", [_truncate, _overwrite, _lose_shard, _lose_all, _other_keras])
def test_a_damaged_backup_is_refused_and_kept(folder, damage):
    """Silently starting again would forget the epsilon that was spent."""
    damage(folder)
    before = sorted(path.name for path in folder.rglob("*"))
    with pytest.raises(ValueError, match=r"backup is damaged: .*another --workdir; .* sum of their epsilons"):
        training.run(config(), folder, loaded=data.load("digits"))
    assert sorted(path.name for path in folder.rglob("*")) == before


@pytest.mark.skipif(keras.GENERATION == 2, reason="TensorFlow's checkpoints are renamed when they are complete")
@pytest.mark.parametrize("damage", [_truncate, _overwrite])
def test_killed_while_keras_3_wrote_the_older_backup_is_taken(tmp_path, damage):
    """Keras 3 writes over its file. Two epochs leave two: a torn second one is gone back from, with its count."""
    training.run(config(epochs=2), tmp_path, loaded=data.load("digits"))
    damage(tmp_path)
    epochs = []
    watch = tf.keras.callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: epochs.append(epoch))
    training.run(config(epochs=2), tmp_path, loaded=data.load("digits"), callbacks=[watch])
    assert epochs == [1]


@pytest.mark.skipif(keras.GENERATION == 2, reason="Keras 2 keeps the epoch in the checkpoint")
def test_a_lost_epoch_number_is_refused(folder):
    (folder / workdirs.BACKUP / "training_metadata.json").write_text("")
    with pytest.raises(ValueError, match="backup is damaged"):
        workdirs.prepare(config(), folder)


def test_killed_before_the_first_backup_starts_anew(folder):
    _lose_all(folder)
    (folder / workdirs.HISTORY).write_text("epoch,loss\n")
    workdirs.prepare(config(), folder)
