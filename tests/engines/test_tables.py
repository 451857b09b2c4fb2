"""Tables on engines: the release is, bit for bit, that of one machine; no key of noise leaves the driver."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.data.source import EngineTable, Source, open_source
from fastdp.engines import dask
from fastdp.errors import DataError, ParameterError
from tests.engines.scenes import needs
from tests.tables.rows import as_family
from tests.tables.zones import ROWS, ZONES, instants, released

pytestmark = [needs("pandas", "pyarrow", "narwhals"), pytest.mark.filterwarnings("ignore")]
PARTS = 3
SECRET = bytes(range(100, 132))
DAYS: dict[str, Any] = {"start": "2024-03-29", "stop": "2024-04-02"}
PERSON = fastdp.Person("who", rows=3, per="1d", per_window=2)
Make = Callable[[Any], Any]


def make_frame() -> Any:
    """Over the last Sunday of March; values that are no multiple of any step, persons with many rows, equal rows."""
    import pandas as pd

    rng, size = np.random.default_rng(1), 3000
    at = pd.Timestamp("2024-03-29", tz="UTC") + pd.to_timedelta(rng.integers(0, 4 * 86_400 * 10**6, size), unit="us")
    frame = pd.DataFrame({"at": at, "meter": [f"m{k}" for k in rng.integers(0, 5, size)]})
    frame["kwh"], frame["number"] = rng.exponential(2.0, size), np.arange(size) % 4
    frame["cost"] = frame["kwh"] * 3.0 - 2.0
    frame["who"] = [("a\u0308", "\u00e4")[k % 2] if k < 900 else f"person {k % 70}" for k in range(size)]
    return pd.concat([frame, frame[100:140]], ignore_index=True)


def split(frame: Any) -> list[Any]:
    return [frame[k::PARTS] for k in range(PARTS)]


def here(frame: Any, works: list[Any] | None = None) -> EngineTable:
    """An engine in this process, which adds what parts of the frame give."""

    def add(work: Any, who: str | None, columns: Any) -> Any:
        if works is not None:
            works.append(work)
        parts, read = split(frame), partial(open_source, columns=columns)
        if who is not None:
            pieces = [dask._split(read, part, who, PARTS) for part in parts]
            parts = [import_module("pyarrow").concat_tables(same) for same in zip(*pieces, strict=True)]
        return sum(work(read(part)) for part in parts)

    def opened(columns: Any) -> Source:
        whole = open_source(frame, columns)
        return replace(whole, rows=None, add=partial(add, columns=columns))

    return EngineTable(opened)


def on_dask(frame: Any) -> EngineTable:
    return dask.table(import_module("dask.dataframe").from_pandas(frame, npartitions=PARTS))


@pytest.fixture(
    params=[
        "here",
        pytest.param("dask", marks=[needs("distributed"), pytest.mark.slow]),
        pytest.param("spark", marks=[needs("pyspark"), pytest.mark.slow]),
    ]
)
def make(request: pytest.FixtureRequest) -> Make:
    """A frame of pandas as an engine's table."""
    if request.param == "here":
        return here
    if request.param == "dask":
        request.getfixturevalue("client")
        return on_dask
    session = request.getfixturevalue("session")

    def on_spark(frame: Any) -> EngineTable:
        from pyspark.sql import functions as f

        from fastdp.engines import spark

        given = session.createDataFrame(frame).repartition(PARTS)
        clocks = [
            name
            for name in frame
            if str(frame[name].dtype).startswith("datetime64[") and "," not in str(frame[name].dtype)
        ]
        for name in clocks:
            given = given.withColumn(name, f.col(f"`{name}`").cast("timestamp_ntz"))
        return spark.table(given)

    return on_spark


def clock(frame: Any) -> Any:
    """Clock times, some of which Paris skips; missing times and keys."""
    import pandas as pd

    frame = frame.assign(at=frame["at"].dt.tz_localize(None))
    frame.loc[5:9, "at"] = pd.NaT
    frame.loc[20:90, "meter"] = None
    frame.loc[100:200, "at"] = pd.date_range("2024-03-31 01:45", periods=101, freq="1min")
    return frame


