"""The questions before training in NumPy, as the default asks them, with the study's changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from adaclip_tf.scales import estimate
from adaclip_tf.training import plan as planning
from examples.tabular import competitors, study_scales


def signal(plan: planning.Plan) -> float:
    """t = n q sqrt T / z0."""
    return plan.batch_size * math.sqrt(plan.steps) / plan.noise_alone


class Warmup:
    """The questions and what is made of them, as `PrivateScales` has them. A matrix's last row is a bias of its own."""

    def __init__(self, problem, weights, x, y, plan, change, rng):
        self._pairs = competitors.factors(problem, weights, x, y)
        self._dy = [np.sqrt((dy * dy).sum(axis=1)) for _, dy in self._pairs]
        self._examples, self._plan, self._change, self._rng = len(y), plan, change, rng
        self._spread = 0.0
        self._further = np.random.default_rng(rng.bit_generator.seed_seq.entropy + 10**6)  # the rest stays paired

    def learn(self) -> tuple[float, list[np.ndarray]]:
        """C and a column of h for each matrix."""
        settings = self._change.settings
        shapes = [np.ones(a.shape[1], np.float32) for a, _ in self._pairs]
        clip = self._median(shapes, 1.0, settings.first_span)
        self._asked = self._frequencies() if self._change.apart else []
        rounds = settings.rounds - (self._change.shares.endswith("asked") or self._change.apart is not None)
        for last in [False] * (rounds - 1) + [True]:
            noised = self._sums(clip, shapes, 1, self._rng)
            shares = self._shares(clip, shapes, noised) if self._change.shares and last else None
            clip, shapes = self._next(clip, shapes, noised, shares)
        return self._median(shapes, clip, settings.last_span), [shape[:, None].astype(np.float32) for shape in shapes]

    def _clipped(self, clip: float, shapes: Sequence[np.ndarray]) -> np.ndarray:
        return 1.0 / np.maximum(1.0, self._norms(shapes) / clip)

    def _norms(self, shapes: Sequence[np.ndarray]) -> np.ndarray:
        parts = zip(self._pairs, self._dy, shapes)
        return np.sqrt(sum(((a / h) ** 2).sum(axis=1) * dy**2 for (a, _), dy, h in parts))

    def _median(self, shapes: Sequence[np.ndarray], clip: float, span: float) -> float:
        norms, settings = self._norms(shapes), self._change.settings
        search: Any = estimate.MedianSearch(clip, span, settings.least_span)
        if self._change.believing:
            spread = math.hypot(study_scales.LAST_SPREAD, self._spread) if self._spread else study_scales.FIRST_SPREAD
            search = study_scales.BelievingSearch(clip, spread, self._plan.counts_noise / self._examples)
        for _ in range(settings.counts):
            count = float((norms <= search.clip).sum()) + self._plan.counts_noise * self._rng.standard_normal()
            search.move(count / self._examples)
        self._spread = getattr(search, "spread", 0.0)
        return search.clip

    def _frequencies(self) -> list[np.ndarray]:
        """N with noise, of each kernel and bias."""
        not_zero = [((a != 0.0) & np.any(dy != 0.0, axis=1, keepdims=True)).astype(float) for a, dy in self._pairs]
        together = np.sqrt(np.maximum(1.0, sum(part.sum(axis=1) for part in not_zero)))
        noised: list[np.ndarray] = []
        for part in not_zero:
            total = part.T @ (1.0 / together)
            total = total + self._plan.rows_noise * self._further.standard_normal(total.shape)
            noised += [total[:-1], total[-1:]]
        return noised

    def _sums(self, clip: float, shapes: Sequence[np.ndarray], order: int, rng: Any) -> list[np.ndarray]:
        """sum_k |u_k,row|^order with noise."""
        factor = self._clipped(clip, shapes) / clip
        sums = []
        for (a, _), dy, h in zip(self._pairs, self._dy, shapes):
            total = (np.abs(a) ** order).T @ ((dy * factor) ** order) / h**order
            sums.append(total + (self._plan.rows_noise * rng.standard_normal(total.shape) if rng else 0.0))
        return sums

    def _shares(self, clip: float, shapes: Sequence[np.ndarray], noised: Sequence[np.ndarray]) -> list[np.ndarray]:
        """(E |u|)^2 / E |u|^2 of each row: about the share of examples in which it is not 0."""
        if self._change.shares.startswith("count"):
            return self._counted(noise=self._change.shares == "count_asked")
        if self._change.shares == "known":
            first, second = (self._sums(clip, shapes, order, None) for order in (1, 2))
            shares = [m**2 / np.maximum(v * self._examples, 1e-30) for m, v in zip(first, second)]
            return [np.where(share > 0.0, share, 1.0) for share in shares]
        second = self._sums(clip, shapes, 2, self._further)
        error = self._plan.rows_noise
        shares = []
        for m, v in zip(noised, second):
            m, v = (estimate.shrunk(np.asarray(part), np.full(part.shape, error)) for part in (m, v))
            shares.append(np.clip(m**2 / np.maximum(v * self._examples, 1e-30), 1.0 / self._examples, 1.0))
        return shares

    def _counted(self, noise: bool) -> list[np.ndarray]:
        """How often each row is not 0, over the root mean square of how many are not 0 at once: sensitivity 1."""
        not_zero = [a != 0.0 for a, _ in self._pairs]
        together = np.sqrt(sum(part.sum(axis=1) for part in not_zero))
        shares = []
        for part in not_zero:
            total = part.T @ (1.0 / together)
            error = self._plan.rows_noise if noise else 0.0
            total = total + error * self._further.standard_normal(total.shape)
            share = np.concatenate(
                [estimate.shrunk(piece, np.full(piece.shape, error)) for piece in (total[:-1], total[-1:])]
            )
            shares.append(np.maximum(share, 1e-3 * share.max()))
        return shares

    def _next(self, clip, shapes, noised, shares) -> tuple[float, list[np.ndarray]]:
        """`estimate.next_shapes`, with the floor of the change; matrices are cut into kernel and bias, and joined."""
        cut = lambda arrays: [part for array in arrays for part in (array[:-1], array[-1:])]  # noqa: E731
        widths = [width for _, dy in self._pairs for width in (dy.shape[1], dy.shape[1])]
        arguments = (self._plan.rows_noise, self._change.settings.power)
        if self._change.apart is not None:
            clip, new = self._next_apart(clip, cut(shapes), cut(noised), widths)
        elif self._change.floor == "median" and self._change.part == 1.0:
            found = estimate.next_shapes(clip, cut(shapes), cut(noised), widths, *arguments)
            new, clip = found.shapes, found.clip
        else:
            cuts = (cut(shapes), cut(noised), widths)
            clip, new = _next_shapes(clip, *cuts, *arguments, shares and cut(shares), self._change)
        return clip, [np.concatenate(new[index : index + 2]) for index in range(0, len(new), 2)]

    def _next_apart(self, clip, shapes, noised, widths) -> tuple[float, list[np.ndarray]]:
        noise = self._plan.rows_noise
        believed = _believed(shapes, noised, noise)
        apart, reach = self._change.apart, signal(self._plan)
        return _scaled(
            clip, shapes, believed, widths, study_scales.shapes(believed, self._asked, widths, noise, reach, apart)
        )


