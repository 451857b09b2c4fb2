"""``fastdp.add_noise``: the Laplace mechanism on numbers of any shape and family."""

from __future__ import annotations

import math
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
from fastdp.errors import BudgetError, DataError, ParameterError
from fastdp.noise import sampler
from fastdp.streams.add_noise import VectorNoise
from tests import stat
from tests.oracles import distributions, laplace_mechanism

SECRET = bytes(range(32))


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


def test_their_law() -> None:
    edges = np.arange(-30.0, 31.0)
    noise = fastdp.add_noise(np.full(10**6, 41), 2, 0.5, seed=stat.seed(73)) - 41
    counts = np.histogram(noise, [-np.inf, *edges, np.inf])[0]
    stat.accept(stat.chi_square_p(counts, distributions.laplace_cells(edges, 4.0)))
    stat.reject(stat.chi_square_p(counts, distributions.laplace_cells(edges, 4.4)))


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
