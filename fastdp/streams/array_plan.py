"""Plans of finished arrays: shares and errors of a release, before any data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastdp.errors import ParameterError
from fastdp.kinds import Floats
from fastdp.notebook import as_html, as_text
from fastdp.streams.array_rule import MOST_BLOCKS, NAMES, ArrayRule
from fastdp.validation import check_mean

#: Parts of the bound: a low theta, which is shown beside the bound, and the mean if none is given.  The part of all
#: values whose sum is shown beside the total.
LOW_THETA, USUAL_MEAN, PART = 1 / 10, 1 / 20, 50
#: At most so many blocks are planned: each is held in memory.
MOST_PLANNED = 2**26
HEADS = ("theta", "blocks", *NAMES, "total +-", f"sum of 1/{PART} +-")


class Outcome(NamedTuple):
    """A theta and a number of blocks that may be chosen.

    `shares`: of the budget, by step; `errors`, `half_widths`: of the total, and of the sum of 1/50 of the values.
    """

    theta: float
    blocks: int
    shares: dict[str, float]
    errors: Floats
    half_widths: Floats


@dataclass(frozen=True)
class ArrayShares:
    """Fractions of a finished array's budget, with half-widths, for outcomes of its choices."""

    outcomes: tuple[Outcome, ...]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Printed row of each outcome, under :data:`HEADS`."""
        return [
            (
                f"{theta:.4g}",
                f"{blocks:,}",
                *(f"{shares.get(name, 0.0):.1%}" for name in NAMES),
                *(f"{half:.4g}" for half in half_widths),
            )
            for theta, blocks, shares, _, half_widths in self.outcomes
        ]

    def __str__(self) -> str:
        return as_text([HEADS, *self.rows])

    def _repr_html_(self) -> str:
        return as_html("Shares by outcome of the choices", HEADS, self.rows)


def largest_epsilon(size: int) -> float:
    """An epsilon up to which such arrays can be planned."""
    return math.inf if size <= MOST_PLANNED else MOST_PLANNED / (size * float(MOST_BLOCKS))


def plan_array(
    size: int,
    epsilon: float,
    bound: float | None,
    *,
    contributions: int,
    delta: float,
    mean: float | None,
    confidence: float,
) -> tuple[str, ArrayShares]:
    """Unit of :func:`fastdp.release`, and its plan for values with this mean."""
    rule = ArrayRule(size, epsilon, bound, contributions=contributions, delta=delta)
    mean = rule.bound * USUAL_MEAN if mean is None else check_mean(mean, 0.0, rule.bound)
    lengths = rule.block_lengths or [size]
    if (blocks := -(-size // lengths[0])) > MOST_PLANNED:
        most = largest_epsilon(size)
        raise ParameterError(
            f"size = {size}, epsilon = {epsilon!r}: expected at most {MOST_PLANNED:,} blocks, these may have "
            f"{blocks:,}; epsilon = {most:g} and less can be planned, or fewer values",
            parameter="size",
        )
    low = [round(rule.top * LOW_THETA)] if rule.shares.threshold else []
    starts, stops, outcomes = np.zeros(2, np.int64), np.array([size, -(-size // PART)]), []
    for theta in (rule.top, *low):
        for length in dict.fromkeys((lengths[-1], lengths[0])):
            answer = rule.expected(theta, length, mean)
            ends = answer.interval(starts, stops, confidence)
            errors = answer.std_error(starts, stops)
            shares, half_widths = dict(answer.shares), (ends[1] - ends[0]) / 2.0
            blocks = max(answer.sums.size, 1)
            outcomes.append(Outcome(answer.threshold * answer.scale, blocks, shares, errors, half_widths))
    return rule.stated.unit, ArrayShares(tuple(outcomes))
