"""Points and boxes as users give them, checked once and brought into one layout."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdp.arrays.column import as_array, as_reals, entry_at, kind_of
from fastdp.arrays.kinds import Floats
from fastdp.errors import DataError, ParameterError
from fastdp.spatial.domain import Domain
from fastdp.validation import pair

#: More points in one batch would not fit the integers of a split test.
MAX_POINTS = 2**38


def as_points(values: Any, name: str, dim: int | None = None) -> Floats:
    """Points as float64[n, d], C-contiguous; shared with the caller where possible.

    Parameters
    ----------
    values : array-like[n, d] or None
        Real numbers, a row for each point; in one dimension a plain column too.  None and an empty list are no
        points, if ``dim`` is given.
    name : str
        The argument's name, for messages.
    dim : int, optional
        The expected number of coordinates.

    Raises
    ------
    DataError
        If this is no table of finite real numbers with that many columns.
    """
    accepted = f"finite real numbers, one row of {'d' if dim is None else dim} coordinates for each point"
    if values is None and dim is not None:
        return np.empty((0, dim))
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in "biuf":
        values = np.ma.filled(values.astype(np.float64), np.nan)
    array = as_array(values)
    if array is None:
        raise DataError(f"{name} is a {type(values).__name__} that is no array (ragged?): expected {accepted}")
    if array.size == 0 and dim is not None and (array.ndim == 1 or array.shape in ((0, dim), (0, 0))):
        return np.empty((0, dim))
    if array.ndim == 1 and dim == 1:
        array = array[:, np.newaxis]
    if array.ndim != 2 or array.shape[1] == 0 or (dim is not None and array.shape[1] != dim):
        raise DataError(f"{name} has shape {array.shape}: expected {accepted}")
    if array.shape[0] > MAX_POINTS:
        raise DataError(f"{name} has {array.shape[0]} rows: expected at most 2^38 at a time")
    if array.dtype.kind == "O":
        array = _floats_of(array)
        if array is None:
            raise DataError(f"{name} holds objects that are no numbers: expected {accepted}")
    if array.dtype.kind not in "biuf":
        raise DataError(f"{name} holds {kind_of(array.dtype)} entries: expected {accepted}")
    with np.errstate(over="ignore"):
        points: Floats = np.require(array, np.float64, ("C", "A"))
    finite = np.isfinite(points).all(axis=1)
    if not finite.all():
        raise DataError(f"{entry_at(name, ~finite, 'a coordinate that is not a finite number')}; expected {accepted}")
    return points


def _floats_of(objects: NDArray[Any]) -> Floats | None:
    """Objects as numbers, or None: NumPy's error would quote one."""
    try:
        return objects.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def axes_of(values: Any, name: str) -> int:
    """How many axes an array-like has; DataError if its rows differ in length, or it is none."""
    array = as_array(values)
    if array is None:
        raise DataError(f"{name} is no array: expected numbers, or rows with as many numbers each")
    return array.ndim


def as_corners(lower: ArrayLike, upper: ArrayLike) -> tuple[Floats, Floats]:
    """Corners of one box with an extent along each axis, as two float64[d].

    Raises
    ------
    ParameterError
        If they are not finite, not of one length, or not lower < upper.
    """
    low, high = as_reals(lower, "lower"), as_reals(upper, "upper")
    if low.ndim != 1 or low.size == 0 or low.shape != high.shape:
        raise ParameterError(f"lower, upper have shapes {low.shape}, {high.shape}: expected d coordinates each")
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.isfinite(high - low).all()):
        raise ParameterError("lower, upper: expected finite numbers")
    if not np.all(low < high):
        raise ParameterError("lower, upper: expected lower < upper on each axis")
    return low, high


def as_box(name: str, box: Any) -> tuple[Floats, Floats]:
    """Corners of one box that is given as a pair."""
    return as_corners(*pair(name, box))


def as_boxes(lower: ArrayLike, upper: ArrayLike, dim: int, *, finite: bool = False) -> tuple[Floats, Floats]:
    """Corners of many boxes, float64[q, d] each; lower <= upper, infinite unless ``finite``.

    Raises
    ------
    ParameterError
        If they are not numbers, not of one shape [q, d], or not lower <= upper.
    """
    low, high = as_reals(lower, "lower"), as_reals(upper, "upper")
    if low.ndim != 2 or low.shape != high.shape or low.shape[1] != dim:
        raise ParameterError(f"lower, upper have shapes {low.shape}, {high.shape}: expected [q, {dim}] each")
    wrong = ~(low <= high)
    if finite:
        wrong |= ~(np.isfinite(low) & np.isfinite(high))
    if wrong.any():
        kind = "finite lower <= upper" if finite else "lower <= upper"
        raise ParameterError(f"{entry_at('lower, upper', wrong.any(axis=1), 'no box')}; expected {kind}")
    return low, high


def inside(rows: Floats, domain: Domain, outside: str, name: str) -> Floats:
    """The points, judged by the rule for those outside the domain.

    Parameters
    ----------
    rows : float64[n, d]
        From :func:`fastdp.spatial.checks.as_points`.
    domain : Domain
        The domain.
    outside : str
        ``"raise"`` refuses points outside the domain; ``"clip"`` moves them to the nearest point of its bounding box.
    name : str
        For messages.

    Raises
    ------
    DataError
        With the place of the first point outside and the number of them.
    """
    if outside == "clip":
        clipped: Floats = np.clip(rows, domain.lower, domain.upper)
        return snapped(clipped, domain)
    outsiders = ~domain.contains(rows)
    if outsiders.any():
        raise DataError(
            f"{entry_at(name, outsiders, 'a point outside the domain')}; expected points inside, or outside='clip'"
        )
    return snapped(rows, domain)


def snapped(rows: Floats, domain: Domain) -> Floats:
    """Points on a domain that is thinner than its tolerance, such as a road network; each moves on its own."""
    snap = getattr(domain, "snap", None)
    if snap is None or not rows.size:
        return rows
    places: Floats = snap(rows)
    return places
