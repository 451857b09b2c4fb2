"""Files of one publisher: the kept one, as a journal, and those saved or loaded."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from fastdp.errors import DataError, StateError
from fastdp.kinds import Array, Json
from fastdp.noise.key import Key
from fastdp.state import codec
from fastdp.state.codec import Packed, as_text, content_of
from fastdp.state.machine import Record
from fastdp.state.sealed_file import HEADER, StateFile, stamp_of

#: A batch as its fingerprint takes it.
Chunk = Array


def as_one(*parts: Array | bytes) -> Chunk:
    """Batch as a chunk of one entry, replayed in full or not at all."""
    digest = hashlib.blake2b()
    for part in parts:
        raw = part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return np.frombuffer(digest.digest(), f"V{digest.digest_size}")


@dataclass(frozen=True)
class Replay:
    """Record of a batch: number of entries, and keyed fingerprint chained to the previous one."""

    count: int
    digest: str

    def __post_init__(self) -> None:
        """ValueError for other values: they may come from a file."""
        codec.require_int(self.count)
        bytes.fromhex(self.digest)

    @classmethod
    def of(cls, chunk: Chunk, key: Key, before: str = "") -> Replay:
        """Record of a chunk that follows the digest `before`."""
        fingerprint = hashlib.blake2b(bytes.fromhex(before), key=key.reveal(), person=b"fastdp replay 1")
        fingerprint.update(np.ascontiguousarray(chunk).tobytes())
        return cls(chunk.size, fingerprint.hexdigest())

    def check(self, chunk: Chunk, key: Key, before: str = "") -> None:
        """DataError unless `chunk` begins with the recorded entries."""
        if chunk.size < self.count:
            raise DataError(
                f"chunk has {chunk.size} values: expected at least the {self.count} values that the state file "
                "recorded last, in one call (replay)"
            )
        if Replay.of(chunk[: self.count], key, before) != self:
            what = "the batch" if chunk.dtype.kind == "V" else f"chunk[:{self.count}]"
            raise DataError(
                f"{what} differs from what the state file recorded last: "
                "publishing altered values with the same noise would reveal the difference"
            )


#: Records after a state, and bytes of the file, beyond which it is written again.
MAX_RECORDS, SPARE_BYTES = 512, 2**22


class Journal:
    """Files of one publisher, and the state in which it left each.

    `kept`: the file written before outputs return; `last`: packed state recorded last.
    """

    def __init__(
        self, file: StateFile | None = None, stamp: bytes = b"", last: Packed | None = None, *, kept: bool = False
    ) -> None:
        #: How each file was left (:meth:`fastdp.state.sealed_file.StateFile.stamp`).
        self._stamps: dict[str, bytes] = {} if file is None else {file.real: stamp}
        self.kept = file if kept else None
        self.last = last
        #: Of the kept file: whether records may be appended to it, how many there are, its bytes,
        #: those of a state with a log that it begins with, and its largest content besides a log.
        self._appends, self._records, self._end, self._whole, self._base = False, 0, 0, 0, 0

    def keeps(self, file: StateFile) -> bool:
        """True for the kept file; StateError if under another key."""
        if self.kept is None or self.kept.real != file.real:
            return False
        if file.key != self.kept.key:
            file.seal.require_protection(self._stamps[file.real][: HEADER.size], file.name)
            raise StateError(f"{file.name}: expected the key under which this publisher keeps it")
        return True

    def is_current(self, file: StateFile, consumed: int) -> bool:
        """True for the kept file with this state; StateError if another process wrote it."""
        if not self.keeps(file) or self.last is None or self.last["n_seen"] != consumed:
            return False
        with file.locked():
            self._found(file)
        return True

    def write(self, file: StateFile, content: Json) -> None:
        """Replace a file of this publisher by `content`."""
        payload = as_text(content)
        with file.locked():
            known, kept = self._found(file), content["home"] is not None
            if kept:
                # Until the folder is synced too, the next record is a complete file.
                self._appends = False
            file.write(payload, known)
            if kept:
                # The file may be ahead of the publisher now, so that a save must not leave it alone.
                self.last = None
            stamp = file.stamp()
            assert stamp is not None  # noqa: S101 - it was just written, under the lock
            self._stamps[file.real] = stamp
            file.sync_folder()
            if kept:
                self._records, self._end = 0, int.from_bytes(stamp[HEADER.size : HEADER.size + 8], "big")
                self._whole = self._end if "log" in content else 0
                self._base = len(payload) - _size_of(content.get("log", ()))
                self.last, self._appends = content["now"], True

    def record(
        self,
        content: Callable[[str], Json],
        record: Record,
        replay: Replay,
        drawn: Mapping[str, codec.JsonValue],
        before: Packed,
    ) -> None:
        """Record a batch's fingerprint and the state after it in the kept file.

        `content(path)`: a complete file's content; `drawn`: draws that a replay must not repeat; `before`: packed
        state before the batch.
        """
        file = self.kept
        assert file is not None  # noqa: S101 - the caller has looked
        now, added, rewrite = record
        chunk = dataclasses.asdict(replay)
        log = {"log": added} if added else {}
        payload = as_text({"now": now, "chunk": chunk, "drawn": dict(drawn), **log})
        size = len(payload) - _size_of(added)
        # After an interrupt the file may be ahead: then the state before is another one than it has.
        fits = self._appends and before is self.last
        # A log is written again once it has doubled, so that a call pays for its own rows.
        many = (self._records >= MAX_RECORDS or self._end > SPARE_BYTES) and self._end >= 2 * self._whole
        # A hold-out that is used up does not stay in the file.
        shrunk = self._base > 3 * size + 1024
        if not fits or many or shrunk or rewrite:
            whole = {**content(file.real), "now": now, "before": {**before, **drawn}, "chunk": chunk}
            if "log" in whole:
                whole |= {"log": [*whole["log"], *added], "fresh": len(added)}
            self.write(file, whole)
            return
        with file.locked():
            header = self._found(file)
            assert header is not None  # noqa: S101 - it was written from here
            frame = file.seal.frame(header, self._records + 1, payload)
            self._appends = False
            file.append(frame, self._end)
            # An interrupt before this leaves a file that is longer than known: it is refused, and loaded again.
            self._stamps[file.real] = stamp_of(header, self._end + len(frame), frame)
            self._records, self._end, self.last = self._records + 1, self._end + len(frame), now
            self._base, self._appends = max(self._base, size), True

    def _found(self, file: StateFile) -> bytes | None:
        """Header of the file; StateError if written since."""
        known, found = self._stamps.get(file.real), file.stamp()
        if file.redirected:
            raise StateError(
                f"{file.name} leads elsewhere than where this publisher keeps it, {file.real!r}: expected its "
                "links as they were, because the file there would stay behind"
            )
        if found is not None and found != known:
            # A file that is no state file has an error of its own.
            file.header()
        if found is not None and known is None:
            raise StateError(
                f"{file.name} exists: expected a new path, or a file of this very publisher (if another run "
                "has just written it, let that one end, then load it or run the command again)"
            )
        if found is None and known is not None:
            raise StateError(f"{file.name} is gone: expected the one this publisher wrote or came from")
        if found != known:
            raise StateError(
                f"{file.name} is not as this publisher left it: another publisher has written it, a stale "
                "copy was put back, or a write was interrupted (then load it again, it is complete)"
            )
        return None if known is None else known[: HEADER.size]


def _size_of(log: Iterable[str]) -> int:
    return sum(map(len, log))


def read(file: StateFile) -> tuple[Json, bytes]:
    """Content and stamp of a state file."""
    with file.locked() if file.header() is not None else nullcontext():
        frames, stamp = file.open()
    return content_of(frames, file.name), stamp
