"""The warm-up once more, in NumPy and float64 from its description, sharing no code with the library.

    C, shape = warm_up(gradients, row_of, normals, zw=..., sigma_c=...)

Over flat per-example gradients [n, d] and the number of each coordinate's row, where the library has lists of tensors.
"""

import math

import numpy as np


def normal_within(x):
    return 0.5 * (1.0 + math.erf(x / math.sqrt(2.0)))


def warm_up(g, row_of, variable_of, draw, zw, sigma_c, rounds=3, counts=12, r=0.4):
    """C and the shape of each row.

    Args:
      g: [n, d] per-example gradients.
      row_of: [d], the row of each coordinate.
      variable_of: [rows], the variable of each row.
      draw: draw(m) returns m standard normal numbers; one call per query.
      zw, sigma_c: noise on the row norms, on the counts.
    """
    n, rows = len(g), len(variable_of)
    clip = 1.0
    shape = np.ones(rows)

    def median(clip, spread):
        norms = np.sqrt(np.sum((g / shape[row_of]) ** 2, axis=1))
        first, belief = clip, {}
        for step in range(-1120, 1121):
            x = step / 40.0
            belief[x] = -math.log(1.0 + (x / spread) ** 2)
        for _ in range(counts):
            inside = 0.0
            for norm in norms:
                inside += 0.5 if norm <= clip else -0.5
            frac = (inside + sigma_c * draw(1)[0]) / n + 0.5
            for x in belief:
                off = frac - normal_within(math.log(clip / first) - x)
                belief[x] -= off**2 / 2.0 / ((sigma_c / n) ** 2 + 0.05**2)
            top = max(belief.values())
            chances = [math.exp(value - top) for value in belief.values()]
            below, found, total = 0.0, [], sum(chances)
            for share in (0.16, 0.5, 0.84):
                below, before = 0.0, None
                for x, chance in zip(belief, chances):
                    if below + chance >= share * total:
                        found.append(before + (share * total - below) / chance * (x - before))
                        break
                    below, before = below + chance, x
            clip = first * math.exp(found[1])
        return clip, (found[2] - found[0]) / 2.0

    def believed(v, se):
        new = np.zeros(rows)
        for variable in np.unique(variable_of):
            mine = variable_of == variable
            m = mine.sum()
            mu = max(v[mine].mean(), np.sqrt((se[mine] ** 2).sum()) / m)
            tau2 = max(0.0, ((v[mine] - mu) ** 2).mean() - (se[mine] ** 2).mean())
            k = tau2 / (tau2 + se[mine] ** 2)
            new[mine] = np.maximum(mu + k * (v[mine] - mu), np.sqrt(k) * se[mine])
        return new

    width = np.bincount(row_of)
    clip, left = median(clip, 1.75)
    often = np.zeros(rows)
    for example in g:
        there = np.array([np.any(example[row_of == row] != 0.0) for row in range(rows)])
        often += there / np.sqrt(there.sum())
    often = believed(often + zw * draw(rows), np.full(rows, zw))
    often = np.maximum(often, often.max() / 10_000)
    share = often / often.max()
    t = n / zw * 10.0  # sqrt(R / f)
    spare = t - 5.0 * len(row_of)
    for _ in range(rounds):
        u = g / (clip * shape[row_of])
        u = u / np.maximum(1.0, np.linalg.norm(u, axis=1, keepdims=True))
        total = np.zeros(rows)
        for row in range(rows):
            for example in u:
                total[row] += np.sqrt(np.sum(example[row_of == row] ** 2))
        total = total + zw * draw(rows)
        new = believed(total * shape, zw * shape)
        before = (new / shape).sum() / clip
        size = np.zeros(rows)
        for variable in np.unique(variable_of):
            mine = np.flatnonzero(variable_of == variable)
            ordered, half, typical = sorted(mine, key=lambda row: new[row] / often[row]), 0.0, None
            for row in ordered:
                half += often[row]
                if typical is None and half >= often[mine].sum() / 2.0:
                    typical = new[row] / often[row]
            for row in mine:
                k = often[row] ** 2 / (often[row] ** 2 + 9.0 * zw**2)
                size[row] = math.exp(k * math.log(new[row] / often[row]) + (1.0 - k) * math.log(typical))
                size[row] = max(size[row], 0.1 * typical)
        rare = share / (share + 5.0 * (width * share).sum() / spare) if spare > 0.0 else share
        shape = (size / np.sqrt(width)) ** r * share**0.1 * rare**0.3
        shape = shape / np.sqrt((shape[row_of] ** 2).mean())
        clip = (new / shape).sum() / before
    return median(clip, math.hypot(0.5, left))[0], shape
