"""The check that no word is drawn twice, which the whole suite runs with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest

import fastdp
from fastdp.noise import key as drawn_once
from fastdp.noise import words as key_words
from fastdp.noise.key import Binding, DrawnTwiceError, DrawnWords, Key
from fastdp.noise.words import Purpose, StreamId, WordStream, joined_words, node_words
from fastdp.perturbers import Flat, Hierarchy
from fastdp.thresholds import Fixed
from fastdp_kernels.noise import binary_counter, bound_sums
from fastdp_kernels.streams import adaptive_pass
from tests.shared import release_many


def key() -> Key:
    return Key(bytes(range(32)), simulated=True, binding=Binding.COMPOSITION)


def draw(secret: Key, start: int, count: int, number: int = 0) -> None:
    WordStream(secret, StreamId(Purpose.DRAWS, number=number), start).fill(np.empty(count, np.uint64))


def publisher(perturber, **options) -> fastdp.StreamPublisher:
    return fastdp.StreamPublisher(
        threshold=Fixed(4.0), perturber=perturber, epsilon=1.0, bound=8, holdout=0, max_range=16, seed=1, **options
    )


def test_the_suite_runs_with_it():
    assert drawn_once.ENABLED


@pytest.mark.parametrize(("start", "count"), [(0, 1), (9, 1), (5, 100), (0, 10), (9, 2)])
def test_words_that_overlap_are_refused(start, count):
    secret = key()
    draw(secret, 0, 10)
    draw(secret, 20, 10)
    with pytest.raises(DrawnTwiceError) as error:
        draw(secret, start, count)
    assert "0001020304" not in str(error.value).replace("\\x", "")


def test_words_side_by_side_pass_in_any_order():
    secret = key()
    for start in (10, 0, 20, 40, 30):
        draw(secret, start, 10)
    draw(secret, 0, 10, number=1)
    draw(secret.within("theta", 1), 0, 10)
    draw(secret.of_stream(0), 0, 10)
    with pytest.raises(DrawnTwiceError):
        draw(secret, 49, 1)


def test_joined_words_are_recorded_by_their_streams():
    secret, pieces = key(), ((StreamId(Purpose.DRAWS, 1), 5), (StreamId(Purpose.DRAWS, 2), 3))
    joined_words(secret, pieces, 4)
    joined_words(secret, pieces, 5)
    WordStream(secret, StreamId(Purpose.DRAWS, 2, 4), 3).fill(np.empty(1, np.uint64))
    with pytest.raises(DrawnTwiceError):
        WordStream(secret, StreamId(Purpose.DRAWS, 2, 4), 2).fill(np.empty(1, np.uint64))


def test_keys_derived_of_one_composition_share_the_record():
    secret = key()
    draw(secret.within("theta", 3), 0, 10)
    with pytest.raises(DrawnTwiceError):
        draw(secret.within("theta", 3), 9, 1)


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


def test_a_repeated_draw_can_be_declared():
    secret = key()
    draw(secret, 0, 10)
    with drawn_once.repeating():
        draw(secret, 0, 10)
    draw(secret.again(), 0, 10)
    with pytest.raises(DrawnTwiceError):
        draw(secret, 0, 10)


@pytest.mark.parametrize("perturber", [Hierarchy(2, prune=0), Hierarchy(2, consistent=False, prune=0)])
def test_a_tree_number_that_stands_still_is_seen(perturber, monkeypatch):
    real = type(perturber).leaf_noise
    monkeypatch.setattr(
        type(perturber),
        "leaf_noise",
        lambda self, plan, steps, epsilon, key, tree: real(self, plan, steps, epsilon, key, 0),
    )
    with pytest.raises(DrawnTwiceError):
        publisher(perturber).publish(np.ones(40)) if perturber.released_nodes else publisher(
            perturber, smoother=None
        ).publish(np.ones(40))


def test_a_chain_that_stands_still_is_seen():
    stuck = publisher(Flat())
    before = stuck._state.progress
    stuck.publish(np.ones(5))
    back = stuck._state.progress._replace(chain=before.chain, blocks=before.blocks)
    stuck._state = stuck._state._replace(progress=back)
    with pytest.raises(DrawnTwiceError):
        stuck.publish(np.ones(5))


# The counters that were encrypted, whatever was asked for.


@pytest.fixture(params=[Hierarchy(2, prune=0), Hierarchy(2, prune=0, consistent=False)], ids=["leaves", "nodes"])
def rows_of_many_words(request: pytest.FixtureRequest) -> Callable[[], object]:
    """Rows of more than 8,192 words."""
    options = {"threshold": Fixed(1.0), "perturber": request.param, "smoother": None, "resolution": 1.0}
    return lambda: release_many(np.ones((2, 2**14)), 1.0, 1.0, max_range=2**14, seed=1, **options)


def test_noise_of_many_streams_that_repeats_is_seen(
    rows_of_many_words: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every 8,192 words, where the number of a block would have 12 bits."""
    rows_of_many_words()

    def wrapping(common: np.ndarray, names: np.ndarray, members: np.ndarray, counters: np.ndarray) -> None:
        low = common.copy().view(">u8")
        low[1::2] &= 2**12 - 1
        write(low.view(np.uint64), names, members, counters)

    write = binary_counter.write_counters
    monkeypatch.setattr(binary_counter, "write_counters", wrapping)
    with pytest.raises(DrawnTwiceError):
        rows_of_many_words()


