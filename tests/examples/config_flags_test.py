"""Tests of `examples.common.config_flags`: fields of a config that there are not are answered in words."""

import doctest

import pytest

from configs import base
from examples.common import config_flags


@pytest.mark.parametrize(
    ("argument", "meant"),
    [
        ("--config.lr=3", "learning_rate"),
        ("-config.epsilon=1", "target_epsilon"),
        ("--config.batch_size", "expected_batch_size"),
        ("--config.learning_rat=3", "learning_rate"),
        ("--config.l2_clip=3", "l2_norm_clip"),
    ],
)
def test_the_near_field_is_named(argument, meant):
    said = config_flags.complaint(["--seeds=2", argument], list(base.get_config()))
    assert said.endswith(f"Did you mean --config.{meant}?")


def test_all_are_named_where_none_is_near():
    assert "The fields are: accountant, " in config_flags.complaint(["--config.qqqq=3"], list(base.get_config()))


@pytest.mark.parametrize("argument", ["--config.h2=3", "--config=configs/base.py", "config.lr=3", "--seeds=3"])
def test_others_are_left_alone(argument):
    assert config_flags.complaint([argument], list(base.get_config())) is None


def test_the_program_ends_with_the_words():
    with pytest.raises(SystemExit, match=r"Did you mean --config\.learning_rate"):
        config_flags.parse(["train", "--config.lr=3"])
    assert doctest.testmod(config_flags).failed == 0
