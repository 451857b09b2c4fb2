"""The fingerprint of a batch whose outputs may have left already: it must come again unchanged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import DataError
from fastdp.randomness.key import Key
from fastdp.state import codec

Chunk = NDArray[Any]


def as_one(*parts: NDArray[Any] | bytes) -> Chunk:
    """A batch as a chunk of one entry, which is repeated whole or not at all."""
    digest = hashlib.blake2b()
    for part in parts:
        raw = part if isinstance(part, bytes) else np.ascontiguousarray(part).tobytes()
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return np.frombuffer(digest.digest(), f"V{digest.digest_size}")


@dataclass(frozen=True)
class Replay:
    """What a journal records of a batch; without the key it reveals nothing about it.

    Attributes
    ----------
    count : int
        Its number of entries.
    digest : str
        Its keyed fingerprint, rolled on from that of the batches before.
    """

    count: int
    digest: str

    def __post_init__(self) -> None:
        """Refuse what is none: it may come from a file."""
        codec.whole(self.count)
        bytes.fromhex(self.digest)

    @classmethod
    def of(cls, chunk: Chunk, key: Key, before: str = "") -> Replay:
        """The record of a chunk behind those with this rolling digest."""
        fingerprint = hashlib.blake2b(bytes.fromhex(before), key=key.reveal(), person=b"fastdp replay 1")
        fingerprint.update(np.ascontiguousarray(chunk).tobytes())
        return cls(chunk.size, fingerprint.hexdigest())

    def check(self, chunk: Chunk, key: Key, before: str = "") -> None:
        """DataError unless these are the same entries again; more may follow them."""
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
