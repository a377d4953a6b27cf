"""Words for dp_accounting's events, for readers of a statement."""

from __future__ import annotations

import re

_NUMBER = r"([-+.\de]+)"
# Innermost first: what is replaced holds no brackets.
_WORDS = (
    (rf"GaussianDpEvent\(noise_multiplier={_NUMBER}\)", r"Gaussian noise of \1 times the sensitivity"),
    (
        rf"PoissonSampledDpEvent\(sampling_probability={_NUMBER}, event=([^()]*)\)",
        r"\2 on a random share \1 of the data",
    ),
    (r"SelfComposedDpEvent\(event=([^()]*), count=(\d+)\)", r"\2 times \1"),
    (r"(?<!Self)ComposedDpEvent\(events=\[([^()]*)\]\)", r"\1"),
)


def words_of(event: str) -> str:
    """Words for what `repr` says of an event; what has none stays as it is.

    >>> words_of("SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=2.5), count=3)")
    '3 times Gaussian noise of 2.5 times the sensitivity'
    >>> words_of("GaussianDpEvent(noise_multiplier=25.713121217658653)")
    'Gaussian noise of 25.713 times the sensitivity'
    """
    event = re.sub(r"\d+\.\d{5,}(e[-+]?\d+)?", lambda number: f"{float(number.group()):.5g}", event)
    before = ""
    while event != before:
        before = event
        for pattern, words in _WORDS:
            event = re.sub(pattern, words, event)
    return event
