"""Saving, loading and write-ahead keeping of a publisher's state.

One prefix of a stream gets at most one noise: publishing the same values again with fresh noise doubles
the loss, publishing altered values with the same noise reveals their difference.  So a kept publisher
writes its state, with a fingerprint of the chunk, before the chunk's outputs leave; after a crash it
continues, or accepts the very same chunk once more.  Source: ``docs/state.md``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp._version import __version__
from fastdp.errors import DataError, StateError
from fastdp.randomness.key import Key
from fastdp.state import codec
from fastdp.state.sealed_file import StateFile

#: A sealed file holds so many bytes at least, and else a power of two.
MIN_BYTES = 8192
#: A position in the stream as a state file holds it.
Position = dict[str, Any]
#: What reading a description or a position may raise if it is none.
_DAMAGE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
    zlib.error,
)
#: What a call consumes, in the form that fingerprints are made of: values, or one batch (:func:`as_one`).
Chunk = NDArray[Any]


def as_one(*parts: NDArray[Any] | bytes) -> Chunk:
    """A batch as a chunk of one entry, which comes again whole or not at all."""
    digest = hashlib.blake2b()
    for part in parts:
        raw = part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return np.frombuffer(digest.digest(), f"V{digest.digest_size}")


@dataclass(frozen=True)
class Replay:
    """A chunk whose outputs may have left already: it must come again unchanged.

    Attributes
    ----------
    count : int
        Its number of values.
    digest : str
        Its keyed fingerprint, rolled on from that of what came before.
    """

    count: int
    digest: str

    def __post_init__(self) -> None:
        """Refuse what is none: it may come from a file."""
        codec.whole(self.count)
        bytes.fromhex(self.digest)

    @classmethod
    def of(cls, values: Chunk, key: Key, before: str = "") -> Replay:
        """What a state file records of a chunk; tells nothing about it without the key."""
        fingerprint = hashlib.blake2b(bytes.fromhex(before), key=key.reveal(), person=b"fastdp replay 1")
        fingerprint.update(values.tobytes())
        return cls(values.size, fingerprint.hexdigest())

    def check(self, values: Chunk, key: Key, before: str = "") -> None:
        """Refuse anything but the same values again (more may follow them)."""
        if values.size < self.count:
            raise DataError(
                f"chunk has {values.size} values: expected at least the {self.count} values that the state file "
                "recorded last, in one call (replay)"
            )
        if Replay.of(values[: self.count], key, before) != self:
            what = "the batch" if values.dtype.kind == "V" else f"chunk[:{self.count}]"
            raise DataError(
                f"{what} differs from what the state file recorded last: "
                "publishing altered values with the same noise would reveal the difference"
            )


class StateFiles:
    """The files one publisher has written or was loaded from, and how it last left each.

    A file that somebody else has written since, or that was put back from a copy, is never overwritten.

    Attributes
    ----------
    kept : StateFile or None
        The file that is written before outputs leave.
    last : Position or None
        The position recorded last, in the file that is kept or was loaded.
    """

    def __init__(
        self,
        file: StateFile | None = None,
        header: bytes = b"",
        last: Position | None = None,
        *,
        kept: bool = False,
    ) -> None:
        self._headers: dict[str, bytes] = {} if file is None else {file.real: header}
        self.kept = file if kept else None
        self.last = last

    def position_at(self, consumed: int) -> Position | None:
        """The position recorded last, if it is this one: saves packing the hold-out's summary again."""
        return self.last if self.last is not None and self.last["n_seen"] == consumed else None

    def keeps(self, file: StateFile) -> bool:
        """Whether this is the file that is kept; StateError if it is, but under another key."""
        if self.kept is None or self.kept.real != file.real:
            return False
        if file.key != self.kept.key:
            file.demand(self._headers[file.real])
            raise StateError(
                f"state file {os.fspath(file.path)!r}: expected the key under which this publisher keeps it"
            )
        return True

    def is_current(self, file: StateFile, consumed: int) -> bool:
        """Whether the file is the one that is kept, and has this position and the call that led there.

        StateError if somebody else has written it.
        """
        if not self.keeps(file) or self.position_at(consumed) is None:
            return False
        with file.locked():
            self._found(file)
        return True

    def write(self, file: StateFile, content: dict[str, Any]) -> None:
        """Write the next generation of this publisher's state."""
        with file.locked():
            known = self._found(file)
            payload = json.dumps(content, separators=(",", ":")).encode()
            if file.key is not None:
                payload = _padded(payload)
            self._headers[file.real] = file.write(payload, known)
            if content["kept"]:
                self.last = content["now"]
            file.sync_folder()

    def _found(self, file: StateFile) -> bytes | None:
        """The header as this publisher left it; StateError if the file has another one."""
        known, found = self._headers.get(file.real), file.header()
        shown = repr(os.fspath(file.path))
        if file.strays:
            raise StateError(
                f"state file {shown} leads elsewhere than where this publisher keeps it, {file.real!r}: expected its "
                "links as they were, because the file there would stay behind"
            )
        if found is not None and known is None:
            raise StateError(
                f"state file {shown} exists: expected a new path, or a file of this very publisher (if another run "
                "has just written it, let that one end, then load it or run the command again)"
            )
        if found is None and known is not None:
            raise StateError(f"state file {shown} is gone: expected the one this publisher wrote or came from")
        if found != known:
            raise StateError(
                f"state file {shown} is not as this publisher left it: another publisher has written it, a stale "
                "copy was put back, or a write was interrupted (then load it again, it is complete)"
            )
        return known


def _padded(text: bytes) -> bytes:
    """JSON with spaces behind it: a sealed file's size would tell how many events wait, or how values compress."""
    return text.ljust(max(MIN_BYTES, 1 << (len(text) - 1).bit_length()))


def content(
    name: str,
    description: dict[str, Any],
    key: Key,
    now: Position,
    *,
    kept: bool,
    digest: str,
    before: Position | None = None,
    chunk: Replay | None = None,
) -> dict[str, Any]:
    """Everything a state file holds: parts, parameters, key, and one or two positions."""
    return {
        "class": name,
        "fastdp": __version__,
        "composition": description,
        "secret": key.reveal().hex(),
        "member": key.member,
        "noise": int(key.binding),
        "simulated": key.simulated,
        "kept": kept,
        "now": now,
        "before": before,
        "digest": digest,
        "chunk": None if chunk is None else dataclasses.asdict(chunk),
    }


def read(file: StateFile) -> tuple[dict[str, Any], bytes]:
    """Content and header of a state file that passes its authentication."""
    payload, header = file.read()
    with trusting(repr(os.fspath(file.path))):
        content = json.loads(payload)
        if not isinstance(content, dict) or not {"class", "before", "now", "kept", "composition"} <= set(content):
            raise ValueError("no publisher in it")
    return content, header


@contextmanager
def trusting(name: str, writer: object = __version__) -> Iterator[None]:
    """Whatever is wrong within a file that passed its authentication is one clear error.

    ``writer`` is the version that wrote it: another one may have had something that this one has not.
    """
    try:
        yield
    except _DAMAGE as error:
        same = writer in (None, __version__)
        shown = validation.shown(writer).strip("'")
        other = "" if same else f" (or needs fastdp {shown}, which wrote it; this is {__version__})"
        raise StateError(f"state file {name} is damaged{other}: {error}") from error
