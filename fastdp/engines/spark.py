"""Spark 4.3: finished tables (``mapInArrow``), and Structured Streaming (``transformWithStateInPandas``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add, and_
from typing import ClassVar

import numpy as np

from fastdp import validation
from fastdp.data.source import Source, arrow, check_names, narwhals
from fastdp.engines.job import Foreign, Job, engine, publish
from fastdp.engines.windows import Released, Shard, clock, machine_of, merge, names_of, owners, schema_of
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Integers
from fastdp.streams.fleet import Fleet
from fastdp.tables.calendar import Time
from fastdp.tables.plan import TablePlan
from fastdp.tables.sums import NOT_FINITE, Quantity

#: Columns of rows of streams: id, order, value.
ROW = "fastdp_id", "fastdp_order", "fastdp_value"


def release(frame: Foreign, job: Job, *, id: str, order: str, value: str, into: str = "published") -> Foreign:
    """Publish the streams of a finished data frame, each from its first row.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        Rows of many streams; stored, so that a repeated task reads the same.
    job : Job
        Mechanism, name and location of the secret.
    id, order, value : str
        Columns: id (texts or integers), order within the stream, and value.
    into : str
        The column to add, of doubles.

    Returns
    -------
    pyspark.sql.DataFrame
        ``id``, ``order`` and ``into`` of the rows that publish.
    """
    rows, schema = _rows(frame, id, order, value, into)
    # All streams of a partition in turn: sorting by their ids too would cost more than the release.  Values break
    # ties of the order, so that the output does not follow the shuffle.
    streams = rows.repartition(ROW[0]).sortWithinPartitions(*ROW[1:])

    def work(batches: Iterator[Foreign]) -> Iterator[Foreign]:
        fleet = job.fleet()
        for batch in batches:
            yield _published(fleet, batch, [id, order, into])

    return streams.mapInArrow(work, schema)


def _rows(frame: Foreign, id: str, order: str, value: str, into: str) -> tuple[Foreign, Foreign]:
    """The rows under names that Spark takes in a group, and the schema of what they publish."""
    engine("spark", "pyspark")
    check_names([id, order, value], frame.columns, frame)
    kind = frame.schema[id].dataType.typeName()
    if kind not in ("string", "byte", "short", "integer", "long"):
        raise ParameterError(
            f"id = {id!r} holds {kind} entries: expected texts or whole numbers (cast others to texts)"
        )
    plain = [_column(id).alias(ROW[0]), _column(order).alias(ROW[1]), _column(value).cast("double").alias(ROW[2])]
    return frame.select(*plain), frame.select(_column(id), _column(order)).schema.add(into, "double")


def _published(fleet: Fleet, batch: Foreign, names: list[str]) -> Foreign:
    """Published rows of an Arrow `batch`, on a worker."""
    import pyarrow as pa

    ids, order, values = batch.columns
    numbers = values.to_numpy(zero_copy_only=False)
    kind = ids.type
    found = ids.to_numpy(zero_copy_only=False) if pa.types.is_integer(kind) else ids.to_pylist()
    rows, out = publish(fleet, found, numbers)
    kept = (ids, order) if rows.size == numbers.size else (ids.take(pa.array(rows)), order.take(pa.array(rows)))
    return pa.RecordBatch.from_arrays([*kept, pa.array(out)], names=names)


def release_stream(frame: Foreign, job: Job, *, id: str, order: str, value: str, into: str = "published") -> Foreign:
    """Publish the streams of a streaming data frame, with the state of each in Spark's state store.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        A streaming one.
    job, id, order, value, into
        As for :func:`release`; rows of a micro-batch are sorted.

    Returns
    -------
    pyspark.sql.DataFrame
        As :func:`release`, for an append query with a checkpoint.

    Notes
    -----
    Spark needs the RocksDB state store: ``spark.sql.streaming.stateStore.providerClass`` =
    ``org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider``.  A restarted query repeats the last
    micro-batch with the same output; a sink that accepts it once then holds each output once.
    """
    processor = engine("spark", "pyspark.sql.streaming").StatefulProcessor

    class Streams(processor):  # type: ignore[misc, valid-type]
        """Spark's stateful processor: continues one stream in each call."""

        def init(self, handle: Foreign) -> None:
            self.state = handle.getValueState("fastdp", "state binary")

        def handleInputRows(self, key: Foreign, rows: Iterator[Foreign], timerValues: Foreign) -> Iterator[Foreign]:  # noqa: N802, N803
            import pandas as pd

            ordered = pd.concat(list(rows)).sort_values(list(ROW[1:]))
            numbers = ordered[ROW[2]].to_numpy(np.float64)
            each = key[0] if isinstance(key[0], str) else int(key[0])
            before = self.state.get()
            after, published, out = job.advance(before and before[0], [each] * numbers.size, numbers)
            self.state.update((after,))
            yield ordered.iloc[published][list(ROW[:2])].set_axis([id, order], axis=1).assign(**{into: out})

    rows, schema = _rows(frame, id, order, value, into)
    return rows.groupBy(ROW[0]).transformWithStateInPandas(Streams(), schema, "Append", "None")


