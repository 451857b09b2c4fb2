"""The synthetic day of counts that ``fastdp demo`` releases."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fastdp import validation

#: Public bound of the DNS stream in ToPS Table 1.
DNS_BOUND = 2000
DAY_LENGTH = 2**20 + 65_536

# Queries per interval at the quietest and the busiest time of day, and when the quietest is.
_QUIET, _BUSY, _QUIET_HOUR = 18.0, 57.3, 4.0
# The day begins in the morning's rise, where the first hour and a half looks like the whole day: a
# hold-out taken at night would choose a threshold for the night.
_FIRST_HOUR = 10.0
# Gamma-distributed load makes the counts negative binomial; bursts multiply a few intervals.
_LOAD_SHAPE = 4.4
_BURST_SHARE, _BURST_SHAPE, _BURST_SCALE = 0.006, 3.0, 0.5


def dns_like_day(n: int = DAY_LENGTH, seed: int = 7) -> NDArray[np.int64]:
    """Numbers of DNS queries in the intervals of one day, from 10 o'clock to 10 o'clock.

    Parameters
    ----------
    n : int
        Intervals in the day.
    seed : int
        Equal seeds give equal streams.

    Returns
    -------
    int64[n]
        Counts in [0, 2000].

    Notes
    -----
    Modelled on the quantiles of the DNS stream in ToPS Table 1: a rate that follows the time of day, gamma
    load (so counts are negative binomial), and rare bursts.  With the default arguments:

    ========  =====  ===  ===  =====  ====
    stream    mean   p85  p95  p99.5  max
    ========  =====  ===  ===  =====  ====
    Table 1   37.9   63   85   135    617
    this      38.0   62   86   134    640
    ========  =====  ===  ===  =====  ====

    Examples
    --------
    >>> import fastdp.cli.day
    >>> fastdp.cli.day.dns_like_day(1000).shape
    (1000,)
    """
    n = validation.integer("n", n, 1)
    generator = np.random.default_rng(validation.integer("seed", seed, 0))
    hours = _FIRST_HOUR + 24.0 * np.arange(n) / n
    wave = 0.5 - 0.5 * np.cos(2.0 * np.pi * (hours - _QUIET_HOUR) / 24.0)
    load = (_QUIET + (_BUSY - _QUIET) * wave) * generator.gamma(_LOAD_SHAPE, 1.0 / _LOAD_SHAPE, n)
    bursts = np.flatnonzero(generator.random(n) < _BURST_SHARE)
    load[bursts] *= 1.0 + generator.gamma(_BURST_SHAPE, _BURST_SCALE, bursts.size)
    counts: NDArray[np.int64] = generator.poisson(load)
    return np.minimum(counts, DNS_BOUND, out=counts)
