"""The comparison over commits: turns of processor time, ratios, and what its alarms count."""

from __future__ import annotations

import io

import pytest

from benchmarks.tracking import compare


class Process:
    """A side whose calls take so many nanoseconds, one turn after the other."""

    args = ("side",)

    def __init__(self, turns: list[float]) -> None:
        self.stdin, self.turns = io.StringIO(), turns
        self.stdout = io.StringIO("".join(f"{each}\n" for each in turns))

    def communicate(self) -> None:
        """Ends."""


def test_the_ratio_is_of_least_times_and_the_median_over_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "TURNS", 2)
    # The first turn of each side is a warm-up.
    sides = iter([[1, 200, 100], [1, 900, 110], [1, 100, 300], [1, 300, 900], [1, 50, 60], [1, 60, 80]])
    monkeypatch.setattr(compare, "side", lambda tree: Process([float(each) for each in next(sides)]))
    found = compare.compare(compare.ROOT, compare.ROOT, ["task"])
    assert found == {"task": (50.0, 60.0, 60.0 / 50.0)}


def test_a_side_that_ends_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "side", lambda tree: Process([]))
    with pytest.raises(SystemExit, match="task: the process"):
        compare.compare(compare.ROOT, compare.ROOT, ["task"])


def test_alarms_count_both_directions(capsys: pytest.CaptureFixture[str]) -> None:
    compare.show_alarms([{"a": (1.0, 1.0, 1.2), "b": (1.0, 1.0, 0.8), "c": (1.0, 1.0, 1.0), "d": (1.0, 1.0, 1.04)}])
    shown = capsys.readouterr().out
    lines = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in shown.splitlines() if "%" in line}
    assert lines == {"1.02": "3", "1.03": "3", "1.05": "2", "1.1": "2", "1.15": "2", "1.2": "1", "1.3": "0"}
    assert "furthest apart: b 1.250" in shown
