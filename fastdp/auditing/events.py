"""Features of outputs, and the choice of the most distinguishing events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fastdp.kinds import Floats, Integers

#: Outputs of many trials in, one number for each trial out.
Statistic = Callable[[Floats], Floats]

#: Coordinates that get features of their own: those that differ most.
MAX_COORDINATES = 32
#: Bins of the learned likelihood ratio.
BINS = 32
EXPONENT_BITS = 52


@dataclass(frozen=True)
class Feature:
    """Statistic of outputs, float64[n, k] to float64[n]; `discrete_only`: values have no order."""

    name: str
    of: Statistic
    discrete_only: bool = False


def make_features(outputs: Floats, adjacent: Floats, statistics: Sequence[tuple[str, Statistic]]) -> list[Feature]:
    """Features from `statistics`, and those of "auto", trained on separate trials."""
    features = [Feature(name, statistic) for name, statistic in statistics]
    k = outputs.shape[1]
    chosen = _most_different(outputs, adjacent)
    pooled = np.concatenate([outputs, adjacent])
    for j in chosen:
        label = "output" if k == 1 else f"output[{j}]"
        median = float(np.median(pooled[:, j]))
        features.append(Feature(label, _on(j, np.asarray)))
        features.append(Feature(f"|{label} - median|", _on(j, partial(_distance, median))))
        if not (pooled[:, j] == np.rint(pooled[:, j])).all():
            features.append(Feature(f"grain of {label}", _on(j, grain)))
    if k > 1:
        sums = ((j + 1, _on(slice(j + 1), lambda rows: rows.sum(axis=1))) for j in chosen if j > 0)
        features.extend(Feature(f"sum of output[:{stop}]", total) for stop, total in sums)
        features.append(Feature("linear discriminant", _discriminant(outputs, adjacent)))
        features.append(Feature("learned likelihood ratio", _likelihood_ratio(outputs, adjacent, chosen)))
        features.append(Feature("whole output", fingerprint, discrete_only=True))
    return features


def fingerprint(outputs: Floats) -> Floats:
    """Hash each row to 53 bits; collisions leave bounds valid."""
    # Adding 0 makes -0 and 0 the same number.
    words = np.ascontiguousarray(outputs + 0.0).view(np.uint64)
    mixed: NDArray[np.uint64] = np.zeros(outputs.shape[0], np.uint64)
    for j in range(outputs.shape[1]):
        mixed = (mixed ^ words[:, j]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return (mixed >> np.uint64(11)).astype(np.float64)


def grain(numbers: Floats) -> Floats:
    """Exponent of each double's lowest set bit (Mironov 2012)."""
    bits = np.ascontiguousarray(numbers).view(np.int64)
    exponent = (bits >> EXPONENT_BITS) & 0x7FF
    mantissa = (bits & ((1 << EXPONENT_BITS) - 1)) | np.where(exponent > 0, np.int64(1) << EXPONENT_BITS, 0)
    lowest = (mantissa & -mantissa).astype(np.float64)
    zeros = np.log2(np.where(lowest > 0.0, lowest, 1.0))
    return np.where(lowest > 0.0, np.maximum(exponent, 1) - 1023.0 - EXPONENT_BITS + zeros, 1024.0)


def _most_different(outputs: Floats, adjacent: Floats) -> list[int]:
    spread = np.sqrt(outputs.var(axis=0) + adjacent.var(axis=0))
    scale = np.where(spread > 0.0, spread, 1.0)
    # Where the spread is 0, any difference is clear.
    difference = np.abs(outputs.mean(axis=0) - adjacent.mean(axis=0)) / scale
    difference += np.abs(outputs.std(axis=0) - adjacent.std(axis=0)) / scale
    order = np.argsort(-difference, kind="stable")[:MAX_COORDINATES]
    return sorted(int(j) for j in order)


def _distance(centre: float, values: Floats) -> Floats:
    return np.abs(values - centre)


def _on(j: int | slice, function: Statistic) -> Statistic:
    return lambda outputs: function(outputs[:, j])


