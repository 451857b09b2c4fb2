"""Streams to publish: a synthetic one for timings, and real ones extended by reflection."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import sizes

Floats = NDArray[np.float64]
#: Beside the project, never inside it.
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
REFERENCE = DATA.parent / "reference"


@lru_cache(maxsize=4)
def item_counts(n: int, bound: int = sizes.BOUND) -> Floats:
    """Whole numbers from 2 to the bound with about the quantiles of BMS-POS (85 %: 13, 95 %: 21, 99.5 %: 40)."""
    generator = np.random.default_rng(20)
    return np.clip(np.rint(generator.lognormal(np.log(6.0), 0.75, n)), 2.0, float(bound))


def extend_by_reflection(values: Floats, n: int) -> Floats:
    """The first n of: values forward, backward, forward, ..."""
    period = np.concatenate([values, values[::-1]])
    return np.resize(period, n)


def hold_out_and_extend(values: Floats, holdout: int, published: int) -> Floats:
    """The hold-out, then the rest extended: no value of the hold-out reappears in the published part."""
    return np.concatenate([values[:holdout], extend_by_reflection(values[holdout:], published)])
