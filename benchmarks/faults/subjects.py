"""Who is killed: releases by the command line, and publishers that keep their state."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.faults.online import CHUNK, HOLDOUT, ONLINE, SECRET, SavedLate, make_tops, values
from fastdp.cli import main
from fastdp.ledger import Ledger

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
        """What is published so far."""


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
    """``fastdp release IN -o - > out.csv``: bytes leave as they come, and each run starts from the beginning."""

    suffix: str
    options: tuple[str, ...]
    streams = True

    @property
    def name(self) -> str:
        return f"release in{self.suffix} -o - {' '.join(self.options)} > out.csv"

    def prepare(self, folder: Path, n: int) -> None:
        write_input(folder / f"in{self.suffix}", values(n))
        write_key(folder / "key")
        write_ledger(folder / "budget", self.options)

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
class FolderRelease:
    """``fastdp synthesize IN -o FOLDER``: one file after the other, each complete when it appears."""

    method: str
    options: tuple[str, ...]
    streams = True

    @property
    def name(self) -> str:
        return f"synthesize in.csv -o out --method {self.method} {' '.join(self.options)}"

    def prepare(self, folder: Path, n: int) -> None:
        stream = values(n // 4)
        # A fourth of the points goes again, later.
        gone = np.arange(stream.size) % 4 == 3
        stream[gone] = stream[np.flatnonzero(gone) - 2]
        rows = zip(
            (stream % 1.0).tolist(), (stream / 200.0 % 1.0).tolist(), np.where(gone, -1, 1).tolist(), strict=True
        )
        (folder / "in.csv").write_text("x,y,event\n" + "".join(f"{x!r},{y!r},{event}\n" for x, y, event in rows))
        write_key(folder / "key")
        write_ledger(folder / "budget", self.options)

    def run(self, folder: Path) -> None:
        os.chdir(folder)
        size = len(Path("in.csv").read_text().splitlines()) - 1
        arguments = ["--epsilon", "1", "--box", "0", "0", "1", "1", "--batch", f"{-(-size // FILES)}", "--quiet"]
        told = ["synthesize", "in.csv", "-o", "out", "--method", self.method, *arguments, *self.options]
        main(told, standalone_mode=False)

    def published(self, folder: Path) -> bytes | None:
        files = sorted((folder / "out").glob("batch_*"))
        return b"".join(file.name.encode() + file.read_bytes() for file in files) or None


def release(*arguments: str) -> None:
    main(["release", *arguments, *ARGUMENTS, "--chunk-size", str(CHUNK)], standalone_mode=False)


def write_key(path: Path) -> None:
    path.touch(mode=0o600)
    path.write_bytes(SECRET)


def write_ledger(path: Path, options: tuple[str, ...]) -> None:
    """An empty one, for a command that has use for it."""
    if "--ledger" in options:
        Ledger(path).set_limit(epsilon=1.0)


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
    StreamedRelease(".npy", ("--state", "state", *LEDGER)),
    FolderRelease("phdstream", ("--state", "state")),
    FolderRelease("phdstream", ("--state", "state", *LEDGER)),
    FolderRelease("adaptive", ("--state", "state", "--key-file", "key")),
    *ONLINE,
)
#: These must be caught, or the harness shows nothing.
TWINS: tuple[Subject, ...] = (
    StreamedRelease(".npy", ()),
    FolderRelease("phdstream", ("--force",)),
    SavedLate("ToPS, save() behind the output", make_tops),
)
