"""Points on two concentric circles: the simulated streams of PHDStream."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.spatial.events import SpatialStream, cut_events

#: Radius of the inner circle (the outer one's is 1), standard deviation of both coordinates: the published code.
INNER, SPREAD = 0.667, 0.05
#: Half the side of the square around both circles: five standard deviations beyond the outer one.
HALF_SIDE = 1.25


@validation.plain
def concentric_circles(
    n_points: int = 50_000,
    *,
    deletion: bool = True,
    batch: int = 500,
    initial: float = 0.1,
    seed: int | None = None,
) -> SpatialStream:
    """Points on two circles around (0, 0) with radii 1 and 0.667, in the square from -1.25 to 1.25.

    Parameters
    ----------
    n_points : int
        Points that are ever added; the outer circle has half of them, rounded down.
    deletion : bool
        With: first the outer circle's points appear; then they disappear in the same order, each followed by one
        of the inner circle.  Without: points of both circles appear in random order.
    batch : int
        Events in a batch.
    initial : float
        Share of the events before the first batch (t0), in [0, 1).
    seed : int, optional
        Equal seeds give equal streams.

    Returns
    -------
    SpatialStream
        n_points additions, and with deletion as many removals as the outer circle has points: 75,000 events by
        default.

    Notes
    -----
    Source: PHDStream section 5.1, Appendix G and Figure 3.  Radii, spread and order are the published code's, whose
    data set has 50,000 points.  Noise is drawn again for the rare points outside the square.
    """
    n_points = validation.integer("n_points", n_points, 1, 2**32)
    generator = np.random.default_rng(None if seed is None else validation.integer("seed", seed, 0))
    n_outer = n_points // 2
    outer, inner = _ring(1.0, n_outer, generator), _ring(INNER, n_points - n_outer, generator)
    if deletion:
        moves = np.stack([outer, inner[:n_outer]], axis=1).reshape(-1, 2)
        points = np.concatenate([outer, moves, inner[n_outer:]])
        cancels = np.full(points.shape[0], -1)
        cancels[n_outer : 3 * n_outer : 2] = np.arange(n_outer)
    else:
        points = generator.permutation(np.concatenate([outer, inner]))
        cancels = np.full(n_points, -1)
    corner = np.full(2, HALF_SIDE)
    name = "circles with deletion" if deletion else "circles"
    return cut_events(name, -corner, corner, points, cancels=cancels, batch=batch, initial=initial)


def _ring(radius: float, count: int, generator: np.random.Generator) -> NDArray[np.float64]:
    angles = generator.uniform(0.0, 2.0 * np.pi, count)
    centres = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = centres + generator.normal(0.0, SPREAD, (count, 2))
    while (outside := np.abs(points).max(axis=1, initial=0.0) > HALF_SIDE).any():
        points[outside] = centres[outside] + generator.normal(0.0, SPREAD, (int(outside.sum()), 2))
    return points
