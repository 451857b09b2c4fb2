"""Exact noise in DuckDB's SQL, for numbers that a query has aggregated."""

from __future__ import annotations

import threading
from typing import Any, Literal, get_args

from fastdp import validation
from fastdp._lazy import imported
from fastdp.data.column import as_column
from fastdp.errors import BudgetError, ParameterError
from fastdp.guarantee import Account, Guarantee, charge
from fastdp.noise.key import Key
from fastdp.streams.add_noise import VectorNoise
from fastdp.validation import refusal

Kind = Literal["BIGINT", "DOUBLE"]


def register(
    connection: Any,
    name: str,
    *,
    sensitivity: float,
    epsilon: float,
    rows: int,
    kind: Kind = "BIGINT",
    resolution: float | None = None,
    ledger: Account | None = None,
    stream: str | None = None,
) -> Guarantee:
    """Register a SQL function that adds exact Laplace noise to a column, for one release.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
        Connection in which the function is registered.
    name : str
        SQL name: ``SELECT station, private_count(count(*)) FROM trips GROUP BY station``.
    sensitivity : float
        Largest change (L1) by one contribution of all values together that the function receives, in their units; of
        groups that share no contribution, one group's.
    epsilon : float
        Privacy loss of everything that the function returns.
    rows : int
        Most values (not groups) accepted over all queries; public.
    kind : "BIGINT" or "DOUBLE"
        Type of column and result.  Sums of integers are HUGEINT in DuckDB: ``sum(x)::BIGINT``.
    resolution : float, optional
        Only for DOUBLE, as for :func:`fastdp.add_noise`.
    ledger, stream : Ledger and str, optional
        Ledger that records the loss, now; and the name of the queried data.

    Returns
    -------
    Guarantee
        Of all answers together.

    Raises
    ------
    ParameterError, BudgetError
        Nothing is registered then; in a query, errors are DuckDB's.

    Notes
    -----
    A relation fetched twice is evaluated twice.  NULL stays NULL, so whether a group has a value is public; NaN and
    infinity are refused.
    """
    told = "pyarrow is not installed: expected it beside DuckDB (pip install 'fastdp-streams[parquet]')"
    pa = imported("pyarrow", ParameterError(told))
    validation.choice("kind", kind, get_args(Kind))
    if not hasattr(connection, "create_function"):
        raise ParameterError(f"connection is a {type(connection).__name__}: expected a DuckDB connection")
    if not str(name).isidentifier():
        raise refusal("name", name, "a name that SQL takes without quotes")
    noise = VectorNoise(
        validation.positive("sensitivity", sensitivity),
        validation.positive("epsilon", epsilon),
        validation.integer("rows", rows, 1),
        kind == "BIGINT",
        None if resolution is None else validation.positive("resolution", resolution),
    )
    guarantee = noise.guarantee(simulated=False)
    left, lock = [0], threading.Lock()

    def add_noise(column: Any) -> Any:
        with lock:
            if len(column) > left[0]:
                raise BudgetError(
                    f"{name} was given more than rows = {rows} values: expected one release for each function "
                    "(register another one, which costs its own epsilon)"
                )
            left[0] -= len(column)
        return pa.array(noise.noisy(as_column(column, name), Key.choose(None, None)))

    # DuckDB has the last word on the name; the function takes no value before it is paid for.
    connection.create_function(name, add_noise, [kind], kind, type="arrow", side_effects=True)
    try:
        with charge(guarantee, ledger, stream):
            left[0] = noise.size
    except BaseException:
        connection.remove_function(name)
        raise
    return guarantee
