from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

from fastdp.data import text_reader
from fastdp.data.readers import open_source
from fastdp.errors import DataError

TINY = (1, 2, 3, 1000)


def read(path: object, column: str | None = None, chunk_size: int = 1000) -> np.ndarray:
    with open_source(str(path), column, chunk_size) as source:
        chunks = list(source.chunks)
    assert all(chunk.dtype == np.float64 and chunk.ndim == 1 for chunk in chunks)
    return np.concatenate([*chunks, np.empty(0)])


@pytest.fixture(params=[text_reader.BLOCK, 16], ids=["lines", "blocks"], autouse=True)
def _block(request, monkeypatch):
    """Short texts are read by lines; here also by the blocks of long ones."""
    monkeypatch.setattr(text_reader, "BLOCK", request.param)


@pytest.fixture
def text(tmp_path):
    def text(content: str | bytes, name: str = "in.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return text


def check(path: Path, wanted: list[float], column: str | None = None) -> None:
    for size in TINY:
        np.testing.assert_array_equal(read(path, column, size), np.array(wanted, float))


@pytest.mark.parametrize(
    "content",
    [
        "1\n2.5\n-3\n",
        "items\n1\n2.5\n-3\n",
        '"items"\n"1"\n"2.5"\n"-3"\n',
        '"items"\n1\n"2.5"\n-3',
        "items\r\n1\r\n2.5\r\n-3\r\n",
        "items\r1\r2.5\r-3\r",
        "\ufeffitems\n1\n2.5\n-3\n",
        "\ufeff1\n2.5\n-3\n",
        "\n\nitems\n1\n2.5\n-3\n\n \n",
        " 1\n 2.5 \n-3e0\n",
        '"two\nlines"\n1\n2.5\n-3\n',
    ],
)
def test_one_column(content, text):
    check(text(content), [1.0, 2.5, -3.0])


TABLE = "time,items,note\n2020-01-01,1,a\n2020-01-02,2.5,b\n2020-01-03,-3,c\n"


@pytest.mark.parametrize("column", ["items", "1"])
@pytest.mark.parametrize(
    "content",
    [
        TABLE,
        TABLE.replace(",", "\t"),
        TABLE.replace(",", ";"),
        TABLE.replace(",b", ',"b, or\nb"'),
        TABLE.replace(",b", ',"say ""b"""'),
        TABLE.replace(",items,", ',"items",'),
        TABLE.replace("note", '"a\nlong note"'),
    ],
)
def test_several_columns(content, column, text):
    check(text(content), [1.0, 2.5, -3.0], column)


def test_several_columns_without_header(text):
    check(text("2020-01-01,1\n2020-01-02,2\n"), [1.0, 2.0], "1")


def test_bytes_of_other_encodings_elsewhere_do_no_harm(text):
    check(text("naïve,items\ncafé,1\nthé,2\n".encode("latin-1")), [1.0, 2.0], "items")


def test_missing_cells_and_blank_lines_between_are_nan(text):
    nan = float("nan")
    check(text("a,b\n1,2\n,3\n4,5\n"), [1.0, nan, 4.0], "a")
    check(text("items\n1\n\n\n2\n\n"), [1.0, nan, nan, 2.0])
    check(text('items\n1\n""\n2\n""\n'), [1.0, nan, 2.0, nan])
    check(text(",7\n4,5\n"), [nan, 4.0], "0")
    check(text("a,b\n1,2\n,\n"), [1.0, nan], "a")
    check(text("a,b\r1,2\r3,4\r\r5,6\r\r7,8\r"), [1.0, 3.0, nan, 5.0, nan, 7.0], "a")
    check(text("a,b\n1,2\n3,4\n" + ",5\n" * 20 + "6,7\n"), [1.0, 3.0, *[nan] * 20, 6.0], "a")


def test_nonfinite_words_are_numbers(text):
    check(text("nan\ninf\n-Infinity\n1e999\n"), [np.nan, np.inf, -np.inf, np.inf])


def test_floats_read_back_exactly(text, lines):
    values = np.random.default_rng(3).random(3000) * 10.0 ** np.arange(-150, 150, 0.1)
    np.testing.assert_array_equal(read(text(lines(values)), chunk_size=700), values)
    np.testing.assert_array_equal(read(text('"a","b"\n' + lines(values).replace("\n", ',"x"\n')), "0", 700), values)


@pytest.mark.parametrize("size", TINY)
@pytest.mark.parametrize(
    ("content", "column", "said"),
    [
        ("items\n1\n2\nmany\n4\n", None, "in.csv, line 4, column 'items': not a number"),
        ("1\n2\nmany\n", None, "in.csv, line 3, column 0: not a number"),
        ("a,b\n1,2\n3,x\n", "b", "in.csv, line 3, column 'b': not a number"),
        ("a\n" + "1\n" * 20 + "\ufeff5\n", None, "in.csv, line 22, column 'a': not a number"),
        ('a,b\n"1\n",2\n3,x\n', "b", "in.csv, line 4, column 'b': not a number"),
        ("items\n\n1\n\nx\n", None, "in.csv, line 5, column 'items': not a number"),
        ("items\n1\n1_000\n", None, "in.csv, line 3, column 'items': not a number"),
        ("items\n1\n0x10\n", None, "in.csv, line 3, column 'items': not a number"),
        ("items\n1\n1,5\n", None, "in.csv, line 3: 2 columns; expected 1 as before"),
        ("a,b\n1,2\n3\n", "a", "in.csv, line 3: 1 column; expected 2 as before"),
        ("a,b\n1,2\n3,4,5\n6,7\n8\n", "a", "in.csv, line 3: 3 columns; expected 2 as before"),
    ],
)
def test_text_where_numbers_are_expected(size, content, column, said, text):
    with pytest.raises(DataError) as caught:
        read(text(content), column, size)
    assert str(caught.value).endswith(said)
    assert "many" not in str(caught.value), "data stay out of messages"


@pytest.mark.parametrize(
    ("content", "column", "said"),
    [
        ("a,b\n1,2\n", None, "has 2 columns: expected --column, one of 'a' (0), 'b' (1)"),
        ("1,2\n3,4\n", None, "has 2 columns: expected --column, one of 0, 1"),
        ("a,b\n1,2\n", "c", "--column 'c': {} has no such column; expected one of 'a' (0), 'b' (1)"),
        ("a,b\n1,2\n", "2", "--column '2': {} has no such column; expected one of 'a' (0), 'b' (1)"),
        ("a,b\n1,2\n", "-1", "--column '-1'"),
        ("a,a\n1,2\n", "a", "several columns of that name; expected a number"),
        ("items\n1\n", "fare", "no such column; expected one of 'items' (0)"),
    ],
)
def test_columns_are_listed(content, column, said, text):
    path = text(content)
    with pytest.raises(DataError) as caught:
        read(path, column)
    assert said.format(path) in str(caught.value)


@pytest.mark.parametrize("content", ["", "\n\n", "items\n"])
def test_nothing_to_read(content, text, run, complaint, tmp_path):
    assert read(text(content)).size == 0
    assert complaint(run(text(content), "-o", tmp_path / "out.csv")) == f"{text(content)}: empty, holds no values"


def test_text_that_is_none(text):
    with pytest.raises(DataError, match="zero bytes"):
        read(text("1\n2\n".encode("utf-16")))
    with pytest.raises(DataError, match="not a gzip file"):
        read(text("1\n2\n", "in.csv.gz"))
    whole = gzip.compress(b"1.25\n" * 100_000)
    with pytest.raises(DataError, match="damaged or incomplete"):
        read(text(whole[: len(whole) // 2], "cut.csv.gz"))


def test_an_endless_quote(text):
    with pytest.raises(DataError, match=r"line 2"):
        read(text('a,b\n1,"' + "2\n" * 100_000), "a")


# NumPy's files.


@pytest.mark.parametrize("dtype", ["f8", ">f8", "f4", "i2", "u8", "?"])
def test_npy_of_every_real_kind(dtype, tmp_path):
    values = np.arange(2500).astype(dtype)
    np.save(tmp_path / "in.npy", values)
    np.testing.assert_array_equal(read(tmp_path / "in.npy"), values.astype(float))


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_of_several_columns(order, tmp_path):
    table = np.asarray(np.random.default_rng(2).random((2500, 3)), order=order)
    np.save(tmp_path / "in.npy", table)
    np.testing.assert_array_equal(read(tmp_path / "in.npy", "1"), table[:, 1])
    with pytest.raises(DataError, match=r"3 columns: expected --column, one of 0, 1, 2"):
        read(tmp_path / "in.npy")


def test_npy_of_named_fields(tmp_path):
    table = np.zeros(2500, [("time", "U10"), ("items", "f4")])
    table["items"] = np.arange(2500)
    np.save(tmp_path / "in.npy", table)
    np.testing.assert_array_equal(read(tmp_path / "in.npy", "items"), np.arange(2500))
    with pytest.raises(DataError, match="real numbers"):
        read(tmp_path / "in.npy", "time")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a readable .npy file"),
        (b"1\n2\n3\n", "not in NumPy's format"),
        (b"\x93NUMPY\x01\x00", "not a readable .npy file"),
        (b"PK\x05\x06" + b"\0" * 18, "expected the suffix .npz"),
    ],
)
def test_npy_that_is_none(content, said, text):
    with pytest.raises(DataError, match=said):
        read(text(content, "in.npy"))


def test_npy_cut_off(tmp_path):
    np.save(tmp_path / "in.npy", np.zeros(1000))
    content = (tmp_path / "in.npy").read_bytes()
    (tmp_path / "in.npy").write_bytes(content[:-8])
    with pytest.raises(DataError, match="not a readable"):
        read(tmp_path / "in.npy")


@pytest.mark.parametrize("array", [np.zeros((2, 2, 2)), np.array(1.0), np.array(["a"]), np.zeros(3, complex)])
def test_npy_and_npz_of_other_things(array, tmp_path):
    np.save(tmp_path / "in.npy", array)
    np.savez(tmp_path / "in.npz", array)
    for name in ("in.npy", "in.npz"):
        with pytest.raises(DataError, match=r"expected (one row of numbers|real numbers)"):
            read(tmp_path / name)


def test_pickles_are_not_opened(tmp_path):
    np.save(tmp_path / "in.npy", np.array([1.0, None], object), allow_pickle=True)
    np.savez(tmp_path / "in.npz", np.array([1.0, None], object))
    for name in ("in.npy", "in.npz"):
        with pytest.raises(DataError, match="pickled objects"):
            read(tmp_path / name)


def test_npz_of_several_arrays(tmp_path):
    np.savez(tmp_path / "in.npz", a=np.arange(5), b=np.arange(2500.0))
    np.testing.assert_array_equal(read(tmp_path / "in.npz", "b"), np.arange(2500.0))
    with pytest.raises(DataError, match=r"expected --column, one of 'a' \(0\), 'b' \(1\)"):
        read(tmp_path / "in.npz")


def test_npz_damaged(tmp_path, text):
    with pytest.raises(DataError, match="not a readable"):
        read(text(b"junk", "in.npz"))
    np.savez(tmp_path / "in.npz", np.zeros(1000))
    content = bytearray((tmp_path / "in.npz").read_bytes())
    content[500] ^= 1
    with pytest.raises(DataError, match="damaged or incomplete"):
        read(text(bytes(content), "in.npz"))
    with pytest.raises(DataError, match="damaged or incomplete"):
        read(text(bytes(content[:3000]), "in.npz"))


# Parquet.


def test_parquet_columns_and_nulls(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "in.parquet"
    table = {
        "time": ["x"] * 3,
        "items": arrow.array([1, None, 3]),
        "a.b": [1.5, 2.5, 3.5],
        "flag": [True, False, True],
    }
    parquet.write_table(arrow.table(table), path)
    np.testing.assert_array_equal(read(path, "items"), [1.0, np.nan, 3.0])
    np.testing.assert_array_equal(read(path, "a.b", 2), [1.5, 2.5, 3.5])
    np.testing.assert_array_equal(read(path, "3", 2), [1.0, 0.0, 1.0])
    with pytest.raises(DataError, match=r"4 columns: expected --column, one of 'time' \(0\)"):
        read(path)
    with pytest.raises(DataError, match="column 'time': holds string entries; expected real numbers"):
        read(path, "time")
    with pytest.raises(DataError, match="no such column"):
        read(path, "fare")


def test_parquet_damaged(tmp_path, text):
    pytest.importorskip("pyarrow")
    for content in (b"", b"junk" * 100):
        with pytest.raises(DataError, match="not a readable Parquet file"):
            read(text(content, "in.parquet"))


def test_parquet_without_pyarrow(write_input, run, complaint, values, monkeypatch, tmp_path):
    source = write_input(".parquet", values)
    plain = write_input(".npy", values)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for arguments in ([source, "-o", tmp_path / "out.csv"], [plain, "-o", tmp_path / "out.parquet"]):
        assert "pip install 'fastdp-streams[parquet]'" in complaint(run(*arguments))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.npy", "in.parquet"]


def test_totals_for_the_progress_bar(write_input, values):
    for suffix in (".npy", ".npz", ".parquet"):
        with open_source(str(write_input(suffix, values)), None, 1000) as source:
            assert (source.total, source.unit, source.position) == (values.size, "values", None)
    values = np.tile(values, 20 if text_reader.BLOCK > 16 else 1)
    for suffix in (".csv", ".csv.gz"):
        path = write_input(suffix, values)
        with open_source(str(path), None, 1000) as source:
            assert (source.total, source.unit) == (path.stat().st_size, "B")
            assert source.position is not None
            before = source.position()
            assert sum(chunk.size for chunk in source.chunks) == values.size
            # The heading is read when the file is opened, and with it a block.
            assert 0 < before < source.position() == source.total


def _npy(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize("header", [b"(\n", b"{'descr': ',f8'}\n", b"\xff\n", b"{", b"[" * 100])
def test_headers_that_numpy_cannot_parse(header, text):
    """Found by fuzzing: NumPy parses headers as Python, and lets Python's own errors through."""
    with pytest.raises(DataError, match=r"not a readable \.npy file"):
        read(text(_npy(header), "in.npy"))
    with pytest.raises(DataError, match=r"not a readable \.npz file"):
        read(text(_npy(header), "in.npz"))


def test_archives_of_another_kind(tmp_path):
    """Found by fuzzing: members of a later format, or encrypted."""
    path = tmp_path / "in.npz"
    np.savez(path, x=np.arange(3.0))
    raw = path.read_bytes()
    entry = raw.index(b"PK\x01\x02")
    for place, value in ((entry + 6, 255), (entry + 8, 1)):
        damaged = bytearray(raw)
        damaged[place] = value
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"not (a )?readable"):
            read(path)


def test_a_column_whose_name_is_no_text(tmp_path):
    """Found by fuzzing: Arrow decodes names when they are looked at."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "in.parquet"
    # Without the copy of the schema that Arrow itself writes.
    pq.write_table(pa.table({"items": [1.0]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"items", b"\xf9tems"))
    with pytest.raises(DataError, match="not a readable Parquet file, or damaged"):
        read(path)
