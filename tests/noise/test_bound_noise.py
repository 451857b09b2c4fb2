"""Noise bound in bulk, and words drawn once."""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.noise import bound_noise, chain_keys, gaussian, sampler
from fastdp.noise import key as drawn_once
from fastdp.noise import words as key_words
from fastdp.noise.bound_noise import PrefixNoise
from fastdp.noise.gaussian import GaussianDistribution, gaussian_distribution
from fastdp.noise.key import Binding, DrawnTwiceError, DrawnWords, Key
from fastdp.noise.words import Purpose, StreamId, WordStream, joined_words, node_words
from fastdp.perturbers import Flat, Hierarchy
from fastdp.tables.columns import Keys
from fastdp.thresholds import Fixed
from fastdp_kernels.noise import binary_counter, bound_sums
from fastdp_kernels.streams import adaptive_pass
from tests import stat
from tests.oracles import bulk as oracle
from tests.shared import release_many

LAW = gaussian_distribution(Fraction(2**34))
DISTRIBUTIONS = {
    "large": LAW,
    # Draws of which many are rejected or doubtful, and ask for further words.
    "small": gaussian_distribution(Fraction(3, 4)),
    "laplace": sampler.laplace_distribution(Fraction(73, 10)),
    "wide laplace": sampler.laplace_distribution(Fraction(2**55)),
}
ROWS = [("a", 1), ("b", None), ("a", 2)]
#: Cells of two windows before a new key, and two behind.
FIRST = bound_noise.WINDOWS_OF_A_KEY - 2


def fresh(number: int = 1) -> tuple[Key, np.ndarray]:
    key = Key.from_seed(stat.seed(number))
    return key, chain_keys.start_chain(key.within("start"))


def whole(chain: np.ndarray) -> int:
    return int(chain[0]) | int(chain[1]) << 64


