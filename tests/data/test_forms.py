"""One table of forms in which people have their rows, by the doors that take them: equal answers, or one refusal."""

from __future__ import annotations

import bz2
import gzip
import io
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import fastdp
from fastdp import Csv
from fastdp.cli import main
from fastdp.data.files import read_numbers
from fastdp.errors import DataError, FastDPError
from fastdp.record import values_of
from tests.shared import piped

START = datetime(2024, 3, 1)
TIMES = [START + timedelta(hours=i) for i in range(48)]
KEYS = ["nord", "s\u00fcd", "nord", "n\u00f6rd"] * 12
VALUES = [0.5 * (i % 9) for i in range(48)]
TABLE = pa.table({"t": TIMES, "k": KEYS, "v": VALUES})
LISTED = ["nord", "s\u00fcd", "n\u00f6rd"]


class Form(NamedTuple):
    """Rows as someone has them, which ``build(folder)`` writes, and the options of their Time."""

    #: Gives a path, a Csv or a frame.
    build: Callable[[Path], Any]
    of_time: dict[str, Any]
    #: Options with which pandas reads the text.
    by_pandas: dict[str, Any] | None = None


def text(
    name: str = "rows.csv",
    separator: str = ",",
    time: Callable[[datetime], object] = datetime.isoformat,
    number: Callable[[float], str] = str,
    encoding: str = "utf-8",
    end: str = "\n",
    quote: str = "",
    lines: Callable[[list[str]], list[str]] = lambda lines: lines,
    options: dict[str, Any] | None = None,
    **of_time: Any,
) -> Form:
    """Rows as text, which is written as these arguments say and read with ``options``."""

    def write(folder: Path) -> Any:
        rows = [(time(t), k, number(v)) for t, k, v in zip(TIMES, KEYS, VALUES, strict=True)]
        said = [separator.join(f"{quote}{cell}{quote}" for cell in row) for row in [("t", "k", "v"), *rows]]
        content = (end.join(lines(said)) + end).encode(encoding)
        packed = {".gz": gzip.compress, ".bz2": bz2.compress}.get(Path(name).suffix, bytes)
        (folder / name).write_bytes(packed(content))
        return folder / name if options is None else Csv(folder / name, **options)

    read = {"sep": separator, "encoding": encoding, **(options or {})}
    return Form(write, of_time, {name: each for name, each in read.items() if name not in ("separator", "types")})


def arrow(name: str, table: Any = TABLE, **options: Any) -> Form:
    """Rows in a file of Parquet or Arrow."""

    def write(folder: Path) -> Path:
        path = folder / name
        if name.endswith(".parquet"):
            pq.write_table(table, path, **options)
        elif name.endswith(".feather"):
            pa.feather.write_feather(table, path, **options)
        else:
            kind = pa.ipc.new_file if name == "rows.arrow" else pa.ipc.new_stream
            with kind(path, table.schema) as into:
                into.write_table(table)
        return path

    return Form(write, {})


def folder(folder: Path) -> Path:
    (folder / "rows").mkdir()
    for i in range(3):
        pq.write_table(TABLE.slice(16 * i, 16), folder / "rows" / f"{i}.parquet")
    return folder / "rows"


def frame(build: Callable[[], Any], **of_time: Any) -> Form:
    return Form(lambda folder: build(), of_time)


def pandas(**changed: Any) -> Form:
    return frame(lambda: TABLE.to_pandas().assign(**{name: build() for name, build in changed.items()}))


def objects(entries: list[Any]) -> Callable[[], pd.Series]:
    return lambda: pd.Series(entries, dtype=object)


def changed(name: str, column: Any) -> pa.Table:
    return TABLE.set_column(TABLE.schema.get_field_index(name), name, column)


