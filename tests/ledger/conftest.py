from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from fastdp import Guarantee
from fastdp.ledger import Entry, Ledger
from fastdp.ledger.odometer import Odometer
from fastdp.ledger.store import SCHEMA


def entry(
    loss: float | Guarantee, part: str | None = None, start: int | None = None, stop: int | None = None, **said
) -> Entry:
    """A release of stream s."""
    state = said.pop("state", "spent")
    guarantee = loss if isinstance(loss, Guarantee) else Guarantee(loss, **said)
    return Entry(1, "", "s", guarantee, part, start, stop, None, "", state)


def odometer_of(entries: Iterable[Entry] = (), db: sqlite3.Connection | None = None) -> Odometer:
    """Sums of these entries, without a file."""
    memory = InMemory() if db is None else db
    memory.executescript(SCHEMA)
    made = Odometer(memory, lambda message: b"")
    for each in entries:
        made.add(each)
    return made


def compose(entries: Iterable[Entry], stream: str = "s") -> Guarantee:
    """Guarantee of these entries together, as of one stream."""
    return odometer_of(dataclasses.replace(each, stream=stream) for each in entries).guarantee(stream)


class InMemory(sqlite3.Connection):
    """Closed with its last reference: Python 3.13 warns of open ones."""

    def __init__(self) -> None:
        super().__init__("", isolation_level=None, check_same_thread=False)

    def __del__(self) -> None:
        self.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget"


@pytest.fixture
def ledger(path: Path) -> Callable[..., Ledger]:
    """Another object for the same file."""
    return lambda **options: Ledger(path, **options)


@pytest.fixture
def lines(path: Path) -> Callable[[], list[tuple[int, str, bytes]]]:
    """Number, text and seal of each line in the file."""

    def lines() -> list[tuple[int, str, bytes]]:
        with contextlib.closing(sqlite3.connect(path)) as db:
            return db.execute("SELECT * FROM line ORDER BY id").fetchall()

    return lines