def windows(frame: Foreign, job: Job, shards: int = 16) -> Foreign:
    """Release the windows of a streaming data frame, as Spark's watermark passes their ends.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        A streaming one, ``withWatermark`` on the column of times (timestamps).  The watermark is public knowledge;
        rows behind it are dropped.
    job, shards
        As for :func:`fastdp.engines.flink.windows`.

    Returns
    -------
    pyspark.sql.DataFrame
        Released rows: ``window``, keys, statistics and their intervals; for an append query with a checkpoint.

    Notes
    -----
    As for :func:`release_stream`.
    """
    processor = engine("spark", "pyspark.sql.streaming").StatefulProcessor
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import ArrowUDFType
    from pyspark.sql.pandas.types import from_arrow_schema

    shards = validation.integer("shards", shards, 1, 2**12)
    names, at, who = names_of(job), machine_of(job).time.column, machine_of(job).plan.who
    check_names(names, frame.columns, frame)
    instants = frame.schema[at].dataType.typeName() == "timestamp"
    released = from_arrow_schema(schema_of(job), prefer_timestamp_ntz=True)
    # Spark does not find names with dots in a group.
    plain = {name: f"fastdp_{i}" for i, name in enumerate(names)}

    def owned(column: Foreign) -> Foreign:
        return arrow.array(owners(job, {who or at: column}, shards), "int32")

    class Collect(processor):  # type: ignore[misc, valid-type]
        """Keeps the open windows of a shard."""

        def init(self, handle: Foreign) -> None:
            self.handle, self.state = handle, handle.getValueState("fastdp", "state binary")

        def _shard(self, key: Foreign) -> Shard:
            before = self.state.get()
            return Shard(job, (int(key[0]), shards), before and bytes(before[0]))

        def handleInitialState(self, key: Foreign, initialState: Foreign, timerValues: Foreign) -> None:  # noqa: N802, N803
            shard = self._shard(key)
            self.handle.registerTimer(shard.next_end)
            self.state.update((shard.to_bytes(),))

        def handleInputRows(self, key: Foreign, rows: Iterator[Foreign], timerValues: Foreign) -> Iterator[Foreign]:  # noqa: N802, N803
            import pandas as pd

            shard = self._shard(key)
            for part in rows:
                columns = {name: part[own] for name, own in plain.items()}
                if instants:
                    # pandas would have them by the session's clock.
                    columns[at] = pd.to_datetime(part[MICROS], unit="us", utc=True)
                shard.add(columns)
            self.state.update((shard.to_bytes(),))
            return iter(())

        def handleExpiredTimer(  # noqa: N802
            self,
            key: Foreign,
            timerValues: Foreign,  # noqa: N803
            expiredTimerInfo: Foreign,  # noqa: N803
        ) -> Iterator[Foreign]:
            import pandas as pd

            to, shard = clock(job, timerValues.getCurrentWatermarkInMs()), self._shard(key)
            shares = [] if to is None else shard.advance(to)
            self.handle.registerTimer(shard.next_end)
            self.state.update((shard.to_bytes(),))
            yield pd.DataFrame(shares, columns=["window", "share"])

    class Merge(processor):  # type: ignore[misc, valid-type]
        """Keeps the shares of a window until those of all shards are there."""

        def init(self, handle: Foreign) -> None:
            self.state = handle.getValueState("fastdp", "state binary")

        def handleInputRows(self, key: Foreign, rows: Iterator[Foreign], timerValues: Foreign) -> Iterator[Foreign]:  # noqa: N802, N803
            import pandas as pd

            before, found = self.state.get(), list[Released]()
            state = before and bytes(before[0])
            for share in (each for part in rows for each in part["share"]):
                state, found = merge(job, shards, state, bytes(share))
            if found:
                self.state.clear()
                yield pd.DataFrame(found, columns=released.names)
            else:
                self.state.update((state,))

    owner = f.arrow_udf(owned, "int", ArrowUDFType.SCALAR)(_column(who or at)).alias(SHARD)
    micros = [f.unix_micros(_column(at)).alias(MICROS)] if instants else []
    starts = frame.sparkSession.createDataFrame([(k,) for k in range(shards)], f"{SHARD} int").groupBy(SHARD)
    shares = (
        frame.select(*(_column(name).alias(own) for name, own in plain.items()), owner, *micros)
        .groupBy(SHARD)
        .transformWithStateInPandas(Collect(), "window long, share binary", "Append", "EventTime", starts)
    )
    return shares.groupBy("window").transformWithStateInPandas(Merge(), released, "Append", "None")