UTC_ZONE = {"zone": "UTC"}
INT = pa.array([int(2 * v) for v in VALUES])
DECIMALS = [Decimal(str(v)) for v in VALUES]
AMERICAN = "%m/%d/%Y %H:%M:%S"
#: Forms with one answer.
READ: dict[str, Form] = {
    "UTF-8": text(),
    "UTF-8 with a mark": text(encoding="utf-8-sig"),
    "UTF-16": text(encoding="utf-16"),
    "UTF-16 without a mark": text(encoding="utf-16-le", options={"encoding": "utf-16-le"}),
    "Latin-1": text(encoding="latin-1", options={"encoding": "latin-1"}),
    "cp1252": text(encoding="cp1252", options={"encoding": "cp1252"}),
    "semicolons": text(separator=";"),
    "tabs": text(separator="\t"),
    ".tsv": text("rows.tsv", "\t"),
    ".txt": text("rows.txt"),
    "bars": text(separator="|", options={"separator": "|"}),
    "decimal commas": text(separator=";", number=lambda v: str(v).replace(".", ","), options={"decimal": ","}),
    "comments": text(lines=lambda rows: ["# meter 7", *rows[:20], "# half", *rows[20:]], options={"comment": "#"}),
    "quotes": text(quote='"'),
    "ends of Windows": text(end="\r\n"),
    "blank lines": text(lines=lambda rows: ["", *rows[:9], "", *rows[9:], ""]),
    ".csv.gz": text("rows.csv.gz"),
    ".tsv.bz2": text("rows.tsv.bz2", "\t"),
    "types": text(options={"types": {"v": "float64", "k": "string"}}),
    "times with nine digits": text(time=lambda t: t.isoformat() + ".123456789Z", **UTC_ZONE),
    "times in small letters": text(time=lambda t: t.isoformat().lower() + "z", **UTC_ZONE),
    "times with a comma": text(separator=";", time=lambda t: t.isoformat() + ",5+00:00", **UTC_ZONE),
    "basic times": text(time=lambda t: t.strftime("%Y%m%dT%H%M%SZ"), **UTC_ZONE),
    "times with an offset": text(time=lambda t: (t + timedelta(hours=2)).isoformat() + "+02:00", **UTC_ZONE),
    "American times": text(time=lambda t: t.strftime(AMERICAN), format=AMERICAN),
    "seconds since 1970": text(time=lambda t: int(t.replace(tzinfo=UTC).timestamp()), unit="s"),
    "milliseconds": text(time=lambda t: int(t.replace(tzinfo=UTC).timestamp()) * 1000, unit="ms"),
    "days as numbers": text(time=lambda t: t.strftime("%Y%m%d"), format="%Y%m%d"),
    "blank after the sign": text(number=lambda v: f" {v}"),
    "dates": text(time=lambda t: t.date()),
    "Parquet": arrow("rows.parquet"),
    "Parquet of version 2": arrow(
        "rows.parquet", use_dictionary=False, column_encoding={"k": "DELTA_BYTE_ARRAY", "v": "BYTE_STREAM_SPLIT"}
    ),
    "Parquet of 96 bits": arrow("rows.parquet", use_deprecated_int96_timestamps=True, compression="zstd"),
    "folder of Parquet": Form(folder, {}),
    "Arrow file": arrow("rows.arrow"),
    "Arrow stream": arrow("rows.arrows"),
    "Feather": arrow("rows.feather", compression="zstd"),
    "pyarrow": frame(lambda: TABLE),
    "pandas": pandas(),
    "pandas of Arrow": frame(lambda: TABLE.to_pandas(types_mapper=pd.ArrowDtype)),
    "polars": frame(lambda: pl.from_arrow(TABLE)),
    "polars, lazy": frame(lambda: pl.from_arrow(TABLE).lazy()),
    "reader": frame(lambda: TABLE.to_reader(7)),
    "decimals of a database": pandas(v=objects(DECIMALS)),
    "floats in objects": pandas(v=objects(VALUES)),
    "datetimes in objects": pandas(t=objects(TIMES)),
    "aware datetimes in objects": pandas(t=objects([t.replace(tzinfo=UTC) for t in TIMES])),
    "dates in objects": pandas(t=objects([t.date() for t in TIMES])),
    "decimals of Arrow": frame(lambda: changed("v", pa.array(DECIMALS))),
    "decimals of Arrow in pandas": pandas(v=lambda: pd.Series(DECIMALS, dtype=pd.ArrowDtype(pa.decimal128(4, 1)))),
    "decimals of polars": frame(lambda: pl.from_arrow(TABLE).with_columns(pl.col("v").cast(pl.Decimal(6, 1)))),
    "nullable": pandas(v=lambda: pd.Series(VALUES, dtype="Float64"), k=lambda: pd.Series(KEYS, dtype="string")),
    "half precision": frame(lambda: changed("v", pa.array(np.float16(VALUES)))),
    "categories": pandas(k=lambda: pd.Series(KEYS, dtype="category")),
    "objects of polars": frame(lambda: pl.from_arrow(TABLE).with_columns(v=pl.Series(DECIMALS, dtype=pl.Object))),
}
#: Forms that every door refuses, and a word of the reason.
LONG = "n" * 2**21
REFUSED: dict[str, tuple[Form, str]] = {
    "Latin-1 that is not said": (text(encoding="latin-1"), r"line 3.*not in UTF-8; expected "),
    "UTF-16 that is not said": (text(encoding="utf-16-le"), r"zero bytes"),
    "another encoding": (text(options={"encoding": "ascii"}), "not in ascii"),
    "a ragged row": (text(lines=lambda rows: [*rows, "2024-03-03T00:00:00,nord,1,x"]), "line 50: 4 columns"),
    "a long line": (text(lines=lambda rows: [*rows, LONG]), "line 50: longer than 1,048,576 bytes"),
    "a text for a number": (text(lines=lambda rows: [*rows, "2024-03-03T00:00:00,nord,x"] * 2), "column|line"),
    "another separator": (text(options={"separator": ";"}), "separator is ';'"),
    "a pack that is none": (arrow("rows.csv.gz"), "not a gzip or bzip2 file"),
    "Parquet that is none": (text("rows.parquet"), "damaged, or not of the kind"),
    "an unknown kind": (text("rows.xlsx"), "unknown kind of file; expected"),
    "a file that is not there": (Form(lambda folder: folder / "rows.csv", {}), "no such file"),
    "an unknown type": (text(options={"types": {"v": "number"}}), "types = 'number': expected names of Arrow's"),
}


