"""What is chosen from the rows before the sums: the clip, and which private keys are released.

Proofs: ``docs/privacy.md``, "Tables".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import AccuracyWarning, warn
from fastdp.noise.bulk import PrefixNoise
from fastdp.noise.key import Key
from fastdp.noise.prefix import start_chain
from fastdp.noise.sampler import discrete_laplace_law
from fastdp.tables.columns import KeyRow, sorted_keys
from fastdp.tables.plan import TablePlan
from fastdp.thresholds.base import ThresholdTask, held_out
from fastdp.thresholds.scale_free import MIN_COUNT, ScaleFree

Integers = NDArray[np.int64]
#: Counts of the choice stay below this, so that its scores fit; more rows count as so many.
MAX_ROWS = 2**39
#: A clip among so many candidates, the lowest ones, is warned of.
LOWEST = 10
#: Digits of a threshold's tail, and by how much it is rounded up.
_TAIL = Context(prec=60)
_SLACK = Decimal(1) + Decimal(10) ** -40


def noisy_counts(counts: Sequence[int], contributions: int, epsilon: float, key: Key, purpose: str) -> Integers:
    """Counts of which one unit changes ``contributions`` in all, with noise bound to them."""
    law = discrete_laplace_law(Fraction(contributions) / Fraction(epsilon))
    exact = np.array(counts, np.int64)
    own = key.within(purpose)
    return exact + PrefixNoise(own).draw(exact, law, start_chain(own), 0)


# The clip.


class ClipCounter(Protocol):
    """A histogram of values over the candidates."""

    @property
    def counts(self) -> Integers:
        """Rows of each bin."""

    def observe(self, values: NDArray[np.float64]) -> None:
        """Add finite values."""


def _task(plan: TablePlan, rows: int) -> ThresholdTask:
    """ScaleFree's task, whose target m sqrt(6 K) / (r eps) is ``plan.rows_above``.

    The k rows of a unit move each of its counts by up to k, all in one direction: epsilon / k for one row.
    """
    top = plan.bound[1] if plan.bound else 1.0
    each = Fraction(plan.clip_epsilons[1]) / plan.contributions
    epsilon = float(each)
    while Fraction(epsilon) > each:
        epsilon = math.nextafter(epsilon, 0.0)
    return ThresholdTask(
        epsilon=epsilon,
        bound=top,
        holdout=rows,
        max_range=rows,
        # The candidates must not depend on what is known of the table only behind its first reading.
        resolution=2.0 ** (math.frexp(top)[1] - 33),
        publish_epsilon=1.0,
        noise_constant=plan.rows_above**2 / 6.0,
    )


def clip_counter(plan: TablePlan) -> ClipCounter:
    """An empty histogram of values over the candidates, which do not depend on the rows."""
    return ScaleFree().chooser(_task(plan, MAX_ROWS))


def count_rows(plan: TablePlan, counts: Integers, key: Key) -> int:
    """How many rows lie above the lowest candidate, released: zeros say nothing about the clip."""
    noisy = noisy_counts([int(counts[1:].sum())], plan.contributions, plan.clip_epsilons[0], key, "rows")
    return min(max(int(noisy[0]), 2), MAX_ROWS)


def choose_clip(plan: TablePlan, counts: Integers, key: Key) -> float:
    """The upper end of the clip, from a histogram that :func:`clip_counter` filled.

    ``plan.rows`` stands for the length of the hold-out in ScaleFree's rule, and for what it would count.
    """
    task = _task(plan, plan.rows or 2)
    chooser = ScaleFree().chooser(task, above=task.holdout)
    packed = np.ascontiguousarray(np.minimum(counts, MAX_ROWS // counts.size))
    chooser.counts[:] = packed
    if chooser.resolved < MIN_COUNT and plan.cells:
        warn(
            f"clip = None: an estimated {plan.rows:,} rows above 0 in {plan.cells:,} windows and keys are too few to "
            f"choose a clip well at epsilon = {plan.epsilon:g}; expected longer windows, a larger epsilon, or a clip "
            "that is known publicly (clip=)",
            AccuracyWarning,
        )
    # The same rows in other windows (stop=) give other scales: their noise shares no word.
    clip = chooser.choose(held_out(key.within("clip", task.epsilon, chooser.target, chooser.slope), packed))
    if clip <= chooser.candidates[:LOWEST][-1] * task.resolution:
        warn(
            f"clip = None: {clip:.3g} was chosen, next to nothing beside the bound, {task.bound:g}, so that sums are "
            "about 0; expected, unless nearly all values are 0, longer windows, a larger epsilon, or a clip that is "
            "known publicly (clip=)",
            AccuracyWarning,
        )
    return clip


# Private keys.


def key_threshold(contributions: int, epsilon: float, delta: float) -> int:
    """The least T such that keys of one unit alone pass it with probability at most delta, together.

    A key with c rows passes if c + noise >= T: probability S(c) = q^(T - c) / (1 + q) for T > c, with q =
    exp(-epsilon / k).  S(c) / c falls and then rises in c, so a unit whose k rows lie on keys of its own reaches at
    most max(k S(1), S(k)) in all, whatever their distribution.
    """
    k, wanted = contributions, Decimal(delta)
    exponent = _TAIL.divide(_decimal(Fraction(epsilon)), Decimal(k))

    def reached(threshold: int) -> bool:
        """Whether the tails, rounded up, stay within delta."""
        one_plus_q = _TAIL.add(Decimal(1), _TAIL.exp(-exponent))

        def tail(count: int) -> Decimal:
            power = _TAIL.exp(_TAIL.multiply(-exponent, Decimal(threshold - count)))
            return _TAIL.multiply(_TAIL.divide(power, one_plus_q), _SLACK)

        return max(_TAIL.multiply(Decimal(k), tail(1)), tail(k)) <= wanted

    low, high = k, k + 1
    while not reached(high):
        low, high = high, k + 2 * (high - k)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high


def _decimal(number: Fraction) -> Decimal:
    return _TAIL.divide(Decimal(number.numerator), Decimal(number.denominator))


def choose_keys(plan: TablePlan, counts: Mapping[KeyRow, int], key: Key) -> list[KeyRow]:
    """The keys whose noisy count of rows passes the threshold, in the order of the keys."""
    if not counts:
        return []
    rows = sorted_keys(counts)
    noisy = noisy_counts([counts[row] for row in rows], plan.contributions, plan.key_epsilon, key, "keys")
    least = key_threshold(plan.contributions, plan.key_epsilon, plan.key_delta)
    return [row for row, count in zip(rows, noisy.tolist(), strict=True) if count >= least]
