"""Numbers of files and pipes: every text as its numbers, errors with their line, bounded memory."""

from __future__ import annotations

import gzip
import io
import re
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdp import Csv
from fastdp.data.column import as_column
from fastdp.data.files import live_numbers, read_numbers
from fastdp.data.source import open_source
from fastdp.errors import DataError, FastDPError, ParameterError
from tests.shared import python

NAN = float("nan")
TABLE = "time,items,note\n2020-01-01,1,a\n2020-01-02,2.5,b\n2020-01-03,-3,c\n"
#: Texts, the column that is asked for, and its numbers; a missing cell, or a blank line between, is NaN.
TEXTS: list[tuple[str, str | None, list[float]]] = [
    *[
        (text, None, [1.0, 2.5, -3.0])
        for text in (
            "1\n2.5\n-3\n",
            '"items"\n"1"\n"2.5"\n"-3"\n',
            "items\r\n1\r\n2.5\r\n-3\r\n",
            "items\r1\r2.5\r-3\r",
            "\ufeff1\n2.5\n-3",
            "\n\nitems\n1\n2.5\n-3\n\n \n",
            " 1\n 2.5 \n-3e0\n",
            '"two\nlines"\n1\n2.5\n-3\n',
        )
    ],
    *[
        (text, "items", [1.0, 2.5, -3.0])
        for text in (
            TABLE,
            TABLE.replace(",", ";"),
            TABLE.replace(",b", ',"b, or\nb"'),
            TABLE.replace(",b", ',"say ""b"""'),
            TABLE.replace(",b", ',5" wide'),
            TABLE.replace("note", '"a\nlong note"'),
        )
    ],
    (TABLE, "1", [1.0, 2.5, -3.0]),
    ("2020-01-01,1\n2020-01-02,2.5\n", "1", [1.0, 2.5]),
    ("a,b\n1,2\n,3\n4,5\n", "a", [1.0, NAN, 4.0]),
    ("items\n1\n\n\n2\n\n", None, [1.0, NAN, NAN, 2.0]),
    ('items\n1\n""\n2\n""\n', None, [1.0, NAN, 2.0, NAN]),
    (",7\n4,5\n", "0", [NAN, 4.0]),
    ("nan\ninf\n-Infinity\n1e999\n+5\n", None, [NAN, np.inf, -np.inf, np.inf, 5.0]),
    ("items\nNA\n", None, [NAN]),
    ("items\ntrue\nFALSE\n\nTrue\n", None, [1.0, 0.0, NAN, 1.0]),
    ("", None, []),
    ("items\n", None, []),
]
#: Texts with an error, the column, and what is said.
WRONG: list[tuple[str, str | None, str]] = [
    ("items\n1\n2\nmany\n4\n", None, "line 4, column 'items': not a number"),
    ("1\n2\nmany\n", None, "line 3, column 0: not a number"),
    ('a,b\n"1\n",2\n3,x\n', "b", "line 4, column 'b': not a number"),
    ("items\n1\n1,5\n", None, "line 3: 2 columns; expected 1 as before"),
    ("a,b\n1,2\n3\n", "a", "line 3: 1 column; expected 2 as before"),
    ("a,b\n1,2\n", None, "has 2 columns; expected one of 'a' (0), 'b' (1)"),
    ("1,2\n3,4\n", None, "has 2 columns; expected one of 0, 1"),
    ("a,b\n1,2\n", "c", "column = 'c': "),
    ("a,a\n1,2\n", "a", "several columns of that name"),
    ('a\n1\n"' + "2\n" * 2**20, None, "line 3: longer than 1,048,576 bytes, or a quote that does not end"),
    ("\0" * 8 + "\n", None, "zero bytes"),
]


def pipe(text: str, size: int = 16) -> Any:
    return io.BufferedReader(io.BytesIO(text.encode()), size)  # type: ignore[arg-type]


def read(path: Path, text: str | bytes, column: str | None = None) -> np.ndarray:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    values: np.ndarray = read_numbers(path, column)
    return values


@pytest.mark.parametrize(("text", "column", "numbers"), TEXTS, ids=lambda each: "")
def test_texts_are_read_as_their_numbers(text: str, column: str | None, numbers: list[float], tmp_path: Path) -> None:
    np.testing.assert_array_equal(read(tmp_path / "in.csv", text, column), np.array(numbers))
    chunks = list(live_numbers(pipe(text), column))
    np.testing.assert_array_equal(np.concatenate([np.empty(0), *chunks]), np.array(numbers))


