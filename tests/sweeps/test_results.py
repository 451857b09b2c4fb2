"""Results as others read them, and the pictures drawn from them alone."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest

from fastdp.data.readers import read_table
from fastdp.errors import DataError, FastDPError
from fastdp_lab import sweeps
from fastdp_lab.sweeps.figures import Sweep, curves, looks
from fastdp_lab.sweeps.results import PARTS, part_path, schema_of, write_part


@pytest.fixture
def finished(small, tmp_path):
    return sweeps.run(sweeps.from_table(small), tmp_path / "out")


def test_one_row_for_each_cell_and_group_of_queries(finished) -> None:
    table = sweeps.load(finished)
    assert table["cell"].is_monotonic_increasing
    assert table["cell"].nunique() == 120
    assert not table["error"].notna().any()
    timeline = table[table["workload"] == "timeline"]
    assert (timeline.groupby("cell")["group"].agg(list).map(tuple) == ("0", "1", "2", "3")).all()
    every = table[table["group"] == "all"]
    assert len(every) == 120
    assert (every["queries"] == 50).all()
    classes = table[(table["workload"] == "random_ranges") & (table["group"] != "all")]
    assert (classes.groupby("cell")["queries"].sum() == 50).all()
    total = table["noise_mean"] + table["truncation_mean"] + table["smoothing_mean"]
    np.testing.assert_allclose(total, table["answer"] - table["truth"], rtol=1e-9, atol=1e-6)
    base = every[every["mechanism"] == "Base"]
    assert (base["threshold"] == 0.0).all()
    assert (base["mse"] == base["truncation_mse"]).all()
    assert (base["noise_mse"] == 0.0).all()


def test_pandas_polars_and_duckdb_read_the_file_without_us(finished) -> None:
    path = finished / "results.parquet"
    want = sweeps.load(finished)
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    pandas.testing.assert_frame_equal(pandas.read_parquet(path), want)
    np.testing.assert_array_equal(polars.read_parquet(path)["mse"].to_numpy(), want["mse"])
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    sql = f"select mechanism, avg(mse) from '{path}' group by mechanism order by mechanism"  # noqa: S608
    means = want.groupby("mechanism")["mse"].mean().sort_index()
    found = duckdb.sql(sql).fetchall()
    assert [name for name, _ in found] == list(means.index)
    np.testing.assert_allclose([mean for _, mean in found], means)


def test_the_manifest_says_what_was_run(finished, small) -> None:
    manifest = sweeps.read_manifest(finished)
    assert manifest["seed"] == small["seed"]
    assert manifest["cells"] == 120
    assert {"fastdp", "python", "numpy", "numba", "pyarrow"} <= set(manifest["versions"])
    assert set(manifest["machine"]) == {"platform", "processor", "cpus"}
    assert [each["name"] for each in manifest["specification"]["datasets"]] == ["POS, order=iid", "POS, order=bursty"]
    assert manifest["specification"]["mechanisms"][0]["parameters"] == {"prune": 0}
    assert len(manifest["data"]["POS, order=iid"]["sha256"]) == 32
    assert manifest["sessions"][0]["cells"] == 120


def test_folders_that_hold_no_sweep(tmp_path, finished) -> None:
    with pytest.raises(DataError, match=r"no manifest\.json there"):
        sweeps.load(tmp_path)
    (finished / "results.parquet").unlink()
    with pytest.raises(DataError, match="no results yet"):
        sweeps.load(finished)
    (finished / "manifest.json").write_text("{")
    with pytest.raises(DataError, match="not readable"):
        sweeps.load(finished)


@pytest.mark.slow
def test_pictures_of_everything(small, tmp_path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    small["datasets"][0]["order"] = "iid"
    small["mechanisms"] = [small["mechanisms"][0], small["mechanisms"][-1]]
    finished = sweeps.run(sweeps.from_table(small), tmp_path / "out")
    # From result files alone.
    moved = tmp_path / "moved"
    shutil.move(finished, moved)
    drawn = sweeps.draw(moved, tmp_path / "pictures")
    names = {path.name for path in drawn}
    kinds = ("mse", "mae", "mmse", "mmae", "relative_error", "parts", "threshold", "stream_timeline")
    assert names == {f"{kind}.{suffix}" for kind in kinds for suffix in ("png", "svg")}
    for path in drawn:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG") if path.suffix == ".png" else b"</svg>" in content
    some = sweeps.draw(moved, tmp_path / "some", metrics=["mae"], group="[1000, ...)", formats=["png"])
    assert {path.name for path in some} == {"mae.png", "parts.png", "threshold.png", "stream_timeline.png"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"metrics": ["rmse"]}, "metric = 'rmse': expected one of 'mse'"),
        ({"formats": ["pdf"]}, "format = 'pdf': expected one of 'png', 'svg'"),
    ],
)
def test_pictures_that_cannot_be_drawn(finished, tmp_path, options, said) -> None:
    with pytest.raises(FastDPError, match=said):
        sweeps.draw(finished, tmp_path / "pictures", **options)
    assert not (tmp_path / "pictures").exists()


def test_a_panel_on_synthetic_data_says_so(small, tmp_path, monkeypatch) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed").Figure
    small["mechanisms"] = small["mechanisms"][:1]
    folder = sweeps.run(sweeps.from_table(small), tmp_path / "out")
    titles = []
    monkeypatch.setattr(figure, "savefig", lambda self, *_, **__: titles.extend(ax.get_title() for ax in self.axes))
    sweeps.draw(folder, tmp_path / "pictures", formats=["png"])
    named = [title for title in titles if "POS" in title]
    assert len(named) >= 8
    assert all("(synthetic)" in title for title in named)


def test_curves_leave_out_missing_numbers() -> None:
    pandas, figure = pytest.importorskip("pandas"), pytest.importorskip("matplotlib.figure").Figure()
    rows = pandas.DataFrame({"mechanism": "a", "epsilon": [1.0, 2.0, 1.0, 1.0], "mse": [3.0, np.nan, 1.0, 2.0]})
    handles = curves(figure.subplots(), rows, "epsilon", "mse", looks(["a", "b"]))
    assert list(handles) == ["a"]
    assert handles["a"].get_xydata().tolist() == [[1.0, 2.0]]


def test_missing_numbers_are_null(small, tmp_path) -> None:
    """Databases take NaN for a number, and the largest."""
    small["metrics"] = ["mse"]
    schema = schema_of(sweeps.from_table(small))
    failed = (0, "a", "b", 1.0, 0, math.nan, None, None, 0, *[math.nan] * 3, "ValueError: x")
    (tmp_path / PARTS).mkdir()
    write_part(tmp_path, "x", schema, [failed, (1, "a", "b", 1.0, 1, 2.0, "w", "all", 3, 3.0, 4.0, 5.0, None)])
    table = read_table(part_path(tmp_path, "x"))
    assert table.schema == schema
    assert table.column("mse").to_pylist() == [None, 5.0]
    assert table.column("threshold").to_pylist() == [None, 2.0]
    assert table.column("workload").to_pylist() == [None, "w"]


def test_every_cell_failed(small, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sweeps.SYSTEMS, "topl", sweeps.System(lambda setting: lambda values: None))
    small["mechanisms"] = [{"system": "topl"}]
    folder = sweeps.run(sweeps.from_table(small), tmp_path / "out")
    with pytest.raises(DataError, match="every cell failed"):
        Sweep(folder)
