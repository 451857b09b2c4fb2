"""Released windows as Arrow tables, files (Parquet, CSV) and plots."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdp import validation
from fastdp._version import __version__
from fastdp.data.source import arrow
from fastdp.errors import ParameterError
from fastdp.kinds import Flags, Floats, Integers, Json
from fastdp.releases.pictures import ESTIMATE, band, check_axes, new_axes, save
from fastdp.state.atomic_files import atomic_file
from fastdp.tables.answers import Answers
from fastdp.tables.consistent import grouped
from fastdp.tables.released import Released
from fastdp.tables.statistics import CLIPPED, Statistic
from fastdp.units import OFFSET, zone_of
from fastdp.validation import DAY, refusal

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

WINDOW = "window"
#: Name of the metadata in Parquet's schema.
METADATA = "fastdp"
#: Columns of the only statistic, and of each of several after its name; the latter without standard errors.
ALONE = (
    *("estimate", "std_error", "low", "high", "revised", "revised_low", "revised_high"),
    *("clipped", "clipped_low", "clipped_high"),
)
OF_SEVERAL = ("", "_low", "_high", "_revised", "_revised_low", "_revised_high")


def arrow_table(released: Released, answers: Answers, depth: int) -> pa.Table:
    """One row for each window and node of a depth; columns of :attr:`Table.frame`."""
    first = np.arange(released.edges.size - 1)
    numbers: dict[str, Floats] = {}
    texts: dict[str, str] = {}
    for statistic in released.statistics:
        exact, revised = (
            answers.about(statistic, first, first + 1, revised=which, depth=depth) for which in (False, True)
        )
        clipped = exact.clipped
        listed = [exact.estimate, exact.std_error, exact.low, exact.high, revised.estimate, revised.low, revised.high]
        listed += [clipped.estimate, clipped.low, clipped.high]
        names: Sequence[str] = ALONE
        texts["about"] = exact.about
        if len(released.statistics) > 1:
            del listed[7:], listed[1]
            names = [statistic.name + end for end in OF_SEVERAL]
            texts[f"{statistic.name}_about"] = texts.pop("about")
        numbers |= dict(zip(names, listed, strict=True))
    columns = _places(released, depth, {*numbers, *texts})
    columns |= {name: arrow.array(array.ravel()) for name, array in numbers.items()}
    rows = (released.edges.size - 1) * released.sizes[depth]
    found = arrow.table(columns | {name: arrow.repeat(text, rows) for name, text in texts.items()})
    return _released_rows(found, released, depth)


def shown_rows(released: Released, depth: int) -> Flags:
    """True for windows and nodes of a depth that are rows of the frame: bool[W, K]."""
    # A day that a zone leaves out has no length, and the next one's name.
    shown = np.repeat(np.diff(released.edges)[:, None] > 0, released.sizes[depth], axis=1)
    if released.begins is not None and depth == len(released.parents):
        shown &= np.arange(released.edges.size - 1)[:, None] >= released.begins
    return shown


def _released_rows(table: pa.Table, released: Released, depth: int) -> pa.Table:
    shown = shown_rows(released, depth)
    return table if shown.all() else table.filter(arrow.array(shown.ravel()))


def _places(released: Released, depth: int, taken: Set[str]) -> dict[str, pa.Array]:
    windows, size = released.edges.size - 1, released.sizes[depth]
    columns = {}
    if released.every is not None:
        kind = arrow.timestamp("us", released.time_zone)
        columns[WINDOW] = arrow.array(np.repeat(released.edges[:-1], size), kind)
    place = arrow.array(np.tile(np.arange(size), windows))
    listed = released.nodes[depth]
    for name, values in listed.items():
        # A key column may have the name of one of ours.
        shown = name
        while shown in (WINDOW, METADATA, *taken) or (shown != name and shown in listed):
            shown += "_key"
        columns[shown] = arrow.array(values).take(place)
    return columns


def whole_numbers(
    released: Released, answers: Answers, statistic: Statistic, depth: int, *, revised: bool
) -> pa.Table:
    """Integers of at least 0 that add up: see :meth:`Table.whole_numbers`."""
    first = np.arange(released.edges.size - 1)
    found: Integers = np.zeros((first.size, 1), np.int64)
    for level in range(depth + 1):
        given = answers.about(statistic, first, first + 1, revised=revised, depth=level).estimate
        given = np.maximum(np.nan_to_num(given), 0.0)
        found = divided(found, given, released.parents[level - 1]) if level else np.rint(given).astype(np.int64)
    columns = _places(released, depth, {statistic.name})
    table = arrow.table(columns | {statistic.name: arrow.array(found.ravel())})
    return _released_rows(table, released, depth)


def divided(totals: Integers, wanted: Floats, parents: Integers) -> Integers:
    """Integers near `wanted` that add up to parents' `totals`: largest remainders first."""
    width = totals.shape[1]
    sums, each = grouped(wanted, parents, width)[:, parents], np.bincount(parents, minlength=width)[parents]
    equal = np.broadcast_to(1.0 / each, wanted.shape).copy()
    exact = np.divide(wanted, sums, out=equal, where=sums > 0.0) * totals[:, parents]
    found: Integers = np.floor(exact).astype(np.int64)
    left = totals - np.rint(grouped(found.astype(np.float64), parents, width)).astype(np.int64)
    # In each window the nodes of a parent by their remainders.
    order = np.lexsort((found - exact, np.broadcast_to(parents, exact.shape)), axis=1)
    rank = np.arange(parents.size) - np.searchsorted(np.sort(parents), np.sort(parents))
    more = rank < np.take_along_axis(left[:, parents], order, 1)
    np.put_along_axis(found, order, np.take_along_axis(found, order, 1) + more, 1)
    return found


