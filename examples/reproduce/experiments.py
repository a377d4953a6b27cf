"""The paper's experiments on MNIST: who is compared, at which epsilons, over which grids. One record each.

Every method of an experiment has a grid of the same size at every epsilon. Methods with a knob of their own (a clip,
h2) search that and the learning rate; the others search the learning rate alone, more finely. All share the model, the
batch size, the epochs and the learning-rate schedule, which configs/paper.py holds.
"""

from __future__ import annotations

import itertools
import math
import types
from collections.abc import Mapping
from typing import NamedTuple

Candidate = dict[str, float]


class Published(NamedTuple):
    """A row that others reported, in percent."""

    label: str
    accuracies: tuple[float, ...]


class Method(NamedTuple):
    """A row of the table. configs/paper.py says by the same name which optimizer it is."""

    label: str
    grid: list[Candidate]
    published: Published | None = None


class Adjustment(NamedTuple):
    """What is different at one epsilon, for all methods alike."""

    rate_factor: float = 1.0  # what all learning rates are multiplied by
    epochs: int | None = None  # where not as in configs/paper.py


class Experiment(NamedTuple):
    """One table."""

    name: str
    title: str
    note: str  # below the title; its fields are those of configs/paper.py
    parameters: int  # d
    epsilons: tuple[float, ...]
    methods: dict[str, Method]
    adjustments: Mapping[float, Adjustment] = types.MappingProxyType({})  # per epsilon
    measures_error: bool = False  # also |g - g~|, which is not private
    shows_convergence: bool = False  # the accuracy after every epoch, which takes time
    in_summary: bool = False
    seeds: int = 5

    def candidates(self, method: str, epsilon: float) -> list[Candidate]:
        """The grid of a method at an epsilon."""
        factor, epochs = self.adjustments.get(epsilon, Adjustment())
        changes = {"epochs": epochs} if epochs else {}
        return [
            {**candidate, "learning_rate": factor * candidate["learning_rate"], **changes}
            for candidate in self.methods[method].grid
        ]


def _clips(rates: tuple[float, ...], clips: tuple[float, ...]) -> list[Candidate]:
    """While everything is clipped, a step is as long as rate times clip: so rates are given for a clip of 1."""
    return [{"learning_rate": rate / clip, "l2_norm_clip": clip} for clip, rate in itertools.product(clips, rates)]


def _ceilings(rates: tuple[float, ...], ceilings: tuple[float, ...]) -> list[Candidate]:
    """s starts at its ceiling: from the default, sqrt(h1 h2), it takes longer to rise than these runs are."""
    return [
        {"learning_rate": rate, "h2": h2, "initial_std": math.sqrt(h2)}
        for h2, rate in itertools.product(ceilings, rates)
    ]


def _rates(*rates: float) -> list[Candidate]:
    return [{"learning_rate": rate} for rate in rates]


_SOFTMAX = Experiment(
    name="softmax",
    title="Softmax regression",
    note="784 x 10 weights, batch 600, {epochs} epochs, a learning rate that falls to 0 on a straight line.",
    parameters=7_850,
    epsilons=(0.1, 0.25, 0.5, 1.0, 2.0),
    methods={
        "norm_bound": Method(
            "norm bound 28",
            _rates(0.005, 0.01, 0.02, 0.05, 0.1, 0.3),
            Published("norm bound 28 in the paper", (73.45, 79.18, 84.30, 88.02, 89.65)),
        ),
        "abadi_4": Method(
            "Abadi et al., clip 4",
            _rates(0.05, 0.1, 0.2, 0.4, 0.8, 1.6),
            Published("Abadi et al., clip 4, in the paper", (84.23, 87.81, 90.13, 90.74, 90.97)),
        ),
        "abadi": Method("Abadi et al., clip tuned", _clips((0.4, 1.2, 3.6), (0.5, 2.0))),
        "adaclip": Method(
            "AdaCliP",
            _ceilings((0.4, 1.2, 3.6), (3e-5, 3e-4)),
            Published("AdaCliP in the paper", (85.37, 88.11, 90.29, 90.87, 91.15)),
        ),
    },
    adjustments={1.0: Adjustment(3.0), 2.0: Adjustment(3.0)},  # less noise allows longer steps
    in_summary=True,
)

