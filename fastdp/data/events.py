"""Events: points that appear or disappear, and their times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fastdp.data.calendar import TimeUnit
from fastdp.data.files import Csv
from fastdp.data.readers import heading_of, read_events
from fastdp.kinds import Flags, Floats, Integers


class Events(NamedTuple):
    """Points, float64[n, 2], whether each appears, bool[n], and instants in microseconds since 1970, int64[n]."""

    points: Floats
    additions: Flags
    times: Integers | None


@dataclass(frozen=True)
class EventSource:
    """An open table of events; ``names``: of x and y."""

    names: tuple[str, str]
    path: str
    columns: dict[str, str | None]

    def read(self) -> Events:
        found = read_events(self.path, self.columns)
        times = None if found.times is None else np.floor(found.times * 1e6).astype(np.int64)
        return Events(found.points, found.additions, times)


def open_events(
    source: object,
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
    """Open a table of events; without names the usual ones are looked for."""
    path = str(source.path if isinstance(source, Csv) else source)
    columns = {"x": x, "y": y, "event": event} | ({"time": time} if timed or time is not None else {})
    return EventSource(heading_of(path, columns), path, columns)
