"""Couplings of tables: numbers forced equal by shifted noise, choices by the tails of the draw that decides them.

All is done from outside: releases are calls of ``fastdp.totals``, ``counts`` and ``means`` or of ``fastdp.Windows``,
and how far a choice moves is found by trying noise.  Noise of counts and sums is bound to them, so that the table of
noise knows how far they move.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import fastdp
from fastdp import Key
from fastdp.guarantee import zcdp_loss
from fastdp.kinds import Integers, Json
from fastdp.noise import bound_noise
from fastdp.noise.words import Purpose, StreamId
from fastdp.tables.shares import shares_of
from fastdp_lab.audit.couplings import check
from fastdp_lab.audit.couplings.check import BoundSums, Finding, Generator, Instance, Outputs, Shifts, Table, pick
from fastdp_lab.audit.runs import TABLES_INSTALLED

BEGIN = datetime(2024, 1, 1)
#: Number of the hour that begins there.
FIRST = (BEGIN - datetime(1970, 1, 1)) // timedelta(hours=1)
CELL = StreamId(Purpose.CELL)
#: Noise that lets any small count pass.
SURE = 2**40
#: Of values.
BOUND = 10.0
_TAIL = Context(prec=60)


class Row(NamedTuple):
    """A row of a small table: minutes from :data:`BEGIN` on, its key and person, and the value that is summed."""

    minute: int
    key: str
    person: str
    value: float


Rows = Sequence[Row]
#: Running weights of keys by the name of their noise, and window.
Tests = dict[check.Name, dict[int, int]]
#: A release under a key, of rows or of batches of them: tables in order.
Release = Callable[[Key, Any], list[Any]]


def at(minute: int) -> datetime:
    """A point in time."""
    return BEGIN + timedelta(minutes=minute)


def batch_release(kind: str, options: Json, key: Key, rows: Rows) -> list[Any]:
    """A call of ``fastdp.totals``, ``counts`` or ``means``."""
    import pyarrow

    types = {"at": pyarrow.timestamp("us"), "key": pyarrow.string(), "person": pyarrow.string()}
    schema = pyarrow.schema({**types, "value": pyarrow.float64()})
    frame = pyarrow.Table.from_pylist([{"at": at(row.minute), **row._asdict()} for row in rows], schema)
    with of_noise(options) as given:
        return [getattr(fastdp, kind)(frame, key=key, **given)]


@contextmanager
def of_noise(options: Json) -> Iterator[Json]:
    """Arguments of a call whose noise is as the options say, whatever the rule would take."""
    given, noise = {name: each for name, each in options.items() if name != "noise"}, options.get("noise", "laplace")
    with mock.patch("fastdp.tables.functions.with_noise", lambda plan: shares_of(replace(plan, noise=noise))):
        yield given


def online_release(options: Json, saved: int, key: Key, batches: Sequence[tuple[int, Rows]]) -> list[Any]:
    """A ``fastdp.Windows``: rows are added, then the clock moves; the state is saved after one of the calls."""
    with of_noise(options) as given:
        return _online(given, saved, key, batches)


def _online(options: Json, saved: int, key: Key, batches: Sequence[tuple[int, Rows]]) -> list[Any]:
    windows = fastdp.Windows(key=key, **options)
    persons = isinstance(options["unit"], fastdp.Person)
    given = {"values": "*" not in options["statistics"], "keys": options.get("by"), "persons": persons}
    found = []
    for number, (clock, rows) in enumerate(batches):
        columns = {name: [getattr(row, name[:-1]) for row in rows] for name, wanted in given.items() if wanted}
        found.append(windows.add(np.array([at(row.minute) for row in rows], "datetime64[us]"), **columns))
        if number == saved:
            windows = check.reloaded(windows)
        found.append(windows.advance(at(clock)))
    return found


def see_table(table: Any) -> Outputs:
    """Outputs of a released table: everything that it shows."""
    sums = table.released
    yield "frame", table.arrow.to_pydict(), str(table.arrow.schema)
    yield "windows", sums.edges
    yield "nodes", sums.nodes, [each.tolist() for each in sums.parents]
    others = ("edges", "nodes", "parents", "measured", "tails", "rows", "shares")
    yield from (item for item in sorted(vars(sums).items()) if item[0] not in others)
    yield "noise", [(*each.level, str(each.noise)) for each in sums.measured]
    yield "numbers", sorted(sums.tails.items()), sums.rows
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
    #: Probability that the choice of keys may leave beside its epsilon; 0 if keys are not private.
    delta: float = 0.0

    def check(self, seed: int) -> Finding:
        """Couple the choices, then force all noisy sums equal."""
        before, after, event = Shifts(), Shifts(), 0.0
        first, second = (self._candidates(seed, rows) for rows in (self.x, self.x_adjacent))
        # Keys of one table alone stay below the threshold but for an event of small probability.
        for shifts, mine, others, rows in ((before, first, second, self.x), (after, second, first, self.x_adjacent)):
            alone = [key for key in mine if key not in others]
            shifts.fixed[check.KEYS] = {mine[key]: -SURE for key in alone}
            event += sum(self._passes(seed, rows, key, mine[key]) for key in alone)
        if seed % 2:
            # Draws that release all the others.
            before.fixed[check.KEYS] |= {place: SURE for key, place in first.items() if key in second}

        def wanted(sums: BoundSums) -> BoundSums:
            """The sums of the first table, in the places of the second one."""
            moved = {second[key]: sums[check.KEYS][first[key]] for key in first.keys() & second.keys()}
            return {**sums, check.KEYS: moved} if self.delta else {**sums}

        # No key is counted where a table has none.
        uncounted = () if first and second else (check.KEYS,)
        found = self.coupled(Table(seed, before), lambda sums: Table(seed, after, wanted(sums)), *uncounted)
        return found._replace(ratio=max(found.ratio, event / self.delta)) if event else found

    # Private keys.

    def _candidates(self, seed: int, rows: Any) -> dict[str, int]:
        """Places of all keys in the order in which their counts get noise; none if keys are not private."""
        if not self.delta:
            return {}
        from fastdp.tables.keys import choose_keys as real

        found: dict[str, int] = {}

        def choose_keys(exact: Integers, keys: Any, rule: Any, key: Key) -> Any:
            found.update({str(each): i for i, each in enumerate(keys.columns()["key"]) if exact[i] > 0})
            return real(exact, keys, rule, key)

        with mock.patch("fastdp.tables.release.choose_keys", choose_keys):
            self._released(Table(seed), rows)
        return found

    def _released(self, table: Table, rows: Any) -> Any:
        return self.release(table.key, rows)[0].released

    def _passes(self, seed: int, rows: Any, key: str, place: int) -> float:
        """The probability that a key is released."""
        table = Table(seed)

        def released(noise: int) -> bool:
            nonlocal table
            table = Table(seed, Shifts({check.KEYS: {place: noise}}))
            return key in self._released(table, rows).keys["key"]

        least = _least(released, 1, 64)
        (scale,) = table.scales[check.KEYS]
        return tail(least, scale)


# Private keys online.


@contextmanager
def keys_named(hides: bool = False) -> Iterator[Tests]:
    """Name the noise of private keys online by key, with windows as positions; if it ``hides`` no key passes.

    Gives the running weight of each key, by the name of its fresh noise, in each window in which it is tested.
    """
    tests: Tests = defaultdict(dict)

    def draw_cell_noise(sums: Integers, distributions: Any, key: Any, first: int, rows: Any) -> Integers:
        if key.labels[-2:-1] != ("keys",):
            return bound_noise.draw_cell_noise(sums, distributions, key, first, rows)
        noise, fresh = sums.copy(), key.labels[-1] == "windows"
        for k, row in enumerate(rows.tolist()):
            own, out = key.within(*row), noise[0, :, k].copy()
            own.given.fill(out, distributions[0], own, CELL, first - FIRST if fresh else 0)
            noise[0, :, k] = out if fresh or not hides else SURE
            weights = {first - FIRST + i: weight for i, weight in enumerate(sums[0, :, k].tolist()) if weight}
            tests[check.name_of(own, CELL)] |= weights if fresh else {}
        return noise

    with mock.patch("fastdp.tables.online.bound_noise", mock.Mock(draw_cell_noise=draw_cell_noise)):
        yield tests


@dataclass(frozen=True)
class OnlineKeysInstance(TableInstance):
    """Two streams of private keys; the coupling is the one of ``docs/privacy.md``."""

    #: Threshold of each window, by its number since BEGIN, and the scale of the noise of keys.
    thresholds: dict[int, int] = field(default_factory=dict)
    scale: Fraction = Fraction(1)

    def check(self, seed: int) -> Finding:
        """Let each key appear in some window, or never, by noise that just passes; then force all sums equal."""
        rng, event, alone = np.random.default_rng(seed), 0.0, list[check.Name]()
        before, after = Shifts(), Shifts()
        with keys_named(hides=True) as mine:
            self.release(Table(seed).key, self.x)
        with keys_named(hides=True) as others:
            self.release(Table(seed).key, self.x_adjacent)
        for name in sorted(mine.keys() | others.keys(), key=repr):
            own, there = mine[name], others[name]
            bar = name._replace(labels=("keys", "bars", *name.labels[2:]))
            # A test in one stream alone fails but for an event of small probability.
            single = {
                window: weight for window, weight in (own | there).items() if (window in own) != (window in there)
            }
            event += sum(tail(self.thresholds[window] - weight, self.scale) for window, weight in single.items())
            needed = {window: max(0, self.thresholds[window] - own[window]) for window in sorted(own.keys() & there)}
            alone += [] if needed else [name, bar]
            passes = pick(rng, None, *needed)
            noise = {window: max(0, least - (window != passes)) for window, least in needed.items()}
            begins = next((window for window, least in needed.items() if noise[window] == least), None)
            before.fixed |= {bar: {0: 0}, name: noise | dict.fromkeys(single, -SURE)}
            after.fixed |= {bar: {0: 0}, name: dict(before.fixed[name])}
            last = begins if begins is not None else max(needed, default=None)
            moved = there[last] - own[last] if last is not None else 0
            if moved > 0:
                after.fixed[bar][0] = after.by[bar][0] = moved
            elif moved and begins is not None:
                after.fixed[name][begins] -= moved
                after.by[name][begins] = -moved
        with keys_named():
            found = self.coupled(Table(seed, before), lambda sums: Table(seed, after, sums), *alone)
        return found._replace(ratio=max(found.ratio, event / self.delta))


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


# Random instances: each kind, rule of keys, unit, noise and clip.

KINDS = ("totals", "counts", "means")
KEY_RULES = ("none", "given", "public", "private")
UNITS = ("row", "rows", "rows in a period", "person", "person in a period", "person in windows")
#: Of finished sums and counts alone.
BY_CALENDAR = "person by a calendar"
NOISES = ("laplace", "gaussian")
VALUES = (-3.0, 0.0, 0.3, 1.0, 2.0, 5.0, 7.5, 10.0, 20.0)
#: Hours of the tables; minutes of the unit's rows in one period of two hours; the person whose rows differ.
HOURS, PERIOD, UNIT = 5, (120, 239), "unit"


class Choice(NamedTuple):
    """Parameters of an instance."""

    kind: str
    keys: str
    unit: str
    noise: str
    chooses: bool


def rows_of(rng: Generator, count: int, people: tuple[str, ...], keys: tuple[str, ...]) -> list[Row]:
    """Random rows, half of them on the hour."""
    return [
        Row(
            60 * int(rng.integers(HOURS)) + pick(rng, 0, 17), pick(rng, *keys), pick(rng, *people), pick(rng, *VALUES)
        )
        for _ in range(count)
    ]


def unit_rows(rng: Generator, unit: str, contributions: int, keys: tuple[str, ...]) -> list[Row]:
    """The rows that one unit has; every other time all alike, which hurts most."""
    most = {"row": 1, "rows": contributions, "rows in a period": contributions}.get(unit, contributions + 2)
    found = rows_of(rng, int(rng.integers(1, most + 1)), (UNIT,), keys)
    if pick(rng, False, True):
        return [Row(150, pick(rng, *keys), UNIT, pick(rng, -3.0, 10.0, 20.0))] * most
    if "in a period" in unit:
        found = [row._replace(minute=pick(rng, *PERIOD)) for row in found]
    return found


def tables_of(rng: Generator, choice: Choice, contributions: int) -> tuple[list[Row], list[Row]]:
    """A table without the unit's rows, and one with them, anywhere among the others."""
    keys: tuple[str, ...] = ("a", "b", "c")
    others = rows_of(rng, int(rng.integers(0, 9)), ("p", "q", "r"), keys)
    # Both ends of the time are public, and so are the keys where they are the table's.
    others += [Row(0, "a", "end", 1.0), Row(60 * HOURS - 1, "a", "end", 2.0)]
    if "in a period" in choice.unit:
        # The same unit in other periods.
        others += [row._replace(minute=row.minute % 120) for row in rows_of(rng, 2, (UNIT,), keys)]
    if choice.keys == "public":
        keys = tuple(sorted({row.key for row in others}))
    elif choice.keys == "private":
        keys = (*keys, "aa", "y", "z")
    both = list(others)
    for row in unit_rows(rng, choice.unit, contributions, keys):
        both.insert(int(rng.integers(len(both) + 1)), row)
    return others, both


