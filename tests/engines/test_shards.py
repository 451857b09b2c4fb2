"""Shards in a folder: any split, restarts, batches once more; no engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdp.counters import RunningCounts, Simple
from fastdp.engines import Job
from fastdp.engines.shards import Shard, Shards
from fastdp.errors import DataError, StateError
from tests.engines.scenes import make_job, write_secret


class Here(Shards):
    """In this process; ``fail`` shards break down after their state is written."""

    fail: frozenset[int] = frozenset()

    def _run(self, batch: int, parts: dict[int, Any]) -> dict[int, tuple[Any, Any]]:
        answers = {
            k: Shard(self.job, self.folder, (k, self.shards)).publish(batch, *part) for k, part in parts.items()
        }
        if self.fail & set(parts):
            raise OSError("a worker died")
        return answers


def batches(count: int = 5, size: int = 60) -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(4)
    return [(rng.integers(0, 9, size), rng.uniform(0.0, 10.0, size)) for _ in range(count)]


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_the_output_is_that_of_one_fleet(tmp_path: Path, shards: int) -> None:
    job = make_job(tmp_path)
    fleet = job.fleet()
    for number, (ids, values) in enumerate(batches(), start=1):
        # A program a batch.
        with Here(job, tmp_path / "state", shards) as here:
            rows, out = here.publish(number, ids, values)
        assert rows.tolist() == list(range(values.size))
        assert out.tolist() == fleet.publish(ids, values)[1].tolist()


def test_a_batch_whose_outputs_were_lost_is_given_again(tmp_path: Path) -> None:
    job, fleet, given = make_job(tmp_path), make_job(tmp_path).fleet(), batches()
    wanted = [fleet.publish(*batch)[1].tolist() for batch in given]
    with Here(job, tmp_path / "state", 3) as here:
        for number, batch in enumerate(given, start=1):
            here.fail = frozenset([0, 1, 2])
            with pytest.raises(OSError, match="died"):
                here.publish(number, *batch)
            here.fail = frozenset()
            assert here.publish(number, *batch)[1].tolist() == wanted[number - 1]
        with pytest.raises(StateError, match="expected 5 once more, or a later one"):
            here.publish(4, *given[3])


def test_an_altered_batch_meets_other_noise(tmp_path: Path) -> None:
    job = Job(RunningCounts(Simple(), 0.01), name="visits", secret=write_secret(tmp_path))
    ids, ones = np.arange(200), np.ones(200)
    with Here(job, tmp_path / "state", 2) as here:
        here.publish(1, ids, ones)
        once, again = (here.publish(2, ids, ones)[1] for _ in range(2))
        altered = here.publish(2, ids, ones + 1.0)[1]
    assert once.tolist() == again.tolist()
    # Under equal noise every difference would be 1, that of the data.
    assert np.count_nonzero(altered - once == 1.0) < 10


def test_wrong_rows_change_nothing(tmp_path: Path) -> None:
    job, (ids, values) = make_job(tmp_path), batches(1)[0]
    with Here(job, tmp_path / "state", 2) as here:
        with pytest.raises(DataError, match="expected finite"):
            here.publish(1, ids, np.where(np.arange(60) == 50, np.nan, values))
        assert here.publish(1, ids, values)[1].tolist() == job.fleet().publish(ids, values)[1].tolist()
        assert here.publish(2, [], [])[1].size == 0


@pytest.mark.slow
def test_another_number_of_shards_and_a_second_program_are_refused(tmp_path: Path) -> None:
    job, batch = make_job(tmp_path), batches(1)[0]
    with Here(job, tmp_path / "state", 2) as here:
        here.publish(1, *batch)
        with pytest.raises(StateError, match="one program for a job"):
            Here(job, tmp_path / "state", 2)
    with pytest.raises(StateError, match="shards = 4"):
        Here(job, tmp_path / "state", 4)
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "state").rglob("shard-*")} == {0}
