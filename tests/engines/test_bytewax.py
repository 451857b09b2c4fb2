"""Bytewax, run in this process and killed in others."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from fastdp.errors import StateError
from fastdp.streams.fleet import Fleet
from tests.engines import windows
from tests.engines.scenes import Row, assert_altered_replay, counting_job, expected, make_job, make_rows, needs

pytestmark = [needs("bytewax"), pytest.mark.filterwarnings("ignore")]


def flow(rows: list[Any], job: Any, out: list[Row], *, batch: int = 50, shards: int = 4) -> Any:
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource

    from fastdp.engines import bytewax

    made = Dataflow("meters")
    published = bytewax.release("dp", op.input("in", made, TestingSource(rows, batch)), job, shards)
    op.output("out", published, TestingSink(out))
    return made


@pytest.mark.parametrize(("workers", "shards"), [(1, 1), (1, 4), (2, 4), (4, 16)])
def test_the_same_bytes_for_any_number_of_workers(tmp_path: Path, workers: int, shards: int) -> None:
    from bytewax.testing import cluster_main

    job, rows = make_job(tmp_path), make_rows(600)
    out: list[Row] = []
    cluster_main(flow(rows, job, out, shards=shards), [], 0, worker_count_per_proc=workers)
    assert {place: value for _, value, place in out} == expected(job, rows)
    for stream in {row[0] for row in rows}:
        places = [place for each, _, place in out if each == stream]
        assert places == sorted(places)


def test_aborted_and_recovered(tmp_path: Path) -> None:
    from bytewax.recovery import RecoveryConfig, init_db_dir
    from bytewax.testing import TestingSource, run_main

    job, rows = make_job(tmp_path), make_rows(600)
    recovery = tmp_path / "recovery"
    recovery.mkdir()
    init_db_dir(recovery, 1)
    out: list[Row] = []
    for stop in (200, 450, 600):
        # A source counts rows alone: one that passed a second stop would give a row twice.
        given = [*rows[:stop], TestingSource.ABORT(), *rows[stop:]] if stop < 600 else rows
        run_main(
            flow(given, job, out, batch=10),
            recovery_config=RecoveryConfig(recovery),
            epoch_interval=timedelta(0, 0.01),
        )
    wanted = expected(job, rows)
    # At least once: some come again, with the same noise.
    assert {place for _, _, place in out} == set(wanted)
    assert all(value == wanted[place] for _, value, place in out)
    # Another number of shards would begin streams again, here those of an id that no state has.
    before = len(out)
    for shards in (16, 8, 2):
        number = next(n for n in range(99) if int(Fleet.part_of([f"new{n}"], shards)[0]) == shards - 1)
        given = [*rows, (f"new{number}", 1.0, 600)]
        with pytest.raises(StateError, match=f"shards = {shards}: expected 4, the number in the state"):
            _first(
                lambda n=shards, g=given: run_main(
                    flow(g, job, out, shards=n), recovery_config=RecoveryConfig(recovery)
                )
            )
    assert len(out) == before


def _first(run: Any) -> None:
    """Run; of an error that Bytewax puts into others the first one."""
    try:
        run()
    except Exception as error:
        first: BaseException = error
        while first.__cause__ or first.__context__:
            first = first.__cause__ or first.__context__ or first
        raise first from None


def test_an_altered_replay_meets_independent_noise(tmp_path: Path) -> None:
    from bytewax.recovery import RecoveryConfig, init_db_dir
    from bytewax.testing import run_main

    job, saved = counting_job(tmp_path), tmp_path / "saved"
    rows = [("a", 1.0, place) for place in range(400)]
    saved.mkdir()
    init_db_dir(saved, 1)

    def run(given: list[Any], folder: Path) -> list[float]:
        out: list[Row] = []
        run_main(flow(given, job, out), recovery_config=RecoveryConfig(folder), epoch_interval=timedelta(0))
        return [value for _, value, place in out if place >= 100]

    run(rows[:100], saved)
    found = []
    for name, value in (("once", 1.0), ("again", 1.0), ("altered", 2.0)):
        shutil.copytree(saved, tmp_path / name)
        found.append(run([*rows[:200], ("a", value, 200), *rows[201:]], tmp_path / name))
    assert_altered_replay(found[0], found[1], found[2], 100)


PROGRAM = """
import json, sys, os, signal, time
from datetime import timedelta
from pathlib import Path
from bytewax.recovery import RecoveryConfig
from bytewax.testing import run_main
from tests.engines.scenes import make_job, make_rows
from tests.engines.test_bytewax import flow

