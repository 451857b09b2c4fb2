"""Kept files: one file for one publisher wherever paths lead, what a replay may bring, and odd paths and keys."""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import shutil
import struct
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdp.errors import DataError, ParameterError, StateError
from fastdp.local import Piecewise, SumCollector, encode
from fastdp.noise import Key
from fastdp.state import Machine, Publisher, Transition, atomic_files, codec, driver, state_file
from fastdp.state.driver import Replay, as_one
from fastdp.state.state_file import StateFile
from tests.state.saved_objects import CASES, KEY, golden_cut, is_empty

KIND = type(CASES["tops"].make())

HEADER = state_file.HEADER


def kept(name: str, path: Path, calls: int | None = None, key: bytes | str | None = None):
    """A publisher that keeps a file, after its first calls, and what the last of them published."""
    case, out = CASES[name], None
    publisher = case.make()
    publisher.keep(path, key)
    for chunk in case.calls[: golden_cut(case) if calls is None else calls]:
        out = case.run(publisher, chunk)
    return publisher, out


def undisturbed(name: str) -> list[np.ndarray]:
    case = CASES[name]
    publisher = case.make()
    return [case.run(publisher, chunk) for chunk in case.calls]


def test_the_file_stays_where_it_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon changes its folder: written elsewhere, the file that is left would give its noise to other values."""
    case = CASES["tops"]
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    publisher = case.make()
    publisher.keep("rel.state")
    monkeypatch.chdir(tmp_path / "run")
    publisher.publish(case.calls[0])
    publisher.keep(tmp_path / "rel.state")
    assert not list((tmp_path / "run").iterdir())
    assert KIND.load(tmp_path / "rel.state").n_seen == case.calls[0].size


@pytest.mark.parametrize("link", ["folder", "file"])
def test_a_link_that_leads_elsewhere_is_refused(tmp_path: Path, link: str) -> None:
    case = CASES["tops"]
    for name in ("r1", "r2"):
        (tmp_path / name).mkdir()
    one, two = (tmp_path / name if link == "folder" else tmp_path / name / "s" for name in ("r1", "r2"))
    (tmp_path / "link").symlink_to(one)
    path = tmp_path / "link" / "s" if link == "folder" else tmp_path / "link"
    publisher = case.make()
    publisher.keep(path)
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(two)
    for call in (lambda: publisher.publish(case.calls[0]), lambda: publisher.keep(path)):
        with pytest.raises(StateError, match=r"leads elsewhere|on a publisher that keeps"):
            call()
    assert publisher.n_seen == 0
    assert not list((tmp_path / "r2").iterdir())
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to(one)
    publisher.publish(case.calls[0])
    assert KIND.load(path).n_seen == case.calls[0].size


@pytest.mark.parametrize("make_copy", [shutil.copy, os.link])
def test_a_copy_of_a_kept_file_is_refused(tmp_path: Path, make_copy) -> None:
    """Who goes on from each publishes two streams under one noise."""
    case, path, other = CASES["tops"], tmp_path / "kept", tmp_path / "other"
    kept("tops", path, 5, KEY)
    make_copy(path, other)
    for replay in (False, True):
        with pytest.raises(StateError, match=r"is a copy of .*kept', where it was kept: .*moved=True"):
            KIND.load(other, KEY, replay=replay)
    path.unlink()
    loaded = KIND.load(other, KEY, moved=True)
    assert np.array_equal(loaded.publish(case.calls[5]), undisturbed("tops")[5])
    assert KIND.load(other, KEY).n_seen == loaded.n_seen, "its home is here from the first write on"
    # Links to the file lead home.
    (tmp_path / "link").symlink_to(other)
    assert KIND.load(tmp_path / "link", KEY).n_seen == loaded.n_seen


@pytest.mark.parametrize("calls", [0, 1])
def test_one_file_is_kept_and_no_other_after_it(tmp_path: Path, calls: int) -> None:
    """The first would stay behind: whoever loads it gives its noise to other values."""
    publisher, _ = kept("tops", tmp_path / "one", calls)
    for keeper in (publisher, KIND.load(tmp_path / "one")):
        with pytest.raises(StateError, match=r"keep\(.*two'\) on a publisher that keeps .*one': expected that path"):
            keeper.keep(tmp_path / "two")
    assert list(tmp_path.iterdir()) == [tmp_path / "one"]
    publisher.keep(tmp_path / "one")
    publisher.publish(CASES["tops"].calls[calls])


@pytest.mark.parametrize("name", ["tops", "simple_counts", "topl_server"])
def test_over_a_kept_file_its_last_call_and_its_key_stay(tmp_path: Path, name: str) -> None:
    case, path, cut = CASES[name], tmp_path / "kept", golden_cut(CASES[name])
    publisher, last = kept(name, path, key=KEY)
    for other, said in ((bytes(32), "the key under which"), (None, "key = 32 bytes"), ("words", "key = 32 bytes")):
        with pytest.raises(StateError, match=f"expected {said}"):
            publisher.keep(path, other)
    publisher.keep(path, KEY)
    replayed = type(publisher).load(path, KEY, replay=True, **case.options)
    assert np.array_equal(case.run(replayed, case.calls[cut - 1]), last)
    # A loaded one's too.
    loaded = type(publisher).load(path, KEY, **case.options)
    loaded.keep(path, KEY)
    replayed = type(publisher).load(path, KEY, replay=True, **case.options)
    assert np.array_equal(case.run(replayed, case.calls[cut - 1]), last)


@pytest.mark.parametrize("loaded", [False, True])
def test_a_record_that_an_interrupt_took_back_is_not_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loaded: bool
) -> None:
    """The call raises; a whole file, which a loaded publisher writes, is ahead."""
    case, path = CASES["tops"], tmp_path / "kept"
    publisher, _ = kept("tops", path, 1)
    module, name = (atomic_files, "sync_folder") if loaded else (os, "fsync")
    if loaded:
        publisher = KIND.load(path)
    real = getattr(module, name)

    def interrupted(synced: Any) -> None:
        real(synced)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            publisher.publish(case.calls[1])
    assert KIND.load(path).n_seen == publisher.n_seen + (case.calls[1].size if loaded else 0)
    publisher.keep(path)
    assert KIND.load(path).n_seen == publisher.n_seen
    parts = [publisher.publish(chunk) for chunk in case.calls[1:]]
    assert np.array_equal(np.concatenate(parts), np.concatenate(undisturbed("tops")[1:]))


def test_a_first_file_that_failed_behind_its_writing_is_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says that it is kept, so that a second file would be a second publisher with the same noise."""
    publisher = CASES["adaptive"].make()

    def fails(synced: Any) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "sync_folder", fails)
        with pytest.raises(StateError):
            publisher.keep(tmp_path / "a")
    with pytest.raises(StateError, match="expected that path"):
        publisher.keep(tmp_path / "b")
    publisher.publish(CASES["adaptive"].calls[0])
    assert type(publisher).load(tmp_path / "a").n_seen == publisher.n_seen


