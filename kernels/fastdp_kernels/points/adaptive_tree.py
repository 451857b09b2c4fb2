"""Tree of cells that changes by released numbers alone (arrays as in ``privtree``).

``weight``: variance of the noise at a node and below, in one count's.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel
from fastdp_kernels.points.privtree import append_parts
from fastdp_kernels.points.tree_maps import add_up


@inline
def share_of(child: int, begin: int, fan_out: int, measure: np.ndarray) -> float:
    """Child's share of the domain among its siblings."""
    whole = 0.0
    for c in range(begin, begin + fan_out):
        whole += measure[c]
    return measure[child] / whole if whole > 0.0 else 0.0


@kernel
def regrow(
    level: int,
    stop: int,
    rule: tuple[int, int, float, float, bool],
    events: tuple[np.ndarray, np.ndarray],
    counted: tuple[np.ndarray, ...],
    starts: np.ndarray,
    tree: tuple[np.ndarray, ...],
) -> int:
    """Cut the cells of levels [level, stop) whose released counts stand out; append their children.

    Returns as ``privtree.descend``, of which ``level``, ``stop``, ``events`` and ``starts`` are.

    Parameters
    ----------
    rule : tuple
        beta; D; standard deviations above which a cell is cut, and stays cut; True for equal measures.
    counted : tuple
        The tree before: first child, and the numbers of ``tree`` from the released count on.
    tree : tuple
        int64[capacity] node before (-1 if new), parent, first child, code; int64[capacity, 4] ranges; int64[capacity]
        released count, weight; float64[capacity] measure, estimate, its variance in one count's, growth.
    """
    fan_out, depth, split, keep, equal = rule
    added, removed = events
    old_first, old_released, old_weight, old_measure, old_estimate, old_variance, old_rate = counted
    origin, parent, first, code, ends, released, weight, measure, estimate, variance, rate = tree
    following: int = starts[level + 1]
    for k in range(level, stop):
        width = np.int64(1)
        for _ in range(depth - k - 1):
            width *= fan_out
        for i in range(starts[k], starts[k + 1]):
            first[i] = -1
            if k > 0 and origin[i] < 0:
                # Only now are the measures known.
                p = parent[i]
                share = share_of(i, first[p], fan_out, measure)
                estimate[i] = share * estimate[p]
                variance[i] = share * share * variance[p]
                rate[i] = share * rate[p]
            if k == depth or measure[i] <= 0.0:
                continue
            kept = old_first[origin[i]] if origin[i] >= 0 else -1
            # One count more, at least, is the difference of the children.
            if estimate[i] <= (keep if kept >= 0 else split) * np.sqrt(max(variance[i], 1.0)):
                continue
            if following + fan_out > origin.size:
                return -1
            first[i] = following
            append_parts(i, following, fan_out, width, added, removed, parent, code, ends)
            for j in range(fan_out):
                c = following + j
                origin[c] = kept + j if kept >= 0 else -1
                released[c] = 0
                weight[c] = 0
                if kept >= 0:
                    o = origin[c]
                    released[c] = old_released[o]
                    weight[c] = old_weight[o]
                    measure[c] = old_measure[o]
                    estimate[c] = old_estimate[o]
                    variance[c] = old_variance[o]
                    rate[c] = old_rate[o]
                elif equal:
                    measure[c] = measure[i] / fan_out
            following += fan_out
        if k < depth:
            starts[k + 2] = following
    return following


@kernel
def add_counts(
    leaves: np.ndarray, counts: np.ndarray, draw: int, fan_out: int, first: np.ndarray, sums: tuple[np.ndarray, ...]
) -> None:
    """Add leaves' counts to ``released``, and ``draw`` each to ``weight``, along their paths.

    ``sums``, int64[v]: counts and draws gained, filled; ``released``; ``weight``.
    """
    gained, drawn, released, weight = sums
    gained[:] = 0
    drawn[:] = 0
    for j in range(leaves.size):
        gained[leaves[j]] = counts[j]
        drawn[leaves[j]] = draw
    add_up(gained, fan_out, first, released)
    add_up(drawn, fan_out, first, weight)


@kernel
def shrink_counts(
    fan_out: int,
    noise: float,
    shrink: bool,
    first: np.ndarray,
    counts: np.ndarray,
    weight: np.ndarray,
    measure: np.ndarray,
    held: np.ndarray,
    variance: np.ndarray,
    estimate: np.ndarray,
) -> None:
    """Fill non-negative, consistent estimates of all nodes, from the root down.

    With shares s, the weight of D_c = G(c) - s_c G(parent) is 1 or, to ``shrink``, the larger of James and Stein's 1
    - noise / sum D^2 and signal / (signal + noise), signal = u^2 (1 - sum s^2) for the parent's estimate u.
    ``noise`` is the variance of one count, in which ``weight`` (of ``counts``) and ``variance`` (of G, ``held``) are
    measured; ``measure``: forecasts.
    """
    held[0] = counts[0]
    variance[0] = np.float64(weight[0])
    estimate[0] = max(held[0], 0.0)
    for i in range(first.size):
        begin = first[i]
        if begin < 0:
            continue
        end = begin + fan_out
        counted = 0.0
        drawn = 0.0
        whole = 0.0
        for c in range(begin, end):
            counted += counts[c]
            drawn += np.float64(weight[c])
            whole += measure[c]
        above = held[i] - counted
        spread = max(variance[i] - drawn, 0.0)
        squares = 0.0
        noisy = 0.0
        alone = 1.0
        for c in range(begin, end):
            share = measure[c] / whole if whole > 0.0 else 0.0
            held[c] = share * above + counts[c]
            variance[c] = share * share * spread + np.float64(weight[c])
            squares += (counts[c] - share * counted) ** 2
            noisy += np.float64(weight[c]) * (1.0 - 2.0 * share) + share * share * drawn
            alone -= share * share
        factor = 1.0
        if shrink and squares > 0.0:
            signal = estimate[i] * estimate[i] * max(alone, 0.0)
            noisy = max(noisy, 0.0) * noise
            prior = signal / (signal + noisy) if signal > 0.0 else 0.0
            factor = max(prior, 1.0 - noisy / squares)
        positive = 0.0
        for c in range(begin, end):
            share = measure[c] / whole if whole > 0.0 else 0.0
            found = share * estimate[i] + factor * (counts[c] - share * counted)
            estimate[c] = found if found > 0.0 and measure[c] > 0.0 else 0.0
            positive += estimate[c]
        for c in range(begin, end):
            if positive > 0.0:
                estimate[c] = estimate[i] * (estimate[c] / positive)
            else:
                estimate[c] = estimate[i] * (measure[c] / whole) if whole > 0.0 else 0.0
