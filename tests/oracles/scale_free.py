"""The score without units, value by value, as its documentation tells it; and exact winners of any noisy max."""

from __future__ import annotations

import math

import numpy as np


def candidates(top):
    """bound / 1.5^(i / 3) in whole grid steps, rising."""
    found, i = set(), 0
    while True:
        step = max(1, round(top / 1.5 ** (i / 3)))
        found.add(step)
        if step == 1:
            return sorted(found)
        i += 1


def weights(m, top, epsilon, noise_epsilon, max_range, constant, lengths="longest", filled=None):
    """One count or two, free rank, gains of candidates, and which take part, of m public values and ``filled``.

    ``filled`` values lie above the lowest candidate, as far as is known; by default all.
    The lowest candidate gains at most half of those beyond the target.
    """
    k = m * math.sqrt(6.0 * constant) / (max_range * noise_epsilon)
    gentle = lengths == "all" and k * epsilon < 2.0
    few = k * epsilon < 1.0 or gentle
    times, steep = (1.25, 2.5) if gentle else (1.5, 3.0) if few else (1.0, 4.0)
    k = min(k, m / 2 / times)
    span = max(math.log(top), 1.0)
    slope = min(max(k, steep / epsilon), (m - k * times) / 2 / span)
    filled = m if filled is None else filled
    free = min(k * times, filled / 2)
    most = (filled - free) / 2
    depths = [math.log(top / theta) for theta in candidates(top)]
    gains = [min(slope * depth, most * math.log(1 + depth / 2) / math.log(1 + span / 2)) for depth in depths]
    # A number that was released may say that few are not 0.
    released = min(epsilon / 20, 600 / m) * m >= 4
    zeros = released and filled < min(m / 10, 60 / epsilon)
    takes_part = [not zeros or theta * 4096 >= top for theta in candidates(top)]
    return few, free, gains, takes_part


def scores(holdout, top, unit, epsilon, noise_epsilon, max_range, constant, lengths="longest", filled=None):
    """Unit times the sum of both counts, or twice the one count; ``holdout`` in grid steps within [0, top]."""
    public = epsilon, noise_epsilon, max_range, constant, lengths, filled
    few, free, gains, takes_part = weights(len(holdout), top, *public)
    grid, out = candidates(top), []
    for theta, gain, there in zip(grid, gains, takes_part, strict=True):
        reach = theta if few else min(grid, key=lambda c: (abs(2 * c - 3 * theta), c))
        counts = sum(v > theta for v in holdout) + sum(v > reach for v in holdout)
        score = int(np.rint(2 * unit * gain)) - max(0, unit * counts - round(2 * unit * free))
        out.append(score if there else -(2**61))
    return out


def used(winner, spent, m, top, *public):
    """The theta used: candidate number ``winner``, or the bound if it might cut off all that the lowest one does.

    The lowest candidate that takes part must gain eight noise scales of the choice, 8 / ``spent`` values, more.
    """
    _, _, gains, takes_part = weights(m, top, *public)
    return candidates(top)[winner] if gains[takes_part.index(True)] - gains[winner] >= 8 / spent else top


def filled(above, noise, scale, holdout):
    """The number that limits k and the slope: a noisy count, one noise scale too high, at most the hold-out."""
    return min(max(above + noise, 0) + scale, holdout)


def winner_probabilities(scores, noise, scale, reach):
    """P[candidate wins] by summing over its own noise and the others' distribution functions; ties to the lowest.

    Noise beyond ``reach`` is left out, so it must be improbable.
    """
    k, q = np.arange(-reach, reach + 1), np.exp(-1 / scale)
    if noise == "laplace":
        mass = (1 - q) / (1 + q) * q ** np.abs(k)
    else:
        mass = np.where(k >= 0, (1 - q) * q ** np.maximum(k, 0), 0.0)
    below = np.concatenate([[0.0], np.cumsum(mass)])  # below[i] = P[noise < k_i]
    out = []
    for j, score in enumerate(scores):
        others = np.ones(k.size)
        for i, other in enumerate(scores):
            if i != j:
                # An earlier candidate must stay strictly below, a later one at most level.
                others *= below[np.clip(k + score - other + (i > j) + reach, 0, below.size - 1)]
        out.append(float((mass * others).sum()))
    return np.array(out)