def readable(table: pa.Table, family: str) -> pa.Table:
    """The table with a zone that `family` supports."""
    if WINDOW not in table.column_names:
        return table
    fixed = OFFSET.fullmatch(table.schema.field(WINDOW).type.tz or "")
    if family != "polars" or not fixed or fixed[3] == "00":
        return table
    return table.set_column(0, WINDOW, table[WINDOW].cast(arrow.timestamp("us", "UTC")))


def metadata(released: Released, confidence: float) -> Json:
    """Public facts as strict JSON."""
    rows = released.rows
    return {
        "fastdp": __version__,
        "statistics": [each.name for each in released.statistics],
        "every": released.every,
        "time_zone": released.time_zone,
        "keys": list(released.keys),
        "clip": {column: list(tail.clip) for column, tail in released.tails.items()},
        "confidence": confidence,
        "noise": [
            {
                "sum": q.name,
                "column": q.column,
                "depth": measured.level.depth,
                "each_window": measured.level.each,
                "sigma_steps" if noise.gaussian else "scale_steps": str(noise.scale),
                "resolution": q.resolution,
            }
            for measured in released.sums
            for q, noise in zip(measured.quantities, measured.noise, strict=True)
        ],
        "clipped_rows": {column: tail.share for column, tail in released.tails.items()},
        "dropped_rows": None if rows is None else rows.share,
        "guarantee": released.guarantee.to_dict(),
    }


def write(table: pa.Table, facts: Json, path: str | Path, *, overwrite: bool) -> None:
    """Write an Arrow table; see :meth:`fastdp.tables.table.Table.write`."""
    target = Path(validation.path("path", path))
    kind, beside = kind_of(target), description_of(target)
    for each in (target, beside or target):
        if each.exists() and not overwrite:
            raise ParameterError(f"path = {str(each)!r}: exists already; expected a new name, or overwrite=True")
    if beside is not None:
        # First: numbers without their description are never there.
        with atomic_file(beside, overwrite=overwrite) as file:
            file.write(json.dumps(facts, allow_nan=False, indent=1).encode() + b"\n")
    with atomic_file(target, overwrite=overwrite) as file:
        if kind == ".csv":
            importlib.import_module("pyarrow.csv").write_csv(table, file)
        else:
            importlib.import_module("pyarrow.parquet").write_table(table, file)


def kind_of(path: Path) -> str:
    """Suffix of a path; ParameterError for another one."""
    for suffix in (".parquet", ".csv"):
        if path.name.lower().endswith(suffix):
            return suffix
    raise refusal("path", str(path), "a name that ends in .parquet or .csv")


def description_of(path: Path) -> Path | None:
    """JSON file of a format without metadata."""
    return path.with_name(f"{path.name}.json") if kind_of(path) == ".csv" else None


# In words.


