"""Synthetic streams: values with the quantiles and means of ToPS Table 1, circles, pickups and check-ins.

Values of Table 1 are a stratified sample of a distribution with the row's quantiles and mean; their order is that of
a score with the wanted course over time.  Points gather at places that are busy at some times, as the real ones do.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastdp import validation
from fastdp.data.column import as_column
from fastdp.errors import DataError
from fastdp.kinds import Floats, Integers
from fastdp.points import Network
from fastdp.points.maps import load
from fastdp_lab.datasets.catalogue import TABLE1, Row
from fastdp_lab.datasets.files import DAY, EARTH, NEW_YORK, PointStream, cut_events, seeded, with_removals

ORDERS = ("iid", "diurnal", "bursty", "drifting")
#: DNS was recorded for 14 days.
DAYS = 14
#: Values of a burst, and of the quiet stretch before the next, on average.
_BURST, _QUIET = 200.0, 3800.0
#: Heights of the course of time over independent scores of variance 1.
_WAVE, _RISE, _JUMP = 1.0, 2.0, 2.5
_KNOTS = (0.85, 0.95, 0.995, 1.0)
_FINE = 2**16


def table1(stream: str, n: int | None = None, order: str = "iid", seed: int = 7) -> Integers:
    """A stream with the quantiles and the mean of a row of ToPS Table 1.

    Parameters
    ----------
    stream : "dns", "fare", "kosarak" or "pos"
        The row.
    n : int, optional
        Values; by default as many as the real stream has.
    order : "iid", "diurnal", "bursty" or "drifting"
        A random permutation; 14 days, busy and quiet; rare stretches of large values; a slow rise from begin to end.
    seed : int
        Equal seeds give equal streams.

    Returns
    -------
    int64[n]
        Whole numbers within the row's bound.  The four orders hold the same values.

    Notes
    -----
    The distribution: up to the 85 % quantile a power of u, whose exponent makes the mean right; above, geometric
    interpolation between the quantiles, with u to the fourth power before the maximum, which is rare.

    Examples
    --------
    >>> import numpy as np, fastdp_lab.datasets
    >>> values = fastdp_lab.datasets.table1("pos", n=100_000, order="bursty")
    >>> np.quantile(values, [0.85, 0.95, 0.995, 1.0]).astype(int).tolist()
    [13, 21, 39, 165]
    """
    row = TABLE1[validation.choice("stream", stream, tuple(TABLE1))]
    validation.choice("order", order, ORDERS)
    n = row.length if n is None else validation.integer("n", n, 1, 2**32)
    generator = np.random.default_rng(validation.integer("seed", seed, 0))
    values = _rounded((np.arange(n) + 0.5) / n, row, _exponent(row))
    values[-1] = row.quantiles[-1]
    arranged: Integers = np.empty(n, np.int64)
    arranged[np.argsort(_score(order, n, generator), kind="stable")] = values
    return arranged


def _rounded(u: Floats, row: Row, exponent: float) -> Integers:
    """The distribution's values at u in (0, 1)."""
    first = row.quantiles[0]
    values = row.least + (first - row.least) * (np.minimum(u, _KNOTS[0]) / _KNOTS[0]) ** exponent
    for k in range(1, len(_KNOTS)):
        above = u > _KNOTS[k - 1]
        part = (u[above] - _KNOTS[k - 1]) / (_KNOTS[k] - _KNOTS[k - 1])
        last = k == len(_KNOTS) - 1
        low, high = row.quantiles[k - 1], row.quantiles[k]
        values[above] = np.minimum(low * (high / low) ** (part**4 if last else part), high)
    return np.rint(values).astype(np.int64)


@lru_cache(maxsize=len(TABLE1))
def _exponent(row: Row) -> float:
    """The power of u that makes the mean right, by bisection; the mean falls as it grows."""
    u = (np.arange(_FINE) + 0.5) / _FINE
    low, high = 0.01, 20.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _rounded(u, row, middle).mean() > row.mean else (low, middle)
    return 0.5 * (low + high)


