"""Bad tables: one clear error each, without a private value; what is charged, and what the documented rule is."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fastdp
from fastdp.errors import BudgetError, DataError, ParameterError
from tests.tables import flat
from tests.tables.rows import as_family, random_rows

SECRET_VALUE = 987654.25
AT = pd.to_datetime(["2024-01-01 00:10", "2024-01-01 01:10", "2024-01-01 02:10"])
GOOD = pd.DataFrame({"at": AT, "kwh": [1.0, 2.0, 3.0], "meter": ["x", "y", "x"], "who": [1, 2, 3]})
OPTIONS: dict[str, Any] = {"value": "kwh", "time": "at", "every": "1h", "epsilon": 1.0, "clip": 2.0}


@pytest.fixture
def ledger(tmp_path: Path) -> fastdp.Ledger:
    return fastdp.Ledger(tmp_path / "ledger")


def spent(ledger: fastdp.Ledger) -> float:
    return float(ledger.spent("meters").epsilon)


def refused(ledger: fastdp.Ledger, frame: Any, **options: Any) -> str:
    with pytest.raises((ParameterError, DataError)) as error:
        flat.totals(frame, **(OPTIONS | {"ledger": ledger, "stream": "meters"} | options))
    assert "987654" not in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.__suppress_context__ or "987654" not in repr(error.value.__context__)
    return str(error.value)


WHO = {"who": "who", "contributions": 9, "per_window": 2, "start": "2024-01-01", "stop": "2024-01-01T03:00"}
#: Wrong whatever the rows are: the table's form, and parameters.
FORM: list[tuple[Any, dict[str, Any], str]] = [
    (GOOD, {"value": "kw"}, "column 'kw': expected one of the table's columns, 'at', 'kwh'"),
    (GOOD.set_index("at"), {}, r"'at' is the index: frame.reset_index\(\) makes it a column"),
    (pd.DataFrame(np.zeros((2, 2)), columns=["at", "at"]), {}, "expected distinct"),
    (pa.table([AT, AT, [1.0] * 3], ["at", "at", "kwh"]), {}, "expected distinct"),
    (GOOD.assign(at=[987654, 1, 2]), {}, "time = 'at' holds Int64 entries: expected dates"),
    (GOOD.assign(kwh=["987654", "b", "c"]), {}, "column 'kwh' holds String entries: expected numbers"),
    (GOOD.assign(kwh=np.ones(3) * 1j), {}, "expected numbers"),
    (GOOD.iloc[:0], {}, r"frame has no rows: expected Time\(start=, stop=\)"),
    ([1.0, SECRET_VALUE], {}, "frame is a list: expected a data frame"),
    (GOOD["kwh"], {}, "frame is a Series: expected a data frame"),
    ("no-such-file.parquet", {}, "no such file"),
    ("rows.xlsx", {}, "unknown kind of file; expected a .csv"),
    (GOOD, {"stream": None}, "stream = None: expected the name of the stream or table"),
    (GOOD, {"by": "meter"}, "keys = None: expected the list of keys of 'meter'"),
    (GOOD, {"keys": ["x"]}, "expected None without by="),
    (GOOD, {"by": "meter", "keys": ["x", "x"]}, "expected distinct keys"),
    (GOOD, {"by": "meter", "keys": [float("nan"), -float("nan")]}, "an entry is NaN"),
    (GOOD, {"by": "meter", "keys": [["x"], ["y"]]}, "no lists"),
    (GOOD, {"by": ["meter", "who"], "keys": ["x"]}, "expected tuples of 2 entries"),
    (GOOD, {"by": "meter", "keys": [7, 2**64 - 1]}, "several types, or are beyond int64"),
    (GOOD, {"by": "meter", "keys": fastdp.PrivateKeys()}, "delta = 0: expected above 0"),
    (GOOD, {"clip": None}, "bound = None: expected a public upper bound"),
    (GOOD, {"clip": (2.0, 1.0)}, "expected low below high"),
    (GOOD, {"bound": 1.0}, "expected a clip within the bound"),
    (GOOD, {"resolution": 3.0}, "resolution = 3.0: expected at most the bound"),
    (GOOD, {"start": "2024-01-02", "stop": "2024-01-01"}, "expected a time after start"),
    (GOOD, {"every": "1ms", "start": "2000-01-01", "stop": "2024-01-01"}, "expected at most 200,000,000"),
    (GOOD, {"period": "1d"}, "expected k above 1, or a Person"),
    (GOOD, WHO, "rows = 9: a person has at most 6 rows"),
]


@pytest.mark.parametrize(
    ("frame", "options", "message"), FORM, ids=lambda each: each if isinstance(each, str) else ""
)
def test_errors_about_the_form_charge_nothing(frame, options, message, ledger: fastdp.Ledger) -> None:
    assert re.search(message, refused(ledger, frame, **options))
    assert spent(ledger) == 0.0


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas])
@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"at": [AT[0], None, AT[2]]}, {}, "row 1 has no time or no person"),
        ({"who": pd.array([1, None, 3], "Int64")}, {"who": "who"}, "row 1 has no time or no person"),
        ({"kwh": [1.0, float("nan"), SECRET_VALUE]}, {}, "value: a row that counts has none"),
        ({"kwh": pd.array([1, None, 987654], "Int64")}, {"bound": 5.0}, "value: a row that counts has none"),
    ],
)
def test_errors_about_rows_are_charged(convert, changed, options, message, ledger: fastdp.Ledger) -> None:
    """Its existence depends on the rows, so it is not free; one row is enough to name."""
    frame = convert(GOOD.assign(**changed))
    assert message in refused(ledger, frame, **options)
    assert spent(ledger) == 1.0
    rule = {"missing": "drop", "nonfinite": "zero", "seed": 1}
    assert flat.totals(frame, **(OPTIONS | options | rule)).released.cells("total").shape == (3, 1)


def test_a_row_is_named_by_its_place_in_the_table(ledger: fastdp.Ledger) -> None:
    """Of more rows than are read at a time."""
    frame = pd.concat([GOOD] * 90_000, ignore_index=True)
    frame.loc[265_000, "at"] = None
    assert "row 265000 has no time or no person (1 of the 7,856 rows" in refused(ledger, frame)


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.from_pandas, pa.Table.from_pandas, pa.RecordBatch.from_pandas])
def test_keys_of_another_type_are_refused_and_charge_nothing(convert: Any, ledger: fastdp.Ledger) -> None:
    for by, keys in (("meter", [1, 2]), ("who", ["1", "2"]), (["meter", "who"], [("x", "y")]), ("who", [1.5, 2.0])):
        assert "are no" in refused(ledger, convert(GOOD), by=by, keys=keys)
    assert spent(ledger) == 0.0


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize(
    "entries", [[1, 7, 1], [1, None, 1], [Decimal(1), Decimal("7.5"), Decimal(1)], ["1", "7", "1"]]
)
def test_a_type_that_rows_decide_is_not_refused(entries: list[Any], ledger: fastdp.Ledger) -> None:
    """A column of objects: after the charge an error would tell of its entries; those that name a key are in it."""
    frame = GOOD.assign(meter=pd.Series(entries, dtype=object))
    options = {"epsilon": 1e3, "ledger": ledger, "stream": "s", "seed": 1}
    found = flat.counts(frame, "at", "1d", by="meter", keys=["x", "1"], **options)
    assert np.rint(found.estimate(0, 1)).tolist() == [[0, 2]]


@pytest.mark.parametrize("entries", [[1, "987654", 3], [b"987654"] * 3])
def test_objects_that_are_no_numbers_are_charged(entries: list[Any], ledger: fastdp.Ledger) -> None:
    refused(ledger, GOOD.assign(kwh=pd.Series(entries, dtype=object)))
    assert spent(ledger) == 1.0


def test_keys_are_single_entries(ledger: fastdp.Ledger) -> None:
    nested = GOOD.assign(meter=[[1], [2], [3]])
    assert "column 'meter' holds List entries" in refused(ledger, pl.from_pandas(nested), by="meter", keys="public")
    for stream, options in {"keys": {"by": "meter", "keys": "public"}, "persons": {"who": "meter"}}.items():
        assert "a column holds lists" in refused(ledger, nested, stream=stream, **options)


def test_a_file_that_is_cut_short(tmp_path: Path, ledger: fastdp.Ledger) -> None:
    path = as_family(random_rows(50, 1), "csv", tmp_path)
    head, *lines = Path(path).read_text().splitlines()
    # Behind the first block, from which Arrow takes the types.
    Path(path).write_text("\n".join([head, *(lines * 1000), "987654,a,not a number,1"]))
    assert "rows.csv, line 50002, column 'at': no timestamp" in refused(ledger, path)


def counted(frame: Any, **options: Any) -> list[int]:
    steps = flat.counts(frame, "at", "1h", epsilon=1000.0, seed=1, **options).released.cells("count")
    return steps.ravel().tolist()


@pytest.mark.filterwarnings("ignore:clip")
@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_rules_that_are_no_errors() -> None:
    """A duplicate index does not matter; unsorted rows, unknown keys and negative values have a rule."""
    doubled = GOOD.set_axis([0, 0, 0])
    assert counted(doubled) == counted(GOOD[::-1]) == [1, 1, 1]
    assert counted(GOOD, by="meter", keys=["x", "other"]) == [1, 0, 0, 0, 1, 0]
    assert counted(GOOD, start="2024-01-01T01:00", stop="2024-01-01T02:00") == [1]
    negative = GOOD.assign(kwh=[-5.0, 1.0, 9.0])
    options: dict[str, Any] = {"epsilon": 1e6, "seed": 1}
    clipped = flat.values(flat.totals(negative, "kwh", "at", "1h", clip=2.0, **options).released, "total")
    assert clipped.ravel() == pytest.approx([0.0, 1.0, 2.0], abs=1e-4)
    both = flat.values(flat.totals(negative, "kwh", "at", "1h", clip=(-4.0, 2.0), **options).released, "total")
    assert both.ravel() == pytest.approx([-4.0, 1.0, 2.0], abs=1e-4)


def test_releases_are_entered_and_refused_twice(ledger: fastdp.Ledger) -> None:
    key = bytes(range(32))
    options = OPTIONS | {"ledger": ledger, "stream": "meters", "key": key}
    first = flat.totals(GOOD, **options).released
    (entry,) = ledger.entries()
    assert (entry.guarantee, entry.stream, entry.state) == (first.guarantee, "meters", "spent")
    assert entry.mechanism["class"] == "aggregate"
    assert entry.mechanism["parameters"]["every"] == "1h"
    with pytest.raises(BudgetError, match="the same secret and composition"):
        flat.totals(GOOD, **options)
    ledger.set_limit(1.5, stream="meters")
    with pytest.raises(BudgetError, match=r"has 0\.5 of 1\.5 epsilon left"):
        flat.totals(GOOD, **(options | {"epsilon": 0.75}))
    flat.totals(GOOD, **(options | {"epsilon": 0.5}))
    # Under another name the noise is another one.
    other = flat.totals(GOOD, **(OPTIONS | {"stream": "other", "key": key})).released
    assert not np.array_equal(other.cells("total"), first.cells("total"))


def test_one_person_counts_twice_for_a_row(ledger: fastdp.Ledger) -> None:
    options: dict[str, Any] = {"epsilon": 1.0, "ledger": ledger, "stream": "meters"}
    flat.counts(GOOD, "at", "1h", **options)
    flat.counts(GOOD, "at", "1h", who="who", contributions=3, period="1d", **options)
    spent = ledger.spent("meters")
    assert (spent.unit, spent.epsilon) == ("one row of the table", 3.0)
    with pytest.raises(ParameterError, match="name another stream for another unit"):
        ledger.spend(fastdp.Guarantee(1.0), stream="meters")


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_many_keys_fit_an_entry(ledger: fastdp.Ledger) -> None:
    flat.counts(
        *(GOOD, "at", "1h"),
        by="meter",
        keys=[f"meter {i}" for i in range(20_000)],
        epsilon=1.0,
        ledger=ledger,
        stream="s",
    )
    assert ledger.entries()[0].mechanism["parameters"]["keys"] == 20_000


@pytest.mark.usefixtures("unknown_narwhals")
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "narwhals.stable.v2", None)
    with pytest.raises(ParameterError, match=r"pip install 'fastdp-streams\[tables\]'"):
        flat.counts(GOOD, "at", "1h", epsilon=1.0)


def test_times_beyond_all_calendars() -> None:
    table = pa.table({"at": pa.array([2**62], pa.int64()).cast(pa.timestamp("us"))})
    with pytest.raises(DataError, match="outside the years 1 to 9999"):
        flat.counts(table, "at", "1d", epsilon=1.0)
    dates = pa.table({"at": pa.array([datetime(1, 1, 3), datetime(9998, 1, 1)], pa.timestamp("s"))})
    found = flat.counts(dates, "at", "1000y", epsilon=1000.0, seed=1).released
    assert found.cells("count").sum() == 2


@pytest.mark.parametrize("clip", [10.0, (-10.0, 30.0)])
@pytest.mark.parametrize("resolution", [0.01, 0.1, 0.3, 1.0])
def test_a_clip_of_whole_steps_is_not_a_step_short(clip: Any, resolution: float) -> None:
    sums = flat.totals(GOOD, "kwh", "at", "1h", epsilon=1.0, clip=clip, resolution=resolution, seed=1).released
    rounded = {10.0: 9.9, -10.0: -9.9} if resolution == 0.3 else {}
    ends = clip if isinstance(clip, tuple) else (0.0, clip)
    assert flat.clip(sums) == pytest.approx([rounded.get(end, end) for end in ends], rel=1e-12)


def test_persons_may_be_uuids_and_keys_may_not(ledger: fastdp.Ledger) -> None:
    ids = [UUID(int=1), UUID(int=2), UUID(int=1)]
    options = {"who": "id", "contributions": 1, "period": "1d", "resolution": 2.0**-10, "seed": 1}
    by_id, by_text = (
        flat.totals(GOOD.assign(id=each), **OPTIONS, **options).frame["estimate"]
        for each in (ids, list(map(str, ids)))
    )
    assert by_id.tolist() == by_text.tolist()
    for keys in ("public", ids[:2]):
        assert "expected texts" in refused(ledger, GOOD.assign(id=ids), by="id", keys=keys)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit": fastdp.Person("who", rows="auto")}, "epsilon = 1e-09: .* noise that can be drawn .scale"),
        ({"unit": fastdp.Person("who", rows=2)}, "epsilon = 1e-09: .* noise that can be drawn .scale"),
    ],
)
def test_noise_of_helpers_is_refused_before_the_charge(
    options: dict[str, Any], message: str, ledger: fastdp.Ledger
) -> None:
    with pytest.raises(ParameterError, match=message):
        fastdp.aggregate(
            GOOD, {"kwh": "sum"}, **({"epsilon": 1e-9, "bounds": 10.0} | options), ledger=ledger, stream="meters"
        )
    assert not list(ledger.entries())


NAMES = ["person 987654", "person 9876541", "person 987654"]
COLUMNS = [
    pd.Series(NAMES),
    pd.Series([987654.25, 1.0]),
    pl.Series(NAMES),
    NAMES,
    NAMES[:2],
    np.array(NAMES),
    pd.DataFrame({"who": NAMES}),
]


@pytest.mark.parametrize("argument", ["by", "time", "value", "who", "zone", "clip", "every", "contributions"])
def test_a_column_for_a_name_shows_no_entry(argument: str, ledger: fastdp.Ledger) -> None:
    for column in COLUMNS:
        said = refused(ledger, GOOD, **({"by": "meter", "keys": ["x"]} | {argument: column}))
        # Of names that a table does not have the table's own ones are shown.
        named = {"time": "column", "who": "column", "contributions": "k"}.get(argument, argument)
        unknown = "of the columns that were named: expected one of the table's columns"
        assert f"{named} =" in said or f"{named}:" in said or unknown in said
        assert spent(ledger) == 0.0
        table = flat.counts(GOOD, "at", "1h", epsilon=1.0, seed=1)
        with pytest.raises(ParameterError, match=f"^revised = <{type(column).__name__}>: expected True or False"):
            table.sum(0, 1, revised=column)


def test_an_unknown_argument_names_the_function() -> None:
    with pytest.raises(TypeError, match=r"^means\(\) got an unexpected keyword argument 'noise'"):
        fastdp.means(GOOD, **OPTIONS, noise="laplace")


def test_nonfinite_values_count_as_zero_on_request() -> None:
    def total(values: list[float]) -> Any:
        bounds = fastdp.Value(clip=5.0, nonfinite="zero")
        frame = pd.DataFrame({"v": values})
        return fastdp.aggregate(frame, {"v": "sum"}, epsilon=9.0, bounds=bounds, seed=1).sum(0, 1)

    assert total([4.0, np.inf, 5.0, -np.inf, np.nan]) == total([4.0, 0.0, 5.0, 0.0, 0.0])
