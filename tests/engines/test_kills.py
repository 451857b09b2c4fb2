"""Programs that keep the state of a job or a fleet in files, killed before and after their steps."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.faults import processes
from fastdp.state.atomic_files import atomic_file
from fastdp.streams.fleet import Fleet
from tests.engines.scenes import make_job

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not hasattr(os, "fork"), reason="the harness forks")]
BATCHES = 4
Step = Callable[[Path, int, Any, Any], list[float]]


def batches() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(4)
    return [(rng.integers(0, 9, 60), rng.uniform(0.0, 10.0, 60)) for _ in range(BATCHES)]


def before(folder: Path, number: int) -> bytes | None:
    return (folder / f"{number - 1}.state").read_bytes() if number > 1 else None


def store(folder: Path, number: int, state: bytes) -> None:
    with atomic_file(folder / f"{number}.state", overwrite=True) as file:
        file.write(state)


def job_step(folder: Path, number: int, ids: Any, values: Any) -> list[float]:
    state, _, out = make_job(folder).advance(before(folder, number), ids, values)
    store(folder, number, state)
    return [float(each) for each in out]


def fleet_step(folder: Path, number: int, ids: Any, values: Any) -> list[float]:
    state = before(folder, number)
    fleet = make_job(folder).fleet() if state is None else Fleet.from_bytes(state, bytes(32))
    out = fleet.publish(ids, values)[1]
    store(folder, number, fleet.to_bytes(bytes(32)))
    return [float(each) for each in out]


def run(step: Step, folder: Path) -> None:
    """The program: each batch that its log does not have; a line leaves when the state is stored."""
    log = folder / "log"
    seen = visible(log)
    for number in range(len(seen) + 1, BATCHES + 1):
        out = step(folder, number, *batches()[number - 1])
        with log.open("ab", buffering=0) as file:
            file.write(json.dumps([number, out]).encode() + b"\n")


def visible(log: Path) -> list[Any]:
    return [json.loads(line) for line in log.read_bytes().splitlines()] if log.exists() else []


@pytest.mark.parametrize("step", [job_step, fleet_step])
def test_a_program_that_is_killed_shows_one_noise_and_loses_nothing(step: Step, tmp_path: Path) -> None:
    fleet = make_job(tmp_path).fleet()
    wanted = [[number, fleet.publish(*batch)[1].tolist()] for number, batch in enumerate(batches(), 1)]
    (tmp_path / "counted").mkdir()
    events = processes.run(partial(run, step, tmp_path / "counted"), counting=True).answer
    kills = 0
    assert events > 60
    for event in range(1, events, events // 10):
        folder = tmp_path / str(event)
        folder.mkdir()
        ends = [processes.run(partial(run, step, folder), at_event=at) for at in (event, event // 3, None)]
        assert ends[-1].code == 0
        kills += sum(end.killed for end in ends)
        found = visible(folder / "log")
        assert found == wanted, "an output with another noise, or one that was lost"
    assert kills >= 10
