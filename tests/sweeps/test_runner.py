"""The same bytes whoever runs a sweep, however often it is killed."""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from fastdp.errors import DataError, FastDPError, StateError
from fastdp_lab import sweeps
from fastdp_lab.sweeps import results, runner
from fastdp_lab.sweeps.study import load_truth
from tests.shared import python
from tests.sweeps.conftest import many_small

needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed (extra lab)")


@pytest.fixture
def found(small) -> sweeps.Specification:
    return sweeps.from_table(small)


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "mode"), [(2, "threads"), (4, "threads"), (2, "processes"), (4, "processes")])
def test_any_number_of_workers_gives_the_same_bytes(found, tmp_path, digest, undisturbed, workers, mode) -> None:
    folder = sweeps.run(found, tmp_path / "out", workers=workers, mode=mode)
    assert digest(folder) == undisturbed
    left = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
    assert left == ["manifest.json", "parts", "results.parquet"]
    assert not list((folder / "parts").iterdir())


def test_any_executor_in_any_order_and_another_seed(small, found, tmp_path, digest, undisturbed) -> None:
    with ThreadPoolExecutor(3) as pool:
        folder = sweeps.run(found, tmp_path / "out", executor=pool)
        assert pool.submit(int).result() == 0, "it is the caller's to shut down"
    assert digest(folder) == undisturbed
    assert sweeps.read_manifest(folder)["sessions"][0]["mode"] == "ThreadPoolExecutor"
    assert digest(sweeps.run(sweeps.from_table({**small, "seed": 4}), tmp_path / "other")) != undisturbed


#: The command of which all processes are killed when it syncs a file for the n-th time.
DYING = """
import os, signal, sys
from fastdp.cli import main

real, left = os.fsync, int(sys.argv.pop(1))


def fsync(descriptor):
    global left
    left -= 1
    if not left:
        os.killpg(0, signal.SIGKILL)
    real(descriptor)


os.fsync = fsync
main()
"""


def _parts(folder: Path) -> int:
    return len(list((folder / "parts").glob("*.parquet")))


@pytest.mark.slow
def test_killed_three_times_at_random_points(tmp_path, digest) -> None:
    """SIGKILL to the whole group of processes, in the middle of a write; then the command again."""
    specification, output = many_small(tmp_path, 30, 5), tmp_path / "out"
    whole = sweeps.run(sweeps.read_specification(specification), tmp_path / "whole")
    generator, seen, none = np.random.default_rng(5), [0], subprocess.DEVNULL
    options = ("bench", specification, "-o", output, "--quiet")
    for mode in ("threads", "processes", "threads"):
        # Behind the first few, which are of the manifest.
        fatal = 8 + int(generator.integers(2, 25))
        command = python("-c", DYING, fatal, *options, "--workers", 2, "--mode", mode)
        process = subprocess.run(**command, start_new_session=True, stdout=none, check=False)
        assert process.returncode == -signal.SIGKILL
        seen.append(_parts(output))
    assert seen == sorted(set(seen))
    assert not (output / "results.parquet").exists()
    assert json.loads((output / "manifest.json").read_text())["finished"] is None
    partial = sweeps.load(output)["cell"].nunique()
    assert 0 < partial < 720
    subprocess.run(**python("-m", "fastdp", *options), check=True, stdout=none)
    assert digest(output) == digest(whole)
    manifest = sweeps.read_manifest(output)
    assert manifest["finished"]
    *killed, last = manifest["sessions"]
    assert last["cells"] == 720 - partial, "nothing was done twice"
    assert [each["seconds"] for each in killed] == [None] * 3
    assert killed[0]["cells"] == 720
    assert all(each["versions"] == manifest["versions"] for each in manifest["sessions"])


def rewrite(folder: Path, **changes: object) -> None:
    """Other entries in a sweep's manifest."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_killed_between_the_table_and_the_end(found, tmp_path, digest, undisturbed) -> None:
    """The table is there, the manifest does not say so, and a part is left over."""
    folder = sweeps.run(found, tmp_path / "out")
    rewrite(folder, finished=None)
    (folder / "parts" / "0.parquet").touch()
    before = (folder / "results.parquet").stat().st_ino
    for _ in range(2):
        sweeps.run(found, folder)
        assert digest(folder) == undisturbed
        assert sweeps.read_manifest(folder)["finished"]
        assert not list((folder / "parts").iterdir())
    assert (folder / "results.parquet").stat().st_ino == before, "nothing was done twice"


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def begun(found: sweeps.Specification, folder: Path) -> Path:
    """A sweep of which all parts are there, but no table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "merge_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            sweeps.run(found, folder)
    return folder


