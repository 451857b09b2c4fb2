"""The file: what ``verify`` finds, files that are no ledger, locks, kills, interrupts; objects in turns."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import resource
import shutil
import signal
import sqlite3
import stat as file_modes
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdp import Guarantee
from fastdp.errors import BudgetError, ParameterError, StateError
from fastdp.ledger import Ledger, file, store
from fastdp.ledger.store import LedgerState, sealed
from fastdp.noise.key import Key
from tests.oracles import ledger as oracle
from tests.shared import python

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
        number, before = LedgerState(db, mac).last
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


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
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
    "UPDATE line SET body = replace(body, '0.5', '0.4') WHERE id = 2": "line 2: its lines were altered",
    "DELETE FROM line WHERE id = 2": "line 2: its lines were altered, reordered or cut out",
    "INSERT INTO line SELECT 5, body, seal FROM line WHERE id = 4": "its last line is not the one",
    "UPDATE line SET id = 9 WHERE id = 4; PRAGMA user_version = 9": "line 4: it says to be line 4",
    "UPDATE line SET seal = zeroblob(32) WHERE id = 4": "line 4",
    "UPDATE line SET body = x'00ff' WHERE id = 3": "line 3: no entry",
    "DELETE FROM line WHERE id = 4": "its last line is not the one that its first page names",
    "DELETE FROM line WHERE id = 4; PRAGMA user_version = 3": "table 'release' does not follow from its lines",
    "UPDATE release SET state = 'cancelled' WHERE id = 3": "table 'release'",
    "UPDATE limits SET epsilon = 9": "table 'limits'",
    "UPDATE account SET sums = replace(sums, '1', '0')": "table 'account'",
    "UPDATE level SET sum = x'0000'": "table 'level'",
    "CREATE TRIGGER t AFTER INSERT ON level BEGIN UPDATE level SET sum = x'00'; END": "table 'sqlite_schema'",
}


@pytest.mark.parametrize("statement", EDITS)
def test_verify_names_what_was_changed(path: Path, filled: Ledger, statement: str) -> None:
    filled.verify()
    filled.close()
    edit(path, statement)
    with pytest.raises(StateError, match=f"is damaged.*{EDITS[statement]}"):
        Ledger(path).verify()


def test_sums_that_were_altered_or_put_back_are_refused_by_each_call(path: Path, ledger) -> None:
    account = ledger(key=KEY)
    account.spend(Guarantee(0.5), stream="meter")
    rows = "SELECT sums, mac, line FROM account"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        (before,) = db.execute(rows).fetchall()
        account.spend(Guarantee(0.25), stream="meter")
        (after,) = db.execute(rows).fetchall()
        for sums, mac, line in (before, (before[0], *after[1:]), (*before[:2], after[2]), (after[0], b"", after[2])):
            db.execute("UPDATE account SET sums = ?, mac = ?, line = ?", (sums, mac, line))
            for call in (
                lambda: account.spent("meter"),
                lambda: account.report(),
                lambda: account.spend(Guarantee(0.25), stream="meter"),
                lambda: account.remaining("meter"),
            ):
                with pytest.raises(
                    StateError, match=r"sums of stream 'meter' (were altered|lack entry 2); restore a backup"
                ):
                    call()
        db.execute("UPDATE account SET sums = ?, mac = ?, line = ?", after)
    assert account.spent("meter").epsilon == 0.75


def test_verify_finds_an_index_that_differs_from_its_table(path: Path, filled: Ledger) -> None:
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
    one, other = (store.sealing(Key.from_bytes(KEY), name)(b"line") for name in ("one", "other"))
    assert one != other, "each ledger has a key of its own"
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


NO_LEDGERS = [b"", b"time,epsilon\n1,2\n", b"[]\n", b"[" * 100_000 + b"\n", b"SQLite format 3\0", b'{"a": 1}\n']


def test_files_that_are_no_ledger(tmp_path: Path, path: Path, ledger) -> None:
    for nothing in NO_LEDGERS:
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
    for statement, words in (
        ("DELETE FROM line", "is no fastdp ledger, or was cut short"),
        ("UPDATE line SET body = replace(body, '\"fastdp_ledger\": 3', '\"fastdp_ledger\": 4')",
         "has lines of format 4: this fastdp reads format 3"),
    ):  # fmt: skip
        path.unlink()
        ledger().close()
        edit(path, statement)
        with pytest.raises(StateError, match=words):
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
    monkeypatch.setattr(file, "LOCK_SECONDS", 0.01)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        account = Ledger(path)
        with pytest.raises(
            StateError, match=r"stayed locked by another process for .* seconds\. Nothing was recorded"
        ):
            account.spend(Guarantee(0.25), stream="meter")
        # Reading goes on.
        assert account.spent("meter").epsilon == 0.75
        db.execute("ROLLBACK")
    assert account.spend(Guarantee(0.25), stream="meter").id == 5


def test_a_full_disk_records_nothing(path: Path, filled: Ledger) -> None:
    held = filled.reserve(Guarantee(0.125), stream="other")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for call in (
        lambda: filled.spend(Guarantee(0.25), stream="meter"),
        lambda: filled.reserve(Guarantee(0.25), stream="meter"),
        lambda: filled.set_limit(9.0),
        held.commit,
    ):
        filled.close()
        before, left = contents(path), filled.remaining("meter")
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            with pytest.raises(StateError, match=r"ledger .*could not be read or written .* Nothing was recorded"):
                call()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert (filled.remaining("meter"), contents(path)) == (left, before)
        call()
    assert filled.verify().lines == 10


def test_a_file_that_is_replaced_during_a_call_pays_for_no_release(
    path: Path, filled: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.close()
    raw, real = path.read_bytes(), LedgerState.append

    def replacing(self: LedgerState, *given: Any) -> Any:
        line = real(self, *given)
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
    real, made = file.make_ledger, []

    def meanwhile(*arguments: object) -> None:
        if not made:
            made.append(None)
            made[0] = Ledger(path)
            made[0].spend(Guarantee(0.5), stream="meter")
        real(*arguments)

    monkeypatch.setattr(file, "make_ledger", meanwhile)
    assert Ledger(path).spent("meter").epsilon == 0.5
    assert sorted(each.name for each in path.parent.glob("*budget*.tmp")) == []


def test_a_call_within_a_call_undoes_it(filled: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a signal handler for example: one transaction, or none."""
    real, once = LedgerState.append, []

    def interrupted(self: LedgerState, *given: Any) -> Any:
        line = real(self, *given)
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
                # The parent's open file has the parent's locks.
                assert str(path) not in map(os.path.realpath, Path("/proc/self/fd").iterdir())
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


