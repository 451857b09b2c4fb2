"""Synthetic streams with the quantiles and means of ToPS Table 1, in four orders of time.

Values and their order are made apart.  Values are a stratified sample of a law with the row's quantiles and mean, so
every stream has them whatever its order; the order is that of a score with the wanted course over time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastdp import validation

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


@dataclass(frozen=True)
class Row:
    """A row of Table 1.

    Attributes
    ----------
    length : int
        n of the real stream.
    bound : int
        The public bound ("max").
    quantiles : (int, int, int, int)
        The 85, 95, 99.5 and 100 % quantiles.
    mean : float
        "avg".
    least : int
        The least value, which Table 1 does not give.
    """

    length: int
    bound: int
    quantiles: tuple[int, int, int, int]
    mean: float
    least: int


#: Table 1 of ToPS.
TABLE1 = {
    "dns": Row(1_141_961, 2000, (63, 85, 135, 617), 37.9, 0),
    "fare": Row(8_704_495, 30_000, (440, 1036, 2037, 26_770), 279.9, 0),
    "kosarak": Row(990_002, 41_270, (10, 28, 133, 2498), 8.1, 1),
    "pos": Row(515_597, 1657, (13, 21, 39, 165), 7.5, 1),
}


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
