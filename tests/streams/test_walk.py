"""The walk of a value, as CONTRIBUTING.md prints it, is the walk that the code takes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from tests.shared import ROOT

PACKAGE = Path(fastdp.__file__).parent


def printed(begin: str) -> list[str]:
    """Files of the paragraph that begins so, in their order."""
    walk = (ROOT / "CONTRIBUTING.md").read_text().split("## The walk of a value")[1].split("\n## ")[0]
    (paragraph,) = (each for each in walk.split("\n\n") if each.strip().startswith(begin))
    return re.findall(r"`([a-z_/]+\.py)`", paragraph)


def entered(call: Callable[[], object]) -> list[str]:
    """Files of the package whose functions a call enters, in the order of their first ones."""
    files: dict[str, None] = {}

    def profile(frame: Any, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            files[path.relative_to(PACKAGE).as_posix()] = None

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(before)
    return list(files)


@pytest.mark.parametrize("method", ["ToPS", "Adaptive"])
def test_a_published_value_passes_the_files_of_the_walk_in_order(method: str) -> None:
    publisher = getattr(fastdp, method)(1.0, 100.0, threshold=50.0, max_range=64, seed=1)
    publisher.publish(np.ones(3))
    passed, walk = entered(lambda: publisher.publish([2.0])), printed("`ToPS.publish([x])`")
    assert walk.pop() == "adaptive_blocks.py"
    assert len(walk) == 6
    walk = [name.replace("fixed_blocks", "adaptive_blocks") if method == "Adaptive" else name for name in walk]
    assert [name for name in passed if name in walk] == walk


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("method", ["ToPS", "Adaptive"])
def test_a_release_passes_the_files_of_its_walk(method: str) -> None:
    make = getattr(fastdp, method)
    passed = entered(lambda: make(1.0, 100.0, holdout=30, max_range=64, seed=1).release(np.ones(200)))
    assert len(walk := printed("`release` of")) == 4
    assert set(walk) <= set(passed)


def test_a_table_passes_the_files_of_its_walk_in_order() -> None:
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
    frame = pa.table(
        {"at": np.arange(0, 480, 2) * np.timedelta64(60, "s") + np.datetime64("2026-01-01", "s"), "v": np.ones(240)}
    )

    def totals() -> None:
        str(fastdp.totals(frame, "v", "at", "1h", epsilon=1.0, bound=10.0, seed=1))

    totals()
    passed, walk = entered(totals), printed("`fastdp.totals(frame, ...)`")
    assert len(walk) == 14
    assert [name for name in passed if name in walk] == walk
