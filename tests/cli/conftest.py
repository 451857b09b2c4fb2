from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fastdp
from fastdp.cli import main

OPTIONS = {"epsilon": 0.5, "bound": 200.0, "holdout": 1000, "max_range": 4096, "seed": 5}

BOX = ["--box", "0", "0", "10", "5"]

ARGUMENTS = ["--epsilon", "0.5", "--bound", "200", "--holdout", "1000", "--max-range", "4096"]


@pytest.fixture(scope="session")
def values() -> np.ndarray:
    """4,321 numbers of items, some above any sensible threshold."""
    return np.random.default_rng(1).gamma(2.0, 12.0, 4321).round(2)


@pytest.fixture(scope="session")
def publish() -> Callable[..., np.ndarray]:
    """The library's own output for the options that ``run`` passes."""

    def publish(stream: np.ndarray, method: str = "adaptive", **options: Any) -> np.ndarray:
        if "season" in options:
            options["perturber"] = fastdp.perturbers.Blocks(season=options.pop("season"))
        kind = {"adaptive": fastdp.Adaptive, "tops": fastdp.ToPS}[method]
        return kind(**{**OPTIONS, **options}).publish(stream)

    return publish


@pytest.fixture(scope="session")
def expected(values: np.ndarray, publish: Callable[..., np.ndarray]) -> np.ndarray:
    return publish(values)


@pytest.fixture
def run() -> Callable[..., Result]:
    """``fastdp release`` with small options and a seed; text given as ``stdin`` is standard input."""

    def run(*arguments: object, seed: int | None = 5, stdin: str | bytes | None = None) -> Result:
        seeded = [] if seed is None else ["--seed", str(seed)]
        # PAK has no longest range.
        usual = [each for each in ARGUMENTS if "pak" not in arguments or each not in ARGUMENTS[-2:]]
        return CliRunner().invoke(main, ["release", *usual, *seeded, *map(str, arguments)], input=stdin)

    return run


def _lines(stream: np.ndarray) -> str:
    return "".join(f"{value!r}\n" for value in stream.tolist())


@pytest.fixture(scope="session")
def lines() -> Callable[[np.ndarray], str]:
    return _lines


@pytest.fixture
def write_input(tmp_path: Path) -> Callable[..., Path]:
    """A file of the stream by suffix."""

    def write(suffix: str, stream: np.ndarray, name: str = "in") -> Path:
        path = tmp_path / (name + suffix)
        if suffix in (".csv", ".txt"):
            path.write_text("items\n" + _lines(stream))
        elif suffix.endswith(".gz"):
            path.write_bytes(gzip.compress(("items\n" + _lines(stream)).encode()))
        elif suffix == ".npy":
            np.save(path, stream)
        elif suffix == ".npz":
            np.savez_compressed(path, items=stream)
        elif suffix == ".parquet":
            arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            parquet.write_table(arrow.table({"items": stream}), path, row_group_size=1500)
        else:
            raise AssertionError(suffix)
        return path

    return write


@pytest.fixture
def read_output() -> Callable[[Path], np.ndarray]:
    def read(path: Path) -> np.ndarray:
        name = path.name
        if name.endswith((".csv", ".csv.gz")):
            raw = path.read_bytes()
            heading, *rest = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode().splitlines()
            assert heading == "value"
            return np.array([float(line) for line in rest])
        if name.endswith(".npy"):
            return np.load(path)
        if name.endswith(".npz"):
            with np.load(path) as archive:
                # "fastdp" is the metadata, where a command wrote the file.
                assert archive.files in (["values"], ["values", "fastdp"])
                return archive["values"]
        table = pytest.importorskip("pyarrow.parquet").read_table(path)
        assert table.column_names == ["value"]
        return table.column("value").to_numpy()

    return read


@pytest.fixture
def complaint() -> Callable[[Result], str]:
    """The one line that a failed command says; anything else fails the test."""

    def complaint(result: Result, code: int = 1) -> str:
        assert result.exit_code == code, (result.output, result.exception)
        assert isinstance(result.exception, SystemExit)
        assert result.stdout == ""
        said = result.stderr.strip()
        assert "Traceback" not in said
        assert said.startswith("Error: ")
        assert "\n" not in said
        return said.removeprefix("Error: ")

    return complaint


@pytest.fixture(scope="session")
def events() -> np.ndarray:
    """Columns time, lon, lat, event: points of one corner come, and from row 700 on the first ones go."""
    generator = np.random.default_rng(2)
    table = np.column_stack([
        np.sort(generator.integers(0, 10_000, N_EVENTS)), generator.exponential(1.0, N_EVENTS).clip(0, 10),
        generator.exponential(0.5, N_EVENTS).clip(0, 5), np.ones(N_EVENTS),
    ])  # fmt: skip
    table[700::3, 1:3] = table[: len(table[700::3]), 1:3]
    table[700::3, 3] = -1
    return table


@pytest.fixture
def write_events(tmp_path: Path, events: np.ndarray) -> Callable[..., Path]:
    def write(suffix: str = ".csv", names: str = "time,lon,lat,event", table: np.ndarray = events) -> Path:
        path = tmp_path / f"in{suffix}"
        text = "\n".join([names, *(",".join(map(repr, row)) for row in table.tolist()), ""])
        if suffix == ".parquet":
            arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
            parquet.write_table(arrow.table(list(table.T), names=names.split(",")), path)
        else:
            path.write_bytes(gzip.compress(text.encode()) if suffix.endswith(".gz") else text.encode())
        return path

    return write


@pytest.fixture
def synthesize(tmp_path: Path) -> Callable[..., Result]:
    def synthesize(source: object, *arguments: object, batch: int | None = 300, folder: str = "out") -> Result:
        cut = [] if batch is None else ["--batch", batch]
        given = [source, "-o", tmp_path / folder, "--epsilon", 2, *BOX, *cut, *arguments]
        if not {"--key-file", "--state"} & {*arguments}:
            given += ["--seed", 4]
        return CliRunner().invoke(main, ["synthesize", *map(str, given)])

    return synthesize


#: Events of the stream of points.
N_EVENTS = 1_234
