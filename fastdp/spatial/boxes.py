"""Boxes and points: the plainest domain, what users give checked once, and counts in many boxes at once."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdp import validation
from fastdp.data.column import as_array, as_column, as_floats, as_reals, entry_at, kind_of
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Floats, Integers
from fastdp_kernels.points import box_queries, cell_sampling

#: More points in one batch would not fit the integers of a split test.
MAX_POINTS = 2**38
#: Items in a leaf of the k-d tree: fewer cost more nodes, more cost longer scans.
LEAF = 16


def _corner(name: str, values: Any) -> Floats:
    try:
        column = as_floats(as_column([values] if np.isscalar(values) else values, name))
    except DataError as error:
        raise ParameterError(str(error)) from None
    if column.size == 0 or not np.isfinite(column).all():
        raise ParameterError(f"{name} = {validation.shown(values)}: expected finite numbers, one for each coordinate")
    return column


class Box:
    """All points between two corners, borders included.

    Parameters
    ----------
    lower, upper : array-like of d numbers
        The corners, in units of the points; lower < upper in every coordinate.

    Raises
    ------
    ParameterError
        For corners that are not finite, of different lengths, or not in order.
    """

    rule: ClassVar[int] = 1

    def __init__(self, lower: Any, upper: Any) -> None:
        self._lower, self._upper = _corner("lower", lower).copy(), _corner("upper", upper).copy()
        if self._lower.size != self._upper.size:
            raise ParameterError(
                f"upper has {self._upper.size} numbers: expected as many as lower, {self._lower.size}"
            )
        self._lower.flags.writeable = self._upper.flags.writeable = False
        width = self._upper - self._lower if np.all(np.abs(self._lower) < 1e300) else np.full(1, np.inf)
        if not (np.all(self._lower < self._upper) and np.isfinite(width).all()):
            raise ParameterError(
                f"upper = {validation.shown(upper)}: expected numbers above "
                f"lower = {validation.shown(lower)}, below 1e300"
            )

    def __repr__(self) -> str:
        return f"Box({self._lower.tolist()}, {self._upper.tolist()})"

    def describe(self) -> dict[str, Any]:
        """The corners, for a state file and for noise keys."""
        return {"lower": self._lower.tolist(), "upper": self._upper.tolist()}

    identity = describe

    @property
    def dim(self) -> int:
        """Coordinates of a point."""
        return self._lower.size

    @property
    def lower(self) -> Floats:
        """Lower corner, float64[d]."""
        return self._lower

    @property
    def upper(self) -> Floats:
        """Upper corner, float64[d]."""
        return self._upper

    def measure(self, lower: Floats, upper: Floats) -> Floats:
        """Volume of the part of each box inside this one: float64[n]."""
        sides = np.minimum(upper, self._upper) - np.maximum(lower, self._lower)
        volumes: Floats = np.prod(np.maximum(sides, 0.0), axis=1)
        return volumes

    def sample(self, lower: Floats, upper: Floats, counts: Integers, generator: np.random.Generator) -> Floats:
        """Uniform points of boxes inside this one, box by box: float64[sum of counts, d]."""
        out = generator.random((int(counts.sum()), self.dim))
        cell_sampling.place_points(lower, upper, counts, out)
        return out

    def contains(self, points: Floats) -> NDArray[np.bool_]:
        """Which of the points, float64[n, d], lie in the box."""
        inside: NDArray[np.bool_] = np.all((points >= self._lower) & (points <= self._upper), axis=1)
        return inside


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
    return as_corners(*validation.pair(name, box))


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


class BoxTree:
    """Items in the order of a k-d tree, with the box around each node."""

    def __init__(self, lower: Floats, upper: Floats) -> None:
        n = lower.shape[0]
        self.levels = max(0, (n // LEAF).bit_length() - 1)
        self.order = np.arange(n)
        # Centres of cells; half of each first, because a sum could overflow.
        keys = lower.copy() if upper is lower else 0.5 * lower + 0.5 * upper
        box_queries.sort_into_tree(keys, self.levels, self.order)
        self.lower = keys if upper is lower else lower[self.order]
        self.upper = keys if upper is lower else upper[self.order]
        self.node_lower = np.empty((2 << self.levels, lower.shape[1]))
        self.node_upper = np.empty_like(self.node_lower)
        box_queries.enclose_items(self.lower, self.upper, self.levels, self.node_lower, self.node_upper)


class CellIndex:
    """Cells with counts, arranged for counts in many boxes: what a released tree says without sampling.

    Parameters
    ----------
    lower, upper : array-like[n, d]
        Corners of the cells, finite; copies are kept.  Cells without extent along an axis are allowed.
    counts : array-like[n]
        Their contents, finite; negative ones are allowed.

    Notes
    -----
    A count is taken to be spread evenly over its cell, so an answer is the expected number of points in the box
    when points are sampled evenly from the cells.
    """

    def __init__(self, lower: ArrayLike, upper: ArrayLike, counts: ArrayLike) -> None:
        shape = as_reals(lower, "lower").shape
        low, high = as_boxes(lower, upper, shape[1] if len(shape) == 2 else 1, finite=True)
        contents = as_reals(counts, "counts")
        if contents.shape != low.shape[:1] or not np.isfinite(contents).all():
            raise ParameterError(f"counts: expected one finite number for each of {low.shape[0]} cells")
        self._tree = BoxTree(low, high)
        self._counts = contents[self._tree.order]
        self._sums = np.empty(2 << self._tree.levels)
        box_queries.sum_items(self._counts, self._tree.levels, self._sums)

    @property
    def total(self) -> float:
        """Sum of all counts."""
        return float(self._sums[1])

    def count(self, lower: ArrayLike, upper: ArrayLike) -> Floats:
        """Content of each box: the sum over the cells of count times the part of the cell's volume in the box.

        Parameters
        ----------
        lower, upper : array-like[q, d]
            The boxes; infinite bounds are allowed.

        Returns
        -------
        float64[q]
        """
        tree = self._tree
        low, high = as_boxes(lower, upper, tree.lower.shape[1])
        out = np.empty(low.shape[0])
        cells = tree.lower, tree.upper, self._counts, tree.node_lower, tree.node_upper, self._sums, tree.levels
        box_queries.count_cells(*cells, low, high, out)
        return out