def test_half_written_files_are_removed_and_strangers_left(found, tmp_path, digest, undisturbed) -> None:
    out = begun(found, tmp_path / "out")
    whole, some = sweeps.load(out), next((out / "parts").glob("*.parquet"))
    (some.parent / "stranger.parquet").write_bytes(some.read_bytes())
    assert len(sweeps.load(out)) == len(whole)
    (out / "parts" / ".x.parquet.0.tmp").write_bytes(b"half")
    assert digest(sweeps.run(found, out)) == undisturbed
    assert not list((out / "parts").iterdir())
    (tmp_path / "other" / "parts").mkdir(parents=True)
    with pytest.raises(DataError, match="holds parts: expected an empty folder"):
        sweeps.run(found, tmp_path / "other")
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["parts"]


def test_a_folder_holds_one_sweep_of_the_same_data(small, tmp_path) -> None:
    path = tmp_path / "in.npy"
    np.save(path, np.arange(900.0))
    small["datasets"] = [{"name": "mine", "file": "in.npy", "bound": 900}]
    found = sweeps.from_table(small)
    before = runner.check_data(found, tmp_path)
    folder = sweeps.run(found, tmp_path / "out", data=tmp_path)
    with pytest.raises(DataError, match="holds another sweep"):
        sweeps.run(sweeps.from_table({**small, "epsilons": [0.3]}), folder, data=tmp_path)
    np.save(path, np.arange(900.0)[::-1])
    with pytest.raises(DataError, match="the data sets have changed"):
        sweeps.run(found, folder, data=tmp_path)
    # A worker that holds the earlier values reads the file again.
    after = load_truth(found.datasets[0], tmp_path, "0" * 32).facts
    assert after != before["mine"]
    assert runner.check_data(found, tmp_path) == {"mine": after}


def test_one_runner_at_a_time_and_a_session_of_each(found, tmp_path, digest, undisturbed) -> None:
    """The manifest is read under the lock: a second starter sees the first one's session."""
    data, out = runner.check_data(found, Path()), tmp_path / "out"
    for cells in (1, 3):
        with results.opened(out, found, data) as manifest, results.session(out, manifest, {"cells": cells}):
            if cells == 3:
                with pytest.raises(StateError, match="another sweep writes to this folder"):
                    sweeps.run(found, out)
    folder = sweeps.run(found, out)
    sessions = sweeps.read_manifest(folder)["sessions"]
    assert [each["cells"] for each in sessions] == [1, 3, 120]
    assert all(each["seconds"] is not None for each in sessions)
    assert digest(folder) == undisturbed


