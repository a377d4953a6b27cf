"""What a budget needs of the `fit` that it runs in, without a `fit`."""

import pytest

from adaclip_tf.privacy import run_checks
from adaclip_tf.privacy.ledger import Ledger


@pytest.mark.parametrize(
    ("per_execution", "parts", "batches", "steps"),
    [
        (1, 1, 10, 1),
        (1, 1, None, 1),
        (4, 1, 10, 4),
        (4, 1, 3, 3),  # no call takes more than an epoch has
        (1, 4, 8, 1),  # which may be the one that completes a logical batch
        (4, 4, 8, 1),
        (5, 4, 8, 2),
        (8, 4, None, 2),
        (9, 4, 8, 2),
    ],
)
def test_a_call_takes_so_many_noised_steps_at_most(per_execution, parts, batches, steps, monkeypatch):
    monkeypatch.setattr(run_checks.keras, "steps_per_execution", lambda model: per_execution)
    assert run_checks.steps_per_call(None, parts, batches) == steps


def test_calls_that_cannot_be_counted_are_refused(monkeypatch):
    monkeypatch.setattr(run_checks.keras, "steps_per_execution", lambda model: 1)
    with pytest.raises(ValueError, match="An epoch has 10 batches, which is not a multiple"):
        run_checks.steps_per_call(None, 4, 10)
    monkeypatch.setattr(run_checks.keras, "steps_per_execution", lambda model: None)
    with pytest.raises(ValueError, match="compile with a number"):
        run_checks.steps_per_call(None, 1, 10)


def test_a_ledger_is_for_one_process(tmp_path, monkeypatch):
    ledger = Ledger(tmp_path / "ledger.json")
    monkeypatch.setattr(run_checks.keras, "has_several_workers", lambda model: False)
    run_checks.check_files(None, None, ledger)
    monkeypatch.setattr(run_checks.keras, "has_several_workers", lambda model: True)
    with pytest.raises(ValueError, match="is for a training in one process"):
        run_checks.check_files(None, None, ledger)
    run_checks.check_files(None, None, None)


def test_a_statement_is_written_by_the_first_worker(tmp_path, monkeypatch):
    (tmp_path / "a.json").mkdir()
    monkeypatch.setattr(run_checks.keras, "is_chief", lambda model: False)
    run_checks.check_files(None, str(tmp_path / "a"), None)
    monkeypatch.setattr(run_checks.keras, "is_chief", lambda model: True)
    with pytest.raises(ValueError, match="`statement_path`"):
        run_checks.check_files(None, str(tmp_path / "a"), None)


def test_what_others_did_is_said_where_there_was_something(caplog):
    with caplog.at_level("WARNING", logger="absl"):
        run_checks.warn_of_other_phases(0)
        assert not caplog.records
        run_checks.warn_of_other_phases(7)
    assert "have taken 7 noised steps by another private optimizer" in caplog.text
