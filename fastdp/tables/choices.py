"""Private choices before the sums: rows by size, clips, rows of persons (``docs/tables_proofs.md``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fastdp.errors import AccuracyWarning, argument, warn
from fastdp.kinds import Floats, Integers
from fastdp.noise.bound_noise import PrefixNoise
from fastdp.noise.chain_keys import start_chain
from fastdp.noise.key import Key
from fastdp.noise.sampler import (
    Distribution,
    NoiseName,
    geometric_distribution,
    noise_distribution,
)
from fastdp.tables.quantities import FIRST_SUMS, CellRows, drawn, not_finite
from fastdp.tables.released import Measured, RowNumbers
from fastdp.tables.shares import MAX_PENALTY, MAX_ROWS, UNIT, WEIGHT, ColumnTask, Shares, shares_of
from fastdp.tables.sizes import PARTS, Choice, Number, Side, Unit, beyond, choose, edges_of
from fastdp.tables.tails import Tail
from fastdp.thresholds.base import draw_noise, held_out
from fastdp.units import MOST_DROPPED
from fastdp_kernels.tables import window_sums

#: Noise is as large as numbers up to so many deviations, unless all together have so many.
DROWNS, SURE = 2.0, 100.0
#: A bound is far from the largest size seen; a delta that may buy less noise.
NEARER, WITH_DELTA = 4.0, 1e-9
#: So many noise scales of the choice of a person's rows are its target number of persons, and a step of its slope.
CLEAR_TARGET, CLEAR_SLOPE = 1.5, 1.75
#: The share of rows beyond a clip is unknown if its standard error is larger, beside a quarter of the share.
VAGUE = 0.02
#: A share is above a limit if it is so many deviations; of dropped rows it is warned of above this one.
CLEAR, MANY_DROPPED = 3.0, 0.1


def noisy_number(exact: int, sensitivity: int, budget: float, noise: NoiseName, key: Key) -> Number:
    """`exact` with noise bound to it; `sensitivity`: of a unit."""
    distribution = noise_distribution(noise, sensitivity, 1, budget)
    (noisy,) = _noisy(np.array([exact]), distribution, key.within(sensitivity, budget)).tolist()
    return Number(noisy, drawn(distribution).variance)


def _noisy(exact: Integers, distribution: Distribution, key: Key) -> Integers:
    return exact + PrefixNoise(key).draw(exact, distribution, start_chain(key), 0) if exact.size else exact


def best_candidate(
    above: Integers, sizes: Floats, moved: int, epsilon: float, target: float, key: Key, label: str
) -> int:
    """Candidate that trades rows above it, beyond `target`, against its size; noisy max for `epsilon`.

    Scores are -max(0, above - target) - slope ln(size); a unit moves `above` in one direction by at most `moved`.
    """
    scale = moved / epsilon
    target = max(target, CLEAR_TARGET * scale)
    slope = max(target, CLEAR_SLOPE * scale)
    counted = np.minimum(above, MAX_ROWS)
    beyond = np.maximum(UNIT * counted - round(min(UNIT * target, MAX_PENALTY)), 0)
    penalties = np.rint(np.minimum(UNIT * slope * np.log(sizes / sizes[0]), MAX_PENALTY)).astype(np.int64)
    distribution = geometric_distribution(Fraction(UNIT * moved) / Fraction(epsilon))
    # Candidates and scale too: choices under other ones share no word.
    own = held_out(key.within(label, moved, epsilon, target, *sizes.tolist()), np.ascontiguousarray(counted))
    return int(np.argmax(draw_noise(distribution, 1, sizes.size, own)[0] - beyond - penalties))


# Rows by size.


class SizeCounts:
    """Rows by size of one column, each in one bin; a person's rows share :data:`WEIGHT` parts.

    Bins: sizes above 0, sizes below 0, zeros, values below and above the bound.
    """

    def __init__(self, ends: tuple[float, float]) -> None:
        self._ends = np.array(ends)
        self._edges = np.full((2, PARTS.size + 1), -1.0)
        for side, end in enumerate((ends[1], -ends[0])):
            if end > 0.0:
                self._edges[side, :-1] = edges_of(end)
        self.counts: Integers = np.zeros(np.count_nonzero(self._edges > 0.0) + 3, np.int64)

    def add(self, rows: CellRows, place: int, span: tuple[int, int], each: Integers | None = None) -> None:
        """Add values of windows [first, last); ``each``: rows of their persons."""
        weight, sizes = (1, np.empty(0, np.int64)) if each is None else (WEIGHT, each)
        given = rows.windows, rows.codes, rows.values[place], *span, self._ends, self._edges
        if not window_sums.count_sizes(*given, weight, sizes, self.counts):
            raise not_finite()


class Sizes(NamedTuple):
    """Released rows by size: above 0, below 0, beyond the bounds, all."""

    sides: tuple[Side, ...]
    past: tuple[Number, Number]
    rows: Number

    def share_above(self, clips: Sequence[float]) -> float | None:
        """Estimated share of rows above the clips, or None."""
        found = [*self.past, *(each.rows_above(clip) for each, clip in zip(self.sides, clips, strict=True))]
        above, deviation = sum(each.value for each in found), math.sqrt(sum(each.variance for each in found))
        if not self.rows.known or deviation > VAGUE * self.rows.value + above / 4.0:
            return None
        return min(1.0, max(0.0, above / self.rows.value))


def release_sizes(task: ColumnTask, exact: Integers, key: Key, counted: Number | None = None) -> Sizes:
    """Released :class:`SizeCounts`; ``counted``: persons' rows."""
    distribution, moved = _noise_of_sizes(task)
    noisy = _noisy(exact, distribution, key.within("sizes", moved, task.sizes, *task.ends)) / task.parts
    unit = Unit(task.contributions)
    if counted is not None:
        persons = max(float(noisy.sum()), 1.0)
        unit = unit._replace(per=min(max(counted.value / persons, 1.0), float(task.contributions)))
    return _sizes(task, noisy, unit)


