"""Who is killed: releases by the command line, and publishers that keep their state."""

from __future__ import annotations

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
from fastdp.errors import StateError

SECRET = bytes(range(32))
HOLDOUT = 1000
ARGUMENTS = ["--epsilon", "0.5", "--bound", "200", "--holdout", str(HOLDOUT), "--max-range", "4096", "--quiet"]
CHUNK = 2048


def values(n: int) -> NDArray[np.float64]:
    return np.random.default_rng(1).gamma(2.0, 12.0, n).round(2)


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
        """What the world can see by now."""


@dataclass(frozen=True)
class FileRelease:
    """``fastdp release IN -o OUT``: the output appears at the end."""

    suffix: str
    options: tuple[str, ...] = ("--key-file", "key")
    streams = False

    @property
    def name(self) -> str:
        return f"release in{self.suffix} -o out{self.suffix} {' '.join(self.options)}".strip()

    def prepare(self, folder: Path, n: int) -> None:
        write_input(folder / f"in{self.suffix}", values(n))
        write_key(folder / "key")

    def run(self, folder: Path) -> None:
        os.chdir(folder)
        # An output that is complete stays; the command says so and changes nothing.
        if not Path(f"out{self.suffix}").exists():
            release(f"in{self.suffix}", "-o", f"out{self.suffix}", *self.options)

    def published(self, folder: Path) -> bytes | None:
        out = folder / f"out{self.suffix}"
        return out.read_bytes() if out.exists() else None


@dataclass(frozen=True)
class StreamedRelease:
    """``fastdp release IN -o - > out.csv``: bytes leave as they come, and each run begins anew."""

    suffix: str
    options: tuple[str, ...]
    streams = True

    @property
    def name(self) -> str:
        return f"release in{self.suffix} -o - {' '.join(self.options)} > out.csv"

    def prepare(self, folder: Path, n: int) -> None:
        write_input(folder / f"in{self.suffix}", values(n))
        write_key(folder / "key")

    def run(self, folder: Path) -> None:
        os.chdir(folder)
        with Path("out.csv").open("wb") as out:
            os.dup2(out.fileno(), 1)
            sys.stdout = os.fdopen(1, "w", closefd=False)
            release(f"in{self.suffix}", "-o", "-", *self.options)
            sys.stdout.flush()

    def published(self, folder: Path) -> bytes | None:
        out = folder / "out.csv"
        return out.read_bytes() if out.exists() else None


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
            out.truncate(8 * max(0, publisher.n_seen - self.silent))
            while publisher.n_seen < stream.size:
                out.write(publisher.publish(stream[publisher.n_seen : publisher.n_seen + CHUNK]).tobytes())
                out.flush()
                # On disk before the next chunk is recorded: then the state is never two chunks ahead of the file.
                os.fsync(out.fileno())

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
class SavedLate(Online):
    """A broken twin: state is saved behind the output, and nothing is cut off."""

    def run(self, folder: Path) -> None:
        stream = np.load(folder / "in.npy")
        state = folder / "kept"
        publisher = type(self.make()).load(state) if state.exists() else self.make()
        with (folder / "out").open("ab") as out:
            while publisher.n_seen < stream.size:
                out.write(publisher.publish(stream[publisher.n_seen : publisher.n_seen + CHUNK]).tobytes())
                out.flush()
                publisher.save(state)


def make_tops(**options: Any) -> fastdp.ToPS:
    return fastdp.ToPS(epsilon=0.5, bound=200, holdout=HOLDOUT, max_range=4096, key=SECRET, **options)


def make_pak() -> fastdp.PAK:
    return fastdp.PAK(0.5, 1e-6, 200.0, 2**20, holdout=HOLDOUT, key=SECRET)


def release(*arguments: str) -> None:
    main(["release", *arguments, *ARGUMENTS, "--chunk-size", str(CHUNK)], standalone_mode=False)


def write_key(path: Path) -> None:
    path.touch(mode=0o600)
    path.write_bytes(SECRET)


def write_input(path: Path, stream: NDArray[np.float64]) -> None:
    if path.suffix == ".npy":
        np.save(path, stream)
    elif path.suffix == ".csv":
        path.write_text("items\n" + "".join(f"{value!r}\n" for value in stream.tolist()))
    else:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"items": stream}), path, row_group_size=8192)


SUBJECTS: tuple[Subject, ...] = (
    FileRelease(".csv"),
    FileRelease(".npy"),
    FileRelease(".parquet"),
    FileRelease(".npy", ("--state", "state")),
    StreamedRelease(".csv", ("--state", "state", "--key-file", "key")),
    StreamedRelease(".npy", ("--state", "state")),
    Online("ToPS with keep(), optimal prune", make_tops),
    Online("ToPS with keep(), prune=0", lambda: make_tops(prune=0)),
    Online("PAK with keep()", make_pak, HOLDOUT - 1),
)
#: These must be caught, or the harness shows nothing.
TWINS: tuple[Subject, ...] = (
    StreamedRelease(".npy", ()),
    SavedLate("ToPS, save() behind the output", make_tops),
)
