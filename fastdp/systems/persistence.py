"""Saving, loading and write-ahead keeping of a publisher's state.

One prefix of a stream gets at most one noise: publishing the same values again with fresh noise doubles
the loss, publishing altered values with the same noise reveals their difference.  So a kept publisher
writes its state, with a fingerprint of the chunk, before the chunk's outputs leave; after a crash it
continues, or accepts the very same chunk once more.  Source: the project's noise design, section 8.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import DataError, StateError
from fastdp.randomness.key import Key
from fastdp.statefile import StateFile

#: A position in the stream as a state file holds it.
Position = dict[str, Any]


@dataclass(frozen=True)
class Replay:
    """A chunk whose outputs may have left already: it must come again unchanged.

    Attributes
    ----------
    count : int
        Its number of values.
    digest : str
        Its keyed fingerprint.
    """

    count: int
    digest: str

    @classmethod
    def of(cls, values: NDArray[np.float64], key: Key) -> Replay:
        """What a state file records of a chunk; tells nothing about it without the key."""
        fingerprint = hashlib.blake2b(values.tobytes(), key=key.reveal(), person=b"fastdp replay 1")
        return cls(values.size, fingerprint.hexdigest())

    def check(self, values: NDArray[np.float64], key: Key) -> None:
        """Refuse anything but the same values again (more may follow them)."""
        if values.size < self.count:
            raise DataError(
                f"chunk has {values.size} values: expected at least the {self.count} values that the state file "
                "recorded last, in one call (replay)"
            )
        if Replay.of(values[: self.count], key) != self:
            raise DataError(
                f"chunk[:{self.count}] differs from the values that the state file recorded last: "
                "publishing altered values with the same noise would reveal the difference"
            )


class StateFiles:
    """The files one publisher has written or was loaded from, and how it last left each.

    A file that somebody else has written since, or that was put back from a copy, is never overwritten.
    """

    def __init__(
        self, file: StateFile | None = None, header: bytes = b"", last: Position | None = None, *, kept: bool = False
    ) -> None:
        self._headers: dict[str, bytes] = {} if file is None else {file.real: header}
        self.kept = file if kept else None
        self.last = last

    def position_at(self, n_seen: int) -> Position | None:
        """The position recorded last, if it is this one: saves packing the hold-out's summary again."""
        return self.last if self.last is not None and self.last["n_seen"] == n_seen else None

    def write(self, file: StateFile, content: dict[str, Any]) -> None:
        """Write the next generation of this publisher's state."""
        known = self._headers.get(file.real)
        shown = repr(os.fspath(file.path))
        with file.locked():
            found = file.header()
            if found is not None and known is None:
                raise StateError(
                    f"state file {shown} exists: expected a new path, or a file of this very publisher "
                    "(delete it first if it is not needed)"
                )
            if found is None and known is not None:
                raise StateError(f"state file {shown} is gone: expected the one this publisher wrote or came from")
            if found != known:
                raise StateError(
                    f"state file {shown} is not as this publisher left it: another publisher has written it, a stale "
                    "copy was put back, or a write was interrupted (then load it again, it is complete)"
                )
            self._headers[file.real] = file.write(json.dumps(content, separators=(",", ":")).encode(), known)
            self.last = content["now"]
            file.sync_folder()


class Described(Protocol):
    """The public side of a publisher."""

    def describe(self) -> dict[str, Any]:
        """Parts by name, and parameters."""
        ...


def content(
    name: str,
    composition: Described,
    key: Key,
    now: Position,
    *,
    kept: bool,
    before: Position | None = None,
    chunk: Replay | None = None,
) -> dict[str, Any]:
    """Everything a state file holds: parts, parameters, key, and one or two positions."""
    return {
        "class": name,
        "composition": composition.describe(),
        "secret": key.reveal().hex(),
        "member": key.member,
        "simulated": key.simulated,
        "kept": kept,
        "now": now,
        "before": before,
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


def pack(array: NDArray[Any], kind: str) -> str:
    """An array as text, compressed; ``kind`` is the type that is written, such as "<f8"."""
    return base64.b64encode(zlib.compress(array.astype(kind).tobytes(), 1)).decode()


def unpack(text: str, kind: str) -> NDArray[Any]:
    """What :func:`pack` wrote; ValueError or zlib.error if it did not."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), kind)


def whole(number: object) -> int:
    """A whole number of a state file; ValueError for anything else, such as 2.0."""
    if type(number) is not int:
        raise ValueError(f"{number!r} is no whole number")
    return number


@contextmanager
def trusting(name: str) -> Iterator[None]:
    """Whatever is wrong within a file that passed its authentication is one clear error."""
    try:
        yield
    except (ArithmeticError, LookupError, TypeError, ValueError, RecursionError, zlib.error) as error:
        raise StateError(f"state file {name} is damaged: {error}") from error