def described(released: Released, answers: Answers) -> list[tuple[str, str]]:
    """Names and texts of clips and dropped shares."""
    found = []
    for column, each in released.tails.items():
        share = "" if each.share is None else f", which cut about {each.share:.2g} of the rows"
        if each.share is None and each.counts.size:
            share = ", which cut an unknown share of the rows"
        of = "values" if len(released.tails) == 1 else f"values of {column!r}"
        low, high = each.clip
        first = np.arange(min(1, released.edges.size - 1))
        sums = [of for of in released.statistics if of.column == column and of.reaches]
        abouts = {answers.about(statistic, first, first + 1).about for statistic in sums}
        clipped = CLIPPED in abouts or not sums
        about = "intervals are about clipped values" if clipped else "those beyond it are estimated"
        if not clipped and not each.counts.size:
            about = "values beyond the bound are not looked for"
        if not each.resolved:
            about = "no clip below the bound was chosen, as too few nonzero values were counted"
        found.append(("clip", f"{of} were clipped to [{low:g}, {high:g}]{share}; {about}"))
        for end, number in each.past.items():
            negative = "negative (below the bound)" if not end and not low else f"{('below', 'above')[end]} the bound"
            found.append(("outside", f"about {number:,} {of} are {negative}; intervals are about clipped values"))
    if not found:
        found.append(("clip", "counts: nothing is clipped"))
    if released.rows is not None and released.rows.share is not None:
        found.append(("persons", f"at least about {released.rows.share:.2g} of their rows were dropped"))
    elif released.has_persons and (released.rows is None or not released.rows.counted.known):
        found.append(("persons", "the number of their dropped rows is unknown; intervals are about those that count"))
    return found


# Pictures of released windows: estimate, interval and revised line; needs matplotlib (``fastdp-streams[plot]``).

#: Up to so many keys are drawn one below the other; more are added up.
MAX_PANELS = 6
#: Points of a line; more windows are drawn as means of neighbours.
MAX_POINTS = 2000
#: Colour of windows that the table covers in part.
PARTIAL = "#00000014"


def draw(sums: Released, answers: Answers, depth: int, path: str | Path | None, ax: Any) -> Any:
    """Draw the statistics; see :meth:`fastdp.tables.table.Table.plot`."""
    statistics, windows, keys = sums.statistics, sums.edges.size - 1, sums.sizes[depth]
    if not windows:
        raise ParameterError("plot: the table holds no windows; expected at least one")
    given = None
    if ax is not None:
        several = ax.ravel() if isinstance(ax, np.ndarray) else ax
        given = list(several) if isinstance(several, (np.ndarray, list, tuple)) else [ax]
        check_axes(*given)
    if not keys:
        return _without_keys(sums, answers, path, ax)
    one = len(statistics) == 1
    pooled = keys > (MAX_PANELS if given is None and one else 1)
    # A panel for each key of one statistic, or for each statistic.
    panels = [(each, k) for each in statistics for k in range(keys if one and not pooled else 1)]
    axes = np.atleast_1d(new_axes(len(panels), height=max(4.2, 1.2 + 1.9 * len(panels)))) if given is None else given
    if len(axes) < len(panels):
        raise ParameterError(f"ax: {len(axes)} axes: expected {len(panels)}, one a statistic or key")
    names = [", ".join(map(str, row)) for row in zip(*sums.nodes[depth].values(), strict=True)]
    of = ", ".join(sums.nodes[depth])
    for each, (statistic, k) in zip(axes, panels, strict=False):
        # An entry may be in several keys and windows: distinct ones are drawn of the first key, window by window.
        pools = statistic.has_levels
        group = _group(sums.edges) if pools else 1
        _panel(each, sums, answers, statistic, (k, group, 0 if pooled and pools else depth))
        which = [] if one else [statistic.name]
        if keys > 1 or names:
            which.append(f"all {keys:,} keys of {of}" if pooled and pools else f"{of} = {names[k]}")
        each.set_title(", ".join(which), loc="left", fontsize=9)
        each.set_ylabel(_label(sums, statistic, group), fontsize=9 if len(panels) < 3 else 7)
    axes[0].legend(frameon=False, loc="upper right", ncols=4, fontsize=8)
    if given is None:
        axes[0].figure.suptitle(_title(sums), x=0.01, ha="left", fontsize=9)
    _draw_time_axis(axes[len(panels) - 1], sums, answers)
    if path is not None:
        save(axes[0].figure, path)
    return axes[0] if len(panels) == 1 else axes


