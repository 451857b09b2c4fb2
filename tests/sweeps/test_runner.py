"""The same bytes whoever runs a sweep, however often it is killed."""

from __future__ import annotations

import errno
import importlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdp.errors import DataError, FastDPError, StateError
from fastdp_lab import sweeps
from fastdp_lab.sweeps import results, runner
from fastdp_lab.sweeps.study import load_truth
from tests.shared import python


@pytest.fixture
def undisturbed(small, tmp_path, digest) -> str:
    """Digest of the table of one worker without interruption."""
    return digest(sweeps.run(sweeps.from_table(small), tmp_path / "undisturbed"))


@pytest.mark.parametrize(("workers", "mode"), [(2, "threads"), (4, "threads"), (2, "processes"), (4, "processes")])
def test_any_number_of_workers_gives_the_same_bytes(small, tmp_path, digest, undisturbed, workers, mode) -> None:
    found = sweeps.from_table(small)
    folder = sweeps.run(found, tmp_path / "out", workers=workers, mode=mode)
    assert digest(folder) == undisturbed
    assert sorted(each.name for each in folder.iterdir() if not each.name.startswith(".")) == [
        "manifest.json",
        "parts",
        "results.parquet",
    ]
    assert not list((folder / "parts").iterdir())


def test_any_executor_in_any_order(small, tmp_path, digest, undisturbed) -> None:
    found = sweeps.from_table(small)
    with ThreadPoolExecutor(3) as pool:
        folder = sweeps.run(found, tmp_path / "out", executor=pool)
        assert pool.submit(int).result() == 0, "it is the caller's to shut down"
    assert digest(folder) == undisturbed
    assert sweeps.read_manifest(folder)["sessions"][0]["mode"] == "ThreadPoolExecutor"


def test_another_seed_gives_other_bytes(small, tmp_path, digest, undisturbed) -> None:
    small["seed"] = 4
    assert digest(sweeps.run(sweeps.from_table(small), tmp_path / "out")) != undisturbed


def _command(path: Path, output: Path, *further: str) -> dict[str, Any]:
    return python("-m", "fastdp", "sweep", path, "-o", output, "--quiet", *further)


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


