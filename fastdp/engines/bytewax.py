"""Bytewax 0.21: a ``StatefulBatchLogic`` whose snapshots are fleets as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter

from fastdp import validation
from fastdp.engines.job import Foreign, Job, Row, engine, publish
from fastdp.engines.windows import Released, Shard, Share, machine_of, merge, owned
from fastdp.streams.fleet import Fleet


def release(step_id: str, up: Foreign, job: Job, shards: int = 16) -> Foreign:
    """Publish the rows of a dataflow under differential privacy.

    Parameters
    ----------
    step_id : str
        As for Bytewax's operators.
    up : bytewax.dataflow.Stream
        Of rows ``(id, value, *others)``, those of one id in order and from one partition of the input.
    job : Job
        Mechanism, name and location of the secret.
    shards : int
        Public number of fleets, at least that of workers; a restart with another one is refused.

    Returns
    -------
    bytewax.dataflow.Stream
        Of rows ``(id, published, *others)`` after the hold-out, in order by id.

    Notes
    -----
    Rows since the last snapshot come again after a crash, and give the same output.
    """
    operators, shards = _checked(shards)

    def route(rows: list[Row]) -> list[tuple[str, Row]]:
        owners = Fleet.part_of([row[0] for row in rows], shards).tolist()
        return [(str(owner), row) for owner, row in zip(owners, rows, strict=True)]

    class Shard(operators.StatefulBatchLogic):  # type: ignore[misc, name-defined]
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


def windows(step_id: str, up: Foreign, job: Job, shards: int = 16) -> Foreign:
    """Release the windows of rows under differential privacy.

    Parameters
    ----------
    step_id : str
        As for Bytewax's operators.
    up : bytewax.dataflow.Stream
        Of rows, mappings from column names to entries, and of ticks, datetimes: the public clock.  A tick says that
        rows before it have come, so it follows them in their partition of the input; later ones are dropped.
    job : Job
        Of a :class:`fastdp.Windows`.
    shards : int
        As for :func:`release`; a person's rows are in one of them.

    Returns
    -------
    bytewax.dataflow.Stream
        Of released rows, mappings with ``window``, keys, statistics and their intervals, as a tick ends the window.
    """
    operators, shards = _checked(shards)
    machine_of(job)

    def route(items: list[Foreign]) -> list[tuple[str, tuple[int, Foreign]]]:
        places = [i for i, item in enumerate(items) if isinstance(item, Mapping)]
        whose: dict[int, Sequence[int]] = dict.fromkeys(range(len(items)), range(shards)) | dict.fromkeys(places, ())
        for row, k in owned(job, [items[i] for i in places], shards).items():
            whose[places[row]] = [k]
        return [(str(k), (k, item)) for i, item in enumerate(items) for k in whose[i]]

    class Collect(operators.StatefulBatchLogic):  # type: ignore[misc, name-defined]
        def __init__(self, state: tuple[int, bytes] | None) -> None:
            self.shard: Shard | None = Shard(job, (state[0], shards), state[1]) if state else None

        def on_batch(self, items: list[tuple[int, Foreign]]) -> tuple[list[tuple[str, Share]], bool]:
            self.shard = self.shard or Shard(job, (items[0][0], shards))
            shares = self.shard.consume([item for _, item in items])
            return [(str(window), share) for window, share in shares], self.RETAIN

        def snapshot(self) -> tuple[int, bytes] | None:
            return None if self.shard is None else (self.shard.part[0], self.shard.to_bytes())

    class Merge(operators.StatefulBatchLogic):  # type: ignore[misc, name-defined]
        def __init__(self, state: Share | None) -> None:
            self.state = state

        def on_batch(self, shares: list[Share]) -> tuple[list[Released], bool]:
            released: list[Released] = []
            for share in shares:
                self.state, rows = merge(job, shards, self.state, share)
                released += rows
            return released, bool(released)

        def snapshot(self) -> Share | None:
            return self.state

    keyed = operators.flat_map_batch(f"{step_id}_shard", up, route)
    collected = operators.stateful_batch(f"{step_id}_collect", keyed, Collect)
    shares = operators.map(f"{step_id}_share", collected, itemgetter(1))
    merged = operators.stateful_batch(f"{step_id}_merge", shares, Merge)
    return operators.map(f"{step_id}_rows", merged, itemgetter(1))


def _checked(shards: int) -> tuple[Foreign, int]:
    return engine("bytewax", "bytewax.operators"), validation.integer("shards", shards, 1, 2**12)
