"""Tests of `adaclip_tf.privacy.horizon`: stopping in time, worked out by hand."""

from adaclip_tf.privacy.horizon import Horizon


def test_the_call_that_might_pass_the_target():
    """10 are allowed. In calls of 3: after 7 there is room for one more, after 8 there is not."""
    horizon = Horizon(steps_per_call=3, allowed=10)
    assert [horizon.next_call_passes(steps) for steps in (0, 7, 8, 10, 11)] == [False, False, True, True, True]
    assert [horizon.remaining(steps) for steps in (0, 7, 12)] == [10, 3, 0]


def test_without_a_target_everything_is_allowed():
    assert not Horizon().next_call_passes(10**9)
    assert Horizon().remaining(5) is None


def test_end_of_epoch():
    """9 batches of which 3 are seen, two of them to a step: 3 more steps, or as many as are allowed."""
    assert Horizon(2, batches_per_epoch=9, batches_seen=3).end_of_epoch(20) == 23
    assert Horizon(2, batches_per_epoch=9, batches_seen=3, allowed=22).end_of_epoch(20) == 22
    assert Horizon(2, batches_per_epoch=9, batches_seen=2).end_of_epoch(20) == 24  # the first may complete a batch
    assert Horizon(2, batches_per_epoch=9, batches_seen=12).end_of_epoch(20) == 20
    assert Horizon(2).end_of_epoch(20) is None


def test_words():
    words = Horizon(steps_per_call=3, allowed=10).spent(8, 1.23456789, 1.5)
    assert words == (
        "8 noised steps have cost epsilon 1.23457, and `target_epsilon`=1.5 allows 10 in all; one call of the train "
        "function takes 3 (`steps_per_execution`)."
    )


def test_a_logical_batch_comes_in_one_piece_unless_somebody_says_so():
    assert Horizon().accumulation_steps == 1
