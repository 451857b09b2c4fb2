"""Adaptive whole: against the oracle, any chunking, units, accounts, and the stream seen again."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from fastdp.errors import AccuracyWarning
from fastdp.perturbers import Blocks
from fastdp.streams import pipelines
from fastdp.streams.methods import Adaptive
from fastdp.thresholds import Fixed, ScaleFree
from fastdp_kernels.streams import block_lengths as b
from tests.grid import exhaustive
from tests.noise_values import chain_draws, chain_noise
from tests.oracles import adaptive
from tests.state.adaptive_publishers import CLOSINGS, fixed, make, stream


def top_of(publisher: Adaptive) -> float:
    """The bound in first thetas, once theta is chosen."""
    return publisher.composition.grid.bound_steps / max(publisher._progress.theta_steps, 1)


def learner_of(publisher: Adaptive) -> adaptive.Learner:
    """The oracle before the first value behind the hold-out's first part."""
    pipeline = publisher._pipeline
    shape = pipeline.shape
    public = adaptive.Public(
        noise=shape["noise"][0],
        max_range=publisher.max_range,
        prior_white=shape["prior_white"][0],
        prior_drift=shape["prior_drift"][0],
        least=int(shape["least"][0]),
        most=int(shape["most"][0]),
        first=int(shape["first"][0]),
        limit=pipeline.warm_up,
        spreads=publisher.composition.perturber.closing == "spread",
        constants=b,
        focus=np.ravel([publisher.composition.perturber.focus] * 2)[[0, -1]].tolist()
        if publisher.composition.perturber.focus
        else None,
        rises=publisher.composition.rises,
        top=top_of(publisher),
    )
    first = public.first
    if not pipeline.warm_up:
        # Until a block's noise a value is no more than the error of the guess.
        while first and 4.0 ** (first - 1) > public.noise / pipelines.FIRST_VARIANCE:
            first -= 1
    return adaptive.Learner(public, pipelines.FIRST_LEVEL, pipelines.FIRST_VARIANCE, first)


@pytest.mark.parametrize("closing", CLOSINGS)
@pytest.mark.parametrize(
    ("epsilon", "holdout", "resolution"),
    [
        (2.0, 600, None),
        (30.0, 0, 2.0**-16),
        *exhaustive((0.1, 600, None), (2.0, 0, 2.0**-16), (0.1, 0, 2.0**-16)),
        # A theta of few steps, so that the noise of one step less or more differs; and doubtful draws.
        (0.1, 600, 4.0),
        (2.0, 0, 2.0**-40),
    ],
)
def test_release_equals_the_oracle(closing: str, epsilon: float, holdout: int, resolution: float | None) -> None:
    values = stream(6000 if epsilon < 10.0 else 2000)
    publisher = (make if holdout else fixed)(epsilon=epsilon, closing=closing, resolution=resolution)
    release = publisher.release(values)
    composition, theta_steps = publisher.composition, round(release.threshold / publisher.resolution)
    assert theta_steps * publisher.resolution == release.threshold
    noise = chain_noise(publisher._key, theta_steps, epsilon)
    warm_up = composition.warm_up
    clipped = np.clip(values[holdout - warm_up :] / publisher.resolution, 0.0, theta_steps)
    learner = learner_of(publisher)
    adaptive.release(np.rint(clipped), noise, theta_steps, learner)
    skip = next(
        j for j in range(len(learner.blocks) + 1) if sum(2**q.exponent for q in learner.blocks[:j]) >= warm_up
    )
    assert len(learner.blocks) > skip + 5
    expected = adaptive.published(learner, values.size - holdout, spikes=closing == "spike", skip=skip)
    theta = release.threshold
    np.testing.assert_allclose(release.values, expected * theta, rtol=1e-9, atol=1e-9 * theta)
    levels = adaptive.levels_given_all(learner, skip)
    means = adaptive.kept_means(learner, adaptive.block_means(learner, levels, skip), skip)
    np.testing.assert_allclose(release.revision.means, means * theta, rtol=1e-9, atol=1e-9 * theta)
    exponents = [block.exponent for block in learner.blocks[skip:]]
    assert release.revision.exponents.tolist() == exponents
    revised = adaptive.revised(exponents, means, levels, values.size - holdout)
    np.testing.assert_allclose(release.revised, revised * theta, rtol=1e-8, atol=1e-7 * theta)
    assert release.offset == holdout
    assert len(release) == values.size - holdout


