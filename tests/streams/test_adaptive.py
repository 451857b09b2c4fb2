"""Adaptive whole: oracles of values and events, thetas that rise, parameters, several values together."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import AccuracyWarning, ParameterError
from fastdp.guarantee import Guarantee, fraction_of, of_group
from fastdp.integer_grid import make_event_grid
from fastdp.noise.key import Binding, Key
from fastdp.perturbers import Blocks, Flat, Hierarchy, blocks
from fastdp.smoothers import Recent
from fastdp.streams import adaptive_blocks
from fastdp.streams.methods import Adaptive
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree, SmoothQuantile, TruePercentile
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from fastdp_kernels.streams import block_lengths as b
from tests.grid import exhaustive
from tests.noise_values import bound_key, chain_draws, chain_noise
from tests.oracles import adaptive
from tests.oracles.prefix import BoundNoise
from tests.shared import move
from tests.state.adaptive_publishers import fixed, make, stream


def top_of(publisher: Adaptive) -> float:
    """The bound in first thetas, once theta is chosen."""
    return publisher.composition.grid.bound_steps / max(publisher._state.rows["theta_steps"][0], 1)


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
        constants=b,
        focus=np.ravel([publisher.composition.perturber.focus] * 2)[[0, -1]].tolist()
        if publisher.composition.perturber.focus
        else None,
        rises=publisher.composition.rises,
        top=top_of(publisher),
        group=int(shape["group"][0]),
    )
    first = public.first
    if not pipeline.warm_up:
        # Until a block's noise a value is no more than the error of the guess.
        while first and 4.0 ** (first - 1) > public.noise / adaptive_blocks.FIRST_VARIANCE:
            first -= 1
    return adaptive.Learner(public, adaptive_blocks.FIRST_LEVEL, adaptive_blocks.FIRST_VARIANCE, first)


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
def test_release_equals_the_oracle(epsilon: float, holdout: int, resolution: float | None) -> None:
    values = stream(6000 if epsilon < 10.0 else 2000)
    publisher = (make if holdout else fixed)(epsilon=epsilon, resolution=resolution)
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
    expected = adaptive.published(learner, values.size - holdout, skip=skip)
    theta = release.threshold
    np.testing.assert_allclose(release.values, expected * theta, rtol=1e-9, atol=1e-9 * theta)
    levels = adaptive.levels_given_all(learner, skip)
    means = adaptive.kept_means(learner, adaptive.block_means(learner, levels, skip), skip)
    np.testing.assert_allclose(release.revision.means, means * theta, rtol=1e-9, atol=1e-9 * theta)
    exponents = [block.exponent for block in learner.blocks[skip:]]
    assert release.revision.exponents.tolist() == exponents
    revised = adaptive.revised(exponents, means, levels, values.size - holdout)
    np.testing.assert_allclose(release.revised.values, revised * theta, rtol=1e-8, atol=1e-7 * theta)
    assert release.offset == holdout
    assert len(release) == values.size - holdout


@pytest.fixture
def short_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LEAST_GROUP", 128)


@pytest.mark.usefixtures("short_groups")
@pytest.mark.parametrize("growth", [0.0, 8.0])
def test_groups_equal_the_oracle(growth: float) -> None:
    """A second sum of many short blocks: with noise of its own, in published and revised values, in any chunks."""
    place = (np.arange(3600) - 600).clip(0) / 3600
    values = np.random.default_rng(5).gamma(4.0, 1.0, 3600) * (1.0 + growth * (place > 0.5))
    options = {"epsilon": 40.0, "bound": 1000.0, "threshold": ScaleFree(), "max_range": 2**11}
    publisher = make(**options)
    release = publisher.release(values)
    first, grid = publisher._state.rows["theta_steps"][0], publisher.composition.grid
    theta, key, used, ends = first * publisher.resolution, publisher._key, [first], []
    learner, bound = learner_of(publisher), chain_noise(publisher._key, first, 40.0)

    def behind(steps: int) -> Any:
        return chain_noise(key.again().within("behind", bound.chain), steps, 40.0)

    def noise(total: int, steps: int) -> int:
        steps = -(-6 * steps // 5) if learner.group else steps
        if steps != used[-1]:
            used.append(steps)
            bound.chain, bound.scale = behind(steps).chain, Fraction(steps) / Fraction(40)
        return bound(total)

    def group_noise(total: int) -> int:
        ends.append(total)
        scale = Fraction(6 * int(learner.unit * first)) / Fraction(40)
        return BoundNoise(bound.chain, scale, 2**55 + len(learner.blocks) - 1)(total)

    warm_up = publisher.composition.warm_up
    steps = np.rint(values[600 - warm_up :] / publisher.resolution)
    adaptive.release(steps, noise, first, learner, grid.bound_steps, group_noise)
    assert len(ends) > 5, "or the test shows nothing"
    assert growth == 0.0 or learner.unit > 1.0
    skip = next(j for j in range(99) if sum(2**q.exponent for q in learner.blocks[:j]) >= warm_up)
    expected = adaptive.published(learner, values.size - 600, skip=skip)
    np.testing.assert_allclose(release.values, expected * theta, rtol=1e-9, atol=1e-9 * theta)
    levels = adaptive.levels_given_all(learner, skip)
    means = adaptive.kept_means(learner, adaptive.block_means(learner, levels, skip), skip)
    np.testing.assert_allclose(release.revision.means, means * theta, rtol=1e-9, atol=1e-9 * theta)
    # Errors of whole blocks' sums, from the covariance of least squares.
    own = np.diag([block.noises for block in learner.blocks[skip:]])
    for group, _ in learner.groups:
        mine = [j - skip for j in group]
        each = own[mine[0], mine[0]]
        own[np.ix_(mine, mine)] -= each**2 / (len(mine) * each + 36.0 * each / 1.44)
    edges, generator = release.revision.edges, np.random.default_rng(1)
    ranges = np.sort(generator.integers(0, edges.size, (50, 2)), axis=1)
    bars = release.revision.error_bars(release.noise, *edges[ranges.T])
    expected = [own[i:j, i:j].sum() * learner.public.noise * theta**2 for i, j in ranges]
    np.testing.assert_allclose(bars.variances, expected, rtol=1e-3)
    # Of a range behind the last closed block no noise has been drawn yet.
    behind_all = edges[-1] + np.array([[1], [2]])
    assert release.revision.error_bars(release.noise, *behind_all).draws.tolist() == [0]
    online, parts = make(**options), []
    for chunk in np.split(values, [3, 664, 700, 1048, 1049, 2900]):
        parts.append(online.publish(chunk))
        online = Adaptive.from_bytes(online.to_bytes(bytes(32)), bytes(32))
    assert np.array_equal(np.concatenate(parts), release.values)


@pytest.mark.usefixtures("short_groups")
@pytest.mark.parametrize("steps", [1, 64])
def test_a_theta_of_few_steps_has_no_groups(steps: int) -> None:
    """Six fifths of one step are two: blocks would have more noise than intervals and weights allow for."""
    publisher = Adaptive(40.0, sensitivity=1.0, resolution=1.0 / steps, max_range=2**11, seed=1)
    found = publisher.release(np.random.default_rng(1).poisson(3.0, 3000).astype(float)).revision.places
    assert found.any() == (steps == 64)


def test_noise_goes_on_from_pass_to_pass() -> None:
    """Many more blocks than a pass of the kernel has room for, each with the noise of its own place in the chain."""
    options = {"epsilon": 0.5, "max_range": 1, "resolution": 1.0, "theta": 1.0, "bound": 1.0}
    publisher = fixed(**options)
    values = np.arange(2500) % 3 == 0.0
    release = publisher.release(values)
    assert publisher._state.rows["blocks"][0] == 2500
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


@pytest.mark.parametrize(("make_values", "epsilon"), [(growing, 3.0), (growing, 8.0), (swinging, 8.0)])
def test_a_theta_that_rises_equals_the_oracle(make_values: Callable[[], np.ndarray], epsilon: float) -> None:
    values = make_values()
    publisher = make(epsilon=epsilon, bound=1000.0, threshold=ScaleFree())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        release = publisher.release(values)
    first, grid = publisher._state.rows["theta_steps"][0], publisher.composition.grid
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
    expected = adaptive.published(learner, values.size - 600, skip=skip)
    np.testing.assert_allclose(release.values, expected * theta, rtol=1e-9, atol=1e-9 * theta)
    levels = adaptive.levels_given_all(learner, skip)
    means = adaptive.kept_means(learner, adaptive.block_means(learner, levels, skip), skip)
    np.testing.assert_allclose(release.revision.means, means * theta, rtol=1e-9, atol=1e-9 * theta)
    # Any chunking, and a copy from bytes in between.
    online = make(epsilon=epsilon, bound=1000.0, threshold=ScaleFree())
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
        first, steps = publisher._state.rows["theta_steps"][0], publisher.composition.grid.bound_steps
        assert first < steps, "or the test shows nothing"
        assert publisher._state.rows["unit"][0] == steps / first
        assert release.threshold == publisher.threshold == steps * publisher.resolution
        noise = np.sqrt(2.0) * release.threshold
        whole = release.revised.std_error(0, len(release))
        assert 0.99 * noise < whole / np.sqrt(release.revision.totals.size)
        # A part of a block has its part of the block's noise.
        begin, end = release.revision.edges[-2:]
        part = (end - begin - 1) / (end - begin)
        assert 0.99 * noise * part < release.revised.std_error(begin, end - 1)


def test_intervals_are_for_values_clipped_to_the_theta_of_their_blocks() -> None:
    """After a jump the last theta is not what values before it were clipped to; of true sums a rule says a model."""
    generator = np.random.default_rng(2)
    values = generator.gamma(4.0, 1.0, 8000) * np.repeat([1.0, 30.0], 4000)
    options = {"epsilon": 8.0, "bound": 1000.0, "seed": 3}
    release = make(**options, threshold=TruePercentile(0.99)).release(values)
    online, thetas = make(**options, threshold=TruePercentile(0.99)), []
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
        low, high = release.revised.interval(starts, stops)
        truth = prefix[stops] - prefix[starts]
        covered.append(np.mean((low <= truth) & (truth <= high)))
    assert covered[0] > 0.9 > 0.5 > covered[1]
    assert any("that of their block" in step for step in release.guarantee.derivation)
    true = np.concatenate([[0.0], np.cumsum(values[600:])])
    low, high = make(**options).release(values).revised.interval(starts, stops)
    assert np.mean((low <= true[stops] - true[starts]) & (true[stops] - true[starts] <= high)) > 0.9


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
    noise = chain_noise(publisher._key, publisher._state.rows["theta_steps"][0], 2.0)
    warm_up = publisher.composition.warm_up
    adaptive.release(steps[600 - warm_up :], noise, publisher._state.rows["theta_steps"][0], learner)
    lengths = [block.exponent for block in learner.blocks]
    skip = len(lengths) - release.revision.exponents.size
    assert lengths[skip:] == release.revision.exponents.tolist()
    expected = 20.0 * adaptive.published(learner, len(release), skip=skip)
    np.testing.assert_allclose(release.values, expected, rtol=1e-9, atol=2e-8)


RENEWALS = (RenewFromHoldout(), RenewFromPublished(0.2))


def published_and_seen_again(publisher: Adaptive, values: np.ndarray) -> np.ndarray:
    """All of it, and what must hold whatever the parameters."""
    release = publisher.release(values)
    assert len(release) == len(release.revised) == values.size - publisher.holdout
    assert np.isfinite(release.values).all()
    assert np.isfinite(release.revised.values).all()
    assert np.isfinite(release.revised.sum(0, len(release))).all()
    assert publisher._pipeline.fits(publisher._state).all()
    return release.values


@pytest.mark.parametrize(
    ("holdout", "warm_up"), [(1, 0), (2, 0), (15, 0), (16, 2), (31, 2), (32, 4), *exhaustive((65_536, 8192))]
)
def test_a_share_of_the_hold_out_is_a_warm_up(holdout: int, warm_up: int) -> None:
    publisher = Adaptive(1.0, 10.0, holdout, seed=1, threshold=NoisyMax())
    assert publisher.holdout == holdout
    assert publisher.composition.warm_up == warm_up
    assert publisher.composition.task.holdout == holdout - warm_up
    assert warm_up & (warm_up - 1) == 0
    values = np.resize([0.5, 3.0], holdout + 100)
    assert published_and_seen_again(publisher, values).size == 100
    online = Adaptive(1.0, 10.0, holdout, seed=1, threshold=NoisyMax())
    assert sum(online.publish(values[i : i + 1]).size for i in range(min(holdout, 40))) == 0


def test_the_end_of_the_hold_out_is_released() -> None:
    """Its noisy sums enter the first published value."""
    values = np.repeat([2.0, 8.0, 0.0], [700, 64, 1])  # 64 is the greatest power of two up to 764 / 8
    first = Adaptive(1e4, 10.0, 764, threshold=Fixed(10.0), seed=1).publish(values)
    assert first == pytest.approx([8.0], abs=0.01)


def test_the_kernels_public_numbers() -> None:
    """Variance of a sum's noise, in squared thresholds; the first block is a 64th of the longest range at most."""
    for epsilon, max_range in itertools.product((1e-6, 0.01, 1.0, 100.0), (1, 2, 63, 64, 127, 128, 1000, 2**20)):
        shape = Blocks().shape(epsilon, max_range, 0)
        assert shape["noise"][0] == pytest.approx(2.0 / epsilon**2, rel=1e-12)
        longest = 2.0 ** shape["first"][0]
        assert longest <= max(1.0, max_range / 64.0)
        if epsilon < 1e-3:
            assert 2.0 * longest > max_range / 64.0, "as long as it may be where noise is all that counts"
        assert 2.0 ** shape["most"][0] <= max(1.0, max_range / 4.0) < 2.0 ** (shape["most"][0] + 1) + 1.0
    # K = 3 (max(1, r / 3) / length - 1 / 3): the first blocks hold one value, and no range holds less.
    for max_range, expected in ((1, 2.0), (2, 2.0), (3, 2.0), (4, 3.0), (5, 4.0), (6, 5.0)):
        plan = Blocks().plan(1.0, max_range)
        assert plan.first == 0
        assert Blocks().noise_constant(plan, max_range) == pytest.approx(expected, rel=1e-12)


