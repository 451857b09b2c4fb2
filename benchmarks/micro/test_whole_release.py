"""A whole ToPS release (n = 2^20, m = 65,536, eps 0.05): fastdp exact, careful NumPy with float noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fastdp
from benchmarks import sizes
from benchmarks.peers import numpy_tops
from benchmarks.streams import item_counts

VALUES = sizes.HOLDOUT + sizes.PUBLISHED
GROUPS = {prune: pytest.mark.benchmark(group=f"whole release: 2^20 values, prune = {prune}") for prune in (0, 2)}
both = pytest.mark.parametrize("prune", [pytest.param(prune, marks=mark) for prune, mark in GROUPS.items()])


@both
def test_fastdp(per_item: Any, prune: int) -> None:
    values = item_counts(VALUES)
    release = per_item(
        lambda: fastdp.release(values, sizes.EPSILON, sizes.BOUND, "tops", holdout=sizes.HOLDOUT, prune=prune),
        VALUES,
    )
    assert release.values.size == sizes.PUBLISHED


@both
def test_numpy_float(per_item: Any, prune: int) -> None:
    values, generator = item_counts(VALUES), np.random.default_rng(1)
    shape = numpy_tops.Shape(sizes.FAN_OUT, 5 - prune, prune)

    def release() -> Any:
        return numpy_tops.release(
            values, sizes.HOLDOUT, sizes.BOUND, sizes.EPSILON, shape, sizes.MAX_RANGE, generator
        )

    published = per_item(release, VALUES)
    assert published.size == sizes.PUBLISHED
    clipped = np.minimum(values[sizes.HOLDOUT :], sizes.THETA)
    assert published.sum() == pytest.approx(clipped.sum(), rel=0.05)


@pytest.mark.benchmark(group="whole release: 2^20 values, prune = 2")
def test_copyto(per_item: Any) -> None:
    values, out = item_counts(VALUES), np.empty(sizes.PUBLISHED)
    per_item(lambda: np.copyto(out, values[sizes.HOLDOUT :]), VALUES)
