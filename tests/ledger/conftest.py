from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from fastdp.ledger import Ledger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "budget"


@pytest.fixture
def ledger(path: Path) -> Callable[..., Ledger]:
    """Another object for the same file."""

    def ledger(**options) -> Ledger:
        return Ledger(path, **options)

    return ledger


@pytest.fixture
def lines(path: Path) -> Callable[[], list[tuple[int, str, bytes]]]:
    """Number, text and seal of each line in the file."""

    def lines() -> list[tuple[int, str, bytes]]:
        with contextlib.closing(sqlite3.connect(path)) as db:
            return db.execute("SELECT * FROM line ORDER BY id").fetchall()

    return lines