FURTHER = ["tops", "stream_publisher", "median", "adaptive", "pak", "pak_averages", "topl"]


@pytest.mark.parametrize("name", FURTHER)
def test_a_replay_with_further_values_leads_through_the_recorded_place(tmp_path: Path, name: str) -> None:
    case, path, cut = CASES[name], tmp_path / "kept", golden_cut(CASES[name])
    publisher, _ = kept(name, path)
    file, values = path.read_bytes(), np.concatenate([case.calls[cut - 1], *case.calls[cut:]])
    replayed = type(publisher).load(path, replay=True)
    assert np.array_equal(replayed.publish(values), np.concatenate(undisturbed(name)[cut - 1 :]))
    # Another fastdp, NumPy or processor would have led elsewhere: the same noise would meet other sums.
    path.write_bytes(file)
    rewritten(path, lambda content: {**content, "now": content["before"]})
    for chunk in (case.calls[cut - 1], values):
        replayed = type(publisher).load(path, replay=True)
        before = replayed._machine.pack(replayed._state)
        with pytest.raises(StateError, match="leads to another position"):
            replayed.publish(chunk)
        assert replayed._machine.pack(replayed._state) == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_forked_during_a_write_holds_no_lock(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """It has the locked folder open as long as it lives."""
    publisher, _ = kept("simple_counts", tmp_path / "kept", 0)
    children = request.getfixturevalue("forked_at_sync")
    publisher.step([1, 2, 3])
    publisher.step([1, 2, 3])
    assert len(children) == 1
    assert publisher.n_steps == 2


ODD_PATHS = {
    "x" * 300: StateError,
    "a\0b": ParameterError,
    "\ud800": ParameterError,
    "": ParameterError,
    5: ParameterError,
}


@pytest.mark.parametrize(("path", "error"), ODD_PATHS.items(), ids=lambda value: repr(value)[:12])
def test_paths_that_no_file_can_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: Any, error: type) -> None:
    monkeypatch.chdir(tmp_path)
    publisher = CASES["tops"].make()
    for call in (publisher.keep, KIND.load):
        with pytest.raises(error, match=r"path|file"):
            call(path)
    assert not list(tmp_path.iterdir())


