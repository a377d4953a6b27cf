"""All cases, by name: importing a module of cases registers them."""

# ruff: noqa: F401

from tests.attack import (
    cases_attributes,
    cases_batch_layers,
    cases_batch_losses,
    cases_batch_norm,
    cases_counts,
    cases_divided,
    cases_every_layer,
    cases_every_loss,
    cases_everyday_generative,
    cases_everyday_images,
    cases_everyday_more,
    cases_everyday_ranking,
    cases_everyday_risk,
    cases_everyday_series,
    cases_everyday_tables,
    cases_everyday_text,
    cases_everyday_vision,
    cases_gradients,
    cases_hidden,
    cases_keras3,
    cases_layers,
    cases_losses,
    cases_memory,
    cases_mixing,
    cases_more_losses,
    cases_no_memory,
    cases_numbers,
    cases_real,
    cases_recurrent,
    cases_seldom,
    cases_sequences,
    cases_steps,
    cases_unseen_lengths,
    cases_unseen_right,
    cases_unseen_wrong,
    cases_variable_size,
)
from tests.attack.case import CASES, Case


def load() -> dict[str, Case]:
    """The cases of all modules that are imported above."""
    return dict(CASES)
