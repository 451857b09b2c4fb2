"""The formats that public data sets come in, as the numbers that streams are made of."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fastdp.errors import DataError
from fastdp.files.readers import open_source
from fastdp_lab.datasets.spatial_files import SNAP, read_places

#: Columns of numbers, in file order.
Table = dict[str, NDArray[np.float64]]
CHUNK = 2**16


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines that are not blank, of a text file or a gzip file of one."""
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        # Bytes that are no text are no number either.
        with opened(path, "rt", encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise DataError(f"{path}: not a gzip file, or damaged") from None


def transaction_lengths(path: Path) -> Table:
    """Items per transaction of a file with one transaction a line (FIMI).

    Parameters
    ----------
    path : Path
        Items are whole numbers apart by spaces or commas; a comma at the end is ignored.

    Returns
    -------
    {"values": float64[lines]}
    """
    lengths = []
    for number, line in _lines(path):
        items = line.replace(",", " ").split()
        if not all(item.isdigit() for item in items):
            raise DataError(f"{path}, line {number}: expected whole numbers apart by spaces or commas")
        lengths.append(len(items))
    return {"values": np.array(lengths, np.float64)}


def trip_columns(path: Path) -> Table:
    """Distances and fares of a Parquet file of New York taxi trips, in order of pickup.

    Returns
    -------
    {"distance": float64[n], "fare": float64[n]}
        In 0.01 mile and in cents; trips without one of the two, or with a negative one, are left out.
    """
    order = np.argsort(_pickups(path), kind="stable")
    distance, fare = (np.rint(100.0 * _column(path, name)[order]) for name in ("trip_distance", "fare_amount"))
    kept = (distance >= 0.0) & (fare >= 0.0)
    return {"distance": distance[kept], "fare": fare[kept]}


def _column(path: Path, name: str) -> NDArray[np.float64]:
    with open_source(str(path), name, CHUNK) as source:
        return np.concatenate([np.empty(0), *source.chunks])


def _pickups(path: Path) -> NDArray[np.float64]:
    from fastdp.files.parquet_reader import import_pyarrow, read_table

    arrow = import_pyarrow()
    try:
        column = read_table(path, ["tpep_pickup_datetime"]).column(0)
        moments = column.cast("timestamp[us]").cast("int64")
    except (ValueError, OSError, IndexError, arrow.ArrowException):
        raise DataError(f"{path}: expected a Parquet file with moments in tpep_pickup_datetime") from None
    times: NDArray[np.float64] = moments.to_numpy().astype(np.float64)
    return times


def check_ins(path: Path) -> Table:
    """Check-ins of SNAP's location networks, in order of time.

    Parameters
    ----------
    path : Path
        User, time (2010-10-19T23:55:27Z), latitude, longitude and place, apart by tabs.

    Returns
    -------
    {"t": float64[n], "lat": float64[n], "lon": float64[n]}
        Seconds since 1970, and degrees.
    """
    moments, places = read_places(path, unnamed=SNAP)
    order = np.argsort(moments, kind="stable")
    return {"t": moments[order], "lat": places[order, 1], "lon": places[order, 0]}
