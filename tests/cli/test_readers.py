from __future__ import annotations

import gzip
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from fastdp.cli import terminal
from fastdp.cli.release_command import with_progress
from fastdp.data import text_reader
from fastdp.data.readers import open_values
from fastdp.errors import DataError
from tests.shared import python


def read(path: object, column: str | None = None, chunk_size: int = 1000) -> np.ndarray:
    with open_values(str(path), column, chunk_size) as source:
        chunks = list(source.chunks)
    assert all(chunk.dtype == np.float64 and chunk.ndim == 1 for chunk in chunks)
    return np.concatenate([*chunks, np.empty(0)])


@pytest.fixture
def text(tmp_path):
    def text(content: str | bytes, name: str = "in.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return text


@pytest.mark.parametrize("content", ["", "\n\n", "items\n"])
def test_nothing_to_read(content, text, run, complaint, tmp_path):
    assert read(text(content)).size == 0
    assert complaint(run(text(content), "-o", tmp_path / "out.csv")) == f"{text(content)}: empty, holds no values"


def test_parquet_columns_and_nulls(tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "in.parquet"
    numbers = {"items": arrow.array([1, None, 3]), "a.b": [1.5, 2.5, 3.5], "flag": [True, False, True]}
    parquet.write_table(arrow.table({"time": ["x"] * 3, **numbers}), path)
    np.testing.assert_array_equal(read(path, "items"), [1.0, np.nan, 3.0])
    np.testing.assert_array_equal(read(path, "a.b", 2), [1.5, 2.5, 3.5])
    np.testing.assert_array_equal(read(path, "3", 2), [1.0, 0.0, 1.0])
    for column, said in (
        (None, r"4 columns: expected --column, one of 'time' \(0\)"),
        ("time", "column 'time': holds string entries; expected real numbers"),
        ("fare", "no such column"),
    ):
        with pytest.raises(DataError, match=said):
            read(path, column)
    # Found by fuzzing: Arrow decodes names when they are looked at; without the copy of the schema that it writes.
    parquet.write_table(arrow.table({"items": [1.0]}), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"items", b"\xf9tems"))
    with pytest.raises(DataError, match="not a readable Parquet file, or damaged"):
        read(path)


pytest.importorskip("pyarrow.parquet")

NAN = float("nan")

TABLE = "time,items,note\n2020-01-01,1,a\n2020-01-02,2.5,b\n2020-01-03,-3,c\n"

TEXTS = {
    None: [
        "1\n2.5\n-3\n",
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
    "items": [
        TABLE,
        TABLE.replace(",", "\t"),
        TABLE.replace(",", ";"),
        TABLE.replace(",b", ',"b, or\nb"'),
        TABLE.replace(",b", ',"say ""b"""'),
        TABLE.replace(",items,", ',"items",'),
        TABLE.replace("note", '"a\nlong note"'),
        TABLE.replace("note", "thé").encode("latin-1"),
    ],
    "1": [TABLE, "2020-01-01,1\n2020-01-02,2.5\n2020-01-03,-3\n"],
}

#: Missing cells, and blank lines between, are NaN; words for numbers that are not finite are numbers.
HOLES = [
    ("a,b\n1,2\n,3\n4,5\n", "a", [1.0, NAN, 4.0]),
    ("items\n1\n\n\n2\n\n", None, [1.0, NAN, NAN, 2.0]),
    ('items\n1\n""\n2\n""\n', None, [1.0, NAN, 2.0, NAN]),
    (",7\n4,5\n", "0", [NAN, 4.0]),
    ("a,b\n1,2\n,\n", "a", [1.0, NAN]),
    ("a,b\r1,2\r3,4\r\r5,6\r\r7,8\r", "a", [1.0, 3.0, NAN, 5.0, NAN, 7.0]),
    ("a,b\n1,2\n3,4\n" + ",5\n" * 20 + "6,7\n", "a", [1.0, 3.0, *[NAN] * 20, 6.0]),
    ("nan\ninf\n-Infinity\n1e999\n", None, [NAN, np.inf, -np.inf, np.inf]),
]


@pytest.fixture(params=[text_reader.BLOCK, 16], ids=["lines", "blocks"])
def blocks(request, monkeypatch):
    """Short texts are read by lines; here also by the blocks of long ones."""
    monkeypatch.setattr(text_reader, "BLOCK", request.param)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_texts_are_read_as_their_numbers(size, text, lines):
    whole = [(content, column, [1.0, 2.5, -3.0]) for column, contents in TEXTS.items() for content in contents]
    for content, column, wanted in [*whole, *HOLES]:
        np.testing.assert_array_equal(read(text(content), column, size), np.array(wanted), err_msg=repr(content))
    if size > 3:
        values = np.random.default_rng(3).random(3000) * 10.0 ** np.arange(-150, 150, 0.1)
        np.testing.assert_array_equal(read(text(lines(values)), chunk_size=700), values)
        quoted = '"a","b"\n' + lines(values).replace("\n", ',"x"\n')
        np.testing.assert_array_equal(read(text(quoted), "0", 700), values)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("content", "column", "said"),
    [
        ("items\n1\n2\nmany\n4\n", None, "in.csv, line 4, column 'items': not a number"),
        ("1\n2\nmany\n", None, "in.csv, line 3, column 0: not a number"),
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
        ("a,b\n1,2\n", "c", "column = 'c': {} has no such column; expected one of 0, 1"),
        ("a,b\n1,2\n", "2", "column = '2': {} has no such column"),
        ("a,b\n1,2\n", "-1", "column = '-1'"),
        ("a,a\n1,2\n", "a", "several columns of that name; expected a number"),
    ],
)
def test_columns_are_listed(content, column, said, text):
    path = text(content)
    with pytest.raises(DataError) as caught:
        read(path, column)
    assert said.format(path) in str(caught.value)


@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_files_of_every_real_kind_and_shape(order, tmp_path):
    for dtype in ("f8", ">f8", "f4", "i2", "u8", "?"):
        values = np.arange(2500).astype(dtype)
        np.save(tmp_path / "in.npy", values)
        np.testing.assert_array_equal(read(tmp_path / "in.npy"), values.astype(float))
    table = np.asarray(np.random.default_rng(2).random((2500, 3)), order=order)
    np.save(tmp_path / "in.npy", table)
    np.testing.assert_array_equal(read(tmp_path / "in.npy", "1"), table[:, 1])
    with pytest.raises(DataError, match=r"3 columns: expected --column, one of 0, 1, 2"):
        read(tmp_path / "in.npy")
    fields = np.zeros(2500, [("time", "U10"), ("items", "f4")])
    fields["items"] = np.arange(2500)
    np.save(tmp_path / "in.npy", fields)
    np.testing.assert_array_equal(read(tmp_path / "in.npy", "items"), np.arange(2500))
    with pytest.raises(DataError, match="real numbers"):
        read(tmp_path / "in.npy", "time")
    np.savez(tmp_path / "in.npz", a=np.arange(5), b=np.arange(2500.0))
    np.testing.assert_array_equal(read(tmp_path / "in.npz", "b"), np.arange(2500.0))
    with pytest.raises(DataError, match=r"expected --column, one of 'a' \(0\), 'b' \(1\)"):
        read(tmp_path / "in.npz")


@pytest.mark.parametrize(
    ("array", "said"),
    [
        (np.zeros((2, 2, 2)), "one row of numbers"),
        (np.array(1.0), "one row of numbers"),
        (np.array(["a"]), "real numbers"),
        (np.zeros(3, complex), "real numbers"),
        (np.array([1.0, None], object), "pickled objects"),
    ],
)
def test_numpy_files_of_other_things(array, said, tmp_path):
    np.save(tmp_path / "in.npy", array, allow_pickle=True)
    np.savez(tmp_path / "in.npz", array)
    for name in ("in.npy", "in.npz"):
        with pytest.raises(DataError, match=said):
            read(tmp_path / name)


def npy(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("in.csv", "1\n2\n".encode("utf-16"), "zero bytes"),
        ("in.csv", b'a,b\n1,"' + b"2\n" * 100_000, "line 2"),
        ("in.csv.gz", b"1\n2\n", "not a gzip file"),
        ("in.npy", b"", "not a readable .npy file"),
        ("in.npy", b"1\n2\n3\n", "not in NumPy's format"),
        ("in.npy", b"\x93NUMPY\x01\x00", "not a readable .npy file"),
        ("in.npy", b"PK\x05\x06" + b"\0" * 18, "holds no array"),
        ("in.npz", b"junk", "not a readable"),
        ("in.parquet", b"", "not a readable Parquet file"),
        ("in.parquet", b"junk" * 100, "not a readable Parquet file"),
        # Found by fuzzing: NumPy parses headers as Python, and lets Python's own errors through.
        *[
            (f"in.{kind}", npy(header), f"not a readable .{kind} file")
            for kind in ("npy", "npz")
            for header in (b"(\n", b"{'descr': ',f8'}\n", b"\xff\n", b"{", b"[" * 100)
        ],
    ],
)
def test_content_of_another_kind(name, content, said, text):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with pytest.raises(DataError, match=re.escape(said)):
        read(text(content, name), "a" if b"a," in content else None)