def test_spellings_of_a_passphrase(tmp_path: Path) -> None:
    """Systems differ in whether an accent is a character of its own."""
    composed, taken_apart = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    assert composed != taken_apart
    for number, (writer, reader) in enumerate([(composed, taken_apart), (taken_apart, composed)]):
        path = tmp_path / str(number)
        kept("simple_counts", path, 1, writer)
        loaded = type(CASES["simple_counts"].make()).load(path, reader)
        loaded.step([1, 2, 3])
        assert type(loaded).load(path, writer).n_steps == 2
        with pytest.raises(StateError, match="wrong key"):
            type(loaded).load(path, "cafe")
    with pytest.raises(ParameterError, match="lone surrogate"):
        CASES["tops"].make().keep(tmp_path / "s", "\ud800")


def test_slots_and_limits_of_messages_are_checked_first() -> None:
    """A message of another mechanism that comes before them would be counted already."""
    mechanism = Piecewise(1.0, 0.0, 64.0)
    message = encode(mechanism, mechanism.perturb([1.0, 2.0], seed=1))
    collector = SumCollector(mechanism, 2)
    other = encode(Piecewise(2.0, 0.0, 64.0), Piecewise(2.0, 0.0, 64.0).perturb([1.0], seed=1))
    for options in ({"slot": 7}, {"slot": "x"}, {"slot": -1}, {"most_reports": "x"}, {"most_reports": 1.5}):
        with pytest.raises(ParameterError, match=next(iter(options))):
            collector.receive(other + message, **options)
    assert (collector.refused.messages, collector.n_reports) == (0, 0)
    assert collector.receive(message, np.int64(1), most_reports=np.int64(2)) == 2
    server = CASES["topl_server"].make()
    with pytest.raises(ParameterError, match="most_reports"):
        server.receive(message, most_reports="x")


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO], ids=errno.errorcode.get)
@pytest.mark.parametrize("broken", ["lock", "unlock"])
def test_locks_that_fail_are_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, broken: str
) -> None:
    """A network file system without a lock server; and what is written stays written where unlocking fails."""
    import fcntl

    publisher, _ = kept("tops", tmp_path / "kept", 0)
    real, value = fcntl.flock, CASES["tops"].calls[0]

    def flock(descriptor: int, operation: int) -> None:
        if (operation == fcntl.LOCK_UN) == (broken == "unlock"):
            raise OSError(number, os.strerror(number))
        real(descriptor, operation)

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", flock)
        if broken == "unlock":
            publisher.publish(value)
        else:
            wrong = rf"^state file .*kept'.*could not be locked: {os.strerror(number)}; expected a file system with"
            with pytest.raises(StateError, match=wrong):
                publisher.publish(value)
            assert publisher.n_seen == 0
    if broken == "lock":
        publisher.publish(value)
    assert type(publisher).load(tmp_path / "kept").n_seen == publisher.n_seen > 0


