"""Public regions, and checks of points and boxes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from typing import ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.counters.counter import Counter, noise_scale
from fastdp.data.column import as_array, as_column, as_floats, as_reals, entry_at, kind_of
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Array, Floats, Integers, Values
from fastdp.noise import sampler
from fastdp.record import Choice, Keyed, PartOf, Real, Whole, parameter, record
from fastdp.validation import refusal
from fastdp_kernels.points import cell_codes

#: More points in one batch would not fit the integers of a split test.
MAX_POINTS = 2**38
#: Most cells of the greatest depth, and most bits of the noise's scale.
CODE_BITS = 62
MAX_FAN_OUT = 1024
SCALE_BITS = 40
UNIT_BITS = 20
#: Treatment of points outside the domain: an error, or the nearest point of its bounding box.
Outside = Literal["raise", "clip"]
Corners = tuple[Floats, Floats]


class Domain(Protocol):
    """Public region with a measure; a thin one, such as a road network, is a :class:`ThinDomain`."""

    @property
    def dim(self) -> int:
        """Number d of coordinates."""

    @property
    def lower(self) -> Floats:
        """Lower corner of the bounding box, float64[d]."""

    @property
    def upper(self) -> Floats:
        """Upper corner of the bounding box, float64[d]."""

    def measure(self, lower: Floats, upper: Floats) -> Floats:
        """Size of the domain inside boxes with corners float64[n, d]: float64[n]."""

    def sample(self, lower: Floats, upper: Floats, counts: Integers, generator: np.random.Generator) -> Floats:
        """Uniform points, box by box: float64[sum of counts, d]."""

    def contains(self, points: Floats) -> NDArray[np.bool_]:
        """True for points, float64[n, d], in the domain or on its border: bool[n]."""


@runtime_checkable
class ThinDomain(Protocol):
    """Domain that moves points onto itself."""

    def snap(self, points: Values) -> Floats: ...


class Box:
    """Covers all points between two corners.

    Parameters
    ----------
    lower, upper : array-like of d numbers
        In units of the points; lower < upper, else ParameterError.

    Examples
    --------
    >>> import fastdp
    >>> box = fastdp.points.Box((0, 0), (2, 1))
    >>> box.contains([[1.5, 0.5], [1.5, 2.0]]).tolist()
    [True, False]
    """

    rule: ClassVar[int] = 1

    def __init__(self, lower: Values, upper: Values) -> None:
        self.lower, self.upper = _corner("lower", lower).copy(), _corner("upper", upper).copy()
        self.dim = self.lower.size
        if self.dim != self.upper.size:
            raise ParameterError(f"upper has {self.upper.size} numbers: expected as many as lower, {self.dim}")
        self.lower.flags.writeable = self.upper.flags.writeable = False
        width = self.upper - self.lower if np.all(np.abs(self.lower) < 1e300) else np.full(1, np.inf)
        if not (np.all(self.lower < self.upper) and np.isfinite(width).all()):
            raise refusal("upper", upper, f"numbers above lower = {validation.shown(lower)}, below 1e300")

    def __repr__(self) -> str:
        return f"Box({self.lower.tolist()}, {self.upper.tolist()})"

    def describe(self) -> dict[str, object]:
        """The corners, for state files and noise keys."""
        return {"lower": self.lower.tolist(), "upper": self.upper.tolist()}

    identity = describe

    def measure(self, lower: Floats, upper: Floats) -> Floats:
        sides = np.minimum(upper, self.upper) - np.maximum(lower, self.lower)
        volumes: Floats = np.prod(np.maximum(sides, 0.0), axis=1)
        return volumes

    def sample(self, lower: Floats, upper: Floats, counts: Integers, generator: np.random.Generator) -> Floats:
        out = generator.random((int(counts.sum()), self.dim))
        cell_codes.place_points(lower, upper, counts, out)
        return out

    def contains(self, points: Floats) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = np.all((points >= self.lower) & (points <= self.upper), axis=1)
        return inside


def _corner(name: str, values: Values) -> Floats:
    try:
        column = as_floats(as_column([values] if np.isscalar(values) else values, name))
    except DataError as error:
        raise ParameterError(str(error)) from None
    if column.size == 0 or not np.isfinite(column).all():
        raise refusal(name, values, "finite numbers, one for each coordinate")
    return column


# Checks of points and boxes as users give them.


def as_points(values: Values | None, name: str, dim: int | None = None) -> Floats:
    """Check points, float64[n, d]; with `dim`, None and an empty list mean none."""
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


def _floats_of(objects: Array) -> Floats | None:
    try:
        return objects.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return None


def as_corners(lower: Values, upper: Values) -> Corners:
    """Check a box's corners, float64[d] each; else ParameterError."""
    low, high = as_reals(lower, "lower"), as_reals(upper, "upper")
    if low.ndim != 1 or low.size == 0 or low.shape != high.shape:
        raise ParameterError(f"lower, upper have shapes {low.shape}, {high.shape}: expected d coordinates each")
    if not (np.isfinite(low).all() and np.isfinite(high).all() and np.isfinite(high - low).all()):
        raise ParameterError("lower, upper: expected finite numbers")
    if not np.all(low < high):
        raise ParameterError("lower, upper: expected lower < upper on each axis")
    return low, high


def as_box(name: str, box: object) -> Corners:
    """Corners of one box given as a pair."""
    return as_corners(*validation.pair(name, box))


