"""Who is killed: releases by the command line, and publishers that keep their state."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import fastdp
from fastdp.cli import main
from fastdp.counters import BinaryTree, RunningCounts
from fastdp.errors import StateError
from fastdp.kinds import Floats
from fastdp.ledger import Ledger
from fastdp.local import encode
from fastdp.points import Box
from fastdp.streams.methods import Adaptive

HOLDOUT = 1000
ARGUMENTS = ["--epsilon", "0.5", "--bound", "200", "--holdout", str(HOLDOUT), "--max-range", "4096", "--quiet"]
#: A budget that is charged once, however often a release begins.
LEDGER = ("--ledger", "budget", "--stream", "meter")
#: Files of a folder.
FILES = 12


class Subject(Protocol):
    """Something that publishes, and can be started again in the same folder."""

    name: str
    #: Whether output appears bit by bit; otherwise all at once.
    streams: bool

    def prepare(self, folder: Path, n: int) -> None:
        """Write the input."""

    def run(self, folder: Path) -> None:
        """Publish everything, from wherever an earlier run was stopped."""

    def published(self, folder: Path) -> bytes | None:
        """Published values so far."""


@dataclass(frozen=True)
class Release:
    """``fastdp release IN -o OUT``, whose output appears at the end; or ``-o - > out.csv``: bytes leave as they come,
    and each run starts from the beginning.
    """

    suffix: str
    options: tuple[str, ...] = ("--key-file", "key")
    streams: bool = False

    @property
    def name(self) -> str:
        out = "-" if self.streams else f"out{self.suffix}"
        return f"release in{self.suffix} -o {out} {' '.join(self.options)}{' > out.csv' * self.streams}".strip()

    @property
    def _out(self) -> str:
        return "out.csv" if self.streams else f"out{self.suffix}"

    def prepare(self, folder: Path, n: int) -> None:
        write_input(folder / f"in{self.suffix}", values(n))
        write_secrets(folder, self.options)

    def run(self, folder: Path) -> None:
        os.chdir(folder)
        if self.streams:
            with Path(self._out).open("wb") as out:
                os.dup2(out.fileno(), 1)
                sys.stdout = os.fdopen(1, "w", closefd=False)
                release(f"in{self.suffix}", "-o", "-", *self.options)
                sys.stdout.flush()
        # An output that is complete stays; the command says so and changes nothing.
        elif not Path(self._out).exists():
            release(f"in{self.suffix}", "-o", self._out, *self.options)

    def published(self, folder: Path) -> bytes | None:
        return (folder / self._out).read_bytes() if (folder / self._out).exists() else None


@dataclass(frozen=True)
class PointsRelease:
    """``fastdp synthesize IN -o FILE``."""

    method: str
    options: tuple[str, ...]
    streams = False

    @property
    def name(self) -> str:
        return f"synthesize in.csv -o out.csv --method {self.method} {' '.join(self.options)}"

    def prepare(self, folder: Path, n: int) -> None:
        stream = values(n // 4)
        # A fourth of the points goes again, later.
        gone = np.arange(stream.size) % 4 == 3
        stream[gone] = stream[np.flatnonzero(gone) - 2]
        rows = zip(
            (stream % 1.0).tolist(), (stream / 200.0 % 1.0).tolist(), np.where(gone, -1, 1).tolist(), strict=True
        )
        (folder / "in.csv").write_text("x,y,event\n" + "".join(f"{x!r},{y!r},{event}\n" for x, y, event in rows))
        write_secrets(folder, self.options)

    def run(self, folder: Path) -> None:
        os.chdir(folder)
        size = len(Path("in.csv").read_text().splitlines()) - 1
        arguments = ["--epsilon", "1", "--box", "0", "0", "1", "1", "--batch", f"{-(-size // FILES)}", "--quiet"]
        told = ["synthesize", "in.csv", "-o", "out.csv", "--method", self.method, *arguments, *self.options]
        main(told, standalone_mode=False)

    def published(self, folder: Path) -> bytes | None:
        return (folder / "out.csv").read_bytes() if (folder / "out.csv").exists() else None


def release(*arguments: str) -> None:
    main(["release", *arguments, *ARGUMENTS], standalone_mode=False)


def write_key(path: Path) -> None:
    path.touch(mode=0o600)
    path.write_bytes(SECRET)


def write_secrets(folder: Path, options: tuple[str, ...]) -> None:
    """The key, and an empty ledger for a command that has use for it."""
    write_key(folder / "key")
    if "--ledger" in options:
        Ledger(folder / "budget").set_limit(epsilon=1.0)


def write_input(path: Path, stream: NDArray[np.float64]) -> None:
    if path.suffix == ".npy":
        np.save(path, stream)
    elif path.suffix == ".csv":
        path.write_text("items\n" + "".join(f"{value!r}\n" for value in stream.tolist()))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"items": stream}), path, row_group_size=8192)


SECRET = bytes(range(32))
CHUNK = 2048
#: Values that a step consumes, and numbers that it gives; the hold-out ends with a step.
STEP, WIDTH = 500, 500
#: What is asked of a released tree: cells of a grid of so many a side.
SIDE = 10


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
        """The next values; empty at the end."""
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
        publisher = type(self.make()).from_bytes(state.read_bytes()) if state.exists() else self.make()
        with (folder / "out").open("ab") as out:
            while (chunk := self.rest(publisher, stream)).size:
                out.write(self.publish(publisher, chunk).tobytes())
                out.flush()
                # At once, so that a kill finds this state or the one before.
                (new := folder / "new").write_bytes(publisher.to_bytes())
                new.replace(state)


def make_tops(**options: Any) -> fastdp.ToPS:
    return fastdp.ToPS(epsilon=0.5, bound=200, holdout=HOLDOUT, max_range=4096, key=SECRET, **options)


def _spatial(kind: Callable[..., Any]) -> Callable[[], Any]:
    return lambda: kind(Box([0.0, 0.0], [1.0, 1.0]), 1.0, max_depth=12, key=SECRET)


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
    Online("ToPS with keep(), prune chosen", make_tops),
    Online("ToPS with keep(), prune=0", lambda: make_tops(prune=0)),
    Online("Adaptive with keep()", lambda: Adaptive(0.5, 200, HOLDOUT, 4096, key=SECRET)),
    Online("PAK with keep()", lambda: fastdp.PAK(0.5, 1e-6, 200.0, 2**20, holdout=HOLDOUT, key=SECRET), HOLDOUT - 1),
    Stepped("PHDStream with keep()", _spatial(fastdp.PHDStream), consume=_boxes),
    Stepped("AdaptivePHDStream with keep()", _spatial(fastdp.AdaptivePHDStream), consume=_boxes),
    Stepped("RunningCounts with keep()", lambda: RunningCounts(BinaryTree(), 0.5, STEP, key=SECRET), consume=_counts),
    Stepped(
        "ToPLServer with keep()",
        lambda: fastdp.ToPLServer(1.0, 200, 2 * STEP, 4096),
        consume=_reports,
        count=_messages,
    ),
)


SUBJECTS: tuple[Subject, ...] = (
    Release(".csv"),
    Release(".npy"),
    Release(".parquet"),
    Release(".npy", ("--state", "state")),
    Release(".csv", ("--state", "state", "--key-file", "key"), streams=True),
    Release(".npy", ("--state", "state"), streams=True),
    Release(".npy", ("--state", "state", *LEDGER), streams=True),
    PointsRelease("phdstream", ("--state", "state")),
    PointsRelease("phdstream", ("--state", "state", *LEDGER)),
    PointsRelease("adaptive", ("--state", "state", "--key-file", "key")),
    *ONLINE,
)


#: These must be caught, or the harness shows nothing.
TWINS: tuple[Subject, ...] = (
    Release(".npy", (), streams=True),
    SavedLate("ToPS, bytes behind the output", make_tops),
)
