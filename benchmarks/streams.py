"""Streams to publish: a synthetic one for timings, and real ones extended by reflection."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import sizes
from fastdp.datasets import extend_by_reflection, hold_out_and_extend

__all__ = ["DATA", "REFERENCE", "Floats", "extend_by_reflection", "hold_out_and_extend", "item_counts"]

Floats = NDArray[np.float64]
#: Beside the project, never inside it.
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
REFERENCE = DATA.parent / "reference"


@lru_cache(maxsize=4)
def item_counts(n: int, bound: int = sizes.BOUND) -> Floats:
    """Whole numbers from 2 to the bound with about the quantiles of BMS-POS (85 %: 13, 95 %: 21, 99.5 %: 40)."""
    generator = np.random.default_rng(20)
    return np.clip(np.rint(generator.lognormal(np.log(6.0), 0.75, n)), 2.0, float(bound))