def as_boxes(lower: Values, upper: Values, dim: int, *, finite: bool = False) -> Corners:
    """Check corners of boxes, float64[q, d]; else ParameterError."""
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


# Cells.


@dataclass(frozen=True)
class CellParameters:
    """Constants of a step: lambda = (2 beta - 1) / (beta - 1) / epsilon_tree, delta = lambda ln beta.

    ``unit`` is K, a power of two; ``bias`` K delta, rounded up; ``threshold`` K theta; ``fan_out`` beta; ``uniform``:
    all children have equal measures.
    """

    domain: Domain
    fan_out: int
    max_depth: int
    epsilon_tree: Fraction
    epsilon_count: Fraction
    counter: Counter
    theta: float = 0.0
    repaired: bool = True
    retention: int = 0
    unit: int = field(init=False)
    bias: int = field(init=False)
    threshold: int = field(init=False)
    split_distribution: sampler.LaplaceDistribution = field(init=False, repr=False)
    cell_distribution: sampler.LaplaceDistribution = field(init=False, repr=False)
    uniform: bool = field(init=False)

    def __post_init__(self) -> None:
        fan_out, max_depth, dim, most = self.fan_out, self.max_depth, self.domain.dim, None
        if fan_out**max_depth > 2**CODE_BITS:
            most = int(CODE_BITS / math.log2(fan_out))
        elif fan_out & (fan_out - 1) and fan_out ** -(-max_depth // dim) > 2**53:
            # Borders are fractions of a side: beyond 53 bits those of different depths would round differently.
            most = int(53 / math.log2(fan_out)) * dim
        if most is not None:
            raise ParameterError(f"max_depth = {max_depth}: expected at most {most} for fan_out = {fan_out}")
        scale = Fraction(2 * fan_out - 1, fan_out - 1) / self.epsilon_tree
        of_counts = noise_scale(self.counter, self.epsilon_count)
        if min(scale, of_counts) < sampler.MIN_SCALE:
            raise ParameterError("epsilon is too large: expected a noise scale of at least 2^-40 points")
        if max(scale, of_counts) > 2**SCALE_BITS:
            raise ParameterError("epsilon is too small: expected a noise scale of at most 2^40 points")
        unit = 2**UNIT_BITS
        while unit > 1 and scale * unit > 2**SCALE_BITS:
            unit //= 2
        if abs(self.theta) > 2**SCALE_BITS:
            raise refusal("threshold", self.theta, "at most 2^40 points")
        bias = math.ceil(float(scale * unit) * math.log(fan_out) * (1.0 + 2.0**-40)) + 1
        if bias * max_depth > 2**61:
            raise ParameterError(f"max_depth = {max_depth}: expected less, or a larger epsilon")
        self.__dict__.update(
            unit=unit,
            bias=bias,
            threshold=round(self.theta * unit),
            split_distribution=sampler.laplace_distribution(scale * unit),
            cell_distribution=sampler.laplace_distribution(of_counts),
            uniform=isinstance(self.domain, Box),
        )


def measures(plan: CellParameters, codes: Integers, depth: int) -> Floats:
    """Measures of cells of one depth, float64[n]; ParameterError for impossible ones."""
    lower = np.empty((codes.size, plan.domain.dim))
    upper, depths = np.empty_like(lower), np.full(codes.size, depth)
    cell_codes.decode_cells(codes, depths, plan.domain.lower, plan.domain.upper, plan.fan_out, lower, upper)
    sizes = np.ascontiguousarray(plan.domain.measure(lower, upper), np.float64)
    if not (np.isfinite(sizes).all() and (sizes >= 0.0).all()):
        raise refusal("domain", plan.domain, "finite measures of at least 0 for its cells")
    return sizes


def encode(plan: CellParameters, points: Floats) -> Integers:
    """Ascending codes of points' smallest cells: int64[n]."""
    codes: Integers = np.empty(points.shape[0], np.int64)
    cell_codes.encode_points(points, plan.domain.lower, plan.domain.upper, plan.fan_out, plan.max_depth, codes)
    codes.sort()
    return codes


@record
class PointParameters(Keyed, ABC):
    """Parameters of every mechanism on points."""

    domain: Domain = parameter(PartOf(Domain, "fastdp.points"))
    epsilon: float = parameter(Real(above=0.0))
    _: KW_ONLY
    max_depth: int = parameter(Whole(0, CODE_BITS), default=20)
    fan_out: int = parameter(Whole(2, MAX_FAN_OUT), default=2)
    outside: Outside = parameter(Choice(("raise", "clip")), default="raise")

    def _check(self) -> None:
        _ = self.plan

    @property
    @abstractmethod
    def plan(self) -> CellParameters: ...

    def codes(self, points: Values | None, name: str) -> Integers:
        """Encode points; DataError if one is not finite, of another dimension, or outside."""
        if points is None:
            return np.empty(0, np.int64)
        domain, rows = self.domain, as_points(points, name, self.domain.dim)
        if self.outside == "clip":
            rows = np.clip(rows, domain.lower, domain.upper)
        elif (outsiders := ~domain.contains(rows)).any():
            entry = entry_at(name, outsiders, "a point outside the domain")
            raise DataError(f"{entry}; expected points inside, or outside='clip'")
        # On a domain that is thinner than its tolerance, such as a road network, each point moves on its own. A box
        # is asked first: isinstance with a protocol takes as long as encoding 250 points.
        if rows.size and not self.plan.uniform and isinstance(domain, ThinDomain):
            rows = domain.snap(rows)
        return encode(self.plan, rows)
