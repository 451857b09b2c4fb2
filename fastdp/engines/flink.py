"""Flink: a keyed process function whose state is bytes.  Source: PyFlink 2.3, ``KeyedProcessFunction``."""

from __future__ import annotations

from collections.abc import Iterator

from fastdp.engines.job import Foreign, Job, Row, engine, key_of, publish_row


def release(rows: Foreign, job: Job) -> Foreign:
    """Publish the rows of a data stream under differential privacy.

    Parameters
    ----------
    rows : pyflink.datastream.DataStream
        Of rows ``(id, value, *others)``; a value is a number, or a list of numbers of one stream in order (faster).
        Rows of one id must come in order, from one partition of the source.
    job : Job
        Mechanism, name and location of the secret.

    Returns
    -------
    pyflink.datastream.DataStream
        Of rows ``(id, published, *others)``, without those within a hold-out.

    Notes
    -----
    The state of an id is a ``ValueState`` of bytes.  Flink restores it together with the positions of the source, so
    rows since the last checkpoint come again after a crash, and give the same output if they are the same.
    """
    stream, types = engine("flink", "pyflink.datastream"), engine("flink", "pyflink.common").Types
    descriptor = engine("flink", "pyflink.datastream.state").ValueStateDescriptor

    class Streams(stream.KeyedProcessFunction):  # type: ignore[misc, name-defined]
        """Continues one stream in each call."""

        def open(self, runtime_context: Foreign) -> None:
            self.state = runtime_context.get_state(descriptor("fastdp", types.PRIMITIVE_ARRAY(types.BYTE())))

        def process_element(self, value: Row, ctx: Foreign) -> Iterator[Row]:
            after, out = publish_row(job, self.state.value(), value)
            self.state.update(after)
            yield from out

    return rows.key_by(key_of, types.STRING()).process(Streams())
