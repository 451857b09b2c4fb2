"""A file's events, cut into batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.errors import DataError, ParameterError
from fastdp.files.event_reader import Events
from fastdp.spatial import Box, Domain

Points = NDArray[np.float64]


#: Points that appear, and points that disappear.
Batch = tuple[Points, Points]


def in_order(source: str, events: Events, *, sort: bool) -> Events:
    """Events in the order of their times, if they have any; DataError if they are not and ``sort`` is not set."""
    if events.times is None:
        return events
    back = np.flatnonzero(np.diff(events.times) < 0)
    if not back.size:
        return events
    if not sort:
        raise DataError(
            f"{source}: row {back[0] + 2:,} is earlier than the one before it; expected the order of time, or --sort"
        )
    order = np.argsort(events.times, kind="stable")
    return replace(events, points=events.points[order], additions=events.additions[order], times=events.times[order])


def cut(
    source: str, events: Events, domain: Domain, batch: int | None, every: float | None, initial: float, *, clip: bool
) -> list[Batch]:
    """Cut events by number or by time; the initial share is the first batch, if there is one.

    Parameters
    ----------
    source : str
        The file, for messages.
    events : Events
        What it holds.
    domain : Domain
        Where points must be.
    batch : int or None
        Events in a batch.
    every : float or None
        Length of time of a batch; either this or ``batch``.
    initial : float
        Share of the events before the first batch.
    clip : bool
        Whether points outside will be moved, as :func:`fastdp.spatial.points.inside` does; they are an error
        otherwise.

    Raises
    ------
    DataError
        If there are points outside, or none at all.
    ParameterError
        If batch, period or share is not as said.
    """
    outside = 0 if clip else int(np.count_nonzero(~domain.contains(events.points)))
    if outside:
        # Without their coordinates: messages end up in logs, which are not private.
        what, move = (
            ("box", "them to its border") if isinstance(domain, Box) else ("domain", "each to a place near by")
        )
        raise DataError(
            f"{source}: {outside:,} of {len(events.points):,} points are outside the {what}; expected points inside, "
            f"or --clip to move {move}"
        )
    if not len(events.points):
        raise DataError(f"{source}: empty, holds no points")
    times = np.arange(len(events.points), dtype=np.float64) if events.times is None else events.times
    # Periods begin at whole multiples: counted from the first event, that one would move all borders.
    cuts = cuts_of(times, batch, every, 0.0, initial)
    borders = cuts[1:-1] if cuts[0] == 0 else cuts[:-1]
    parts = zip(np.split(events.points, borders), np.split(events.additions, borders), strict=True)
    return [(points[additions], points[~additions]) for points, additions in parts]


def check_cuts(batch: object, period: object, initial: object) -> tuple[int | None, float, float]:
    """Batch or else period, and initial share; ParameterError where they exclude each other or are out of range."""
    share = validation.real("initial", initial)
    if not 0.0 <= share < 1.0:
        raise ParameterError(f"initial = {initial!r}: expected a number in [0, 1)")
    if (batch is None) == (period is None):
        raise ParameterError(
            f"batch, period = {validation.shown(batch)}, {validation.shown(period)}: expected exactly one of them"
        )
    if batch is not None:
        return validation.integer("batch", batch, 1), 0.0, share
    return None, validation.positive("period", period), share


def cuts_of(
    times: NDArray[np.float64], batch: int | None, period: float | None, origin: float | None, initial: float
) -> NDArray[np.int64]:
    """Where batches begin: events before the first number are the initial set, and the last number ends them all.

    Periods are counted from the origin, or from the first event; at most 2^24.
    """
    size, length, share = check_cuts(batch, period, initial)
    n = times.size
    first = int(share * n)
    if size is not None:
        return np.append(np.arange(first, n, size), n) if n else np.array([0])
    if n == 0:
        return np.array([0])
    # The number of an event's period follows from its own time: borders in floats would shift with the first event.
    zero = times[0] if origin is None else validation.real("origin", origin)
    numbers = np.floor_divide(times - zero, length)
    periods = int(numbers[-1] - numbers[0]) + 1
    if periods > 2**24:
        raise ParameterError(
            f"period = {period!r}: expected at most {2**24} periods from the first event to the last"
        )
    ends = np.searchsorted(numbers, numbers[0] + np.arange(periods), side="left")
    cuts: NDArray[np.int64] = np.append(ends, n)
    return cuts[np.searchsorted(cuts, first) :]
