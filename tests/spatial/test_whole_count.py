"""A count of the whole beside those of the cells: equal to the naive version; totals; state; budget; bad input."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fastdp import AdaptivePHDStream, PHDStream
from fastdp.errors import ParameterError, StateError
from fastdp.noise import sampler
from fastdp.noise.words import Purpose
from fastdp.spatial import Box
from fastdp.spatial.phdstream import LEVEL, TotalCounter
from tests.noise_values import step_keys
from tests.oracles import counts_alone, whole_count
from tests.oracles import phdstream as oracle
from tests.spatial.test_phdstream import SQUARE, batches, draws

KINDS = [PHDStream, AdaptivePHDStream]
#: ``total_share`` of each, where none is given.
DEFAULTS = {PHDStream: 0.05, AdaptivePHDStream: 0.0}


def make(kind: Any = PHDStream, domain: Box = SQUARE, epsilon: float = 2.0, **options: Any) -> Any:
    return kind(domain, epsilon, **{"seed": 5, "max_depth": 5, "total_share": 0.05, **options})


def reference(stream: Any, kind: type[oracle.Stream]) -> oracle.Stream:
    plan, domain = stream._plan, stream.domain
    shape = plan.fan_out, plan.max_depth, plan.unit, plan.bias, plan.threshold
    return kind(domain.lower, domain.upper, *shape, oracle.SimpleCounter, getattr(stream, "retention", 0))


def leaves(stream: Any) -> dict[tuple[int, ...], float]:
    """Released counts by path."""
    visit, b = stream._state.tree, stream.fan_out
    places = zip(visit.depth[visit.leaves].tolist(), visit.code[visit.leaves].tolist(), strict=True)
    paths = [tuple(code // b**k % b for k in range(depth - 1, -1, -1)) for depth, code in places]
    return dict(zip(paths, visit.projected[visit.leaves].tolist(), strict=True))


def compare(stream: Any, expected: dict[tuple[int, ...], float]) -> None:
    ours = leaves(stream)
    assert ours.keys() == expected.keys()
    assert [ours[path] for path in ours] == pytest.approx(
        [float(expected[path]) for path in ours], rel=1e-9, abs=1e-9
    )


def noises(stream: Any, steps: list[Any]) -> Iterator[Any]:
    keys, plan, total = step_keys(stream, steps), stream._plan, stream._machine.total
    yield draws(keys, plan.split_distribution, Purpose.SPLIT, 4096)
    yield draws(keys, plan.cell_distribution, Purpose.CELL, 4096)
    yield draws(keys, total.distribution, Purpose.CELL, 1, level=LEVEL)
    if isinstance(stream, AdaptivePHDStream):
        yield draws(keys, stream._machine.counting.distribution, Purpose.CELL, 4096)


@pytest.mark.parametrize(("dim", "fan_out", "share"), [(1, 2, 0.05), (2, 3, 0.5)])
def test_phdstream_equals_the_naive_version(dim: int, fan_out: int, share: float) -> None:
    domain = Box([0.0] * dim, [1.0] * dim)
    stream = make(domain=domain, fan_out=fan_out, max_depth=4, total_share=share, retention=2)
    naive = reference(stream, whole_count.Stream)
    assert isinstance(naive, whole_count.Stream)
    steps = batches(18, dim, 11 + dim, size=8)
    split, cell, own = noises(stream, steps)
    # Block, of which an event enters two sums.
    counter = whole_count.Whole(own, 2 / (Fraction(share) * 2))
    naive.follow(counter, whole_count.laplace_variance(1 / (Fraction(3, 5) * Fraction(1 - share) * 2)))
    for added, removed in steps:
        stream.advance(added, removed)
        compare(stream, naive.step(added.tolist(), removed.tolist(), split, cell))
    assert stream._state.total.released == counter.counter.g


@pytest.mark.parametrize("options", [{"period": 1}, {"max_period": 4}, {"period": 2, "shrink": False}])
def test_adaptive_phdstream_equals_the_naive_version(options: dict[str, Any]) -> None:
    stream = make(AdaptivePHDStream, **options)
    counting = stream._machine.counting
    first = reference(stream, oracle.Stream)
    naive = counts_alone.Follower(
        first, counting.noise, counting.first, stream.shrink, stream.period, stream.max_period
    )
    steps = batches(19, 2, 3, size=12)
    split, initial, own, later = noises(stream, steps)
    naive.whole_counter = whole_count.Whole(own, 2 / (Fraction(0.05) * 2))
    for t, (added, removed) in enumerate(steps):
        stream.advance(added, removed)
        batch = added.tolist(), removed.tolist()
        compare(stream, naive.step(*batch, later) if t else naive.begin(*batch, split, initial))
    assert naive.whole_counter.times == stream._state.total.steps > 4


def present(steps: list[Any]) -> int:
    return sum(len(added) - len(removed) for added, removed in steps)


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_is_counted_once(kind: Any) -> None:
    """Without noise to speak of the whole has all events that were counted."""
    stream = make(kind, epsilon=2000.0)
    steps = batches(40, 2, 6)
    for number, (added, removed) in enumerate(steps, 1):
        stream.advance(added, removed)
        counted = getattr(stream._state, "last_count", number)
        assert stream._state.total.released == present(steps[:counted])


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_that_no_step_leaves_is_refused(kind: Any) -> None:
    stream = make(kind)
    for added, removed in batches(3, 2, 4, size=6):
        stream.advance(added, removed)
    machine = stream._machine
    packed = machine.pack(stream._state)
    machine.unpack(packed, stream._key)
    whole = packed["state"]["total"]
    wrong = [
        {"released": 2**63},
        {"steps": whole["steps"] + 1},
        {"row": {"shape": [1, 1], "data": whole["row"]["data"]}},
    ]
    for change in wrong:
        with pytest.raises((ValueError, LookupError)):
            machine.unpack({**packed, "state": {**packed["state"], "total": {**whole, **change}}}, stream._key)
    with pytest.raises((ValueError, LookupError, TypeError)):
        machine.unpack({**packed, "state": {**packed["state"], "total": None}}, stream._key)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 7.0])
def test_the_parts_make_up_epsilon(kind: Any, epsilon: float) -> None:
    for share in (0.01, 0.05, 1 / 3, 0.5):
        guarantee = make(kind, epsilon=epsilon, total_share=share).guarantee
        assert guarantee.epsilon == pytest.approx(epsilon, rel=1e-15)
        assert guarantee.epsilon <= epsilon
        assert sum("count of the whole" in step for step in guarantee.derivation) == 1
    plain = make(kind, epsilon=epsilon, total_share=0.0).guarantee
    assert not any("whole (" in step for step in plain.derivation)
    default = make(kind, epsilon=epsilon, total_share=DEFAULTS[kind]).guarantee
    assert default == kind(SQUARE, epsilon, max_depth=5, seed=5).guarantee


@pytest.mark.parametrize("kind", KINDS)
def test_noise_scales_are_those_of_the_guarantee(kind: Any) -> None:
    stream = make(kind, epsilon=1.0, total_share=0.25, sensitivity=2)
    plan, machine = stream._plan, stream._machine
    assert machine.total.distribution == sampler.laplace_distribution(Fraction(2 * 2, 1) / Fraction(0.25))
    spent = plan.epsilon_tree + plan.epsilon_count + machine.total.epsilon
    assert float(2 * spent) == pytest.approx(1.0, rel=1e-15)
    assert 2 * spent <= 1
    if kind is AdaptivePHDStream:
        assert machine.counting.distribution == sampler.laplace_distribution(Fraction(2) / Fraction(0.75))


@pytest.mark.parametrize("kind", KINDS)
def test_the_share_is_part_of_the_composition(kind: Any) -> None:
    """Different shares, different noise; one of them is the default."""
    added, removed = batches(1, 2, 4)[0]
    streams = [make(kind, total_share=share) for share in (0.06, 0.05, 0.0)]
    assert len({stream._key.reveal() for stream in streams}) == 3
    default = kind(SQUARE, 2.0, max_depth=5, seed=5)
    given = next(stream for stream in streams if stream.total_share == DEFAULTS[kind])
    assert default.total_share == DEFAULTS[kind]
    assert np.array_equal(default.step(added, removed), given.step(added, removed))


def test_a_share_out_of_range_is_refused() -> None:
    with pytest.raises(ParameterError, match="epsilon is too small"):
        TotalCounter.of_share(1e-9, 1, 1e-9)
    with pytest.raises(ParameterError, match="epsilon is too small"):
        TotalCounter.of_share(0.1, 1, 5e-324)  # a share of nothing: 0
    with pytest.raises(StateError, match="expected a step first"):
        _ = make().tree
