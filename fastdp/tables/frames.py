"""Released windows as a data frame of the library that the table came from."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastdp.tables.answers import Answer
<<<<<<< HEAD
from fastdp.tables.source import import_tables
=======
from fastdp.tables.calendar import OFFSET
>>>>>>> wt-rev-tables
from fastdp.tables.sums import WindowSums

WINDOW = "window"
#: Name of the metadata in Parquet's schema and in an npz archive.
METADATA = "fastdp"
#: What follows the window and the keys.
EXACT, REVISED = ("estimate", "std_error", "low", "high"), ("revised", "revised_low", "revised_high")


def arrow_table(sums: WindowSums, exact: Answer, revised: Answer) -> Any:
    """One row a window and key, windows in order and the keys of each together.

    Parameters
    ----------
    sums : WindowSums
        Gives windows and keys.
    exact, revised : Answer
        Of each window by itself: float64[W, K].

    Returns
    -------
    pyarrow.Table
        ``window`` (its start; with the time zone, if there is one), the keys, ``estimate``, ``std_error``, ``low``,
        ``high``, ``revised``, ``revised_low``, ``revised_high``; of means also ``total`` and ``count``.
    """
    _, arrow = import_tables()
    windows, keys = exact.estimate.shape
    starts = arrow.array(np.repeat(sums.edges[:-1], keys), arrow.timestamp("us", sums.time_zone))
    numbers = {name: getattr(exact, name) for name in EXACT}
    numbers |= dict(zip(REVISED, (revised.estimate, revised.low, revised.high), strict=True))
    if sums.kind == "means":
        count = sums.columns["count"].values
        numbers |= {"total": sums.columns["deviation"].values + sums.centre * count, "count": count}
    place = arrow.array(np.tile(np.arange(keys), windows))
    columns = {WINDOW: starts}
    for name, values in sums.keys.items():
        # A key column may have the name of one of ours.
        shown = name
        while shown in (WINDOW, METADATA, *numbers) or (shown != name and shown in sums.keys):
            shown += "_key"
        columns[shown] = arrow.array(values).take(place)
    return arrow.table(columns | {name: arrow.array(array.ravel()) for name, array in numbers.items()})
<<<<<<< HEAD
=======


def in_family(table: Any, family: str) -> Any:
    """The Arrow table as a pandas or polars data frame, a DuckDB relation, or as it is."""
    if family == "pandas":
        return table.to_pandas()
    if family == "polars":
        kind = table.schema.field(WINDOW).type
        fixed = OFFSET.fullmatch(kind.tz or "")
        if fixed and fixed[3] != "00":
            # Polars knows offsets of whole hours only.
            table = table.set_column(0, WINDOW, table[WINDOW].cast(import_arrow().timestamp("us", "UTC")))
        return importlib.import_module("polars").from_arrow(table)
    if family == "duckdb":
        return importlib.import_module("duckdb").from_arrow(table)
    return table
>>>>>>> wt-rev-tables
