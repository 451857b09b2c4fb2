"""Keys and their words; every parameter of a composition is in its key, by one fixed encoding."""

from __future__ import annotations

import copy
import itertools
import os
import pickle
import secrets
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes

from fastdp.errors import ParameterError, StateError
from fastdp.noise import key as keys
from fastdp.noise import sampler
from fastdp.noise import words as key_stream
from fastdp.noise.canonical import encode
from fastdp.noise.key import Binding, Key
from fastdp.noise.sampler import Pieces
from fastdp.noise.words import (
    CHUNK,
    MIN_GCM,
    Purpose,
    RowWords,
    StreamId,
    WordStream,
    joined_words,
    word_at,
    words_at,
)
from fastdp.points import Box
from tests.oracles import words as oracle


def block_cipher_words(key: Key, stream: StreamId, count: int, member: int = 0) -> list[int]:
    """The same words from the bare block cipher, one counter block at a time."""
    encryptor = Cipher(algorithms.AES(key.reveal()), modes.ECB()).encryptor()  # noqa: S305 - the bare cipher is the oracle
    words: list[int] = []
    for block in range(-(-count // 2)):
        raw = encryptor.update((stream.pack() << 64 | member << 32 | block).to_bytes(16, "big"))
        words += [int.from_bytes(raw[:8], "little"), int.from_bytes(raw[8:], "little")]
    return words[:count]


def test_words_are_the_cipher_in_counter_mode() -> None:
    key, stream = Key.from_seed(1), StreamId(Purpose.TREE, 3, 12345, 1)
    words = np.empty(1001, np.uint64)
    WordStream(key, stream).fill(words)
    assert words.tolist() == block_cipher_words(key, stream, 1001)


def test_known_answer() -> None:
    """NIST SP 800-38A, F.5.5 (CTR-AES256): key-stream blocks 1 and 2 from counter f0f1f2...ff."""
    key = Key.from_bytes(bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"))
    stream = StreamId(0xF0, 0xF2, 0xF3F4F5F6F7, 0xF1)  # type: ignore[arg-type]
    words = np.empty(4, np.uint64)
    WordStream(key.of_stream(0xF8F9FAFB - 1), stream, 2 * 0xFCFDFEFF).fill(words)
    assert words.tobytes().hex() == "0bdf7df1591716335e9a8b15c860c5025a6e699d536119065433863c8f657b94"


@pytest.mark.parametrize("start", [0, 1, 2, 7, CHUNK - 1, CHUNK, 3 * CHUNK + 5])
def test_any_position_any_piece(start: int) -> None:
    key, stream = Key.from_seed("text"), StreamId(Purpose.THRESHOLD)
    whole = np.empty(5 * CHUNK, np.uint64)
    WordStream(key, stream).fill(whole)
    reader = WordStream(key, stream, start)
    for size in (1, 2, 5, CHUNK - 3):
        part = np.empty(size, np.uint64)
        reader.fill(part)
        assert np.array_equal(part, whole[start : start + size])
        start += size
    assert word_at(key, stream, 7) == whole[7]


@pytest.fixture(params=[False, True], ids=["narrow", "wide"])
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """True if the processor is said to encrypt several blocks in one instruction."""
    monkeypatch.setattr(key_stream, "WIDE", request.param)
    return bool(request.param)


wide = pytest.mark.parametrize("instructions", [True], indirect=True)


@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("member", [None, 0, 2**32 - 2])
@pytest.mark.parametrize("first", [MIN_GCM // 8 - 1, MIN_GCM // 8, CHUNK + 5])
def test_long_streams_are_the_same_words(first: int, member: int | None) -> None:
    """By GCM, which every build of the library has, or by CTR: from the first word, in any pieces."""
    key, stream = Key.from_seed(5), StreamId(Purpose.TREE, 200, 2**40 - 7, 3)
    key = key if member is None else key.of_stream(member)
    reader, pieces = WordStream(key, stream), [first, 1, 0, 3, CHUNK, CHUNK - 2]
    words = np.empty(sum(pieces), np.uint64)
    for begin, size in zip(np.cumsum([0, *pieces[:-1]]).tolist(), pieces, strict=True):
        reader.fill(words[begin : begin + size])
    assert words.tobytes() == words_at(key, stream, np.arange(words.size)).tobytes()
    # From other places than the first a stream is read by CTR.
    rest = np.empty(CHUNK, np.uint64)
    WordStream(key, stream, 3).fill(rest)
    assert rest.tobytes() == words[3 : 3 + CHUNK].tobytes()


@pytest.mark.usefixtures("instructions")
def test_blocks_by_themselves_are_the_same_bytes() -> None:
    """By XTS, whose masks are all zero, from its least size on, or by the bare cipher; in one call or several."""
    secret, size = bytes(range(32)), key_stream.MIN_XTS
    oracle = Cipher(algorithms.AES(secret), modes.ECB()).encryptor()  # noqa: S305 - the bare cipher is the oracle
    for count in (size - 16, size, size + 16 * 101, key_stream.MAX_XTS, 2 * key_stream.MAX_XTS + 16):
        blocks = bytes(np.random.default_rng(count).bytes(count))
        encrypted = bytearray(count + 16)
        cipher = key_stream.block_cipher(secret, count)
        for _ in range(2):
            key_stream.encrypt_blocks(cipher, memoryview(blocks), memoryview(encrypted))
            assert encrypted[:count] == oracle.update(blocks)
    key_stream.encrypt_blocks(cipher, memoryview(b""), memoryview(encrypted))


@wide
@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("other", ["none", "another"])
def test_a_library_without_that_xts_uses_the_bare_cipher(monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    real = key_stream._xts

    def xts(secret: bytes) -> CipherContext:
        if other == "none":
            raise UnsupportedAlgorithm("no XTS")
        return real(secret[::-1])

    monkeypatch.setattr(key_stream, "_xts", xts)
    monkeypatch.setattr(key_stream, "xts_is_ecb", key_stream.xts_is_ecb.__wrapped__)
    assert not key_stream.xts_is_ecb()
    secret, blocks = bytes(range(32)), bytes(key_stream.MIN_XTS)
    oracle = Cipher(algorithms.AES(secret), modes.ECB()).encryptor()  # noqa: S305 - the bare cipher is the oracle
    expected = oracle.update(blocks)
    assert key_stream.block_cipher(secret, len(blocks)).update(blocks) == expected
    with suppress(UnsupportedAlgorithm):
        assert real(secret).update(blocks) == expected


def test_gcm_reads_a_stream_to_its_end() -> None:
    """Two blocks are its own, and the others as many as a stream has left."""
    most = 2**36 - 32
    assert key_stream.GCM_BEGIN + most == 8 * key_stream.MAX_WORDS


@pytest.mark.parametrize("number", [0, 1, 77, 2**32 - 2])
def test_words_of_numbered_streams(number: int) -> None:
    key, stream = Key.from_seed(1), StreamId(Purpose.TREE, 3, 12345, 1)
    words = np.empty(1001, np.uint64)
    WordStream(key.of_stream(number), stream).fill(words)
    assert words.tolist() == block_cipher_words(key, stream, 1001, number + 1)
    assert word_at(key.of_stream(number), stream, 1000) == words[1000]


@pytest.mark.parametrize("key", [Key.from_seed(1), Key.from_seed(1).of_stream(0)])
def test_a_stream_ends_before_the_next_one(key: Key) -> None:
    """Position 2^33 of the plain key would be position 0 of its stream 0, and so on."""
    stream = StreamId(Purpose.TREE)
    reader, two, one = WordStream(key, stream, 2**33 - 3), np.empty(2, np.uint64), np.empty(1, np.uint64)
    reader.fill(two)
    with pytest.raises(OverflowError, match="2 words from position 8589934591"):
        reader.fill(two)
    reader.fill(one)
    assert [*two.tolist(), *one.tolist()] == [word_at(key, stream, 2**33 - k) for k in (3, 2, 1)]
    with pytest.raises(OverflowError):
        reader.fill(one)
    WordStream(key, stream, 2**33).fill(one[:0])
    for beyond in (2**33, 5 * 2**33):
        with pytest.raises(OverflowError):
            word_at(key, stream, beyond)
    with pytest.raises(OverflowError):
        sampler.fill(np.empty(3, np.int64), sampler.laplace_distribution(2), key, stream, 2**33 - 2)
    with pytest.raises(OverflowError):
        RowWords(Key.from_seed(1), [(stream, 2**33 + 1)])
    for seen, after in ((-1, 1), (2**33 - 1, 2**33 + 1)):
        with pytest.raises(OverflowError, match="8589934592 words"):
            sampler.draw_counter_noise(sampler.laplace_distribution(3), Key.from_seed(1), 0, seen, after, 34)


@wide
@pytest.mark.usefixtures("instructions")
@pytest.mark.parametrize("counts", [[4], [1], [5, 1, 2], [64, 7, 3], [700, 7, 3]])
def test_rows_of_words_are_those_of_each_stream(counts: list[int]) -> None:
    """Few words by the bare cipher, 16 KiB and more by XTS."""
    key = Key.from_seed(2)
    pieces = [(StreamId(Purpose.TREE, level), count) for level, count in enumerate(counts)]
    rows = RowWords(key, pieces)
    streams, numbers = np.array([0, 9, 2**32 - 2]), np.array([2**40 - 1, 0, 5])
    words = rows.fill(streams, numbers)
    assert words.shape == (3, rows.width)
    assert words.flags.c_contiguous, "kernels go through them row by row"
    for row, stream, number in zip(words.tolist(), streams.tolist(), numbers.tolist(), strict=True):
        ids = [(piece._replace(number=number), count) for piece, count in pieces]
        assert row == [word for piece in ids for word in block_cipher_words(key, *piece, stream + 1)]
    located = [rows.locate(column) for column in range(rows.width)]
    assert located == [(piece, place) for piece, count in pieces for place in range(count)]
    with pytest.raises(IndexError):
        rows.locate(rows.width)


@pytest.mark.parametrize("counts", [[6], [5, 1, 2]])
@pytest.mark.parametrize("size", [1, 3, 4, 11, 50])
def test_rows_of_words_come_in_parts(size: int, counts: list[int]) -> None:
    keys = [Key.from_seed(k) for k in range(3)]
    pieces = [(StreamId(Purpose.TREE, level), count) for level, count in enumerate(counts)]
    owners, streams, numbers = np.repeat([2, 0, 1, 0], [4, 1, 3, 3]), np.arange(11)[::-1], np.arange(11) * 7
    rows = RowWords(keys, pieces, owners)
    whole = rows.fill(streams, numbers)
    parts = [(first, words.copy()) for first, words in rows.parts(streams, numbers, size)]
    assert [first for first, _ in parts] == list(range(0, 11, size))
    assert np.concatenate([words for _, words in parts]).tobytes() == whole.tobytes()
    for row, owner in enumerate(owners.tolist()):
        alone = RowWords(keys[owner], pieces).fill(streams[row : row + 1], numbers[row : row + 1])
        assert alone.tobytes() == whole[row].tobytes()
    assert not list(rows.parts(streams[:0], numbers[:0], size))
    assert rows.fill(streams[:0], numbers[:0]).shape == (0, rows.width)


def test_stream_ids_are_distinct_and_bounded() -> None:
    ids = [
        StreamId(purpose, level, number, refinement).pack()
        for purpose in Purpose
        for level in (0, 1, 255)
        for number in (0, 1, 2**40 - 1)
        for refinement in (0, 1, 255)
    ]
    assert len(set(ids)) == len(ids)
    assert max(ids) < 2**64
    for wrong in (StreamId(Purpose.TREE, 256), StreamId(Purpose.TREE, 0, 2**40), StreamId(Purpose.TREE, 0, 0, 256)):
        with pytest.raises(OverflowError):
            wrong.pack()


def test_fresh_keys_come_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the other tests do not (tests/conftest.py)."""
    drawn = [os.urandom(32) for _ in range(2)]
    given = iter(drawn)
    monkeypatch.setattr(keys, "secrets", secrets)
    monkeypatch.setattr(secrets, "token_bytes", lambda size: next(given)[:size])
    assert [key.reveal() for key in (Key.random(), Key.choose(None, None))] == drawn


def test_keys() -> None:
    assert Key.from_seed(1) == Key.from_seed(1) != Key.from_seed(2)
    assert Key.from_seed(1) != Key.from_seed("1")
    assert Key.random() != Key.random()
    assert (Key.from_seed(1).simulated, Key.random().simulated) == (True, False)
    assert Key.from_seed(7).reveal().hex() not in repr(Key.from_seed(7)) + repr(Key.random())
    with pytest.raises(ParameterError, match="not both"):
        Key.choose(1, bytes(32))
    numbered = [Key.from_seed(1).of_stream(number) for number in (0, 1)]
    assert len({str(key) for key in (Key.from_seed(1), *numbered)}) == 3
    assert len({key.derive("a") for key in (Key.from_seed(1), *numbered)}) == 3
    assert all(key.simulated and key.derive("a").member == 0 for key in numbered)
    with pytest.raises(ParameterError, match="no stream number yet"):
        numbered[0].of_stream(0)
    for outside in (-1, 2**32 - 1, 0.0):
        with pytest.raises(ParameterError, match=r"^stream = "):
            Key.from_seed(1).of_stream(outside)  # type: ignore[arg-type]
    for copied in (pickle.dumps, copy.copy):
        with pytest.raises(StateError, match="pickled"):
            copied(Key.from_seed(1))


@pytest.mark.parametrize("scale", [0.5, 1e3, 2.0**39, 2.0**45])
@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize(
    ("seen", "after"), [(0, 1), (1, 2), (6, 8), (7, 7), (0, 700), (2**33 - 9, 2**33), (999, 5000), (0, 9000)]
)
def test_nodes_drawn_together_are_those_drawn_height_by_height(
    scale: float, one_sided: bool, seen: int, after: int
) -> None:
    """From even and odd positions, to a stream's end, of no node and of many; with a number among streams too."""
    distribution = (sampler.geometric_distribution if one_sided else sampler.laplace_distribution)(Fraction(scale))
    for key in (Key.from_seed(1), Key.from_seed(2).of_stream(2**32 - 2)):
        noise, offsets = sampler.draw_counter_noise(distribution, key, 3, seen, after, 34)
        for height in range(34):
            first, stop = seen >> height, after >> height
            apart = np.empty(stop - first, np.int64)
            if apart.size:
                sampler.fill(apart, distribution, key, StreamId(Purpose.COUNTER, height, 3), first)
            assert np.array_equal(noise[offsets[height] + first : offsets[height] + stop], apart)


PIECES = [
    ((StreamId(Purpose.TREE, 1), 300), (StreamId(Purpose.TREE, 2), 17), (StreamId(Purpose.TREE, 3), 1)),
    ((StreamId(Purpose.THRESHOLD), 7),),
    ((StreamId(Purpose.TREE, 1), 2**13), (StreamId(Purpose.TREE, 2), 2)),
]


def test_doubtful_draws_of_nodes_and_pieces_are_settled_by_their_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """If doubles and pairs of them decide nothing, exact arithmetic gives the draws of :func:`fill`."""
    distribution, key, pieces = sampler.laplace_distribution(Fraction(1000)), Key.from_seed(5), PIECES[0]
    expected, places = sampler.draw_counter_noise(distribution, key, 0, 5, 17, 6)
    one_by_one, settled = np.empty((2, 318), np.int64)
    sampler.fill_one_by_one(one_by_one, distribution, key, pieces, 2)

    def doubtful(words: np.ndarray, *rest: Any) -> int:
        rest[-1][:] = np.arange(words.size)
        return int(words.size)

    monkeypatch.setattr(sampler.guarded_log, "draw_double", doubtful)
    monkeypatch.setattr(sampler.double_double, "draw_double_double", lambda *rest: rest[-2])
    noise, offsets = sampler.draw_counter_noise(distribution, key, 0, 5, 17, 6)
    assert np.array_equal(offsets, places)
    for height in range(6):
        used = slice(offsets[height] + (5 >> height), offsets[height] + (17 >> height))
        assert np.array_equal(noise[used], expected[used])
    sampler.fill_pieces(settled, distribution, key, pieces, 2)
    assert np.array_equal(settled, one_by_one)


@pytest.mark.parametrize("number", [0, 1, 2**40 - 1])
@pytest.mark.parametrize(
    "key", [Key.from_seed(1), Key.from_seed(1).of_stream(0), Key.from_seed(1).of_stream(2**32 - 2)]
)
def test_joined_words_are_those_of_each_stream(key: Key, number: int) -> None:
    for pieces in PIECES[:2]:
        expected = [
            word
            for piece, count in pieces
            for word in block_cipher_words(key, piece._replace(number=number), count, key.member)
        ]
        assert joined_words(key, pieces, number).tolist() == expected
    with pytest.raises(OverflowError, match="stream id out of range"):
        joined_words(key, pieces, 2**40)


@pytest.mark.parametrize("scale", [0.5, 1e3, 2.0**45])
@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("pieces", PIECES)
def test_streams_drawn_together_are_those_drawn_one_by_one(scale: float, one_sided: bool, pieces: Pieces) -> None:
    distribution = (sampler.geometric_distribution if one_sided else sampler.laplace_distribution)(Fraction(scale))
    together, apart = np.empty((2, sum(count for _, count in pieces)), np.int64)
    for key, number in ((Key.from_seed(1), 0), (Key.from_seed(2).of_stream(5), 3)):
        sampler.fill_pieces(together, distribution, key, pieces, number)
        sampler.fill_one_by_one(apart, distribution, key, pieces, number)
        assert np.array_equal(together, apart)


SECRET = bytes(range(32))
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 12, 2**70, 0.0, 1.0, -1.5, 0.1, 0.1 + 2.0**-56, float("inf"), "", "1", "12", "i",
    "ä", b"", b"1", b"12", [], [[]], [None], [1], ["1"], [1, 2], [12], [[1], 2], [1, [2]], ["a", 1], {}, {"a": 1},
    {"a": 1.0}, {"a": "1"}, {"a": {"b": 1}}, {"a": 1, "b": 2}, {"a": 2, "b": 1}, ["a", "b"], ["ab", ""],
]  # fmt: skip


@dataclass(frozen=True)
class Mine:
    """A part of one's own."""

    size: Any = 1


@dataclass(frozen=True)
class Other:
    """Another one, with the same parameters."""

    size: Any = 1


@dataclass(frozen=True)
class Mechanism:
    """A mechanism of one's own."""

    epsilon: float
    inner: Any
    rule: ClassVar[int] = 7


def root(secret: bytes = SECRET) -> Key:
    return Key(secret, simulated=False)


def test_encodings_are_those_of_the_design_and_all_different() -> None:
    encodings = [encode(value) for value in VALUES]
    assert encodings == [oracle.encoded(value) for value in VALUES]
    assert len(set(encodings)) == len(VALUES)
    for one, two in itertools.permutations(encodings, 2):
        assert not one.startswith(two), "none begins another"
    assert encode(-0.0) == encode(0.0)
    assert encode((1, "a")) == encode([1, "a"])
    assert encode({"b": 1, "a": 2}) == encode({"a": 2, "b": 1})
    assert encode(np.int64(7)) == encode(7)
    assert encode(np.float32(0.5)) == encode(0.5)
    with pytest.raises(TypeError):
        encode(object())


def test_keys_are_those_of_the_design() -> None:
    name, part = f"{__name__}.Mechanism", oracle.Part(f"{__name__}.Mine", 1, {"size": 3})
    mechanism = Mechanism(0.5, Mine(3))
    bound = root().bind(mechanism)
    assert bound.reveal() == oracle.bound(SECRET, name, 7, {"epsilon": 0.5, "inner": part})
    assert bound.binding is Binding.COMPOSITION
    assert bound.bind(Mine()) is bound, "a composition's key is bound already"
    inner = bound.within("theta", 17)
    assert inner.reveal() == oracle.within(bound.reveal(), "theta", 17)
    assert inner.binding is Binding.COMPOSITION
    assert root().of_stream("meters").reveal() == oracle.within(SECRET, "stream", "meters")
    numbered = root().of_stream(5)
    assert (numbered.reveal(), numbered.member) == (SECRET, 6)
    assert numbered.within("theta", 17).member == numbered.bind(mechanism).member == 6


def test_whatever_differs_has_a_key_of_its_own() -> None:
    key = root()
    others = [
        key, key.of_stream("a"), key.of_stream("b"), key.bind(Mine()), key.bind(Other()), key.bind(Mine(2)),
        key.bind(Mine(1.0)), key.bind(Mine({"x": 1})), key.bind(Mine({"y": 1})), key.bind(Mine(Mine())),
        key.bind(Mine(Mine(2))), key.bind(Mine(Other())), key.bind(Mine(Box([0.0], [1.0]))),
        key.bind(Mine(Box([0.0], [2.0]))), key.within("a"), key.within("b"), key.within("a", "b"), key.within("ab"),
        key.derive("a"), key.derive("a", "b"), key.derive("ab"), key.derive("a", 1), key.derive("a1"),
        key.of_stream(0).derive("a"), key.of_stream(1).derive("a"), key.bind(Mine()).within("a"),
        key.bind(Mine()).derive("a"),
    ]  # fmt: skip
    assert len({other.reveal() for other in others}) == len(others)
    prints = [key.of_stream(number).fingerprint() for number in (0, 1, 255, 256, 2**16, 2**32 - 2)]
    prints += [other.fingerprint() for other in others]
    assert len(set(prints)) == len(prints)
    assert all(len(part) == 32 for digits in prints for part in digits.split(":"))
    assert all(part not in key.reveal().hex() for digits in prints for part in digits.split(":"))
    assert Key.from_seed(1).reveal() != Key.from_seed("1").reveal()
    real, simulated = Key(SECRET, simulated=False), Key(SECRET, simulated=True)
    assert real != simulated
    assert real.of_stream(0) != real
    assert SECRET.hex() not in repr(real) + repr(simulated) + repr(real.of_stream(0))
    for made in (simulated.bind(Mine()), simulated.within("a"), simulated.derive("a"), simulated.of_stream(3)):
        assert made.simulated


@pytest.mark.parametrize("name", ["_secret", "binding", "drawn", "member", "simulated", "another"])
def test_a_key_never_changes(name: str) -> None:
    """Publishers share keys: one that changed would take the noise of all of them along."""
    key = Key.from_seed(1)
    with pytest.raises(AttributeError, match="a Key does not change"):
        setattr(key, name, None)
    with pytest.raises(AttributeError, match="a Key does not change"):
        delattr(key, name)
    assert key == Key.from_seed(1)
