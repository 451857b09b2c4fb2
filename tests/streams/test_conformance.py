"""Rules of every publisher of values: any cuts, copies, kept files, one of many streams, wrong values, interrupts."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastdp
from fastdp import counters, local
from fastdp.data.column import PIECE
from fastdp.data.frames import as_streams
from fastdp.errors import DataError, StateError
from fastdp.noise.key import Key
from fastdp.points import Box, PrivTree
from fastdp.streams.release_many import Sizes, release_rows
from fastdp.thresholds import Fixed
from fastdp_kernels.streams import adaptive_pass, fixed_pass
from tests.grid import exhaustive
from tests.noise_values import bound_key
from tests.shared import release_many
from tests.state.test_interrupted_calls import SOURCES, Interrupt
from tests.streams.publishers import COMMON, HOLDOUT, LENGTH, LONG, OTHERS, OWN, PUBLISHERS, STREAM, STREAMS

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")

BAD = [np.nan, np.inf, -np.inf]
#: Not the suite's check of words, which holds a lock.
STRUCK = tuple(
    f"{SOURCES}/{room}/" for room in ("streams", "state", "thresholds", "perturbers", "smoothers", "local")
)
SOME = ["Adaptive", "ToPS", "Flat", "Blocks", "renewed", "PAK", "ToPL"]
every = pytest.mark.parametrize("name", PUBLISHERS)
some = pytest.mark.parametrize("name", SOME)
#: Around the hold-out's ends, the first blocks and the end.
PLACES = (0, 1, 17, HOLDOUT - 1, HOLDOUT, HOLDOUT + 1, HOLDOUT + 4, 90, 130, 150, 209, 210)


@cache
def undisturbed(name: str) -> tuple[np.ndarray, Any]:
    """The stream published at once, and the publisher after it."""
    publisher = PUBLISHERS[name]()
    return publisher.publish(STREAM), publisher


# Cuts.

#: Integers up to 49, which each type holds exactly.
FORMS: list[Callable[[np.ndarray], Any]] = [
    lambda part: part,
    lambda part: part.tolist(),
    lambda part: np.repeat(part, 2)[::2],
    lambda part: part.view(np.memmap),
    *(lambda part, kind=kind: part.astype(kind) for kind in ("int64", "int32", "uint8", "float32")),
]


@every
@settings(max_examples=8)
@given(cuts=st.lists(st.tuples(st.integers(0, LENGTH), st.booleans(), st.sampled_from(FORMS)), max_size=8))
def test_cuts_types_and_restarts_change_nothing(name: str, cuts: list[tuple[int, bool, Any]]) -> None:
    (expected, other), publisher, parts, begin = undisturbed(name), PUBLISHERS[name](), [], 0
    for stop, again, form in [*sorted(cuts, key=lambda cut: cut[0]), (LENGTH, True, FORMS[0])]:
        parts.append(publisher.publish(form(STREAM[begin:stop])))
        publisher, begin = type(publisher).from_bytes(publisher.to_bytes()) if again else publisher, stop
    assert np.array_equal(np.concatenate(parts), expected)
    assert publisher._machine.pack(publisher._state) == other._machine.pack(other._state)
    assert (publisher.n_seen, getattr(publisher, "n_published", expected.size)) == (LENGTH, expected.size)
    assert publisher.guarantee == other.guarantee


@pytest.mark.parametrize("size", [100, *exhaustive(1, 7, 1000)])
@pytest.mark.parametrize("name", STREAMS)
def test_a_long_call_is_many_short_ones(name: str, size: int) -> None:
    """Kernels take a thousand values together; a theta that rises clips short chunks at its present height."""
    rise = np.repeat([1.0, 1.0, 8.0], LONG // 3) if name in ("Adaptive", "blocks, scale-free") else 1.0
    values = np.floor(np.random.default_rng(5).gamma(2.0, 3.0, LONG) * rise)
    values.flags.writeable = False
    short = STREAMS[name]()
    parts = [short.publish(part) for part in np.split(values, range(size, values.size, size))]
    for kind in ("float64", "int64", "float32"):
        publisher = STREAMS[name]()
        assert np.array_equal(publisher.publish(values.astype(kind)), np.concatenate(parts))
        assert publisher.threshold == short.threshold


@pytest.mark.parametrize("name", ["ToPS", "Adaptive"])
def test_few_layouts_of_values_are_compiled(name: str) -> None:
    """Each further one would be compiled for seconds."""
    # Other tests of this process may have called a kernel with types that no user brings.
    kernel, most = (fixed_pass.publish_rows, 2) if name == "ToPS" else (adaptive_pass.advance_rows, 1)
    before, publisher = set(kernel.signatures), PUBLISHERS[name]()
    for form in FORMS:
        for size in (HOLDOUT, 5, 100):
            publisher.publish(form(STREAM[:size]))
    new = set(kernel.signatures) - before
    assert all(values.layout == "C" for values, *_ in new)
    assert len({values for values, *_ in new}) <= most


# Copies, kept files and keys.


@every
def test_copies_and_replays_of_a_kept_file(name: str, tmp_path: Path) -> None:
    expected, publisher = undisturbed(name)[0], PUBLISHERS[name]()
    publisher.keep(tmp_path / "kept")
    parts = [publisher.publish(part) for part in np.split(STREAM, [30, 101, 150])]
    assert np.array_equal(np.concatenate(parts), expected)
    twin = copy.copy(publisher)
    assert twin.n_seen == LENGTH
    # A copy's noise is its own; what is predicted within a block is not noise.
    assert not np.array_equal(twin.publish(STREAM), PUBLISHERS[name]().publish(np.tile(STREAM, 2))[-LENGTH:])
    again = type(publisher).load(tmp_path / "kept", replay=True)
    assert again.n_seen == 150
    with pytest.raises(DataError, match=r"chunk\[:61\] differs from what the state file recorded last"):
        again.publish(STREAM[150:] + 1.0)
    assert np.array_equal(again.publish(STREAM[150:]), parts[-1])


@every
def test_a_release_and_an_equal_seed_give_the_same_and_fresh_keys_do_not(name: str) -> None:
    expected, make = undisturbed(name)[0], PUBLISHERS[name]
    if not name.startswith("PAK"):
        assert np.array_equal(make().release(STREAM).values, expected)
    fresh = [make(seed=None), make(seed=None), make(seed=8)]
    outputs = [expected, *(publisher.publish(STREAM) for publisher in fresh)]
    assert len({output.tobytes() for output in outputs}) == 4
    assert [publisher.guarantee.simulated for publisher in fresh] == [False, False, True]
    assert not make(key=bytes(32)).guarantee.simulated


# One of many streams.

SECRET = Key.from_seed("many")
IDS: dict[str, list[Any]] = {"numbers": [5, 0, 2**32 - 2, 17], "names": ["kitchen", "7", "Zähler 3", "b"]}
RAGGED = [np.roll(STREAM, 7 * k)[: 60 + 37 * k] for k in range(4)]


def assert_same(many: fastdp.Release, ids: list[Any], streams: Any, make: Callable[..., Any]) -> None:
    """Each stream's release, queries and nodes are those of its own publisher."""
    queries = np.random.default_rng(0)
    for i, (stream, name) in enumerate(zip(streams, ids, strict=True)):
        one, of_many = make(key=SECRET.of_stream(name)).release(stream), many[i]
        assert np.array_equal(one.values, of_many.values)
        assert (one.threshold, one.offset, one.block) == (of_many.threshold, of_many.offset, of_many.block)
        assert (one.noise, one.guarantee.epsilon) == (of_many.noise, many.guarantee.epsilon)
        bounds = np.sort(queries.integers(0, one.values.size + 1, (2, 7)), axis=0)
        for alone, each, every in ((one, of_many, many), (one.revised, of_many.revised, many.revised)):
            answers = alone.sum(*bounds)
            assert np.array_equal(answers, each.sum(*bounds))
            assert np.array_equal(answers, every.sum(*bounds, streams=i))
        assert np.array_equal(one.revised.values, of_many.revised.values)
        if isinstance(name, str):
            assert np.array_equal(many[name].values, one.values)
        if one.nodes is not None:
            assert np.array_equal(one.nodes.sums, of_many.nodes.sums, equal_nan=True)


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("name", {**STREAMS, **OWN})
def test_each_stream_of_many_is_what_its_own_publisher_releases(name: str, ids: list[Any]) -> None:
    """In batches of one to three."""
    make = {**STREAMS, **OWN}[name]
    # Equal streams differ by their noise alone.
    streams = [*RAGGED[:2], RAGGED[3], RAGGED[3]]
    read = as_streams(streams, None, None, None, None)
    many = release_rows(make().composition, SECRET, read, ids, 1, sizes=Sizes(words=300, values=350))
    assert list(many.ids) == ids
    assert_same(many, ids, streams, make)
    assert not np.array_equal(many[2].values, many[3].values)


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("name", ["PAK", "PAK, unclipped"])
def test_each_stream_of_many_by_pak_is_its_own_publisher(name: str, ids: list[Any]) -> None:
    """In threads too, and once: a copy, or a publisher that has released many, would draw equal noise."""
    make, streams = OTHERS[name], [*RAGGED[:2], RAGGED[3], RAGGED[3]]
    for threads in (1, 3):
        publisher = make(key=SECRET)
        many = publisher.release_many(streams, ids=ids, threads=threads)
        assert_same(many, ids, streams, make)
        assert not np.array_equal(many[2].values, many[3].values)
        for spent in (publisher, copy.copy(make(key=SECRET)), type(publisher).from_bytes(make().to_bytes())):
            with pytest.raises(StateError, match=r"^release_many.. of a publisher that has released many streams"):
                spent.release_many(streams)
    assert place_named(make().release_many, [STREAM, spoiled(STREAM, 90)], "streams[1]") == 90
    assert place_named(make().release_many, [STREAM, spoiled(STREAM, 1)], "streams[1]") == 1


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("name", {**STREAMS, **OWN})
def test_each_stream_of_a_fleet_is_its_own_publisher(name: str, ids: list[Any]) -> None:
    """In calls of any sizes; of several values of a stream in a call, in their order."""
    make, rng = {**STREAMS, **OWN}[name], np.random.default_rng(5)
    fleet = fastdp.Fleet(make(), key=SECRET)
    which, values = rng.integers(0, 4, 400), np.floor(rng.gamma(2.0, 8.0, 400))
    found: dict[Any, list[float]] = {each: [] for each in ids}
    for part in np.split(np.arange(400), [1, 2, 60, 61, 300]):
        given = [ids[k] for k in which[part]]
        told, out = fleet.publish(given, values[part])
        for each, published in zip(list(told), out.tolist(), strict=True):
            found[each].append(published)
    for k, each in enumerate(ids):
        assert found[each] == make(key=SECRET.of_stream(each)).publish(values[which == k]).tolist()


