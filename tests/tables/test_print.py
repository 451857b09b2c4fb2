"""Every number that a table shows is the frame's, the metadata's or the guarantee's: print, HTML, caption, lines."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from datetime import UTC, timedelta
from functools import partial
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.tables.table import Table

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
NUMBER = re.compile(r"\d{4}-\d\d-\d\d \d\d:[\d:]+|-?\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]\d+)?")
SPAN = {"start": "2024-03-30", "stop": "2024-04-02"}

size = 6_000
rng = np.random.default_rng(3)
FRAME = pa.table(
    {
        "at": np.datetime64("2024-03-30", "s") + np.sort(rng.integers(0, 3 * 86_400, size)),
        "kwh": rng.gamma(2.0, 1.5, size),
        "cost": rng.normal(0.0, 20.0, size),
        "meter": [f"meter {k}" for k in np.minimum(rng.geometric(0.4, size), 6)],
        "region": [f"region {k}" for k in np.minimum(rng.geometric(0.6, size), 2)],
        "who": rng.integers(0, 400, size),
        "number": np.arange(size),
    }
)  # fmt: skip
METERS = [f"meter {k}" for k in range(1, 5)]
CELLS = [(f"region {r}", meter) for r in (1, 2) for meter in METERS]
DAYS, HOURS = fastdp.Time("at", "1d", **SPAN), fastdp.Time("at", "1h", **SPAN, zone="Europe/Paris")
ALL_DAYS = fastdp.Time("at", "3d", **SPAN)
SECONDS = fastdp.Time("at", "90s", start="2024-03-30", stop="2024-03-30T00:15:00")
BOUNDS = {"kwh": 20.0, "cost": (-80.0, 80.0)}
ONE = {"kwh": "sum"}, {"*": "count"}, {"cost": "mean"}, {"kwh": "median"}, {"kwh": "std"}, {"meter": "nunique"}
SEVERAL = {"kwh": ["sum", "mean", "median"], "cost": ["var"], "*": "count"}


def released(asked: dict[str, Any], time: fastdp.Time | None, unit: Any, **given: Any) -> Table:
    bounds = {column: BOUNDS[column] for column in asked if column in BOUNDS}
    return fastdp.aggregate(FRAME, asked, time, epsilon=4.0, bounds=bounds, unit=unit, seed=5, **given)


def online() -> Table:
    """Windows whose keys appear one after another: cells before a key's begin are no rows of the frame."""
    time = fastdp.Time("at", "1d", start="2024-03-30")
    unit = fastdp.Person("who", 4, "1d", per_window=4)
    windows = fastdp.Windows(
        {"*": "count"}, time, epsilon=8.0, delta=1e-6, by="meter", keys=fastdp.PrivateKeys(), unit=unit, seed=2
    )
    hour = (np.asarray(FRAME["at"]) - np.datetime64("2024-03-30")) // np.timedelta64(1, "h")
    early = pa.array((hour >= 24) | (np.asarray(FRAME["meter"]) == "meter 1"))
    rows = FRAME.filter(early)
    windows.add(rows["at"], keys=rows["meter"], persons=rows["who"])
    table = windows.advance("2024-04-02")
    assert table.arrow.num_rows < len(table) * len(table.keys["meter"])
    return table


CASES: dict[str, Callable[[], Table]] = {"online": online, "online level": lambda: online().level(0)}
for unit, name in ((fastdp.Rows(2), "rows"), (fastdp.Person("who", 20), "persons")):
    for asked in (*ONE, SEVERAL):
        kind = "several" if asked is SEVERAL else "{} {}".format(*next(iter(asked.items())))
        for time in (None, ALL_DAYS, HOURS):
            every = "all" if time is None else time.every
            CASES[f"{kind} {every} {name}"] = partial(released, asked, time, unit)
            CASES[f"{kind} {every} {name} by meter"] = partial(released, asked, time, unit, by="meter", keys=METERS)
    private = {"keys": fastdp.PrivateKeys(), "delta": 1e-6}
    levels = partial(released, ONE[0], DAYS, unit, by=["region", "meter"], keys=CELLS, levels=True)
    for depth in (0, 1, 2):
        CASES[f"level {depth} {name}"] = lambda make=levels, depth=depth: make().level(depth)
    CASES[f"private {name}"] = partial(released, ONE[1], DAYS, unit, by="meter", **private)
    CASES[f"no key {name}"] = partial(released, ONE[0], DAYS, unit, by="number", **private)
    CASES[f"confidence {name}"] = lambda unit=unit: released(ONE[0], DAYS, unit).with_confidence(0.9999)
    CASES[f"seconds {name}"] = partial(released, ONE[1], SECONDS, unit)


