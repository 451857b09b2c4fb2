"""ToPS whole: against the oracle, any chunking, endless streams, restart with the same key."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.perturbers.hierarchy import optimal_prune
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from tests.oracles import tops


def stream(n: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.floor(generator.gamma(2.0, 8.0, n) * 4) / 4 - 1.0


def make(**options) -> fastdp.ToPS:
    settings = {"epsilon": 0.5, "bound": 200, "holdout": 300, "max_range": 256, "prune": 1, "fan_out": 4, "seed": 9}
    return fastdp.ToPS(**{**settings, **options})


def oracle_noise(publisher: fastdp.ToPS, key: Key, theta_steps: int):
    """The tree's leaves from the sampler's raw draws and the oracle's consistency."""
    plan = publisher.plan
    law = sampler.discrete_laplace_law(Fraction(theta_steps * plan.levels) / Fraction(publisher.epsilon))

    def leaves(tree: int) -> list[int]:
        levels = []
        for level in range(plan.levels):
            draws = np.empty(plan.leaves // plan.fan_out**level, np.int64)
            sampler.fill(draws, law, key, StreamId(Purpose.TREE, level + 1, tree))
            levels.append(draws)
        return tops.consistent_integers(levels, plan.fan_out)[0]

    return leaves


@pytest.mark.parametrize("fan_out", [2, 3, 4, 16])
@pytest.mark.parametrize("prune", [0, 1, 2])
@pytest.mark.parametrize("max_range", [9, 64, 100, 256])
def test_release_equals_the_oracle(fan_out: int, prune: int, max_range: int) -> None:
    if fan_out**prune >= max_range:
        pytest.skip("no level would be left")
    values = stream(300 + 1000)
    publisher = make(fan_out=fan_out, prune=prune, max_range=max_range)
    release = publisher.release(values)
    key = Key.from_seed(9)
    # Threshold: Eq. 6 over 1 .. B with K = 2^20.
    clipped = np.maximum(values[:300], 0.0).tolist()
    candidates = np.arange(1, 201)
    scores = tops.threshold_scores(clipped, candidates, 2**20, 60.0, 0.5, max_range, fan_out)
    noise = np.empty(200, np.int64)
    sampler.fill(noise, sampler.discrete_laplace_law(Fraction(2**21)), key, StreamId(Purpose.THRESHOLD))
    theta = int(candidates[tops.argmax_first([s + int(z) for s, z in zip(scores, noise, strict=True)])])
    assert release.threshold == theta
    theta_steps = round(theta / publisher.resolution)
    expected = tops.publish(
        values[300:].tolist(),
        theta_steps,
        publisher.resolution,
        publisher.plan.block,
        oracle_noise(publisher, key, theta_steps),
        publisher.plan.tree_blocks,
    )
    assert np.array_equal(release.values, expected)
    assert release.offset == 300
    assert len(release) == 1000


@given(
    cuts=st.lists(st.integers(0, 3000), max_size=12),
    prune=st.integers(0, 3),
    fan_out=st.sampled_from([2, 4, 16]),
    holdout=st.sampled_from([1, 299, 300, 1024]),
)
def test_any_chunking_gives_the_same_output(cuts: list[int], prune: int, fan_out: int, holdout: int) -> None:
    values = stream(3000, 3)
    options = {"prune": min(prune, 1) if fan_out == 16 else prune, "fan_out": fan_out, "holdout": holdout}
    whole = make(**options).publish(values)
    publisher = make(**options)
    parts = [publisher.publish(part) for part in np.split(values, sorted(cuts))]
    assert np.array_equal(np.concatenate(parts), whole)
    assert publisher.n_seen == 3000
    assert publisher.n_published == 3000 - holdout


@pytest.mark.parametrize("chunk", [1, 7, 4096])
def test_chunk_sizes_of_the_issue(chunk: int) -> None:
    values = stream(20_000, 4)
    options = {"holdout": 5000, "max_range": 4096, "fan_out": 16, "prune": "optimal"}
    whole = make(**options).publish(values)
    publisher = make(**options)
    parts = [publisher.publish(values[i : i + chunk]) for i in range(0, values.size, chunk)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_a_restarted_process_with_the_same_key_publishes_the_same() -> None:
    program = (
        "import sys, hashlib, numpy as np, fastdp\n"
        "v = np.random.default_rng(5).gamma(2.0, 8.0, 9000)\n"
        "p = fastdp.ToPS(epsilon=.5, bound=200, holdout=1000, max_range=4096, key=bytes(range(32)))\n"
        "print(hashlib.sha256(p.publish(v).tobytes()).hexdigest())\n"
    )
    values = np.random.default_rng(5).gamma(2.0, 8.0, 9000)
    publisher = fastdp.ToPS(epsilon=0.5, bound=200, holdout=1000, max_range=4096, key=bytes(range(32)))
    here = hashlib.sha256(publisher.publish(values).tobytes()).hexdigest()
    command = [sys.executable, "-c", program]
    path = ":".join(p for p in sys.path if p)
    there = subprocess.run(
        command, capture_output=True, text=True, check=True, env={"PYTHONPATH": path, "PATH": "", **_cache()}
    )
    assert there.stdout.strip() == here


def _cache() -> dict[str, str]:
    import os

    return {"NUMBA_CACHE_DIR": os.environ["NUMBA_CACHE_DIR"]}


def test_default_keys_differ_and_seeds_agree() -> None:
    values = stream(2000)
    assert not np.array_equal(make(seed=None).publish(values), make(seed=None).publish(values))
    assert np.array_equal(make(seed=1).publish(values), make(seed=1).publish(values))
    assert not np.array_equal(make(seed=1).publish(values), make(seed=2).publish(values))
    assert make(seed=1).guarantee.simulated
    assert not make(seed=None).guarantee.simulated
    assert not make(seed=None, key=bytes(32)).guarantee.simulated


def test_each_tree_has_noise_of_its_own() -> None:
    publisher = make(prune=0, max_range=64, holdout=1)
    out = publisher.publish(np.zeros(1 + 64 * 3))
    trees = out.reshape(3, 64)
    assert not np.array_equal(trees[0], trees[1])
    assert not np.array_equal(trees[1], trees[2])


def test_published_blocks_sum_to_the_noisy_totals() -> None:
    """What is published of a block closes its account: sums over whole blocks are the noisy sums."""
    values = np.full(300 + 4096, 10.0)
    publisher = make(epsilon=1e6, max_range=4096, prune=2)
    out = publisher.publish(values)
    theta = publisher.threshold
    assert theta is not None
    assert out.reshape(-1, 16).sum(axis=1) == pytest.approx(np.full(256, 16 * min(theta, 10.0)), abs=0.01)
    # The first block predicts theta / 2, later ones the block before.
    assert out[:15] == pytest.approx(np.full(15, theta / 2))
    assert out[16:31] == pytest.approx(np.full(15, min(theta, 10.0)), abs=0.001)


def test_optimal_prune_is_the_integer_minimiser() -> None:
    def error(s: int, epsilon: float) -> float:
        return 15 * (5 - s) ** 3 * 2 / epsilon**2 + 16 ** (2 * s) / 36

    for epsilon in (0.001, 0.01, 0.05, 0.1, 0.5, 1.0, 10.0):
        best = min(range(5), key=lambda s, e=epsilon: error(s, e))
        assert optimal_prune(epsilon, 2**20, 16, 5) == best
    assert optimal_prune(0.05, 2**20, 16, 5) == 2
    assert optimal_prune(0.5, 1, 16, 1) == 0


def test_the_guarantee_follows_from_the_parts() -> None:
    guarantee = make(seed=None).guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.numeric_distance) == (0.5, 0.0, 0.0)
    assert (guarantee.adjacency, guarantee.model, guarantee.arithmetic) == ("replace one value", "central", "exact")
    text = "\n".join(guarantee.derivation)
    assert "threshold: noisy max" in text
    assert "perturber: " in text
    assert "disjoint values" in text
    fixed = fastdp.StreamPublisher(
        threshold=fastdp.thresholds.Fixed(20.0),
        perturber=fastdp.perturbers.Hierarchy(prune=0),
        epsilon=0.3,
        bound=100,
    )
    assert fixed.guarantee.epsilon == 0.3
    assert "threshold" not in "\n".join(fixed.guarantee.derivation)
    assert fixed.threshold == 20.0
    assert fixed.publish([1.0, 2.0]).size == 2


def test_composition_adds_or_takes_the_largest() -> None:
    from fastdp.privacy import Guarantee, parallel, sequential

    a, b = Guarantee(0.1, derivation=("a",)), Guarantee(0.2, 1e-9, arithmetic="real", simulated=True)
    both = sequential(a, b)
    assert Fraction(both.epsilon) >= Fraction(0.1) + Fraction(0.2)
    assert both.epsilon == pytest.approx(0.3)
    assert (both.delta, both.arithmetic, both.simulated) == (1e-9, "real", True)
    side = parallel(a, b)
    assert (side.epsilon, side.delta) == (0.2, 1e-9)
    assert parallel(a) == sequential(a) == a
    with pytest.raises(ValueError, match="compose"):
        sequential(a, Guarantee(0.1, model="local"))


def test_a_copy_gets_noise_of_its_own() -> None:
    import copy

    for seed in (None, 5):
        publisher = make(seed=seed, prune=0)
        publisher.publish(stream(800))
        twin, second = copy.deepcopy(publisher), copy.copy(publisher)
        zeros = np.zeros(300)
        outputs = [p.publish(zeros) for p in (publisher, twin, second)]
        assert not any(np.array_equal(a, b) for a, b in zip(outputs, outputs[1:] + outputs[:1], strict=True))
        assert twin.threshold == publisher.threshold
        assert twin.n_seen == publisher.n_seen


def test_memory_of_an_endless_stream_is_one_tree() -> None:
    import tracemalloc

    publisher = make(max_range=2**12, fan_out=16, prune=1, holdout=100)
    chunk = stream(10_000)
    out = np.empty(chunk.size)
    for _ in range(5):
        publisher.publish(chunk, out=out)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(200):
        publisher.publish(chunk, out=out)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert publisher.n_published > 2_000_000
    assert grown < 100_000
