"""Views of a table: frames of every family, print, files, pictures; what was cut; a table without keys."""

from __future__ import annotations

import json
import re
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow.parquet as pq
import pytest

import fastdp
from fastdp.errors import AccuracyWarning, ParameterError
from fastdp.guarantee import Guarantee
from tests.tables import flat
from tests.tables.released import table

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pytest.importorskip("fastdp_kernels")
COLUMNS = ["window", "meter", "estimate", "std_error", "low", "high", "revised", "revised_low", "revised_high"]
TRUE = 30.0 + 10.0 * np.sin(np.arange(120) / 4.0)[:, None] * np.array([1.0, 2.0])
KEYS = {"meter": ["a", "b<i>"]}


def columns(frame, family):
    if family == "pandas":
        return {name: frame[name].tolist() for name in frame.columns}
    if family == "polars":
        return frame.to_dict(as_series=False)
    if family == "duckdb":
        return frame.to_arrow_table().to_pydict()
    return frame.to_pydict()


@pytest.mark.parametrize("family", ["pandas", "polars", "pyarrow", "duckdb"])
def test_the_frame_is_of_the_family_that_came_in(family):
    library = pytest.importorskip(family)
    t = table("totals", TRUE, keys=KEYS, family=family)
    kind = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "Table", "duckdb": "DuckDBPyRelation"}[family]
    assert type(t.frame).__name__ == kind
    assert type(t.frame).__module__.partition(".")[0] in (library.__name__, "_duckdb")
    found = columns(t.frame, family)
    assert list(found) == COLUMNS
    starts = np.arange(120)
    for name, answer in (("estimate", t.sum), ("std_error", t.std_error)):
        np.testing.assert_allclose(found[name], answer(starts, starts + 1).ravel())
    low, high = t.interval(starts, starts + 1)
    np.testing.assert_allclose([found["low"], found["high"]], [low.ravel(), high.ravel()])
    low, high = t.interval(starts, starts + 1, revised=True)
    np.testing.assert_allclose(found["revised"], t.sum(starts, starts + 1, revised=True).ravel())
    np.testing.assert_allclose([found["revised_low"], found["revised_high"]], [low.ravel(), high.ravel()])
    assert found["meter"] == ["a", "b<i>"] * 120
    # Seconds since 1970, in whatever zone the family shows them.
    assert [moment.timestamp() * 1e6 for moment in found["window"][::2]] == t.released.edges[:-1].tolist()
    if family != "duckdb":
        first = datetime.fromtimestamp(t.released.edges[0] / 1e6, ZoneInfo("Australia/Melbourne"))
        assert str(found["window"][0]) == str(first)


def test_naive_times_stay_naive_and_keys_may_have_taken_names():
    frame = table("counts", TRUE, keys=KEYS, time_zone=None).frame
    assert frame.schema.field("window").type == pa.timestamp("us")
    frame = table("counts", TRUE, keys={"low": [1, 2], "fastdp": ["x", None]}).frame
    assert frame.schema.field("window").type == pa.timestamp("us", "Australia/Melbourne")
    assert frame.column_names[:4] == ["window", "low_key", "fastdp_key", "estimate"]
    assert frame.to_pydict()["fastdp_key"][:4] == ["x", None, "x", None]
    named = table("counts", TRUE[:, :1], keys={"low": ["a"], "low_key": ["b"]}).frame
    assert named.column_names[:3] == ["window", "low_key_key", "low_key"]
    assert [named[name][0].as_py() for name in named.column_names[1:3]] == ["a", "b"]


