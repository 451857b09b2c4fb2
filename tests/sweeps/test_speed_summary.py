"""The table of speed: generated from a summary of measured numbers, with every target named and misses marked."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed import __main__ as speed
from benchmarks.speed import batch, measure, streams, summary
from benchmarks.speed.summary import ONE_CORE, Row, Summary, cells, read_rows, verdict


def task(*seconds: float, items: int = 1) -> dict[str, Any]:
    return {**measure.spread(seconds), "runs": len(seconds), "items": items, "unit": "s"}


def written(path: Path, **sections: dict[str, Any]) -> Summary:
    found = {name: {"tasks": tasks} for name, tasks in sections.items()}
    path.write_text(json.dumps({"format": 1, "sections": found}))
    return Summary(path)


def test_a_table_that_runs_again_replaces_its_own_section_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "speed.json"
    measure.keep("group", "task", [3.0, 1.0, 2.0], items=5)
    measure.write(path, "first", "command")
    measure.keep("group", "other", [4.0], items=7)
    measure.write(path, "second", "command")
    measure.keep("group", "task", [9.0])
    measure.write(path, "first", "another command")
    found = Summary(path)
    assert set(found.sections) == {"first", "second"}
    assert found.sections["first"]["command"] == "another command"
    assert set(found.sections["first"]["tasks"]) == {"group: task"}
    assert found.find("first/group: task")["median"] == 9.0  # type: ignore[index]
    assert found.cost("second/group: other") == 4.0 / 7
    assert found.find("second/group: task") is None


def test_a_file_of_another_format_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "speed.json"
    path.write_text('{"format": 2}')
    with pytest.raises(SystemExit, match="format 1"):
        measure.write(path, "first", "command")
    assert path.read_text() == '{"format": 2}'


def test_the_slowest_task_counts_and_the_second_core_is_beside_its_own_run(tmp_path: Path) -> None:
    row = Row("draws", ("speed/s: a", "speed/s: b"), 70.0, 200.0, "rate", "speed/s: key", {"NumPy": "speed/s: n"},
              {"authors": 100.0})  # fmt: skip
    found = written(
        tmp_path / "speed.json",
        speed={
            "s: a": task(1.0, items=300),
            "s: b": task(1.0, 2.0, 3.0, items=200),
            "s: key": task(1.0, items=400),
            "s: n": task(1.0, items=10),
        },
        two_cores={"s: b, alone": task(4.0, items=200), "s: b, two at once": task(2.5, items=200)},
    )
    key, value = found.slowest(row) or ("", None)
    assert (key, value) == ("speed/s: b", (100.0, 200 / 2.5, 200 / 1.5))
    shown = cells(found, row)
    assert shown[5] == "target reached"
    assert shown[4] == "8e-05 M/s (1.6 x)"
    assert shown[6] == "4 x np.copyto"
    assert shown[7] == "NumPy 10 x; authors (reference) 50 x"


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


def test_a_share_is_of_the_limits_throughput(tmp_path: Path) -> None:
    row = Row("pass", ("speed/p: own",), 0.5, 0.8, "share", "speed/p: copy")
    tasks = {"p: own": task(3.0, items=100), "p: copy": task(2.0, items=200)}
    shown = cells(written(tmp_path / "speed.json", speed=tasks), row)
    assert (shown[3], shown[5], shown[6]) == ("33%", "**below target**", "3 x np.copyto")


def test_nothing_measured_is_said_and_nature_too(tmp_path: Path) -> None:
    nothing = written(tmp_path / "speed.json")
    for row in read_rows():
        assert cells(nothing, row)[3] == summary.ABSENT
    assert summary.second_core(nothing, Row("work", ("a",), parallel=""), "a") == ONE_CORE


def test_pages_are_renewed_between_their_markers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    numbers, page = tmp_path / "speed.json", tmp_path / "page.md"
    written(numbers)
    page.write_text("before\n<!-- speed: short -->\nold\n<!-- /speed -->\nafter\n")
    assert speed.main(["summary", "--numbers", str(numbers), "--check", str(page)]) == 1
    assert "page.md" in capsys.readouterr().out
    assert "old" in page.read_text()
    assert speed.main(["summary", "--numbers", str(numbers), "--write", str(page)]) == 0
    text = page.read_text()
    assert text.startswith("before\n<!-- speed: short -->\n\n| work |")
    assert text.endswith("|\n\n<!-- /speed -->\nafter\n")
    assert "old" not in text
    assert speed.main(["summary", "--numbers", str(numbers), "--check", str(page)]) == 0
    page.write_text("no marker")
    with pytest.raises(SystemExit):
        speed.main(["summary", "--numbers", str(numbers), "--write", str(page)])
    assert page.read_text() == "no marker"


def test_the_users_table_has_each_task_once_and_no_target() -> None:
    lines = summary.costs(Summary(summary.NUMBERS)).splitlines()
    works = [line.split(" | ")[0] for line in lines[2:]]
    assert lines[0] == "| work | one core | two cores |"
    assert len(works) == len(set(works)) > 40
    shares = [row.work for row in read_rows() if row.measure in ("share", "times")]
    assert shares
    assert not [work for work in shares if f"| {work}" in works]
    again = [row.work for row in read_rows() if row.work == "first release (tops), empty kernel cache"]
    assert again
    assert f"| {again[0]}" not in works  # another target of a task that stands there already
    assert not any(text in line for line in lines for text in ("reached", "below target", summary.ABSENT))


def test_every_named_task_is_in_the_numbers() -> None:
    """A renamed task would leave its row without a number."""
    found = Summary(summary.NUMBERS)
    named = {
        key for row in read_rows() for key in (*row.own, row.limit, *row.peers.values(), row.parallel or "") if key
    }
    assert named
    assert [key for key in sorted(named) if found.find(key) is None] == []


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
    for length in (1_200, 2_400):
        group = batch.repetitions(length, 0)
        assert set(group.threaded) < set(group.tasks)


def test_tasks_have_the_names_that_the_rows_use() -> None:
    """The numbers may be old: what the groups time today."""
    named = {key for row in read_rows() for key in (*row.own, row.limit, *row.peers.values())}
    for group in (streams.noisy_max(), streams.consistency()):
        timed = {f"streams/{group.name}: {name}" for name in (*group.tasks, *group.slow)}
        wanted = {key for key in named if key.startswith(f"streams/{group.name}: ")}
        assert wanted
        assert wanted - timed <= {"streams/consistency: OpenDP b-ary tree, floats"}


def test_the_committed_pages_say_what_the_summary_says() -> None:
    assert speed.main(["summary", "--check"]) == 0
