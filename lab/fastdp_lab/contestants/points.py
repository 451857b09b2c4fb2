"""Points in the unit square: epsilon protects the presence of one point; answers are points that stand for them.

Noisy counts of a node's cells are projected to counts of at least 0 with the node's total, from the top down, and as
many points are spread evenly over each cell: post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import fastdp
from fastdp.kinds import Floats, Integers
from fastdp.points import Box, PrivTree
from fastdp_lab.contestants.budget import UNITS, draws, parts, spendable
from fastdp_lab.mechanism import Mechanism

#: Share of epsilon for the number of points, which grids are sized by.
SIZE_SHARE = 0.05
SQUARE = Box([0.0, 0.0], [1.0, 1.0])


def noisy(counts: Integers, budget: int, key: bytes, number: int) -> Floats:
    """Counts with noise, for `budget` parts of epsilon."""
    return counts + draws(key, counts.size, number).reshape(counts.shape) / spendable(budget)


def projected(rows: Floats, totals: Floats) -> Floats:
    """The nearest rows of numbers of at least 0 that add up to their totals."""
    falling = -np.sort(-rows, axis=1)
    means = (np.cumsum(falling, 1) - totals[:, None]) / np.arange(1, rows.shape[1] + 1)
    last = np.maximum(np.count_nonzero(falling > means, axis=1) - 1, 0)
    lowered: Floats = rows - np.take_along_axis(means, last[:, None], 1)
    return np.maximum(lowered, 0.0)


def alone(counts: Floats) -> Floats:
    """Counts of at least 0 with the same total, where no node is above them."""
    return projected(counts[None], np.array([max(float(counts.sum()), 0.0)])).reshape(-1)


def spread(counts: Floats, low: Floats, size: Floats, key: bytes) -> Floats:
    """Points of cells with corners `low`, float64[cells, 2]; `size` broadcasts."""
    rng = np.random.Generator(np.random.Philox(int.from_bytes(key, "little")))
    whole = np.diff(np.floor(np.cumsum(counts) + rng.random()), prepend=0.0).astype(np.int64)
    cell = np.repeat(np.arange(counts.size), whole)
    return np.asarray(low[cell] + np.broadcast_to(size, low.shape)[cell] * rng.random((cell.size, 2)))


def cells_of(points: Floats, side: Any) -> Integers:
    """Row and column of each point in a grid of `side` cells a side, int64[n, 2]; or one of them."""
    return np.asarray(np.minimum((points * side).astype(np.int64), side - 1))


def corners_of(side: int) -> Floats:
    """Low corners of a grid's cells, row by row."""
    return np.stack(np.divmod(np.arange(side * side), side), 1) / side


def _number(points: Floats, budget: int, key: bytes) -> float:
    return max(float(noisy(np.array([len(points)]), budget, key, 0)[0]), 1.0)


# Grids.


def uniform_grid(points: Floats, epsilon: float, key: bytes, *, c: float = 10.0) -> Floats:
    """One grid of sqrt(N epsilon / c) cells a side."""
    total = parts(epsilon)
    first = int(total * SIZE_SHARE)
    number = _number(points, first, key)
    side = max(math.ceil(math.sqrt(number * epsilon / c)), 1)
    row, column = cells_of(points, side).T
    counts = np.bincount(row * side + column, minlength=side * side)
    return spread(alone(noisy(counts, total - first, key, 1)), corners_of(side), np.array(1.0 / side), key)


def adaptive_grid(
    points: Floats, epsilon: float, key: bytes, *, c: float = 10.0, c_second: float = 5.0, alpha: float = 0.5
) -> Floats:
    """A coarse grid whose cells have grids of their own, by their counts, made consistent with it."""
    total = parts(epsilon)
    first = int(total * SIZE_SHARE)
    number = _number(points, first, key)
    coarse = int((total - first) * alpha)
    fine = total - first - coarse
    side = max(math.ceil(math.sqrt(number * epsilon / c) / 4), 10)
    row, column = cells_of(points, side).T
    cell = row * side + column
    upper = noisy(np.bincount(cell, minlength=side * side), coarse, key, 1)
    sides = np.maximum(np.ceil(np.sqrt(np.maximum(upper, 0.0) * fine / UNITS / c_second)), 1).astype(np.int64)
    starts = np.cumsum(sides**2) - sides**2
    low = corners_of(side)
    inner = cells_of((points - low[cell]) * side, sides[cell][:, None])
    place = starts[cell] + inner[:, 0] * sides[cell] + inner[:, 1]
    lower = noisy(np.bincount(place, minlength=int((sides**2).sum())), fine, key, 2)
    sums = np.add.reduceat(lower, starts)
    # Weights by variances: alpha for the cell, 1 - alpha for each of its cells (section 4.2).
    weight = (alpha * sides) ** 2 / ((1 - alpha) ** 2 + (alpha * sides) ** 2)
    upper = alone(weight * upper + (1 - weight) * sums)
    for each in np.unique(sides):
        alike = np.flatnonzero(sides == each)
        at = starts[alike][:, None] + np.arange(each * each)
        lower[at] = projected(lower[at], upper[alike])
    owner = np.repeat(np.arange(sides.size), sides**2)
    width = 1.0 / (side * sides[owner])
    inside = np.stack(np.divmod(np.arange(owner.size) - starts[owner], sides[owner]), 1)
    return spread(lower, low[owner] + inside * width[:, None], width[:, None], key)


