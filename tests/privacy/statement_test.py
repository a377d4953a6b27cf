"""Tests of `adaclip_tf.privacy.statement`: what it says is what was computed, and nothing more is claimed."""

import doctest
import json
import os
import re

import dp_accounting
import pytest

import adaclip_tf
from adaclip_tf.privacy import accountants, events, statement
from adaclip_tf.privacy.mechanism import SAMPLINGS

RUN = {"noise_multiplier": 2.5, "delta": 1e-5, "num_examples": 60000, "batch_size": 600}


def flat(text):
    return re.sub(r"\s+", " ", text)


@pytest.fixture(scope="module")
def poisson():
    return statement.privacy_report(**RUN, epochs=5)


def test_report_holds_the_epsilons_of_both_accountants_and_samplings(poisson):
    for sampling in SAMPLINGS:
        for accountant in accountants.names():
            expected = adaclip_tf.epsilon(**RUN, epochs=5, sampling=sampling, accountant=accountant)
            assert poisson["epsilon"][sampling][accountant] == pytest.approx(expected, rel=1e-12)
    assert poisson["guarantee"] == poisson["epsilon"]["poisson"]
    assert poisson["steps"] == 500


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_event_is_that_of_the_sampling(sampling):
    report = statement.privacy_report(**RUN, steps=500, sampling=sampling, accountants=("rdp",))
    event = adaclip_tf.training_event(
        noise_multiplier=2.5, num_examples=60000, batch_size=600, steps=500, sampling=sampling
    )
    assert report["event"] == repr(dp_accounting.ComposedDpEvent([event]))
    assert ("PoissonSampled" in report["event"]) == (sampling == "poisson")
    assert report["guarantee"]["rdp"] == adaclip_tf.epsilon_of(event, delta=1e-5)


def test_epochs_are_those_that_are_trained():
    run = {**RUN, "num_examples": 1500, "batch_size": 1000, "accountants": ("rdp",)}
    by_epochs, by_steps = statement.privacy_report(**run, epochs=20), statement.privacy_report(**run, steps=40)
    assert by_epochs["steps"] == 40
    assert by_steps["epochs"] == 20
    assert by_epochs["guarantee"] == by_steps["guarantee"]


def test_words_hold_the_numbers_the_unit_and_the_assumptions(poisson):
    text = flat(statement.describe(poisson))
    for number in poisson["guarantee"].values():
        assert f"{number:.4f}" in text
    for phrase in (
        "500 noised steps (5 epochs) over 60,000 examples",
        "whether one training example was in the training data",
        "add or remove one (example)",
        "delta = 1e-05",
        "Poisson sampling: every example joined every batch independently",
        "customary but not proven",
        "Mironov 2012",
        "Choosing hyper-parameters",
        "nonprivate/",
    ):
        assert phrase in text
    assert "Microbatches" not in text
    assert max(len(line) for line in statement.describe(poisson).splitlines()) <= 100


def test_words_for_shuffled_batches_claim_no_amplification():
    report = statement.privacy_report(**RUN, steps=500, sampling="shuffled", accountants=("rdp",))
    text = flat(statement.describe(report))
    assert "Proven without any gain from shuffling" in text
    assert "not a bound on this run" in text
    assert "replace one by an example that contributes nothing" in text
    assert report["guarantee"] == {"rdp": adaclip_tf.epsilon(**RUN, steps=500, sampling="shuffled")}
    assert re.search(r"shuffled batches of fixed size, no amplification +\d+\.\d{4} +<- this run", text)
    for kind in ("poisson", "shuffled"):
        report = statement.privacy_report(**RUN, steps=500, sampling=kind, accountants=("rdp",))
        assert statement.describe(report).count("<- this run") == 1


def test_words_for_microbatches_users_and_other_events():
    report = statement.privacy_report(
        **RUN,
        steps=500,
        microbatch_sensitivity=2.0,
        examples_per_user=2,
        other_event=events.gaussian_event(50.0),
        accountants=("rdp",),
    )
    text = flat(statement.describe(report))
    assert "effective noise multiplier is 1.25" in text
    assert "nothing is proven for them" in text
    assert "one user with up to 2 examples" in text
    assert "Gaussian noise of 50.0 times the sensitivity" in text
    alone = adaclip_tf.epsilon(**RUN, steps=500, microbatch_sensitivity=2.0, examples_per_user=2)
    assert report["guarantee"]["rdp"] > alone


def test_no_noise_is_said_in_words_and_is_valid_json():
    report = statement.privacy_report(**{**RUN, "noise_multiplier": 0.0}, steps=5)
    assert report["guarantee"] == {"rdp": None, "pld": None}
    assert "infinite" in statement.describe(report)
    json.dumps(report, allow_nan=False)


@pytest.mark.parametrize("name", ["privacy", "privacy.txt", "privacy.json"])
def test_files(tmp_path, poisson, name):
    text_file, json_file = statement.write_report(poisson, tmp_path / "new" / name)
    assert sorted(os.listdir(tmp_path / "new")) == ["privacy.json", "privacy.txt"]
    with open(text_file, encoding="utf-8") as file:
        assert file.read() == statement.describe(poisson)
    with open(json_file, encoding="utf-8") as file:
        assert json.load(file) == poisson


def test_a_write_that_fails_leaves_the_old_file(tmp_path, poisson, monkeypatch):
    statement.write_report(poisson, tmp_path / "privacy")
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}

    def killed(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        statement.write_report({**poisson, "steps": 1}, tmp_path / "privacy")
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="sampling"):
        statement.privacy_report(**RUN, steps=5, sampling="uniform", accountants=("rdp",))


def test_examples_in_the_docstrings():
    assert doctest.testmod(statement).failed == 0