def _panel(ax: Axes, sums: Released, answers: Answers, statistic: Statistic, shown: tuple[int, int, int]) -> None:
    k, group, depth = shown
    windows = sums.edges.size - 1
    starts = np.arange(0, windows, group)
    stops = np.minimum(starts + group, windows)
    # A mean over windows is one already; sums are drawn as means of the windows that they cover.
    size = (stops - starts).astype(np.float64)[:, None] if statistic.adds_up else 1.0
    exact, revised = (answers.about(statistic, starts, stops, revised=which, depth=depth) for which in (False, True))
    lines = ((line / size)[:, k] for line in (exact.estimate, exact.low, exact.high, revised.estimate))
    estimate, low, high, smooth = lines
    x = (sums.edges[starts] + (sums.edges[stops] - sums.edges[starts]) // 2).astype("datetime64[us]")
    if starts.size == 1:
        ax.errorbar([0], estimate, [estimate - low, high - estimate], fmt="o", color=ESTIMATE, label="estimate")
        ax.set_xticks([])
    else:
        band(ax, x, estimate, low, high, smooth)
    _limit(ax, estimate, low, high, from_zero=statistic.from_zero)
    edges = sums.edges.astype("datetime64[us]")
    if sums.every is not None and starts.size > 1:
        ends = {"first": (edges[0], edges[1]), "last": (edges[-2], edges[-1])}
        for number, end in enumerate(sums.taken):
            # The table begins and ends within these windows, so their sums are of a part of them.
            ax.axvspan(*ends[end], color=PARTIAL, linewidth=0.0, label="" if number else "cut by the table")


def _label(sums: Released, statistic: Statistic, group: int) -> str:
    quantity = statistic.axis or statistic.kind
    if sums.every is None:
        return f"{quantity}, all rows"
    grouped = f", means of {group} windows" if group > 1 and statistic.adds_up else ""
    return f"{quantity}, windows of {sums.every}{grouped}"


def _title(sums: Released) -> str:
    guarantee = sums.guarantee
    delta = f", delta = {guarantee.delta:g}" if guarantee.delta else ""
    return f"epsilon = {guarantee.epsilon:g}{delta} for {guarantee.unit}"


def _group(edges: Integers) -> int:
    needed = -(-(edges.size - 1) // MAX_POINTS)
    usual = int(np.median(np.diff(edges)))
    for period in (DAY, 7 * DAY):
        if 1 < needed <= period // usual and period % usual == 0:
            return period // usual
    return needed


def _limit(ax: Axes, estimate: Floats, low: Floats, high: Floats, *, from_zero: bool) -> None:
    reach = np.quantile(high - low, 0.9)
    bottom, top = max(low.min(), estimate.min() - reach), min(high.max(), estimate.max() + reach) + 1e-9 * reach
    bottom, top = (min(bottom, 0.0), max(top, 0.0)) if from_zero else (bottom, top)
    if bottom < top:
        ax.set_ylim(bottom, top + 0.03 * (top - bottom))


def _without_keys(sums: Released, answers: Answers, path: str | Path | None, ax: Axes | None) -> Axes:
    ax = new_axes() if ax is None else ax
    ax.text(0.5, 0.5, "no key was released", ha="center", va="center", transform=ax.transAxes)
    ax.set_xlabel(_caption(sums, answers))
    if path is not None:
        save(ax.figure, path)
    return ax


def _caption(sums: Released, answers: Answers) -> str:
    return "\n".join(text if name == "clip" else f"{name}: {text}" for name, text in described(sums, answers))


def _draw_time_axis(ax: Axes, sums: Released, answers: Answers) -> None:
    if sums.every is None or sums.edges.size == 2:
        ax.set_xlabel(_caption(sums, answers), fontsize=8)
        return
    dates = importlib.import_module("matplotlib.dates")
    zone = zone_of(sums.time_zone)
    locator = dates.AutoDateLocator(tz=zone)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zone))
    time = "time" if sums.time_zone is None else f"time ({sums.time_zone})"
    ax.set_xlabel(f"{time}\n{_caption(sums, answers)}", fontsize=8)
