"""A file's events, cut into batches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import DataError
from fastdp.files.event_reader import Events
from fastdp.spatial import Box, Domain, cut_events

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
    # Only the cuts are asked for, to which it does not matter what the events do.
    inside = np.clip(events.points, domain.lower, domain.upper)
    # Periods begin at whole multiples: counted from the first event, that one would move all borders.
    origin = None if every is None else 0.0
    corners = domain.lower, domain.upper
    stream = cut_events(
        source, *corners, inside, times=events.times, batch=batch, period=every, origin=origin, initial=initial
    )
    borders = stream.cuts[1:-1] if stream.cuts[0] == 0 else stream.cuts[:-1]
    parts = zip(np.split(events.points, borders), np.split(events.additions, borders), strict=True)
    return [(points[additions], points[~additions]) for points, additions in parts]
