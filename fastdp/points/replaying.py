"""Replay tables of events as synthetic points."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fastdp._version import __version__
from fastdp.data.calendar import TimeUnit
from fastdp.data.events import Events, open_events
from fastdp.errors import DataError, argument
from fastdp.guarantee import Account, Guarantee, charge
from fastdp.kinds import Duration, Floats, Frame
from fastdp.points.batches import Batch, Cuts
from fastdp.points.domains import Domain, PointParameters
from fastdp.points.phdstream import PointPublisher
from fastdp.releases import pictures, writing
from fastdp.validation import refusal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Batches in a picture.
SHOWN = 4


@dataclass(frozen=True)
class SyntheticPoints:
    """Holds the synthetic points after each batch of :func:`replay`.

    ``batches``: float64[N, 2] each; ``names``: of both columns; ``guarantee``: of all together; ``total``: estimated
    number of points after the last batch; ``cells``: of a few batches, for a picture.

    Examples
    --------
    >>> import fastdp, pandas as pd
    >>> frame = pd.DataFrame({"x": [0.2, 0.4], "y": [0.1, 0.3]})
    >>> box = fastdp.points.Box((0, 0), (1, 1))
    >>> publisher = fastdp.PHDStream(box, epsilon=1.0, seed=1)
    >>> made = fastdp.points.replay(publisher, frame, batch=1)
    >>> list(made.columns)
    ['batch', 'x', 'y']
    """

    batches: list[Floats]
    names: tuple[str, str]
    guarantee: Guarantee
    total: float
    domain: Domain
    cells: dict[int, pictures.Boxes]

    def __repr__(self) -> str:
        size = f"{sum(map(len, self.batches)):,} synthetic points in {len(self.batches):,} batches"
        return f"SyntheticPoints({size}, {self.total:,.0f} in the last, estimated)\n  guarantee  {self.guarantee}"

    @property
    def columns(self) -> dict[str, Any]:
        """Columns of a file: number of the batch, both coordinates."""
        numbers = np.repeat(np.arange(len(self.batches)), [len(batch) for batch in self.batches])
        x, y = np.concatenate(self.batches).T
        return {"batch": numbers, self.names[0]: x, self.names[1]: y}

    def write(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write :attr:`columns` to a file as :meth:`fastdp.Release.write` does."""
        facts = {"fastdp": __version__, "batches": len(self.batches), "guarantee": self.guarantee.to_dict()}
        writing.write_columns(self.columns, facts, path, overwrite=overwrite)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw a few batches with their cells."""
        points = {"synthetic points": [self.batches[number] for number in self.cells]}
        cells = {"synthetic points": list(self.cells.values())}
        titles = [f"batch {number:,}" for number in self.cells]
        figure = pictures.draw_points(points, cells, titles, (self.domain.lower, self.domain.upper))
        if path is not None:
            pictures.save(figure, path)
        return figure


def replay(
    publisher: PointPublisher[Any],
    frame: Frame,
    x: str | None = None,
    y: str | None = None,
    time: str | None = None,
    event: str | None = None,
    *,
    batch: int | Duration,
    initial: float = 0.0,
    sort: bool = False,
    unit: TimeUnit | None = None,
    format: str | None = None,
    zone: str | None = None,
    ledger: Account | None = None,
    stream: str | None = None,
    part: str | None = None,
) -> SyntheticPoints:
    """Replay a table of events in batches.

    Parameters
    ----------
    publisher : PHDStream or AdaptivePHDStream
        A fresh one.
    frame
        A data frame, a path, "-" or :class:`fastdp.Csv`.
    x, y, time, event : str, optional
        Columns, by name or zero-based number, by default with the usual names; ``event`` has 1 for a point that
        appears, -1 for one that disappears.  Without events all points appear.
    batch : int, str or timedelta
        A length of time, "90s", "15min", "6h", "1d" or "1w": batches begin at its multiples from 1970 in UTC, and the
        first and last with events count as public.  Or a number of events in order: the batch of each event is then
        public too, because the guarantee is for one event while the others stay in theirs.
    initial : float
        Share of the events in the first batch, 0 to less than 1.
    sort : bool
        Sort rows by time; otherwise disorder is an error.
    unit, format, zone
        As for :class:`fastdp.Time`.
    ledger, stream, part
        As for :func:`fastdp.release`: charged before a row is read.

    Examples
    --------
    >>> import fastdp, pandas as pd
    >>> frame = pd.DataFrame({"x": [0.2, 0.4], "y": [0.1, 0.3]})
    >>> box = fastdp.points.Box((0, 0), (1, 1))
    >>> publisher = fastdp.PHDStream(box, epsilon=1.0, seed=1)
    >>> made = fastdp.points.replay(publisher, frame, batch=1)
    >>> len(made.batches)
    2
    """
    if isinstance(batch, float):
        raise refusal("batch", batch, "a number of events, or a length of time such as '6h'")
    cuts = Cuts(batch, initial)
    timed = sort or isinstance(batch, (str, timedelta))
    source = open_events(frame, x, y, time, event, timed=timed, unit=unit, format=format, zone=zone)
    # All that does not depend on the events is checked before a ledger is charged for reading them.
    with charge(publisher, ledger, stream, part=part):
        events = _in_order(source.where, source.read(), sort=sort)
        batches = _cut(source.where, events, publisher, cuts)
        domain = cast("PointParameters", publisher.machine).domain
        shown = {round((len(batches) - 1) * k / (SHOWN - 1)) for k in range(SHOWN)}
        made, cells = list[Floats](), dict[int, pictures.Boxes]()
        for number, each in enumerate(batches):
            made.append(publisher.step(*each))
            if number in shown:
                cells[number] = publisher.tree.lower, publisher.tree.upper
    names = source.columns["x"], source.columns["y"]
    return SyntheticPoints(made, names, publisher.guarantee, publisher.total, domain, cells)


def _in_order(where: str, events: Events, *, sort: bool) -> Events:
    if events.times is None or not np.any(back := np.diff(events.times) < 0):
        return events
    if not sort:
        row = int(np.argmax(back)) + 2
        wanted = f"expected the order of time, or {argument(sort=True)}"
        raise DataError(f"{where}: row {row:,} is earlier than the one before it; {wanted}")
    order = np.argsort(events.times, kind="stable")
    return Events(events.points[order], events.additions[order], events.times[order])


def _cut(where: str, events: Events, publisher: PointPublisher[Any], cuts: Cuts) -> list[Batch]:
    """Cut events into batches; DataError for points outside the domain, unless clipped."""
    count = len(events.points)
    if not count:
        raise DataError(f"{where}: empty, holds no points")
    machine = cast("PointParameters", publisher.machine)
    inside = machine.domain.contains(events.points)
    if machine.outside == "raise" and not inside.all():
        # Without their coordinates: messages end up in logs, which are not private.
        raise DataError(
            f"{where}: {count - int(np.count_nonzero(inside)):,} of {count:,} points are outside the domain; "
            f"expected points inside, or {argument(outside='clip')} to move each to a place near by"
        )
    times = np.arange(count, dtype=np.float64) if events.times is None else events.times.astype(np.float64)
    # Periods begin at integer multiples: counted from the first event, that one would move all borders.
    ends = cuts.of(times, origin=0.0)
    borders = ends[1:-1] if ends[0] == 0 else ends[:-1]
    pieces = zip(np.split(events.points, borders), np.split(events.additions, borders), strict=True)
    return [(points[additions], points[~additions]) for points, additions in pieces]
