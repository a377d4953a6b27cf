"""The warm-up once more, in NumPy and float64 from its description, sharing no code with the library.

    C, shape = warm_up(gradients, row_of, normals, zw=..., sigma_c=...)

Over flat per-example gradients [n, d] and the number of each coordinate's row, where the library has lists of tensors.
"""

import numpy as np


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

    def median(clip, span):
        norms = np.sqrt(np.sum((g / shape[row_of]) ** 2, axis=1))
        last = None
        for _ in range(counts):
            inside = 0.0
            for norm in norms:
                inside += 0.5 if norm <= clip else -0.5
            frac = (inside + sigma_c * draw(1)[0]) / n + 0.5
            up = frac < 0.5
            if last is not None and up != last:
                span = max(np.sqrt(span), 1.05)
            last = up
            clip = clip * span if up else clip / span
        return clip

    clip = median(clip, 32.0)
    for _ in range(rounds):
        u = g / (clip * shape[row_of])
        u = u / np.maximum(1.0, np.linalg.norm(u, axis=1, keepdims=True))
        total = np.zeros(rows)
        for row in range(rows):
            for example in u:
                total[row] += np.sqrt(np.sum(example[row_of == row] ** 2))
        total = total + zw * draw(rows)
        v, se = total * shape, zw * shape
        new = np.zeros(rows)
        for variable in np.unique(variable_of):
            mine = variable_of == variable
            m = mine.sum()
            mu = max(v[mine].mean(), np.sqrt((se[mine] ** 2).sum()) / m)
            tau2 = max(0.0, ((v[mine] - mu) ** 2).mean() - (se[mine] ** 2).mean())
            k = tau2 / (tau2 + se[mine] ** 2)
            new[mine] = np.maximum(mu + k * (v[mine] - mu), np.sqrt(k) * se[mine])
        before = (new / shape).sum() / clip
        width = np.bincount(row_of)
        raised = new.copy()
        for variable in np.unique(variable_of):
            middle = sorted(new[variable_of == variable])
            lower, upper = middle[(len(middle) - 1) // 2], middle[len(middle) // 2]
            raised[variable_of == variable] = np.maximum(new[variable_of == variable], (lower + upper) / 2)
        shape = (raised / np.sqrt(width)) ** r
        shape = shape / np.sqrt((shape[row_of] ** 2).mean())
        clip = (new / shape).sum() / before
    return median(clip, 2.0), shape
