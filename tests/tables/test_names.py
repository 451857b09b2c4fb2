"""Persons by value: which spellings are one person, in every type that a column can have."""

from __future__ import annotations

import hashlib
import sys
import threading
import unicodedata
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from fastdp.errors import DataError
from fastdp.tables import columns
from fastdp.tables.columns import as_arrow, digests_of, entry_digests
from tests.tables import flat

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
    found = {name: {digests_of(column)[0][0].tobytes() for column in columns} for name, columns in PERSONS.items()}
    found["a name"] = {digests_of(column)[0][-1].tobytes() for column in PERSONS["a name"]}
    assert {name: len(digests) for name, digests in found.items()} == dict.fromkeys(PERSONS, 1)
    assert len(set.union(*found.values())) == len(PERSONS)


def test_digests_are_blake2b() -> None:
    sliced = pa.array(["x", "seven"], pa.large_string()).slice(1)
    assert np.array_equal(entry_digests(sliced), digests_of(pa.array(["seven"]))[0])
    for text, column in (
        ("seven", pa.array(["x", "seven"]).slice(1)),
        ("-7", pa.array([-7])),
        ("0", pa.array([-0.0])),
    ):
        wanted = hashlib.blake2b(text.encode(), digest_size=16, person=b"fastdp person").digest()
        assert digests_of(column)[0].tobytes() == wanted


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.float64(), pa.int64(), pa.binary(16), pa.timestamp("us"), pa.null()]
)
def test_missing_persons_are_missing(kind: Any) -> None:
    digests, present = digests_of(pa.array([None, None], kind))
    assert digests.shape == (2, 2)
    assert present is not None
    assert not present.any()
    assert digests_of(pa.array([], kind))[0].shape == (0, 2)


def test_persons_missing_in_a_dictionary_are_missing() -> None:
    """Else all of them were one person, whose rows one of them changes."""
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 1]), pa.array(["a", None]))
    _, present = digests_of(column)
    assert present is not None
    assert present.tolist() == [True, False, False, False]


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
def test_persons_in_categories_are_their_names_in_every_batch() -> None:
    """Batches of one table may have the same place in their categories for other persons."""
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
    """With few and with many spellings in a batch, and where unknown ones are forgotten."""
    monkeypatch.setattr(columns, "MOST_UNKNOWN", 1)
    listed = [unicodedata.normalize("NFC", NAME), "b", str(ID)]
    texts = [listed[0], NAME, str(ID).upper(), None, "x", "y", str(ID), "b", "z", "x"]
    wanted = [0, 0, 2, -1, -1, -1, 2, 1, -1, -1] if given else [0, 0, 1, 2, 3, 4, 1, 5, 6, 3]
    entries = columns.Entries("key", listed if given else None)
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()):
        column = pa.array(np.repeat(np.array(texts, object), rows)).cast(kind)
        numbers, present = entries.of(column.slice(0, 6 * rows))
        more, _ = entries.of(column.slice(6 * rows))
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


def test_a_person_is_one_whatever_type_a_batch_has() -> None:
    """pandas reads numbers with a gap as floats, and as texts where one of them is none: still the same persons."""
    windows = flat.windows("1h", 1e3, "2024-01-01", counts=True, who=True, period="1h", seed=1)
    at = np.array(["2024-01-01T00:10"], "M8[s]")
    for name in (7, 7.0, "7", Decimal("7.00"), np.int8(7)):
        windows.add(at, persons=[name])
    for name in (7.5, "07", "seven"):
        windows.add(at, persons=[name])
    assert windows.advance("2024-01-01T01:00").sum(0, 1) == pytest.approx(4.0, abs=0.1)


def test_what_names_nobody_is_refused() -> None:
    for column in (pa.array([["a"]]), as_arrow([{"a": 1}], "persons")):
        with pytest.raises(DataError, match="lists or structures"):
            digests_of(column)
    tensor = pa.array([[1, 2]], pa.list_(pa.int8(), 2))
    odd = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int8(), [2]), tensor)
    with pytest.raises(DataError):
        digests_of(odd)


def test_threads_share_the_spellings_of_keys() -> None:
    """Copies of a publisher, and shards in threads, look keys up in one object, which learns spellings meanwhile."""
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