def _score(order: str, n: int, generator: np.random.Generator) -> Floats:
    """Order of large values: the course of time over independent noise."""
    noise = generator.standard_normal(n)
    if order == "diurnal":
        return noise - _WAVE * np.cos(2.0 * np.pi * DAYS * np.arange(n) / n)
    if order == "drifting":
        return noise + _RISE * np.arange(n) / n
    if order == "bursty":
        return noise + _JUMP * _in_burst(n, generator)
    return noise


def _in_burst(n: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Flags of values in a burst: quiet stretches and bursts by turns, of geometric length."""
    turns = 2 + int(2 * n / (_BURST + _QUIET)) * 2
    lengths = np.empty(turns, np.int64)
    lengths[::2] = generator.geometric(1.0 / _QUIET, lengths[::2].size)
    lengths[1::2] = generator.geometric(1.0 / _BURST, lengths[1::2].size)
    states = np.repeat(np.arange(turns) % 2 == 1, lengths)[:n]
    return np.pad(states, (0, n - states.size))


def growing(form: str, factor: float, n: int, begin: int, seed: int = 7) -> Integers:
    """Gamma values of mean 10 whose scale grows by a factor behind its beginning: int64[n], at most 100,000.

    Parameters
    ----------
    form : "ramp", "step" or "curve"
        Straight on; at once, after a quarter; by rates.
    factor : float
        The scale at the end.
    n, begin : int
        Values in all, and those before the growth.
    seed : int
        Equal seeds give equal streams.
    """
    validation.choice("form", form, ("ramp", "step", "curve"))
    factor, n = validation.positive("factor", factor), validation.integer("n", n, 1, 2**32)
    begin = validation.integer("begin", begin, 0, n - 1)
    generator = np.random.default_rng(validation.integer("seed", seed, 0))
    place = (np.arange(n) - begin).clip(0) / (n - begin)
    courses = {"ramp": 1.0 + (factor - 1.0) * place, "step": np.where(place >= 0.25, factor, 1.0)}
    scale = courses.get(form, factor**place)
    values: Integers = np.rint(np.minimum(generator.gamma(2.0, 5.0, n) * scale, GROWTH_BOUND)).astype(np.int64)
    return values


def exponential(quantile: float, n: int, p: float = 0.005, seed: int = 7) -> Floats:
    """Independent values of an exponential distribution, float64[n].

    Parameters
    ----------
    quantile, p : float
        A share p of the values lies above ``quantile``.
    n : int
        Values.
    seed : int
        Equal seeds give equal streams.
    """
    scale = validation.positive("quantile", quantile) / -np.log(validation.probability("p", p))
    generator = np.random.default_rng(validation.integer("seed", seed, 0))
    found: Floats = generator.exponential(scale, validation.integer("n", n, 1, 2**32))
    return found


GROWTH_BOUND = 100_000.0
#: Part of the persons who keep their answer from one step to the next.
_STAY = 0.9


def panel(course: str, steps: int, persons: int, levels: int = 1, total: bool = False, seed: int = 7) -> Integers:
    """Answers from 0 to ``levels`` of the same persons at every step; or how many say 1 at each step.

    Parameters
    ----------
    course : "still", "wave", "jump" or "rare"
        Of the mean: constant; with the period of 24 steps; with a jump in the middle; near zero but for one burst.
    steps, persons, levels : int
        Sizes.
    total : bool
        Sums over persons, int64[steps], in place of int64[steps * persons].
    seed : int
        Equal seeds give equal streams.
    """
    validation.choice("course", course, ("still", "wave", "jump", "rare"))
    steps, persons = validation.integer("steps", steps, 1, 2**24), validation.integer("persons", persons, 1, 2**24)
    levels, total = validation.integer("levels", levels, 1, 2**20), validation.flag("total", total)
    generator, place = np.random.default_rng(validation.integer("seed", seed, 0)), np.arange(steps)
    middle = {
        "still": np.full(steps, 0.3),
        "wave": 0.3 + 0.2 * np.sin(2.0 * np.pi * place / 24.0),
        "jump": np.where(place < steps // 2, 0.2, 0.6),
        "rare": np.where((place > steps // 3) & (place < steps // 3 + 20), 0.5, 0.01),
    }[course]
    answers = np.empty((steps, persons), np.int64)
    present = generator.binomial(levels, middle[0], persons)
    for t in range(steps):
        renewed = generator.random(persons) > _STAY if t else np.zeros(persons, bool)
        # A jump is everyone's.
        renewed |= bool(t) and abs(middle[t] - middle[t - 1]) > 0.1
        present = np.where(renewed, generator.binomial(levels, middle[t], persons), present)
        answers[t] = present
    return answers.sum(axis=1) if total else answers.ravel()


@validation.plain
def extend_by_reflection(values: Floats, n: int) -> Floats:
    """The first n of: values forward, backward, forward, ..."""
    values = as_column(values, "values")
    if values.size == 0:
        raise DataError("values is empty: expected at least one to extend")
    n = validation.integer("n", n, 0)
    return np.resize(np.concatenate([values, values[::-1]]), n)


@validation.plain
def hold_out_and_extend(values: Floats, holdout: int, published: int) -> Floats:
    """The hold-out, then ``published`` values of the rest extended: none of the hold-out reappears there."""
    values, holdout = as_column(values, "values"), validation.integer("holdout", holdout, 0)
    return np.concatenate([values[:holdout], extend_by_reflection(values[holdout:], published)])


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
    n_points: int = 50_000, *, deletion: bool = True, batch: int = 500, initial: float = 0.1, seed: int | None = None
) -> PointStream:
    """Points on two circles around (0, 0) with radii 1 and 0.667, in the square from -1.25 to 1.25.

    Radii, spread and order are the published code's, whose data set has 50,000 points (PHDStream section 5.1, Figure
    3).

    Parameters
    ----------
    n_points : int
        Points that are ever added; the outer circle has half of them, rounded down.
    deletion : bool
        With: first the outer circle's points appear; then they disappear in the same order, each followed by one of
        the inner circle.  Without: points of both circles appear in random order.
    batch, initial, seed
        As for :func:`load_circles`; equal seeds give equal streams.
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