class OwnNoise(Blocks):
    """Noise of a user's own would be drawn before the sums that decide on lengths."""

    def leaf_noise(self, *arguments: Any) -> Any:
        return super().leaf_noise(*arguments)


RENEWED = {"threshold": NoisyMax(), "perturber": Blocks()}
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({"epsilon": epsilon}, "epsilon.*expected") for epsilon in (1e-200, 5e-324, 1e200, 1.7e308, 2.0**41)),
    *(({"bound": bound}, "bound.*expected") for bound in (None, 1e-300, 1e300)),
    ({"holdout": 0}, "holdout.*expected"),
    ({"resolution": 101.0}, "resolution.*expected"),
    *(({**RENEWED, "renewal": each}, r"renewal = .*expected None.*one threshold") for each in RENEWALS),
    ({**RENEWED, "smoother": Recent()}, r"smoother = .*expected None.*predict it themselves"),
    ({"epsilon": 1e6, "delta": 1e-9}, r"^epsilon = 1000000.0, delta = 1e-09: .* expected a smaller epsilon$"),
    (
        {"epsilon": 1e3, "sensitivity": 2.0**-10, "bound": None, "delta": 1e-9, "resolution": 2.0**-60},
        r"^epsilon = .* expected a larger epsilon, or a coarser resolution= than 8.67",
    ),
    ({"perturber": OwnNoise()}, r"^perturber = <OwnNoise>: expected Blocks without a leaf_noise .* of yours"),
    ({"perturber": Blocks(focus=200)}, "^focus = 200: expected at most max_range = 100"),
]


