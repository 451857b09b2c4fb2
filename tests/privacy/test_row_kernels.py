"""Many trials at once are the mechanisms' own kernels, row by row."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.audit import row_kernels
from benchmarks.audit.parts import LOOKED_AT, THETA, VALUES, BlocksTrials, attack, draw_noise, splits
from fastdp.counters.counter import Simple
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.spatial import Box, decomposition
from fastdp.spatial.domains import CellParameters, encode
from fastdp.streams.pipelines import Progress
from fastdp_lab.audit.exact import split_plan
from tests.noise_values import chain_draws, chain_noise
from tests.oracles import binary_counter


@pytest.mark.parametrize("length", [1, 4, 7])
def test_every_row_is_a_running_sum_of_its_own(length: int) -> None:
    generator = np.random.default_rng(2)
    levels, steps = length.bit_length(), generator.integers(0, 9, length)
    nodes = [length >> height for height in range(levels)]
    noise = generator.integers(-50, 50, (6, sum(nodes)))
    offsets = np.cumsum([0, *nodes[:-1]])
    out = np.empty((6, length), np.int64)
    row_kernels.count_streams(steps, levels, noise, offsets, out)
    for row, sums in zip(noise, out, strict=True):
        by_height = np.split(row, offsets[1:])
        expected = binary_counter.running_sums(steps.tolist(), lambda height, k, own=by_height: own[height][k])
        assert sums.tolist() == expected


@pytest.mark.parametrize("repaired", [True, False])
def test_every_row_is_the_tree_of_one_step(repaired: bool) -> None:
    """The same words through ``decomposition.take_step``: the same leaf around the target, as many nodes."""
    half, depth = Fraction(1), 6
    plan = CellParameters(Box(0, 1), 2, depth, half, half, Simple(), repaired=repaired)
    added, removed = (encode(plan, points.reshape(-1, 1)) for points in attack(depth, 1.0))
    target = encode(plan, np.array([[0.3]]))[0]
    keys = [Key.from_seed(seed) for seed in range(40)]
    noise = np.empty((len(keys), 2 ** (depth + 1)), np.int64)
    for key, row in zip(keys, noise, strict=True):
        sampler.fill(row, plan.split_distribution, key, StreamId(Purpose.SPLIT))
    out = np.empty((len(keys), 2), np.int64)
    constants = plan.max_depth, plan.fan_out, plan.unit, plan.bias, plan.threshold, plan.repaired
    row_kernels.split_trees(*constants, added, removed, target, noise, out)
    for key, (leaf_depth, size) in zip(keys, out, strict=True):
        _, visit = decomposition.take_step(plan, decomposition.root_only(plan), added, removed, 0, key)
        holds = [
            int(visit.depth[i]) for i in visit.leaves if visit.code[i] == target >> (depth - int(visit.depth[i]))
        ]
        assert (holds, visit.first.size) == ([leaf_depth], size)
    assert len(np.unique(out[:, 1])) > 3


def test_trees_without_room_go_on_behind_the_same_words() -> None:
    """No tree is drawn anew because it was large: that would change the distribution."""
    mechanism, data, key = splits(1.0, 8), attack(8, 0.2), Key.from_seed(5)
    plan, columns = split_plan(1.0, 8), 4 * 9
    codes = [encode(plan, points.reshape(-1, 1)) for points in data]
    constants = plan.max_depth, plan.fan_out, plan.unit, plan.bias, plan.threshold, plan.repaired
    blocks = [draw_noise(plan.split_distribution, 300, columns << max(k - 1, 0), key, level=k) for k in range(5)]
    out = np.empty((300, 2), np.int64)
    row_kernels.split_trees(*constants, *codes, 0, blocks[0], out)
    assert {tuple(row) for row in out[out[:, 0] < 0].tolist()} == {(-1, -1)}, "some lack room, and say so"
    row_kernels.split_trees(*constants, *codes, 0, np.concatenate(blocks, axis=1), out)
    assert np.array_equal(mechanism.draw_trials(data, 300, key), out)


def test_rows_of_blocks_are_runs_of_the_publishers_pipeline() -> None:
    trials = BlocksTrials(1.0, THETA)
    values = np.random.default_rng(1).integers(0, THETA + 1, VALUES).astype(np.float64)
    pipeline = trials.pipeline
    step = pipeline.prepare(pipeline.open(Progress(), float(THETA)), None, values)
    closed = step.blocks[:-1][:LOOKED_AT]
    ends = np.cumsum(2 ** closed["exponent"].astype(np.int64))
    sums = np.add.reduceat(values[: ends[-1]], np.concatenate([[0], ends[:-1]])).astype(np.int64)
    exact = np.concatenate([sums, np.zeros(LOOKED_AT - sums.size, np.int64)])
    row = trials.release(values, chain_draws(chain_noise(pipeline.key, THETA, 1.0), exact)[None])[0]
    assert row[: 2 * len(closed) : 2].tolist() == closed["exponent"].tolist()
    assert row[1 : 2 * len(closed) : 2] == pytest.approx(closed["released"] * THETA)
    assert (row[2 * len(closed) :].reshape(-1, 2) == [-1, 0]).all()
