"""``publisher.stream`` with its log, and a mechanism of one's own, as on their pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.points import Box
from fastdp.state import Publisher

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")

DOCS = Path(__file__).resolve().parents[2] / "docs"
VALUES = np.arange(300.0) % 37

KINDS: dict[str, Any] = {
    "adaptive": lambda: fastdp.Adaptive(1.0, 40.0, 50, 64, seed=1),
    "tops": lambda: fastdp.ToPS(1.0, 40.0, 50, 64, fan_out=2, prune=1, seed=1),
    "pak": lambda: fastdp.PAK(1.0, 1e-6, 40.0, 300, holdout=50, seed=1),
    "topl": lambda: fastdp.ToPL(1.0, 40.0, 50, 64, seed=1),
}


def chunks() -> Iterator[Any]:
    """Chunks and single values of several types, as they may come."""
    yield VALUES[:7]
    yield []
    yield float(VALUES[7])
    yield np.float32(VALUES[8])
    yield int(VALUES[9])
    yield np.array(VALUES[10])
    yield VALUES[11:60].tolist()
    yield from np.split(VALUES[60:], [1, 2, 100])


async def arriving() -> AsyncIterator[Any]:
    for chunk in chunks():
        await asyncio.sleep(0)
        yield chunk


@pytest.mark.parametrize("kind", KINDS)
def test_outputs_are_those_of_publish_one_for_each_batch(kind: str) -> None:
    make = KINDS[kind]
    expected = make().publish(VALUES)
    outputs = list(make().stream(chunks()))
    assert len(outputs) == len(list(chunks()))
    assert np.array_equal(np.concatenate(outputs), expected)
    assert np.array_equal(np.concatenate(list(make().stream(VALUES))), expected)

    async def collected() -> list[Any]:
        return [out async for out in make().stream(arriving())]

    found = asyncio.run(collected())
    assert all(np.array_equal(one, other) for one, other in zip(found, outputs, strict=True))


def test_nothing_is_fetched_or_consumed_ahead() -> None:
    fetched: list[int] = []

    def source() -> Iterator[float]:
        for number in range(100):
            fetched.append(number)
            yield float(number)

    publisher = fastdp.Adaptive(1.0, 40.0, threshold=20.0, max_range=64, seed=1)
    outputs = publisher.stream(source())
    assert fetched == []
    next(outputs)
    assert (fetched, publisher.n_seen) == ([0], 1)


def test_a_refused_batch_is_not_consumed_and_the_stream_goes_on() -> None:
    publisher, source = KINDS["adaptive"](), iter([1.0, [2.0, float("nan")], 3.0])
    outputs = publisher.stream(source)
    next(outputs)
    with pytest.raises(DataError, match=r"chunk\[1\]"):
        next(outputs)
    assert publisher.n_seen == 1
    assert len(list(publisher.stream(source))) == 1
    assert publisher.n_seen == 2


def test_batches_of_points_are_tuples_or_arrays() -> None:
    points = [np.array([[0.2, 0.3], [0.7, 0.1]]), (np.array([[0.5, 0.5]]), np.array([[0.2, 0.3]])), np.empty((0, 2))]
    made = [fastdp.PHDStream(Box([0, 0], [1, 1]), 4.0, seed=1) for _ in range(2)]
    outputs = list(made[0].stream(points))
    expected = [made[1].step(*(batch if isinstance(batch, tuple) else (batch,))) for batch in points]
    assert all(np.array_equal(one, other) for one, other in zip(outputs, expected, strict=True))
    counts = fastdp.counters.RunningCounts(fastdp.counters.Simple(), 1.0, 2, seed=1)
    assert len(list(counts.stream([[1, 0], ([2, 3], [0, 1])]))) == 2


@pytest.mark.parametrize("given", [5.0, None, "12", b"12", {"a": 1.0}])
def test_what_is_no_iterable_of_batches_is_refused(given: Any) -> None:
    with pytest.raises(ParameterError, match="expected an iterable of chunks or values"):
        KINDS["adaptive"]().stream(given)


# Logging.
@pytest.mark.parametrize("kind", KINDS)
def test_the_log_says_what_is_public(kind: str, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    publisher = KINDS[kind]()
    with caplog.at_level(logging.DEBUG, "fastdp"):
        publisher.keep(tmp_path / "state")
        publisher.publish(VALUES[:40])
        before = len(caplog.messages)
        publisher.publish(VALUES[40:])
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert said[0].endswith("state', 0 consumed")
    assert before == 1
    theta = f"threshold chosen: {publisher.threshold:g}"
    assert sum(theta in each for each in said) == 1
    closed = [record for record in caplog.records if "blocks closed" in record.getMessage()]
    assert all(record.levelno == logging.DEBUG for record in closed)
    assert bool(closed) == (kind in ("adaptive", "tops"))
    assert all(record.name == "fastdp" for record in caplog.records)


BATCH, NEXT = [20, 30, 25], [1, 2, 3, 400]


def run_page(text: str) -> dict[str, Any]:
    """The names that the first programs of a page leave in the working folder."""
    program = "".join(part.split("```")[0] for part in text.split("```python\n")[1:3])
    assert len(program.splitlines()) <= 70
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(program, "docs", "exec", dont_inherit=True), names)  # noqa: S102 - the project's own page
    return names


def test_the_pages_program_goes_on_where_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_page((DOCS / "state.md").read_text())
    again = fastdp.Adaptive.load("sensor.state", names["key"])
    assert again.n_seen == 90
    assert [out.size for out in again.stream(float(n) for n in range(60))] == [1] * 60
    assert fastdp.Adaptive.load("sensor.state", names["key"]).n_seen == 150


def test_a_mechanism_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = run_page((DOCS / "tutorials" / "own_mechanism.md").read_text())
    assert page["again"] == page["first"]
    assert page["sums"].state.n_seen == 3

    def fresh() -> Publisher[Any]:
        return Publisher(page["BatchSums"](epsilon=1.0, bound=100), seed=1)

    def noises(*batches: list[int]) -> list[int]:
        sums = fresh()
        return [sums.step(batch) - sum(batch) for batch in batches]

    assert noises(BATCH) == noises(BATCH)
    assert len({*noises(BATCH, BATCH, BATCH), *noises([20, 30, 26]), *noises([20, 30, 24])}) > 3
    loaded, unbroken = Publisher.load("sums.state", machine=page["BatchSums"]), fresh()
    assert loaded.state == page["sums"].state
    unbroken.step(BATCH)
    assert loaded.step(NEXT) == unbroken.step(NEXT)
    with pytest.raises(StateError, match="not as this publisher left it"):
        page["sums"].step(NEXT)
    other = type("Other", (page["BatchSums"],), {})
    with pytest.raises(StateError, match="holds a BatchSums: expected a Other"):
        Publisher.from_bytes(fresh().to_bytes(), machine=other)
    with pytest.raises(StateError, match="machine = None"):
        Publisher.from_bytes(fresh().to_bytes())
