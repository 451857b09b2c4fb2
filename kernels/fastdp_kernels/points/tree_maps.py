"""Maps of counts over a tree (arrays as in ``privtree``): to ancestors, to children, step to step.

s+ is the non-negative, consistent projection of G (``docs/points.md``).  ``numbers``: int64[v] parent, released count
(or estimate, float64[v]); float64[v] measure, and G (``held``) and s+ (``projected``), which are filled.
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
    """Fill G and s+ of the children of one node.

    G(child) = share * (G(parent) - sum of the children's released) + released(child); s+(child) = s+(parent) times
    its part of the positive G, or its share by measure.
    """
    # A sum of integers stays one: its type is that of the counts.
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
def share_between_two(
    parent: int,
    child: int,
    released: np.ndarray,
    measure: np.ndarray,
    held: np.ndarray,
    projected: np.ndarray,
) -> None:
    """:func:`share_out` for two children, bit for bit, without branches on signs."""
    m0 = measure[child]
    m1 = measure[child + 1]
    r0 = released[child]
    r1 = released[child + 1]
    whole = m0 + m1
    above = held[parent] - np.float64(r0 + r1)
    # Halves are exact, and most domains have nothing else.
    s0 = 0.5
    s1 = 0.5
    if m0 != m1 or whole <= 0.0:
        s0 = m0 / whole if whole > 0.0 else 0.0
        s1 = m1 / whole if whole > 0.0 else 0.0
    h0 = s0 * above + np.float64(r0)
    h1 = s1 * above + np.float64(r1)
    held[child] = h0
    held[child + 1] = h1
    q0 = h0 if (h0 > 0.0) & (m0 > 0.0) else 0.0
    q1 = h1 if (h1 > 0.0) & (m1 > 0.0) else 0.0
    positive = q0 + q1
    some = positive > 0.0
    bottom = positive if some else 1.0
    p0 = (q0 if some else s0) / bottom
    p1 = (q1 if some else s1) / bottom
    projected[child] = projected[parent] * p0
    projected[child + 1] = projected[parent] * p1


@inline
def share_levels(begin: int, end: int, fan_out: int, numbers: tuple[np.ndarray, ...]) -> None:
    """Fill G and s+ of the families in [begin, end)."""
    parent, released, measure, held, projected = numbers
    if fan_out == 2:
        for c in range(begin, end, 2):
            share_between_two(parent[c], c, released, measure, held, projected)
    else:
        for c in range(begin, end, fan_out):
            share_out(parent[c], c, fan_out, released, measure, held, projected)


@inline
def add_up(gained: np.ndarray, fan_out: int, first: np.ndarray, released: np.ndarray) -> None:
    """Add nodes' gains to their ``released`` and their ancestors'."""
    for i in range(first.size - 1, -1, -1):
        if first[i] >= 0:
            for c in range(first[i], first[i] + fan_out):
                gained[i] += gained[c]
        released[i] += gained[i]


@inline
def sum_families(counts: np.ndarray, fan_out: int, parent: np.ndarray) -> None:
    """Add nodes' integer counts to their ancestors'."""
    for c in range(parent.size - fan_out, 0, -fan_out):
        total = counts[c]
        for j in range(c + 1, c + fan_out):
            total += counts[j]
        counts[parent[c]] += total


@kernel
def project_counts(
    leaves: np.ndarray, increments: np.ndarray, fan_out: int, gained: np.ndarray, numbers: tuple[np.ndarray, ...]
) -> None:
    """Add leaves' increments along their paths; then fill G and s+ of the step tree."""
    gained[:] = 0
    for j in range(leaves.size):
        gained[leaves[j]] = increments[j]
    parent, released, _, held, projected = numbers
    sum_families(gained, fan_out, parent)
    for i in range(released.size):
        released[i] += gained[i]
    held[0] = np.float64(released[0])
    projected[0] = max(held[0], 0.0)
    share_levels(1, parent.size, fan_out, numbers)


@kernel
def project_with(
    missing: float, leaves: np.ndarray, fan_out: int, released: np.ndarray, numbers: tuple[np.ndarray, ...]
) -> None:
    """Fill G and s+ after ``missing`` points are shared out equally over the leaves.

    The counts in ``numbers`` become ``released`` and a part of the missing points.
    """
    parent, counts, _, held, projected = numbers
    counts[:] = 0.0
    for j in range(leaves.size):
        counts[leaves[j]] = 1.0
    sum_families(counts, fan_out, parent)
    part = missing / counts[0]
    for i in range(parent.size):
        counts[i] = np.float64(released[i]) + part * counts[i]
    held[0] = counts[0]
    projected[0] = max(held[0], 0.0)
    share_levels(1, parent.size, fan_out, numbers)


@kernel
def settle_kept(
    settled: np.ndarray,
    increments: np.ndarray,
    fan_out: int,
    gained: np.ndarray,
    first: np.ndarray,
    released: np.ndarray,
    origin: np.ndarray,
    seen: np.ndarray,
) -> None:
    """Add increments of abandoned kept nodes, int64[k], to the kept tree and the step tree.

    ``origin``, ``seen``: kept node (-1 if new) and ``released`` of each step node; ``gained`` is scratch.
    """
    gained[:] = 0
    for j in range(settled.size):
        gained[settled[j]] = increments[j]
    add_up(gained, fan_out, first, released)
    for i in range(origin.size):
        if origin[i] >= 0:
            seen[i] += gained[origin[i]]


@kernel
def append_step(
    step: int,
    begin: int,
    first: np.ndarray,
    origin: np.ndarray,
    released: np.ndarray,
    measure: np.ndarray,
    kept: np.ndarray,
) -> None:
    """Write a step's nodes into ``kept`` from ``begin`` on; one that is not split keeps its children."""
    for i in range(first.size):
        o = max(origin[i], 0)
        split = first[i] >= 0
        new = origin[i] < 0
        before = kept[o].first
        when = kept[o].split
        kept[begin + i].first = begin + first[i] if split else (-1 if new else before)
        kept[begin + i].released = released[i]
        kept[begin + i].split = step if split else (-1 if new else when)
        kept[begin + i].measure = measure[i]


@kernel
def pack_kept(root: int, since: int, fan_out: int, kept: np.ndarray, origin: np.ndarray, packed: np.ndarray) -> int:
    """Pack a kept tree breadth first, without children split before ``since``, with origins; returns its size."""
    origin[0] = root
    count = 1
    n = 0
    while n < count:
        o = origin[n]
        packed[n] = kept[o]
        packed[n].first = -1
        if kept[o].first >= 0 and kept[o].split >= since:
            packed[n].first = count
            for j in range(fan_out):
                origin[count] = kept[o].first + j
                count += 1
        n += 1
    return count