def numbers(text: str) -> list[str]:
    return NUMBER.findall(text)


def spread(values: np.ndarray, digits: int) -> str:
    """Median and range as they are written, or one number if all are written alike."""
    values = values[~np.isnan(values)]
    if not values.size:
        return ""
    found = [f"{each:.{digits}g}" for each in (np.median(values), values.min(), values.max())]
    return " ".join(found[:1] if found[1] == found[2] else found)


def column(frame: Any, name: str) -> np.ndarray:
    return frame[name].to_numpy()


def first_line(table: Table) -> str:
    frame, facts = table.arrow, table.metadata
    keys = set(zip(*(frame[name].to_pylist() for name in table.keys), strict=True)) if table.keys else ()
    shown = f"{len(keys)}" if table.keys else ""
    if facts["every"] is None or not frame.num_rows:
        return shown
    begins = sorted(set(frame["window"].to_pylist()))
    step = timedelta(microseconds=int(np.diff(table.released.edges)[-1]))
    # By the instant: a day may have 23 hours.
    end = begins[-1] + step if begins[-1].tzinfo is None else (begins[-1].astimezone(UTC) + step)
    end = end if end.tzinfo is None else end.astimezone(begins[-1].tzinfo)
    ends = (re.sub("(?<=:..):00$", "", str(each.replace(tzinfo=None))) for each in (begins[0], end))
    return " ".join([str(len(begins)), facts["every"], shown, *ends])


def expected_lines(table: Table) -> list[str]:
    """The numbers of each line of the print, from frame, metadata and guarantee alone."""
    frame, facts, found = table.arrow, table.metadata, [first_line(table)]
    for name in facts["statistics"]:
        alone = len(facts["statistics"]) == 1
        low, high = (column(frame, end if alone else f"{name}_{end}") for end in ("low", "high"))
        error = [facts["confidence"], spread((high - low) / 2.0, 4)] if low.size else []
        error = [spread(column(frame, "std_error"), 4), *error] if alone else error
        found += [spread(column(frame, "estimate" if alone else name), 6)] if low.size else []
        found.append(" ".join(map(str, error)))
    for name, ends in facts["clip"].items():
        share = facts["clipped_rows"][name]
        shown = [*(f"{end:g}" for end in ends), "" if share is None else f"{share:.2g}"]
        found.append("" if ends == [0.0, 0.0] else " ".join(shown))
    found += [] if facts["clip"] else [""]
    found += [] if facts["dropped_rows"] is None else [f"{facts['dropped_rows']:.2g}"]
    without = "the number of their dropped rows is unknown", "after their window was closed"
    found += ["" for line in str(table).splitlines() if any(each in line for each in without)]
    told = facts["guarantee"]
    delta = f"{told['delta']:g}" if told["delta"] else ""
    return [*found, f"{told['epsilon']:g} {delta} {told['unit']} {told['adjacency']}"]


