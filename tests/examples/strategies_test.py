"""Tests of examples/common/strategies.py, and of what training refuses on several workers."""

import pytest

from configs import digits
from examples.common import strategies, training


def test_none():
    assert strategies.make("none") is None
    assert strategies.writes(None)
    assert not strategies.several_workers(None)


def test_workers_must_be_named(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    with pytest.raises(ValueError, match=r"examples\.launch --workers=2"):
        strategies.make("multi_worker")


def test_several_workers_would_each_pay_for_a_pca(monkeypatch):
    monkeypatch.setattr(strategies, "several_workers", lambda strategy: True)
    config = digits.get_config()
    config.pca_components = 4
    with pytest.raises(ValueError, match="pca_components must be 0"):
        training.run(config)
