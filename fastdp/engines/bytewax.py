"""Bytewax: a stateful operator whose snapshots are fleets as bytes.  Source: Bytewax 0.21, ``StatefulBatchLogic``."""

from __future__ import annotations

from operator import itemgetter

from fastdp import validation
from fastdp.engines.job import Foreign, Job, Row, engine, publish
from fastdp.streams.fleet import Fleet


def release(step_id: str, up: Foreign, job: Job, shards: int = 16) -> Foreign:
    """Publish the rows of a dataflow under differential privacy.

    Parameters
    ----------
    step_id : str
        As for Bytewax's operators.
    up : bytewax.dataflow.Stream
        Of rows ``(id, value, *others)``.  Rows of one id must come in order, from one partition of the input.
    job : Job
        Mechanism, name and location of the secret.
    shards : int
        Number of fleets over which ids are split; public.  At least the number of workers; the output does not depend
        on it.  It belongs to the state: a restart with another number is refused before a row is read.

    Returns
    -------
    bytewax.dataflow.Stream
        Of rows ``(id, published, *others)``, without those within a hold-out; rows of one id are in order.

    Notes
    -----
    Bytewax delivers at least once: rows since the last snapshot come again after a crash, and give the same output if
    they are the same.
    """
    operators = engine("bytewax", "bytewax.operators")
    shards = validation.integer("shards", shards, 1, 2**12)

    def route(rows: list[Row]) -> list[tuple[str, Row]]:
        owners = Fleet.part_of([row[0] for row in rows], shards).tolist()
        return [(str(owner), row) for owner, row in zip(owners, rows, strict=True)]

    class Shard(operators.StatefulBatchLogic):  # type: ignore[misc, name-defined]
        """State of one shard of the job's fleet in Bytewax's operator."""

        def __init__(self, state: bytes | None) -> None:
            # Bytewax does not say which shard a new one is; its first row does.
            self.fleet: Fleet | None = job.from_bytes(state, shards) if state else None

        def on_batch(self, rows: list[Row]) -> tuple[list[Row], bool]:
            ids, values = [row[0] for row in rows], [row[1] for row in rows]
            if self.fleet is None:
                self.fleet = job.fleet((int(Fleet.part_of(ids[:1], shards)[0]), shards))
            published, out = publish(self.fleet, ids, values)
            each = zip(published.tolist(), out.tolist(), strict=True)
            return [(ids[k], value, *rows[k][2:]) for k, value in each], self.RETAIN

        def snapshot(self) -> bytes:
            return b"" if self.fleet is None else job.to_bytes(self.fleet)

    keyed = operators.flat_map_batch(f"{step_id}_shard", up, route)
    published = operators.stateful_batch(f"{step_id}_publish", keyed, Shard)
    return operators.map(f"{step_id}_rows", published, itemgetter(1))
