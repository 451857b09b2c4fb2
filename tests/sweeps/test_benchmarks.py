"""The benchmarks of accuracy, of speed and over commits: plans without noise, tables from numbers, turns of time."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.accuracy import plans, streams
from benchmarks.accuracy.adaptive import mechanisms
from benchmarks.speed import __main__ as speed
from benchmarks.speed import batch, measure, summary
from benchmarks.speed import streams as timed
from benchmarks.speed.summary import Row, Summary, cells, read_rows, verdict
from benchmarks.tracking import compare
from fastdp.noise.key import Key
from fastdp_lab import sweeps
from fastdp_lab.sweeps import Setting

# The plans that Adaptive is measured against.

SETTING = Setting(bound=100.0, holdout=2000, published=4096, max_range=4096, epsilon=1e7)
VALUES = np.clip(np.random.default_rng(1).gamma(2.0, 8.0, 6096), 0.0, 90.0)


def test_shrinking_keeps_sums_and_pulls_children_together() -> None:
    leaves = np.random.default_rng(2).normal(10.0, 3.0, 16 * 16 * 2 + 5)
    shrunken = plans.shrink(leaves, 16, 3, 9.0)
    assert shrunken.size == leaves.size
    assert shrunken[: 2 * 256].sum() == pytest.approx(leaves[: 2 * 256].sum())
    assert plans.shrink(leaves, 16, 3, 0.0) == pytest.approx(leaves), "without noise nothing moves"
    assert np.ptp(plans.shrink(leaves, 16, 3, 1e9)[:256]) < 1e-6 * np.ptp(leaves)


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
    noiseless = outcome.exact(lambda ends: prefix[ends], stops) - outcome.exact(lambda ends: prefix[ends], starts)
    assert noiseless == pytest.approx(expected, rel=1e-3)


def test_halves_follow_from_names_alone() -> None:
    names = [*streams.REAL, *streams.GROWTHS, *(f"{s} {o}" for s in streams.SYNTHETIC for o in streams.ORDERS)]
    halves = {name: streams.half(name) for name in names}
    assert 0.3 < np.mean([each == streams.TUNING for each in halves.values()]) < 0.7
    assert (halves["POS"], halves["MSNBC"]) == (streams.TUNING, streams.REPORTING), "the rule may not change"


@pytest.mark.parametrize("growth", streams.GROWTHS)
def test_growing_streams_outgrow_their_holdout(growth: str) -> None:
    values = streams.growing(growth, 2**18)
    ratio = values[-2000:].mean() / values[: 2**16].mean()
    assert ratio == pytest.approx(streams.GROWTHS[growth][1], rel=0.15)


def test_all_mechanisms_of_the_benchmark_run(tmp_path, monkeypatch) -> None:
    for name in plans.PLANS:
        monkeypatch.setitem(sweeps.SYSTEMS, name, None)  # taken out again afterwards
    plans.register()
    size = {"epsilons": [100.0], "metrics": ["mse", "parts"], "holdout": 2000, "max_range": 4096}
    data = {"name": "POS", "generator": "table1", "stream": "pos", "n": 6096}
    asked = {"kind": "random_ranges", "count": 20, "max_range": 500}
    table = {**size, "datasets": [data], "mechanisms": mechanisms(), "workloads": [asked]}
    frame = sweeps.load(sweeps.run(sweeps.from_table(table), tmp_path / "out"))
    assert set(frame["mechanism"]) == {each["name"] for each in mechanisms()}
    assert frame["error"].isna().all()
    assert (frame["mse"] > 0.0).all()


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
    assert speed.main([*command, "--check", "--pages", str(page)]) == 1
    assert "page.md" in capsys.readouterr().out
    assert "old" in page.read_text()
    assert speed.main([*command, "--write", "--pages", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- speed: short -->\n\n| speed |")
    assert text.endswith("|\n\n<!-- /speed -->\nafter\n")
    assert "old" not in text
    assert speed.main([*command, "--check", "--pages", str(page)]) == 0
    page.write_text("no marker")
    with pytest.raises(SystemExit):
        speed.main([*command, "--write", "--pages", str(page)])
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
    assert speed.main(["summary", "--check"]) == 0


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system binds no threads to cores")
def test_tasks_with_threads_run_on_all_cores(monkeypatch) -> None:
    cores, seen = os.sched_getaffinity(0), {}
    monkeypatch.setattr(measure, "_CORES", cores)
    tasks = {name: lambda name=name: seen.update({name: os.sched_getaffinity(0)}) for name in ("alone", "threads")}
    try:
        measure.stay_on_one_core()
        measure.side_by_side(tasks, 1, threaded=("threads",))
    finally:
        os.sched_setaffinity(0, cores)
    assert seen["threads"] == cores
    assert len(seen["alone"]) == 1
    group = batch.repetitions(1_200, 0)
    assert set(group.threaded) < set(group.tasks)


# The comparison over commits: turns of processor time, ratios, and what its alarms count.


class Process:
    """A side whose calls take so many nanoseconds, one turn after the other."""

    args = ("side",)

    def __init__(self, *turns: float) -> None:
        self.stdin, self.stdout = io.StringIO(), io.StringIO("".join(f"{each}\n" for each in turns))

    def communicate(self) -> None:
        """Ends."""


def test_the_ratio_is_of_least_times_and_the_median_over_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "TURNS", 2)
    # The first turn of each side is a warm-up.
    sides = iter([[1, 200, 100], [1, 900, 110], [1, 100, 300], [1, 300, 900], [1, 50, 60], [1, 60, 80]])
    monkeypatch.setattr(compare, "side", lambda tree: Process(*next(sides)))
    assert compare.compare(compare.ROOT, compare.ROOT, ["task"]) == {"task": (50.0, 60.0, 60.0 / 50.0)}
    monkeypatch.setattr(compare, "side", lambda tree: Process())
    with pytest.raises(SystemExit, match="task: the process"):
        compare.compare(compare.ROOT, compare.ROOT, ["task"])
