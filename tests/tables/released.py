"""Tables with drawn noise, for tests of what is done with them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fastdp.guarantee import Guarantee
from fastdp.releases.intervals import DrawnNoise
from fastdp.tables.sums import NoisySums, WindowSums
from fastdp.tables.table import Table

HOUR = 3_600_000_000
#: 2015-03-28 00:00 UTC; Melbourne's clocks went back on 5 April.
BEGIN = 1_427_500_800_000_000
STEP = 2.0**-20


def noise(rng, scale, shape):
    """Discrete Laplace noise from a generator: for tests of error bars, not of privacy."""
    p = -np.expm1(-1.0 / float(scale))
    return rng.geometric(p, shape) - rng.geometric(p, shape)


def noisy(rng, true, scale, resolution):
    steps = np.rint(np.asarray(true) / resolution).astype(np.int64)
    return NoisySums(steps + noise(rng, scale, steps.shape), resolution, DrawnNoise(Fraction(scale)))


def table(kind, true, *, scale=10.0, rng=None, keys=None, confidence=0.95, **others):
    """A table whose true sums are ``true``; of means a pair (deviations, counts)."""
    rng = np.random.default_rng(1) if rng is None else rng
    if kind == "means":
        deviations, counts = true
        columns = {
            "count": noisy(rng, counts, scale, 1.0),
            "deviation": noisy(rng, deviations, scale * 5 / STEP, STEP),
        }
    else:
        step = 1.0 if kind == "counts" else STEP
        columns = {kind[:-1]: noisy(rng, true, scale / step, step)}
    windows = next(iter(columns.values())).steps.shape[0]
    settings = {
        "edges": BEGIN + HOUR * np.arange(windows + 1),
        "time_zone": "Australia/Melbourne",
        "every": "1h",
        "clip": None if kind == "counts" else (0.0, 10.0),
        "centre": 5.0 if kind == "means" else 0.0,
        "guarantee": Guarantee(0.5, unit="one row of the table", adjacency="add or remove one row"),
    }
    return Table(WindowSums(kind=kind, keys=keys or {}, columns=columns, **{**settings, **others}), confidence)
