"""A stream of points that appear and disappear, cut into batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdp import validation
from fastdp.cli.synthesize_command import Batch, Cuts
from fastdp.data.column import entry_at
from fastdp.errors import DataError
from fastdp.spatial.domains import as_corners, as_points


@dataclass(frozen=True)
class SpatialStream:
    """Events (additions and removals of points) in order, and where the batches begin.

    Made by :func:`cut_events`.

    Parameters
    ----------
    name : str
        For tables and pictures.
    lower, upper : float64[d]
        A public box that holds all points.
    points : float64[n, d]
        The point of each event.
    cancels : int64[n]
        -1 for an addition; for a removal the number of the earlier addition that it takes back.
    times : float64[n]
        When events happen, ascending: seconds since 1970 for real data, else the events' numbers.
    cuts : int64[T + 1]
        Events before cuts[0] make up the initial set; batch t, counted from 1, is cuts[t - 1] to cuts[t].
    """

    name: str
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    points: NDArray[np.float64]
    cancels: NDArray[np.int64]
    times: NDArray[np.float64]
    cuts: NDArray[np.int64]

    def __repr__(self) -> str:
        kind = "additions and removals" if self.has_deletions else "additions"
        return f"SpatialStream({self.name!r}: {len(self.points)} {kind}, {self.n_steps} batches)"

    @property
    def n_steps(self) -> int:
        """Number of batches after the initial set."""
        return len(self.cuts) - 1

    @property
    def has_deletions(self) -> bool:
        """Whether any event removes a point."""
        return bool(np.any(self.cancels >= 0))

    @property
    def initial(self) -> NDArray[np.float64]:
        """Points present before the first batch, float64[m, d]: PHDStream's first step (section 5.2)."""
        return self.present(0)

    @property
    def batches(self) -> Iterator[Batch]:
        """Batches in turn: points added, points removed, float64[., d] each; either may be empty."""
        for begin, end in zip(self.cuts[:-1], self.cuts[1:], strict=True):
            points, removal = self.points[begin:end], self.cancels[begin:end] >= 0
            yield points[~removal], points[removal]

    def present(self, t: int) -> NDArray[np.float64]:
        """Points present after batch t, float64[m, d], in the order of their addition; t = 0 is the initial set.

        The truth that releases are compared with: for evaluation, never for release.
        """
        t = validation.integer("t", t, 0, self.n_steps)
        cancels = self.cancels[: self.cuts[t]]
        there = cancels < 0
        there[cancels[~there]] = False
        return self.points[: self.cuts[t]][there]

    def starting_at(self, t: int) -> SpatialStream:
        """The same events, with the first t batches in the initial set: the paper's initialisation time."""
        t = validation.integer("t", t, 0, self.n_steps)
        return replace(self, cuts=self.cuts[t:])


def cut_events(
    name: str,
    lower: ArrayLike,
    upper: ArrayLike,
    points: ArrayLike,
    *,
    cancels: ArrayLike | None = None,
    times: ArrayLike | None = None,
    batch: int | None = None,
    period: float | None = None,
    origin: float | None = None,
    initial: float = 0.0,
) -> SpatialStream:
    """Cut events into an initial set and batches.

    Parameters
    ----------
    name : str
        The stream's name.
    lower, upper : array-like[d]
        A public box that holds all points.
    points : array-like[n, d]
        The point of each event, in order.
    cancels : array-like[n], optional
        See :class:`SpatialStream`; by default all events are additions.
    times : array-like[n], optional
        Ascending; by default the events' numbers.
    batch : int, optional
        Events in a batch (the last one may have fewer).  Either this or ``period``.
    period : float, optional
        Length of time of a batch, in the unit of the times, counted from the first event; batches may be empty.
    origin : float, optional
        With ``period``: a public time from which periods are counted, forwards and backwards, in place of the first
        event, which otherwise moves all borders: no release of private points should let it do that.
    initial : float
        Share of the events before the first batch, in [0, 1): the paper's t0 for a batch size.  Rounded down to
        whole events, or up to whole periods.

    Returns
    -------
    SpatialStream

    Raises
    ------
    DataError
        If points are not numbers or leave the box, times descend, or a removal has no addition of its own before it.
    ParameterError
        If batch, period or initial is not as said.
    """
    low, high = as_corners(lower, upper)
    table = as_points(points, "points", low.size)
    n = table.shape[0]
    outside = np.any((table < low) | (table > high), axis=1)
    if outside.any():
        raise DataError(
            f"{entry_at('points', outside, 'a point outside the box')}; expected points from {low} to {high}"
        )
    taken = np.full(n, -1) if cancels is None else _converted(cancels, np.int64)
    _check_removals(taken, table)
    moments = np.arange(n, dtype=np.float64) if times is None else _converted(times, np.float64)
    if moments.shape != (n,) or not np.all(np.isfinite(moments)) or np.any(np.diff(moments) < 0):
        raise DataError(f"times of {name}: expected {n} finite numbers that do not descend")
    return SpatialStream(name, low, high, table, taken, moments, Cuts(batch, period, initial).of(moments, origin))


def _converted(values: ArrayLike, dtype: type[Any]) -> NDArray[Any]:
    """A copy as numbers of a type, empty where that fails: NumPy's error would quote an entry."""
    try:
        with np.errstate(invalid="ignore"):
            return np.array(values, dtype=dtype)
    except Exception:  # whatever a foreign __array__ raises
        return np.empty((0, 0), dtype)


def _check_removals(cancels: NDArray[np.int64], points: NDArray[np.float64]) -> None:
    removals = np.flatnonzero(cancels >= 0)
    if cancels.shape != (len(points),) or np.any(cancels < -1) or np.any(cancels[removals] >= removals):
        raise DataError(f"cancels: expected {len(points)} whole numbers, -1 or the number of an earlier event")
    targets = cancels[removals]
    if np.any(cancels[targets] >= 0) or np.unique(targets).size < targets.size:
        raise DataError("cancels: expected each removal to take back an addition of its own")
    if not np.array_equal(points[targets], points[removals]):
        raise DataError("points: expected a removal at the place of the addition that it takes back")
