"""Statistics of streams: quantiles of stretches and of times of the day, against Definition 11 and calendars."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from fastdp_lab import suites, sweeps
from fastdp_lab.sweeps import page
from tests.sweeps.conftest import complaint

SHARES = [0.5, 0.1, 0.02, 0.0001]


def tables(**data_set: Any) -> dict[str, Any]:
    """Quantiles of a stream in three stretches."""
    return {
        "epsilons": [1.0],
        "repetitions": 3,
        "datasets": [{"name": "x", "bound": 80.0, "unit": "s", **data_set}],
        "mechanisms": [
            {"name": "own", "system": "quantiles"},
            {"name": "all", "system": "quantiles", "whole": True},
            {"system": "exponential", "p": 0.1},
            {"system": "bound"},
        ],
        "workloads": [{"kind": "quantiles", "shares": SHARES}],
    }


def results(found: dict[str, Any], folder: Path) -> Any:
    """Numbers by mechanism, repetition and group."""
    rows = sweeps.load(sweeps.run(sweeps.from_table(found), folder / "out", data=folder))
    assert rows["error"].isna().all()
    return rows.set_index(["mechanism", "repetition", "group"])["value"]


def upper(values: list[float], share: float) -> float:
    """The smallest value with at most this share above it, by counting."""
    return min(x for x in values if sum(y > x for y in values) <= share * len(values))


@pytest.fixture
def stream(tmp_path: Path) -> list[float]:
    """1,800 values, some above the bound, which cuts them off."""
    values = np.random.default_rng(3).exponential(20.0, 1800)
    np.save(tmp_path / "x.npy", values)
    return np.minimum(values, 80.0).tolist()


def test_quantiles_are_those_of_stretches(tmp_path: Path, stream: list[float]) -> None:
    found = results(tables(file="x.npy"), tmp_path)
    for k in range(3):
        part = stream[600 * k : 600 * (k + 1)]
        for share in SHARES[:3]:
            at = (k, f"{share:g}")
            exact = upper(part, share)
            assert found["own"][at] == found["all"][at] == exact
            r = math.log(share) / math.log(0.1)
            assert found["exponential"][at] == pytest.approx(r * upper(part, 0.1))
            assert found["bound"][at] == 80.0
    assert len(found) == 4 * 3 * 3, "no quantile with fewer than ten values above it"


def test_times_are_those_of_a_city(tmp_path: Path) -> None:
    """Over a change to summer time, which UTC does not know."""
    times = pd.date_range("2026-03-06", periods=2400, freq="7min")
    values = np.random.default_rng(4).integers(0, 70, 2400)
    pd.DataFrame({"t": times, "v": values}).to_parquet(tmp_path / "x.parquet")
    given = tables(file="x.parquet", column="v", times="t", zone="America/Los_Angeles")
    given |= {"repetitions": 1, "workloads": [{"kind": "quantiles", "shares": [0.2], "by": "hour"}]}
    found = results(given, tmp_path)
    local = [each.to_pydatetime().astimezone(ZoneInfo("America/Los_Angeles")) for each in times.tz_localize("UTC")]
    for hour in range(24):
        mine = [float(v) for v, when in zip(values, local, strict=True) if when.hour == hour]
        assert found["own"][0, f"hour {hour}: 0.2"] == upper(mine, 0.2)
        assert found["all"][0, f"hour {hour}: 0.2"] == upper(values.tolist(), 0.2)


@pytest.mark.parametrize("column", ["zoned", "text", "t", "absent", "number", "words", "some"])
def test_columns_of_times(tmp_path: Path, column: str) -> None:
    """Zones of their own are turned into the city's; what is no time is refused without its values."""
    times = pd.date_range("2026-03-06", periods=2400, freq="7min")
    columns = {"t": times, "text": times.astype(str), "zoned": times.tz_localize("UTC").tz_convert("Asia/Tokyo")}
    columns |= {"number": range(2400), "words": ["secret"] * 2400, "some": times.where(times > times[0])}
    pd.DataFrame({**columns, "v": np.arange(2400) % 70}).to_parquet(tmp_path / "x.parquet")
    pd.DataFrame({"t": times, "v": np.arange(2400) % 70}).to_csv(tmp_path / "x.csv", index=False)
    given = tables(file="x.parquet", column="v", times=column)
    given |= {"repetitions": 1, "workloads": [{"kind": "quantiles", "shares": [0.2], "by": "hour"}]}
    if column in ("zoned", "text"):
        given["datasets"].append({**given["datasets"][0], "name": "UTC", "times": "t"})
        found = sweeps.load(sweeps.run(sweeps.from_table(given), tmp_path / "out", data=tmp_path))
        mine, other = (found[found["dataset"] == name]["value"].tolist() for name in ("x", "UTC"))
        assert mine == other
        return
    if column == "t":
        given["datasets"][0]["file"] = "x.csv"
    said = complaint(given, tmp_path)
    assert f"datasets[0].times = '{column}': expected a column of times, none absent, of a Parquet file" in said
    assert "secret" not in said