def test_long_texts_are_read_as_their_numbers(tmp_path: Path) -> None:
    """Of several blocks, which Arrow parses; errors name the line of the file."""
    values = np.random.default_rng(3).random(150_000) * 10.0 ** np.linspace(-150, 150, 150_000)
    for quote, end in (('"', "\n"), ("", "\r\n")):
        rows = [f"{quote}{value!r}{quote},{quote}a note{quote}" for value in values.tolist()]
        text = end.join(["v,n", *rows])
        np.testing.assert_array_equal(read(tmp_path / "in.csv", text, "v"), values)
        rows[140_000] = "x,a note"
        with pytest.raises(DataError, match=r"in.csv, line 140002, column 'v': not a number"):
            read(tmp_path / "in.csv", end.join(["v,n", *rows]), "v")


@pytest.mark.parametrize(("text", "column", "said"), WRONG, ids=lambda each: "")
def test_what_is_wrong_is_named(text: str, column: str | None, said: str, tmp_path: Path) -> None:
    with pytest.raises(FastDPError, match=re.escape(said)) as caught:
        read(tmp_path / "in.csv", text, column)
    assert "many" not in str(caught.value), "data stay out of messages"
    with pytest.raises(FastDPError, match=re.escape(said)):
        list(live_numbers(pipe(text), column))