def _ring(radius: float, count: int, generator: np.random.Generator) -> Floats:
    angles = generator.uniform(0.0, 2.0 * np.pi, count)
    centres = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    points = centres + generator.normal(0.0, SPREAD, (count, 2))
    while (outside := np.abs(points).max(axis=1, initial=0.0) > HALF_SIDE).any():
        points[outside] = centres[outside] + generator.normal(0.0, SPREAD, (int(outside.sum()), 2))
    return points


def made_up_pickups(
    n_points: int = 100_000, *, days: int = 31, period: float = DAY / 4, initial: float = 0.0, seed: int | None = None
) -> PointStream:
    """Pickups at places of a city, as New York's taxis have them: many in a long island, few around it.

    Parameters
    ----------
    n_points, days : int
        Pickups in all; nights and weekends are quiet, and by day other places are busy than by night.
    period, initial, seed
        As for :func:`load_pickups`, six hours by default; equal seeds give equal streams.
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
) -> PointStream:
    """Check-ins in cities around the world, as Gowalla's: ever more of them, in ever more cities.

    Parameters
    ----------
    n_points, days : int
        Check-ins in all; the number until day t grows with the square of t.
    deletion, lifetime, period, initial, seed
        As for :func:`load_gowalla`; equal seeds give equal streams.
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

    In degrees; the busy places of :func:`made_up_pickups` lie on them.  Needs shapely.
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
