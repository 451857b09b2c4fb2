"""Flink: a small cluster in this process's Java, with one worker process of Python for each slot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engines.scenes import expected, make_job, make_rows, needs

pytestmark = [needs("pyflink"), pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def environment(parallelism: int = 2, **options: str) -> Any:
    """An execution environment as small as it gets."""
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment

    configuration = Configuration()
    for name, value in {"python.executable": sys.executable, "python.client.executable": sys.executable}.items():
        configuration.set_string(name, value)
    for name, value in options.items():
        configuration.set_string(name.replace("_", "."), value)
    made = StreamExecutionEnvironment.get_execution_environment(configuration)
    made.set_parallelism(parallelism)
    return made


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_bytes_for_any_number_of_workers(tmp_path: Path, workers: int) -> None:
    from fastdp.engines import flink

    job, rows = make_job(tmp_path), make_rows(300)
    given = environment(workers).from_collection(rows)
    out = list(flink.release(given, job).execute_and_collect())
    assert {place: value for _, value, place in out} == expected(job, rows)


def test_lists_are_published_as_lists(tmp_path: Path) -> None:
    from fastdp.engines import flink

    job, rows = make_job(tmp_path), make_rows(300)
    lists: dict[str, list[Any]] = {}
    for stream, value, place in rows:
        lists.setdefault(stream, []).append((value, place))
    given = [
        (stream, [value for value, _ in part], [place for _, place in part])
        for stream, mine in lists.items()
        for part in (mine[:20], mine[20:])
    ]
    out = list(flink.release(environment().from_collection(given), job).execute_and_collect())
    found = {place: value for _, values, places in out for place, value in zip(places, values, strict=True)}
    assert found == expected(job, rows)
