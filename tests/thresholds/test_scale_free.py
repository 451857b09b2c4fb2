"""ScaleFree: scores against the oracle, exact privacy, equivariance, accuracy, short hold-outs."""

from __future__ import annotations

import itertools
import math
import re
import warnings
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import AccuracyWarning, ParameterError
from fastdp.noise.key import Key
from fastdp.noise.sampler import laplace_distribution
from fastdp.thresholds import NoisyMax, ScaleFree, Threshold, ThresholdTask, scale_free
from fastdp.thresholds.base import draw_noise
from tests import stat
from tests.oracles import scale_free as oracle

R = 2**20


def task(epsilon: float = 0.5, holdout: int = 1000, bound: float = 200.0, **options: Any) -> ThresholdTask:
    facts = {"max_range": 4096, "resolution": 1.0, "noise_constant": 100.0} | options
    return ThresholdTask(epsilon, bound, holdout, **facts)


def chooser_of(facts: ThresholdTask, values: Any, rule: Threshold | None = None) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        chooser = (rule or ScaleFree()).start(facts)
    chooser.observe(np.asarray(values, np.float64))
    return chooser


# Scores.

budgets = st.floats(0.01, 4.0)
holdouts = st.lists(st.integers(0, 300), min_size=1, max_size=60)


every_length = st.sampled_from(["longest", "all"])


#: How many values lie above the lowest candidate, as far as is released; None: all of them.
released_numbers = st.none() | st.integers(0, 60)


@given(
    holdouts,
    st.integers(1, 300),
    budgets,
    budgets,
    st.integers(1, 2000),
    st.floats(0.1, 500.0),
    every_length,
    released_numbers,
)
def test_scores_are_the_oracles(
    values: list[int],
    top: int,
    epsilon: float,
    noise: float,
    longest: int,
    constant: float,
    lengths: Any,
    released: int | None,
) -> None:
    facts = task(epsilon, len(values), float(top), max_range=longest, publish_epsilon=noise, noise_constant=constant)
    chooser = chooser_of(facts, values, ScaleFree(lengths=lengths))
    clipped = [min(v, top) for v in values]
    assert chooser.candidates.tolist() == oracle.candidates(top)
    expected = oracle.scores(clipped, top, chooser.unit, epsilon, noise, longest, constant, lengths, released)
    # The constant's logarithms round: a whole score may differ by one at a border.
    assert np.abs(chooser.scores(released) - np.array(expected)).max() <= 1
    assert (np.diff(chooser.candidates) > 0).all()


@given(holdouts, st.data(), budgets, st.integers(1, 2000), every_length, released_numbers)
def test_one_value_moves_all_scores_one_way_by_at_most_the_sensitivity(
    values: list[int], data: st.DataObject, epsilon: float, longest: int, lengths: Any, released: int | None
) -> None:
    place = data.draw(st.integers(0, len(values) - 1))
    other = [*values]
    other[place] = data.draw(st.integers(0, 300))
    facts = task(epsilon, len(values), 300.0, max_range=longest)
    one, two = (chooser_of(facts, held, ScaleFree(lengths=lengths)) for held in (values, other))
    moved = two.scores(released) - one.scores(released)
    assert np.abs(moved).max() <= 2 * one.unit
    assert (moved >= 0).all() or (moved <= 0).all()
    assert abs(two.above_lowest - one.above_lowest) <= 1


def test_some_value_moves_a_score_by_the_whole_sensitivity() -> None:
    facts = task(2.0, 3, 8.0, max_range=100)
    one, two = chooser_of(facts, [0, 8, 8]), chooser_of(facts, [8, 8, 8])
    assert np.abs(two.scores() - one.scores()).max() == 2 * one.unit


# Privacy, exactly.


