"""Finished arrays: release, noise for numbers, default hold-outs."""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import AccuracyWarning, BudgetError, DataError, ParameterError, StateError
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId, WordStream
from fastdp.perturbers import Blocks, Flat
from fastdp.perturbers.block_noise import Total
from fastdp.smoothers import Recent
from fastdp.streams.add_noise import VectorNoise
from fastdp.streams.release import MAX_FRACTION, WholeStream
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree
from tests.oracles import exact_noise, laplace_mechanism
from tests.oracles import scale_free as oracle
from tests.state.adaptive_publishers import stream

SECRET = bytes(range(32))


def whole(size: int, epsilon: float = 1.0, bound: float = 100.0, **options: Any) -> WholeStream:
    given: dict[str, Any] = {"max_range": size, "threshold": ScaleFree(), "key": Key.from_seed(1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        return WholeStream(size, epsilon, bound, **{**given, **options})


def chosen(made: WholeStream, values: np.ndarray) -> float:
    """Theta, score by score, with noise of the oracle's own from the same words."""
    task, resolution = made.task, made.task.resolution
    chooser: Any = made.chooser()
    chooser.observe(values)
    key = made._key.again().within("holdout", hashlib.sha256(chooser.pack().tobytes()).digest())
    top = round(made.bound / resolution)
    steps = np.clip(np.rint(values / resolution), 0, top).astype(int).tolist()
    scores = oracle.scores(
        *(steps, top, chooser.unit, task.epsilon, task.noise_epsilon, task.max_range, task.noise_constant)
    )
    words = np.empty(len(scores), "<u8")
    WordStream(key, StreamId(Purpose.THRESHOLD)).fill(words)
    scale = Fraction(2 * chooser.unit) / Fraction(task.epsilon)
    noise = [exact_noise.draw(int(word), lambda _: 1 // 0, scale, True) for word in words]
    noisy = [score + draw for score, draw in zip(scores, reversed(noise), strict=True)]
    public = task.epsilon, task.noise_epsilon, task.max_range, task.noise_constant
    return oracle.used(int(np.argmax(noisy)), task.epsilon, len(values), top, *public) * resolution


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_theta_is_the_oracles_and_the_rest_an_adaptive_publishers(epsilon: float) -> None:
    values = stream(4000)
    made = whole(4000, epsilon, resolution=0.25)
    release = made.release(values)
    assert release.threshold == chosen(made, values)
    by_hand = fastdp.Adaptive(
        *(made.composition.epsilon, 100.0, 0, 4000),
        threshold=release.threshold,
        resolution=0.25,
        key=made._key.again(),
    ).release(values)
    assert release.offset == 0
    assert np.array_equal(release.values, by_hand.values)
    assert np.array_equal(release.revised, by_hand.revised)


@given(st.integers(1, 2**45), st.floats(1e-3, 50.0), st.integers(1, 2**20))
def test_the_share_is_public_and_the_losses_are_epsilon(size: int, epsilon: float, longest: int) -> None:
    made = whole(size, epsilon, max_range=longest)
    chosen = Fraction(made.task.epsilon) if made.share else Fraction(0)
    assert 0.0 <= made.share <= MAX_FRACTION
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
        fastdp.release([1.0, math.inf] * 600, 1.0, 100.0, seed=1)
    holes = np.where(np.arange(2000) % 9 == 0, np.nan, np.arange(2000) % 7)
    one, two = (whole(2000, nonfinite="zero").release(each) for each in (holes, np.nan_to_num(holes)))
    assert np.array_equal(one.values, two.values)
    for rule in ("linear", object()):
        with pytest.raises(ParameterError, match="threshold"):
            fastdp.release([1.0] * 100, 1.0, 100.0, seed=1, threshold=rule)
    assert whole(5, threshold=Fixed(3.0)).release([1.0] * 5).threshold == 3.0


def test_few_values_and_a_theta_that_clips_nearly_everything_are_warned_of() -> None:
    """Far too few to choose from: the bound, so that nothing is clipped, for no part of epsilon."""
    with pytest.warns(AccuracyWarning, match=r"1,100 are too few .* is chosen poorly; .* \(threshold=50.0\)$"):
        poor = fastdp.release(np.full(1100, 3.0), 0.4, 100.0, seed=1)
    assert poor.threshold < 100.0
    # Whatever the values are, no theta would be resolved.
    with pytest.warns(AccuracyWarning, match=r"1,100 at epsilon = 0.1 are few, so only their total is released"):
        assert fastdp.release(np.full(1100, 3.0), 0.1, 100.0, seed=1).threshold == 100.0
    with pytest.warns(AccuracyWarning, match="100 at epsilon = 0.1 are few, so only their total is released"):
        bound = fastdp.release(np.full(100, 3.0), 0.1, 100.0, seed=1)
    assert (bound.threshold, bound.guarantee.epsilon) == (100.0, 0.1)
    assert not any("threshold" in step for step in bound.guarantee.derivation)


ZEROS = {
    "zeros": lambda n: np.zeros(n),
    "99 % zeros": lambda n: np.where(np.arange(n) % 100, 0.0, 90.0),
    "95 % zeros": lambda n: np.where(np.arange(n) % 20, 0.0, 5.0 + np.arange(n) % 170),
    "one value": lambda n: np.where(np.arange(n) == 7, 900.0, 0.0),
}


@pytest.mark.parametrize("name", ZEROS)
@pytest.mark.parametrize(
    "options", [{}, {"delta": 1e-6}, {"season": 24.0}, {"focus": 50}, {"contributions": 2}], ids=str
)
def test_a_theta_that_is_not_resolved_leaves_the_rest_of_the_budget_to_one_total(name: str, options: Any) -> None:
    """The lowest candidate won, and every answer was 0 with an interval of nothing."""
    n, bound, seeds = 2000, 1000.0, range(6)
    values = ZEROS[name](n)
    errors, covered = [], 0
    for seed in seeds:
        with pytest.warns(AccuracyWarning) as caught:
            release = fastdp.release(values, 1.0, bound, seed=seed, **options)
        said = [str(each.message) for each in caught]
        assert any("only their total is released" in each for each in said)
        assert {each.filename for each in caught} == {__file__}
        assert release.threshold == bound
        assert np.ptp(release.values) < 1e-9
        (low,), (high,) = release.interval([0], [n], revised=True)
        errors.append(release.std_error([0], [n])[0])
        covered += low <= values.sum() <= high
    made = whole(n, 1.0, bound, perturber=Blocks(**{k: options[k] for k in options if k in ("season", "focus")}),
                 **{k: options[k] for k in options if k in ("delta", "contributions")})  # fmt: skip
    # A number at the bound, with the budget that the choice left.
    gaussian = bool(made.delta)
    alone = bound / made.composition.publish_epsilon * (1.0 if gaussian else math.sqrt(2.0))
    assert np.allclose(errors, alone, rtol=1e-3)
    assert covered >= 4


def test_zeros_leave_what_was_resolved() -> None:
    """A bound that is far, or half of the values at 0, change nothing."""
    for values, bound in ((stream(20_000), 1e6), (stream(20_000) * (np.arange(20_000) % 2), 100.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            release = fastdp.release(values, 1.0, bound, seed=1)
        assert release.threshold < 100.0
        assert release.revision is not None


@pytest.mark.parametrize(("size", "epsilon"), [(2, 1.0), (24, 0.1), (400, 1.0), (1000, 0.5)])
def test_few_values_are_one_number(size: int, epsilon: float) -> None:
    values, theta = stream(size).clip(0.0, 20.0), 1000.0
    made = whole(size, epsilon, theta)
    release = made.release(values)
    assert (release.threshold, made.share, made.composition.epsilon) == (theta, 0.0, epsilon)
    by_hand = fastdp.StreamPublisher(
        threshold=theta, perturber=Total(length=size), smoother=Recent(), epsilon=made.composition.epsilon,
        bound=1000.0, max_range=size, resolution=made.resolution, key=made._key.again(),
    ).publish(values)  # fmt: skip
    mean = np.clip(by_hand.sum() / size, 0.0, theta)
    for told in (release.values, release.revised):
        np.testing.assert_allclose(told, np.full(size, mean), rtol=1e-9, atol=1e-9)
    # The error of one number: theta / epsilon.
    assert release.std_error(0, size) == pytest.approx(np.sqrt(2.0) * theta / made.composition.epsilon, rel=1e-3)


def test_the_interval_of_a_part_of_few_values_allows_for_a_step() -> None:
    values = np.where(np.arange(200) < 150, 2.0, 60.0)
    parts = np.array([0, 0, 100, 150]), np.array([100, 150, 200, 200])
    before = np.append(0.0, np.cumsum(values))
    for seed in range(20):
        low, high = whole(200, key=Key.from_seed(seed)).release(values).interval(*parts)
        truth = before[parts[1]] - before[parts[0]]
        assert np.all((low < truth) & (truth < high))


@pytest.mark.parametrize(
    "other",
    [
        {"size": 1001}, {"epsilon": 1.01}, {"delta": 1e-6}, {"perturber": Blocks(focus=20)},
        {"perturber": Blocks(rising=False)}, {"threshold": NoisyMax()}, {"threshold": Fixed(50.0)}, {"size": 1},
    ],
    ids=str,
)  # fmt: skip
def test_other_values_are_blocks(other: Any) -> None:
    given = {"size": 1000, "epsilon": 1.0, **other}
    assert whole(**given).release(stream(given["size"])).revision is not None
    assert whole(1000, contributions=3, epsilon=3.0).few
    assert not whole(1000, contributions=3, epsilon=3.1).few


@pytest.mark.parametrize(
    ("values", "sensitivity", "epsilon", "resolution"),
    [
        ([5, -7, 0, 2**40], 3.0, 0.5, 1.0),
        ([2**63 - 1, -(2**63), 2**62 + 1], 1.0, 1.0, 1.0),
        ([0.3, -1e6, 2.5, 0.0, 1e300], 0.1, 1.0, None),
        ([0.5, -0.5, 1.5, -1.5, 0.49999999999999994], 1.0, 0.25, 1.0),
        ([7.25], 1.0, 2.0, 2.0**-30),
        ([k / 4 for k in range(2 * sampler.CHUNK + 3)], 1.0, 0.5, 1.0),  # longer than a chunk of draws
    ],
    ids=["integers", "ends of int64", "default grid", "halves", "fine grid", "long"],
)
@pytest.mark.parametrize("stream", [None, "hourly totals"])
def test_it_is_the_mechanism(
    values: list[Any], sensitivity: float, epsilon: float, resolution: float | None, stream: str | None
) -> None:
    integers, size = isinstance(values[0], int), len(values)
    grid = 1.0 if integers else VectorNoise(sensitivity, epsilon, size, False, resolution).resolution
    given_resolution = None if integers else resolution
    out = fastdp.add_noise(values, sensitivity, epsilon, resolution=given_resolution, key=SECRET, stream=stream)
    assert out.dtype == (np.int64 if integers else np.float64)
    if size > 100:
        noise, drawn = VectorNoise(sensitivity, epsilon, size, False, resolution), np.empty(size, np.int64)
        key = fastdp.Key.from_bytes(SECRET)
        sampler.fill(drawn, noise.distribution, key, sampler.StreamId(sampler.Purpose.DRAWS))
        assert np.array_equal(noise.noisy(np.array(values), key), np.floor(np.array(values) + 0.5) + drawn)
        return
    secret = fastdp.Key.from_bytes(SECRET)
    own = (secret if stream is None else secret.of_stream(stream)).reveal()
    expected = laplace_mechanism.noisy(values, sensitivity, epsilon, grid, given_resolution, integers, own)
    assert out.tolist() == (expected if integers else [float(step) * grid for step in expected])


@given(
    st.lists(st.tuples(st.floats(-50, 50), st.floats(-3, 3)), min_size=1, max_size=6),
    st.sampled_from([2.0**-20, 0.25, 1.0, 8.0, None]),
)
def test_coupled_with_an_adjacent_vector(pairs: list[tuple[float, float]], resolution: float | None) -> None:
    """Draws shifted by the difference in steps give the same output, and cost at most epsilon."""
    values = [value for value, _ in pairs]
    others = [value + change for value, change in pairs]
    moved = sum(abs(Fraction(a) - Fraction(b)) for a, b in zip(values, others, strict=True))
    sensitivity, epsilon = max(float(moved), 1e-3), 0.5
    if Fraction(sensitivity) < moved:
        sensitivity = math.nextafter(sensitivity, math.inf)
    noise = VectorNoise(sensitivity, epsilon, len(values), False, resolution)
    rounded = [[laplace_mechanism.in_steps(v, noise.resolution) for v in each] for each in (values, others)]
    assert noise._in_steps(np.array(values), "raise").tolist() == rounded[0]
    shifts = [a - b for a, b in zip(*rounded, strict=True)]
    draws = np.arange(len(values)) * 3 - 5

    def published(vector: list[float], drawn: np.ndarray) -> np.ndarray:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sampler, "fill", lambda out, *rest: out.__setitem__(slice(None), drawn))
            return fastdp.add_noise(vector, sensitivity, epsilon, resolution=resolution, seed=1)

    assert np.array_equal(published(values, draws), published(others, draws + shifts))
    assert sum(map(abs, shifts)) / noise.scale <= Fraction(epsilon)


def test_the_default_grid_adds_at_most_a_thousandth() -> None:
    for size, sensitivity, epsilon in ((1, 1.0, 1.0), (1000, 3.7, 1e-3), (2**20, 1e-9, 10.0), (10**8, 1e9, 1.0)):
        noise = VectorNoise(sensitivity, epsilon, size, False)
        steps = noise.scale * Fraction(epsilon)
        assert math.frexp(noise.resolution)[0] == 0.5
        assert sensitivity <= steps * Fraction(noise.resolution) <= Fraction(sensitivity) * Fraction(1002, 1000)
    # Noise that does not fit a fine grid has a coarser one.
    assert VectorNoise(1.0, 1e-14, 1, False).scale <= 2**56


def noisy(values: Any, **more: Any) -> Any:
    return fastdp.add_noise(values, 1, 1.0, **{"seed": 1, **more})


@pytest.mark.parametrize("numbers", [np.array([[3, 1, 4], [1, 5, 9]]), np.array([[3, 1, 4], [1, 5, 9]]) / 8])
def test_every_family_comes_back(numbers: np.ndarray) -> None:
    expected, flat = noisy(numbers), noisy(numbers.reshape(-1))
    index, columns = pd.Index(["a", "b"], name="day"), list("xyz")
    assert expected.shape == (2, 3)
    assert np.array_equal(expected.reshape(-1), flat)
    for same in (numbers.tolist(), np.asfortranarray(numbers)):
        assert np.array_equal(noisy(same), expected)
    frame = pd.DataFrame(numbers, index, columns)
    pd.testing.assert_frame_equal(noisy(frame), pd.DataFrame(expected, index, columns))
    series = pd.Series(numbers.reshape(-1), index=[5, 4, 3, 2, 1, 0], name="n")
    pd.testing.assert_series_equal(noisy(series), pd.Series(flat, index=series.index, name="n"))
    table = pl.DataFrame(numbers, schema=columns, orient="row")
    assert noisy(table).equals(pl.DataFrame(expected, schema=columns, orient="row"))
    assert noisy(pl.Series("n", numbers.reshape(-1))).equals(pl.Series("n", flat), check_names=True)
    arrow = pa.Table.from_pandas(frame, preserve_index=False)
    assert noisy(arrow).equals(pa.table(dict(zip(columns, expected.T, strict=True))))
    for array in (pa.array(numbers.reshape(-1)), pa.chunked_array([numbers[0], numbers[1]])):
        assert noisy(array).equals(pa.array(flat))
    one = noisy(numbers[0, 0].item())
    assert type(one) is type(numbers[0, 0].item())
    assert one == noisy(numbers[0, 0]) == noisy(numbers[:1, 0])[0] == noisy(np.array(numbers[0, 0]))[()]
    assert noisy([]).shape == (0,)
    assert noisy(pd.DataFrame({"x": np.empty(0)})).shape == (0, 1)


def test_noise_is_bound_to_values_and_parameters() -> None:
    values, altered = np.arange(1000), np.arange(1000)
    altered[-1] += 1
    noise = noisy(values, key=SECRET, seed=None) - values
    assert np.array_equal(noisy(values, key=SECRET, seed=None) - values, noise)
    others = [
        noisy(altered, key=SECRET, seed=None) - altered,
        noisy(values, key=SECRET, seed=None, stream="other") - values,
        fastdp.add_noise(values, 1, 1.5, key=SECRET) - values,
        *(fastdp.add_noise(values, 1, 1.0) - values for _ in range(2)),
    ]
    for i, one in enumerate(others):
        # Eight standard deviations of independent noise.
        assert all(abs(np.corrcoef(one, other)[0, 1]) < 0.25 for other in [noise, *others[:i]])


def test_the_guarantee_and_the_ledger(tmp_path: Path) -> None:
    out, guarantee = fastdp.add_noise([1.5], 2, 0.25, key=SECRET, return_guarantee=True)
    assert out == fastdp.add_noise([1.5], 2, 0.25, key=SECRET)
    assert (guarantee.epsilon, guarantee.delta, guarantee.arithmetic) == (0.25, 0, "exact")
    assert not guarantee.simulated
    assert "2.0 in total" in guarantee.derivation[0]
    ledger = fastdp.Ledger(tmp_path / "budget", limit_epsilon=1.0)
    for _ in range(2):
        fastdp.add_noise([1, 2], 1, 0.4, ledger=ledger, stream="trips")
    with pytest.raises(BudgetError, match="trips"):
        fastdp.add_noise([1, 2], 1, 0.4, ledger=ledger, stream="trips")
    # Parameters come before the reservation, what the values are comes after it.
    for wrong in ({"epsilon": 0}, {"resolution": 0.3}, {"stream": None}):
        with pytest.raises(ParameterError):
            fastdp.add_noise([1.5, 2], **{"sensitivity": 1, "epsilon": 0.1, "stream": "t", **wrong}, ledger=ledger)
    assert ledger.spent("trips").epsilon == 0.8
    bad = [1.0, np.nan, -np.inf]
    with pytest.raises(DataError, match=r"^values\[1\]: not a finite number \(2 of 3 entries\); expected finite"):
        fastdp.add_noise(bad, 1, 0.1, ledger=ledger, stream="trips")
    assert ledger.spent("trips").epsilon > 0.85
    assert np.array_equal(noisy(bad, nonfinite="zero"), noisy([1.0, 0.0, 0.0]))
    # A missing count makes the column floats, as everywhere.
    assert noisy(pd.Series([1, None], dtype="Int64"), nonfinite="zero").dtype == np.float64


YEAR = 365 * 24 * 3600


def made(kind: Any = fastdp.Adaptive, epsilon: float = 1.0, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        return kind(epsilon=epsilon, bound=1000.0, seed=1, **options)


def resolved(publisher: Any) -> float:
    return ScaleFree().start(publisher.composition.task).resolved


def test_defaults_without_them_are_what_they_were() -> None:
    for kind in (fastdp.Adaptive, fastdp.ToPS):
        assert (made(kind).holdout, made(kind).max_range) == (65_536, 2**20)
    composed = fastdp.StreamPublisher(threshold=ScaleFree(), perturber=Flat(), epsilon=1.0, bound=9.0, seed=1)
    assert (composed.holdout, composed.max_range) == (65_536, 2**20)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("length", [1, 7, 1000, 20_000, 10**6, 10**9])
def test_a_known_length_takes_a_quarter_at_most_and_what_a_good_choice_needs(length: int, epsilon: float) -> None:
    publisher = made(expected_length=length, epsilon=epsilon)
    most = max(1, min(65_536, length // 4))
    assert publisher.max_range == min(2**20, length)
    assert 1 <= publisher.holdout <= most
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        if publisher.holdout < most:
            assert resolved(publisher) >= 2.0
            shorter = made(holdout=publisher.holdout - 1, max_range=publisher.max_range, epsilon=epsilon)
            assert resolved(shorter) < 2.0
        else:
            fewer = made(holdout=max(1, most - 1), max_range=publisher.max_range, epsilon=epsilon)
            assert most == 1 or resolved(fewer) < 2.0
    assert made(fastdp.ToPS, expected_length=length).holdout == most


def test_a_rate_is_planned_for_a_year() -> None:
    half_hours = made(every="30min")
    assert half_hours.max_range == 365 * 48
    assert 1.0 <= resolved(half_hours) < 2.0
    assert 48 * 7 <= half_hours.holdout < 48 * 30
    for same in ({"every": timedelta(minutes=30)}, {"every": 1800}, {"every": "0.5 h"}):
        assert made(**same).composition == half_hours.composition
    # As fast as values come there is nothing to shorten; a length in values counts before a rate.
    fast = made(every=0.001)
    assert resolved(fast) >= 2.0
    assert fast.composition == made(expected_length=YEAR * 1000).composition
    assert made(every="1h", expected_length=2000).max_range == 2000
    assert made(every="h").max_range == 365 * 24


def test_a_long_holdout_says_when_publishing_begins_and_what_would_be_sooner() -> None:
    before = datetime.now(UTC)
    with pytest.warns(AccuracyWarning) as seen:
        fastdp.Adaptive(1.0, 1000.0, 48 * 20, 1000, every="30min", seed=1)
    (said,) = [str(each.message) for each in seen]
    told = re.match(
        "holdout = 960 values at one value every 30 min last 20 d: publishing begins about (.{16}) UTC", said
    )
    assert told
    begins = datetime.fromisoformat(told[1]).replace(tzinfo=UTC) - timedelta(days=20)
    assert before - timedelta(minutes=1) < begins <= datetime.now(UTC) + timedelta(minutes=1)
    assert "threshold=50.0" in said
    with pytest.warns(AccuracyWarning, match="after the year 9999"):
        fastdp.Adaptive(1.0, 1000.0, 100_000, every=1e9, max_range=100, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fastdp.ToPS(1.0, 1000.0, 48, 48, every="30min", seed=1)
        fastdp.Adaptive(1.0, 1000.0, every="30min", threshold=50.0, seed=1)
        fastdp.Adaptive(1.0, 1000.0, seed=1)
