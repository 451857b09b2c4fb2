"""A table is the same rows whatever library or file holds it, and whichever of its columns are used."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import chain, combinations
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest

import fastdp
from tests.tables.rows import FAMILIES, as_family, random_rows

SIZE, EXACT = 400, 2.0**20
OWN = {"feather", "record batch", "xarray"}
#: Each use of a column, as the arguments of a release.
USES: dict[str, dict[str, Any]] = {
    "time": {"time": "at", "every": "1d"},
    "key": {"by": "meter", "keys": list("abcd")},
    "person": {"unit": fastdp.Person("person", rows=SIZE)},
    "value": {"statistics": {"kwh": "sum"}, "bounds": fastdp.Value(clip=(-9.0, 9.0))},
}
SUBSETS = list(chain.from_iterable(combinations(USES, size) for size in range(len(USES) + 1)))
#: None, one and all of them; the others take the same ways.
USUAL = [each for each in SUBSETS if len(each) in (0, 4) or each == ("value",)]


def as_table(rows: list[tuple], family: str, folder: Path) -> Any:
    if family not in OWN:
        return as_family(rows, family, folder)
    table = as_family(rows, "pyarrow", folder)
    if family == "record batch":
        return pa.record_batch([column.combine_chunks() for column in table.columns], table.column_names)
    if family == "feather":
        import pyarrow.feather

        pyarrow.feather.write_feather(table, folder / "rows.feather")
        return folder / "rows.feather"
    pytest.importorskip("xarray")
    return table.to_pandas().rename_axis("place").to_xarray()


@pytest.mark.parametrize(
    "used",
    [*USUAL, *(pytest.param(each, marks=pytest.mark.exhaustive) for each in SUBSETS if each not in USUAL)],
    ids=lambda used: " ".join(used) or "nothing",
)
@pytest.mark.parametrize("family", [*FAMILIES, *sorted(OWN)])
def test_the_number_of_rows_depends_on_no_column(family: str, used: tuple[str, ...], tmp_path: Path) -> None:
    options: dict[str, Any] = {"statistics": {}, "epsilon": EXACT, "seed": 1}
    for each in used:
        options |= USES[each]
    options["statistics"] = {"*": "count"} | options["statistics"]
    table = fastdp.aggregate(as_table(random_rows(SIZE, 1), family, tmp_path), **options)
    assert round(table.released.cells("count").sum()) == SIZE


@pytest.mark.parametrize("family", [*FAMILIES, *sorted(OWN)])
def test_no_rows_are_none(family: str, tmp_path: Path) -> None:
    table = fastdp.counts(as_table(random_rows(0, 1), family, tmp_path), epsilon=EXACT, seed=1)
    assert table.estimate(0, 1).tolist() == [0.0]


# Texts are texts: bytes never become keys, whatever the encoding of a file.

ROWS_OF_TEXT = "t,k,v\n" + "2026-01-01T00:00,nord,1\n" * 40 + "2026-01-01T00:00,s\u00fcd,2\n" * 40
#: Encodings of a text, and whether it is read or refused.
ENCODINGS = {"utf-8": True, "utf-8-sig": True, "utf-16": True} | dict.fromkeys(
    ["latin-1", "cp1252", "mac_roman", "cp437", "utf-16-le", "utf-16-be", "utf-32", "cp500"], False
)
KEYS: dict[str, dict[str, Any]] = {
    "given": {"keys": ["nord", "s\u00fcd"]},
    "public": {"keys": "public"},
    "private": {"delta": 1e-3, "epsilon": 32.0},
}


def counted(table: Any, **options: Any) -> list[tuple[Any, int]]:
    found = fastdp.counts(table, by="k", **{"epsilon": EXACT, "seed": 1} | options)
    return list(zip(found.keys["k"], found.estimate(0, 1).round().astype(int)[0].tolist(), strict=True))


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("reader", [False, True])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_text_of_another_encoding_is_refused(encoding: str, reader: bool, keys: str, tmp_path: Path) -> None:
    import pyarrow.csv

    path = tmp_path / "rows.csv"
    path.write_bytes(ROWS_OF_TEXT.encode(encoding))
    assert counted(fastdp.Csv(path, encoding=encoding), **KEYS[keys]) == [("nord", 40), ("s\u00fcd", 40)]
    if ENCODINGS[encoding] and not (reader and encoding == "utf-16"):
        table = pyarrow.csv.open_csv(path) if reader else path
        assert counted(table, **KEYS[keys]) == [("nord", 40), ("s\u00fcd", 40)]
        return
    refused = (fastdp.errors.DataError, fastdp.errors.ParameterError)
    # A reader of Arrow's may refuse the text by itself.
    with pytest.raises(
        (*refused, pa.ArrowInvalid, UnicodeDecodeError) if reader else refused, match=r"(?i)utf-?8|CSV"
    ):
        counted(pyarrow.csv.open_csv(path) if reader else path, **KEYS[keys])


def test_other_bytes_late_in_a_text_or_in_its_heading_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for text in ("k\n" + "nord\n" * 300_000 + "s\u00fcd\n", "k,h\u00f6he\nnord,1\n"):
        path.write_bytes(text.encode("latin-1"))
        with pytest.raises(fastdp.errors.DataError, match="UTF-8"):
            counted(path, keys=["nord"])


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (None, ": no such file"),
        (b"", ": empty; expected a first row of names"),
        (b"k,v\nnord,1,2\n", ", line 2: 3 columns; expected 2 as before (the separator is ',')"),
        (b"k\xfc\nnord\n", ", line 1: names not in UTF-8; expected Csv(path, encoding='latin-1')"),
        (b"k\n" + b"nord" * 2**19, ", line 2: longer than 1,048,576 bytes"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_its_reason(
    content: bytes | None, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises((fastdp.errors.DataError, fastdp.errors.ParameterError)) as error:
        counted(path, keys=["nord"])
    assert str(error.value).startswith(f"{path}{hint}")


@pytest.mark.filterwarnings("ignore:Dask support:FutureWarning")
def test_rows_of_a_dask_frame_are_counted() -> None:
    frame = pytest.importorskip("dask.dataframe").from_dict({"k": list(range(10))}, npartitions=3)
    assert fastdp.counts(frame, epsilon=EXACT, seed=1).estimate(0, 1).round().tolist() == [10]


BROKEN = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 4, 7], np.int32)), pa.py_buffer(b"nords\xfcd"))
BYTES: dict[str, Any] = {
    "of Arrow": pa.table({"k": [b"nord", b"s\xfcd"]}),
    "of one width": pa.table({"k": pa.array([b"abcd", b"nord"], pa.binary(4))}),
    "coded": pa.table({"k": pa.array([b"nord", b"nord"]).dictionary_encode()}),
    "views": pa.table({"k": pa.array([b"nord"], pa.binary_view())}),
    "no text": pa.table({"k": BROKEN}),
}


@pytest.mark.parametrize("family", ["pyarrow", "pandas", "polars", "duckdb", "parquet"])
@pytest.mark.parametrize("name", BYTES)
@pytest.mark.parametrize("keys", KEYS)
def test_bytes_are_no_keys(keys: str, name: str, family: str, tmp_path: Path) -> None:
    import pyarrow.parquet

    table = BYTES[name]
    if family != "pyarrow" and name in ("no text", "views") and family != "parquet":
        pytest.skip("other libraries hold none")
    if family == "pandas":
        table = table.to_pandas()
    elif family == "parquet":
        pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
        table = tmp_path / "rows.parquet"
    elif family != "pyarrow":
        table = pytest.importorskip(family).from_arrow(table)
    with pytest.raises(fastdp.errors.DataError, match=r"keys: entries are bytes|a text is not UTF-8"):
        counted(table, **KEYS[keys])


def test_keys_of_bytes_are_refused_online_too() -> None:
    time = fastdp.Time("t", "1d", start="2026-01-01")
    windows = fastdp.Windows({"*": "count"}, time, by="k", keys=["nord"], epsilon=1.0, seed=1)
    for size in (1, 2):
        with pytest.raises(fastdp.errors.DataError, match="entries are bytes"):
            windows.add(["2026-01-01"] * size, keys=[b"nord"] * size)
    with pytest.raises(fastdp.errors.DataError, match="entries are bytes"):
        fastdp.Windows({"*": "count"}, time, by="k", keys=[b"nord"], epsilon=1.0, seed=1)


NIGHT = datetime(2024, 1, 1)
IN_PARIS = NIGHT.replace(tzinfo=ZoneInfo("Europe/Paris"))


@pytest.mark.parametrize(
    ("column", "listed", "found"),
    [
        (pa.array([IN_PARIS], pa.timestamp("us", "Europe/Paris")), NIGHT, None),
        (pa.array([IN_PARIS], pa.timestamp("us", "Europe/Paris")), IN_PARIS.astimezone(UTC), 1),
        (pa.array([NIGHT]), IN_PARIS, None),
        (pa.array([NIGHT], pa.timestamp("s")), NIGHT.replace(microsecond=5), None),
        (pa.array([NIGHT], pa.timestamp("s")), NIGHT, 1),
        (pa.array([NIGHT.date()]), NIGHT.replace(hour=5), None),
        (pa.array([NIGHT.date()]), NIGHT.date(), 1),
        (pa.array([1.0]), float("nan"), None),
        (pa.array(["a"]), float("nan"), None),
        (pa.array([0.1], pa.float32()), 0.1, 1),
    ],
)
def test_a_listed_key_is_never_another_one(column: Any, listed: Any, found: int | None) -> None:
    table = pa.table({"k": column})
    if found is None:
        with pytest.raises(fastdp.errors.ParameterError, match=r"keys: (entries of 'k' are no|an entry is NaN)"):
            counted(table, keys=[listed])
    else:
        assert counted(table, keys=[listed]) == [(listed, found)]


# Times are the same times, or refused.

ZONE = "Europe/Paris"
MOMENTS = [
    datetime(1, 1, 3, 5, 30),
    datetime(1600, 5, 1, 5, 30),
    datetime(1911, 3, 10, 23, 55, 59),
    datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime(2024, 3, 31, 2, 30),
    datetime(2024, 10, 27, 2, 30),
    datetime(2024, 10, 27, 3, 30),
    datetime(2024, 2, 29, 12),
    datetime(2263, 1, 1, 5),
    datetime(9999, 12, 30, 23, 59),
]


def instant(moment: datetime, zone: str | None) -> int:
    at = moment.replace(tzinfo=UTC if zone is None else ZoneInfo(zone))
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def arrow_times(unit: str, aware: bool) -> Any:
    def made(moment: datetime, _: Path) -> Any:
        kind = pa.timestamp(unit, ZONE if aware else None)
        number = instant(moment, ZONE if aware else None) * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
        return pa.table({"t": pa.array([number // 10**6]).cast(kind)})

    return made


def in_text(write: Any) -> Any:
    return lambda moment, folder: pa.table({"t": [write(moment)]})


def in_csv(write: Any) -> Any:
    def made(moment: datetime, folder: Path) -> Path:
        (folder / "t.csv").write_text(f"t\n{write(moment)}\n")
        return folder / "t.csv"

    return made


def in_parquet(moment: datetime, folder: Path) -> Path:
    import pyarrow.parquet

    table = pa.table({"t": pa.array([moment], pa.timestamp("us"))})
    pyarrow.parquet.write_table(table, folder / "t.parquet", use_deprecated_int96_timestamps=True)
    return folder / "t.parquet"


def written(form: str) -> Any:
    return lambda moment: f"{moment.year:04d}{moment:{form}}"


#: How a table holds a time, whether as an instant, and the options that read it.
HOLDERS: dict[str, tuple[Any, bool, dict[str, Any]]] = {
    **{f"{unit}, clock": (arrow_times(unit, False), False, {}) for unit in ("s", "ms", "us", "ns")},
    **{f"{unit}, instants": (arrow_times(unit, True), True, {}) for unit in ("s", "ms", "us", "ns")},
    "96 bits": (in_parquet, False, {}),
    "pandas": (lambda moment, _: arrow_times("us", False)(moment, _).to_pandas(), False, {}),
    "pandas, instants": (lambda moment, _: arrow_times("us", True)(moment, _).to_pandas(), True, {}),
    "texts": (in_text(datetime.isoformat), False, {}),
    "texts of instants": (in_text(lambda moment: moment.replace(tzinfo=ZoneInfo(ZONE)).isoformat()), True, {}),
    "CSV": (in_csv(datetime.isoformat), False, {}),
    "format": (in_text(written("-%m-%d %H:%M:%S")), False, {"format": "%Y-%m-%d %H:%M:%S"}),
    "format, fractions": (in_text(written("-%m-%dT%H:%M:%S.%f")), False, {"format": "%Y-%m-%dT%H:%M:%S.%f"}),
    "format, close": (in_text(written("%m%d%H%M%S")), False, {"format": "%Y%m%d%H%M%S"}),
    "format, offsets": (
        in_text(lambda moment: f"{moment.year:04d}{moment:-%m-%dT%H:%M:%S}+02:00"),
        False,
        {"format": "%Y-%m-%dT%H:%M:%S%z"},
    ),
}


@pytest.mark.parametrize("zone", [None, ZONE])
@pytest.mark.parametrize("moment", MOMENTS, ids=str)
@pytest.mark.parametrize("holder", HOLDERS)
def test_a_time_is_never_another_one(holder: str, moment: datetime, zone: str | None, tmp_path: Path) -> None:
    make, aware, options = HOLDERS[holder]
    try:
        table = make(moment, tmp_path)
    except (pa.ArrowInvalid, OverflowError):
        assert "ns" in holder
        return
    own = ZONE if aware else zone
    wanted = instant(moment, own) if "offsets" not in holder else instant(moment - timedelta(hours=2), None)
    try:
        found = fastdp.counts(table, fastdp.Time("t", "1h", zone=zone, **options), epsilon=EXACT, seed=1).released
    except (fastdp.errors.DataError, fastdp.errors.ParameterError):
        # Beyond the calendar; without a zone for an instant in a text; seconds of an offset; years of few digits.
        assert moment.year in (1, 9999) or moment.year < 1912 or zone is None
        assert holder != "96 bits" or moment.year == 1
        return
    assert found.edges.size == 2
    assert found.edges[0] == wanted // 3_600_000_000 * 3_600_000_000


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("%Y-%m-%d", "2024-02-30"),
        ("%Y-%m-%d", "2023-02-29"),
        ("%Y-%m-%d", "2024-04-31"),
        ("%Y-%m-%d", "24-03-01"),
        ("%Y-%m-%d %H:%M:%S", "2024-03-01 23:59:60"),
        ("%Y%m%d", "20240230"),
        ("%d%m%Y", "1032024"),
        ("%d%m%Y", 1032024),
        ("%Y-%m-%dT%H:%M:%S%z", "2024-02-30T00:00:00+01:00"),
    ],
)
def test_a_text_that_is_no_date_is_refused(form: str, text: Any) -> None:
    with pytest.raises(fastdp.errors.DataError, match="an entry is no time"):
        fastdp.counts(pa.table({"t": [text]}), fastdp.Time("t", "1d", zone="UTC", format=form), epsilon=1.0, seed=1)


@pytest.mark.parametrize(
    ("form", "text", "wanted"),
    [
        ("%d.%m.%Y", "1.3.2024", "2024-03-01"),
        ("%G-W%V-%u", "2024-W10-3", "2024-03-06"),
        ("%F %T", "2024-03-01 05:00:00", "2024-03-01"),
        ("%m/%d/%Y %I:%M %p", "3/1/2024 11:59 PM", "2024-03-01"),
        ("%Y-%j", "2024-061", "2024-03-01"),
        ("%Y%m%d", 20240301, "2024-03-01"),
        ("%Y-%m", "2024-03", "2024-03-01"),
    ],
)
def test_texts_by_a_format(form: str, text: Any, wanted: str) -> None:
    found = fastdp.counts(
        pa.table({"t": [text, None]}), fastdp.Time("t", "1d", format=form, missing="drop"), epsilon=1.0
    )
    assert str(np.datetime64(int(found.released.edges[0]), "us"))[:10] == wanted


@pytest.mark.parametrize("form", ["%H:%M", "%U %Y", "%s", "%d %b", "%Y-%m-%d %I:%M", "%Y-%m-%dT%H:%M:%S%Z", "noon"])
def test_a_format_that_says_no_time_is_refused(form: str) -> None:
    with pytest.raises(fastdp.errors.ParameterError, match="format = "):
        fastdp.Time("t", "1d", format=form)


def test_a_z_that_a_format_passes_over_is_refused_beside_a_zone() -> None:
    with pytest.raises(fastdp.errors.ParameterError, match="format = "):
        fastdp.Time("t", "1d", format="%Y-%m-%dT%H:%M:%SZ", zone=ZONE)
    assert fastdp.Time("t", "1d", format="%Y-%m-%dT%H:%M:%SZ").zone is None


@pytest.mark.parametrize(
    ("zone", "first", "days"),
    [("Pacific/Apia", "2011-12-28", 5), ("Pacific/Kwajalein", "1993-08-20", 4), (ZONE, "2024-10-26", 3)],
)
@pytest.mark.parametrize("every", ["1d", "1h", "30min"])
def test_windows_have_names_of_their_own(zone: str, first: str, days: int, every: str) -> None:
    """Also where a zone leaves out a day, or shows an hour twice."""
    begin = datetime.fromisoformat(first)
    frame = pa.table({"t": [begin, begin + timedelta(days=days)], "k": ["a", "b"]})
    for options in ({}, {"by": "k", "keys": ["a", "b"]}):
        found = fastdp.counts(frame, fastdp.Time("t", every, zone=zone), epsilon=EXACT, seed=1, **options)
        table = found.arrow
        names = list(
            zip(map(str, table["window"].to_pylist()), *(table[k].to_pylist() for k in found.keys), strict=True)
        )
        assert len(set(names)) == len(names)
        assert round(sum(table["estimate"].to_pylist())) == 2
        assert found.whole_numbers().num_rows == len(names)


# A first row that names no column is never shown.


@pytest.mark.parametrize("reader", [False, True])
@pytest.mark.parametrize(
    ("asked", "shown"), [({"by": "k", "keys": ["x"]}, False), ({"time": "Ann", "every": "1d"}, True)]
)
def test_a_row_of_data_is_not_shown_as_columns(
    asked: dict[str, Any], shown: bool, reader: bool, tmp_path: Path
) -> None:
    import pyarrow.csv

    path = tmp_path / "rows.csv"
    path.write_text("Ann,secret\nBob,private\n")
    table = pyarrow.csv.open_csv(path) if reader else path
    with pytest.raises(fastdp.errors.ParameterError) as caught:
        fastdp.counts(table, **{"by": "k", "keys": ["x"]} | asked, epsilon=1.0)
    assert "column 'k': expected one of the table's columns" in str(caught.value)
    assert ("secret" in str(caught.value)) is shown
