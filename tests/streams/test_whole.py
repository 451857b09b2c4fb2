"""Finished arrays: release, noise for numbers, default hold-outs."""

from __future__ import annotations

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
from fastdp.errors import AccuracyWarning, BudgetError, DataError, ParameterError
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.perturbers import Flat
from fastdp.streams.add_noise import VectorNoise
from fastdp.streams.array_rule import array_rule
from fastdp.thresholds import ScaleFree
from tests.oracles import laplace_mechanism
from tests.state.adaptive_publishers import stream

SECRET = bytes(range(32))


def test_the_release_function_is_the_rule() -> None:
    values = stream(3000)
    release = fastdp.release(values, 2.0, 100.0, seed=1)
    assert (release.offset, len(release)) == (0, 3000)
    made = array_rule(3000, 2.0, 100.0, key=Key.from_seed(1))
    assert np.array_equal(release.values, made.release(values).values)
    assert release.revised is release
    assert release.sum(0, 3000)[0] == pytest.approx(release.values.sum())
    assert fastdp.release(values, 2.0, 100.0, seed=1, threshold=50.0).threshold == 50.0


def test_events_are_the_revised_blocks_of_an_adaptive_publisher() -> None:
    values = np.random.default_rng(1).poisson(4.0, 3000)
    release = fastdp.release(values, 0.5, sensitivity=1.0, seed=1)
    by_hand = fastdp.Adaptive(0.5, sensitivity=1.0, seed=1).release(values)
    assert np.array_equal(release.values, by_hand.revised.values)
    both = release.interval([0, 7], [3000, 90]), by_hand.revised.interval([0, 7], [3000, 90])
    assert np.array_equal(*both)
    assert release.sum(3, 70) == by_hand.revised.sum(3, 70)


def test_a_print_says_what_was_chosen_and_why_a_release_is_one_number() -> None:
    few, chosen = (fastdp.release(np.full(n, 50.0), 1.0, 100.0, seed=1) for n in (100, 400))
    assert "one number for all values: n epsilon = 100 buys the total alone" in repr(few)
    assert "one number for all values: distances within it show no change" in repr(chosen)
    many = repr(fastdp.release(stream(8000), 1.0, 100.0, seed=1))
    assert re.search(r"blocks     \d+ of \d+ values, chosen", many)
    assert re.search(r"shares     threshold 5.9%, number of blocks 7.1%, total \d+.\d%, blocks", many)
    assert "blocks" in fastdp.release(stream(8000), 1.0, 100.0, seed=1)._repr_html_()


def test_a_ledger_is_charged_before_the_values_are_looked_at(tmp_path: Any) -> None:
    account = fastdp.Ledger(tmp_path / "ledger", limit_epsilon=2.0)
    said: dict[str, Any] = {"ledger": account, "stream": "meter", "key": SECRET}
    values = stream(3000)
    with pytest.raises(DataError, match=r"^values has no entries: expected at least one value"):
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
    assert (recorded.mechanism["class"], recorded.mechanism["parameters"]["size"]) == ("ArrayRule", 3000)
    assert recorded.guarantee.derivation[0].startswith("threshold, from all values")


def test_thresholds_are_checked() -> None:
    for rule in ("linear", object()):
        with pytest.raises(ParameterError, match="threshold"):
            fastdp.release([1.0] * 100, 1.0, 100.0, seed=1, threshold=rule)


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
