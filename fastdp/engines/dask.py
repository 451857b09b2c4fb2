"""Dask: a task a shard and batch; streams of a data frame by partition.  Source: Dask 2026.8, ``Client.submit``."""

from __future__ import annotations

import os
from typing import Any

from fastdp.engines.job import Job, engine, publish
from fastdp.engines.shards import Floats, Indices, Shard, Shards

#: Shards that this worker holds open.
_OPEN: dict[tuple[str, str, tuple[int, int]], Shard] = {}


class DaskShards(Shards):
    """The shards of a job as tasks on a Dask cluster.

    Parameters
    ----------
    job, folder, shards
        As for :class:`fastdp.engines.shards.Shards`.
    client : distributed.Client
        Of the cluster.

    Notes
    -----
    A task whose worker dies runs again on another one, reads the state and gives the same output.
    """

    def __init__(self, job: Job, folder: str | os.PathLike[str], shards: int = 16, *, client: Any) -> None:
        engine("dask", "distributed")
        super().__init__(job, folder, shards)
        self._client = client

    def _run(self, batch: int, parts: dict[int, tuple[Any, Any, int]]) -> dict[int, tuple[Indices, Floats]]:
        submit, at = self._client.submit, str(self.folder)
        running = {
            k: submit(_publish, self.job, at, (k, self.shards), batch, *part, pure=False) for k, part in parts.items()
        }
        answers: dict[int, tuple[Indices, Floats]] = self._client.gather(running)
        return answers


def _publish(
    job: Job, folder: str, part: tuple[int, int], batch: int, ids: Any, values: Any, written: int
) -> tuple[Indices, Floats]:
    """On a worker, which may hold a shard of an earlier program, perhaps with other parameters."""
    place = folder, repr((job.name, job.secret, job.machine.describe())), part
    # Taken out while in use: a task that comes twice reads the state again.
    shard = _OPEN.pop(place, None) or Shard(job, folder, part)
    answer = shard.publish(batch, ids, values, written)
    _OPEN[place] = shard
    return answer


def release(frame: Any, job: Job, *, id: str, order: str, value: str, into: str = "published") -> Any:
    """Publish the streams of a finished Dask data frame, each from its first row.

    Parameters
    ----------
    frame : dask.dataframe.DataFrame
        Of rows of many streams; stored, so that a task that runs again reads the same rows.
    job : Job
        Mechanism, name and place of the secret.
    id, order, value : str
        Columns: whose row it is (texts, or whole numbers), its place in the stream, and the value.
    into : str
        The column to add.

    Returns
    -------
    dask.dataframe.DataFrame
        The rows that publish, without ``value``; shuffled so that a stream is within a partition, in its order.
    """
    engine("dask", "dask.dataframe")
    meta = frame._meta.drop(columns=value).assign(**{into: 0.0})
    whole = frame.shuffle(on=id)
    return whole.map_partitions(_partition, job, id, order, value, into, meta=meta)


def _partition(frame: Any, job: Job, name: str, order: str, value: str, into: str) -> Any:
    """On a worker; values break ties of the order, so that the output does not follow the shuffle."""
    ordered = frame.sort_values([name, order, value])
    rows, out = publish(job.fleet(), ordered[name].to_numpy(), ordered[value].to_numpy())
    return ordered.iloc[rows].drop(columns=value).assign(**{into: out})