@pytest.mark.parametrize(("options", "told"), REFUSED)
def test_arguments_that_do_not_fit_each_other_are_refused(options: dict[str, Any], told: str) -> None:
    kind = fastdp.StreamPublisher if "threshold" in options else Adaptive
    with pytest.raises(ParameterError, match=told):
        kind(**{"epsilon": 1.0, "bound": 100.0, "max_range": 100, **options})


@pytest.mark.parametrize("focus", [(5, 2), (5, 2, 1)])
def test_a_focus_is_one_length_or_two_in_order(focus: Any) -> None:
    with pytest.raises(ParameterError, match=r"the shortest length first|focus has 3 entries"):
        Blocks(focus=focus)


@pytest.mark.filterwarnings("ignore:threshold:fastdp.errors.AccuracyWarning")
def test_any_range_budget_and_bound() -> None:
    for max_range in (1, 2, 3, 4, 5, 127, 128, 2**40):
        publisher = Adaptive(1.0, 10.0, 64, max_range, seed=1, threshold=NoisyMax())
        published_and_seen_again(publisher, np.linspace(0.0, 9.0, 3000))
        longest = max(max_range.bit_length() - 3, 0)
        assert publisher._state.rows["exponent"][0] <= longest
    values = np.tile([1.0, 2.0, 3.0, 6.0], 1000)
    for epsilon in (2.0**-20, 2.0**-6, 2.0**10, 2.0**30, 2.0**40):
        options = {"threshold": Fixed(8.0), "resolution": 2.0**-8}
        out = published_and_seen_again(Adaptive(epsilon, 10.0, 0, 2**12, **options, seed=1), values)
        if epsilon >= 2.0**30:
            assert out[1:].sum() == pytest.approx(values[:-1].sum(), abs=16.0)
    for bound in (1e-250, 1e-30, 1.0, 1e30, 1e250):
        values = np.linspace(0.0, 1.0, 3000) * bound
        published_and_seen_again(Adaptive(1.0, bound, 300, 2**10, seed=1, threshold=NoisyMax()), values)
        published_and_seen_again(Adaptive(1.0, bound, threshold=Fixed(bound), max_range=2**10, seed=1), values)


