"""Quix Streams: Kafka messages whose key is a stream, with the state in Quix's store and its changelog topic.

Source: Quix Streams 3.28, ``StreamingDataFrame.apply(stateful=True)`` and ``State.get_bytes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastdp.engines.job import Job, engine
from fastdp.errors import ParameterError

#: Where the state of a key is in Quix's store.
ENTRY = "fastdp"


def release(frame: Any, job: Job) -> Any:
    """Publish the values of messages under differential privacy; the message key is the id of the stream.

    Parameters
    ----------
    frame : quixstreams.dataframe.StreamingDataFrame
        Of messages whose value is a number, or a list of numbers of one stream in order (faster: one state for all).
        Keys are texts, UTF-8 bytes, or whole numbers.
    job : Job
        Mechanism, name and place of the secret.

    Returns
    -------
    quixstreams.dataframe.StreamingDataFrame
        Of the published number, or the list of them; without values within a hold-out, and without messages that then
        have none.

    Notes
    -----
    Quix commits state and offsets in one checkpoint.  With ``processing_guarantee="at-least-once"`` messages since
    the last one come again after a crash, and give the same output if they are the same; with ``"exactly-once"``
    readers of committed messages see each output once.
    """
    kind = engine("quix", "quixstreams.dataframe").StreamingDataFrame
    if not isinstance(frame, kind):
        raise ParameterError(f"frame is a {type(frame).__name__}: expected a quixstreams StreamingDataFrame")

    def publish(value: Any, key: Any, timestamp: int, headers: Any, state: Any) -> Any:
        del timestamp, headers
        many = isinstance(value, Sequence) and not isinstance(value, str)
        values = value if many else [value]
        each = key.decode() if isinstance(key, bytes) else key
        after, _, out = job.advance(state.get_bytes(ENTRY), [each] * len(values), values)
        state.set_bytes(ENTRY, after)
        published = out.tolist()
        return published if many or not published else published[0]

    return frame.apply(publish, stateful=True, metadata=True).filter(_has_values)


def _has_values(published: Any) -> bool:
    return not isinstance(published, list) or bool(published)
