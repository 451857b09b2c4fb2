"""Counters: equal to the paper's on the same noise, their errors, and selective counting over them."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from fastdp.counters import BinaryTree, Block, RunningCounts, SelectiveCounting, Simple, event_guarantee
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from tests import stat
from tests.noise_values import unbound_key
from tests.oracles import phdstream as oracle

PAIRS = [
    (Simple(), oracle.SimpleCounter),
    *((Block(size), lambda size=size: oracle.BlockCounter(size)) for size in (1, 2, 3, 8)),
    *((BinaryTree(t), lambda t=t: oracle.BinaryTreeCounter(t)) for t in (1, 2, 3, 4, 7, 8, 100)),
]


@pytest.mark.parametrize(("counter", "naive"), PAIRS)
def test_equals_the_papers_counter(counter, naive) -> None:
    generator = np.random.default_rng(1)
    values, noise = generator.integers(-5, 50, (37, 4)), generator.integers(-20, 20, (37, 4))
    state = np.zeros((4, counter.width), np.int64)
    references = [naive() for _ in range(4)]
    released = np.zeros(4, np.int64)
    for value, drawn in zip(values, noise, strict=True):
        released += value + counter.step(state, drawn)
        expected = [c(int(v), int(n)) for c, v, n in zip(references, value, drawn, strict=True)]
        assert released.tolist() == expected


@pytest.mark.parametrize("counter", [counter for counter, _ in PAIRS])
def test_one_event_costs_epsilon_over_the_whole_sequence(counter) -> None:
    """The exact loss: by how much the draws must shift so that no release shows that one value grew by one."""
    horizon = 60
    state = np.zeros((1, counter.width), np.int64)
    error, holds = 0, []
    for t in range(horizon):
        # Draw t is 2^t: the digits of the error tell which draws the release holds.
        error += int(counter.step(state, np.array([1 << t]))[0])
        holds.append({i for i in range(t + 1) if error >> i & 1})
        assert t in holds[t]
    costs = []
    for value in range(horizon):
        shifts = [0] * horizon
        for t in range(value, horizon):
            shifts[t] = 1 - sum(shifts[i] for i in holds[t] if i != t)
        costs.append(sum(map(abs, shifts)))
    assert max(costs) <= counter.draws, "noise of scale draws / epsilon: each unit of shift costs epsilon / draws"
    assert max(costs) == counter.draws or counter == Block(1) or counter == BinaryTree(100)


@pytest.mark.parametrize(
    "counter", [Block(8, settles=True), BinaryTree(16, settles=True), BinaryTree(7, settles=True)]
)
def test_settling_is_within_epsilon_too(counter) -> None:
    """Wherever the sum is left: after each of these steps, or after some."""
    horizon = 40
    for leaving in ({5}, {1, 2, 3}, {7, 15}, {3, 8, 9, 14}):
        state = np.zeros((1, counter.width), np.int64)
        error, holds, draw, events = 0, [], 0, []
        for t in range(horizon):
            error += int(counter.step(state, np.array([1 << draw]))[0])
            events.append(len(holds))
            holds.append({i for i in range(draw + 1) if error >> i & 1})
            draw += 1
            if t in leaving and state[0, 0] > 0:
                error += int(counter.settle(state, np.array([1 << draw]))[0])
                holds.append({i for i in range(draw + 1) if error >> i & 1})
                draw += 1
                assert not state.any()
        costs = []
        for begin in events:
            shifts = [0] * draw
            for release in range(begin, draw):
                shifts[release] = 1 - sum(shifts[i] for i in holds[release] if i != release)
            costs.append(sum(map(abs, shifts)))
        assert max(costs) <= counter.draws


@pytest.mark.parametrize(
    ("counter", "steps", "draws"),
    [(Simple(), 9, 9), (Block(4), 9, 3), (Block(4), 12, 3), (BinaryTree(16), 11, 3), (BinaryTree(4), 11, 4)],
)
def test_the_distribution_of_the_error(counter, steps: int, draws: int) -> None:
    """After these steps the error is a sum of so many draws of scale draws / epsilon."""
    size, epsilon = 40_000, 0.8
    counts = RunningCounts(counter, epsilon, size, seed=stat.seed(71))
    for _ in range(steps):
        out = counts.step(np.ones(size, np.int64))
    errors = (out - steps).astype(float)
    q = math.exp(-epsilon / counter.draws)
    variance = draws * 2 * q / (1 - q) ** 2

    def p_value(expected: float) -> float:
        # The mean square of n errors; kurtosis of a sum of Laplace draws: 3 + 3 / draws.
        spread = expected * math.sqrt((2 + 3 / draws) / size)
        return math.erfc(abs(np.mean(errors**2) - expected) / spread / math.sqrt(2))

    stat.accept(p_value(variance))
    stat.reject(p_value(variance * 1.21))


def test_only_active_sums_count() -> None:
    counts = RunningCounts(Block(2), 1.0, 3, seed=1)
    counts.step([1, 2, 3])
    before, state = counts.released, counts._state
    rows = state.rows.copy()
    counts.step([5], np.array([1]))
    assert np.array_equal(state.rows, rows), "a step leaves the state before it"
    assert np.array_equal(counts.released[[0, 2]], before[[0, 2]])
    assert counts._state.rows[:, 0].tolist() == [1, 0, 1]
    assert counts.n_steps == 2


def test_bad_values_are_refused() -> None:
    for wrong in ([1, 2], [1, 2, 0.5], [1, 2, np.nan], [1, 2, 2.0**41], "abc"):
        counts, reference = RunningCounts(Simple(), 1.0, 3, seed=1), RunningCounts(Simple(), 1.0, 3, seed=1)
        with pytest.raises(DataError, match="values"):
            counts.step(wrong)
        assert np.array_equal(counts.step([1, 2, 3]), reference.step([1, 2, 3]))
    for active in ([0, 0], [-1], [5], [0.5], [[0]]):
        with pytest.raises(DataError, match=r"^active"):
            counts.step([1] * len(active), active)
    assert counts.n_steps == 1


class Parity:
    """Randomised response to whether the value is even: epsilon 0.5."""

    def __init__(self, key: Key) -> None:
        self.key, self.seen = key, []

    @property
    def guarantee(self) -> Guarantee:
        return event_guarantee(0.5, "randomised response on parity")

    def select(self, values, step, last) -> int:
        self.seen.append(last)
        noise = np.empty(1, np.int64)
        distribution = sampler.laplace_distribution(Fraction(2))
        sampler.fill(noise, distribution, self.key, StreamId(Purpose.SPLIT, number=step))
        return int(values[0] % 2 + noise[0] > 0)


def test_selective_counting_is_algorithm_4() -> None:
    counters = Simple(), Block(3)
    counting = SelectiveCounting(counters, Parity(Key.from_seed(2)), 1.0, dimension=2, seed=3)
    keys = [counting._key.again().derive("counter", i) for i in range(2)]
    alone = [RunningCounts(counter, 1.0, 2, key=key) for counter, key in zip(counters, keys, strict=True)]
    releases = [counting.step([value, 10 * value]) for value in range(40)]
    assert {release.counter for release in releases} == {0, 1}
    for value, release in enumerate(releases):
        assert np.array_equal(alone[release.counter].step([value, 10 * value]), release.counts)
    assert (counting.selector.seen, counting.n_steps) == ([None, *releases[:-1]], 40)
    assert (counting.guarantee.epsilon, counting.guarantee.simulated) == (1.5, True)
    [line] = [line for line in counting.guarantee.derivation if "randomised response" in line]
    assert line.startswith("selector (epsilon = ")


def test_an_event_moves_the_sums_of_one_counter() -> None:
    """Given the choices and all noise, one event adds 1 to one number of one counter's releases, from its time on.

    Noise is bound to what was counted, so for the comparison it is a table's.
    """
    event, counters = 7, (Simple(), Block(3), BinaryTree(8))
    twins = [SelectiveCounting(counters, Alternating(), 1.0, dimension=2, key=unbound_key(3)) for _ in range(2)]
    for step in range(24):
        one, other = (twin.step([step, 5 + (step == event and changed)]) for changed, twin in enumerate(twins))
        assert one.counter == other.counter == step % 2
        contains = one.counter == event % 2 and step >= event
        assert (other.counts - one.counts).tolist() == [0, int(contains)]


class Alternating:
    """Public turns; it also tries to change what is counted."""

    guarantee = event_guarantee(0.0, "selector: public turns")

    def __init__(self, choice: object = None) -> None:
        self.choice = choice

    def select(self, values, step, last):
        values[:] = 1000
        return step % 2 if self.choice is None else self.choice


def test_selectors_are_not_trusted() -> None:
    for wrong in (2, -1, 0.5, "0", True):
        counting = SelectiveCounting([Simple(), Simple()], Alternating(wrong), 50.0, seed=1)
        with pytest.raises(ParameterError, match="selector chose no counter"):
            counting.step(5)
        assert counting.n_steps == 0
