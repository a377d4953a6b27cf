"""Differentially private PCA: the projection that Abadi et al. 2016 (section 4.4) put before the network.

Rows are scaled to unit norm, A^T A gets symmetric Gaussian noise, and the eigenvectors of the noised matrix
are the components (Dwork et al. 2014, "Analyze Gauss"):

    M = sum_k x_k x_k^T + E,     E_ij = E_ji ~ N(0, z^2) for i <= j, independent

Formal guarantee. What is released is the upper triangle of M with its diagonal; the lower one is a copy. One
unit row x changes that triangle by (x_i x_j), i <= j, whose squared L2 norm is

    sum_i x_i^4 + sum_{i<j} x_i^2 x_j^2  <=  sum_i x_i^4 + 2 sum_{i<j} x_i^2 x_j^2  =  (sum_i x_i^2)^2  =  1,

so adding or removing a row moves it by at most 1 (exactly 1 for x = e_i). The noise is independent N(0, z^2)
on every released entry: one Gaussian mechanism of noise multiplier z on the whole data set,
`dp_accounting.GaussianDpEvent(z)`. Eigenvectors, signs and order are post-processing.

Nothing is centred. The mean is private too and would have to be paid for; so the first component is
mostly the mean direction, as in Abadi et al.

Edge cases.

| row                                   | counts as                |
|---------------------------------------|--------------------------|
| zero                                  | zero                     |
| NaN or infinity anywhere in it        | zero                     |
| norm so large or small that float64's | itself: it is divided by |
| squares overflow or vanish            | its largest entry first  |
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from adaclip_tf._internal import files, validate
from adaclip_tf.data.fits import Fits

_CHUNK_ELEMENTS = 4_000_000  # rows are read in pieces of 32 MB, so that memory maps stay on disk


class PrivatePCA:
    """PCA in scikit-learn's manner, with a privacy guarantee and its event.

    Example:
      >>> pca = PrivatePCA(num_components=60, noise_multiplier=16.0)     # doctest: +SKIP
      >>> x_train = pca.fit_transform(x_train)                           # doctest: +SKIP
      >>> x_test = pca.transform(x_test)                                 # doctest: +SKIP
      >>> budget = PrivacyBudget(..., other_event=pca.event)             # doctest: +SKIP

    Args:
      num_components: how many dimensions to keep.
      noise_multiplier: z. See `split_budget` for what to spend here. 0 is not private.
      seed: None, the right value: noise from the operating system's entropy. An integer makes it reproducible, for
        tests only: whoever knows the seed can subtract the noise.

    Attributes:
      components_: [num_components, dimensions], orthonormal rows, the largest eigenvalue first.
      eigenvalues_: those of the noised matrix; private, like the components.
      name: distinguishes this object, and what is loaded from its file, from all others, so that they are counted once.
    """

    def __init__(self, *, num_components: int, noise_multiplier: float, seed: int | None = None):
        self.num_components = validate.positive_integer("num_components", num_components)
        self._fits = Fits("pca", noise_multiplier, seed, asked=[(1.0, 1)])
        self.components_: np.ndarray | None = None
        self.eigenvalues_: np.ndarray | None = None

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation of the noise divided by the sensitivity. It can't be changed: what was fitted had it."""
        return self._fits.noise_multiplier

    @property
    def name(self) -> str:
        """See above; another one from the second fit on (`data.fits`)."""
        return self._fits.name

    @property
    def event(self) -> Any:
        """The `dp_accounting` event of all that was fitted so far; before the first `fit`, of one."""
        return self._fits.event

    def fit(self, x: Any) -> PrivatePCA:
        """Learns the components from the rows of `x`: numpy, a memory map or a tensor. Every call costs privacy."""
        x = _rows(x)
        dimensions = x.shape[1]
        if self.num_components > dimensions:
            raise ValueError(
                f"`num_components` must be at most the {dimensions} columns of `x`; got {self.num_components}."
            )
        generator = self._fits.begin()  # from here on the data is looked at
        noised = second_moments(x) + symmetric_noise(generator, dimensions, self.noise_multiplier)
        values, vectors = np.linalg.eigh(noised)  # ascending
        components = vectors.T[::-1][: self.num_components]
        # The sign of an eigenvector is arbitrary: make the entry that is largest in size positive.
        largest = np.argmax(np.abs(components), axis=1)
        signs = np.sign(components[np.arange(len(components)), largest])
        self.components_ = components * signs[:, None]
        self.eigenvalues_ = values[::-1][: self.num_components]
        return self

    def transform(self, x: Any) -> np.ndarray:
        """Projects the rows of `x`, as they are (neither centred nor scaled), onto the components."""
        if self.components_ is None:
            raise ValueError("PrivatePCA has no components yet; call `fit` first.")
        x = _rows(x)
        if x.shape[1] != self.components_.shape[1]:
            raise ValueError(f"`x` must have the {self.components_.shape[1]} columns that `fit` saw; got {x.shape[1]}.")
        dtype = x.dtype if x.dtype in (np.float32, np.float64) else np.float32
        components = self.components_.T.astype(dtype)
        return np.concatenate([chunk.astype(dtype) @ components for chunk in _chunks(x)])

    def fit_transform(self, x: Any) -> np.ndarray:
        """`fit(x)`, then `transform(x)`."""
        return self.fit(x).transform(x)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the components, and what they cost, to an `.npz` file. Safe to publish; no pickle."""
        if self.components_ is None or self.eigenvalues_ is None:
            raise ValueError("PrivatePCA has no components yet; call `fit` first.")
        with files.replacing(path) as file:
            np.savez(
                file,
                components=self.components_,
                eigenvalues=self.eigenvalues_,
                noise_multiplier=self.noise_multiplier,
                fits=self._fits.count,
                name=self.name,
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivatePCA:
        """Reads what `save` wrote. The noise of a further `fit` is fresh.

        Raises:
          ValueError: where the file is damaged, or something else.
          OSError: where it is not there.
        """
        with files.saved_arrays(path, "PrivatePCA") as stored:
            arrays = {name: stored[name] for name in ("components", "eigenvalues", "noise_multiplier", "fits", "name")}
            return cls._from_arrays(**arrays)

    @classmethod
    def _from_arrays(cls, components, eigenvalues, noise_multiplier, fits, name) -> PrivatePCA:
        floats = components.dtype.kind == eigenvalues.dtype.kind == "f"
        if not floats or components.ndim != 2 or eigenvalues.shape != components.shape[:1]:
            raise ValueError(f"components of shape {components.shape}, eigenvalues of shape {eigenvalues.shape}")
        if not np.isfinite(components).all():
            raise ValueError("components that are not finite")
        pca = cls(num_components=len(components), noise_multiplier=float(noise_multiplier))
        pca.components_, pca.eigenvalues_ = components, eigenvalues
        pca._fits.restore(fits.item(), name)
        return pca


def second_moments(x: np.ndarray) -> np.ndarray:
    """sum_k x_k x_k^T over rows scaled to unit norm, in float64. One row moves its triangle by at most 1."""
    total = np.zeros((x.shape[1], x.shape[1]))
    for chunk in _chunks(x):
        rows = unit_rows(chunk)
        total += rows.T @ rows
    return total


def unit_rows(x: np.ndarray) -> np.ndarray:
    """Rows scaled to L2 norm 1, in float64; zero rows, and rows that are not finite, become zero."""
    x = np.asarray(x, np.float64)
    x = np.where(np.isfinite(x).all(axis=1, keepdims=True), x, 0.0)
    x = _divide_rows(x, np.abs(x).max(axis=1, keepdims=True))  # so that no square overflows or vanishes
    return _divide_rows(x, np.linalg.norm(x, axis=1, keepdims=True))


def _divide_rows(x: np.ndarray, norms: np.ndarray) -> np.ndarray:
    return np.divide(x, norms, out=np.zeros_like(x), where=norms > 0.0)


def symmetric_noise(generator: np.random.Generator, dimensions: int, noise_multiplier: float) -> np.ndarray:
    """Independent N(0, z^2) on the upper triangle with its diagonal, mirrored below."""
    upper = np.triu(generator.normal(scale=noise_multiplier, size=(dimensions, dimensions)))
    return upper + np.triu(upper, 1).T


def _rows(x: Any) -> Any:
    """`x` with its two dimensions checked; a tensor becomes a numpy array, a memory map stays one."""
    try:
        x = x if isinstance(x, np.ndarray) else np.asarray(x)
    except ValueError as error:
        raise ValueError("`x` must have shape [examples, dimensions]; got rows of different lengths.") from error
    if x.dtype.kind not in "fiub":
        raise ValueError(f"`x` must hold real numbers; got dtype {x.dtype}. Turn it into float32 first.")
    if x.ndim != 2 or x.shape[0] == 0 or x.shape[1] == 0:
        raise ValueError(f"`x` must have shape [examples, dimensions]; got {list(x.shape)}. Flatten images first.")
    return x


def _chunks(x: np.ndarray):
    size = max(1, _CHUNK_ELEMENTS // x.shape[1])
    return (x[start : start + size] for start in range(0, len(x), size))
