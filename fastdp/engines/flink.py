"""Flink (PyFlink 2.3): a ``KeyedProcessFunction`` whose state is bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Any

from fastdp import validation
from fastdp.engines.job import Foreign, Job, Row, engine, key_of, publish_row
from fastdp.engines.windows import END, Shard, clock, machine_of, merge, owned
from fastdp.kinds import Json


def release(rows: Foreign, job: Job) -> Foreign:
    """Publish the rows of a data stream.

    Parameters
    ----------
    rows : pyflink.datastream.DataStream
        Rows ``(id, value, *others)``, a value a number, or a list of one stream's in order (faster); those of one id
        in order and from one partition of the source.
    job : Job
        Mechanism, name and location of the secret.

    Returns
    -------
    pyflink.datastream.DataStream
        Rows ``(id, published, *others)`` after the hold-out.

    Notes
    -----
    Each id has a ``ValueState`` of bytes; rows replayed after a crash give the same output.
    """
    stream, types = engine("flink", "pyflink.datastream"), engine("flink", "pyflink.common").Types
    descriptor = engine("flink", "pyflink.datastream.state").ValueStateDescriptor

    class Streams(stream.KeyedProcessFunction):  # type: ignore[misc, name-defined]
        def open(self, runtime_context: Foreign) -> None:
            self.state = runtime_context.get_state(descriptor("fastdp", types.PRIMITIVE_ARRAY(types.BYTE())))

        def process_element(self, value: Row, ctx: Foreign) -> Iterator[Row]:
            after, out = publish_row(job, self.state.value(), value)
            self.state.update(after)
            yield from out

    return rows.key_by(key_of, types.STRING()).process(Streams())


def windows(rows: Foreign, job: Job, shards: int = 16) -> Foreign:
    """Release windows of rows as Flink's watermark passes their ends.

    Parameters
    ----------
    rows : pyflink.datastream.DataStream
        Mappings from column names to entries, with timestamps and watermarks.  The watermark is public; rows whose
        window it has closed are dropped.
    job : Job
        Of a :class:`fastdp.Windows`.
    shards : int
        Public number of shards of persons; a restart cannot change it.

    Returns
    -------
    pyflink.datastream.DataStream
        Mappings with ``window``, keys, statistics and their intervals.

    Notes
    -----
    The end of a bounded input is no public time and closes no window.
    """
    stream, types = engine("flink", "pyflink.datastream"), engine("flink", "pyflink.common").Types
    states = engine("flink", "pyflink.datastream.state")
    shards = validation.integer("shards", shards, 1, 2**12)
    private = machine_of(job).private

    def sealed(context: Foreign) -> Foreign:
        return context.get_state(states.ValueStateDescriptor("fastdp", types.PRIMITIVE_ARRAY(types.BYTE())))

    class Collect(stream.KeyedProcessFunction):  # type: ignore[misc, name-defined]
        def open(self, runtime_context: Foreign) -> None:
            self.state = sealed(runtime_context)
            self.rows = runtime_context.get_list_state(states.ListStateDescriptor("rows", types.PICKLED_BYTE_ARRAY()))
            self.known: set[int] = set()
            self.ended: set[int] = set()

        def _shard(self, number: int) -> Shard:
            self.known.add(number)
            return Shard(job, (number, shards), self.state.value())

        def _note(self, shard: Shard) -> None:
            if shard.next_end == END:
                self.ended.add(shard.part[0])

        def process_element(self, value: tuple[int, Foreign], ctx: Foreign) -> None:
            number, row = value
            if row is None:
                ctx.timer_service().register_event_time_timer(self._shard(number).next_end)
                return
            if number not in self.known:
                # Other parameters are refused before a row is taken.
                self._note(self._shard(number))
            # No timer fires behind the last window, and rows would wait for ever.
            if number not in self.ended:
                self.rows.add(row)

        def on_timer(self, timestamp: int, ctx: Foreign) -> Iterator[Json]:
            to = clock(job, ctx.timer_service().current_watermark())
            if to is None:
                return
            shard = self._shard(ctx.get_current_key())
            shard.take(list(self.rows.get()))
            self.rows.clear()
            yield from shard.advance(to)
            self.state.update(shard.to_bytes())
            self._note(shard)
            ctx.timer_service().register_event_time_timer(shard.next_end)

    class Merge(stream.KeyedProcessFunction):  # type: ignore[misc, name-defined]
        def open(self, runtime_context: Foreign) -> None:
            self.state = sealed(runtime_context)

        def process_element(self, value: Json, ctx: Foreign) -> Iterator[Json]:
            after, found = merge(job, shards, self.state.value(), value["share"])
            if after is None:
                self.state.clear()
            else:
                self.state.update(after)
            yield from found

    def route(row: Mapping[str, Any]) -> Iterator[tuple[int, Foreign]]:
        yield from ((number, row) for number in owned(job, [row], shards).values())

    # Each shard has a timer from the start, so that windows without rows are released too.
    numbers = rows.get_execution_environment().from_collection(list(range(shards)))
    starts = numbers.map(lambda number: (number, None))
    keyed = rows.flat_map(route).union(starts).key_by(itemgetter(0), types.INT())
    place = itemgetter("place"), types.LONG()
    merged = keyed.process(Collect()).key_by(*place).process(Merge())
    return merged.key_by(*place).process(Merge()) if private else merged