def test_noise_goes_on_from_pass_to_pass() -> None:
    """Many more blocks than a pass of the kernel has room for, each with the noise of its own place in the chain."""
    options = {"epsilon": 0.5, "max_range": 1, "resolution": 1.0, "theta": 1.0, "bound": 1.0}
    publisher = fixed(**options)
    values = np.arange(2500) % 3 == 0.0
    release = publisher.release(values)
    assert publisher._progress.blocks == 2500
    noise = chain_draws(chain_noise(publisher._key, 1, 0.5), values)
    assert np.array_equal(release.revision.totals, values + noise)
    again = fixed(**options)
    parts = [again.publish(part) for part in np.split(values, np.cumsum((1023, 1, 1, 999)))]
    assert np.array_equal(np.concatenate(parts), release.values)


def growing(n: int = 8000, factor: float = 30.0) -> np.ndarray:
    """Values whose scale grows behind the first 600, the hold-out."""
    place = (np.arange(n) - 600).clip(0) / n
    return np.random.default_rng(3).gamma(4.0, 1.0, n) * (1.0 + factor * place)


def swinging(n: int = 9500) -> np.ndarray:
    """Values that are 2.4 times as large in every other 1,000."""
    place = (np.arange(n) - 600).clip(0) // 1000 % 2
    return np.random.default_rng(3).exponential(1.0, n) * (1.0 + 1.4 * place)


@pytest.mark.parametrize(
    ("make_values", "closing", "epsilon"),
    [*itertools.product([growing], CLOSINGS, [3.0, 8.0]), (swinging, "spread", 8.0)],
)
def test_a_theta_that_rises_equals_the_oracle(
    make_values: Callable[[], np.ndarray], closing: str, epsilon: float
) -> None:
    values = make_values()
    publisher = make(epsilon=epsilon, closing=closing, bound=1000.0, threshold=ScaleFree())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        release = publisher.release(values)
    first, grid = publisher._progress.theta_steps, publisher.composition.grid
    theta = first * publisher.resolution
    learner = learner_of(publisher)
    bound, used = chain_noise(publisher._key, first, epsilon), [first]

    def noise(total: int, steps: int) -> int:
        if steps != used[-1]:
            # No random word is used with two scales.
            used.append(steps)
            behind = publisher._key.again().within("behind", bound.chain)
            bound.chain, bound.scale = chain_noise(behind, steps, epsilon).chain, Fraction(steps) / Fraction(epsilon)
        return bound(total)

    warm_up = publisher.composition.warm_up
    steps = np.rint(values[600 - warm_up :] / publisher.resolution)
    adaptive.release(steps, noise, first, learner, grid.bound_steps)
    if make_values is growing:
        assert learner.unit > 3.0, "or the test shows nothing"
    else:
        assert len(used) > 2, "or the test shows nothing"
        assert used[-1] == first < max(used) <= 2 * first
    assert release.threshold == int(learner.highest * first) * publisher.resolution
    assert publisher.threshold == int(learner.unit * first) * publisher.resolution
    skip = next(j for j in range(99) if sum(2**q.exponent for q in learner.blocks[:j]) >= warm_up)
    expected = adaptive.published(learner, values.size - 600, spikes=closing == "spike", skip=skip)
    np.testing.assert_allclose(release.values, expected * theta, rtol=1e-9, atol=1e-9 * theta)
    levels = adaptive.levels_given_all(learner, skip)
    means = adaptive.kept_means(learner, adaptive.block_means(learner, levels, skip), skip)
    np.testing.assert_allclose(release.revision.means, means * theta, rtol=1e-9, atol=1e-9 * theta)
    # Any chunking, and a copy from bytes in between.
    online = make(epsilon=epsilon, closing=closing, bound=1000.0, threshold=ScaleFree())
    parts = []
    for chunk in np.split(values, [3, 700, 701, 2900, 5100]):
        parts.append(online.publish(chunk))
        online = Adaptive.from_bytes(online.to_bytes(bytes(32)), bytes(32))
    assert np.array_equal(np.concatenate(parts), release.values)


