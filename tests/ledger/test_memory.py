"""What an open ledger remembers: every line is checked once, and no change of the file goes unseen."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdp import Guarantee
from fastdp.errors import BudgetError, StateError
from fastdp.ledger import Ledger, session
from fastdp.ledger.account import Account
from tests.oracles import ledger as oracle

KEY = bytes(range(32))
#: Changes a file as another process would, which asks for no lock and puts the time of the last change back.
ALTER = """
import os, sys
path, place, byte = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
was = os.stat(path)
with open(path, "r+b") as file:
    file.seek(place)
    file.write(bytes([byte]))
os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
"""


def fill(account: Ledger, count: int) -> None:
    for _ in range(count):
        account.spend(Guarantee(1 / 64), stream="meter")


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the lines that are read, as they are."""
    numbers: list[int] = []
    real = Account.take

    def take(self: Account, line: dict):
        numbers.append(line["id"])
        return real(self, line)

    monkeypatch.setattr(Account, "take", take)
    return numbers


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "key"])
def test_each_call_reads_what_is_new_and_nothing_else(ledger, taken: list[int], key: bytes | None) -> None:
    account, other = ledger(key=key), ledger(key=key)
    fill(account, 5)
    taken.clear()
    account.spend(Guarantee(1 / 64), stream="meter")
    assert taken == [5]
    fill(other, 3)
    assert taken == [5, *range(1, 9)]
    taken.clear()
    made = account.reserve(Guarantee(1 / 64), stream="meter")
    made.commit()
    account.set_limit(1.0)
    assert account.remaining("meter").epsilon == 1 - 10 / 64
    assert account.limit("meter").epsilon == 1.0
    assert account.streams == ["meter"]
    assert taken == [6, 7, 8, 9, 10, 11, 12]
    # A limit that refuses costs no knowledge.
    with pytest.raises(BudgetError):
        account.spend(Guarantee(1.0), stream="meter")
    with pytest.raises(BudgetError):
        account.spend(Guarantee(1.0), stream="meter")
    assert taken == [6, 7, 8, 9, 10, 11, 12]
    # Checking is for what may be wrong: it begins anew.
    assert account.verify().lines == 13
    assert taken[7:] == list(range(1, 13))


ALTERED: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "a byte of the first line": (lambda lines: [lines[0].replace(b"20", b"21", 1), *lines[1:]], "line 0"),
    "a byte in the middle": (
        lambda lines: [*lines[:3], lines[3].replace(b"0.015625", b"0.015624"), *lines[4:]],
        "line 3",
    ),
    "a byte of the last line": (lambda lines: [*lines[:-1], lines[-1].replace(b"meter", b"mater")], "line 6"),
    "its last seal": (lambda lines: [*lines[:-1], lines[-1].replace(b'"}\n', b'" \n')], "line 6"),
    "two lines swapped": (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "line 2"),
    "the last line gone": (lambda lines: lines[:-1], "lacks lines that this object has seen"),
    "all lines gone": (lambda lines: lines[:1], "lacks lines that this object has seen"),
    "an empty file": (lambda lines: [], "is no fastdp ledger, or was cut short"),
    "a torn last line": (lambda lines: [*lines[:-1], lines[-1][:-9]], "lacks lines that this object has seen"),
    "zeros for a line": (lambda lines: [*lines[:-1], bytes(len(lines[-1]))], "lacks lines that this object has seen"),
    "an empty line more": (lambda lines: [*lines, b"\n"], "line 7"),
    "a line twice": (lambda lines: [*lines, lines[-1]], "line 7"),
}


