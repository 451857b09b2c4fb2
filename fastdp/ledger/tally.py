"""The sums behind composition, kept up to date: a release more costs the same, however many there were before.

Source: as :mod:`fastdp.ledger.accounting`; the rules are in ``docs/privacy.md``, section 11.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from operator import sub
from typing import NamedTuple

from fastdp.errors import ParameterError
from fastdp.ledger.entry import ELEMENTS, VALUE, Entry, Kind

#: Beyond, e^epsilon times any float above 0 is above 1, and a delta of 1 is the most there is.
MAX_EXPONENT = 1000
NOTHING = Fraction(0)
#: Edges of a release that is added, or of one that is taken back for another: no more are changed one by one.
SMALL_COUNT = 4


class Budget(NamedTuple):
    """An amount of privacy loss.

    Attributes
    ----------
    epsilon, delta : float
        ``inf`` where there is no limit.
    """

    epsilon: float
    delta: float


#: Limits and epsilons are written in decimals and held as floats.  Decimals that add up to no more than the limit are
#: never refused for their rounding, u = 2^-53 each: (1 + u) / (1 - u) < 1 + 2^-51.
ROUNDING = 1 + Fraction(1, 2**51)


@dataclass(frozen=True)
class Loss:
    """An exact amount: epsilon or delta may be infinite."""

    epsilon: Fraction | float
    delta: Fraction | float

    def within(self, limit: Budget) -> bool:
        """Whether a limit, as it was written, allows it."""
        return all(
            spent <= (ROUNDING * Fraction(most) if math.isfinite(most) else most)
            for spent, most in ((self.epsilon, limit.epsilon), (self.delta, limit.delta))
        )


@dataclass(frozen=True)
class Region:
    """The elements that a further release would look at; as in an entry."""

    part: str | None = None
    start: int | None = None
    stop: int | None = None


EVERYWHERE = Region()


def common_kind(kinds: Iterable[Kind], stream: str) -> Kind:
    """The unit and adjacency that the composition of releases of these kinds is stated for.

    Raises
    ------
    ParameterError
        If they differ and none can be counted as another.
    """
    found = sorted(set(kinds))
    if len(found) < 2:
        return found[0] if found else VALUE
    others = [kind for kind in found if kind != VALUE]
    if len(others) == 1 and len(found) == 2 and others[0] in ELEMENTS:
        return VALUE
    listed = "; ".join(f"{unit} ({adjacency})" for unit, adjacency in found)
    raise ParameterError(
        f"guarantee on stream {stream!r} with the units {listed}: expected one and the same, or {VALUE[0]!r} "
        f"({VALUE[1]}) with one of those that add or remove one element; name another stream for another unit"
    )


class Tally:
    """What the releases of one stream cost any one of its elements, or one of a region's, at most.

    Whole-stream releases add up.  Of those on ranges of positions, the most that cover one position; of labelled
    parts, the one with the largest sum, made up in the same way.  Ranges without a label may meet any part.  Where a
    replaced value is one element less and one more, those two may lie in other parts than the value: the releases for
    one element have a largest part of their own.  Units whose parts are not proved disjoint always add up.
    """

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._kinds: Counter[Kind] = Counter()
        #: How many without an epsilon, and their deltas as they were stated: they are not costs that meet somewhere.
        self._endless = 0
        self._stated = NOTHING
        #: Of each kind, epsilon and delta; as they are, and as they count beside replaced values.
        self._alone: dict[Kind, tuple[_Meeting, _Meeting]] = {}
        self._beside: dict[Kind, tuple[_Meeting, _Meeting]] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry, times: int = 1) -> None:
        """Count a release once more, or with ``times`` = -1 once less.  One that does not count is left out."""
        if not entry.counts:
            return
        kind, said, where = entry.kind, entry.guarantee, _where(entry)
        self._kinds[kind] += times
        if not self._kinds[kind]:
            del self._kinds[kind]
        if math.isinf(said.epsilon):
            self._endless += times
            self._stated += times * Fraction(said.delta)
            return
        for meetings, beside in ((self._alone, False), (self._beside, True)):
            # Beside others counts only what adds or removes one element.
            if beside and kind not in ELEMENTS:
                continue
            if kind not in meetings:
                meetings[kind] = _Meeting(), _Meeting()
            costs = _cost(said.epsilon, said.delta, said.numeric_distance, beside)
            for meeting, cost in zip(meetings[kind], costs, strict=True):
                meeting.add(where, cost if times > 0 else -cost)

    def total(self, stream: str, region: Region = EVERYWHERE) -> Loss:
        """What they add up to; ParameterError if units do not fit together.

        One without an epsilon may be cancelled, so the others' deltas are summed as if it were not there.
        """
        common = common_kind(self._kinds, stream)
        sums = [NOTHING, self._stated]
        for kind in self._kinds:
            among = region if kind == common else EVERYWHERE
            for index, meeting in enumerate(self._meetings(kind, common)):
                sums[index] += meeting.most(among)
        return _loss(sums, self._endless)

    def after(self, entry: Entry, stream: str) -> Loss:
        """What they and one release more, which counts, would add up to."""
        kind, said, where = entry.kind, entry.guarantee, _where(entry)
        kinds = {*self._kinds, kind}
        common = common_kind(kinds, stream)
        sums, endless = [NOTHING, self._stated], self._endless
        if math.isinf(said.epsilon):
            more, endless = (NOTHING, NOTHING), endless + 1
            sums[1] += Fraction(said.delta)
        else:
            more = _cost(said.epsilon, said.delta, said.numeric_distance, kind != common)
        for each in kinds:
            for index, meeting in enumerate(self._meetings(each, common)):
                most = meeting.most()
                # An element meets the release or it does not.
                sums[index] += max(most, meeting.most(where) + more[index]) if each == kind else most
        return _loss(sums, endless)

    def _meetings(self, kind: Kind, common: Kind) -> tuple[_Meeting, _Meeting]:
        """Epsilon and delta of one kind's releases, as they count in a composition that is stated for another."""
        return (self._alone if kind == common else self._beside).get(kind) or (_Meeting(), _Meeting())


