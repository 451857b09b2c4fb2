"""Quix Streams 3.28: Kafka messages keyed by stream, with the state in Quix's store and its changelog topic.

Source: ``StreamingDataFrame.apply(stateful=True)``, ``State.get_bytes`` and ``BaseSink.flush``.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import datetime

from fastdp.engines.job import OPEN_FLEETS, Foreign, Job, engine, is_many
from fastdp.engines.windows import Released, Shard, is_person, machine_of, merge
from fastdp.errors import DataError, ParameterError, StateError

#: Where the state of a key is in Quix's store.
ENTRY = "fastdp"
#: Prefix of the stored mark between the first message of a key and the end of its checkpoint.
MARK = b"fastdp: open since "


def release(frame: Foreign, job: Job) -> Foreign:
    """Publish the values of messages under differential privacy; the message key is the id of the stream.

    Parameters
    ----------
    frame : quixstreams.dataframe.StreamingDataFrame
        Messages of a number, or a list of one stream's in order (faster).  Keys are texts, UTF-8 bytes, or integers.
    job : Job
        Mechanism, name and location of the secret.

    Returns
    -------
    quixstreams.dataframe.StreamingDataFrame
        Published numbers or lists, without the hold-out's and empty messages.

    Notes
    -----
    With ``processing_guarantee="at-least-once"`` messages since the last checkpoint come again after a crash, with
    the same output; with ``"exactly-once"`` readers see each once.
    """
    checkpoint = _checkpoint(frame, job.resume, job.suspend)

    def published(value: Foreign, key: Foreign, timestamp: int, headers: Foreign, state: Foreign) -> Foreign:
        del timestamp, headers
        many = is_many(value)
        values = value if many else [value]
        each = key.decode() if isinstance(key, bytes) else key
        out = checkpoint.opened(state).publish([each] * len(values), values)[1].tolist()
        return out if many or not out else out[0]

    return frame.apply(published, stateful=True, metadata=True).filter(lambda out: out != [])


def windows(frame: Foreign, job: Job) -> Foreign:
    """Release the windows of messages under differential privacy; the partitions of the topic are the shards.

    Parameters
    ----------
    frame : quixstreams.dataframe.StreamingDataFrame
        Of one topic.  A message is a row, a mapping from column names to entries, or a list of rows; with a
        :class:`fastdp.Person` its key is the person, else DataError, which ``on_processing_error`` may handle.  A
        text, under any key, is a tick of the public clock ("2024-05-01T12:00"), sent to each partition behind its
        rows up to then; later ones are dropped.
    job : Job
        Of a :class:`fastdp.Windows`.

    Returns
    -------
    quixstreams.dataframe.StreamingDataFrame
        Of released rows with ``window`` (ISO text), keys, statistics and their intervals; the message key is the
        window.

    Notes
    -----
    Both guarantees of Quix count each message once; with
    "at-least-once" a window may be given again, the same.
    """

    def read(stored: bytes | None, number: int) -> Shard:
        return Shard(job, (number, shards), stored)

    machine, context = machine_of(job), engine("quix", "quixstreams.context")
    checkpoint = _checkpoint(frame, read, Shard.to_bytes)
    models, reader = engine("quix", "quixstreams.models"), frame.topics[0]._key_deserializer
    plain = models.StringDeserializer, models.BytesDeserializer, models.IntegerDeserializer
    if machine.plan.who is not None and not isinstance(reader, plain):
        raise ParameterError(
            f"key_deserializer is a {type(reader).__name__}: expected 'str', 'bytes' or 'int', because others read "
            "keys of several partitions as one person"
        )
    shards = frame.topics[0].broker_config.num_partitions
    who = machine.plan.who

    def collected(value: Foreign, key: Foreign, timestamp: int, headers: Foreign, state: Foreign) -> list[Foreign]:
        del timestamp, headers, state
        items = list(value) if is_many(value) else [value]
        each = key.decode() if isinstance(key, bytes) else str(key)
        persons = [row.get(who) for row in items if isinstance(row, Mapping)]
        if who is not None and persons and (key is None or not is_person(each, persons)):
            raise DataError(
                f"a message key is not the row's {who!r} in its one spelling: expected a text in Unicode's form C, "
                "UUIDs in small letters, whole numbers as 7, not 7.0, so that a person's rows share a partition"
            )
        number = context.message_context().partition
        # One state for a partition: `state` is that of the message key.
        transaction = frame.processing_context.checkpoint.get_store_transaction(frame.stream_id, number)
        shard = checkpoint.opened(transaction.as_state(prefix=ENTRY.encode()), number)
        shares = shard.consume(items)
        return [{"window": str(window), "share": base64.b64encode(share).decode()} for window, share in shares]

    def merged(value: Foreign, state: Foreign) -> list[Released]:
        after, released = merge(job, shards, state.get_bytes(ENTRY), base64.b64decode(value["share"]))
        if released:
            state.delete(ENTRY)
        else:
            state.set_bytes(ENTRY, after)
        return [{name: _as_json(entry) for name, entry in row.items()} for row in released]

    shares = frame.apply(collected, stateful=True, metadata=True, expand=True)
    return shares.group_by("window", key_serializer="str", key_deserializer="str").apply(
        merged, stateful=True, expand=True
    )


def _as_json(entry: object) -> object:
    return entry.isoformat() if isinstance(entry, datetime) else entry


def _checkpoint(frame: Foreign, read: Callable[..., Foreign], write: Callable[[Foreign], bytes]) -> Foreign:
    """A sink of which only `flush` is used, at the end of a checkpoint, before Quix writes the states."""
    kind, sinks = engine("quix", "quixstreams.dataframe").StreamingDataFrame, engine("quix", "quixstreams.sinks")
    if not isinstance(frame, kind):
        raise ParameterError(f"frame is a {type(frame).__name__}: expected a quixstreams StreamingDataFrame")
    if not frame.processing_context.state_manager.using_changelogs:
        raise ParameterError(
            "use_changelog_topics = False: expected True, because on another worker a partition would find no state, "
            "and its streams would begin again"
        )

    class Checkpoint(sinks.BaseSink):  # type: ignore[misc, name-defined]
        """Fleets or shards since the last checkpoint, sealed once at its end.

        Quix's transaction holds a mark meanwhile, which a cancelled checkpoint drops.
        """

        def __init__(self) -> None:
            super().__init__()
            self._marks = 0
            self._open: dict[bytes, tuple[Foreign, Foreign]] = {}

        def opened(self, state: Foreign, *more: Foreign) -> Foreign:
            stored = state.get_bytes(ENTRY)
            if stored in self._open:
                return self._open[stored][1]
            if stored is not None and stored.startswith(MARK):
                raise StateError(
                    "the state of a key was not written at the end of its checkpoint: expected quixstreams 3, which "
                    "flushes sinks before it commits"
                )
            if len(self._open) >= OPEN_FLEETS:
                self.flush()
            opened = read(stored, *more)
            self._marks += 1
            mark = MARK + self._marks.to_bytes(8, "big")
            state.set_bytes(ENTRY, mark)
            self._open[mark] = state, opened
            return opened

        def flush(self) -> None:
            ended, self._open = self._open, {}
            for state, opened in ended.values():
                state.set_bytes(ENTRY, write(opened))

        def on_paused(self) -> None:
            self._open = {}

        def add(self, *_: Foreign, **__: Foreign) -> None: ...

    made = Checkpoint()
    frame.processing_context.sink_manager.register(made)
    return made
