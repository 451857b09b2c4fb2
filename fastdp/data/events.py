"""Events: points that appear or disappear, and their times, from a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastdp.data.calendar import Time, TimeUnit
from fastdp.data.column import as_column, as_floats
from fastdp.data.files import is_source, open_table
from fastdp.data.source import Source, check_column_types, open_source, time_zone_of
from fastdp.data.text import listed, pick
from fastdp.data.times import times_of
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Flags, Floats, Integers
from fastdp.units import zone_of

#: Names under which a column is found if none is given, in any case; the later ones are of public data sets.
USUAL = {
    "x": "x, lon, lng, longitude, pickup_longitude, start_lon",
    "y": "y, lat, latitude, pickup_latitude, start_lat",
    "time": "time, t, timestamp, date/time, pickup_datetime, tpep_pickup_datetime, lpep_pickup_datetime, "
    "trip_pickup_datetime, check-in time",
    "event": "event, move",
}


class Events(NamedTuple):
    """Points, float64[n, 2], appearances, bool[n], and microseconds, int64[n]."""

    points: Floats
    additions: Flags
    times: Integers | None


@dataclass(frozen=True)
class EventSource:
    """An open table of events; ``columns``: names by kind."""

    where: str
    columns: dict[str, str]
    source: Source
    time: Time | None

    def read(self) -> Events:
        parts = [self._numbers(batch) for batch in self.source.batches()]
        parts.append([np.empty(0) for _ in self.columns])
        read = {kind: np.concatenate(each) for kind, each in zip(self.columns, zip(*parts, strict=True), strict=True)}
        times = read.pop("time", None)
        for kind, numbers in read.items():
            self._refuse(kind, ~np.isfinite(numbers), "missing, NaN or infinite", "expected finite numbers")
        additions = np.ones(read["x"].size, np.bool_)
        if "event" in read:
            wrong = np.abs(read["event"]) != 1.0
            self._refuse(
                "event", wrong, "neither 1 (a point appears) nor -1 (it disappears)", "expected one of these"
            )
            additions = read["event"] > 0
        return Events(
            np.stack([read["x"], read["y"]], axis=1), additions, None if times is None else times.astype(np.int64)
        )

    def _numbers(self, batch: Any) -> list[Any]:
        found: list[Any] = []
        for kind, name in self.columns.items():
            column = batch.column(name)
            if kind != "time" or self.time is None:
                found.append(as_floats(as_column(column, f"column {name!r}")))
                continue
            times, present = times_of(column, zone_of(self.time.zone), self.time)
            if present is not None:
                self._refuse(kind, ~present, "without a time", "expected one in every row")
            found.append(times)
        return found

    def _refuse(self, kind: str, wrong: Flags, fault: str, expected: str) -> None:
        if wrong.any():
            rows = f"{np.count_nonzero(wrong):,} of {wrong.size:,} rows are {fault}"
            first = f"the first is row {int(np.argmax(wrong)) + 1:,}"
            raise DataError(f"{self.where}, column {self.columns[kind]!r}: {rows}, {first}; {expected}")


def open_events(
    source: Any,
    x: str | None = None,
    y: str | None = None,
    time: str | None = None,
    event: str | None = None,
    *,
    timed: bool = False,
    unit: TimeUnit | None = None,
    format: str | None = None,
    zone: str | None = None,
) -> EventSource:
    """Open a table of events; `timed`: look for times without a name."""
    opened = open_table(source) if is_source(source) else None
    where = "frame" if opened is None else opened.where
    names = list(opened.schema.names if opened is not None else open_source(source, ()).schema)
    given = {"x": x, "y": y, "event": event} | ({"time": time} if timed or time is not None else {})
    columns = {kind: found for kind, name in given.items() if (found := _found(kind, name, names, where)) is not None}
    table = open_source(source if opened is None else opened, list(columns.values()))
    check_column_types(table, [name for kind, name in columns.items() if kind != "time"], [])
    read = None
    if "time" in columns:
        of_times = time_zone_of(table, columns["time"], "unit" if unit else "format" if format else None)
        read = Time(columns["time"], "1s", unit=unit, format=format, zone=zone or of_times)
    return EventSource(where, columns, table, read)


def _found(kind: str, name: str | None, names: Sequence[str], where: str) -> str | None:
    if name is not None:
        return names[pick(name, names, where, kind)]
    usual, lowered = USUAL[kind].split(", "), [each.lower() for each in names]
    for each in usual:
        if each in lowered:
            return names[lowered.index(each)]
    if kind == "event":
        return None
    wanted = f"one of them, or {' or '.join(map(repr, usual[:4]))}"
    raise ParameterError(f"{kind} = None: {where} has the columns {listed(names)}; expected {wanted}")
