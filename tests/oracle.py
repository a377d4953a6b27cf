"""AdaCliP once more, in NumPy and float64, sharing no code with the library.

Written from the paper (arXiv 1908.07643, section 4) over one flat vector, where the library
works on a list of tensors: a slip in one is unlikely to be repeated in the other.

    oracle = Oracle([(3,), ()], noise_multiplier=1.0, divisor=4.0)
    g = oracle.step(records, normals)     # records: one [n, *shape] array per variable
    oracle.mean, oracle.variance          # m and s^2 after the step
"""

import numpy as np

FLOAT32_MAX = float(np.finfo(np.float32).max)


class Oracle:
    """Runs whole steps of AdaCliP, whitening or fixed clipping.

    Args:
      shapes: the variables' shapes.
      kind: "adaclip", "whitening" or "fixed".
      noise_multiplier: z.
      divisor: B.
      beta_1, beta_2, h1, h2, gamma, initial_std, variance_scaling, clamp: as in `adaclip_tf.core`.
      l2_norm_clip: C, for kind "fixed" only.
    """

    def __init__(
        self,
        shapes,
        *,
        kind="adaclip",
        noise_multiplier,
        divisor,
        beta_1=0.99,
        beta_2=0.9,
        h1=1e-12,
        h2=1e-3,
        gamma=1.0,
        initial_std=None,
        variance_scaling="per_example",
        clamp="before_average",
        l2_norm_clip=None,
    ):
        if kind not in ("adaclip", "whitening", "fixed"):
            raise ValueError(kind)
        if variance_scaling not in ("per_example", "paper"):
            raise ValueError(variance_scaling)
        if clamp not in ("before_average", "after_average"):
            raise ValueError(clamp)
        self.shapes = [tuple(shape) for shape in shapes]
        self.kind = kind
        self.z = float(noise_multiplier)
        self.B = float(divisor)
        self.beta_1, self.beta_2, self.h1, self.h2, self.gamma = beta_1, beta_2, h1, h2, gamma
        self.variance_scaling, self.clamp, self.l2_norm_clip = variance_scaling, clamp, l2_norm_clip
        self.d = int(sum(np.prod(shape, dtype=int) for shape in self.shapes))
        start = np.sqrt(h1 * h2) if initial_std is None else initial_std
        self._m = np.zeros(self.d)
        self._s2 = np.full(self.d, float(start) ** 2)

    @property
    def mean(self):
        """m, one array per variable."""
        return self._unflatten(self._m)

    @property
    def variance(self):
        """s^2, one array per variable."""
        return self._unflatten(self._s2)

    def transform(self):
        """(a, b), each one array per variable in the variable's full shape."""
        a, b = self._flat_transform()
        return self._unflatten(a), self._unflatten(b)

    def clipped_sum(self, records):
        """sum_k u_k, one array per variable."""
        return self._unflatten(self._flat_clipped_sum(records))

    def step(self, records, normals):
        """One step with the standard normal draws `normals`: returns g~ and moves m and s^2."""
        a, b = self._flat_transform()
        noise = np.concatenate([np.asarray(n, np.float64).reshape(-1) for n in normals])
        noised_sum = self._flat_clipped_sum(records) + self.z * noise
        g = b * noised_sum / self.B + a
        if self.kind != "fixed":
            self._learn(g, b)
        return self._unflatten(g)

    def _learn(self, g, b):
        v = (g - self._m) ** 2 - (self.z * b / self.B) ** 2
        if self.variance_scaling == "per_example":
            v = self.B * v
        if self.clamp == "before_average":
            v = np.minimum(np.maximum(v, self.h1), self.h2)
        s2 = self.beta_2 * self._s2 + (1 - self.beta_2) * v
        if self.clamp == "after_average":
            s2 = np.minimum(np.maximum(s2, self.h1), self.h2)
        self._m = self.beta_1 * self._m + (1 - self.beta_1) * g
        self._s2 = s2

    def _flat_transform(self):
        if self.kind == "fixed":
            return np.zeros(self.d), np.full(self.d, float(self.l2_norm_clip))
        s = np.sqrt(self._s2)
        if self.kind == "whitening":
            return self._m.copy(), np.sqrt(self.d / self.gamma) * s
        return self._m.copy(), np.sqrt(s / self.gamma) * np.sqrt(s.sum())

    def _flat_clipped_sum(self, records):
        a, b = self._flat_transform()
        n = len(records[0])
        flat = [np.asarray(r, np.float64).reshape(n, size) for r, size in zip(records, self._sizes())]
        total = np.zeros(self.d)
        with np.errstate(over="ignore", invalid="ignore"):
            for g in np.concatenate(flat, axis=1):
                w = (g - a) / b
                squared = np.sum(w * w)
                if not squared <= FLOAT32_MAX:  # also when NaN
                    continue
                total += w / max(1.0, np.sqrt(squared))
        return total

    def _sizes(self):
        return [int(np.prod(shape, dtype=int)) for shape in self.shapes]

    def _unflatten(self, vector):
        pieces = np.split(vector, np.cumsum(self._sizes())[:-1])
        return [piece.reshape(shape) for piece, shape in zip(pieces, self.shapes)]
