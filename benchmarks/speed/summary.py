"""The tables of speed in README.md and docs/speed.md, from the numbers and targets in ``results/``.

``python -m benchmarks speed summary`` prints the full table with targets, peers and where the numbers are from,
``--write`` fills the pages between their markers (``<!-- speed: costs -->`` or ``short`` to ``<!-- /speed -->``),
``--check`` fails where one is older.
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from benchmarks import ROOT
from benchmarks.shared import markdown
from benchmarks.speed.measure import duration

NUMBERS = ROOT / "benchmarks" / "results" / "speed.json"
TARGETS = NUMBERS.with_name("speed_targets.toml")
PAGES = (ROOT / "README.md", ROOT / "docs" / "speed.md")
ONE_CORE = "one core by nature"
Measured = Mapping[str, Any]
MARKERS = re.compile(r"(<!-- speed: (costs|short) -->\n).*?(<!-- /speed -->)", re.DOTALL)
ABSENT = "not measured"


@dataclass(frozen=True)
class Row:
    """A row of the table; what its fields mean is said at the top of ``results/speed_targets.toml``."""

    work: str
    own: tuple[str, ...]
    target: float | None = None
    stretch: float | None = None
    measure: Literal["time", "item", "rate", "share", "times", "memory"] = "time"
    limit: str = ""
    peers: Mapping[str, str] = field(default_factory=dict)
    reference: Mapping[str, float] = field(default_factory=dict)
    parallel: str | None = None
    page: Literal["", "speed", "readme"] = ""

    @property
    def rises(self) -> bool:
        """True if more is better."""
        return self.measure in ("rate", "share", "times")


def read_rows() -> list[Row]:
    return [Row(**row) for row in tomllib.loads(TARGETS.read_text())["row"]]


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
        if task is None or (row.measure in ("share", "times") and limit is None):
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
        worst = min if row.rises else max
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
    if row.measure == "times":
        return f"{value:.3g} x"
    if row.measure == "memory":
        return f"{value:.3g} MiB"
    return duration(value)


def verdict(row: Row, value: Value | None) -> str:
    """True if a row's median reaches its target."""
    if value is None:
        return ABSENT
    if row.target is None:
        return "-"

    def reached(goal: float) -> bool:
        return value.median >= goal if row.rises else value.median <= goal

    if not reached(row.target):
        return "**below target**"
    if row.stretch is None:
        return "target reached"
    return "stretch reached" if reached(row.stretch) else "target reached"


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
    peers += [f"{label} (reference) {factor(seconds / call)} x" for label, seconds in row.reference.items()]
    return to_limit, "; ".join(peers) or "-"


def cells(summary: Summary, row: Row) -> list[str]:
    """A row of the full table."""
    goals = [shown(goal, row) if goal is not None else "-" for goal in (row.target, row.stretch)]
    found = summary.slowest(row)
    if found is None:
        return [row.work, *goals, ABSENT, ABSENT, verdict(row, None), ABSENT, ABSENT]
    key, value = found
    alone = shown(value.median, row)
    if value.high > value.low:
        alone += f" ({shown(value.low, row)} to {shown(value.high, row)})"
    return [row.work, *goals, alone, second_core(summary, row, key), verdict(row, value), *beside(summary, row, key)]


def full(summary: Summary) -> str:
    columns = ["work", "target", "stretch", "one core: median (quartiles)", "two cores", "verdict"]
    rows = [cells(summary, row) for row in read_rows()]
    return markdown([*columns, "to the limit (cost)", "peers' cost over ours"], rows) + "\n\n" + origin(summary)


def costs(summary: Summary) -> str:
    """Cost of a user's calls, without targets."""
    rows = []
    for row in read_rows():
        if row.page:
            work, _, _, alone, two, *_ = cells(summary, row)
            rows.append([work, alone.partition(" (")[0], "-" if two in (ONE_CORE, ABSENT) else two])
    return markdown(["work", "one core", "two cores"], rows)


def short(summary: Summary) -> str:
    """README's: the main costs, beside peers."""
    rows = []
    for row in read_rows():
        if row.page == "readme":
            work, _, _, alone, _, judged, *_, peers = cells(summary, row)
            median = alone.partition(" (")[0]
            # References are of another machine.
            beside_it = "; ".join(each for each in peers.split("; ") if "(reference)" not in each) or "-"
            rows.append([work, f"{median} {judged}" if "below" in judged else median, beside_it])
    return markdown(["speed", "median", "times longer that others take"], rows)


def origin(summary: Summary) -> str:
    """Source of the numbers."""
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
    tables = {"costs": costs, "short": short}
    return MARKERS.sub(lambda found: found[1] + "\n" + tables[found[2]](summary) + "\n\n" + found[3], text)


def run(
    *,
    numbers: Annotated[Path, "what the other parts wrote by --json"] = NUMBERS,
    write: Annotated[bool, "renew the tables of the pages"] = False,
    check: Annotated[bool, "fail if a page differs from the numbers"] = False,
    pages: Annotated[Sequence[Path], "pages of --write and --check"] = PAGES,
) -> int:
    summary = Summary(numbers)
    if not (write or check):
        print(full(summary))
    stale = []
    for page in pages if write or check else ():
        text = page.read_text()
        if not MARKERS.search(text):
            raise SystemExit(f"{page}: expected <!-- speed: costs --> or short, <!-- /speed -->; found none")
        renewed = filled(text, summary)
        if write:
            page.write_text(renewed)
        elif renewed != text:
            stale.append(str(page))
    if stale:
        print(f"not as the numbers say: {', '.join(stale)}")
    return int(bool(stale))
