"""Noisy max: exact probabilities of every winner, over all adjacent hold-outs of a small instance."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp_kernels.streams import threshold_choice
from tests import stat
from tests.oracles import scale_free as oracle

UNIT, EPSILON, CANDIDATES = 4, 0.7, 4
PENALTIES = np.array([0, 1, 3, 6], np.int64)
#: Noise beyond 60 scales has probability below e^-60.
REACH = int(60 * UNIT / EPSILON)


def winner_probabilities(holdout: tuple[int, ...], noise: str, scale: float) -> np.ndarray:
    counts = np.bincount(holdout, minlength=CANDIDATES + 1)
    return oracle.winner_probabilities(UNIT * np.cumsum(counts)[1:] - PENALTIES, noise, scale, REACH)


@pytest.mark.parametrize("noise", ["laplace", "exponential"])
def test_no_ratio_exceeds_the_claim_and_some_comes_near(noise: str) -> None:
    def worst(scale: float) -> float:
        largest = 0.0
        for holdout in itertools.combinations_with_replacement(range(CANDIDATES + 1), 3):
            here = winner_probabilities(holdout, noise, scale)
            assert here.sum() == pytest.approx(1.0, abs=1e-9)
            for position, value in itertools.product(range(3), range(CANDIDATES + 1)):
                there = winner_probabilities((*holdout[:position], value, *holdout[position + 1 :]), noise, scale)
                largest = max(largest, float(np.abs(np.log(here / there)).max()))
        return largest

    claimed = worst(UNIT / EPSILON)
    assert 0.9 * EPSILON < claimed <= EPSILON + 1e-9
    assert worst(UNIT / EPSILON / 2) > EPSILON, "noise halved on purpose must break the claim"


@pytest.mark.parametrize("noise", ["laplace", "exponential"])
def test_the_kernel_follows_the_exact_law(noise: str) -> None:
    holdout, trials = (1, 2, 4), 200_000
    counts = np.bincount(holdout, minlength=CANDIDATES + 1).astype(np.int64)
    from fractions import Fraction

    scale = Fraction(UNIT) / Fraction(EPSILON)
    distribution = (
        sampler.laplace_distribution(scale) if noise == "laplace" else sampler.geometric_distribution(scale)
    )
    draws = np.empty(trials * CANDIDATES, np.int64)
    sampler.fill(draws, distribution, Key.from_seed(stat.seed(51)), StreamId(Purpose.DRAWS))
    winners = np.zeros(CANDIDATES, np.int64)
    for row in draws.reshape(trials, CANDIDATES):
        winners[threshold_choice.choose_candidate(counts, UNIT, PENALTIES, row) - 1] += 1
    stat.accept(stat.chi_square_p(winners, winner_probabilities(holdout, noise, float(scale))))
    stat.reject(stat.chi_square_p(winners, winner_probabilities(holdout, noise, float(scale) * 1.1)))
