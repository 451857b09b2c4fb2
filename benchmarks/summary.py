"""The table of speed from a summary of measured numbers.

``python -m benchmarks.summary benchmarks/results/speed.json``               prints the full table;
``python -m benchmarks.summary FILE --write README.md benchmarks/README.md`` puts the tables between the markers
of these files (``<!-- speed: full -->`` or ``<!-- speed: short -->`` to ``<!-- /speed -->``);
``--check`` instead of ``--write`` fails where a file does not say what the summary says.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.speed_rows import BESIDES, ONE_CORE, PROMISED, Row

Measured = Mapping[str, Any]
MARKERS = re.compile(r"(<!-- speed: (full|short) -->\n).*?(<!-- /speed -->)", re.DOTALL)
ABSENT = "not measured"


class Value(NamedTuple):
    """A row's number in its measure's unit, with quartiles."""

    median: float
    low: float
    high: float


class Summary:
    """The sections of the file, and numbers by the name of a task."""

    def __init__(self, path: Path) -> None:
        self.sections: dict[str, Any] = json.loads(path.read_text())["sections"]

    def find(self, key: str) -> Measured | None:
        section, _, task = key.partition("/")
        found: Measured | None = self.sections.get(section, {}).get("tasks", {}).get(task)
        return found

    def value(self, row: Row, key: str) -> Value | None:
        """The number of one task, as the row measures."""
        task, limit = self.find(key), self.find(row.limit) if row.limit else None
        if task is None or (row.measure == "share" and limit is None):
            return None
        seconds = [task[name] for name in ("median", "q1", "q3")]
        if row.measure in ("time", "memory"):
            return Value(*seconds)
        items = task["items"]
        if row.measure == "item":
            return Value(*(second / items for second in seconds))
        unit = 1.0 if row.measure == "rate" else limit["median"] / limit["items"]  # type: ignore[index]
        median, low, high = (unit * items / second for second in seconds)
        return Value(median, high, low)

    def slowest(self, row: Row) -> tuple[str, Value] | None:
        """The row's task that counts, and its number; nothing while a task of the row lacks its number."""
        values = [(key, self.value(row, key)) for key in row.own]
        found = [(key, value) for key, value in values if value is not None]
        if len(found) < len(values):
            return None
        worst = min if row.measure in ("rate", "share") else max
        return worst(found, key=lambda pair: pair[1].median)

    def cost(self, key: str) -> float | None:
        """Seconds an item, to compare tasks of different lengths."""
        task = self.find(key)
        return None if task is None else task["median"] / task["items"]


def shown(value: float, row: Row) -> str:
    """A number with its unit, to three digits."""
    if row.measure == "rate":
        return f"{value / 1e6:.3g} M/s"
    if row.measure == "share":
        return f"{value:.0%}"
    if row.measure == "memory":
        return f"{value:.2g} MiB"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def verdict(row: Row, value: Value | None) -> str:
    """Whether a row's median reaches what is promised."""
    if value is None:
        return ABSENT
    if row.must is None:
        return "-"

    def reached(goal: float) -> bool:
        return value.median >= goal if row.measure in ("rate", "share") else value.median <= goal

    if not reached(row.must):
        return "**MISS**"
    if row.aim is None:
        return "reached"
    return "aim reached" if reached(row.aim) else "reached, aim missed"


def second_core(summary: Summary, row: Row, key: str) -> str:
    """The same work with two threads, and how much that gains over the same run's one."""
    if row.parallel == "":
        return ONE_CORE
    task = key.partition("/")[2]
    together = row.parallel or f"two_cores/{task}, two at once"
    alone = key if row.parallel and not together.startswith("two_cores") else together.replace("two at once", "alone")
    if row.measure == "share":
        row = replace(row, limit=f"two_cores/{row.limit.partition('/')[2]}, two at once")
    value = summary.value(row, together)
    before, after = summary.find(alone), summary.find(together)
    if value is None or before is None or after is None:
        return ABSENT
    gain = before["median"] / before["items"] / (after["median"] / after["items"])
    return f"{shown(value.median, row)} ({gain:.2g} x)"


def factor(ratio: float) -> str:
    """A ratio to two digits, without exponents."""
    return f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"


