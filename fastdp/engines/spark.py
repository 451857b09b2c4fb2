"""Spark: finished tables of streams, and Structured Streaming with keyed state.

Source: Spark 4.3, ``mapInArrow`` and ``transformWithStateInPandas``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastdp.engines.job import Job, engine, publish
from fastdp.streams.fleet import Fleet


def release(frame: Any, job: Job, *, id: str, order: str, value: str, into: str = "published") -> Any:
    """Publish the streams of a finished data frame, each from its first row.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        Of rows of many streams; stored, so that a task that runs again reads the same rows.
    job : Job
        Mechanism, name and place of the secret.
    id, order, value : str
        Columns: whose row it is (texts, or whole numbers), its place in the stream, and the value.
    into : str
        The column to add, of doubles.

    Returns
    -------
    pyspark.sql.DataFrame
        The columns ``id``, ``order`` and ``into`` of the rows that publish.
    """
    engine("spark", "pyspark")
    rows = frame.select(id, order, frame[value].cast("double").alias(value))
    # All streams of a partition in turn: sorting by their ids too would cost more than the release.  Values break
    # ties of the order, so that the output does not follow the shuffle.
    streams = rows.repartition(id).sortWithinPartitions(order, value)

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        fleet = job.fleet()
        for batch in batches:
            yield _published(fleet, batch, into)

    schema = rows.select(id, order).schema.add(into, "double")
    return streams.mapInArrow(work, schema)


def _published(fleet: Fleet, batch: Any, into: str) -> Any:
    """A batch of the columns id, order, value, on a worker."""
    import pyarrow as pa

    ids, order, values = batch.columns
    numbers = values.to_numpy(zero_copy_only=False)
    kind = ids.type
    found = ids.to_numpy(zero_copy_only=False) if pa.types.is_integer(kind) else ids.to_pylist()
    rows, out = publish(fleet, found, numbers)
    names = [*batch.schema.names[:2], into]
    kept = (ids, order) if rows.size == numbers.size else (ids.take(pa.array(rows)), order.take(pa.array(rows)))
    return pa.RecordBatch.from_arrays([*kept, pa.array(out)], names=names)


def release_stream(
    frame: Any,
    job: Job,
    *,
    id: str,
    order: str,
    value: str,
    into: str = "published",
) -> Any:
    """Publish the streams of a streaming data frame, with the state of each in Spark's state store.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        A streaming one.
    job, id, order, value, into
        As for :func:`release`.  Rows of a micro-batch are put in order; those of an earlier one come first.

    Returns
    -------
    pyspark.sql.DataFrame
        The columns ``id``, ``order`` and ``into`` of the rows that publish; for an append query with a checkpoint.

    Notes
    -----
    Spark needs the RocksDB state store: ``spark.sql.streaming.stateStore.providerClass`` =
    ``org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider``.  A query that is restarted from its
    checkpoint repeats the last micro-batch with the same rows from the state before it, and gives the same output;
    a sink that takes a micro-batch once (files, or ``foreachBatch`` by its number) then holds each output once.
    """
    processor = engine("spark", "pyspark.sql.streaming").StatefulProcessor

    class Streams(processor):  # type: ignore[misc, valid-type]
        """Continues one stream a call."""

        def init(self, handle: Any) -> None:
            self.state = handle.getValueState("fastdp", "state binary")

        def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
            import pandas as pd

            ordered = pd.concat(list(rows)).sort_values([order, value])
            numbers = ordered[value].to_numpy(np.float64)
            each = key[0] if isinstance(key[0], str) else int(key[0])
            before = self.state.get()
            after, published, out = job.advance(before and before[0], [each] * numbers.size, numbers)
            self.state.update((after,))
            yield ordered.iloc[published][[id, order]].assign(**{into: out})

    rows = frame.select(id, order, frame[value].cast("double").alias(value))
    schema = rows.select(id, order).schema.add(into, "double")
    return rows.groupBy(id).transformWithStateInPandas(Streams(), schema, "Append", "None")
