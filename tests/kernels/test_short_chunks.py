"""Short chunks in one call: against the kernels that do the same array by array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastdp.perturbers import Blocks
from fastdp_kernels.streams import adaptive_pass, block_lengths, online_pass
from tests.kernels.adaptive_runs import public_of, sum_adaptive

RESOLUTION, TOP = 2.0**-8, 2000.0
BAD = (np.nan, np.inf, -np.inf)


def values_of(seed: int, size: int) -> np.ndarray:
    """Some below 0, some above the threshold."""
    return np.random.default_rng(seed).normal(4.0, 5.0, size)


def by_arrays(values: np.ndarray, block: int, noise: np.ndarray, filled: int, open_sum: int, first: float):
    """Sums, noise and output array by array; what is left open, and its prediction."""
    closing = noise.size
    sums = np.zeros(closing + 1, np.int64)
    touched = sums[: -(-(filled + values.size) // block)]
    assert not online_pass.sum_blocks(values, 1 / RESOLUTION, TOP, block, filled, touched)
    sums[0] += open_sum
    totals = np.empty(closing)
    online_pass.add_noise(sums[:closing], noise, RESOLUTION, totals)
    if block == 1:
        return 0, first, totals
    predictions = np.concatenate([[first], totals / block])
    out = np.empty(values.size)
    online_pass.emit_blocks(totals, predictions, block, filled, out)
    return sums[closing], predictions[closing], out


@given(
    seed=st.integers(0, 2**32),
    block=st.integers(1, 40),
    size=st.integers(0, 200),
    before=st.integers(0, 39),
    leaf=st.integers(0, 5),
)
def test_fixed_blocks_are_those_of_the_arrays(seed: int, block: int, size: int, before: int, leaf: int) -> None:
    values, filled = values_of(seed, size), before % block
    closing = (filled + size) // block
    noise = np.random.default_rng(seed + 1).integers(-(2**40), 2**40, leaf + closing + 3)
    open_sum, first = (3 * filled, 2.5) if filled else (0, 2.5)
    expected = by_arrays(values, block, noise[leaf : leaf + closing], filled, open_sum, first)
    public, out = np.array([1 / RESOLUTION, TOP, RESOLUTION, block]), np.empty(size)
    found = online_pass.publish(values, public, noise, leaf, closing, filled, open_sum, first, out)
    assert found == expected[:2]
    assert np.array_equal(out, expected[2])


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("bad", BAD)
def test_a_value_that_is_not_finite_is_reported_wherever_it_is(block: int, bad: float) -> None:
    public, noise, out = np.array([1.0, 100.0, 1.0, block]), np.zeros(20, np.int64), np.empty(11)
    for place in range(11):
        values = np.ones(11)
        values[place] = bad
        assert np.isnan(online_pass.publish(values, public, noise, 0, 13 // block, 2 % block, 0, 1.0, out)[1])
        for top in (100.0, -100.0):
            memory = opened(5)
            assert np.isnan(
                adaptive_pass.publish_open(values, public_of(1.0, top, 1.0).view(np.float64), 0, 0, memory, out)[1]
            )


def opened(exponent: int) -> np.ndarray:
    """A memory with an open block whose first values make up for something."""
    memory = np.zeros(1, block_lengths.MEMORY)
    memory["exponent"][0], memory["unit"][0] = exponent, 1.0
    memory["prediction"][0], memory["extra"][0] = 0.37, -0.05
    memory["catch"][0] = 7.0
    return memory


@example(seed=0, size=2, filled=30, events=False)
@given(seed=st.integers(0, 2**32), size=st.integers(0, 70), filled=st.integers(0, 31), events=st.booleans())
def test_open_blocks_are_those_of_the_arrays(seed: int, size: int, filled: int, events: bool) -> None:
    values, theta, top = values_of(seed, size), 9.0, -TOP if events else TOP
    memory, steps = opened(5), theta / RESOLUTION
    kept, out = memory.copy(), np.empty(size)
    total, prediction = adaptive_pass.publish_open(
        values, public_of(1 / RESOLUTION, top, steps, theta).view(np.float64), filled, 11, memory, out
    )
    assert np.array_equal(memory, kept)
    if filled + size >= 32:
        assert np.isnan(prediction)
        return
    shape = Blocks().shape(1.0, 2**16, 0, events=events)
    counters = np.array([(filled, 11, 0, 0, 0, 0)], adaptive_pass.COUNTERS)
    blocks, expected = np.empty(1, adaptive_pass.BLOCK), np.empty(size)
    nothing = np.empty(0, np.int64)
    lengths = block_lengths.lengths_of_events(shape)
    public = 1 / RESOLUTION, top, steps, shape, lengths
    used = sum_adaptive(values, *public, noise=nothing, counters=counters, memory=memory, blocks=blocks)
    adaptive_pass.emit_adaptive(blocks, filled, theta, False, events, expected)
    assert (used, counters["filled"][0], counters["open_sum"][0]) == (size, filled + size, total)
    assert prediction == memory["prediction"][0] * theta
    assert np.array_equal(out, expected)
