"""Released windows as a data frame of the library that the table came from."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastdp.data.source import import_tables
from fastdp.tables.answers import Answer
from fastdp.tables.calendar import OFFSET
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


def readable(table: Any, family: str) -> Any:
    """The Arrow table with a zone that the family knows: polars has offsets of whole hours only."""
    fixed = OFFSET.fullmatch(table.schema.field(WINDOW).type.tz or "")
    if family != "polars" or not fixed or fixed[3] == "00":
        return table
    _, arrow = import_tables()
    return table.set_column(0, WINDOW, table[WINDOW].cast(arrow.timestamp("us", "UTC")))
