"""Fuzzing targets by name: a function of bytes, and a few well-formed inputs to begin with."""

import contextlib
import copy
import gzip
import io
import json
import os
import struct
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

import fastdp
from fastdp import local
from fastdp.data.events import open_events
from fastdp.data.files import live_numbers, read_numbers
from fastdp.errors import DataError, FastDPError, StateError
from fastdp.local import encoding
from fastdp.local.mechanisms import Mechanism
from fastdp.noise.key import Key, read_key
from fastdp.state import driver
from fastdp.state.codec import encode
from fastdp.state.state_file import MAGIC, StateFile
from fastdp_lab.sweeps.specification import read_specification

#: Ends that are meant to be read: one line each.
CLEAN = (FastDPError, OSError)
COLUMNS = (None, "0", "1", "x", "")
KEY = bytes(range(32))


@dataclass(frozen=True)
class Target:
    """One reader."""

    run: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]


class LawBrokenError(AssertionError):
    """The reader gave an answer, and it is wrong."""


@lru_cache(maxsize=1)
def scratch() -> Path:
    """A folder of one's own, where TMPDIR says."""
    return Path(tempfile.mkdtemp(prefix="fastdp-fuzz-"))


@contextlib.contextmanager
def clean_ends() -> Iterator[None]:
    """Errors for users pass if they are one line."""
    try:
        yield
    except CLEAN as error:
        if "\n" in str(error):
            raise LawBrokenError(f"a message of several lines: {error!r}") from error


def _read(path: str, column: str | None) -> np.ndarray | None:
    """Content of a source; None if it ends in an error."""
    with contextlib.suppress(*CLEAN), clean_ends():
        values: np.ndarray = read_numbers(path, column)
        if values.dtype.kind not in "biuf" or values.ndim != 1:
            raise LawBrokenError(f"values of {values.dtype}{values.shape}")
        return values
    return None


def _file_reader(suffix: str) -> Callable[[bytes], None]:
    def run(data: bytes) -> None:
        path = scratch() / f"in{suffix}"
        column = COLUMNS[data[0] % len(COLUMNS)] if data else None
        body = data[1:]
        path.write_bytes(gzip.compress(body, 1) if suffix.endswith(".gz") and data and data[0] & 64 else body)
        whole = _read(str(path), column)
        if suffix == ".csv" and whole is not None:
            # Neither the values nor whether there is an error may depend on how lines arrive.
            lines = live_numbers(io.BufferedReader(io.BytesIO(body), 16), column)  # type: ignore[arg-type]
            if not np.array_equal(np.concatenate([np.empty(0), *lines]), whole, equal_nan=True):
                raise LawBrokenError("a live pipe has other values")

    return run


def _standard_input(data: bytes) -> None:
    before = sys.stdin
    try:
        sys.stdin = io.TextIOWrapper(io.BufferedReader(io.BytesIO(data[1:])))  # type: ignore[arg-type]
        _read("-", COLUMNS[data[0] % len(COLUMNS)] if data else None)
    finally:
        sys.stdin = before


TEXTS = [
    b"\x00x\n1\n2\n3.5\n",
    b"\x03x,y\n1,2\n3,4\n",
    b'\x03"x";"y"\n"1";"2"\n\n3;\n',
    b"\x001\n\n nan\n-inf\n1e400\n1_0\n",
    b'\x03\xef\xbb\xbfx\ty\r\n1\t"a\nb"\r\n',
]


def _arrays() -> list[bytes]:
    named = np.zeros(3, [("x", "<f4"), ("y", ">i8")])
    made: list[np.ndarray] = [
        np.arange(5.0), np.arange(6).reshape(3, 2), np.asfortranarray(np.ones((3, 2))), named,
        np.array([True, False]), np.array(["a"]), np.zeros((2, 0)), np.array(3.0),
    ]  # fmt: skip
    texts = []
    for array in made:
        buffer = io.BytesIO()
        np.save(buffer, array)
        texts.append(b"\x01" + buffer.getvalue())
    return texts


def _tables() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = []
    for columns in ({"x": [1.0, None, 3.0]}, {"x": [1, 2], "y": ["a", "b"]}, {"x": [[1.0], []]}, {"t": [True, None]}):
        for codec in ("none", "snappy"):
            buffer = io.BytesIO()
            pq.write_table(pa.table(columns), buffer, compression=codec)
            texts.append(b"\x03" + buffer.getvalue())
    return texts


def _events(data: bytes) -> None:
    flags = data[0] if data else 0
    suffix = ".parquet" if flags & 128 else ".csv"
    path = scratch() / f"events{suffix}"
    path.write_bytes(data[1:])
    columns: dict[str, str | None] = {"event": "2" if flags & 1 else None}
    if flags & 2:
        columns |= {"x": "0", "y": "1"}
    with clean_ends(), contextlib.suppress(*CLEAN):
        unit = "s" if flags & 8 else None
        events = open_events(path, **columns, timed=bool(flags & 4), unit=unit).read()  # type: ignore[arg-type]
        n = len(events.points)
        shapes_fit = events.points.shape == (n, 2) and events.additions.shape == (n,)
        if not shapes_fit or not np.isfinite(events.points).all():
            raise LawBrokenError("points that are no points")
        if events.times is not None and (events.times.shape != (n,) or events.times.dtype != np.int64):
            raise LawBrokenError("times that are no times")


