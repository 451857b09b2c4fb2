"""The benchmarks of accuracy, of speed and over commits: plans without noise, tables from numbers, turns of time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.accuracy import plans
from benchmarks.shared import run_part
from benchmarks.speed import measure, summary
from benchmarks.speed import streams as timed
from benchmarks.speed.summary import Row, Summary, cells, read_rows, verdict
from fastdp.noise.key import Key
from fastdp_lab.sweeps import Setting

# The plans that Adaptive is measured against.
SETTING = Setting(bound=100.0, holdout=2000, published=4096, max_range=4096, epsilon=1e7)

VALUES = np.clip(np.random.default_rng(1).gamma(2.0, 8.0, 6096), 0.0, 90.0)


@pytest.mark.parametrize(
    ("plan", "parameters", "whole"),
    [("flat_blocks", {"length": 64}, True), ("shrunken_tree", {}, True), ("holdout_mean", {}, False)],
)
def test_without_noise_whole_blocks_are_exact(plan, parameters, whole) -> None:
    outcome = plans.PLANS[plan].prepare(parameters, SETTING, VALUES)(Key.from_seed(1))
    starts, stops = np.array([0, 512, 1024]), np.array([512, 4096, 1024 + 64])
    clipped = np.clip(VALUES, 0.0, outcome.theta)
    prefix = np.concatenate([[0.0], np.cumsum(clipped[SETTING.holdout :])])
    mean = clipped[: SETTING.holdout].mean()
    expected = prefix[stops] - prefix[starts] if whole else (stops - starts) * mean
    assert outcome.answer(starts, stops) == pytest.approx(expected, rel=1e-3)


# The table of speed: generated from measured numbers, with every target named and misses marked.
def task(*seconds: float, items: int = 1) -> dict[str, Any]:
    return {**measure.spread(seconds), "runs": len(seconds), "items": items, "unit": "s"}


def written(path: Path, **sections: dict[str, Any]) -> Summary:
    found = {name: {"tasks": tasks} for name, tasks in sections.items()}
    path.write_text(json.dumps({"format": 1, "sections": found}))
    return Summary(path)


def test_a_table_that_runs_again_replaces_its_own_section_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "speed.json"
    for section, name, sample, command in (
        ("first", "task", [3.0, 1.0, 2.0], "command"),
        ("second", "other", [4.0], "command"),
        ("first", "task", [9.0], "another command"),
    ):
        measure.keep("group", name, sample, items=7)
        measure.write(path, section, command)
    found = Summary(path)
    assert found.sections["first"]["command"] == "another command"
    assert {name: set(each["tasks"]) for name, each in found.sections.items()} == {
        "first": {"group: task"},
        "second": {"group: other"},
    }
    assert found.find("first/group: task")["median"] == 9.0  # type: ignore[index]
    assert found.cost("second/group: other") == 4.0 / 7
    assert found.find("second/group: task") is None
    path.write_text('{"format": 2}')
    with pytest.raises(SystemExit, match="format 1"):
        measure.write(path, "first", "command")
    assert path.read_text() == '{"format": 2}'


def test_the_slowest_task_counts_and_the_second_core_is_beside_its_own_run(tmp_path: Path) -> None:
    peers, authors = {"NumPy": "speed/s: n"}, {"authors": 100.0}
    row = Row("draws", ("speed/s: a", "speed/s: b"), 70.0, 200.0, "rate", "speed/s: key", peers, authors)
    alone = {"s: a": task(1.0, items=300), "s: b": task(1.0, 2.0, 3.0, items=200)}
    alone |= {"s: key": task(1.0, items=400), "s: n": task(1.0, items=10)}
    two = {"s: b, alone": task(4.0, items=200), "s: b, two at once": task(2.5, items=200)}
    found = written(tmp_path / "speed.json", speed=alone, two_cores=two)
    assert found.slowest(row) == ("speed/s: b", (100.0, 200 / 2.5, 200 / 1.5))
    shown = cells(found, row)[4:]
    assert shown[:3] == ["8e-05 M/s (1.6 x)", "target reached", "4 x np.copyto"]
    assert shown[3] == "NumPy 10 x; authors (reference) 50 x"
    share = Row("pass", ("speed/p: own",), 0.5, 0.8, "share", "speed/p: copy")
    tasks = {"p: own": task(3.0, items=100), "p: copy": task(2.0, items=200)}
    shown = cells(written(tmp_path / "speed.json", speed=tasks), share)
    assert (shown[3], shown[5], shown[6]) == ("33%", "**below target**", "3 x np.copyto")


@pytest.mark.parametrize(
    ("measure", "median", "expected"),
    [
        ("time", 0.9, "stretch reached"),
        ("time", 1.5, "target reached"),
        ("time", 2.1, "**below target**"),
        ("rate", 0.9, "**below target**"),
        ("share", 2.1, "stretch reached"),
        ("memory", 2.1, "**below target**"),
    ],
)
def test_verdicts(measure: Any, median: float, expected: str) -> None:
    target, stretch = (1.0, 2.0) if measure in ("rate", "share") else (2.0, 1.0)
    row = Row("work", ("a",), target, stretch, measure)
    assert verdict(row, summary.Value(median, median, median)) == expected
    assert verdict(row, None) == summary.ABSENT


def test_pages_are_renewed_between_their_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers, page = tmp_path / "speed.json", tmp_path / "page.md"
    written(numbers)
    command = ["summary", "--numbers", str(numbers)]
    page.write_text("before\n<!-- speed: short -->\nold\n<!-- /speed -->\nafter\n")
    assert run_part("speed", [*command, "--check", "--pages", str(page)]) == 1
    assert "page.md" in capsys.readouterr().out
    assert "old" in page.read_text()
    assert run_part("speed", [*command, "--write", "--pages", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- speed: short -->\n\n| speed |")
    assert text.endswith("|\n\n<!-- /speed -->\nafter\n")
    assert "old" not in text
    assert run_part("speed", [*command, "--check", "--pages", str(page)]) == 0
    page.write_text("no marker")
    with pytest.raises(SystemExit):
        run_part("speed", [*command, "--write", "--pages", str(page)])
    assert page.read_text() == "no marker"


def test_committed_numbers_rows_and_pages_agree() -> None:
    """Each task once and no target in the users' table; a renamed task would leave its row without a number."""
    found, rows = Summary(summary.NUMBERS), read_rows()
    lines = summary.costs(found).splitlines()
    works = [line.split(" | ")[0] for line in lines[2:]]
    assert lines[0] == "| work | one core | two cores |"
    assert len(works) == len(set(works)) > 20
    assert not any(row.page for row in rows if row.measure in ("share", "times"))
    assert not any(text in line for line in lines for text in ("reached", "below target", summary.ABSENT))
    named = {key for row in rows for key in (*row.own, row.limit, *row.peers.values()) if key}
    assert [key for key in named | {row.parallel for row in rows if row.parallel} if found.find(key) is None] == []
    # The numbers may be old: what the groups time today.
    for group in (timed.noisy_max(), timed.consistency()):
        today = {f"streams/{group.name}: {name}" for name in (*group.tasks, *group.slow)}
        wanted = {key for key in named if key.startswith(f"streams/{group.name}: ")}
        assert wanted
        assert wanted - today <= {"streams/consistency: OpenDP b-ary tree, floats"}
    assert run_part("speed", ["summary", "--check"]) == 0