# Other processes.

RACE = """
import sys
from fastdp import Guarantee, Ledger
from fastdp.errors import BudgetError
path, count = sys.argv[1], int(sys.argv[2])
account = Ledger(path)
print("ready", flush=True)
sys.stdin.readline()
won = 0
for _ in range(count):
    try:
        account.spend(Guarantee(1 / 16), stream="meter")
        won += 1
    except BudgetError:
        pass
print(won, flush=True)
"""


def test_a_limit_holds_however_many_race_for_it(path: Path) -> None:
    Ledger(path).set_limit(1.0)
    pipe = subprocess.PIPE
    running = [subprocess.Popen(**python("-c", RACE, path, 12), stdin=pipe, stdout=pipe, text=True) for _ in range(3)]
    for one in running:
        assert one.stdout.readline() == "ready\n"
    for one in running:
        one.stdin.write("\n")
        one.stdin.flush()
    assert sum(int(one.communicate(timeout=300)[0]) for one in running) == 16
    assert Ledger(path).verify().lines == 2 + 16
    assert Ledger(path).spent("meter").epsilon == 1.0


def spend_once(path: Path, fatal: int) -> tuple[bool, int]:
    """Record a release in a child that is killed at a step of SQLite; whether it told of it, and how many steps."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            if steps == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            return 0

        try:
            account = Ledger(path)
            account._store.db.set_progress_handler(step, 1)
            account.spend(Guarantee(1 / 64), stream="meter", start=0, stop=9)
            os.write(writing, str(steps).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return bool(told), int(told or 0)


def test_a_process_killed_at_any_step_leaves_each_release_that_it_told_of(path: Path) -> None:
    """Readable, whole, and none of them lost; what was not told may be recorded."""
    Ledger(path).set_limit(9.0)
    recorded, steps = 1, spend_once(path, 0)[1]
    assert steps > 100
    for number in range(60):
        # The last ones are behind the last step.
        told, _ = spend_once(path, 1 + number * steps // 58)
        account = Ledger(path)
        assert account.verify().lines == 2 + len(account.entries())
        assert recorded + told <= len(account.entries()) <= recorded + 1
        recorded = len(account.entries())
    assert 1 < recorded < 60
    assert account.spent("meter").epsilon == recorded / 64


# Objects in turns.

EPSILONS = st.sampled_from([1 / 64, 1 / 16, 0.1, 0.3])
PLACES = 4
SPANS = st.just((None, None)) | st.tuples(st.integers(0, PLACES - 1), st.none() | st.integers(1, PLACES)).map(
    lambda span: (span[0], None if span[1] is None else max(span[0] + 1, span[1]))
)
WHERE = st.tuples(st.sampled_from([None, None, "a", "b"]), SPANS)
STEPS = st.one_of(
    st.tuples(st.just("spend"), EPSILONS, WHERE),
    st.tuples(st.just("reserve"), EPSILONS, WHERE),
    st.tuples(st.sampled_from(["commit", "cancel"]), st.integers(0, 9), st.booleans()),
    st.tuples(st.just("limit"), st.sampled_from([0.25, 1.0, None]), st.none()),
    st.tuples(st.just("close"), st.none(), st.none()),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(st.tuples(st.integers(0, 2), STEPS), max_size=14), asked=WHERE)
def test_objects_in_turns_agree_with_the_oracle(tmp_path_factory: pytest.TempPathFactory, steps, asked) -> None:
    path = tmp_path_factory.mktemp("ledger") / "budget"
    first = Ledger(path)
    accounts = [first, Ledger(path), copy.copy(first)]
    releases: dict[int, oracle.Release] = {}
    reserved, most = [], None

    def worst(more: list[oracle.Release], among: oracle.Where = (None, None, None)) -> Fraction:
        return oracle.worst([*releases.values(), *more], PLACES + 1, among)

    for which, (what, amount, where) in steps:
        account = accounts[which]
        if what in ("spend", "reserve"):
            part, (start, stop) = where
            release = (oracle.written(amount), part, start, stop)
            call, said = getattr(account, what), {"stream": "meter", "part": part, "start": start, "stop": stop}
            if most is not None and worst([release]) > oracle.written(most):
                with pytest.raises(BudgetError, match=r"Refused: .* Nothing was recorded"):
                    call(Guarantee(amount), **said)
                continue
            made = call(Guarantee(amount), **said)
            if what == "reserve":
                reserved.append(made)
                made = made.entry
            releases[made.id] = release
        elif what in ("commit", "cancel") and reserved:
            one = reserved.pop(amount % len(reserved))
            one._ledger = account
            loss, part, start, stop = releases[one.entry.id]
            if what == "cancel":
                one.cancel()
                del releases[one.entry.id]
            elif where and start is not None:
                one.commit(stop=start + 1)
                releases[one.entry.id] = loss, part, start, start + 1
            else:
                one.commit()
        elif what == "limit":
            account.set_limit(amount)
            most = amount
        elif what == "close":
            account.close()
        if most is not None:
            met = worst([], (asked[0], *asked[1]))
            rest = accounts[which].remaining("meter", part=asked[0], start=asked[1][0], stop=asked[1][1]).epsilon
            left = oracle.written(most) - met if worst([]) <= oracle.written(most) else Fraction(0)
            assert max(left, Fraction(0)) * (1 - Fraction(1, 2**50)) <= oracle.written(rest) <= max(left, Fraction(0))
    for account in [*accounts, Ledger(path)]:
        assert worst([]) <= oracle.written(account.spent("meter").epsilon) <= worst([]) * (1 + Fraction(1, 2**52))
        assert account.limit("meter") == Ledger(path).limit("meter")
        assert account.verify().reserved == [one.entry.id for one in sorted(reserved, key=lambda one: one.entry.id)]
