"""Rows of a person that count: those of least hash, in any order, whatever others do; who is one person."""

from __future__ import annotations

import hashlib
import sys
import threading
import unicodedata
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.data import source
from fastdp.data.column import as_arrow
from fastdp.errors import AccuracyWarning, DataError, ParameterError
from fastdp.noise.key import Key
from fastdp.tables import columns
from fastdp.tables import rows as table_rows
from fastdp.tables.columns import Numbers, digests_of, with_missing
from fastdp.tables.quantities import CellRows
from fastdp.tables.rows import BatchRows, Part, PersonRows, hashing_of
from tests.oracles import persons as oracle
from tests.oracles import tables
from tests.tables import flat
from tests.tables.rows import SECRET, as_family, below, column, expected, random_rows

HOUR = 3_600_000_000
WEEK = {"start": "2024-01-01", "stop": "2024-01-08"}
#: Person, hour, key: few, so that rows repeat.
ROW = st.tuples(st.integers(0, 3), st.integers(0, 30), st.integers(0, 2))
LIMIT = st.integers(1, 5)
#: A few rows only, so that the warning says nothing.
few_rows = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")


def kept_rows(
    rows: list[tuple], period: str | None, most: int, per_window: int | None, keys: int | None
) -> tuple[Part, Counter]:
    """Numbers of (person, hour, key) that count, and their rows."""
    options = {"contributions": most, "period": period, "per_window": per_window, "who": "who"}
    plan = flat.make_plan("totals", every="4h", epsilon=1.0, clip=1.0, **options)
    plan = replace(plan, unit=replace(plan.unit, keys=keys))
    found = PersonRows(plan, hashing_of(Key.from_bytes(SECRET)))
    table = np.array(rows, np.int64).reshape(-1, 3)
    times = table[:, 1] * HOUR
    persons, windows = found.persons.digests.of(table[:, 0] * 7919, -table[:, 0]), plan.calendar.numbers(times)
    # The value tells the row.
    values = (table @ [10_000, 10, 1]).astype(float)
    rows = CellRows(windows, table[:, 2].copy(), values[None])
    words = 5 - np.arange(3)
    found.add(BatchRows(rows, times, persons), words[table[:, 2]])
    kept = found.kept(plan, words)
    (own,) = kept.read()
    told = Counter((int(v) // 10_000, int(v) % 10_000 // 10, int(v) % 10) for v in own.values[0])
    cells = zip(own.windows, own.codes, strict=True)
    assert sorted(cells) == sorted((h // 4, k) for _, h, k in told.elements())
    return kept, told


def in_least_keys(rows: list[tuple], keys: int) -> list[tuple]:
    """Rows of one person in the keys of least hash of person and key."""
    hashing, person = np.frombuffer(hashing_of(Key.from_bytes(SECRET)), np.uint64).tolist(), rows[0][0]

    def hashed(key: int) -> int:
        return oracle.row_hash(hashing, (person * 7919, -person), 0, 5 - key, (), 0)

    least = sorted({key for *_, key in rows}, key=hashed)[:keys]
    return [row for row in rows if row[2] in least]


@given(
    *(st.lists(ROW, max_size=40), st.permutations(range(40)), st.none() | st.just("12h"), LIMIT),
    *(st.none() | LIMIT, st.none() | st.integers(1, 2)),
)
def test_a_persons_rows_depend_on_no_order_and_on_nobody_else(
    rows: list[tuple], order: list[int], period: str | None, most: int, per_window: int | None, keys: int | None
) -> None:
    given = period, most, per_window, keys
    found, told = kept_rows(rows, *given)
    shuffled = [rows[i] for i in order if i < len(rows)]
    assert kept_rows(shuffled, *given)[1] == told
    alone = [row for row in rows if row[0] != 1]
    _, others = kept_rows(alone, *given)
    assert others == Counter({row: count for row, count in told.items() if row[0] != 1})
    whole = {(p, h // 12 if period else 0) for p, h, _ in rows}
    cut = {(p, h // 12 if period else 0) for p, h, _ in (Counter(rows) - told)}
    dropped = Counter((p, h // 12 if period else 0) for p, h, _ in (Counter(rows) - told).elements())
    assert set(dropped) == cut
    assert found.dropped == sum(min(count, 4 * most) for count in dropped.values())
    for person, span in whole:
        own = Counter({r: c for r, c in told.items() if (r[0], r[1] // 12 if period else 0) == (person, span)})
        there = [r for r in rows if (r[0], r[1] // 12 if period else 0) == (person, span)]
        if keys is not None:
            there = in_least_keys(there, keys)
            assert set(own) <= set(there)
        room = Counter(h // 4 for _, h, _ in there)
        most_here = sum(min(n, per_window or n) for n in room.values())
        assert own.total() == min(most, most_here)
        assert per_window is None or max(Counter(h // 4 for _, h, _ in own.elements()).values()) <= per_window


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("kind", ["counts", "totals"])
@pytest.mark.parametrize("family", ["pandas", "reader", "parquet"])
@pytest.mark.parametrize(("period", "per_window"), [("1d", None), ("12h", 2), (None, None)])
def test_tables_with_persons(
    kind: str, family: str, period: str | None, per_window: int | None, tmp_path: Path
) -> None:
    rows = random_rows(250, 3)
    # Equal rows, and others that differ in their value alone.
    rows += rows[:50] + [(*row[:2], -row[2], row[3]) for row in rows[:30]] + rows[:20]
    value, clip = ((), {}) if kind == "counts" else (("kwh",), {"clip": (-1.0, 2.0), "resolution": 0.001})
    found = getattr(flat, kind)(
        as_family(rows, family, tmp_path),
        *(*value, "at", "1h"),
        by="meter",
        keys=["a", "b", "d"],
        epsilon=1.0,
        contributions=5,
        period=period,
        per_window=per_window,
        who="person",
        start="2024-03-30",
        stop="2024-04-01",
        key=SECRET,
        **clip,
    )
    first, last = (tables.window(tables.instant(datetime(2024, *day), None), "1h", None) for day in ((3, 30), (4, 1)))
    # A hundredth is for rows that count, five for those dropped; of totals one of the rest for those beyond it.
    rest = Fraction(94, 100)
    epsilon = below(rest if kind == "counts" else rest - Fraction(below(rest / 100)))
    lengths = {"1d": ("1d", 0, 24 * HOUR), "12h": ("12h", 0, 12 * HOUR), None: None}
    sums = {
        "counts": ("count", 0, 1, 0, 1.0, 1.0, epsilon),
        "totals": ("total", -1000, 2000, 0, 0.001, 0.001, epsilon),
    }
    valued = {"statistics": [["sum", 0]], "columns": [column(-1.0, 2.0, resolution=0.001)]}
    composed = {} if kind == "counts" else valued
    wanted = expected(
        rows,
        every="1h",
        borders=(0, HOUR),
        span=(first, last),
        zone=None,
        epsilon=1.0,
        keys=[("a",), ("b",), ("d",)],
        by=["meter"],
        key_rule="given",
        who=True,
        contributions=5,
        period=lengths[period],
        per_window=per_window,
        sums=[sums[kind]],
        scales=[5 * (1 if kind == "counts" else 2000) / Fraction(epsilon)],
        **composed,
    )
    name = sums[kind][0]
    assert found.released.cells(name).tolist() == wanted[name]
    unit = "one person" + ("" if period is None else f" in any period of {period}")
    assert (found.guarantee.unit, found.guarantee.epsilon) == (unit, 1.0)


@few_rows
@pytest.mark.parametrize("keys", [["a", "b"], "public", None])
@pytest.mark.parametrize("sums", [{"bound": 3.0}, {"clip": 2.0}])
def test_the_order_of_rows_and_batches_changes_no_byte(keys: Any, sums: dict[str, float]) -> None:
    rows = random_rows(400, 7)
    delta = {"delta": 1e-2} if keys is None else {}
    options: dict[str, Any] = {"by": "meter", "keys": keys, "who": "person", "contributions": 9, "epsilon": 50.0}

    def release(order: list[tuple], family: str = "reader") -> Any:
        frame = as_family(order, family, Path())
        return flat.totals(frame, "kwh", "at", "6h", key=SECRET, **options, **sums, **delta).released

    wanted = release(rows, "pyarrow")
    assert wanted.keys["meter"]
    assert wanted.cells("total").any()
    shuffled = [rows[i] for i in np.random.default_rng(0).permutation(len(rows))]
    for order in (rows, sorted(rows), sorted(rows)[::-1], shuffled):
        found = release(order)
        assert np.array_equal(found.cells("total"), wanted.cells("total"))
        assert (found.keys, flat.clip(found), flat.kept_rows(found)) == (
            wanted.keys,
            flat.clip(wanted),
            flat.kept_rows(wanted),
        )


def crowd(n: int = 20_000) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    seconds = np.sort(generator.integers(0, 7 * 86_400, n))
    at = np.datetime64("2024-01-01") + seconds.astype("timedelta64[s]")
    return pd.DataFrame({"at": at, "user": generator.integers(0, 500, n)})


@few_rows
@pytest.mark.parametrize("online", [False, True])
def test_days_have_their_shape(online: bool) -> None:
    frame, days = crowd(), []
    options: dict[str, Any] = (
        {"contributions": 14, "per_window": 2, "period": "1w"} if online else {"contributions": 10}
    )
    for seed in range(20):
        key = Key.from_bytes(SECRET).within("test", seed)
        if online:
            windows = flat.windows("1d", 1.0, "2024-01-01", counts=True, who=True, key=key, **options)
            windows.add(frame["at"], persons=frame["user"])
            days.append(flat.values(windows.advance("2024-01-08").released, "count")[:, 0])
        else:
            found = flat.counts(frame, "at", "1d", epsilon=1.0, who="user", key=key, **WEEK, **options)
            days.append(flat.values(found.released, "count")[:, 0])
    true = frame.groupby(frame["at"].dt.day).size().to_numpy(float)
    shape = true / true.mean()
    assert np.abs(np.mean(days, axis=0) / np.mean(days) / shape - 1.0).max() < 0.03
    assert np.abs(days / np.mean(days, axis=1, keepdims=True) / shape - 1.0).max() < 0.25


@few_rows
def test_rows_of_unreleased_keys_use_up_a_persons_rows() -> None:
    """One set of rows decides about keys, clip and sums, and is reported: else a person would have two such sets."""
    rows = [
        (datetime(2024, 1, 1, hour), "often" if hour < 12 else f"own {person} {hour}", 1.0 + hour, person)
        for person in range(400)
        for hour in range(24)
    ]
    frame = as_family(rows, "pyarrow", Path())
    options: dict[str, Any] = {"by": "meter", "delta": 1e-6, "epsilon": 400.0, "contributions": 8, "who": "person"}
    found = flat.counts(frame, "at", "1d", key=SECRET, **options).released
    assert found.keys == {"meter": ["often"]}
    count = flat.values(found, "count")[0, 0]
    # Sd 29 of 1,600; were the rows of other keys dropped before, each person had eight.
    assert abs(count - 400 * 4) < 200
    assert flat.kept_rows(found) == pytest.approx(8 / 24, abs=0.05)


@few_rows
def test_values_are_checked_before_a_secret_chooses_rows() -> None:
    rows = [(datetime(2024, 1, 1, hour), "a", np.nan if hour == 5 else 1.0, 1) for hour in range(24)]
    options: dict[str, Any] = {"epsilon": 1.0, "who": "person", "contributions": 1, "clip": 2.0}
    frame = as_family(rows, "pyarrow", Path())
    for seed in range(8):
        with pytest.raises(DataError, match="not a finite number"):
            flat.totals(frame, "kwh", "at", "1d", seed=seed, **options)
    assert flat.totals(frame, "kwh", "at", "1d", seed=1, start="2024-01-02", stop="2024-01-03", **options)


@given(st.lists(st.integers(0, 2000), min_size=1, max_size=6))
def test_a_table_of_numbers_grows(sizes: list[int]) -> None:
    numbers, wanted = Numbers(), {}
    for turn, size in enumerate(sizes):
        first = (np.arange(size) * 7 + turn * 3) % 1500
        found = numbers.of(first, first % 11 - 5)
        assert found.tolist() == [wanted.setdefault(each, len(wanted)) for each in first.tolist()]
    assert numbers.size == len(wanted)


def test_rows_need_both_a_time_and_a_person() -> None:
    import pyarrow

    frame = pyarrow.table(
        {
            "times": pyarrow.array([datetime(2024, 1, 1, 3), None, datetime(2024, 1, 1, 3)], pyarrow.timestamp("us")),
            "p": pyarrow.array([1, 1, None]),
        }
    )
    options = {"who": "p", "contributions": 5, "start": "2024-01-01", "stop": "2024-01-02", "missing": "drop"}
    found = flat.counts(frame, every="1d", epsilon=1e3, seed=1, **options)
    assert flat.values(found.released, "count").tolist() == [[1.0]]


def test_rows_are_counted_up_to_five_times_the_limit() -> None:
    persons = np.repeat(np.arange(6000), np.tile([4, 12], 3000))
    frame = as_family([(datetime(2024, 1, 1), "a", 1.0, person) for person in persons.tolist()], "pyarrow", Path())
    with pytest.warns(AccuracyWarning, match="of the persons' rows are dropped"):
        found = fastdp.counts(frame, "at", "1d", epsilon=4.0, unit=fastdp.Person("person", rows=2), seed=1)
    # Half of the persons have more than ten rows, which no number holds.
    value, (low, high) = found.sum(0, 1)[0], found.interval(0, 1)
    assert value == pytest.approx(3000 * 14, rel=0.05)
    assert low[0] <= 3000 * 16
    assert np.isnan(high[0])
    frame = as_family(
        [(datetime(2024, 1, 1), "a", 1.0, person % 5000) for person in range(25_000)], "pyarrow", Path()
    )
    with pytest.warns(AccuracyWarning, match="of the persons' rows are dropped"):
        found = fastdp.counts(frame, "at", "1d", epsilon=4.0, unit=fastdp.Person("person", rows=2), seed=1)
    value, (low, high) = found.sum(0, 1)[0], found.interval(0, 1)
    assert value == pytest.approx(25_000, rel=0.05)
    assert 15_000 < low[0] <= 25_000
    assert np.isnan(high[0])


def test_a_publicly_known_most_is_neither_below_what_counts_nor_past_what_is_known() -> None:
    for options, wanted in (
        ({"rows": 5, "most": 4}, "at least rows = 5"),
        ({"rows": 5, "most": 26}, "at most 25"),
        ({"rows": 672, "per_window": 1, "most": 2690}, "at most 2689"),
    ):
        with pytest.raises(ParameterError, match=f"most = {options['most']}: expected {wanted}"):
            fastdp.Person("p", **options)
    fastdp.Person("p", rows=672, per_window=1, most=2689)
    frame = pa.table({"p": np.arange(5000) % 1000})
    for unit in (fastdp.Person("p", rows=5, most=25), fastdp.Person("p", rows="auto", most=5)):
        assert np.isfinite(fastdp.counts(frame, epsilon=4.0, unit=unit, seed=1).interval(0, 1)).all()


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize("rows", [5, 4])
def test_nothing_is_spent_on_dropped_rows_where_there_are_none(rows: int) -> None:
    """By public knowledge; rows beyond it are dropped in silence."""
    frame, asked = pa.table({"p": np.arange(5000) % 1000}), {"epsilon": 4.0, "seed": 1}
    units = (fastdp.Person("p", rows, most=most) for most in (6, rows))
    more, none = (fastdp.counts(frame, unit=unit, **asked) for unit in units)
    told = [any("drop" in line for line in table.guarantee.derivation) for table in (more, none)]
    assert told == [True, False]
    assert none.dropped_rows == 0.0
    assert "none are dropped, as no person has more than" in str(none)
    assert none.std_error(0, 1) < more.std_error(0, 1)
    assert np.isfinite(none.interval(0, 1)).all()


# Who is one person, and which spellings are one key.

NAME = "e\u0301lodie \U0001f600"
ID = UUID("abcdef01-2345-6789-abcd-ef0123456789")
AT = datetime(9998, 12, 31, 23, 59, 59)
#: Of each person the spellings.
PERSONS: dict[str, list[Any]] = {
    "a whole number": [
        *(pa.array([7], kind) for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.float16())),
        pa.array([Decimal("7.00")]),
        pa.array(["7"]),
        pa.array([7.0, 0.25]),
        pa.array([7.0, None]),
        pa.array([None, 7]).slice(1),
        pa.array([7, 9]).dictionary_encode(),
        pa.array([7.0, float("nan")]),
    ],
    "a large number": [
        pa.array([2**64 - 2**11], pa.uint64()),
        pa.array([2.0**64 - 2**11]),
        pa.array([str(2**64 - 2**11)]),
    ],
    "a fraction": [pa.array([0.5]), pa.array([Decimal(".500")]), pa.array([0.5, 7.0]), pa.array([0.5], pa.float32())],
    "a name": [
        *(pa.array([unicodedata.normalize(form, NAME)]) for form in ("NFC", "NFD")),
        *(pa.array([NAME], kind) for kind in (pa.large_string(), pa.string_view())),
        pa.array(["x", NAME]).dictionary_encode().slice(1),
    ],
    "a uuid": [
        pa.array([ID]),
        pa.array([ID.bytes]),
        pa.array([ID.bytes], pa.binary(16)),
        pa.array([None, ID.bytes], pa.binary(16)).slice(1),
        pa.DictionaryArray.from_arrays(pa.array([0]), pa.array([ID])),
        pa.array([str(ID)]),
        pa.array([str(ID).upper()]),
        pa.array([str(ID).upper()]).dictionary_encode(),
    ],
    "a time": [pa.array([AT], pa.timestamp(unit)) for unit in ("s", "ms", "us")],
    "an instant": [
        *(pa.array([AT.replace(tzinfo=UTC)], pa.timestamp(unit, "UTC")) for unit in ("s", "us")),
        pa.array([AT.replace(tzinfo=UTC)], pa.timestamp("us", "Europe/Paris")),
    ],
    "a time of now": [pa.array([datetime(2024, 1, 1, 1, 1, 1, 5)], pa.timestamp(unit)) for unit in ("us", "ns")],
    "a day": [pa.array([date(2024, 1, 1)], kind) for kind in (pa.date32(), pa.date64())],
    **{
        f"{text!r}": [pa.array([text])]
        for text in ("07", "7.0", "seven", "Seven", " seven", "", str(ID)[:-1], "a" * 300)
    },
    "true": [pa.array([True])],
    "bytes": [pa.array([b"seven"])],
}


def test_one_person_has_one_digest_and_no_other_person_has_it() -> None:
    found = {name: {digests_of(array)[0][0].tobytes() for array in columns} for name, columns in PERSONS.items()}
    found["a name"] = {digests_of(array)[0][-1].tobytes() for array in PERSONS["a name"]}
    assert {name: len(digests) for name, digests in found.items()} == dict.fromkeys(PERSONS, 1)
    assert len(set.union(*found.values())) == len(PERSONS)
    sliced = pa.array(["x", "seven"]).slice(1)
    assert np.array_equal(with_missing(sliced.cast(pa.large_string())), digests_of(pa.array(["seven"]))[0])
    for text, array in (("seven", sliced), ("-7", pa.array([-7])), ("0", pa.array([-0.0]))):
        wanted = hashlib.blake2b(text.encode(), digest_size=16, person=b"fastdp person").digest()
        assert digests_of(array)[0].tobytes() == wanted


def test_missing_persons_are_missing() -> None:
    """Else all of them were one person, whose rows one of them changes."""
    for kind in (pa.string(), pa.float64(), pa.int64(), pa.binary(16), pa.timestamp("us"), pa.null()):
        digests, present = digests_of(pa.array([None, None], kind))
        assert (digests.shape, present.tolist()) == ((2, 2), [False, False])
        assert digests_of(pa.array([], kind))[0].shape == (0, 2)
    for places, wanted in (([0, 1, None, 1], [True, False, False, False]), ([0, 1], [True, False])):
        coded = pa.DictionaryArray.from_arrays(pa.array(places), pa.array(["a", None]))
        assert digests_of(coded)[1].tolist() == wanted


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_persons_in_categories_are_their_names_in_every_batch() -> None:
    names = ["ann", "bob", "cid", "ann", "bob", "cid"]
    batches = [
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(order)) for order in (names[:3], names[2::-1])
    ]
    wanted = digests_of(pa.array(["ann", "bob", "cid"]))[0]
    assert np.array_equal(digests_of(batches[0])[0], wanted)
    assert np.array_equal(digests_of(batches[1])[0], wanted[::-1])
    entries = columns.Entries("who", persons=True)
    assert [entries.of(batch)[0].tolist() for batch in batches] == [[0, 1, 2], [2, 1, 0]]
    schema = pa.schema([("at", pa.timestamp("s")), ("who", batches[0].type)])
    rows = [
        pa.record_batch([pa.array([datetime(2024, 1, 1)] * 3, pa.timestamp("s")), b], schema=schema) for b in batches
    ]
    reader = pa.RecordBatchReader.from_batches(schema, [rows[0], rows[1].slice(0, 1), rows[1].slice(0, 1)])
    found = flat.counts(
        *(reader, "at", "1d"), epsilon=1e4, who="who", contributions=2, period="1d", start="2024-01-01", seed=1
    )
    # Ann, Bob, and two of Cid's three rows, for which the answer is scaled up.
    assert found.released.cells("count").tolist() == [[4]]
    assert found.sum(0, 1) == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize("rows", [1, 100])
@pytest.mark.parametrize("given", [False, True])
def test_an_entry_has_one_number_in_all_batches_spellings_and_types(
    monkeypatch: pytest.MonkeyPatch, given: bool, rows: int
) -> None:
    monkeypatch.setattr(columns, "MOST_UNKNOWN", 1)
    listed = [unicodedata.normalize("NFC", NAME), "b", str(ID)]
    texts = [listed[0], NAME, str(ID).upper(), None, "x", "y", str(ID), "b", "z", "x"]
    wanted = [0, 0, 2, -1, -1, -1, 2, 1, -1, -1] if given else [0, 0, 1, 2, 3, 4, 1, 5, 6, 3]
    entries = columns.Entries("key", listed if given else None)
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()):
        array = pa.array(np.repeat(np.array(texts, object), rows)).cast(kind)
        numbers, present = entries.of(array.slice(0, 6 * rows))
        more, _ = entries.of(array.slice(6 * rows))
        found = [*numbers.tolist(), *more.tolist()]
        pairs = set(zip(found, np.repeat(wanted, rows).tolist(), strict=True))
        # Of rows the missing entry may come last.
        assert all(one == other for one, other in pairs) or (not given and len(pairs) == len(set(wanted)))
        assert max(found) == max(wanted)
        assert present is not None
        assert np.flatnonzero(~present).tolist() == list(range(3 * rows, 4 * rows))
    learned = columns.Entries("key", listed if given else None)
    numbers, _ = learned.of(pa.array(texts))
    spelled = [listed[0], listed[0], str(ID), None, "x", "y", str(ID), "b", "z", "x"]
    known = np.flatnonzero(numbers >= 0)
    assert learned.take(numbers[known]).to_pylist() == [spelled[i] for i in known]


def test_numbers_are_entries_by_value_in_every_type() -> None:
    entries = columns.Entries("key", [3, -1, 0])
    for kind in (pa.int8(), pa.uint64(), pa.float32(), pa.float64(), pa.int64()):
        if kind != pa.uint64():
            assert entries.of(pa.array([0, 3, 5, None, -1, 3]).cast(kind))[0].tolist() == [2, 0, -1, -1, 1, 0]
    assert entries.of(pa.array([None, None]))[0].tolist() == [-1, -1]
    zeros = columns.Entries("key")
    assert zeros.of(pa.array([-0.0, 0.0, float("nan"), float("-nan")]))[0].tolist() == [0, 0, 1, 1]
    assert str(zeros.take(np.array([0]))[0]) == "0.0"


def test_what_names_nobody_is_refused() -> None:
    for array in (pa.array([["a"]]), as_arrow([{"a": 1}], "persons")):
        with pytest.raises(DataError, match="lists or structures"):
            digests_of(array)
    tensor = pa.array([[1, 2]], pa.list_(pa.int8(), 2))
    odd = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int8(), [2]), tensor)
    with pytest.raises(DataError):
        digests_of(odd)


def test_threads_share_the_spellings_of_keys() -> None:
    names = [f"k{n}" for n in range(400)]
    keys, wrong = columns.Keys(["key"], [(name,) for name in names]), list[object]()

    def look_up(thread: int) -> None:
        for k in range(200):
            spelled = [names[(thread + k) % 400], f"unknown {thread} {k}", names[k]]
            try:
                found = keys.codes([pa.array(spelled)]).tolist()
            except IndexError as error:
                wrong.append(error)
            else:
                wrong.extend([found] if found != [(thread + k) % 400, -1, k] else [])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=look_up, args=(number,)) for number in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


# keys="public": the keys of all rows, so that no rule that drops rows, and so no person, moves them.

N = 2_000
#: Options, and the array and entry by which the rows with key c of all but one person are dropped.
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "who": ({"who": "who"}, {}),
    "who, period": ({"who": "who", "period": "1d"}, {}),
    "who, per_window": ({"who": "who", "contributions": 2, "per_window": 1}, {}),
    "start": ({"start": "2024-01-01"}, {"at": "2023-06-01"}),
    "start, stop, who": ({"start": "2024-01-01", "stop": "2024-01-02", "who": "who"}, {"at": "2025-06-01"}),
    "no time": ({"missing": "drop"}, {"at": None}),
    "no person": ({"missing": "drop", "who": "who"}, {"who": None}),
}


def persons(with_one_more: bool, drops: dict[str, Any]) -> pd.DataFrame:
    """2,000 persons with a row of key a and then one of key c, and perhaps a person with one row, of key c."""
    frame = pd.DataFrame(
        {"at": pd.Timestamp("2024-01-01"), "k": ["a", "c"] * N, "who": [i // 2 for i in range(2 * N)]}
    )
    for array, entry in drops.items():
        frame.loc[frame["k"] == "c", array] = pd.Timestamp(entry) if array == "at" and entry else entry
    one = pd.DataFrame({"at": [pd.Timestamp("2024-01-01")], "k": ["c"], "who": [N]})
    return pd.concat([frame, one], ignore_index=True) if with_one_more else frame


@few_rows
@pytest.mark.parametrize("stored", ["pandas", "parquet"])
@pytest.mark.parametrize("form", FORMS)
def test_one_person_moves_keys_and_report_by_one(form: str, stored: str, tmp_path: Path) -> None:
    options, drops = FORMS[form]
    found = []
    for with_one_more in (False, True):
        frame: Any = persons(with_one_more, drops)
        if stored == "parquet":
            frame.to_parquet(tmp_path / "rows.parquet", row_group_size=300)
            frame = tmp_path / "rows.parquet"
        # Next to no noise.
        found.append(flat.counts(frame, "at", "1d", by="k", keys="public", epsilon=1e6, seed=1, **options).released)
    assert [sums.keys for sums in found] == [{"k": ["a", "c"]}] * 2
    assert abs(found[1].cells("count") - found[0].cells("count")).sum() == 1
    without, with_one_more = (flat.kept_rows(sums) for sums in found)
    assert (without is None) is ("who" not in options)
    if without is not None:
        assert abs(with_one_more - without) < 2 / N


@few_rows
def test_keys_of_other_windows_and_persons_have_sums_of_noise_alone() -> None:
    frame = persons(False, {"at": "2023-06-01"}).assign(v=1.0)
    found = flat.totals(
        *(frame, "v", "at", "1d"), by="k", keys="public", bound=4.0, epsilon=1e6, start="2024-01-01", seed=1
    )
    assert found.released.keys == {"k": ["a", "c"]}
    assert flat.values(found.released, "total").tolist() == [pytest.approx([N, 0.0], abs=0.01)]
    assert "keys='public'" in " ".join(found.guarantee.derivation)


@few_rows
@pytest.mark.parametrize("held", [0, 5_000, 2**28])
def test_rows_are_read_once_if_they_fit_into_memory(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    """Columns that do not fit are read again, from the first row on."""
    read: list[int] = []

    def batches(begin: Any) -> Any:
        read.append(1)
        return begin()

    monkeypatch.setattr(source, "BATCH", 300)
    eager = source._eager
    monkeypatch.setattr(source, "_eager", lambda *given: batches(lambda: eager(*given)))
    monkeypatch.setattr(table_rows, "MOST_HELD", held)
    found = flat.counts(persons(False, {}), "at", "1d", by="k", keys="public", epsilon=1e6, seed=1).released
    assert found.cells("count").tolist() == [[N, N]]
    assert len(read) == (1 if held > 5_000 else 2)


@few_rows
@pytest.mark.parametrize("rows", [1000, 10**6])
def test_noise_for_many_rows_of_a_person_can_be_drawn(rows: int) -> None:
    columns = {name: np.arange(500) / 500 for name in "abcdef"}
    frame = pd.DataFrame({"who": np.arange(500) % 5, **columns})
    table = fastdp.aggregate(
        frame,
        dict.fromkeys(columns, "std"),
        unit=fastdp.Person("who", rows=rows),
        epsilon=1.0,
        delta=1e-6,
        bounds=dict.fromkeys(columns, fastdp.Value(1.5)),
        seed=1,
    )
    assert table.guarantee.delta == 1e-6
    # Of a sum that noise drowns there is one number, and no deviation.
    assert table.frame["a_std"].isna().all()