def test_threads_change_nothing() -> None:
    """Of so many values that there is work for two, and three."""
    values = np.floor(np.random.default_rng(2).gamma(2.0, 8.0, (2**10 + 1, 2**10)))
    made = [STREAMS["ToPS, fixed"](max_range=2**10).release_many(values, threads=threads) for threads in (1, 2)]
    assert np.array_equal(made[0].values, made[1].values)
    for name in ("blocks, fixed", "ToPS, fixed", "ToPS"):
        given = np.arange(3 * 2**14) % 7, values.reshape(-1)[: 3 * 2**14]
        outputs = [fastdp.Fleet(STREAMS[name](), key=SECRET, threads=n).publish(*given)[1] for n in (1, 3)]
        assert np.array_equal(*outputs)


# Interrupts.


@every
@pytest.mark.parametrize("begin", [101, *exhaustive(0)])
def test_an_interrupted_call_is_consumed_or_not(name: str, begin: int) -> None:
    """Wherever the interrupt comes: until the position is recorded the call can be repeated."""
    expected, counted = undisturbed(name)[0], Interrupt(10**9, STRUCK)

    def attempt(interrupt: Interrupt) -> Any:
        publisher = PUBLISHERS[name]()
        publisher.publish(STREAM[:begin])

        def call() -> None:
            interrupt.arm()
            publisher.publish(STREAM[begin:180])

        interrupt.strikes(call)
        return publisher

    attempt(counted)
    for at in np.linspace(1, 10**9 - counted.left, 12).astype(int).tolist():
        publisher = attempt(Interrupt(at, STRUCK))
        rest = publisher.publish(STREAM[publisher.n_seen :])
        assert np.array_equal(rest, expected[expected.size - rest.size :]), f"interrupted at event {at}"


