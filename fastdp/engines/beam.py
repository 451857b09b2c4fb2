"""Beam: stateful functions whose rows wait for the watermark.  Source: Beam 2.61, ``BagStateSpec``, ``TimerSpec``."""

from __future__ import annotations

from collections.abc import Iterator

from fastdp import validation
from fastdp.engines.job import Foreign, Job, Row, engine, key_of, publish_row
from fastdp.engines.windows import Released, Shard, Share, clock, machine_of, merge, owned
from fastdp.kinds import Instant
from fastdp.tables.calendar import as_instant

MICROSECONDS = 10**6


def release(rows: Foreign, job: Job, every: int = 60) -> Foreign:
    """Publish the rows of a collection under differential privacy, each stream in the order of its timestamps.

    Parameters
    ----------
    rows : apache_beam.PCollection
        Of rows ``(id, value, *others)`` with timestamps; a value is a number, or a list of numbers.
    job : Job
        Mechanism, name and location of the secret.
    every : int
        Rows wait until the watermark passes the next multiple of so many seconds, because Beam gives no order.

    Returns
    -------
    apache_beam.PCollection
        Of rows ``(id, published, *others)``, without those within a hold-out.  A row that is late is published behind
        those before it; of equal timestamps the one with the lesser value is first.
    """
    beam, state = engine("beam", "apache_beam"), engine("beam", "apache_beam.transforms.userstate")
    length = validation.integer("every", every, 1) * MICROSECONDS

    class Streams(beam.DoFn):  # type: ignore[misc, name-defined]
        """Continues one stream, when the watermark passes the end of an interval."""

        ROWS = state.BagStateSpec("rows", beam.coders.PickleCoder())
        STATE = state.ReadModifyWriteStateSpec("state", beam.coders.BytesCoder())
        SOON = state.ReadModifyWriteStateSpec("soon", beam.coders.VarIntCoder())
        TIMER = state.TimerSpec("timer", state.TimeDomain.WATERMARK)

        def process(
            self,
            pair: tuple[str, Row],
            at: Foreign = beam.DoFn.TimestampParam,
            rows: Foreign = beam.DoFn.StateParam(ROWS),
            soon: Foreign = beam.DoFn.StateParam(SOON),
            timer: Foreign = beam.DoFn.TimerParam(TIMER),
        ) -> None:
            rows.add((at.micros, pair[1]))
            self._set(at.micros, soon, timer)

        def _set(self, micros: int, soon: Foreign, timer: Foreign) -> None:
            due, before = (micros // length + 1) * length, soon.read()
            if before is None or due < before:
                soon.write(due)
                timer.set(beam.utils.timestamp.Timestamp(micros=due))

        @state.on_timer(TIMER)  # type: ignore[untyped-decorator]
        def due(
            self,
            at: Foreign = beam.DoFn.TimestampParam,
            rows: Foreign = beam.DoFn.StateParam(ROWS),
            state: Foreign = beam.DoFn.StateParam(STATE),
            soon: Foreign = beam.DoFn.StateParam(SOON),
            timer: Foreign = beam.DoFn.TimerParam(TIMER),
        ) -> Iterator[Row]:
            waiting = sorted(rows.read(), key=lambda each: (each[0], each[1][1]))
            rows.clear()
            soon.clear()
            after = state.read()
            for micros, row in waiting:
                if micros < at.micros:
                    after, out = publish_row(job, after, row)
                    yield from out
                else:
                    rows.add((micros, row))
                    self._set(micros, soon, timer)
            state.write(after)

    keyed = rows | "fastdp: one window" >> _whole(beam) | "fastdp: keys" >> beam.Map(lambda row: (key_of(row), row))
    return keyed | "fastdp: publish" >> beam.ParDo(Streams())


def windows(rows: Foreign, job: Job, until: Instant, shards: int = 16) -> Foreign:
    """Release the windows of rows under differential privacy, as Beam's watermark passes their ends.

    Parameters
    ----------
    rows : apache_beam.PCollection
        Of mappings from column names to entries, with timestamps.  The watermark is public knowledge; rows behind it
        whose window is closed are dropped.
    job : Job
        Of a :class:`fastdp.Windows`.
    until : datetime, date or ISO text
        The end of the last window: public.  At the end of a bounded input Beam's watermark is beyond all times.
    shards : int
        Number of shards over which persons are split; public.  The output does not depend on it, but the state does.

    Returns
    -------
    apache_beam.PCollection
        Of mappings with ``window``, keys, statistics and their intervals.
    """
    beam, state = engine("beam", "apache_beam"), engine("beam", "apache_beam.transforms.userstate")
    shards = validation.integer("shards", shards, 1, 2**12)
    last = as_instant("until", until, machine_of(job).calendar.zone) // 1000
    stamp = beam.utils.timestamp.Timestamp

    class Collect(beam.DoFn):  # type: ignore[misc, name-defined]
        """Keeps the rows of a shard until a window of theirs ends."""

        ROWS = state.BagStateSpec("rows", beam.coders.PickleCoder())
        STATE = state.ReadModifyWriteStateSpec("state", beam.coders.BytesCoder())
        TIMER = state.TimerSpec("timer", state.TimeDomain.WATERMARK)

        def process(
            self,
            pair: tuple[int, Foreign],
            rows: Foreign = beam.DoFn.StateParam(ROWS),
            timer: Foreign = beam.DoFn.TimerParam(TIMER),
        ) -> None:
            if pair[1] is None:
                self._set(Shard(job, (pair[0], shards)), timer)
            else:
                rows.add(pair[1])

        def _set(self, shard: Shard, timer: Foreign) -> None:
            if shard.next_end <= last:
                timer.set(stamp(micros=shard.next_end * 1000))

        @state.on_timer(TIMER)  # type: ignore[untyped-decorator]
        def ended(
            self,
            number: Foreign = beam.DoFn.KeyParam,
            at: Foreign = beam.DoFn.TimestampParam,
            rows: Foreign = beam.DoFn.StateParam(ROWS),
            state: Foreign = beam.DoFn.StateParam(STATE),
            timer: Foreign = beam.DoFn.TimerParam(TIMER),
        ) -> Iterator[tuple[int, Share]]:
            shard = Shard(job, (number, shards), state.read())
            shard.take(list(rows.read()))
            rows.clear()
            yield from shard.advance(clock(job, at.micros // 1000) or until)
            state.write(shard.to_bytes())
            self._set(shard, timer)

    class Merge(beam.DoFn):  # type: ignore[misc, name-defined]
        """Keeps the shares of a window until those of all shards are there."""

        STATE = state.ReadModifyWriteStateSpec("state", beam.coders.BytesCoder())

        def process(
            self, pair: tuple[int, Share], state: Foreign = beam.DoFn.StateParam(STATE)
        ) -> Iterator[Released]:
            after, released = merge(job, shards, state.read(), pair[1])
            state.clear() if released else state.write(after)
            yield from released

    shared = rows | "fastdp: shards" >> beam.FlatMap(
        lambda row: [(number, row) for number in owned(job, [row], shards).values()]
    )
    # Each shard has a timer from the start, so that windows without rows are released too.
    starts = rows.pipeline | "fastdp: starts" >> beam.Create([(number, None) for number in range(shards)])
    keyed = (shared | _whole(beam), starts) | "fastdp: all" >> beam.Flatten()
    shares = keyed | "fastdp: collect" >> beam.ParDo(Collect())
    return shares | "fastdp: merge" >> beam.ParDo(Merge())


def _whole(beam: Foreign) -> Foreign:
    """State is kept for a key and window of Beam; here there is one window."""
    return beam.WindowInto(beam.window.GlobalWindows())
