"""Couplings of tables: numbers forced equal by shifted noise, choices by the tails of the draw that decides them.

All is done from outside: releases are calls of ``fastdp.totals``, ``counts`` and ``means`` or of ``fastdp.Windows``,
and how far a choice moves is found by trying noise.  Noise of counts and sums is bound to them, so that the table of
noise knows how far they move.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fastdp
from fastdp.randomness.given import Name
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp_lab.audit.couplings.check import BoundSums, Finding, Instance, Seen, Shifts, Table

BEGIN = datetime(2024, 1, 1)
#: Counts of the keys' rows.
KEYS = Name(("keys",), 0, StreamId(Purpose.CHAIN))
#: Noise that lets any small count pass, and noise that lets any candidate win.
SURE, WINS = 2**40, 2**55
#: Of values; and how many of the candidates for the clip, from the bound down, may win.
BOUND, CANDIDATES = 10.0, 20
MOST_KEYS = 64
#: Thresholds of choices are found to this part of the noise's scale.
PRECISION = 2**-14
_TAIL = Context(prec=60)


class Row(NamedTuple):
    """A row of a small table.

    Attributes
    ----------
    minute : int
        From :data:`BEGIN` on.
    key, person : str
        Its key and person.
    value : float
        What is summed.
    """

    minute: int
    key: str
    person: str
    value: float


Rows = Sequence[Row]
#: A release under a key, of rows or of batches of them: tables in order.
Release = Callable[[Key, Any], list[Any]]


def at(minute: int) -> datetime:
    """A point in time."""
    return BEGIN + timedelta(minutes=minute)


def batch_release(kind: str, options: dict[str, Any], key: Key, rows: Rows) -> list[Any]:
    """A call of ``fastdp.totals``, ``counts`` or ``means``."""
    import pyarrow

    frame = pyarrow.table(
        {
            "at": pyarrow.array([at(row.minute) for row in rows], pyarrow.timestamp("us")),
            "key": pyarrow.array([row.key for row in rows], pyarrow.string()),
            "person": pyarrow.array([row.person for row in rows], pyarrow.string()),
            "value": pyarrow.array([row.value for row in rows], pyarrow.float64()),
        }
    )
    columns = ("at",) if kind == "counts" else ("value", "at")
    return [getattr(fastdp, kind)(frame, *columns, key=key, **options)]


def online_release(options: dict[str, Any], saved: int, key: Key, batches: Sequence[tuple[int, Rows]]) -> list[Any]:
    """A ``fastdp.Windows``: rows are added, then the clock moves; the state is saved after one of the calls."""
    windows = fastdp.Windows(key=key, **options)
    found = []
    for number, (clock, rows) in enumerate(batches):
        given: dict[str, Any] = {}
        if not options.get("counts"):
            given["values"] = [row.value for row in rows]
        if options.get("by"):
            given["keys"] = [row.key for row in rows]
        if options.get("who"):
            given["persons"] = [row.person for row in rows]
        found.append(windows.add(np.array([at(row.minute) for row in rows], "datetime64[us]"), **given))
        if number == saved:
            windows = Seen().reloaded(windows)
        found.append(windows.advance(at(clock)))
    return found


def see_table(seen: Seen, table: Any) -> None:
    """All that a released table shows."""
    frame = table.arrow
    seen.add("frame", frame.to_pydict(), str(frame.schema))
    sums = table.sums
    seen.add("windows", sums.edges)
    seen.add("keys", sums.keys)
    for name, value in sorted(vars(sums).items()):
        if name not in ("edges", "keys", "columns"):
            seen.add(name, value)
    seen.add("noise", [(name, str(each.noise), each.resolution) for name, each in sums.columns.items()])
    seen.add("guarantee", table.guarantee, table.guarantee.derivation)
    seen.add("print", repr(table), str(table), table._repr_html_(), len(table))
    if len(table):
        width = len(sums.edges) - 1
        seen.add("ranges", table.estimate([0], [width]), *table.interval([0], [width], revised=True))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.csv"
            table.write(path)
            seen.add("file", path.read_bytes(), path.with_name("table.csv.json").read_bytes())


def see_release(release: Release, key: Key, rows: Any) -> Seen:
    """A release, its warnings and log lines."""
    seen = Seen()
    with seen.warned():
        for table in release(key, rows):
            see_table(seen, table)
    return seen


@dataclass(frozen=True)
class TableInstance(Instance):
    """Two adjacent tables; ``shifts`` has none that are known beforehand."""

    #: The call.
    release: Release = lambda *_: []
    #: Whether the clip is chosen.
    chooses: bool = False
    #: Probability that the choice of keys may leave beside its epsilon; 0 if keys are not private.
    delta: float = 0.0

    def check(self, seed: int) -> Finding:
        """Couple the choices, then force all noisy sums equal."""
        before, after, event = Shifts(), Shifts(), 0.0
        places: list[dict[str, int]] = [{}, {}]
        if self.delta:
            places = [self._candidates(seed, rows) for rows in (self.x, self.x_adjacent)]
            # Keys of one table alone stay below the threshold but for an event of small probability.
            for shifts, mine, others, rows in (
                (before, *places, self.x),
                (after, *places[::-1], self.x_adjacent),
            ):
                alone = [place for key, place in mine.items() if key not in others]
                shifts.fixed[KEYS] = dict.fromkeys(alone, -SURE)
                event += sum(self._passes(seed, rows, key, mine[key]) for key in mine if key not in others)
            if seed % 2:
                # Draws that release all the others.
                before.fixed[KEYS] |= {place: SURE for key, place in places[0].items() if key in places[1]}
        if self.chooses:
            self._couple_choice(seed, before, after, partial(self._wanted, places))
        table = Table(seed, before)
        here = self.publish(table.key, self.x)
        wanted = self._wanted(places, table.bound)
        moved = Table(seed, after, wanted)
        there = self.publish(moved.key, self.x_adjacent)
        if not places[0] or not places[1]:
            # No key is counted where a table has none.
            for each in (table, moved):
                each.scales.pop(KEYS, None)
        found = self.compared((table, here), (moved, there))
        return replace(found, ratio=max(found.ratio, event / self.delta)) if event else found

    def _wanted(self, places: list[dict[str, int]], sums: BoundSums) -> BoundSums:
        """The sums of the first table, in the places of the second one."""
        if not self.delta:
            return dict(sums)
        first, second = places
        return {**sums, KEYS: {second[key]: sums[KEYS][first[key]] for key in first.keys() & second.keys()}}

    # Private keys.

    def _candidates(self, seed: int, rows: Any) -> dict[str, int]:
        """Places of all keys in the order in which their counts get noise."""
        sure = Shifts()
        sure.fixed[KEYS] = dict.fromkeys(range(MOST_KEYS), SURE)
        return {key: place for place, key in enumerate(self._keys(Table(seed, sure), rows))}

    def _keys(self, table: Table, rows: Any) -> list[str]:
        found: list[str] = self._released(table, rows).sums.keys["key"]
        return found

    def _released(self, table: Table, rows: Any) -> Any:
        return self.release(table.key, rows)[0]

    def _passes(self, seed: int, rows: Any, key: str, place: int) -> float:
        """The probability that a key is released."""
        scale = Fraction(1)

        def released(noise: int) -> bool:
            nonlocal scale
            shifts = Shifts()
            shifts.fixed[KEYS] = {place: noise}
            table = Table(seed, shifts)
            found = key in self._keys(table, rows)
            (scale,) = table.scales[KEYS]
            return found

        return tail(_least(released, 1, 64), scale)

    # The clip.

    def _couple_choice(
        self, seed: int, before: Shifts, after: Shifts, wanted: Callable[[BoundSums], BoundSums]
    ) -> None:
        """Let one candidate win in both tables; the cost is the ratio of the tails of its draw."""
        table = Table(seed, before)
        self._released(table, self.x)
        (name,) = (each for each in table.scales if each.stream.purpose is Purpose.THRESHOLD)
        (scale,) = table.scales[name]
        winner = seed % CANDIDATES

        def clip_under(shifts: Shifts, sums: BoundSums | None, rows: Any, noise: int) -> Any:
            own = Shifts()
            own.fixed = {**shifts.fixed, name: {winner: noise}}
            return self._released(Table(seed, own, sums), rows).sums.clip

        clip = clip_under(before, None, self.x, WINS)
        step = max(1, int(scale * Fraction(PRECISION)))
        sums = wanted(table.bound)
        here = _least(lambda noise: bool(clip_under(before, None, self.x, noise) == clip), step, step << 16)
        there = _least(lambda noise: bool(clip_under(after, sums, self.x_adjacent, noise) == clip), step, step << 16)
        before.fixed[name], after.fixed[name] = {winner: WINS}, {winner: WINS}
        # Thresholds are known to a step, which is in favour of the claim.
        after.loss += float(max(0, there - here - step) / scale)


def _least(passes: Callable[[int], bool], step: int, high: int) -> int:
    """The least noise from 0 on that passes, or at most a step more; ``high`` is tried first."""
    if passes(0):
        return 0
    low = 0
    while not passes(high):
        low, high = high, 2 * high
    while high - low > step:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle, high)
    return high


def tail(least: int, scale: Fraction) -> float:
    """P[X >= least] of discrete Laplace noise, for a positive ``least``; 1 where no noise is needed."""
    if least <= 0:
        return 1.0
    q = _TAIL.exp(_TAIL.divide(Decimal(-scale.denominator), Decimal(scale.numerator)))
    return float(_TAIL.divide(_TAIL.power(q, Decimal(least)), _TAIL.add(Decimal(1), q)))
