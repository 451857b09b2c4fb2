"""Spark: totals and counts of tables of any size; Spark adds whole numbers, the driver draws the noise.

Source: :mod:`fastdp.tables`, whose plan, grid and noise these are.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.engines.job import engine
from fastdp.errors import DataError, ParameterError
from fastdp.ledger import Ledger
from fastdp.randomness.key import Key
from fastdp.tables.parameters import make_plan
from fastdp.tables.plan import TablePlan
from fastdp.tables.quantity import Quantity
from fastdp.tables.release import NOT_FINITE, start_key
from fastdp.tables.sums import WindowSums
from fastdp.tables.table import Table

Integers = NDArray[np.int64]


def totals(
    frame: Any,
    value: str,
    time: str,
    every: Any,
    *,
    start: Any,
    stop: Any,
    epsilon: float,
    key: Key | bytes | None = None,
    seed: int | str | None = None,
    ledger: Ledger | None = None,
    stream: str | None = None,
    confidence: float = 0.95,
    **parameters: Any,
) -> Table:
    """Private totals of a Spark data frame by window of time, and by key.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        Of any size; Spark gives one whole number for each window and key to the driver.
    value, time, every, epsilon, confidence, key, seed, ledger, stream
        As for :func:`fastdp.totals`; ``time`` is a column of timestamps.
    start, stop
        The first window's beginning and the last one's end: public.
    parameters
        Of :func:`fastdp.totals`: ``by`` with ``keys``, ``bound``, ``clip``, ``origin``, ``time_zone`` (by default
        that of the Spark session), ``contributions``, ``resolution``, ``nonfinite``.

    Returns
    -------
    Table
        Bit for bit that of :func:`fastdp.totals` with these parameters and the same key.

    Notes
    -----
    The partial sums within the cluster, and the whole ones on the driver, have no noise yet: who runs the cluster
    sees them and the rows.  A cell takes 2^31 rows with values at the clip.
    """
    return _release(
        "totals", frame, value, time, every, start, stop, epsilon, (seed, key), ledger, stream, confidence, parameters
    )


def counts(
    frame: Any,
    time: str,
    every: Any,
    *,
    start: Any,
    stop: Any,
    epsilon: float,
    key: Key | bytes | None = None,
    seed: int | str | None = None,
    ledger: Ledger | None = None,
    stream: str | None = None,
    confidence: float = 0.95,
    **parameters: Any,
) -> Table:
    """Private numbers of rows of a Spark data frame; see :func:`totals` and :func:`fastdp.counts`."""
    return _release(
        "counts", frame, None, time, every, start, stop, epsilon, (seed, key), ledger, stream, confidence, parameters
    )


def _release(
    kind: Any,
    frame: Any,
    value: str | None,
    time: str,
    every: Any,
    start: Any,
    stop: Any,
    epsilon: float,
    secrets: tuple[Any, Any],
    ledger: Ledger | None,
    stream: str | None,
    confidence: float,
    parameters: dict[str, Any],
) -> Table:
    engine("spark", "pyspark")
    for name in (time, *(() if value is None else (value,))):
        if name not in frame.columns:
            raise ParameterError(f"frame has no column {name!r}: expected one of {', '.join(frame.columns)}")
    if dict(frame.dtypes)[time] != "timestamp":
        raise ParameterError(
            f"time = {time!r}: expected a column of timestamps (cast it: frame[{time!r}].cast('timestamp'))"
        )
    zone = parameters.pop("time_zone", None) or frame.sparkSession.conf.get("spark.sql.session.timeZone")
    plan = make_plan(kind, every=every, epsilon=epsilon, start=start, stop=stop, time_zone=zone, **parameters)
    first, last, rule = plan.start, plan.stop, plan.key_rule
    if first is None or last is None or rule not in ("none", "given") or plan.who is not None or plan.chooses_clip:
        raise ParameterError(
            "expected start=, stop=, keys= where there is by=, clip= (or two bounds), and no who=: on Spark windows, "
            "keys and the clip are public"
        )
    secret = Key.choose(*secrets)
    secret = secret if stream is None else secret.of_stream(stream)
    made = _Release(plan, secret.bind("Windows", plan.composition()))
    if ledger is None:
        return Table(made.run(frame, value, time, first, last), confidence)
    if stream is None:
        raise ParameterError("stream = None: expected the table's name, because there is a ledger")
    with ledger.reserve(made, stream=stream, mechanism={"class": kind, "parameters": plan.describe()}):
        return Table(made.run(frame, value, time, first, last), confidence)


class _Release:
    """One release; a ledger reads guarantee and fingerprint from it."""

    def __init__(self, plan: TablePlan, key: Key) -> None:
        self.plan, self.key = plan, key
        self.guarantee = plan.guarantee(simulated=key.simulated)
        self.noise_fingerprint = None if key.simulated else key.fingerprint()

    def run(self, frame: Any, value: str | None, time: str, first: int, last: int) -> WindowSums:
        plan, keys = self.plan, list(self.plan.keys)
        settled = plan.settled(first, last, max(1, len(keys)))
        quantities = settled.quantities(None)
        exact = exact_sums(frame, settled, quantities, value, time, first, last)
        own = start_key(self.key, first, keys)
        columns = {
            quantity.name: quantity.release(sums, self.key, quantity.start_chain(own), 0)[0]
            for quantity, sums in zip(quantities, exact, strict=True)
        }
        return WindowSums(
            kind=plan.kind,
            edges=plan.calendar.edges(first, last),
            time_zone=plan.calendar.time_zone,
            every=plan.calendar.every,
            keys={name: [row[k] for row in keys] for k, name in enumerate(plan.by)},
            columns=columns,
            clip=settled.clip_of(quantities),
            guarantee=self.guarantee,
            family="pandas",
        )


def exact_sums(
    frame: Any, plan: TablePlan, quantities: list[Quantity], value: str | None, time: str, first: int, last: int
) -> list[Integers]:
    """The sums of every window and key, int64[W, K] for each quantity, without noise: Spark's part.

    Windows of unequal lengths are whole numbers of a common length; Spark groups by it, and the driver adds.
    """
    from pyspark.sql import functions as f

    edges = plan.calendar.edges(first, last)
    unit = reduce(np.gcd, np.diff(edges))
    begin, end = int(edges[0]), int(edges[-1])
    moment = f.unix_micros(f.col(time))
    rows = frame.where((moment >= begin) & (moment < end)).withColumn(
        "fastdp_bin", f.expr(f"(unix_micros(`{time}`) - {begin}L) div {int(unit)}L")
    )
    groups = ["fastdp_bin"]
    if plan.by:
        table = frame.sparkSession.createDataFrame(
            [(*row, code) for code, row in enumerate(plan.keys)], [*plan.by, "fastdp_key"]
        )
        rows, groups = rows.join(f.broadcast(table), list(plan.by)), [*groups, "fastdp_key"]
    sums = [
        f.count(f.lit(1)).alias("count") if each.name == "count" else _steps(f, each, value, plan)
        for each in quantities
    ]
    wrong = (
        [] if value is None or plan.nonfinite == "zero" else [f.sum(_is_wrong(f, value).cast("long")).alias("wrong")]
    )
    found = rows.groupBy(*groups).agg(*sums, *wrong).toArrow()
    if wrong and any(found.column("wrong").to_pylist()):
        raise DataError(NOT_FINITE)
    bins = found.column("fastdp_bin").to_numpy()
    windows = np.searchsorted(edges, begin + bins * int(unit), side="right") - 1
    keys = found.column("fastdp_key").to_numpy() if plan.by else np.zeros(bins.size, np.int64)
    out = []
    for quantity in quantities:
        exact = np.zeros((last - first, max(1, len(plan.keys)) if plan.by else 1), np.int64)
        np.add.at(exact, (windows, keys), found.column(quantity.name).to_numpy())
        out.append(exact)
    return out


def _steps(f: Any, quantity: Quantity, value: str | None, plan: TablePlan) -> Any:
    """The sum of values in steps, clipped and rounded (half to even) as on one machine."""
    number = f.col(value).cast("double")
    if plan.nonfinite == "zero":
        number = f.when(_is_wrong(f, value), f.lit(0.0)).otherwise(number)
    steps = f.least(
        f.greatest(number * f.lit(1.0 / quantity.resolution), f.lit(float(quantity.low))), f.lit(float(quantity.high))
    )
    return f.sum(f.rint(steps).cast("long") - f.lit(quantity.centre)).alias(quantity.name)


def _is_wrong(f: Any, value: Any) -> Any:
    number = f.col(value).cast("double")
    return number.isNull() | f.isnan(number) | (f.abs(number) == f.lit(float("inf")))
