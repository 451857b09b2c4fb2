"""Calls of tables whose parameters are all keywords, for tests that vary one among many of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import fastdp
from fastdp.tables import plan
from fastdp.tables.plan import TablePlan
from fastdp.tables.table import Table

TIMES = ("start", "stop", "origin", "zone", "missing")
VALUES = ("resolution", "nonfinite")


def _taken(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: given.pop(name) for name in names if name in given}


def in_units(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments with ``who``, ``contributions``, ``period`` and ``per_window`` in a unit."""
    given, found = dict(given), _taken(dict(given), "who", "contributions", "period", "per_window")
    for name in found:
        del given[name]
    if not found:
        return given
    who, rows, per = found.get("who"), found.get("contributions", 1), found.get("period")
    if who is None or who is False:
        return given | {"unit": fastdp.Rows(rows, per)}
    column = "persons" if who is True else who
    return given | {"unit": fastdp.Person(column, rows, per, found.get("per_window"))}


def arguments(kind: str, *columns: Any, **given: Any) -> dict[str, Any]:
    """Arguments of a function, or of ``make_plan``."""
    names = ("time", "every") if kind == "counts" else ("value", "time", "every")
    given = in_units(dict(zip(names, columns, strict=False)) | given)
    noise = _taken(given, "noise")
    value = _taken(given, *VALUES) | ({} if kind == "counts" else noise)
    time = fastdp.Time(given.pop("time", "times"), given.pop("every"), **_taken(given, *TIMES))
    if kind == "counts":
        return given | noise | {"time": time}
    return given | {"time": time, "value": fastdp.Value(given.get("value", "values"), **value)}


def _release(kind: str, frame: Any, *columns: Any, module: Any = fastdp, **given: Any) -> Table:
    table: Table = getattr(module, kind)(frame, **arguments(kind, *columns, **given))
    return table


totals, counts, means = (partial(_release, kind) for kind in plan.KINDS)


def make_plan(kind: str, **given: Any) -> TablePlan:
    """A plan."""
    return plan.make_plan(kind, **{"value": None, **arguments(kind, **given)})


def windows(every: Any = "1h", epsilon: Any = 1.0, start: Any = "2024-01-01", bound: Any = None, **given: Any) -> Any:
    """Windows; ``counts`` and ``means`` say which kind."""
    kinds = [name for name in ("counts", "means") if given.pop(name, False)]
    return fastdp.Windows(every, epsilon, start, bound, kind=(kinds or ["totals"])[0], **in_units(given))
