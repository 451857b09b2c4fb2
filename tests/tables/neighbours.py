"""Small tables, their neighbours, and the ways to release them: for exact losses over all of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import fastdp
from fastdp import guarantee
from fastdp.guarantee import Guarantee, zcdp_delta
from fastdp.tables.released import Released
from tests.tables import flat
from tests.tables.forced import Hidden, Script, forced, without_replaced
from tests.tables.losses import gaussian_tail, is_gaussian, loss, moved

#: Hour or None, key, value, person.
Row = tuple[int | None, str, float, int]
Rows = tuple[Row, ...]
EPSILON, DELTA, K = 0.7, 1e-3, 2
BEGIN = datetime(2024, 1, 1)
#: Statistics of :func:`fastdp.aggregate`.
STATISTICS: dict[str, dict[str, Any]] = {
    "totals": {"value": "sum"},
    "counts": {"*": "count"},
    "means": {"value": "mean"},
    "var": {"value": "var"},
    "std": {"value": ["std"]},
    "median": {"value": "median"},
    "percentiles": {"value": ["p95", "p0.5"]},
    "nunique": {"value": "nunique"},
    "several": {"value": ["sum", "mean", "std", "p95", "nunique"], "*": "count"},
}
#: Those without bounds, and those without a sum of values, which choose no clip.
UNBOUNDED, UNCLIPPED = ("counts", "nunique"), ("counts", "nunique", "median", "percentiles")
#: Those that have short forms, and that :func:`flat.windows` makes.
KINDS = ("totals", "counts", "means")
#: Rows of a unit at worst: k count, four times as many are dropped of a person.
MOST = 5 * K
UNITS: dict[str, dict[str, Any]] = {
    "row": {},
    "rows": {"contributions": K},
    "rows, period": {"contributions": K, "period": "2h"},
    "person": {"contributions": K, "who": "person"},
    "person, period": {"contributions": K, "who": "person", "period": "2h"},
    "per_window": {"contributions": K, "who": "person", "per_window": 1},
    "per_window, period": {"contributions": K, "who": "person", "per_window": 1, "period": "2h"},
    "auto": {"contributions": "auto", "who": "person"},
}
KEY_RULES = ("none", "given", "public", "private", "private, others")
NOISES = ("laplace", "gaussian")
#: Arguments, and values below, at and above the ends of the clip.
CLIPS = {
    "one end": ({"clip": 2.0}, (-1.0, 2.0, 3.0)),
    "two ends above 0": ({"clip": (5.0, 10.0)}, (4.0, 7.0, 12.0)),
    "two ends about 0": ({"clip": (-3.0, 7.0)}, (-4.0, 1.0, 9.0)),
    "chosen": ({"bound": 10.0}, (4e-9, -1.0, 12.0)),
    "chosen at both ends": ({"bound": (-6.0, 10.0)}, (-8.0, 3.0, 12.0)),
}
ENDS = {
    "given": {"start": BEGIN, "stop": BEGIN + timedelta(hours=3)},
    "first taken": {"stop": "2024-01-01T03:00"},
    "taken": {},
    # One window of all rows.
    "none": {},
}


@dataclass(frozen=True)
class Case:
    """One way to release a table."""

    kind: str
    unit: str
    keys: str
    noise: str = "laplace"
    clip: str = "one end"
    ends: str = "given"
    online: bool = False
    categories: bool = False
    levels: bool | None = False

    @property
    def accepted(self) -> bool:
        """False for periods without times, and for more rows than one window has."""
        return self.ends != "none" or not ("period" in self.unit or self.unit.startswith("per_window"))

    @property
    def by_person(self) -> bool:
        return "who" in UNITS[self.unit]

    @property
    def private(self) -> bool:
        return self.keys.startswith("private")

    @property
    def values(self) -> tuple[float, ...]:
        return CLIPS[self.clip][1]

    @property
    def scripts(self) -> list[Script]:
        keys = (("a",), ("b",)) if self.private else ()
        if self.unit == "auto":
            # One row of a person, and many.
            return [Script(1, 0.0, keys), Script(0, 0.2, keys)]
        if "chosen" not in self.clip or self.kind in UNCLIPPED:
            return [Script(keys=keys)]
        return [Script(seed, clip, keys) for seed, clip in ((34, 0.0), (0, 0.55), (4, 1.0), (8, 0.97))]

    @property
    def delta(self) -> float:
        return DELTA if self.noise == "gaussian" or self.private else 0.0

    @property
    def options(self) -> dict[str, Any]:
        keys = {
            "none": {},
            "given": {"by": "key", "keys": ["a", "b"]},
            "public": {"by": "key", "keys": "public"},
            "private": {"by": "key"},
            "private, others": {"by": "key", "keys": fastdp.PrivateKeys(others=True)},
        }[self.keys]
        delta = {"delta": self.delta} if self.delta else {}
        clip = {} if self.kind in UNBOUNDED else CLIPS[self.clip][0]
        noise = {"noise": self.noise} if self.delta and not self.online else {}
        # Online a period of several windows needs a bound for each of them.
        shorter = {"period": "1h"} if self.online and self.unit == "person, period" else {}
        return {"epsilon": EPSILON, **UNITS[self.unit], **shorter, **keys, **delta, **clip, **noise}


def cases(online: bool = False) -> list[Case]:
    """All ways of statistics that have short forms, of cells alone."""
    if online:
        rules: Any = (
            ("none", "given"),
            ("laplace",),
            [name for name in CLIPS if "chosen" not in name],
            ("given", "taken"),
        )
    else:
        rules = (KEY_RULES, NOISES, CLIPS, ENDS)
    # Online a person needs a period, as windows close one by one.
    units_of = [name for name in UNITS if not online or name not in ("person", "per_window", "auto")]
    listed = [Case(*each, online) for each in itertools.product(KINDS, units_of, *rules)]
    return [case for case in listed if case.accepted and (case.kind != "counts" or case.clip == "one end")]


def ways(kind: str, unit: str) -> list[Case]:
    """Of a statistic and a unit the product of keys, noises and levels; clips and ends in turn."""
    turn = list(STATISTICS).index(kind) + 3 * list(UNITS).index(unit)
    found = []
    for i, rules in enumerate(itertools.product(KEY_RULES, NOISES, (False, True, None)), start=turn):
        keys, noise, levels = rules
        clip = "one end" if kind in UNBOUNDED else list(CLIPS)[(i + i // 4) % 5]
        listed = [name for name in ENDS if name != "none" or "period" not in unit]
        found.append(Case(kind, unit, keys, noise, clip, listed[(i + i // 3) % len(listed)], levels=levels))
    return found


# Tables and their neighbours.

#: Persons with rows at both ends and on both keys, so that others change no public fact.
CROWD: Rows = ((0, "a", 1.0, 90), (3, "b", 1.0, 90), (1, "a", 6.0, 91), (2, "b", 6.0, 91))
#: Where the number of rows is chosen, one row of a person may count: each key has a person of its own.
ONE_ROW_EACH: Rows = ((1, "a", 1.0, 92), (2, "b", 1.0, 93))


def others(case: Case) -> Rows:
    """Rows of other persons, who hold both keys whatever is chosen."""
    return (*CROWD, *ONE_ROW_EACH) if case.unit == "auto" else CROWD


def domain(case: Case) -> list[Row]:
    """Rows that a unit may add: three windows of two periods, one of them behind the end; a key that is not given."""
    persons = (0, 1) if case.by_person else (0,)
    values = (1.0,) if case.kind == "counts" else case.values
    return list(itertools.product((0, 1, 3), ("a", "b", "c"), values, persons))


def extremes(case: Case) -> Iterator[Rows]:
    """Tables of the crowd and one unit whose rows lie as badly as they may; their values are distinct."""
    second = 1 if "per_window" in UNITS[case.unit] else 0
    crowd = others(case)
    if case.unit == "auto":
        # So many have more than five rows that one more moves the scores of the choice.
        crowd += tuple((1, "a", 1.0, 100 + i % 140) for i in range(6 * 140))
    for value in case.values if "chosen" in case.clip else case.values[::2]:
        distinct = [value]
        for _ in range((MOST if case.by_person else K) - 1):
            distinct.append(math.nextafter(distinct[-1], math.copysign(math.inf, value)))
        unit = [(second * (i % 2), "a", each, 0) for i, each in enumerate(distinct)]
        yield (*unit, *crowd)
        # On keys of its own.
        if case.private:
            yield (*crowd, *((hour, "cd"[i % 2], *rest) for i, (hour, _, *rest) in enumerate(unit)))


def enumerated(case: Case) -> Iterator[Rows]:
    """The crowd and each table of up to two rows of one unit, their values below or above the clip's ends."""
    rows = [row for row in domain(case) if row[2] != case.values[1] and row[3] == 0]
    for size in (1, 2):
        for added in itertools.combinations_with_replacement(rows, size):
            yield (*others(case), *added)


