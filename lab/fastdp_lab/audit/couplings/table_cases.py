"""Small random instances of tables, for couplings: each kind, rule of keys, unit, noise and clip."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from fastdp.guarantee import zcdp_loss
from fastdp_lab.audit.couplings.check import Draw, Generator, no_shifts, pick
from fastdp_lab.audit.couplings.tables import (
    BOUND,
    Release,
    Row,
    TableInstance,
    at,
    batch_release,
    online_release,
    see_release,
)
from fastdp_lab.audit.runs import TABLES_INSTALLED

KINDS = ("totals", "counts", "means")
KEY_RULES = ("none", "given", "public", "private")
UNITS = ("row", "rows", "rows in a period", "person", "person in a period", "person in windows")
NOISES = ("laplace", "gaussian")
VALUES = (-3.0, 0.0, 0.3, 1.0, 2.0, 5.0, 7.5, 10.0, 20.0)
HOURS = 5
#: The unit's rows, when they are in one period of two hours: hours 2 and 3.
PERIOD = (120, 239)
#: The person whose rows the two tables differ in.
UNIT = "unit"


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


def options_of(rng: Generator, choice: Choice) -> dict[str, Any]:
    """The parameters of a call."""
    options: dict[str, Any] = {"every": "1h", "epsilon": pick(rng, 0.5, 1.0, 6.0)}
    if choice.kind != "counts":
        resolution = pick(rng, None, 0.5)
        # On a coarse grid several candidates are one clip, which does not tell the winner.
        options |= {"bound": BOUND, "resolution": None if choice.chooses else resolution}
        if not choice.chooses:
            ends = pick(rng, 4.0, 10.0, 0.5, (-10.0, -5.0), (-3.0, 10.0), (0.0, 10.0), (5.0, 10.0))
            options |= {"bound": (-BOUND, BOUND) if isinstance(ends, tuple) else BOUND, "clip": ends}
    options["contributions"] = 1 if choice.unit == "row" else pick(rng, 1, 2, 4)
    if "in a period" in choice.unit:
        options["period"] = "2h"
        if choice.unit == "rows in a period":
            options["contributions"] = 2
    if choice.unit == "person in windows":
        # No more rows of a person could count in three windows.
        options |= {"per_window": pick(rng, 1, 2), "contributions": min(options["contributions"], 3)}
    if "person" in choice.unit:
        options["who"] = "person"
    if choice.keys != "none":
        options["by"] = "key"
    if choice.keys in ("given", "public"):
        options["keys"] = "public" if choice.keys == "public" else ["b", "a", "q"]
    if choice.noise == "gaussian":
        options["noise"] = "gaussian"
    if choice.noise == "gaussian" or choice.keys == "private":
        options["delta"] = pick(rng, 1e-6, 0.01)
    if pick(rng, False, True):
        options |= {"start": at(60), "stop": at(60 * 4)}
    return options


def choice_of(rng: Generator, kind: str, keys: str) -> Choice:
    """A unit, a noise, and whether the clip is chosen."""
    unit, noise = pick(rng, *UNITS), pick(rng, *NOISES)
    return Choice(kind, keys, unit, noise, kind != "counts" and pick(rng, False, True))


def draw(rng: Generator, kind: str, keys: str, **fixed: Any) -> TableInstance:
    """An instance of a call; ``fixed`` are fields of its choice, or parameters."""
    choice = choice_of(rng, kind, keys)
    choice = choice._replace(**{name: fixed.pop(name) for name in tuple(fixed) if name in Choice._fields})
    options = {**options_of(rng, choice), **fixed}
    pair = tables_of(rng, choice, options["contributions"])
    return instance_of(rng, choice, options, pair, partial(batch_release, kind, options))


def instance_of(
    rng: Generator, choice: Choice, options: dict[str, Any], pair: tuple[Any, Any], release: Release
) -> TableInstance:
    """Two tables, either of them first."""
    gaussian, private = choice.noise == "gaussian", choice.keys == "private"
    delta = options.get("delta", 0.0)
    # Private keys beside Gaussian noise have half of delta.
    own = delta / (2.0 if gaussian else 1.0) if private else 0.0
    claim = options["epsilon"] if not gaussian else zcdp_loss(options["epsilon"], delta - own) ** 2 / 2.0
    x, there = pair if pick(rng, False, True) else pair[::-1]
    seen = partial(see_release, release)
    return TableInstance(claim, seen, x, there, no_shifts, gaussian, release, choice.chooses, own)


def draw_online(rng: Generator, kind: str, keys: str, **fixed: Any) -> TableInstance:
    """An instance of ``fastdp.Windows``: the same rows in the same batches, but the unit's; some come late."""
    unit = fixed.pop("unit", None) or pick(rng, *UNITS)
    # Windows close one by one: persons are bounded in a period, and in each of its windows.
    unit = "person in a period" if "person" in unit else unit
    choice = Choice(kind, keys, unit, "laplace", False)
    given = {**options_of(rng, choice), **fixed}
    options: dict[str, Any] = {"start": at(pick(rng, 0, 60))}
    same = "every", "epsilon", "contributions", "period", "by", "keys"
    options |= {name: given[name] for name in same if name in given}
    if kind == "counts":
        options["counts"] = True
    else:
        options |= {"means": kind == "means", "bound": given["clip"], "resolution": given["resolution"]}
    if "person" in unit:
        each = pick(rng, 1, 2)
        options |= {"who": True, "per_window": each, "contributions": 2 * each}
    pair = tables_of(rng, choice, options["contributions"])
    release = partial(online_release, options, int(rng.integers(-1, 3)))
    return instance_of(rng, choice, options, batched(rng, *pair), release)


def batched(rng: Generator, others: list[Row], both: list[Row]) -> tuple[Any, Any]:
    """Both tables in the same three batches, each followed by the same clock."""

    def counted(rows: list[Row]) -> list[tuple[Row, int]]:
        """Each row with the number of equal ones before it, so that it is in the same batch in both tables."""
        return [(row, rows[:number].count(row)) for number, row in enumerate(rows)]

    clocks = sorted(rng.integers(0, 60 * HOURS + 60, 3).tolist())
    numbers = {row: int(rng.integers(3)) for row in sorted(counted(both))}

    def split(rows: list[Row]) -> list[tuple[int, list[Row]]]:
        marked = counted(rows)
        return [(clock, [row[0] for row in marked if numbers[row] == i]) for i, clock in enumerate(clocks)]

    return split(others), split(both)


#: Calls on tables by rule of keys, and ``Windows``; none where their packages are missing.
TABLES: dict[str, Draw] = {}
if TABLES_INSTALLED:
    TABLES |= {f"{kind}-{keys}": partial(draw, kind=kind, keys=keys) for kind in KINDS for keys in KEY_RULES}
    TABLES |= {
        f"windows-{kind}-{keys}": partial(draw_online, kind=kind, keys=keys)
        for kind in KINDS
        for keys in ("none", "given")
    }
