"""Released windows as Arrow tables and files (Parquet, CSV), and in words."""

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
from fastdp.tables.promise import path_taken
from fastdp.tables.released import Released
from fastdp.tables.statistics import Statistic
from fastdp.tables.tails import Tail
from fastdp.units import OFFSET
from fastdp.validation import refusal

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW = "window"
#: Name of the metadata in Parquet's schema.
METADATA = "fastdp"
#: Columns of the only statistic, and of each of several after its name; the latter without standard errors.
ALONE = ("estimate", "std_error", "low", "high", "revised", "revised_low", "revised_high")
OF_SEVERAL = ("", "_low", "_high", "_revised", "_revised_low", "_revised_high")


def arrow_table(released: Released, answers: Answers, depth: int) -> pa.Table:
    """One row for each window and node of a depth (:attr:`Table.frame`)."""
    numbers: dict[str, Floats] = {}
    for statistic in released.statistics:
        exact, revised = (answers.windows(statistic, depth, revised=which) for which in (False, True))
        listed = [exact.estimate, exact.std_error, exact.low, exact.high, revised.estimate, revised.low, revised.high]
        names: Sequence[str] = ALONE
        if len(released.statistics) > 1:
            del listed[1]
            names = [statistic.name + end for end in OF_SEVERAL]
        numbers |= dict(zip(names, listed, strict=True))
    answers.forget_revisions()
    columns = _places(released, depth, {*numbers})
    columns |= {name: arrow.array(array.ravel()) for name, array in numbers.items()}
    return _released_rows(arrow.table(columns), released, depth)


def shown_rows(released: Released, depth: int) -> Flags:
    """True for windows and nodes in the frame: bool[W, K]."""
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
        given = np.maximum(np.nan_to_num(answers.windows(statistic, level, revised=revised).estimate), 0.0)
        found = divided(found, given, released.parents[level - 1]) if level else np.rint(given).astype(np.int64)
    columns = _places(released, depth, {statistic.name})
    table = arrow.table(columns | {statistic.name: arrow.array(found.ravel())})
    return _released_rows(table, released, depth)


def divided(totals: Integers, wanted: Floats, parents: Integers) -> Integers:
    """Integers near `wanted` that add up to `totals`, by largest remainders."""
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


def metadata(released: Released, answers: Answers, depth: int) -> Json:
    """Public facts as strict JSON."""
    rows = released.rows
    return {
        "fastdp": __version__,
        "statistics": [each.name for each in released.statistics],
        "every": released.every,
        "time_zone": released.time_zone,
        "keys": list(released.keys),
        "clip": {column: list(tail.clip) for column, tail in released.tails.items()},
        "confidence": answers.confidence,
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
        "missing": [text for name, text in described(released, answers, depth) if name in ("missing", "far")],
        **({} if released.shares.plan.basis is None else {"basis": _calendar(released)}),
        "guarantee": released.guarantee.to_dict(),
    }


def _calendar(released: Released) -> Json:
    basis, sums = released.shares.plan.basis, released.quantities
    assert basis is not None  # noqa: S101 - called with one
    left = [max(number.value, 0) * q.resolution for q, number in zip(sums, released.residuals, strict=True)]
    return {"numbers": basis.size, "left": left, "text": path_taken(released.shares)}


def write(table: pa.Table, facts: Json, path: str | Path, *, overwrite: bool) -> None:
    """Write an Arrow table: see :meth:`fastdp.tables.table.Table.write`."""
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


def described(released: Released, answers: Answers, depth: int) -> list[tuple[str, str]]:
    """Names and texts of clips, dropped shares and missing ends."""
    found = []
    for column, each in released.tails.items():
        of = "values" if len(released.tails) == 1 else f"values of {column!r}"
        low, high = each.clip
        share = "" if each.share is None else f", which hold all but about {each.share:.2g} of the rows"
        text = f"{of} up to [{low:g}, {high:g}] are in cells' sums{share}"
        if not each.cells:
            text = f"{of}: one number for the table, as noise drowns its cells"
        elif each.choice.second > each.choice.clip:
            rest = "one number" if each.choice.tail else "numbers of rows by size"
            text = f"{text}; {rest} holds the rest, in shares of the sums"
        elif not each.sides and each.bounded:
            text = f"{text}; values beyond the bound are not looked for"
        found.append(("clip", text))
        found += [("missing", text) for text in _missing(each, of)]
        for end, number in each.past.items():
            negative = "negative (below the bound)" if not end and not low else f"{('below', 'above')[end]} the bound"
            found.append(("outside", f"about {number:,} {of} are {negative}"))
        if (far := each.far(answers.confidence)) is not None:
            found.append(("far", far if len(released.tails) == 1 else f"{column}: {far}"))
    if not found:
        found.append(("clip", "counts: nothing is clipped"))
    if released.shares.plan.basis is not None:
        found.append(("basis", f"{path_taken(released.shares)}"))
    if (closes := released.shares.plan.closes) != "table":
        found.append(("late", f"rows that came after their {closes[:-1]} was closed are in no number"))
    if (rows := released.rows) is not None:
        told = "the number of their dropped rows is unknown"
        if released.shares.plan.keeps_all:
            told = f"none are dropped, as no person has more than {released.shares.plan.unit.most:,} rows"
        elif rows.share is not None:
            told = f"at least about {rows.share:.2g} of their rows were dropped"
        found.append(("persons", told))
    reasons: dict[str, list[str]] = {}
    for statistic in released.statistics:
        for reason in answers.reasons(statistic, depth):
            reasons.setdefault(reason, []).append(statistic.name)
    for reason, names in reasons.items():
        found.append(("missing", reason if len(released.statistics) == 1 else f"{', '.join(names)}: {reason}"))
    return found


def _missing(tail: Tail, of: str) -> list[str]:
    ends, unknown = ("low", "high"), tail.unknown
    which = " and ".join(name for name, missing in zip(ends, unknown, strict=True) if missing)
    verb = "are" if all(unknown) else "is"
    if tail.past:
        return [f"{which} {verb} missing, as {of} lie beyond the bound"]
    if any(unknown):
        bound = "" if tail.bounded else "; a public bound of all values gives them"
        return [f"{which} {verb} missing, as {of} beyond the clip are in no number{bound}"]
    if not tail.cells and tail.signed:
        return [f"low and high of parts are missing, as {of} have both signs and the table one number"]
    return []
