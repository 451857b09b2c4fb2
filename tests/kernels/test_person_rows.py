"""The kernels behind persons: SipHash, numbers of pairs, the rows of least hash; against oracles."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastdp_kernels.tables import person_rows
from tests.oracles import persons

KEY = np.array([0x0706050403020100, 0x0F0E0D0C0B0A0908], np.uint64)
WORDS = st.integers(-(2**63), 2**63 - 1)
VALUES = st.sampled_from([0.0, -0.0, 1.0, -2.5])


def test_siphash() -> None:
    """The oracle by the vectors of the reference implementation (vectors.h), the kernel by the oracle."""
    words = [0x0706050403020100, 0x0F0E0D0C0B0A0908]
    for length, vector in ((1, "6224939a79f5f593"), (2, "db9bc2577fcc2a3f")):
        assert persons.sip(KEY.tolist(), words[:length], 2, 4).to_bytes(8, "little").hex() == vector
    assert person_rows.sip_of_pair(KEY, *np.array(words, np.uint64)) == persons.sip(KEY.tolist(), words)


def test_siphash_of_texts_by_the_vectors_of_the_reference() -> None:
    for length, vector in ((0, "a3817f04ba25a8e66df67214c7550293"), (1, "da87c1d86b99af44347659119b22fc45")):
        words = persons.sip_of_text(KEY.tolist(), bytes(range(length)), 2, 4)
        assert struct.pack("<2Q", *words).hex() == vector


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(0, 3))
def test_hashes_of_texts(texts: list[bytes], before: int) -> None:
    first, second = np.empty((2, len(texts)), np.int64)
    offsets = before + np.cumsum([0, *map(len, texts)])
    person_rows.hash_texts(
        KEY, offsets, np.frombuffer(bytes(before) + b"".join(texts) + b"\0", np.uint8), first, second
    )
    wanted = [persons.sip_of_text(KEY.tolist(), text) for text in texts]
    assert np.column_stack([first, second]).view(np.uint64).tolist() == wanted


@given(st.lists(st.tuples(WORDS, WORDS, WORDS, WORDS, VALUES, VALUES), max_size=5), st.integers(0, 2))
def test_hashes_of_rows(rows: list[tuple], valued: int) -> None:
    table = np.array([row[:4] for row in rows], np.int64).reshape(-1, 4)
    values = np.array([row[4:] for row in rows], float).reshape(-1, 2).T[:valued].copy()
    found = person_rows.hash_rows(KEY, table[:, :2].copy(), table[:, 2].copy(), table[:, 3].copy(), values)
    wanted = [persons.row_hash(KEY.tolist(), row[:2], *row[2:4], row[4 : 4 + valued], 0) for row in rows]
    assert found.tolist() == wanted


@given(st.lists(st.tuples(st.integers(-2, 2), st.sampled_from([0, 7, -(2**63)])), max_size=60), st.integers(0, 60))
def test_pairs_get_their_number(pairs: list[tuple[int, int]], cut: int) -> None:
    numbers: dict[tuple[int, int], int] = {}
    wanted = [numbers.setdefault(pair, len(numbers)) for pair in pairs]
    # Hardly more slots than pairs, so that all of them collide; a second table filled from the first.
    listed, slots, used, found = np.empty((75, 2), np.int64), np.full(16, -1, np.int64), 0, []
    for part in (pairs[:cut], pairs[cut:]):
        table = np.array(part, np.int64).reshape(-1, 2)
        first, second = table.T.copy()
        known, _ = person_rows.number_pairs(KEY, first, second, slots, listed, used, False)
        assert known.tolist() == [min(numbers[pair], used) if numbers[pair] < used else -1 for pair in part]
        numbered, used = person_rows.number_pairs(KEY, first, second, slots, listed, used, True)
        found += numbered.tolist()
        slots = np.full(32, -1, np.int64)
        person_rows.number_pairs(KEY, *listed[:used].T.copy(), slots, listed, 0, True)
    assert found == wanted
    assert used == len(numbers)
    assert sorted(slots[slots >= 0].tolist()) == list(range(used))


@pytest.mark.parametrize("distinct", [3, 2**62])
@given(data=st.data())
def test_rows_of_least_hash(distinct: int, data: st.DataObject) -> None:
    row = st.tuples(st.integers(0, 3), st.integers(10, 12), st.integers(0, distinct))
    rows = data.draw(st.lists(row, max_size=40))
    assert_least(rows, data.draw(st.integers(1, 6)), data.draw(st.none() | st.integers(1, 3)))


@pytest.mark.parametrize("distinct", [1, 2**62])
def test_rows_of_least_hash_in_crowded_windows(distinct: int) -> None:
    """Many rows more than count, so that those kept are not the first by hash, and many of them equal."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        rows = np.column_stack([rng.integers(low, high, 40) for low, high in ((0, 4), (10, 13), (0, distinct))])
        assert_least([tuple(row) for row in rows.tolist()], int(rng.integers(4, 12)), int(rng.integers(1, 4)))


def assert_least(rows: list[tuple], most: int, per_window: int | None) -> None:
    """The kernel keeps the rows (group, window, what the hash sees) that the oracle keeps."""
    hashes = [persons.sip(KEY.tolist(), row) for row in rows]

    def of(own: int) -> object:
        return lambda repeat: persons.sip(KEY.tolist(), [own, repeat]) if repeat else own

    wanted = persons.kept([(r[0], r[1], own, of(own)) for r, own in zip(rows, hashes, strict=True)], most, per_window)
    table = np.array(rows, np.int64).reshape(-1, 3)
    kept = person_rows.least_rows(
        KEY, table[:, 0].copy(), np.array(hashes, np.uint64), table[:, 1].copy(), *(10, 3, most, per_window or 0, 4)
    )
    # Which of equal rows they are is open.
    assert sorted(rows[i] for i in np.flatnonzero(kept)) == sorted(rows[i] for i in wanted)
