"""Noisy sums of windows and keys: all that a release of a table gives out, before it becomes a frame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastdp.guarantee import Guarantee
from fastdp.releases.intervals import DrawnNoise

#: What is released of each window and key.
Kind = Literal["totals", "counts", "means"]


@dataclass(frozen=True, eq=False)
class NoisySums:
    """One released quantity of every window and key.

    Attributes
    ----------
    steps : int64[W, K]
        Exact sums with their noise, in grid steps.
    resolution : float
        One step, in units of the input; 1 for counts.
    noise : DrawnNoise
        The law of the noise, in steps, independent in every cell.
    """

    steps: NDArray[np.int64]
    resolution: float
    noise: DrawnNoise

    @property
    def values(self) -> NDArray[np.float64]:
        """The noisy sums in units of the input: float64[W, K]."""
        units: NDArray[np.float64] = self.steps * np.float64(self.resolution)
        return units


@dataclass(frozen=True, eq=False)
class WindowSums:
    """Everything that was released of a table; nothing in it is private.

    Attributes
    ----------
    kind : "totals", "counts" or "means"
        What the caller asked for.
    edges : int64[W + 1]
        Borders of the windows: microseconds since 1970-01-01, in UTC, or as the clock shows where there is no zone.
    time_zone : str or None
        Zone of the windows; None if times without a zone were taken as they stand.
    every : str
        Length of the windows, as given.
    keys : dict of str to list
        Key column's name to its K values, one for each released key; empty without ``by``, then K is 1.
    columns : dict of str to NoisySums
        "total" for totals, "count" for counts.  Means have "count" and "deviation", the sum of value - ``centre``:
        the mean is centre + deviation / count, the total deviation + centre * count.
    clip : (float, float) or None
        What values were clipped to, in units of the input; None for counts.
    guarantee : Guarantee
        Of everything here together.
    family : str
        The library that the table came from: "pandas", "polars", "pyarrow" or "duckdb".
    centre : float
        See ``columns``; 0 unless they are means.
    clipped_rows : float or None
        Released estimate of the share of rows beyond the clip; None where nothing was released about it, or where
        there are too few rows to tell.
    kept_persons : float or None
        The same of the share of persons (in each period) all of whose rows count.
    """

    kind: Kind
    edges: NDArray[np.int64]
    time_zone: str | None
    every: str
    keys: dict[str, list[Any]]
    columns: dict[str, NoisySums]
    clip: tuple[float, float] | None
    guarantee: Guarantee = field(repr=False)
    family: str = "pyarrow"
    centre: float = 0.0
    clipped_rows: float | None = None
    kept_persons: float | None = None
