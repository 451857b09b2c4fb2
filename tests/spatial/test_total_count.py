"""A count of all points beside those of the cells: equal to the naive version; totals; state; budget; bad input."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fastdp import AdaptivePHDStream, PHDStream
from fastdp.errors import ParameterError
from fastdp.noise import sampler
from fastdp.spatial import Box
from fastdp.spatial.phdstream import TotalCounter
from tests.oracles import counts_alone, total_count
from tests.spatial.streams import KINDS, SQUARE, advanced, batches, compare, make, noises, reference

#: ``total_share`` of each, where none is given.
DEFAULTS = {PHDStream: 0.05, AdaptivePHDStream: 0.0}
both = pytest.mark.parametrize("kind", KINDS)


def counted(kind: Any = PHDStream, domain: Box = SQUARE, epsilon: float = 2.0, **options: Any) -> Any:
    return make(kind, domain, epsilon, **{"max_depth": 5, "total_share": 0.05, **options})


@pytest.mark.parametrize(("dim", "fan_out", "share"), [(1, 2, 0.05), (2, 3, 0.5)])
def test_phdstream_equals_the_naive_version(dim: int, fan_out: int, share: float) -> None:
    domain = Box([0.0] * dim, [1.0] * dim)
    stream = counted(domain=domain, fan_out=fan_out, max_depth=4, total_share=share, retention=2)
    naive, steps = reference(stream, total_count.Stream), batches(18, dim, 11 + dim, size=8)
    noise = noises(stream, steps)
    # Block, of which an event enters two sums.
    counter = total_count.Total(noise["total"], 2 / (Fraction(share) * 2))
    naive.follow(counter, total_count.laplace_variance(1 / (Fraction(3, 5) * Fraction(1 - share) * 2)))
    for added, removed in steps:
        stream.advance(added, removed)
        compare(stream, naive.step(added.tolist(), removed.tolist(), noise["split"], noise["cell"]))
    assert stream._state.total.released == counter.counter.g


@pytest.mark.parametrize("options", [{"period": 1}, {"max_period": 4}, {"period": 2, "shrink": False}])
def test_adaptive_phdstream_equals_the_naive_version(options: dict[str, Any]) -> None:
    """And so it goes on from bytes, also between two counts."""
    stream = again = counted(AdaptivePHDStream, **options)
    counting, steps = stream._machine.counting, batches(19, 2, 3, size=12)
    followed = counting.noise, counting.first, stream.shrink, stream.period, stream.max_period
    naive, noise = counts_alone.Follower(reference(stream), *followed), noises(stream, steps)
    naive.total_counter = total_count.Total(noise["total"], 2 / (Fraction(0.05) * 2))
    for t, (added, removed) in enumerate(steps):
        again.advance(added, removed)
        batch = added.tolist(), removed.tolist()
        expected = naive.step(*batch, noise["later"]) if t else naive.begin(*batch, noise["split"], noise["cell"])
        compare(again, expected)
        again = AdaptivePHDStream.from_bytes(again.to_bytes())
        compare(again, expected)
    assert naive.total_counter.times == again._state.total.steps > 4
    assert (again.total_share, again.guarantee) == (0.05, stream.guarantee)


@both
def test_every_event_is_counted_once(kind: Any) -> None:
    """Without noise to speak of the total has all events that were counted."""
    stream, steps = counted(kind, epsilon=2000.0), batches(40, 2, 6)
    for number, (added, removed) in enumerate(steps, 1):
        stream.advance(added, removed)
        last = getattr(stream._state, "last_count", number)
        assert stream._state.total.released == sum(len(more) - len(less) for more, less in steps[:last])


@both
def test_a_state_that_no_step_leaves_is_refused(kind: Any) -> None:
    stream = advanced(counted(kind), batches(3, 2, 4, size=6))
    machine = stream._machine
    packed = machine.pack(stream._state)
    machine.unpack(packed, stream._key)
    total = packed["state"]["total"]
    row = {"shape": [1, 1], "data": total["row"]["data"]}
    for change in ({"released": 2**63}, {"steps": total["steps"] + 1}, {"row": row}, None):
        wrong = None if change is None else {**total, **change}
        with pytest.raises((ValueError, LookupError, TypeError)):
            machine.unpack({**packed, "state": {**packed["state"], "total": wrong}}, stream._key)


@both
@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 7.0])
def test_the_parts_make_up_epsilon(kind: Any, epsilon: float) -> None:
    for share in (0.01, 0.05, 1 / 3, 0.5):
        guarantee = counted(kind, epsilon=epsilon, total_share=share).guarantee
        assert epsilon * (1 - 1e-15) <= guarantee.epsilon <= epsilon
        assert sum("count of the whole" in step for step in guarantee.derivation) == 1
    plain = counted(kind, epsilon=epsilon, total_share=0.0).guarantee
    assert not any("whole (" in step for step in plain.derivation)
    default = counted(kind, epsilon=epsilon, total_share=DEFAULTS[kind]).guarantee
    assert default == kind(SQUARE, epsilon, max_depth=5, seed=5).guarantee


@both
def test_noise_scales_are_those_of_the_guarantee(kind: Any) -> None:
    stream = counted(kind, epsilon=1.0, total_share=0.25, sensitivity=2)
    plan, machine = stream._plan, stream._machine
    assert machine.total.distribution == sampler.laplace_distribution(Fraction(2 * 2, 1) / Fraction(0.25))
    spent = 2 * (plan.epsilon_tree + plan.epsilon_count + machine.total.epsilon)
    assert 1 - 1e-15 < float(spent) <= 1
    assert spent <= 1
    if kind is AdaptivePHDStream:
        assert machine.counting.distribution == sampler.laplace_distribution(Fraction(2) / Fraction(0.75))


@both
def test_the_share_is_part_of_the_composition(kind: Any) -> None:
    """Different shares, different noise; one of them is the default."""
    [batch] = batches(1, 2, 4)
    streams = {share: counted(kind, total_share=share) for share in (0.06, 0.05, 0.0)}
    assert len({stream._key.reveal() for stream in streams.values()}) == 3
    default = kind(SQUARE, 2.0, max_depth=5, seed=5)
    assert np.array_equal(default.step(*batch), streams[DEFAULTS[kind]].step(*batch))


@pytest.mark.parametrize(("epsilon", "share"), [(1e-9, 1e-9), (0.1, 5e-324)])
def test_a_share_of_next_to_nothing_is_refused(epsilon: float, share: float) -> None:
    with pytest.raises(ParameterError, match="epsilon is too small"):
        TotalCounter.of_share(epsilon, 1, share)
