from __future__ import annotations

import copy
import hashlib
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastdp.errors import FastDPError
from fastdp_lab import sweeps
from fastdp_lab.sweeps.runner import check_data

pytest.importorskip("pyarrow", reason="sweeps write Parquet")

HERE = Path(__file__).parent

SMALL, PLACES = (tomllib.loads((HERE / f"{name}.toml").read_text()) for name in ("small", "places"))


@pytest.fixture
def small() -> dict[str, Any]:
    """Tables of a sweep of 120 cells, all systems."""
    return copy.deepcopy(SMALL)


@pytest.fixture
def places() -> dict[str, Any]:
    """Tables of a sweep of 72 cells of points, all systems."""
    return copy.deepcopy(PLACES)


@pytest.fixture
def digest() -> Callable[[Path], str]:
    return digest_of


def complaint(tables: dict[str, Any], folder: Path = Path()) -> str:
    """The error of these tables."""
    with pytest.raises(FastDPError) as found:
        check_data(sweeps.from_table(tables), folder)
    return str(found.value)


def many_small(folder: Path, repetitions: int, cells: int) -> Path:
    """The small sweep as a file, with more repetitions, in parts of so many cells."""
    text = (HERE / "small.toml").read_text()
    for name, number in (("repetitions", repetitions), ("part_cells", cells)):
        text = text.replace(f"{name} = {SMALL[name]}", f"{name} = {number}")
    (folder / "spec.toml").write_text(text)
    return folder / "spec.toml"


def digest_of(folder: Path) -> str:
    return hashlib.sha256((folder / "results.parquet").read_bytes()).hexdigest()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small sweep by one worker without interruption, to be read alone."""
    return sweeps.run(sweeps.from_table(copy.deepcopy(SMALL)), tmp_path_factory.mktemp("whole") / "out")


@pytest.fixture(scope="session")
def undisturbed(whole: Path) -> str:
    """Digest of its table."""
    return digest_of(whole)
