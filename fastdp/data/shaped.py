"""Numbers of any shape and family as one column, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import as_array, as_column, is_number

Numbers = NDArray[Any]
Back = Callable[[Numbers], Any]


def as_shaped(values: Any, name: str) -> tuple[Numbers, Back]:
    """The numbers in one column, and what gives as many numbers the form that the values had.

    Parameters
    ----------
    values : number or array-like
        A number, a NumPy array of any shape, (nested) lists, a pandas or polars series or frame, an Arrow array or
        table, or what else :func:`~fastdp.data.column.as_column` takes.
    name : str
        The argument's name, for messages.

    Returns
    -------
    column : array, one-dimensional
        Of a real dtype; integers only where all numbers are integers.
    back : callable
        To a Python number, pandas, polars or pyarrow for what came from there, else to a NumPy array.

    Raises
    ------
    DataError
        If these are no real numbers.
    """
    if is_number(values):
        return as_column([values], name), lambda out: out.reshape(-1)[0].item()
    homes = {base.__module__.partition(".")[0] for base in type(values).__mro__}
    if "pandas" in homes:
        return _from_pandas(values, name)
    if "polars" in homes:
        return _from_polars(values, name)
    if "pyarrow" in homes:
        return _from_arrow(values, name)
    if isinstance(values, np.ndarray) and values.ndim == 0:
        return as_column(values.reshape(1), name), lambda out: out.reshape(())
    nested = isinstance(values, np.ndarray) or (
        isinstance(values, (list, tuple)) and any(isinstance(entry, (list, tuple, np.ndarray)) for entry in values)
    )
    array = as_array(values) if nested and not isinstance(values, np.ndarray) else values
    if not nested or array is None:
        return as_column(values, name), lambda out: out
    return as_column(array.reshape(-1), name), lambda out: out.reshape(array.shape)


def _joined(columns: list[Numbers]) -> Numbers:
    """Rows one after another."""
    return np.column_stack(columns).reshape(-1) if columns else np.empty(0)


def _from_pandas(values: Any, name: str) -> tuple[Numbers, Back]:
    import pandas as pd

    if isinstance(values, pd.DataFrame):
        columns = [as_column(values.iloc[:, i], f"{name}.iloc[:, {i}]") for i in range(values.shape[1])]
        return _joined(columns), lambda out: pd.DataFrame(
            out.reshape(values.shape), index=values.index, columns=values.columns
        )
    column = as_column(values, name)
    if not isinstance(values, pd.Series):
        return column, lambda out: out
    return column, lambda out: pd.Series(out, index=values.index, name=values.name)


def _from_polars(values: Any, name: str) -> tuple[Numbers, Back]:
    import polars as pl

    if isinstance(values, pl.DataFrame):
        columns = [as_column(column, f"{name}[:, {i}]") for i, column in enumerate(values.get_columns())]
        return _joined(columns), lambda out: pl.DataFrame(
            out.reshape(values.shape), schema=values.columns, orient="row"
        )
    return as_column(values, name), lambda out: pl.Series(values.name, out)


def _from_arrow(values: Any, name: str) -> tuple[Numbers, Back]:
    import pyarrow as pa

    if isinstance(values, (pa.Table, pa.RecordBatch)):
        columns = [as_column(column, f"{name}.column({i})") for i, column in enumerate(values.columns)]
        names = values.schema.names
        return _joined(columns), lambda out: pa.Table.from_arrays(
            list(map(pa.array, np.ascontiguousarray(out.reshape(values.shape).T))), names=names
        )
    return as_column(values, name), lambda out: pa.array(out)