def texts(form: str) -> Make:
    return lambda frame: frame.assign(at=frame["at"].dt.strftime(form))


def unix(frame: Any) -> Any:
    """Seconds with a fraction; one is missing."""
    frame = frame.assign(at=(frame["at"] - frame["at"].min()).dt.total_seconds() + 1_711_670_400.25)
    frame.loc[7, "at"] = np.nan
    return frame


def with_gaps(frame: Any) -> Any:
    frame = frame.copy()
    frame.loc[7, "kwh"], frame.loc[8, "kwh"] = np.nan, np.inf
    return frame


METERS: dict[str, Any] = {"by": "meter", "keys": ["m3", "m0", "nowhere"]}
TWO: dict[str, Any] = {"by": ["meter", "number"], "keys": {"meter": ["m3", None, "m0"], "number": [3, 0, 9]}}
CLIP, BOTH = fastdp.Value(clip=4.0), {"kwh": fastdp.Value(clip=4.0), "cost": fastdp.Value((-9.0, 12.0), (-2.0, 9.0))}
STATISTICS: dict[str, Any] = {"kwh": ["sum", "var"], "cost": ["mean", "std"], "*": "count"}
Case = tuple[Make, dict[str, Any], Any, dict[str, Any]]
#: How the frame is changed, statistics, time, options.
CASES: dict[str, Case] = {
    "totals": (lambda f: f, {"kwh": "sum"}, fastdp.Time("at", "1h", **DAYS), METERS | {"bounds": CLIP}),
    "counts by day": (lambda f: f, {"*": "count"}, fastdp.Time("at", "1d", zone="Europe/Paris", **DAYS), METERS),
    "by a calendar": (
        lambda f: f,
        {"kwh": "sum", "*": "count"},
        fastdp.Time("at", "1h", **DAYS),
        METERS | {"bounds": CLIP, "unit": fastdp.Person("who", rows=96, per_window=1, basis="calendar")},
    ),
    "no windows": (lambda f: f, STATISTICS, None, TWO | {"levels": True, "bounds": BOTH}),
    "levels": (lambda f: f, STATISTICS, fastdp.Time("at", "1d", **DAYS), TWO | {"levels": True, "bounds": BOTH}),
    "clock": (
        clock,
        {"kwh": "mean"},
        fastdp.Time("at", "1h", zone="Europe/Paris", missing="drop", **DAYS),
        TWO | {"bounds": CLIP},
    ),
    "no column": (lambda f: f, {"*": "count"}, None, {}),
    "ISO texts": (texts("%Y-%m-%dT%H:%M:%S"), {"*": "count"}, fastdp.Time("at", "1d", **DAYS), {}),
    "texts": (texts("%d.%m.%Y %H:%M"), {"*": "count"}, fastdp.Time("at", "1d", format="%d.%m.%Y %H:%M", **DAYS), {}),
    "Unix times": (unix, {"kwh": "sum"}, fastdp.Time("at", "1d", unit="s", missing="drop", **DAYS), {"bounds": CLIP}),
    "not finite": (
        with_gaps,
        {"kwh": "sum"},
        fastdp.Time("at", "1d", **DAYS),
        {"bounds": fastdp.Value(clip=4.0, nonfinite="zero")},
    ),
    "persons": (
        lambda f: f,
        STATISTICS,
        fastdp.Time("at", "1d", **DAYS),
        METERS | {"unit": PERSON, "bounds": BOTH, "levels": False},
    ),
    "persons, delta": (
        lambda f: f,
        {"kwh": "sum", "*": "count"},
        fastdp.Time("at", "1h", **DAYS),
        METERS | {"unit": fastdp.Person("who", rows=20), "bounds": CLIP, "delta": 1e-6},
    ),
    "chosen clips": (
        lambda f: f,
        {"kwh": "sum", "cost": "mean"},
        fastdp.Time("at", "1d", **DAYS),
        METERS | {"bounds": {"kwh": 50.0, "cost": (-9.0, 200.0)}},
    ),
    "persons, chosen clips": (
        lambda f: f,
        {"kwh": "sum", "cost": "mean"},
        fastdp.Time("at", "1d", **DAYS),
        METERS | {"unit": PERSON, "bounds": {"kwh": 50.0, "cost": (-9.0, 200.0)}, "delta": 1e-6},
    ),
    "reach": (
        lambda f: f,
        {"who": "reach", "kwh": "sum"},
        fastdp.Time("at", "1d", **DAYS),
        METERS | {"unit": fastdp.Person("who", rows=2), "bounds": CLIP},
    ),
    "quantiles": (lambda f: f, {"kwh": ["median", "p95", "sum"]}, fastdp.Time("at", "1d", **DAYS), {"bounds": 9.0}),
}