def test_a_buffer_of_words_that_is_not_filled_again_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(cipher: object, blocks: memoryview, out: memoryview) -> None:
        if not calls:
            encrypt(cipher, blocks, out)
        calls.append(None)

    calls: list[None] = []
    encrypt = key_words.encrypt_blocks
    monkeypatch.setattr(key_words, "encrypt_blocks", stale)
    # More streams than one part has.
    with pytest.raises(DrawnTwiceError):
        release_many(
            np.ones((64, 2**10)),
            1.0,
            1.0,
            threshold=Fixed(1.0),
            perturber=Hierarchy(2, prune=0),
            smoother=None,
            max_range=2**10,
            seed=1,
        )


def test_nodes_of_a_counter_that_share_a_block_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def shared(*given: np.ndarray) -> int:
        blocks = counters_of(*given)
        given[-2][:blocks, 0] = given[-2][0, 0]
        return blocks

    counters_of = binary_counter.node_counters
    monkeypatch.setattr(binary_counter, "node_counters", shared)
    with pytest.raises(DrawnTwiceError):
        node_words(key(), StreamId(Purpose.COUNTER), 0, 8, 4)


def test_a_cipher_that_counts_otherwise_is_seen() -> None:
    stream = WordStream(key(), StreamId(Purpose.DRAWS))
    stream._encryptor = WordStream(key(), StreamId(Purpose.DRAWS), 2)._encryptor
    with pytest.raises(DrawnTwiceError, match="not those of the counters"):
        stream.fill(np.empty(10, np.uint64))


def test_a_kernel_that_leaves_the_chain_where_it_is_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    follow = bound_sums.follow
    monkeypatch.setattr(bound_sums, "follow", lambda answers, chain: follow(answers, chain.copy()))
    with pytest.raises(DrawnTwiceError, match="chain key is the same"):
        publisher(Flat()).publish(np.ones(5))


def test_a_kernel_that_gives_several_sums_the_same_words_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(answers: np.ndarray, chain: np.ndarray) -> None:
        follow(answers, chain)
        answers[:] = answers[-1]

    follow = bound_sums.follow
    monkeypatch.setattr(bound_sums, "follow", once)
    with pytest.raises(DrawnTwiceError, match="the same words"):
        publisher(Flat()).publish(np.ones(5))


def test_adaptive_blocks_and_fleets_whose_chain_stands_still_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def one() -> fastdp.Adaptive:
        return fastdp.Adaptive(epsilon=8.0, bound=4.0, threshold=4.0, max_range=4, seed=1)

    def standing(place: int, kernel: Callable[..., int]) -> Callable[..., int]:
        def still(*given: np.ndarray) -> int:
            before = given[place].copy()
            done = kernel(*given)
            given[place][:] = before
            return done

        return still

    one().publish(np.ones(50))
    monkeypatch.setattr(adaptive_pass, "sum_bound", standing(5, adaptive_pass.sum_bound))
    with pytest.raises(DrawnTwiceError):
        one().publish(np.ones(50))
    ids, publish_rows = np.arange(50) % 5, adaptive_pass.publish_rows

    def still_chains(*given: np.ndarray) -> int:
        before = given[10]["chain"].copy()
        done = publish_rows(*given)
        given[10]["chain"] = before
        return done

    fastdp.Fleet(one(), key=bytes(32)).publish(ids, np.ones(50))
    monkeypatch.setattr(adaptive_pass, "publish_rows", still_chains)
    with pytest.raises(DrawnTwiceError):
        fastdp.Fleet(one(), key=bytes(32)).publish(ids, np.ones(50))


def test_it_is_off_without_the_variable():
    code = "from fastdp.noise import Key; from fastdp.noise.key import Binding; "
    code += "print(Key(bytes(32), simulated=True, binding=Binding.COMPOSITION).drawn)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PATH": ""}, check=False)
    assert done.stdout == "None\n"