def test_killed_three_times_at_random_points(small, tmp_path, digest, toml) -> None:
    """SIGKILL to the whole group of processes, in the middle of a write; then the command again."""
    small["repetitions"], small["part_cells"] = 30, 5
    modes = "threads", "processes", "threads"
    specification = tmp_path / "spec.toml"
    specification.write_text(toml(small))
    whole = sweeps.run(sweeps.read_specification(specification), tmp_path / "whole")
    output = tmp_path / "out"
    generator = np.random.default_rng(5)
    seen = []
    for mode in modes:
        # Behind the first few, which are of the manifest.
        fatal = 8 + int(generator.integers(2, 25))
        options = ("sweep", specification, "-o", output, "--quiet", "--workers", 2, "--mode", mode)
        process = subprocess.run(
            **python("-c", DYING, fatal, *options),
            start_new_session=True,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        assert process.returncode == -signal.SIGKILL
        seen.append(_parts(output))
    assert 0 < seen[0] < seen[1] < seen[2]
    assert not (output / "results.parquet").exists()
    assert json.loads((output / "manifest.json").read_text())["finished"] is None
    partial = sweeps.load(output)
    assert 0 < partial["cell"].nunique() < 720
    subprocess.run(**_command(specification, output), check=True, stdout=subprocess.DEVNULL)
    assert digest(output) == digest(whole)
    manifest = sweeps.read_manifest(output)
    assert manifest["finished"]
    *killed, last = manifest["sessions"]
    assert last["cells"] == 720 - partial["cell"].nunique(), "nothing was done twice"
    assert [each["seconds"] for each in killed] == [None] * 3
    assert killed[0]["cells"] == 720
    assert all(each["versions"] == manifest["versions"] for each in manifest["sessions"])


def _parts(folder: Path) -> int:
    return len(list((folder / "parts").glob("*.parquet")))


def test_killed_between_the_table_and_the_end(small, tmp_path, digest, undisturbed, monkeypatch) -> None:
    found = sweeps.from_table(small)
    with monkeypatch.context() as patch:
        patch.setattr(results, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            sweeps.run(found, tmp_path / "out")
    monkeypatch.setattr(runner, "run_part", None)
    folder = sweeps.run(found, tmp_path / "out")
    assert digest(folder) == undisturbed
    assert sweeps.read_manifest(folder)["finished"]
    sweeps.run(found, folder)


def stop(*_: object) -> None:
    raise KeyboardInterrupt


def begun(found: sweeps.Specification, folder: Path, data: Path = Path()) -> Path:
    """A sweep of which all parts are there, but no table."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "merge_parts", stop)
        with pytest.raises(KeyboardInterrupt):
            sweeps.run(found, folder, data=data)
    return folder


def test_half_written_files_are_removed(small, tmp_path, digest, undisturbed) -> None:
    found = sweeps.from_table(small)
    out = begun(found, tmp_path / "out")
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
    folder = sweeps.run(found, tmp_path / "out", data=tmp_path)
    small["epsilons"] = [0.3]
    with pytest.raises(DataError, match="holds another sweep"):
        sweeps.run(sweeps.from_table(small), folder, data=tmp_path)
    np.save(path, np.arange(900.0)[::-1])
    with pytest.raises(DataError, match="the data sets have changed"):
        sweeps.run(found, folder, data=tmp_path)


def test_one_runner_at_a_time(small, tmp_path) -> None:
    found = sweeps.from_table(small)
    data = runner.check_data(found, Path())
    with (
        results.opened(tmp_path / "out", found, data),
        pytest.raises(StateError, match="another sweep writes to this folder"),
    ):
        sweeps.run(found, tmp_path / "out")


def test_sessions_of_one_folder(small, tmp_path, digest, undisturbed) -> None:
    """The manifest is read under the lock: a second starter sees the first one's session."""
    found = sweeps.from_table(small)
    data = runner.check_data(found, Path())
    for cells in (1, 3):
        with (
            results.opened(tmp_path / "out", found, data) as manifest,
            results.session(tmp_path / "out", manifest, {"cells": cells}),
        ):
            pass
    folder = sweeps.run(found, tmp_path / "out")
    sessions = sweeps.read_manifest(folder)["sessions"]
    assert [each["cells"] for each in sessions] == [1, 3, 120]
    assert all(each["seconds"] is not None for each in sessions)
    assert digest(folder) == undisturbed


def test_only_parts_of_the_sweep_are_loaded(small, tmp_path) -> None:
    out = begun(sweeps.from_table(small), tmp_path / "out")
    whole = sweeps.load(out)
    some = next((out / "parts").glob("*.parquet"))
    (some.parent / "stranger.parquet").write_bytes(some.read_bytes())
    assert len(sweeps.load(out)) == len(whole)


def test_another_version_does_not_go_on(small, tmp_path, monkeypatch) -> None:
    found = sweeps.from_table(small)
    with monkeypatch.context() as patch:
        patch.setattr(results.fastdp, "__version__", "0.0.1")
        begun(found, tmp_path / "out")
    with pytest.raises(DataError, match=r"begun by fastdp 0\.0\.1, this is .*expected that version, or a new folder"):
        sweeps.run(found, tmp_path / "out")


def test_damaged_parts_are_run_again(small, tmp_path, digest, undisturbed) -> None:
    found = sweeps.from_table(small)
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
    cells = sweeps.read_manifest(folder)["sessions"][-1]["cells"]
    assert 6 <= cells <= 6 * 7
    (folder / "results.parquet").write_bytes(b"x")
    with pytest.raises(DataError, match=r"results\.parquet: damaged"):
        sweeps.load(folder)


def test_parts_that_are_always_damaged_end_the_sweep(small, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(results, "write_part", lambda folder, name, *_: results.part_path(folder, name).touch())
    with pytest.warns(RuntimeWarning), pytest.raises(StateError, match="damaged 3 times"):
        sweeps.run(sweeps.from_table(small), tmp_path / "out")


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
    small["mechanisms"] = [
        {"name": "moody", "system": "moody"},
        {"name": "never", "system": "moody", "always": True},
        {"name": "ToPS", "system": "tops"},
    ]
    found = sweeps.from_table(small)
    folder = sweeps.run(found, tmp_path / "out")
    assert digest(folder) == digest(sweeps.run(found, tmp_path / "again", workers=3))
    table = sweeps.load(folder)
    assert sorted(table["cell"].unique()) == list(range(60))
    failed = table[table["error"].notna()]
    assert (failed["queries"] == 0).all()
    assert failed["mse"].isna().all()
    assert set(failed[failed["mechanism"] == "never"]["error"]) == {
        "ArithmeticError (its text may quote values, so it is not kept)"
    }
    assert len(failed[failed["mechanism"] == "never"]) == 20
    assert set(failed[failed["mechanism"] == "moody"]["error"]) == {
        "ZeroDivisionError (its text may quote values, so it is not kept)"
    }
    assert 0 < len(failed[failed["mechanism"] == "moody"]) < 20
    assert not (failed["mechanism"] == "ToPS").any()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("error", [MemoryError("too large"), FileNotFoundError(2, "gone")])
def test_what_the_machine_lacks_is_no_result(
    small, tmp_path, monkeypatch, digest, undisturbed, workers, error
) -> None:
    """Run again once there is memory, the sweep goes on as if nothing had been."""
    found = sweeps.from_table(small)

    def greedy(key: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setitem(sweeps.SYSTEMS, "topl", sweeps.System(lambda setting: lambda values: greedy))
        with pytest.raises(
            StateError, match=f"^ToPL on POS, order=iid: {type(error).__name__}: .*run again to go on"
        ):
            sweeps.run(found, tmp_path / "out", workers=workers)
    assert digest(sweeps.run(found, tmp_path / "out")) == undisturbed


def test_other_values_are_seen(small, tmp_path) -> None:
    np.save(tmp_path / "in.npy", np.arange(900.0))
    small["datasets"] = [{"name": "mine", "file": "in.npy", "bound": 900}]
    found = sweeps.from_table(small)
    before = runner.check_data(found, tmp_path)
    np.save(tmp_path / "in.npy", np.arange(900.0)[::-1])
    # A worker that holds the earlier values reads the file again.
    after = load_truth(found.datasets[0], tmp_path, "0" * 32).facts
    assert after != before["mine"]
    assert runner.check_data(found, tmp_path) == {"mine": after}


def _die_once(*arguments):
    marker = Path(os.environ["FASTDP_TEST_MARKER"])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return ORIGINAL(*arguments)


ORIGINAL = runner._attempt


@pytest.fixture
def replace_task(monkeypatch) -> Callable[[str], None]:
    """Another task, by its name: the spawned workers import this file, so they must find it there."""

    def replace(name: str) -> None:
        monkeypatch.syspath_prepend(str(Path(__file__).parent))
        monkeypatch.setattr(runner, "_attempt", getattr(importlib.import_module("test_runner"), name))

    return replace


def test_a_worker_process_that_dies_is_replaced(
    small, tmp_path, digest, undisturbed, monkeypatch, replace_task
) -> None:
    monkeypatch.setenv("FASTDP_TEST_MARKER", str(tmp_path / "marker"))
    replace_task("_die_once")
    folder = sweeps.run(sweeps.from_table(small), tmp_path / "out", workers=2, mode="processes")
    assert (tmp_path / "marker").exists()
    assert digest(folder) == undisturbed


def _die_as_worker(*arguments):
    os._exit(9)


def test_workers_that_die_for_ever_end_the_sweep(small, tmp_path, replace_task) -> None:
    replace_task("_die_as_worker")
    with pytest.raises(StateError, match="workers died 3 times"):
        sweeps.run(sweeps.from_table(small), tmp_path / "out", workers=2, mode="processes")


def test_an_interrupt_ends_the_workers(small, tmp_path, monkeypatch) -> None:
    """Parts that have not begun are not run."""
    begun_parts = []

    def noted(*arguments):
        begun_parts.append(arguments)
        return ORIGINAL(*arguments)

    monkeypatch.setattr(runner, "_attempt", noted)
    monkeypatch.setattr(results, "write_part", stop)
    with pytest.raises(KeyboardInterrupt):
        sweeps.run(sweeps.from_table({**small, "part_cells": 1}), tmp_path / "out", workers=2)
    assert len(begun_parts) < 120
    assert threading.active_count() < 10


def test_a_part_that_cannot_be_written_leaves_nothing(small, tmp_path, monkeypatch, digest, undisturbed) -> None:
    found, real, left = sweeps.from_table(small), os.fsync, [6]

    def full(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"parts.*\.parquet"):
            sweeps.run(found, tmp_path / "out")
    assert all(each.suffix == ".parquet" for each in (tmp_path / "out" / "parts").iterdir())
    assert digest(sweeps.run(found, tmp_path / "out")) == undisturbed


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="lists children in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_sweep(small, tmp_path, toml, number) -> None:
    """A signal to the sweep alone, as systemd or a container sends it to the first process."""
    small["repetitions"], small["part_cells"] = 2000, 16
    specification = tmp_path / "spec.toml"
    specification.write_text(toml(small))
    output = tmp_path / "out"
    # Its own session, so that what is left over can be ended here.
    process = subprocess.Popen(
        **_command(specification, output, "--workers", "2", "--mode", "processes"),
        start_new_session=True,
        stdout=subprocess.PIPE,
    )
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
def test_an_executor_that_is_lost_is_one_error(small, tmp_path, name) -> None:
    class Lost(Executor):
        def submit(self, *_, **__) -> Future:
            future: Future = Future()
            future.set_exception(_lost()[name])
            return future

    with pytest.raises(StateError, match=rf"lost its workers or its scheduler \({name}\).*again to go on") as caught:
        sweeps.run(sweeps.from_table(small), tmp_path / "out", executor=Lost())
    assert caught.value.__suppress_context__, "no traceback of the executor's"


@pytest.mark.parametrize(("option", "value"), [("workers", 0), ("mode", "fibres")])
def test_options_are_checked(small, tmp_path, option, value) -> None:
    with pytest.raises(FastDPError, match=f"{option} = "):
        sweeps.run(sweeps.from_table(small), tmp_path / "out", **{option: value})
    assert not (tmp_path / "out").exists()


def test_an_estimate_counts_cells_and_rows(small, tmp_path) -> None:
    found = sweeps.from_table(small)
    guess = sweeps.estimate(found)
    folder = sweeps.run(found, tmp_path / "out")
    rows = len(sweeps.load(folder))
    assert guess["cells"] == 120
    assert guess["parts"] == 18
    assert guess["rows"] == pytest.approx(rows, rel=0.05)
    assert guess["seconds"] > 0.0
    assert (folder / "results.parquet").stat().st_size < guess["table_bytes"] + 20_000


def test_a_folder_that_cannot_be_locked(small, tmp_path, monkeypatch) -> None:
    """Another sweep that is at work is one thing, a file system without locks another."""
    import fcntl

    found = sweeps.from_table(small)
    reasons = {errno.EWOULDBLOCK: "another sweep writes", errno.ENOLCK: f"be locked: {os.strerror(errno.ENOLCK)}"}
    for number, reason in reasons.items():

        def flock(*_: object, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(fcntl, "flock", flock)
        with pytest.raises(StateError, match=reason):
            sweeps.run(found, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
