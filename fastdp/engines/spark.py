"""Spark 4.3: finished tables (``mapInArrow``), and Structured Streaming (``transformWithStateInPandas``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

import numpy as np

from fastdp import validation
from fastdp.data.column import arrow
from fastdp.data.source import EngineTable, Source, check_names, open_source
from fastdp.engines.job import Foreign, Job, engine, publish
from fastdp.engines.windows import (
    Shard,
    clock,
    machine_of,
    merge,
    names_of,
    owners,
    parts_of_persons,
    schema_of,
)
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Integers
from fastdp.streams.fleet import Fleet

#: Columns of rows of streams: id, order, value; of windows.
ROW = "fastdp_id", "fastdp_order", "fastdp_value"
SHARD, MICROS = "fastdp_shard", "fastdp_micros"


def release(frame: Foreign, job: Job, *, id: str, order: str, value: str, into: str = "published") -> Foreign:
    """Publish the streams of a finished data frame, each from its first row.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        Rows of many streams, stored, so that a repeated task reads the same.
    job, id, order, value, into
        As for :func:`fastdp.engines.dask.release`.

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
    import pyarrow as pa

    ids, order, values = batch.columns
    numbers = values.to_numpy(zero_copy_only=False)
    kind = ids.type
    found = ids.to_numpy(zero_copy_only=False) if pa.types.is_integer(kind) else ids.to_pylist()
    rows, out = publish(fleet, found, numbers)
    kept = (ids, order) if rows.size == numbers.size else (ids.take(pa.array(rows)), order.take(pa.array(rows)))
    return pa.RecordBatch.from_arrays([*kept, pa.array(out)], names=names)


def release_stream(frame: Foreign, job: Job, *, id: str, order: str, value: str, into: str = "published") -> Foreign:
    """Publish the streams of a streaming data frame, with state in Spark's state store.

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
    micro-batch with the same output.
    """
    processor = engine("spark", "pyspark.sql.streaming").StatefulProcessor

    class Streams(processor):  # type: ignore[misc, valid-type]
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
    """Release windows of a streaming data frame as Spark's watermark passes their ends.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        A streaming one, ``withWatermark`` on the column of timestamps.  The watermark is public; rows behind it are
        dropped.
    job, shards
        As for :func:`fastdp.engines.flink.windows`.

    Returns
    -------
    pyspark.sql.DataFrame
        Released rows: ``window``, keys, statistics and their intervals; for an append query with a checkpoint.
    """
    processor = engine("spark", "pyspark.sql.streaming").StatefulProcessor
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    shards = validation.integer("shards", shards, 1, 2**12)
    names, at, who = names_of(job), machine_of(job).time.column, machine_of(job).plan.who
    check_names(names, frame.columns, frame)
    instants = frame.schema[at].dataType.typeName() == "timestamp"
    released = from_arrow_schema(schema_of(job), prefer_timestamp_ntz=True)
    # Spark does not find names with dots in a group.
    plain = {name: f"fastdp_{i}" for i, name in enumerate(names)}

    class Collect(processor):  # type: ignore[misc, valid-type]
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
            yield pd.DataFrame(shares, columns=["place", "share"])

    class Merge(processor):  # type: ignore[misc, valid-type]
        def init(self, handle: Foreign) -> None:
            self.state = handle.getValueState("fastdp", "state binary")

        def handleInputRows(self, key: Foreign, rows: Iterator[Foreign], timerValues: Foreign) -> Iterator[Foreign]:  # noqa: N802, N803
            import pandas as pd

            before, given = self.state.get(), [bytes(share) for part in rows for share in part["share"]]
            state, found = merge(job, shards, before and bytes(before[0]), *given)
            if state is None:
                self.state.clear()
            else:
                self.state.update((state,))
            if found:
                yield pd.DataFrame(found)

    owner = _owner(lambda column: owners(job, {who or at: column}, shards), who or at).alias(SHARD)
    micros = [f.unix_micros(_column(at)).alias(MICROS)] if instants else []
    starts = frame.sparkSession.createDataFrame([(k,) for k in range(shards)], f"{SHARD} int").groupBy(SHARD)
    shared = "place long, share binary"
    shares = (
        frame.select(*(_column(name).alias(own) for name, own in plain.items()), owner, *micros)
        .groupBy(SHARD)
        .transformWithStateInPandas(Collect(), shared, "Append", "EventTime", starts)
    )
    if machine_of(job).private:
        shares = shares.groupBy("place").transformWithStateInPandas(Merge(), shared, "Append", "None")
    return shares.groupBy("place").transformWithStateInPandas(Merge(), released, "Append", "None")