def _next_shapes(clip, shapes, noised, widths, noise, power, shares, change):
    """`estimate.next_shapes` without help for what is not seen, which none of the problems needs."""
    believed = _believed(shapes, noised, noise)
    raised = [np.maximum(m, change.part * np.median(m)) for m in believed] if change.floor == "median" else believed
    if shares is not None:
        raised = [m * np.maximum(1.0, np.median(s) / s) for m, s in zip(believed, shares)]
    new = [(m / math.sqrt(width)) ** power for m, width in zip(raised, widths)]
    return _scaled(clip, shapes, believed, widths, new)


def _believed(shapes, noised, noise):
    found = [estimate.shrunk(m * h, noise * h) for m, h in zip(noised, shapes)]
    largest = max(float(m.max()) for m in found)
    return [np.maximum(m, 1e-12 * largest) for m in found]


def _scaled(clip, shapes, believed, widths, new):
    """h with a root mean square of 1, and C so that as much is clipped as before."""
    total = sum(width * float(np.sum(h**2)) for h, width in zip(new, widths))
    typical = math.sqrt(total / sum(width * h.size for h, width in zip(new, widths)))
    new = [h / typical for h in new]
    before, after = (sum(float(np.sum(m / h)) for m, h in zip(believed, by)) for by in (shapes, new))
    return clip * after / before, new