# Complete trees: level k has fan_out^k nodes, the children of one beside each other.


def consistent(levels: list[Floats], budgets: list[int]) -> Floats:
    """Least squares of all levels' counts, whose noise has scale 1 / budget, then leaves of at least 0."""
    fan_out = levels[0].size
    best, variance = [levels[-1]], 1.0 / budgets[-1] ** 2
    for counts, budget in zip(levels[-2::-1], budgets[-2::-1], strict=True):
        own, below = 1.0 / budget**2, fan_out * variance
        best.append((counts * below + best[-1].reshape(-1, fan_out).sum(1) * own) / (own + below))
        variance = own * below / (own + below)
    found = alone(best.pop())
    while best:
        found = projected(best.pop().reshape(-1, fan_out), found).reshape(-1)
    return found


def hierarchical(points: Floats, epsilon: float, key: bytes, *, branching: int = 16, height: int = 2) -> Floats:
    """A tree over a grid of branching^height cells a side, consistent."""
    each = parts(epsilon) // height
    place = np.zeros(len(points), np.int64)
    corner = np.zeros((1, 2))
    levels = []
    for level in range(1, height + 1):
        row, column = (cells_of(points, branching**level) % branching).T
        place = place * branching**2 + row * branching + column
        levels.append(noisy(np.bincount(place, minlength=branching ** (2 * level)), each, key, level))
        inside = corners_of(branching) / branching ** (level - 1)
        corner = (corner[:, None] + inside[None]).reshape(-1, 2)
    return spread(consistent(levels, [each] * height), corner, np.array(float(branching) ** -height), key)


def kd_hybrid(
    points: Floats, epsilon: float, key: bytes, *, height: int = 6, medians: int = 3, share: float = 0.3
) -> Floats:
    """A tree of fan-out 4 split at noisy medians, below them at middles; counts with geometric budgets."""
    total = parts(epsilon)
    # A point is in one node a level, and two of its splits see it.
    splitting = int(total * share) // (2 * medians)
    weights = np.array([2.0 ** (level / 3) for level in range(1, height + 1)])
    budgets = ((total - int(total * share)) * weights / weights.sum()).astype(np.int64).tolist()
    box, place, levels = np.array([[[0.0, 1.0], [0.0, 1.0]]]), np.zeros(len(points), np.int64), []
    for level in range(1, height + 1):
        for axis in (0, 1):
            low, high = box[:, axis, 0], box[:, axis, 1]
            middle = (low + high) / 2
            if level <= medians:
                middle = _medians(points[:, axis], place, low, high, splitting, key, 2 * level + axis)
            right = points[:, axis] >= middle[place]
            place = 2 * place + right
            halves = np.repeat(box[:, None], 2, axis=1)
            halves[:, 0, axis, 1], halves[:, 1, axis, 0] = middle, middle
            box = halves.reshape(-1, 2, 2)
        levels.append(noisy(np.bincount(place, minlength=4**level), budgets[level - 1], key, 100 + level))
    return spread(consistent(levels, budgets), box[:, :, 0], box[:, :, 1] - box[:, :, 0], key)