def beside(summary: Summary, row: Row, key: str) -> tuple[str, str]:
    """Ratios to the physical limit and to peers, of cost an item."""
    own = summary.cost(key)
    limit = summary.cost(row.limit) if row.limit else None
    if own is None:
        return ABSENT, ABSENT
    name = "the key stream" if "AES" in row.limit else "np.copyto"
    to_limit = f"{factor(own / limit)} x {name}" if limit is not None else "-"
    peers = []
    for label, peer in row.peers.items():
        theirs = summary.cost(peer)
        peers.append(f"{label} {factor(theirs / own)} x" if theirs is not None else f"{label} {ABSENT}")
    task = summary.find(key)
    assert task is not None
    call = own if row.measure == "item" else own * task["items"]
    peers += [f"{label} (handed down) {factor(seconds / call)} x" for label, seconds in row.quoted.items()]
    return to_limit, "; ".join(peers) or "-"


def cells(summary: Summary, row: Row) -> list[str]:
    """A row of the full table."""
    goals = [shown(goal, row) if goal is not None else "-" for goal in (row.must, row.aim)]
    found = summary.slowest(row)
    if found is None:
        return [row.work, *goals, ABSENT, ABSENT, verdict(row, None), ABSENT, ABSENT]
    key, value = found
    alone = shown(value.median, row)
    if value.high > value.low:
        alone += f" ({shown(value.low, row)} to {shown(value.high, row)})"
    return [row.work, *goals, alone, second_core(summary, row, key), verdict(row, value), *beside(summary, row, key)]


def _markdown(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def full(summary: Summary) -> str:
    columns = ["work", "must", "aim", "one core: median (quartiles)", "two cores", "verdict",
               "to the limit (cost)", "peers' cost over ours"]  # fmt: skip
    return _markdown(columns, [cells(summary, row) for row in (*PROMISED, *BESIDES)]) + "\n" + origin(summary)


def short(summary: Summary) -> str:
    """README's: what is promised and what was found."""
    rows = []
    for row in (*PROMISED, *BESIDES):
        if row.readme:
            work, must, aim, alone, two, judged, limit, peers = cells(summary, row)
            goal = f"{must}; {aim}" if row.must is not None else "-"
            marked = f"{alone} {judged}" if "MISS" in judged else alone
            rows.append([work, goal, marked, "-" if two == ONE_CORE else two,
                         "; ".join(text for text in (limit, peers) if text != "-") or "-"])  # fmt: skip
    columns = ["work", "must; aim", "measured, one core", "two cores", "cost over np.copyto's; peers' cost over ours"]
    return _markdown(columns, rows)


def origin(summary: Summary) -> str:
    """Where the numbers are from."""
    lines = []
    for name, section in sorted(summary.sections.items()):
        packages = ", ".join(f"{package} {version}" for package, version in section["packages"].items())
        lines.append(
            f"- {name}: `{section['command']}`, {section['date']}, {section['machine']}, Python {section['python']}, "
            f"{packages}; load at the end {section['load']}"
        )
    return "\n".join(lines) + "\n"


def filled(text: str, summary: Summary) -> str:
    """A page with its tables renewed."""
    tables = {"full": full, "short": short}
    return MARKERS.sub(lambda found: found[1] + "\n" + tables[found[2]](summary) + "\n" + found[3], text)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.summary", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="what `python -m benchmarks.show TABLE --json FILE` wrote")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--write", type=Path, nargs="+", metavar="PAGE", help="renew the tables between markers")
    what.add_argument("--check", type=Path, nargs="+", metavar="PAGE", help="fail if a page differs from the summary")
    options = parser.parse_args(arguments)
    summary = Summary(options.file)
    stale = []
    for page in options.write or options.check or ():
        text = page.read_text()
        if not MARKERS.search(text):
            parser.error(f"{page}: expected markers <!-- speed: full --> (or short) and <!-- /speed -->, found none")
        renewed = filled(text, summary)
        if options.write:
            page.write_text(renewed)
        elif renewed != text:
            stale.append(str(page))
    if stale:
        print(f"not as the summary says: {', '.join(stale)}")
    if not (options.write or options.check):
        print(full(summary))
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