def by_table(source: Any, of_time: dict[str, Any]) -> list[float]:
    """Totals of each day and key."""
    time = fastdp.Time("t", "1d", **of_time)
    bound = fastdp.Value(clip=8.0)
    table = fastdp.totals(source, "v", time, by="k", keys=LISTED, epsilon=1e7, bound=bound, seed=1)
    return [round(each, 3) for each in table.arrow["estimate"].to_pylist()]


def by_numbers(source: Any) -> np.ndarray:
    """The released values of the column as a stream."""
    if not isinstance(source, (Path, Csv)):
        if hasattr(source, "read_all") or hasattr(source, "collect"):
            source = source.read_all() if hasattr(source, "read_all") else source.collect()
        source = source["v"]
    values = read_numbers(source, "v")
    return fastdp.release(values, epsilon=1.0, bound=8, threshold=4.0, seed=1).values


def by_command(source: Path | Csv, of_time: dict[str, Any], *, stdin: bool = False) -> list[float] | str:
    """Output of ``fastdp totals``: totals of each day and key, or the one line of an error."""
    path = source.path if isinstance(source, Csv) else source
    given = {**(values_of(source) if isinstance(source, Csv) else {}), **{f"time-{k}": v for k, v in of_time.items()}}
    options = ["--clip=8", "--time=t", "--every=1d", "--value=v", "--by=k", "--epsilon=1e7", "--seed=1", "-o", "-"]
    for name, value in {**given, "types": None, "path": None, "header": None}.items():
        options += [] if value is None else [f"--{name.replace('time-zone', 'zone')}={value}"]
    options += [f"--types={column}={kind}" for column, kind in (given.get("types") or {}).items()]
    options += [f"--keys={key}" for key in LISTED]
    told = piped(Path(path).read_bytes()) if stdin else None
    done = CliRunner().invoke(main, ["totals", "-" if stdin else str(path), *options, "--quiet"], input=told)
    if done.exit_code:
        assert isinstance(done.exception, SystemExit), done.exception
        return done.stderr.removeprefix("Error: ").rstrip("\n")
    return [round(each, 3) for each in pa.csv.read_csv(io.BytesIO(done.stdout_bytes))["estimate"].to_pylist()]