def test_five_lines_and_html_say_what_was_released():
    for kind, text in (("totals", "half-width of the 0.95 interval"), ("counts", "nothing is clipped")):
        shown = repr(table(kind, TRUE, keys=KEYS))
        assert len(shown.splitlines()) == 5
        assert text in shown
        assert shown.startswith(f"{kind.capitalize()} of 120 windows of 1h x 2 keys (meter), 2015-03-28 11:00 to")
        assert "epsilon = 0.5 for one row of the table" in shown
    one = table("counts", np.full((1, 1), 7.0), keys={"k": ["a"]})
    assert one.title().startswith("Counts of 1 window of 1h x 1 key (k), ")
    html = table("totals", TRUE, keys=KEYS)._repr_html_()
    assert html.count("<tr>") == 9
    assert "b&lt;i&gt;" in html
    assert "b<i>" not in html
    assert "and 232 rows more" in html
    assert "epsilon = 0.5" in html


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_files_hold_the_frame_and_say_what_it_is(suffix, tmp_path):
    t = table("totals", TRUE, keys={"file": ["a", "b"]})
    path = tmp_path / f"private.{suffix}"
    t.write(path)
    frame = t.frame
    if suffix == "parquet":
        from pyarrow import parquet

        found = parquet.read_table(path)
        assert found.equals(frame)
        facts = json.loads(found.schema.metadata[b"fastdp"])
    else:
        from pyarrow import csv

        found = csv.read_csv(path)
        assert found.column_names == frame.column_names
        np.testing.assert_array_equal(found["revised"].to_numpy(), frame["revised"].to_numpy())
        facts = json.loads((tmp_path / "private.csv.json").read_text())
    assert Guarantee.from_dict(facts["guarantee"]) == t.guarantee
    assert facts["fastdp"] == fastdp.__version__
    assert (facts["statistics"], facts["every"], facts["keys"]) == (["values_sum"], "1h", ["file"])
    assert facts["clip"] == {"values": [0.0, 10.0]}
    level = {"sum": "total", "column": "values", "depth": 1, "each_window": True}
    assert facts["noise"] == [{**level, "scale_steps": str(10 * 2**20), "resolution": 2.0**-20}]
    again = tmp_path / f"again.{suffix}"
    t.write(again)
    assert again.read_bytes() == path.read_bytes()


