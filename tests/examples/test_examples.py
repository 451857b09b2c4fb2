"""Each walk runs on a small cut of its data and prints what it promises."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("narwhals", reason="needs fastdp-streams[tables]")
pytest.importorskip("pandas", reason="needs pandas")
pytest.importorskip("matplotlib", reason="needs fastdp-streams[plot]")

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data" / "tables"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"needs the tables in {DATA}")


@pytest.fixture
def walk(monkeypatch, capsys, tmp_path):
    def run(script, *arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
        return capsys.readouterr().out

    return run


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_households(walk, tmp_path):
    out = walk("households.py", "--households", 12, "--days", 21)
    assert "Totals of 504 windows of 1h, 2024-01-08 00:00 to 2024-01-29 00:00 Europe/London" in out
    assert re.search(r"first 168 hours: [\d,]+ kWh, 95 % interval [\d,]+ to [\d,]+", out)
    assert "Totals of 21 windows of 1d x 12 keys (household_id)" in out
    assert "one person in any period of 1d" in out
    assert files(tmp_path / "households") == ["readings.parquet", "total.parquet", "total.png"]


@pytest.mark.slow
@needs_data
@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_bike_trips(walk, tmp_path):
    out = walk("bike_trips.py", DATA, "--rows", 20_000)
    assert re.search(r"Counts of \d+ windows of 1h x \d+ keys \(start_station\), 2014-01-01 00:00 to", out)
    assert "most trips began at San Francisco Caltrain" in out
    assert re.search(r"Means of \d+ windows of 1d, 2014-01-01", out)
    assert files(tmp_path / "bikes") == ["durations.png", "trips.png"]


@pytest.mark.slow
@needs_data
def test_pedestrians(walk, tmp_path):
    out = walk("pedestrians.py", DATA, "--every-nth", 100)
    assert "Counts of 1,009 windows of 1h x 4 keys (sensor), 2015-03-16 00:00 to 2015-04-27 00:00" in out
    assert "05 April 2015 has 25 hours, from 00:00 AEDT" in out
    assert "04 October 2015 has 23 hours, from 00:00 AEST" in out
    assert files(tmp_path / "pedestrians") == ["days.png", "hours.png"]


@pytest.mark.slow
@needs_data
@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_retail(walk, tmp_path):
    out = walk("retail.py", DATA, "--rows", 60_000)
    counted = [int(found.replace(",", "")) for found in re.findall(r"k = +\d+: +([\d,]+) lines", out)]
    assert len(counted) == 3
    assert min(counted) > 1_000
    assert "one customer" in out or "one person" in out
    countries = re.search(r"countries: (.*)", out).group(1).split(", ")
    assert "United Kingdom" in countries
    assert len(countries) < 15
    assert files(tmp_path / "retail") == ["amounts.csv", "amounts.csv.json", "amounts.png"]


def test_endless_goes_on_after_a_restart(walk):
    first, second = walk("endless.py", "--batches", 7), walk("endless.py", "--batches", 8)
    assert "going on behind batch 7" in second
    row = r"^(\S+)  (/\w+)/\w+ +([\d-]+)  at least +([\d-]+)  \(true: +(\d+)\)"
    shown = re.findall(row, first + second, re.MULTILINE)
    windows = list(dict.fromkeys(window for window, *_ in shown))
    assert windows == [f"2024-05-0{1 + hour // 24}T{hour % 24:02}" for hour in range(0, 36, 6)]
    # Neither orders nor the crawler's pages; of the others nearly all intervals hold the truth.
    assert {kind for _, kind, *_ in shown} == {"/page"}
    numbers = [tuple(map(int, each[2:])) for each in shown]
    held = [low <= true for _, low, true in numbers]
    assert len(held) > 30
    assert sum(held) > 0.8 * len(held)
    assert int(re.search(r"(\d+) late requests", second).group(1)) > 0


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_web_log(walk, tmp_path):
    out = walk("web_log.py", "--visitors", 3_000, "--days", 4)
    assert "count, bytes_sum of" in out
    found = re.search(r"(\d+) of [\d,]+ paths; orders among them: (\d+)", out)
    assert int(found[1]) > 5
    assert int(found[2]) == 0
    assert files(tmp_path / "web_log") == ["hits.parquet", "hourly.png"]


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_hospital(walk, tmp_path):
    out = walk("hospital.py", "--rows", 20_000)
    errors = [float(each.replace(",", "")) for each in re.findall(r"year's count ([\d,]+)", out)]
    assert errors[0] == max(errors)
    assert len(errors) == 3
    assert files(tmp_path / "hospital") == ["admissions.csv", "nights.png"]


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_films(walk, tmp_path):
    out = walk("films.py", "--viewers", 4_000, "--films", 200)
    assert "stars_mean" in out
    assert "minutes_p90" in out
    assert files(tmp_path / "films") == ["films.parquet"]
