"""Exact noise in polars' expressions, for aggregated columns."""

from __future__ import annotations

import threading
from typing import Any, Literal, get_args

from fastdp import validation
from fastdp._lazy import imported
from fastdp.data.column import as_column
from fastdp.errors import BudgetError, ParameterError
from fastdp.guarantee import Account, charge
from fastdp.noise.key import Key
from fastdp.streams.add_noise import VectorNoise

Kind = Literal["Int64", "Float64"]


def add_noise(
    column: Any,
    sensitivity: float,
    epsilon: float,
    *,
    kind: Kind = "Int64",
    resolution: float | None = None,
    ledger: Account | None = None,
    stream: str | None = None,
) -> Any:
    """An expression that adds exact Laplace noise to a column, for one release: :func:`fastdp.add_noise`, lazily.

    Parameters
    ----------
    column : str or polars.Expr
        A full column: ``frame.group_by("station").len().with_columns(add_noise("len", 1, 0.5))``.
    sensitivity, epsilon, resolution
        As for :func:`fastdp.add_noise`, of the full column.
    kind : "Int64" or "Float64"
        Type of result and column; integers become Int64.
    ledger, stream : Ledger and str, optional
        Ledger that records the loss, now; and the name of the queried data.

    Returns
    -------
    polars.Expr
        For one evaluation on one column; a second one, also by group, would be another release and is refused.

    Raises
    ------
    ParameterError, BudgetError
        In a query, errors are polars'.
    """
    pl = imported(
        "polars", ParameterError("polars is not installed: expected the package polars (pip install polars)")
    )
    validation.choice("kind", kind, get_args(Kind))
    if not isinstance(column, (str, pl.Expr)):
        raise ParameterError(f"column is a {type(column).__name__}: expected a column's name, or an expression")
    parameters = (validation.positive("sensitivity", sensitivity), validation.positive("epsilon", epsilon))
    integers = kind == "Int64"
    wanted = None if resolution is None else validation.positive("resolution", resolution)
    # How many values there are shows when they come; nothing else is left to check then.
    guarantee = VectorNoise(*parameters, 1, integers, wanted).guarantee(simulated=False)
    lock, left = threading.Lock(), [1]

    def evaluate(series: Any) -> Any:
        values = as_column(series, "column")
        if integers and values.dtype.kind not in "biu":
            raise ParameterError("kind = 'Int64': expected integers without gaps (kind='Float64' is for floats)")
        with lock:
            if not left[0]:
                raise BudgetError(
                    "the expression has been evaluated: expected one release for each (make another one)"
                )
            left[0] = 0
        noise = VectorNoise(*parameters, values.size, integers, wanted)
        return pl.Series(series.name, noise.noisy(values, Key.choose(None, None)))

    with charge(guarantee, ledger, stream):
        expression = pl.col(column) if isinstance(column, str) else column
        return expression.map_batches(evaluate, return_dtype=getattr(pl, kind))
