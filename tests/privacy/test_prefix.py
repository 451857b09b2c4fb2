"""Noise bound to the prefix: the same input has the same output, an altered one independent noise from there on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

import fastdp
from fastdp.counters import BinaryTree, Block, RunningCounts, Simple
from fastdp.noise.given_noise import Name, given
from fastdp.noise.key import Key
from fastdp.noise.sampler import LaplaceDistribution
from fastdp.noise.words import Purpose
from fastdp.perturbers import Blocks, Flat
from fastdp.points import Box
from fastdp.streams.publisher import StreamPublisher
from fastdp.thresholds import Fixed, NoisyMax
from tests import stat
from tests.noise_values import unbound_key
from tests.oracles import distributions

THETA, SCALE = 10, 10.0
#: Noises that are compared, behind the values that are equal.
DRAWS, BEFORE = 100_000, 1000
#: Differences are told apart from -REACH to REACH.
REACH = 150

#: From a key and exact sums, int64[n], to the noise that each got.
Noises = Callable[[Key, np.ndarray], np.ndarray]


def publisher(key: Key, perturber: Flat | Blocks, **options) -> StreamPublisher:
    usual = {"threshold": Fixed(float(THETA)), "epsilon": 1.0, "bound": 64.0, "holdout": 0, "resolution": 1.0}
    return StreamPublisher(perturber=perturber, key=key, **{**usual, "max_range": 4, **options})


def flat_noise(key: Key, values: np.ndarray) -> np.ndarray:
    return publisher(key, Flat()).publish(values).astype(np.int64) - values


def block_noise(key: Key, values: np.ndarray) -> np.ndarray:
    """Of blocks that have one value each, because max_range is 4."""
    revision = publisher(key, Blocks()).release(values).revision
    assert revision is not None
    assert not revision.exponents.any()
    return np.rint(revision.totals * THETA).astype(np.int64) - values


def counter_noise(key: Key, values: np.ndarray) -> np.ndarray:
    """A thousand sums side by side, a hundred steps."""
    counts = RunningCounts(Simple(), 1.0 / SCALE, BEFORE, key=key)
    rows = values.reshape(-1, BEFORE)
    released = np.stack([counts.step(row) for row in rows])
    return (np.diff(released, axis=0, prepend=0) - rows).reshape(-1)


METHODS: dict[str, Noises] = {"flat": flat_noise, "blocks": block_noise, "counters": counter_noise}


def secret(number: int) -> bytes:
    return Key.from_seed(stat.seed(number)).reveal()


def replays(noises: Noises, key: Key) -> tuple[np.ndarray, np.ndarray]:
    """Noises of a stream, and of a copy with another value at ``BEFORE``."""
    values = np.random.default_rng(1).integers(0, THETA + 1, BEFORE + DRAWS)
    altered = values.copy()
    altered[BEFORE] = (values[BEFORE] + 5) % (THETA + 1)
    return noises(key, values), noises(key, altered)


def difference_cells(scale: float) -> np.ndarray:
    """The distribution of the difference of two independent draws: below -REACH, each whole number, above REACH."""
    far = 60 * int(scale)
    # Laws are symmetric, so the difference is the sum.
    own = distributions.laplace_cells(np.arange(-far, far + 2, dtype=np.float64), scale)[1:-1]
    both = np.convolve(own, own)
    middle = both[2 * far - REACH : 2 * far + REACH + 1]
    rest = (1.0 - middle.sum()) / 2.0
    return np.concatenate([[rest], middle, [rest]])


def difference_p(first: np.ndarray, second: np.ndarray, scale: float = SCALE) -> float:
    """Chi-square of the difference behind the altered value."""
    difference = np.clip(first[BEFORE:] - second[BEFORE:], -REACH - 1, REACH + 1)
    observed = np.bincount(difference + REACH + 1, minlength=2 * REACH + 3)
    return stat.chi_square_p(observed, difference_cells(scale))


def correlation_p(first: np.ndarray, second: np.ndarray) -> float:
    """Two-sided, of no correlation."""
    found = np.corrcoef(first[BEFORE:], second[BEFORE:])[0, 1]
    return float(2.0 * stats.norm.sf(abs(found) * np.sqrt(DRAWS)))


@pytest.mark.parametrize("name", METHODS)
def test_an_altered_replay_meets_independent_noise(name: str) -> None:
    first, second = replays(METHODS[name], Key.from_bytes(secret(401)))
    assert np.array_equal(first[:BEFORE], second[:BEFORE]), "equal up to the altered value"
    stat.accept(difference_p(first, second))
    stat.accept(correlation_p(first, second))


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_the_same_test_rejects_noise_tied_to_position_and_a_scale_off_by_a_tenth(name: str) -> None:
    first, second = replays(METHODS[name], unbound_key(secret(402).hex()))
    stat.reject(difference_p(first, second))
    stat.reject(correlation_p(first, second))
    first, second = replays(METHODS[name], Key.from_bytes(secret(403)))
    stat.reject(difference_p(first, second, 1.1 * SCALE))
    stat.reject(difference_p(first, second, SCALE / 1.1))
    # Half of the noise shared: a smaller correlation.
    mixed = np.where(np.arange(first.size) % 10 == 0, first, second)
    stat.reject(correlation_p(first, mixed))


def adaptive(key: Key, **options) -> fastdp.Adaptive:
    usual = {"epsilon": 1.0, "bound": 64.0, "holdout": 64, "max_range": 256, "threshold": NoisyMax(step=8.0)}
    return fastdp.Adaptive(**{**usual, **options}, key=key)


@pytest.mark.parametrize("counter", [Simple(), Block(3), BinaryTree(4)])
def test_counters_repeat_their_noise_up_to_the_altered_step_and_not_after_it(counter) -> None:
    key, increments = Key.from_bytes(secret(405)), np.random.default_rng(3).integers(-2, 3, (40, 8))
    altered = increments.copy()
    altered[17, 5] += 1
    released = []
    for stream in (increments, increments, altered):
        counts = RunningCounts(counter, 0.1, 8, key=key)
        released.append(np.stack([counts.step(row) for row in stream]))
    assert np.array_equal(released[0], released[1])
    assert np.array_equal(released[0][:17], released[2][:17])
    assert (released[0][17] != released[2][17]).sum() >= 6, "all sums of the step have other noise"


@pytest.mark.parametrize("place", [0, 70, 500, 1700])
@pytest.mark.parametrize("focus", [None, 128])
def test_adaptive_repeats_its_blocks_up_to_the_altered_one(place: int, focus: int | None) -> None:
    """Output of a block follows from blocks before it, so equality ends after the altered block."""
    key = Key.from_bytes(secret(406))
    values = np.random.default_rng(4).gamma(2.0, 8.0, 2000)
    options = {"threshold": Fixed(64.0), "holdout": 0, "resolution": 0.25, "perturber": Blocks(focus=focus)}
    altered = values.copy()
    altered[place] = 0.0
    here, there = (adaptive(key, **options).release(stream) for stream in (values, altered))
    first, second = here.revision, there.revision
    assert first is not None
    assert second is not None
    block = int(np.searchsorted(first.edges, place, side="right")) - 1
    assert np.array_equal(first.totals[:block], second.totals[:block])
    assert np.array_equal(first.exponents[: block + 1], second.exponents[: block + 1])
    end = min(int(first.edges[block]) + (1 << int(first.exponents[block])), values.size)
    assert np.array_equal(here.values[:end], there.values[:end])
    assert not (first.totals[block:][:20] == second.totals[block:][:20]).any()


def test_an_altered_hold_out_chooses_with_other_noise() -> None:
    """The same counts in another bin: with one noise for both, nearly all choices would be equal."""
    generator = np.random.default_rng(5)
    same = moved = 0
    for number in range(60):
        key = Key.from_bytes(secret(407 + number))
        values = generator.gamma(2.0, 8.0, 80)
        altered = values.copy()
        altered[10] = values[10] + 8.0
        thetas = [
            publisher(key, Flat(), threshold=NoisyMax(step=0.25, c=1e6), holdout=64, epsilon=0.01) for _ in range(3)
        ]
        for one, stream in zip(thetas, (values, values, altered), strict=True):
            one.publish(stream)
        same += thetas[0].threshold == thetas[1].threshold
        moved += thetas[0].threshold != thetas[2].threshold
    assert same == 60
    assert moved >= 50


def test_points_have_other_noise_from_the_altered_batch_on() -> None:
    key, generator = Key.from_bytes(secret(408)), np.random.default_rng(6)
    batches = [generator.random((50, 1)) for _ in range(6)]
    altered = [*batches[:3], np.concatenate([batches[3], [[0.5]]]), *batches[4:]]
    counts = []
    for stream in (batches, batches, altered):
        phd = fastdp.PHDStream(Box(0, 1), 1.0, max_depth=0, key=key)
        counts.append([phd.step(batch).tobytes() + np.float64(phd.total).tobytes() for batch in stream])
    assert counts[0] == counts[1]
    equal = [here == there for here, there in zip(counts[0], counts[2], strict=True)]
    assert equal[:3] == [True] * 3
    assert sum(equal[3:]) <= 1


def test_bound_noise_enters_as_noise_from_a_table_does() -> None:
    """Couplings run on tables; the same draws, bound to the prefix, give the same outputs."""
    values = np.random.default_rng(8).gamma(2.0, 8.0, 4000)
    options = {
        "threshold": Fixed(64.0),
        "holdout": 0,
        "resolution": 1.0,
        "epsilon": 4.0,
    }
    bound = adaptive(Key.from_bytes(secret(410)), **options).release(values)
    assert bound.revision is not None
    edges, rounded = bound.revision.edges, np.rint(np.minimum(values, 64.0))
    sums = np.add.reduceat(rounded, edges[:-1])
    sums[-1] = rounded[edges[-2] : edges[-1]].sum()
    noise = np.rint(bound.revision.totals * 64.0 - sums).astype(np.int64)
    assert np.unique(bound.revision.exponents).size > 1
    assert noise.size > 1024
    assert np.unique(noise).size > 30

    def known(
        name: Name, distribution: LaplaceDistribution, start: int, out: np.ndarray, sums: np.ndarray | None
    ) -> None:
        assert name.stream.purpose is Purpose.CHAIN
        out[:] = noise[start : start + out.size]

    table = adaptive(given(known), **options).release(values)
    assert table.revision is not None
    assert np.array_equal(table.revision.totals, bound.revision.totals)
    assert np.array_equal(table.values, bound.values)
    assert np.array_equal(table.revised.values, bound.revised.values)