@pytest.mark.parametrize("noise", ["laplace", "exponential"])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(("longest", "lengths"), [(20, "longest"), (60, "longest"), (20, "all")])
def test_no_ratio_exceeds_epsilon_and_some_comes_near(
    noise: Any, longest: int, lengths: Any, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All adjacent hold-outs of three values over six candidates; 20 and 60: two counts, and one.

    The number of values above the lowest candidate is released for hold-outs that are longer, so it is forced here.
    """
    if counted:
        monkeypatch.setattr(scale_free, "LEAST_COUNTED", 0.0)
    epsilon, scale = 1.5, 4
    facts = task(epsilon, 3, 6.0, max_range=longest, noise_constant=6.0)
    rule = ScaleFree(lengths=lengths)
    unit = chooser_of(facts, [], rule).unit
    assert (chooser_of(facts, [], rule).count_epsilon > 0.0) is counted

    @lru_cache
    def winners(holdout: tuple[int, ...], released: int, factor: float) -> np.ndarray:
        chooser = chooser_of(facts, holdout, rule)
        # Units of 2^-18 of the real one keep the sums over the noise short; the scores round as they would there.
        scores = np.rint(chooser.scores(released) / (unit / scale)).astype(int)
        wide = factor * float(chooser.distribution.scale) / (unit / scale)
        return oracle.winner_probabilities(scores, noise, wide, int(60 * wide))

    def worst(factor: float) -> float:
        """Of the number of values above the lowest candidate and of the winner behind it, noise times ``factor``."""
        largest = 0.0
        for held in itertools.combinations_with_replacement((0, 2, 3, 6), 3):
            for place, value, released in itertools.product(range(3), (0, 2, 3, 6), range(4)):
                other = (*held[:place], value, *held[place + 1 :])
                one, two = (chooser_of(facts, values, rule) for values in (held, other))
                count = one.count_epsilon * abs(one.above_lowest - two.above_lowest) / factor
                here, there = (winners(tuple(sorted(values)), released, factor) for values in (held, other))
                assert here.sum() == pytest.approx(1.0, abs=1e-9)
                largest = max(largest, count + float(np.abs(np.log(here / there)).max()))
        return largest

    # Rounding to coarse units may add one to the sensitivity's 8.
    assert 0.5 * epsilon < worst(1.0) <= 1.125 * epsilon
    assert worst(0.5) > 1.125 * epsilon, "noise halved on purpose must break the claim"


@pytest.mark.parametrize(("epsilon", "spent"), [(1.0, 0.05), (30.0, 600 / 500)])
def test_the_number_above_the_lowest_candidate_has_the_noise_of_its_share(epsilon: float, spent: float) -> None:
    """Draw by draw: 4,000 choices from one hold-out."""
    facts = task(epsilon, 500, 64.0, max_range=100)
    chooser = chooser_of(facts, [0] * 300 + [1] * 100 + [9] * 100)
    assert (chooser.candidates[0], chooser.above_lowest) == (1, 100)
    assert chooser.count_epsilon == spent
    assert Fraction(chooser.count_epsilon) + 2 * chooser.unit / chooser.distribution.scale <= Fraction(epsilon)
    scale = 1 / chooser.count_epsilon
    found = chooser.released_above(Key.from_seed(3), 4000)
    noise = draw_noise(laplace_distribution(1 / Fraction(chooser.count_epsilon)), 4000, 1, Key.from_seed(3), 1)
    expected = [oracle.filled(100, float(x), scale, 500) for x in noise[:, 0]]
    assert found.tolist() == pytest.approx(expected)
    assert np.mean(np.abs(noise)) == pytest.approx(1.0 / math.sinh(1.0 / scale), rel=0.1)
    # A shorter hold-out would have too few noise scales.
    short = chooser_of(task(epsilon, int(3.9 / (0.05 * epsilon)), 64.0), [0] * 5)
    assert (short.count_epsilon, float(short.distribution.scale)) == (0.0, 2 * short.unit / epsilon)
    assert short.choose(Key.from_seed(1)) > 0.0


@pytest.mark.statistical
@pytest.mark.parametrize("noise", ["laplace", "exponential"])
def test_choices_follow_the_exact_distribution(noise: Any) -> None:
    epsilon, trials = 1.0, 20_000
    facts = task(epsilon, 7, 6.0, max_range=20, noise_constant=6.0, resolution=1.0)
    # The winner, which too few values resolve.
    chooser = ScaleFree(noise).chooser(facts, above=7)
    chooser.observe(np.array([1, 2, 2, 3, 4, 6, 6], np.float64))
    coarse = 64
    scores = np.rint(chooser.scores() / (chooser.unit / coarse)).astype(int)
    base = Key.from_seed(stat.seed(71))
    thetas = [chooser.choose(base.derive("trial", i)) for i in range(trials)]
    found = np.bincount(np.searchsorted(chooser.candidates, thetas), minlength=scores.size)

    def expected(budget: float) -> np.ndarray:
        return oracle.winner_probabilities(scores, noise, 2 * coarse / budget, int(40 * 2 * coarse / budget))

    stat.accept(stat.chi_square_p(found, expected(epsilon)))
    stat.reject(stat.chi_square_p(found, expected(1.25 * epsilon)))


# Equivariance.


@given(
    st.lists(st.integers(0, 4000), min_size=5, max_size=50),
    st.integers(10, 3000),
    st.sampled_from([3.0, 100.0, 2.0**-30, 2.0**40, 100.0 * 2.0**-10]),
    st.integers(0, 2**30),
    st.sampled_from(["laplace", "exponential"]),
)
def test_theta_scales_exactly(values: list[int], bound: int, factor: float, seed: int, noise: Any) -> None:
    def theta(by: float) -> float:
        facts = task(2.0, len(values), bound * by, max_range=100, resolution=0.25 * by)
        return chooser_of(facts, np.array(values) * by, ScaleFree(noise)).choose(Key.from_seed(seed))

    assert theta(factor) == factor * theta(1.0)


# Short hold-outs, parameters, the protocol.


def test_a_short_holdout_is_said_and_the_named_one_does() -> None:
    short = task(0.1, 500, max_range=R)
    with pytest.warns(AccuracyWarning, match=r"^holdout: 500 values are too few .* at least [\d,]+ values") as caught:
        ScaleFree().start(short)
    enough = named(caught)
    for m, epsilon in ((enough, 0.1), (enough, 7.0), (enough // 2 + 1, 0.1)):
        ScaleFree().start(task(epsilon, m, max_range=R))
    with pytest.warns(AccuracyWarning):
        ScaleFree().start(task(0.1, enough // 2 - 1, max_range=R))
    # A choice with a tenth of the noise's budget needs ten times as many.
    with pytest.warns(AccuracyWarning) as caught:
        ScaleFree().start(task(0.1, enough, max_range=R, publish_epsilon=1.0))
    assert named(caught) == pytest.approx(10 * enough, abs=10)


def named(caught: pytest.WarningsRecorder) -> int:
    """The length of a hold-out that a warning asks for."""
    return int(re.search(r"at least ([\d,]+) values", str(caught[0].message))[1].replace(",", ""))


@pytest.mark.parametrize(
    "call",
    [
        lambda: ScaleFree().start(task(0.1, 50, max_range=R)),
        lambda: fastdp.Adaptive(epsilon=0.1, bound=100.0, holdout=50, max_range=R),
    ],
    ids=["start", "Adaptive"],
)
def test_the_warning_is_at_the_line_of_the_caller(call) -> None:
    with pytest.warns(AccuracyWarning) as caught:
        call()
    assert {warning.filename for warning in caught} == {__file__}
    assert len(str(caught[0].message)) < 300


def test_what_it_needs_is_named() -> None:
    for facts, words in (
        ({"noise_constant": None}, r"^noise_constant = None: expected"),
        ({"noise_constant": 0.0}, r"^noise_constant = 0"),
        ({"epsilon": 2.0**-44}, r"epsilon = .*2\^-43"),
        ({"epsilon": 2.0**41}, r"epsilon = .*at most 2\^40"),
    ):
        with pytest.raises(ParameterError, match=words):
            ScaleFree().start(task(**facts))


def test_extremes_stay_within_the_grid() -> None:
    for epsilon, constant, top in itertools.product((1e-12, 1e9), (1e-300, 1e300), (1.0, 2.0**50)):
        facts = task(epsilon, 1000, top, noise_constant=constant, max_range=2**40)
        chooser = chooser_of(facts, np.full(1000, top))
        assert 1.0 <= chooser.choose(Key.from_seed(1)) <= top
        assert np.abs(chooser.scores()).max() < 2**62
    for holdout in (2**40, 2**50):
        assert 2 * chooser_of(task(1.0, holdout), []).unit * holdout <= 2**61


def test_guarantee() -> None:
    for holdout, parts in ((250, 1), (300, 2)):
        guarantee = ScaleFree().guarantee(task(0.3, holdout))
        assert (guarantee.epsilon, guarantee.delta, guarantee.arithmetic) == (0.3, 0.0, "exact")
        assert sum("sensitivity 1" in line for line in guarantee.derivation) == parts
    assert "scale 1 / 0.015" in str(guarantee.derivation)


@pytest.mark.parametrize(("n", "epsilon"), [(1001, 1.0), (3000, 1.0), (30_000, 0.1)])
def test_theta_is_no_dust_where_noise_is_strong(n: int, epsilon: float) -> None:
    """A logarithm without a floor made the smallest candidate win whenever k was a large part of the hold-out."""
    draws = [np.random.default_rng(seed).exponential(10.0, n) for seed in range(11)]
    found = [fastdp.release(values, epsilon, 1000.0, seed=seed).threshold for seed, values in enumerate(draws)]
    assert 10.0 < np.median(found) < 80.0


@pytest.mark.parametrize("lengths", ["longest", "all"])
@pytest.mark.parametrize("zeros", [0.77, 0.9, 0.96, 0.99])
def test_zeros_do_not_make_the_threshold_vanish(zeros: float, lengths: Any) -> None:
    """The lowest candidate won wherever most values were 0: its logarithm was weighed against all values."""
    m = 40_000
    facts = ThresholdTask(0.2, 30_000.0, m, 10**6, 30_000.0 * 2.0**-32, noise_constant=800.0)
    for seed in range(11):
        generator = np.random.default_rng(seed)
        values = np.where(generator.random(m) < zeros, 0.0, generator.lognormal(5.0, 1.0, m))
        assert 30.0 < chooser_of(facts, values, ScaleFree(lengths=lengths)).choose(Key.from_seed(seed)) < 5000.0


@pytest.mark.parametrize("positive", [0, 60, 600, 2000])
def test_a_theta_that_cuts_off_all_that_the_lowest_candidate_does_is_not_used(positive: int) -> None:
    """Noise chose among hundreds of candidates that clip everything; of many values above 0 the small ones stay."""
    values = np.zeros(40_000)
    values[:positive] = 40.0
    facts = task(0.2, values.size, 4096.0, max_range=10**6, resolution=2.0**-10)
    thetas = np.array([chooser_of(facts, values).choose(Key.from_seed(seed)) for seed in range(200)])
    assert not np.any(thetas < 20.0)
    bound = np.mean(thetas == 4096.0)
    assert bound > 0.9 if positive < 600 else bound < 0.1 if positive == 2000 else True
    # Nothing is far below a bound by its ratio alone.
    assert positive < 2000 or np.median(thetas) < 100.0


@given(holdouts, st.integers(1, 300), budgets, budgets, st.integers(1, 2000), every_length, st.integers(0, 2**30))
def test_theta_is_the_oracles_winner_or_the_bound(
    some: list[int], top: int, epsilon: float, noise: float, longest: int, lengths: Any, seed: int
) -> None:
    values = some * 20
    facts = task(epsilon, len(values), float(top), max_range=longest, publish_epsilon=noise)
    chooser, key = chooser_of(facts, values, ScaleFree(lengths=lengths)), Key.from_seed(seed)
    filled = float(chooser.released_above(key, 1)[0])
    drawn = draw_noise(chooser.distribution, 1, chooser.candidates.size, key)[0, ::-1]
    public = epsilon, noise, longest, facts.noise_constant, lengths, filled
    scores = oracle.scores([min(v, top) for v in values], top, chooser.unit, *public)
    spent = float(2 * chooser.unit / chooser.distribution.scale)
    expected = oracle.used(int(np.argmax(scores + drawn)), spent, len(values), top, *public)
    assert chooser.choose(key.again()) == expected
    assert chooser.unresolved <= (expected == top)


def test_the_penalty_of_noisy_max_is_that_of_equation_6() -> None:
    """(3 m theta) / (c r epsilon) sqrt(2 (b - 1) log_b(r)^3), epsilon that of the noise in use; the first is free."""
    chooser = NoisyMax().start(task(0.5, 500, 99.5, publish_epsilon=2.0))
    exact = 3 * 500 * np.arange(1, 101) / (60 * 4096 * 2.0) * math.sqrt(2 * 15 * (math.log(4096) / math.log(16)) ** 3)
    exact[-1] *= 0.995
    assert chooser.penalties() == pytest.approx(chooser.unit * (exact - exact[0]), abs=1)


# Histograms of NoisyMax.
