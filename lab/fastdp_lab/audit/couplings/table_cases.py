"""Small random instances of tables, for couplings: each kind, rule of keys, unit, noise and clip."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from fastdp.guarantee import zcdp_loss
from fastdp_lab.audit.couplings.check import Case, Shifts
from fastdp_lab.audit.couplings.streams import Generator, pick
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


def rows_of(generator: Generator, count: int, people: tuple[str, ...], keys: tuple[str, ...]) -> list[Row]:
    """Random rows, half of them on the hour."""
    return [
        Row(
            60 * int(generator.integers(HOURS)) + int(pick(generator, 0, 17)),
            str(pick(generator, *keys)),
            str(pick(generator, *people)),
            float(pick(generator, *VALUES)),
        )
        for _ in range(count)
    ]


def unit_rows(generator: Generator, unit: str, contributions: int, keys: tuple[str, ...]) -> list[Row]:
    """The rows that one unit has; every other time all alike, which hurts most."""
    most = {"row": 1, "rows": contributions, "rows in a period": contributions}.get(unit, contributions + 2)
    count = int(generator.integers(1, most + 1))
    found = rows_of(generator, count, (UNIT,), keys)
    if pick(generator, False, True):
        worst = Row(150, str(pick(generator, *keys)), UNIT, float(pick(generator, -3.0, 10.0, 20.0)))
        return [worst] * most
    if "in a period" in unit:
        found = [row._replace(minute=int(pick(generator, *PERIOD))) for row in found]
    return found


def tables_of(generator: Generator, choice: Choice, contributions: int) -> tuple[list[Row], list[Row]]:
    """A table without the unit's rows, and one with them, anywhere among the others."""
    keys = ("a", "b", "c")
    others = rows_of(generator, int(generator.integers(0, 9)), ("p", "q", "r"), keys)
    # Both ends of the time are public, and so are the keys where they are the table's.
    others += [Row(0, "a", "end", 1.0), Row(60 * HOURS - 1, "a", "end", 2.0)]
    if choice.unit in ("rows in a period", "person in a period"):
        # The same unit in other periods.
        others += [row._replace(minute=row.minute % 120) for row in rows_of(generator, 2, (UNIT,), keys)]
    mine = tuple(sorted({row.key for row in others})) if choice.keys == "public" else keys
    if choice.keys == "private":
        mine = (*keys, "aa", "y", "z")
    own = unit_rows(generator, choice.unit, contributions, mine)
    both = list(others)
    for row in own:
        both.insert(int(generator.integers(len(both) + 1)), row)
    return others, both


def options_of(generator: Generator, choice: Choice) -> dict[str, Any]:
    """The parameters of a call."""
    options: dict[str, Any] = {"every": "1h", "epsilon": float(pick(generator, 0.5, 1.0, 6.0))}
    if choice.kind != "counts":
        options |= {"bound": BOUND, "resolution": pick(generator, None, 0.5)}
        if not choice.chooses:
            ends = pick(generator, 4.0, 10.0, 0.5, (-10.0, -5.0), (-3.0, 10.0), (0.0, 10.0), (5.0, 10.0))
            options |= {"bound": (-BOUND, BOUND) if isinstance(ends, tuple) else BOUND, "clip": ends}
        else:
            # On a coarse grid several candidates are one clip, which does not tell the winner.
            options["resolution"] = None
    options |= {"contributions": 1 if choice.unit == "row" else int(pick(generator, 1, 2, 4))}
    if "in a period" in choice.unit:
        options["period"] = "2h"
        if choice.unit == "rows in a period":
            options["contributions"] = 2
    if choice.unit == "person in windows":
        options["per_window"] = int(pick(generator, 1, 2))
        # No more rows of a person could count in three windows.
        options["contributions"] = min(options["contributions"], 3)
    if "person" in choice.unit:
        options["who"] = "person"
    if choice.keys != "none":
        options["by"] = "key"
    if choice.keys in ("given", "public"):
        options["keys"] = "public" if choice.keys == "public" else ["b", "a", "q"]
    if choice.noise == "gaussian":
        options |= {"noise": "gaussian", "delta": float(pick(generator, 1e-6, 0.01))}
    elif choice.keys == "private":
        options["delta"] = float(pick(generator, 1e-6, 0.01))
    if pick(generator, False, True):
        options |= {"start": at(60), "stop": at(60 * 4)}
    return options