@pytest.mark.parametrize("name", list(CASES))
def test_a_release_is_that_of_one_machine(name: str, make: Make) -> None:
    change, statistics, time, options = CASES[name]
    frame = change(make_frame())
    one, two = (
        fastdp.aggregate(each, statistics, time, **{"epsilon": 4.0, "key": SECRET} | options)
        for each in (frame, make(frame))
    )
    assert repr(two.arrow.to_pydict()) == repr(one.arrow.to_pydict()), "NaN too"
    assert two.guarantee == one.guarantee
    assert two.clipped_rows == one.clipped_rows
    assert two.dropped_rows == one.dropped_rows
    assert repr(two.released.tails) == repr(one.released.tails)
    for own, other in zip(one.released.measured, two.released.measured, strict=True):
        assert np.array_equal(own.steps, other.steps)
        assert own.noise == other.noise


def test_persons_count_as_often_as_their_bound_allows(make: Make) -> None:
    """Beside the true number: two spellings of a name are one person."""
    import pandas as pd

    who = ["\u00e4"] * 50 + ["a\u0308"] * 50 + [f"p{k}" for k in range(20)]
    frame = pd.DataFrame({"who": who, "at": pd.Timestamp("2024-03-29 12:00")})
    time = fastdp.Time("at", "1d", **DAYS)
    table = fastdp.counts(make(frame), time, epsilon=2.0**30, unit=fastdp.Person("who", rows=2), seed=1)
    assert round(table.released.cells("count")[0, 0]) == 22


