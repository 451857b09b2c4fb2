"""The file: what `verify` finds, files that are no ledger, locks, copies, and a full disk."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import stat as file_modes
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdp import Guarantee
from fastdp.errors import ParameterError, StateError
from fastdp.ledger import Ledger, store
from fastdp.ledger.store import LedgerState, sealed

KEY = bytes(range(32))


@pytest.fixture
def filled(ledger) -> Ledger:
    """A ledger of five lines: header, limit, two releases, a reservation."""
    account = ledger()
    account.set_limit(2.0, note="the board, 21 November")
    account.spend(Guarantee(0.5), stream="meter", note="évènement \u2028 \n {}")
    account.spend(Guarantee(0.25), stream="meter", part="a", start=3)
    account.reserve(Guarantee(0.125), stream="other")
    return account


def edit(path: Path, *statements: str) -> None:
    """Change the file by other means."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.executescript(statement)


def append(path: Path, body: dict) -> None:
    """A line whose seal is right, whatever it says."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        mac = store.sealing(None, json.loads(db.execute("SELECT body FROM line WHERE id = 0").fetchone()[0])["name"])
        number, before = LedgerState(db, mac).last()
        text = json.dumps({"id": number + 1, "time": "", **body})
        LedgerState(db, mac).insert(number + 1, text, sealed(before, text.encode(), mac))
        db.commit()


def contents(path: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


def test_it_is_owner_only_one_file_and_readable(path: Path, filled: Ledger, lines) -> None:
    assert [json.loads(text)["id"] for _, text, _ in lines()] == [0, 1, 2, 3, 4]
    filled.close()
    assert [each.name for each in path.parent.iterdir()] == ["budget"]
    assert file_modes.S_IMODE(path.stat().st_mode) == 0o600
    line = json.loads(lines()[2][1])
    assert line["guarantee"]["epsilon"] == 0.5
    assert line["time"].endswith("+00:00")
    path.chmod(0o640)
    for call in (Ledger, lambda _: filled.streams):
        with pytest.raises(StateError, match=r"group or others have access \(mode 0640\)"):
            call(path)


def test_each_record_is_synced_and_its_journal_gone(path: Path, filled: Ledger) -> None:
    db = filled._store._db
    assert db.execute("PRAGMA synchronous").fetchone() == (3,)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert [each.name for each in path.parent.iterdir()] == ["budget"]


def test_a_copy_of_an_open_ledger_has_every_release(path: Path, filled: Ledger, tmp_path: Path) -> None:
    """Of the file alone, as a backup makes it: also of a process that is killed later."""
    shutil.copy(path, tmp_path / "copy")
    assert Ledger(tmp_path / "copy").entries() == filled.entries()
    assert Ledger(tmp_path / "copy").limit("meter").epsilon == 2.0


def test_a_copy_that_was_made_during_a_call_is_refused(path: Path, filled: Ledger, tmp_path: Path) -> None:
    """Pages are written in order: with the first one alone every call says so, with some of the others `verify`."""
    before = path.read_bytes()
    filled.spend(Guarantee(0.25), stream="meter")
    after = path.read_bytes()
    changed = [at for at in range(0, len(after), 4096) if before[at : at + 4096] != after[at : at + 4096]]
    assert changed[:2] == [0, 4096]
    torn = tmp_path / "torn"
    torn.touch(0o600)
    torn.write_bytes(after[:4096] + before[4096:])
    with pytest.raises(StateError, match=r"its last line is not the one that its first page names .* restore"):
        Ledger(torn)
    for at in changed[1:-1]:
        torn.write_bytes(after[: at + 4096] + before[at + 4096 :])
        with pytest.raises(StateError, match="is damaged"):
            Ledger(torn).verify()
    torn.write_bytes(before)
    Ledger(torn).verify()


def test_the_journal_of_a_killed_call_is_needed(path: Path, filled: Ledger) -> None:
    """With it the call is undone; without it the first page and the lines differ."""
    before, real = contents(path), os.fork()
    if not real:
        store._LOCK.acquire()
        db = filled._store._opened()
        # Pages leave memory before the end of the call: all but the first.
        db.execute("PRAGMA cache_size = 1")
        db.execute("BEGIN IMMEDIATE")
        state = LedgerState(db, filled._store._mac)
        for _ in range(60):
            state.append({"kind": "limit", "stream": "s" * 150, "per": None, "epsilon": 1.0, "note": "n" * 500})
        os._exit(0)
    os.waitpid(real, 0)
    journal, raw = path.with_name("budget-journal"), path.read_bytes()
    assert journal.stat().st_size > 512
    kept = journal.read_bytes()
    journal.unlink()
    with pytest.raises(StateError, match="is damaged"):
        Ledger(path).verify()
    path.write_bytes(raw)
    journal.touch(0o600)
    journal.write_bytes(kept)
    assert Ledger(path).verify().lines == 5
    assert contents(path) == before


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """A closed ledger, and its bytes."""
    path = tmp_path_factory.mktemp("ledger") / "budget"
    account = Ledger(path, key=KEY)
    account.set_limit(2.0)
    account.spend(Guarantee(0.5), stream="meter", start=3, stop=7)
    account.reserve(Guarantee(0.25), stream="meter", part="a")
    account.close()
    return path, path.read_bytes()


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_verify_finds_a_changed_byte_of_what_is_recorded(whole: tuple[Path, bytes], data) -> None:
    """Some bytes of the file are free."""
    path, raw = whole
    path.write_bytes(raw)
    before = contents(path)
    changed = bytearray(raw)
    changed[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(changed)
    try:
        with contextlib.closing(Ledger(path, key=KEY)) as account:
            account.verify()
    except StateError:
        return
    assert contents(path) == before


EDITS = {
    "a byte": ("UPDATE line SET body = replace(body, '0.5', '0.4') WHERE id = 2", "line 2: its lines were altered"),
    "cut out": ("DELETE FROM line WHERE id = 2", "line 2: its lines were altered, reordered or cut out"),
    "twice": ("INSERT INTO line SELECT 5, body, seal FROM line WHERE id = 4", "its last line is not the one"),
    "two at once": (
        "INSERT INTO line SELECT 5, body, seal FROM line WHERE id = 4; PRAGMA user_version = 5",
        "line 5: its lines were altered",
    ),
    "swapped": (
        "UPDATE line SET body = (SELECT b.body FROM line AS b WHERE b.id = 5 - line.id) WHERE id IN (2, 3)",
        "line 2",
    ),
    "another number": ("UPDATE line SET id = 9 WHERE id = 4", "its last line is not the one"),
    "another number twice": (
        "UPDATE line SET id = 9 WHERE id = 4; PRAGMA user_version = 9",
        "line 4: it says to be line 4",
    ),
    "its seal": ("UPDATE line SET seal = zeroblob(32) WHERE id = 4", "line 4"),
    "no text": ("UPDATE line SET body = x'00ff' WHERE id = 3", "line 3: no entry"),
    "the last line": ("DELETE FROM line WHERE id = 4", "its last line is not the one that its first page names"),
    "the last line twice": (
        "DELETE FROM line WHERE id = 4; PRAGMA user_version = 3",
        "table 'release' does not follow from its lines",
    ),
    "a state": ("UPDATE release SET state = 'cancelled' WHERE id = 3", "table 'release'"),
    "a fingerprint": ("UPDATE release SET fingerprint = 'x' WHERE id = 3", "table 'release'"),
    "a limit": ("UPDATE limits SET epsilon = 9", "table 'limits'"),
    "a count": ("UPDATE stream_account SET releases = 0", "table 'stream_account'"),
    "a sum": ("UPDATE level SET sum = x'0000'", "table 'level'"),
    "no sums": ("DELETE FROM level", "table 'level'"),
    "a trigger": (
        "CREATE TRIGGER free AFTER INSERT ON level BEGIN UPDATE level SET sum = x'0000'; END",
        "table 'sqlite_schema'",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_verify_names_what_was_changed(path: Path, filled: Ledger, name: str) -> None:
    statement, words = EDITS[name]
    filled.verify()
    filled.close()
    edit(path, statement)
    with pytest.raises(StateError, match=f"is damaged.*{words}"):
        Ledger(path).verify()


def test_verify_finds_an_index_that_differs_from_its_table(path: Path, filled: Ledger) -> None:
    """Totals are read from an index."""
    filled.close()
    with contextlib.closing(sqlite3.connect(path)) as db:
        right = db.execute("SELECT sum, start, account, measure, scope, part FROM level").fetchall()
        row = db.execute("SELECT rowid, * FROM sqlite_schema WHERE name = 'highest'").fetchone()
    hide = "DELETE FROM sqlite_schema WHERE name = 'highest'"
    edit(path, "UPDATE level SET sum = x'0000'", "PRAGMA writable_schema = ON", hide)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        where = "start = ? AND account = ? AND measure = ? AND scope = ? AND part = ?"
        db.executemany(f"UPDATE level SET sum = ? WHERE {where}", right)  # noqa: S608
        db.execute("PRAGMA writable_schema = ON")
        db.execute(
            "INSERT INTO sqlite_schema (rowid, type, name, tbl_name, rootpage, sql) VALUES (?, ?, ?, ?, ?, ?)", row
        )
    with pytest.raises(StateError, match="is damaged: restore a backup"):
        Ledger(path).verify()


def test_other_calls_do_not_look_for_changes(path: Path, filled: Ledger) -> None:
    """The documented limit; what they read themselves must make sense."""
    edit(path, "UPDATE line SET body = replace(body, '0.5', '0.4') WHERE id = 2")
    assert filled.spend(Guarantee(0.25), stream="meter").id == 5
    edit(path, "UPDATE line SET body = 'x' WHERE id = 2")
    with pytest.raises(StateError, match=r"the ledger is damaged at line 2: .*Ledger\.verify looks"):
        filled.entries()


def test_lost_last_lines_are_found_by_those_who_kept_the_seal(path: Path, filled: Ledger) -> None:
    filled.close()
    older = path.read_bytes()
    filled.spend(Guarantee(0.25), stream="meter")
    head = filled.verify().head
    assert filled.verify(head).lines == 6
    assert filled.verify(head[:16].upper()).reserved == [4]
    filled.close()
    path.write_bytes(older)
    for call in (filled.verify, lambda: filled.spent("meter")):
        with pytest.raises(StateError, match="lacks lines that this object has seen"):
            call()
    # The chain alone cannot show it, nor as many other lines.
    assert Ledger(path).verify().lines == 5
    Ledger(path).spend(Guarantee(0.25), stream="meter")
    with pytest.raises(StateError, match="lacks lines that this object has seen"):
        filled.spend(Guarantee(0.25), stream="meter")
    with pytest.raises(StateError, match="no line has the seal"):
        Ledger(path).verify(head)
    for wrong in ("abc", "", 7):
        with pytest.raises(ParameterError, match="head"):
            Ledger(path).verify(wrong)


def test_a_key_seals(path: Path, ledger) -> None:
    account = ledger(key=KEY)
    account.spend(Guarantee(0.5), stream="meter")
    with pytest.raises(StateError, match="expected key = the key it was made with"):
        ledger()
    with pytest.raises(StateError, match=r"damaged at line 0.* or the key is wrong"):
        ledger(key=KEY[::-1])
    with pytest.raises(ParameterError, match="32 bytes"):
        ledger(key=b"short")
    with pytest.raises(ParameterError, match="key: expected 32 bytes, a Key or None, got str"):
        ledger(key="a passphrase")
    assert ledger(key=KEY).verify().lines == 2
    # Sealed again without the key, by SHA-256, it is not accepted.
    account.close()
    edit(path, "UPDATE line SET body = replace(body, 'hmac-sha256', 'sha256') WHERE id = 0")
    with pytest.raises(StateError, match="expected key = None"):
        ledger(key=KEY)
    with pytest.raises(StateError, match="damaged at line 0"):
        ledger()


def test_sealed_lines_that_make_no_sense_are_found(path: Path, filled: Ledger) -> None:
    filled.reserve(Guarantee(0.125), stream="other", start=5, stop=10)
    filled.close()
    raw = path.read_bytes()
    plain = {"stream": "meter", "note": "", "guarantee": Guarantee(0.5).to_dict(), "kind": "spend", "nonce": ""}
    plain |= dict.fromkeys(("part", "start", "stop", "mechanism", "fingerprint"))
    for body, words in (
        ({"kind": "commit", "of": 2}, "it ends entry 2, which is spent"),
        ({"kind": "commit", "of": 77}, "77, which is not there"),
        ({"kind": "commit", "of": 4, "stop": 9}, "the reservation has no start"),
        *(({"kind": "commit", "of": 5, "stop": stop}, "stop = .* of at least 6") for stop in (5, 11, "7", 6.5, True)),
        ({"kind": "refund"}, "a line of kind 'refund'"),
        ({"kind": "spend"}, "guarantee"),
        ({"kind": "limit", "stream": None, "epsilon": "much", "delta": None}, "expected a real number"),
        ({"kind": "limit", "stream": None, "id": 9}, "it says to be line 9"),
        *((plain | {"fingerprint": wrong}, "fingerprint") for wrong in (7, "", "x" * 201, ["a"])),
        # True == 1 in Python.
        *(
            (plain | {"guarantee": plain["guarantee"] | change}, "")
            for change in (
                *({"epsilon": True}, {"delta": False}, {"simulated": 0}, {"epsilon": [1.0]}, {"unit": ""}),
                *({"epsilon": "infinite"}, {"rows": {}}, {"other": 1}),
            )
        ),
    ):
        path.write_bytes(raw)
        append(path, body)
        with pytest.raises(StateError, match=f"damaged at line 6: .*{words}"):
            Ledger(path).verify()


def test_files_that_are_no_ledger(tmp_path: Path, path: Path, ledger) -> None:
    for nothing in (
        b"",
        b"time,epsilon\n1,2\n",
        b"[]\n",
        b"[" * 100_000 + b"\n",
        b"SQLite format 3\0",
        b'{"a": 1}\n',
    ):
        path.write_bytes(nothing)
        path.chmod(0o600)
        with pytest.raises(StateError, match=r"is no fastdp ledger, or was cut short|is damaged"):
            ledger()
        assert path.read_bytes() == nothing
    path.unlink()
    edit(path, "CREATE TABLE line (id INTEGER PRIMARY KEY, body TEXT, seal BLOB)")
    path.chmod(0o600)
    with pytest.raises(StateError, match="is no fastdp ledger"):
        ledger()
    path.unlink()
    ledger().close()
    edit(path, "DELETE FROM line")
    with pytest.raises(StateError, match="is no fastdp ledger, or was cut short"):
        ledger()
    path.unlink()
    ledger().close()
    edit(path, "UPDATE line SET body = replace(body, '\"fastdp_ledger\": 2', '\"fastdp_ledger\": 3')")
    with pytest.raises(StateError, match="has lines of format 3: this fastdp reads format 2"):
        ledger()
    path.unlink()
    ledger().close()
    edit(path, "PRAGMA journal_mode = WAL")
    with pytest.raises(StateError, match="expected a rollback journal"):
        ledger()
    path.unlink()
    with pytest.raises(StateError, match="could not be opened: No such file"):
        ledger(create=False)
    assert not path.exists()
    with pytest.raises(StateError, match="could not be created: No such file"):
        Ledger(tmp_path / "nowhere" / "budget")
    with pytest.raises(StateError, match="expected a file"):
        Ledger(tmp_path)


def test_a_file_that_is_locked_for_long(path: Path, filled: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "LOCK_SECONDS", 0.01)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        account = Ledger(path)
        with pytest.raises(StateError, match=r"stayed locked by another process for 0\.01 s.* Nothing was recorded"):
            account.spend(Guarantee(0.25), stream="meter")
        # Reading goes on.
        assert account.spent("meter").epsilon == 0.75
        db.execute("ROLLBACK")
    assert account.spend(Guarantee(0.25), stream="meter").id == 5


@pytest.mark.parametrize("call", ["spend", "reserve", "set_limit", "commit"])
def test_a_full_disk_records_nothing(path: Path, filled: Ledger, call: str) -> None:
    held = filled.reserve(Guarantee(0.125), stream="other")
    filled.close()
    before = contents(path)
    calls = {
        "spend": lambda: filled.spend(Guarantee(0.25), stream="meter"),
        "reserve": lambda: filled.reserve(Guarantee(0.25), stream="meter"),
        "set_limit": lambda: filled.set_limit(9.0),
        "commit": held.commit,
    }
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert filled.remaining("meter").epsilon == 1.25
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(StateError, match=r"ledger .*could not be read or written .* Nothing was recorded"):
            calls[call]()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert filled.remaining("meter").epsilon == 1.25
    assert contents(path) == before
    calls[call]()
    assert filled.verify().lines == 7


def test_a_file_that_is_replaced_during_a_call_pays_for_no_release(
    path: Path, filled: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.close()
    raw, real = path.read_bytes(), LedgerState.append

    def replacing(self: LedgerState, body: dict) -> dict:
        line = real(self, body)
        path.rename(path.with_name("kept"))
        path.touch(0o600)
        path.write_bytes(raw)
        return line

    monkeypatch.setattr(LedgerState, "append", replacing)
    with pytest.raises(StateError, match="was replaced by another file during the call: do not release"):
        filled.spend(Guarantee(0.5), stream="meter")


def test_a_new_file_under_the_name_is_opened(path: Path, filled: Ledger, tmp_path: Path) -> None:
    filled.close()
    copied = tmp_path / "copied"
    shutil.copy(path, copied)
    Ledger(path).spend(Guarantee(0.25), stream="meter")
    Ledger(copied).spend(Guarantee(0.125), stream="meter")
    assert filled.remaining("meter").epsilon == 1.0
    copied.replace(path)
    with pytest.raises(StateError, match="lacks lines that this object has seen"):
        filled.remaining("meter")
    assert Ledger(path).remaining("meter").epsilon == 1.125


def test_two_that_make_one_file_make_one_ledger(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, made = store.make_ledger, []

    def meanwhile(*arguments: object) -> None:
        if not made:
            made.append(None)
            made[0] = Ledger(path)
            made[0].spend(Guarantee(0.5), stream="meter")
        real(*arguments)

    monkeypatch.setattr(store, "make_ledger", meanwhile)
    assert Ledger(path).spent("meter").epsilon == 0.5
    assert sorted(each.name for each in path.parent.glob("*budget*.tmp")) == []


def test_a_call_within_a_call_undoes_it(filled: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a signal handler for example: one transaction, or none."""
    real, once = LedgerState.append, []

    def interrupted(self: LedgerState, body: dict) -> dict:
        line = real(self, body)
        if not once:
            once.append(1)
            signal.raise_signal(signal.SIGUSR1)
        return line

    before = signal.signal(signal.SIGUSR1, lambda *_: filled.spend(Guarantee(0.25), stream="handler"))
    try:
        with monkeypatch.context() as patch:
            patch.setattr(LedgerState, "append", interrupted)
            with pytest.raises(StateError, match="Nothing was recorded"):
                filled.spend(Guarantee(0.5), stream="meter")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [each.stream for each in filled.entries()] == ["meter", "meter", "other", "handler"]
    assert filled.verify().lines == 6


