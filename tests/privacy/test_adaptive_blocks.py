"""Blocks whose ends depend on outputs: the proof, output by output, and an audit that sees what it should."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.audit.controls import peeking_blocks
from benchmarks.audit.parts import LOOKED_AT, VALUES, BlocksTrials, turning_point
from fastdp.noise.key import Key
from fastdp.streams.adaptive_blocks import Closed
from fastdp.streams.columns import RowKeys, RowValues
from fastdp_kernels.streams import adaptive_pass
from fastdp_kernels.streams import block_lengths as b
from tests.kernels.adaptive_runs import no_counts, sum_adaptive
from tests.noise_values import chain_draws, chain_noise

THETA = 64
RIGHT = BlocksTrials(1.0, THETA)
RUNS = 2000


def sums_of(values: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """True sums of the blocks that have these lengths: exponents [n, J], -1 for none."""
    lengths = np.where(exponents >= 0, 2.0**exponents, 0).astype(np.int64)
    prefix = np.concatenate([[0], np.cumsum(values)]).astype(np.int64)
    ends = np.cumsum(lengths, axis=1)
    return prefix[ends] - prefix[ends - lengths]


@pytest.mark.parametrize("index", [0, 31, 512, 1000, 1023, 1024, 1500, VALUES - 1])
def test_every_output_is_nearly_as_likely_from_a_neighbour(index: int) -> None:
    """For the neighbour other noise gives the very same output: shifted by at most theta in one block."""
    values = turning_point(THETA, 1.0)[0]
    neighbour = values.copy()
    values[index], neighbour[index] = THETA, 0.0
    noise = RIGHT.noise(RUNS, Key.from_seed(index))
    outputs = RIGHT.release(values, noise)
    exponents = outputs[:, ::2]
    assert np.unique(exponents, axis=0).shape[0] > 1, "lengths follow the noise"
    own, others = sums_of(values, exponents), sums_of(neighbour, exponents)
    assert np.array_equal(outputs[:, 1::2], np.where(exponents >= 0, own + noise, 0))
    shifted = noise + own - others
    assert np.array_equal(RIGHT.release(neighbour, shifted), outputs)
    # The log-ratio of discrete Laplace distributions of scale theta / epsilon, theta and epsilon = 1 taken out.
    loss = (np.abs(shifted) - np.abs(noise)).sum(axis=1)
    assert np.abs(loss).max() <= THETA
    assert ((shifted != noise).sum(axis=1) <= 1).all()
    if index <= 1000:
        assert {int(loss.min()), int(loss.max())} == {-THETA, THETA}, "and the bound is reached"


def test_ends_by_true_sums_have_outputs_that_the_neighbour_cannot_give() -> None:
    first, second = turning_point(THETA, 1.0)
    assert (first != second).sum() == 1
    assert not np.array_equal(RIGHT.true_lengths(first), RIGHT.true_lengths(second))
    peeking = peeking_blocks(1.0)
    one, two = (peeking.draw_trials(values, RUNS, Key.from_seed(1))[:, ::2] for values in (first, second))
    assert not (one == two).all(axis=1).any()
    # By released sums both inputs give either.
    right = [RIGHT.mechanism.draw_trials(values, RUNS, Key.from_seed(1))[:, ::2] for values in (first, second)]
    assert np.ptp(right[0], axis=0).max() > 0
    noise = RIGHT.noise(RUNS, Key.from_seed(1))
    exponents = RIGHT.release(first, noise)[:, ::2]
    shifted = noise + sums_of(first, exponents) - sums_of(second, exponents)
    assert np.array_equal(RIGHT.release(second, shifted)[:, ::2], exponents)


def test_rows_are_runs_of_the_publishers_pipeline() -> None:
    pipeline = RIGHT.pipeline
    values = np.random.default_rng(1).integers(0, THETA + 1, VALUES).astype(np.float64)
    zero, keys = np.zeros(1, np.int64), RowKeys(pipeline.key)
    begun = pipeline.open(pipeline.columns(1), zero, np.array([float(THETA)]), keys)
    made, batch = Closed(), RowValues(values, zero, np.array([VALUES]), zero, np.empty(VALUES), zero)
    pipeline.publish(begun, batch, keys, made)
    closed = np.concatenate(made.blocks)[:LOOKED_AT]
    exponents = np.full((1, LOOKED_AT), -1)
    exponents[0, : len(closed)] = closed["exponent"]
    noise = chain_draws(chain_noise(pipeline.key, THETA, 1.0), sums_of(values, exponents)[0])[None]
    row = RIGHT.release(values, noise)[0]
    assert row[: 2 * len(closed) : 2].tolist() == closed["exponent"].tolist()
    assert row[1 : 2 * len(closed) : 2] == pytest.approx(closed["released"] * THETA)
    assert (row[2 * len(closed) :: 2] == -1).all()
    assert (row[2 * len(closed) + 1 :: 2] == 0).all()


def risen(steps: np.ndarray, noise: np.ndarray, shifts: np.ndarray, warm_up: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks under a theta that rises from THETA, and the theta of each; ``noise`` is in units of theta."""
    shape, memory = RIGHT.pipeline.shape.copy(), np.zeros(1, b.MEMORY)
    shape["limit"][0] = warm_up
    b.start_memory(0.5, 0.25, 3, True, shape, memory)
    counters, rows, thetas, at = no_counts(), [], [], 0
    while at < steps.size:
        theta = int(memory["unit"][0] * THETA)
        drawn = np.rint(noise[len(thetas) :] * theta).astype(np.int64) + shifts[len(thetas) :]
        blocks = np.empty(drawn.size + 1, adaptive_pass.BLOCK)
        public = 1.0, float(theta), float(THETA), shape, None
        at += sum_adaptive(steps[at:], *public, noise=drawn, counters=counters, memory=memory, blocks=blocks)
        rows.append(blocks[: counters["closed"][0]])
        thetas += [theta] * int(counters["closed"][0])
        counters["closed"] = counters["stopped"] = 0
    return np.concatenate(rows), np.array(thetas)


