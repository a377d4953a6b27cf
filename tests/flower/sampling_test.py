"""Tests of who takes part in a round."""

import random

import numpy as np
import pytest
import scipy.stats

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'adaclip-tf[flower]'")

from adaclip_tf.flower import sampling
from adaclip_tf.privacy.mechanism import Mechanism


class Nodes:
    """A grid with these nodes, some of which come late."""

    def __init__(self, *lists):
        self._lists = list(lists)

    def get_node_ids(self):
        return self._lists.pop(0) if len(self._lists) > 1 else self._lists[0]


def draws(mechanism, number, nodes, **options):
    sampler, grid = sampling.ClientSampler(mechanism, **options), Nodes(nodes)
    return [sampler.draw(grid) for _ in range(number)]


def test_poisson_draws_each_client_by_itself():
    """400 rounds of 200 clients with q = 0.1: sizes are binomial, and so is how often each client is drawn."""
    found = draws(Mechanism(1.0, 200, 20), 400, range(200), seed=1)
    sizes = np.array([len(round_) for round_ in found])
    assert abs(sizes.mean() - 20) < 4 * np.sqrt(18 / 400)
    assert abs(sizes.var() / 18 - 1) < 0.3  # not a fixed number
    each = np.bincount(np.concatenate([np.array(round_, int) for round_ in found]), minlength=200)
    assert abs(each.var() / scipy.stats.binom(400, 0.1).var() - 1) < 0.4
    assert all(len(set(round_)) == len(round_) for round_ in found)


def test_poisson_is_with_the_same_probability_whoever_is_there():
    found = draws(Mechanism(1.0, 200, 20), 2000, range(50), seed=1)
    assert abs(np.mean([len(round_) for round_ in found]) - 5) < 4 * np.sqrt(4.5 / 2000)


def test_a_fixed_number_is_drawn_without_replacement():
    found = draws(Mechanism(1.0, 20, 5, "without_replacement"), 800, range(100, 120), seed=1)
    assert {len(set(round_)) for round_ in found} == {5}
    each = np.bincount(np.concatenate(found) - 100, minlength=20)
    assert scipy.stats.chisquare(each).pvalue > 0.001


def test_the_draws_are_the_operating_systems():
    found = []
    for _ in range(2):
        random.seed(0)
        np.random.seed(0)
        found.append(draws(Mechanism(1.0, 200, 100), 1, range(200))[0])
    assert found[0] != found[1]


def test_a_client_with_several_nodes_is_one(monkeypatch):
    """Ten nodes of five clients: drawn together or not at all, and only one of them is asked."""
    found = draws(Mechanism(1.0, 10, 5), 300, range(10), user_of=lambda node: node // 2, seed=1)
    assert all(node % 2 == 1 for round_ in found for node in round_)
    assert abs(np.mean([len(round_) for round_ in found]) - 2.5) < 0.3


def test_a_round_waits_for_enough_clients(monkeypatch):
    monkeypatch.setattr(sampling, "_POLL_SECONDS", 0.0)
    for mechanism, options in (
        (Mechanism(1.0, 4, 4, "without_replacement"), {}),  # fewer than n would be drawn too often
        (Mechanism(1.0, 4, 4), {"least": 4}),
    ):
        sampler = sampling.ClientSampler(mechanism, **options)
        assert sampler.draw(Nodes([], [7], [7, 8, 9, 10])) == [7, 8, 9, 10]
        late = sampling.ClientSampler(mechanism, timeout=0.0, **options)
        with pytest.raises(TimeoutError, match="3 clients are registered and a round needs 4"):
            late.draw(Nodes([1, 2, 3]))
    assert sampling.ClientSampler(Mechanism(1.0, 4, 4)).draw(Nodes([], [3])) == [3]