@pytest.fixture(scope="module")
def expected() -> tuple[list[float], bytes]:
    """Totals and released values of the rows."""
    return by_table(TABLE, {}), by_numbers(TABLE).tobytes()


@pytest.mark.parametrize("form", READ)
def test_every_door_reads_every_form(form: str, expected: tuple[list[float], bytes], tmp_path: Path) -> None:
    build, of_time, by_pandas = READ[form]
    source, (totals, values) = build(tmp_path), expected
    assert by_table(source, of_time) == totals
    if isinstance(source, (Path, Csv)):
        assert by_command(source, of_time) == totals
        if isinstance(source, Path) and source.suffix in (".csv", ".arrows"):
            assert by_command(source, of_time, stdin=True) == totals
    else:
        # Of what is read once, another.
        source = build(tmp_path)
    assert by_numbers(source).tobytes() == values
    if by_pandas is not None:
        frame = pd.read_csv(next(tmp_path.glob("rows.*")), **by_pandas)
        assert by_table(frame, of_time) == totals
        assert by_numbers(frame).tobytes() == values


@pytest.mark.parametrize("form", REFUSED)
def test_every_door_refuses(form: str, tmp_path: Path) -> None:
    (build, of_time, _), word = REFUSED[form]
    source = build(tmp_path)
    with pytest.raises(FastDPError, match=word) as caught:
        by_table(source, of_time)
    said = by_command(source, of_time)
    assert isinstance(said, str)
    assert re.search(word.replace("types = 'number'", "--types 'number'"), said)
    assert "\n" not in f"{caught.value}{said}"
    # Numbers of a column need no other column, and no types.
    if form not in ("Latin-1 that is not said", "an unknown type"):
        with pytest.raises(FastDPError):
            by_numbers(source)


def test_plain_numbers_are_no_times(tmp_path: Path) -> None:
    from fastdp.data.events import open_events

    source = text(time=lambda t: int(t.timestamp()))[0](tmp_path)
    for refused in (lambda: by_table(source, {}), lambda: open_events(source, "v", "v", "t")):
        with pytest.raises(FastDPError, match=r"time = 't' holds Int64 entries.*Unix times with Time\(unit=\)"):
            refused()
    events = open_events(source, "v", "v", "t", unit="s").read()
    assert events.times is not None
    assert events.times.dtype == np.int64
    assert (np.diff(events.times) == 3_600_000_000).all()


def test_rows_without_a_value_are_left_out_of_everything() -> None:
    frame = pd.DataFrame({"v": np.where(np.arange(2000) % 2, 20.0, np.nan), "k": ["a", "a", "b", "b"] * 500})
    bounds = fastdp.Value(clip=50.0, nonfinite="drop")
    statistics = {"v": ["mean", "sum", "median"], "*": "count"}
    found = fastdp.aggregate(frame, statistics, by="k", keys=["a", "b"], epsilon=1e5, bounds=bounds, seed=1).frame
    assert found["v_mean"].tolist() == pytest.approx([20.0, 20.0], abs=0.01)
    assert found["v_median"].tolist() == pytest.approx([20.0, 20.0], abs=0.2)
    assert found["v_sum"].tolist() == pytest.approx([10_000, 10_000], abs=1)
    assert found["count"].tolist() == pytest.approx([500, 500], abs=0.1)
    windows = fastdp.Windows(
        {"v": "sum", "*": "count"}, fastdp.Time("t", "1h", start="2024-01-01"), epsilon=1e5, bounds=bounds, seed=1
    )
    windows.add(np.full(2000, np.datetime64("2024-01-01")), frame["v"].to_numpy())
    closed = windows.advance("2024-01-01T01:00").frame
    assert closed["count"].to_pylist() == pytest.approx([1000], abs=0.1)
    assert closed["v_sum"].to_pylist() == pytest.approx([20_000], abs=1)
    with pytest.raises(DataError, match="nonfinite='drop'"):
        fastdp.totals(frame, "v", epsilon=1.0, bound=50.0)
