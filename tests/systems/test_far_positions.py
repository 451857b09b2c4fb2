"""Far out in a stream no word comes again: every index that noise depends on, driven past 8, 10, 16 and 32 bits.

Publishers are put there, not run there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.counters import BinaryTree, RunningCounts, Simple
from fastdp.errors import ParameterError, StateError
from fastdp.local import Hybrid, Piecewise, SquareWave, client_words
from fastdp.randomness.key import Key
from fastdp.spatial import Box
from fastdp.systems import AdaptivePHDStream, PHDStream
from tests.drawn import FAR, FARTHEST, record

SQUARE = Box([0.0, 0.0], [1.0, 1.0])
POINTS = np.random.default_rng(1).random((40, 2))


def test_the_record_sees_a_word_that_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    for starts, again in (((0, 3), False), ((0, 2), True)):
        with record(monkeypatch) as drawn:
            for start in starts:
                Piecewise(1.0).perturb(np.full(3, 0.5), seed=1, start=start)
        assert (drawn.count, drawn.repeated) == (6, again)


def test_steps_of_running_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = RunningCounts(Simple(), 1e-3, size=8, seed=1)
    released = set()
    with record(monkeypatch) as drawn:
        for step in FARTHEST:
            counts._state = (step, *counts.start()[1:])
            released.add(tuple(counts.step(np.zeros(8, np.int64)).tolist()))
    assert len(released) == len(FARTHEST)
    assert drawn.count == 8 * len(FARTHEST)
    assert not drawn.repeated
    with pytest.raises(StateError, match="2\\^40"):
        counts.step(np.zeros(8, np.int64))


@pytest.mark.parametrize("counter", [Simple(), BinaryTree(4, settles=True)])
def test_steps_of_phdstream(monkeypatch: pytest.MonkeyPatch, counter) -> None:
    """Split decisions, counts, and what settles: words of its own for each step."""
    stream = PHDStream(SQUARE, 0.5, counter, max_depth=4, threshold=1.0, seed=1)
    with record(monkeypatch) as drawn:
        for step in FARTHEST:
            stream._state = replace(stream._state, n_steps=step)
            stream.advance(POINTS, POINTS[:30] if step else None)
    assert len(drawn.ranges) >= 2 * len(FARTHEST)
    assert not drawn.repeated
    with pytest.raises(StateError, match="2\\^40"):
        stream.advance(POINTS)


@pytest.mark.parametrize("anew", [False, True])
def test_steps_of_adaptive_phdstream(monkeypatch: pytest.MonkeyPatch, anew: bool) -> None:
    """Counts in cells that past releases chose, and in cells that are planted anew."""
    stream = AdaptivePHDStream(SQUARE, 0.5, max_depth=4, period=1, seed=1)
    with record(monkeypatch) as drawn:
        stream.advance(POINTS)
        for step in FARTHEST[1:]:
            stream._state = replace(stream._state, n_steps=step, counted=step, anew=anew)
            stream.advance(POINTS, POINTS[:30])
    assert len(drawn.ranges) >= (1 + anew) * len(FARTHEST)
    assert not drawn.repeated


@pytest.mark.parametrize("mechanism", [SquareWave(2.0), Hybrid(2.0)])
def test_streams_and_starts_of_reports(monkeypatch: pytest.MonkeyPatch, mechanism) -> None:
    values, options = np.full(100, 0.5), {"key": bytes(range(32))}
    ends = [100 * far for far in FAR if far < 2**26]
    with record(monkeypatch) as drawn:
        one = [mechanism.perturb(values, stream=stream, start=0, **options) for stream in FARTHEST]
        two = [mechanism.perturb(values, stream=7, start=start, **options) for start in (*ends, 2**32, 2**33 - 100)]
    assert len({tuple(reports.tolist()) for reports in one + two}) == len(one + two)
    assert not drawn.repeated


def test_thresholds_and_values_of_reports_have_words_of_their_own() -> None:
    """Both begin at word 0 of a key's stream 0."""
    assert {SquareWave.WORDS, Hybrid.WORDS} == {0, 1}
    words = [client_words.Source(None, bytes(32), level, 0, 0).few(4) for level in (0, 1)]
    assert words[0] != words[1]


def test_numbers_of_streams_under_one_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    secret, released = Key.from_seed(1), set()
    with record(monkeypatch) as drawn:
        for number in (*FAR[:-2], 2**32 - 2):
            counts = RunningCounts(Simple(), 1e-3, size=8, key=secret.of_stream(number))
            released.add(tuple(counts.step(np.zeros(8, np.int64)).tolist()))
    assert len(released) == len(FAR) - 1
    assert not drawn.repeated


def test_streams_of_public_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    with record(monkeypatch) as drawn:
        draws = [fastdp.randomness.discrete_laplace(1e6, 8, stream=stream, seed=1) for stream in FARTHEST]
    assert len({tuple(row.tolist()) for row in draws}) == len(FARTHEST)
    assert not drawn.repeated


def test_counters_of_selective_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """300 counters, each at its first step: as many keys."""

    class Next:
        """Names one counter after the other."""

        guarantee = fastdp.counters.event_guarantee(1.0, "looks at nothing")

        def select(self, values: Any, step: int, last: Any) -> int:
            return step

    counting = fastdp.counters.SelectiveCounting([Simple()] * 300, Next(), 1e-3, seed=1)
    with record(monkeypatch) as drawn:
        released = [int(counting.step(0).counts[0]) for _ in range(300)]
    assert len(set(released)) > 250
    assert drawn.count == 300
    assert not drawn.repeated


@pytest.mark.parametrize(("fan_out", "deepest"), [(2, 62), (3, 39), (4, 31), (5, 26), (1024, 6)])
def test_codes_of_cells_end_at_62_bits(fan_out: int, deepest: int) -> None:
    cube = Box([0.0] * 3, [1.0] * 3)
    PHDStream(cube, 1.0, fan_out=fan_out, max_depth=deepest)
    with pytest.raises(ParameterError, match=r"^max_depth"):
        PHDStream(cube, 1.0, fan_out=fan_out, max_depth=deepest + 1)
