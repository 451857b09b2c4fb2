"""Private choices and numbers before the sums, by noisy max over monotone counts (``docs/tables.md``, "Proofs")."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from fastdp.errors import AccuracyWarning, argument, warn
from fastdp.kinds import Floats, Integers
from fastdp.noise.bulk import PrefixNoise
from fastdp.noise.chain_keys import start_chain
from fastdp.noise.key import Key
from fastdp.noise.sampler import (
    Distribution,
    NoiseName,
    geometric_distribution,
    laplace_distribution,
    noise_distribution,
)
from fastdp.tables.quantities import drawn
from fastdp.tables.released import Measured, RowNumbers
from fastdp.tables.shares import FINE, MAX_PENALTY, MAX_ROWS, MOST_DROPPED, UNIT, WEIGHT, ColumnTask
from fastdp.tables.tails import Number, Tail
from fastdp.thresholds.base import ThresholdTask, draw_noise, held_out
from fastdp.thresholds.scale_free import ScaleFree

#: A clip is resolved if rows but 0 within it (rows past the bound are known) are so many deviations, or those before
#: its choice so many noise scales, and rows beyond it are not so many times more.
INSIDE, COUNTED, TWICE = 7.0, 16.0, 2.0
#: Noise of so many deviations as large as the number is warned of.
DROWNS = 2.0
#: ln of the number of grid steps in the bound, for the choice.
SPAN = 33.0 * math.log(2.0)
#: So many noise scales of the clip's choice are its target number of rows, and a step of its slope.
RESOLVED, RESOLVED_SLOPE = 16.0, 4.0
#: The same for the rows of a person.
CLEAR_TARGET, CLEAR_SLOPE = 1.5, 1.75
#: A share is known if the rows are so many deviations of their noise, and above a limit if it is so many.
KNOWN, CLEAR = 8.0, 3.0
#: The share of rows beyond a clip is unknown if its standard error is larger, beside a quarter of the share.
VAGUE = 0.02
#: Shares of rows beyond the clip, and of rows that were dropped, that are warned of.
MANY_BEYOND, MANY_DROPPED = 0.5, 0.1


def noisy_counts(counts: Sequence[int], contributions: int, epsilon: float, key: Key, purpose: str) -> Integers:
    """`counts` with noise bound to them; one unit changes at most `contributions`."""
    distribution = laplace_distribution(Fraction(contributions) / Fraction(epsilon))
    return _noisy(np.array(counts, np.int64), distribution, key.within(purpose))


def noisy_number(exact: int, sensitivity: int, budget: float, noise: NoiseName, key: Key) -> Number:
    """`exact`, which a unit moves by at most `sensitivity`, with noise bound to it."""
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


# The clip and the rows beyond it.


class Clip(NamedTuple):
    """Ends of a clip, loss of their choice, and if the rows counted before stood out."""

    low: float
    high: float
    epsilon: float
    counted: bool


def _threshold_task(top: float, each: Fraction, wanted: float, rows: int) -> ThresholdTask:
    """ScaleFree's task, whose target m sqrt(6 K) / (r eps) is `wanted`."""
    epsilon = float(each)
    while Fraction(epsilon) > each:
        epsilon = math.nextafter(epsilon, 0.0)
    return ThresholdTask(
        epsilon=epsilon,
        bound=top,
        holdout=rows,
        max_range=rows,
        # The candidates must not depend on facts that only the rows reveal.
        resolution=2.0 ** (math.frexp(top)[1] - 33),
        publish_epsilon=1.0,
        noise_constant=wanted**2 / 6.0,
    )


