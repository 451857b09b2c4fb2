"""Copies of the file, with and without its -wal, at any moment; processes killed at any write; what is synced."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fastdp import Guarantee
from fastdp.errors import StateError
from fastdp.ledger import Ledger
from fastdp.ledger.file import Ending
from tests.shared import python

INCOMPLETE = r"its newest lines are in budget-wal, which is missing, or from another time\. Expected both files"
SPENT = Guarantee(1 / 64)


@pytest.fixture
def open_ledger(path: Path) -> Iterator[Ledger]:
    """A ledger in use: a limit and twenty releases, most of them in its -wal."""
    account = Ledger(path)
    account.set_limit(9.0)
    for _ in range(20):
        account.spend(SPENT, stream="meter")
    yield account
    account.close()


def copied(path: Path, folder: Path, *, main: Path | None = None, wal: Path | None = None) -> Path:
    """A copy of a ledger's files: by default the main file alone."""
    folder.mkdir()
    shutil.copy(main or path, folder / "budget")
    if wal is not None:
        shutil.copy(wal, folder / "budget-wal")
    return folder / "budget"


def wal_of(path: Path) -> Path:
    return path.with_name("budget-wal")


def names(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.glob("budget*"))


def leave_open(path: Path) -> None:
    """Five releases by a process that ends at once, as if it were killed."""
    child = os.fork()
    if not child:
        account = Ledger(path)
        for _ in range(5):
            account.spend(SPENT, stream="meter")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_copy_without_its_wal_is_refused_and_one_with_it_or_after_close_has_all(
    path: Path, open_ledger: Ledger, tmp_path: Path
) -> None:
    alone = copied(path, tmp_path / "alone")
    for call in (Ledger, lambda copy: Ledger(copy, create=False)):
        with pytest.raises(StateError, match=INCOMPLETE):
            call(alone)
    # Another program opens it, and leaves an empty -wal or none.
    with contextlib.closing(sqlite3.connect(alone)) as db:
        db.execute("SELECT count(*) FROM line").fetchone()
        with pytest.raises(StateError, match=INCOMPLETE):
            Ledger(alone)
    with pytest.raises(StateError, match=INCOMPLETE):
        Ledger(alone)
    both = Ledger(copied(path, tmp_path / "both", wal=wal_of(path)))
    assert both.spent("meter") == open_ledger.spent("meter")
    assert both.verify().lines == 22
    both.spend(SPENT, stream="meter")
    open_ledger.close()
    assert [each.name for each in path.parent.glob("budget*")] == ["budget"]
    assert Ledger(copied(path, tmp_path / "closed")).verify().lines == 22
    # It is opened, and marked, again.
    for _ in range(3):
        open_ledger.spend(SPENT, stream="meter")
    with pytest.raises(StateError, match=INCOMPLETE):
        Ledger(copied(path, tmp_path / "again"))


@pytest.mark.parametrize("moved", [False, True], ids=["in the -wal", "in the main file too"])
def test_a_wal_of_another_time_is_refused(path: Path, open_ledger: Ledger, tmp_path: Path, moved: bool) -> None:
    def moment(name: str) -> tuple[Path, Path]:
        if moved:
            with contextlib.closing(sqlite3.connect(path)) as db:
                db.execute("PRAGMA wal_checkpoint")
        (tmp_path / name).mkdir()
        files = (tmp_path / name / "main", tmp_path / name / "wal")
        for source, target in zip((path, wal_of(path)), files, strict=True):
            shutil.copy(source, target)
        return files

    first = moment("first")
    moments = [first]
    for name in ("second", "third"):
        for _ in range(5):
            open_ledger.spend(SPENT, stream="meter")
        moments.append(moment(name))
    _, second, third = moments
    open_ledger.close()
    closed = copied(path, tmp_path / "closed")
    for _ in range(5):
        open_ledger.spend(SPENT, stream="meter")
    again = moment("again")
    mixtures = [(closed, second[1], 0), (closed, third[1], 32), (again[0], third[1], 0), (first[0], again[1], 0)]
    if moved:
        # The -wal begins anew when all of it is in the main file.
        mixtures += [(third[0], second[1], 0), (first[0], third[1], 0), (first[0], second[1], 27)]
    for number, (main, wal, lines) in enumerate(mixtures):
        copy = copied(path, tmp_path / f"mixture {number}", main=main, wal=wal)
        if lines:
            assert Ledger(copy).verify().lines == lines, "no line is missing"
            continue
        with pytest.raises(StateError, match=r"from another time|is damaged"):
            Ledger(copy)


def test_an_older_copy_beside_the_wal_of_a_killed_process_is_refused(path: Path, tmp_path: Path) -> None:
    first = Ledger(path)
    first.set_limit(9.0)
    first.close()
    backup = copied(path, tmp_path / "backup")
    leave_open(path)
    assert wal_of(path).stat().st_size > 0
    shutil.copy(backup, path)
    with pytest.raises(StateError, match=INCOMPLETE):
        Ledger(path)


