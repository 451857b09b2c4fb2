"""A rejected chunk changes nothing and its error names the first wrong value; ``out`` is checked before values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastdp
from fastdp import counters, local, spatial
from fastdp.data.column import PIECE
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.thresholds import Fixed, NoisyMax
from fastdp.thresholds.renewals import RenewFromHoldout
from tests.grid import exhaustive
from tests.noise_values import bound_key

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")

HOLDOUT, LENGTH = 40, 211  # as in conftest
BAD = [np.nan, np.inf, -np.inf]
KINDS = [{"prune": 0}, {"prune": 1}, {"prune": 2}]
COMMON: dict[str, Any] = {"epsilon": 1.0, "bound": 50.0, "holdout": HOLDOUT, "max_range": 64, "seed": 7}
RENEWED = {"threshold": NoisyMax(), "perturber": Hierarchy(4, prune=0), "renewal": RenewFromHoldout(1, 20)}
PUBLISHERS: dict[str, Callable[[], Any]] = {
    "Adaptive": lambda: fastdp.Adaptive(**COMMON),
    "ToPS": lambda: fastdp.ToPS(**COMMON, fan_out=4, prune=1),
    "Flat": lambda: fastdp.StreamPublisher(**COMMON, threshold=Fixed(50.0), perturber=Flat()),
    "Blocks": lambda: fastdp.StreamPublisher(**COMMON, threshold=NoisyMax(), perturber=Blocks()),
    "renewed": lambda: fastdp.StreamPublisher(**COMMON, **RENEWED),
    "PAK": lambda: fastdp.PAK(1.0, 1e-6, 50.0, 2 * PIECE, holdout=HOLDOUT, seed=7),
    "ToPL": lambda: fastdp.ToPL(**COMMON),
}
#: Around the hold-out's ends, the first blocks and the end.
PLACES = (0, 1, 17, HOLDOUT - 1, HOLDOUT, HOLDOUT + 1, HOLDOUT + 4, 90, 130, 150, 209, 210)
STREAM = np.random.default_rng(3).integers(0, 50, LENGTH).astype(np.float64)
STREAM.flags.writeable = False


def whole(make: Any, stream: np.ndarray, **options: Any) -> np.ndarray:
    return make(**options).publish(stream)


def spoiled(values: np.ndarray, place: int) -> np.ndarray:
    """NaN at a place, and further wrong values behind it."""
    broken = values.copy()
    broken[place], broken[place + 1 :: 3] = np.nan, np.inf
    return broken


def place_named(call: Callable[[Any], Any], given: Any, name: str) -> int:
    """The place that the error of a call names."""
    with pytest.raises(DataError) as caught:
        call(given)
    found = re.match(rf"{re.escape(name)}\[(\d+)\]: ", str(caught.value))
    assert found is not None, str(caught.value)
    return int(found.group(1))


@pytest.mark.parametrize("kind", ["float32", *exhaustive("float64", "list")])
@pytest.mark.parametrize("size", [7, LENGTH, *exhaustive(1, 41, 100)])
@pytest.mark.parametrize("name", PUBLISHERS)
def test_a_chunk_names_its_first_wrong_value(name: str, size: int, kind: str) -> None:
    for place in PLACES:
        publisher, broken, begin = PUBLISHERS[name](), spoiled(STREAM, place), place // size * size
        for at in range(0, begin, size):
            publisher.publish(STREAM[at : at + size])
        chunk = broken[begin : begin + size]
        given = chunk.tolist() if kind == "list" else chunk.astype(kind)
        assert place_named(publisher.publish, given, "chunk") == place - begin
        assert publisher.n_seen == begin
        if size == LENGTH and hasattr(publisher, "release"):
            assert place_named(publisher.release, broken, "values") == place


@pytest.mark.parametrize("name", ["ToPS", *exhaustive(*sorted(PUBLISHERS.keys() - {"ToPS"}))])
def test_at_the_ends_of_what_is_converted_at_once(name: str) -> None:
    for place in (PIECE - 1, PIECE, PIECE + 1, PIECE + 2):
        assert (
            place_named(PUBLISHERS[name]().publish, spoiled(np.ones(PIECE + 3, np.float32), place), "chunk") == place
        )


def test_many_streams_name_the_stream_and_the_place() -> None:
    for stream, place in itertools.product((0, 1, 4), PLACES):
        streams = np.tile(STREAM, (5, 1))
        streams[stream] = spoiled(STREAM, place)
        for form in (streams, streams.astype(np.float32), list(streams), streams.ravel()):
            offsets = np.arange(6) * LENGTH if getattr(form, "ndim", 2) == 1 else None
            call = partial(fastdp.release_many, **COMMON, offsets=offsets)
            assert place_named(call, form, f"streams[{stream}]") == place


@pytest.mark.parametrize("size", [3, 40, 200, PIECE + 3])
def test_local_reports_name_the_value(size: int) -> None:
    for mechanism, first in ((local.Hybrid, 0.0), (local.SquareWave, 0.0), (local.LogSquareWave, 1.0)):
        for place in {0, 1, size // 2, size - 2, size - 1}:
            for call in (mechanism(1.0, first, 50.0).perturb, mechanism(1.0, first, 50.0).steps_of):
                assert place_named(call, spoiled(np.ones(size), place), "values") == place


def test_counts_and_points_name_the_entry() -> None:
    square, options = spatial.Box([0.0, 0.0], [1.0, 1.0]), {"max_depth": 4, "seed": 1}
    calls = {
        "added": [fastdp.PHDStream(square, 1.0, **options).advance],
        "points": [spatial.PrivTree(square, 1.0, **options).fit],
    }
    calls["added"].append(fastdp.AdaptivePHDStream(square, 1.0, **options).advance)
    running = counters.RunningCounts(counters.Simple(), 1.0, 10, seed=1)
    for place, wrong in itertools.product((0, 1, 5, 9), (np.nan, 1.5)):
        points, increments = np.full((10, 2), 0.5), np.zeros(10)
        points[place:, 1], increments[place:] = wrong, 0.5
        for name, call in ((name, call) for name, several in calls.items() for call in several):
            assert place_named(call, points, name) == place
            with pytest.raises(DataError, match=rf"\({10 - place} of 10 entries\)"):
                call(points)
        assert place_named(running.step, increments, "values") == place


spoilers = st.tuples(st.integers(0, 10**6), st.sampled_from(BAD))
steps = st.lists(st.tuples(st.integers(0, 60), st.lists(spoilers, max_size=3)), max_size=12)


@given(steps=steps, options=st.sampled_from(KINDS))
def test_rejected_chunks_change_nothing(make, stream, steps, options) -> None:
    publisher, parts, begin = make(**options), [], 0
    for size, wrong in [*steps, (stream.size, [(0, np.nan)])]:
        chunk = stream[begin : begin + size]
        for where, bad in wrong if chunk.size else ():
            broken, out = chunk.copy(), np.full(chunk.size, 123.0)
            broken[where % chunk.size] = bad
            with pytest.raises(
                DataError, match=rf"^chunk\[{where % chunk.size}\]: not a finite number; expected .*nonfinite='zero'"
            ):
                publisher.publish(broken, out=out)
            # The buffer may be public, and the mended chunk gets the same noise: their difference would leak values.
            assert (np.isnan(out) | (out == 123.0)).all()
            assert publisher.n_seen == begin
        parts.append(publisher.publish(chunk))
        begin += chunk.size
    assert np.array_equal(np.concatenate(parts), whole(make, stream, **options))


def test_a_rejected_release_leaves_a_fresh_publisher(make, stream) -> None:
    publisher = make()
    with pytest.raises(DataError):
        publisher.release([*stream, np.nan])
    assert (publisher.n_seen, publisher.n_published, publisher.threshold) == (0, 0, None)
    assert np.array_equal(publisher.release(stream).values, whole(make, stream))


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_nonfinite_zero_and_values_out_of_bounds(make, stream, options) -> None:
    for seed in range(20):
        chooser = np.random.default_rng(seed)
        broken = np.where(chooser.random(stream.size) < 0.2, chooser.choice(BAD, stream.size), stream)
        zeroed = np.where(np.isfinite(broken), broken, 0.0)
        # Of another composition, so with a key that is not bound to one.
        one, two = (make(nonfinite=rule, seed=None, key=bound_key(seed), **options) for rule in ("zero", "raise"))
        assert np.array_equal(one.publish(broken), two.publish(zeroed))
        assert one.threshold == two.threshold
    wild = stream * np.resize([-1.0, 1e4, 1.0], stream.size)
    wild[[5, 50, 100, 150]] = 1e308, -1e308, 5e-324, -5e-324
    assert np.array_equal(whole(make, wild, **options), whole(make, np.clip(wild, 0.0, 50.0), **options))
    assert not np.array_equal(whole(make, wild, **options), whole(make, np.clip(wild, 0.0, 10.0), **options))


def test_values_above_theta_count_as_theta(compose, stream) -> None:
    published, options = compose(threshold=Fixed(20.0)).publish(stream), {"threshold": Fixed(20.0)}
    assert np.array_equal(published, compose(**options).publish(np.minimum(stream, 20.0)))
    assert not np.array_equal(published, compose(**options).publish(np.minimum(stream, 19.0)))


def unusable(size: int) -> list[Any]:
    """Refused values of ``out`` for this many published values (of one value, every view is contiguous)."""
    frozen = np.empty(size)
    frozen.flags.writeable = False
    found: list[Any] = [np.empty(size, kind) for kind in (np.float32, np.int64, ">f8")]
    found += [np.empty((size, 1)), np.empty((1, size)), frozen, [0.0] * size, memoryview(np.empty(size)), "x", 5]
    found += [np.empty(size - 1)] if size else []
    return found + ([np.empty(2 * size)[::2], np.empty(size)[::-1]] if size >= 2 else [])


def test_bad_out_changes_nothing(make, stream) -> None:
    """Within the hold-out too: a value that is counted twice would break the sensitivity of noisy max."""
    chunks = ((40, 100), (60, 61), (0, 100), (30, 41), (30, 40), (0, 40), (10, 11))
    for options, (seen, stop) in itertools.product(KINDS, chunks):
        publisher = make(**options)
        parts = [publisher.publish(stream[:seen])]
        for out in unusable(max(stop - max(seen, HOLDOUT), 0)):
            with pytest.raises(
                ParameterError, match=r"^out.*expected a writable, contiguous float64 array of at least"
            ):
                publisher.publish(stream[seen:stop], out=out)
            assert publisher.n_seen == seen
            assert seen >= HOLDOUT or publisher._state.chooser.counts.sum() == seen
        parts += [publisher.publish(stream[seen:stop]), publisher.publish(stream[stop:])]
        assert np.array_equal(np.concatenate(parts), whole(make, stream, **options))


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_out_receives_the_stream_and_must_not_overlap_the_chunk(make, stream, options) -> None:
    """A rejected chunk could not be sent again if the output had been written over it."""
    out, publisher = np.full(stream.size - HOLDOUT + 7, -1.0), make(**options)
    published = publisher.publish(stream, out=out)
    assert np.shares_memory(published, out)
    assert np.array_equal(published, whole(make, stream, **options))
    assert (out[published.size :] == -1.0).all()
    publisher, buffer = make(**options), stream[HOLDOUT:].copy()
    publisher.publish(stream[:HOLDOUT])
    for chunk, memory in ((buffer, buffer), (buffer[:100], buffer[1:101]), (buffer[50:100], buffer)):
        with pytest.raises(ParameterError, match=r"^out: .*overlaps the chunk"):
            publisher.publish(chunk, out=memory)
    assert np.array_equal(buffer, stream[HOLDOUT:])
    assert np.array_equal(publisher.publish(buffer), published)


def test_release_is_for_a_fresh_publisher_and_more_than_the_holdout(make, stream) -> None:
    publisher = make()
    publisher.publish([])
    publisher.publish(stream[:3])
    with pytest.raises(StateError, match=r"release\(\).*seen 3 values: expected a fresh one .*publish\(\)"):
        publisher.release(stream)
    assert np.array_equal(publisher.publish(stream[3:]), whole(make, stream))
    with pytest.raises(StateError, match="seen 211 values"):
        publisher.release(stream)
    for size in (0, 1, 39, 40):
        fresh = make()
        with pytest.raises(DataError, match=rf"^values has {size} entries: expected more than the hold-out of 40"):
            fresh.release(stream[:size])
        assert np.array_equal(fresh.release(stream[:41]).values, whole(make, stream[:41]))
