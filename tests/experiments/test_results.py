"""Results as others read them, and the pictures drawn from them alone."""

from __future__ import annotations

import io
import math
import shutil
import subprocess
import sys

import numpy as np
import pytest

from fastdp.errors import DataError, FastDPError
from fastdp.files.parquet_reader import read_table
from fastdp_lab import sweeps
from fastdp_lab.sweeps.drawing import quartiles, ticks_of
from fastdp_lab.sweeps.figures import draw_all
from fastdp_lab.sweeps.results import _column, pack_rows


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


def test_every_repetition_has_noise_of_its_own(finished) -> None:
    table = sweeps.load(finished)
    noisy = table[(table["group"] == "all") & (table["mechanism"] != "Base")]
    assert noisy["noise_mse"].nunique() == len(noisy)


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


def test_without_pandas_a_dict_of_arrays(finished, monkeypatch) -> None:
    want = sweeps.load(finished)
    monkeypatch.setitem(sys.modules, "pandas", None)
    found = sweeps.load(finished)
    assert isinstance(found, dict)
    assert list(found) == list(want.columns)
    np.testing.assert_array_equal(found["mae"], want["mae"])
    assert found["mechanism"].tolist() == want["mechanism"].tolist()


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


def test_pictures_of_everything(small, tmp_path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    small["datasets"][0]["order"] = "iid"
    small["mechanisms"] = [small["mechanisms"][0], small["mechanisms"][-1]]
    finished = sweeps.run(sweeps.from_table(small), tmp_path / "out")
    # From result files alone.
    moved = tmp_path / "moved"
    shutil.move(finished, moved)
    drawn = draw_all(moved, tmp_path / "pictures")
    names = {path.name for path in drawn}
    kinds = ("mse", "mae", "mmse", "mmae", "relative_error", "parts", "threshold", "stream_timeline")
    assert names == {f"{kind}.{suffix}" for kind in kinds for suffix in ("png", "svg")}
    for path in drawn:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG") if path.suffix == ".png" else b"</svg>" in content
    some = draw_all(moved, tmp_path / "some", metrics=["mae"], group="[1000, ...)", formats=["png"])
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
        draw_all(finished, tmp_path / "pictures", **options)
    assert not (tmp_path / "pictures").exists()


def test_a_group_that_is_not_there_is_refused(small, tmp_path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    del small["workloads"][1]
    folder = sweeps.run(sweeps.from_table(small), tmp_path / "out")
    with pytest.raises(DataError, match=r"group = 'short': expected one of 'all', '\["):
        draw_all(folder, tmp_path / "pictures", group="short")


def test_a_panel_on_synthetic_data_says_so(small, tmp_path, monkeypatch) -> None:
    figure = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed").Figure
    small["mechanisms"] = small["mechanisms"][:1]
    folder = sweeps.run(sweeps.from_table(small), tmp_path / "out")
    titles = []
    monkeypatch.setattr(figure, "savefig", lambda self, *_, **__: titles.extend(ax.get_title() for ax in self.axes))
    draw_all(folder, tmp_path / "pictures", formats=["png"])
    named = [title for title in titles if "POS" in title]
    assert len(named) >= 8
    assert all("(synthetic)" in title for title in named)


def test_quartiles_leave_out_what_is_missing() -> None:
    x, spread = quartiles(np.array([1.0, 2.0, 1.0, 1.0]), np.array([3.0, np.nan, 1.0, 2.0]))
    assert x.tolist() == [1.0]
    np.testing.assert_allclose(spread[:, 0], [1.5, 2.0, 2.5])
    assert quartiles(np.array([1.0]), np.array([np.nan]))[1].shape == (3, 0)


def test_ticks_do_not_touch() -> None:
    assert ticks_of({0.01, 0.02, 0.03, 0.05, 0.07, 0.1}) == [0.01, 0.02, 0.05, 0.1]
    assert ticks_of({0.3, 0.4, 0.7}) == [0.3, 0.7]
    assert ticks_of(set()) == []


def test_what_does_not_exist_is_null() -> None:
    """Databases take NaN for a number, and the largest."""
    failed = (0, "a", "b", 1.0, 0, math.nan, None, None, 0, math.nan, "ValueError: x")
    table = read_table(
        io.BytesIO(pack_rows(("mse",), [failed, (1, "a", "b", 1.0, 1, 2.0, "w", "all", 3, 4.0, None)]))
    )
    assert table.column("mse").to_pylist() == [None, 4.0]
    assert table.column("threshold").to_pylist() == [None, 2.0]


def test_columns_are_what_arrow_makes_of_them() -> None:
    """Without its conversion of lists, which imports pandas."""
    arrow = pytest.importorskip("pyarrow")
    texts = ["a", None, "", "zwölf", None, "12"]
    numbers = [1.5, math.nan, -0.0, math.inf, 0.0, math.nan]
    whole = [0, 2**31 - 1, -1, 7, 8, 9]
    for rows in (slice(None), slice(0, 1), slice(1, 2), slice(0, 0)):
        assert _column("string", texts[rows]).equals(arrow.array(texts[rows], arrow.string()))
        missing = np.isnan(np.array(numbers[rows], np.float64))
        assert _column("float64", numbers[rows]).equals(arrow.array(numbers[rows], arrow.float64(), mask=missing))
        for kind in ("int64", "int32"):
            assert _column(kind, whole[rows]).equals(arrow.array(whole[rows], arrow.type_for_alias(kind)))
    for found in (_column("string", texts), _column("float64", numbers), _column("int32", whole)):
        found.validate(full=True)


def test_a_worker_does_not_import_pandas() -> None:
    """Which would take it longer than hundreds of small cells."""
    row = (0, "a", "b", 1.0, 0, 1.0, "w", "all", 1, 2.0, None)
    program = (
        "import sys; from fastdp_lab.sweeps.results import pack_rows; "
        f"assert pack_rows(('mse',), [{row!r}]); sys.exit('pandas' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
