"""A rejected chunk changes nothing; values out of bounds are clipped; ``out`` is checked first."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp.errors import DataError, ParameterError, StateError
from tests.noise_values import bound_key

HOLDOUT = 40  # as in conftest
BAD = [np.nan, np.inf, -np.inf]
KINDS = [{"prune": 0}, {"prune": 1}, {"prune": 2}]


def whole(make: Any, stream: np.ndarray, **options: Any) -> np.ndarray:
    return make(**options).publish(stream)


@pytest.mark.parametrize("options", KINDS, ids=str)
# In the hold-out (first, last), the first block, the last value.
@pytest.mark.parametrize("place", [0, 39, 40, 210])
def test_bad_value_in_one_chunk(make, stream, options, place: int) -> None:
    publisher = make(**options)
    for bad in BAD:
        broken = stream.copy()
        broken[place] = bad
        with pytest.raises(
            DataError, match=rf"^chunk\[{place}\]: not a finite number; expected finite values .*nonfinite='zero'"
        ):
            publisher.publish(broken)
        assert (publisher.n_seen, publisher.n_published, publisher.threshold) == (0, 0, None)
    assert np.array_equal(publisher.publish(stream), whole(make, stream, **options))


def test_bad_value_around_the_end_of_the_holdout(make, stream) -> None:
    for options, place in itertools.product(KINDS, (30, 39, 40, 45)):
        publisher = make(**options)
        publisher.publish(stream[:30])
        broken = stream[30:60].copy()
        broken[place - 30] = np.nan
        for _ in range(3):
            with pytest.raises(DataError, match=rf"^chunk\[{place - 30}\]: not a finite"):
                publisher.publish(broken)
            assert (publisher.n_seen, publisher.threshold) == (30, None)
        parts = [publisher.publish(stream[30:60]), publisher.publish(stream[60:])]
        assert np.array_equal(np.concatenate(parts), whole(make, stream, **options))


def test_bad_value_under_a_fixed_threshold(compose, stream) -> None:
    for holdout in (0, 5):
        publisher = compose(holdout=holdout)
        with pytest.raises(DataError, match=r"^chunk\[2\]: not a finite"):
            publisher.publish([1, 2, np.nan])
        assert np.array_equal(publisher.publish(stream), compose(holdout=holdout).publish(stream))


def test_a_rejected_release_leaves_a_fresh_publisher(make, stream) -> None:
    publisher = make()
    with pytest.raises(DataError):
        publisher.release([*stream, np.nan])
    assert np.array_equal(publisher.release(stream).values, whole(make, stream))


spoilers = st.tuples(st.integers(0, 10**6), st.sampled_from(BAD))
steps = st.lists(st.tuples(st.integers(0, 60), st.lists(spoilers, max_size=3)), max_size=12)


@given(steps=steps, options=st.sampled_from(KINDS))
def test_rejected_chunks_sprinkled_in(make, stream, steps, options) -> None:
    publisher = make(**options)
    parts = []
    begin = 0
    for size, spoiled in [*steps, (stream.size, [(0, np.nan)])]:
        chunk = stream[begin : begin + size]
        for where, bad in spoiled if chunk.size else ():
            broken = chunk.copy()
            broken[where % chunk.size] = bad
            with pytest.raises(DataError, match=rf"^chunk\[{where % chunk.size}\]: not a finite"):
                publisher.publish(broken)
            assert publisher.n_seen == begin
        parts.append(publisher.publish(chunk))
        begin += chunk.size
    assert np.array_equal(np.concatenate(parts), whole(make, stream, **options))


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_nonfinite_zero(make, stream, options) -> None:
    for seed in range(20):
        chooser = np.random.default_rng(seed)
        broken = np.where(chooser.random(stream.size) < 0.2, chooser.choice(BAD, stream.size), stream)
        zeroed = np.where(np.isfinite(broken), broken, 0.0)
        # Of another composition, so with a key that is not bound to one.
        published = whole(make, broken, nonfinite="zero", seed=None, key=bound_key(seed), **options)
        assert np.array_equal(published, whole(make, zeroed, seed=None, key=bound_key(seed), **options))
    # The zeros are seen: they differ from the values they replace.
    assert not np.array_equal(published, whole(make, stream, seed=None, key=bound_key(seed), **options))


def test_nonfinite_zero_in_the_holdout(make, stream) -> None:
    """The histogram itself, because theta hardly moves for a few values."""
    broken, zeroed = stream[:30].copy(), stream[:30].copy()
    broken[:9:3], zeroed[:9:3] = BAD, 0.0
    counts = []
    for values in (broken, zeroed, stream[:30]):
        publisher = make(nonfinite="zero")
        publisher.publish(values)
        counts.append(publisher._state.chooser.counts)
    assert np.array_equal(counts[0], counts[1])
    assert not np.array_equal(counts[0], counts[2])


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_out_of_bounds_is_clipped(make, stream, options) -> None:
    wild = stream.copy()
    wild[::3] *= -1.0
    wild[1::3] += 1e4
    wild[[5, 50, 100, 150]] = 1e308, -1e308, 5e-324, -5e-324
    clipped = np.clip(wild, 0.0, 50.0)
    assert np.array_equal(whole(make, wild, **options), whole(make, clipped, **options))
    assert not np.array_equal(whole(make, wild, **options), whole(make, np.clip(wild, 0.0, 10.0), **options))


def test_values_above_theta_count_as_theta(compose, stream) -> None:
    options = {"threshold": fastdp.thresholds.Fixed(20.0)}
    published = compose(**options).publish(stream)
    assert np.array_equal(published, compose(**options).publish(np.minimum(stream, 20.0)))
    assert not np.array_equal(published, compose(**options).publish(np.minimum(stream, 19.0)))


def unusable(size: int) -> list[Any]:
    """What ``out`` must not be for this many published values (of one value, every view is contiguous)."""
    frozen = np.empty(size)
    frozen.flags.writeable = False
    always = [
        np.empty(size, np.float32),
        np.empty(size, np.int64),
        np.empty(size, ">f8"),
        np.empty((size, 1)),
        np.empty((1, size)),
        frozen,
        [0.0] * size,
        memoryview(np.empty(size)),
        "no array",
        5,
    ]
    if size >= 1:
        always.append(np.empty(size - 1))
    if size >= 2:
        always += [np.empty(2 * size)[::2], np.empty(size)[::-1]]
    return always


def test_bad_out_changes_nothing(make, stream) -> None:
    for options, (seen, stop) in itertools.product(
        KINDS, ((40, 100), (60, 61), (0, 100), (30, 41), (30, 40), (0, 40))
    ):
        publisher = make(**options)
        parts = [publisher.publish(stream[:seen])]
        for out in unusable(stop - max(seen, HOLDOUT)):
            with pytest.raises(
                ParameterError, match=r"^out.*expected a writable, contiguous float64 array of at least"
            ):
                publisher.publish(stream[seen:stop], out=out)
            assert publisher.n_seen == seen
        parts += [publisher.publish(stream[seen:stop]), publisher.publish(stream[stop:])]
        assert np.array_equal(np.concatenate(parts), whole(make, stream, **options))


def test_bad_out_within_the_holdout_changes_nothing(make, stream) -> None:
    """A value that is counted twice in the hold-out would break the sensitivity of noisy max."""
    for seen in (0, 10, 39):
        for seed in range(8):
            publisher = make(seed=seed)
            publisher.publish(stream[:seen])
            for _ in range(30):
                with pytest.raises(ParameterError, match=r"^out"):
                    publisher.publish(stream[seen : seen + 1], out="no array")
            assert publisher._state.chooser.counts.sum() == seen
            assert np.array_equal(publisher.publish(stream[seen:]), whole(make, stream, seed=seed))


def test_out_receives_the_stream(make, stream) -> None:
    for options, spare in itertools.product(KINDS, (0, 7)):
        out = np.full(stream.size - HOLDOUT + spare, -1.0)
        publisher = make(**options)
        published = publisher.publish(stream, out=out)
        assert np.shares_memory(published, out)
        assert published.size == stream.size - HOLDOUT
        assert np.array_equal(out[: published.size], whole(make, stream, **options))
        assert (out[published.size :] == -1.0).all()


def test_out_must_not_overlap_the_chunk(make, stream) -> None:
    """A rejected chunk could not be mended if the output had been written over it."""
    for options in KINDS:
        publisher = make(**options)
        publisher.publish(stream[:HOLDOUT])
        buffer = stream[HOLDOUT:].copy()
        for chunk, out in ((buffer, buffer), (buffer[:100], buffer[1:101]), (buffer[50:100], buffer)):
            with pytest.raises(ParameterError, match=r"^out: .*overlaps the chunk"):
                publisher.publish(chunk, out=out)
        assert np.array_equal(buffer, stream[HOLDOUT:])
        assert np.array_equal(publisher.publish(buffer), whole(make, stream, **options))


def test_out_keeps_nothing_of_a_rejected_chunk(make, stream) -> None:
    """The buffer may be public, and the mended chunk gets the same noise: their difference would leak values."""
    for options, held in itertools.product(KINDS, (0, 40)):
        publisher = make(**options)
        publisher.publish(stream[:held])
        broken = stream[held:].copy()
        broken[-1] = np.nan
        out = np.full(stream.size, 123.0)
        with pytest.raises(DataError, match="not a finite"):
            publisher.publish(broken, out=out)
        assert (np.isnan(out) | (out == 123.0)).all()


def test_release_on_a_used_publisher(make, stream) -> None:
    publisher = make()
    publisher.publish([])
    publisher.publish(stream[:3])
    with pytest.raises(StateError, match=r"release\(\).*seen 3 values: expected a fresh one .*publish\(\)"):
        publisher.release(stream)
    assert np.array_equal(publisher.publish(stream[3:]), whole(make, stream))
    after = make()
    after.release(stream)
    with pytest.raises(StateError, match="seen 211 values"):
        after.release(stream)


@pytest.mark.parametrize("size", [0, 1, 39, 40])
def test_release_needs_more_than_the_holdout(make, stream, size: int) -> None:
    publisher = make()
    with pytest.raises(DataError, match=rf"^values has {size} entries: expected more than the hold-out of 40"):
        publisher.release(stream[:size])
    assert np.array_equal(publisher.release(stream[:41]).values, whole(make, stream[:41]))
