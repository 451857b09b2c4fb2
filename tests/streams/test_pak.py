"""PAK whole and its moving averages: against the oracles, levels, guarantee, errata, unclipped values."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.local import Distribution, Hybrid
from fastdp.local.square_wave import range_errors
from fastdp.noise import sampler, words
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile, SmoothQuantile, quantile
from tests.noise_values import bound_key, tree_key
from tests.oracles import binary_counter as oracle
from tests.oracles import moving_average as moving_average


def stream(n: int) -> np.ndarray:
    return np.floor(np.random.default_rng(101).gamma(2.0, 6.0, n) * 4) / 4


def make(**options) -> fastdp.PAK:
    settings = {"epsilon": 1.0, "delta": 1e-9, "bound": 100, "length": 700, "holdout": 200, "seed": 6}
    return fastdp.PAK(**{**settings, **options})


def node_noise(key: Key, levels: int, theta_steps: int, epsilon: float, length: int):
    """Of the tree behind the hold-out, from the publisher's key."""
    distribution = sampler.laplace_distribution(Fraction(theta_steps * levels) / Fraction(epsilon))
    draws = []
    for height in range(levels):
        draws.append(np.empty((length >> height) + 1, np.int64))
        sampler.fill(draws[-1], distribution, tree_key(key, theta_steps), StreamId(Purpose.COUNTER, height))
    return lambda height, k: int(draws[height][k])


def test_nan_of_a_rule_of_ones_own_clips_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = make(threshold=NoisyMax())
    monkeypatch.setattr(type(NoisyMax().start(publisher._machine.task)), "choose", lambda *_: math.nan)
    publisher.publish(stream(201))
    assert publisher.threshold == 100


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 9, 63, 64, 65, 500])
@pytest.mark.parametrize("resolution", [None, 0.25, 60.0, 100.0])
def test_the_tree_equals_the_papers(n: int, resolution: float | None) -> None:
    """Any epsilon, down to a grid of a single step: integer noise of just the scale that epsilon asks for."""
    values = stream(n)
    for theta, epsilon in ((20.0, 1.0), (100.0, 1e-3), (100.0, 0.1), (100.0, 30.0), (100.0, 1e6)):
        publisher = make(threshold=Fixed(theta), length=n, epsilon=epsilon, resolution=resolution)
        out, step, levels = publisher.publish(values), publisher.resolution, n.bit_length()
        theta_steps = round(publisher.threshold / step)
        assert theta_steps == max(1, int(theta / step))
        steps = np.minimum(np.rint(values / step), theta_steps).astype(np.int64).tolist()
        expected = oracle.running_sums(steps, node_noise(publisher._key, levels, theta_steps, epsilon, n))
        assert out.tolist() == [e * step for e in expected]
        assert publisher.running_sum == out[-1]
        # Levels share epsilon, and one value moves a node by at most theta.
        assert levels * Fraction(theta_steps) / publisher._state.tree.distribution.scale == Fraction(epsilon)
        with pytest.raises(DataError, match=f"expected at most 0, the stream has {n}"):
            publisher.publish([1.0])


def test_levels_for_a_power_of_two() -> None:
    """A value enters floor(log2 N) + 1 nodes; with log2 N the first of 8 values would cost 4/3 epsilon."""
    for n, levels in ((7, 3), (8, 4), (9, 4), (2**20, 21)):
        text = "\n".join(make(threshold=Fixed(20.0), length=n).guarantee.derivation)
        assert f"at most {levels} nodes" in text
        entered = max(sum(1 for j in range(n.bit_length()) if (i | ((1 << j) - 1)) + 1 <= n) for i in (0,))
        assert entered == levels


def test_the_guarantee_adds_up() -> None:
    guarantee = make(seed=None).guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.arithmetic) == (1.0, 1e-9, "real")
    exact = make(seed=None, threshold=NoisyMax()).guarantee
    assert (exact.epsilon, exact.delta, exact.arithmetic) == (1.0, 0.0, "exact")
    assert make(seed=None, threshold=Fixed(1.0)).guarantee.epsilon == 1.0
    assert make().guarantee.simulated
    for epsilon in (0.1, 0.3, 0.7, 1.1):
        for share in (0.1, 0.35, 0.85, 0.9):
            assert make(epsilon=epsilon, share=share, threshold=NoisyMax()).guarantee.epsilon <= epsilon