def grouped(
    steps: np.ndarray, noise: np.ndarray, shifts: np.ndarray, group_shifts: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Blocks and sums of groups of short blocks; the theta of each block, and the number of the group with its sum.

    ``noise`` is in units of theta, for blocks from its front and for groups from its back.
    """
    shape, memory = RIGHT.pipeline.shape.copy(), np.zeros(1, b.MEMORY)
    shape["group"], shape["noise"], shape["most"], shape["limit"] = 64, 1e-4, 9, 64
    b.start_memory(0.5, 0.25, 0, True, shape, memory)
    counters, rows, thetas, at, groups = no_counts(), [], [], 0, 0
    while at < steps.size:
        theta = int(memory["unit"][0] * THETA)
        drawn = np.rint(noise[len(thetas) :] * theta).astype(np.int64) + shifts[len(thetas) :]
        blocks = np.empty(drawn.size + 1, adaptive_pass.BLOCK)
        public = 1.0, float(theta), float(THETA), shape, None
        at += sum_adaptive(steps[at:], *public, noise=drawn, counters=counters, memory=memory, blocks=blocks)
        closed = int(counters["closed"][0])
        if counters["stopped"][0] == adaptive_pass.ENDED:
            own = round(float(noise[-1 - groups]) * theta) + int(group_shifts[groups])
            groups += 1
            blocks["group"][closed - 1] = (int(counters["group_sum"][0]) + own) / THETA
            b.end_group(memory, blocks["group"][closed - 1], shape)
            counters["group_sum"] = 0
        rows.append(blocks[:closed])
        thetas += [theta] * closed
        counters["closed"] = counters["stopped"] = 0
    found = np.concatenate(rows)
    numbers, last = np.full(found.size, -1), np.flatnonzero(~np.isnan(found["group"]))
    for number, end in enumerate(last):
        numbers[end + 1 - int(found["place"][end]) : end + 1] = number
    return found, np.array(thetas), numbers


@pytest.mark.parametrize("growth", [1.0, 4.0])
@pytest.mark.parametrize("seed", range(8))
def test_a_group_is_the_same_for_a_neighbour_whose_two_noises_are_shifted(seed: int, growth: float) -> None:
    """A value enters its block's sum and its group's, by at most the one theta that both have, and no other."""
    generator = np.random.default_rng(seed)
    values = np.rint(generator.gamma(4.0, THETA / 16, 3000) * np.linspace(1.0, growth, 3000))
    noise, none = generator.laplace(0.0, 0.01, 3000), np.zeros(3000, np.int64)
    outputs, thetas, numbers = grouped(values, noise, none, none)
    assert numbers.max() > 5
    assert (numbers < 0).any(), "and blocks outside"
    assert growth == 1.0 or np.unique(thetas).size > 1, "theta rises"
    ends = np.cumsum(2 ** outputs["exponent"].astype(np.int64))
    for index in generator.integers(0, ends[-1], 20):
        neighbour, shifts, group_shifts = values.copy(), none.copy(), none.copy()
        neighbour[index] = generator.choice([0.0, 1e9])
        block = int(np.searchsorted(ends, index, side="right"))
        number, theta = numbers[block], thetas[block]
        shifts[block] = min(values[index], theta) - min(neighbour[index], theta)
        if number >= 0:
            assert set(thetas[numbers == number]) == {theta}
            group_shifts[number] = shifts[block]
        other, *theirs = grouped(neighbour, noise, shifts, group_shifts)
        assert other.tobytes() == outputs.tobytes()
        assert np.array_equal(theirs, [thetas, numbers])


#: Scales of values, how many are in the warm-up, and how far theta rises at least, in units of the first.
GROWTHS = {
    "on and on": (np.linspace(1.0, 40.0, 3000), 64, 2.0),
    "jumps": (np.where(np.arange(3000) < 300, 1.0, 20_000.0), 64, 10.0),
    "swings": (np.where(np.arange(16_000) // 2000 % 2, 2.4, 1.0), 512, 1.2),
}


@pytest.mark.parametrize("growth", GROWTHS)
@pytest.mark.parametrize("seed", range(8))
def test_a_rising_theta_is_the_same_for_a_neighbour_whose_noise_is_shifted_by_at_most_theta(
    seed: int, growth: str
) -> None:
    """So each block loses epsilon under the theta it had, whatever theta rose or fell to before."""
    generator = np.random.default_rng(seed)
    scales, warm_up, least = GROWTHS[growth]
    values = np.rint(generator.gamma(2.0, 8.0, scales.size) * scales)
    noise, none = generator.laplace(0.0, 1.0, scales.size), np.zeros(scales.size, np.int64)
    outputs, thetas = risen(values, noise, none, warm_up)
    assert thetas.max() >= int(least * THETA), "it rises"
    assert growth != "swings" or (np.diff(thetas) < 0).any(), "and falls"
    ends = np.cumsum(2 ** outputs["exponent"].astype(np.int64))
    for index in generator.integers(0, ends[-1], 20):
        neighbour = values.copy()
        neighbour[index] = generator.choice([0.0, 1e9])
        block = int(np.searchsorted(ends, index, side="right"))
        moved = int(min(values[index], thetas[block]) - min(neighbour[index], thetas[block]))
        assert abs(moved) <= thetas[block]
        shifts = none.copy()
        shifts[block] = moved
        other, theirs = risen(neighbour, noise, shifts, warm_up)
        assert other.tobytes() == outputs.tobytes()
        assert np.array_equal(theirs, thetas)