def test_damaged_files(text, tmp_path):
    whole = gzip.compress(b"1.25\n" * 100_000)
    np.savez(tmp_path / "zeros.npz", np.zeros(1000))
    zeros = (tmp_path / "zeros.npz").read_bytes()
    np.save(tmp_path / "zeros.npy", np.zeros(1000))
    # Found by fuzzing: members of a later format, or encrypted.
    entry = zeros.index(b"PK\x01\x02")
    later, secret = (zeros[: entry + k] + bytes([v]) + zeros[entry + k + 1 :] for k, v in ((6, 255), (8, 1)))
    for name, content, said in (
        ("cut.csv.gz", whole[: len(whole) // 2], "damaged or incomplete"),
        ("in.npz", zeros[:500] + bytes([zeros[500] ^ 1]) + zeros[501:], "damaged or incomplete"),
        ("in.npz", zeros[:3000], "damaged or incomplete"),
        ("in.npz", later, "not (a )?readable"),
        ("in.npz", secret, "not (a )?readable"),
        ("in.npy", (tmp_path / "zeros.npy").read_bytes()[:-8], "not a readable"),
    ):
        with pytest.raises(DataError, match=said):
            read(text(content, name))


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".npy", ".npz", ".parquet"])
def test_the_progress_bar_moves_to_the_total(suffix, write_input, values, monkeypatch):
    ends = []

    class Bar(terminal.tqdm):
        def close(self) -> None:
            ends.append((self.n, self.total))
            super().close()

    monkeypatch.setattr(terminal, "tqdm", Bar)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    values, text = np.tile(values, 20 if text_reader.BLOCK > 16 else 1), suffix.startswith(".csv")
    path = write_input(suffix, values)
    with open_values(str(path), None, 1000) as source:
        assert (source.total, source.unit) == ((path.stat().st_size, "B") if text else (values.size, "values"))
        # The heading is read when the file is opened, and with it a block.
        before = source.position() if text else None
        assert sum(chunk.size for chunk in with_progress(source, quiet=False)) == values.size
        assert ends[0] == (source.total, source.total)
        # Python 3.13 reads 128 KiB of a packed file at once: all of it.
        assert before is None or 0 < before < source.position() or (before == source.total and suffix == ".csv.gz")


