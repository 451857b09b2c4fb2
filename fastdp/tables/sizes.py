"""Clips, and intervals of sums, from noisy numbers of rows by size (measured in ``docs/tables_proofs.md``).

A row is in one bin of |value|, for each sign, with edges bound / 1.5^j.  These numbers give the body's clip, within
which each cell has a sum; the second clip, up to which one number of the table holds the excess; a model of the rest;
and the most that noise may hide beyond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import special

from fastdp.kinds import Flags, Floats

#: Neighbouring edges differ by this factor; their parts of the bound, equal on all machines.
RATIO = 1.5
PARTS: Floats = np.array([float(Fraction(2, 3) ** j) for j in range(57)])
#: A released number is known if it is so many standard deviations.
KNOWN = 3.0
#: So many neighbours stand out together if they hold so many standard deviations of their noise.
STANDS = {1: 6.5, 2: 5.6, 3: 5.2, 4: 5.0, 6: 5.0, 8: 5.0}
#: Groups of which the lowest may be the lowest that counts.
LOWEST = (1, 2, 4)
#: Bins below the top and above it that the tail's exponent is taken from; its usual value, the least and the most.
INSIDE, ABOVE, USUAL, LEAST, MOST = 3, 8, 1.5, 1.5, 20.0
#: Standard error of the modelled remainder, and of a range's part of the sum beyond the body, as shares.
MODEL, UNEVEN = 0.7, 0.5
#: The second clip is the bound if noise is then at most this share of the total.
CHEAP = 0.03


def edges_of(bound: float) -> Floats:
    """Edges of sizes, the bound first."""
    found: Floats = bound * PARTS
    return found


class Number(NamedTuple):
    """A released number and its noise variance."""

    value: float
    variance: float

    @property
    def known(self) -> bool:
        return self.value > KNOWN * math.sqrt(self.variance)


class Unit(NamedTuple):
    """Rows of a unit that count; ``per``: of persons, estimated rows a weight."""

    rows: int = 1
    per: float | None = None

    @property
    def weight(self) -> float:
        return 1.0 if self.per is None else self.per

    @property
    def most(self) -> float:
        return 1.0 if self.per is None else self.rows / self.per

    @property
    def spread(self) -> float:
        """Relative error of a sum by weights of unusual persons."""
        return 0.0 if self.per is None else max(self.rows / self.per - 1.0, 1.0 - 1.0 / self.per)


ONE_ROW = Unit()


@dataclass(frozen=True, eq=False)
class Side:
    """Values of one sign, by their noisy numbers by size."""

    edges: Floats
    #: In bins; of persons, weights.
    noisy: Floats
    #: Standard deviation of each.
    noise: float
    unit: Unit = ONE_ROW

    @cached_property
    def _lower(self) -> Floats:
        return np.append(self.edges[1:], 0.0)

    @cached_property
    def _middles(self) -> Floats:
        middles: Floats = np.sqrt(self.edges * np.maximum(self._lower, self.edges / RATIO))
        return middles

    @cached_property
    def counts(self) -> Floats:
        return self.unit.weight * self.noisy

    @cached_property
    def deviation(self) -> float:
        return self.unit.weight * self.noise

    @cached_property
    def _standing(self) -> tuple[int, int]:
        """First and last bin that stand out; (size, -1) if none."""
        h, size = self.counts, self.edges.size
        sums, top, low = np.concatenate([[0.0], np.cumsum(h)]), size, -1
        for m, deviations in STANDS.items():
            if m > size:
                break
            need = deviations * self.deviation * math.sqrt(m)
            # Wider groups count only wholly above the others, the lowest first.
            while top >= m and (i := np.flatnonzero(sums[m : top + 1] - sums[: top + 1 - m] > need)).size:
                low = int(i[-1]) + m - 1 if top == size else low
                top = int(i[-1] if m > 1 else i[0])
            i = np.flatnonzero(sums[m:] - sums[:-m] > need)
            if i.size and m in LOWEST:
                low = max(low, int(i[-1]) + m - 1)
        return top, low

    @cached_property
    def known(self) -> bool:
        return self._standing[1] >= 0

    @cached_property
    def _used(self) -> Flags:
        places, (top, low) = np.arange(self.edges.size), self._standing
        return (places >= top) & (places <= low)

    @cached_property
    def _rows(self) -> Floats:
        return np.where(self._used, np.maximum(self.counts, 0.0), 0.0)

    @cached_property
    def highest(self) -> float:
        return float(self.edges[self._standing[0]]) if self.known else 0.0

    @cached_property
    def lowest(self) -> float:
        return float(self._lower[self._standing[1]]) if self.known else 0.0

    @cached_property
    def total(self) -> float:
        return float(self._rows @ self._middles)

    def beyond(self, clip: float) -> tuple[float, float, float]:
        """Sum and sum of squares of (size - clip)+ in bins that stand out, and the sum's variance.

        Numbers keep their sign, as positive parts are biased.
        """
        over = np.maximum(self._middles - clip, 0.0)
        sum_ = float((self.counts * over)[self._used].sum())
        lump = self._rows * np.minimum(self.edges - self._lower, np.maximum(self.edges - clip, 0.0)) / math.sqrt(12.0)
        noise = float(np.square(over[self._used]).sum()) * self.deviation**2
        variance = noise + float(np.square(lump).sum()) + (self.unit.spread * sum_) ** 2
        return sum_, float(self._rows @ np.square(over)) * self.unit.most, variance

    @cached_property
    def _fall(self) -> tuple[float, float]:
        (top, low), edges, h = self._standing, self.edges, self.counts
        above, last = np.cumsum(self._rows), min(low, top + INSIDE)
        fall = USUAL
        if last > top:
            fall = math.log(max(above[last], 1.0) / max(above[top], 1.0)) / math.log(edges[top] / edges[last])
        for i in range(top - 1, max(top - ABOVE, -1), -1):
            # No more rows than the noise allows.
            most = max(float(h[i:top].sum()) + 2.0 * self.deviation * math.sqrt(top - i), 1.0)
            if most < above[top]:
                fall = max(fall, 0.5 * math.log(above[top] / most) / math.log(edges[i] / edges[top]))
        fall = min(max(fall, LEAST), MOST)
        return fall, float(above[top] * (self._lower[top] / edges[top]) ** fall)

    def rest(self, clip: float) -> float:
        """Modelled sum of (size - clip)+ from the highest edge on."""
        if not self.known or clip >= self.edges[0]:
            return 0.0
        fall, rows = self._fall
        near, far = ((max(end, self.highest) / self.highest) ** (1.0 - fall) for end in (clip, float(self.edges[0])))
        return float(rows * self.highest / (fall - 1.0) * (near - far))

    def rest_variance(self, clip: float, to: float | None = None) -> float:
        far = 0.0 if to is None else self.rest(to)
        return ((MODEL + self.unit.spread) * (self.rest(clip) - far)) ** 2

    def hidden(self, clip: float, deviations: float, power: int = 1) -> float:
        """Most that (size - clip)+ to a power adds unseen, for any tail."""
        each = np.maximum(self.edges - clip, 0.0) ** power
        one = float((each * (np.maximum(self.counts, 0.0) + deviations * self.deviation)).max())
        together = float(each @ self.counts) + deviations * self.deviation * float(np.linalg.norm(each))
        return self.unit.most * max(one, together)

    def most_rows(self, clip: float, deviations: float) -> float:
        """Most rows above the clip, where they would add most."""
        far = np.maximum(self.edges - clip, 0.0) * (np.maximum(self.counts, 0.0) + deviations * self.deviation)
        at = int(np.argmax(far))
        return self.unit.most * max(float(self.counts[at]), 0.0) + self.unit.most * deviations * self.deviation

    def rows_above(self, clip: float) -> Number:
        """Rows of sizes above the clip, at the nearest edge."""
        above = self.edges > clip * (1.0 + 1e-9)
        return Number(float(self.counts[above].sum()), float(above.sum()) * self.deviation**2)


class Noise(NamedTuple):
    """Deviations of a body, of one without a tail, of the tail, of one number."""

    body: float
    alone: float
    tail: float
    one: float


class Choice(NamedTuple):
    """Clips; ``cells``: cells have sums; ``tail``: the table has a number."""

    clip: float
    second: float
    cells: bool
    tail: bool


#: Of a body within the bound.
BODY_ALONE = Choice(0.0, 0.0, cells=True, tail=False)


def choose(sides: Sequence[Side], noise: Noise, cells: int, together: float, least: float = 0.0) -> Choice:
    """Clips, from ``least`` on, for sums over ``together`` cells."""
    known, total = [each for each in sides if each.known], sum(each.total for each in sides)
    bound = max(float(each.edges[0]) for each in sides)
    if known:
        error, clip = _best(known, noise, cells, max(1.0, min(together, cells)))
        if cells == 1 or error < (max(1.0, min(together, cells)) * total / cells) ** 2:
            clip = min(max(clip, least), bound)
            second = max(clip, _second(sides, clip, noise.tail))
            return Choice(clip, second, cells=True, tail=second > clip)
    # A value counts as at least the least size, which the number's sensitivity must hold.
    return Choice(0.0, min(max(least, _second(sides, 0.0, noise.one)), bound), cells=False, tail=True)


def _best(known: Sequence[Side], noise: Noise, cells: int, together: float) -> tuple[float, float]:
    """Least mean squared error of a sum, and its clip."""
    second, part = _second(known, 0.0, noise.tail), together / cells
    candidates = np.unique(np.concatenate([*(each.edges for each in known), [second]]))
    inside = ((candidates <= second) | (cells == 1)) & (candidates >= min(each.lowest for each in known))
    best = math.inf, second
    for clip in candidates[inside].tolist():
        sums, squares, variance = map(sum, zip(*(each.beyond(clip) for each in known), strict=True))
        full = clip >= second
        error = 0.0 if full else min((noise.tail * (second - clip)) ** 2, variance)
        if cells == 1:
            error += sum(each.rest_variance(max(clip, second)) for each in known)
        each = together * ((noise.alone if full else noise.body) * clip) ** 2 + part**2 * error
        if part < 1.0:
            each += (UNEVEN * sums * part) ** 2 + squares * part
        best = min(best, (each, clip))
    return best


def _second(sides: Sequence[Side], clip: float, noise: float) -> float:
    """Size at which errors of the number and the model are equal."""
    bound, known = max(float(each.edges[0]) for each in sides), [each for each in sides if each.known]
    if not known or noise * (bound - clip) <= CHEAP * sum(each.total for each in known):
        return bound
    highest = max(each.highest for each in known)
    ends = np.unique(np.concatenate([each.edges for each in sides]))
    ends = ends[ends >= highest]
    errors = [(noise * (end - clip)) ** 2 + sum(MODEL * each.rest(end) for each in known) ** 2 for end in ends]
    return float(ends[int(np.argmin(errors))])


@dataclass(frozen=True, eq=False)
class Beyond:
    """Sum beyond the body, of the whole table, negative values subtracted."""

    #: Up to the second clip: the sum, its variance, and sum of squares.
    value: float = 0.0
    variance: float = 0.0
    squares: float = 0.0
    #: The modelled remainder and its variance: in estimates, never in ends.
    modelled: float = 0.0
    guess: float = 0.0
    #: Most that one unit's rows add beyond the second clip.
    span: float = 1.0
    sides: tuple[Side, ...] = ()
    choice: Choice = BODY_ALONE
    signed: bool = False

    def hidden(self, confidence: float) -> tuple[float, float]:
        found = [each.hidden(self.choice.second, one_sided(confidence)) for each in self.sides]
        return (found[1] if self.signed else 0.0), (found[0] if found else 0.0)

    def unseen(self, part: Floats, confidence: float) -> tuple[Floats, Floats]:
        """Most that noise hides in these parts of the table."""
        down, up = (unseen(part, most, self.span, confidence) for most in self.hidden(confidence))
        return down, up

    def loud(self, rows: Floats, confidence: float) -> Floats:
        """Most that so many large rows add beyond the body."""
        clip, second = self.choice.clip, self.choice.second
        most, unseen = self.value + two_sided(confidence) * math.sqrt(self.variance), self.hidden(confidence)[1]
        bound = max((float(each.edges[0]) for each in self.sides), default=second)
        out: Floats = np.minimum(rows * (second - clip), most) + np.minimum(rows * (bound - second), unseen)
        return out

    def variances(self, part: Floats) -> Floats:
        """Variances of the parts' sums up to the second clip."""
        uneven = np.maximum(part * (1.0 - part), 0.0)
        out: Floats = part**2 * self.variance + uneven * self.squares + (self.value * uneven) ** 2
        return out

    def interval(
        self, body: tuple[Floats, Floats, Floats], part: Floats, rows: Floats, confidence: float
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Estimates of ranges, variances beside the body's noise, and ends about the true sums.

        ``body``: sums, and half-widths by their noise, below and above; ``part``: of the table; ``rows``: most beyond
        the clip, in windows that stand out.
        """
        (sums, below, above), quantile = body, two_sided(confidence)
        measured, variance = sums + part * self.value, self.variances(part)
        if self.choice.cells:
            error, (down, up) = quantile * np.sqrt(variance), self.unseen(part, confidence)
            low, high = measured - np.hypot(below, error) - down, measured + np.hypot(above, error) + up
            # Arrays of all cells, whose memory the others need.
            del error, down, up
            if self.sides and not self.signed:
                low, high, out = np.maximum(np.maximum(low, sums - below), 0.0), np.maximum(high, above), rows > 0.0
                high[out] = np.maximum(high[out], sums[out] + above[out] + self.loud(rows[out], confidence))
            estimate, variance = measured + part * self.modelled, variance + part**2 * self.guess
        else:
            half, estimate = quantile * math.sqrt(self.variance), measured + part * self.modelled
            low, high = self._of_one(part >= 1.0 - 1e-9, half, *self.hidden(confidence))
            estimate = estimate if self.signed else np.maximum(estimate, 0.0)
            variance = np.full(part.shape, self.variance + self.guess)
        # An estimate is not cut off, so that windows add up.
        return estimate, variance, np.minimum(low, estimate), np.maximum(high, estimate)

    def _of_one(self, whole: Flags, half: float, down: float, up: float) -> tuple[Floats, Floats]:
        low, high = self.value - half - down, self.value + half + up
        if self.signed:
            return np.where(whole, low, np.nan), np.where(whole, high, np.nan)
        return np.where(whole, max(low, 0.0), 0.0), np.full(whole.shape, max(high, half))


def unseen(part: Floats, most: float, span: float, confidence: float) -> Floats:
    """Share of `most` hidden in parts, where rows add up to `span`."""
    if not most:
        return np.zeros(part.shape)
    rows, quantile = part * (most / span), float(special.ndtri(max(0.5, 2.0 * confidence - 1.0)))
    whole = span * np.rint(rows + quantile * np.sqrt(rows * np.maximum(1.0 - part, 0.0)))
    out: Floats = np.maximum(part * most, np.minimum(most, whole))
    return out


def beyond(
    sides: Sequence[Side],
    choice: Choice,
    number: float | None,
    variance: float,
    unit: Unit,
    clips: Sequence[float] | None = None,
) -> Beyond:
    """The sum beyond the body from the tail's number, if any, and the histogram.

    ``clips``: of the sides, where they differ.
    """
    signed, bound = len(sides) > 1, max(float(each.edges[0]) for each in sides)
    signs, value, error, squares = (1.0, -1.0), 0.0, 0.0, 0.0
    if not choice.cells:
        value, error = number or 0.0, variance
    elif choice.second > choice.clip:
        second, own = choice.second, clips or [choice.clip] * len(sides)
        found = [each.beyond(clip) for each, clip in zip(sides, own, strict=True)]
        modelled = [each.rest(clip) - each.rest(second) for each, clip in zip(sides, own, strict=True)]
        counted = sum(sign * (each[0] + more) for sign, each, more in zip(signs, found, modelled, strict=False))
        lump = sum(each[2] for each in found)
        lump += sum(each.rest_variance(clip, second) for each, clip in zip(sides, own, strict=True))
        squares = sum(each[1] for each in found)
        value, error = (counted, lump) if number is None else _combined(number, variance, counted, lump)
        value = value if signed else max(value, 0.0)
    rest = sum(sign * each.rest(choice.second) for sign, each in zip(signs, sides, strict=False))
    guess = sum(each.rest_variance(choice.second) for each in sides)
    span = unit.rows * (bound - choice.second) or 1.0
    return Beyond(value, error, squares, rest, guess, span, tuple(sides), choice, signed)


def _combined(one: float, variance: float, other: float, own: float) -> tuple[float, float]:
    if not own or not variance:
        return (other, 0.0) if not own else (one, 0.0)
    error = 1.0 / (1.0 / variance + 1.0 / own)
    return (one / variance + other / own) * error, error


def parts(body: Floats, variance: float, others: Floats) -> Floats:
    """Part of each cell: by positive sums as noise allows, else `others`."""
    found = np.maximum(body, 0.0)
    whole = found.sum()
    if whole <= 0.0:
        return others
    drowned = min(1.0, variance / max(float(np.mean(np.square(body))), 1e-300))
    out: Floats = (1.0 - drowned) * found / whole + drowned * others
    return out


def two_sided(confidence: float) -> float:
    """Deviations of an interval about a Laplace or normal number, the wider."""
    return max(float(special.ndtri(0.5 + confidence / 2.0)), -math.log(1.0 - confidence) / math.sqrt(2.0))


def one_sided(confidence: float) -> float:
    """Standard deviations to one end of such a number."""
    laplace = -math.log(2.0 * (1.0 - confidence)) / math.sqrt(2.0) if confidence > 0.5 else 0.0
    return max(float(special.ndtri(confidence)), laplace, 0.0)
