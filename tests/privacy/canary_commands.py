"""Every command that reads data, on files of every kind that it refuses, each with the canary in it."""

from __future__ import annotations

import contextlib
import gzip
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from fastdp.cli import main
from fastdp.streams import METHODS
from tests.privacy import canary
from tests.privacy.canary import CANARY, LONG, TEXT, WHOLE
from tests.shared import piped, usual_arguments

Case = tuple[str, Callable[[], Any]]

#: Lines of numbers that are none.
TEXTS: dict[str, str | bytes] = {
    "no number": f"1\n2\n{TEXT}\n4\n",
    "no number in a named column": f"fare\n1\n{TEXT}\n",
    "no number below a cell for a heading": f"{TEXT}\n1\nnope\n4\n",
    "long text": f"1\n2\n{LONG}\n",
    "quoted": f'"1"\n"{TEXT}"\n',
    "NaN beside it": f"1\n2\n{CANARY}\nnan\n4\n",
    "infinity beside it": f"1\n2\n{CANARY}\ninf\n4\n",
    "missing beside it": f"1\n2\n{CANARY}\n\n4\n",
    "two columns": f"{CANARY},1\n2,3\n",
    "two columns below cells": f"{TEXT},{TEXT}y\n1,2\n",
    "two columns, tabs": f"{TEXT}\t{CANARY}\n1\t2\n",
    "a cell too many": f"1\n2,{CANARY}\n",
    "open quote": f'1\n2\n"{TEXT}\n1\n',
    "no UTF-8": b"1\n2\n\xff" + TEXT.encode() + b"\n",
    "zero bytes": TEXT.encode() + b"\0\n1\n",
    "zero bytes later": b"1\n2\n" + TEXT.encode() + b"\0\n",
    "underscores": f"1\n2\n{WHOLE:_}\n",
    "commas": f'1\n2\n"{WHOLE:,}"\n',
    "a cell too long": f"1\n2\n{TEXT * 20_000},\n",
    "a quoted cell too long": f'1\n2\n"{TEXT * 20_000}"\n',
    "within the hold-out": f"{CANARY}\n",
}


def _arrays() -> dict[str, np.ndarray]:
    """Files have no masks, and single numbers are columns in them."""
    found = {name: bad for name, bad in canary.columns().items() if type(bad) is np.ndarray and bad.ndim == 1}
    matrices = {"columns": np.full((3, 2), CANARY), "cube": np.full((3, 1, 1), CANARY)}
    return {**found, **matrices, "within the hold-out": np.array([CANARY])}


def _tables() -> dict[str, pa.Table]:
    found = {name: pa.table({"v": bad}) for name, bad in canary.columns().items() if isinstance(bad, pa.Array)}
    more = {"moments": pa.array([WHOLE], pa.timestamp("s")), "within the hold-out": [CANARY], "lists": [[CANARY]]}
    tables = {name: pa.table({"v": bad}) for name, bad in more.items()}
    return {**found, **tables, "two columns": pa.table({"a": [CANARY], "b": [CANARY]})}


def _saved(write: Callable[..., Any], *content: Any, **named: Any) -> bytes:
    file = io.BytesIO()
    write(file, *content, **named)
    return file.getvalue()


