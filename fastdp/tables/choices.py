"""Private choices from the rows before the sums: the clip, and the keys that are released.

Proofs: ``docs/privacy.md``, "Tables".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from typing import Protocol

import numpy as np

from fastdp.errors import AccuracyWarning, warn
from fastdp.kinds import Flags, Floats, Integers
from fastdp.noise.binding import PrefixNoise, start_chain
from fastdp.noise.key import Key
from fastdp.noise.sampler import laplace_distribution
from fastdp.tables.columns import Keys
from fastdp.tables.plan import ColumnPlan, TablePlan
from fastdp.tables.sums import ROWS, Quantity, Released, RowNumbers, Tail
from fastdp.thresholds.base import ThresholdTask, held_out
from fastdp.thresholds.scale_free import MIN_COUNT, ScaleFree

#: Counts of the choice stay below this, so that its scores fit; more rows count as so many.
MAX_ROWS = 2**39
#: A clip among so many candidates, the lowest ones, is warned of.
LOWEST = 10
#: Digits of a threshold's tail, and by how much it is rounded up.
_TAIL = Context(prec=60)
_SLACK = Decimal(1) + Decimal(10) ** -40


def noisy_counts(counts: Sequence[int], contributions: int, epsilon: float, key: Key, purpose: str) -> Integers:
    """`counts` with noise bound to them, int64[n]; one unit changes at most `contributions` in total."""
    law = laplace_distribution(Fraction(contributions) / Fraction(epsilon))
    exact = np.array(counts, np.int64)
    own = key.within(purpose)
    return exact + PrefixNoise(own).draw(exact, law, start_chain(own), 0)


# The clip.


class ClipCounter(Protocol):
    """Histogram of values over the candidates for the clip."""

    @property
    def counts(self) -> Integers:
        """Number of rows in each bin of the histogram, int64[bins]."""

    def observe(self, values: Floats) -> None:
        """Add finite values."""


def _task(column: ColumnPlan, rows: int, epsilon: float = 1.0, rows_above: float = 1.0) -> ThresholdTask:
    """ScaleFree's task, whose target m sqrt(6 K) / (r eps) is ``rows_above``."""
    return ThresholdTask(
        epsilon=epsilon,
        bound=column.high,
        holdout=rows,
        max_range=rows,
        # The candidates must not depend on facts that only the first reading of the table reveals.
        resolution=2.0 ** (math.frexp(column.high)[1] - 33),
        publish_epsilon=1.0,
        noise_constant=rows_above**2 / 6.0,
    )


def clip_counter(column: ColumnPlan) -> ClipCounter:
    """An empty histogram over the candidates, which do not depend on the rows."""
    return ScaleFree().chooser(_task(column, MAX_ROWS))


def count_rows(plan: TablePlan, column: str, counts: Integers, key: Key) -> int:
    """Released number of rows above the lowest candidate; zeros carry no information about the clip."""
    own, epsilon = key.within("rows", plan.place(column)), plan.budget.helper("rows", column)
    noisy = noisy_counts([int(counts[1:].sum())], plan.contributions, epsilon, own, "count")
    return min(max(int(noisy[0]), 2), MAX_ROWS)


