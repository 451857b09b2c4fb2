"""An error names the first wrong value's place exactly, in every publisher and however the stream is cut up."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp import counters, local, spatial
from fastdp.data.column import PIECE
from fastdp.errors import DataError
from tests.grid import exhaustive
from tests.shared import release_many

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")

HOLDOUT = 40
COMMON: dict[str, Any] = {"epsilon": 1.0, "bound": 50.0, "holdout": HOLDOUT, "max_range": 64, "seed": 7}
FLAT = {"threshold": fastdp.thresholds.Fixed(50.0), "perturber": fastdp.perturbers.Flat()}
BLOCKS = {"threshold": fastdp.thresholds.NoisyMax(), "perturber": fastdp.perturbers.Blocks()}
PUBLISHERS: dict[str, Callable[[], Any]] = {
    "Adaptive": lambda: fastdp.Adaptive(**COMMON),
    "ToPS": lambda: fastdp.ToPS(**COMMON, fan_out=4, prune=1),
    "Flat": lambda: fastdp.StreamPublisher(**COMMON, **FLAT),
    "Blocks": lambda: fastdp.StreamPublisher(**COMMON, **BLOCKS),
    "renewed": lambda: fastdp.StreamPublisher(
        **COMMON,
        threshold=fastdp.thresholds.NoisyMax(),
        perturber=fastdp.perturbers.Hierarchy(fan_out=4, prune=0),
        renewal=fastdp.thresholds.renewals.RenewFromHoldout(1, 20),
    ),
    "PAK": lambda: fastdp.PAK(1.0, 1e-6, 50.0, 2 * PIECE, holdout=HOLDOUT, seed=7),
    "ToPL": lambda: fastdp.ToPL(**COMMON),
}
#: Around the hold-out's ends, the first blocks and the end.
PLACES = (0, 1, 17, HOLDOUT - 1, HOLDOUT, HOLDOUT + 1, HOLDOUT + 4, 90, 130, 150, 209, 210)
LENGTH = 211
STREAM = np.random.default_rng(3).integers(0, 50, LENGTH).astype(np.float64)
STREAM.flags.writeable = False


def place_in(error: DataError, name: str) -> int:
    found = re.match(rf"{re.escape(name)}\[(\d+)\]: ", str(error))
    assert found is not None, str(error)
    return int(found.group(1))


def spoiled(values: np.ndarray, place: int, again: int | None = None) -> np.ndarray:
    """NaN at a place, and further wrong values behind it."""
    broken = values.copy()
    broken[place] = np.nan
    broken[place + 1 : again : 3] = np.inf
    return broken


@pytest.mark.parametrize("kind", ["float32", *exhaustive("float64", "list")])
@pytest.mark.parametrize("size", [7, LENGTH, *exhaustive(1, 41, 100)])
@pytest.mark.parametrize("name", PUBLISHERS)
def test_a_chunk_names_its_first_wrong_value(name: str, size: int, kind: str) -> None:
    for place in PLACES:
        publisher = PUBLISHERS[name]()
        broken = spoiled(STREAM, place)
        for begin in range(0, place // size * size, size):
            publisher.publish(STREAM[begin : begin + size])
        begin = place // size * size
        chunk = broken[begin : begin + size]
        given = chunk.tolist() if kind == "list" else chunk.astype(kind)
        with pytest.raises(DataError) as caught:
            publisher.publish(given)
        assert place_in(caught.value, "chunk") == place - begin
        assert publisher.n_seen == begin


@pytest.mark.parametrize("method", ["release", "repeat"])
@pytest.mark.parametrize("name", PUBLISHERS)
def test_a_whole_stream_names_its_first_wrong_value(name: str, method: str) -> None:
    publisher = PUBLISHERS[name]
    if not hasattr(publisher(), method) or (method == "repeat" and name in ("renewed", "Blocks", "Adaptive")):
        pytest.skip("has no such call")
    for place in PLACES:
        with pytest.raises(DataError) as caught:
            getattr(publisher(), method)(spoiled(STREAM, place), *([2] if method == "repeat" else []))
        assert place_in(caught.value, "values") == place


@pytest.mark.parametrize("name", ["ToPS", *exhaustive(*sorted(PUBLISHERS.keys() - {"ToPS"}))])
def test_at_the_ends_of_what_is_converted_at_once(name: str) -> None:
    values = np.ones(PIECE + 3, np.float32)
    for place in (PIECE - 1, PIECE, PIECE + 1, PIECE + 2):
        with pytest.raises(DataError) as caught:
            PUBLISHERS[name]().publish(spoiled(values, place))
        assert place_in(caught.value, "chunk") == place


def test_many_streams_name_the_stream_and_the_place() -> None:
    for stream in (0, 1, 4):
        for place in PLACES:
            streams = np.tile(STREAM, (5, 1))
            streams[stream] = spoiled(STREAM, place)
            forms: tuple[tuple[Any, dict[str, Any]], ...] = (
                (streams, {}),
                (streams.astype(np.float32), {}),
                (list(streams), {}),
                (streams.ravel(), {"offsets": np.arange(6) * LENGTH}),
            )
            for given, more in forms:
                with pytest.raises(DataError) as caught:
                    release_many(given, **COMMON, **more)
                assert place_in(caught.value, f"streams[{stream}]") == place


@pytest.mark.parametrize("size", [3, 40, 200, PIECE + 3])
def test_local_reports_name_the_value(size: int) -> None:
    for mechanism in (
        local.Hybrid(1.0, 0.0, 50.0),
        local.SquareWave(1.0, 0.0, 50.0),
        local.LogSquareWave(1.0, 1.0, 50.0),
    ):
        for place in {0, 1, size // 2, size - 2, size - 1}:
            for call in (mechanism.perturb, mechanism.steps_of):
                with pytest.raises(DataError) as caught:
                    call(spoiled(np.ones(size), place))
                assert place_in(caught.value, "values") == place


def test_counts_and_points_name_the_entry() -> None:
    square = spatial.Box([0.0, 0.0], [1.0, 1.0])
    makers: tuple[Callable[[], Any], ...] = (
        lambda: fastdp.PHDStream(square, 1.0, max_depth=4, seed=1).advance,
        lambda: fastdp.AdaptivePHDStream(square, 1.0, max_depth=4, seed=1).advance,
        lambda: spatial.PrivTree(square, 1.0, max_depth=4, seed=1).fit,
    )
    for place in (0, 1, 5, 9):
        for wrong in (np.nan, 1.5):
            points = np.full((10, 2), 0.5)
            points[place:, 1] = wrong
            for make in makers:
                with pytest.raises(DataError) as caught:
                    make()(points)
                name = "points" if "fit" in repr(make()) else "added"
                assert place_in(caught.value, name) == place
                assert f"({10 - place} of 10 entries)" in str(caught.value)
        increments = np.zeros(10)
        increments[place:] = 0.5
        with pytest.raises(DataError) as caught:
            counters.RunningCounts(counters.Simple(), 1.0, 10, seed=1).step(increments)
        assert place_in(caught.value, "values") == place