# Wrong values.


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
@some
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


@pytest.mark.parametrize("name", ["ToPS", *exhaustive("Adaptive", "Flat", "Blocks", "renewed", "PAK", "ToPL")])
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
            call = partial(release_many, **COMMON, offsets=offsets)
            assert place_named(call, form, f"streams[{stream}]") == place


@pytest.mark.parametrize("size", [3, 40, 200, PIECE + 3])
def test_local_reports_name_the_value(size: int) -> None:
    for mechanism, first in ((local.Hybrid, 0.0), (local.SquareWave, 0.0), (local.LogSquareWave, 1.0)):
        for place in {0, 1, size // 2, size - 2, size - 1}:
            for call in (mechanism(1.0, first, 50.0).perturb, mechanism(1.0, first, 50.0).steps_of):
                assert place_named(call, spoiled(np.ones(size), place), "values") == place


def test_counts_and_points_name_the_entry() -> None:
    square, options = Box([0.0, 0.0], [1.0, 1.0]), {"max_depth": 4, "seed": 1}
    calls = {
        "added": [fastdp.PHDStream(square, 1.0, **options).advance],
        "points": [PrivTree(square, 1.0, **options).fit],
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


@every
@settings(max_examples=5)
@given(steps=steps)
def test_rejected_chunks_change_nothing(name: str, steps: list[tuple[int, list[tuple[int, float]]]]) -> None:
    publisher, parts, begin = PUBLISHERS[name](), [], 0
    for size, wrong in [*steps, (LENGTH, [(0, np.nan)])]:
        chunk = STREAM[begin : begin + size]
        for where, bad in wrong if chunk.size else ():
            broken = chunk.copy()
            broken[where % chunk.size] = bad
            with pytest.raises(DataError, match=rf"^chunk\[{where % chunk.size}\]: not a finite number.*; expected "):
                publisher.publish(broken)
            assert publisher.n_seen == begin
        parts.append(publisher.publish(chunk))
        begin += chunk.size
    assert np.array_equal(np.concatenate(parts), undisturbed(name)[0])


@pytest.mark.parametrize("name", [name for name in PUBLISHERS if not name.startswith("PAK")])
def test_nonfinite_zero_and_values_out_of_bounds(name: str) -> None:
    for seed in range(6):
        chooser = np.random.default_rng(seed)
        broken = np.where(chooser.random(LENGTH) < 0.2, chooser.choice(BAD, LENGTH), STREAM)
        zeroed = np.where(np.isfinite(broken), broken, 0.0)
        # Of another composition, so with a key that is not bound to one.
        one, two = (PUBLISHERS[name](nonfinite=rule, key=bound_key(seed)) for rule in ("zero", "raise"))
        assert np.array_equal(one.publish(broken), two.publish(zeroed))
        assert one.threshold == two.threshold
    if "events" in name:
        return
    wild = STREAM * np.resize([-1.0, 1e4, 1.0], LENGTH)
    wild[[5, 50, 100, 150]] = 1e308, -1e308, 5e-324, -5e-324
    expected = PUBLISHERS[name]().publish(np.clip(wild, 0.0, 50.0))
    assert np.array_equal(PUBLISHERS[name]().publish(wild), expected)
    assert not np.array_equal(PUBLISHERS[name]().publish(np.clip(wild, 0.0, 5.0)), expected)


def test_values_above_theta_count_as_theta(compose, stream) -> None:
    published, options = compose(threshold=Fixed(20.0)).publish(stream), {"threshold": Fixed(20.0)}
    assert np.array_equal(published, compose(**options).publish(np.minimum(stream, 20.0)))
    assert not np.array_equal(published, compose(**options).publish(np.minimum(stream, 19.0)))


def test_release_is_for_a_fresh_publisher_and_more_than_the_holdout(make, stream) -> None:
    publisher = make()
    publisher.publish([])
    publisher.publish(stream[:3])
    with pytest.raises(StateError, match=r"release\(\).*seen 3 values: expected a fresh one .*publish\(\)"):
        publisher.release(stream)
    assert np.array_equal(publisher.publish(stream[3:]), make().publish(stream))
    with pytest.raises(StateError, match="seen 211 values"):
        publisher.release(stream)
    for size in (0, 1, 39, 40):
        fresh = make()
        with pytest.raises(DataError, match=rf"^values has {size} entries: expected more than the hold-out of 40"):
            fresh.release(stream[:size])
        assert np.array_equal(fresh.release(stream[:41]).values, make().publish(stream[:41]))
