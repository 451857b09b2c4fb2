"""Publishers made, types of input, state files, the ledger and a CSV file; beside the disk, SQLite and parsers."""

import os
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.shared import item_counts
from benchmarks.speed.inputs import GUARANTEE, fill
from benchmarks.speed.measure import Group, Task
from fastdp.errors import AccuracyWarning
from fastdp.ledger import Ledger

RUNS = 50
LINES, CHUNK, HOLDOUT = 10**7, 100, 1000
ENTRIES = (100, 10_000, 100_000)
#: About as many bytes as a line of the ledger, or a record of a publisher past its hold-out.
BYTES = 400
KEY, PASSPHRASE = bytes(32), "correct horse battery staple"


def made() -> Group:
    """A publisher with its parameters checked, before the first value."""
    tasks: dict[str, Task] = {
        "ToPS": lambda: fastdp.ToPS(shared.EPSILON, shared.BOUND, seed=1),
        "Adaptive": lambda: fastdp.Adaptive(shared.EPSILON, shared.BOUND, seed=1),
    }
    return Group("a publisher made", tasks, times=20)


def inputs() -> Group:
    """A whole release of the same values as doubles and as integers."""
    values = item_counts(shared.HOLDOUT + shared.PUBLISHED)
    integers = values.astype(np.int64)
    tasks: dict[str, Task] = {
        "float64": lambda: fastdp.ToPS(shared.EPSILON, shared.BOUND).release(values),
        "int64": lambda: fastdp.ToPS(shared.EPSILON, shared.BOUND).release(integers),
    }
    return Group("whole ToPS release by input", tasks, limit="float64")


def publisher() -> Any:
    """One past its hold-out, and with its first blocks."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        found = fastdp.Adaptive(shared.EPSILON, shared.BOUND, holdout=HOLDOUT, seed=1)
        found.publish(item_counts(2 * HOLDOUT))
    return found


def kept(folder: Path) -> Group:
    chunk, payload = item_counts(CHUNK), os.urandom(BYTES)
    plain, sealed = publisher(), publisher()
    plain.keep(folder / "plain")
    sealed.keep(folder / "sealed", key=KEY)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)

    def append() -> None:
        os.write(log, payload)
        os.fsync(log)

    def replace() -> None:
        with (folder / "new").open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        (folder / "new").replace(folder / "old")

    tasks: dict[str, Task] = {
        "append and fsync": append,
        "new file, fsync and rename": replace,
        "a chunk, no key": lambda: plain.publish(chunk),
        "a chunk, with a key": lambda: sealed.publish(chunk),
    }
    return Group("kept publisher, 100 values a chunk", tasks, limit="append and fsync")


def saved(_: Path) -> Group:
    """Whole states as bytes, and read again."""
    one = publisher()
    tasks: dict[str, Task] = {}
    for name, key in (("with a key", KEY), ("with a passphrase, after the first", PASSPHRASE)):
        tasks[f"bytes {name}"] = partial(one.to_bytes, key=key)
        tasks[f"read {name}"] = partial(fastdp.Adaptive.from_bytes, one.to_bytes(key=key), key=key)

    def fresh() -> None:
        one.to_bytes(key=f"{PASSPHRASE} {np.random.default_rng().integers(2**62)}")

    return Group("states as bytes", tasks, slow={"bytes under a passphrase for the first time": fresh})


def ledger(folder: Path) -> Group:
    """A release recorded, synced; beside one row of as many bytes in SQLite, with the same promises."""
    bare = sqlite3.connect(folder / "bare", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL"):
        bare.execute(f"PRAGMA {pragma}")
    bare.execute("CREATE TABLE line (id INTEGER PRIMARY KEY, body TEXT)")
    text = "x" * BYTES

    def commit() -> None:
        bare.execute("BEGIN IMMEDIATE")
        bare.execute("INSERT INTO line (body) VALUES (?)", (text,))
        bare.execute("COMMIT")

    tasks: dict[str, Task] = {"bare SQLite": commit}
    for entries in ENTRIES:
        book = Ledger(folder / f"budget{entries}")
        fill(book, 0, entries)
        tasks[f"a release after {entries:,} entries"] = partial(book.spend, GUARANTEE, stream="meter")
    return Group("ledger", tasks, limit="bare SQLite")


def csv(folder: Path) -> Group:
    """A column of numbers with a heading, to .npy, by the command line in a fresh process; parsers beside it."""
    source, target = folder / "values.csv", folder / "private.npy"
    with source.open("w") as file:
        lines = "\n".join(map(str, item_counts(LINES // 100).astype(np.int64).tolist()))
        file.write("value\n")
        for _ in range(100):
            file.write(f"{lines}\n")

    def release() -> None:
        command = ["release", source, "-o", target, "--force", "--epsilon", shared.EPSILON, "--bound", shared.BOUND]
        run = [sys.executable, "-m", "fastdp", *map(str, command)]
        subprocess.run(run, check=True, capture_output=True)

    def by_pyarrow() -> None:
        from pyarrow.csv import read_csv

        read_csv(source)

    def by_polars() -> None:
        import polars as pl

        pl.read_csv(source)

    release()
    slow: dict[str, Task] = {"fastdp release": release, "pyarrow reads it": by_pyarrow, "polars reads it": by_polars}
    return Group("CSV of 10^7 lines to .npy", {}, slow=slow, limit="pyarrow reads it")


def groups(data: Path) -> Iterator[Callable[[], Group]]:
    del data
    yield made
    yield inputs
    for make in (kept, saved, ledger, csv):
        with tempfile.TemporaryDirectory() as folder:
            yield partial(make, Path(folder))