def test_pak_looks_at_a_hold_out(tmp_path: Path, stream: list[float]) -> None:
    for system in ("pak_optimum", "pak_runs"):
        said = complaint({**tables(file="x.npy"), "mechanisms": [{"system": system}], "workloads": [{}]}, tmp_path)
        assert said == (
            "datasets[0].holdout: mechanisms[0]: holdout = 0: expected the first m values of the stream, "
            "which PAK looks at"
        )
    wrong = {**tables(file="x.npy"), "mechanisms": [{"system": "printed", "numbers": 5}], "workloads": [{}]}
    assert complaint(wrong, tmp_path) == "mechanisms[0].numbers = 5: expected a table"


def test_an_even_pace_has_days(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.repeat(np.arange(14.0) % 7.0, 100))
    given = tables(file="x.npy", days=14)
    given |= {"repetitions": 2, "workloads": [{"kind": "quantiles", "shares": [0.2], "by": "weekday"}]}
    found = results(given, tmp_path)["own"]
    assert [found[k, f"weekday {day}: 0.2"] for k in range(2) for day in range(7)] == list(range(7)) * 2
    for wrong, said in (
        ({"days": None}, "expected times or days in datasets[0]"),
        ({"zone": "Nowhere/At_all"}, "zone = 'Nowhere/At_all': expected the name of a time zone"),
    ):
        own = {key: each for key, each in {"days": 14, **wrong}.items() if each is not None}
        assert said in complaint({**given, "datasets": tables(file="x.npy", **own)["datasets"]}, tmp_path)
    assert "shares is missing" in complaint(
        {**given, "workloads": [{"kind": "quantiles"}], "datasets": tables(file="x.npy", days=14)["datasets"]}
    )


def test_print_stands_beside_the_optimum_of_each_first_part(tmp_path: Path, stream: list[float]) -> None:
    """100 values are too few for a threshold: the plain tree, which clips nothing."""
    given = tables(file="x.npy", holdout=[100, 200])
    both = {"x, holdout=100": {"IF": 1.5, "r": 3.0}, "x, holdout=200": {"IF": 2.5, "r": 4.0}}
    given["mechanisms"] = [
        {"name": "ours", "system": "pak_optimum"},
        {"name": "by row", "system": "printed", "numbers": both},
        {"name": "for all", "system": "printed", "numbers": {"IF": 7.0}},
    ]
    given |= {"repetitions": 1, "workloads": [{"only": ["IF", "clipping error / B"]}]}
    rows = sweeps.load(sweeps.run(sweeps.from_table(given), tmp_path / "out", data=tmp_path))
    found = rows.set_index(["mechanism", "dataset", "group"])["value"].to_dict()
    assert len(found) == 8
    for name, row in both.items():
        assert found["by row", name, "IF"] == row["IF"]
        assert found["for all", name, "IF"] == 7.0
        assert (found["ours", name, "IF"], found["ours", name, "clipping error / B"]) == (1.0, 0.0)


@pytest.mark.slow
def test_runs_err_as_section_seven_says(tmp_path: Path) -> None:
    """Exponential bills of Table II: fewer runs than the suite, but the same numbers of each."""
    (suite,) = suites.of_name("pak_figure_10_11")
    table = suite.specification.table()
    assert [each["name"] for each in table["datasets"]] == ["bills", "POS"]
    few = replace(suite.specification, datasets=suite.specification.datasets[:1], repetitions=60)
    rows = sweeps.load(sweeps.run(few, tmp_path / "out"))
    found = rows.groupby(["mechanism", "group"])["value"].mean()
    assert 4.5 < found["plain binary tree", "error at n / B"] / found["PAK", "error at n / B"] < 18.0
    assert found["plain binary tree", "clipping error / B"] == 0.0
    # The tree's node at step n: popcount(150,000) = 8 noises of 18 levels, whose mean absolute sum is known.
    scale = 18.0 * math.sqrt(2.0 * 8.0) * math.sqrt(2.0 / math.pi)
    assert 0.7 * scale < found["plain binary tree", "error at n / B"] < 1.35 * scale
    assert 0.0 < found["PAK", "clipping error / B"] < found["bound of clipping", "clipping error / B"]


def test_a_page_draws_its_statistics(tmp_path: Path, stream: list[float]) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    text = """
name = "Tails"
repetitions = 3
epsilons = [1.0]
[[datasets]]
name = "x"
file = "x.npy"
bound = 80
unit = "s"
[[mechanisms]]
name = "own"
system = "quantiles"
[[mechanisms]]
name = "B"
system = "bound"
[[workloads]]
kind = "quantiles"
shares = [0.5, 0.1]
[[claims]]
says = "far below"
better = "own"
worse = "B"
metric = "value"
groups = ["0.5"]
least = 3.0
"""
    (tmp_path / "own.toml").write_text(text)
    suite = suites.from_file(tmp_path / "own.toml", data=tmp_path)
    folder = sweeps.run(suite.specification, tmp_path / "out", data=tmp_path)
    told = page.write_page(folder, suite, {}).read_text()
    assert "agrees" in told
    assert 'src="figures/quantiles.png"' in told
    assert (folder / "figures" / "quantiles.png").stat().st_size > 10_000
