"""Results as others read them, and the pictures drawn from them alone."""

from __future__ import annotations

import math
import shutil

import numpy as np
import pytest

from fastdp.errors import DataError, FastDPError
from fastdp_lab import sweeps
from fastdp_lab.sweeps.figures import Sweep
from fastdp_lab.sweeps.results import PARTS, part_path, read_table, schema_of, write_part


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
    kinds = ("mse", "mae", "mmse", "mmae", "relative_error", "threshold", "stream_timeline")
    assert names == {f"{kind}.{suffix}" for kind in kinds for suffix in ("png", "svg")}
    for path in drawn:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG") if path.suffix == ".png" else b"</svg>" in content
    some = sweeps.draw(moved, tmp_path / "some", group="[1000, ...)", formats=["png"])
    assert {path.name for path in some} == {f"{kind}.png" for kind in kinds}


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


def test_one_row_for_each_cell_and_group_of_queries(whole, small) -> None:
    table = sweeps.load(whole)
    assert table["cell"].is_monotonic_increasing
    assert table["cell"].nunique() == 120
    assert not table["error"].notna().any()
    timeline = table[table["workload"] == "timeline"]
    assert (timeline.groupby("cell")["group"].agg(list).map(tuple) == ("all", "0", "1", "2", "3")).all()
    every = table[table["group"] == "all"]
    counts = every.groupby("workload")["queries"].agg(list).to_dict()
    assert counts == {"random_ranges": [50] * 120, "timeline": [4] * 120}
    classes = table[(table["workload"] == "random_ranges") & (table["group"] != "all")]
    assert (classes.groupby("cell")["queries"].sum() == 50).all()
    base = every[every["mechanism"] == "Base"]
    assert (base["threshold"] == 0.0).all()
    assert (base["mse"] == base["truncation_mse"]).all()
    manifest = sweeps.read_manifest(whole)
    assert (manifest["seed"], manifest["cells"], manifest["sessions"][0]["cells"]) == (small["seed"], 120, 120)
    assert {"fastdp", "python", "numpy", "numba", "pyarrow"} <= set(manifest["versions"])
    assert set(manifest["machine"]) == {"platform", "processor", "cpus"}
    assert [each["name"] for each in manifest["specification"]["datasets"]] == ["POS, order=iid", "POS, order=bursty"]
    assert manifest["specification"]["mechanisms"][0]["parameters"] == {"prune": 0}
    assert len(manifest["data"]["POS, order=iid"]["sha256"]) == 32


def test_pandas_polars_and_duckdb_read_the_file_without_us(whole) -> None:
    path, want = whole / "results.parquet", sweeps.load(whole)
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    pandas.testing.assert_frame_equal(pandas.read_parquet(path), want)
    np.testing.assert_array_equal(polars.read_parquet(path)["mse"].to_numpy(), want["mse"])
    sql = f"select mechanism, avg(mse) from '{path}' group by mechanism order by mechanism"  # noqa: S608
    means = want.groupby("mechanism")["mse"].mean().sort_index()
    found = duckdb.sql(sql).fetchall()
    assert [name for name, _ in found] == list(means.index)
    np.testing.assert_allclose([mean for _, mean in found], means)


def test_folders_without_results_and_pictures_that_cannot_be_drawn(whole, small, tmp_path, monkeypatch) -> None:
    for options, said in (
        ({"group": "[5, 9)"}, r"group = '\[5, 9\)': expected one of 'all', '\[10, 1000\)'"),
        ({"formats": ["pdf"]}, "format = 'pdf': expected one of 'png', 'svg'"),
    ):
        with pytest.raises(FastDPError, match=said):
            sweeps.draw(whole, tmp_path / "pictures", **options)
    with pytest.raises(DataError, match=r"no manifest\.json there"):
        sweeps.load(tmp_path)
    copied = tmp_path / "copied"
    shutil.copytree(whole, copied)
    (copied / "results.parquet").unlink()
    with pytest.raises(DataError, match="no results yet"):
        sweeps.load(copied)
    (copied / "manifest.json").write_text("{")
    with pytest.raises(DataError, match="not readable"):
        sweeps.load(copied)
    monkeypatch.setitem(sweeps.SYSTEMS, "topl", sweeps.System(lambda setting: lambda values: None))
    small["mechanisms"] = [{"system": "topl"}]
    with pytest.raises(DataError, match="every cell failed"):
        Sweep(sweeps.run(sweeps.from_table(small), tmp_path / "out"))
    assert not (tmp_path / "pictures").exists()
