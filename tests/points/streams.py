"""Streams of points, their noise and their naive versions, for tests of both PHDStreams."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from fastdp import AdaptivePHDStream, PHDStream
from fastdp.errors import DataError
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.points import Box
from fastdp.points.phdstream import LEVEL
from tests.noise_values import step_keys
from tests.oracles import phdstream as oracle

KINDS = [PHDStream, AdaptivePHDStream]
SQUARE = Box([0.0, 0.0], [1.0, 1.0])


def make(kind: Any = PHDStream, domain: Any = SQUARE, epsilon: float = 1.0, *parts: Any, **options: Any) -> Any:
    """As in the paper: without a count of all points."""
    return kind(domain, epsilon, *parts, **{"seed": 5, "max_depth": 8, "total_share": 0.0, **options})


def clustered(n: int, dim: int, generator: np.random.Generator) -> np.ndarray:
    """Points on a grid of 1/64, dense around one corner: many lie on borders of cells."""
    return np.floor(np.clip(generator.exponential(0.15, (n, dim)), 0, 1) * 64) / 64


def batches(steps: int, dim: int, seed: int, size: int = 40) -> list[tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(seed)
    out = [(clustered(5 * size, dim, generator), np.empty((0, dim)))]
    for _ in range(steps - 1):
        out.append((clustered(size, dim, generator), clustered(int(generator.integers(0, size)), dim, generator)))
    return out


def advanced(stream: Any, steps: Any) -> Any:
    """The stream after these batches."""
    for added, removed in steps:
        stream.advance(added, removed)
    return stream


def draws(keys: list[Key], distribution: sampler.LaplaceDistribution, purpose: Purpose, level: int = 0) -> Any:
    """Noise i of step t, as the naive version asks for it, from each step's key."""
    rows: dict[int, np.ndarray] = {}

    def noise(t: int, i: int) -> int:
        if t not in rows:
            rows[t] = np.empty(4096, np.int64)
            sampler.fill(rows[t], distribution, keys[t].again(), StreamId(purpose, level, t))
        return int(rows[t][i])

    return noise


def noises(stream: Any, steps: list[Any]) -> dict[str, Any]:
    """Noise of decisions and cells, of counters that settle, of the count of all points, and of later counts."""
    keys, plan, machine = step_keys(stream, steps), stream._plan, stream._machine
    found = {
        "split": draws(keys, plan.split_distribution, Purpose.SPLIT),
        "cell": draws(keys, plan.cell_distribution, Purpose.CELL),
        "settle": draws(keys, plan.cell_distribution, Purpose.CELL, level=1),
    }
    if machine.total is not None:
        found["total"] = draws(keys, machine.total.distribution, Purpose.CELL, level=LEVEL)
    if isinstance(stream, AdaptivePHDStream):
        found["later"] = draws(keys, machine.counting.distribution, Purpose.CELL)
    return found


def reference(stream: Any, kind: type[oracle.Stream] = oracle.Stream) -> oracle.Stream:
    """The naive version of a PHDStream, or of the first step of the other one."""
    plan, domain, counter = stream._plan, stream.domain, stream._plan.counter
    shape = plan.fan_out, plan.max_depth, plan.unit, plan.bias, plan.threshold
    naive = {
        "Simple": oracle.SimpleCounter,
        "Block": lambda: oracle.BlockCounter(counter.size),
        "BinaryTree": lambda: oracle.BinaryTreeCounter(counter.horizon),
    }[type(counter).__name__]
    return kind(domain.lower, domain.upper, *shape, naive, plan.retention, plan.repaired, counter.settles)


def compare(stream: Any, expected: dict[tuple[int, ...], Any]) -> None:
    """Cells and counts are those of the naive version, and inner nodes are the sums of their children."""
    tree, b = stream._state.tree, stream.fan_out
    places = zip(tree.depth[tree.leaves].tolist(), tree.code[tree.leaves].tolist(), strict=True)
    paths = [tuple(code // b**k % b for k in range(depth - 1, -1, -1)) for depth, code in places]
    assert set(paths) == expected.keys()
    assert len(paths) == len(expected)
    counts = [float(expected[path]) for path in paths]
    assert tree.projected[tree.leaves].tolist() == pytest.approx(counts, rel=1e-9, abs=1e-9)
    corners = [oracle.cell_of(path, stream.domain.lower, stream.domain.upper, b) for path in paths]
    for k, found in enumerate((stream.tree.lower, stream.tree.upper)):
        assert np.allclose(found, [[float(x) for x in pair[k]] for pair in corners])
    inner = np.flatnonzero(tree.first >= 0)
    sums = tree.projected[tree.first[inner][:, None] + np.arange(b)].sum(axis=1)
    assert np.allclose(sums, tree.projected[inner], rtol=1e-12)
    assert (tree.projected[1:] <= tree.projected[tree.parent[1:]]).all(), "in floats too"


class Half:
    """The lower half of the unit square and a corner: cells without any of it, whose border points it holds."""

    dim = 2
    lower, upper = np.zeros(2), np.ones(2)

    def measure(self, lower, upper):
        sides = np.maximum(np.minimum(upper, [0.5, 1.0]) - np.maximum(lower, 0.0), 0.0)
        corner = np.maximum(np.minimum(upper, 1.0) - np.maximum(lower, 0.75), 0.0)
        return sides.prod(axis=1) + corner.prod(axis=1)

    def sample(self, lower, upper, counts, generator):
        return np.repeat(lower, counts, axis=0)

    def contains(self, points):
        return (points >= 0.0).all(axis=1) & (points[:, 0] <= 0.5) | (points >= 0.75).all(axis=1)


def check_interrupt(
    patch: pytest.MonkeyPatch, home: type | ModuleType, name: str, *given: Any, **options: Any
) -> None:
    """After a function of the second step: the batch is not consumed, and the stream goes on as another one."""
    steps, real = batches(3, 2, 9), getattr(home, name)
    reference, stream = (make(*given, **options) for _ in range(2))
    for one in (reference, stream):
        one.step(*steps[0])

    def interrupted(*arguments):
        real(*arguments)
        raise KeyboardInterrupt

    with patch.context() as patched:
        patched.setattr(home, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            stream.step(*steps[1])
    with pytest.raises(DataError, match="outside"):
        stream.step([[1.5, 0.5]])
    assert stream.n_steps == 1
    for batch in steps[1:]:
        assert np.array_equal(stream.step(*batch), reference.step(*batch))