def options_of(rng: Generator, choice: Choice) -> Json:
    """The parameters of a call."""
    options: Json = {"epsilon": pick(rng, 0.5, 1.0, 6.0)}
    if choice.kind != "counts":
        resolution = pick(rng, None, 0.5)
        # On a coarse grid several candidates are one clip, which does not tell the winner.
        value = fastdp.Value(BOUND, resolution=None if choice.chooses else resolution)
        if not choice.chooses:
            ends = pick(rng, 4.0, 10.0, 0.5, (-10.0, -5.0), (-3.0, 10.0), (0.0, 10.0), (5.0, 10.0))
            bound = (-BOUND, BOUND) if isinstance(ends, tuple) else BOUND
            value = replace(value, bound=bound, clip=ends)
        options |= {"bound": value, "value": "value"}
    options["unit"] = unit_of(rng, choice.unit)
    if choice.keys != "none":
        options["by"] = "key"
    if choice.keys != "none" and choice.unit == BY_CALENDAR:
        options["unit"] = replace(options["unit"], keys=pick(rng, None, 1, 2))
    if choice.keys != "none":
        private = fastdp.PrivateKeys(others=pick(rng, False, True))
        options["keys"] = {"given": ["b", "a", "q"], "public": "public", "private": private}[choice.keys]
    options["noise"] = choice.noise
    if choice.noise == "gaussian" or choice.keys == "private":
        options["delta"] = pick(rng, 1e-6, 0.01)
    ends = {"start": at(60), "stop": at(60 * 4)} if pick(rng, False, True) else {}
    return options | {"time": fastdp.Time("at", "1h", **ends)}


