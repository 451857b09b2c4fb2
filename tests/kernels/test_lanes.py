"""Rows of sixteen entries against NumPy, modulo 2^64, anywhere in an array."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core.errors import NumbaError

from fastdp_kernels._jit import kernel
from fastdp_kernels._lanes import LANES, ROUNDER_BITS, fill_row, raise_row, sum_row, sum_steps_and_fill


@kernel
def add_up(entries: np.ndarray, at: int) -> np.int64:
    return sum_row(entries, at)


@kernel
def lift(entries: np.ndarray, at: int, share: np.int64, extra: np.int64) -> None:
    raise_row(entries, at, share, extra)


@kernel
def fill(out: np.ndarray, at: int, value: float, last: float) -> None:
    fill_row(out, at, value, last)


@pytest.mark.parametrize("at", [0, 1, 5, 8])
def test_the_sum_of_a_row_wraps(at: int) -> None:
    entries = np.random.default_rng(at).integers(-(2**63), 2**63, 40)
    assert add_up(entries, at) == entries[at : at + LANES].sum()


@pytest.mark.parametrize("extra", [0, 1, 9, LANES - 1, LANES])
@pytest.mark.parametrize("share", [-3, 0, 2**62, -(2**63)])
def test_a_row_is_raised_and_nothing_beside_it(share: int, extra: int) -> None:
    entries = np.random.default_rng(extra).integers(-(2**63), 2**63, 40)
    expected = entries.copy()
    expected[5 : 5 + LANES] += share
    expected[5 : 5 + extra] += 1
    lift(entries, 5, share, extra)
    assert entries.tolist() == expected.tolist()


def test_a_row_is_filled_and_nothing_beside_it() -> None:
    out = np.zeros(40)
    fill(out, 7, 2.5, -1.0)
    assert out.tolist() == [0.0] * 7 + [2.5] * 15 + [-1.0] + [0.0] * 17


@kernel
def read_and_fill(values: np.ndarray, at: int, rows: int, out: np.ndarray, sums: np.ndarray) -> np.int64:
    return sum_steps_and_fill(values, at, rows, 4.0, 100.0, out, 2.5, sums)


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_rows_are_summed_and_filled_and_nothing_beside_them(rows: int) -> None:
    values, total = np.random.default_rng(rows).normal(5.0, 20.0, 120), np.zeros(1, np.int64)
    end = 7 + rows * LANES
    steps = np.rint(np.clip(4.0 * values[7:end], 0.0, 100.0)).astype(np.int64)
    expected = values.copy()
    expected[7:end] = 2.5
    for out in (values.copy(), values):
        assert read_and_fill(values, 7, rows, out, total) >= 0
        assert (int(total[0]) - int(steps.sum()) - ROUNDER_BITS * rows * LANES) % 2**64 == 0
        assert out.tolist() == expected.tolist()


def test_entries_that_do_not_lie_together_are_refused() -> None:
    """Their neighbours would be read, and written, in their place."""
    apart = np.zeros(80, np.int64)[::2]
    for call in (
        lambda: add_up(apart, 0),
        lambda: lift(apart, 0, 1, 1),
        lambda: fill(apart.view(float), 0, 1.0, 1.0),
    ):
        with pytest.raises((NumbaError, TypeError), match="C-contiguous"):
            call()
