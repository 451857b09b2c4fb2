"""``fastdp.audit``: the bound is above the truth no more often than it says, and bad arguments are refused."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy import stats

import fastdp
from fastdp.auditing import events
from fastdp.auditing.events import fingerprint, grain
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from tests import stat


@dataclass(frozen=True)
class RandomizedResponse:
    """One bit, told truly with probability e^epsilon / (1 + e^epsilon): the loss is epsilon, exactly."""

    epsilon: float

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(epsilon=self.epsilon)

    def draw_trials(self, data: int, trials: int, key: Key) -> np.ndarray:
        generator = np.random.default_rng(int.from_bytes(key.reveal(), "big"))
        return (generator.random(trials) < 1 / (1 + math.exp(-self.epsilon))) == bool(data)


@dataclass(frozen=True)
class Count:
    """A count with discrete Laplace noise of scale 1."""

    guarantee: ClassVar[Guarantee] = Guarantee(epsilon=1.0)

    def draw_trials(self, data: int, trials: int, key: Key) -> np.ndarray:
        return data + sampler.draws(trials, sampler.laplace_distribution(1), key, StreamId(Purpose.DRAWS))


def test_the_bound_is_above_the_truth_no_more_often_than_it_says() -> None:
    """And a bound from the frequencies themselves is, half of the time: the interval is what makes the difference."""
    audits, confidence, truth = 300, 0.9, 0.5
    above = naive = 0
    for i in range(audits):
        result = fastdp.audit(
            RandomizedResponse(truth), 1, 0, trials=400, confidence=confidence, seed=f"{stat.seed(303)} {i}"
        )
        above += result.epsilon_lower > truth
        first, second = sorted((result.hits, result.hits_adjacent), reverse=True)
        naive += math.log(first / second) > truth
    stat.accept(stats.binom.sf(above - 1, audits, 1 - confidence))
    stat.reject(stats.binom.sf(naive - 1, audits, 1 - confidence))


@dataclass(frozen=True)
class Dice:
    """The same throw of many-sided dice whatever the data: the loss is 0, and chance offers many events."""

    sides: int

    def draw_trials(self, data: int, trials: int, key: Key) -> np.ndarray:
        del data
        generator = np.random.default_rng(int.from_bytes(key.reveal(), "big"))
        return generator.integers(0, self.sides, trials)

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(epsilon=0.0)


@pytest.mark.statistical
def test_choosing_among_many_events_costs_no_confidence() -> None:
    """And it would, were the chosen event counted in the runs that chose it."""
    audits, confidence, sides, runs = 100, 0.9, 1_000, 16_000
    generator = np.random.default_rng(stat.seed(304))
    above = naive = 0
    for i in range(audits):
        result = fastdp.audit(Dice(sides), 0, 1, trials=runs, confidence=confidence, seed=f"{stat.seed(306)} {i}")
        above += result.epsilon_lower > 0.0
        hits = generator.binomial(runs // 4, 1 / sides, (2, sides))
        naive += events.epsilon_at_least(hits[0], hits[1], runs // 4, 1 - confidence).max() > 0.0
    stat.accept(stats.binom.sf(above - 1, audits, 1 - confidence))
    stat.reject(stats.binom.sf(naive - 1, audits, 1 - confidence))


def test_the_counted_events_share_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, float]] = []

    def bounds(hits: np.ndarray, *given: float) -> np.ndarray:
        asked.append((hits.size, given[2]))
        return events.epsilon_at_least(hits, *given)

    monkeypatch.setattr("fastdp.auditing.run.epsilon_at_least", bounds)
    fastdp.audit(Count(), 0, 1, trials=10_000, confidence=0.9, seed=1)
    ((number, error),) = asked
    assert number > 1
    assert error == pytest.approx(0.1 / number)


def test_the_bound_comes_near_a_known_loss() -> None:
    result = fastdp.audit(Count(), 0, 1, trials=1_000_000, seed=stat.seed(305))
    assert 0.98 < result.epsilon_lower <= 1.0
    assert result.verdict == "consistent with the claim"
    text = str(result)
    assert "consistent with the claim" in text
    assert f"{result.epsilon_lower:.4f}" in text


def test_callables_get_a_generator_or_a_seed() -> None:
    def generated(data, generator):
        return data + generator.standard_exponential()

    def seeded(data, seed):
        assert isinstance(seed, int)
        return [data + np.random.default_rng(seed).standard_exponential(), 1.0]

    for mechanism in (generated, seeded):
        result = fastdp.audit(mechanism, 0.0, 1.0, trials=4_000, epsilon=1.0, seed=1)
        assert result.violated, "one-sided noise: below the value nothing is possible"
    unclaimed = fastdp.audit(generated, 0.0, 1.0, trials=4_000, seed=1)
    assert unclaimed.verdict == "no claim to check"
    assert not unclaimed.violated


def test_delta_is_taken_off() -> None:
    """Everything is revealed with probability 0.1: unbounded at delta = 0, and no more than nothing at 0.2."""

    def mostly_nothing(data, generator):
        return data if generator.random() < 0.1 else 7

    for delta, found in ((0.0, True), (0.05, True), (0.2, False)):
        result = fastdp.audit(mostly_nothing, 0, 1, trials=8_000, epsilon=1.0, delta=delta, seed=3)
        assert result.violated == found
    assert result.epsilon_lower == 0.0


def test_events_of_ones_own() -> None:
    """A parity that no threshold sees."""

    def parity(outputs: np.ndarray) -> np.ndarray:
        return outputs[:, 0] % 2

    def hidden(data, generator):
        return 2 * generator.integers(10**9) + data

    result = fastdp.audit(hidden, 0, 1, trials=2_000, epsilon=1.0, events=parity, seed=5)
    assert result.violated
    assert result.event.startswith("parity")
    assert not fastdp.audit(hidden, 0, 1, trials=2_000, epsilon=1.0, seed=5).violated


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanism": Guarantee}, "mechanism = .*: expected a callable"),
        ({"trials": 99}, "trials = 99: expected a whole number of at least 100"),
        ({"events": []}, r"events = <list>: expected 'auto' or callables"),
        ({"events": lambda outputs: outputs}, "events: a callable gave shape .* expected one number for each"),
        ({"mechanism": lambda data, _: [0] * (1 + data)}, "x_adjacent: the mechanism gives 2 numbers on it"),
        ({"mechanism": lambda _, g: [0] * int(g.integers(1, 9))}, "expected as many in every run"),
        ({"mechanism": lambda *_: None}, "mechanism gave a NoneType: expected a number"),
        ({"mechanism": lambda *_: [[1], [1, 2]]}, "mechanism gave"),
        ({"mechanism": lambda *_: math.nan}, "mechanism gave NaN or infinity"),
        ({"mechanism": lambda *_: [0] * 1025}, "mechanism gave 1025 numbers: expected at most 1024"),
    ],
)
def test_what_cannot_be_audited_is_refused(change: dict, message: str) -> None:
    arguments = {"mechanism": lambda data, generator: 0, "trials": 200, **change}
    with pytest.raises((ParameterError, DataError), match=message):
        fastdp.audit(arguments.pop("mechanism"), 0, 1, **arguments)


@pytest.mark.parametrize(("hits", "runs"), [(0, 50), (1, 50), (17, 1000), (999, 1000), (1000, 1000)])
@pytest.mark.parametrize("alpha", [0.1, 1e-9])
def test_the_ends_of_an_interval_are_those_of_clopper_and_pearson(hits: int, runs: int, alpha: float) -> None:
    """At the lower end so many hits or more have probability alpha, at the upper end so many or fewer."""
    low, high = (end(np.array([hits]), runs, alpha)[0] for end in (events.at_least, events.at_most))
    assert 0.0 <= low <= hits / runs <= high <= 1.0
    if hits:
        assert stats.binom.sf(hits - 1, runs, low) == pytest.approx(alpha, rel=1e-6)
    if hits < runs:
        assert stats.binom.cdf(hits, runs, high) == pytest.approx(alpha, rel=1e-6)
    both = events.epsilon_at_least(np.array([runs - 1]), np.array([hits]), runs, alpha)[0]
    first, second = (np.array([runs - 1]), np.array([hits]))
    assert both == pytest.approx(
        math.log(events.at_least(first, runs, alpha / 2)[0] / events.at_most(second, runs, alpha / 2)[0])
    )


@dataclass(frozen=True)
class Leaking:
    """A right count, but that the secret leaves with probability p, as a value that nothing else can give."""

    probability: float

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(epsilon=1.0)

    def draw_trials(self, data: int, trials: int, key: Key) -> np.ndarray:
        counts = Count().draw_trials(data, trials, key)
        generator = np.random.default_rng(int.from_bytes(key.derive("leak").reveal(), "big"))
        counts[generator.random(trials) < self.probability] = 1000 + data
        return counts


@pytest.mark.statistical
def test_a_rare_leak_is_found_by_what_it_promises() -> None:
    """Six times or so among the runs that choose: a low bound there, and a high one on those that count."""
    result = fastdp.audit(Leaking(6e-5), 0, 1, trials=2_000_000, seed=stat.seed(310))
    assert result.violated
    assert "100" in result.event
    assert not fastdp.audit(Leaking(0.0), 0, 1, trials=2_000_000, seed=stat.seed(310)).violated


def test_runs_that_change_their_data_change_a_copy() -> None:
    """The true loss is 1 / 20; data that went on from run to run would look like none, or like much."""

    def in_place(data, generator):
        data += np.rint(generator.laplace(0, 20.0, data.shape))
        return data

    for seed in range(4):
        assert not fastdp.audit(in_place, np.zeros(1), np.ones(1), trials=8_000, epsilon=0.2, seed=seed).violated
    exposed = fastdp.audit(in_place, np.zeros(1), np.full(1, 500.0), trials=2_000, epsilon=1.0, seed=1)
    assert exposed.violated
    with pytest.raises(ParameterError, match="expected data that can be copied"):
        fastdp.audit(in_place, threading.Lock(), np.ones(1), trials=200)


def test_whole_numbers_that_doubles_cannot_hold_are_refused() -> None:
    def low_bits(data, generator):
        del generator
        return np.int64(2**60) + np.int64(data)

    class AtOnce:
        def draw_trials(self, data, trials, key):
            return np.full(trials, -(2**60) + data)

    for mechanism in (low_bits, AtOnce()):
        with pytest.raises(DataError, match=r"whole numbers beyond 2\^53"):
            fastdp.audit(mechanism, 0, 1, trials=200, epsilon=0.1)


def test_a_factory_that_ignores_its_seed_is_reported() -> None:
    right = fastdp.auditing.Publishing(lambda seed: fastdp.StreamPublisher(**FLAT, seed=seed))
    wrong = fastdp.auditing.Publishing(lambda seed: fastdp.StreamPublisher(**FLAT, seed=1))
    with pytest.warns(UserWarning, match="one output for each input .* different seeds"):
        fastdp.audit(wrong, [1.0, 0.0], [0.0, 0.0], trials=100)
    fastdp.audit(right, [1.0, 0.0], [0.0, 0.0], trials=100)


FLAT = {
    "threshold": fastdp.thresholds.Fixed(1.0),
    "perturber": fastdp.perturbers.Flat(),
    "epsilon": 1.0,
    "bound": 1.0,
    "max_range": 4,
}


def test_a_publisher_is_audited_under_its_own_guarantee() -> None:
    mechanism = fastdp.auditing.Publishing(lambda seed: fastdp.PAK(2.0, 1e-3, 4.0, 8, holdout=4, seed=seed))
    result = fastdp.audit(mechanism, [0, 0, 4, 4, 0, 0], [0, 0, 0, 4, 0, 0], trials=100, seed=2)
    assert (result.epsilon, result.delta) == (2.0, mechanism.guarantee.delta)
    assert result.delta > 0.0


def test_grain_and_fingerprint() -> None:
    numbers = np.array([1.0, 0.75, 3 * 2.0**-1074, -6.0, 0.0, 2.0**-1000, 2.0**60 + 2.0**8])
    assert grain(numbers).tolist() == [0, -2, -1074, 1, 1024, -1000, 8]
    rows = np.random.default_rng(1).integers(0, 3, (1000, 4)).astype(float)
    assert np.unique(fingerprint(rows)).size == np.unique(rows, axis=0).shape[0]
    assert fingerprint(np.array([[0.0, 1.0]])) == fingerprint(np.array([[-0.0, 1.0]]))


def test_an_event_of_ones_own_is_counted_whatever_else_is_found() -> None:
    def leaked(outputs: np.ndarray) -> np.ndarray:
        return (outputs[:, 0] >= 1000).astype(float) * (outputs[:, 0] - 998)

    found = fastdp.audit(Leaking(1e-2), 0, 1, trials=40_000, events=leaked, seed=stat.seed(311))
    assert found.violated
    # What was found can be counted again, in outputs of one's own.
    fresh = Leaking(1e-2).draw_trials(1 if found.swapped else 0, 40_000, Key.from_seed(7))
    assert found.chosen is not None
    assert 300 < found.chosen.count(fresh.reshape(-1, 1).astype(float)) < 500
