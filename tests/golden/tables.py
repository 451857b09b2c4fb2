"""Golden cases of tables: integers that leave and the guarantee; answers with their errors; the frame's own columns.

The first follow from integers, and from choices whose scores are integers; the others are floats of this processor.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.parts import BYTES, Golden, public, values

N = 3000
_AT = np.arange(N)
#: Seven minutes from row to row, over the clock change of 31 March 2024.
TIMES = np.datetime64("2024-03-25T00:00", "us") + _AT * np.timedelta64(7, "m")
COLUMNS = {
    "at": TIMES,
    "kwh": values(N) / 8.0 * (1 + (_AT % 97 == 5) * 6),
    "delta": (_AT * 31 % 61 - 30) / 5.0,
    "who": _AT * 7919 % 151,
    "name": np.array([f"person {i}" for i in _AT * 104729 % 101]),
    "town": np.array(list("aaaaaabbbbbcccdde"))[_AT * 11 % 17],
    "kind": np.array(list("xyy"))[_AT * 5 % 3],
}
MANY = {
    "kwh": ["sum", "mean", "var", "std", "median", "p95"],
    "delta": ["sum", "mean"],
    "name": "nunique",
    "*": "count",
}
BOUNDS = {"kwh": 50.0, "delta": (-10.0, 10.0)}
TOWNS = {"by": ["town", "kind"], "keys": [(town, kind) for town in "abc" for kind in "xy"]}
PRIVATE = {"by": "town", "delta": 1e-6}
SHORT = {"time": "at", "every": "1d"}


def paris() -> dict[str, Any]:
    """Days of Paris, given publicly."""
    return {"time": public("Time")("at", "1d", zone="Europe/Paris", start="2024-03-25", stop="2024-04-08")}


def person(column: str = "who", rows: Any = 20, **options: Any) -> dict[str, Any]:
    """A unit."""
    return {"unit": public("Person")(column, rows=rows, **options)}


def released(name: str, *columns: Any, **options: Any) -> Any:
    """A call of one of the functions on all rows."""
    import pyarrow

    given = {"epsilon": 1.0, "seed": 1, **options}
    return public(name)(pyarrow.table(COLUMNS), *columns, **given)


def online(**options: Any) -> Any:
    """The last closed windows of rows that arrive in three batches."""
    time = public("Time")("at", "1d", start="2024-03-25")
    windows = public("Windows")(
        time=time, **{"statistics": {"kwh": ["sum", "mean"]}, "bounds": 50.0, "seed": 1, **options}
    )
    for begin, end in pairwise((0, 1, 1400, N)):
        part = {name: column[begin:end] for name, column in COLUMNS.items()}
        keys = part["town"] if options.get("by") else None
        windows.add(part["at"], part["kwh"], keys, part["who"] if "unit" in options else None)
    return windows.advance("2024-04-15")


def _cases() -> dict[str, Callable[[], Any]]:
    aggregate, private = partial(released, "aggregate"), public("PrivateKeys")
    value, rows = public("Value"), public("Rows")
    gaussian = {**paris(), **person("name", 14, per_window=1), "delta": 1e-5, "bounds": 50.0}
    days = {**paris(), **person(rows=8, per="1d", per_window=8), "bounds": 50.0}
    arriving = {"unit": public("Person")("who", rows=4, per="1d", per_window=4), "epsilon": 20.0}
    appearing = {"by": "town", "keys": private(), "delta": 1e-4}
    return {
        "all rows": lambda: aggregate({"kwh": ["sum", "median"], "*": "count"}, bounds=50.0),
        "sum by hour, chosen clip": lambda: aggregate({"kwh": "sum"}, "at", "1h", bounds=50.0),
        "mean, given clip": lambda: aggregate({"kwh": "mean"}, **SHORT, bounds=value(clip=8.0)),
        "many statistics": lambda: aggregate(MANY, **paris(), bounds=BOUNDS, epsilon=4.0),
        "many, persons, keys, levels": lambda: aggregate(
            MANY, **paris(), **TOWNS, **person(), levels=True, bounds=BOUNDS, epsilon=8.0
        ),
        "levels where cheap": lambda: aggregate({"kwh": "sum"}, **paris(), **TOWNS, bounds=50.0, levels=None),
        "gaussian, persons in windows": lambda: aggregate({"kwh": ["sum", "std"], "*": "count"}, **gaussian),
        "gaussian, levels": lambda: aggregate({"kwh": "sum"}, **gaussian | TOWNS, levels=True),
        "persons, auto": lambda: aggregate(
            {"kwh": "sum"}, **paris(), **person(rows="auto"), bounds=50.0, epsilon=4.0
        ),
        "persons in periods": lambda: aggregate({"kwh": "sum", "*": "count"}, **days),
        "reach": lambda: aggregate(
            {"who": "reach", "kwh": "sum"}, **paris(), by="town", keys=list("abcd"), **person(rows=2), bounds=50.0
        ),
        "reach, rows": lambda: aggregate({"name": "reach"}, "at", "1h", epsilon=4.0),
        "rows, private keys": lambda: aggregate({"*": "count"}, **PRIVATE),
        "private keys with others": lambda: aggregate({"*": "count"}, **PRIVATE, keys=private(others=True)),
        "private keys of windows": lambda: aggregate({"kwh": "sum"}, **SHORT, **PRIVATE, bounds=50.0),
        "gaussian, private keys": lambda: aggregate(
            {"kwh": "sum", "*": "count"}, **paris(), **PRIVATE, unit=rows(40), bounds=50.0
        ),
        "persons, private keys": lambda: aggregate(
            {"kwh": "sum", "*": "count"}, **paris(), **PRIVATE | {"keys": private(share=0.4)}, **person(), bounds=50.0
        ),
        "public keys": lambda: aggregate({"delta": "sum"}, by="town", keys="public", bounds=BOUNDS["delta"]),
        "24 rows a day": lambda: aggregate({"kwh": "sum"}, **paris(), unit=rows(24, per="1d"), bounds=50.0),
        "totals": lambda: released("totals", "kwh", **SHORT, bound=50.0),
        "totals, small clip unresolved": lambda: released("totals", "kwh", **SHORT, bound=1e6, epsilon=0.01),
        "counts": lambda: released("counts", "at", "1h", key=BYTES, seed=None),
        "means": lambda: released("means", "delta", **SHORT, bound=BOUNDS["delta"], stream="meters"),
        "online": lambda: online(epsilon=2.0),
        "online, quantiles": lambda: online(statistics={"kwh": ["p90", "sum"]}, epsilon=2.0),
        "online, private keys": lambda: online(epsilon=4.0, **appearing),
        "online, persons, private keys": lambda: online(**appearing, **arriving),
        "online, gaussian": lambda: online(**arriving | {"epsilon": 1.0, "delta": 1e-5}),
    }


RELEASES = {name: cache(make) for name, make in _cases().items()}


def _text(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, default=str).encode()


def integers(name: str) -> Iterator[Any]:
    """Noisy numbers, keys, borders, tails, and the guarantee."""
    table = RELEASES[name]()
    found = table.released
    for each in found.measured:
        yield _text([each.level, [(q.name, q.column) for q in each.quantities], each.steps.shape])
        yield each.steps
    yield _text([found.nodes, [each.tolist() for each in found.parents], found.edges.tolist()])
    for column, tail in found.tails.items():
        yield _text([column, tail.clip, tail.choice, tail.outside])
        for side in tail.sides:
            yield side.noisy
    yield _text(None if found.rows is None else [each.value for each in found.rows])
    yield _text([table.guarantee.to_dict(), table.guarantee.derivation])


def answers(name: str) -> Iterator[Any]:
    """Estimates, errors and intervals of windows, of all of them, and of totals of keys; prints."""
    table = RELEASES[name]()
    windows = np.arange(len(table))
    for statistic in table.names:
        one = table[statistic]
        yield _text([one.title(), one.facts()])
        for depth in range(1 if statistic.endswith("nunique") else 0, len(table.released.parents) + 1):
            if statistic.endswith("nunique") and depth < len(table.released.parents):
                continue
            level = one.level(depth)
            ranges = [(windows, windows + 1)]
            ranges += [] if statistic.endswith("nunique") else [([0], [len(table)])]
            for starts, stops in ranges:
                for revised in (False, True):
                    yield level.estimate(starts, stops, revised=revised)
                    yield level.std_error(starts, stops, revised=revised)
                    yield from level.interval(starts, stops, revised=revised)
                yield from level.interval(starts, stops, 0.8)


def frame(name: str) -> Iterator[Any]:
    """The frame as a reader gets it, with its metadata but the version."""
    table = RELEASES[name]()
    shown = table.arrow
    yield _text([shown.column_names, list(map(str, shown.schema.types))])
    yield _text({name: fact for name, fact in table.metadata.items() if name != "fastdp"})
    for column in shown.columns:
        yield column.to_numpy() if str(column.type) == "double" else _text(column.to_pylist())


def planned(**options: Any) -> Iterator[Any]:
    """Errors that a plan expects."""
    made = public("plan")(**options)
    yield _text([made.epsilon, made.noise, {name: vars(each) for name, each in made.errors.items()}])


def charged(folder: Path) -> Iterator[Any]:
    """Entries of releases in a ledger: the promise before the data, and the identity of the noise."""
    ledger = public("Ledger")(folder / "ledger")
    options = {"ledger": ledger, "seed": None, "key": BYTES, "epsilon": 2.0}
    for number, given in enumerate(
        [
            {"statistics": {"kwh": "sum"}, **SHORT, "bounds": 50.0},
            {"statistics": MANY, **paris(), **TOWNS, **person(rows="auto"), "bounds": BOUNDS},
            {"statistics": {"*": "count"}, **PRIVATE, "time": "at", "every": "6h"},
        ]
    ):
        released("aggregate", stream=f"table {number}", **given, **options)
    for entry in ledger.entries():
        yield _text([entry.guarantee.to_dict(), entry.guarantee.derivation, entry.mechanism, entry.fingerprint])


PLANS: dict[str, dict[str, Any]] = {
    "sums": {"statistics": {"a": "sum", "*": "count"}, "bounds": 2.0, "every": "1h", "windows": 168, "keys": 7},
    "many": {
        "statistics": {"a": ["mean", "std", "p95"], "b": ["sum", "nunique"]},
        "bounds": {"a": 2.0, "b": 3.0},
        "rows": 100.0,
        "mean": 0.5,
        "levels": True,
        "keys": 12,
        "every": "1d",
        "windows": 20,
    },
}


def _golden() -> Iterator[tuple[str, Golden]]:
    for name in RELEASES:
        yield f"table, {name}", Golden(lambda _, name=name: integers(name))
        yield f"answers, {name}", Golden(lambda _, name=name: answers(name), portable=False)
        yield f"frame, {name}", Golden(lambda _, name=name: frame(name), portable=False)
    for name, options in PLANS.items():
        yield f"plan, {name}", Golden(lambda _, given=options: planned(epsilon=1.0, **given), portable=False)
    yield "table, ledger", Golden(charged)
    yield (
        "plan, half-width",
        Golden(lambda _: planned(statistics={"*": "count"}, half_width=3.0, unit=public("Rows")(3)), portable=False),
    )


CASES = dict(_golden())
