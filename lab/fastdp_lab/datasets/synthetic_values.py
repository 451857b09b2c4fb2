"""Streams of values: synthetic ones with the quantiles and means of ToPS Table 1, and streams made longer.

Values of Table 1 and their order are separate.  Values are a stratified sample of a distribution with the row's
quantiles and mean, so every stream has them in any order; the order is that of a score with the wanted course over
time.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.data.column import as_column
from fastdp.errors import DataError
from fastdp_lab.datasets.catalogue import TABLE1, Row

Floats = NDArray[np.float64]
ORDERS = ("iid", "diurnal", "bursty", "drifting")
#: DNS was recorded for 14 days.
DAYS = 14
#: Values of a burst, and of the quiet stretch before the next, on average.
_BURST, _QUIET = 200.0, 3800.0
#: Heights of the course of time over independent scores of variance 1.
_WAVE, _RISE, _JUMP = 1.0, 2.0, 2.5
_KNOTS = (0.85, 0.95, 0.995, 1.0)
_FINE = 2**16


def table1(stream: str, n: int | None = None, order: str = "iid", seed: int = 7) -> NDArray[np.int64]:
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
    The law: up to the 85 % quantile a power of u, whose exponent makes the mean right; above, geometric
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
    arranged: NDArray[np.int64] = np.empty(n, np.int64)
    arranged[np.argsort(_score(order, n, generator), kind="stable")] = values
    return arranged


def _rounded(u: Floats, row: Row, exponent: float) -> NDArray[np.int64]:
    """The law's values at u in (0, 1)."""
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
    """Where large values belong: the course of time over independent noise."""
    noise = generator.standard_normal(n)
    if order == "diurnal":
        return noise - _WAVE * np.cos(2.0 * np.pi * DAYS * np.arange(n) / n)
    if order == "drifting":
        return noise + _RISE * np.arange(n) / n
    if order == "bursty":
        return noise + _JUMP * _in_burst(n, generator)
    return noise


def _in_burst(n: int, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Whether a value lies in a burst: quiet stretches and bursts by turns, of geometric length."""
    turns = 2 + int(2 * n / (_BURST + _QUIET)) * 2
    lengths = np.empty(turns, np.int64)
    lengths[::2] = generator.geometric(1.0 / _QUIET, lengths[::2].size)
    lengths[1::2] = generator.geometric(1.0 / _BURST, lengths[1::2].size)
    states = np.repeat(np.arange(turns) % 2 == 1, lengths)[:n]
    return np.pad(states, (0, n - states.size))


@validation.plain
def extend_by_reflection(values: Floats, n: int) -> Floats:
    """The first n of: values forward, backward, forward, ...

    Parameters
    ----------
    values : float64[k]
        At least one.
    n : int
        Length of the result; less than k cuts the values off.
    """
    values = as_column(values, "values")
    if values.size == 0:
        raise DataError("values is empty: expected at least one to extend")
    n = validation.integer("n", n, 0)
    return np.resize(np.concatenate([values, values[::-1]]), n)


@validation.plain
def hold_out_and_extend(values: Floats, holdout: int, published: int) -> Floats:
    """The hold-out, then the rest extended: no value of the hold-out reappears in the published part.

    Parameters
    ----------
    values : float64[k]
        Longer than the hold-out.
    holdout, published : int
        Lengths of the two parts of the result.
    """
    values, holdout = as_column(values, "values"), validation.integer("holdout", holdout, 0)
    return np.concatenate([values[:holdout], extend_by_reflection(values[holdout:], published)])
