"""Every figure of PAK, ToPS and ToPL runs at a tiny size, and a panel says whether its data are synthetic."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import shared
from benchmarks.accuracy.scenes import STREAMS
from benchmarks.paper import __main__ as paper
from benchmarks.paper import pak_figures, pak_laws, pak_runs, pak_tables, tops
from benchmarks.paper.real import STAND_INS, with_real_streams
from fastdp_lab.sweeps import figures, from_table

pytest.importorskip("pyarrow", reason="sweeps write Parquet")
figure_of = pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed")

HOLDOUT, LENGTH = 300, 8192
OURS = [name for name in paper.ITEMS if not name.startswith("phd")]
SWEEPS = [name for name in OURS if paper.ITEMS[name].sweep]


@pytest.fixture
def titles(monkeypatch) -> list[str]:
    """The titles of every panel that is saved; nothing is drawn to a file, which takes most of the time."""
    seen: list[str] = []

    def save(figure: Any, path: Any, **_: Any) -> None:
        whole = figure.get_suptitle()
        # Lower rows of a column stand under its title.
        named = [axes.get_title() for axes in figure.axes if axes.get_title()]
        seen.extend(f"{whole} | {title}" for title in named or [""])
        Path(path).touch()

    monkeypatch.setattr(figure_of.Figure, "savefig", save)
    return seen


@pytest.fixture
def real(tmp_path) -> Path:
    """A folder with a short stream under the name of every real one."""
    folder = tmp_path / "data"
    folder.mkdir()
    for k, stream in enumerate(STREAMS.values()):
        values = np.random.default_rng(k).gamma(2.0, 3.0, 25_000)
        np.savez(folder / stream.file, values=np.minimum(np.rint(values) + 1.0, stream.bound))
    return folder


def tiny(table: dict[str, Any]) -> dict[str, Any]:
    """The same sweep on short streams, with one repetition of two budgets."""
    datasets = []
    for each in table["datasets"]:
        size = {"holdout": HOLDOUT, "published": LENGTH, "max_range": LENGTH}
        made = {"n": 2000} if "generator" in each else {}
        datasets.append({**each, **made, **size})
    budgets = table["epsilons"][-1:]
    mechanisms = [
        {**each, "epsilons": each["epsilons"][-1:]} if "epsilons" in each else each for each in table["mechanisms"]
    ]
    short = {"repetitions": 1, "metrics": ["mse", "parts"], "epsilons": budgets}
    return {**table, **short, "datasets": datasets, "mechanisms": mechanisms}


def table_of(name: str) -> dict[str, Any]:
    return tomllib.loads((paper.HERE / f"{paper.ITEMS[name].sweep}.toml").read_text())


@pytest.fixture
def small(monkeypatch, real) -> None:
    """Every sweep and script on short streams."""

    def sweep_of(item: paper.Item, data: Path | None) -> Any:
        table = tomllib.loads((paper.HERE / f"{item.sweep}.toml").read_text())
        return from_table(tiny(table if data is None else with_real_streams(table, data)))

    monkeypatch.setattr(paper, "sweep_of", sweep_of)
    monkeypatch.setattr(paper, "FEWEST", 3)
    for name, value in {"HOLDOUT": HOLDOUT, "PUBLISHED": LENGTH, "MAX_RANGE": LENGTH, "QUERIES": 5}.items():
        monkeypatch.setattr(shared, name, value)
    monkeypatch.setattr(tops, "table1", lambda name, **_: np.random.default_rng(5).integers(1, 60, 2000))
    monkeypatch.setattr(tops, "CANDIDATES", 3)
    rows = {
        name: (unit, x, bound, 1000, {HOLDOUT: rows[50_000]})
        for name, (unit, x, bound, _, rows) in pak_tables.PAPER.items()
    }
    monkeypatch.setattr(pak_tables, "PAPER", rows)
    monkeypatch.setattr(pak_runs, "PAPER", rows)
    monkeypatch.setattr(pak_tables, "EPSILONS", (1.0,))
    monkeypatch.setattr(pak_tables, "FIGURE_7_LAG", HOLDOUT)
    monkeypatch.setattr(pak_tables, "LAGS", (HOLDOUT,))
    for name, value in {"LAG": HOLDOUT, "SYNTHETIC_LAG": HOLDOUT, "EPSILONS": (1.0,), "LAGS": (HOLDOUT,)}.items():
        monkeypatch.setattr(pak_figures, name, value)
    monkeypatch.setattr(pak_laws, "SHARES", (0.1, 0.05))


def make(name: str, output: Path, data: Path | None) -> None:
    paper.draw(paper.ITEMS[name], paper.Options(output, data, 1, 1, "threads"))


def without_tables(names: list[str]) -> list[str]:
    return [name for name in names if "table" not in name]


@pytest.mark.slow
@pytest.mark.parametrize("name", without_tables(OURS))
def test_without_real_streams_every_panel_says_synthetic(name, small, titles, tmp_path) -> None:
    make(name, tmp_path / "out", None)
    assert titles
    assert all("synthetic" in title for title in titles), titles


@pytest.mark.slow
@pytest.mark.parametrize("name", without_tables(OURS))
def test_real_streams_are_not_called_synthetic(name, small, titles, real, tmp_path) -> None:
    make(name, tmp_path / "out", real)
    assert titles
    trips = name in ("pak_figure_12", "pak_figure_13")  # the folder has no bike trips
    assert all(("synthetic" in title) == trips for title in titles), titles


def test_titles_of_one_sweep_and_one_script(small, titles, real, tmp_path) -> None:
    for k, data in enumerate((None, real)):
        for name in ("tops_figure_9", "pak_figure_5"):
            del titles[:]
            make(name, tmp_path / f"{name}_{k}", data)
            assert titles
            assert all(("synthetic" in title) == (data is None) for title in titles), titles


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OURS if "table" in name])
def test_every_table_is_printed(name, small, real, tmp_path, capsys) -> None:
    make(name, tmp_path / "out", real)
    assert len(capsys.readouterr().out.splitlines()) > 5


@pytest.mark.parametrize("name", SWEEPS)
def test_a_folder_of_real_streams_replaces_every_synthetic_one(name, real) -> None:
    before, after = table_of(name)["datasets"], with_real_streams(table_of(name), real)["datasets"]
    assert all("generator" in each for each in before)
    assert not any("generator" in each for each in after)
    bounds = {stream.file: stream.bound for stream in STREAMS.values()}
    assert all(each["bound"] == bounds[each["file"]] for each in after)
    four = {each["stream"] for each in before} == set(STAND_INS)
    assert len(after) == len(before) + four
    assert ("smart meter" in [each["name"] for each in after]) == four
    from_table(with_real_streams(table_of(name), real))


def test_a_stream_whose_file_is_absent_stays_synthetic(real) -> None:
    (real / STREAMS["taxi distance"].file).unlink()
    datasets = with_real_streams(table_of("tops_figure_3"), real)["datasets"]
    assert [each["name"] for each in datasets if "generator" in each] == ["Fare"]


def test_both_prunes_are_shown() -> None:
    """The published code's, 3 levels up to epsilon = 0.05 and 2 above, and the print's."""
    for name in ("tops_figure_2", "tops_figure_3", "tops_figure_4", "tops_figure_5", "tops_figure_10"):
        table = table_of(name)
        printed = {each["name"] for each in table["mechanisms"] if each["name"].endswith("Eq. 7")}
        assert printed
        for each in table["mechanisms"]:
            if f"{each['name']}, Eq. 7" in printed:
                few = 3 if max(each["epsilons"]) <= 0.05 else 2
                assert each["perturber"]["prune"] == few
            elif each["name"] in printed:
                assert "prune" not in each["perturber"]


def test_base_knows_where_the_truth_of_figure_5_ends(small, titles, tmp_path) -> None:
    """Its error is that of zeros beside the clipped truth, not 0."""
    from fastdp_lab.sweeps import load

    make("tops_figure_5", tmp_path / "out", None)
    found = load(tmp_path / "out")
    base = found[found["mechanism"] == "Base"]
    assert (base["answer"] == 0.0).all()
    assert (base["mse"] > 0.0).all()
    beside = found[found["mechanism"] == "H_2"].set_index("dataset")["truth"]
    assert (base.set_index("dataset")["truth"] == beside).all()


def test_variants_share_a_colour_where_colours_do_not_suffice() -> None:
    few = figures.looks(["a", "a, b", "zero"], lambda name: name == "zero")
    assert few["a"]["color"] != few["a, b"]["color"]
    assert few["zero"]["color"] == figures.GREY
    names = [f"{kind}{variant}" for variant in ("", ", dashed") for kind in "abcde"]
    many = figures.looks(["zero", *names], lambda name: name == "zero")
    for kind in "abcde":
        first, second = many[kind], many[f"{kind}, dashed"]
        assert first["color"] == second["color"]
        assert (first["linestyle"], second["linestyle"]) == ("-", "--")
    assert len({many[kind]["color"] for kind in "abcde"}) == 5
