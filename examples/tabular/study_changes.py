"""What the study changes in the default, one thing at a time; and what came of it."""

from __future__ import annotations

import dataclasses
from typing import Any

from adaclip_tf.scales.method import DEFAULT, Method
from examples.tabular.study_scales import Apart


@dataclasses.dataclass(frozen=True)
class Change:
    """What is other than in the default.

    Attributes:
      about: in words.
      settings: constants of the method.
      floor: which rows are raised: "median" (all below so much of it), or "rare": as if each had the median share of
        examples in which it is not 0, where it has less.
      part: of the median, to which rows are raised.
      shares: how these are known: "known" or "asked" from (E |u|)^2 / E |u|^2, the sums of squares in one more round;
        "counted" or "count_asked" from how often a row is not 0: in one more round of vectors 1[u_i != 0] of norm 1.
      rate_noisy: factor of the learning rate where noise sets it.
      apart: the constants of sizes and frequencies apart, asked in one more round; or None.
      believing: whether medians are searched by `study_scales.BelievingSearch`.
      squared: whether the learning rate of a squared loss goes by `study_scales.squared_factor`.
    """

    about: str
    settings: Method = DEFAULT
    floor: str = "median"
    part: float = 1.0
    shares: str = ""
    rate_noisy: float = 1.0
    apart: Apart | None = None
    believing: bool = False
    squared: bool = False


def _with(**values: Any) -> Method:
    return dataclasses.replace(DEFAULT, **values)


_ONE_MORE = _with(rounds=DEFAULT.rounds + 1, share=DEFAULT.share * (DEFAULT.rounds + 1) / DEFAULT.rounds)
CHANGES = {
    "default": Change("the default"),
    "no_floor": Change("no row is raised", part=0.0),
    "floor_quarter": Change("rows are raised to a quarter of the median", part=0.25),
    "floor_half": Change("rows are raised to half of the median", part=0.5),
    "rare_known": Change("rare rows alone are raised, by shares that are known", floor="rare", shares="known"),
    "rare_asked": Change("by sums of squares, asked in one more round", _ONE_MORE, floor="rare", shares="asked"),
    "rare_counted": Change("by counts that are known", floor="rare", shares="counted"),
    "rare_count_asked": Change("by counts, asked in one more round", _ONE_MORE, floor="rare", shares="count_asked"),
    "rate_07": Change("learning rate times 0.7 where noise sets it", rate_noisy=0.7),
    "rate_05": Change("learning rate times 0.5 where noise sets it", rate_noisy=0.5),
    "clip_half": Change("half of the clip where noise rules", _with(multiplier=0.1, least_multiplier=0.05)),
    "clip_tenth": Change("a tenth of the clip: directions alone", _with(multiplier=0.02, least_multiplier=0.01)),
    "fewer_questions": Change("6 counts in each search, 2 rounds", _with(counts=6, rounds=2, share=0.02)),
}

# Sizes and frequencies apart, by one more question, with another search, and with another rate for squared losses:
# what `problems.RESERVED`, RESERVED_AGAIN and RESERVED_LAST judged.
_NEW = Change("", _ONE_MORE, believing=True, squared=True)
ROUND_2 = {
    "default": CHANGES["default"],
    "first_judged": dataclasses.replace(
        _NEW, about="no least size", apart=Apart(power=0.7, least_size=1e-9, most_power=0.5)
    ),
    "second_judged": dataclasses.replace(_NEW, about="a least size", apart=Apart(power=0.7)),
    "last_judged": dataclasses.replace(_NEW, about="the power of the default", apart=Apart()),
}
TOLD_OF_ROUND_2 = ("default", "second_judged", "last_judged")
EVERY = {**CHANGES, **ROUND_2}