def naive_draw(distribution) -> oracle.Draw:
    return (
        partial(gaussian.resolve, distribution)
        if isinstance(distribution, GaussianDistribution)
        else oracle.laplace(distribution.scale)
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
@pytest.mark.parametrize("cuts", [[], [1, 2, 100], [150]])
@pytest.mark.parametrize("member", [0, 300])
def test_the_naive_rule_however_sums_are_cut(distribution, cuts, member, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (bound_noise, oracle):
        monkeypatch.setattr(module, "SUMS_OF_A_KEY" if module is bound_noise else "SUMS", 64)
    monkeypatch.setattr(bound_noise, "CHUNK", 32)
    sums = np.random.default_rng(3).integers(-(2**63), 2**63, 200)
    key, chain = fresh()
    naive = oracle.PrefixNoise(key.reveal(), whole(chain), naive_draw(distribution), 5, member)
    expected = [naive(total) for total in sums.tolist()]
    noise = PrefixNoise(key if not member else key.of_stream(member - 1))
    found = [
        noise.draw(part, distribution, chain, 5 + first)
        for part, first in zip(np.split(sums, cuts), [0, *cuts], strict=True)
    ]
    np.testing.assert_array_equal(np.concatenate(found), expected)
    assert whole(chain) == naive.p


def digests(rows: list[tuple] = ROWS) -> np.ndarray:
    return Keys(("a", "b"), rows).digests()


def cells(sums: np.ndarray, distributions, key: Key, first: int = FIRST, rows: list[tuple] = ROWS) -> np.ndarray:
    return bound_noise.draw_cell_noise(sums, distributions, key, first, digests(rows))


@pytest.mark.parametrize("distributions", [["laplace"], ["laplace", "small"], ["small", "wide laplace", "large"]])
@pytest.mark.parametrize("first", [FIRST, -3])
def test_cells_have_the_noise_of_the_naive_rule(distributions, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_noise, "CHUNK", 2)
    own = [DISTRIBUTIONS[name] for name in distributions]
    sums = np.random.default_rng(3).integers(-(2**63), 2**63, (len(distributions), 5, 3))
    key = Key.from_seed(8).of_stream(6)
    found = cells(sums, own, key, first)
    for w in range(5):
        for k, row in enumerate(ROWS):
            exact = sums[:, w, k].tolist()
            wanted = oracle.cell(
                key.reveal(), first + w, row, exact, [naive_draw(distribution) for distribution in own], 7
            )
            assert found[:, w, k].tolist() == wanted


def test_a_cell_has_its_noise_whatever_other_cells_there_are() -> None:
    """Keys in any order, windows one by one, few or many of them."""
    key, sums = Key.from_seed(9), np.random.default_rng(4).integers(0, 9, (2, 4, 3))
    noise = cells(sums, [LAW, LAW], key)
    for order in ([2, 0, 1], [1], [2, 1]):
        rows = [ROWS[k] for k in order]
        for w in range(4):
            part = np.ascontiguousarray(sums[:, w : w + 1, order])
            np.testing.assert_array_equal(cells(part, [LAW, LAW], key, FIRST + w, rows), noise[:, w : w + 1, order])


def test_noise_of_a_cell_is_bound_to_all_that_names_it() -> None:
    key, zeros = Key.from_seed(9), np.zeros((2, 1, 1), np.int64)
    rows, first = ROWS[:1], 7
    noise = cells(zeros, [LAW, LAW], key, first, rows)
    others = [
        cells(zeros, [LAW, LAW], key, first + 1, rows),
        cells(zeros, [LAW, LAW], key, first + bound_noise.WINDOWS_OF_A_KEY, rows),
        cells(zeros, [LAW, LAW], key, first, ROWS[2:]),
        cells(zeros, [LAW, LAW], key.of_stream(1), first, rows),
        cells(zeros, [LAW, LAW], key.within("other"), first, rows),
        *(cells(zeros + np.array(each).reshape(2, 1, 1), [LAW, LAW], key, first, rows) for each in ((1, 0), (0, 1))),
        cells(zeros + 1, [LAW, LAW], key, first, rows),
        cells(zeros + 2**32, [LAW, LAW], key, first, rows),
    ]
    each = [noise, *others]
    assert len({int(one[i, 0, 0]) for one in each for i in range(2)}) == 2 * len(each)


def test_a_table_without_keys_or_windows_has_no_noise() -> None:
    for shape, rows in (((1, 3, 0), []), ((1, 0, 3), ROWS)):
        assert cells(np.zeros(shape, np.int64), [LAW], Key.from_seed(1), 0, rows).shape == shape


def asked_of(monkeypatch: pytest.MonkeyPatch, sums: np.ndarray) -> tuple[list[bytes], np.ndarray]:
    """The questions to AES, and the noise."""
    asked: list[bytes] = []
    ask = bound_noise._ask

    def noted(cipher, blocks):
        raw = bytes(blocks[0])
        asked.extend(raw[i : i + 16] for i in range(0, len(raw), 16))
        ask(cipher, blocks)

    key, chain = fresh(2)
    with monkeypatch.context() as patch:
        patch.setattr(bound_noise, "_ask", noted)
        return asked, PrefixNoise(key).draw(sums, LAW, chain, 0)


@pytest.mark.parametrize("last", [False, True])
def test_an_altered_replay_meets_other_noise_from_there_on(monkeypatch: pytest.MonkeyPatch, last: bool) -> None:
    sums = np.random.default_rng(4).integers(0, 1000, 4000)
    at = 3999 if last else 1234
    altered = sums.copy()
    altered[at] += 1
    (one, noise), (other, again) = asked_of(monkeypatch, sums), asked_of(monkeypatch, altered)
    np.testing.assert_array_equal(noise[:at], again[:at])
    assert (noise[at:] != again[at:]).all()
    # The first 4,000 questions are about sums, the others about words: the highest bit says so.
    for each in (one, other):
        assert len(set(each[:8000])) == 8000
        assert not any(block[15] >> 6 for block in each[:4000])
        assert all(block[15] >> 7 for block in each[4000:8000])
    assert not set(one[4000 + at : 8000]) & set(other[:8000])


def test_further_words_are_not_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """All words that draws of a distribution that rejects often have asked for are different ones."""
    words: dict[tuple[int, int, int], int] = {}
    fill = bound_noise.fill_noise

    def noted(out, distribution, first, further):
        call = len(words)

        def more(k, where):
            found = further(k, where)
            words.update(zip(((call, k, at) for at in where.tolist()), found.tolist(), strict=True))
            return found

        words.update({(call, 0, at): word for at, word in enumerate(first.tolist())})
        fill(out, distribution, first, more)

    monkeypatch.setattr(bound_noise, "fill_noise", noted)
    PrefixNoise(Key.from_seed(1)).draw(np.zeros(9000, np.int64), DISTRIBUTIONS["small"], np.zeros(4, np.uint64), 0)
    cells(np.zeros((3, 1000, 3), np.int64), [DISTRIBUTIONS["small"]] * 3, Key.from_seed(1))
    assert sum(k > 0 for _, k, _ in words) > 20
    assert len(set(words.values())) == len(words)


def test_a_draw_has_so_many_words_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_noise, "WORDS_OF_A_DRAW", 1)
    with pytest.raises(OverflowError, match="more than 1 words"):
        PrefixNoise(Key.from_seed(1)).draw(np.zeros(900, np.int64), DISTRIBUTIONS["small"], np.zeros(4, np.uint64), 0)


def test_sums_that_share_words_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    key = Key(bytes(32), simulated=True, binding=Binding.COMPOSITION)
    zeros = np.zeros((1, 2, 3), np.int64)
    with monkeypatch.context() as patch:
        patch.setattr(bound_noise.bound_sums, "ask", lambda sums, first, asked: asked.fill(0))
        with pytest.raises(DrawnTwiceError, match="the same words"):
            cells(zeros, [LAW], key)
    key = key.again()
    cells(zeros, [LAW], key, 5)
    cells(zeros, [LAW], key, 7)
    with pytest.raises(DrawnTwiceError, match="drawn before") as error:
        cells(zeros, [LAW], key, 8)
    assert "'a'" not in str(error.value)


@pytest.mark.parametrize(("start", "count"), [(0, 1), (9, 1), (5, 100), (0, 10), (9, 2), (49, 1)])
def test_words_that_overlap_are_refused(start: int, count: int) -> None:
    """Side by side they pass in any order; other keys and numbers have words of their own."""
    secret = bound_key()
    for first in (10, 0, 20, 40, 30):
        read(secret, first, 10)
    read(secret, 0, 10, number=1)
    read(secret.of_stream(0), 0, 10)
    read(secret.within("theta", 1), 0, 10)
    with drawn_once.repeating():
        read(secret, 0, 10)
    read(secret.again(), 0, 10)
    for again in (secret, secret.within("theta", 1))[: 1 + (start < 10)]:
        with pytest.raises(DrawnTwiceError) as error:
            read(again, start, count)
        assert "0001020304" not in str(error.value).replace("\\x", "")
    joined_words(secret, ((StreamId(Purpose.DRAWS, 1), 5), (StreamId(Purpose.DRAWS, 2), 3)), 4)
    WordStream(secret, StreamId(Purpose.DRAWS, 2, 4), 3).fill(np.empty(1, np.uint64))
    with pytest.raises(DrawnTwiceError):
        WordStream(secret, StreamId(Purpose.DRAWS, 2, 4), 2).fill(np.empty(1, np.uint64))


def test_what_a_failed_call_drew_is_forgotten():
    record = DrawnWords()
    record.add(("secret", 0), 0, 10)
    mark = record.mark
    record.add(("secret", 0), 10, 20)
    record.add(("secret", 1), 5, 6)
    record.forget(mark)
    record.add(("secret", 0), 10, 20)
    record.add(("secret", 1), 5, 6)
    with pytest.raises(DrawnTwiceError):
        record.add(("secret", 0), 9, 10)


# The counters that were encrypted, whatever was asked for.


@pytest.mark.parametrize("consistent", [False, True])
def test_noise_of_many_streams_that_repeats_is_seen(consistent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 8,192 words, where the number of a block would have 12 bits; a buffer that is not filled again."""
    options = {"perturber": Hierarchy(2, prune=0, consistent=consistent), "threshold": Fixed(1.0), "seed": 1}

    def release(streams: int, length: int) -> None:
        release_many(np.ones((streams, length)), 1.0, 1.0, smoother=None, max_range=length, resolution=1.0, **options)

    def wrapping(common: np.ndarray, names: np.ndarray, members: np.ndarray, counters: np.ndarray) -> None:
        low = common.copy().view(">u8")
        low[1::2] &= 2**12 - 1
        write(low.view(np.uint64), names, members, counters)

    def stale(cipher: object, blocks: memoryview, out: memoryview) -> None:
        if not calls:
            encrypt(cipher, blocks, out)
        calls.append(None)

    write, encrypt, calls = binary_counter.write_counters, key_words.encrypt_blocks, []
    release(2, 2**14)
    with monkeypatch.context() as patch:
        patch.setattr(binary_counter, "write_counters", wrapping)
        with pytest.raises(DrawnTwiceError):
            release(2, 2**14)
    monkeypatch.setattr(key_words, "encrypt_blocks", stale)
    # More streams than one part has.
    with pytest.raises(DrawnTwiceError):
        release(64, 2**10)


def test_nodes_of_a_counter_that_share_a_block_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(*given: np.ndarray) -> int:
        blocks = counters_of(*given)
        given[-2][:blocks, 0] = given[-2][0, 0]
        return blocks

    counters_of = binary_counter.node_counters
    monkeypatch.setattr(binary_counter, "node_counters", shared)
    with pytest.raises(DrawnTwiceError):
        node_words(bound_key(), StreamId(Purpose.COUNTER), 0, 8, 4)


def test_a_cipher_that_counts_otherwise_is_seen() -> None:
    stream = WordStream(bound_key(), StreamId(Purpose.DRAWS))
    stream._encryptor = WordStream(bound_key(), StreamId(Purpose.DRAWS), 2)._encryptor
    with pytest.raises(DrawnTwiceError, match="not those of the counters"):
        stream.fill(np.empty(10, np.uint64))


def test_adaptive_blocks_and_fleets_whose_chain_stands_still_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def one() -> fastdp.Adaptive:
        return fastdp.Adaptive(epsilon=8.0, bound=4.0, threshold=4.0, max_range=4, seed=1)

    one().publish(np.ones(50))
    fastdp.Fleet(one(), key=bytes(32)).publish(np.arange(50) % 5, np.ones(50))
    advance_rows = adaptive_pass.advance_rows

    def still_chains(*given: np.ndarray) -> int:
        before = given[8]["chain"].copy()
        done = advance_rows(*given)
        given[8]["chain"] = before
        return done

    monkeypatch.setattr(adaptive_pass, "advance_rows", still_chains)
    with pytest.raises(DrawnTwiceError):
        one().publish(np.ones(50))
    with pytest.raises(DrawnTwiceError):
        fastdp.Fleet(one(), key=bytes(32)).publish(np.arange(50) % 5, np.ones(50))


def test_the_suite_runs_with_it_and_others_do_not() -> None:
    assert drawn_once.ENABLED
    code = "from fastdp.noise import Key; from fastdp.noise.key import Binding; "
    code += "print(Key(bytes(32), simulated=True, binding=Binding.COMPOSITION).drawn)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PATH": ""}, check=False)
    assert done.stdout == "None\n"


def bound_key() -> Key:
    return Key(bytes(range(32)), simulated=True, binding=Binding.COMPOSITION)


def read(secret: Key, start: int, count: int, number: int = 0) -> None:
    WordStream(secret, StreamId(Purpose.DRAWS, number=number), start).fill(np.empty(count, np.uint64))


def publisher_of(perturber: Any) -> fastdp.StreamPublisher:
    options = {"epsilon": 1.0, "bound": 8, "holdout": 0, "max_range": 16, "seed": 1, "smoother": None}
    return fastdp.StreamPublisher(threshold=Fixed(4.0), perturber=perturber, **options)


@pytest.mark.parametrize("perturber", [Hierarchy(2, prune=0), Hierarchy(2, consistent=False, prune=0)])
def test_a_tree_number_or_a_chain_that_stands_still_is_seen(perturber: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = type(perturber).leaf_noise
    monkeypatch.setattr(type(perturber), "leaf_noise", lambda *given: real(*given[:-1], 0))
    with pytest.raises(DrawnTwiceError):
        publisher_of(perturber).publish(np.ones(40))
    stuck = publisher_of(Flat())
    before = stuck._state
    stuck.publish(np.ones(5))
    stuck._state = before
    with pytest.raises(DrawnTwiceError):
        stuck.publish(np.ones(5))


def test_a_kernel_that_leaves_the_chain_or_repeats_words_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(answers: np.ndarray, chain: np.ndarray) -> None:
        follow(answers, chain)
        answers[:] = answers[-1]

    follow = bound_sums.follow
    for wrong, said in (
        (lambda answers, chain: follow(answers, chain.copy()), "chain key is the same"),
        (once, "the same words"),
    ):
        monkeypatch.setattr(bound_sums, "follow", wrong)
        with pytest.raises(DrawnTwiceError, match=said):
            publisher_of(Flat()).publish(np.ones(5))


def test_unsigned_values_saturate() -> None:
    noisy = fastdp.add_noise(np.array([2**64 - 1, 2**63], np.uint64), 1, 1.0, seed=1)
    assert (np.abs(noisy - 2**62) < 100).all()
