"""Parquet is read by the calling thread alone: a pool thread that owns a Python file aborts a process that ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow")
pytest.importorskip("pyarrow.parquet")

TASKS = Path("/proc/self/task")
#: Threads before and after a reader has read; a pool of Arrow's starts its threads with its first task.
COUNTING = """
import sys
from pathlib import Path
import numpy, pyarrow.parquet
{imports}
def threads():
    return len(list(Path("/proc/self/task").iterdir()))
before = threads()
{read}
print(threads() - before)
"""
READERS = {
    "load": ("import pandas\nfrom fastdp_lab.sweeps import load", "load('sweep')"),
    "merge_parts": (
        "from fastdp_lab.sweeps.results import merge_parts",
        "merge_parts(Path('merged'), ['a', 'b'], pyarrow.parquet.read_schema('merged/parts/a.parquet'))",
    ),
    "trip_columns": ("from fastdp_lab.datasets.files import trip_columns", "trip_columns(Path('trips.parquet'))"),
    "read_events": (
        # The progress bar's own thread is no thread of Arrow.
        "from tqdm import tqdm\ntqdm.monitor_interval = 0\nfrom fastdp.data.readers import read_events",
        "read_events('events.parquet', dict.fromkeys(('x', 'y', 'time', 'event')))",
    ),
    "read_table of Arrow": (
        "import io",
        "pyarrow.parquet.read_table(io.BytesIO(Path('trips.parquet').read_bytes()))",
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep's folder, parts, and files of two columns and more."""
    from fastdp_lab.sweeps.results import MANIFEST, PARTS, RESULTS

    folder = tmp_path_factory.mktemp("parquet")
    cells = pyarrow.table({"cell": np.arange(100), "mechanism": ["a"] * 100})
    for name in ("sweep", "merged"):
        (folder / name / PARTS).mkdir(parents=True)
    pyarrow.parquet.write_table(cells, folder / "sweep" / RESULTS)
    (folder / "sweep" / MANIFEST).write_text("{}")
    for name in ("a", "b"):
        pyarrow.parquet.write_table(cells, folder / "merged" / PARTS / f"{name}.parquet")
    moments = np.arange(100).astype("datetime64[us]")
    numbers = {name: np.arange(100.0) for name in ("x", "y", "trip_distance", "fare_amount")}
    table = {**numbers, "time": moments, "tpep_pickup_datetime": moments}
    for name in ("events", "trips"):
        pyarrow.parquet.write_table(pyarrow.table(table), folder / f"{name}.parquet")
    return folder


@pytest.mark.skipif(not TASKS.exists(), reason="counts threads in /proc")
@pytest.mark.parametrize("name", READERS)
def test_no_reader_starts_a_thread_of_arrow(name: str, files: Path) -> None:
    imports, read = READERS[name]
    script = COUNTING.format(imports=imports, read=read)
    done = subprocess.run([sys.executable, "-c", script], cwd=files, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    started = int(done.stdout)
    # Arrow's usual way starts some: the count can fail.
    assert started > 0 if "Arrow" in name else started == 0
