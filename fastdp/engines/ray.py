"""Ray: an actor a shard.  Source: Ray 2.60, named actors that restart and retry."""

from __future__ import annotations

import os
from typing import Any

from fastdp.engines.job import Job, engine
from fastdp.engines.shards import Shard, Shards
from fastdp.errors import StateError
from fastdp.kinds import Floats, Indices


class RayShards(Shards):
    """The shards of a job as actors of the Ray cluster that ``ray.init`` connected to.

    Parameters, use and state are those of :class:`fastdp.engines.shards.Shards`.

    Notes
    -----
    An actor that dies is restarted, reads its state and repeats the call; the output is the same.  Actors are named
    after the job, and Ray refuses a second one of a name in a namespace: a second program with this job is refused.
    """

    def __init__(self, job: Job, folder: str | os.PathLike[str], shards: int = 16) -> None:
        self._ray = engine("ray", "ray")
        super().__init__(job, folder, shards)
        kind = self._ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)(Shard)
        self.actors: list[Any] = []
        try:
            for k in range(shards):
                name = f"fastdp {job.name} {k} of {shards}"
                self.actors.append(kind.options(name=name).remote(job, self.folder, (k, shards)))
        except ValueError:
            self.close()
            raise StateError(
                f"this Ray namespace has actors of job {job.name!r}: expected one program for a job"
            ) from None

    def _run(self, batch: int, parts: dict[int, tuple[Any, Any, int]]) -> dict[int, tuple[Indices, Floats]]:
        running = {k: self.actors[k].publish.remote(batch, *part) for k, part in parts.items()}
        return dict(zip(running, self._ray.get(list(running.values())), strict=True))

    def close(self) -> None:
        """End the actors; the state stays in its folder."""
        for actor in self.actors:
            self._ray.kill(actor)
        super().close()
