"""Domains and their cells: what is fixed and public about a private decomposition."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.counters.counter import Counter, noise_scale
from fastdp.data.column import entry_at
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Floats, Integers
from fastdp.noise import sampler
from fastdp.spatial.boxes import Box
from fastdp_kernels.points import cell_codes

#: Most cells of the greatest depth, and most bits of the noise's scale.
CODE_BITS = 62
MAX_FAN_OUT = 1024
SCALE_BITS = 40
UNIT_BITS = 20
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


def inside(rows: Floats, domain: Domain, outside: str, name: str) -> Floats:
    """The points, judged by the rule for those outside the domain.

    Parameters
    ----------
    rows : float64[n, d]
        From :func:`fastdp.spatial.boxes.as_points`.
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
        rows = np.clip(rows, domain.lower, domain.upper)
    elif (outsiders := ~domain.contains(rows)).any():
        raise DataError(
            f"{entry_at(name, outsiders, 'a point outside the domain')}; expected points inside, or outside='clip'"
        )
    # On a domain that is thinner than its tolerance, such as a road network, each point moves on its own.
    snap = getattr(domain, "snap", None)
    places: Floats = rows if snap is None or not rows.size else snap(rows)
    return places


@dataclass(frozen=True)
class CellParameters:
    """Everything that is fixed and public.

    Attributes
    ----------
    domain : Domain
        The region.
    fan_out, max_depth : int
        beta, D.
    epsilon_tree, epsilon_count : Fraction
        Budgets of the split decisions and of the counts, for one event.
    counter : Counter
        What counts at the leaves.
    unit, bias, threshold : int
        K; Delta, at least K delta; K theta.
    repaired : bool
        Score of ``docs/phdstream.md``, or the paper's.
    retention : int
        Steps for which cells that are not split keep the counts of their parts.
    """

    domain: Domain
    fan_out: int
    max_depth: int
    epsilon_tree: Fraction
    epsilon_count: Fraction
    counter: Counter
    unit: int
    bias: int
    threshold: int
    repaired: bool
    retention: int
    split_law: sampler.LaplaceDistribution = field(repr=False)
    cell_law: sampler.LaplaceDistribution = field(repr=False)

    @cached_property
    def uniform(self) -> bool:
        """Whether all parts of a cell have the same measure."""
        return isinstance(self.domain, Box)


def make_plan(
    domain: Domain,
    fan_out: int,
    max_depth: int,
    epsilon_tree: Fraction,
    epsilon_count: Fraction,
    counter: Counter,
    *,
    threshold: float,
    repaired: bool = True,
    retention: int = 0,
) -> CellParameters:
    """Constants of the split tests: lambda = (2 beta - 1) / (beta - 1) / epsilon_tree, delta = lambda ln beta.

    K is a power of two, 2^20 or less so that K lambda stays below 2^40.  Delta is rounded up, by more than floats
    can be wrong: the proof needs exp(-Delta / (K lambda)) <= 1 / beta.

    Raises
    ------
    ParameterError
        If a parameter is not accepted: the cells of the greatest depth are at most 2^62.
    """
    validation.part("domain", domain, Domain, "fastdp.spatial")
    max_depth = validation.integer("max_depth", max_depth, 0, CODE_BITS)
    fan_out = validation.integer("fan_out", fan_out, 2, MAX_FAN_OUT)
    threshold = validation.real("threshold", threshold)
    if fan_out**max_depth > 2**CODE_BITS:
        most = int(CODE_BITS / math.log2(fan_out))
        raise ParameterError(f"max_depth = {max_depth}: expected at most {most} for fan_out = {fan_out}")
    cuts = -(-max_depth // domain.dim)
    if fan_out & (fan_out - 1) and fan_out**cuts > 2**53:
        # Borders are fractions of a side: beyond 53 bits those of different depths would round differently.
        most = int(53 / math.log2(fan_out)) * domain.dim
        raise ParameterError(f"max_depth = {max_depth}: expected at most {most} for fan_out = {fan_out}")
    scale = Fraction(2 * fan_out - 1, fan_out - 1) / epsilon_tree
    of_counts = noise_scale(counter, epsilon_count)
    if min(scale, of_counts) < sampler.MIN_SCALE:
        raise ParameterError("epsilon is too large: expected a noise scale of at least 2^-40 points")
    if max(scale, of_counts) > 2**SCALE_BITS:
        raise ParameterError("epsilon is too small: expected a noise scale of at most 2^40 points")
    bits = UNIT_BITS
    while bits and scale * 2**bits > 2**SCALE_BITS:
        bits -= 1
    unit = 2**bits
    if abs(threshold) > 2**SCALE_BITS:
        raise ParameterError(f"threshold = {threshold!r}: expected at most 2^40 points")
    bias = math.ceil(float(scale * unit) * math.log(fan_out) * (1.0 + 2.0**-40)) + 1
    if bias * max_depth > 2**61:
        raise ParameterError(f"max_depth = {max_depth}: expected less, or a larger epsilon")
    split_law, cell_law = sampler.laplace_distribution(scale * unit), sampler.laplace_distribution(of_counts)
    constants = unit, bias, round(threshold * unit), repaired, retention
    given = domain, fan_out, max_depth, epsilon_tree, epsilon_count, counter
    return CellParameters(*given, *constants, split_law, cell_law)


def cells(plan: CellParameters, codes: Integers, depths: Integers) -> tuple[Floats, Floats]:
    """Bounds of cells, lower and upper float64[n, d]."""
    lower = np.empty((codes.size, plan.domain.dim))
    upper = np.empty_like(lower)
    corners = plan.domain.lower, plan.domain.upper
    cell_codes.decode_cells(codes, depths, *corners, plan.fan_out, lower, upper)
    return lower, upper


def measures(plan: CellParameters, codes: Integers, depth: int) -> Floats:
    """Measures of the domain inside cells of one depth: float64[n]."""
    found = np.ascontiguousarray(plan.domain.measure(*cells(plan, codes, np.full(codes.size, depth))), np.float64)
    if not (np.isfinite(found).all() and (found >= 0.0).all()):
        raise ParameterError(f"domain = {plan.domain!r}: expected finite measures of at least 0 for its cells")
    return found


def encode(plan: CellParameters, points: Floats) -> Integers:
    """Codes of the greatest depth, ascending: int64[n]."""
    codes: Integers = np.empty(points.shape[0], np.int64)
    cell_codes.encode_points(points, plan.domain.lower, plan.domain.upper, plan.fan_out, plan.max_depth, codes)
    codes.sort()
    return codes