# Spark: tables of any size; Spark adds integers, the driver draws the noise.
#
# Source: :mod:`fastdp.tables`, whose plan, grid and noise these are.

#: Columns that a table may not have.
BIN, KEY, WRONG, SHARD, MICROS = "fastdp_bin", "fastdp_key", "fastdp_wrong", "fastdp_shard", "fastdp_micros"
EPOCH = "1970-01-01 00:00:00"


@dataclass(frozen=True)
class SparkTable:
    """A Spark data frame whose rows Spark adds up."""

    ENGINE: ClassVar[str] = "spark"

    frame: Foreign

    def open(self, columns: Sequence[str], dictionary: Sequence[str]) -> Source:
        """The columns as a source with ``add``, their names checked."""
        engine("spark", "pyspark")
        if not hasattr(self.frame, "sparkSession"):
            raise ParameterError(f"frame is a {type(self.frame).__name__}: expected a pyspark.sql.DataFrame")
        check_names(columns, self.frame.columns, self.frame)
        schema = narwhals.from_native(self.frame).collect_schema()
        add = partial(exact_sums, self.frame)
        return Source("pandas", columns, schema, lambda: iter(()), add=add, texts=False)


def table(frame: Foreign) -> SparkTable:
    """A Spark data frame as the table of :func:`fastdp.aggregate`, ``totals``, ``counts`` and ``means``.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        Stored, so that a repeated task reads the same.  Times are timestamps, with or without a zone, dates, or
        numbers with ``Time(unit=)``; by default the zone is the session's for timestamps, and none for others.
        Texts are no times here, because Spark has formats of its own: ``to_timestamp`` makes them.

    Returns
    -------
    SparkTable
        Public windows, keys and clips, as for :func:`fastdp.engines.dask.table`; the release is bit for bit one
        machine's.

    Notes
    -----
    Sums have no noise yet: the cluster's operator sees them.  Of Spark's errors about a row only the kind is shown. A
    cell takes 2^31 rows at the clip.  Rows with unlisted keys are dropped after the sums: filter first if there are
    many.
    """
    return SparkTable(frame)


def exact_sums(frame: Foreign, plan: TablePlan, quantities: Sequence[Quantity]) -> Integers:
    """Exact sums over windows and keys, by Spark, which groups by a common length of windows."""
    from pyspark.sql import functions as f

    first, last = plan.start or 0, plan.stop or 0
    edges = np.array([0, 1]) if plan.calendar is None else plan.calendar.edges(first, last)
    unit = int(reduce(np.gcd, np.diff(edges)))
    begin, end = int(edges[0]), int(edges[-1])
    moment = f.lit(0).cast("long") if plan.time is None else _micros(frame, plan.time, plan)
    counts = (moment >= begin) & (moment < end)
    keep = plan.time is not None and plan.time.missing == "raise"
    rows = frame.where(counts | moment.isNull() if keep else counts)
    numbers = {column.name: _column(column.name).cast("double") for column in plan.columns}
    zero = {column.name for column in plan.columns if column.nonfinite == "zero"}
    sums = [
        _sum(each, numbers.get(each.column), each.column in zero, f"fastdp_{i}") for i, each in enumerate(quantities)
    ]
    # 0 times infinity or NaN is NaN.
    checked = [f.coalesce(number, f.lit(float("nan"))) * 0.0 for name, number in numbers.items() if name not in zero]
    if checked:
        sums.append(f.sum(reduce(add, checked)).alias(WRONG))
    bins = f.call_function("div", moment - begin, f.lit(unit)).alias(BIN)
    grouped = rows.groupBy(bins, *map(_column, plan.by)).agg(*sums)
    found = _collected(_coded(grouped, frame, plan))
    places = found.column(BIN)
    if places.null_count:
        raise DataError("time: a row has none; expected one in every row (Time(missing='drop') drops such rows)")
    if WRONG in found.column_names and np.isnan(found.column(WRONG).to_numpy()).any():
        raise DataError(NOT_FINITE)
    windows = np.searchsorted(edges, begin + places.to_numpy() * unit, side="right") - 1
    keys = found.column(KEY).to_numpy() if plan.by else np.zeros(len(places), np.int64)
    exact: Integers = np.zeros((len(quantities), last - first, len(plan.keys) if plan.by else 1), np.int64)
    for i, into in enumerate(exact):
        np.add.at(into, (windows, keys), found.column(f"fastdp_{i}").to_numpy())
    return exact