def test_the_holdout_is_forgotten_and_delta_is_the_users() -> None:
    publisher = make(threshold=NoisyMax())
    publisher.publish(stream(300))
    assert publisher._state.lag.size == 0
    with pytest.raises(ParameterError, match=r"delta = 1e-12: expected at least"):
        make(delta=1e-12, threshold=fastdp.thresholds.SmoothQuantile())
    with pytest.raises(ParameterError, match=r"delta = 0.0.*Cauchy"):
        make(delta=0.0)
    assert make(delta=0.0, threshold=fastdp.thresholds.SmoothQuantile(noise="cauchy")).guarantee.delta == 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 1e14, "resolution": 100.0}, "noise of scale"),
        ({"epsilon": 1e14, "threshold": Fixed(100.0), "resolution": 100.0}, "noise of scale"),
        ({"epsilon": 1e300}, r"expected a smaller epsilon.*the rest of epsilon = 1e\+300"),
        ({"epsilon": 1e-16}, "epsilon = .*expected a larger epsilon"),
        ({"epsilon": 1e-6, "resolution": 1e-8}, "resolution = 1e-08: noise of scale"),
        ({"resolution": 101.0}, "resolution = 101.0: expected at most the bound"),
        ({"delta": 0.02}, "kappa = .* is not positive"),
    ],
)
def test_what_no_noise_can_do_is_refused_at_once(options: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make(**options)


def test_release_answers_ranges_from_running_sums() -> None:
    values = np.random.default_rng(4).gamma(2.0, 8.0, 3000)
    options = {"epsilon": 1.0, "delta": 1e-6, "bound": 200.0, "length": 3000, "holdout": 1000, "seed": 3}
    sums = fastdp.PAK(**options).publish(values)
    release = fastdp.PAK(**options).release(values)
    assert release.offset == 1000
    assert len(release) == 2000
    starts, stops = np.array([0, 5, 100, 1999]), np.array([2000, 6, 1900, 1999])
    assert release.sum(starts, stops) == pytest.approx(sums[stops] - sums[starts], abs=1e-6)
    plain = fastdp.PAK(**{**options, "threshold": fastdp.thresholds.Fixed(50.0)}).release(values)
    assert plain.offset == 0
    assert plain.sum(0, 3000)[0] == pytest.approx(values.clip(0, 50).sum(), rel=0.2)
    with pytest.raises(StateError, match="average=None"):
        fastdp.PAK(**options, average="all").release(values)
    with pytest.raises(DataError, match="more than the hold-out"):
        fastdp.PAK(**options).release(values[:1000])
    publisher = fastdp.PAK(**options)
    publisher.publish(values[:5])
    with pytest.raises(StateError, match="has seen 5"):
        publisher.release(values)


def test_a_choice_and_the_sum_of_its_holdout_have_noise_of_that_holdout() -> None:
    """Another hold-out under the same key meets independent noise, even where the rule's summary is the same."""
    values = stream(200)
    drawn: list[bytes] = []
    for lag in (values, values[::-1].copy(), values):
        publisher = make(threshold=NoisyMax(), epsilon=0.05, share=0.8)
        with pytest.MonkeyPatch.context() as patch:
            real, of_sums = sampler.fill, []

            def fill(out, distribution, key, stream, start=0, real=real, of_sums=of_sums) -> None:
                real(out, distribution, key, stream, start)
                if stream.purpose in (Purpose.THRESHOLD, Purpose.LAG):
                    drawn.append(key.reveal())
                if stream.purpose is Purpose.LAG:
                    of_sums += [distribution.scale, int(out[0])]

            patch.setattr(sampler, "fill", fill)
            patch.setattr(sampler, "fill_pieces", sampler.fill_one_by_one)
            assert publisher.publish(lag[:199]).size == 0
            assert publisher.threshold is None
            first, theta, step = publisher.publish(lag[199:]), publisher.threshold, publisher.resolution
        assert first.size == 1
        scale, noise = of_sums
        assert scale == Fraction(round(theta / step)) / Fraction(publisher._machine.epsilon_lag)
        assert publisher._machine.epsilon_lag == pytest.approx(0.05 * 0.2)
        assert first[0] == (int(np.rint(np.minimum(lag, theta) / step).sum()) + noise) * step
    choices, sums = drawn[::2], drawn[1::2]
    for keys in (choices, sums):
        assert keys[0] == keys[2] != keys[1]


def test_the_grid_has_room_for_the_running_sums_of_a_longer_holdout() -> None:
    """Their tree has more levels than that of the other values."""
    with pytest.raises(ParameterError, match="no grid fits"):
        fastdp.PAK(epsilon=2.0**-47, delta=1e-6, bound=10.0, length=1000, holdout=990, lag_sums=True)


def test_clipping_at_r_tau() -> None:
    plain, wide = (
        make(threshold=NoisyMax(), tail_factor=factor, seed=None, key=bound_key(6)) for factor in (1.0, 1.5)
    )
    for publisher in (plain, wide):
        publisher.publish(stream(700))
    assert wide.threshold == pytest.approx(1.5 * plain.threshold)
    capped = make(threshold=NoisyMax(), tail_factor=100.0)
    capped.publish(stream(700))
    assert capped.threshold == 100


LENGTH, HOLDOUT = 400, 150


def counts(n: int = LENGTH) -> np.ndarray:
    return np.floor(np.random.default_rng(103).gamma(2.0, 6.0, n) * 4) / 4


def make_average(**options) -> fastdp.PAK:
    settings = {"epsilon": 1.0, "delta": 1e-6, "bound": 100, "length": LENGTH, "holdout": HOLDOUT, "seed": 6}
    return fastdp.PAK(**{**settings, **options})


@pytest.mark.parametrize("lag_sums", [False, True])
@pytest.mark.parametrize("average", ["all", 1, 2, 7, 64, 149, 150, 151, 250, 399, 400])
def test_averages_equal_the_oracles(average: int | str, lag_sums: bool) -> None:
    values = counts()
    sums = make_average(lag_sums=lag_sums, seed=None, key=bound_key(6)).publish(values)
    by_position = {LENGTH - sums.size + 1 + i: s for i, s in enumerate(sums.tolist())}
    expected = moving_average.averages(by_position, None if average == "all" else average)
    publisher = make_average(lag_sums=lag_sums, average=average, seed=None, key=bound_key(6))
    assert np.allclose(publisher.publish(values), expected, rtol=1e-13, atol=1e-12)
    assert publisher.running_sum == sums[-1]


DELTA = 1e-9


def make_unclipped(**options) -> fastdp.PAK:
    settings = {"epsilon": 0.1, "delta": DELTA, "bound": 100, "length": 700, "holdout": 200, "seed": 6, "clip": False}
    return fastdp.PAK(**{**settings, **options})


def test_noise_follows_tau_and_values_the_bound() -> None:
    """Beyond the bound tau buys nothing but noise; values are what they would be with the plain tree."""
    values = stream(700)
    values[[300, 400]] = 150.0  # beyond the public bound: cut off at it
    publisher = make_unclipped()
    out = publisher.publish(values)
    theta = publisher.threshold
    assert theta is not None
    assert theta > 10 * publisher.bound
    step = publisher.resolution
    per_unit = round(1 / step)
    steps = (np.minimum(values[200:], 100.0) * per_unit).astype(np.int64).tolist()
    noise = node_noise(publisher._key, (500).bit_length(), round(theta / step), 0.1, 500)
    rises = np.array(oracle.running_sums(steps, noise), dtype=np.float64) * step
    assert np.allclose(out[1:] - out[0], rises, rtol=1e-12)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("rule", [PAKQuantile, SmoothQuantile])
def test_the_grid_holds_the_highest_tau_there_is(rule: type, noise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word with the largest noise, and the largest smooth sensitivity that the bound allows."""
    publisher = make_unclipped(threshold=rule(p=0.5, delta=DELTA, noise=noise, clip=False), tail_factor=1.5)
    monkeypatch.setattr(quantile, "word_at", lambda *_: 0)
    # Half zeros, half the bound: the quantile's smooth sensitivity is the bound itself.
    values = np.resize([0.0, 100.0], 200)
    publisher.publish(values)
    highest = publisher._machine.grid.bound
    assert publisher.threshold is not None
    assert 0.95 * highest < publisher.threshold < highest
    plain = make_unclipped(threshold=publisher._machine.threshold)
    plain.publish(values)
    assert publisher.threshold == pytest.approx(1.5 * plain.threshold, rel=1e-6), "not cut off by the grid's end"
    levels = (500).bit_length()
    scale = publisher.threshold / publisher.resolution * levels / 0.1
    assert scale <= 2**56
    total = publisher._machine.bound_steps * 700 + 2 * levels * 64 * scale
    assert total <= 2**62
    assert words.word_at is not quantile.word_at


@pytest.mark.parametrize(
    "rule", [NoisyMax(), Fixed(100.0), PAKQuantile(delta=DELTA), SmoothQuantile(noise="cauchy", clip=False)]
)
def test_rules_without_an_end_or_with_one_of_their_own_are_refused(rule: object) -> None:
    with pytest.raises(ParameterError, match=r"threshold = .*expected PAKQuantile or SmoothQuantile that"):
        make_unclipped(threshold=rule)


@pytest.mark.parametrize(
    ("options", "words_said"),
    [
        ({"epsilon": 1e-7}, r"clip = False: r tau may reach .* expected at most the bound, 100"),
        ({"epsilon": 1e-3, "length": 2**33, "resolution": 1e-4}, r"r tau may reach .*at most 2\^62 fit"),
        ({"resolution": 1e-9}, r"clip = False: r tau may reach .* resolution = 1e-09"),
        ({"delta": 0.02}, r"beta = 0.006: kappa = .* is not positive"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(options: dict, words_said: str) -> None:
    with pytest.raises(ParameterError, match=words_said):
        make_unclipped(**options)


def mean_over_ranges(r: int, power: int) -> Fraction:
    """Of length^power, over all r (r + 1) / 2 ranges within r values."""
    ranges = [stop - start for start in range(r) for stop in range(start + 1, r + 1)]
    assert len(ranges) == r * (r + 1) // 2
    return Fraction(sum(length**power for length in ranges), len(ranges))


def test_the_objective_has_the_mean_square() -> None:
    """All values are near 100: clipped at theta, a range of j values loses about j (100 - theta)."""
    r, frequencies = 300, np.zeros(100)
    frequencies[-1] = 1.0
    near = Distribution(frequencies, 0.0, 100.0, "em", 1, True, 0.0, 1)
    candidates, errors = range_errors(near, r, 1.0)
    bias = errors - r / 3 * Hybrid(1.0).worst_variance * (candidates / 2) ** 2
    expected = float(mean_over_ranges(r, 2)) * (99.5 - candidates) ** 2
    assert bias[:90] == pytest.approx(expected[:90], rel=0.011)


def test_the_sum_of_the_hold_out_must_be_clipped() -> None:
    """PAK Mechanism 1, line 2: noise tau / eps_2 on values up to B.

    All of the first m values are 0, or one of them is B.  If all are 0, tau is at most some thousandths of B, so that
    the noise of their sum stays below B / 2; with one B the sum exceeds B / 2 at least half of the time: a delta
    above 0.4 in place of 2^-20.
    """
    m, bound, epsilon, delta, beta = 65_536, 1.0, 1.0, 2.0**-20, 0.006
    above = m - math.ceil(0.995 * m)
    first, second = 0.85 * epsilon, 0.15 * epsilon
    a, b, g = first / 2, first / (2 * math.log(1 / delta)), -math.log(2 * beta)
    kappa = 1 / (1 - math.expm1(b) * g / a)
    # Zeros alone: the largest weight of a pair that reaches the bound is that of k = m - P.
    tau_scale = kappa * bound * math.exp(-b * above) / a
    # tau <= (g + 40) tau_scale but for e^-40 / 2; then P[sum > B / 2] is at most half of e^(-eps_2 B / (2 tau)).
    zeros = math.exp(-40) / 2 + math.exp(-second * bound / 2 / ((g + 40) * tau_scale)) / 2
    # One value B: the noise is symmetric about B, so P[sum > B / 2] >= 1/2.
    assert 0.5 - math.exp(epsilon) * zeros > 0.4 > 1e5 * delta


@pytest.mark.parametrize("lag_sums", [False, True])
def test_the_sum_of_the_hold_out_is_clipped(lag_sums: bool) -> None:
    """The same noise, one value 1,000 in place of 0, tau = 10: the sum moves by tau."""
    values = np.zeros(100)
    sums = []
    for last in (0.0, 1000.0):
        values[-1] = last
        publisher = fastdp.PAK(
            1.0, 1e-6, 1000.0, 200, holdout=100, threshold=Fixed(10.0), lag_sums=lag_sums, resolution=1.0, seed=1
        )
        sums.append(publisher.publish(values))
    moved = sums[1] - sums[0]
    assert moved[-1] == 10.0
    assert moved[:-1].tolist() == [0.0] * (moved.size - 1)


@pytest.mark.parametrize("window", [1, 4, 64, 512])
def test_nodes_that_two_running_sums_share_cancel(window: int) -> None:
    counts = [moving_average.nodes_in_the_difference(t, window) for t in range(window + 1, 4097)]
    assert max(counts) <= 2 * 12 + 1
    assert np.mean(counts) <= np.log2(window) + 2
