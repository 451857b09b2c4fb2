"""Released windows as Arrow tables, as files (Parquet, CSV with a JSON file, NumPy's npz) and as plots."""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from fastdp import validation
from fastdp._version import __version__
from fastdp.data.source import import_tables
from fastdp.errors import ParameterError
from fastdp.kinds import Array, Floats, Integers, Json
from fastdp.releases.pictures import band, check_axes, new_axes, save
from fastdp.state.atomic_files import atomic_file
from fastdp.tables import choices
from fastdp.tables.answers import Answer, Answers
from fastdp.tables.revised import DAY
from fastdp.tables.sums import Released, Statistic
from fastdp.units import OFFSET, zone_of

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

    #: Writes a table and its description into a file.
    Writer = Callable[[pa.Table, str, BinaryIO], None]

WINDOW = "window"
#: Name of the metadata in Parquet's schema and in an npz archive.
METADATA = "fastdp"
#: Columns of the only statistic, and of each of several after its name; the latter without standard errors.
ALONE = (
    *("estimate", "std_error", "low", "high", "revised", "revised_low", "revised_high"),
    *("clipped", "clipped_low", "clipped_high"),
)
OF_SEVERAL = ("", "_low", "_high", "_revised", "_revised_low", "_revised_high")


def arrow_table(released: Released, answers: Answers) -> pa.Table:
    """One row for each window and key, sorted by window, then key; columns as of :attr:`Table.frame`."""
    _, arrow = import_tables()
    windows, keys = released.measured[0].steps.shape[1:]
    first = np.arange(windows)
    numbers: dict[str, Floats] = {}
    texts: dict[str, str] = {}
    for statistic in released.statistics:
        exact, revised = (answers.about(statistic, first, first + 1, revised=which) for which in (False, True))
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
    columns = {}
    if released.every is not None:
        kind = arrow.timestamp("us", released.time_zone)
        columns[WINDOW] = arrow.array(np.repeat(released.edges[:-1], keys), kind)
    place = arrow.array(np.tile(np.arange(keys), windows))
    for name, values in released.keys.items():
        # A key column may have the name of one of ours.
        shown = name
        while shown in (WINDOW, METADATA, *numbers, *texts) or (shown != name and shown in released.keys):
            shown += "_key"
        columns[shown] = arrow.array(values).take(place)
    columns |= {name: arrow.array(array.ravel()) for name, array in numbers.items()}
    return arrow.table(columns | {name: arrow.repeat(text, len(place)) for name, text in texts.items()})


def readable(table: pa.Table, family: str) -> pa.Table:
    """The Arrow table with a zone that `family` supports: polars knows offsets of full hours only."""
    if WINDOW not in table.column_names:
        return table
    fixed = OFFSET.fullmatch(table.schema.field(WINDOW).type.tz or "")
    if family != "polars" or not fixed or fixed[3] == "00":
        return table
    _, arrow = import_tables()
    return table.set_column(0, WINDOW, table[WINDOW].cast(arrow.timestamp("us", "UTC")))


def metadata(released: Released, confidence: float) -> Json:
    """Public facts about the numbers of a file, as strict JSON."""
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
                "depth": measured.depth,
                "each_window": measured.each,
                "sigma_steps" if noise.gaussian else "scale_steps": str(noise.scale),
                "resolution": q.resolution,
            }
            for measured in released.measured
            for q, noise in zip(released.quantities, measured.noise, strict=True)
        ],
        "clipped_rows": {column: tail.share for column, tail in released.tails.items()},
        "dropped_rows": None if rows is None else rows.share,
        "guarantee": released.guarantee.to_dict(),
    }


def write(table: pa.Table, facts: Json, path: str | Path, *, overwrite: bool) -> None:
    """Write an Arrow table in the format of the path's suffix; see :meth:`fastdp.tables.table.Table.write`."""
    target = Path(validation.path("path", path))
    kind = kind_of(target)
    beside = description_of(target)
    for each in (target, *([] if beside is None else [beside])):
        if each.exists() and not overwrite:
            raise ParameterError(f"path = {str(each)!r}: exists already; expected a new name, or overwrite=True")
    text = json.dumps(facts, allow_nan=False)
    if beside is not None:
        # First: numbers without their description are never there.
        with atomic_file(beside, overwrite=overwrite) as file:
            file.write(json.dumps(facts, allow_nan=False, indent=1).encode() + b"\n")
    with atomic_file(target, overwrite=overwrite) as file:
        kind(table, text, file)


def kind_of(path: Path) -> Writer:
    """The writer of a path's suffix; ParameterError for an unknown one."""
    name = path.name.lower()
    for suffix, kind in KINDS.items():
        if name.endswith(suffix):
            return kind
    raise ParameterError(f"path = {str(path)!r}: expected a name that ends in {', '.join(KINDS)}")


def description_of(path: Path) -> Path | None:
    """Path of the JSON file for a format that cannot hold metadata; else None."""
    return path.with_name(f"{path.name}.json") if path.name.lower().endswith(".csv") else None


def _parquet(table: pa.Table, _text: str, file: BinaryIO) -> None:
    importlib.import_module("pyarrow.parquet").write_table(table, file)


def _csv(table: pa.Table, _text: str, file: BinaryIO) -> None:
    importlib.import_module("pyarrow.csv").write_csv(table, file)