def choose_clip(plan: TablePlan, column: ColumnPlan, counts: Integers, key: Key) -> float:
    """The upper end of the clip, from a histogram that :func:`clip_counter` filled.

    In ScaleFree's rule the released number of rows replaces the hold-out's length and its count.  The k rows of a
    unit change each of its counts by at most k, all in one direction: epsilon / k for one row.
    """
    rows = plan.rows[column.name]
    each = Fraction(plan.budget.helper("clip", column.name)) / plan.contributions
    epsilon = float(each)
    while Fraction(epsilon) > each:
        epsilon = math.nextafter(epsilon, 0.0)
    task = _task(column, rows, epsilon, plan.budget.rows_above(column.name))
    chooser = ScaleFree().chooser(task, above=task.holdout)
    packed = np.ascontiguousarray(np.minimum(counts, MAX_ROWS // counts.size))
    chooser.counts[:] = packed
    if chooser.resolved < MIN_COUNT and plan.cells:
        warn(
            f"clip = None: an estimated {rows:,} rows above 0 in {plan.cells:,} windows and keys are too few to "
            f"choose a clip well at epsilon = {plan.epsilon:g}; expected longer windows, a larger epsilon, or a clip "
            "that is known publicly (clip=)",
            AccuracyWarning,
        )
    # The same rows in other windows (stop=) give other scales: their noise shares no word.
    own = key.within("clip", plan.place(column.name), task.epsilon, chooser.target, chooser.slope)
    clip = chooser.choose(held_out(own, packed))
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
    """The least T such that a unit's own keys pass it with total probability at most delta.

    A key with c rows passes if c + noise >= T: probability S(c) = q^(T - c) / (1 + q) for T > c, with q =
    exp(-epsilon / k).  S(c) / c falls and then rises in c, so a unit whose k rows have their own keys reaches at
    most max(k S(1), S(k)) in total, however its rows are distributed.
    """
    k, wanted = contributions, Decimal(delta)
    exponent = _TAIL.divide(_decimal(Fraction(epsilon)), Decimal(k))

    def reached(threshold: int) -> bool:
        """True if the tails, rounded up, stay within delta."""
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


def choose_keys(plan: TablePlan, keys: Keys, counts: Integers, key: Key) -> Flags:
    """Flags of the keys whose noisy count of rows passes the threshold; none of a key without rows."""
    flags, some = np.zeros(keys.size, np.bool_), np.flatnonzero(counts)
    if not some.size:
        return flags
    # Noise is bound to counts in the order of the keys themselves.
    order = np.argsort(keys.chosen(counts > 0)[1][some])
    epsilon = plan.budget.helper("keys")
    noisy = noisy_counts(counts[some][order].tolist(), plan.contributions, epsilon, key, "keys")
    flags[some[order]] = noisy >= key_threshold(plan.contributions, epsilon, plan.budget.key_delta)
    return flags


# Cut values and rows of a release, in words: released shares of rows beyond the clip and of persons cut.
#
# Everything here but :func:`released_share` looks at released numbers only.

#: A share is known if the two counts together are so many noise scales, and above a limit if the difference is.
KNOWN, CLEAR = 8.0, 3.0
#: Shares of rows and persons that are warned of.
MANY_ROWS, MANY_PERSONS = 0.5, 0.1


def released_share(
    counts: tuple[int, int], sensitivity: int, epsilon: float, key: Key, purpose: str, limit: float
) -> tuple[float | None, bool]:
    """The first count's share of both, with noise, None if they are too small; and True if it exceeds `limit`.

    The counts are of disjoint rows or persons, of which one unit changes ``sensitivity`` in total.
    """
    noisy = noisy_counts(counts, sensitivity, epsilon, key, purpose).tolist()
    part, rest = (max(0, count) for count in noisy)
    scale, whole = sensitivity / epsilon, part + rest
    share = part / whole if whole > KNOWN * scale else None
    return share, share is not None and part - limit * whole > CLEAR * scale


def reported(quantities: Sequence[Quantity]) -> list[Quantity]:
    """Further sums for the report on clips: rows beyond each, and all rows unless they are counted already."""
    found = [replace(q, name="beyond") for q in quantities if q.name in ("total", "deviation")]
    counted = any(q.name == "count" for q in quantities)
    return [*found, *([Quantity("count")] if found and not counted else [])]


def tail(plan: TablePlan, q: Quantity, exact: Mapping[tuple[str, str], int], key: Key) -> Tail:
    """The clip of a column, with the released share of rows beyond it; warns if most rows are."""
    epsilon, k = plan.budget.helper("beyond", q.column), plan.beyond_sensitivity
    beyond, rows = exact["beyond", q.column], exact["count", ROWS]
    own = key.within("beyond", plan.place(q.column))
    share, many = released_share((beyond, rows - beyond), k, epsilon, own, "count", MANY_ROWS)
    if many:
        warn(
            f"clip: an estimated {share:.0%} of the rows lie beyond it, so that sums are far off; expected longer "
            "windows, a larger epsilon, or a wider clip that is known publicly (clip=)",
            AccuracyWarning,
        )
    return Tail(q.ends, q.ends, beyond=share, rows=1.0)


def row_numbers(plan: TablePlan, whole: int, cut: int, key: Key) -> RowNumbers:
    """The released share of persons (in each period) with dropped rows; warns if many have some."""
    epsilon = plan.budget.helper("persons")
    share, many = released_share((cut, whole), 1, epsilon, key, "persons", MANY_PERSONS)
    if many:
        where = "a per=" if plan.periods is None else f"a per= shorter than {plan.periods.every}"
        warn(
            f"rows = {plan.contributions}: an estimated {share:.0%} of the persons have more rows, which "
            f"are dropped, so that sums are too low; expected a larger rows=, or {where}",
            AccuracyWarning,
        )
    return RowNumbers(cut_persons=share)


def described(released: Released) -> list[tuple[str, str]]:
    """Names and texts of the clips and the dropped shares, for repr and plot."""
    found = []
    for column, each in released.tails.items():
        share = "" if each.share is None else f", which cut about {each.share:.2g} of the rows"
        of = "values" if len(released.tails) == 1 else f"values of {column!r}"
        low, high = each.clip
        text = f"{of} were clipped to [{low:g}, {high:g}]{share}; intervals are about clipped values"
        found.append(("clip", text))
    if not found:
        found.append(("clip", "counts: nothing is clipped"))
    if released.rows is not None and released.rows.cut_persons is not None:
        text = f"about {released.rows.cut_persons:.2g} of them have rows that were dropped"
        found.append(("persons", text))
    return found