@pytest.mark.parametrize("scale", [2.0**-830, 2.0**-100, 2.0**100, 2.0**830])
def test_the_unit_of_values_does_not_matter(scale: float) -> None:
    """Of one key, whose noise is in grid steps: to the last bit."""
    key = Key(bytes(32), simulated=True, binding=Binding.COMPOSITION)
    unit = np.random.default_rng(1).random(3000)
    for options, scaled in (({"holdout": 300},) * 2, ({"threshold": Fixed(1.0)}, {"threshold": Fixed(scale)})):
        expected = Adaptive(1.0, 1.0, max_range=2**10, key=key.again(), **options).publish(unit)
        publisher = Adaptive(1.0, scale, max_range=2**10, key=key.again(), **scaled)
        assert np.array_equal(publisher.publish(unit * scale), expected * scale)


def test_states_of_another_size_or_season_are_refused() -> None:
    options = {"epsilon": 0.8, "max_range": 4096, "bound": 200.0, "threshold": 40.0, "seed": 4}
    daily, plain = (Adaptive(**options, perturber=Blocks(season=season)) for season in (96, None))
    for each in (daily, plain):
        each.publish(np.arange(3000.0) % 11)
    other = daily._state.season.copy()
    other["period"] = 97.0
    assert daily._pipeline.fits(daily._state).all()
    assert not daily._pipeline.fits(daily._state._replace(season=other)).any()
    for one, other in ((daily, plain), (plain, daily)):
        with pytest.raises(ValueError, match="out of range"):
            one._machine.unpack(other._machine.pack(other._state), one._key)
    tree = fastdp.ToPS(0.8, 200.0, 0, 64, fan_out=4, prune=1, threshold=40.0, seed=4)
    tree.publish([1.0])
    for filled in (3, 4):
        move(tree, filled=filled)
        assert tree._pipeline.fits(tree._state).all() == (filled < 4)