def test_in_every_zone(make: Make, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Clock times in a named zone, and instants in that of the table; on Spark that of the session."""
    plain = as_family(ROWS, "pandas", tmp_path)
    for zone in ZONES:
        wanted = released(plain, zone)
        assert released(make(plain), zone) == wanted
        if zone is None:
            continue
        aware = instants(plain, zone)
        if "spark" not in request.node.name:
            assert released(make(aware), None) == wanted
            continue
        from fastdp.engines import spark

        own = request.getfixturevalue("session").newSession()
        own.conf.set("spark.sql.session.timeZone", zone)
        assert released(spark.table(own.createDataFrame(aware)), None) == wanted


def test_refusals(make: Make, tmp_path: Path) -> None:
    frame, ledger = with_gaps(make_frame()), fastdp.Ledger(tmp_path / "budget")
    table, hours = make(frame), fastdp.Time("at", "1h", **DAYS)
    options: dict[str, Any] = {"epsilon": 1.0, "seed": 1, "ledger": ledger, "stream": "t"}
    public = "an engine adds up numbers of public windows and keys"
    for asked, time, more, said in (
        ({"*": "count"}, fastdp.Time("at", "1h"), {}, public),
        ({"*": "count"}, hours, {"by": "meter", "keys": "public"}, public),
        ({"*": "count"}, hours, {"by": "meter", "delta": 1e-6}, public),
        ({"*": "count"}, hours, {"unit": fastdp.Person("who", rows="auto")}, public),
        ({"meter": "nunique"}, hours, {}, public),
        ({"meter": "reach"}, hours, {}, public),
        ({"*": "count"}, fastdp.Time("when", "1h", **DAYS), {}, "column 'when'"),
        ({"meter": "sum"}, hours, {"bounds": CLIP}, "column 'meter' holds"),
    ):
        with pytest.raises(ParameterError, match=said):
            fastdp.aggregate(table, asked, time, **options | more)
    assert not ledger.entries()
    # An error of a worker is that of one machine, and leaves the budget spent.
    with pytest.raises(DataError, match="not a finite number"):
        fastdp.aggregate(table, {"kwh": "sum"}, hours, **options, bounds=CLIP)
    assert [each.state for each in ledger.entries()] == ["reserved"]
    with pytest.raises(DataError, match="has no time or no person"):
        fastdp.counts(make(clock(frame)), hours, epsilon=1.0, seed=1)


@needs("distributed", "pyspark")
def test_other_frames_are_refused() -> None:
    from fastdp.engines import spark

    for module, said in ((dask, r"expected a dask\.dataframe"), (spark, r"expected a pyspark\.sql\.DataFrame")):
        with pytest.raises(ParameterError, match=f"frame is a dict: {said}"):
            fastdp.counts(module.table({}), fastdp.Time("at", "1h", **DAYS), epsilon=1.0)


def test_workers_get_no_key_of_noise() -> None:
    """Of persons' rows they get the key of the hashes that choose among them."""
    works: list[Any] = []
    frame = make_frame()
    for unit in (fastdp.Rows(), PERSON):
        table = here(frame, works)
        release = fastdp.counts(table, fastdp.Time("at", "1h", **DAYS), epsilon=1.0, unit=unit, key=SECRET).released
        assert release.measured
    for work in works:
        shipped = pickle.dumps(work)
        assert SECRET not in shipped
        assert b"fastdp.noise.key" not in shipped
    one, two = (
        fastdp.counts(here(frame, works), fastdp.Time("at", "1h", **DAYS), epsilon=1.0, key=k, unit=PERSON)
        for k in (SECRET, bytes(32))
    )
    # Each release reads twice, as rows that count come before the path of its sums.
    assert len({work.hashing for work in works[-4:]}) == 2
    assert one.guarantee == two.guarantee


@needs("distributed")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["whole.parquet", "whole.csv", "parts", "one part"])
def test_files_on_dask(tmp_path: Path, name: str, client: Any) -> None:
    """Row groups of a file, a file of text, a folder of files."""
    frame = make_frame()[["at", "meter", "kwh", "who"]]
    (tmp_path / "parts").mkdir()
    frame.to_parquet(tmp_path / "whole.parquet", row_group_size=200)
    frame.to_csv(tmp_path / "whole.csv", index=False)
    for number, part in enumerate(split(frame)):
        part.to_parquet(tmp_path / "parts" / f"{number}.parquet")
    frame.to_parquet(tmp_path / "one part.parquet")
    path = tmp_path / (name if name != "one part" else "one part.parquet")
    for unit in (fastdp.Rows(), PERSON):
        options = METERS | {"epsilon": 4.0, "key": SECRET, "clip": 4.0, "unit": unit}
        one, two = (
            fastdp.totals(t, "kwh", fastdp.Time("at", "1h", **DAYS), **options) for t in (path, dask.table(path))
        )
        assert repr(two.arrow.to_pydict()) == repr(one.arrow.to_pydict()), "NaN too"


@needs("pyspark")
@pytest.mark.slow
def test_columns_of_a_spark_frame_are_not_named_for_it(session: Any) -> None:
    """They may be the first row of a text without a heading."""
    from fastdp.engines import spark

    table = session.createDataFrame([(1, 2)], ["secret", "Alice"])
    with pytest.raises(ParameterError, match=r"one of the table's columns \(see frame\.columns\)$"):
        fastdp.counts(spark.table(table), by="nope", keys=[1], epsilon=1.0)


@needs("pyspark")
@pytest.mark.slow
def test_what_spark_says_about_a_row_is_not_shown(session: Any) -> None:
    from fastdp.engines import spark

    table = session.createDataFrame(make_frame())
    table = table.selectExpr("at", "cast(concat('secret', meter) as double) as kwh")
    with pytest.raises(DataError, match="while Spark read") as error:
        fastdp.totals(spark.table(table), "kwh", fastdp.Time("at", "1d", **DAYS), epsilon=1.0, clip=4.0, seed=1)
    assert "secret" not in str(error.value)
    assert error.value.__cause__ is None