#: Prints how many threads each reader starts; the last is Arrow's usual way.
COUNTING = """
import io, sys
from pathlib import Path
import numpy, pandas, pyarrow.parquet
from tqdm import tqdm
from fastdp.data.readers import read_events
from fastdp_lab.datasets.files import trip_columns
from fastdp_lab.sweeps import load
from fastdp_lab.sweeps.results import merge_parts

tqdm.monitor_interval = 0
schema = pyarrow.parquet.read_schema("merged/parts/a.parquet")
reads = (
    lambda: load("sweep"),
    lambda: merge_parts(Path("merged"), ["a", "b"], schema),
    lambda: trip_columns(Path("trips.parquet")),
    lambda: read_events("trips.parquet", dict.fromkeys(("x", "y", "time", "event"))),
)
control = lambda: pyarrow.parquet.read_table(io.BytesIO(Path("trips.parquet").read_bytes()))
for read in (control,) if "control" in sys.argv else reads:
    before = len(list(Path("/proc/self/task").iterdir()))
    read()
    print(len(list(Path("/proc/self/task").iterdir())) - before, flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="counts threads in /proc")
def test_no_reader_starts_a_thread_of_arrow(tmp_path: Path) -> None:
    """A pool thread that owns a Python file aborts a process that ends."""
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    cells = pyarrow.table({"cell": np.arange(100), "mechanism": ["a"] * 100})
    for name in ("sweep/results", "merged/parts/a", "merged/parts/b"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(cells, tmp_path / f"{name}.parquet")
    (tmp_path / "sweep" / "manifest.json").write_text("{}")
    moments = dict.fromkeys(("time", "tpep_pickup_datetime"), np.arange(100).astype("datetime64[us]"))
    numbers = dict.fromkeys(("x", "y", "trip_distance", "fare_amount"), np.arange(100.0))
    parquet.write_table(pyarrow.table({**numbers, **moments}), tmp_path / "trips.parquet")
    options = {"cwd": tmp_path, "capture_output": True, "text": True, "check": False}
    done = subprocess.run(**python("-c", COUNTING), **options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0"] * 4
    # In a process of its own, which its threads may abort.
    control = subprocess.run(**python("-c", COUNTING, "control"), **options)
    assert int(control.stdout) > 0, "the count can fail"