@pytest.mark.parametrize("how", ["in place", "another file"])
@pytest.mark.parametrize("name", ALTERED)
def test_a_change_after_the_check_is_told_by_the_next_call(path: Path, ledger, name: str, how: str) -> None:
    account = ledger()
    fill(account, 6)
    account.remaining("meter")
    before, was = path.read_bytes(), path.stat()
    change, words = ALTERED[name]
    altered = b"".join(change(before.splitlines(keepends=True)))
    assert altered != before
    if how == "another file":
        copied = path.with_name("copy")
        copied.touch(0o600)
        copied.replace(path)
    path.write_bytes(altered)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    for call in (account.spend, account.reserve):
        with pytest.raises(StateError, match=words):
            call(Guarantee(1 / 64), stream="meter")
    with pytest.raises(StateError, match=words):
        account.set_limit(9.0)
    assert path.read_bytes() == altered
    # And what was right is right again.
    path.write_bytes(before)
    assert account.spend(Guarantee(1 / 64), stream="meter").id == 7
    assert account.spent("meter").epsilon == 7 / 64


@settings(max_examples=40)
@given(data=st.data())
def test_no_byte_of_what_was_checked_can_change(tmp_path_factory: pytest.TempPathFactory, data) -> None:
    path = tmp_path_factory.mktemp("ledger") / "budget"
    account = Ledger(path)
    fill(account, 2)
    account.remaining("meter")
    raw = bytearray(path.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 2))] ^= data.draw(st.integers(1, 255))
    with path.open("r+b") as file:
        file.write(raw)
    with pytest.raises(StateError, match="ledger"):
        account.spend(Guarantee(1 / 64), stream="meter")
    assert path.read_bytes() == raw


def test_a_change_by_another_process_is_told(path: Path, ledger) -> None:
    account = ledger()
    fill(account, 3)
    account.remaining("meter")
    place = path.read_bytes().index(b"meter")
    subprocess.run([sys.executable, "-c", ALTER, str(path), str(place), str(ord("M"))], check=True)
    with pytest.raises(StateError, match="damaged at line 1"):
        account.spend(Guarantee(1 / 64), stream="meter")


def test_a_file_that_was_right_and_another_one_is_told(path: Path, ledger, tmp_path: Path) -> None:
    account = ledger()
    fill(account, 3)
    older = path.read_bytes()
    fill(account, 3)
    other = Ledger(tmp_path / "other")
    fill(other, 9)
    for raw in (older, (tmp_path / "other").read_bytes()):
        path.write_bytes(raw)
        with pytest.raises(StateError, match="lacks lines that this object has seen"):
            account.spend(Guarantee(1 / 64), stream="meter")
        assert path.read_bytes() == raw
    # The older one, grown by somebody else to as many lines and more, which say the same in the same second.
    path.write_bytes(older)
    fill(ledger(), 5)
    with pytest.raises(StateError, match="lacks lines that this object has seen"):
        account.spend(Guarantee(1 / 64), stream="meter")


def test_a_last_line_without_its_line_end_counts_once(path: Path, ledger) -> None:
    account = ledger(limit_epsilon=1.0)
    account.spend(Guarantee(0.25), stream="meter")
    assert account.remaining("meter").epsilon == 0.75
    path.write_bytes(path.read_bytes()[:-1])
    for _ in range(2):
        assert account.remaining("meter").epsilon == 0.75
    account.spend(Guarantee(0.5), stream="meter")
    assert account.remaining("meter").epsilon == 0.25
    path.write_bytes(path.read_bytes()[:-1])
    account.spend(Guarantee(0.25), stream="meter")
    assert account.spent("meter").epsilon == ledger().spent("meter").epsilon == 1.0


def test_an_error_while_lines_are_read_leaves_no_half_of_them(path: Path, ledger) -> None:
    account = ledger(limit_epsilon=1.0)
    account.spend(Guarantee(0.25), stream="meter")
    ledger().spend(Guarantee(0.25), stream="meter")
    good = path.read_bytes()
    with session.locked(path, None) as file:
        file.read()
        file.append({"kind": "nonsense"})
    for _ in range(2):
        with pytest.raises(StateError, match="damaged at line 3: a line of kind 'nonsense'"):
            account.remaining("meter")
    path.write_bytes(good)
    assert account.remaining("meter").epsilon == 0.5


