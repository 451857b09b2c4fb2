"""Draws the history of a named machine: each task's least processor time over that of the first commit."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from benchmarks import ROOT
from benchmarks.speed.measure import duration
from benchmarks.tracking.record import machine_name
from fastdp.releases import pictures

HISTORY = ROOT / "benchmarks" / "results" / "asv"
COLUMNS, WIDTH, HEIGHT = 5, 12.0, 6.5


def run(
    *,
    output: Annotated[Path, "the picture"] = ROOT / "docs" / "history.png",
    machine: Annotated[str, "its name in the history"] = machine_name(),
) -> None:
    commits = sorted((json.loads(path.read_text()) for path in (HISTORY / machine).glob("*-*.json")), key=_date)
    (measured,) = (each["results"] for each in commits[:1])
    (name,) = measured
    tasks = [task.strip("'") for task in measured[name][1][0]]
    times = [each["results"][name][0] for each in commits]
    days = [datetime.fromtimestamp(_date(each), UTC).strftime("%-d") for each in commits]
    figure = pictures.new_figure(WIDTH, HEIGHT)
    axes = figure.subplots(-(-len(tasks) // COLUMNS), COLUMNS, sharex=True, sharey=True).ravel()
    for k, (ax, task) in enumerate(zip(axes, tasks, strict=True)):
        ax.plot([each[k] / times[0][k] for each in times], marker=".", color=pictures.ESTIMATE)
        ax.set_title(f"{task}: {duration(times[-1][k] / 1e9)}", fontsize=8.5)
        ax.set_xticks(range(len(days)), days, fontsize=7)
        pictures.tidy(ax)
    axes[0].set_ylim(bottom=0.0)
    figure.supxlabel(f"commits, by day of {datetime.fromtimestamp(_date(commits[-1]), UTC):%B %Y}", fontsize=9)
    figure.supylabel("processor time over the first's", fontsize=9)
    pictures.save(figure, output)


def _date(commit: dict[str, float]) -> float:
    return commit["date"] / 1000.0
