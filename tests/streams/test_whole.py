"""A finished array with nothing withheld: against the oracle, its share, its guarantee, its noise, the ledger."""

from __future__ import annotations

import hashlib
import math
import warnings
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import AccuracyWarning, BudgetError, DataError, ParameterError, StateError
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId, WordStream
from fastdp.perturbers import Blocks
from fastdp.streams.release import MAX_SHARE, WholeStream
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree
from tests.oracles import exact_noise
from tests.oracles import scale_free as oracle
from tests.state.adaptive_publishers import CLOSINGS, stream

SECRET = bytes(range(32))


def whole(size: int, epsilon: float = 1.0, bound: float = 100.0, **options: Any) -> WholeStream:
    given: dict[str, Any] = {"max_range": size, "threshold": ScaleFree(), "key": Key.from_seed(1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        return WholeStream(size, epsilon, bound, **{**given, **options})


def chosen(made: WholeStream, values: np.ndarray) -> float:
    """Theta, score by score, with noise of the oracle's own from the same words."""
    task, resolution = made.task, made.composition.grid.resolution
    chooser = ScaleFree().start(task)
    chooser.observe(values)
    key = made._key.again().within("holdout", hashlib.sha256(chooser.pack().tobytes()).digest())
    top = made.composition.grid.bound_steps
    steps = np.clip(np.rint(values / resolution), 0, top).astype(int).tolist()
    scores = oracle.scores(
        *(steps, top, chooser.unit, task.epsilon, task.noise_epsilon, task.max_range, task.noise_constant)
    )
    words = np.empty(len(scores), "<u8")
    WordStream(key, StreamId(Purpose.THRESHOLD)).fill(words)
    scale = Fraction(2 * chooser.unit) / Fraction(task.epsilon)
    noise = [exact_noise.draw(int(word), lambda _: 1 // 0, scale, True) for word in words]
    noisy = [score + draw for score, draw in zip(scores, reversed(noise), strict=True)]
    return oracle.candidates(top)[int(np.argmax(noisy))] * resolution


@pytest.mark.parametrize("closing", CLOSINGS)
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_theta_is_the_oracles_and_the_rest_an_adaptive_publishers(closing: Any, epsilon: float) -> None:
    values = stream(4000)
    made = whole(4000, epsilon, perturber=Blocks(closing), resolution=0.25)
    release = made.release(values)
    assert release.threshold == chosen(made, values)
    by_hand = fastdp.Adaptive(
        *(made.composition.epsilon, 100.0, 0, 4000),
        perturber=Blocks(closing), threshold=release.threshold, resolution=0.25, key=made._key.again(),
    ).release(values)  # fmt: skip
    assert release.offset == 0
    assert np.array_equal(release.values, by_hand.values)
    assert np.array_equal(release.revised, by_hand.revised)


@given(st.integers(1, 2**45), st.floats(1e-3, 50.0), st.integers(1, 2**20))
def test_the_share_is_public_and_the_losses_are_epsilon(size: int, epsilon: float, longest: int) -> None:
    made = whole(size, epsilon, max_range=longest)
    chosen = Fraction(made.task.epsilon) if made.share else Fraction(0)
    assert 0.0 <= made.share <= MAX_SHARE
    assert chosen + Fraction(made.composition.epsilon) <= Fraction(epsilon)
    assert epsilon * (1.0 - 1e-12) <= made.guarantee.epsilon <= epsilon
    assert made.guarantee.delta == 0.0
    assert made.guarantee.arithmetic == "exact"
    steps = made.guarantee.derivation
    if made.share:
        assert steps[0].startswith(f"threshold, from all values (epsilon = {made.task.epsilon:g}): ")
        assert any("noisy max" in step for step in steps)
        assert steps[-1] == "the same values: the epsilons add up"
    assert any(step.startswith(f"perturber (epsilon = {made.composition.epsilon:g})") for step in steps)


def test_the_release_function_withholds_nothing_by_default() -> None:
    values = stream(3000)
    release = fastdp.release(values, 2.0, 100.0, seed=1)
    assert (release.offset, len(release)) == (0, 3000)
    assert np.array_equal(release.values, whole(3000, 2.0).release(values).values)
    known = fastdp.release(values, 2.0, 100.0, seed=1, threshold=50.0)
    by_hand = fastdp.Adaptive(2.0, 100.0, threshold=50.0, max_range=3000, seed=1)
    assert known.threshold == 50.0
    assert np.array_equal(known.values, by_hand.publish(values))


def test_noise_is_bound_to_what_it_protects() -> None:
    values = np.floor(stream(2000))
    other = values.copy()
    other[1500] = 90.0 if values[1500] < 50.0 else 1.0
    given = {"max_range": 2000, "resolution": 1.0, "key": Key.from_bytes(SECRET), "threshold": ScaleFree()}
    # The same choice of theta from the same values in another order; then the sums differ, and their noise with them.
    first, again, turned = (
        WholeStream(2000, 1.0, 100.0, **given).release(each) for each in (values, values, values[::-1])
    )
    assert np.array_equal(first.values, again.values)
    assert turned.threshold == first.threshold
    assert not np.array_equal(turned.revision.totals[:3], first.revision.totals[:3])
    altered, kept = (WholeStream(2000, 1.0, 100.0, **given).publisher((each,)) for each in (other, values))
    assert altered._key == kept._key
    # The share that chooses theta may be the same for w values together: the noise must not be.
    given["threshold"] = NoisyMax()
    single, pairs = (WholeStream(2000, 1.0, 100.0, contributions=w, **given) for w in (1, 2))
    assert pairs.share == single.share
    assert pairs.noise_fingerprint != single.noise_fingerprint
    assert whole(2000).noise_fingerprint is None


def test_a_ledger_is_charged_before_the_values_are_looked_at(tmp_path: Any) -> None:
    account = fastdp.Ledger(tmp_path / "ledger", limit_epsilon=2.0)
    said: dict[str, Any] = {"ledger": account, "stream": "meter", "key": SECRET}
    values = stream(3000)
    with pytest.raises(DataError, match="values has 0 entries"):
        fastdp.release([], 0.5, 100.0, **said)
    with pytest.raises(ParameterError):
        fastdp.release(values, 0.5, 100.0, season=-1.0, **said)
    assert account.spent("meter").epsilon == 0.0
    with pytest.raises(DataError, match=r"values\[3\]"):
        fastdp.release(np.where(np.arange(3000) == 3, np.nan, values), 0.5, 100.0, **said)
    assert account.spent("meter").epsilon == pytest.approx(0.5)
    with pytest.raises(BudgetError, match="noise"):
        fastdp.release(values, 0.5, 100.0, **said)
    fastdp.release(values, 0.75, 100.0, **said)
    assert math.isclose(account.spent("meter").epsilon, 1.25)
    recorded = list(account.entries())[-1]
    assert (recorded.mechanism["class"], recorded.mechanism["parameters"]["size"]) == ("WholeStream", 3000)
    assert recorded.guarantee.derivation[0].startswith("threshold, from all values")


def test_values_are_checked() -> None:
    with pytest.raises(StateError, match="3 entries: expected 4"):
        whole(4).release([1.0, 2.0, 3.0])
    with pytest.raises(DataError, match=r"values\[1\]: not a finite number"):
        fastdp.release([1.0, math.inf] * 500, 1.0, 100.0, seed=1)
    holes = np.where(np.arange(2000) % 9 == 0, np.nan, 5.0)
    one, two = (whole(2000, nonfinite="zero").release(each) for each in (holes, np.nan_to_num(holes)))
    assert np.array_equal(one.values, two.values)
    for rule in ("linear", object()):
        with pytest.raises(ParameterError, match="threshold"):
            fastdp.release([1.0] * 100, 1.0, 100.0, seed=1, threshold=rule)
    assert whole(5, threshold=Fixed(3.0)).release([1.0] * 5).threshold == 3.0


def test_few_values_and_a_theta_that_clips_nearly_everything_are_warned_of() -> None:
    """Far too few to choose from: the bound, so that nothing is clipped, for no part of epsilon."""
    with pytest.warns(AccuracyWarning, match=r"300 are too few .* is chosen poorly; .* \(threshold=50.0\)$"):
        poor = fastdp.release(np.full(300, 3.0), 1.0, 100.0, seed=1)
    assert poor.threshold < 100.0
    with pytest.warns(AccuracyWarning, match="100 are too few to choose .* is the bound, 100: nothing is clipped"):
        bound = fastdp.release(np.full(100, 3.0), 0.1, 100.0, seed=1)
    assert (bound.threshold, bound.guarantee.epsilon) == (100.0, 0.1)
    assert not any("threshold" in step for step in bound.guarantee.derivation)
    # Of 20,000 values 100 are not 0: too few for the rule, which nothing public shows before theta is chosen.
    values = np.where(np.arange(20_000) % 200, 0.0, 100.0)
    with pytest.warns(AccuracyWarning, match=r"e-0\d was chosen, next to nothing beside the bound, 100; .*50\.0\)$"):
        release = fastdp.release(values, 1.0, 100.0, seed=1)
    assert release.threshold < 1e-5
