"""Tests of the command line `python -m adaclip_tf.privacy`."""

import doctest
import pathlib
import re
import subprocess
import sys

import pytest

import adaclip_tf
from adaclip_tf.privacy import __main__ as privacy

RUN = ["--num_examples=60000", "--batch_size=600", "--epochs=5", "--delta=1e-5"]
ARGUMENTS = {"num_examples": 60000, "batch_size": 600, "epochs": 5, "delta": 1e-5}


def run(capsys, *flags):
    code = privacy.main(["privacy", *flags])
    out, err = capsys.readouterr()
    return code, out, err


def test_prints_both_accountants_side_by_side(capsys):
    code, out, err = run(capsys, *RUN, "--noise_multiplier=3")
    assert (code, err) == (0, "")
    both = [adaclip_tf.epsilon(**ARGUMENTS, noise_multiplier=3, accountant=name) for name in ("rdp", "pld")]
    line = next(line for line in out.splitlines() if "<- this run" in line)
    assert [float(number) for number in re.findall(r"\d+\.\d+", line)] == pytest.approx(both, abs=5e-5)
    assert "Computed by dp_accounting" in out
    assert "This rests on:" in out
    assert "It does not cover:" in out


def test_finds_the_noise_for_a_target(capsys):
    code, out, _ = run(capsys, *RUN, "--target_epsilon=0.8")
    assert code == 0
    z = float(re.search(r"noise_multiplier = (\S+) meets epsilon 0.8 by RDP", out).group(1))
    assert adaclip_tf.epsilon(**ARGUMENTS, noise_multiplier=z) == pytest.approx(0.8, rel=1e-3)


def test_options_reach_the_accountant(capsys):
    flags = ["--sampling=shuffled", "--microbatch_size=4", "--examples_per_user=2"]
    _, out, _ = run(capsys, *RUN, "--noise_multiplier=30", *flags)
    expected = adaclip_tf.epsilon(
        **ARGUMENTS, noise_multiplier=30, sampling="shuffled", microbatch_sensitivity=2.0, examples_per_user=2
    )
    assert f"{expected:.4f}" in out


def test_plot(capsys, tmp_path):
    code, out, _ = run(capsys, *RUN, "--noise_multiplier=3", f"--plot={tmp_path}/epsilon.png")
    assert code == 0
    assert "epsilon.png" in out
    assert (tmp_path / "epsilon.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "flags,message",
    [
        ([], "--num_examples is required"),
        (RUN, "either --noise_multiplier or --target_epsilon"),
        ([*RUN, "--noise_multiplier=1", "--target_epsilon=1"], "either --noise_multiplier or --target_epsilon"),
        ([*RUN, "--noise_multiplier=1", "--steps=3"], "either --epochs or --steps"),
        ([*RUN, "--noise_multiplier=one"], "noise_multiplier"),
        ([*RUN, "--noise_multiplier=-1"], "noise_multiplier"),
        ([*RUN, "--noise=1"], "noise"),
        ([*RUN, "--noise_multiplier=1", "--sampling=uniform"], "sampling"),
        ([*RUN, "--noise_multiplier=1", "more"], "'more'"),
        ([*RUN, "--noise_multiplier=1", "--microbatch_size=0"], "microbatch_size"),
        ([*RUN, "--noise_multiplier=1", "--batch_size=70000"], "batch_size"),
        ([*RUN, "--target_epsilon=1e-9"], "out of reach"),
        ([*RUN, "--noise_multiplier=9", "--plot=/no/such/directory/x.png"], "/no/such/directory/x.png"),
    ],
)
def test_bad_flags_are_one_line_and_an_exit_code(capsys, flags, message):
    code, out, err = run(capsys, *flags)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


def test_help(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "--target_epsilon" in out


def test_as_a_program():
    command = [sys.executable, "-m", "adaclip_tf.privacy", "--num_examples=10"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == "adaclip_tf.privacy: --batch_size is required; --help lists the flags.\n"


def test_numbers_in_the_documentation():
    page = pathlib.Path(__file__).parents[2] / "docs" / "privacy.md"
    result = doctest.testfile(str(page), module_relative=False)
    assert result.attempted >= 8
    assert result.failed == 0
