"""Couplings of tables: numbers forced equal by shifted noise, choices by the tails of the draw that decides them.

All is done from outside: releases are calls of ``fastdp.totals``, ``counts`` and ``means`` or of ``fastdp.Windows``,
and how far a choice moves is found by trying noise.  Noise of counts and sums is bound to them, so that the table of
noise knows how far they move.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fastdp
from fastdp import Key
from fastdp.randomness.words import Purpose
from fastdp_lab.audit.couplings.check import Finding, Instance, Outputs, reloaded
from fastdp_lab.audit.couplings.noise import KEYS, BoundSums, Shifts, Table

BEGIN = datetime(2024, 1, 1)
#: Noise that lets any small count pass, and noise that lets any candidate win.
SURE, WINS = 2**40, 2**55
#: Of values; and how many of the candidates for the clip, from the bound down, may win.
BOUND, CANDIDATES = 10.0, 20
MOST_KEYS = 64
#: Thresholds of choices are found to this part of the noise's scale.
PRECISION = 2**-14
_TAIL = Context(prec=60)


class Row(NamedTuple):
    """A row of a small table: minutes from :data:`BEGIN` on, its key and person, and the value that is summed."""

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

    types = {"at": pyarrow.timestamp("us"), "key": pyarrow.string(), "person": pyarrow.string()}
    schema = pyarrow.schema({**types, "value": pyarrow.float64()})
    frame = pyarrow.Table.from_pylist([{"at": at(row.minute), **row._asdict()} for row in rows], schema)
    columns = ("at",) if kind == "counts" else ("value", "at")
    return [getattr(fastdp, kind)(frame, *columns, key=key, **options)]


def online_release(options: dict[str, Any], saved: int, key: Key, batches: Sequence[tuple[int, Rows]]) -> list[Any]:
    """A ``fastdp.Windows``: rows are added, then the clock moves; the state is saved after one of the calls."""
    windows = fastdp.Windows(key=key, **options)
    given = {"values": not options.get("counts"), "keys": options.get("by"), "persons": options.get("who")}
    found = []
    for number, (clock, rows) in enumerate(batches):
        columns = {name: [getattr(row, name[:-1]) for row in rows] for name, wanted in given.items() if wanted}
        found.append(windows.add(np.array([at(row.minute) for row in rows], "datetime64[us]"), **columns))
        if number == saved:
            windows = reloaded(windows)
        found.append(windows.advance(at(clock)))
    return found


def see_table(table: Any) -> Outputs:
    """All that a released table shows."""
    sums = table.sums
    yield "frame", table.arrow.to_pydict(), str(table.arrow.schema)
    yield "windows", sums.edges
    yield "keys", sums.keys
    yield from (item for item in sorted(vars(sums).items()) if item[0] not in ("edges", "keys", "columns"))
    yield "noise", [(name, str(each.noise), each.resolution) for name, each in sums.columns.items()]
    yield "guarantee", table.guarantee, table.guarantee.derivation
    yield "print", repr(table), str(table), table._repr_html_(), len(table)
    if len(table):
        width = len(sums.edges) - 1
        yield "ranges", table.estimate([0], [width]), *table.interval([0], [width], revised=True)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "table.csv"
            table.write(path)
            yield "file", path.read_bytes(), path.with_name("table.csv.json").read_bytes()


def see_release(release: Release, key: Key, rows: Any) -> Outputs:
    """A release."""
    for table in release(key, rows):
        yield from see_table(table)


@dataclass(frozen=True)
class TableInstance(Instance):
    """Two adjacent tables; there are no shifts that are known beforehand."""

    #: The call.
    release: Release = lambda *_: []
    #: Whether the clip is chosen.
    chooses: bool = False
    #: Probability that the choice of keys may leave beside its epsilon; 0 if keys are not private.
    delta: float = 0.0

    def check(self, seed: int) -> Finding:
        """Couple the choices, then force all noisy sums equal."""
        before, after, event = Shifts(), Shifts(), 0.0
        first, second = (self._candidates(seed, rows) for rows in (self.x, self.x_adjacent))
        # Keys of one table alone stay below the threshold but for an event of small probability.
        for shifts, mine, others, rows in ((before, first, second, self.x), (after, second, first, self.x_adjacent)):
            alone = [key for key in mine if key not in others]
            shifts.fixed[KEYS] = {mine[key]: -SURE for key in alone}
            event += sum(self._passes(seed, rows, key, mine[key]) for key in alone)
        if seed % 2:
            # Draws that release all the others.
            before.fixed[KEYS] |= {place: SURE for key, place in first.items() if key in second}

        def wanted(sums: BoundSums) -> BoundSums:
            """The sums of the first table, in the places of the second one."""
            moved = {second[key]: sums[KEYS][first[key]] for key in first.keys() & second.keys()}
            return {**sums, KEYS: moved} if self.delta else {**sums}

        if self.chooses:
            self._couple_choice(seed, before, after, wanted)
        # No key is counted where a table has none.
        uncounted = () if first and second else (KEYS,)
        found = self.coupled(Table(seed, before), lambda sums: Table(seed, after, wanted(sums)), *uncounted)
        return found._replace(ratio=max(found.ratio, event / self.delta)) if event else found

    # Private keys.

    def _candidates(self, seed: int, rows: Any) -> dict[str, int]:
        """Places of all keys in the order in which their counts get noise; none if keys are not private."""
        if not self.delta:
            return {}
        sure = Shifts({KEYS: dict.fromkeys(range(MOST_KEYS), SURE)})
        return {key: place for place, key in enumerate(self._released(Table(seed, sure), rows).keys["key"])}

    def _released(self, table: Table, rows: Any) -> Any:
        return self.release(table.key, rows)[0].sums

    def _passes(self, seed: int, rows: Any, key: str, place: int) -> float:
        """The probability that a key is released."""
        table = Table(seed)

        def released(noise: int) -> bool:
            nonlocal table
            table = Table(seed, Shifts({KEYS: {place: noise}}))
            return key in self._released(table, rows).keys["key"]

        least = _least(released, 1, 64)
        (scale,) = table.scales[KEYS]
        return tail(least, scale)

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

        def clip_under(noise: int, shifts: Shifts, rows: Any, sums: BoundSums | None = None) -> Any:
            own = Shifts({**shifts.fixed, name: {winner: noise}})
            return self._released(Table(seed, own, sums), rows).clip

        clip, step = clip_under(WINS, before, self.x), max(1, int(scale * Fraction(PRECISION)))
        sums = wanted(table.bound)
        here = _least(lambda noise: bool(clip_under(noise, before, self.x) == clip), step, step << 16)
        there = _least(lambda noise: bool(clip_under(noise, after, self.x_adjacent, sums) == clip), step, step << 16)
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