def _discriminant(outputs: Floats, adjacent: Floats) -> Statistic:
    centre = (outputs.mean(axis=0) + adjacent.mean(axis=0)) / 2.0
    both = np.concatenate([outputs - outputs.mean(axis=0), adjacent - adjacent.mean(axis=0)])
    scale = both.std(axis=0)
    scale[scale == 0.0] = 1.0
    both /= scale
    spread = both.T @ both / both.shape[0]
    gap = (outputs.mean(axis=0) - adjacent.mean(axis=0)) / scale
    direction = np.linalg.solve(spread + 1e-6 * np.eye(spread.shape[0]), gap) / scale
    return lambda rows: (rows - centre) @ direction


def _likelihood_ratio(outputs: Floats, adjacent: Floats, chosen: list[int]) -> Statistic:
    parts: list[tuple[int, Floats, Floats]] = []
    for j in chosen:
        pooled = np.concatenate([outputs[:, j], adjacent[:, j]])
        edges = np.unique(np.quantile(pooled, np.linspace(0.0, 1.0, BINS + 1)[1:-1]))
        here, there = (
            np.bincount(np.searchsorted(edges, side[:, j], side="right"), minlength=edges.size + 1) + 0.5
            for side in (outputs, adjacent)
        )
        parts.append((j, edges, np.log(here / there)))

    def ratio(rows: Floats) -> Floats:
        total = np.zeros(rows.shape[0])
        for j, edges, logs in parts:
            total += logs[np.searchsorted(edges, rows[:, j], side="right")]
        return total

    return ratio


# From counts to a lower bound on epsilon: Clopper and Pearson 1934, exact whatever the probabilities.


def at_least(hits: Integers, trials: int, alpha: float) -> Floats:
    """Lower bounds of probabilities, each wrong with probability at most `alpha`."""
    low_ends = special.betaincinv(np.maximum(hits, 1.0), trials - hits + 1.0, alpha)
    return np.where(hits > 0, low_ends, 0.0).astype(np.float64)


def at_most(hits: Integers, trials: int, alpha: float) -> Floats:
    """Upper bounds, as :func:`at_least`."""
    missed = np.maximum(trials - hits, 1)
    high_ends = special.betainccinv(hits + 1.0, missed, alpha)
    return np.where(hits < trials, high_ends, 1.0).astype(np.float64)


def epsilon_at_least(
    hits: Integers, hits_adjacent: Integers, trials: int, alpha: float, delta: float = 0.0
) -> Floats:
    """Lower bounds on epsilon, ln((P_low - delta) / P'_high), for events fixed before these trials.

    Each exceeds the truth with probability at most `alpha`.
    """
    low = at_least(hits, trials, alpha / 2.0) - delta
    high = at_most(hits_adjacent, trials, alpha / 2.0)
    positive = np.where(low > 0.0, low, 1.0)
    return np.where(low > 0.0, np.log(positive) - np.log(high), -np.inf)


#: A feature with at most so many values is discrete: sets of values are events too.
MAX_VALUES = 4096
#: Thresholds tried on a feature, denser (geometrically) near both ends.
THRESHOLDS = 96
#: Added to counts of values before ratios are computed, so that values seen once are not first.
PRIOR = 2.0
#: Events that are counted because of the bound that their frequencies predict.
PROJECTED = 4
#: Values named in a report.
NAMED = 4


@dataclass(frozen=True)
class Event:
    """A feature is at least or at most a threshold, or one of a few values."""

    feature: Feature
    kind: Literal["at least", "at most", "among"]
    values: Floats
    swapped: bool

    def count(self, outputs: Floats) -> int:
        numbers = self.feature.of(outputs)
        if self.kind == "at least":
            return int(np.count_nonzero(numbers >= self.values[0]))
        if self.kind == "at most":
            return int(np.count_nonzero(numbers <= self.values[0]))
        nearest = np.minimum(np.searchsorted(self.values, numbers), self.values.size - 1)
        return int(np.count_nonzero(self.values[nearest] == numbers))

    def __str__(self) -> str:
        if self.kind != "among":
            return f"{self.feature.name} {'>=' if self.kind == 'at least' else '<='} {self.values[0]:.6g}"
        if self.feature.discrete_only or self.values.size > NAMED:
            return f"{self.feature.name} among {self.values.size} values"
        return f"{self.feature.name} in {{{', '.join(f'{value:.6g}' for value in self.values)}}}"


class _Candidates(NamedTuple):
    kind: Literal["at least", "at most", "among"]
    values: Floats
    hits: Integers
    hits_adjacent: Integers


