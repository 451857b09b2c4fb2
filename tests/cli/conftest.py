from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fastdp.cli import main
from tests.shared import piped

SECRET = bytes(range(32))


@pytest.fixture(scope="session")
def values() -> np.ndarray:
    """4,321 numbers of items, some above any sensible threshold."""
    return np.random.default_rng(1).gamma(2.0, 12.0, 4321).round(2)


@pytest.fixture(scope="session")
def readings() -> Any:
    """4,000 readings of meters in three cities, some of which are named with a comma."""
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
    rng, rows = np.random.default_rng(3), 4000
    times = np.datetime64("2024-03-30T00:00") + rng.integers(0, 4 * 86_400, rows).astype("timedelta64[s]")
    columns = {"city": rng.choice(["Rome", "Oslo", "Bern, old"], rows), "floor": rng.integers(1, 4, rows)}
    columns |= {"kwh": rng.gamma(2.0, 1.0, rows).round(2), "meter": rng.integers(0, 500, rows)}
    return pa.table({"at": pa.array(times, pa.timestamp("us")), **columns})


@pytest.fixture(scope="session")
def events() -> str:
    """CSV of 600 points that appear, and of which from row 400 on the first ones disappear."""
    rng = np.random.default_rng(2)
    points, kinds = rng.random((600, 2)) * (10.0, 5.0), np.ones(600, int)
    points[400::3], kinds[400::3] = points[: len(points[400::3])], -1
    times = np.datetime64("2024-01-01") + np.arange(600) * np.timedelta64(4, "m")
    rows = zip(times, *points.T.tolist(), kinds, strict=True)
    return "time,lon,lat,event\n" + "".join(f"{time}Z,{x},{y},{kind}\n" for time, x, y, kind in rows)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: np.ndarray, readings: Any, events: str) -> Path:
    """The working folder, with in.npy, in.txt, readings.parquet, events.csv and the key file."""
    monkeypatch.chdir(tmp_path)
    np.save("in.npy", values)
    Path("in.txt").write_text("".join(f"{value!r}\n" for value in values.tolist()))
    pytest.importorskip("pyarrow.parquet").write_table(readings, "readings.parquet")
    Path("events.csv").write_text(events)
    Path("key").touch(mode=0o600)
    Path("key").write_bytes(SECRET)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Callable[..., Result]:
    """A command line, typed in the folder; the process that it would be."""

    def run(line: str, *, stdin: str | bytes | None = None, code: int | None = 0) -> Result:
        result = CliRunner().invoke(main, shlex.split(line), input=piped(stdin))
        assert code in (None, result.exit_code), result.output
        assert result.exit_code == 0 or isinstance(result.exception, SystemExit), result.exception
        return result

    return run


@pytest.fixture
def refused(run: Callable[..., Result]) -> Callable[..., str]:
    """The one line that a failing command says; nothing is on standard output or left on disk."""

    def refused(line: str, *, stdin: str | None = None, code: int = 1) -> str:
        before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
        result = run(line, stdin=stdin, code=code)
        assert result.stdout == ""
        said = result.stderr.strip().splitlines()
        assert said[-1].startswith("Error: ")
        assert len(said) == 1 or code == 2, said
        assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before
        return said[-1].removeprefix("Error: ")

    return refused
