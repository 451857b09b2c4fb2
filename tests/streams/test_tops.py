"""ToPS whole and publishers of its parts: against the oracle, shapes, grid, shared compositions."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import AccuracyWarning, DataError, ParameterError
from fastdp.integer_grid import make_grid
from fastdp.noise import sampler
from fastdp.noise.key import Binding, Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.record import shared
from fastdp.smoothers import MovingAverage, Recent
from fastdp.streams.parameters import StreamParameters, composed
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree
from fastdp.thresholds.renewals import RenewFromHoldout
from tests.grid import exhaustive
from tests.noise_values import threshold_key, tree_key
from tests.oracles import tops


def stream(n: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.floor(generator.gamma(2.0, 8.0, n) * 4) / 4 - 1.0


def make(**options) -> fastdp.ToPS:
    settings = {"epsilon": 0.5, "bound": 200, "holdout": 300, "max_range": 256, "prune": 1, "fan_out": 4, "seed": 9}
    return fastdp.ToPS(**{**settings, **options})


@pytest.mark.parametrize(("fan_out", "epsilon"), [(2, 0.5), (3, 0.05), (16, 0.5), *exhaustive((4, 0.5))])
@pytest.mark.parametrize(
    ("prune", "max_range"), [(0, 9), (0, 100), (1, 100), (2, 100), *exhaustive((0, 256), (1, 9), (1, 64), (2, 256))]
)
def test_release_equals_the_oracle(fan_out: int, epsilon: float, prune: int, max_range: int) -> None:
    if fan_out**prune >= max_range:
        pytest.skip("no level would be left")
    # Every other one, so that each parameter meets both.
    noise = "exponential" if (fan_out + prune) % 2 else "laplace"
    values = stream(300 + 400)
    rule = NoisyMax(noise=noise, fan_out=fan_out)
    publisher = make(fan_out=fan_out, prune=prune, max_range=max_range, epsilon=epsilon, threshold=rule)
    release = publisher.release(values)
    # Threshold: Eq. 6 over 1 .. B with K = 2^20.
    clipped, candidates = np.maximum(values[:300], 0.0).tolist(), np.arange(1, 201)
    scores = tops.threshold_scores(clipped, candidates, 2**20, 60.0, epsilon, max_range, fan_out)
    scale, draws = Fraction(2**20) / Fraction(epsilon), np.empty(200, np.int64)
    laplace = noise == "laplace"
    distribution = (sampler.laplace_distribution if laplace else sampler.geometric_distribution)(scale)
    sampler.fill(draws, distribution, threshold_key(publisher, values[:300]), StreamId(Purpose.THRESHOLD))
    theta = int(candidates[tops.argmax_first([s + int(z) for s, z in zip(scores, draws, strict=True)])])
    assert release.threshold == theta
    steps, plan = round(theta / publisher.resolution), publisher.plan
    shape = publisher.resolution, plan.block, leaf_noise(publisher, steps), plan.tree_blocks
    assert np.array_equal(release.values, tops.publish(values[300:].tolist(), steps, *shape))
    assert (release.offset, len(release)) == (300, 400)


def test_the_guarantee_follows_from_the_parts() -> None:
    guarantee = make(seed=None).guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.numeric_distance) == (0.5, 0.0, 0.0)
    assert (guarantee.adjacency, guarantee.model, guarantee.arithmetic) == ("replace one value", "central", "exact")
    text = "\n".join(guarantee.derivation)
    for step in ("threshold (epsilon = 0.5): noisy max", "perturber (epsilon = 0.5): ", "disjoint values"):
        assert step in text
    fixed = make(threshold=20.0, holdout=0, epsilon=0.3)
    assert (fixed.guarantee.epsilon, fixed.threshold, fixed.publish([1.0, 2.0]).size) == (0.3, 20.0, 2)
    assert "threshold" not in "\n".join(fixed.guarantee.derivation)


def test_a_renewed_threshold_withholds_whole_blocks() -> None:
    for asked, whole in ((37, 48), (3, 16), (48, 48)):
        publisher = fastdp.StreamPublisher(
            threshold=NoisyMax(),
            smoother=Recent(),
            perturber=Hierarchy(fan_out=4, prune=2),
            epsilon=1.0,
            bound=100.0,
            holdout=64,
            max_range=256,
            renewal=RenewFromHoldout(holdout=asked),
            seed=1,
        )
        assert publisher.machine.composition.renewal_task.holdout == whole


def test_shape_of_the_hierarchy() -> None:
    """h = ceil(log_b r), g = b^s, the fewest complete subtrees that cover r, and a new tree at r in whole blocks."""
    for fan_out, max_range in itertools.product(
        (2, 3, 10, 16), (1, 2, 15, 16, 17, 100, 256, 257, 1000, 100_000, 2**20)
    ):
        height = max(1, next(h for h in range(64) if fan_out**h >= max_range))
        for prune in range(height):
            plan = Hierarchy(fan_out, prune=prune).plan(1.0, max_range)
            subtree = fan_out ** (height - 1)
            tops = math.ceil(max_range / subtree)
            assert (plan.height, plan.levels, plan.block, plan.tops) == (height, height - prune, fan_out**prune, tops)
            assert plan.leaves * plan.block == tops * subtree
            assert plan.tree_blocks == math.ceil(max_range / plan.block) <= plan.leaves
            assert plan.nodes == sum(plan.leaves // fan_out**level for level in range(plan.levels))


def test_grid_and_its_proof() -> None:
    assert make_grid(1657, None, 0.05, 2**20, 5, 16).resolution == 2.0**-22
    assert make_grid(1.0, None, 0.5, 2**20, 5, 16).resolution == 2.0**-32
    # Where noise would exceed 2^40 steps the grid is coarser.
    coarse = make_grid(1000, None, 0.001, 2**20, 5, 16)
    assert coarse.bound_steps * 5 / 0.001 <= 2**40 < 2 * coarse.bound_steps * 5 / 0.001 * 1.01
    # Each limit of the overflow proof, just inside and just outside.
    for inside, outside in (
        ((2.0**50, 1.0, 1.0, 1, 1, 2), (2.0**50 + 1, 1.0, 1.0, 1, 1, 2)),
        ((2.0**40, 1.0, 2.0**-14, 1, 1, 2), (2.0**40, 1.0, 2.0**-15, 1, 1, 2)),
        ((2.0**40, 1.0, 2.0**20, 2**21, 1, 2), (2.0**40, 1.0, 2.0**20, 2**22, 1, 2)),
        ((2.0**40, 1.0, 2.0**-9, 2**20, 1, 16), (2.0**40, 1.0, 2.0**-11, 2**20, 1, 16)),
        ((1.0, 1.0, 2.0**40, 1, 1, 2), (1.0, 1.0, 2.0**40 * 1.001, 1, 1, 2)),
    ):
        make_grid(*inside)
        with pytest.raises(ParameterError, match=r"resolution = 1\.0"):
            make_grid(*outside)
    grid = make_grid(1.0, 0.6, 1.0, 1, 1, 2)
    assert grid.snap(1.0) * grid.resolution <= 1.0
    assert make_grid(100.0, 1.0, 1.0, 1, 1, 2).snap(0.2) == 1, "a threshold of no step would release nothing"
    with pytest.raises(ParameterError, match=r"noise of scale .* at most 2\^56 fit"):
        make_grid(2.0**40, 1.0, 2.0**-17, 1, 1, 2)


def test_memory_of_an_endless_stream_is_one_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    # The suite's check that no word is drawn twice remembers all draws.
    monkeypatch.setattr("fastdp.noise.key.ENABLED", False)
    publisher = make(max_range=2**12, fan_out=16, prune=1, holdout=100)
    chunk = stream(10_000)
    for _ in range(5):
        publisher.publish(chunk)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(200):
        publisher.publish(chunk)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert publisher.n_published > 2_000_000
    assert grown < 100_000


def test_published_blocks_sum_to_the_noisy_totals() -> None:
    """Published values of a block add up to its noisy sum."""
    values = np.full(300 + 4096, 10.0)
    publisher = make(epsilon=1e6, max_range=4096, prune=2)
    out = publisher.publish(values)
    theta = publisher.threshold
    assert theta is not None
    assert out.reshape(-1, 16).sum(axis=1) == pytest.approx(np.full(256, 16 * min(theta, 10.0)), abs=0.01)
    # The first block predicts theta / 2, later ones the block before.
    assert out[:15] == pytest.approx(np.full(15, theta / 2))
    assert out[16:31] == pytest.approx(np.full(15, min(theta, 10.0)), abs=0.001)


@pytest.mark.parametrize("c", [1e-308, 5e-324, 1e308])
@pytest.mark.parametrize("epsilon", [1e-4, 1e4])
@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_an_extreme_constant_leaves_intervals(c: float, epsilon: float) -> None:
    release = make(epsilon=epsilon, threshold=NoisyMax(c=c)).release(stream(1000).clip(0.0))
    low, high = release.interval([0, 100], [700, 300])
    assert np.all((low <= high) & np.isfinite(low) & np.isfinite(high))


def test_a_smoother_sees_nothing_of_a_rejected_chunk() -> None:
    seen = []

    class Watching(Recent):
        def step(self, state, means):
            seen.append(means.copy())
            return super().step(state, means)

    publisher = make(smoother=Watching())
    publisher.publish(stream(300))
    with pytest.raises(DataError):
        publisher.publish([1.0, 2.0, 3.0, 4.0, 5.0, np.nan])
    assert not seen


def leaf_noise(publisher: fastdp.ToPS, theta_steps: int):
    """The tree's leaves from the sampler's raw draws and the oracle's consistency."""
    plan = publisher.plan
    distribution = sampler.laplace_distribution(Fraction(theta_steps * plan.levels) / Fraction(publisher.epsilon))

    def leaves(tree: int) -> list[int]:
        levels = []
        for level in range(plan.levels):
            levels.append(np.empty(plan.leaves // plan.fan_out**level, np.int64))
            stream_id = StreamId(Purpose.TREE, level + 1, tree)
            sampler.fill(levels[-1], distribution, tree_key(publisher._key, theta_steps), stream_id)
        return tops.consistent_integers(levels, plan.fan_out)[0]

    return leaves


SECRET = Key.from_bytes(bytes(range(32)))
SIZES: dict[str, Any] = {"epsilon": 0.5, "bound": 64.0, "holdout": 50}
MAKE = {
    "ToPS": lambda **own: fastdp.ToPS(**{**SIZES, "max_range": 64, **own}),
    "Adaptive": lambda **own: fastdp.Adaptive(**{**SIZES, "max_range": 64, **own}),
    "PAK": lambda **own: fastdp.PAK(**{**SIZES, "delta": 1e-6, "length": 200, **own}),
}


def composition_of(publisher: Any) -> Any:
    return publisher._machine if isinstance(publisher, fastdp.PAK) else publisher.composition


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("name", MAKE)
def test_a_kept_encoding_gives_the_same_key(name: str) -> None:
    changes: list[dict[str, Any]] = [{}, {"epsilon": 0.25}, {"bound": 65.0}, {"holdout": 51}, {"resolution": 0.25}]
    for change in changes:
        first, second = (MAKE[name](**change, key=SECRET) for _ in range(2))
        plan = composition_of(first)
        assert composition_of(second) is plan
        expected = SECRET.bind(plan)
        assert first._key == second._key == expected
        numbered = SECRET.of_stream(3)
        assert MAKE[name](**change, key=numbered)._key == expected.of_stream(3)
    keys = {MAKE[name](**change, key=SECRET)._key for change in changes}
    assert len(keys) == len(changes)


def fields(threshold: Any, perturber: Any, smoother: Any = None, epsilon: float = 0.5) -> dict[str, Any]:
    parts = {"threshold": threshold, "perturber": perturber, "smoother": smoother, "epsilon": epsilon}
    sizes = {"bound": 100.0, "holdout": 200 if threshold.uses_holdout else 0, "max_range": 4096}
    return {**parts, **sizes, "resolution": None, "nonfinite": "raise"}


def test_equal_numbers_of_other_types_share_no_key() -> None:
    forty, strange = Fixed(40.0), Fixed(40.0)
    object.__setattr__(strange, "theta", 40)
    keys = [
        composed(**fields(rule, Hierarchy(prune=0))).noise_key(SECRET) for rule in (forty, strange, forty, strange)
    ]
    assert keys[0] == keys[2] != keys[1] == keys[3]
    seen: list[Any] = []

    def make(value: Any) -> Any:
        seen.append(value)
        return Recent()

    for value in (1, 1.0, True, 1, 1.0, True):
        shared(make, value=value)
    assert [type(each) for each in seen] == [int, float, bool]


def test_equal_publishers_warn_each_time() -> None:
    renewal = RenewFromHoldout(holdout=16)
    options = {"perturber": Hierarchy(), "smoother": Recent(), "threshold": ScaleFree(), "renewal": renewal}
    for _ in range(2):
        with pytest.warns(AccuracyWarning, match="publishing begins"):
            fastdp.ToPS(0.5, 64.0, 50, 64, every="1h", threshold=NoisyMax())
        with pytest.warns(AccuracyWarning, match="16 values are too few"):
            fastdp.StreamPublisher(**options, epsilon=0.5, bound=64.0, holdout=500, max_range=64)


def test_parts_that_may_change_are_encoded_each_time() -> None:
    class Own(Recent):
        """With an attribute that anyone may set."""

        def __init__(self) -> None:
            vars(self)["weight"] = 1.0

        def identity(self) -> dict[str, Any]:
            return dict(vars(self))

    own = Own()
    made = composed(**fields(Fixed(40.0), Hierarchy(prune=1), own))
    before = made.noise_key(SECRET)
    assert made.noise_key(SECRET) == before
    vars(own)["weight"] = 2.0
    assert made.noise_key(SECRET) != before
    # Neither is a part plain that holds a tuple.
    spread = [composed(**fields(Fixed(40.0), Blocks(focus=(8, 16)))) for _ in range(2)]
    assert spread[0] is not spread[1]
    # Nor are NumPy's numbers plain numbers.
    epsilons = [fastdp.ToPS(np.float64(0.5), 64.0, holdout=50, max_range=64) for _ in range(2)]
    assert epsilons[0].epsilon == 0.5


SECRETS = {
    "seed": Key.from_seed(1),
    "secret": Key.from_bytes(bytes(range(32))),
    "stream": Key.from_seed(1).of_stream(7),
    "bound": Key(bytes(32), simulated=False, binding=Binding.COMPOSITION),
}
PARTS: dict[str, tuple[Any, Any, Any]] = {
    "tops": (NoisyMax(c=60.0), Hierarchy(prune=1), Recent()),
    "whole c": (NoisyMax(c=60), Hierarchy(prune=1), Recent()),
    "moving": (Fixed(20.0), Hierarchy(prune=1), MovingAverage(3)),
    "flat": (Fixed(20.0), Flat(), None),
    "blocks": (ScaleFree(), Blocks(), None),
}


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS)
def test_a_shared_composition_has_the_keys_of_one_alone(secret: Key) -> None:
    """In any order, and again."""
    for parts in [*PARTS.values(), *reversed(PARTS.values())]:
        for epsilon in (0.5, 1, 1.0):
            given = fields(*parts, epsilon)
            shared, alone = composed(**given), StreamParameters(**given)
            assert shared is composed(**given)
            assert shared.noise_key(secret) == secret.bind(alone) == alone.noise_key(secret)
            assert shared.noise_keys([secret, secret]) == [alone.noise_key(secret)] * 2
