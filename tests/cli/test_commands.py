"""Each command gives, byte for byte, what its Python call gives under the same key."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

import fastdp
from fastdp.perturbers import Blocks
from fastdp.points import Box, replay
from tests.cli.conftest import SECRET

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
KEY = {"key": SECRET}
Python = Callable[[np.ndarray], Any]

#: Options of ``fastdp release in.npy``, and the release.
RELEASES: dict[str, Python] = {
    "--epsilon 0.5 --bound 200": lambda v: fastdp.release(v, 0.5, 200.0, **KEY),
    "--epsilon 0.5 --sensitivity 1": lambda v: fastdp.release(v, 0.5, sensitivity=1.0, **KEY),
    "--epsilon 0.5 --bound 200 --threshold 50 --season 24 --contributions 3": lambda v: fastdp.release(
        v, 0.5, 200.0, threshold=50.0, season=24.0, contributions=3, **KEY
    ),
    "--epsilon 1 --bound 200 --delta 1e-6 --season 24 --stream a": lambda v: fastdp.release(
        v, 1.0, 200.0, delta=1e-6, season=24.0, stream="a", **KEY
    ),
    "--epsilon 0.5 --bound 200 --holdout 1000 --max-range 4096 --no-rising": lambda v: fastdp.Adaptive(
        0.5, 200.0, 1000, 4096, perturber=Blocks(rising=False), **KEY
    ).release(v),
    "--method tops --epsilon 0.5 --bound 200 --expected-length 4321 --prune 1 --smoother median": lambda v: (
        fastdp.ToPS(0.5, 200.0, expected_length=4321, prune=1, smoother="median", **KEY).release(v)
    ),
    "--method pak --epsilon 0.5 --bound 200 --length 4321 --delta 1e-6 --holdout 400 --no-clip": lambda v: fastdp.PAK(
        0.5, 1e-6, 200.0, 4321, holdout=400, clip=False, **KEY
    ).release(v),
    "--method topl --epsilon 1 --bound 200 --holdout 500 --threshold linear": lambda v: fastdp.ToPL(
        1.0, 200.0, 500, threshold="linear", **KEY
    ).release(v),
}


@pytest.mark.parametrize("options", RELEASES)
def test_release(options: str, run: Callable[..., Result], values: np.ndarray) -> None:
    made = RELEASES[options](values)
    shown = run(f"release in.npy -o out.npy {options} --key-file key")
    # Without the lines about time and output.
    assert shown.stderr.startswith(f"{made!r}\n")
    made.write("own.npy")
    for suffix in ("", ".json"):
        assert Path(f"out.npy{suffix}").read_bytes() == Path(f"own.npy{suffix}").read_bytes()


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".npy", ".parquet", ".CSV"])
@pytest.mark.parametrize("choice", ["published", "revised", "both"])
def test_files_of_a_release(suffix: str, choice: str, run: Callable[..., Result], values: np.ndarray) -> None:
    made = fastdp.Adaptive(0.5, 200.0, 40, seed=5).release(values)
    columns = {"published": ["values"], "revised": ["revised"], "both": ["values", "revised"]}[choice]
    made.write(f"own{suffix}", columns=columns)
    run(f"release in.txt -o out{suffix} --epsilon 0.5 --bound 200 --holdout 40 --seed 5 --values {choice}")
    raw = Path(f"out{suffix}").read_bytes()
    assert raw == Path(f"own{suffix}").read_bytes()
    if suffix.lower().startswith(".csv"):
        heading, *rows = (gzip.decompress(raw) if suffix == ".csv.gz" else raw).decode().splitlines()
        assert heading == {"published": "value", "revised": "revised", "both": "value,revised"}[choice]
        read = np.array([[float(cell) for cell in row.split(",")] for row in rows])
        assert np.array_equal(
            read, np.stack([(made if name == "values" else made.revised).values for name in columns], 1)
        )
    if suffix != ".parquet":
        assert json.loads(Path(f"out{suffix}.json").read_text())["threshold"] == made.threshold
    shown = run(f"release in.npy -o - --epsilon 0.5 --bound 200 --holdout 40 --seed 5 --values {choice} --quiet")
    if suffix == ".csv":
        assert shown.stdout_bytes == raw
    assert shown.stderr == ""


#: Options of a command on readings.parquet, and the table.
TIME = "--time at --every 6h"
TABLES: dict[str, Python] = {
    f"totals --value kwh {TIME} --epsilon 1 --bound 10": lambda f: fastdp.totals(
        f, "kwh", "at", "6h", epsilon=1.0, bound=10.0, **KEY
    ),
    "totals --value kwh --time at --every 1d --epsilon 1 --clip -1,4 --bound -2,9 --resolution 0.25 --nonfinite zero "
    "--stream b --start 2024-03-30 --stop 2024-04-02 --zone America/Lima --missing drop": lambda f: fastdp.totals(
        f, "kwh", fastdp.Time("at", "1d", "2024-03-30", "2024-04-02", zone="America/Lima", missing="drop"),
        epsilon=1.0, bound=fastdp.Value((-2.0, 9.0), (-1.0, 4.0), nonfinite="zero", resolution=0.25), stream="b",
        **KEY,
    ),
    "counts --epsilon 0.5 --by floor --keys 1 --keys 3": lambda f: fastdp.counts(
        f, by="floor", keys=[1, 3], epsilon=0.5, **KEY
    ),
    f"counts {TIME} --epsilon 2 --by city --by floor --keys Rome,2 --keys '\"Bern, old\",1'": lambda f: fastdp.counts(
        f, "at", "6h", ["city", "floor"], [("Rome", 2), ("Bern, old", 1)], epsilon=2.0, **KEY
    ),
    f"counts {TIME} --epsilon 2 --by city --keys public --rows 3 --per 1d": lambda f: fastdp.counts(
        f, "at", "6h", "city", "public", epsilon=2.0, unit=fastdp.Rows(3, "1d"), **KEY
    ),
    f"counts {TIME} --epsilon 2 --by city --delta 1e-6 --key-share 0.4 --others --person meter --rows auto": lambda f:
        fastdp.counts(
            f, "at", "6h", "city", fastdp.PrivateKeys(0.4, others=True), epsilon=2.0, delta=1e-6,
            unit=fastdp.Person("meter", "auto"), **KEY,
        ),
    f"means --value kwh {TIME} --epsilon 1 --clip 6 --person meter --rows 5 --per 1d --per-window 2": lambda f:
        fastdp.means(
            f, "kwh", "at", "6h", epsilon=1.0, clip=6.0, unit=fastdp.Person("meter", 5, "1d", 2), **KEY
        ),
    f"aggregate --statistics kwh=sum,mean --statistics floor=p90 --statistics '*=count' {TIME} --epsilon 2 "
    "--bound kwh=10 --bound floor=0,4 --weight kwh=2 --nonfinite zero --levels": lambda f: fastdp.aggregate(
        f, {"kwh": ["sum", "mean"], "floor": ["p90"], "*": ["count"]}, "at", "6h", epsilon=2.0, levels=True,
        bounds={
            "kwh": fastdp.Value(10.0, weight=2.0, nonfinite="zero"),
            "floor": fastdp.Value((0.0, 4.0), nonfinite="zero"),
        },
        **KEY,
    ),
    "aggregate --statistics meter=nunique --epsilon 2": lambda f: fastdp.aggregate(
        f, {"meter": ["nunique"]}, epsilon=2.0, **KEY
    ),
}  # fmt: skip


@pytest.mark.parametrize("line", TABLES)
def test_tables(line: str, run: Callable[..., Result], readings: Any) -> None:
    command, options = line.split(" ", 1)
    for suffix in (".parquet", ".csv"):
        shown = run(f"{command} readings.parquet -o out{suffix} {options} --key-file key --confidence 0.9")
        made = TABLES[line](readings).with_confidence(0.9)
        assert shown.stderr.startswith(repr(made))
        made.write(f"own{suffix}")
        assert Path(f"out{suffix}").read_bytes() == Path(f"own{suffix}").read_bytes()
    assert Path("out.csv.json").read_bytes() == Path("own.csv.json").read_bytes()
    assert run(f"{command} readings.parquet -o - {options} --key-file key --confidence 0.9").stdout_bytes == (
        Path("own.csv").read_bytes()
    )


def test_keys_from_a_file(run: Callable[..., Result], readings: Any) -> None:
    Path("keys.csv").write_text("floor\n1\n3\n")
    run("counts readings.parquet -o out.csv --epsilon 0.5 --by floor --keys @keys.csv --key-file key")
    fastdp.counts(readings, by="floor", keys=[1, 3], epsilon=0.5, **KEY).write("own.csv")
    assert Path("out.csv").read_bytes() == Path("own.csv").read_bytes()


PLANS: dict[str, Callable[[], fastdp.Plan]] = {
    "--statistics kwh=sum,mean --bound kwh=10 --every 1h --windows 168 --expected-rows 400 --expected-mean kwh=0.4 "
    "--epsilon 1": lambda: fastdp.plan(
        {"kwh": ["sum", "mean"]},
        bounds={"kwh": 10.0},
        every="1h",
        windows=168,
        rows=400.0,
        mean={"kwh": 0.4},
        epsilon=1.0,
    ),
    "--statistics '*=count' --every 1d --windows 365 --keys 74 --person p --rows 4 --per 1d --half-width 9": lambda: (
        fastdp.plan(
            {"*": ["count"]}, every="1d", windows=365, keys=74, unit=fastdp.Person("p", 4, "1d"), half_width=9.0
        )
    ),
    "--statistics kwh=sum --bound 10 --epsilon 1 --delta 1e-6 --key-share 0.3 --confidence 0.9": lambda: fastdp.plan(
        {"kwh": "sum"}, bounds=10.0, epsilon=1.0, delta=1e-6, keys=fastdp.PrivateKeys(0.3), confidence=0.9
    ),
    "--size 8760 --bound 10 --rows 2 --expected-mean 0.4 --epsilon 0.5": lambda: fastdp.plan(
        size=8760, bounds=10.0, unit=fastdp.Rows(2), mean=0.4, epsilon=0.5
    ),
}


@pytest.mark.parametrize("options", PLANS)
def test_plan(options: str, run: Callable[..., Result]) -> None:
    assert run(f"plan {options}").stdout == f"{PLANS[options]()}\n"


#: Options of ``fastdp synthesize events.csv``, the publisher and how the events are cut.
BOX = Box([0, 0], [10, 5])
POINTS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "--batch 250 --counter binary --max-depth 9": (
        lambda: fastdp.PHDStream(BOX, 2.0, counter="binary", max_depth=9, **KEY),
        {"batch": 250},
    ),
    "--batch 6h --sort --zone UTC --method adaptive --max-period 4 --sensitivity 2": (
        lambda: fastdp.AdaptivePHDStream(BOX, 2.0, max_period=4, sensitivity=2, **KEY),
        {"batch": "6h", "sort": True, "zone": "UTC"},
    ),
    "--batch 200 --initial 0.5 --x lon --y lat": (
        lambda: fastdp.PHDStream(BOX, 2.0, **KEY),
        {"batch": 200, "initial": 0.5, "x": "lon", "y": "lat"},
    ),
}


@pytest.mark.parametrize("options", POINTS)
def test_synthesize(options: str, run: Callable[..., Result]) -> None:
    publisher, cuts = POINTS[options]
    made = replay(publisher(), "events.csv", **cuts)
    for suffix in (".csv", ".npy", ".parquet"):
        shown = run(f"synthesize events.csv -o out{suffix} --epsilon 2 --box 0 0 10 5 {options} --key-file key")
        assert shown.stderr.startswith(repr(made))
        made.write(f"own{suffix}")
        assert Path(f"out{suffix}").read_bytes() == Path(f"own{suffix}").read_bytes()
    line = f"synthesize - -o - --epsilon 2 --box 0 0 10 5 {options} --key-file key --quiet"
    assert run(line, stdin=Path("events.csv").read_text()).stdout_bytes == Path("own.csv").read_bytes()


def test_pictures_change_no_output(run: Callable[..., Result]) -> None:
    pytest.importorskip("matplotlib", reason="needs matplotlib")
    lines = {
        "out.csv": "release in.npy -o out.csv --epsilon 0.5 --bound 200",
        "table.csv": f"totals readings.parquet -o table.csv --value kwh {TIME} --epsilon 1 --bound 10",
        "points.csv": "synthesize events.csv -o points.csv --epsilon 2 --box 0 0 10 5 --batch 300",
    }
    for name, line in lines.items():
        run(f"{line} --seed 1")
        before = Path(name).read_bytes()
        shown = run(f"{line} --seed 1 --force --plot {name}.png")
        assert Path(name).read_bytes() == before
        assert Path(f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "picture" in shown.stderr