def counts(n: int) -> np.ndarray:
    """Days of 48 values, and weeks that differ."""
    generator = np.random.default_rng(3)
    t = np.arange(n)
    return generator.poisson(20 + 15 * np.sin(t * 2 * np.pi / 48) + 5 * (t // 336 % 2)).astype(float)


def make_events(epsilon: float = 1.0, sensitivity: float = 1.0, **options: Any) -> fastdp.Adaptive:
    return fastdp.Adaptive(epsilon, sensitivity=sensitivity, **{"max_range": 4096, "seed": 1, **options})


def learner_of_events(publisher: fastdp.Adaptive) -> adaptive.Learner:
    shape = publisher._pipeline.shape
    public = adaptive.Public(
        noise=2.0 / publisher.epsilon**2,
        max_range=publisher.max_range,
        prior_white=1.0,
        prior_drift=0.0,
        least=0,
        most=int(shape["most"][0]),
        first=0,
        limit=0,
        constants=b,
        events=b,
    )
    return adaptive.Learner(public, 0.0, adaptive_blocks.FIRST_EVENTS * (1.0 + public.noise), 0)


def in_steps(values: np.ndarray, resolution: float, limit: int) -> list[int]:
    """Halves up, saturated."""
    exact = [math.floor(Fraction(value) / Fraction(resolution) + Fraction(1, 2)) for value in values.tolist()]
    return [min(max(step, -limit), limit) for step in exact]


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(0.05, 1.0), (0.5, 0.3), (3.0, 1.0), (0.5, 2.5)])
def test_release_equals_the_oracle_of_events(epsilon: float, sensitivity: float) -> None:
    values = counts(700) - 12.3
    publisher = make_events(epsilon, sensitivity)
    release = publisher.release(values)
    grid = publisher.composition.grid
    steps = math.ceil(Fraction(sensitivity) / Fraction(grid.resolution))
    learner = learner_of_events(publisher)
    noise = chain_noise(publisher._key, steps, epsilon)
    adaptive.release(in_steps(values, grid.resolution, grid.bound_steps), noise, steps, learner)
    theta = steps * grid.resolution
    assert release.threshold == theta
    assert release.revision.exponents.tolist() == [block.exponent for block in learner.blocks]
    assert min(release.revision.exponents) == 0
    expected = adaptive.published(learner, values.size)
    np.testing.assert_allclose(release.values, expected * theta, rtol=1e-7, atol=1e-7)
    levels = adaptive.levels_given_all(learner)
    means = adaptive.kept_means(learner, adaptive.block_means(learner, levels))
    # No stream has seen six such periods: without a pattern.
    release = release.with_season(2.0**40)
    np.testing.assert_allclose(release.revision.means, means * theta, rtol=1e-5, atol=1e-5)
    assert release.offset == 0


