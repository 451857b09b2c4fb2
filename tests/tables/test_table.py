from __future__ import annotations

import json
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from tests.tables import flat
from tests.tables.released import table

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pytest.importorskip("fastdp_kernels")

COLUMNS = ["window", "meter", "estimate", "std_error", "low", "high", "revised", "revised_low", "revised_high"]
COLUMNS += ["clipped", "clipped_low", "clipped_high", "about"]
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


def test_naive_times_stay_naive():
    frame = table("counts", TRUE, keys=KEYS, time_zone=None).frame
    assert frame.schema.field("window").type == pa.timestamp("us")
    assert table("counts", TRUE, keys=KEYS).frame.schema.field("window").type == pa.timestamp(
        "us", "Australia/Melbourne"
    )


def test_keys_of_several_columns_and_taken_names():
    keys = {"low": [1, 2], "fastdp": ["x", None]}
    frame = table("counts", TRUE, keys=keys).frame
    assert frame.column_names[:4] == ["window", "low_key", "fastdp_key", "estimate"]
    assert frame.to_pydict()["fastdp_key"][:4] == ["x", None, "x", None]


def test_five_lines_say_what_was_released():
    for kind, text in (("totals", "0.95 interval +-"), ("counts", "nothing is clipped")):
        shown = repr(table(kind, TRUE, keys=KEYS))
        assert len(shown.splitlines()) == 5
        assert text in shown
        assert shown.startswith(f"{kind.capitalize()} of 120 windows of 1h x 2 keys (meter), 2015-03-28 11:00 to")
        assert "epsilon = 0.5 for one row of the table" in shown


def test_html_is_a_short_table_with_escaped_keys():
    html = table("totals", TRUE, keys=KEYS)._repr_html_()
    assert html.count("<tr>") == 9
    assert "b&lt;i&gt;" in html
    assert "b<i>" not in html
    assert "and 232 rows more" in html
    assert "epsilon = 0.5" in html


@pytest.mark.parametrize("suffix", ["parquet", "csv", "npz"])
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
    elif suffix == "csv":
        from pyarrow import csv

        found = csv.read_csv(path)
        assert found.column_names == frame.column_names
        np.testing.assert_array_equal(found["revised"].to_numpy(), frame["revised"].to_numpy())
        facts = json.loads((tmp_path / "private.csv.json").read_text())
    else:
        with np.load(path, allow_pickle=False) as archive:
            assert set(archive.files) == {*frame.column_names, "fastdp"}
            np.testing.assert_array_equal(archive["estimate"], frame["estimate"].to_numpy())
            assert archive["window"][0].astype("datetime64[us]").astype(int) == t.released.edges[0]
            assert archive["file"].tolist()[:3] == ["a", "b", "a"]
            facts = json.loads(str(archive["fastdp"]))
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


@pytest.mark.parametrize("name", ["private.txt", "private", "private.csv.json"])
def test_other_files_are_refused(name, tmp_path):
    with pytest.raises(ParameterError, match=r"expected a name that ends in \.parquet, \.csv, \.npz"):
        table("totals", TRUE, keys=KEYS).write(tmp_path / name)
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


def test_a_picture_of_many_windows_shows_days():
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    t = table("counts", np.full((24 * 100, 1), 50.0))
    ax = t.plot()
    assert ax.get_lines()[0].get_ydata().size == 100
    np.testing.assert_allclose(ax.get_lines()[0].get_ydata()[3], t.sum(72, 96)[0] / 24)
    with pytest.raises(ParameterError, match="expected at least one"):
        table("counts", np.zeros((0, 1))).plot()


def test_a_release_without_keys_says_why_it_is_empty():
    said = str(table("counts", np.zeros((24, 0)), keys={"k": []}))
    assert "24 windows of 1h x 0 keys (k)" in said
    assert "no key was released: none is listed, or with delta none has enough rows" in said


def test_drawing_on_axes_of_the_caller():
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    assert table("means", (TRUE, TRUE), keys=KEYS).plot(ax=ax) is ax
    assert ax.get_title(loc="left") == "all 2 keys of meter"
    assert ax.get_ylabel() == "mean, windows of 1h"


@pytest.mark.parametrize("offset", ["+02:00", "-05:30"])
@pytest.mark.parametrize("family", ["pandas", "pyarrow", "polars"])
def test_zones_that_are_offsets(family, offset, tmp_path):
    """As pandas reads them from ISO text; everything that shows a time knows them."""
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


def test_one_window_of_one_key_is_singular():
    one = table("counts", np.full((1, 1), 7.0), keys={"k": ["a"]})
    assert one.title().startswith("Counts of 1 window of 1h x 1 key (k), ")


def test_key_columns_never_take_the_place_of_each_other():
    named = table("counts", TRUE[:, :1], keys={"low": ["a"], "low_key": ["b"]}).frame
    assert named.column_names[:3] == ["window", "low_key_key", "low_key"]
    assert [named[name][0].as_py() for name in named.column_names[1:3]] == ["a", "b"]
