"""Calls of tables whose parameters are all keywords, for tests that vary one among many of them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.tables import functions as checks
from fastdp.tables.choices import SizeCounts
from fastdp.tables.plan import TablePlan
from fastdp.tables.quantities import CellRows
from fastdp.tables.released import Released
from fastdp.tables.shares import shares_of
from fastdp.tables.statistics import statistics_of
from fastdp.tables.table import Table
from fastdp.tables.tails import Tail

KINDS = ("totals", "counts", "means")
TIMES = ("start", "stop", "origin", "zone", "missing", "unit_of_time", "format")
VALUES = ("resolution", "nonfinite", "bound", "clip")


def _taken(given: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: given.pop(name) for name in names if name in given}


def in_units(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments with ``who``, ``contributions``, ``period`` and ``per_window`` in a unit."""
    given, found = dict(given), _taken(dict(given), "who", "contributions", "period", "per_window", "basis")
    for name in found:
        del given[name]
    if not found:
        return given
    who, rows, per = found.get("who"), found.get("contributions", 1), found.get("period")
    if who is None or who is False:
        return given | {"unit": fastdp.Rows(rows, per)}
    column = "persons" if who is True else who
    return given | {"unit": fastdp.Person(column, rows, per, found.get("per_window"), found.get("basis", "auto"))}


def arguments(kind: str, *columns: Any, **given: Any) -> dict[str, Any]:
    """Arguments of a function."""
    names = ("time", "every") if kind == "counts" else ("value", "time", "every")
    given = in_units(dict(zip(names, columns, strict=False)) | given)
    times = _taken(given, *TIMES)
    if "unit_of_time" in times:
        times["unit"] = times.pop("unit_of_time")
    time = fastdp.Time(given.pop("time", "times"), given.pop("every"), **times)
    if kind == "counts":
        return given | {"time": time}
    return given | {
        "time": time,
        "bound": fastdp.Value(**_taken(given, *VALUES)),
        "value": given.get("value", "values"),
    }


@contextmanager
def noise_is(name: str | None) -> Any:
    """While it lasts, tables with a delta have this noise, whatever the rule would take."""
    with pytest.MonkeyPatch.context() as patch:
        if name is not None:
            patch.setattr(checks, "with_noise", lambda own: shares_of(replace(own, noise=name)))
        yield


def _release(kind: str, frame: Any, *columns: Any, noise: str | None = None, **given: Any) -> Table:
    with noise_is(noise):
        table: Table = getattr(fastdp, kind)(frame, **arguments(kind, *columns, **given))
    return table


totals, counts, means = (partial(_release, kind) for kind in KINDS)
STATISTICS = {"totals": "sum", "counts": "count", "means": "mean"}


def make_plan(kind: str, noise: str | None = None, **given: Any) -> TablePlan:
    """A plan."""
    given = arguments(kind, **given)
    column = given.pop("value", "*")
    asked = statistics_of({column: STATISTICS[kind]})
    with noise_is(noise):
        return checks.make_plan(asked, given.pop("time"), bounds=given.pop("bound", None), **given)


def windows(every: Any = "1h", epsilon: Any = 1.0, start: Any = "2024-01-01", bound: Any = None, **given: Any) -> Any:
    """Windows; ``counts`` and ``means`` say which kind."""
    kinds = [name for name in ("counts", "means") if given.pop(name, False)]
    kind = (kinds or ["totals"])[0]
    given = in_units(given)
    time = fastdp.Time("times", every, start=start, **_taken(given, *TIMES))
    value = _taken(given, *VALUES)
    bounds = None if kind == "counts" else fastdp.Value(bound, **value)
    asked = {"*" if kind == "counts" else "values": STATISTICS[kind]}
    return fastdp.Windows(asked, time, epsilon=epsilon, bounds=bounds, **given)


def sizes(values: np.ndarray, ends: tuple[float, float], persons: np.ndarray | None = None) -> np.ndarray:
    """Rows by size of one window; ``persons``: rows of the person of each."""
    found, nowhere = SizeCounts(ends), np.zeros(values.size, np.int64)
    found.add(CellRows(nowhere, nowhere, values[None]), 0, (0, 1), persons)
    return found.counts


# What tables show.


def index(released: Released, name: str) -> int:
    return next(i for i, q in enumerate(released.quantities) if q.name == name)


def values(released: Released, name: str) -> np.ndarray:
    """Noisy sums of the cells, in units of the input."""
    return released.cells(name) * released.quantities[index(released, name)].resolution


def noise(released: Released, name: str) -> Any:
    """Noise of a cell, in steps."""
    return released.measured[0].noise[index(released, name)]


def clip(released: Released) -> Any:
    """Ends of the only clip."""
    (tail,) = released.tails.values()
    return tail.clip


def centre(released: Released) -> float:
    """Centre of the first sum, in units of the input."""
    first = released.quantities[0]
    return first.centre * first.grid


def kept_rows(released: Released) -> float | None:
    """Share of persons' rows that count."""
    return None if released.rows is None else 1.0 - released.rows.share


def tail(*clip: float) -> Tail:
    """Nothing beyond a clip that is the bound."""
    ends = clip[0], clip[1]
    return Tail(ends, ends)
