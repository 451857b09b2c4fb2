"""PrivTree's decisions for one batch on an empty tree, many runs at once; the kernel descends row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.audit import row_kernels as kernel
from benchmarks.audit.parts import draw_noise
from fastdp.counters.counter import event_guarantee
from fastdp.noise.key import Key
from fastdp.spatial import domains
from fastdp_lab.audit.exact import split_plan
from fastdp_lab.audit.runs import ManyRuns

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
#: Points added and removed.
Points = tuple[Floats, Floats]

#: Trees grown side by side.
ROWS = 4096
#: Points on [0, 1], one more in the first.
POINTS: Any = ((np.zeros(3), np.zeros(0)), (np.zeros(2), np.zeros(0)))


def splits(epsilon: float, max_depth: int, *, repaired: bool = True) -> ManyRuns:
    """Data: the points added and removed.  Outputs: depth of the leaf around 0, and number of nodes."""
    plan = split_plan(epsilon, max_depth, repaired=repaired)
    fixed = (plan.max_depth, plan.fan_out, plan.unit, plan.bias, plan.threshold, plan.repaired)

    def draw(data: Points, trials: int, key: Key) -> Integers:
        added, removed, target = (
            domains.encode(plan, np.asarray(points, np.float64).reshape(-1, 1)) for points in (*data, [0.0])
        )
        out: Integers = np.full((trials, 2), -1, np.int64)
        for number, begin in enumerate(range(0, trials, ROWS)):
            part, level = out[begin : begin + ROWS], 0
            noise: Integers = np.empty((part.shape[0], 0), np.int64)
            waiting = np.arange(part.shape[0])
            while waiting.size:
                # A tree that is too large continues with further draws after the same ones: none is redrawn.
                columns = max(4 * (max_depth + 1), noise.shape[1])
                more = draw_noise(plan.split_law, part.shape[0], columns, key, level=level, number=number)
                noise, level = np.concatenate([noise, more], axis=1), level + 1
                grown: Integers = np.empty((waiting.size, 2), np.int64)
                kernel.split_trees(*fixed, added, removed, int(target[0]), noise[waiting], grown)
                part[waiting] = grown
                waiting = waiting[grown[:, 0] < 0]
        return out

    return ManyRuns(event_guarantee(epsilon, "PrivTree's decisions alone"), draw)


def attack(depth: int, epsilon: float) -> Points:
    """Additions and removals on [0, 1] that keep the paper's score at its threshold along one path.

    The cell of depth i around 0 must hold i penalties of a level: additions go into the deepest cell, removals into
    the siblings.
    """
    plan = split_plan(epsilon, depth, repaired=False)
    penalty = plan.bias / plan.unit
    wanted = [round((i + 0.15) * penalty) for i in range(depth)]
    siblings = 0.75 * 2.0 ** -np.arange(depth - 1.0)
    return np.zeros(wanted[-1]), np.repeat(siblings, np.diff(wanted))