def _medians(
    numbers: Floats, place: Integers, low: Floats, high: Floats, budget: int, key: bytes, number: int
) -> Floats:
    """For each node, one of 63 inner positions by a noisy maximum of how evenly it splits (sensitivity 1)."""
    inside = np.clip((numbers - low[place]) / np.maximum((high - low)[place], 1e-300) * 64, 0, 63).astype(np.int64)
    counts = np.bincount(place * 64 + inside, minlength=64 * low.size).reshape(-1, 64)
    below = np.cumsum(counts, 1)
    uneven = np.abs(2 * below[:, :-1] - below[:, -1:])
    scores = draws(key, uneven.size, number).reshape(uneven.shape) - uneven * (budget // 2)
    return np.asarray(low + (scores.argmax(1) + 1) / 64 * (high - low))


# Decompositions that follow the points.


def priv_hp(points: Floats, epsilon: float, key: bytes, *, kept: int = 128, depth: int = 16, rows: int = 3) -> Floats:
    """Halves of halves; below 2^7 nodes only the children of the largest are counted, by sketches."""
    rng = np.random.Generator(np.random.Philox(int.from_bytes(key[::-1], "little")))
    each, full = parts(epsilon) // depth, (kept - 1).bit_length()
    code = np.zeros(len(points), np.int64)
    nodes: Integers = np.zeros(1, np.int64)
    counts, boxes = np.array([0.0]), np.array([[0.0, 0.0, 1.0, 1.0]])
    done: list[tuple[Floats, Floats]] = []
    for level in range(1, depth + 1):
        axis = (level - 1) % 2
        code = 2 * code + (cells_of(points[:, axis], 2 ** ((level + 1) // 2)) & 1)
        nodes, boxes = np.stack([2 * nodes, 2 * nodes + 1], 1).reshape(-1), np.repeat(boxes, 2, axis=0)
        boxes[:, 2 + axis] /= 2
        boxes[1::2, axis] += boxes[1::2, 2 + axis]
        if level <= full:
            found = noisy(np.bincount(code, minlength=nodes.size), each, key, level)
        else:
            found = _sketched(code, nodes, 2 * kept, rows, each, key, level, rng)
        found = alone(found) if level == 1 else projected(found.reshape(-1, 2), counts).reshape(-1)
        keep = np.sort(np.argsort(found)[-kept:]) if level < depth else np.empty(0, np.int64)
        rest = np.setdiff1d(np.arange(nodes.size), keep)
        done.append((found[rest], boxes[rest]))
        nodes, counts, boxes = nodes[keep], found[keep], boxes[keep]
    cells = np.concatenate([box for _, box in done])
    return spread(np.concatenate([count for count, _ in done]), cells[:, :2], cells[:, 2:], key)


def _sketched(
    code: Integers, nodes: Integers, width: int, rows: int, budget: int, key: bytes, number: int, rng: Any
) -> Floats:
    """Counts by a count-min sketch, whose rows share the budget."""
    odd = 2 * rng.integers(2**61, size=rows) + 1
    estimates = []
    for row in range(rows):
        table = np.bincount((code * odd[row] >> 20) % width, minlength=width)
        found = noisy(table, budget // rows, key, 1000 * (row + 1) + number)
        estimates.append(found[(nodes * odd[row] >> 20) % width])
    return np.asarray(np.min(estimates, axis=0))


def priv_tree(points: Floats, epsilon: float, key: bytes) -> Floats:
    """Cells split where a noisy count less a bias is large."""
    return PrivTree(SQUARE, epsilon, key=key).fit(points).sample(int.from_bytes(key[:4], "little"))


def phdstream(points: Floats, epsilon: float, key: bytes, *, times: Integers) -> Floats:
    """A decomposition that grows with the batches; its points at the end."""
    publisher = fastdp.PHDStream(SQUARE, epsilon, key=key)
    for batch in np.split(points, np.flatnonzero(np.diff(times)) + 1):
        publisher.step(batch)
    return publisher.sample()


def _points(name: str, release: Callable[..., Any], source: str, **parameters: Any) -> Mechanism:
    return Mechanism(name, "points", release, source, parameters)


_QARDAJI = "Qardaji, Yang and Li 2013 (ICDE), "
_HB = "Qardaji, Yang and Li 2013 (PVLDB 6), two dimensions: epsilon / 2 a level"
_KD = "Cormode et al. 2012 (ICDE), section 6: .3 epsilon for medians of the upper levels, .7 for counts, geometric"
_HP = "Holland, Camtepe, Thapa and Xue 2024 (arXiv:2412.09756): equal shares a level, an equal part of it a row"
POINTS = (
    _points("UG", uniform_grid, _QARDAJI + "guideline 1, c = 10: .05 epsilon for the number of points"),
    _points("AG", adaptive_grid, _QARDAJI + "section 4.2, c2 = 5, alpha = .5: as UG, halves for the two grids"),
    _points("kd-hybrid", kd_hybrid, _KD),
    _points("HB", hierarchical, _HB, branching=16),
    _points("PrivHP", priv_hp, _HP),
    _points("PrivTree", priv_tree, "Zhang, Xiao and Xie 2016 (SIGMOD), halves for cells and counts (docs/points.md)"),
    _points("PHDStream", phdstream, "Kumar, Strohmer and Vershynin 2024, scores repaired (docs/points.md)"),
)