@pytest.mark.parametrize("sensitivity", [1.0, 0.1, 3.0])
@given(value=st.floats(-1e9, 1e9), moved=st.floats(-1.0, 1.0), power=st.integers(0, 12))
@example(value=0.5, moved=1.0, power=0)
@example(value=-0.5, moved=-1.0, power=0)
@example(value=0.49999999999999994, moved=1.0, power=0)
@example(value=2.0**40 + 0.5, moved=0.0, power=0)
def test_an_event_moves_a_rounded_value_by_at_most_the_sensitivity(
    sensitivity: float, value: float, moved: float, power: int
) -> None:
    """Halves are rounded up: with ties to even 0.5 and 1.5 would be two steps apart."""
    resolution = 2.0 ** (math.frexp(sensitivity)[1] - 1 - power)
    grid, other = make_event_grid(sensitivity, resolution, 1.0, 16), value + moved * sensitivity
    if abs(Fraction(other) - Fraction(value)) > Fraction(sensitivity):
        other = value
    pair = np.array([value, other])
    sums = [steps_of(grid, pair[k : k + 1]) for k in range(2)]
    assert sums == in_steps(pair, resolution, grid.bound_steps)
    assert abs(sums[0] - sums[1]) <= grid.snap(0.0)


def steps_of(grid: Any, values: np.ndarray) -> int:
    """The open sum of a publisher's pass, without noise in it."""
    from fastdp_kernels.streams import adaptive_pass
    from tests.kernels.adaptive_runs import no_counts, sum_adaptive

    shape, memory = np.zeros(1, b.SHAPE), np.zeros(1, b.MEMORY)
    memory["exponent"][0] = 10.0
    counters = no_counts()
    places = {"counters": counters, "memory": memory, "blocks": np.empty(1, adaptive_pass.BLOCK)}
    public = 1.0 / grid.resolution, -float(grid.bound_steps), 1.0, shape, np.ones(5)
    assert sum_adaptive(values, *public, noise=np.empty(0, np.int64), **places) == values.size
    return int(counters["open_sum"][0])