def drawn(case: Case, seed: int, count: int) -> Iterator[Rows]:
    """The crowd and up to six other rows, in any order, some of them without a time or a value."""
    generator, rows = np.random.default_rng(seed), domain(case)
    for _ in range(count):
        chosen = [rows[i] for i in generator.integers(0, len(rows), generator.integers(1, 7))]
        odd = [
            (None, *row[1:]) if u < 0.1 else row for row, u in zip(chosen, generator.random(len(chosen)), strict=True)
        ]
        odd = [
            (*row[:2], float("nan"), row[3]) if u < 0.1 else row
            for row, u in zip(odd, generator.random(len(odd)), strict=True)
        ]
        whole = [*others(case), *odd]
        yield tuple(whole[i] for i in generator.permutation(len(whole)))


def units(case: Case, rows: Rows) -> Iterator[frozenset[int]]:
    """Rows that each unit has, or may have."""
    length = int(case.options.get("period", "9h")[:-1])
    period = [None if row[0] is None else row[0] // length for row in rows]
    if case.by_person:
        labels = [(row[3], of if "period" in case.unit else 0) for row, of in zip(rows, period, strict=True)]
        for label in dict.fromkeys(labels):
            # A row without a time is in no period.  The crowd's persons have few rows.
            if label[1] is not None and label[0] < 90:
                yield frozenset(i for i, of in enumerate(labels) if of == label)
        return
    # Of the crowd one row stands for all.
    several = [i for i, row in enumerate(rows) if row not in CROWD[1:]]
    for size in range(1, UNITS[case.unit].get("contributions", 1) + 1):
        for chosen in itertools.combinations(several, size):
            if "period" not in case.unit or len({period[i] for i in chosen} - {None}) == 1:
                yield frozenset(chosen)


def facts(case: Case, rows: Rows) -> Any:
    """Public facts of a table, by its guarantee: neighbours have them in common."""
    hours = [row[0] for row in rows if row[0] is not None]
    known: list[Any] = [{row[1] for row in rows}] if case.keys == "public" else []
    if case.ends == "taken":
        known += [min(hours, default=None), max(hours, default=None)]
    if case.ends == "first taken":
        known.append(min(hours, default=None))
    return known


# Releases.


class Run(NamedTuple):
    """Shown, promised and hidden numbers of a release."""

    shown: Any
    guarantee: Guarantee
    hidden: Hidden


def table_of(rows: Iterable[Row], categories: bool = False) -> pa.Table:
    """Rows as a table; keys and persons as categories, in the order in which they come, if need be."""
    rows = list(rows)
    times = [None if row[0] is None else BEGIN + timedelta(hours=row[0], minutes=30) for row in rows]
    columns = {
        "at": pa.array(times, pa.timestamp("us")),
        "key": pa.array([row[1] for row in rows], pa.string()),
        "value": pa.array([row[2] for row in rows], pa.float64()),
        "person": pa.array([row[3] for row in rows], pa.int64()),
    }
    if categories:
        persons = columns["person"].cast(pa.string())
        columns |= {"key": columns["key"].dictionary_encode(), "person": persons.dictionary_encode()}
    return pa.table(columns)


def plain(value: Any) -> Any:
    """A released value in terms that compare."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    # An address is no number of a release.
    return plain(vars(value)) if type(value).__repr__ is object.__repr__ else repr(value)


def run(case: Case, script: Script, rows: Rows) -> Run:
    """One release."""
    with forced(script) as hidden, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        released = online(case, rows) if case.online else [batch(case, rows)]
    shown = [plain(sums) for sums in released], [(str(each.message), each.category) for each in warned]
    return Run(shown, released[-1].guarantee, without_replaced(hidden, released[-1]))


def batch(case: Case, rows: Rows) -> Released:
    given = flat.in_units(case.options)
    ends = {name: given.pop(name) for name in ("clip", "bound") if name in given}
    noise, bounds = given.pop("noise", None), fastdp.Value(nonfinite="zero", **ends) if ends else None
    time = None if case.ends == "none" else fastdp.Time("at", "1h", missing="drop", **ENDS[case.ends])
    frame = table_of(rows)
    if case.categories:
        half = len(rows) // 2
        frame = pa.concat_tables([table_of(part, True) for part in (rows[:half], rows[half:]) if part])
    with flat.noise_is(noise):
        return fastdp.aggregate(
            frame, STATISTICS[case.kind], time, bounds=bounds, levels=case.levels, seed=1, **given
        ).released


def online(case: Case, rows: Rows) -> list[Released]:
    """In two batches, which the crowd's last row parts; with ends "taken" the rows move the clock."""
    given = dict(case.options)
    given |= {"who": "who" in given, "counts": case.kind == "counts", "means": case.kind == "means"}
    if "clip" in given:
        given["bound"] = given.pop("clip")
    late = {"lateness": "2h"} if case.ends == "taken" else {}
    windows = flat.windows("1h", start=BEGIN, nonfinite="zero", seed=1, **late, **given)
    out = []
    for part in batches(rows):
        table = table_of((row for row in part if row[0] is not None), case.categories)
        columns = {name: table[name].combine_chunks() for name in table.column_names}
        added = windows.add(
            columns["at"],
            None if case.kind == "counts" else columns["value"],
            columns["key"] if case.options.get("by") else None,
            columns["person"] if case.by_person else None,
        )
        out += [added.released, windows.advance(BEGIN + timedelta(hours=1 + len(out) // 2)).released]
    return [*out, windows.advance(BEGIN + timedelta(hours=3)).released]


# Exact losses.


#: Functions of public numbers that take long.
REPEATED = (
    (guarantee, "zcdp_delta"),
    (guarantee, "zcdp_epsilon"),
)


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, computed once for arguments of equal text: Gaussian noise has tables, and so no hash."""
    known: dict[str, Any] = {}

    def recall(*given: Any) -> Any:
        text = repr(given)
        if text not in known:
            known[text] = function(*given)
        return known[text]

    return recall


@dataclass(frozen=True)
class Worst:
    """The largest losses of many pairs, each over all of them, beside what is claimed."""

    pairs: int
    claim: Guarantee
    epsilon: Fraction
    rho: Fraction
    alone: float
    tail: float
    #: What conversion of rho and keys of one table alone add up to: of one pair where both share delta.
    delta: float

    @property
    def share(self) -> float:
        """The worst as a share of the claim: of epsilon, of rho, or of delta where keys have a part of it."""
        if not self.gaussian:
            return max(float(self.epsilon / Fraction(self.claim.epsilon)), self.alone / (self.claim.delta or 1.0))
        if math.isfinite(self.claim.rho):
            return float(self.rho / Fraction(self.claim.rho))
        return self.delta / self.claim.delta

    @property
    def gaussian(self) -> bool:
        return self.tail >= 0.0

    @property
    def holds(self) -> bool:
        """True if the claim does; of parts that compose the worst ones may come from different pairs."""
        pure = self.gaussian or self.epsilon <= Fraction(self.claim.epsilon)
        return pure and self.rho <= self.claim.rho and max(self.delta, self.tail) <= self.claim.delta


def examine(case: Case, tables: Iterable[Rows]) -> Worst:
    """Every table with each of its neighbours; an assertion unless all that they show is equal."""
    pairs, found, claim = 0, [], None
    tables = list(tables)
    with pytest.MonkeyPatch.context() as patch:
        # The same conversions of rho, and thresholds, a thousand times.
        for module, name in REPEATED:
            patch.setattr(module, name, remembered(getattr(module, name)))
        for script in case.scripts:
            release = cache(partial(run, case, script))
            for rows in tables:
                for unit in units(case, rows):
                    fewer = tuple(row for i, row in enumerate(rows) if i not in unit)
                    if not comparable(case, rows, fewer):
                        continue
                    here, there = release(rows), release(fewer)
                    assert here.shown == there.shown, (case, script, rows, fewer)
                    pairs, claim = pairs + 1, here.guarantee
                    each, tail = loss(here.hidden, there.hidden), tail_of(here, there)
                    spent = zcdp_delta(float(each.rho), claim.epsilon) if tail >= 0.0 else 0.0
                    found.append((*each, tail, spent + each.alone))
    assert claim is not None
    epsilon, rho, alone, tail, delta = (max(each) for each in zip(*found, strict=True))
    if not case.by_person:
        delta = (zcdp_delta(float(rho), claim.epsilon) if tail >= 0.0 else 0.0) + alone
    return Worst(pairs, claim, epsilon, rho, alone, tail, delta)


def tail_of(here: Run, there: Run) -> float:
    """The exact delta of Gaussian counts at the claimed epsilon; -1 without Gaussian noise, 0 where that is wide."""
    pairs = [
        (one.distribution.sigma, moved(one, other))
        for one, other in zip(here.hidden, there.hidden, strict=True)
        if is_gaussian(one)
    ]
    if not pairs:
        return -1.0
    (sigma, moves), *others = pairs
    if others or sigma > 200:
        return 0.0
    return gaussian_tail(moves, sigma, here.guarantee.epsilon)


def comparable(case: Case, rows: Rows, fewer: Rows) -> bool:
    """True if the tables have all public facts in common, and both the keys of the script."""
    if facts(case, rows) != facts(case, fewer):
        return False
    if case.online:
        return CROWD[-1] in fewer and (case.ends == "given" or _clocks(rows) == _clocks(fewer))
    return not case.private or set(CROWD) <= set(fewer)


def _clocks(rows: Rows) -> list[Any]:
    """The latest time of each batch."""
    return [max((row[0] for row in part if row[0] is not None), default=None) for part in batches(rows)]


def batches(rows: Rows) -> tuple[Rows, Rows]:
    """Rows that arrive first, and then."""
    place = rows.index(CROWD[-1])
    return rows[:place], rows[place:]
