"""The statement as a page: the same numbers, for other readers."""

import doctest
import html
import math
import re
import subprocess
import sys

import dp_accounting
import pytest

from adaclip_tf import __all__ as public_names
from adaclip_tf import __main__ as listing
from adaclip_tf.privacy import __main__ as privacy
from adaclip_tf.privacy import event_words, page, statement, wording

RUN = {"noise_multiplier": 3.0, "delta": 1e-5, "num_examples": 60000, "batch_size": 600, "epochs": 5}


def _words(text):
    return re.sub(r"\s+", " ", html.unescape(re.sub("<style>.*?</style>|<[^>]+>", " ", text)))


def test_the_page_says_what_the_statement_says():
    report = statement.privacy_report(**RUN)
    text = _words(page.page(report))
    epsilon = max(report["guarantee"].values())
    assert f"epsilon = {epsilon:.2f}" in text and "1e-05" in text
    # By hand: odds of 1 : 1 become e^epsilon : 1.
    assert f"at most {100 * math.exp(epsilon) / (1 + math.exp(epsilon)):.1f} % sure" in text
    assert "60,000" in text and "500" in text and "3 times as much" in text
    for line in [*wording.assumptions(report), *wording.NOT_COVERED]:
        assert " ".join(line.replace("`", "").split()) in text


def test_no_names_of_classes():
    """An event that is counted besides is told in words."""
    event = dp_accounting.SelfComposedDpEvent(
        dp_accounting.PoissonSampledDpEvent(0.5, dp_accounting.GaussianDpEvent(2.0)), 7
    )
    report = statement.privacy_report(**RUN, other_event=event, accountants=["rdp"])
    for text in (page.page(report), statement.describe(report)):
        assert "DpEvent" not in text
        assert "7 times Gaussian noise of 2.0 times the sensitivity on a random share 0.5 of the data" in " ".join(
            text.split()
        )


def test_no_noise_is_no_promise():
    text = _words(page.page(statement.privacy_report(**{**RUN, "noise_multiplier": 0.0})))
    assert "no noise" in text and "epsilon =" not in text


def test_the_command_line_writes_it(capsys, tmp_path):
    flags = [f"--{name}={value}" for name, value in RUN.items()]
    assert privacy.main(["privacy", *flags, f"--page={tmp_path}/page.html"]) == 0
    assert "page.html" in capsys.readouterr().out
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_the_console_script(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["adaclip-privacy", "--help"])
    assert privacy.run() == 0
    assert "adaclip-privacy" in capsys.readouterr().out


def test_words_of_events():
    assert doctest.testmod(event_words).failed == 0


def test_the_package_lists_what_there_is():
    text = listing.text()
    assert all(re.search(rf"^  {name} +\S", text, re.MULTILINE) for name in public_names)
    assert "adaclip-privacy" in text


@pytest.mark.slow
def test_python_m_adaclip_tf():
    done = subprocess.run([sys.executable, "-m", "adaclip_tf"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("adaclip_tf 0")