@pytest.mark.parametrize("case", CASES)
def test_what_is_printed_is_in_the_frame(case: str) -> None:
    table = CASES[case]()
    printed = [line for line in str(table).splitlines() if not line.startswith(("  missing", "  far", "  outside"))]
    expected = list(map(numbers, expected_lines(table)))
    if not table.arrow.num_rows:
        assert "no key was released" in printed[1]
        printed[0], expected[0] = "", []
    assert [numbers(line) for line in printed] == expected
    page = table._repr_html_()
    rows = table.arrow.slice(0, 8)
    cells = [html.unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", page)]
    for cell, value in zip(cells, (each for row in rows.to_pylist() for each in row.values()), strict=True):
        assert cell == (f"{value:.5g}" if isinstance(value, float) else str(value))
    more = re.findall(r"and ([\d,]+) rows more", page)
    assert more == ([f"{table.arrow.num_rows - 8:,}"] if table.arrow.num_rows > 8 else [])
    below = page.removesuffix("</div>").partition("</table>")[2].split("<br>")
    lines = [html.unescape(line) for line in below if "rows more" not in line]
    facts = [numbers(line) for line in lines if not line.startswith(("missing", "far", "outside"))]
    assert facts == expected[1:]
    assert html.unescape(re.findall("<strong>(.*?)</strong>", page)[0]) == table.title()


@pytest.mark.parametrize("case", CASES)
def test_what_is_drawn_is_in_the_frame(case: str) -> None:
    """Lines, bands, bars and words of pictures: of up to six keys a panel each, else all keys pooled."""
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    table = CASES[case]()
    several, given = len(table.names) > 1, table.arrow
    if not given.num_rows:
        return
    axes = np.atleast_1d(table.plot())
    adds_up = "nunique" not in table.names[0]
    keys = sorted(set(zip(*(given[name].to_pylist() for name in table.keys), strict=True))) if table.keys else [()]
    shown = [(name, key) for name in table.names for key in (keys if not several and len(keys) <= 6 else [None])]
    assert len(axes) == len(shown)
    for ax, (name, key) in zip(axes, shown, strict=True):
        if key is None:
            frame = (table.level(0) if table.keys and adds_up else table).arrow
        else:
            own = [
                given[column].to_numpy(zero_copy_only=False) == each
                for column, each in zip(table.keys, key, strict=True)
            ]
            frame = given.filter(pa.array(np.logical_and.reduce(own))) if own else given
            title = ", ".join(map(str, key))
            assert ax.get_title(loc="left") == (f"{', '.join(table.keys)} = {title}" if key else "")
        if key is None:
            pooled = f"all {len(keys)} keys of {', '.join(table.keys)}" if table.keys else ""
            assert ax.get_title(loc="left") == ", ".join(filter(None, [name if several else "", pooled]))
        prefix = {each: (each if not several else f"{name}_{each}") for each in ("low", "high", "revised")}
        estimate = column(frame, name if several else "estimate")
        low, high, revised = (column(frame, prefix[each]) for each in ("low", "high", "revised"))
        if len(table) == 1:
            (point, _, (bars,)) = ax.containers[0]
            np.testing.assert_allclose(point.get_ydata(), estimate)
            ends = np.array([low[0], high[0]])
            np.testing.assert_allclose(np.ravel(bars.get_segments()[:1])[1::2], ends[~np.isnan(ends)])
            continue
        line, smooth = (each.get_ydata() for each in ax.get_lines())
        begun = ~np.isnan(line)
        np.testing.assert_allclose(line[begun], estimate)
        np.testing.assert_allclose(smooth[begun], revised)
        edges = [path.vertices[:, 1] for path in ax.collections[0].get_paths()]
        # Windows without an end have no band.
        known = ~np.isnan(high - low)
        shown_edges = np.concatenate([*edges, np.empty(0)])
        assert np.isin(shown_edges, np.concatenate([low[known], high[known]])).all()
        assert np.isin(np.concatenate([low[known], high[known]]), shown_edges).all()
    facts, told = table.facts(), table.metadata["guarantee"]
    caption = axes[-1].get_xlabel().split("\n")
    caption = caption[1:] if caption[0].startswith("time") else caption
    said = [numbers(text) for name, text in facts if name in ("clip", "persons", "missing", "far", "outside")]
    assert [numbers(line) for line in caption] == said
    head = axes[0].figure.get_suptitle()
    delta = f"{told['delta']:g}" if told["delta"] else ""
    assert numbers(head) == numbers(f"{told['epsilon']:g} {delta} {told['unit']}")


FEW = np.random.default_rng(2)
#: A column's rows, of some persons, and its bounds.
VALUES_OF = {
    "near": (FEW.gamma(2.0, 0.5, 3000), 10.0),
    "far": (FEW.gamma(2.0, 0.5, 300), 1000.0),
    "heavy": (FEW.pareto(1.5, 3000), 1e4),
    "both signs": (FEW.normal(0.0, 1.0, 300), (-1000.0, 1000.0)),
    "clip": (FEW.gamma(2.0, 0.5, 3000), fastdp.Value(clip=1.0)),
    "inner clip": (FEW.gamma(2.0, 0.5, 3000), fastdp.Value(clip=(0.5, 1.0))),
    "wide clip": (FEW.gamma(2.0, 0.5, 3000), fastdp.Value(clip=1.0, bound=(-5.0, 50.0))),
    "past": (FEW.normal(0.0, 1.0, 3000), 10.0),
}


@pytest.mark.parametrize("unit", [fastdp.Rows(), fastdp.Person("who", rows=3), fastdp.Person("who", rows="auto")])
@pytest.mark.parametrize("case", VALUES_OF)
def test_an_end_that_is_missing_has_a_sentence(case: str, unit: fastdp.Rows | fastdp.Person) -> None:
    values, bounds = VALUES_OF[case]
    frame = {"at": np.datetime64("2024-03-01", "s") + 3600 * (np.arange(values.size) % 240), "v": values}
    rows = pa.table(frame | {"who": np.arange(values.size) // 5, "w": values})
    time = fastdp.Time("at", "12h", start="2024-03-01", stop="2024-03-11")
    kinds = ["sum", "mean", "var", "std", "median", "p95"]
    given = {"epsilon": 1.0, "unit": unit, "seed": 1}
    tables = [fastdp.aggregate(rows, {"v": kind}, time, bounds={"v": bounds}, **given) for kind in kinds]
    several = fastdp.aggregate(rows, {"v": kinds, "*": "count"}, time, bounds={"v": bounds}, **given)
    distinct = fastdp.aggregate(rows, {"who": "nunique", "w": "nunique"}, time, **given)
    tables += [several[name] for name in several.names] + [distinct[name] for name in distinct.names]
    found = [told_if_missing(table) for table in [*tables, several]]
    assert any(found) or isinstance(unit, fastdp.Rows), "rows of persons that are dropped are in no number"


def test_missing_ends_online_have_a_sentence() -> None:
    hours, at = fastdp.Time("at", "1h", start="2024-05-01"), np.full(900, np.datetime64("2024-05-01T00:10"))
    options = {"by": ["a", "b"], "keys": fastdp.PrivateKeys(), "delta": 1e-9}
    windows = fastdp.Windows({"*": "count"}, hours, epsilon=1.0, seed=1, **options)
    windows.add(at, keys={"a": ["x"] * 900, "b": ["y"] * 450 + ["z"] * 450})
    windows.add(at + np.timedelta64(1, "h"), keys={"a": ["x"] * 900, "b": ["n"] * 900})
    table = windows.advance("2024-05-01T02:00")
    assert not np.isnan(column(table.arrow, "high")).any()
    assert told_if_missing(table.level(1))
    unit = fastdp.Person("who", rows=3, per="1h")
    windows = fastdp.Windows({"v": ["sum", "mean"]}, hours, epsilon=1.0, seed=1, unit=unit, bounds=10.0)
    windows.add(at, np.ones(900), persons=np.arange(900) // 3)
    assert told_if_missing(windows.advance("2024-05-01T02:00"))


def told_if_missing(table: fastdp.Table) -> bool:
    """True if an end of the frame is missing; then metadata, print and notebook say which."""
    found = False
    for end in ("low", "high"):
        named = [name for name in table.arrow.column_names if name.endswith(end)]
        if any(np.isnan(column(table.arrow, name)).any() for name in named):
            found = True
            said = [
                each for each in table.metadata["missing"] if re.search(rf"\b{end}\b.* (is|are) missing, as ", each)
            ]
            assert said
            assert all(each in text for each in said for text in (repr(table), html.unescape(table._repr_html_())))
    return found
