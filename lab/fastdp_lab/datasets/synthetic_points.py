"""Synthetic streams of points: the circles of PHDStream, and pickups and check-ins that gather at places.

Places are busy at some times, as the real ones are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdp import validation
from fastdp.spatial import Network
from fastdp.spatial.maps import load
from fastdp_lab.datasets.events import SpatialStream, cut_events
from fastdp_lab.datasets.files import DAY, EARTH, NEW_YORK, seeded, with_removals

Floats = NDArray[np.float64]
#: Radius of the inner circle (the outer one's is 1), standard deviation of both coordinates: the published code.
INNER, SPREAD = 0.667, 0.05
#: Half the side of the square around both circles: five standard deviations beyond the outer one.
HALF_SIDE = 1.25
#: Where Manhattan is, its axis, and standard deviations along and across it, in degrees.
_CENTRE, _AXIS, _ALONG, _ACROSS = (-73.975, 40.755), (0.42, 0.907), 0.05, 0.012
#: Part of the pickups in the other boroughs, and their standard deviation in degrees.
_OUTER, _WIDE = 0.15, 0.07
_AVENUES, _STREETS = 12, 100
_SPOTS, _SPOT_WIDTH = 400, 0.0015
_CITIES, _CITY_WIDTH = 600, 0.15
#: Centre, standard deviation (longitude, latitude) and weight of where check-in cities lie.
_REGIONS = (
    ((-95.0, 37.0), (14.0, 5.0), 0.5),
    ((12.0, 51.0), (10.0, 6.0), 0.35),
    ((105.0, 15.0), (15.0, 12.0), 0.1),
    ((-58.0, -25.0), (8.0, 8.0), 0.05),
)


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
    generator = seeded(seed)
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


def made_up_pickups(
    n_points: int = 100_000,
    *,
    days: int = 31,
    period: float = DAY / 4,
    initial: float = 0.0,
    seed: int | None = None,
) -> SpatialStream:
    """Pickups at places of a city, as New York's taxis have them: many in a long island, few around it.

    Parameters
    ----------
    n_points : int
        Pickups in all.
    days : int
        Length of the stream; nights and weekends are quiet, and by day other places are busy than by night.
    period : float
        Seconds in a batch; six hours by default, as in PHDStream's paper.
    initial : float
        Share of the events before the first batch, in [0, 1).
    seed : int, optional
        Equal seeds give equal streams.

    Returns
    -------
    SpatialStream
        Additions only, longitude and latitude in the box of New York.
    """
    n_points, days = validation.integer("n_points", n_points, 1, 2**32), validation.integer("days", days, 1, 10_000)
    generator = seeded(seed)
    moments = _busy_times(n_points, days, generator)
    spots, weights = _city(generator)
    night = generator.permutation(weights)
    dark = np.cos(2.0 * np.pi * moments / DAY) > 0.5
    which = np.empty(n_points, np.int64)
    for chosen, heavy in ((dark, night), (~dark, weights)):
        which[chosen] = generator.choice(_SPOTS, int(chosen.sum()), p=heavy)
    points = _near(spots[which], _SPOT_WIDTH, NEW_YORK, generator)
    return cut_events("synthetic pickups", *NEW_YORK, points, times=moments, period=period, initial=initial)


@validation.plain
def made_up_check_ins(
    n_points: int = 200_000,
    *,
    days: int = 300,
    deletion: bool = False,
    lifetime: float = 30 * DAY,
    period: float = DAY,
    initial: float = 0.0,
    seed: int | None = None,
) -> SpatialStream:
    """Check-ins in cities around the world, as Gowalla's: ever more of them, in ever more cities.

    Parameters
    ----------
    n_points : int
        Check-ins in all.
    days : int
        Length of the stream; the number until day t grows with the square of t.
    deletion : bool
        Whether each check-in is taken back when its lifetime is over.
    lifetime : float
        In seconds, 30 days by default.
    period : float
        Seconds in a batch; a day by default.
    initial : float
        Share of the events before the first batch, in [0, 1).
    seed : int, optional
        Equal seeds give equal streams.

    Returns
    -------
    SpatialStream
        Longitude and latitude in the box of the whole Earth.
    """
    n_points, days = validation.integer("n_points", n_points, 1, 2**32), validation.integer("days", days, 1, 10_000)
    generator = seeded(seed)
    moments = DAY * days * np.sqrt(np.sort(generator.random(n_points)))
    cities = np.concatenate(
        [generator.normal(centre, spread, (round(share * _CITIES), 2)) for centre, spread, share in _REGIONS]
    )
    generator.shuffle(cities)
    # Cities open one after the other; of those open, early ones are the largest.
    opened = np.maximum(1, np.ceil(len(cities) * moments / (DAY * days))).astype(np.int64)
    which = np.floor(opened ** generator.random(n_points)).astype(np.int64) - 1
    points = _near(cities[which], _CITY_WIDTH, EARTH, generator)
    cancels, name = np.full(n_points, -1), "synthetic check-ins"
    if deletion:
        moments, points, cancels = with_removals(moments, points, validation.positive("lifetime", lifetime))
        name = "synthetic check-ins with deletion"
    return cut_events(name, *EARTH, points, cancels=cancels, times=moments, period=period, initial=initial)


def made_up_streets() -> Network:
    """Streets like those of a long island in New York: avenues, and streets at right angles to them.

    Returns
    -------
    fastdp.spatial.Network
        In degrees; the busy places of :func:`made_up_pickups` lie on it.

    Raises
    ------
    ParameterError
        If shapely is not installed.
    """
    shapely = load("shapely")

    centre, axis = np.array(_CENTRE), np.array(_AXIS)
    across = np.array([axis[1], -axis[0]])
    length, width = 2.0 * _ALONG, 1.5 * _ACROSS
    avenues = [(x * across - length * axis, x * across + length * axis) for x in np.linspace(-width, width, _AVENUES)]
    streets = [(y * axis - width * across, y * axis + width * across) for y in np.linspace(-length, length, _STREETS)]
    return Network(shapely.MultiLineString([centre + np.array(ends) for ends in avenues + streets]), geographic=True)


def _busy_times(count: int, days: int, generator: np.random.Generator) -> Floats:
    """Ascending seconds; each hour of the week has a weight of its own."""
    hours = np.arange(24 * days)
    daily = 1.2 + np.sin(2.0 * np.pi * (hours % 24 - 10.0) / 24.0)
    weight = daily * np.where(hours // 24 % 7 >= 5, 0.8, 1.0)
    hour = generator.choice(hours.size, count, p=weight / weight.sum())
    return np.sort(3600.0 * (hour + generator.random(count)))


def _city(generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Places float64[k, 2], and how busy they are; they sum to 1."""
    axis = np.array(_AXIS)
    across = np.array([axis[1], -axis[0]])
    spots = np.array(_CENTRE) + np.outer(generator.normal(0.0, _ALONG, _SPOTS), axis)
    spots += np.outer(generator.normal(0.0, _ACROSS, _SPOTS), across)
    outer = round(_OUTER * _SPOTS)
    spots[:outer] = np.array(_CENTRE) + generator.normal(0.0, _WIDE, (outer, 2))
    weights = 1.0 / generator.permutation(np.arange(3.0, 3.0 + _SPOTS))
    return spots, weights / weights.sum()


def _near(centres: Floats, spread: float, box: tuple[ArrayLike, ArrayLike], generator: np.random.Generator) -> Floats:
    """A point near each centre, moved to the box's border where it would leave it."""
    points: Floats = np.clip(generator.normal(centres, spread), *box)
    return points
