"""Runs that start from one saved state do not add the same noise."""

import copy

import numpy as np
import pytest
import tensorflow as tf

from adaclip_tf import DPFixedClipSGD
from tests import models


def _model():
    optimizer = DPFixedClipSGD(1.0, l2_norm_clip=0.1, noise_multiplier=1.0, expected_batch_size=4)
    model = models.softmax_regression()
    model.compile(optimizer, models.per_example_loss())
    return model


def _weights_after(model, **arguments):
    inputs, labels = models.data(4)
    model.fit(inputs, labels, batch_size=4, shuffle=False, verbose=0, **arguments)
    return np.concatenate([weight.ravel() for weight in model.get_weights()])


def _differ_everywhere(one, two):
    return bool((one != two).all())


def test_a_model_loaded_twice_draws_anew(tmp_path):
    model = _model()
    _weights_after(model)
    model.save(str(tmp_path / "model.keras"))
    loaded = [tf.keras.models.load_model(str(tmp_path / "model.keras")) for _ in range(2)]
    after = [_weights_after(m) for m in (model, *loaded)]
    assert all(int(m.optimizer.noised_steps) == 2 for m in (model, *loaded))
    for i in range(3):
        for j in range(i):
            assert _differ_everywhere(after[i], after[j])


def test_copies_of_an_optimizer_draw_anew():
    optimizer = DPFixedClipSGD(1.0, l2_norm_clip=0.1, noise_multiplier=1.0)
    source = optimizer.private_step.noise_sources.here()
    copies = [
        copy.deepcopy(optimizer.private_step.noise_sources).here(),
        type(optimizer).from_config(optimizer.get_config()).private_step.noise_sources.here(),
    ]
    draws = [s.fresh_normals([(8,)])[0].numpy() for s in (source, *copies)]
    assert _differ_everywhere(draws[0], draws[1]) and _differ_everywhere(draws[0], draws[2])


@pytest.mark.slow
def test_a_backup_restored_twice_draws_anew(tmp_path):
    def backup():
        return tf.keras.callbacks.BackupAndRestore(str(tmp_path), delete_checkpoint=False)

    _weights_after(_model(), callbacks=[backup()])
    after = []
    for _ in range(2):
        model = _model()
        # It goes on with the second epoch; the backup of that one is not to be found by the other model.
        restore_only = backup()
        restore_only.on_epoch_end = lambda *_: None
        after.append(_weights_after(model, epochs=2, callbacks=[restore_only]))
        assert int(model.optimizer.noised_steps) == 2
    assert _differ_everywhere(*after)
