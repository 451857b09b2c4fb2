"""Beam on its direct runner, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engines import windows
from tests.engines.scenes import expected, make_job, make_rows, needs

pytestmark = [needs("apache_beam"), pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def run(folder: Path, make: Any, rows: list[Any], moments: list[float]) -> list[Any]:
    """Results of a pipeline of rows with these timestamps, which come out of order."""
    import apache_beam as beam

    with beam.Pipeline(runner="DirectRunner") as pipeline:
        stamped = [beam.window.TimestampedValue(row, at) for row, at in zip(rows, moments, strict=True)]
        given = pipeline | beam.Create(stamped[::2] + stamped[1::2]) | beam.Map(lambda each: each)
        make(given) | beam.Map(windows.Log(folder / "out"))
    return windows.logged(folder / "out")


def test_streams_are_in_the_order_of_their_timestamps(tmp_path: Path) -> None:
    from fastdp.engines import beam

    job, rows = make_job(tmp_path), make_rows(300)
    out = run(tmp_path, lambda given: beam.release(given, job), rows, [float(place) for _, _, place in rows])
    assert {place: value for _, value, place in out} == expected(job, rows)


@pytest.mark.parametrize("shards", [1, 4])
def test_windows(tmp_path: Path, shards: int) -> None:
    from fastdp.engines import beam

    job, rows = windows.make_job(tmp_path), windows.make_rows()
    rows = [{**row, "who": "7"} if k % 3 else row for k, row in enumerate(rows)]
    # A person of two types is one; rows that are not accepted are dropped.
    given = [{**row, "who": 7} if k % 3 == 1 else row for k, row in enumerate(rows)]
    given += [{**rows[0], "who": None}, {**rows[0], "kwh": "much"}]
    moments = [row["at"].timestamp() for row in given]
    out = run(tmp_path, lambda each: beam.windows(each, job, windows.END, shards), given, moments)
    assert windows.in_order(out) == windows.expected(job, rows)
