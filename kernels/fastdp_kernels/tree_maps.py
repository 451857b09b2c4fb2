"""Maps of counts over a tree (arrays as in ``privtree``): up to the ancestors, down to the children, step to step.

The projection s+ is the non-negative, consistent version of G that scores and releases use (``docs/phdstream.md``).
The resident tree is what lives between two steps.  Nothing is lost when nodes are dropped: a node's ``released``
holds all that was counted below it, so what its children held is from then on shared out among them, by measure.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel


@inline
def share_out(
    parent: int,
    child: int,
    fan_out: int,
    released: np.ndarray,
    measure: np.ndarray,
    held: np.ndarray,
    projected: np.ndarray,
) -> None:
    """G and s+ of the children of one node.

    G(child) = share * (G(parent) - sum of the children's released) + released(child); s+(child) = s+(parent) times
    the child's part of the positive G among its siblings, or its share where there is none.  Shares go by measure;
    cells of measure 0 get no s+.  Every factor is at most 1, in floats too: s+ never rises from parent to child.
    """
    # A sum of whole numbers stays one: its type is that of the counts.
    below = released[child] - released[child]
    whole = 0.0
    for c in range(child, child + fan_out):
        below += released[c]
        whole += measure[c]
    above = held[parent] - np.float64(below)
    positive = 0.0
    for c in range(child, child + fan_out):
        share = measure[c] / whole if whole > 0.0 else 0.0
        held[c] = share * above + np.float64(released[c])
        if held[c] > 0.0 and measure[c] > 0.0:
            positive += held[c]
    for c in range(child, child + fan_out):
        if positive > 0.0:
            part = held[c] / positive if held[c] > 0.0 and measure[c] > 0.0 else 0.0
        else:
            part = measure[c] / whole if whole > 0.0 else 0.0
        projected[c] = projected[parent] * part


@inline
def add_up(gained: np.ndarray, fan_out: int, first: np.ndarray, released: np.ndarray) -> None:
    """Add what nodes of a tree gained, int64[n], to the ``released`` of them and their ancestors."""
    for i in range(first.size - 1, -1, -1):
        if first[i] >= 0:
            for c in range(first[i], first[i] + fan_out):
                gained[i] += gained[c]
        released[i] += gained[i]


@kernel
def project_counts(
    leaves: np.ndarray,
    increments: np.ndarray,
    fan_out: int,
    gained: np.ndarray,
    first: np.ndarray,
    released: np.ndarray,
    measure: np.ndarray,
    held: np.ndarray,
    projected: np.ndarray,
) -> None:
    """Add the leaves' increments to ``released`` along their paths; then G and s+ of every visited node.

    Parameters
    ----------
    leaves, increments : int64[l]
        Which visited nodes counted, and by how much they grew.
    fan_out : int
        Children of a node.
    gained : int64[v]
        Scratch.
    first, released, measure, held, projected : int64[v] or float64[v]
        The visited tree; the last two are filled.
    """
    gained[:] = 0
    for j in range(leaves.size):
        gained[leaves[j]] = increments[j]
    add_up(gained, fan_out, first, released)
    held[0] = np.float64(released[0])
    projected[0] = max(held[0], 0.0)
    for i in range(first.size):
        if first[i] >= 0:
            share_out(i, first[i], fan_out, released, measure, held, projected)


@kernel
def project_with(
    missing: float,
    leaves: np.ndarray,
    fan_out: int,
    counts: np.ndarray,
    first: np.ndarray,
    released: np.ndarray,
    measure: np.ndarray,
    held: np.ndarray,
    projected: np.ndarray,
) -> None:
    """G and s+ of every visited node after ``missing`` points were shared out over the leaves alike.

    Arrays as in :func:`project_counts`; ``counts``, float64[v], is filled with ``released`` and a node's part of what
    was missing.
    """
    counts[:] = 0.0
    for j in range(leaves.size):
        counts[leaves[j]] = 1.0
    for i in range(first.size - 1, -1, -1):
        if first[i] >= 0:
            for c in range(first[i], first[i] + fan_out):
                counts[i] += counts[c]
    part = missing / counts[0]
    for i in range(first.size):
        counts[i] = np.float64(released[i]) + part * counts[i]
    held[0] = counts[0]
    projected[0] = max(held[0], 0.0)
    for i in range(first.size):
        if first[i] >= 0:
            share_out(i, first[i], fan_out, counts, measure, held, projected)


@kernel
def settle_residents(
    settled: np.ndarray,
    increments: np.ndarray,
    fan_out: int,
    gained: np.ndarray,
    first: np.ndarray,
    released: np.ndarray,
    origin: np.ndarray,
    seen: np.ndarray,
) -> None:
    """Add increments of nodes that are left to the resident tree, and to what the visited tree took from it.

    Parameters
    ----------
    settled, increments : int64[k]
        Resident nodes, and by how much they grew.
    fan_out : int
        Children of a node.
    gained : int64[r]
        Scratch.
    first, released : int64[r]
        The resident tree; ``released`` is changed.
    origin, seen : int64[v]
        Of each visited node the resident one, -1 if it is new, and its ``released``, which is changed.
    """
    gained[:] = 0
    for j in range(settled.size):
        gained[settled[j]] = increments[j]
    add_up(gained, fan_out, first, released)
    for i in range(origin.size):
        if origin[i] >= 0:
            seen[i] += gained[origin[i]]


@kernel
def renew_residents(
    step: int,
    retention: int,
    fan_out: int,
    old_first: np.ndarray,
    old_released: np.ndarray,
    old_split: np.ndarray,
    old_measure: np.ndarray,
    first: np.ndarray,
    before: np.ndarray,
    released: np.ndarray,
    measure: np.ndarray,
    new_first: np.ndarray,
    new_released: np.ndarray,
    new_split: np.ndarray,
    new_measure: np.ndarray,
    origin: np.ndarray,
    visit: np.ndarray,
) -> int:
    """The resident tree after a step: what was visited, and what was split at most ``retention`` steps ago.

    Parameters
    ----------
    step, retention : int
        Number of this step; a node keeps its children while step - (last step that split it) <= retention.
    fan_out : int
        Children of a node.
    old_first, old_released, old_split, old_measure : int64[r], int64[r], int64[r], float64[r]
        The resident tree before; ``old_split`` is the last step that split the node, -1 if none did.
    first, before, released, measure : int64[v], int64[v], int64[v], float64[v]
        The visited tree: first child, resident node before the step, released count after it, measure.
    new_first, new_released, new_split, new_measure : as old_*, of r + v entries
        The resident tree after, breadth first.
    origin, visit : int64[r + v]
        For each new resident node the old resident one and the visited one, -1 if there is none.

    Returns
    -------
    int
        Resident nodes.
    """
    origin[0] = 0
    visit[0] = 0
    count = 1
    n = 0
    while n < count:
        o = origin[n]
        v = visit[n]
        if v >= 0:
            new_released[n] = released[v]
            new_measure[n] = measure[v]
        else:
            new_released[n] = old_released[o]
            new_measure[n] = old_measure[o]
        split_now = v >= 0 and first[v] >= 0
        new_split[n] = step if split_now else (old_split[o] if o >= 0 else -1)
        kept = o >= 0 and old_first[o] >= 0 and step - new_split[n] <= retention
        new_first[n] = -1
        if split_now or kept:
            new_first[n] = count
            for j in range(fan_out):
                if split_now:
                    visit[count] = first[v] + j
                    origin[count] = before[first[v] + j]
                else:
                    visit[count] = -1
                    origin[count] = old_first[o] + j
                count += 1
        n += 1
    return count
