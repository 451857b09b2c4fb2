"""Moving averages from PAK's running sums: against the oracle, any chunking, error variance."""

from __future__ import annotations

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.noise import words
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile, SmoothQuantile, quantile
from tests.noise_values import bound_key
from tests.oracles import binary_counter as oracle
from tests.oracles import moving_average as moving_average
from tests.streams.test_pak import node_noise, stream

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


def test_the_clip_is_all_that_differs() -> None:
    """Same key, same grid: where tau is below the bound, both publish the same."""
    values = stream(700)
    options = {
        "epsilon": 30.0,
        "delta": 0.2,
        "threshold": SmoothQuantile(p=0.5, delta=0.2, clip=False),
        "resolution": 2.0**-10,
    }
    clipped, unclipped = (make_unclipped(**options, clip=clip, seed=None, key=bound_key(6)) for clip in (True, False))
    assert np.array_equal(clipped.publish(values), unclipped.publish(values))
    assert clipped.threshold == unclipped.threshold < 100


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("rule", [PAKQuantile, SmoothQuantile])
def test_the_grid_holds_the_highest_tau_there_is(rule: type, noise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The word with the largest noise, and the largest smooth sensitivity that the bound allows."""
    publisher = make_unclipped(threshold=rule(p=0.5, delta=DELTA, noise=noise, clip=False), tail_factor=1.5)
    monkeypatch.setattr(quantile, "word_at", lambda *_: 0)
    # Half zeros, half the bound: the quantile's smooth sensitivity is the bound itself.
    values = np.resize([0.0, 100.0], 200)
    publisher.publish(values)
    highest = publisher._plan.grid.bound
    assert publisher.threshold is not None
    assert 0.95 * highest < publisher.threshold < highest
    plain = make_unclipped(threshold=publisher._plan.threshold)
    plain.publish(values)
    assert publisher.threshold == pytest.approx(1.5 * plain.threshold, rel=1e-6), "not cut off by the grid's end"
    levels = (500).bit_length()
    scale = publisher.threshold / publisher.resolution * levels / 0.1
    assert scale <= 2**56
    total = publisher._plan.bound_steps * 700 + 2 * levels * 64 * scale
    assert total <= 2**62
    assert words.word_at is not quantile.word_at


@pytest.mark.parametrize(
    "rule", [NoisyMax(), Fixed(100.0), PAKQuantile(delta=DELTA), SmoothQuantile(noise="cauchy", clip=False)]
)
def test_rules_without_an_end_or_with_one_of_their_own_are_refused(rule: object) -> None:
    with pytest.raises(ParameterError, match=r"threshold = .*expected PAKQuantile\(clip=False\)"):
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