class Out(list):
    left = int(sys.argv[2])

    def __iadd__(self, items):
        os.write(1, b"".join(json.dumps(item).encode() + b"\\n" for item in items))
        self.left -= len(items)
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)
        return self

folder = Path(sys.argv[1])
made = flow(make_rows(600), make_job(folder), Out(), batch=5)
run_main(made, recovery_config=RecoveryConfig(folder / "recovery"), epoch_interval=timedelta(0, 0.02))
"""


@pytest.mark.slow
def test_killed_and_restarted(tmp_path: Path) -> None:
    from bytewax.recovery import init_db_dir

    (tmp_path / "recovery").mkdir()
    init_db_dir(tmp_path / "recovery", 1)
    wanted = expected(make_job(tmp_path), make_rows(600))
    seen: dict[int, float] = {}
    # Outputs until it kills itself.
    for count in (40, 300, 10_000):
        command = [sys.executable, "-c", PROGRAM, tmp_path, str(count)]
        child = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        for line in child.stdout.splitlines():
            _, value, place = json.loads(line)
            assert seen.setdefault(place, value) == value, "an output with two noises"
        assert child.returncode == (-signal.SIGKILL if count < 10_000 else 0)
    assert seen == wanted


def windows_flow(items: list[Any], job: Any, out: list[Any], *, batch: int = 50, shards: int = 4) -> Any:
    import bytewax.operators as op
    from bytewax.dataflow import Dataflow
    from bytewax.testing import TestingSink, TestingSource

    from fastdp.engines import bytewax

    made = Dataflow("windows")
    released = bytewax.windows("dp", op.input("in", made, TestingSource(items, batch)), job, shards)
    op.output("out", released, TestingSink(out))
    return made


@pytest.mark.parametrize("persons", [True, False])
@pytest.mark.parametrize(("workers", "shards"), [(1, 1), (2, 4), (3, 5)])
def test_windows_for_any_number_of_workers(tmp_path: Path, workers: int, shards: int, persons: bool) -> None:
    from bytewax.testing import cluster_main

    job, rows = windows.make_job(tmp_path, persons), windows.make_rows()
    rows = [{**row, "who": "7"} if k % 3 else row for k, row in enumerate(rows)]
    out: list[Any] = []
    # A person of two types is one; a row that is not accepted is dropped.
    given = [{**row, "who": 7} if row["who"] == "7" and k % 2 else row for k, row in enumerate(rows)]
    given.insert(20, {**rows[20], "kwh": "much"})
    flow = windows_flow(windows.with_ticks(given), job, out, shards=shards)
    cluster_main(flow, [], 0, worker_count_per_proc=workers)
    assert windows.in_order(out) == windows.expected(job, rows)


def test_windows_aborted_and_recovered(tmp_path: Path) -> None:
    from bytewax.recovery import RecoveryConfig, init_db_dir
    from bytewax.testing import TestingSource, run_main

    job, items = windows.make_job(tmp_path), windows.with_ticks(windows.make_rows())
    recovery = tmp_path / "recovery"
    recovery.mkdir()
    init_db_dir(recovery, 1)
    out: list[Any] = []
    for stop in (150, 300, None):
        given = items if stop is None else [*items[:stop], TestingSource.ABORT(), *items[stop:]]
        flow = windows_flow(given, job, out, batch=10)
        run_main(flow, recovery_config=RecoveryConfig(recovery), epoch_interval=timedelta(0, 0.01))
    windows.assert_released(out, job, windows.make_rows())
    changed = windows.make_job(tmp_path, epsilon=0.5)
    for other, shards, said in ((job, 8, "shards = 4 in the state, 8"), (changed, 4, "epsilon = 1.0 in the state")):
        flow = windows_flow([*items, windows.END], other, out, shards=shards)
        with pytest.raises(StateError, match=said):
            _first(lambda f=flow: run_main(f, recovery_config=RecoveryConfig(recovery)))