def test_an_object_in_threads_while_processes_are_forked(path: Path, filled: Ledger) -> None:
    """No child has a file that is open in its parent."""
    filled.set_limit(None)
    children, forks = [], 8

    def spend() -> None:
        for _ in range(25):
            filled.spend(Guarantee(1 / 64), stream="threads")

    threads = [threading.Thread(target=spend) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(forks):
        child = os.fork()
        if not child:
            code = 1
            with contextlib.suppress(BaseException):
                assert filled._store._db is None
                filled.spend(Guarantee(1 / 64), stream="children")
                filled.close()
                code = 0
            os._exit(code)
        children.append(child)
    for thread in threads:
        thread.join()
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * forks
    assert len(Ledger(path).entries("threads")) == 50
    assert filled.spent("children").epsilon == forks / 64
    filled.verify()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_anywhere_leaves_a_ledger_that_goes_on(path: Path, filled: Ledger) -> None:
    """Also while its traceback is kept: the release is recorded or not, and no lock stays."""
    sources, kept = str(Path(store.__file__).parent), []

    def spend(at: int) -> bool:
        """True if the call ends before it comes to that line, call or return."""

        def trace(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal at
            if event != "exception" and frame.f_code.co_filename.startswith(sources):
                at -= 1
                if not at:
                    sys.settrace(None)
                    raise KeyboardInterrupt
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            filled.spend(Guarantee(2.0**-20), stream="meter")
        except KeyboardInterrupt as error:
            kept.append(error)
            return False
        finally:
            sys.settrace(before)
        return True

    at, count = 1, len(filled.entries())
    while not spend(at):
        now = len(filled.entries())
        assert now in (count, count + 1), f"interrupted at {at}"
        filled.spend(Guarantee(2.0**-20), stream="other")
        at, count = at + 1, now + 1
    assert at > 150
    assert filled.verify().lines == count + 3
