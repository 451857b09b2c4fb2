"""Released windows as Arrow tables, files (Parquet, CSV) and plots."""

from __future__ import annotations

import importlib
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fastdp import validation
from fastdp._version import __version__
from fastdp.data.column import arrow
from fastdp.kinds import Flags, Floats, Integers, Json
from fastdp.state.atomic_files import described_file
from fastdp.tables.answers import Answers
from fastdp.tables.consistent import grouped
from fastdp.tables.released import Released
from fastdp.tables.statistics import CLIPPED, Statistic
from fastdp.units import OFFSET
from fastdp.validation import refusal

if TYPE_CHECKING:
    import pyarrow as pa

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
    with described_file(target, beside, facts, overwrite=validation.flag("overwrite", overwrite)) as file:
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
