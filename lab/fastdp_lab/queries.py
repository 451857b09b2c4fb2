"""Queries for evaluation: random ranges and boxes, exact counts in boxes, errors of answers.

Source: ToPS Eq. 9 (MSE) and Appendix F (MAE, MMSE, MMAE); PHDStream section 5.4 (after PrivTree, SIGMOD 2016): boxes
whose volume is a stated part of the domain's box.  Errors compare with the truth: for evaluation, never for release.
Arrays of answers may have any one shape, say float64[repetitions, queries].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fastdp import validation
from fastdp.data.column import as_reals
from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Integers
from fastdp.points.domains import as_boxes, as_corners, as_points
from fastdp_kernels.points import box_queries

#: Twice the length of the longest stream still fits int64.
MAX_STREAM_LENGTH = 2**62
MAX_RANGES = 2**40


def random_ranges(
    n: int, count: int, max_range: int | None = None, seed: int | None = None
) -> tuple[Integers, Integers]:
    """Ranges [start, stop) drawn uniformly from all ranges of 1 to ``max_range`` values in a stream of n.

    A range of length j has n - j + 1 places, so short ranges are more frequent (ToPS section 3.3).

    Parameters
    ----------
    n, count : int
        Length of the published stream; how many ranges.
    max_range : int, optional
        The longest; by default n.  Longer than n counts as n.
    seed : int, optional
        For a reproducible workload.
    """
    n = validation.integer("n", n, 1, MAX_STREAM_LENGTH)
    count = validation.integer("count", count, 0, MAX_RANGES)
    longest = n if max_range is None else min(n, validation.integer("max_range", max_range, 1))
    generator = np.random.default_rng(None if seed is None else validation.integer("seed", seed, 0))
    # Lengths j and longest + 1 - j have 2 n - longest + 1 places between them, whatever j is.  So draw a
    # length and one of these places; a place beyond the length's own belongs to the other length.  Each
    # range comes from exactly two of the equally likely draws.
    length = generator.integers(1, longest, size=count, endpoint=True)
    starts = generator.integers(0, 2 * n - longest + 1, size=count)
    own = n - length + 1
    other = starts >= own
    starts -= np.where(other, own, 0)
    length = np.where(other, longest + 1 - length, length)
    return starts, starts + length


# Boxes.

#: Name, number of boxes, least and greatest part of the volume: PHDStream section 5.4.
PAPER_SETS = (("small", 10_000, 1e-4, 1e-3), ("medium", 5_000, 1e-3, 1e-2), ("large", 1_000, 1e-2, 1e-1))
#: The error's denominator is at least this part of all points: PHDStream section 5.4.
FLOOR = 0.001
MAX_BOXES = 2**32
#: Points in a leaf of the k-d tree: fewer cost more nodes, more cost longer scans.
LEAF = 16
Placement = Literal["inside", "clipped"]


@dataclass(frozen=True)
class BoxQueries:
    """A set of boxes to ask for the number of points in.

    Parameters
    ----------
    name : str
        For tables.
    lower, upper : float64[q, d]
        Corners of the boxes.
    """

    name: str
    lower: Floats
    upper: Floats

    def __len__(self) -> int:
        return int(self.lower.shape[0])


def random_boxes(
    lower: ArrayLike,
    upper: ArrayLike,
    count: int,
    low: float,
    high: float,
    *,
    placement: Placement = "inside",
    seed: int | None = None,
    name: str = "random",
) -> BoxQueries:
    """Boxes with a volume of ``low`` to ``high`` times that of the domain's box.

    The paper gives the areas only.  As in the published code, sides are independent and uniform: each is the domain's
    side times a number from [low^(1/d), high^(1/d)), so boxes are nearly of the domain's proportions.

    Parameters
    ----------
    lower, upper : array-like[d]
        The domain's box.
    count : int
        How many boxes.
    low, high : float
        Range [low, high) of the volume as a share of the domain's, 0 < low < high <= 1.
    placement : {"inside", "clipped"}
        Whether boxes lie inside the domain's box, uniformly where they fit, or, as in the authors' published code,
        begin anywhere where the smallest one fits and what sticks out is cut off.
    seed : int, optional
        For a reproducible set.
    name : str
        The set's name.
    """
    begin, end = as_corners(lower, upper)
    count = validation.integer("count", count, 0, MAX_BOXES)
    low, high = validation.positive("low", low), validation.positive("high", high)
    if not low < high <= 1.0:
        raise ParameterError(f"low, high = {low}, {high}: expected 0 < low < high <= 1")
    validation.choice("placement", placement, ("inside", "clipped"))
    generator = np.random.default_rng(None if seed is None else validation.integer("seed", seed, 0))
    least, most = low ** (1 / begin.size), high ** (1 / begin.size)
    places, sides = generator.random((2, count, begin.size))
    sides = least + (most - least) * sides
    places *= 1.0 - (sides if placement == "inside" else least)
    corners = begin + (end - begin) * places, begin + (end - begin) * np.minimum(places + sides, 1.0)
    return BoxQueries(name, corners[0], np.minimum(corners[1], end))


def paper_queries(
    lower: ArrayLike,
    upper: ArrayLike,
    *,
    count: int | None = None,
    placement: Placement = "inside",
    seed: int | None = None,
) -> dict[str, BoxQueries]:
    """The three query sets of PHDStream section 5.4, 10,000 small boxes, 5,000 medium, 1,000 large, or ``count``.

    Volumes are 0.01 to 0.1 %, to 1 % and to 10 % of the domain's; parameters as for :func:`random_boxes`.
    """
    entropy = np.random.SeedSequence(None if seed is None else validation.integer("seed", seed, 0))
    seeds = entropy.generate_state(len(PAPER_SETS), np.uint64)
    return {
        name: random_boxes(
            lower, upper, usual if count is None else count, low, high, placement=placement, seed=int(own), name=name
        )
        for (name, usual, low, high), own in zip(PAPER_SETS, seeds, strict=True)
    }


class PointIndex:
    """Points, arranged for exact counts in many boxes.

    Parameters
    ----------
    points : array-like[n, d]
        Finite coordinates; a copy is kept.

    Notes
    -----
    Building takes O(n log n), a box O(n^(1 - 1/d)) at worst, whatever the distribution.  The counts are those of the
    points given: private only if the points are.
    """

    def __init__(self, points: ArrayLike) -> None:
        self._points = as_points(points, "points").copy()
        n, dim = self._points.shape
        self._levels = max(0, (n // LEAF).bit_length() - 1)
        self._nodes = np.empty((2 << self._levels, dim)), np.empty((2 << self._levels, dim))
        box_queries.sort_into_tree(self._points, self._levels)
        box_queries.enclose_points(self._points, self._levels, *self._nodes)

    def count(self, lower: ArrayLike, upper: ArrayLike) -> Integers:
        """Number of points with lower <= point <= upper on each axis.

        Parameters
        ----------
        lower, upper : array-like[q, d]
            The boxes; infinite bounds are allowed.
        """
        low, high = as_boxes(lower, upper, self._points.shape[1])
        out = np.empty(low.shape[0], np.int64)
        box_queries.count_points(self._points, *self._nodes, self._levels, low, high, out)
        return out


# Errors of answers.


def _difference(truth: ArrayLike, answers: ArrayLike) -> Floats:
    exact, private = as_reals(truth, "truth"), as_reals(answers, "answers")
    if exact.shape != private.shape:
        raise ParameterError(f"answers has shape {private.shape}: expected that of truth, {exact.shape}")
    return private - exact


def _mean_difference(truth: ArrayLike, answers: ArrayLike, lengths: ArrayLike) -> Floats:
    return _difference(truth, answers) / as_reals(lengths, "lengths")


def mse(truth: ArrayLike, answers: ArrayLike) -> float:
    """Mean squared error of range answers (Eq. 9)."""
    return float(np.mean(_difference(truth, answers) ** 2))


def mae(truth: ArrayLike, answers: ArrayLike) -> float:
    """Mean absolute error of range answers (Appendix F)."""
    return float(np.mean(np.abs(_difference(truth, answers))))


def mmse(truth: ArrayLike, answers: ArrayLike, lengths: ArrayLike) -> float:
    """Mean squared error of range means: answers divided by the ranges' lengths (Appendix F)."""
    return float(np.mean(_mean_difference(truth, answers, lengths) ** 2))


def mmae(truth: ArrayLike, answers: ArrayLike, lengths: ArrayLike) -> float:
    """Mean absolute error of range means (Appendix F)."""
    return float(np.mean(np.abs(_mean_difference(truth, answers, lengths))))


def relative_error(truth: ArrayLike, answers: ArrayLike, floor: float = 0.0) -> float:
    """Mean of abs(answer - truth) / max(abs(truth), floor)."""
    scale = np.maximum(np.abs(as_reals(truth, "truth")), validation.real("floor", floor))
    if np.any(scale == 0.0):
        raise ParameterError(f"floor = {floor!r}: expected a number above 0, because some true answers are 0")
    return float(np.mean(np.abs(_difference(truth, answers)) / scale))