def test_theta_rises_no_further_than_the_bound() -> None:
    """In the kernels' memory too: noise counts as that of the bound, and no level is published above it."""
    values = np.concatenate([np.random.default_rng(1).exponential(1.0, 4096), np.full(20_000, 1000.0)])
    for bound in (100.0, 1000.0, 777.7):
        publisher = make(epsilon=1.0, bound=bound, threshold=ScaleFree(), holdout=4096, max_range=65_536)
        release = publisher.release(values)
        first, steps = publisher._progress.theta_steps, publisher.composition.grid.bound_steps
        assert first < steps, "or the test shows nothing"
        assert publisher._progress.smoother["unit"][0] == steps / first
        assert release.threshold == publisher.threshold == steps * publisher.resolution
        noise = np.sqrt(2.0) * release.threshold
        assert 0.99 * noise < release.std_error(0, release.values.size, revised=True) / np.sqrt(
            release.revision.totals.size
        )


def test_intervals_are_for_values_clipped_to_the_theta_of_their_blocks() -> None:
    """After a jump the last theta is not what values before it were clipped to."""
    generator = np.random.default_rng(2)
    values = generator.gamma(4.0, 1.0, 8000) * np.repeat([1.0, 30.0], 4000)
    release = make(epsilon=8.0, bound=1000.0, seed=3).release(values)
    online, thetas = make(epsilon=8.0, bound=1000.0, seed=3), []
    for value in values:
        thetas.append(online.threshold or 0.0)
        online.publish([value])
    assert release.threshold > 4.0 * thetas[600]
    lengths = np.diff(release.revision.edges, append=len(release))
    np.testing.assert_allclose(np.repeat(release.revision.thetas, lengths), thetas[600:], rtol=1e-6)
    starts = generator.integers(0, 3000, 300)
    stops = starts + generator.integers(500, 4000, 300)
    covered = []
    for theta in (np.array(thetas), np.full(values.size, release.threshold)):
        prefix = np.concatenate([[0.0], np.cumsum(np.minimum(values, theta)[600:])])
        low, high = release.interval(starts, stops, revised=True)
        truth = prefix[stops] - prefix[starts]
        covered.append(np.mean((low <= truth) & (truth <= high)))
    assert covered[0] > 0.9 > 0.5 > covered[1]
    assert any("that of their block" in step for step in release.guarantee.derivation)


def test_a_theta_far_below_the_values_is_warned_of() -> None:
    values = np.full(3000, 50.0)
    with pytest.warns(AccuracyWarning, match="threshold: 20 is far below the values"):
        fixed(20.0, epsilon=30.0).release(values)
    # At the bound nothing is clipped that a larger theta would keep.
    make(epsilon=30.0, bound=50.0, threshold=Fixed(50.0), holdout=0).release(values)


@pytest.mark.parametrize("focus", [1, 40, (16, 700), 1024])
def test_lengths_for_a_focus_are_the_oracles(focus: int | tuple[int, int]) -> None:
    values = stream()
    publisher = make(threshold=Fixed(20.0), focus=focus)
    release = publisher.release(values)
    learner, steps = learner_of(publisher), np.rint(np.minimum(values, 20.0) / publisher.resolution)
    noise = chain_noise(publisher._key, publisher._progress.theta_steps, 2.0)
    warm_up = publisher.composition.warm_up
    adaptive.release(steps[600 - warm_up :], noise, publisher._progress.theta_steps, learner)
    lengths = [block.exponent for block in learner.blocks]
    skip = len(lengths) - release.revision.exponents.size
    assert lengths[skip:] == release.revision.exponents.tolist()
    expected = 20.0 * adaptive.published(learner, len(release), spikes=False, skip=skip)
    np.testing.assert_allclose(release.values, expected, rtol=1e-9, atol=2e-8)


@pytest.mark.parametrize(("r", "first"), [(2**20, 8), (2**17, 8), (2**24, 12), (2**12, 6), (2**5, 0)])
def test_a_focus_begins_with_short_blocks(r: int, first: int) -> None:
    for focus in (r, "longest"):
        assert Blocks(focus=focus).shape(0.01, r, 0)["first"][0] == first
    assert Blocks().shape(0.01, 2**20, 0)["first"][0] > 8
    assert Blocks(focus=2).plan(0.01, 2**20).usual == Blocks().plan(0.01, 2**20).first, (
        "theta is that without a focus"
    )
