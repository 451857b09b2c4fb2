"""The online pass over 2^20 values in blocks of 256, noise ready: kernels, careful NumPy, and a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks import sizes
from benchmarks.peers import numpy_tops
from benchmarks.streams import item_counts
from fastdp_kernels import online_pass

pytestmark = pytest.mark.benchmark(group="online pass: 2^20 values, blocks of 256, noise ready")
BLOCK = 256
CLOSED = sizes.PUBLISHED // BLOCK
STEPS_PER_UNIT = 2.0**20


@pytest.fixture(scope="module")
def values() -> Any:
    return item_counts(sizes.PUBLISHED)


def run_kernels(values: Any, noise: Any, out: Any) -> None:
    sums, totals, predictions = np.empty(CLOSED, np.int64), np.empty(CLOSED), np.empty(CLOSED + 1)
    online_pass.sum_blocks(values, STEPS_PER_UNIT, sizes.THETA * STEPS_PER_UNIT, BLOCK, 0, sums)
    online_pass.add_noise(sums, noise, 1.0 / STEPS_PER_UNIT, totals)
    predictions[0] = sizes.THETA / 2.0
    np.divide(totals, BLOCK, out=predictions[1:])
    online_pass.emit_blocks(totals, predictions, BLOCK, 0, out)


def test_fastdp(per_item: Any, values: Any) -> None:
    noise = np.random.default_rng(1).integers(-(2**30), 2**30, CLOSED)
    out, expected, scratch = (np.empty(values.size) for _ in range(3))
    per_item(lambda: run_kernels(values, noise, out), values.size)
    numpy_tops.publish(values, sizes.THETA, noise / STEPS_PER_UNIT, BLOCK, scratch, expected)
    assert np.allclose(out, expected, rtol=0.0, atol=1e-6)


def test_numpy(per_item: Any, values: Any) -> None:
    noise = np.random.default_rng(1).normal(0.0, 1000.0, CLOSED)
    scratch, out = np.empty(values.size), np.empty(values.size)
    per_item(lambda: numpy_tops.publish(values, sizes.THETA, noise, BLOCK, scratch, out), values.size)


def test_copyto(per_item: Any, values: Any) -> None:
    out = np.empty(values.size)
    per_item(lambda: np.copyto(out, values), values.size)