class ValueCounts:
    """Histograms of values over candidates for both ends of a clip, by the bound alone.

    `sides` are -1 for values below 0, 1 for those above, as the bound allows.
    """

    def __init__(self, bound: tuple[float, float], *, persons: bool = False) -> None:
        low, high = bound
        self.bound = bound
        self.sides = [side for side, end in ((-1, -low), (1, high)) if end > 0.0]
        tasks = {side: _threshold_task(self.top(side), Fraction(1), 1.0, MAX_ROWS) for side in self.sides}
        self._choosers = {side: ScaleFree().chooser(task) for side, task in tasks.items()}
        #: Parts of a step in which rows are counted.
        self._fine = FINE if persons else 1

    @property
    def arrays(self) -> list[Integers]:
        return [each.counts for each in self._choosers.values()]

    def top(self, side: int) -> float:
        return abs(self.bound[side > 0])

    def observe(self, values: Floats) -> None:
        """Add finite values; one of the other sign counts as 0."""
        for side, chooser in self._choosers.items():
            chooser.observe(values if side > 0 else -values)

    def weigh(self, values: Floats, sizes: Integers) -> None:
        """Add finite values, each of a person with so many of them and :data:`WEIGHT` - 1 steps in all."""
        shares = (WEIGHT - 1) * FINE // sizes
        for side, chooser in self._choosers.items():
            bins = np.minimum(np.searchsorted(self.candidates(side), side * values), chooser.counts.size - 1)
            # Doubles are exact up to 2^53, the parts of 2^27 persons.
            chooser.counts[:] += np.bincount(bins, shares, chooser.counts.size).astype(np.int64)

    def candidates(self, side: int) -> Floats:
        chooser = self._choosers[side]
        step = _threshold_task(self.top(side), Fraction(1), 1.0, MAX_ROWS).resolution
        units: Floats = np.minimum(chooser.candidates * step, self.top(side))
        return units

    def counts(self, side: int) -> Integers:
        """Histogram for `side`: rows below the first candidate, then between neighbours; with persons in steps."""
        # Sums from the top are rounded and cut off, not bins: a unit then moves all of them in one direction, and
        # those of both sides by WEIGHT steps in all.
        above = np.minimum(np.cumsum(self._choosers[side].counts[::-1]) // self._fine, MAX_ROWS)
        return np.ascontiguousarray(np.diff(above, prepend=0)[::-1])


def choose_clip(task: ColumnTask, found: ValueCounts, key: Key, counted: Number | None = None) -> Clip:
    """Ends of the clip by ScaleFree's noisy max on either side of 0.

    Both cost as much as the dearer.  The released number of rows above the lowest candidate replaces ScaleFree's
    hold-out length.  With persons (`counted`: their released rows), those of one share :data:`WEIGHT` steps.
    """
    k, sides = task.contributions if counted is None else WEIGHT, found.sides
    noisy = noisy_counts([int(found.counts(side)[1:].sum()) for side in sides], k, task.counting, key, "rows")
    rows = [min(max(each, 2), MAX_ROWS) for each in noisy.tolist()]
    if counted is not None:
        persons = sum(rows) / WEIGHT
        each_row = sum(rows) / min(max(counted.value, persons), persons * task.contributions)
        task = replace(task, contributions=WEIGHT, wanted=task.wanted * each_row)
    # A side with next to no rows would choose by its noise alone.
    clear = [each > CLEAR * k / task.counting for each in rows]
    ends, spent = dict.fromkeys((-1, 1), 0.0), 0.0
    for side, filled, chooses in zip(sides, rows, clear, strict=True):
        if any(clear) and not chooses:
            ends[side] = float(found.candidates(side)[0])
            continue
        epsilon = _choice_epsilon(task, filled)
        each = _threshold_task(found.top(side), Fraction(epsilon) / k, task.wanted, filled)
        chooser, counts = ScaleFree().chooser(each, above=filled), found.counts(side)
        chooser.counts[:] = counts
        # The same rows in other windows (stop=) give other scales: their noise shares no word.
        own = key.within("clip", side, each.epsilon, chooser.target, chooser.slope)
        ends[side] = chooser.choose(held_out(own, counts))
        spent = max(spent, epsilon)
    return Clip(*_clip_of(task, ends), spent, max(rows) > COUNTED * k / task.counting)


def _choice_epsilon(task: ColumnTask, rows: int) -> float:
    # As ScaleFree has it: the target is at most half of the rows, and slopes fit below the rest.
    target = min(task.wanted, rows / 2.0)
    slope = 0.5 * (rows - target) / SPAN
    return min(task.choosing, task.contributions * max(RESOLVED / target, RESOLVED_SLOPE / slope))


def _clip_of(task: ColumnTask, ends: dict[int, float]) -> tuple[float, float]:
    low, high = task.bound
    if low >= 0.0:
        return low, max(ends[1], min(high, 1.5 * low))
    if high <= 0.0:
        return min(-ends[-1], max(low, 1.5 * high)), high
    most = max(ends.values())
    below, above = (most, most) if task.alike else (ends[-1], ends[1])
    return max(low, -below), min(high, above)


def release_tail(
    task: ColumnTask,
    clip: tuple[float, float],
    edges: tuple[Floats, Floats],
    counts: Integers,
    whole: Number,
    key: Key,
    *,
    counted: bool = True,
) -> Tail:
    """Released :func:`count_tail`; `whole`: rows of all; `counted`: of :class:`Clip`."""
    distribution = noise_distribution(task.noise, task.contributions, 1, task.tail)
    own = key.within("tail", task.contributions, task.tail, *itertools.chain(*(each.tolist() for each in edges)))
    noisy, variance = _noisy(counts, distribution, own), drawn(distribution).variance
    bins, (below, above, inside) = noisy[:-3], noisy[-3:].tolist()
    deviation = math.sqrt(bins.size * variance)
    stands = counted or inside > INSIDE * math.sqrt(variance)
    resolved = stands and float(bins.sum()) <= max(TWICE * inside, 2.0 * deviation)
    found = Tail(clip, edges, bins, variance, None, (below, above), resolved)
    past = sum(number for end, number in found.past.items() if not math.isinf(edges[end][-1]))
    beyond = Number(float(bins.sum() + past), deviation**2)
    known = whole.value > KNOWN * math.sqrt(whole.variance)
    known &= deviation <= VAGUE * whole.value + beyond.value / 4.0
    return replace(found, share=min(1.0, max(0.0, beyond.value / whole.value))) if known else found


def warn_of_clip(column: str, tail: Tail, bound: tuple[float, float], whole: Number) -> None:
    """Warnings of rows past the bound, and of most (of `whole`) beyond the clip."""
    for end, number in tail.past.items():
        name = "clip" if math.isinf(tail.edges[end][-1]) else "bound"
        if not end and not bound[0]:
            how, top = f"are negative, below the {name}, and count as 0", bound[1]
            wider = f"{name}=({-top:g}, {top:g})"
        else:
            how = f"lie {('below', 'above')[end]} the bound and count as {bound[end]:g}"
            wider = "a wider bound"
        warn(f"{column}: an estimated {number:,} rows {how}; expected {wider} for them to count", AccuracyWarning)
    share = _share(Number(float(tail.counts.sum()), tail.counts.size * tail.variance), whole, MANY_BEYOND)
    if share is not None:
        warn(
            f"{column}: an estimated {share:.0%} of the rows lie beyond the clip, so that "
            "sums are far off; expected longer windows, a larger epsilon, or a wider clip that is known publicly "
            f"({argument(clip=...)})",
            AccuracyWarning,
        )


def warn_of_noise(column: str, tail: Tail, cells: Measured) -> None:
    """A warning if noise is as large as most cells' sums, or any means, or may hide as much beyond the clip."""
    at = next(i for i, each in enumerate(cells.quantities) if each.column == column)
    q, steps, variance = cells.quantities[at], cells.steps[at], cells.noise[at].variance
    if tail.past or not steps.size:
        return
    whole = float(steps.sum())
    if q.name == "total":
        square = float(np.mean(np.square(steps, dtype=np.float64))) - variance
    else:
        rows = cells.steps[[each.name for each in cells.quantities].index("count")]
        square = (max(0.0, float(rows.mean())) * (q.high - q.low) / 2.0) ** 2
        whole += q.centre * float(rows.sum())
    hidden = sum(end.hidden for end in tail.ends if not end.known)
    total = abs(whole) * q.resolution + sum(end.excess for end in tail.ends)
    if square <= DROWNS**2 * variance:
        where = "a window and key" if steps.size > 1 else "all rows"
        why = "" if tail.resolved else ", as too few nonzero values were counted to choose a clip below it"
        warn(
            f"{column}: the noise in the sum of {where}, {math.sqrt(variance) * q.resolution:.3g}, is as large as "
            f"the number{why}; expected longer windows, fewer keys, a larger epsilon, a nearer bound, or a clip that "
            f"is known publicly ({argument(clip=...)})",
            AccuracyWarning,
        )
    elif tail.resolved and hidden > total:
        warn(
            f"{column}: values up to the bound that sum to {hidden:.3g} may hide in the noise beyond the clip, "
            f"beside {total:.3g} that was counted, so intervals are about clipped values; expected a nearer bound, "
            f"a larger epsilon, or a clip that is known publicly ({argument(clip=...)})",
            AccuracyWarning,
        )


def _share(part: Number, whole: Number, limit: float) -> float | None:
    deviation = math.sqrt(part.variance + limit**2 * whole.variance)
    known = whole.value > KNOWN * math.sqrt(whole.variance)
    if not known or part.value - limit * whole.value <= CLEAR * deviation:
        return None
    return min(1.0, max(0.0, part.value / whole.value))


# Rows of persons.


def warn_of_dropped(rows: RowNumbers, contributions: int, where: str) -> None:
    """A warning if many rows are dropped, which names `where` the bound may be wider."""
    both = Number(rows.dropped.value + rows.counted.value, rows.dropped.variance + rows.counted.variance)
    share = _share(rows.dropped, both, MANY_DROPPED)
    if share is not None:
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
    """Rows of a person and period that count, by noisy max over numbers of persons with more than 5 k rows.

    `totals`: rows of each person and period; `most`: public limit; `dropped`: budget of the number of dropped rows,
    up to 4 k of a person, whose noise and rows beyond 5 k err alike.
    """
    candidates = row_candidates(most)
    above = totals.size - np.searchsorted(np.sort(totals), (1 + MOST_DROPPED) * candidates, "right")
    deviation = MOST_DROPPED * (math.sqrt(2.0) if noise == "laplace" else 1.0) / dropped
    # Mean excess of a person with more, in parts of 5 k, as measured on five tables.
    target = deviation / (1 + MOST_DROPPED) / math.sqrt(0.6)
    return int(candidates[best_candidate(above, candidates.astype(float), 1, epsilon, target, key, "auto rows")])