def test_the_guarantee_names_the_event() -> None:
    said = make_events(0.5, 2.0).guarantee
    assert (said.epsilon, said.delta, said.arithmetic) == (0.5, 0.0, "exact")
    assert said.unit == "one event"
    assert said.adjacency == "add or remove one event (moves one value by at most 2)"
    several = make_events(0.5, 2.0, contributions=3).guarantee
    assert several.epsilon == 0.5
    assert several.unit == "any 3 events"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"bound": 3.0}, "expected one of them, because a value that an event moves"),
        ({"holdout": 5}, "holdout = 5: expected None with a sensitivity"),
        ({"threshold": 3.0}, "expected None with a sensitivity, because nothing is clipped"),
        ({"sensitivity": None}, "bound = None: expected a number, the public upper bound of a value"),
        ({"resolution": 0.3}, "resolution = 0.3: expected a power of two"),
        ({"resolution": 2.0}, "resolution = 2.0: expected a power of two up to the sensitivity"),
        ({"epsilon": 1e-18}, "no grid fits"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        make_events(**options)


PARTS: dict[str, dict[str, Any]] = {
    "adaptive": {"perturber": Blocks()},
    "tops": {"perturber": Hierarchy(4, prune=1), "smoother": Recent()},
    "flat": {"perturber": Flat(), "renewal": RenewFromPublished(0.25, 1)},
    "withheld": {"perturber": Hierarchy(2, prune=0), "renewal": RenewFromHoldout(1, 8)},
}
VALUES = np.arange(400.0) * 7 % 31


def of_parts(name: str, **options: Any) -> fastdp.StreamPublisher:
    usual = {"threshold": NoisyMax(step=1.0), "bound": 64.0, "holdout": 32, "max_range": 64, "resolution": 2.0**-8}
    return fastdp.StreamPublisher(**{**usual, **PARTS[name], "key": bound_key(1), **options})


@pytest.mark.parametrize("name", PARTS)
def test_each_value_has_its_part_of_epsilon(name: str) -> None:
    together, alone = of_parts(name, epsilon=2.0, contributions=8), of_parts(name, epsilon=0.25)
    assert np.array_equal(together.publish(VALUES), alone.publish(VALUES))
    assert together.threshold == alone.threshold
    said, each = together.guarantee, alone.guarantee
    assert (said.epsilon, each.epsilon) == (2.0, 0.25)
    assert (said.unit, said.adjacency) == ("any 8 consecutive values", "replace them")
    assert said.arithmetic == each.arithmetic == "exact"
    assert set(each.derivation) < set(said.derivation)
    assert "contributions=8" in repr(together)
    again = fastdp.StreamPublisher.from_bytes(together.to_bytes())
    assert (again.contributions, again.guarantee) == (8, said)
    assert np.array_equal(again.publish(VALUES), together.publish(VALUES))


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 0.3, 1e-3, 7.7])
@pytest.mark.parametrize("w", [1, 3, 7, 10, 49, 1000])
def test_parts_never_add_up_to_more(epsilon: float, w: int) -> None:
    part = fraction_of(epsilon, w)
    assert w * Fraction(part) <= Fraction(epsilon) < w * Fraction(part) * (1 + Fraction(1, 2**50))


def test_a_group_with_a_delta_or_without_privacy() -> None:
    member = Guarantee(fraction_of(0.5, 5), delta=1e-6)
    said = of_group(member, 5, 0.5, "five", "replace them", "step")
    exact = 1e-6 * sum(np.exp(member.epsilon * k) for k in range(5))
    assert exact <= said.delta <= 5e-6 * np.exp(0.4) * 1.001
    assert of_group(Guarantee(np.inf), 2, 1.0, "two", "replace them", "step").epsilon == np.inf
    with pytest.raises(ValueError, match="lose more"):
        of_group(Guarantee(0.3), 2, 0.5, "two", "replace them", "step")
    quantile = fastdp.Adaptive(1.0, 50.0, 100, threshold=SmoothQuantile(delta=1e-6), contributions=4, seed=1)
    assert quantile.guarantee.delta > 4e-6


def test_systems_and_release_pass_it_on() -> None:
    for made in (
        fastdp.ToPS(1.0, 64.0, 32, 64, contributions=4, seed=1),
        fastdp.Adaptive(1.0, 64.0, threshold=Fixed(31.0), contributions=4, seed=1),
    ):
        assert made.guarantee.unit == "any 4 consecutive values"
    released = fastdp.release(VALUES, 1.0, 64.0, threshold=31.0, seed=1, contributions=4)
    assert released.guarantee.unit == "any 4 consecutive values"
    with pytest.raises(ParameterError, match="share of epsilon above 0"):
        fastdp.ToPS(5e-324, 64.0, 32, 64, contributions=4, seed=1)


@pytest.mark.parametrize(
    "made", [fastdp.ToPS(1.0, 10.0, threshold=5.0, seed=1), fastdp.Adaptive(1.0, 10.0, threshold=5.0, seed=1)]
)
def test_parameters_are_read_and_never_assigned(made):
    """Noise and guarantee would stay as they are, beside a print of another epsilon."""
    for name in ("epsilon", "delta", "bound", "sensitivity", "contributions", "holdout", "max_range", "resolution"):
        assert getattr(made, name) == getattr(made.composition, name)
        with pytest.raises(AttributeError):
            setattr(made, name, 7.0)