def test_a_changed_byte_of_the_wal_is_found(path: Path, open_ledger: Ledger, tmp_path: Path) -> None:
    """SQLite ends its reading there without an error, so lines would be missing."""
    size = wal_of(path).stat().st_size
    for at in (*range(60), *range(60, size // 2, 977)):
        copy = copied(path, tmp_path / f"at {at}", wal=wal_of(path))
        raw = bytearray(wal_of(copy).read_bytes())
        raw[at] ^= 1
        wal_of(copy).write_bytes(raw)
        with contextlib.suppress(StateError):
            account = Ledger(copy)
            account.verify()
            assert account.spent("meter") == open_ledger.spent("meter"), at


def test_reads_go_on_where_nothing_can_be_written(path: Path, open_ledger: Ledger) -> None:
    """A read-only medium holds closed ledgers; root may write everywhere, so the file is opened as immutable here."""
    spent = open_ledger.spent("meter")
    open_ledger.close()
    path.chmod(0o400)
    path.parent.chmod(0o500)
    try:
        with contextlib.closing(Ledger(path)) as account:
            assert account.spent("meter") == spent
            assert account.verify().lines == 22
            if os.geteuid():
                with pytest.raises(StateError, match="readonly"):
                    account.spend(SPENT, stream="meter")
    finally:
        path.parent.chmod(0o700)


def test_a_renamed_ledger_takes_its_wal_with_it_or_is_refused(path: Path) -> None:
    leave_open(path)
    path.rename(path.with_name("moved"))
    with pytest.raises(StateError, match="its newest lines are in moved-wal, which is missing"):
        Ledger(path.with_name("moved"))
    wal_of(path).rename(path.with_name("moved-wal"))
    with contextlib.closing(Ledger(path.with_name("moved"))) as account:
        assert account.verify().lines == 6
        with pytest.raises(StateError, match="No such file"):
            Ledger(path, create=False)


READER = """
import sys
from fastdp import Ledger
account = Ledger(sys.argv[1])
print(account.spent("meter").epsilon, flush=True)
sys.stdin.readline()
"""


def read_by(others_close: Callable[[], None], path: Path, how: str) -> float:
    """Epsilon that a reader sees which closes after the others, in one of three ways."""
    if how == "another process":
        pipe = subprocess.PIPE
        with subprocess.Popen(**python("-c", READER, path), stdin=pipe, stdout=pipe, text=True) as reader:
            seen = float(reader.stdout.readline())
            others_close()
            # It ends without a close.
            reader.communicate("\n")
        assert reader.returncode == 0
        return seen
    reader = Ledger(path)
    seen = reader.spent("meter").epsilon
    others_close()
    if how == "close":
        reader.close()
    return seen


@pytest.mark.parametrize("how", ["close", "no reference", "another process"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["writer closes", "writer is killed"])
def test_the_last_close_leaves_one_file_whoever_wrote(path: Path, tmp_path: Path, is_killed: bool, how: str) -> None:
    if is_killed:
        leave_open(path)
        assert read_by(lambda: None, path, how) == 5 / 64
    else:
        writer = Ledger(path)
        for _ in range(5):
            writer.spend(SPENT, stream="meter")
        assert read_by(writer.close, path, how) == 5 / 64
    assert names(path) == ["budget"]
    assert Ledger(copied(path, tmp_path / "copy")).verify().lines == 6


@pytest.mark.parametrize("mode", [0o500, 0o700], ids=["read-only folder", "read-only files"])
def test_a_reader_that_may_not_write_leaves_the_files_to_the_next(tmp_path: Path, mode: int) -> None:
    # Another user than root, who may write everywhere, does not come into pytest's folders.
    with tempfile.TemporaryDirectory() as folder:
        path, user = Path(folder) / "budget", os.geteuid() or 65534
        leave_open(path)
        for each in (*path.parent.iterdir(), path.parent):
            os.chown(each, user, -1)
            each.chmod(mode if each == path.parent else 0o400)
        child = os.fork()
        if not child:
            code = 1
            with contextlib.suppress(BaseException):
                os.setuid(user)
                for _ in range(2):
                    with contextlib.closing(Ledger(path)) as reader:
                        code = 0 if reader.spent("meter").epsilon == 5 / 64 else 2
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert wal_of(path).stat().st_size > 0
        with pytest.raises(StateError, match=INCOMPLETE):
            Ledger(copied(path, tmp_path / "copy"))
        path.parent.chmod(0o700)
        for each in path.parent.iterdir():
            each.chmod(0o600)
        Ledger(path).close()
        assert names(path) == ["budget"]


def test_a_close_keeps_a_wal_with_lines_that_cannot_be_read(path: Path) -> None:
    leave_open(path)
    raw = bytearray(wal_of(path).read_bytes())
    raw[len(raw) // 3] ^= 1
    wal_of(path).write_bytes(raw)
    for _ in range(2):
        with contextlib.closing(Ledger(path)) as account:
            account.spent("meter")
            with pytest.raises(StateError, match=r"lines from \d on in budget-wal cannot be read"):
                account.verify()
    assert wal_of(path).read_bytes() == raw


def test_an_error_of_the_disk_at_a_close_loses_no_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself would remove the -wal, and the file would be refused for its mark."""
    leave_open(path)

    def failing(self: Ending, script: str) -> None:
        self.execute(script.partition(";")[0])
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(Ending, "executescript", failing)
        Ledger(path).close()
    assert set(names(path)) - {"budget-shm"} == {"budget", "budget-wal"}
    with contextlib.closing(Ledger(path)) as account:
        assert account.verify().lines == 6
    assert names(path) == ["budget"]


WRITER = """
import sys
from fastdp import Guarantee, Ledger
account = Ledger(sys.argv[1])
for number in range(int(sys.argv[2])):
    with account.reserve(Guarantee(1 / 64), stream=f"meter {number % 3}"):
        pass
account.close()
"""


def test_writers_and_readers_in_turns_leave_one_file(path: Path) -> None:
    Ledger(path).close()
    running = [subprocess.Popen(**python("-c", WRITER, path, 10)) for _ in range(4)]
    seen = [0.0]
    while any(each.poll() is None for each in running):
        with contextlib.closing(Ledger(path)) as reader:
            seen.append(sum(reader.spent(name).epsilon for name in reader.streams))
        time.sleep(0.01)
    assert [each.returncode for each in running] == [0] * 4
    assert seen == sorted(seen)
    with contextlib.closing(Ledger(path)) as account:
        assert sum(account.spent(name).epsilon for name in account.streams) == 40 / 64
        assert account.verify().lines == 1 + 80
        account.set_limit(1.0)
    assert names(path) == ["budget"]


NEEDS_STRACE = pytest.mark.skipif(shutil.which("strace") is None, reason="strace counts and ends calls of the system")


@NEEDS_STRACE
def test_a_release_is_synced_once_and_its_end_not(path: Path, tmp_path: Path) -> None:
    counted = []
    for releases in (5, 25):
        traced = python("-c", WRITER, path.with_name(f"of {releases}"), releases)
        traced["args"] = [
            "strace",
            "-f",
            "-qq",
            "-o",
            tmp_path / "calls",
            "-e",
            "trace=fdatasync,fsync",
            *traced["args"],
        ]
        subprocess.run(**traced, check=True)
        counted.append(len((tmp_path / "calls").read_text().splitlines()))
    assert counted[1] - counted[0] == 20


def test_a_wal_that_another_process_removed_takes_no_line(path: Path, open_ledger: Ledger, tmp_path: Path) -> None:
    """A copy made by the same process drops its locks, so another process may end the -wal meanwhile."""
    copied(path, tmp_path / "copy")
    subprocess.run(**python("-c", WRITER, path, 2), check=True)
    assert not wal_of(path).exists()
    open_ledger.spend(SPENT, stream="meter")
    with contextlib.closing(Ledger(path)) as account:
        assert account.entries() == open_ledger.entries()
        assert len(account.entries()) == 20 + 2 + 1
        assert account.verify().lines == 22 + 4 + 1


#: Calls of the operating system by which a ledger changes.
CALLS = "pwrite64,fdatasync,fsync,unlink,ftruncate"


def killed(path: Path, calls: str, number: int) -> tuple[int, bool]:
    """Releases that a child reports before it is killed at one of these calls; whether it ended instead."""
    reading, writing = os.pipe()
    gate, opened = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.read(gate, 1)
            account = Ledger(path)
            for _ in range(5):
                account.spend(SPENT, stream="meter")
                os.write(writing, b".")
            account.close()
            os.write(writing, b"!")
        finally:
            os._exit(0)
    os.close(writing)
    inject = f"inject={calls}:signal=SIGKILL:when={number}"
    traced = ["strace", "-qq", "-p", str(child), "-e", f"trace={calls}", "-e", inject, "-o", os.devnull]
    tracer = subprocess.Popen(traced, stderr=subprocess.DEVNULL)
    while "TracerPid:\t0" in Path(f"/proc/{child}/status").read_text():
        time.sleep(0.001)
        assert tracer.poll() is None
    os.write(opened, b".")
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    tracer.wait()
    for descriptor in (gate, opened):
        os.close(descriptor)
    return told.count(b"."), told.endswith(b"!")


@pytest.mark.slow
@NEEDS_STRACE
def test_a_process_killed_at_any_write_leaves_a_ledger_that_opens_and_no_copy_that_lacks_lines(
    path: Path, tmp_path: Path
) -> None:
    """Each release that was reported is recorded, and in the main file alone, or that is refused."""
    Ledger(path).set_limit(99.0)
    recorded, refused, number, ended = 0, 0, 1, False
    while not ended:
        told, ended = killed(path, CALLS, number)
        copy = copied(path, tmp_path / f"copy {number}")
        with contextlib.closing(Ledger(path)) as account:
            now = len(account.entries())
            assert recorded + told <= now <= recorded + told + 1
            assert account.verify().reserved == []
        try:
            assert len(Ledger(copy).entries()) == now
        except StateError:
            refused += 1
        assert not wal_of(path).exists()
        # Half of the next ones begin with a file that was not closed.
        if number % 2:
            leave_open(path)
            now += 5
        recorded, number = now, number + 1
    assert number > 60
    assert refused > 20
    assert Ledger(path).spent("meter").epsilon == recorded / 64