# Tables of any size: Spark adds integers, the driver draws the noise.

#: Integers that workers pass on at a time; the number of what is passed on if it is an error's text.
CHUNK, ERROR = 2**17, -1


def table(frame: Foreign) -> EngineTable:
    """A Spark data frame as the table of :func:`fastdp.aggregate`, ``totals``, ``counts`` and ``means``.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        Stored, so that a repeated task reads the same.  Timestamps have the session's zone by default.

    Returns
    -------
    EngineTable
        As :func:`fastdp.engines.dask.table`.

    Notes
    -----
    The cluster's operator sees sums without noise.  Of Spark's errors about rows the kind alone is shown.
    """
    return EngineTable(partial(_open, frame))


def _open(frame: Foreign, columns: Sequence[str]) -> Source:
    engine("spark", "pyspark")
    if not hasattr(frame, "sparkSession"):
        raise ParameterError(f"frame is a {type(frame).__name__}: expected a pyspark.sql.DataFrame")
    from pyspark.sql.pandas.types import to_arrow_schema

    check_names(columns, frame.columns, frame)
    # Spark's batches without columns have no rows.
    used = frame.select(*map(_column, dict.fromkeys(columns))) if columns else frame.selectExpr("0 AS row")
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    schema = to_arrow_schema(used.schema, timezone=zone)
    empty = open_source(schema.empty_table(), columns)
    return replace(empty, family="pandas", rows=None, add=partial(_added, used, empty))


def _added(frame: Foreign, empty: Source, work: Callable[[Source], Integers], who: str | None) -> Integers:
    columns = empty.columns
    if who is not None:
        frame = frame.repartition(_owner(lambda column: parts_of_persons(column, 2**31 - 1)[0], who))

    def part(batches: Iterator[Foreign]) -> Iterator[Foreign]:
        for first in batches:
            reader = arrow.RecordBatchReader.from_batches(first.schema, chain([first], batches))
            try:
                sums = work(open_source(reader, columns))
                cut = ((k, sums[CHUNK * k :][:CHUNK]) for k in range(-(-sums.size // CHUNK)))
                yield from (_passed(k, each.tobytes()) for k, each in cut if each.any())
            except (DataError, ParameterError) as error:
                # Spark's own words would quote the program.
                yield _passed(ERROR, str(error).encode())
                return

    def joined(batches: Iterator[Foreign]) -> Iterator[Foreign]:
        sums: dict[int, Integers] = {}
        for batch in batches:
            for k, data in zip(*batch.to_pydict().values(), strict=True):
                if k == ERROR:
                    yield _passed(k, data)
                else:
                    sums[k] = sums.get(k, 0) + np.frombuffer(data, np.int64)
        yield from (_passed(k, each.tobytes()) for k, each in sums.items())

    schema, total = "number int, data binary", work(empty)
    passed = frame.mapInArrow(part, schema).repartition("number").mapInArrow(joined, schema)
    try:
        found = passed.toArrow().to_pydict()
    except Exception as error:  # Spark's may quote rows
        raise DataError(
            f"frame: a {type(error).__name__} while Spark read and added its columns; expected a table that is whole "
            "(Spark's log says more)"
        ) from None
    for k, data in sorted(zip(found["number"], found["data"], strict=True)):
        if k == ERROR:
            raise DataError(data.decode())
        total[CHUNK * k :][:CHUNK] += np.frombuffer(data, np.int64)
    return total


def _passed(number: int, data: bytes) -> Foreign:
    return arrow.record_batch({"number": arrow.array([number], "int32"), "data": [data]})


def _owner(owned: Callable[[Foreign], Integers], name: str) -> Foreign:
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import ArrowUDFType

    made = f.arrow_udf(lambda column: arrow.array(owned(column), "int32"), "int", ArrowUDFType.SCALAR)
    return made(_column(name))


def _column(name: str) -> Foreign:
    from pyspark.sql import functions as f

    return f.col("`{}`".format(name.replace("`", "``")))