def _raw(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def value_files(folder: Path) -> dict[str, Path]:
    """Files of values by kind and fault."""
    numbers = np.array([1.0, 2.0, *[CANARY] * 500])
    npy = {name: _saved(np.save, array) for name, array in _arrays().items()}
    parquet = {name: _written(table) for name, table in _tables().items()}
    whole = {".npy": _saved(np.save, numbers)}
    whole[".parquet"] = _written(pa.table({"v": numbers}), compression="none", use_dictionary=False)
    found = {".npy": npy, ".parquet": parquet}
    for suffix, raw in whole.items():
        # NumPy quotes a header that it cannot read: 10 bytes of magic and length, then 118 of text.
        told = f"{{'descr': '{TEXT}', 'fortran_order': False, 'shape': (502,), }}".ljust(117).encode() + b"\n"
        found[suffix] |= {
            "text": TEXT.encode() * 99,
            "cut short": raw[: len(raw) * 2 // 3],
            "short text": TEXT.encode(),
        }
        # What Arrow reads first is at the end; a page's bytes have no checksum.
        half = len(raw) - 60 if suffix == ".parquet" else len(raw) // 2
        altered = (
            raw[:10] + told + raw[128:] if suffix == ".npy" else raw[:half] + TEXT.encode() + raw[half + len(TEXT) :]
        )
        found[suffix] |= {"altered": altered}
    for suffix in (".csv", ".txt"):
        found[suffix] = {name: _raw(content) for name, content in TEXTS.items()}
        packed = {name: gzip.compress(content) for name, content in found[suffix].items()}
        cut = gzip.compress(TEXT.encode() * 999)
        packed |= {"no gzip": TEXT.encode() * 9, "cut short": cut[:-9], "altered": cut[:12] + b"73" + cut[14:]}
        found[suffix + ".gz"] = packed
    paths = {}
    for suffix, contents in found.items():
        for number, (name, content) in enumerate(contents.items()):
            path = folder / f"in{number}{suffix}"
            path.write_bytes(content)
            paths[f"{suffix}, {name}"] = path
    return paths


def _written(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def typed(*arguments: object, stdin: bytes | None = None) -> Callable[[], None]:
    """A command, run in this process; what it says is printed, and its failure raised."""

    def call() -> None:
        result = CliRunner().invoke(main, [str(each) for each in arguments], input=piped(stdin))
        # Where the witness looks.
        print(result.output, result.stderr)
        if result.exit_code and result.exception is not None:
            raise result.exception

    return call


def release_cases(folder: Path) -> Iterator[Case]:
    common = ["--epsilon", 1, "--bound", 1e7, "--holdout", 2, "--seed", 1]
    paths = value_files(folder)
    for method in METHODS:
        given = ["--method", method, *common]
        for name, value in usual_arguments(method).items():
            given += [f"--{name.replace('_', '-')}", value]
        for name, path in paths.items():
            yield f"release --method {method}: {name}", typed("release", path, "-o", folder / "out.csv", *given)
        for name, content in TEXTS.items():
            call = typed("release", "-", "-o", "-", *given, stdin=_raw(content))
            yield f"release --method {method} from standard input: {name}", call
    # With a state file, and with a ledger.
    kept = [folder / "kept.csv", "-o", "-", "--state", folder / "kept", "--key-file", folder / "key"]
    command = typed("release", *kept, "--max-range", 4, *common[:6])
    yield "release --state: altered input", lambda: _twice(folder / "kept.csv", command)
    spending = ["--ledger", folder / "ledger", "--limit", 9, "--stream", "meters"]
    for name in (".csv, no number", ".npy, float32"):
        yield (
            f"release --ledger: {name}",
            typed("release", paths[name], "-o", "-", "--max-range", 4, *common[:6], *spending),
        )


def _twice(path: Path, command: Callable[[], None]) -> None:
    (path.parent / "key").write_bytes(bytes(range(32)))
    (path.parent / "key").chmod(0o600)
    path.write_text("1\n2\n3\n4\n5\n")
    with contextlib.suppress(SystemExit):
        command()
    path.write_text(f"1\n2\n{CANARY}\n4\n5\n")
    command()


EVENTS: dict[str, str | bytes] = {
    "outside": f"x,y\n0.5,{CANARY}\n",
    "no number": f"x,y\n0.5,{TEXT}\n",
    "NaN beside it": f"x,y\n{CANARY},nan\n",
    "missing beside it": f"x,y\n{CANARY},\n",
    "wrong event": f"x,y,event\n0.5,0.5,{CANARY}\n",
    "no heading": f"{TEXT},{TEXT}\n0.5,0.5\n",
    "no heading but numbers": f"{CANARY},{CANARY}\n0.5,0.5\n",
    "other columns": f"{TEXT},b\n0.5,0.5\n",
    "short row": f"x,y\n{CANARY}\n",
    "no UTF-8": b"x,y\n0.5,\xff" + TEXT.encode() + b"\n",
    "zero bytes": b"x,y\n0.5,\0" + TEXT.encode() + b"\n",
    "open quote": f'x,y\n0.5,"{TEXT}\n',
    "empty": "x,y\n",
}
TIMED: dict[str, str | bytes] = {
    "unsorted": f"time,x,y\n{CANARY},0.5,0.5\n1,0.5,0.5\n",
    "no time": f"time,x,y\n2014-04-01T00:11:00,0.5,0.5\n{TEXT},0.5,0.5\n",
    "no time at first": f"time,x,y\n{TEXT},0.5,0.5\n",
    "no American time": f"time,x,y\n4/1/2014 0:11:00,0.5,0.5\n{TEXT}/1,0.5,0.5\n",
    "far times": f"time,x,y\n1,0.5,0.5\n{CANARY}e99,0.5,0.5\n",
}


def synthesize_cases(folder: Path) -> Iterator[Case]:
    usual = ["--epsilon", 1, "--box", 0, 0, 1, 1, "--seed", 1, "-o", folder / "points"]
    for contents, cut in ((EVENTS, ["--batch", 1]), (TIMED, ["--batch", "1s", "--time-unit", "s"])):
        for number, (name, content) in enumerate(contents.items()):
            for suffix in (".csv", ".txt", ".csv.gz"):
                path = folder / f"events{number}{cut[0]}{suffix}"
                path.write_bytes(gzip.compress(_raw(content)) if suffix.endswith("gz") else _raw(content))
                yield f"synthesize: {suffix}, {name}", typed("synthesize", path, *cut, *usual)
    tables = {
        "outside": {"x": [0.5], "y": [CANARY]},
        "texts": {"x": ["0.5"], "y": [TEXT]},
        "missing beside it": {"x": [CANARY], "y": [None]},
        "other columns": {"a": [CANARY], "b": [CANARY]},
        "wrong event": {"x": [0.5], "y": [0.5], "event": [CANARY]},
        "texts as times": {"x": [0.5], "y": [0.5], "time": [TEXT]},
        "missing times": {"x": [0.5], "y": [0.5], "time": pa.array([None], pa.timestamp("s"))},
    }
    for number, (name, table) in enumerate(tables.items()):
        path = folder / f"events{number}.parquet"
        pq.write_table(pa.table(table), path)
        cut = ["--batch", "1s"] if "times" in name else ["--batch", 1]
        yield f"synthesize: .parquet, {name}", typed("synthesize", path, *cut, *usual)
    for name, suffix in (("no Parquet", ".parquet"), ("no gzip", ".csv.gz")):
        (folder / f"text{suffix}").write_text(TEXT * 99)
        yield f"synthesize: {name}", typed("synthesize", folder / f"text{suffix}", "--batch", 1, *usual)


SWEEP = """
name = "canary"
epsilons = [1.0]
repetitions = 1
holdout = 2
max_range = 4
[[datasets]]
name = "secret"
file = "{path}"
{more}
[[mechanisms]]
name = "it"
system = "{system}"
"""


def sweep_cases(folder: Path) -> Iterator[Case]:
    """Sweeps whose data set is refused, and pictures and downloads of files that are."""
    paths, threads = value_files(folder), ("--mode", "threads")
    for number, (name, path) in enumerate(paths.items()):
        specification = folder / f"sweep{number}.toml"
        specification.write_text(SWEEP.format(path=path, more="bound = 1e7", system="tops"))
        yield f"sweep: {name}", typed("bench", specification, "-o", folder / f"sweep{number}", *threads)
        yield f"sweep --dry-run: {name}", typed("bench", specification, "--dry-run")
    points = {
        "circles": (f"x,y,move\n0.5,{CANARY},1\n", f"x,y,move\n0.5,0.5,{CANARY}\n", f"x,y,move\n0.5,{TEXT},1\n"),
        "pickups": (f"t,lat,lon\n{TEXT},1,2\n", f"t,lat,lon\n1,{TEXT},2\n", f"{TEXT},{CANARY}\n1,2\n"),
        "gowalla": (f"1\t{TEXT}\t1\t2\t3\n", f"1\t2010-10-19T23:55:27Z\t{TEXT}\t2\t3\n"),
    }
    for kind, contents in points.items():
        for number, content in enumerate(contents):
            path, specification = folder / f"{kind}{number}.csv", folder / f"{kind}{number}.toml"
            path.write_text(content)
            more = f'format = "{kind}"\nbatch = 1'
            specification.write_text(SWEEP.format(path=path, more=more, system="phdstream"))
            yield f"sweep: {kind} {number}", typed("bench", specification, "-o", folder / f"{kind}{number}", *threads)
    for name, manifest, results in (("text", TEXT, TEXT), ("damaged results", "{}", TEXT * 99)):
        home = folder / f"plot {name}"
        home.mkdir()
        (home / "manifest.json").write_text(manifest)
        (home / "results.parquet").write_text(results)
        yield f"plot: {name}", typed("plot", home)
    for name, file, content in (
        ("kosarak", "kosarak.dat.gz", gzip.compress(f"1 {TEXT}\n".encode())),
        ("kosarak", "kosarak.dat.gz", TEXT.encode()),
        ("pos", "BMS-POS.csv", f"1,{TEXT}\n".encode()),
        ("gowalla", "loc-gowalla_totalCheckins.txt.gz", gzip.compress(f"1\t{TEXT}\t1\t2\t3\n".encode())),
        ("taxi", "yellow_tripdata_2019-01.parquet", _written(pa.table({"tpep_pickup_datetime": [TEXT]}))),
    ):
        home = folder / f"data {name} {len(content)}"
        home.mkdir()
        (home / file).write_bytes(content)
        yield f"datasets: {name}, {len(content)} bytes", typed("datasets", "--download", name, "-o", home)


def all_cases(folder: Path) -> Iterator[Case]:
    for name, cases in (("release", release_cases), ("synthesize", synthesize_cases), ("sweep", sweep_cases)):
        (folder / name).mkdir()
        yield from cases(folder / name)