def test_damaged_parts_are_run_again(found, tmp_path, digest, undisturbed, monkeypatch) -> None:
    begun(found, tmp_path / "out")
    paths = sorted((tmp_path / "out" / "parts").glob("*.parquet"))
    content = paths[2].read_bytes()
    paths[2].write_bytes(content[: len(content) // 2])
    flipped = bytearray(paths[3].read_bytes())
    flipped[200] ^= 255
    paths[3].write_bytes(flipped)
    for path in paths[5:9]:
        path.write_bytes(b"")
    with pytest.raises(DataError, match="damaged"):
        sweeps.load(tmp_path / "out")
    with pytest.warns(RuntimeWarning, match=r"parquet, \.\.\.: damaged; .*run again") as told:
        folder = sweeps.run(found, tmp_path / "out")
    assert len(told) == 1
    assert digest(folder) == undisturbed
    assert 6 <= sweeps.read_manifest(folder)["sessions"][-1]["cells"] <= 6 * 7
    (folder / "results.parquet").write_bytes(b"x")
    with pytest.raises(DataError, match=r"results\.parquet: damaged"):
        sweeps.load(folder)
    # Parts that are always damaged end the sweep.
    monkeypatch.setattr(results, "write_part", lambda folder, name, *_: results.part_path(folder, name).touch())
    with pytest.warns(RuntimeWarning), pytest.raises(StateError, match="damaged 3 times"):
        sweeps.run(found, tmp_path / "always")


def moody(setting: sweeps.Setting, *, always: bool = False) -> Callable[..., Any]:
    """A system that fails in some repetitions, by their keys."""

    def prepare(values: Any) -> Callable[..., Any]:
        if always:
            raise ArithmeticError("too large")
        base = sweeps.SYSTEMS["base"].build(setting)(values)

        def run(key: Any) -> Any:
            if key.reveal()[0] % 2:
                raise ZeroDivisionError("odd key")
            return base(key)

        return run

    return prepare


def test_a_failing_cell_is_recorded_and_the_rest_goes_on(small, tmp_path, monkeypatch, digest) -> None:
    monkeypatch.setitem(sweeps.SYSTEMS, "moody", sweeps.System(moody, ("always",)))
    names = {"moody": {"system": "moody"}, "never": {"system": "moody", "always": True}, "ToPS": {"system": "tops"}}
    found = sweeps.from_table({**small, "mechanisms": [{"name": name, **each} for name, each in names.items()]})
    folder = sweeps.run(found, tmp_path / "out")
    assert digest(folder) == digest(sweeps.run(found, tmp_path / "again", workers=3))
    table = sweeps.load(folder)
    assert sorted(table["cell"].unique()) == list(range(60))
    failed = table[table["error"].notna()]
    assert (failed["queries"] == 0).all()
    assert failed["mse"].isna().all()
    errors = {name: set(some["error"]) for name, some in failed.groupby("mechanism")}
    kept = " (its text may quote values, so it is not kept)"
    assert errors == {"moody": {f"ZeroDivisionError{kept}"}, "never": {f"ArithmeticError{kept}"}}
    counts = failed["mechanism"].value_counts()
    assert counts["never"] == 20
    assert 0 < counts["moody"] < 20


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("error", [MemoryError("too large"), FileNotFoundError(2, "gone")])
def test_what_the_machine_lacks_is_no_result(
    found, tmp_path, monkeypatch, digest, undisturbed, workers, error
) -> None:
    """Run again once there is memory, the sweep goes on as if nothing had been."""

    def greedy(key: Any) -> None:
        raise error

    said = f"^ToPL on POS, order=iid: {type(error).__name__}: .*run again to go on"
    with monkeypatch.context() as patch:
        patch.setitem(sweeps.SYSTEMS, "topl", sweeps.System(lambda setting: lambda values: greedy))
        with pytest.raises(StateError, match=said):
            sweeps.run(found, tmp_path / "out", workers=workers)
    assert digest(sweeps.run(found, tmp_path / "out")) == undisturbed


ORIGINAL = runner._attempt


def _die_once(*arguments: Any) -> Any:
    marker = Path(os.environ["FASTDP_TEST_MARKER"])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return ORIGINAL(*arguments)


def _die_as_worker(*arguments: Any) -> None:
    os._exit(9)


@pytest.mark.slow
@pytest.mark.parametrize("ever", [False, True])
def test_worker_processes_that_die(found, tmp_path, digest, undisturbed, monkeypatch, ever) -> None:
    """One is replaced; if they die for ever, the sweep ends."""
    marker = tmp_path / "marker"
    monkeypatch.setenv("FASTDP_TEST_MARKER", str(marker))
    # The spawned workers import this file, so they must find the other task there.
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    task = getattr(importlib.import_module("test_runner"), "_die_as_worker" if ever else "_die_once")
    monkeypatch.setattr(runner, "_attempt", task)
    if ever:
        with pytest.raises(StateError, match="workers died 3 times"):
            sweeps.run(found, tmp_path / "out", workers=2, mode="processes")
        return
    assert digest(sweeps.run(found, tmp_path / "out", workers=2, mode="processes")) == undisturbed
    assert marker.exists()


def test_an_interrupt_ends_the_workers(small, tmp_path, monkeypatch) -> None:
    """Parts that have not begun are not run."""
    begun_parts = []
    monkeypatch.setattr(runner, "_attempt", lambda *arguments: begun_parts.append(1) or ORIGINAL(*arguments))
    monkeypatch.setattr(results, "write_part", stop)
    with pytest.raises(KeyboardInterrupt):
        sweeps.run(sweeps.from_table({**small, "part_cells": 1}), tmp_path / "out", workers=2)
    assert len(begun_parts) < 120
    assert threading.active_count() < 10


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="lists children in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_sweep(tmp_path, number) -> None:
    """A signal to the sweep alone, as systemd or a container sends it to the first process."""
    output, options = tmp_path / "out", ("--quiet", "--workers", "2", "--mode", "processes")
    command = python("-m", "fastdp", "bench", many_small(tmp_path, 2000, 16), "-o", output, *options)
    # Its own session, so that what is left over can be ended here.
    process = subprocess.Popen(**command, start_new_session=True, stdout=subprocess.PIPE)
    while _parts(output) < 3:
        assert process.poll() is None
        time.sleep(0.01)
    tasks = Path(f"/proc/{process.pid}/task").glob("*/children")
    children = [int(each) for task in tasks for each in task.read_text().split()]
    assert len(children) >= 2
    process.send_signal(number)
    try:
        # Workers hold the pipe of standard output: it ends with the last of them.
        process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        pytest.fail(f"of the workers {children} some live on")
    assert process.returncode == -number


def _lost() -> dict[str, BaseException]:
    found: dict[str, BaseException] = {
        "CancelledError": CancelledError(),
        "BrokenProcessPool": BrokenProcessPool("x"),
    }
    if find_spec("distributed") is not None:
        import distributed

        found["CommClosedError"] = distributed.comm.CommClosedError("in <TCP tcp://x:1>")
        found["KilledWorker"] = distributed.KilledWorker("run_part-7", None, 4)
    return found


@pytest.mark.parametrize("name", _lost())
def test_an_executor_that_is_lost_is_one_error(found, tmp_path, name) -> None:
    class Lost(Executor):
        def submit(self, *_, **__) -> Future:
            future: Future = Future()
            future.set_exception(_lost()[name])
            return future

    with pytest.raises(StateError, match=rf"lost its workers or its scheduler \({name}\).*again to go on") as caught:
        sweeps.run(found, tmp_path / "out", executor=Lost())
    assert caught.value.__suppress_context__, "no traceback of the executor's"


# A real Dask cluster of several worker processes on this machine.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@needs_dask
def test_a_cluster_with_a_killed_worker_gives_the_same_bytes(small, tmp_path, digest, monkeypatch) -> None:
    import distributed

    # Nannies start their workers as processes that must find both packages.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    found = sweeps.from_table({**small, "repetitions": 20, "part_cells": 4})
    alone, out = sweeps.run(found, tmp_path / "alone"), tmp_path / "out"
    local = {"n_workers": 3, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**local, silence_logs=50) as cluster:
        victims = [nanny.pid for nanny in cluster.workers.values()]
        assert len(set(victims)) == 3
        write, stored = results.write_part, []

        def killing(*arguments) -> None:
            write(*arguments)
            stored.append(arguments)
            if len(stored) == 10:
                os.kill(victims[0], signal.SIGKILL)

        monkeypatch.setattr(results, "write_part", killing)
        with sweeps.cluster(cluster.scheduler_address) as executor:
            sweeps.run(found, out, executor=executor)
    assert len(stored) == 120, "the worker died in the middle"
    assert digest(out) == digest(alone)


@needs_dask
def test_without_an_answer_and_without_logs(monkeypatch) -> None:
    """Several logs may tell of a lost scheduler: all of Dask's are silent while a sweep runs."""
    import distributed

    monkeypatch.setattr(runner, "TIMEOUT_SECONDS", 0.2)
    with pytest.raises(StateError, match="no answer"), sweeps.cluster("tcp://127.0.0.1:9"):
        pass
    logs = [logging.getLogger(f"distributed{each}") for each in ("", ".batched", ".client", ".core", ".comm.tcp")]
    before = [log.getEffectiveLevel() for log in logs]
    monkeypatch.setattr(distributed, "Client", MagicMock())
    with sweeps.cluster("tcp://127.0.0.1:9"):
        assert not any(log.isEnabledFor(logging.ERROR) for log in logs)
    assert [log.getEffectiveLevel() for log in logs] == before


def test_options_are_checked(found, tmp_path) -> None:
    for option, value in (("workers", 0), ("mode", "fibres")):
        with pytest.raises(FastDPError, match=f"{option} = "):
            sweeps.run(found, tmp_path / "out", **{option: value})
    assert not (tmp_path / "out").exists()


def test_another_version_does_not_go_on(found, tmp_path) -> None:
    folder = begun(found, tmp_path / "out")
    rewrite(folder, versions=sweeps.read_manifest(folder)["versions"] | {"fastdp": "0.0.1"})
    with pytest.raises(DataError, match=r"begun by fastdp 0\.0\.1, this is .*expected that version, or a new folder"):
        sweeps.run(found, tmp_path / "out")