def _loss(sums: list[Fraction], endless: int) -> Loss:
    """Epsilon and delta; no delta makes up for a release without an epsilon."""
    return Loss(math.inf if endless else sums[0], sums[1])


class _Meeting:
    """Costs on parts of a stream, and the largest sum of those that meet in one element."""

    def __init__(self) -> None:
        self._unlabelled = _Steps()
        self._labelled: dict[str, _Steps] = {}
        #: Of the parts but for those that grew since; None where one has shrunk.
        self._largest: Fraction | None = NOTHING
        self._grown: set[str] = set()

    def add(self, where: Region, cost: Fraction) -> None:
        if not cost.numerator:
            return
        if where.part is None:
            self._unlabelled.add(where.start, where.stop, cost)
            return
        if where.part not in self._labelled:
            self._labelled[where.part] = _Steps()
        self._labelled[where.part].add(where.start, where.stop, cost)
        self._grown.add(where.part)
        if cost < 0:
            self._largest = None

    def most(self, region: Region = EVERYWHERE) -> Fraction:
        """The largest sum, of all elements or of those of a region."""
        if region.part is not None:
            # Positions in a part are no positions in the stream.
            part = self._labelled.get(region.part)
            inside = NOTHING if part is None else part.most(region.start, region.stop)
            return self._unlabelled.most() + inside
        changed = self._labelled if self._largest is None else self._grown
        for label in changed:
            self._largest = max(self._largest or NOTHING, self._labelled[label].most())
        self._largest = self._largest or NOTHING
        self._grown.clear()
        return self._unlabelled.most(region.start, region.stop) + self._largest