def test_arrays_of_numpy(tmp_path: Path) -> None:
    path = tmp_path / "in.npy"
    for dtype in ("f8", ">f8", "f4", "i2", "u8", "?"):
        np.save(path, np.arange(9).astype(dtype))
        np.testing.assert_array_equal(read_numbers(path), np.arange(9).astype(dtype))
    np.save(path, np.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(read_numbers(path, "1"), [1.0, 3.0, 5.0])
    fields = np.zeros(3, [("time", "U10"), ("items", "f4")])
    np.save(path, fields)
    np.testing.assert_array_equal(read_numbers(path, "items"), fields["items"])
    for array, said in (
        (np.zeros((2, 2, 2)), "one or two dimensions"),
        (np.zeros(3, complex), "real numbers"),
        (np.array([1.0, None], object), "pickled objects"),
    ):
        np.save(path, array, allow_pickle=True)
        with pytest.raises(DataError, match=said):
            read_numbers(path)
    header = b"(\n"
    for content in (b"", b"1\n2\n", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x01\x00\x02\x00" + header):
        with pytest.raises(DataError, match=r"not a readable \.npy file"):
            read(path, content)
    with pytest.raises(DataError, match="one or two dimensions"):
        read(path, b"PK\x05\x06")
    np.savez(tmp_path / "in.npz", np.zeros(3))
    with pytest.raises(FastDPError, match="unknown kind of file; expected"):
        read_numbers(tmp_path / "in.npz")


def test_damaged_packs(tmp_path: Path) -> None:
    whole = gzip.compress(b"1.25\n" * 100_000)
    for content in (whole[: len(whole) // 2], b"1\n2\n", whole[:90] + b"\0" + whole[91:]):
        with pytest.raises(DataError, match=r"not a gzip or bzip2 file, or damaged"):
            read(tmp_path / "in.csv.gz", content)


#: Reads under a limit of memory, and without pyarrow; prints the numbers' sum, or the error.
LIMITED = """
import resource, sys
import numpy as np
import fastdp
from fastdp.data.files import read_numbers

if "without" in sys.argv:
    sys.modules["pyarrow"] = None
else:
    import pyarrow
    used = int(next(line for line in open("/proc/self/status") if line.startswith("VmSize")).split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**29,) * 2)
for path in sys.argv[2:]:
    try:
        print(read_numbers(path).sum() if path != "-" else read_numbers(path).size)
    except fastdp.errors.FastDPError as error:
        print(error)
"""


@pytest.mark.parametrize(
    "content", [b"PAR1\x15\x04", gzip.compress(b"1\n"), b"\x93NUMPY\x01\x00"], ids=["parquet", "gz", "npy"]
)
def test_binary_pipes(content: bytes) -> None:
    with pytest.raises(
        DataError, match="standard input: is binary; a pipe takes text or an Arrow stream; unpack with zcat"
    ):
        list(live_numbers(io.BytesIO(content)))


def test_without_pyarrow_numbers_are_read(tmp_path: Path) -> None:
    values = np.arange(40_000.0)
    (tmp_path / "a.csv").write_text("v\n" + "\n".join(map(str, values.tolist())))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    np.save(tmp_path / "c.npy", values)
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    names = ["a.csv", "b.txt.gz", "c.npy", "d.parquet", "-"]
    done = subprocess.run(
        **python("-c", LIMITED, "without", *names),
        cwd=tmp_path,
        input="1\n2\n",
        capture_output=True,
        text=True,
        check=False,
    )
    *sums, refused, piped = done.stdout.splitlines()
    assert sums == [str(values.sum())] * 3, done.stderr
    assert "pip install 'fastdp-streams[tables]'" in refused
    assert piped == "2"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="limits memory")
def test_bombs_are_refused_under_a_limit_of_memory(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "line.csv.gz", "wb") as file:
        file.write(b"1" * 2**26)
    with gzip.open(tmp_path / "rows.csv.gz", "wb") as file:
        for _ in range(80):
            file.write(b"1\n" * 2**20)
    names = ["line.csv.gz", "rows.csv.gz"]
    done = subprocess.run(
        **python("-c", LIMITED, "limited", *names), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    line, rows = done.stdout.splitlines()
    assert "line.csv.gz, line 1: longer than 1,048,576 bytes" in line
    assert "rows.csv.gz: does not fit into memory" in rows, done.stderr


def test_a_csv_is_checked_when_it_is_made() -> None:
    for options, said in (
        ({"separator": '"'}, "one character such as ';'"),
        ({"encoding": "klingon"}, "a name of Python's, such as 'latin-1'"),
        ({"decimal": "x"}, "expected one of"),
    ):
        with pytest.raises(FastDPError, match=said):
            Csv("rows.csv", **options)
    for path in ("rows.npy", "rows.parquet"):
        with pytest.raises(ParameterError, match="decimal is for text files"):
            read_numbers(Csv(path, decimal=","))


#: Cells, and the number that every door reads, or None where every door refuses; the decimal sign is a point.
SPELLINGS: dict[str, float | None] = {
    **dict.fromkeys(("5", "+5", " 5", "5 ", "5.", "0005", "5e0", "+.5E1"), 5.0),
    **dict.fromkeys(("inf", "+inf", "INF", "Infinity", "1e400"), np.inf),
    **dict.fromkeys(("-inf", "-Infinity", "-1e400"), -np.inf),
    **dict.fromkeys(("", "NA", "N/A", "#N/A", "nan", "NaN", "-nan", "+nan", "NAN", "null", "NULL"), NAN),
    **dict.fromkeys(("0x10", "0X1f", "0b1", "0o7", "0x1p3", "1_000", "1,000", "1 000", "1'000", "1,5"), None),
    **dict.fromkeys(("\u0663", "\uff11", "\u00bd", "\u22125", "true", "FALSE", "T", "none", "na", "$5", "5%"), None),
    **dict.fromkeys(("--5", "5-", "(5)", "1e", "1d3", "5f", "1.0.0", "-", "x"), None),
}


@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("cell", SPELLINGS)
def test_a_number_is_spelt_the_same_for_every_door(cell: str, decimal: str, tmp_path: Path) -> None:
    """Beside fractions and whole numbers, in short texts and in those that Arrow parses: streams, pipes, tables."""
    spelt = cell.translate(str.maketrans(".,", ",.")) if decimal == "," else cell
    options: dict[str, Any] = {"separator": ";", "decimal": decimal}
    for other, rows in product(("2", f"2{decimal}5"), (1, 800)):
        row = f"{other};{'a' * 90}\n"
        text = f'v;k\n{row * rows}"{spelt}";a\n{row}'
        (tmp_path / "in.csv").write_text(text)
        source = Csv(tmp_path / "in.csv", **options)
        doors: list[Callable[[], Any]] = [
            lambda source=source: read_numbers(source, "v"),
            lambda text=text: np.concatenate(list(live_numbers(pipe(text, 2**20), "v", Csv("-", **options)))),
            lambda source=source: as_column(open_source(source, ["v"]).table().column(0)).astype(float),
        ]
        for door in doors:
            if SPELLINGS[cell] is None:
                with pytest.raises(DataError, match=r"not a number|one type|holds"):
                    door()
            else:
                np.testing.assert_equal(door()[-2], SPELLINGS[cell])


@pytest.mark.parametrize("size", [1, 40_000])
def test_hexadecimal_ids_are_texts(size: int, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("k\n" + "0x10\n" * size)
    assert set(open_source(tmp_path / "in.csv", ["k"]).table().column(0).to_pylist()) == {"0x10"}
