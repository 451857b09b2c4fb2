"""Totals of 10^7 rows from Parquet and 10^6 in memory beside the polars group-by; of many text keys beside pandas."""

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
from benchmarks.shared import table
from benchmarks.speed.measure import Group, Task

ROWS, KEYS, WINDOWS = 10**7, 1000, 1000
RUNS = 1
#: Keys and windows of 10^6 rows.
CELLS = [(1000, 60), (60, 1000)]
BEGIN, END = "2024-01-01", "2024-02-11T16:00"
NAMES = [f"household-{i:04d}" for i in range(KEYS)]
TIME = fastdp.Time("at", "1h", start=BEGIN, stop=END)
#: What is public: everything; all but the clip; nothing (windows and keys are taken from the table).
OPTIONS: dict[str, dict[str, Any]] = {
    "clip, keys and windows given": {"keys": NAMES, "clip": 10.0, "time": TIME},
    "clip chosen": {"keys": NAMES, "bound": 100.0, "time": TIME},
    "clip, keys and windows from the rows": {"keys": "public", "bound": 100.0},
}
PLAIN = "polars group-by"
#: Rows, distinct texts and persons of the group "many text keys".
TEXT_ROWS, TEXTS, PERSONS = 2 * 10**6, 358_000, 200_000


def write_rows(path: Path, rows: int = ROWS) -> None:
    """Unsorted rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(0)
    micros = generator.integers(0, WINDOWS * 3_600_000_000, rows).astype("timedelta64[us]")
    keys = pa.DictionaryArray.from_arrays(generator.integers(0, KEYS, rows).astype(np.int32), NAMES)
    columns = {"at": np.datetime64(BEGIN, "us") + micros, "key": keys.cast(pa.string())}
    pq.write_table(pa.table({**columns, "value": generator.exponential(1.0, rows)}), path, row_group_size=2**20)


def plain(path: Path) -> Any:
    """Clipped sums in polars, streamed."""
    import polars as pl

    cell = [pl.col("at").dt.truncate("1h"), pl.col("key")]
    return pl.scan_parquet(path).group_by(cell).agg(pl.col("value").clip(0.0, 10.0).sum()).collect(engine="streaming")


def private(path: Path, name: str) -> Any:
    given = {"time": fastdp.Time("at", "1h"), **OPTIONS[name]}
    return fastdp.totals(path, "value", by="key", epsilon=1.0, seed=1, **given)


def tasks(path: Path) -> dict[str, Task]:
    return {PLAIN: partial(plain, path), **{name: partial(private, path, name) for name in OPTIONS}}


def parquet(folder: Path) -> Group:
    path, small = folder / "rows.parquet", folder / "small.parquet"
    write_rows(path)
    write_rows(small, 1000)
    with warnings.catch_warnings():
        # So few rows are there to compile alone.
        warnings.simplefilter("ignore")
        for task in tasks(small).values():
            task()
    found = tasks(path)
    return Group("totals from Parquet", {}, items=dict.fromkeys(found, ROWS), slow=found, limit=PLAIN)


def memory() -> Group:
    """10^6 rows by 60,000 cells: few windows of many keys, and many of few."""
    import polars as pl

    generator, found, limits = np.random.default_rng(0), {}, {}
    for keys, windows in CELLS:
        micros = generator.integers(0, windows * 3_600_000_000, ROWS // 10).astype("timedelta64[us]")
        names = np.array([f"household-{i:05d}" for i in range(keys)])
        columns = {"at": np.datetime64(BEGIN, "us") + micros, "key": names[generator.integers(0, keys, ROWS // 10)]}
        frame = pl.DataFrame({**columns, "value": generator.exponential(1.0, ROWS // 10)})
        stop = str(np.datetime64(BEGIN, "h") + np.timedelta64(windows, "h")) + ":00"
        given = {"by": "key", "keys": names.tolist(), "clip": 10.0, "epsilon": 1.0, "seed": 1}
        given["time"] = fastdp.Time("at", "1h", start=BEGIN, stop=stop)
        label = f"{keys:,} keys x {windows:,} windows"
        cell = [pl.col("at").dt.truncate("1h"), pl.col("key")]
        limits[f"{PLAIN}, {label}"] = partial(_grouped, frame, cell)
        for kind in (fastdp.totals, fastdp.means):
            found[f"{kind.__name__}, {label}"] = partial(kind, frame, "value", **given)
    both = limits | found
    return Group("tables in memory", {}, items=dict.fromkeys(both, ROWS // 10), slow=both, limit=next(iter(limits)))


def _grouped(frame: Any, cell: list[Any]) -> Any:
    import polars as pl

    return frame.group_by(cell).agg(pl.col("value").clip(0.0, 10.0).sum())


def texts() -> Group:
    """Frames of 358,000 text keys beside the pandas and DuckDB group-bys: whole calls, with their frames."""
    import duckdb
    import pandas as pd

    generator, weights = np.random.default_rng(0), np.arange(1, TEXTS + 1) ** -0.5
    places = generator.choice(TEXTS, TEXT_ROWS - TEXTS, p=weights / weights.sum())
    names = np.array([f"/shop/{i:06x}/page" for i in generator.permutation(TEXTS)])
    columns = {"key": names[generator.permutation(np.append(np.arange(TEXTS), places))]}
    columns |= {"value": generator.exponential(1.0, TEXT_ROWS), "who": generator.integers(0, PERSONS, TEXT_ROWS)}
    frame = pd.DataFrame(columns)
    limit, listed, person = "pandas group-by", {"keys": names.tolist()}, {"unit": fastdp.Person("who", rows=10)}
    found: dict[str, Task] = {
        limit: lambda: frame.groupby("key")["value"].sum(),
        "DuckDB group-by": lambda: duckdb.from_df(frame).aggregate("key, sum(value)").df(),
    }
    for name, given in (
        ("keys given", listed),
        ("private keys", {"delta": 1e-6}),
        ("persons, keys given", listed | person),
        ("persons, private keys", {"delta": 1e-6} | person),
    ):
        found[name] = partial(_framed, frame, "value", by="key", clip=10.0, epsilon=1.0, seed=1, **given)
        # To compile.
        _framed(frame[:1000], "value", by="key", clip=10.0, epsilon=1.0, seed=1, **given)
    return Group("tables of many text keys", {}, items=dict.fromkeys(found, TEXT_ROWS), slow=found, limit=limit)


def _framed(frame: Any, *given: Any, **options: Any) -> Any:
    """The whole call, with its frame; warnings of small samples are not told."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fastdp.totals(frame, *given, **options).frame


def groups(data: Path) -> Iterator[Callable[[], Group]]:
    del data
    yield memory
    yield texts
    with tempfile.TemporaryDirectory() as folder:
        yield partial(parquet, Path(folder))


def more(data: Path) -> None:
    """Peak memory of a fresh process for each task."""
    del data
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write_rows(path)
        for name in tasks(path):
            program = (
                "import re, sys; from pathlib import Path; from benchmarks.speed import tables; "
                "tables.tasks(Path(sys.argv[1]))[sys.argv[2]](); "
                "print(re.search(r'VmHWM:\\s*(\\d+)', Path('/proc/self/status').read_text())[1])"
            )
            run = subprocess.run([sys.executable, "-c", program, path, name], capture_output=True, check=True)
            rows.append([name, f"{int(run.stdout) / 1024:.0f} MiB"])
    table("peak memory of a process", ["task", "peak"], rows)