def unit_of(rng: Generator, unit: str) -> fastdp.Rows | fastdp.Person:
    """A unit of privacy of this kind."""
    k = 1 if unit == "row" else pick(rng, 1, 2, 4)
    if unit == "rows in a period":
        return fastdp.Rows(2, per="2h")
    if unit == "person in a period":
        return fastdp.Person("person", k, per="2h")
    if unit in ("person in windows", BY_CALENDAR):
        # No more rows of a person could count in three windows.
        basis: Any = pick(rng, "calendar", (1.0, 3.0)) if unit == BY_CALENDAR else "auto"
        return fastdp.Person("person", min(k, 3), per_window=pick(rng, 1, 2), basis=basis)
    return fastdp.Person("person", k) if unit == "person" else fastdp.Rows(k)


def rows_in(unit: fastdp.Rows | fastdp.Person) -> int:
    """Rows of one unit that count."""
    return int(unit.rows) if isinstance(unit, fastdp.Person) else unit.k


def choice_of(rng: Generator, kind: str, keys: str) -> Choice:
    """A unit, a noise, and whether the clip is chosen."""
    # Keys of persons are chosen by weights: tests/tables/test_keys.py.
    units = [unit for unit in UNITS if keys != "private" or "person" not in unit]
    if keys != "private" and kind != "means":
        units.append(BY_CALENDAR)
    unit, noise = pick(rng, *units), pick(rng, *NOISES)
    return Choice(kind, keys, unit, noise, kind != "counts" and pick(rng, False, True))


