"""Ray 2.60: a named actor for each shard, which restarts and retries."""

from __future__ import annotations

import os

from fastdp.engines.job import Foreign, Job, engine
from fastdp.engines.shards import Published, Shard, Shards, Share
from fastdp.errors import StateError


class RayShards(Shards):
    """The shards of a job as actors of the Ray cluster; otherwise as :class:`fastdp.engines.shards.Shards`.

    Notes
    -----
    An actor that dies is restarted and repeats the call, with the same output.  Actors are named after the job: a
    second program with it is refused.
    """

    def __init__(self, job: Job, folder: str | os.PathLike[str], shards: int = 16) -> None:
        self._ray = engine("ray", "ray")
        super().__init__(job, folder, shards)
        kind = self._ray.remote(max_restarts=-1, max_task_retries=-1, num_cpus=0)(Shard)
        self.actors: list[Foreign] = []
        try:
            for k in range(shards):
                name = f"fastdp {job.name} {k} of {shards}"
                self.actors.append(kind.options(name=name).remote(job, self.folder, (k, shards)))
        except ValueError:
            self.close()
            raise StateError(
                f"this Ray namespace has actors of job {job.name!r}: expected one program for a job"
            ) from None

    def _run(self, batch: int, shares: dict[int, Share]) -> dict[int, Published]:
        running = {k: self.actors[k].publish.remote(batch, *share) for k, share in shares.items()}
        return dict(zip(running, self._ray.get(list(running.values())), strict=True))

    def close(self) -> None:
        """Kill the actors and release the folder; the state files stay."""
        for actor in self.actors:
            self._ray.kill(actor)
        super().close()