_MLP = Experiment(
    name="mlp",
    title="MLP on a private PCA",
    note=(
        "PrivatePCA to 60 dimensions with {pca_fraction:.0%} of epsilon (by itself), 1,000 hidden units, batch "
        "{expected_batch_size:,}, {epochs} epochs (20 at epsilon 2 and 4), a learning rate that falls to 0 on a "
        "straight line. Epsilon pays for PCA and training together."
    ),
    parameters=71_010,
    epsilons=(0.2, 0.5, 1.0, 2.0, 4.0),
    methods={
        "abadi_layers": Method(
            "Abadi et al., clip 4 per layer",
            _rates(0.5, 1.0, 2.0, 3.0, 4.0, 8.0),
            Published("Abadi et al., clip 4 per layer, in the paper", (85.55, 90.23, 92.92, 94.96, 95.91)),
        ),
        "abadi": Method("Abadi et al., clip tuned", _clips((5.0, 10.0, 20.0), (1.0, 2.5))),
        "adaclip": Method(
            "AdaCliP",
            _ceilings((5.0, 10.0, 20.0), (3e-5, 1e-4)),
            Published("AdaCliP in the paper", (87.18, 91.26, 93.71, 95.56, 96.31)),
        ),
    },
    adjustments={
        0.2: Adjustment(math.sqrt(0.2)),
        0.5: Adjustment(math.sqrt(0.5)),
        2.0: Adjustment(epochs=20),  # little noise: 8 epochs are too few to arrive
        4.0: Adjustment(1.5, epochs=20),
    },
    measures_error=True,
    in_summary=True,
)

_MOMENTUM = Experiment(
    name="momentum",
    title="Momentum with the noise of norm 28",
    note=(
        "Softmax regression with the noise of the norm bound 28 and no other clipping (the paper's appendix), batch "
        "{expected_batch_size:,}, {epochs} epochs, a constant learning rate."
    ),
    parameters=7_850,
    epsilons=(0.1, 0.5, 2.0),
    methods={
        f"momentum_{momentum}": Method(f"momentum {momentum}", _rates(0.01 * part, 0.04 * part, 0.16 * part))
        # 1 - momentum: a step's length in the long run
        for momentum, part in {"0": 1.0, "0.5": 0.5, "0.9": 0.1, "0.99": 0.01}.items()
    },
    shows_convergence=True,
)

_CNN = Experiment(
    name="cnn",
    title="The CNN of tensorflow-privacy's tutorial",
    note="Batch {expected_batch_size:,}, {epochs} epochs, a learning rate that falls to 0 on a straight line.",
    parameters=26_010,
    epsilons=(1.19, 3.01, 7.1),
    methods={
        "abadi": Method(
            "Abadi et al., clip tuned",
            _clips((2.0, 4.0), (0.5, 1.0)),
            Published("DP-SGD in tensorflow-privacy's tutorial", (95.0, 96.6, 97.0)),
        ),
        "adaclip": Method("AdaCliP", _ceilings((3.0, 6.0), (3e-5,)) + _ceilings((1.5, 3.0), (1e-4,))),
    },
    adjustments={1.19: Adjustment(0.6)},
    in_summary=True,
)

_CNN_TANH = Experiment(
    name="cnn_tanh",
    title="The same CNN with tanh",
    note=(
        "As Papernot et al. (2020, arXiv 2007.14191) have it: 26,010 parameters, {activation} in the place of relu. "
        "Pixels less {pixel_mean:g} and over {pixel_std:g}, batch {expected_batch_size:,}, {epochs} epochs, a learning "
        "rate that falls to 0 on a straight line. Clip and rate are the best of five trials by hand on the held-out "
        "images; AdaCliP has b and a rate of the same size, and nothing else was tried for it. For `make_private` "
        "nothing was tuned: it finds clip, scales and rate privately, as a part of epsilon, so its training has a "
        "little more noise, and its rate falls as a root."
    ),
    parameters=26_010,
    epsilons=(2.93,),
    methods={
        "abadi": Method(
            "Abadi et al., clip 0.1",
            _clips((6.0,), (0.1,)),
            Published("DP-SGD with tanh, Papernot et al.", (98.1,)),
        ),
        "adaclip": Method("AdaCliP", _ceilings((60.0,), (1.2e-6,))),  # 0.56 sqrt(d h2) is 0.1, too
        "scales": Method("`make_private`, nothing tuned", _rates(0.0)),
    },
    seeds=2,
)

EXPERIMENTS = {experiment.name: experiment for experiment in (_SOFTMAX, _MLP, _MOMENTUM, _CNN, _CNN_TANH)}
