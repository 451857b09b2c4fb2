"""Rows of :class:`fastdp.Windows` one by one and in a batch: the same, however persons and keys are spelled."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError
from tests.grid import exhaustive
from tests.tables.neighbours import plain
from tests.tables.rows import SECRET

ID = UUID("abcdef01-2345-6789-abcd-ef0123456789")
COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "e\u0301lodie \U0001f600") for form in ("NFC", "NFD"))
AT = datetime(2024, 1, 1, 5, 6, 7, 89)
#: Entries of one type; some are refused.
ENTRIES: dict[str, list[Any]] = {
    "whole numbers": [7, -1, 2**53 + 1, 2**63 - 1],
    "larger ones": [7, 2**64 - 1],
    "beyond 64 bits": [2**64, 2**70],
    "int64": [np.int64(7), np.int64(-(2**63))],
    "uint64": [np.uint64(7), np.uint64(2**64 - 1)],
    "int8": [np.int8(7), np.int8(-7)],
    "fractions": [7.5, -0.25],
    "floats": [7.0, 1e20, -0.0],
    "float32": [np.float32(7), np.float32(0.5)],
    "not a number": [float("nan"), 7.0],
    "infinite": [float("inf"), 7.0],
    "decimals": [Decimal("7.00"), Decimal("0.5")],
    "true or false": [True, False],
    "NumPy's": [np.bool_(True), np.bool_(False)],
    "missing": [None, "ann"],
    "missing number": [None, 7],
    "texts": ["7", "07", " 7", "7.0", "Ann", "ann", ""],
    "NumPy's texts": [np.str_("7"), np.str_("ann")],
    "composed": [COMPOSED, "\u212b", "\ufb01"],
    "decomposed": [DECOMPOSED, "A\u030a", "fi"],
    "with a zero": ["a\0b", "a", "a\0"],
    "half of a pair": ["\ud800", "a"],
    "long": ["a" * 36, "a" * 300, "\u00e9" * 300],
    "identifiers": [ID, UUID(int=5)],
    "identifiers' texts": [str(ID), str(ID).upper(), str(ID).replace("-", "")],
    "bytes": [b"7", b"ann"],
    "sixteen bytes": [ID.bytes, bytes(16)],
    "dates": [date(2024, 1, 1), date(1960, 2, 29)],
    "times": [AT, datetime(1960, 2, 29)],
    "instants": [AT.replace(tzinfo=UTC), datetime(1960, 2, 29, tzinfo=UTC)],
    "NumPy's times": [np.datetime64("2024-01-01T05:06:07.000089"), np.datetime64("1960-02-29T00:00:00.000001")],
    "lists": [["a"], ["b"]],
    "mixed": ["7", 7],
}
FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "numpy": np.array,
    "objects": lambda entries: pd.Series(entries, dtype=object).to_numpy(),
    "pandas": pd.Series,
    "polars": pl.Series,
    "arrow": pa.array,
    "categories": lambda entries: pa.array(entries).dictionary_encode(),
}
ROLES = ("persons", "keys", "private keys")
#: Forms in which a row alone is read in another way than a batch.
PLAIN = ("list", "numpy")
HOURS = fastdp.Time("at", "1h", start="2024-01-01")


def windows(role: str, entries: Sequence[Any] = ()) -> fastdp.Windows:
    """Little noise; of a person one row counts, its value says which."""
    given: dict[str, Any] = {"epsilon": 100.0, "key": SECRET}
    if role == "persons":
        return fastdp.Windows({"value": "sum"}, HOURS, bounds=2.0**20, unit=fastdp.Person("who", 1, "1h"), **given)
    rule = {"keys": [*entries]} if role == "keys" else {"keys": fastdp.PrivateKeys(), "delta": 1e-3}
    return fastdp.Windows({"value": "sum", "*": "count"}, HOURS, bounds={"value": 2.0**20}, by="key", **rule, **given)


def moment(hour: int) -> datetime:
    return datetime(2024, 1, 1, 0, 30) + timedelta(hours=hour)


def add(into: fastdp.Windows, role: str, values: list[float], column: Any, hour: int = 0) -> bool:
    """Add rows; False if they are refused."""
    # One row is read in another way where all its columns are lists or arrays.
    plain = isinstance(column, (list, np.ndarray))
    moments = [moment(hour)] * len(values) if plain else np.full(len(values), np.datetime64(moment(hour)))
    try:
        into.add(moments, values, **{"persons" if role == "persons" else "keys": column})
    except (DataError, ParameterError):
        return False
    return True


def released(into: fastdp.Windows, hour: int = 0) -> str:
    """Noisy numbers of the hour, which are bound to exact ones, and keys."""
    found = into.advance(moment(hour) + timedelta(minutes=30)).released
    return repr((found.keys, [each.steps.tolist() for each in found.measured]))


def makes(make: Callable[[list[Any]], Any], entries: list[Any]) -> bool:
    """True if a library has such a column, and a column of the same type of each entry."""
    try:
        columns = [make([*entries, *entries]), *(make([entry]) for entry in entries)]
    except Exception:  # its own
        return False
    kinds = {str(getattr(each, "dtype", getattr(each, "type", None))).rstrip("0123456789") for each in columns}
    return len(kinds) == 1


@pytest.mark.parametrize(
    ("role", "forms"), [*zip(ROLES, repeat(PLAIN)), *exhaustive(*zip(ROLES, repeat(tuple(FORMS))))]
)
def test_rows_one_by_one_release_what_a_batch_of_them_does(role: str, forms: Sequence[str]) -> None:
    refused, told, hour, one = 0, [], 0, None
    for kind, entries in ENTRIES.items():
        if one is None or role == "keys":
            try:
                one, whole, other, hour = *(windows(role, entries) for _ in range(3)), 0
            except (DataError, ParameterError):
                # Such keys cannot be listed.
                refused += 1
                continue
        for form in forms:
            make = FORMS[form]
            if not makes(make, entries):
                continue
            # The last row is of the person or key of the first.
            listed, values = [*entries, entries[0]], [2.0**i for i in range(len(entries) + 1)]
            rows = list(zip(values, listed, strict=True))
            if add(whole, role, values, make(listed), hour):
                assert all(add(one, role, [value], make([entry]), hour) for value, entry in rows), (kind, form)
                told.append(released(one, hour))
                assert told[-1] == released(whole, hour), (kind, form)
                hour += 1
            elif kind != "mixed":
                refused += 1
                assert not all(add(other, role, [value], make([entry])) for value, entry in rows), (kind, form)
    assert len(told) > 20
    assert refused > 3
    # All private keys have appeared.
    assert role != "private keys" or "'ann'" in told[-1]


#: Times and numbers of one type; a fraction of a microsecond is no time of its own.
TIMES: dict[str, list[Any]] = {
    "datetimes": [AT, AT.replace(microsecond=90), datetime(1890, 1, 1)],
    "texts": ["2024-01-01T05:06", "2024-01-01 05:06:00.25", "2024-01-01T05:06:00.123456", "1890-01-01T00:00:00"],
    "texts of days": ["2024-01-01", "1960-02-29"],
    "no times": ["24-01-01T01:00", "2024-01-01T24:00", "2024-02-30T01:00", "\u0662\u0660\u0662\u0664-01-01T01:00"],
    "dates": [date(2024, 1, 1), date(1890, 1, 1)],
    "pandas": [pd.Timestamp(AT), pd.Timestamp("2024-01-01T05:06:00.123456789")],
    "aware": [AT.replace(tzinfo=UTC)],
    "missing": [None, AT],
    **{
        unit: [np.datetime64(f"{year}-01-01T05:06:00.12345{i}789", unit) for year in (1890, 2024) for i in range(6)]
        for unit in ("ns", "us", "ms", "s", "m", "h", "D")
    },
}
NUMBERS: dict[str, list[Any]] = {
    "whole": [1, 2**53 + 1, 2**62, -3, 0],
    "floats": [1.5, -0.0, 1e300, 5e-324],
    "not finite": [float("nan"), 1.0],
    "endless": [float("inf"), 1.0],
    "float32": [np.float32(0.1), np.float32(3e38)],
    "float16": [np.float16(0.1)],
    "int64": [np.int64(3), np.int64(2**63 - 1)],
    "uint64": [np.uint64(3), np.uint64(2**64 - 1)],
    "true": [True, False],
    "decimals": [Decimal("0.1")],
    "missing": [None, 1.0],
    "texts": ["1", "2"],
}


@pytest.mark.parametrize("role", ["times", "values"])
def test_times_and_numbers_one_by_one_are_those_of_a_batch(role: str) -> None:
    """Of a person one row of a year counts, by a hash of all that is said of it, so that no digit goes unseen."""
    year = fastdp.Time("at", "1y", start="1880-01-01")
    unit = fastdp.Person("who", 1, "1y")
    told, refused = set(), 0
    for (kind, entries), form in itertools.product((TIMES if role == "times" else NUMBERS).items(), PLAIN):
        make = FORMS[form]
        if not makes(make, entries):
            continue
        one, whole = (
            fastdp.Windows({"value": "sum"}, year, epsilon=1.0, bounds=(-4.0, 4.0), unit=unit, key=SECRET)
            for _ in range(2)
        )
        rows = [(entry, i / 3.0) if role == "times" else (AT, entry) for i, entry in enumerate(entries)]

        def add_all(into: fastdp.Windows, rows: list[Any], make: Any = make) -> bool:
            times, values = (list(column) for column in zip(*rows, strict=True))
            listed = (make(times), values) if role == "times" else (times, make(values))
            try:
                into.add(*listed, persons=["ann"] * len(rows))
            except DataError:
                return False
            return True

        came = [add_all(one, [row]) for row in rows]
        assert all(came) == add_all(whole, rows), (kind, form)
        refused += not all(came)
        if all(came):
            tables = [each.advance("2025-01-01").released for each in (one, whole)]
            assert plain(tables[0].measured) == plain(tables[1].measured), (kind, form)
            told.add(repr(plain(tables[0].measured)))
    assert len(told) > 3
    assert refused > 2


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_polars_objects_are_persons_by_value() -> None:
    """To Arrow polars gives their addresses."""
    frame = pl.DataFrame({"who": pl.Series([ID, UUID(str(ID)), UUID(int=5)])})
    for given in (frame, frame.lazy()):
        found = fastdp.counts(given, epsilon=1e6, unit=fastdp.Person("who", 1), seed=1)
        assert round(found.released.cells("count").item()) == 2


#: Of one row or two the same values in other forms; None: refused.
ROWS: dict[str, list[Any]] = {
    "times": [
        np.array(["2024-03-30T22:05:00.000001", "2024-03-30T22:06"], "M8[us]"),
        [datetime(2024, 3, 30, 22, 5, 0, 1), datetime(2024, 3, 30, 22, 6)],
        ["2024-03-30T22:05:00.000001", "2024-03-30T22:06"],
        pd.to_datetime(pd.Series(["2024-03-30T22:05:00.000001", "2024-03-30T22:06:00.000000"])),
        pl.Series([datetime(2024, 3, 30, 22, 5, 0, 1), datetime(2024, 3, 30, 22, 6)]),
        pa.array([datetime(2024, 3, 30, 22, 5, 0, 1), datetime(2024, 3, 30, 22, 6)]),
    ],
    "values": [
        np.array([1.5, 2.0]),
        [1.5, 2.0],
        np.array([1.5, 2.0], np.float32),
        pa.array([1.5, 2.0]),
        pl.Series([1.5, 2]),
    ],
    "keys": [
        np.array(["a", "b"]),
        ["a", "b"],
        pa.array(["a", "b"]).dictionary_encode(),
        pd.Series(["a", "b"], dtype="category"),
    ],
    "persons": [
        np.array([7, 8]),
        [7, 8],
        ["7", "8"],
        [7.0, 8.0],
        np.array([7, 8], np.uint8),
        pa.array([7, 8]),
        pl.Series([7, 8]),
    ],
}


@pytest.mark.parametrize("keys", [["a", "b", "c"], fastdp.PrivateKeys()])
@pytest.mark.parametrize("n", [1, 2])
def test_rows_of_windows_count_by_value_in_the_fingerprint(keys: Any, n: int, tmp_path: Path) -> None:
    """In any form of any column, one by one or together; and each entry of each column."""
    private = {"delta": 1e-3} if isinstance(keys, fastdp.PrivateKeys) else {}
    time = fastdp.Time("at", "1h", start="2024-03-30")
    unit = fastdp.Person("who", 3, "1h")

    def seen(columns: dict[str, Any]) -> str:
        windows = fastdp.Windows(
            {"kwh": "sum"}, time, epsilon=1.0, bounds=9.0, by="key", keys=keys, unit=unit, key=SECRET, **private
        )
        path = tmp_path / "kept"
        path.unlink(missing_ok=True)
        windows.keep(path, SECRET)
        windows.add(**{name: column[:n] for name, column in columns.items()})
        return windows.digest

    plain = {name: forms[0] for name, forms in ROWS.items()}
    usual = seen(plain)
    assert all(seen({**plain, name: form}) == usual for name, forms in ROWS.items() for form in forms)
    assert all(
        seen({**{each: ROWS[each][1] for each in ROWS}, name: form}) == usual for name in ROWS for form in ROWS[name]
    )
    others = {"times": "2024-03-30T22:05:00.000002", "values": np.nextafter(1.5, 2.0), "keys": "c", "persons": 9}
    for name, entry in others.items():
        for form in ROWS[name][:2]:
            altered = [entry, *list(form)[1:]]
            altered = np.array(altered, form.dtype) if isinstance(form, np.ndarray) else altered
            altered = np.array(altered, "M8[us]") if name == "times" else altered
            assert seen({**plain, name: altered}) != usual, name
    assert (
        len({seen({**plain, "keys": pa.array(each)}) for each in (["a", "b"], ["b", "a"], [None, "b"], ["A", "b"])})
        > 2
    )