def _npz(table: pa.Table, text: str, file: BinaryIO) -> None:
    # Texts as NumPy's own, so that the archive is read without pickle.
    arrays = {name: _plain(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    # numpy.savez takes names as keywords, and a column may be called "file".
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in {**arrays, METADATA: np.array(text)}.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _plain(column: pa.ChunkedArray) -> Array:
    array = column.to_numpy()
    return np.array(column.to_pylist()).astype(str) if array.dtype.kind == "O" else array


KINDS: dict[str, Writer] = {".parquet": _parquet, ".csv": _csv, ".npz": _npz}


# Pictures of released windows: estimate, interval and revised line; needs matplotlib (``fastdp-streams[plot]``).

#: Up to so many keys are drawn one below the other; more are added up.
MAX_PANELS = 6
#: Points of a line; more windows are drawn as means of neighbours.
MAX_POINTS = 2000
#: Names of statistics.
QUANTITIES = {"sum": "total", "count": "count", "mean": "mean", "var": "variance", "std": "standard deviation"}


def draw(sums: Released, statistic: Statistic, answers: Answers, path: str | Path | None, ax: Any) -> Any:
    """Draw one statistic of a table; see :meth:`fastdp.tables.table.Table.plot`."""
    windows, keys = sums.measured[0].steps.shape[1:]
    if not windows:
        raise ParameterError("plot: the table holds no windows; expected at least one")
    if ax is not None:
        check_axes(*(np.ravel(ax) if isinstance(ax, (list, tuple, np.ndarray)) else [ax]))
    if not keys:
        return _without_keys(sums, path, ax)
    pooled = keys > (MAX_PANELS if ax is None else 1)
    panels = 1 if pooled else keys
    axes = np.atleast_1d(new_axes(panels, height=max(4.2, 0.8 + 1.9 * panels)) if ax is None else ax)
    group = _group(sums.edges)
    starts = np.arange(0, windows, group)
    stops = np.minimum(starts + group, windows)
    # A mean over windows is one already; sums are drawn as means of the windows that they cover.
    adds = statistic.kind in ("sum", "count")
    size = (stops - starts).astype(np.float64) if adds else np.ones(starts.size)
    exact, revised = (
        _scaled(answers.about(statistic, starts, stops, revised=which, depth=0 if pooled else None), size)
        for which in (False, True)
    )
    x = (sums.edges[starts] + (sums.edges[stops] - sums.edges[starts]) // 2).astype("datetime64[us]")
    names = [
        ", ".join(f"{name} = {key}" for name, key in zip(sums.keys, row, strict=True))
        for row in zip(*sums.keys.values(), strict=True)
    ]
    for k, each in enumerate(axes):
        lines = (exact.estimate, exact.low, exact.high, revised.estimate)
        estimate, low, high, smooth = (line[:, k] for line in lines)
        band(each, x, estimate, low, high, smooth)
        _limit(each, exact.estimate[:, k], exact.low[:, k], exact.high[:, k])
        title = f"all {keys:,} keys together" if pooled else names[k] if names else ""
        each.set_title(title, loc="left", fontsize=10)
    quantity = QUANTITIES[statistic.kind]
    grouped = f", means of {group} windows" if group > 1 and adds else ""
    label = f"{quantity}, windows of {sums.every}{grouped}" if sums.every is not None else f"{quantity}, all rows"
    if panels == 1:
        axes[0].set_ylabel(label)
    else:
        axes[0].figure.supylabel(label, fontsize=10)
    axes[0].legend(frameon=False, loc="upper right", ncols=3, fontsize=8)
    _clock(axes[-1], sums)
    if path is not None:
        save(axes[0], path)
    return axes[0] if panels == 1 else axes


def _group(edges: Integers) -> int:
    """Number of windows in one plotted point: one, or a full day or week of them, which averages out its pattern."""
    needed = -(-(edges.size - 1) // MAX_POINTS)
    usual = int(np.median(np.diff(edges)))
    for period in (DAY, 7 * DAY):
        if 1 < needed <= period // usual and period % usual == 0:
            return period // usual
    return needed


def _scaled(answer: Answer, size: Floats) -> Answer:
    estimate, error, low, high = (
        part / size[:, None] for part in (answer.estimate, answer.std_error, answer.low, answer.high)
    )
    return Answer(estimate, error, low, high)


def _limit(ax: Axes, estimate: Floats, low: Floats, high: Floats) -> None:
    """Limit the y axis, so that a few very wide intervals do not flatten all others."""
    reach = np.quantile(high - low, 0.9)
    bottom, top = max(low.min(), estimate.min() - reach), min(high.max(), estimate.max() + reach) + 1e-9 * reach
    if bottom < top:
        ax.set_ylim(bottom, top)


def _without_keys(sums: Released, path: str | Path | None, ax: Axes | None) -> Axes:
    """A plot that says that no key was released: a private choice of keys costs its budget even then."""
    ax = new_axes() if ax is None else ax
    ax.text(0.5, 0.5, "no key was released", ha="center", va="center", transform=ax.transAxes)
    ax.set_xlabel(_caption(sums))
    if path is not None:
        save(ax, path)
    return ax


def _caption(sums: Released) -> str:
    """Text about clipped and dropped shares."""
    return "\n".join(text if name == "clip" else f"{name}: {text}" for name, text in choices.described(sums))


def _clock(ax: Axes, sums: Released) -> None:
    """Label the x axis with times of the zone's clock, and the caption."""
    dates = importlib.import_module("matplotlib.dates")

    zone = zone_of(sums.time_zone)
    locator = dates.AutoDateLocator(tz=zone)
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zone))
    time = "time" if sums.time_zone is None else f"time ({sums.time_zone})"
    ax.set_xlabel(f"{time}\n{_caption(sums)}")
