"""Tables in four zones: the calls whose noise must not follow from a zone's name, and what they draw."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import fastdp
from fastdp import Rows, Time
from tests.tables.rows import SECRET, random_rows

#: Two names of one zone, one that changes its clock within these rows, and none.
ZONES = ("UTC", "Etc/UTC", "Europe/Berlin", None)
ROWS = random_rows(400, 5)
_DAYS: dict[str, Any] = {"start": "2024-03-29", "stop": "2024-04-02"}
_OPTIONS: dict[str, Any] = {"epsilon": 1.0, "key": SECRET}
_OPTIONS |= {"by": "meter", "keys": ["a", "c"]}


def instants(clock: Any, zone: str) -> Any:
    """A pandas frame of clock times as one of the zone's instants; times that the clock skips move forward."""
    return clock.assign(at=clock["at"].dt.tz_localize(zone, nonexistent=timedelta(hours=1)))


def released(table: Any, zone: str | None) -> bytes:
    """Totals by hour, counts by day and means by hour: zone, borders, noisy sums."""
    found = [
        fastdp.totals(table, "kwh", Time("at", "1h", zone=zone, **_DAYS), clip=2.5, **_OPTIONS),
        fastdp.counts(table, Time("at", "1d", zone=zone, **_DAYS), unit=Rows(2, per="1d"), **_OPTIONS),
        fastdp.means(table, "kwh", Time("at", "1h", zone=zone, **_DAYS), clip=(-1.0, 2.5), **_OPTIONS),
    ]
    # Of two names of UTC the table shows one.
    parts = [str(found[0].released.time_zone).encode()]
    for each in found:
        parts += [each.released.edges.tobytes(), each.released.measured[0].steps.tobytes()]
    return b"".join(parts)
