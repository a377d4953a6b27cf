"""All mistakes that were written down, from the files by subject."""

from __future__ import annotations

from tests.mutants import (
    mistakes_accounting,
    mistakes_attributes,
    mistakes_claims,
    mistakes_core,
    mistakes_divisors,
    mistakes_everyday,
    mistakes_flower,
    mistakes_ghost,
    mistakes_gradients,
    mistakes_memory,
    mistakes_noise,
    mistakes_optimizer,
    mistakes_proof,
    mistakes_repeated,
    mistakes_scales,
    mistakes_seeds,
)
from tests.mutants.mutation import Mutation

MISTAKES: tuple[Mutation, ...] = (
    *mistakes_core.MISTAKES,
    *mistakes_noise.MISTAKES,
    *mistakes_ghost.MISTAKES,
    *mistakes_proof.MISTAKES,
    *mistakes_repeated.MISTAKES,
    *mistakes_memory.MISTAKES,
    *mistakes_attributes.MISTAKES,
    *mistakes_seeds.MISTAKES,
    *mistakes_gradients.MISTAKES,
    *mistakes_optimizer.MISTAKES,
    *mistakes_accounting.MISTAKES,
    *mistakes_claims.MISTAKES,
    *mistakes_scales.MISTAKES,
    *mistakes_everyday.MISTAKES,
    *mistakes_divisors.MISTAKES,
    *mistakes_flower.MISTAKES,
)
