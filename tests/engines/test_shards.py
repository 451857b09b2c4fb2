"""Shards in a folder: any split, restarts, batches once more; no engine."""

from __future__ import annotations

import shutil
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


def test_a_shard_that_stays_open_repeats_its_last_batch(tmp_path: Path) -> None:
    """As an actor's does, whose outputs were lost on their way."""
    job, given = make_job(tmp_path), batches(3)
    shard, fleet = Shard(job, tmp_path / "state", (0, 1)), job.fleet()
    for number, batch in enumerate(given, start=1):
        wanted = fleet.publish(*batch)[1].tolist()
        assert [shard.publish(number, *batch)[1].tolist() for _ in range(2)] == [wanted, wanted]


def test_wrong_rows_change_nothing(tmp_path: Path) -> None:
    job, (ids, values) = make_job(tmp_path), batches(1)[0]
    with Here(job, tmp_path / "state", 2) as here:
        with pytest.raises(DataError, match="expected finite"):
            here.publish(1, ids, np.where(np.arange(60) == 50, np.nan, values))
        assert here.publish(1, ids, values)[1].tolist() == job.fleet().publish(ids, values)[1].tolist()
        assert here.publish(2, [], [])[1].size == 0


def test_a_folder_of_other_parameters_is_refused(tmp_path: Path) -> None:
    """Before a batch, also of shards that have no streams yet."""
    Here(make_job(tmp_path), tmp_path / "state", 2).close()
    with pytest.raises(StateError, match=r"epsilon = 1\.0 in the state, 0\.1 asked for"):
        Here(make_job(tmp_path, epsilon=0.1), tmp_path / "state", 2)
    with Here(make_job(tmp_path), tmp_path / "state", 2) as here:
        assert here.publish(2, [1, 2], np.ones(2))[1].size == 2


@pytest.mark.parametrize("new", [1, 8, 16])
def test_a_folder_of_another_number_is_refused(tmp_path: Path, new: int) -> None:
    with Here(make_job(tmp_path), tmp_path / "state", 4) as here:
        here.publish(1, *batches(1)[0])
    with pytest.raises(StateError, match=f"shards = {new}: expected 4, the number in the state"):
        Here(make_job(tmp_path), tmp_path / "state", new)


@pytest.mark.parametrize("lost", ["whole", "shard", "newest"])
@pytest.mark.parametrize("known_by", ["shard", "program"])
def test_a_state_that_was_lost_is_refused(tmp_path: Path, lost: str, known_by: str) -> None:
    """By the shard that wrote it, and where another worker goes on by the program that saw its outputs."""
    job, given, folder = make_job(tmp_path), batches(3), tmp_path / "state"
    shard = Shard(job, folder, (0, 1))
    with Here(job, folder, 1) as here:
        publish = shard.publish if known_by == "shard" else here.publish
        for number in (1, 2):
            publish(number, *given[number - 1])
        away = {"whole": folder, "shard": folder / "shard-0-of-1", "newest": folder / "shard-0-of-1" / "2.state"}[
            lost
        ]
        kept = tmp_path / "kept"
        away.rename(kept)
        with pytest.raises(StateError, match="has lost the state behind batch 2"):
            publish(3, *given[2])
        if away.exists():
            shutil.rmtree(away)
        kept.rename(away)
        fleet = job.fleet()
        wanted = [fleet.publish(*batch)[1].tolist() for batch in given]
        assert publish(3, *given[2])[1].tolist() == wanted[2]


def test_a_worker_that_holds_a_shard_of_another_job_reads_the_state(tmp_path: Path) -> None:
    from fastdp.engines.dask import _publish

    (ids, values), folder = batches(1)[0], str(tmp_path / "state")
    _publish(make_job(tmp_path), folder, (0, 1), 1, ids, values, 0)
    with pytest.raises(StateError, match=r"epsilon = 1\.0 in the state, 0\.1 asked for"):
        _publish(make_job(tmp_path, epsilon=0.1), folder, (0, 1), 2, ids, values, 1)


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_what_is_published_behind_a_holdout_has_its_row(tmp_path: Path) -> None:
    job = make_job(tmp_path, threshold=None, holdout=20, max_range=64)
    with Here(job, tmp_path / "state", 1) as here:
        rows, _ = here.publish(1, ["a" if k % 2 else "b" for k in range(42)], [k / 9.0 for k in range(42)])
    assert rows.tolist() == [40, 41]


def test_a_second_program_is_refused(tmp_path: Path) -> None:
    job, batch = make_job(tmp_path), batches(1)[0]
    with Here(job, tmp_path / "state", 2) as here:
        here.publish(1, *batch)
        with pytest.raises(StateError, match="one program for a job"):
            Here(job, tmp_path / "state", 2)
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "state").rglob("shard-*")} == {0}


@pytest.mark.parametrize("lost", ["shard-1-of-3", "job.state", "*.state"])
def test_a_folder_that_has_lost_a_state_is_refused(tmp_path: Path, lost: str) -> None:
    job, folder = make_job(tmp_path), tmp_path / "state"
    with Here(job, folder, 3) as here:
        here.publish(1, *batches()[0])
    if lost == "*.state":
        # Of a shard whose folder is still there.
        lost = "shard-2-of-3"
        for path in (folder / lost).glob("*"):
            path.unlink()
    elif lost == "job.state":
        (folder / lost).unlink()
    else:
        shutil.rmtree(folder / lost)
    with pytest.raises(StateError, match=f"has lost {lost}: expected the files as they were written"):
        Here(job, folder, 3)


def test_a_state_under_another_number_is_refused(tmp_path: Path) -> None:
    """A folder of one shard of two that was renamed."""
    job, batch = make_job(tmp_path), batches(1)[0]
    with Here(job, tmp_path / "state", 2) as here:
        here.publish(1, *batch)
    (tmp_path / "state" / "shard-0-of-2").rename(tmp_path / "state" / "shard-0-of-1")
    with pytest.raises(StateError, match="shards = 1: expected 2, the number in the state"):
        Shard(job, tmp_path / "state", (0, 1)).publish(2, *batch)


def test_a_folder_whose_making_was_killed_begins(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    Here(job, tmp_path / "state", 3).close()
    (tmp_path / "state" / "job.state").unlink()
    shutil.rmtree(tmp_path / "state" / "shard-2-of-3")
    with Here(job, tmp_path / "state", 3) as here:
        assert here.publish(1, *batches()[0])[1].size == 60