def draw(rng: Generator, kind: str, keys: str, **fixed: Any) -> TableInstance:
    """An instance of a call; ``fixed`` are fields of its choice, or parameters."""
    choice = choice_of(rng, kind, keys)
    choice = choice._replace(**{name: fixed.pop(name) for name in tuple(fixed) if name in Choice._fields})
    options = {**options_of(rng, choice), **fixed}
    pair = tables_of(rng, choice, rows_in(options["unit"]))
    return instance_of(rng, choice, options, pair, partial(batch_release, kind, options))


def instance_of(
    rng: Generator, choice: Choice, options: Json, pair: tuple[Any, Any], release: Release
) -> TableInstance:
    """Two tables, either of them first."""
    gaussian, private = choice.noise == "gaussian", choice.keys == "private"
    delta = options.get("delta", 0.0)
    # Private keys beside Gaussian noise have half of delta.
    own = delta / (2.0 if gaussian else 1.0) if private else 0.0
    claim = options["epsilon"] if not gaussian else zcdp_loss(options["epsilon"], delta - own) ** 2 / 2.0
    x, there = pair if pick(rng, False, True) else pair[::-1]
    seen = partial(see_release, release)
    return TableInstance(claim, seen, x, there, check.no_shifts, gaussian, release, own)


def draw_online(rng: Generator, kind: str, keys: str, **fixed: Any) -> TableInstance:
    """An instance of ``fastdp.Windows``: the same rows in the same batches, but the unit's; some come late."""
    choice = Choice(kind, keys, pick(rng, *UNITS), pick(rng, *NOISES), False)
    choice = choice._replace(**{name: fixed.pop(name) for name in tuple(fixed) if name in Choice._fields})
    # Windows close one by one: persons are bounded in a period, and in each of its windows.
    person, choice = (
        "person" in choice.unit,
        choice._replace(unit=choice.unit.replace("person", "person in a period")),
    )
    given = {**options_of(rng, choice), **fixed}
    statistics = {"totals": {"value": "sum"}, "counts": {"*": "count"}, "means": {"value": "mean"}}[kind]
    options: Json = {"statistics": statistics, "time": fastdp.Time("at", "1h", start=at(pick(rng, 0, 60)))}
    options |= {name: given[name] for name in ("epsilon", "delta", "unit", "by", "keys", "noise") if name in given}
    if kind != "counts":
        options["bounds"] = given["bound"]
    if keys == "private":
        options["keys"] = fastdp.PrivateKeys()
    if person:
        each = pick(rng, 1, 2)
        options["unit"] = fastdp.Person("person", 2 * each, per="2h", per_window=each)
    pair = tables_of(rng, choice, rows_in(options["unit"]))
    release = partial(online_release, options, int(rng.integers(-1, 3)))
    instance = instance_of(rng, choice, options, batched(rng, *pair), release)
    if keys != "private":
        return instance
    with of_noise(options) as given:
        machine: Any = fastdp.Windows(**given, seed=0).machine
    rule, start = machine.appearing, machine.plan.start - FIRST
    thresholds = dict(enumerate(rule.thresholds(0, HOURS + 2).tolist(), start))
    return OnlineKeysInstance(**vars(instance), thresholds=thresholds, scale=rule.scale)


