"""Beam: stateful functions whose rows wait for the watermark.  Source: Beam 2.61, ``BagStateSpec``, ``TimerSpec``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fastdp import validation
from fastdp.engines.job import Foreign, Job, Row, engine, key_of, publish_row
from fastdp.engines.windows import Released, Shard, Share, clock, machine_of, merge, owned
from fastdp.kinds import Instant
from fastdp.tables.calendar import as_instant

MICROSECONDS = 10**6
#: State, outputs, rows that go on waiting, and the next time to come back: microseconds, None for never.
Step = tuple[bytes | None, list[Foreign], list[tuple[int, Foreign]], int | None]


def release(rows: Foreign, job: Job, every: int = 60) -> Foreign:
    """Publish the rows of a collection under differential privacy, each stream in the order of its timestamps.

    Parameters
    ----------
    rows : apache_beam.PCollection
        Of rows ``(id, value, *others)`` with timestamps; a value is a number, or a list of numbers.
    job : Job
        Mechanism, name and location of the secret.
    every : int
        Beam gives no order, so rows wait until the watermark passes the next multiple of so many seconds.

    Returns
    -------
    apache_beam.PCollection
        Of rows ``(id, published, *others)``, without those within a hold-out.  A late row comes last; of equal
        timestamps the lesser value is first.
    """
    beam, length = engine("beam", "apache_beam"), validation.integer("every", every, 1) * MICROSECONDS

    def due(_: str, micros: int | None) -> int:
        return ((micros or 0) // length + 1) * length

    def step(key: str, state: bytes | None, waiting: list[tuple[int, Row]], now: int) -> Step:
        out: list[Row] = []
        for _, row in sorted((each for each in waiting if each[0] < now), key=lambda each: (each[0], each[1][1])):
            state, published = publish_row(job, state, row)
            out += published
        rest = [each for each in waiting if each[0] >= now]
        return state, out, rest, min((due(key, micros) for micros, _ in rest), default=None)

    keyed = rows | "fastdp: one window" >> _whole(beam) | "fastdp: keys" >> beam.Map(lambda row: (key_of(row), row))
    return keyed | "fastdp: publish" >> beam.ParDo(_waiting(beam, due, step))


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
        Number of shards over which persons are split; public and fixed.

    Returns
    -------
    apache_beam.PCollection
        Of mappings with ``window``, keys, statistics and their intervals.
    """
    beam, state = engine("beam", "apache_beam"), engine("beam", "apache_beam.transforms.userstate")
    shards = validation.integer("shards", shards, 1, 2**12)
    last = as_instant("until", until, machine_of(job).calendar.zone) // 1000

    def due(number: int, micros: int | None) -> int | None:
        return end_of(Shard(job, (number, shards))) if micros is None else None

    def end_of(shard: Shard) -> int | None:
        return shard.next_end * 1000 if shard.next_end <= last else None

    def step(number: int, state: bytes | None, waiting: list[tuple[int, Foreign]], now: int) -> Step:
        shard = Shard(job, (number, shards), state)
        shard.take([row for _, row in waiting])
        shares = shard.advance(clock(job, now // 1000) or until)
        return shard.to_bytes(), shares, [], end_of(shard)

    class Merge(beam.DoFn):  # type: ignore[misc, name-defined]
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
    shares = keyed | "fastdp: collect" >> beam.ParDo(_waiting(beam, due, step))
    return shares | "fastdp: merge" >> beam.ParDo(Merge())


def _whole(beam: Foreign) -> Foreign:
    return beam.WindowInto(beam.window.GlobalWindows())


def _waiting(beam: Foreign, due: Callable[[Foreign, int | None], int | None], step: Callable[..., Step]) -> Foreign:
    """Stateful function of pairs (key, row): rows wait until the watermark passes `due`, then `step` takes them."""
    state, of_state = engine("beam", "apache_beam.transforms.userstate"), beam.DoFn.StateParam

    class Waiting(beam.DoFn):  # type: ignore[misc]
        ROWS = state.BagStateSpec("rows", beam.coders.PickleCoder())
        STATE = state.ReadModifyWriteStateSpec("state", beam.coders.BytesCoder())
        SOON = state.ReadModifyWriteStateSpec("soon", beam.coders.VarIntCoder())
        TIMER = state.TimerSpec("timer", state.TimeDomain.WATERMARK)

        def process(
            self,
            pair: tuple[Foreign, Foreign],
            at: Foreign = beam.DoFn.TimestampParam,
            rows: Foreign = of_state(ROWS),
            soon: Foreign = of_state(SOON),
            timer: Foreign = beam.DoFn.TimerParam(TIMER),
        ) -> None:
            key, row = pair
            if row is not None:
                rows.add((at.micros, row))
            self._wake(due(key, None if row is None else at.micros), soon, timer)

        def _wake(self, when: int | None, soon: Foreign, timer: Foreign) -> None:
            before = soon.read()
            if when is not None and (before is None or when < before):
                soon.write(when)
                timer.set(beam.utils.timestamp.Timestamp(micros=when))

        @state.on_timer(TIMER)  # type: ignore[untyped-decorator]
        def ended(
            self,
            key: Foreign = beam.DoFn.KeyParam,
            at: Foreign = beam.DoFn.TimestampParam,
            rows: Foreign = of_state(ROWS),
            state: Foreign = of_state(STATE),
            soon: Foreign = of_state(SOON),
            timer: Foreign = beam.DoFn.TimerParam(TIMER),
        ) -> Iterator[Foreign]:
            waiting = list(rows.read())
            rows.clear()
            soon.clear()
            after, out, rest, when = step(key, state.read(), waiting, at.micros)
            state.write(after)
            for each in rest:
                rows.add(each)
            self._wake(when, soon, timer)
            yield from out

    return Waiting()