def expected_sizes(task: ColumnTask, rows: float, mean: float) -> Sizes:
    """Sizes expected of exponential values with this mean."""
    unit, found = Unit(task.contributions, float(task.contributions) if task.weighs else None), list[Floats]()
    for size, end in ((mean, task.ends[1]), (-mean, -task.ends[0])):
        if end > 0.0:
            # Values past the bound are taken for those at it.
            above = np.exp(-np.append(edges_of(end)[1:], 0.0) / size) if size > 0.0 else np.zeros(PARTS.size)
            found.append(np.diff(above, prepend=0.0) * rows / unit.weight)
    return _sizes(task, np.concatenate([*found, np.zeros(3)]), unit)


def _noise_of_sizes(task: ColumnTask) -> tuple[Distribution, int]:
    moved = WEIGHT if task.weighs else task.contributions
    return noise_distribution(task.noise, moved, 1, task.sizes), moved


def _sizes(task: ColumnTask, noisy: Floats, unit: Unit) -> Sizes:
    variance, (low, high) = drawn(_noise_of_sizes(task)[0]).variance / task.parts**2, task.ends
    edges = [edges_of(end) for end in (high, -low) if end > 0.0]
    parts = np.split(noisy[:-3], [edges[0].size])
    sides = tuple(Side(*each, math.sqrt(variance), unit) for each in zip(edges, parts, strict=False))
    below, above = (Number(unit.weight * each, unit.weight**2 * variance) for each in noisy[-2:].tolist())
    rows = Number(unit.weight * float(noisy.sum()), unit.weight**2 * noisy.size * variance)
    return Sizes(sides, (below, above), rows)


def choose_clips(task: ColumnTask, found: Sizes) -> Choice:
    """Clips in whole steps of the grid."""
    chosen = choose(found.sides, task.errors, task.cells, task.together, task.least)
    clip, second = (max(1, round(each / task.grid)) * task.grid if each else 0.0 for each in chosen[:2])
    return Choice(clip, second, chosen.cells, not chosen.cells or second > clip)


def moved_by_tail(task: ColumnTask, choice: Choice) -> int:
    """Steps by which a unit moves the tail's number."""
    return task.contributions * round((choice.second - choice.clip) / task.grid)


def tail_of(
    shares: Shares, name: str, sizes: Sizes, choice: Choice | None = None, number: Number | None = None
) -> Tail:
    """Released facts beyond a column's body; ``choice``: None of a known clip."""
    column, task, clips = shares.plan.column(name), shares.task(name), None
    if choice is None:
        clip = next(q.ends for q in shares.quantities if q.column == name and q.name in FIRST_SUMS)
        low, high = column.ends
        clips = [end for end, most in ((high, task.ends[1]), (-low, -task.ends[0])) if most > 0.0]
        highest = max((each.highest for each in sizes.sides if each.known), default=0.0)
        choice = Choice(max(clips), max(highest, *clips), cells=True, tail=False)
    else:
        clip = ends_within(column.ends, choice.clip)
    value, variance = number or (None, 0.0)
    if value is not None and len(sizes.sides) == 1 and task.ends[1] <= 0.0:
        value = -value
    facts = beyond(sizes.sides, choice, value, variance, sizes.sides[0].unit, clips)
    share = sizes.share_above(clips or [choice.clip] * len(sizes.sides))
    ends = task.ends if column.chooses or column.ends != task.ends else clip
    return Tail(clip, ends, column.bound is not None, sizes.sides, facts, sizes.past, share)


def ends_within(bound: tuple[float, float], clip: float) -> tuple[float, float]:
    """Ends of values of sizes up to the clip, or 0."""
    return (max(bound[0], -clip), min(bound[1], clip)) if clip else (0.0, 0.0)


