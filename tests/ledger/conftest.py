from __future__ import annotations

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
