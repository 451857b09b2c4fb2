"""The attack on noise that is bound to the key alone: the same secret and stream, released with epsilon .1 and .05.

Noise of one word has twice the scale in the second release, so 2 out1 - out2 is the data, while a ledger
certifies .15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

import fastdp
from fastdp.noise import sampler
from fastdp.noise.binding import Name, given
from fastdp.noise.key import Key
from fastdp.noise.sampler import LaplaceDistribution
from fastdp.noise.words import Purpose, StreamId
from tests.shared import finished, release_many
from tests.stat import accept, reject

SECRET = bytes(range(7, 39))
BOUND, THETA, HOLDOUT = 256.0, 128.0, 20_000
VALUES = np.random.default_rng(11).gamma(2.0, 8.0, 2**17).round(1)
EPSILONS = (0.1, 0.05)
Floats = NDArray[np.float64]
Noises = tuple[Floats, Floats]
pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
FIXED = fastdp.thresholds.Fixed(THETA)


def _streams(method: str, **options: Any) -> tuple[Floats, Noises]:
    made = [finished(method, VALUES.size, e, BOUND, key=SECRET, **options).release(VALUES) for e in EPSILONS]
    return _attack(VALUES[made[0].offset :], [one.values for one in made], [one.threshold for one in made])


def _many() -> tuple[Floats, Noises]:
    rows, flat = VALUES.reshape(128, 1024), fastdp.perturbers.Flat()
    outs = [
        release_many(rows, epsilon, BOUND, threshold=FIXED, perturber=flat, smoother=None, key=SECRET).values
        for epsilon in EPSILONS
    ]
    return _attack(VALUES, outs, [THETA, THETA])


def _blocks() -> tuple[Floats, Noises]:
    """Sums of blocks, whose borders may differ: 2 S1 - S2 against 2 T1 - T2 of the truth."""
    # Blocks of a value or two.
    made = [
        fastdp.release(VALUES, epsilon, BOUND, key=SECRET, threshold=FIXED).revision for epsilon in (4096.0, 2048.0)
    ]
    before = np.append(0.0, np.cumsum(np.minimum(VALUES, THETA)))
    count = min(one.totals.size for one in made)
    totals = [one.totals[:count] * THETA for one in made]
    truths = [before[one.edges[1 : count + 1]] - before[one.edges[:count]] for one in made]
    noise = totals[0] - truths[0], totals[1] - truths[1]
    return 2.0 * noise[0] - noise[1], noise


def _attack(truth: Floats, outs: list[Floats], thetas: list[float]) -> tuple[Floats, Noises]:
    """How far the attack is off for each value that both thresholds let through, and the noises of all values."""
    ratio = (thetas[1] / EPSILONS[1]) / (thetas[0] / EPSILONS[0])
    guess = (ratio * outs[0] - outs[1]) / (ratio - 1.0)
    noise = outs[0] - np.minimum(truth, thetas[0]), outs[1] - np.minimum(truth, thetas[1])
    return (guess - truth)[truth <= min(thetas)], noise


ATTACKS: Mapping[str, Callable[[], tuple[Floats, Noises]]] = {
    "tops": lambda: _streams("tops", prune=0, holdout=HOLDOUT),
    "pak": lambda: _streams("pak", holdout=HOLDOUT, delta=1e-9),
    "adaptive": _blocks,
    "release_many": _many,
}


def recovered(errors: Floats) -> float:
    """Share of the values that the attack finds, to a millionth of the bound."""
    return float(np.mean(np.abs(errors) < 1e-6 * BOUND))


def correlation_p(noise: Noises) -> float:
    """Two-sided, of the correlation among those of all circular shifts, which keep what correlates along time."""
    first, second = (one - one.mean() for one in noise)
    spectrum = np.fft.rfft(first) * np.conj(np.fft.rfft(second))
    at_shifts = np.fft.irfft(spectrum, first.size)
    return float(2.0 * stats.norm.sf(abs(at_shifts[0]) / at_shifts[1:].std()))


@pytest.mark.parametrize("method", ATTACKS)
def test_two_epsilons_under_one_secret_have_independent_noises(method: str) -> None:
    errors, noise = ATTACKS[method]()
    # By chance a guess may hit.
    assert recovered(errors) < 0.01
    assert noise[0].size > 100_000
    accept(correlation_p(noise))
    # A twentieth of one noise in the other would be seen.
    shared = 0.05 * noise[1].std() / noise[0].std() * noise[0]
    reject(correlation_p((noise[0], noise[1] + shared)))


@pytest.mark.slow
@pytest.mark.parametrize("method", ATTACKS)
def test_the_attack_recovers_all_values_where_noise_follows_from_the_secret_alone(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As before noise was bound to the composition: the attack above can succeed."""

    def table(
        name: Name, distribution: LaplaceDistribution, start: int, out: np.ndarray, sums: np.ndarray | None
    ) -> None:
        # Not by its labels, of which theta is one.
        sampler.fill(out, distribution, Key.from_seed(repr(name[1:])), StreamId(Purpose.TREE), start)

    def unbound(self: Key, *_: object) -> Key:
        return given(table)

    for name in ("bind", "bound"):
        monkeypatch.setattr(Key, name, unbound)
    errors, noise = ATTACKS[method]()
    assert recovered(errors) == 1.0
    reject(correlation_p(noise))


def test_reports_of_the_local_model_are_independent_too() -> None:
    _, noise = _streams("topl", holdout=HOLDOUT)
    accept(correlation_p(noise))
