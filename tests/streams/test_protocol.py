"""Rules of every publisher of values: cuts, restarts, refusals, interrupts, keys; ``out`` is checked first."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastdp
from fastdp import counters, local
from fastdp.data.column import PIECE
from fastdp.errors import DataError, StateError
from fastdp.perturbers import Blocks, Flat, Hierarchy, Toeplitz
from fastdp.points import Box, PrivTree
from fastdp.smoothers import Exponential, Mean, Median, MovingAverage, Recent
from fastdp.thresholds import Fixed, NoisyMax
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from tests.grid import exhaustive
from tests.noise_values import bound_key
from tests.shared import release_many
from tests.state.test_interrupted_calls import SOURCES, Interrupt

pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")

HOLDOUT, LENGTH = 40, 211  # as in conftest
BAD = [np.nan, np.inf, -np.inf]
KINDS = [{"prune": 0}, {"prune": 1}, {"prune": 2}]
COMMON: dict[str, Any] = {"epsilon": 1.0, "bound": 50.0, "holdout": HOLDOUT, "max_range": 64, "seed": 7}


def made(kind: Any, usual: dict[str, Any], more: dict[str, Any]) -> Any:
    """A publisher, with a seed unless it is given a key."""
    return kind(**{**usual, **({"seed": None} if "key" in more else {}), **more})


def maker(kind: Any, **options: Any) -> Callable[..., Any]:
    usual = {name: value for name, value in {**COMMON, **options}.items() if value is not None}
    return lambda **more: made(kind, usual, more)


def composed(smoother: Any = None, prune: int = 1, **options: Any) -> Callable[..., Any]:
    usual = {"threshold": NoisyMax(), "perturber": Hierarchy(4, prune=prune), "smoother": smoother}
    return maker(fastdp.StreamPublisher, **{**usual, **options})


def adaptive(season: float | None = None, **options: Any) -> Callable[..., Any]:
    return maker(fastdp.Adaptive, **{"threshold": NoisyMax(), "perturber": Blocks(season=season), **options})


def pak(**options: Any) -> Callable[..., Any]:
    return maker(fastdp.PAK, delta=1e-6, length=2 * PIECE, max_range=None, **options)


PUBLISHERS: dict[str, Callable[..., Any]] = {
    "Adaptive": maker(fastdp.Adaptive),
    "blocks, fixed": adaptive(threshold=Fixed(20.0), holdout=0),
    "events": maker(fastdp.Adaptive, sensitivity=1.0, bound=None, holdout=None),
    "windows": adaptive(contributions=3),
    "season": adaptive(season=12.0),
    "season of events": maker(
        fastdp.Adaptive, sensitivity=1.0, bound=None, holdout=None, perturber=Blocks(season=12.0)
    ),
    "ToPS": maker(fastdp.ToPS, fan_out=4, prune=1),
    "ToPS, every value": maker(fastdp.ToPS, fan_out=3, prune=0),
    "ToPS, long blocks": maker(fastdp.ToPS, fan_out=2, prune=3, holdout=1),
    "ToPS, wide": maker(fastdp.ToPS, fan_out=16, prune=1),
    "Flat": composed(threshold=Fixed(50.0), perturber=Flat()),
    "Blocks": composed(perturber=Blocks()),
    "Toeplitz": composed(perturber=Toeplitz(length=100), delta=1e-6),
    "Toeplitz, endless": composed(perturber=Toeplitz(), threshold=Fixed(20.0), holdout=0, delta=1e-6),
    "Gaussian": composed(Recent(), perturber=Hierarchy(4, prune=1, noise="gaussian"), delta=1e-6),
    "Gaussian blocks": maker(fastdp.Adaptive, threshold=Fixed(20.0), holdout=0, delta=1e-6),
    "mean": composed(Mean()),
    "median": composed(Median()),
    "moving": composed(MovingAverage(3)),
    "exponential": composed(Exponential(0.3)),
    "renewed": composed(prune=0, renewal=RenewFromHoldout(1, 20)),
    "renewed, blocks": composed(Recent(), renewal=RenewFromHoldout(trees=2, holdout=37), max_range=16),
    "refined": composed(Recent(), renewal=RenewFromPublished(0.2)),
    "refined, mean": composed(Mean(), renewal=RenewFromPublished(0.05, trees=3), max_range=16),
    "PAK": pak(),
    "PAK, all sums": pak(threshold=NoisyMax(), lag_sums=True),
    "PAK, averages": pak(threshold=NoisyMax(), average=7),
    "PAK, average of all": pak(threshold=NoisyMax(), average="all", lag_sums=True),
    "PAK, unclipped": pak(clip=False),
    "ToPL": maker(fastdp.ToPL),
}
#: Not the suite's check of words, which holds a lock.
STRUCK = tuple(
    f"{SOURCES}/{room}/" for room in ("streams", "state", "thresholds", "perturbers", "smoothers", "local")
)
every = pytest.mark.parametrize("name", PUBLISHERS)
some = pytest.mark.parametrize("name", ["Adaptive", "ToPS", "Flat", "Blocks", "renewed", "PAK", "ToPL"])
#: Around the hold-out's ends, the first blocks and the end.
PLACES = (0, 1, 17, HOLDOUT - 1, HOLDOUT, HOLDOUT + 1, HOLDOUT + 4, 90, 130, 150, 209, 210)
STREAM = np.random.default_rng(3).integers(0, 50, LENGTH).astype(np.float64)
STREAM.flags.writeable = False


def whole(make: Any, stream: np.ndarray, **options: Any) -> np.ndarray:
    return make(**options).publish(stream)


@cache
def undisturbed(name: str) -> tuple[np.ndarray, Any]:
    """Output of a publisher on the stream at once, and the publisher after it."""
    publisher = PUBLISHERS[name]()
    return publisher.publish(STREAM), publisher


@every
@settings(max_examples=12)
@given(cuts=st.lists(st.tuples(st.integers(0, LENGTH), st.booleans()), max_size=8))
def test_cuts_and_restarts_change_nothing(name: str, cuts: list[tuple[int, bool]]) -> None:
    (expected, other), publisher, parts, begin = undisturbed(name), PUBLISHERS[name](), [], 0
    for stop, again in [*sorted(cuts), (LENGTH, True)]:
        parts.append(publisher.publish(STREAM[begin:stop]))
        publisher, begin = type(publisher).from_bytes(publisher.to_bytes()) if again else publisher, stop
    assert np.array_equal(np.concatenate(parts), expected)
    assert publisher._machine.pack(publisher._state) == other._machine.pack(other._state)
    assert (publisher.n_seen, getattr(publisher, "n_published", expected.size)) == (LENGTH, expected.size)
    assert publisher.guarantee == other.guarantee


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


@every
@pytest.mark.parametrize("begin", [0, 101])
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
@settings(max_examples=8)
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
    expected = whole(PUBLISHERS[name], np.clip(wild, 0.0, 50.0))
    assert np.array_equal(whole(PUBLISHERS[name], wild), expected)
    assert not np.array_equal(whole(PUBLISHERS[name], np.clip(wild, 0.0, 5.0)), expected)


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
    assert np.array_equal(publisher.publish(stream[3:]), whole(make, stream))
    with pytest.raises(StateError, match="seen 211 values"):
        publisher.release(stream)
    for size in (0, 1, 39, 40):
        fresh = make()
        with pytest.raises(DataError, match=rf"^values has {size} entries: expected more than the hold-out of 40"):
            fresh.release(stream[:size])
        assert np.array_equal(fresh.release(stream[:41]).values, whole(make, stream[:41]))
