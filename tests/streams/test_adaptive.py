"""Adaptive whole: against the oracle, any chunking, units, accounts, and the stream seen again."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastdp
from fastdp.errors import AccuracyWarning, DataError, ParameterError
from fastdp.perturbers import Blocks
from fastdp.streams import adaptive_blocks
from fastdp.streams.methods import Adaptive
from fastdp.thresholds import Fixed, ScaleFree
from fastdp_kernels.streams import block_lengths as b
from tests.grid import exhaustive
from tests.noise_values import bound_key, chain_draws, chain_noise
from tests.oracles import adaptive
from tests.shared import release_many
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
        while first and 4.0 ** (first - 1) > public.noise / adaptive_blocks.FIRST_VARIANCE:
            first -= 1
    return adaptive.Learner(public, adaptive_blocks.FIRST_LEVEL, adaptive_blocks.FIRST_VARIANCE, first)


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


def test_revised_sums_of_many_blocks_stay_near_released_ones() -> None:
    """What smoothing takes from each block of a stream that bends one way adds up; its noise does not."""
    n = 2**20
    values = np.sort(np.random.default_rng(2).exponential(10.0, n)).clip(0.0, 100.0)
    release = Adaptive(1.0, 100.0, threshold=Fixed(100.0), max_range=n, seed=2).release(values)
    starts = np.random.default_rng(3).integers(0, n - n // 8, 300)
    true = np.diff(np.concatenate([[0.0], np.cumsum(values)])[[starts, starts + n // 8]], axis=0)[0]
    answers = (
        release.sum(starts, starts + n // 8, revised=True),
        release._error_bars(starts, starts + n // 8).centre,
    )
    revised, plain = (np.sqrt(np.mean(np.square(answer - true))) for answer in answers)
    assert revised < 4.0 * plain


def same_place(one: Adaptive, two: Adaptive) -> bool:
    return one._machine.pack(one._state) == two._machine.pack(two._state)


@pytest.mark.parametrize("closing", CLOSINGS)
@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 3000), max_size=10), holdout=st.sampled_from([0, 1, 15, 16, 600]))
def test_any_chunking_gives_the_same_output_and_place(closing: str, cuts: list[int], holdout: int) -> None:
    values = stream(3000)
    options = {"closing": closing, "holdout": holdout, **({} if holdout else {"threshold": Fixed(20.0)})}
    whole = make(**options)
    out = whole.publish(values)
    online = make(**options)
    parts = [online.publish(part) for part in np.split(values, sorted(cuts))]
    assert np.array_equal(np.concatenate(parts), out)
    assert np.array_equal(make(**options).release(values).values, out)
    assert same_place(whole, online)
    assert whole.n_published == out.size == 3000 - holdout


def test_values_one_by_one_and_as_other_types() -> None:
    values = np.floor(stream(1500))
    whole = make().publish(values)
    online = make()
    assert np.array_equal(np.concatenate([online.publish([v]) for v in values]), whole)
    assert np.array_equal(make().publish(values.astype(np.int32)), whole)
    assert np.array_equal(make().publish(values.astype(np.float32)), whole)


def test_long_chunks_of_other_types_pass_the_warm_up_in_pieces() -> None:
    values = np.floor(stream(40_000) * 2.0)
    options = {"holdout": 300_000, "epsilon": 0.5, "max_range": 2**14}
    long = np.tile(values, 9)
    assert np.array_equal(make(**options).publish(long.astype(np.float32)), make(**options).publish(long))


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


@pytest.mark.parametrize("closing", CLOSINGS)
@pytest.mark.parametrize("power", [-40, -3, 1, 30])
def test_units_change_nothing(closing: str, power: int) -> None:
    """Values, bound, threshold and resolution times a power of two: everything exactly times it."""
    values, unit = stream(4000), 2.0**power
    options = {"closing": closing, "seed": None}
    one = fixed(bound=200.0, key=bound_key(4), **options).release(values)
    scaled = fixed(20.0 * unit, bound=200.0 * unit, resolution=2.0**-16 * unit, key=bound_key(4), **options)
    two = scaled.release(values * unit)
    assert np.array_equal(two.values, one.values * unit)
    assert np.array_equal(two.revised, one.revised * unit)
    assert two.threshold == one.threshold * unit
    starts = np.arange(0, 3000, 7)
    answers = [r.sum(starts, starts + 500, revised=True) for r in (one, two)]
    assert np.array_equal(answers[1], answers[0] * unit)


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


def test_a_release_states_the_highest_theta_where_a_jump_was_taken_back() -> None:
    """The scale of the noise of all blocks, for intervals, is at most that of the highest one."""
    values = np.random.default_rng(1).exponential(np.repeat([1.0, 20_000.0], [4096, 60_000]))
    publisher = make(epsilon=4.0, bound=1e6, threshold=ScaleFree(), holdout=4096, max_range=65_536)
    release = publisher.release(values)
    thetas = release.revision.thetas
    assert publisher.threshold < release.threshold, "or the test shows nothing"
    assert release.threshold == pytest.approx(thetas.max(), rel=1e-6)
    assert publisher.threshold == pytest.approx(thetas[-1], rel=1e-6)
    # No interval knows a block's sum better than its noise lets.
    edges = release.revision.edges
    noises = np.sqrt(2.0) / 4.0 * thetas[:-1]
    assert (release.std_error(edges[:-1], edges[1:], revised=True) > 0.99 * noises).all()
    # Among many streams it is the same release.
    options = {"threshold": ScaleFree(), "holdout": 4096, "max_range": 65_536}
    many = release_many([values], 4.0, 1e6, perturber=Blocks(), smoother=None, **options, seed=1)[0]
    key = fastdp.Key.from_seed(1).of_stream(0)
    own = make(epsilon=4.0, bound=1e6, **options, seed=None, key=key).release(values)
    assert many.threshold == own.threshold > own.revision.thetas[-1] * 1.01, "or the test shows nothing"
    # A copy goes on from the same thresholds.
    copy = Adaptive.from_bytes(publisher.to_bytes(bytes(32)), bytes(32))
    more = np.full(5000, 30_000.0)
    assert np.array_equal(copy.publish(more), publisher.publish(more))


def test_theta_stays_where_it_may_not_rise() -> None:
    values = growing()
    kept = {"perturber": Blocks(rising=False)}
    for options in ({"threshold": Fixed(20.0)}, {"threshold": Fixed(20.0), "holdout": 0}, kept):
        publisher = make(epsilon=8.0, bound=1000.0, **options)
        publisher.publish(values)
        assert publisher.threshold == publisher._progress.theta_steps * publisher.resolution
        assert not any("theta rises" in step for step in publisher.guarantee.derivation)
    rising = make(epsilon=8.0, bound=1000.0).guarantee
    assert any("theta rises" in step for step in rising.derivation)
    assert rising.epsilon == 8.0


def test_intervals_hold_where_theta_rose() -> None:
    values = growing()
    release = make(epsilon=8.0, bound=1000.0).release(values)
    assert release.threshold > release.revision.threshold
    body = np.minimum(values[600:], release.threshold)
    prefix = np.concatenate([[0.0], np.cumsum(body)])
    generator = np.random.default_rng(1)
    starts = generator.integers(0, 3000, 300)
    stops = starts + generator.integers(500, 4000, 300)
    low, high = release.interval(starts, stops, revised=True)
    truth = prefix[stops] - prefix[starts]
    assert np.mean((low <= truth) & (truth <= high)) > 0.9


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


def test_a_focus_sets_the_pace() -> None:
    values = stream(20_000)
    short, long = (make(threshold=Fixed(20.0), focus=focus, epsilon=0.5).release(values) for focus in (2, 1024))
    assert short.revision.exponents.mean() < long.revision.exponents.mean() - 0.2
    assert Blocks(focus="longest").query_lengths(1024) == pytest.approx([1024.0] * 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"focus": 0}, "focus = 0"),
        ({"focus": 2000}, r"focus = 2000: expected at most max_range = 1024"),
        ({"focus": (5, 2)}, "the shortest length first"),
        ({"focus": (5, 2, 1)}, "focus has 3 entries"),
        ({"focus": "short"}, "focus"),
    ],
)
def test_what_a_focus_may_be(options: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make(**options)


@pytest.mark.parametrize("holdout", [0, 600])
@pytest.mark.parametrize("epsilon", [0.05, 2.0])
def test_accounts(holdout: int, epsilon: float) -> None:
    values = stream()
    released = {}
    for closing in CLOSINGS:
        publisher = (make if holdout else fixed)(closing=closing, epsilon=epsilon, seed=None, key=bound_key(4))
        released[closing] = publisher.release(values), publisher
    revisions = [release.revision for release, _ in released.values()]
    assert all(np.array_equal(r.totals, revisions[0].totals) for r in revisions), "only what is published differs"
    assert all(np.array_equal(r.exponents, revisions[0].exponents) for r in revisions)
    edges, totals = revisions[0].edges, revisions[0].totals * revisions[0].threshold
    theta = revisions[0].threshold
    tolerance = {"rel": 1e-9, "abs": 1e-9 * theta * values.size}
    sums = {name: np.add.reduceat(r.values[: edges[-1]], edges[:-1]) for name, (r, _) in released.items()}
    # A spike: sums over whole blocks are the released sums, and all other values the prediction.
    assert sums["spike"] == pytest.approx(totals, **tolerance)
    last = 1 << int(revisions[0].memory["last"][0])
    for begin, end in itertools.pairwise(edges):
        quiet = released["none"][0].values[begin:end]
        assert np.ptp(quiet) == 0.0
        assert 0.0 <= quiet[0] <= theta
        assert np.array_equal(released["spike"][0].values[begin : end - 1], quiet[:-1])
        # Spread: the same behind a quarter of the longer of two blocks.
        quarter = min(end - begin, max(max(int(end - begin), last) >> int(b.CATCH_UP), 1))
        last = int(end - begin)
        assert np.array_equal(released["spread"][0].values[begin + quarter : end], quiet[quarter:])
        assert np.ptp(released["spread"][0].values[begin : begin + quarter]) == 0.0
    # What is published up to a block's end lacks what the next block will make up for.
    online = (make if holdout else fixed)(epsilon=epsilon, seed=None, key=bound_key(4))
    online.publish(values[:holdout])
    out = []
    for j, (begin, end) in enumerate(itertools.pairwise(edges)):
        out.append(online.publish(values[holdout + begin : holdout + end]))
        carry = float(online._progress.smoother["carry"][0]) * theta
        assert np.concatenate(out).sum() + carry == pytest.approx(totals[: j + 1].sum(), **tolerance)
    assert released["none"][1]._progress.smoother["carry"][0] == 0.0


@pytest.mark.parametrize("closing", CLOSINGS)
def test_the_hold_out_and_its_warm_up_are_never_published(closing: str) -> None:
    """Nothing leaves before its end, and its values show in what follows only as a level."""
    values = stream(2000)
    publisher = make(closing=closing)
    assert publisher.holdout == 600
    assert publisher.composition.warm_up == 64
    for begin in range(0, 600, 50):
        assert publisher.publish(values[begin : begin + 50]).size == 0
        assert publisher.n_published == 0
    assert publisher.publish(values[600:601]).size == 1
    assert make(closing=closing).publish(values[:1200]).size == 600
    assert make(closing=closing).release(values[:601]).values.size == 1
    with pytest.raises(DataError):
        make(closing=closing).release(values[:600])


def test_the_warm_up_is_not_looked_at_by_the_threshold_and_begins_the_level() -> None:
    first, second = stream(700), stream(700)
    second[536:600] = 0.0
    one, two = make(epsilon=50.0), make(epsilon=50.0)
    outputs = [p.publish(values) for p, values in ((one, first), (two, second))]
    # The first one: it may rise from there.
    assert one._progress.theta_steps == two._progress.theta_steps
    assert outputs[0][0] > 5.0 * max(outputs[1][0], 0.1)
    # Nor does the warm-up leave an account open.
    online = make(epsilon=50.0)
    online.publish(first[:600])
    assert online._progress.smoother["carry"][0] == online._progress.smoother["extra"][0] == 0.0
    assert outputs[0][0] == online._progress.smoother["level"][0] * online.threshold


@pytest.mark.parametrize("holdout", [0, 600])
@pytest.mark.parametrize("n", [700, 1111, 6000])
def test_the_stream_seen_again(holdout: int, n: int) -> None:
    release = (make if holdout else fixed)().release(stream(n))
    count, revised, edges = n - holdout, release.revised, release.revision.edges
    assert revised.size == count
    lengths = np.diff(edges)
    assert np.add.reduceat(revised[: edges[-1]], edges[:-1]) == pytest.approx(lengths * release.revision.means)
    levels = release.revision._smoothed.levels
    rest = np.full(count - edges[-1], levels[-1])
    assert revised[edges[-1] :] == pytest.approx(rest, rel=1e-9, abs=1e-7), "the open block is at the last level"
    generator = np.random.default_rng(n)
    starts = generator.integers(0, count + 1, 300)
    stops = generator.integers(starts, count + 1)
    sums = np.concatenate([[0.0], np.cumsum(revised)])
    answers = release.sum(starts, stops, revised=True)
    assert answers == pytest.approx(sums[stops] - sums[starts], rel=1e-9, abs=1e-7)
    flat = np.concatenate([[0.0], np.cumsum(release.values)])
    assert release.sum(starts, stops) == pytest.approx(flat[stops] - flat[starts], rel=1e-9, abs=1e-7)
    assert release.sum(0, 0, revised=True) == 0.0


def test_looking_back_is_nearer_to_the_truth() -> None:
    """Seed after seed."""
    better = 0
    for seed in range(8):
        values = stream(20_600, seed)
        release = make(epsilon=0.5, max_range=2**13, seed=seed, closing="spike").release(values)
        truth = np.concatenate([[0.0], np.cumsum(np.minimum(values[600:], release.threshold))])
        starts = np.arange(0, 19_000, 83)
        true = truth[starts + 1000] - truth[starts]
        now, later = (release.sum(starts, starts + 1000, revised=r) for r in (False, True))
        better += np.mean((later - true) ** 2) < np.mean((now - true) ** 2)
    assert better == 8


def test_blocks_find_the_pace_of_the_stream() -> None:
    """Long where nothing happens, short where much does, and again long."""
    n = 60_000
    calm, wild = np.full(n, 10.0), 10.0 + 9.0 * np.sign(np.sin(np.arange(n) / 200.0))
    publisher = fixed(epsilon=2.0, max_range=2**16)

    def length_after(values: np.ndarray) -> float:
        publisher.publish(values)
        return 2.0 ** publisher._progress.smoother["exponent"][0]

    lengths = [length_after(values) for values in (calm, wild, np.tile(calm, 8))]
    assert lengths[0] >= 1024
    assert lengths[1] <= 128
    assert lengths[2] >= 1024


def test_the_guarantee_and_the_parts() -> None:
    guarantee = make(seed=None).guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.arithmetic) == (2.0, 0.0, "exact")
    assert guarantee.adjacency == "replace one value"
    text = "\n".join(guarantee.derivation)
    assert "blocks are disjoint" in text
    assert "threshold (epsilon = 2)" in text
    assert not guarantee.simulated
    assert make().guarantee.simulated
    assert fixed(seed=None).guarantee.epsilon == 2.0
    parts = fastdp.StreamPublisher(
        threshold=Fixed(20.0),
        perturber=fastdp.perturbers.Blocks("spike"),
        epsilon=2.0,
        bound=200.0,
        holdout=0,
        max_range=1024,
        resolution=2.0**-16,
        seed=4,
    )
    assert np.array_equal(parts.publish(stream()), fixed(closing="spike").publish(stream()))
