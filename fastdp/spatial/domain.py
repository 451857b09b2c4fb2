"""Domains: where points may lie; a box."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.column import as_column, as_floats
from fastdp.arrays.kinds import Floats, Integers
from fastdp.errors import DataError, ParameterError
from fastdp_kernels import cell_sampling

#: What becomes of points outside the domain: an error, or the nearest place inside.
Outside = Literal["raise", "clip"]


class Domain(Protocol):
    """A public region with a measure; nothing here depends on data.

    A domain that is thinner than its tolerance, such as a road network, may also have ``snap(points)``: the place in
    the domain nearest to each point, float64[n, d].

    Attributes
    ----------
    dim : int
        d.
    lower, upper : float64[d]
        Corners of the bounding box.
    """

    @property
    def dim(self) -> int:
        """Coordinates of a point."""

    @property
    def lower(self) -> Floats:
        """Lower corner of the bounding box, float64[d]."""

    @property
    def upper(self) -> Floats:
        """Upper corner of the bounding box, float64[d]."""

    def measure(self, lower: Floats, upper: Floats) -> Floats:
        """Volume, area or length of the domain inside each box; lower, upper float64[n, d], returns float64[n]."""

    def sample(self, lower: Floats, upper: Floats, counts: Integers, generator: np.random.Generator) -> Floats:
        """Uniform points of the domain inside each box, box by box: float64[sum of counts, d]."""

    def contains(self, points: Floats) -> NDArray[np.bool_]:
        """Which of the points, float64[n, d], lie in the domain, its border included."""


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
