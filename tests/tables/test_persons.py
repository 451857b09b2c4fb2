"""Which rows of a person count: against a dictionary, in any batches, and whatever others do."""

from __future__ import annotations

import itertools
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import AccuracyWarning
from fastdp.tables import persons
from fastdp.tables.columns import as_arrow, digests_of
from tests.oracles import tables
from tests.tables.rows import SECRET, as_family, expected, random_rows

HOUR = 3_600_000_000
#: Person, period, window (in the period).
ROW = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 1))


def digests(names: np.ndarray) -> np.ndarray:
    return np.column_stack([names * 7919, -names]).astype(np.int64)


LIMIT = st.integers(1, 5)


@given(st.lists(ROW, max_size=40), LIMIT, st.none() | LIMIT, st.lists(st.integers(0, 40), max_size=3))
def test_rows_that_count(rows: list[tuple], most: int, per_window: int | None, cuts: list[int]) -> None:
    used: dict[tuple, int] = {}
    wanted = []
    for person, period, window in rows:
        whole, own = (person, period), (person, period, window)
        counts = used.get(whole, 0) < most and (per_window is None or used.get(own, 0) < per_window)
        wanted.append(counts)
        for group in (whole, own):
            used[group] = used.get(group, 0) + counts
    table = np.array(rows, np.int64).reshape(-1, 3)
    state, kept = persons.no_counts(), []
    borders = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    for a, b in itertools.pairwise(borders):
        part = table[a:b]
        flags, state = persons.bound_rows(state, digests(part[:, 0]), part[:, 1], part[:, 2], most, per_window)
        kept += flags.tolist()
    assert kept == wanted
    cut = {(p, t) for (p, t, _), counts in zip(rows, wanted, strict=True) if not counts}
    assert persons.whole_and_cut(state) == (len({row[:2] for row in rows} - cut), len(cut))
    assert set(persons.ended(state, 1)[:, 2].tolist()) <= {1, 2}


@pytest.mark.parametrize("family", ["pandas", "reader"])
@pytest.mark.parametrize(("period", "per_window"), [("1d", None), ("12h", 2), (None, None)])
def test_tables_with_persons(family: str, period: str | None, per_window: int | None, tmp_path: Path) -> None:
    rows = random_rows(300, 3)
    found = fastdp.counts(
        as_family(rows, family, tmp_path),
        *("at", "1h"),
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
    )
    first, last = (tables.window(tables.instant(datetime(2024, *day), None), "1h", None) for day in ((3, 30), (4, 1)))
    # Without a period a hundredth tells how many persons had rows dropped.
    epsilon = 1.0 if period else 1.0 - 0.01
    lengths = {"1d": ("1d", 0, 24 * HOUR), "12h": ("12h", 0, 12 * HOUR), None: None}
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
        sums=[("count", 0, 1, 0, 1.0, epsilon)],
        scales=[5 / Fraction(epsilon)],
    )
    assert found.sums.columns["count"].steps.tolist() == wanted["count"]
    unit = "one person" + ("" if period is None else f" in any period of {period}")
    assert (found.guarantee.unit, found.guarantee.epsilon) == (unit, 1.0)
    assert (found.sums.kept_persons is None) is (period is not None)


def test_most_rows_dropped_is_reported() -> None:
    rows = [(datetime(2024, 1, 1), "a", 1.0, person) for person in range(2000) for _ in range(4)]
    frame = as_family(rows, "pyarrow", Path())
    with pytest.warns(AccuracyWarning, match="of the persons have more rows"):
        cut = fastdp.counts(frame, "at", "1d", epsilon=1.0, contributions=3, who="person", seed=1).sums
    assert cut.kept_persons is not None
    assert cut.kept_persons < 0.4
    whole = fastdp.counts(frame, "at", "1d", epsilon=1.0, contributions=4, who="person", seed=1).sums
    assert whole.kept_persons is not None
    assert whole.kept_persons > 0.6


def test_one_person_changes_no_other_ones_rows() -> None:
    """Without a person all other rows that counted still count, in the same windows."""
    rows = random_rows(300, 9)
    kept = list(tables.bounded(rows, "1h", None, 4, "1d", 1))
    alone = [row for row in rows if row[3] != 5]
    fewer = list(tables.bounded(alone, "1h", None, 4, "1d", 1))
    gone = [row for row in kept if row not in fewer]
    days = {(row[0].date()) for row in gone}
    assert len(kept) == len(fewer) + len(gone)
    assert all(sum(row[0].date() == day for row in gone) <= 4 for day in days)


def test_a_person_is_one_whatever_type_a_batch_has() -> None:
    """pandas reads numbers with a gap as floats, and as texts where one of them is none: still the same persons."""
    windows = fastdp.Windows("1h", 1e3, "2024-01-01", counts=True, who=True, contributions=1, seed=1)
    at = np.array(["2024-01-01T00:10"], "M8[s]")
    for name in (7, 7.0, "7", Decimal("7.00"), np.int8(7)):
        windows.add(at, persons=[name])
    for name in (7.5, "07", "seven"):
        windows.add(at, persons=[name])
    assert windows.advance("2024-01-01T01:00").estimate(0, 1) == pytest.approx(4.0, abs=0.1)


def test_persons_missing_in_a_dictionary_are_missing() -> None:
    """Else all of them were one person, whose rows one of them changes."""
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1]), pa.array(["a", None]))
    _, present = digests_of(names)
    assert present is not None
    assert present.tolist() == [True, False, False, False]


def test_a_uuid_is_one_person_in_whatever_column() -> None:
    ids = [UUID(int=7), UUID(int=8), UUID(int=7)]
    plain = pa.array([each.bytes for each in ids], pa.uuid())
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), plain[:2])
    wanted = digests_of(pa.array([str(each) for each in ids]))[0].tolist()
    assert wanted[0] == wanted[2] != wanted[1]
    for column in (plain, coded, as_arrow(ids, "persons")):
        assert digests_of(column)[0].tolist() == wanted
