"""Ray: a local node, whose actors are killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdp.errors import StateError
from tests.engines.scenes import assert_altered_replay, counting_job, make_job, needs, replay_altered

pytestmark = [needs("ray"), pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield ray
    ray.shutdown()


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_the_same_bytes_with_actors_killed(tmp_path: Path, node: Any, shards: int) -> None:
    from fastdp.engines.ray import RayShards

    job, rng = make_job(tmp_path), np.random.default_rng(2)
    fleet = job.fleet()
    with RayShards(job, tmp_path / "state", shards) as running:
        with pytest.raises(StateError, match="one program for a job"):
            RayShards(job, tmp_path / "elsewhere", shards)
        for number in range(1, 5):
            ids, values = rng.integers(0, 30, 300), rng.uniform(0.0, 10.0, 300)
            assert running.publish(number, ids, values)[1].tolist() == fleet.publish(ids, values)[1].tolist()
            node.kill(running.actors[0], no_restart=False)


def test_an_altered_replay_meets_independent_noise(tmp_path: Path, node: Any) -> None:
    from fastdp.engines.ray import RayShards

    with RayShards(counting_job(tmp_path), tmp_path / "state", 2) as running:
        once, again, altered = replay_altered(running, lambda: node.kill(running.actors[0], no_restart=False))
    assert len(altered) == 300
    assert_altered_replay(once, again, altered, 100)