def batched(rng: Generator, others: list[Row], both: list[Row]) -> tuple[Any, Any]:
    """Both tables in the same three batches, each followed by the same clock."""

    def counted(rows: list[Row]) -> list[tuple[Row, int]]:
        """Pair each row with the number of equal rows before it, so that it is in the same batch in both tables."""
        return [(row, rows[:number].count(row)) for number, row in enumerate(rows)]

    clocks = sorted(rng.integers(0, 60 * HOURS + 60, 3).tolist())
    numbers = {row: int(rng.integers(3)) for row in sorted(counted(both))}

    def split(rows: list[Row]) -> list[tuple[int, list[Row]]]:
        marked = counted(rows)
        return [(clock, [row[0] for row in marked if numbers[row] == i]) for i, clock in enumerate(clocks)]

    return split(others), split(both)


#: Calls on tables by rule of keys, and ``Windows``; none where their packages are missing.
TABLES: dict[str, check.Draw] = {}
if TABLES_INSTALLED:
    TABLES |= {f"{kind}-{keys}": partial(draw, kind=kind, keys=keys) for kind in KINDS for keys in KEY_RULES}
    TABLES |= {
        f"windows-{kind}-{keys}": partial(draw_online, kind=kind, keys=keys)
        for kind in KINDS
        for keys in ("none", "given", "private")
    }