def test_files_are_not_replaced_by_accident(tmp_path):
    t = table("totals", TRUE, keys=KEYS)
    for name in ("private.csv", "private.csv.json", "private.parquet"):
        (tmp_path / name).write_text("kept")
        with pytest.raises(ParameterError, match="overwrite=True"):
            t.write(tmp_path / name.removesuffix(".json"))
        assert (tmp_path / name).read_text() == "kept"
        t.write(tmp_path / name.removesuffix(".json"), overwrite=True)
        for path in tmp_path.iterdir():
            path.unlink()
    for name in ("private.txt", "private", "private.csv.json"):
        with pytest.raises(ParameterError, match=r"expected a name that ends in \.parquet or \.csv"):
            t.write(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_pictures_show_up_to_six_keys_one_below_the_other(tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    for count, panels in ((1, 1), (6, 6), (7, 1)):
        t = table("totals", np.repeat(TRUE[:, :1], count, axis=1), keys={"k": [f"key {k}" for k in range(count)]})
        axes = np.atleast_1d(t.plot(tmp_path / f"{count}.png"))
        assert axes.size == panels
        assert (tmp_path / f"{count}.png").stat().st_size > 10_000
        lines = axes[0].get_lines()
        assert len(lines) == 2
        pooled = (
            flat.values(t.released, "total").sum(axis=1) if count == 7 else flat.values(t.released, "total")[:, 0]
        )
        np.testing.assert_allclose(lines[0].get_ydata(), pooled)
        assert axes[0].get_title(loc="left") == ("all 7 keys of k" if count == 7 else "k = key 0")


def test_a_picture_of_many_windows_shows_days_on_axes_of_the_caller_too():
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    from matplotlib.figure import Figure

    t = table("counts", np.full((24 * 100, 1), 50.0))
    days = t.plot().get_lines()[0].get_ydata()
    assert days.size == 100
    np.testing.assert_allclose(days[3], t.sum(72, 96)[0] / 24)
    with pytest.raises(ParameterError, match="expected at least one"):
        table("counts", np.zeros((0, 1))).plot()
    ax = Figure().subplots()
    assert table("means", (TRUE, TRUE), keys=KEYS).plot(ax=ax) is ax
    assert ax.get_title(loc="left") == "all 2 keys of meter"
    assert ax.get_ylabel() == "mean, windows of 1h"


@pytest.mark.parametrize(("family", "offset"), [("pandas", "+02:00"), ("pyarrow", "-05:30"), ("polars", "+02:00")])
def test_zones_that_are_offsets(family, offset, tmp_path):
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pytest.importorskip("matplotlib")
    at = pd.date_range("2024-03-30T00:00" + offset, periods=96, freq="30min")
    assert str(at.tz) == "UTC" + offset
    frame = pd.DataFrame({"at": at})
    options = {"epsilon": 50.0, "seed": 1}
    if family == "pyarrow":
        frame = pa.Table.from_pandas(frame)
    if family == "polars":
        frame = pl.DataFrame({"at": at.tz_localize(None).to_numpy()})
        options["zone"] = offset
    t = flat.counts(frame, "at", "1d", **options)
    assert t.title() == f"Counts of 2 windows of 1d, 2024-03-30 00:00 to 2024-04-01 00:00 {offset}"
    assert len(t.frame["window"]) == 2
    assert t.arrow["window"][0].as_py() == at[0].to_pydatetime()
    assert t.sum(0, 2, revised=True) == pytest.approx(96.0, abs=1.0)
    t.plot(tmp_path / "counts.png")
    options["zone"] = "UTC" + offset
    windows = flat.windows("1d", start="2024-03-30", counts=True, **options)
    assert len(windows.advance(at[-1].to_pydatetime()).frame) == 1


# What was cut.

HOUR = np.timedelta64(1, "h")


def table_of(values: np.ndarray, hours: int = 240, **columns: Any) -> pa.Table:
    at = np.datetime64("2024-01-01", "s") + (np.arange(values.size) * hours // values.size) * HOUR
    return pa.table({"at": at, "v": values, **columns})


def totals(values: np.ndarray, *, every: str = "1h", hours: int = 240, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        given = {"epsilon": 1.0, "seed": 1, **options}
        return flat.totals(table_of(values, hours), "v", "at", every, **given)


def test_the_share_of_rows_beyond_the_clip_is_released() -> None:
    values = np.random.default_rng(3).exponential(1.0, 50_000)
    for clip, true in ((1.0, np.exp(-1.0)), ((0.5, 2.0), 1.0 - np.exp(-0.5) + np.exp(-2.0)), (1e6, 0.0)):
        found = totals(values, clip=clip).clipped_rows
        # Noise of scale 100 in each of two counts.
        assert found == pytest.approx(true, abs=0.03)
        assert found != true or not true
    chosen = totals(values, bound=100.0)
    assert chosen.clipped_rows == pytest.approx(np.mean(values > flat.clip(chosen.released)[1]), abs=0.03)
    means = flat.means(table_of(values), "v", "at", "1d", epsilon=1.0, clip=1.0, seed=1)
    assert means.clipped_rows == pytest.approx(np.exp(-1.0), abs=0.03)


def test_it_is_unknown_where_rows_are_few_or_nothing_is_clipped() -> None:
    assert totals(np.ones(500), clip=0.5).clipped_rows is None
    assert flat.counts(table_of(np.ones(5000)), "at", "1d", epsilon=1.0, seed=1).clipped_rows is None
    windows = flat.windows("1h", epsilon=1.0, start="2024-01-01", bound=0.5, seed=1)
    windows.add(np.full(50_000, np.datetime64("2024-01-01", "s")), np.ones(50_000))
    closed = windows.advance("2024-01-01T01:00")
    assert (closed.clipped_rows, closed.dropped_rows) == (None, None)


def caught(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", AccuracyWarning)
        call()
    assert {each.filename for each in found} <= {__file__}, "at the line of the caller"
    return [str(each.message) for each in found]


def persons(k: int, period: str | None) -> list[str]:
    """Warnings of k rows of a person, of 5,000 persons with 4 rows a day each."""
    who = np.tile(np.repeat(np.arange(5000), 4), 2)
    time = fastdp.Time("at", "1d", start="2024-01-01", stop="2024-01-03")
    frame, unit = table_of(np.ones(who.size), hours=48, who=who), fastdp.Person("who", k, period)
    return caught(lambda: fastdp.counts(frame, time, epsilon=1.0, unit=unit, seed=1))


@pytest.mark.parametrize("period", [None, "1d"])
def test_many_dropped_rows_are_warned_of(period: str | None) -> None:
    k = 4 if period else 8
    assert persons(k, period) == []
    (said,) = persons(k // 2, period)
    assert "of the persons' rows are dropped" in said
    assert ("a per= shorter than 1d" in said) is (period == "1d")


def test_what_was_cut_is_in_print_frame_file_and_picture(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    who = np.arange(20_000) % 2000
    frame = pd.DataFrame(table_of(np.random.default_rng(5).exponential(1.0, who.size), who=who).to_pydict())
    options = {"who": "who", "contributions": 5, "clip": 1.0, "start": "2024-01-01", "stop": "2024-01-11"}
    with pytest.warns(AccuracyWarning):
        t = flat.totals(frame, "v", "at", "1d", epsilon=5.0, seed=1, **options)
    assert t.clipped_rows == pytest.approx(np.exp(-1.0), abs=0.1)
    assert t.dropped_rows == pytest.approx(0.5, abs=0.1)
    rows, cut_off = (
        f"all but about {t.clipped_rows:.2g} of the rows",
        f"at least about {t.dropped_rows:.2g} of their rows were dropped",
    )
    assert rows in str(t)
    assert cut_off in str(t)
    assert cut_off in t._repr_html_()
    few = flat.totals(frame, "v", "at", "1d", epsilon=1e-3, seed=1, **options)
    assert (few.dropped_rows, "the number of their dropped rows is unknown" in str(few)) == (None, True)
    said = {"clipped_rows": {"v": t.clipped_rows}, "dropped_rows": t.dropped_rows}
    assert said.items() <= t.frame.attrs["fastdp"].items()
    assert said.items() <= json.loads(t.arrow.schema.metadata[b"fastdp"]).items()
    for name in ("t.parquet", "t.csv"):
        t.write(tmp_path / name)
    assert said.items() <= json.loads(pq.read_schema(tmp_path / "t.parquet").metadata[b"fastdp"]).items()
    assert said.items() <= json.loads((tmp_path / "t.csv.json").read_text()).items()
    caption = t.plot(tmp_path / "t.png").get_xlabel()
    assert rows in caption
    assert f"persons: {cut_off}" in caption


@pytest.mark.parametrize("kind", ["totals", "counts", "means"])
@pytest.mark.parametrize("family", ["pandas", "pyarrow", "duckdb"])
def test_no_private_key_fails_nothing(kind: str, family: str, tmp_path: Path) -> None:
    pytest.importorskip(family, reason=f"needs {family}")
    frame = table_of(np.ones(240), k=[f"key {i}" for i in range(240)])
    if family != "pyarrow":
        from fastdp.data.source import FAMILIES

        frame = FAMILIES[family](frame)
    value, bound = ((), {}) if kind == "counts" else (("v",), {"bound": 5.0})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        options = {"by": "k", "delta": 1e-9, "epsilon": 0.5, "seed": 1, **bound}
        t = getattr(flat, kind)(frame, *value, "at", "1d", **options)
    assert len(t.arrow) == 0
    assert "window" in t.frame.columns if family != "pyarrow" else t.frame.schema.names
    assert "no key was released" in str(t)
    assert "no key was released" in t._repr_html_()
    answer = t.mean if kind == "means" else t.sum
    for revised in (False, True):
        assert answer([0, 1], [3, 2], revised=revised).shape == (2, 0)
        assert t.std_error(0, 3, revised=revised).shape == (1, 0)
        assert [end.shape for end in t.interval(0, 3, revised=revised)] == [(1, 0)] * 2
    for name in ("t.parquet", "t.csv"):
        t.write(tmp_path / name)
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    ax = t.plot(tmp_path / "t.png")
    assert (tmp_path / "t.png").stat().st_size > 1000
    assert [text.get_text() for text in ax.texts] == ["no key was released"]
    t.plot(ax=ax)


# Advice of docs/howto/choosing.md for counts: fastdp.counts of rows, or fastdp.release of their numbers.

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "choosing.md"
BEGIN = np.datetime64("2024-01-01", "s")


@pytest.mark.parametrize(
    ("expected", "length", "most"), [(0.05, 24, 0.6), (4.0, 1, 1.0), (40.0, 1, 1.05), (40.0, 24, 1.15)]
)
def test_the_advised_door_has_the_lesser_error(expected: float, length: int, most: float) -> None:
    rng, epsilon, hours = np.random.default_rng(1), 0.1, np.arange(24 * 200)
    rates = expected / epsilon * (1.0 + 0.8 * np.sin(2.0 * np.pi * hours / 24))
    numbers = rng.poisson(rates).astype(float)
    rows = pa.table({"time": BEGIN + 3600 * np.repeat(hours, numbers.astype(int))})
    time = fastdp.Time("time", "1h", start=str(BEGIN), stop=str(BEGIN + 3600 * hours.size))
    squares = {"counts": 0.0, "release": 0.0}
    for seed in range(3):
        table = fastdp.counts(rows, time, epsilon=epsilon, seed=seed)
        release = fastdp.release(numbers, epsilon=epsilon, sensitivity=1, seed=seed)
        answers = {"counts": table.sum(hours, hours + 1, revised=True), "release": release.values}
        for door, values in answers.items():
            errors = np.concatenate([[0.0], np.cumsum(values - numbers)])
            squares[door] += float(np.mean((errors[length:] - errors[:-length]) ** 2))
    low, high = map(float, re.findall(r"^\| (?:below|above) (\d+) \|", PAGE.read_text(), re.MULTILINE))
    ours = "counts" if expected >= high or (expected >= low and length == 1) else "release"
    (other,) = squares.keys() - {ours}
    assert squares[ours] <= most**2 * squares[other]
