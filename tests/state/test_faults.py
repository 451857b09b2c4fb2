"""Crashes anywhere, state files with any content, and the fault harness at a small size."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fastdp
from fastdp.errors import FastDPError
from fastdp.perturbers import Blocks
from fastdp.state import driver
from fastdp.state.sealed_file import StateFile
from fastdp.streams.methods import Adaptive
from fastdp.thresholds import NoisyMax
from tests.grid import exhaustive
from tests.shared import python

ROOT = Path(__file__).parents[2]
STREAM = np.random.default_rng(3).gamma(2.0, 8.0, 700)
MAKERS: dict[str, Any] = {
    "ToPS": lambda: fastdp.ToPS(0.5, 200.0, 50, 64, seed=4),
    "ToPS, every value": lambda: fastdp.ToPS(0.5, 200.0, 50, 64, prune=0, seed=4),
    "Adaptive": lambda: Adaptive(0.5, 200.0, 64, 64, threshold=NoisyMax(), seed=4),
    "Adaptive, fixed": lambda: Adaptive(0.5, 200.0, max_range=64, perturber=Blocks("spike"), threshold=40.0, seed=4),
    "PAK": lambda: fastdp.PAK(0.5, 1e-6, 200.0, 4096, holdout=50, seed=4),
}
KINDS = ["ToPS", "Adaptive", "PAK", *exhaustive("ToPS, every value", "Adaptive, fixed")]
#: Length of a chunk, and what happens then: nothing, a crash after the output was delivered, or one before.
steps = st.lists(st.tuples(st.integers(0, 90), st.sampled_from(["", "", "delivered", "lost"])), max_size=12)


@pytest.mark.parametrize("kind", KINDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_crashes_anywhere_change_nothing(kind: str, tmp_path: Path, steps: list[tuple[int, str]]) -> None:
    path = tmp_path / "kept"
    path.unlink(missing_ok=True)
    publisher = MAKERS[kind]()
    publisher.keep(path)
    parts, begin = [], 0
    for size, crash in [*steps, (STREAM.size, "")]:
        chunk = STREAM[begin : begin + size]
        output = publisher.publish(chunk)
        if crash == "lost" and chunk.size:
            publisher = type(publisher).load(path, replay=True)
            assert publisher.n_seen == begin
            output = publisher.publish(chunk)
        elif crash:
            publisher = type(publisher).load(path)
        parts.append(output)
        begin += chunk.size
        assert publisher.n_seen == begin
    assert np.array_equal(np.concatenate(parts), MAKERS[kind]().publish(STREAM))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


@contextlib.contextmanager
def said_in_one_line() -> Iterator[None]:
    error: FastDPError | None = None
    try:
        yield
    except FastDPError as caught:
        error = caught
    assert "\n" not in str(error)


def places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a tree of plain values."""
    inner = [place for name, value in content.items() for place in places(value, (*path, name))] if isinstance(
        content, dict
    ) else []  # fmt: skip
    return [path, *inner] if path else inner


@pytest.mark.parametrize("kind", KINDS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_an_authentic_file_of_any_content_is_a_publisher_or_one_error(
    kind: str, tmp_path: Path, data: st.DataObject
) -> None:
    path = tmp_path / "kept"
    path.unlink(missing_ok=True)
    publisher = MAKERS[kind]()
    publisher.keep(path)
    publisher.publish(STREAM[: data.draw(st.sampled_from([0, 10, 50, 130]))])
    content = driver.read_file(StateFile(path))[0]
    for _ in range(data.draw(st.integers(1, 2))):
        *outer, name = data.draw(st.sampled_from(places(content)))
        inner = content
        for step in outer:
            inner = inner[step] if isinstance(inner, dict) and step in inner else {}
        if isinstance(inner, dict):
            inner[name] = data.draw(values)
    path.unlink()
    StateFile(path).write(json.dumps(content).encode(), None)
    for replay in (False, True):
        with said_in_one_line():
            loaded = type(publisher).load(path, replay=replay)
            assert np.isfinite(loaded.publish(STREAM[:5])).all()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the harness forks")
@pytest.mark.parametrize(
    "told", [("--kills", "9"), ("--kills", "6", "--only", "synthesize")], ids=["all", "synthesize"]
)
def test_killed_processes_and_broken_disks(told: tuple[str, ...]) -> None:
    """Short runs of ``python -m benchmarks faults``; CI's machines may not mount disks."""
    command = python("-m", "benchmarks", "faults", "--values", 6000, *told)
    done = subprocess.run(**command, cwd=ROOT, capture_output=True, text=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"(\d+) of (\d+) kills survived, 0 bytes different", done.stdout)
    assert found is not None
    assert found[1] == found[2]
    assert int(found[1]) >= int(told[1])