def choice_of(generator: Generator, kind: str, keys: str) -> Choice:
    """A unit, a noise, and whether the clip is chosen."""
    unit, noise = str(pick(generator, *UNITS)), str(pick(generator, *NOISES))
    return Choice(kind, keys, unit, noise, kind != "counts" and bool(pick(generator, False, True)))


def draw(generator: Generator, kind: str, keys: str, **fixed: Any) -> TableInstance:
    """An instance of a call; ``fixed`` are fields of its choice, or parameters."""
    choice = choice_of(generator, kind, keys)
    named = {name: fixed.pop(name) for name in tuple(fixed) if name in Choice._fields}
    choice = choice._replace(**named)
    options = {**options_of(generator, choice), **fixed}
    pair = tables_of(generator, choice, options["contributions"])
    return instance_of(generator, choice, options, pair, partial(batch_release, kind, options))


def instance_of(
    generator: Generator, choice: Choice, options: dict[str, Any], pair: tuple[Any, Any], release: Release
) -> TableInstance:
    """Two tables, either of them first."""
    gaussian, private = choice.noise == "gaussian", choice.keys == "private"
    delta = options.get("delta", 0.0)
    # Private keys beside Gaussian noise have half of delta.
    own = delta / 2.0 if gaussian and private else delta if private else 0.0
    claim = options["epsilon"] if not gaussian else zcdp_loss(options["epsilon"], delta - own) ** 2 / 2.0
    x, there = pair if pick(generator, False, True) else pair[::-1]
    return TableInstance(
        claim,
        partial(see_release, release),
        x,
        there,
        lambda _: Shifts(),
        gaussian,
        release=release,
        chooses=choice.chooses,
        delta=own,
    )


def draw_online(generator: Generator, kind: str, keys: str, **fixed: Any) -> TableInstance:
    """An instance of ``fastdp.Windows``: the same rows in the same batches, but the unit's; some come late."""
    unit = fixed.pop("unit", None) or str(pick(generator, *UNITS))
    # Windows close one by one: persons are bounded in a period, and in each of its windows.
    unit = "person in a period" if "person" in unit else unit
    choice = Choice(kind, keys, unit, "laplace", False)
    given = {**options_of(generator, choice), **fixed}
    options: dict[str, Any] = {"start": at(pick(generator, 0, 60))}
    same = "every", "epsilon", "contributions", "period", "by", "keys"
    options |= {name: given[name] for name in same if name in given}
    if kind == "counts":
        options["counts"] = True
    else:
        options |= {"means": kind == "means", "bound": given["clip"], "resolution": given["resolution"]}
    if "person" in unit:
        each = int(pick(generator, 1, 2))
        options |= {"who": True, "per_window": each, "contributions": 2 * each}
    pair = tables_of(generator, choice, options["contributions"])
    release = partial(online_release, options, int(generator.integers(-1, 3)))
    return instance_of(generator, choice, options, batched(generator, *pair), release)


def counted(rows: list[Row]) -> list[tuple[Row, int]]:
    """Each row with the number of equal ones before it."""
    return [(row, rows[:number].count(row)) for number, row in enumerate(rows)]


def batched(generator: Generator, others: list[Row], both: list[Row]) -> tuple[Any, Any]:
    """Both tables in the same three batches, each followed by the same clock."""
    clocks = sorted(generator.integers(0, 60 * HOURS + 60, 3).tolist())
    # By content and how many equal rows came before, so that a row is in the same batch in both tables.
    numbers = {row: int(generator.integers(3)) for row in sorted(counted(both))}

    def split(rows: list[Row]) -> list[tuple[int, list[Row]]]:
        marked = counted(rows)
        return [(clock, [row[0] for row in marked if numbers[row] == i]) for i, clock in enumerate(clocks)]

    return split(others), split(both)


def table_cases() -> list[Case]:
    """Calls on tables by rule of keys, and ``Windows``; none where their packages are missing."""
    if find_spec("pyarrow") is None or find_spec("narwhals") is None:
        return []
    drawn: dict[str, Callable[[Generator], TableInstance]] = {
        f"{kind}-{keys}": partial(draw, kind=kind, keys=keys) for kind in KINDS for keys in KEY_RULES
    }
    drawn |= {
        f"windows-{kind}-{keys}": partial(draw_online, kind=kind, keys=keys)
        for kind in KINDS
        for keys in ("none", "given")
    }
    return [Case(name, each) for name, each in drawn.items()]
