"""Rows for tests of tables, as every family holds them, and the oracle's answer."""

from __future__ import annotations

import hashlib
import math
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tests.oracles import tables, words

SECRET = bytes(range(32))
NAMES = ("at", "meter", "kwh", "person")
FAMILIES = ("pandas", "polars", "lazy", "pyarrow", "duckdb", "reader", "dataset", "parquet", "csv")


def random_rows(n: int, seed: int, begin: str = "2024-03-29", days: int = 4) -> list[tuple]:
    """Rows in no order: naive times, one of four meters, values around 1 with some below 0, one of 12 persons."""
    generator = np.random.default_rng(seed)
    first = datetime.fromisoformat(begin)
    seconds = generator.integers(0, days * 86_400, n).tolist()
    meters, persons = generator.choice(list("abcd"), n).tolist(), generator.integers(0, 12, n).tolist()
    values = np.round(generator.normal(1.0, 1.0, n), 3).tolist()
    return [(first + timedelta(seconds=s), *rest) for s, *rest in zip(seconds, meters, values, persons, strict=True)]


def as_family(rows: list[tuple], family: str, folder: Path) -> Any:
    """The rows as a table of a family."""
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.dataset
    import pyarrow.parquet

    columns = {name: [row[i] for row in rows] for i, name in enumerate(NAMES)}
    types = [pa.timestamp("us"), pa.string(), pa.float64(), pa.int64()]
    if rows and rows[0][0].tzinfo is not None:
        types[0] = pa.timestamp("us", str(rows[0][0].tzinfo))
    table = pa.table([pa.array(columns[name], kind) for name, kind in zip(NAMES, types, strict=True)], list(NAMES))
    if family == "pandas":
        return table.to_pandas()
    if family in ("polars", "lazy"):
        frame = pl.from_arrow(table)
        return frame.lazy() if family == "lazy" else frame
    if family == "duckdb":
        return duckdb.connect().from_arrow(table)
    if family == "reader":
        return table.to_reader(max_chunksize=7)
    if family == "dataset":
        return pyarrow.dataset.dataset(table)
    if family == "parquet":
        pyarrow.parquet.write_table(table, folder / "rows.parquet", row_group_size=50)
        return folder / "rows.parquet"
    if family == "csv":
        pyarrow.csv.write_csv(table, folder / "rows.csv")
        return str(folder / "rows.csv")
    assert family == "pyarrow"
    assert isinstance(table.to_pandas(), pd.DataFrame)
    return table


def composition(**given: Any) -> dict[str, Any]:
    """Inputs of the noise key, with the defaults of a count."""
    base = {
        "statistics": [["count", -1]],
        "columns": [],
        "period": None,
        "delta": 0.0,
        "by": [],
        "key_rule": "none",
        "share": None,
        "levels": False,
        "contributions": 1,
        "per_window": None,
        "who": False,
        "noise": "laplace",
    }
    return base | given


def below(share: Fraction) -> float:
    """The largest float that is no larger."""
    found = float(share)
    return found if Fraction(found) <= share else math.nextafter(found, 0.0)


def column(low: float, high: float, *, chooses: bool = False, resolution: float | None = None) -> list[Any]:
    """A column of values, for :func:`composition`."""
    return [low, high, chooses, 1.0, "raise", resolution]


def expected(
    rows: list[tuple],
    *,
    every: str,
    borders: tuple[int, int],
    span: tuple[int, int],
    zone: str | None,
    epsilon: float,
    keys: list[tuple] | None = None,
    sums: list[tuple] = (),
    scales: list[Fraction] = (),
    secret: bytes = SECRET,
    period: tuple[str, int, int] | None = None,
    per_window: int | None = None,
    contributions: int = 1,
    start: bool = True,
    places: dict[str, int] | None = None,
    **composed: Any,
) -> dict[str, list[list[int]]]:
    """Noisy steps of each quantity by the oracle.

    ``borders`` are those of windows 0 and 1, ``span`` the numbers of the first window and the one behind the last;
    ``sums`` names each quantity with low, high, centre, grid, resolution and epsilon; ``places`` says which of a
    row's values it is of, where rows have several.
    """
    begin = borders[0] + span[0] * (borders[1] - borders[0])
    shown = tables.rules(zone, begin if start else None)
    parameters = composition(
        every=[every, shown, *borders],
        epsilon=epsilon,
        keys=hashlib.sha256(repr(keys or []).encode()).digest(),
        start=span[0] if start else None,
        period=None if period is None else [period[0], shown, *period[1:]],
        per_window=per_window,
        contributions=contributions,
        **composed,
    )
    own = words.bound(secret, "TablePlan", 2, parameters)
    of_keys = [(at, (key,) if keys else (), *rest) for at, key, *rest in rows if keys is None or (key,) in keys]
    if composed.get("who"):
        chosen = [r for r in of_keys if span[0] <= tables.window(tables.instant(r[0], zone), every, zone) < span[1]]
        length = period[0] if period else None
        valued = bool(composed.get("columns"))
        of_keys = tables.bounded(chosen, every, zone, contributions, length, per_window, own, valued)
    of_keys = [row[:3] for row in of_keys]
    found = []
    for name, low, high, centre, grid, resolution, _ in sums:

        def step_of(value: float, name=name, low=low, high=high, centre=centre, grid=grid, step=resolution) -> int:
            if name == "count":
                return 1
            value = value[(places or {})[name]] if isinstance(value, tuple) else value
            moved = tables.steps(value, grid, low, high) - centre
            return round(Fraction(moved) ** 2 * Fraction(grid) ** 2 / Fraction(step)) if name == "square" else moved

        found.append(tables.exact_sums(of_keys, every, zone, keys or [()], *span, step_of))
    noisy = tables.noisy(found, own, sums, span[0], keys or [()], scales)
    return {labels[0]: each for labels, each in zip(sums, noisy, strict=True)}
