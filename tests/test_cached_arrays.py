"""Arrays that a cache gives to many callers cannot be changed by one of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fastdp.noise.gaussian import gaussian_distribution
from fastdp.noise.sampler import laplace_distribution
from fastdp.noise.words import Purpose, StreamId, _layout
from fastdp.perturbers import Hierarchy
from fastdp.perturbers.hierarchy import consistency_weights
from fastdp.tables.calendar import _changes
from fastdp.thresholds import NoisyMax, ThresholdTask
from fastdp.thresholds.noisy_max import _penalties
from fastdp.thresholds.scale_free import _candidates

TASK = ThresholdTask(0.5, 64.0, 500, 4096, 2.0**-10)
CACHED: dict[str, Callable[[], Any]] = {
    "consistency": lambda: [consistency_weights(Hierarchy(prune=0).plan(0.5, 4096))],
    "penalties": lambda: [_penalties(NoisyMax(), TASK, 1.0, 64)],
    "candidates": lambda: _candidates(2**20),
    "changes of a clock": lambda: _changes(0, 3, UTC),
    "a law": lambda: [laplace_distribution(Fraction(7, 2)).constants],
    "counters of rows": lambda: _layout(((StreamId(Purpose.TREE), 3),)),
    "a Gaussian law": lambda: [
        getattr(gaussian_distribution(Fraction(9)), each) for each in ("table", "inverses", "constants")
    ],
}


@pytest.mark.parametrize("name", CACHED)
def test_cached_arrays_are_read_only(name: str) -> None:
    first, second = CACHED[name](), CACHED[name]()
    for array, same in zip(first, second, strict=True):
        assert array is same
        with pytest.raises(ValueError, match=r"read-only|cannot set WRITEABLE"):
            array.reshape(-1)[:1] = np.zeros(1, array.dtype)
