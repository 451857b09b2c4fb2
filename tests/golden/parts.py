"""Parts of the golden cases: public names, secrets, chunkings, digests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

import fastdp
import fastdp_lab


def public(name: str) -> Any:
    """A public part of fastdp or its laboratory."""
    return attrgetter(name)(fastdp if hasattr(fastdp, name.partition(".")[0]) else fastdp_lab)


@dataclass(frozen=True)
class Golden:
    """Numbers, arrays or bytes given in an empty folder; if portable, the same on every processor."""

    outputs: Callable[[Path], Iterable[Any]]
    portable: bool = True

    def digest(self, folder: Path) -> str:
        """SHA-256 of all outputs as float64, int64 or bytes, one after another: how they are cut does not matter."""
        digest = hashlib.sha256()
        for output in self.outputs(folder):
            digest.update(output if isinstance(output, bytes) else _raw(output))
        return digest.hexdigest()


def _raw(output: Any) -> bytes:
    array = np.asarray(output)
    return array.astype("<f8" if array.dtype.kind == "f" else "<i8", casting="safe").tobytes()


BYTES = bytes(range(32))
_KEY = fastdp.Key.from_bytes(BYTES)
#: What a publisher's noise can come from.
SECRETS: dict[str, dict[str, Any]] = {
    "seed 1": {"seed": 1},
    "seed text": {"seed": "meters"},
    "32 bytes": {"key": BYTES},
    "stream 3": {"key": fastdp.Key.from_seed(1).of_stream(3)},
    "stream named": {"key": _KEY.of_stream("meters")},
}
USUAL = SECRETS["seed 1"]
OTHERS = [name for name in SECRETS if name != "seed 1"]


def values(n: int, first: int = 0) -> np.ndarray:
    """A stream in [0, 47] without a generator, so that it is always the same."""
    at = np.arange(first, first + n)
    return (at * 7919 % 41 + at * 104729 % 7 / 8.0).astype(float)


#: Lengths of pieces, repeated until the stream ends.
CHUNKINGS = {"whole": (2**40,), "ones": (1,), "odd": (7, 0, 33, 1, 19, 64, 3, 101)}
_PIECES = {**CHUNKINGS, "few": (40, 71, 101)}


def chunks(stream: np.ndarray, chunking: str) -> Iterator[np.ndarray]:
    """The stream in pieces."""
    begin, number, sizes = 0, 0, _PIECES[chunking]
    while begin < stream.size:
        size = sizes[number % len(sizes)]
        yield stream[begin : begin + size]
        begin, number = begin + size, number + 1


def published(publisher: Any, stream: np.ndarray, chunking: str = "whole") -> Iterator[Any]:
    """Output of a publisher for a stream, and its last threshold."""
    for chunk in chunks(stream, chunking):
        yield publisher.publish(chunk)
    yield getattr(publisher, "threshold", 0.0)


def replayed(publisher: Any, stream: np.ndarray, folder: Path) -> Iterator[Any]:
    """The same where a file is kept and every chunk's outputs are lost once: loaded, it publishes them again."""
    kind, path = type(publisher), folder / "kept"
    publisher.keep(path, BYTES)
    for chunk in chunks(stream, "few"):
        publisher.publish(chunk)
        publisher = kind.load(path, BYTES, replay=True)
        yield publisher.publish(chunk)
    yield getattr(publisher, "threshold", 0.0)


#: Ranges of 200 published values, short, long, and empty.
STARTS = np.array([0, 0, 3, 17, 64, 100, 5, 199])
STOPS = np.array([1, 200, 3, 50, 128, 177, 199, 200])


def released(release: Any) -> Iterator[Any]:
    """Everything that a release of at least 200 values answers."""
    yield release.values
    yield from (release.offset, release.threshold)
    yield release.sum(STARTS, STOPS)
    if release.online:
        yield release.revised.sum(STARTS, STOPS)
        yield release.revised.values


def released_many(many: Any) -> Iterator[Any]:
    """Everything that releases of streams of at least 20 published values answer."""
    yield from (many.values, many.borders, many.offset, many.thresholds, many.ids)
    whose = np.arange(3 * len(many)) % len(many)
    yield many.sum(whose % 5, 20 - whose % 3, streams=whose)
    for each in many:
        yield each.sum([0, 3], [20, 19])
