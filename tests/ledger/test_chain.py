"""The file: every alteration is told, a torn line stops it, and nothing half-written is left."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat as file_modes
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdp import Guarantee
from fastdp.errors import BudgetError, ParameterError, StateError
from fastdp.files import durable
from fastdp.ledger import Ledger, session

KEY = bytes(range(32))


@pytest.fixture
def filled(path: Path, ledger) -> list[bytes]:
    """A ledger of five lines: header, limit, two releases, a reservation."""
    account = ledger()
    account.set_limit(2.0, note="the board, 21 November")
    account.spend(Guarantee(0.5), stream="meter", note="évènement \u2028 \n {}")
    account.spend(Guarantee(0.25), stream="meter", part="a", start=3)
    account.reserve(Guarantee(0.125), stream="other")
    return path.read_bytes().splitlines(keepends=True)


def test_it_is_owner_only_and_readable(path: Path, filled: list[bytes]) -> None:
    assert file_modes.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == ["budget"]
    lines = [json.loads(line) for line in path.read_text().rstrip("\n").split("\n")]
    assert [line["id"] for line in lines] == [0, 1, 2, 3, 4]
    assert lines[2]["guarantee"]["epsilon"] == 0.5
    assert lines[2]["time"].endswith("+00:00")
    path.chmod(0o640)
    with pytest.raises(StateError, match=r"group or others have access \(mode 0640\)"):
        Ledger(path)


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "key"])
@settings(max_examples=60)
@given(data=st.data())
def test_one_changed_byte_is_told(tmp_path_factory: pytest.TempPathFactory, key: bytes | None, data) -> None:
    path = tmp_path_factory.mktemp("ledger") / "budget"
    account = Ledger(path, key=key)
    account.spend(Guarantee(0.5), stream="meter")
    account.spend(Guarantee(0.25), stream="meter")
    raw = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(raw) - 1))
    raw[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(raw)
    # The very last byte is the end of the last line: whatever takes its place makes that a line that is cut off.
    with pytest.raises(StateError, match="ledger"):
        Ledger(path, key=key).spend(Guarantee(0.1), stream="meter")
    assert path.read_bytes() == raw


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "key"])
def test_a_whole_last_line_counts_without_its_line_end(path: Path, ledger, key: bytes | None) -> None:
    account = ledger(key=key)
    account.set_limit(1.0)
    path.write_bytes(path.read_bytes()[:-1])
    assert ledger(key=key).limit("meter").epsilon == 1.0
    account = ledger(key=key)
    account.spend(Guarantee(0.75), stream="meter")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    found = ledger(key=key).verify()
    assert (found.lines, found.torn, found.reserved) == (3, 0, [])
    with pytest.raises(BudgetError):
        ledger(key=key).spend(Guarantee(0.5), stream="meter")
    # What stands where the line end was does not take the line along.
    path.write_bytes(whole[:-1] + b"x")
    assert ledger(key=key).spent("meter").epsilon == 0.75
    assert ledger(key=key).verify().torn == 1
    path.write_bytes(whole[:-1])
    # Reading repairs nothing; the next line brings the line end along.
    assert path.read_bytes() == whole[:-1]
    ledger(key=key).spend(Guarantee(0.25), stream="meter")
    assert path.read_bytes().startswith(whole)
    assert ledger(key=key).spent("meter").epsilon == 1.0


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "key"])
def test_of_two_last_lines_that_are_joined_the_first_counts(path: Path, ledger, key: bytes | None) -> None:
    """Their line ends were dropped; what stands in a mechanism is no seal."""
    account = ledger(key=key)
    account.spend(Guarantee(0.25), stream="meter")
    account.spend(Guarantee(0.5), stream="meter", mechanism={"a": "b", "chain": "0" * 64})
    account.spend(Guarantee(0.125), stream="meter", mechanism={"a": "b", "chain": "0" * 64})
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join(lines[:3]) + lines[3])
    found = ledger(key=key).verify()
    assert (found.lines, found.torn) == (3, len(lines[3]))
    assert ledger(key=key).spent("meter").epsilon == 0.75
    # Who has seen both tells; everybody else is stopped until somebody has looked.
    with pytest.raises(StateError, match="lacks lines that this object has seen"):
        account.spent("meter")
    with pytest.raises(StateError, match="cut off"):
        ledger(key=key).spend(Guarantee(0.25), stream="meter")
    assert ledger(key=key, recover=True).spend(Guarantee(0.25), stream="meter").id == 4
    assert json.loads(path.read_bytes().splitlines()[3])["torn"] == lines[3].decode()
    assert ledger(key=key).spent("meter").epsilon == 1.0


def test_lines_cut_out_swapped_doubled_or_foreign_are_told(path: Path, filled: list[bytes], tmp_path: Path) -> None:
    other = Ledger(tmp_path / "other")
    for _ in range(4):
        other.spend(Guarantee(0.1), stream="meter")
    foreign = (tmp_path / "other").read_bytes().splitlines(keepends=True)
    broken = {
        2: [*filled[:2], *filled[3:]],
        3: [*filled[:3], filled[2], *filled[3:]],
        1: [filled[0], filled[2], filled[1], *filled[3:]],
        4: [*filled[:4], foreign[4]],
    }
    for number, lines in broken.items():
        path.write_bytes(b"".join(lines))
        with pytest.raises(StateError, match=f"damaged at line {number}: its lines were altered, reordered or cut"):
            Ledger(path)
    path.write_bytes(b"".join(filled[1:]))
    with pytest.raises(StateError, match="has format None: this fastdp reads format 1"):
        Ledger(path)
    for nothing in (b"", b"time,epsilon\n1,2\n", b"[]\n", b"[" * 100_000 + b"\n"):
        path.write_bytes(nothing)
        with pytest.raises(StateError, match="is no fastdp ledger, or was cut short"):
            Ledger(path)


def test_lost_last_lines_are_told_to_who_kept_the_seal(path: Path, ledger, filled: list[bytes]) -> None:
    account = ledger()
    head = account.verify().head
    assert account.verify(head).lines == 5
    assert account.verify(head[:16].upper()).reserved == [4]
    path.write_bytes(b"".join(filled[:4]))
    # An object that has seen the lines tells, and so does who kept the seal; the chain alone cannot.
    with pytest.raises(StateError, match="lacks lines that this object has seen"):
        account.spent("meter")
    assert ledger().verify().lines == 4
    with pytest.raises(StateError, match="no line has the seal"):
        ledger().verify(head)
    for wrong in ("abc", "", 7):
        with pytest.raises(ParameterError, match="head"):
            ledger().verify(wrong)


@pytest.mark.parametrize("left", [1, 40, -2])
def test_a_torn_last_line_stops_entries_until_somebody_has_looked(
    path: Path, ledger, filled: list[bytes], left: int
) -> None:
    whole = b"".join(filled[:4])
    path.write_bytes(whole + filled[4][:left])
    found = ledger().verify()
    assert (found.lines, found.torn, found.reserved) == (4, len(filled[4][:left]), [])
    # Reading repairs nothing.
    assert path.read_bytes() == whole + filled[4][:left]
    assert ledger().spent("other").epsilon == 0.0
    for call in (ledger().spend, ledger().reserve):
        with pytest.raises(StateError, match=r"cut off .* if a crash did this, nothing .* a release may be missing"):
            call(Guarantee(0.75), stream="other")
    with pytest.raises(StateError, match="recover=True"):
        ledger().set_limit(9.0)
    assert path.read_bytes() == whole + filled[4][:left]
    account = ledger(recover=True)
    entry = account.spend(Guarantee(0.75), stream="other")
    assert entry.id == 5
    assert ledger().verify().torn == 0
    raw = path.read_bytes()
    assert raw.startswith(whole)
    # What was left of the line stays, for who wants to know what it said; a second recovery finds nothing to do.
    assert json.loads(raw.splitlines()[4])["torn"] == filled[4][:left].decode()
    assert ledger(recover=True).spent("other").epsilon == 0.75
    assert path.read_bytes() == raw


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_a_full_disk_records_nothing(path: Path, ledger, filled, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    account, before = ledger(), path.read_bytes()
    real, calls = getattr(os, call), []

    def failing(descriptor: int, *rest) -> int:
        calls.append(call)
        if len(calls) == 1 and call == "pwrite":
            return real(descriptor, rest[0][:100], rest[1])  # a short write first
        if len(calls) <= 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, *rest)

    monkeypatch.setattr(os, call, failing)
    with pytest.raises(StateError, match="could not be written: No space left on device"):
        account.spend(Guarantee(0.1), stream="meter")
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert account.spend(Guarantee(0.1), stream="meter").id == 5


#: Shorter than the line that takes its place, and longer.
TORN = {"short": b'{"id": 5, "ti', "long": b'{"id": 5, "note": "' + b"x" * 9000}


@pytest.mark.parametrize("torn", TORN.values(), ids=TORN)
@pytest.mark.parametrize("call", ["pwrite", "fsync", "ftruncate"])
def test_a_recovery_that_fails_leaves_what_was_cut_off(
    path: Path, ledger, filled, monkeypatch: pytest.MonkeyPatch, call: str, torn: bytes
) -> None:
    before = b"".join(filled) + torn
    path.write_bytes(before)
    real, calls = getattr(os, call), []

    def failing(descriptor: int, *rest) -> int:
        calls.append(call)
        if len(calls) == 1 and call == "pwrite":
            return real(descriptor, rest[0][:100], rest[1])  # a short write first
        if len(calls) <= (2 if call == "pwrite" else 1):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, *rest)

    monkeypatch.setattr(os, call, failing)
    if call == "ftruncate" and len(torn) < 1000:
        # Nothing to cut off.
        ledger(recover=True)
        assert calls == []
        return
    with pytest.raises(StateError, match="could not be written: No space left on device"):
        ledger(recover=True)
    monkeypatch.undo()
    assert path.read_bytes() == before
    with pytest.raises(StateError, match="cut off"):
        ledger().spend(Guarantee(0.1), stream="meter")
    assert ledger(recover=True).spend(Guarantee(0.1), stream="meter").id == 6


@pytest.mark.parametrize("torn", TORN.values(), ids=TORN)
@pytest.mark.parametrize("keep_line_end", [True, False])
def test_a_recovery_that_is_killed_anywhere_still_tells_or_has_told(
    path: Path, ledger, filled, monkeypatch: pytest.MonkeyPatch, torn: bytes, keep_line_end: bool
) -> None:
    """At each call that changes the file, before it and halfway: the next one finds the cut-off line, or a note."""
    start = b"".join(filled)
    start = start if keep_line_end else start[:-1]
    reals = {name: getattr(os, name) for name in ("pwrite", "ftruncate", "fsync")}
    for at in range(1, 6):
        for half in (False, True):
            path.write_bytes(start + torn)
            died = []

            def calling(name: str, at: int = at, half: bool = half, died: list[int] = died):
                def call(descriptor: int, *rest):
                    died.append(at)
                    if len(died) == at and half and name == "pwrite":
                        reals[name](descriptor, rest[0][: len(rest[0]) // 2], rest[1])
                    if len(died) >= at:
                        raise KeyboardInterrupt  # and nothing after it works, as in a killed process
                    return reals[name](descriptor, *rest)

                return call

            for name in reals:
                monkeypatch.setattr(os, name, calling(name))
            with contextlib.suppress(KeyboardInterrupt):
                ledger(recover=True)
            monkeypatch.undo()
            raw = path.read_bytes()
            assert raw.startswith(start)
            found = ledger().verify()
            assert found.torn or (b'"kind": "recover"' in raw and found.lines == 6)
            assert ledger(recover=True).spend(Guarantee(0.1), stream="meter").id in (6, 7)


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
    # Who has no key cannot seal again what was changed: SHA-256 in its place does not pass.
    lines = path.read_bytes().replace(b"hmac-sha256", b"sha256")
    path.write_bytes(lines)
    with pytest.raises(StateError, match="expected key = None"):
        ledger(key=KEY)
    with pytest.raises(StateError, match="damaged at line 0"):
        ledger()


def test_a_ledger_without_a_key_takes_none(path: Path, ledger) -> None:
    ledger()
    with pytest.raises(StateError, match="expected key = None: it was made without a key"):
        ledger(key=KEY)


def append(path: Path, body: dict) -> None:
    """A line whose seal is right, whatever it says."""
    with session.locked(path, None) as file:
        file.read()
        file.append(body)


def test_sealed_lines_that_make_no_sense_are_told(path: Path, ledger, filled) -> None:
    for body, words in (
        ({"kind": "commit", "of": 2}, "it ends entry 2, which is spent"),
        ({"kind": "commit", "of": 77}, "77"),
        ({"kind": "commit", "of": 4, "stop": 9}, "the reservation has no start"),
        ({"kind": "refund"}, "a line of kind 'refund'"),
        ({"kind": "spend"}, "guarantee"),
        ({"kind": "limit", "stream": None, "epsilon": "much", "delta": None}, "expected a real number"),
    ):
        path.write_bytes(b"".join(filled))
        append(path, body)
        with pytest.raises(StateError, match=f"damaged at line 5.*{words}"):
            ledger().entries()
    path.write_bytes(b"".join(filled))
    ledger().reserve(Guarantee(0.125), stream="other", start=5, stop=10)
    reserved = path.read_bytes()
    for stop in (5, 11, -1, "7", 6.5, True):
        path.write_bytes(reserved)
        append(path, {"kind": "commit", "of": 5, "stop": stop})
        with pytest.raises(StateError, match=r"damaged at line 6: stop = .*expected a whole number of at least 6"):
            ledger()
    path.write_bytes(b"".join(filled))
    append(path, {"id": 9, "kind": "limit"})
    with pytest.raises(StateError, match="it says to be line 9"):
        ledger()


def test_a_line_is_not_right_because_an_equal_one_was(path: Path, ledger) -> None:
    """True == 1 in Python, and promises that were read are known again."""
    ledger().spend(Guarantee(1.0), stream="meter")
    line = json.loads(path.read_bytes().splitlines()[1])
    for member in ("id", "time", "nonce", "chain"):
        del line[member]
    for change in ({"epsilon": True}, {"delta": False}, {"simulated": 0}, {"epsilon": [1.0]}, {"unit": ""}):
        before = path.read_bytes()
        append(path, line | {"guarantee": line["guarantee"] | change})
        with pytest.raises(StateError, match="damaged at line 2"):
            ledger()
        path.write_bytes(before)
    append(path, line)
    assert ledger().spent("meter").epsilon == 2.0


def test_missing_files_folders_and_locks(tmp_path: Path, path: Path, ledger, monkeypatch) -> None:
    with pytest.raises(StateError, match="could not be opened: No such file"):
        ledger(create=False)
    assert not path.exists()
    with pytest.raises(StateError, match="could not be created: No such file"):
        Ledger(tmp_path / "nowhere" / "budget")
    with pytest.raises(StateError, match="directory"):
        Ledger(tmp_path)
    account = ledger()
    monkeypatch.setattr(durable, "LOCK_TRIES", 2)
    monkeypatch.setattr(durable, "LOCK_PAUSE", 0.0)
    with path.open("rb") as file:
        assert durable.lock(file.fileno())
        with pytest.raises(StateError, match="stayed locked for"):
            account.spent("meter")
    assert account.spent("meter").epsilon == 0.0
    monkeypatch.setattr(durable, "has_locks", lambda: False)
    with pytest.raises(StateError, match="expected a system with file locks"):
        account.spent("meter")


def test_what_a_killed_process_left_of_a_new_ledger_is_removed(path: Path, ledger) -> None:
    ledger().spend(Guarantee(0.5), stream="meter")
    kept = path.with_name(".budget.00ff00ff00ff")
    path.rename(kept)
    others = [path.with_name(name) for name in (".budget.0123456789", ".budget.0123456789xy", "budget.0123456789ab")]
    header = kept.read_bytes().splitlines(keepends=True)[0]
    left = [path.with_name(f".budget.0123456789a{digit}") for digit in "0bc"]
    for file, raw in zip([*others, *left], [b"", b"", b"", b"", header, header[:20]], strict=True):
        file.write_bytes(raw)
    ledger().spend(Guarantee(0.25), stream="meter")
    # What has entries was a ledger, and is the last of it perhaps.
    assert sorted(path.parent.iterdir()) == sorted([path, kept, *others])
    assert Ledger(kept).spent("meter").epsilon == 0.5


def test_nobody_else_makes_a_ledger_in_a_locked_folder(path: Path, ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "LOCK_TRIES", 1)
    hold = durable.Hold(os.open(path.parent, os.O_RDONLY))
    assert durable.lock(hold.descriptor)
    with pytest.raises(StateError, match=r"the folder of ledger .* stayed locked"):
        ledger()
    assert list(path.parent.iterdir()) == []
    hold.release()
    ledger()


def test_a_link_stays_a_link_and_one_ledger(tmp_path: Path, path: Path, ledger) -> None:
    ledger().spend(Guarantee(0.5), stream="meter")
    alias = tmp_path / "alias"
    alias.symlink_to(path)
    Ledger(alias).spend(Guarantee(0.5), stream="meter")
    assert alias.is_symlink()
    assert ledger().spent("meter").epsilon == 1.0
