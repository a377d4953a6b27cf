"""`Fits`: each fit is counted and has noise of its own, whatever is copied."""

import copy
import multiprocessing
import os
import pickle

import pytest

from adaclip_tf.data.fits import Fits
from adaclip_tf.privacy import events

WAYS = {"deepcopy": copy.deepcopy, "pickle": lambda fits: pickle.loads(pickle.dumps(fits))}  # noqa: S301


def make(seed=None):
    return Fits("pca", 4.0, seed, asked=[(1.0, 1)])


def draws(fits):
    return tuple(fits.begin().normal(size=4))


def test_every_fit_has_noise_of_its_own_and_counts():
    fits = Fits("pca", 4.0, None, asked=[(1.0, 1), (0.5, 3)])
    assert len({draws(fits) for _ in range(20)} | {draws(make()) for _ in range(20)}) == 40
    assert fits.count == 20
    assert fits.event.events[0].events == [
        events.gaussian_event(4.0, 20),
        events.gaussian_event(2.0, 60),
    ]


def test_before_the_first_fit_the_event_is_that_of_one_and_stays():
    fits = make()
    before = fits.event
    fits.begin()
    assert fits.event == before


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fitted", [0, 1])
def test_copies_that_fit_are_other_objects(way, fitted):
    """By one name two fits would be paid for once."""
    fits = make()
    for _ in range(fitted):
        fits.begin()
    copied = WAYS[way](fits)
    if fitted:
        assert copied.event == fits.event  # what both have asked, together
    assert draws(copied) != draws(fits)
    assert copied.name != fits.name
    assert (copied.count, fits.count) == (fitted + 1, fitted + 1)


def test_further_fits_have_further_names():
    fits = make()
    names = []
    for _ in range(3):
        fits.begin()
        names.append(fits.name)
    assert len(set(names)) == 3


def test_what_is_asked_again_takes_the_place_of_what_a_budget_was_given():
    """A budget without a ledger told 3.53 where 3.63 was spent."""
    fits, other = make(), events.gaussian_event(9.0)
    fits.begin()
    given = events.composed([other, fits.event])
    assert events.current(given) is given
    for _ in range(2):
        fits.begin()
        assert events.current(given) == events.composed([other, fits.event])
        now = fits.event
        assert events.current(now) is now
    copied = copy.deepcopy(fits)
    copied.begin(), fits.begin()
    assert events.current(given) == events.composed([other, copied.event, fits.event])
    assert events.current(events.composed([given, fits.event])) == events.current(given)  # nothing twice


def _in_child(fits, queue):
    queue.put((draws(fits), fits.name))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_process_fits_as_another_object():
    fits = make()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(fits, queue))
    child.start()
    drawn, name = queue.get(timeout=60)
    child.join(60)
    assert drawn != draws(fits)
    assert name != fits.name


def test_a_seed_repeats_the_noise_and_is_told(caplog):
    with caplog.at_level("WARNING", logger="absl"):
        first, second = make(seed=7), make(seed=7)
    assert [draws(first), draws(first)] == [draws(second), draws(second)]
    assert "NOT private" in caplog.text


@pytest.mark.parametrize("noise, seed, word", [(-1.0, None, "noise_multiplier"), (1.0, 1.5, "seed")])
def test_bad_arguments_are_named(noise, seed, word):
    with pytest.raises(ValueError, match=word):
        Fits("pca", noise, seed, asked=[(1.0, 1)])
    with pytest.raises(ValueError, match="fits"):
        make().restore(0, "x")
