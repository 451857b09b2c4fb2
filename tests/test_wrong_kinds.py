"""Arguments of another kind than asked for: one FastDPError that names what is missing, never a foreign error."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp import counters, perturbers, smoothers, thresholds
from fastdp.errors import DataError, FastDPError, ParameterError
from fastdp.local import Announcement, HistogramCollector, Piecewise, SquareWave, SumCollector, decode
from fastdp.spatial import Box, CellIndex
from fastdp.thresholds import renewals
from fastdp_lab import sweeps

MECHANISM = Piecewise(1.0, 0.0, 64.0)
BOX = Box([0, 0], [1, 1])
#: One part of each kind, and what takes such a part.
PARTS: dict[str, Any] = {
    "threshold": thresholds.Fixed(3.0),
    "perturber": perturbers.Hierarchy(),
    "smoother": smoothers.Recent(),
    "renewal": renewals.RenewFromHoldout(),
    "counter": counters.Simple(),
    "domain": BOX,
    "mechanism": MECHANISM,
}


def composed(**parts: Any) -> Any:
    usual = {"threshold": thresholds.NoisyMax(), "perturber": perturbers.Hierarchy(), "smoother": smoothers.Recent()}
    return fastdp.StreamPublisher(epsilon=1.0, bound=100, holdout=1000, max_range=4096, **{**usual, **parts})


TAKERS: dict[str, list[Any]] = {
    "threshold": [
        lambda part: composed(threshold=part),
        lambda part: fastdp.PAK(epsilon=1.0, delta=0.5, bound=100, length=99, holdout=9, threshold=part),
    ],
    "perturber": [lambda part: composed(perturber=part)],
    "smoother": [lambda part: composed(smoother=part)],
    "renewal": [lambda part: composed(renewal=part)],
    "counter": [lambda part: fastdp.PHDStream(BOX, 1.0, part), lambda part: counters.RunningCounts(part, 1.0)],
    "domain": [lambda part: fastdp.PHDStream(part, 1.0)],
    "mechanism": [Announcement],
}


@pytest.mark.parametrize("taker", TAKERS)
def test_a_part_of_another_kind_says_what_it_lacks(taker: str) -> None:
    for take, given in itertools.product(TAKERS[taker], PARTS):
        if taker == given:
            take(PARTS[given])
            continue
        with pytest.raises(
            ParameterError, match=rf"^{taker} = .*: expected an object from fastdp\.[\w.]+ \(it lacks \w"
        ):
            take(PARTS[given])
        with pytest.raises(ParameterError, match=rf"^{taker} = .*\(it is a class\)$"):
            take(type(PARTS[taker]))


def test_a_part_that_lacks_one_method_says_which() -> None:
    class Half:
        def step(self, state: Any, means: Any) -> Any:
            return state, means

    with pytest.raises(ParameterError, match=r"expected an object from fastdp.smoothers \(it lacks start\)$"):
        composed(smoother=Half())


@pytest.mark.parametrize("path", ["a\0b", b"a\0b", "\ud800", "", b"", 5, None, ["a"]], ids=repr)
def test_paths_that_no_file_can_have(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save = fastdp.ToPS(epsilon=1.0, bound=100).save
    for take in (fastdp.Ledger, save, sweeps.read_specification, sweeps.load):
        with pytest.raises(ParameterError, match=r"(path|folder) = .*: expected the path of a file or folder"):
            take(path)
    assert not list(tmp_path.iterdir())


def test_a_ledger_at_a_path_of_bytes(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "budget")
    assert repr(fastdp.Ledger(path)) == repr(fastdp.Ledger(tmp_path / "budget"))


@pytest.mark.parametrize(
    "data", ["x", 5, None, [1], memoryview(np.zeros(6))[::2]], ids=lambda data: type(data).__name__
)
def test_messages_that_are_no_bytes(data: Any, tmp_path: Path) -> None:
    collector = HistogramCollector(SquareWave(1.0, 0.0, 64.0))
    server = fastdp.ToPLServer(epsilon=1.0, bound=100, holdout=10, max_range=64)
    kept = SumCollector(MECHANISM)
    kept.keep(tmp_path / "kept")
    for take in (collector.receive, kept.receive, server.receive, decode):
        with pytest.raises(DataError, match=f"^data is a {type(data).__name__}: expected bytes"):
            take(data)
    assert collector.refused.messages == kept.refused.messages == 0


RAGGED = [[[0.0, 0.0], [1.0]], [0.0, [0.0, 1.0]]]


@pytest.mark.parametrize("ragged", RAGGED)
def test_ragged_boxes(ragged: Any) -> None:
    publisher = fastdp.PHDStream(BOX, 1.0, seed=1)
    publisher.advance(np.random.default_rng(1).random((50, 2)))
    index = CellIndex([[0.0, 0.0]], [[1.0, 1.0]], [3.0])
    whole = [[1.0, 1.0], [1.0, 1.0]]
    for count in (publisher.count, publisher.tree.count, index.count):
        for lower, upper in ((ragged, whole), (whole, ragged)):
            with pytest.raises(FastDPError, match=r"(lower|upper).*expected"):
                count(lower, upper)
    for corners in ((ragged, whole, [1.0]), (whole, ragged, [1.0]), ([[0.0]], [[1.0]], ragged)):
        with pytest.raises(FastDPError, match=r"(lower|upper|counts).*expected"):
            CellIndex(*corners)


@pytest.mark.parametrize("place", [1.5, "x", None, slice(0, 1), [0]], ids=repr)
def test_streams_have_whole_numbers(place: Any) -> None:
    many = fastdp.release_many([np.arange(90.0)] * 2, epsilon=1.0, bound=100, holdout=10, max_range=64, seed=1)
    with pytest.raises(ParameterError, match=r"^stream = .*: expected a whole number"):
        many[place]
    assert np.array_equal(many[np.int64(1)].values, many[-1].values)
    with pytest.raises(IndexError):
        many[2]


@pytest.mark.parametrize("text", ["x = " + "[" * 5000 + "]" * 5000, "x = " + "{a=" * 5000 + "1" + "}" * 5000])
def test_tables_nested_5000_deep(text: str, tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(text)
    with pytest.raises(DataError, match=rf"^{path}: .*too deep"):
        sweeps.read_specification(path)


@pytest.mark.parametrize("place", [("datasets", "name"), ("mechanisms", "name")])
def test_lone_surrogates_in_a_specification(place: tuple[str, str]) -> None:
    """No column of results can hold them."""
    tables: dict[str, Any] = {
        "epsilons": [1.0],
        "datasets": [{"name": "a", "generator": "table1", "stream": "pos", "n": 1500}],
        "mechanisms": [{"name": "b", "system": "tops"}],
    }
    tables[place[0]][0][place[1]] = "\ud800"
    with pytest.raises(ParameterError, match=r"\[0\]\.\w+ = '.ud800': expected a text of Unicode characters"):
        sweeps.from_table(tables)