@dataclass(frozen=True)
class _RankedEvent:
    event: Event
    bound: float
    projected: float


def choose_events(
    features: Sequence[Feature],
    learned: tuple[Floats, Floats],
    fresh: tuple[Floats, Floats],
    counted: int,
    alpha: float,
    delta: float,
    custom: int = 0,
) -> list[Event]:
    """Event with the highest bound on `fresh` trials, and a few that may reach a higher one.

    `learned` outputs order discrete values; the best events of the first `custom` features are included.
    """
    every: list[_RankedEvent] = []
    chosen: list[Event] = []
    for number, feature in enumerate(features):
        here, there = (np.sort(feature.of(side)) for side in fresh)
        best_pairs = [
            _best(feature, candidates, swapped, here.size, counted, alpha, delta)
            for candidates in _candidates(feature, learned, here, there)
            for swapped in (False, True)
            if candidates.values.size
        ]
        useful = [one for pair in best_pairs for one in pair if one.projected > -np.inf]
        if number < custom and useful:
            chosen.append(max(useful, key=lambda one: one.bound).event)
        every += useful
    if not every:
        return []
    chosen.append(max(every, key=lambda one: one.bound).event)
    chosen += [one.event for one in sorted(every, key=lambda one: -one.projected)[:PROJECTED]]
    return [one for i, one in enumerate(chosen) if not any(one is before for before in chosen[:i])]


def _best(
    feature: Feature, candidates: _Candidates, swapped: bool, size: int, counted: int, alpha: float, delta: float
) -> list[_RankedEvent]:
    counts = candidates.hits, candidates.hits_adjacent
    first, second = counts[::-1] if swapped else counts
    bounds = epsilon_at_least(first, second, size, alpha, delta)
    # Tails of Poisson counts: close enough to rank events, and much cheaper than the interval itself.
    margin, (likely, rare) = np.log(2.0 / alpha), (side * (counted / size) for side in (first, second))
    low = likely - np.sqrt(2.0 * margin * likely) - delta * counted
    high = rare + margin + np.sqrt(2.0 * margin * rare)
    projected = np.where(low > 0.0, np.log(np.where(low > 0.0, low, 1.0) / high), -np.inf)
    best = []
    for i in sorted({int(bounds.argmax()), int(projected.argmax())}):
        picked = candidates.values[: i + 1] if candidates.kind == "among" else candidates.values[i : i + 1]
        event = Event(feature, candidates.kind, np.sort(picked), swapped)
        best.append(_RankedEvent(event, float(bounds[i]), float(projected[i])))
    return best


def _candidates(
    feature: Feature, learned: tuple[Floats, Floats], here: Floats, there: Floats
) -> Iterator[_Candidates]:
    before = [np.sort(feature.of(side)) for side in learned]
    values = np.unique(np.concatenate(before))
    if values.size <= MAX_VALUES:
        likelier, rarer = (_occurrences(side, values) for side in before)
        first, second = (_occurrences(side, values) for side in (here, there))
        ratios = (likelier + PRIOR) / (rarer + PRIOR)
        # Prefixes of the values in order of their ratio (Neyman and Pearson).
        for order in (np.argsort(-ratios, kind="stable"), np.argsort(ratios, kind="stable")):
            yield _Candidates("among", values[order], np.cumsum(first[order]), np.cumsum(second[order]))
    if feature.discrete_only:
        return
    tails = np.geomspace(10.0 / here.size, 0.5, THRESHOLDS // 2)
    levels = np.concatenate([tails, 1.0 - tails])
    thresholds = np.unique(np.concatenate([np.quantile(side, levels, method="nearest") for side in (here, there)]))
    if values.size <= THRESHOLDS:
        thresholds = values
    below = [np.searchsorted(side, thresholds, side="left") for side in (here, there)]
    yield _Candidates("at least", thresholds, here.size - below[0], there.size - below[1])
    within = [np.searchsorted(side, thresholds, side="right") for side in (here, there)]
    yield _Candidates("at most", thresholds, within[0], within[1])


def _occurrences(ordered: Floats, values: Floats) -> Integers:
    counts: Integers = np.searchsorted(ordered, values, side="right") - np.searchsorted(ordered, values, side="left")
    return counts