def _event_seeds() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    buffer = io.BytesIO()
    moments = np.array(["2014-04-01T00:11:00", "2014-04-02"], "datetime64[us]")
    pq.write_table(pa.table({"lon": [1.0, 2.0], "lat": [3.0, 4.0], "time": moments}), buffer)
    return [
        b"\x04x,y,time\n1,2,3\n4,5,6\n",
        b"\x04lon,lat,t,event\n1,2,2014-04-01T00:11:00,1\n3,4,2014-04-01T00:12:00Z,-1\n",
        b"\x0cx;y;timestamp\n1;2;4/1/2014 0:11:00\n1;2;4/1/2014 0:10:00\n",
        b"\x061,2,3\n4,5,6\n",
        b"\x84" + buffer.getvalue(),
    ]


def _mechanisms() -> list[Mechanism]:
    kinds = (local.SquareWave, local.StochasticRounding, local.Piecewise, local.Hybrid)
    return [kind(1.0, 0.0, 50.0) for kind in kinds]


def _with_checksum(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


def _reports(data: bytes) -> None:
    """Messages and collectors, as they come and with a checksum that fits."""
    if not data:
        return
    buffer = _with_checksum(data[1:]) if data[0] & 1 else data[1:]
    with contextlib.suppress(DataError):
        message = encoding.decode(buffer)
        if message.mechanism is not None and message.size > len(buffer):
            raise LawBrokenError("a message longer than its buffer")
    mechanism = _mechanisms()[data[0] >> 1 & 3]
    collector = _collector(mechanism)
    before = collector.n_reports
    if collector.receive(buffer) != collector.n_reports - before:
        raise LawBrokenError("reports counted and reports collected differ")
    with contextlib.suppress(StateError):
        again = type(collector).from_bytes(buffer)
        if again.n_reports < 0 or type(again).from_bytes(again.to_bytes()).n_reports != again.n_reports:
            raise LawBrokenError("a collector that does not survive its own bytes")


def _collector(mechanism: Mechanism) -> local.HistogramCollector | local.SumCollector:
    if isinstance(mechanism, local.SquareWave):
        return local.HistogramCollector(mechanism, 8)
    return local.SumCollector(mechanism, 4)


def _report_seeds() -> list[bytes]:
    texts = []
    for number, mechanism in enumerate(_mechanisms()):
        message = encoding.encode(mechanism, np.arange(4) % mechanism.n_outputs)
        collector = _collector(mechanism)
        collector.receive(message)
        texts += [bytes([number << 1 | 1]) + message[:-4], bytes([number << 1]) + message + message]
        texts.append(bytes([number << 1]) + collector.to_bytes())
    return texts


def _states(data: bytes) -> None:
    """Files as they come, and authentic files with any content."""
    path = scratch() / "state"
    path.unlink(missing_ok=True)
    if not data:
        return
    key = KEY if data[0] & 2 else None
    if data[0] & 1:
        StateFile(path, key).write(data[1:], None)
    else:
        path.write_bytes(data[1:])
    for kind in (fastdp.StreamPublisher, fastdp.ToPS, fastdp.PAK):
        for replay in (False, True):
            with clean_ends():
                publisher = kind.load(path, key, replay=replay, moved=True)
                if not replay:
                    with contextlib.suppress(FastDPError):
                        publisher.publish(np.ones(3))
                    if kind.from_bytes(publisher.to_bytes(key), key).n_seen != publisher.n_seen:
                        raise LawBrokenError("a state that does not survive its own bytes")


def _state_seeds() -> list[bytes]:
    publishers = [
        fastdp.ToPS(0.5, 200.0, 20, 64, seed=1),
        fastdp.ToPS(0.5, 200.0, 20, 64, prune=0, seed=1),
        fastdp.PAK(0.5, 1e-6, 200.0, 4096, holdout=20, seed=1),
    ]
    texts = []
    for number, publisher in enumerate(publishers):
        for count in (10, 50):
            path = scratch() / f"seed-{number}-{count}"
            kept = copy.copy(publisher)
            kept.keep(path)
            kept.publish(np.arange(float(count)))
            texts += [b"\x01" + encode(driver.read_file(StateFile(path))[0]), b"\x00" + path.read_bytes()]
    return texts


def _specifications(data: bytes) -> None:
    path = scratch() / "sweep.toml"
    path.write_bytes(data)
    with clean_ends():
        specification = read_specification(path)
        json.dumps(specification.table(), default=list)


def _specification_seeds() -> list[bytes]:
    folder = Path(__file__).resolve().parents[1] / "paper"
    return [path.read_bytes() for path in sorted(folder.glob("*.toml"))]


def _keys(data: bytes) -> None:
    path = scratch() / "key"
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_CREAT, 0o600))
    path.write_bytes(data)
    with clean_ends():
        if not isinstance(read_key(path), Key):
            raise LawBrokenError("a key that is no key")


TARGETS = {
    "csv": Target(_file_reader(".csv"), lambda: TEXTS),
    "csv-gz": Target(
        _file_reader(".csv.gz"), lambda: [b"C" + text[1:] for text in TEXTS] + [b"\0" + gzip.compress(b"1\n")]
    ),
    "stdin": Target(_standard_input, lambda: TEXTS),
    "npy": Target(_file_reader(".npy"), _arrays),
    "parquet": Target(_file_reader(".parquet"), _tables),
    "events": Target(_events, _event_seeds),
    "reports": Target(_reports, _report_seeds),
    "states": Target(_states, _state_seeds),
    "sweeps": Target(_specifications, _specification_seeds),
    "keys": Target(_keys, lambda: [bytes(32), b"0f" * 32 + b"\n", MAGIC]),
}
