"""Online objects that keep their state, are killed, and go on."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastdp
from fastdp.counters import BinaryTree, RunningCounts
from fastdp.errors import StateError
from fastdp.local import encode
from fastdp.spatial import Box
from fastdp.streams.methods import Adaptive

SECRET = bytes(range(32))
HOLDOUT = 1000
CHUNK = 2048
#: Values that a step consumes, and numbers that it gives; the hold-out ends with a step.
STEP, WIDTH = 500, 500
#: What is asked of a released tree: cells of a grid of so many a side.
SIDE = 10

Floats = NDArray[np.float64]


def values(n: int) -> Floats:
    return np.random.default_rng(1).gamma(2.0, 12.0, n).round(2)


@dataclass(frozen=True)
class Online:
    """A publisher with kept state whose outputs are appended to a file.

    After a crash the state says where the last chunk began: the file is cut there, and the chunk comes again.
    """

    name: str
    make: Callable[[], Any]
    #: The first so many values give no output.
    silent: int = HOLDOUT
    streams = True

    def prepare(self, folder: Path, n: int) -> None:
        np.save(folder / "in.npy", values(n))

    def run(self, folder: Path) -> None:
        stream = np.load(folder / "in.npy")
        state = folder / "kept"
        if state.exists():
            publisher = self._load(state)
        else:
            publisher = self.make()
            publisher.keep(state, SECRET)
        with (folder / "out").open("ab") as out:
            out.truncate(8 * self.n_published(publisher))
            while (chunk := self.rest(publisher, stream)).size:
                out.write(self.publish(publisher, chunk).tobytes())
                out.flush()
                # On disk before the next chunk is recorded: then the state is never two chunks ahead of the file.
                os.fsync(out.fileno())

    def n_published(self, publisher: Any) -> int:
        """Numbers published so far."""
        return max(0, publisher.n_seen - self.silent)

    def rest(self, publisher: Any, stream: Floats) -> Floats:
        """What comes next; empty at the end."""
        return stream[publisher.n_seen : publisher.n_seen + CHUNK]

    def publish(self, publisher: Any, chunk: Floats) -> Floats:
        published: Floats = publisher.publish(chunk)
        return published

    def _load(self, state: Path) -> Any:
        kind = type(self.make())
        try:
            return kind.load(state, SECRET, replay=True)
        except StateError:
            # Nothing was published yet.
            return kind.load(state, SECRET)

    def published(self, folder: Path) -> bytes | None:
        out = folder / "out"
        return out.read_bytes() if out.exists() else None


@dataclass(frozen=True)
class Stepped(Online):
    """One that consumes batches; each gives the same number of numbers."""

    consume: Callable[[Any, Floats], NDArray[Any]] = lambda publisher, chunk: publisher.step(chunk)
    count: Callable[[Any], int] = lambda publisher: int(publisher.n_steps)

    def n_published(self, publisher: Any) -> int:
        return WIDTH * self.count(publisher)

    def rest(self, publisher: Any, stream: Floats) -> Floats:
        done = STEP * self.count(publisher)
        return stream[done : done + STEP] if done + STEP <= stream.size else stream[:0]

    def publish(self, publisher: Any, chunk: Floats) -> Floats:
        published = np.zeros(WIDTH)
        numbers = self.consume(publisher, chunk)
        published[: numbers.size] = numbers
        return published


@dataclass(frozen=True)
class SavedLate(Online):
    """A negative control: state is saved behind the output, and nothing is cut off."""

    def run(self, folder: Path) -> None:
        stream = np.load(folder / "in.npy")
        state = folder / "kept"
        publisher = type(self.make()).load(state) if state.exists() else self.make()
        with (folder / "out").open("ab") as out:
            while (chunk := self.rest(publisher, stream)).size:
                out.write(self.publish(publisher, chunk).tobytes())
                out.flush()
                publisher.save(state)


def make_tops(**options: Any) -> fastdp.ToPS:
    return fastdp.ToPS(epsilon=0.5, bound=200, holdout=HOLDOUT, max_range=4096, key=SECRET, **options)


def make_adaptive() -> Adaptive:
    return Adaptive(epsilon=0.5, bound=200, holdout=HOLDOUT, max_range=4096, key=SECRET)


def make_pak() -> fastdp.PAK:
    return fastdp.PAK(0.5, 1e-6, 200.0, 2**20, holdout=HOLDOUT, key=SECRET)


def make_server() -> fastdp.ToPLServer:
    return fastdp.ToPLServer(epsilon=1.0, bound=200, holdout=2 * STEP, max_range=4096)


def _spatial(kind: Callable[..., Any], **options: Any) -> Callable[[], Any]:
    return lambda: kind(Box([0.0, 0.0], [1.0, 1.0]), 1.0, max_depth=12, key=SECRET, **options)


def _boxes(publisher: Any, chunk: Floats) -> Floats:
    """One batch, of which a fourth goes again; counts of a grid of boxes, and where the synthetic points are."""
    points = np.stack([chunk % 1.0, (chunk / 200.0) % 1.0], axis=1)
    synthetic = publisher.step(points, points[::4])
    corners = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE)), axis=-1).reshape(-1, 2) / SIDE
    counts = publisher.count(corners, corners + 1.0 / SIDE)
    return np.concatenate([counts, synthetic.sum(axis=0), publisher.tree.counts[:100]])


def _counts(publisher: Any, chunk: Floats) -> NDArray[Any]:
    released: NDArray[Any] = publisher.step(chunk.astype(np.int64))
    return released


def _reports(publisher: Any, chunk: Floats) -> Floats:
    """One message of users who all answer alike in every run."""
    mechanism = publisher.announcement.mechanism
    estimates: Floats = publisher.receive(encode(mechanism, mechanism.perturb(chunk, seed=1)))
    return estimates


def _messages(publisher: Any) -> int:
    return int(publisher.n_collected + publisher.n_published) // STEP


ONLINE = (
    Online("ToPS with keep(), optimal prune", make_tops),
    Online("ToPS with keep(), prune=0", lambda: make_tops(prune=0)),
    Online("Adaptive with keep()", make_adaptive),
    Online("PAK with keep()", make_pak, HOLDOUT - 1),
    Stepped("PHDStream with keep()", _spatial(fastdp.PHDStream), consume=_boxes),
    Stepped("AdaptivePHDStream with keep()", _spatial(fastdp.AdaptivePHDStream), consume=_boxes),
    Stepped("RunningCounts with keep()", lambda: RunningCounts(BinaryTree(), 0.5, STEP, key=SECRET), consume=_counts),
    Stepped("ToPLServer with keep()", make_server, consume=_reports, count=_messages),
)