def test_each_file_has_a_cipher_key_of_its_own(tmp_path: Path) -> None:
    """Nonces are random: under one cipher key for all files of a user they would repeat some day."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key, salts = bytes(range(32)), set()
    for name in ("a", "b"):
        kept("tops", tmp_path / name, 1, key)
        raw = (tmp_path / name).read_bytes()
        header, (length, _, nonce) = raw[:39], struct.unpack(">QI12s", raw[39:63])
        salt = HEADER.unpack(header)[3]
        # HKDF-SHA256 (RFC 5869) of the user's key, and the first frame under that.
        own = hmac.digest(hmac.digest(salt, key, "sha256"), b"fastdp state file 1\x01", "sha256")
        assert AESGCM(own).decrypt(nonce, raw[63 : 63 + length], header + bytes(8))
        salts.add(salt)
    assert len(salts) == 2


@pytest.mark.parametrize("name", ["tops", "pak", "simple_counts", "phdstream"])
@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize("replay", [False, True])
def test_a_record_of_another_publisher_is_noticed(tmp_path: Path, name: str, key: bytes | None, replay: bool) -> None:
    """Both came from one file, and the first appends to it: the second would give its noise to other values."""
    case, path, cut = CASES[name], tmp_path / "kept", golden_cut(CASES[name])
    first, _ = kept(name, path, key=key)
    second = type(first).load(path, key, replay=replay)
    old = path.read_bytes()
    following = next(chunk for chunk in case.calls[cut:] if not is_empty(chunk))
    case.run(first, following)
    after = path.read_bytes()
    assert after.startswith(old), "a record was appended"
    with pytest.raises(StateError, match="not as this publisher left it"):
        case.run(second, case.calls[cut - 1] if replay else following)
    assert path.read_bytes() == after
    # Nor does an older copy of the same file pass.
    third = type(first).load(path, key)
    path.write_bytes(old)
    with pytest.raises(StateError, match="not as this publisher left it"):
        case.run(third, following)


def test_the_bytes_of_a_kept_file_are_no_fork(tmp_path: Path) -> None:
    publisher, _ = kept("tops", tmp_path / "kept", 2)
    raw = (tmp_path / "kept").read_bytes()
    with pytest.raises(StateError, match="of a kept file"):
        KIND.from_bytes(raw)
    assert KIND.from_bytes(raw, moved=True).n_seen == publisher.n_seen


@pytest.mark.parametrize("records", [0, 1])
def test_a_file_that_was_written_again_knows_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """Also where many records made it be written again; and what a replay must not draw is in it."""
    monkeypatch.setattr(driver, "MAX_RECORDS", records)
    case, path = CASES["selective_counting"], tmp_path / "kept"
    publisher, last = kept("selective_counting", path, 3)
    shutil.copy(path, tmp_path / "copy")
    with pytest.raises(StateError, match="is a copy of"):
        type(publisher).load(tmp_path / "copy", **case.options)
    again = type(publisher).load(path, replay=True, **case.options)
    assert again._state.choice is not None
    assert np.array_equal(case.run(again, case.calls[2]), last)


def test_a_record_that_was_interrupted_before_it_took_effect_can_be_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is ahead then; the next call does not follow from what it says."""
    case, path = CASES["tops"], tmp_path / "kept"
    publisher, _ = kept("tops", path, 1)
    publisher.publish(case.calls[1])
    real = driver.Journal.record

    def interrupted(self, *arguments) -> None:
        real(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(driver.Journal, "record", interrupted)
        with pytest.raises(KeyboardInterrupt):
            publisher.publish(case.calls[2])
    published = publisher.publish(case.calls[2])
    assert np.array_equal(KIND.load(path, replay=True).publish(case.calls[2]), published)


def test_a_replay_needs_all_of_the_recorded_values() -> None:
    key = Key.from_seed(1)
    recorded = Replay.of(PARTS[0], key)
    recorded.check(PARTS[0], key)
    recorded.check(np.concatenate([PARTS[0], [9.0]]), key)
    for size in (0, 4):
        with pytest.raises(DataError, match="at least the 5 values"):
            recorded.check(PARTS[0][:size], key)
    for wrong in (PARTS[0] + 1.0, PARTS[0][::-1].copy()):
        with pytest.raises(DataError, match="differs"):
            recorded.check(wrong, key)
    with pytest.raises(DataError, match="differs"):
        recorded.check(PARTS[0], Key.from_seed(2))
    with pytest.raises(DataError, match="differs"):
        recorded.check(PARTS[0], key, recorded.digest)


def test_parts_of_a_batch_do_not_run_together() -> None:
    batches = [(b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b""), (b"", b"abc"), (b"ab", b"c", b"")]
    assert len({as_one(*batch).tobytes() for batch in batches}) == len(batches)
    arrays = [(PARTS[0][:2], PARTS[0][2:]), (PARTS[0][:3], PARTS[0][3:])]
    assert as_one(*arrays[0]).tobytes() != as_one(*arrays[1]).tobytes()


@dataclass(frozen=True)
class Place:
    """A state with an index."""

    n_seen: int
    index: int


@dataclass(frozen=True)
class Counting(Machine[Place]):
    """Calls, modulo a length."""

    length: int

    def start(self, key: Key) -> Place:
        """Nothing."""
        return Place(0, 0)

    def step(self, state: Place, batch: Any, key: Key) -> Transition[Place]:
        """One call more."""
        return Transition(Place(state.n_seen + 1, (state.index + 1) % self.length), lambda: state.index)

    def restored(self, state: Place, key: Key) -> Place:
        """In range."""
        if not 0 <= state.index < self.length:
            raise ValueError("an index out of range")
        return state


def test_a_whole_file_is_followed_by_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a crash could leave the old name, without any of the records since."""
    synced, real = [], os.fsync

    def watching(descriptor: int) -> None:
        synced.append("folder" if os.path.samestat(os.fstat(descriptor), tmp_path.stat()) else "file")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watching)
    publisher = Publisher(Counting(3), seed=1)
    publisher.keep(tmp_path / "kept")
    assert synced == ["file", "folder"]
    publisher.step(1)
    assert synced == ["file", "folder", "file"], "a record is one sync"
    Publisher.load(tmp_path / "kept", machine=Counting).step(2)
    assert synced[3:] == ["file", "folder"], "the first write after loading is whole"


def test_records_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By number and by bytes, then one state takes their place; nothing is lost."""
    for name, most, numbers in (("MAX_RECORDS", 3, [2, 3, 4, 1, 2, 3, 4, 1, 2]), ("SPARE_BYTES", 1, [1] * 9)):
        with monkeypatch.context() as patch:
            patch.setattr(driver, name, most)
            publisher = Publisher(Counting(3), seed=1)
            publisher.keep(tmp_path / name)
            found = [publisher.step(1) is None or len(StateFile(tmp_path / name).open()[0]) for _ in range(9)]
            assert found == numbers
            assert Publisher.load(tmp_path / name, machine=Counting).state == Place(9, 0)


def rewritten(path: Path, change) -> None:
    """Another content in a plain file, sealed like the first."""
    file = StateFile(path)
    file.write(codec.encode(change(driver.read_file(file)[0])), None)


def altered(path: Path, within: str | None = None, **changes: Any) -> None:
    """A kept file with another present position."""

    def change(content: Any) -> Any:
        (content["now"] if within is None else content["now"][within]).update(changes)
        return content

    rewritten(path, change)


PARTS = [np.arange(5.0), np.arange(3.0), np.full(4, 2.0)]


def test_the_digest_rolls_on_with_every_call(tmp_path: Path) -> None:
    def digests(name: str, parts: list[np.ndarray]) -> list[str]:
        publisher = CASES["adaptive_fixed"].make()
        publisher.keep(tmp_path / name)
        return [publisher.digest, *(publisher.publish(part) is not None and publisher.digest for part in parts)]

    found = digests("one", PARTS)
    assert digests("two", PARTS) == found
    other = digests("three", [PARTS[0] + 1.0, *PARTS[1:]])
    assert not set(found[1:]) & set(other), "equal calls behind different ones are not the same"
    expected, keyed = "", {"key": CASES["adaptive_fixed"].make()._key.reveal(), "person": b"fastdp replay 1"}
    assert found[0] == expected
    for part, digest in zip(PARTS, found[1:], strict=True):
        expected = hashlib.blake2b(bytes.fromhex(expected) + part.tobytes(), **keyed).hexdigest()
        assert digest == expected


def counting(path: Path) -> tuple[Any, dict[str, Any]]:
    publisher = Publisher(Counting(3), seed=1)
    publisher.keep(path)
    publisher.step(1)
    return Publisher, {"machine": Counting}


# One is within its hold-out, of which a rule may keep a summary alone.
@pytest.mark.parametrize("name", ["counting", *(name for name in CASES if name != "scale_free")])
def test_a_position_that_is_not_the_states_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "kept"
    if name == "counting":
        kind, options = counting(path)
    else:
        kind, options = type(kept(name, path)[0]), CASES[name].options
    place = driver.read_file(StateFile(path))[0]["now"]["n_seen"]
    altered(path, n_seen=place)
    assert kind.load(path, moved=True, **options) is not None
    altered(path, n_seen=place + 1)
    with pytest.raises(StateError, match="damaged"):
        kind.load(path, moved=True, **options)


def test_states_out_of_range_are_refused(tmp_path: Path) -> None:
    counting(tmp_path / "counting")
    altered(tmp_path / "counting", state={"n_seen": 1, "index": 3})
    with pytest.raises(StateError, match="an index out of range"):
        Publisher.load(tmp_path / "counting", machine=Counting)
    server, _ = kept("topl_server", tmp_path / "kept", 4)
    assert server.threshold is not None
    for theta in (-1.0, 0.0, 64.5, float("nan")):
        altered(tmp_path / "kept", "state", theta=theta)
        with pytest.raises(StateError, match="damaged"):
            type(server).load(tmp_path / "kept", moved=True)
