"""Quix Streams 3.28: Kafka messages keyed by stream, with the state in Quix's store and its changelog topic.

Source: ``StreamingDataFrame.apply(stateful=True)``, ``State.get_bytes`` and ``BaseSink.flush``.
"""

from __future__ import annotations

from fastdp.engines.job import OPEN_FLEETS, Foreign, Job, engine, is_many
from fastdp.errors import ParameterError, StateError
from fastdp.streams.fleet import Fleet

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
    State and offsets are committed in one checkpoint.  With ``processing_guarantee="at-least-once"`` later messages
    come again after a crash, with the same output; with ``"exactly-once"`` readers see each output once.
    """
    kind = engine("quix", "quixstreams.dataframe").StreamingDataFrame
    if not isinstance(frame, kind):
        raise ParameterError(f"frame is a {type(frame).__name__}: expected a quixstreams StreamingDataFrame")
    if not frame.processing_context.state_manager.using_changelogs:
        raise ParameterError(
            "use_changelog_topics = False: expected True, because on another worker a partition would find no state, "
            "and its streams would begin again"
        )
    checkpoint = _checkpoint(job)
    # A sink of which only `flush` is used: Quix calls it at the end of a checkpoint, before it writes the states.
    frame.processing_context.sink_manager.register(checkpoint)

    def published(value: Foreign, key: Foreign, timestamp: int, headers: Foreign, state: Foreign) -> Foreign:
        del timestamp, headers
        many = is_many(value)
        values = value if many else [value]
        each = key.decode() if isinstance(key, bytes) else key
        out = checkpoint.fleet(state).publish([each] * len(values), values)[1].tolist()
        return out if many or not out else out[0]

    return frame.apply(published, stateful=True, metadata=True).filter(lambda out: out != [])


def _checkpoint(job: Job) -> Foreign:
    sinks = engine("quix", "quixstreams.sinks")

    class Checkpoint(sinks.BaseSink):  # type: ignore[misc, name-defined]
        """Streams since the last checkpoint, sealed once at its end.

        Quix's transaction holds a mark meanwhile, which a cancelled checkpoint drops.
        """

        def __init__(self) -> None:
            super().__init__()
            self._marks = 0
            self._open: dict[bytes, tuple[Foreign, Fleet]] = {}

        def fleet(self, state: Foreign) -> Fleet:
            """Fleet of a stream; StateError if its last checkpoint was not flushed."""
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
            fleet = job.resume(stored)
            self._marks += 1
            mark = MARK + self._marks.to_bytes(8, "big")
            state.set_bytes(ENTRY, mark)
            self._open[mark] = state, fleet
            return fleet

        def flush(self) -> None:
            """Write the sealed states to Quix's store."""
            ended, self._open = self._open, {}
            for state, fleet in ended.values():
                state.set_bytes(ENTRY, job.suspend(fleet))

        def on_paused(self) -> None:
            """Drop the open streams: Quix repeats the checkpoint."""
            self._open = {}

        def add(self, *_: Foreign, **__: Foreign) -> None:
            """Do nothing: no message arrives here."""

    return Checkpoint()
