"""Crashes anywhere, state files with any content, and the fault harness at a small size."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.shared import python

ROOT = Path(__file__).parents[2]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


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
