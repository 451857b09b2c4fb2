from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from fastdp import Guarantee
from fastdp.ledger import Entry, Ledger
from fastdp.ledger.odometer import Odometer


def entry(
    loss: float | Guarantee, part: str | None = None, start: int | None = None, stop: int | None = None, **said
) -> Entry:
    """A release of stream s."""
    state = said.pop("state", "spent")
    guarantee = loss if isinstance(loss, Guarantee) else Guarantee(loss, **said)
    return Entry(1, "", "s", guarantee, part, start, stop, None, "", state)


def odometer_of(entries: Iterable[Entry]) -> Odometer:
    made = Odometer()
    for each in entries:
        made.add(each)
    return made


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