class _Steps:
    """Sums of costs at each position: steps at the ends of their ranges.

    Costs are gathered until somebody asks for a sum.  The many of a file that is read become levels in one sweep over
    the sorted edges; the few of one release more change the levels that they touch.
    """

    def __init__(self) -> None:
        self._everywhere = NOTHING
        #: What is not in the levels yet: how much they change at an edge.
        self._changes: dict[int, Fraction] = {}
        #: From edge k to the next one the level is level k; before the first it is 0.
        self._edges: list[int] = []
        self._levels: list[Fraction] = []
        self._highest: Fraction | None = NOTHING

    def add(self, start: int | None, stop: int | None, cost: Fraction) -> None:
        if start is None:
            self._everywhere += cost
            return
        self._changes[start] = self._changes.get(start, NOTHING) + cost
        if stop is not None:
            self._changes[stop] = self._changes.get(stop, NOTHING) - cost

    def most(self, start: int | None = None, stop: int | None = None) -> Fraction:
        """The largest sum at any position, or at one of [start, stop)."""
        self._settle()
        if start is None:
            if self._highest is None:
                self._highest = max(self._levels, default=NOTHING)
            return self._everywhere + self._highest
        first = max(0, bisect_right(self._edges, start) - 1)
        last = len(self._edges) if stop is None else bisect_left(self._edges, stop)
        return self._everywhere + max(self._levels[first:last], default=NOTHING)

    def _settle(self) -> None:
        """Take what was gathered into the levels."""
        if not self._changes:
            return
        changes = sorted((edge, change) for edge, change in self._changes.items() if change)
        self._changes.clear()
        if len(changes) > SMALL_COUNT:
            self._sweep(changes)
            return
        rise, ends = NOTHING, [*(edge for edge, _ in changes), None][1:]
        for (edge, change), end in zip(changes, ends, strict=True):
            rise += change
            self._raise(edge, end, rise)

    def _sweep(self, changes: list[tuple[int, Fraction]]) -> None:
        """All levels anew."""
        steps = dict(zip(self._edges, map(sub, self._levels, [NOTHING, *self._levels]), strict=True))
        for edge, change in changes:
            steps[edge] = steps.get(edge, NOTHING) + change
        self._edges = sorted(edge for edge, step in steps.items() if step)
        self._levels = list(accumulate(steps[edge] for edge in self._edges))
        self._highest = max(self._levels, default=NOTHING)

    def _raise(self, start: int, stop: int | None, rise: Fraction) -> None:
        """Change the levels of [start, stop)."""
        first = self._edge(start)
        last = len(self._edges) if stop is None else self._edge(stop)
        if not rise:
            return
        self._levels[first:last] = [level + rise for level in self._levels[first:last]]
        if rise < 0:
            self._highest = None
        elif self._highest is not None:
            self._highest = max(self._highest, *self._levels[first:last])

    def _edge(self, position: int) -> int:
        """The number of the edge at a position, made where there is none."""
        index = bisect_left(self._edges, position)
        if index == len(self._edges) or self._edges[index] != position:
            self._levels.insert(index, self._levels[index - 1] if index else NOTHING)
            self._edges.insert(index, position)
        return index


def _where(entry: Entry) -> Region:
    """The part of the stream that counts as such: only those that are proved disjoint (``docs/privacy.md``)."""
    if entry.part is None and entry.start is None:
        return EVERYWHERE
    if entry.kind == VALUE:
        return Region(entry.part, entry.start, entry.stop)
    return Region(entry.part) if entry.kind in ELEMENTS else EVERYWHERE


@lru_cache(maxsize=1024)
def _cost(said_epsilon: float, said_delta: float, distance: float, beside: bool) -> tuple[Fraction, Fraction]:
    """Epsilon and delta that a release counts, alone or beside those for a replaced value."""
    epsilon, delta = Fraction(said_epsilon), Fraction(said_delta)
    # The sampled law P~ is that far from the P of the proof: P~1 <= P1 + d <= e^eps P2 + delta + d
    # <= e^eps P~2 + delta + (1 + e^eps) d.
    delta = min(Fraction(1), delta + _on_both_sides(Fraction(distance), epsilon))
    if beside:
        # Group privacy for two elements: P1 <= e^eps P2 + delta <= e^(2 eps) P3 + (e^eps + 1) delta.
        epsilon, delta = 2 * epsilon, min(Fraction(1), _on_both_sides(delta, epsilon))
    return epsilon, delta


def _on_both_sides(amount: Fraction, epsilon: Fraction) -> Fraction:
    """(1 + e^epsilon) times it, or a little more."""
    return amount * (1 + _exp_above(epsilon)) if amount else amount


def _exp_above(exponent: Fraction) -> Fraction:
    """A rational number above e^exponent."""
    context = Context(prec=50, Emax=10**6, Emin=-(10**6))
    ratio = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
    return Fraction(context.next_plus(context.exp(context.next_plus(min(ratio, Decimal(MAX_EXPONENT))))))
