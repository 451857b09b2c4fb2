"""When cells are counted next, and what is published until then: functions of released counts alone.

Counting every p steps in place of every step, a cell's noise grows p times more slowly, and p / 2 steps' change is
missing on average.  ``docs/phdstream.md`` ("Counts alone") says how p is chosen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from fastdp.arrays.kinds import Floats, Integers

#: Steps before the second count.
FIRST_PERIOD = 8
#: Largest change of the period from one count to the next.
LARGEST_FACTOR = 1.5
#: The noise to come counts as that of so many steps, this part of those so far, this many at least.
HORIZON_PART, MIN_HORIZON = 0.25, 50
#: What earlier counts keep of their say in the forecasts' weight, and in the period.
WEIGHT_MEMORY, PERIOD_MEMORY = 0.9, 0.5
#: Cells are planted again where more than this part of what came is in cells that it would have cut.
MAX_COARSE = 0.3
#: Where so much of what came was, every batch is counted, in cells that PrivTree chooses, for so many steps.
PROMPT_STEPS = 32
#: Counts below this part of the total are errors' denominators no more (the paper's 0.001).
FLOOR = 0.001


@dataclass(frozen=True)
class ReleaseSchedule:
    """When to count, and how to forecast.

    Attributes
    ----------
    period : int
        Steps from the last count to the next.
    weight : float
        How much of its own past growth a cell is expected to repeat; for the rest it shares in the whole's growth.
    products, squares : float
        Sums of the regression that ``weight`` comes from.
    costs : float64[k]
        Mean relative error of a cell that each period on the grid promises, averaged over past counts; empty before.
    prompt : int
        Until this step every batch is counted in cells that PrivTree chooses.
    """

    period: int
    weight: float = 0.0
    products: float = 0.0
    squares: float = 0.0
    costs: Floats | None = None
    prompt: int = 0


@dataclass(frozen=True)
class Growth:
    """What one count found, and what had been expected, leaf by leaf: released numbers.

    Attributes
    ----------
    counts : int64[l]
        Noisy counts of what waited.
    even : float64[l]
        Growth of the whole in equally long time, by the last count, shared out by the estimates.
    own : float64[l]
        Growth of the leaf itself, by the last count.
    estimate : float64[l]
        Estimated points in the leaf before.
    elapsed : int
        Steps since the last count.
    coarse : float
        The part of what came, 0 to 1, that stands out so far in its leaf that past counts should have cut it.
    """

    counts: Integers
    even: Floats
    own: Floats
    estimate: Floats
    elapsed: int
    coarse: float = 0.0


@cache
def periods(most: int) -> Integers:
    """The periods that are considered, 1 to ``most``, in steps of a fifth or so."""
    return np.unique(np.rint(np.geomspace(1, most, 2 + int(6 * np.log(most)))).astype(np.int64))


def check_pace(pace: ReleaseSchedule, period: int | None, most: int) -> None:
    """ValueError for a pace that no count leaves, of a stream whose period is given or at most ``most``."""
    if not (1 <= pace.period <= most if period is None else pace.period == period):
        raise ValueError("a period out of range")
    if not (0.0 <= pace.weight <= 1.0 and math.isfinite(pace.products) and 0.0 <= pace.squares < math.inf):
        raise ValueError("a pace out of range")
    if not 0 <= pace.prompt < 2**62:
        raise ValueError("a pace out of range")
    if pace.costs is not None and not (
        period is None and pace.costs.shape == periods(most).shape and np.isfinite(pace.costs).all()
    ):
        raise ValueError("costs out of range")


def after_jump(pace: ReleaseSchedule, jumped: bool, now: int) -> tuple[ReleaseSchedule, bool]:
    """The pace, and whether PrivTree chooses the next cells, after a count that found a jump or did not.

    A stream that jumped may do so again: for a while every batch is counted as :class:`fastdp.PHDStream` would.
    """
    if jumped:
        pace = replace(pace, prompt=now + PROMPT_STEPS)
    return (pace, False) if now >= pace.prompt else (replace(pace, period=1), True)


def following_pace(
    pace: ReleaseSchedule, growth: Growth, total: float, n_steps: int, noise: float, most: int | None
) -> ReleaseSchedule:
    """The pace after a count.

    Parameters
    ----------
    pace : ReleaseSchedule
        Before.
    growth : Growth
        What the count found.
    total : float
        Estimated points in all, before.
    n_steps : int
        Steps so far.
    noise : float
        Variance of one count's noise.
    most : int, optional
        Longest period; None for one that stays.

    Notes
    -----
    A count's noise is new, so that the products below, of this count and the one before, have no bias from noise.
    """
    moved, found = growth.own - growth.even, growth.counts - growth.even
    per_step = 1.0 / growth.elapsed**2
    products = WEIGHT_MEMORY * pace.products + per_step * _dot(moved, found)
    squares = WEIGHT_MEMORY * pace.squares + per_step * _dot(moved, moved)
    weight = min(max(products / squares, 0.0), 1.0) if squares > 0.0 else 0.0
    pace = replace(pace, weight=weight, products=products, squares=squares)
    if most is None:
        return pace
    surprise = per_step * (found - weight * moved) ** 2
    relative = 1.0 / np.maximum(growth.estimate, max(FLOOR * total, 1.0))
    relative /= relative.sum()
    grid = periods(most)
    ahead = HORIZON_PART * max(n_steps, MIN_HORIZON) * noise
    costs = np.array([_dot(relative, np.sqrt(ahead / p + surprise * (p * p / 3.0))) for p in grid.tolist()])
    if pace.costs is not None:
        costs = PERIOD_MEMORY * pace.costs + (1.0 - PERIOD_MEMORY) * costs
    wanted = float(grid[costs.argmin()])
    period = min(max(wanted, growth.elapsed / LARGEST_FACTOR), growth.elapsed * LARGEST_FACTOR)
    return replace(pace, period=min(max(round(period), 1), most), costs=costs)


def _dot(a: Floats, b: Floats) -> float:
    """Sum of products in NumPy's own order: BLAS adds in another one on each kind of processor."""
    return float(np.multiply(a, b).sum())
