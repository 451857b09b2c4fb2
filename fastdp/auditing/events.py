"""Events on a feature, and the choice of the one that distinguishes two inputs best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from scipy import special

from fastdp.auditing.mechanisms import Feature
from fastdp.kinds import Floats, Integers

# From counts to a lower bound on epsilon: Clopper and Pearson 1934, exact whatever the probabilities.


def at_least(hits: Integers, trials: int, alpha: float) -> Floats:
    """Lower ends of one-sided intervals for probabilities: each wrong with probability at most ``alpha``."""
    found = special.betaincinv(np.maximum(hits, 1.0), trials - hits + 1.0, alpha)
    return np.where(hits > 0, found, 0.0).astype(np.float64)


def at_most(hits: Integers, trials: int, alpha: float) -> Floats:
    """Upper ends, in the same way."""
    missed = np.maximum(trials - hits, 1)
    found = special.betainccinv(hits + 1.0, missed, alpha)
    return np.where(hits < trials, found, 1.0).astype(np.float64)


def epsilon_at_least(
    hits: Integers, hits_adjacent: Integers, trials: int, alpha: float, delta: float = 0.0
) -> Floats:
    """Lower bounds on epsilon from events that were fixed before these trials were run.

    Parameters
    ----------
    hits, hits_adjacent : int64[e]
        How often each event held, on either input.
    trials : int
        Runs on each input.
    alpha : float
        Probability that one bound is above the true epsilon, at most; each probability's interval has half of it.
    delta : float
        P <= e^epsilon P' + delta is what is bounded.

    Returns
    -------
    float64[e]
        ln((P_low - delta) / P'_high); -inf where P_low is at most delta.
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
    """A set of outputs.

    Attributes
    ----------
    feature : Feature
        Of the output.
    kind : str
        ``"at least"`` or ``"at most"`` a threshold, or ``"among"`` a few values.
    values : float64[c]
        The threshold alone, or the values, ascending.
    swapped : bool
        Whether it is more likely on the adjacent input.
    """

    feature: Feature
    kind: Literal["at least", "at most", "among"]
    values: Floats
    swapped: bool

    def count(self, outputs: Floats) -> int:
        """In how many rows (float64[n, k]) it holds."""
        numbers = self.feature.of(outputs)
        if self.kind == "at least":
            return int(np.count_nonzero(numbers >= self.values[0]))
        if self.kind == "at most":
            return int(np.count_nonzero(numbers <= self.values[0]))
        places = np.minimum(np.searchsorted(self.values, numbers), self.values.size - 1)
        return int(np.count_nonzero(self.values[places] == numbers))

    def __str__(self) -> str:
        """For a report."""
        if self.kind != "among":
            return f"{self.feature.name} {'>=' if self.kind == 'at least' else '<='} {self.values[0]:.6g}"
        if self.feature.discrete_only or self.values.size > NAMED:
            return f"{self.feature.name} among {self.values.size} values"
        return f"{self.feature.name} in {{{', '.join(f'{value:.6g}' for value in self.values)}}}"


class _Candidates(NamedTuple):
    """Events of one kind with their counts; ``values`` are thresholds, or an order whose prefixes are the events."""

    kind: Literal["at least", "at most", "among"]
    values: Floats
    hits: Integers
    hits_adjacent: Integers


@dataclass(frozen=True)
class _Found:
    """An event that may be counted: its bound on the trials that choose, and the bound predicted for more trials."""

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
    given: int = 0,
) -> list[Event]:
    """The event with the highest lower bound on these trials, and a few whose bound on later trials may be higher.

    A rare leak has few hits here and a low bound, while its frequencies may predict a high one; so may chance.
    Therefore both are candidates.

    Parameters
    ----------
    features : sequence of Feature
        Fixed before the fresh trials.
    learned : pair of float64[n, k]
        Outputs on either input that may have served to make the features: they order the values of discrete ones.
    fresh : pair of float64[n, k]
        Others, which choose; the bound must be computed from yet others.
    counted : int
        How many trials the bound will come from.
    alpha, delta : float
        As for :func:`fastdp.auditing.events.epsilon_at_least`.
    given : int
        So many features, the first ones, are the caller's: the best event of each is taken in any case.

    Returns
    -------
    list of Event
        Different ones; empty if no event distinguishes the inputs.
    """
    every: list[_Found] = []
    chosen: list[Event] = []
    for number, feature in enumerate(features):
        here, there = (np.sort(feature.of(side)) for side in fresh)
        found = [
            _best(feature, candidates, swapped, here.size, counted, alpha, delta)
            for candidates in _candidates(feature, learned, here, there)
            for swapped in (False, True)
            if candidates.values.size
        ]
        useful = [one for pair in found for one in pair if one.projected > -np.inf]
        if number < given and useful:
            chosen.append(max(useful, key=lambda one: one.bound).event)
        every += useful
    if not every:
        return []
    chosen.append(max(every, key=lambda one: one.bound).event)
    chosen += [one.event for one in sorted(every, key=lambda one: -one.projected)[:PROJECTED]]
    return [one for i, one in enumerate(chosen) if not any(one is before for before in chosen[:i])]


def _best(
    feature: Feature, candidates: _Candidates, swapped: bool, size: int, counted: int, alpha: float, delta: float
) -> list[_Found]:
    """The candidate with the highest bound, and the one with the highest predicted bound on later trials."""
    counts = candidates.hits, candidates.hits_adjacent
    first, second = counts[::-1] if swapped else counts
    bounds = epsilon_at_least(first, second, size, alpha, delta)
    # Tails of Poisson counts: close enough to rank events, and much cheaper than the interval itself.
    room, (likely, rare) = np.log(2.0 / alpha), (side * (counted / size) for side in (first, second))
    low = likely - np.sqrt(2.0 * room * likely) - delta * counted
    high = rare + room + np.sqrt(2.0 * room * rare)
    projected = np.where(low > 0.0, np.log(np.where(low > 0.0, low, 1.0) / high), -np.inf)
    found = []
    for i in sorted({int(bounds.argmax()), int(projected.argmax())}):
        picked = candidates.values[: i + 1] if candidates.kind == "among" else candidates.values[i : i + 1]
        event = Event(feature, candidates.kind, np.sort(picked), swapped)
        found.append(_Found(event, float(bounds[i]), float(projected[i])))
    return found


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