def warn_of_past(column: str, tail: Tail) -> None:
    """Warn of rows past the bound."""
    low, high = tail.ends
    for end, number in tail.past.items():
        name = "bound" if tail.bounded else "clip"
        if not end and not low:
            how, wider = f"are negative, below the {name}, and count as 0", f"{name}=({-high:g}, {high:g})"
        else:
            how = f"lie {('below', 'above')[end]} the {name} and count as {tail.ends[end]:g}"
            wider = "a wider bound"
        warn(f"{column}: an estimated {number:,} rows {how}; expected {wider} for them to count", AccuracyWarning)


def warn_of_noise(shares: Shares, column: str, tail: Tail | None, measured: Measured | None) -> None:
    """Warn if cells have no sums, or noise as large as most."""
    if tail is not None and tail.past:
        return
    if tail is not None and not tail.cells:
        more = ", as no sizes stand out of the noise" if tail.largest is None else ""
        told = f"{column}: one number was released for the whole table{more}"
        warn(f"{told}; expected {ways_of(shares, column, tail)}", AccuracyWarning)
    for at, q in enumerate(measured.quantities if measured else ()):
        if q.column != column or q.name not in ("total", "count") or measured is None or not measured.steps.size:
            continue
        steps, variance = measured.steps[at].astype(np.float64), measured.noise[at].variance
        square, whole = float(np.mean(np.square(steps))) - variance, abs(float(steps.sum()))
        if square <= DROWNS**2 * variance and whole <= SURE * math.sqrt(steps.size * variance):
            of = "sum" if q.name == "total" else "number of rows"
            where = "a window and key" if steps.size > 1 else "all rows"
            told = f"the noise in the {of} of {where}, {math.sqrt(variance) * q.resolution:.3g}, is as large as the"
            warn(f"{column}: {told} number; expected {ways_of(shares, column, tail)}", AccuracyWarning)


def ways_of(shares: Shares, column: str, tail: Tail | None) -> str:
    """Ways to less noise beside the number."""
    plan, found = shares.plan, [f"a larger {argument(epsilon=...)}"]
    if tail is None or tail.cells or tail.largest is not None:
        found += ["longer windows"] * (plan.calendar is not None) + ["fewer keys"] * bool(plan.by)
    found += [f"a smaller {argument(rows=...)}"] * (plan.contributions > 1)
    if tail is not None and max(-tail.ends[0], tail.ends[1]) > NEARER * (tail.largest or 0.0):
        found.append(f"a nearer {'bound' if plan.column(column).chooses else 'clip'}")
    if not plan.delta:
        other = shares_of(replace(plan, noise="gaussian", delta=WITH_DELTA))
        found += [f"a {argument(delta=WITH_DELTA)}"] * (other.log_variance() < shares.log_variance())
    return " or ".join([", ".join(found[:-1]), found[-1]] if found[1:] else found)


# Rows of persons.


def warn_of_dropped(rows: RowNumbers, contributions: int, where: str) -> None:
    """Warn of many dropped rows; `where`: how more would count."""
    both = Number(rows.dropped.value + rows.counted.value, rows.dropped.variance + rows.counted.variance)
    deviation = math.sqrt(rows.dropped.variance + MANY_DROPPED**2 * both.variance)
    known = rows.counted.known and rows.dropped.known
    if known and rows.dropped.value - MANY_DROPPED * both.value > CLEAR * deviation:
        share = min(1.0, rows.dropped.value / both.value)
        warn(
            f"rows = {contributions}: at least an estimated {share:.0%} of the persons' rows are dropped; counts and "
            f"sums are scaled up for them, as if they lay where the others do; expected {where}",
            AccuracyWarning,
        )


def row_candidates(most: int) -> Integers:
    """Candidates for a person's rows: 1, 2, 5, 10, ... and `most`."""
    found = [digit * 10**power for power in range(len(str(most))) for digit in (1, 2, 5)]
    return np.array([*(each for each in found if each < most), most], np.int64)


def choose_rows(totals: Integers, most: int, dropped: float, noise: NoiseName, epsilon: float, key: Key) -> int:
    """Rows of a person and period that count, by noisy max over persons with more than 5 k rows.

    `totals`: rows of each person and period; `most`: public limit; `dropped`: budget of the number of dropped rows.
    """
    candidates = row_candidates(most)
    above = totals.size - np.searchsorted(np.sort(totals), (1 + MOST_DROPPED) * candidates, "right")
    deviation = MOST_DROPPED * (math.sqrt(2.0) if noise == "laplace" else 1.0) / dropped
    # Mean excess of a person with more, in parts of 5 k, as measured on five tables.
    target = deviation / (1 + MOST_DROPPED) / math.sqrt(0.6)
    return int(candidates[best_candidate(above, candidates.astype(float), 1, epsilon, target, key, "auto rows")])
