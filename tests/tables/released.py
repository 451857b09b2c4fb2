"""Tables with drawn noise, for tests of what is done with them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from fastdp.releases.intervals import DrawnNoise
from fastdp.tables.consistent import Level
from fastdp.tables.quantities import Quantity
from fastdp.tables.released import Measured, Released
from fastdp.tables.shares import shares_of
from fastdp.tables.statistics import Count, Mean, Sum
from fastdp.tables.table import Table
from tests.tables import flat

HOUR = 3_600_000_000
#: 2015-03-28 00:00 UTC; Melbourne's clocks went back on 5 April.
BEGIN = 1_427_500_800_000_000
STEP = 2.0**-20


def noise(rng, scale, shape):
    """Discrete Laplace noise from a generator: for tests of error bars, not of privacy."""
    p = -np.expm1(-1.0 / float(scale))
    return rng.geometric(p, shape) - rng.geometric(p, shape)


def table(kind, true, *, scale=10.0, rng=None, keys=None, confidence=0.95, who=None, **others):
    """A table whose true sums are ``true``; of means a pair (deviations, counts)."""
    rng = np.random.default_rng(1) if rng is None else rng
    clipped = {"low": 0, "high": 10 * 2**20, "grid": STEP, "resolution": STEP}
    count, total = Quantity("count"), Quantity("total", "values", **clipped)
    quantities = {
        "counts": (count,),
        "totals": (total,),
        "means": (Quantity("deviation", "values", centre=5 * 2**20, **clipped), count),
    }[kind]
    steps, drawn = [], []
    for q, exact in zip(quantities, true if kind == "means" else [true], strict=True):
        each = Fraction(scale) if q.name == "count" else Fraction(scale * (5 if kind == "means" else 1) / STEP)
        whole = np.rint(np.asarray(exact) / q.resolution).astype(np.int64)
        steps.append(whole + noise(rng, each, whole.shape))
        drawn.append(DrawnNoise(each))
    windows, size = steps[0].shape
    keys = keys or {}
    nodes = tuple(dict(list(keys.items())[:depth]) for depth in range(len(keys) + 1))
    options = ({} if kind == "counts" else {"bound": 10.0}) | ({"who": who} if who else {})
    made = flat.make_plan(kind, every="1h", epsilon=0.5, **options)
    settings = {
        "edges": BEGIN + HOUR * np.arange(windows + 1),
        "time_zone": "Australia/Melbourne",
        "every": "1h",
        "nodes": nodes,
        "parents": tuple(np.zeros(size, np.int64) for _ in keys),
        "statistics": ({"totals": Sum("values"), "counts": Count(), "means": Mean("values")}[kind],),
        "measured": (Measured(Level(len(keys), True), quantities, np.stack(steps), tuple(drawn)),),
        "tails": {} if kind == "counts" else {"values": flat.tail(0.0, 10.0)},
        "shares": shares_of(made),
        "simulated": False,
    }
    return Table(Released(**{**settings, **others}), confidence)