def _column(name: str) -> Foreign:
    """Spark column called `name`, which may contain dots."""
    from pyspark.sql import functions as f

    return f.col("`{}`".format(name.replace("`", "``")))


def _micros(frame: Foreign, time: Time, plan: TablePlan) -> Foreign:
    """Microseconds since 1970 of the column of times, or of the local clock."""
    from pyspark.sql import functions as f

    kind = dict(frame.dtypes)[time.column]
    factor = {"s": 10**6, "ms": 10**3, "us": 1}.get(time.unit or "")
    if time.unit is not None and kind in ("bigint", "int"):
        number = _column(time.column).cast("long")
        return f.call_function("div", number, f.lit(1000)) if factor is None else number * f.lit(factor)
    if time.unit is not None and kind in ("double", "float"):
        # As on one machine; NaN is greater than all numbers.
        micros = _column(time.column).cast("double") * f.lit(1e-3 if factor is None else float(factor))
        return f.when(f.abs(micros) < 2.0**62, f.floor(micros))
    if kind == "timestamp":
        return f.unix_micros(_column(time.column))
    if kind not in ("timestamp_ntz", "date"):
        raise ParameterError(
            f"time = {time.column!r} holds {kind} entries: expected timestamps, dates or, with Time(unit=), "
            "numbers on Spark"
        )
    clock = _column(time.column).cast("timestamp_ntz")
    zone = None if plan.calendar is None else plan.calendar.time_zone
    if zone is not None:
        # The first of two times that the clock shows, and moved forward where it skips one.
        clock = f.convert_timezone(f.lit(zone), f.lit("UTC"), clock)
    return f.call_function("div", clock - f.expr(f"timestamp_ntz'{EPOCH}'"), f.expr("interval '0.000001' second"))


def _sum(quantity: Quantity, number: Foreign, zero: bool, name: str) -> Foreign:
    """Spark sum of ones, or of values in steps, rounded as on one machine."""
    from pyspark.sql import functions as f

    if quantity.name == "count":
        return f.count(f.lit(1)).alias(name)
    if zero:
        number = f.when(number * 0.0 == 0.0, number).otherwise(0.0)
    low, high = float(quantity.low), float(quantity.high)
    if quantity.name == "beyond":
        outside = (number > high * quantity.grid) | (number < low * quantity.grid)
        return f.sum(f.when(outside, 1).otherwise(0)).alias(name)
    exact = number * f.lit(1.0 / quantity.grid)
    # Not least and greatest, which cost more than the sum.
    steps = f.when(exact >= high, f.lit(int(high))).when(exact <= low, f.lit(int(low))).otherwise(f.rint(exact))
    steps = steps.cast("long")
    steps = steps - quantity.centre if quantity.centre else steps
    if quantity.name == "square":
        whole = steps.cast("double")
        steps = f.rint(whole * whole * f.lit(quantity.factor)).cast("long")
    return f.sum(steps).alias(name)


def _coded(grouped: Foreign, frame: Foreign, plan: TablePlan) -> Foreign:
    """Groups of listed keys, with indices, and groups without a time."""
    from pyspark.sql import functions as f

    if not plan.by:
        return grouped
    names = [f"fastdp_key_{k}" for k in range(len(plan.by))]
    columns = {name: [row[k] for row in plan.keys] for k, name in enumerate(names)}
    keys = frame.sparkSession.createDataFrame(arrow.table({**columns, KEY: range(len(plan.keys))}))
    same = reduce(and_, (_column(by).eqNullSafe(keys[name]) for by, name in zip(plan.by, names, strict=True)))
    coded = grouped.join(f.broadcast(keys), same, "left").drop(*names, *map(_column, plan.by))
    return coded.where(coded[KEY].isNotNull() | coded[BIN].isNull())


def _collected(grouped: Foreign) -> Foreign:
    """Arrow table of `grouped`; Spark's errors may quote rows and are dropped."""
    try:
        return grouped.toArrow()
    except Exception as error:
        raise DataError(
            f"frame: a {type(error).__name__} while Spark read and added its columns; expected a table that is "
            "whole, and at most 2^63 steps in a sum (Spark's log says more)"
        ) from None