def test_a_file_that_loses_its_name_while_a_line_is_written(
    path: Path, ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = ledger(limit_epsilon=1.0)
    account.spend(Guarantee(0.25), stream="meter")
    before = path.read_bytes()
    kept, real = path.with_name("kept"), os.fsync

    def replacing(descriptor: int) -> None:
        real(descriptor)
        if not kept.exists():
            path.rename(kept)
            path.touch(0o600)
            path.write_bytes(before)

    monkeypatch.setattr(os, "fsync", replacing)
    with pytest.raises(StateError, match="was replaced by another file meanwhile: nothing was recorded"):
        account.spend(Guarantee(0.5), stream="meter")
    assert kept.read_bytes() == path.read_bytes() == before
    assert account.spend(Guarantee(0.5), stream="meter").id == 2


def test_a_call_that_another_overtook_makes_nothing_forgotten(
    path: Path, ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is replaced while one thread holds its lock, so that another one gets the new file's."""
    account = ledger(limit_epsilon=1.0)
    account.spend(Guarantee(0.25), stream="meter")
    before, real, calls = path.read_bytes(), os.fsync, []

    def overtaking(descriptor: int) -> None:
        real(descriptor)
        calls.append(descriptor)
        if len(calls) == 1:
            copied = path.with_name("copy")
            copied.touch(0o600)
            copied.write_bytes(before)
            copied.replace(path)
            other = threading.Thread(target=account.spend, args=(Guarantee(0.75),), kwargs={"stream": "meter"})
            other.start()
            other.join()

    monkeypatch.setattr(os, "fsync", overtaking)
    with pytest.raises(StateError, match="was replaced by another file meanwhile"):
        account.spend(Guarantee(0.5), stream="meter")
    monkeypatch.undo()
    whole = path.read_bytes()
    path.write_bytes(before)
    with pytest.raises(StateError, match="lacks lines that this object has seen"):
        account.spend(Guarantee(0.75), stream="meter")
    path.write_bytes(whole)
    assert account.spent("meter").epsilon == 1.0


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
    st.tuples(st.sampled_from(["line end", "tear"]), st.none(), st.none()),
)


@settings(max_examples=60)
@given(steps=st.lists(st.tuples(st.integers(0, 2), STEPS), max_size=14), asked=WHERE)
def test_objects_in_turns_agree_with_the_oracle(tmp_path_factory: pytest.TempPathFactory, steps, asked) -> None:
    """Two objects and a copy of one, a model of the releases that count, and a fresh object at the end."""
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
            release = (Fraction(amount), part, start, stop)
            call, said = getattr(account, what), {"stream": "meter", "part": part, "start": start, "stop": stop}
            if most is not None and worst([release]) > Fraction(most) * (1 + Fraction(1, 2**51)):
                with pytest.raises(BudgetError):
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
        elif what == "line end":
            path.write_bytes(path.read_bytes()[:-1])
            assert Fraction(account.spent("meter").epsilon) >= worst([])
            path.write_bytes(path.read_bytes() + b"\n")
        elif what == "tear":
            path.write_bytes(path.read_bytes() + b'{"id": 7, "ti')
            with pytest.raises(StateError, match="cut off"):
                account.set_limit(most)
            accounts[which] = Ledger(path, recover=True)
        if most is not None:
            met = worst([], (asked[0], *asked[1]))
            rest = accounts[which].remaining("meter", part=asked[0], start=asked[1][0], stop=asked[1][1]).epsilon
            left = Fraction(most) - met if worst([]) <= Fraction(most) * (1 + Fraction(1, 2**51)) else Fraction(0)
            assert max(left, Fraction(0)) * (1 - Fraction(1, 2**50)) <= Fraction(rest) <= max(left, Fraction(0))
    for account in [*accounts, Ledger(path)]:
        assert worst([]) <= Fraction(account.spent("meter").epsilon) <= worst([]) * (1 + Fraction(1, 2**52))
        assert account.limit("meter") == Ledger(path).limit("meter")
        assert account.verify().reserved == [one.entry.id for one in sorted(reserved, key=lambda one: one.entry.id)]
