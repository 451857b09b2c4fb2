"""The audit: what is shipped is consistent, what is broken caught, the bound above the truth no more than it says."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fastdp
from fastdp.auditing import bounds, coupling_page, exact, page
from fastdp.auditing.catalogue import Case, audit_cases, choices
from fastdp.auditing.features import fingerprint, grain
from fastdp.auditing.inputs import attack
from fastdp.auditing.mechanisms import Count, SmoothQuantileTrials, SplitTrials, draw_noise
from fastdp.auditing.trials import draws_trials
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId, word_at
from fastdp.thresholds import PAKQuantile, SmoothQuantile
from fastdp.thresholds import noisy_max as noisy_max_rule
from fastdp.thresholds.base import ThresholdTask
from fastdp.thresholds.smooth_noise import calibrate
from fastdp_kernels import noisy_max
from tests import stat

SHIPPED = [case for case in audit_cases() if not case.broken]
BROKEN = [case for case in audit_cases() if case.broken]
#: What it takes, with room.
CATCHING = {
    "broken-log2-levels": 300_000,
    "broken-half-noisy-max-laplace": 300_000,
    "broken-half-hierarchy": 100_000,
    "broken-half-privtree": 100_000,
    "broken-half-counter-binary-settling": 100_000,
    "broken-half-tops-holdout": 100_000,
    "broken-half-tops-levels": 100_000,
    "broken-hierarchy-three-quarters": 100_000,
    "broken-papers-score": 300_000,
    "broken-trees-share": 300,
    "broken-withheld-mean": 300,
    "broken-recounted": 600,
}
#: What takes longer than a test may: on the page alone.
LONG = {
    *("broken-refined-free", "broken-one-event"),
    *(f"broken-half-tops-{name}" for name in ("withheld", "refined")),
    *(f"broken-half-pak-{name}" for name in ("tree", "lag-sums")),
    *(
        f"broken-half-phdstream-{name}"
        for name in ("two-events", "adaptive", "adaptive-two-events", "adaptive-planted")
    ),
    "broken-half-release-many",
}


def run(case: Case, runs: int, seed: int) -> fastdp.auditing.AuditResult:
    return fastdp.audit(
        case.mechanism,
        case.x,
        case.x_adjacent,
        trials=runs,
        events=case.events or "auto",
        confidence=1 - stat.ALPHA,
        seed=seed,
    )


@pytest.mark.parametrize("case", SHIPPED, ids=lambda case: case.name)
def test_what_is_shipped_is_consistent_with_its_claim(case: Case) -> None:
    fast = draws_trials(case.mechanism)
    result = run(case, 20_000 if fast else 400, stat.seed(301))
    assert result.epsilon is not None
    stat.accept(0.0 if result.violated else 1.0)
    assert result.verdict == ("claim violated" if result.violated else "consistent with the claim")


@pytest.mark.parametrize("case", [case for case in BROKEN if case.name not in LONG], ids=lambda case: case.name)
def test_what_is_broken_is_caught(case: Case) -> None:
    usual = 20_000 if draws_trials(case.mechanism) else 3_000
    result = run(case, CATCHING.get(case.name, usual), stat.seed(302))
    stat.reject(0.0 if result.violated else 1.0)


def test_the_page_is_of_these_mechanisms() -> None:
    text = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    names = {line.split(" | ")[0].lstrip("| ") for line in text.splitlines() if line.startswith("| ")}
    coupled = {case.name for case in coupling_page.coupling_cases()}
    assert (
        names - {"mechanism", "case", "---"}
        == {case.name for case in audit_cases()} | set(page.exact_losses(1)) | coupled
    )
    assert coupling_page.TEXT in text


def test_every_broken_twin_of_the_plan_is_there() -> None:
    assert len(BROKEN) >= 6
    assert {case.name for case in BROKEN} >= {
        f"broken-{name}"
        for name in (
            *("half-count", "theta-missing", "log2-levels", "papers-score", "piecewise-leak", "floating-point"),
        )
    }


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


def test_choosing_among_many_events_costs_no_confidence() -> None:
    """And it would, were the chosen event counted in the runs that chose it."""
    audits, confidence, sides, runs = 100, 0.9, 1_000, 16_000
    generator = np.random.default_rng(stat.seed(304))
    above = naive = 0
    for i in range(audits):
        result = fastdp.audit(Dice(sides), 0, 1, trials=runs, confidence=confidence, seed=f"{stat.seed(306)} {i}")
        above += result.epsilon_lower > 0.0
        hits = generator.binomial(runs // 4, 1 / sides, (2, sides))
        naive += bounds.epsilon_at_least(hits[0], hits[1], runs // 4, 1 - confidence).max() > 0.0
    stat.accept(stats.binom.sf(above - 1, audits, 1 - confidence))
    stat.reject(stats.binom.sf(naive - 1, audits, 1 - confidence))


def test_the_bound_comes_near_a_known_loss() -> None:
    result = fastdp.audit(Count(1.0), 0, 1, trials=1_000_000, seed=stat.seed(305))
    assert 0.98 < result.epsilon_lower <= 1.0
    assert result.as_dict()["verdict"] == "consistent with the claim"
    text = str(result)
    assert "consistent with the claim" in text
    assert f"{result.epsilon_lower:.4f}" in text


def test_the_same_seed_gives_the_same_audit_and_none_gives_another() -> None:
    def hits(seed: int | None) -> tuple[int, int]:
        result = fastdp.audit(Count(1.0), 0, 1, trials=5_000, seed=seed)
        return result.hits, result.hits_adjacent

    assert hits(3) == hits(3)
    assert len({hits(None) for _ in range(4)}) > 1


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


def test_a_publisher_is_audited_under_its_own_guarantee() -> None:
    mechanism = fastdp.auditing.Publishing(lambda seed: fastdp.PAK(2.0, 1e-3, 4.0, 8, holdout=4, seed=seed))
    result = fastdp.audit(mechanism, [0, 0, 4, 4, 0, 0], [0, 0, 0, 4, 0, 0], trials=100, seed=2)
    assert (result.epsilon, result.delta) == (2.0, mechanism.guarantee.delta)
    assert result.delta > 0.0


def test_draws_at_once_need_no_guarantee() -> None:
    class Bare:
        def draw_trials(self, data, trials, key):
            return np.full((trials, 1), data)

    assert fastdp.audit(Bare(), 0, 1, trials=1_000, epsilon=1.0).violated

    class Short(Bare):
        def draw_trials(self, data, trials, key):
            return np.zeros(trials - 1)

    with pytest.raises(DataError, match="draw_trials gave shape"):
        fastdp.audit(Short(), 0, 1, trials=1_000, epsilon=1.0)


def test_delta_is_taken_off() -> None:
    """Everything is revealed with probability 0.1: unbounded at delta = 0, and no more than nothing at 0.2."""

    def mostly_nothing(data, generator):
        return data if generator.random() < 0.1 else 7

    for delta, found in ((0.0, True), (0.05, True), (0.2, False)):
        result = fastdp.audit(mostly_nothing, 0, 1, trials=8_000, epsilon=1.0, delta=delta, seed=3)
        assert result.violated == found
    assert result.epsilon_lower == 0.0


def test_equal_inputs_and_constant_outputs_tell_nothing() -> None:
    assert fastdp.audit(Count(1.0), 0, 0, trials=20_000, seed=4).epsilon_lower < 0.2
    assert fastdp.audit(lambda data, generator: 5, 0, 1, trials=500, seed=4).epsilon_lower == 0.0
    assert fastdp.audit(lambda data, generator: data, 0, 1, trials=500, epsilon=1.0, seed=4).violated


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


def test_grain_and_fingerprint() -> None:
    numbers = np.array([1.0, 0.75, 3 * 2.0**-1074, -6.0, 0.0, 2.0**-1000, 2.0**60 + 2.0**8])
    assert grain(numbers).tolist() == [0, -2, -1074, 1, 1024, -1000, 8]
    rows = np.random.default_rng(1).integers(0, 3, (1000, 4)).astype(float)
    assert np.unique(fingerprint(rows)).size == np.unique(rows, axis=0).shape[0]
    assert fingerprint(np.array([[0.0, 1.0]])) == fingerprint(np.array([[-0.0, 1.0]]))


@pytest.mark.parametrize(
    "rule", [SmoothQuantile(p=0.5, delta=1e-3), PAKQuantile(p=0.5, beta=0.4, delta=1e-3)], ids=["smooth", "pak"]
)
def test_thetas_of_many_words_are_those_of_the_rule(rule) -> None:
    """The one vectorised twin: the same words through the rule itself, up to one cell."""
    task = ThresholdTask(epsilon=1.0, bound=1024.0, holdout=8, max_range=1024, resolution=2.0**-24)
    data = [3.0, 900.0, 17.0, 500.5, 500.25, 600.0, 2.0, 1000.0]
    keys = [Key.from_seed(seed) for seed in range(300)]
    chooser = rule.start(task)
    chooser.observe(np.array(data))
    expected = [chooser.copy().choose(key) for key in keys]
    words = np.array([word_at(key, StreamId(Purpose.THRESHOLD), 0) for key in keys], np.uint64)
    found = SmoothQuantileTrials(rule, task).thetas(data, words)
    assert np.abs(found - expected).max() <= 2 * 1024.0 / 2**24
    assert np.unique(found).size > 20


@pytest.mark.parametrize("law", [SquareWave, StochasticRounding, Piecewise, Hybrid])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_exact_loss_of_reports(law, epsilon: float) -> None:
    loss = exact.local_report_loss(law(epsilon))
    assert epsilon * (1 - 1e-9) < loss.worst <= epsilon
    assert not loss.violated


@pytest.mark.parametrize("name", ["noisy-max-laplace", "noisy-max-exponential", "scale-free-laplace"])
def test_exact_loss_of_noisy_max(name: str) -> None:
    rule = choices(0.7)[name]
    loss = exact.noisy_max_loss(rule)
    assert 0.9 * 0.7 < loss.worst <= 0.7
    assert not loss.violated
    halved = exact.noisy_max_loss(rule, noise_factor=0.5)
    assert halved.violated
    assert halved.worst > 1.8 * 0.7


def test_exact_loss_of_a_step() -> None:
    data = attack(12, 1.0)
    assert not exact.split_loss(SplitTrials(1.0, 12), data, 300, Key.from_seed(1)).violated
    assert exact.split_loss(SplitTrials(1.0, 12, repaired=False), data, 300, Key.from_seed(1)).violated


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanism": 3}, "mechanism = 3: expected a callable"),
        ({"mechanism": Count}, "mechanism = .*: expected a callable"),
        ({"trials": 99}, "trials = 99: expected a whole number of at least 100"),
        ({"trials": 1e3}, "trials = 1000.0"),
        ({"epsilon": -1.0}, "epsilon = -1.0: expected a number of at least 0"),
        ({"epsilon": "1"}, "epsilon = '1': expected a real number"),
        ({"delta": 1.0}, "delta = 1.0: expected a number of at least 0 and below 1"),
        ({"confidence": 1.0}, "confidence = 1.0: expected a number of at least 0.5 and below 1"),
        ({"confidence": 0.4}, "confidence = 0.4"),
        ({"events": "all"}, "events = 'all': expected one of 'auto'"),
        ({"events": []}, r"events = \[\]: expected 'auto' or callables"),
        ({"events": 3}, "events = 3: expected 'auto' or callables"),
        ({"events": lambda outputs: outputs}, "events: a callable gave shape .* expected one number for each"),
        ({"seed": -1}, "seed = -1"),
        ({"mechanism": lambda data, generator: [0] * (1 + data)}, "x_adjacent: the mechanism gives 2 numbers on it"),
    ],
)
def test_bad_parameters(change: dict, message: str) -> None:
    arguments = {"mechanism": lambda data, generator: 0, "trials": 200, **change}
    with pytest.raises(ParameterError, match=message):
        fastdp.audit(arguments.pop("mechanism"), 0, 1, **arguments)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "mechanism gave a NoneType: expected a number"),
        ("a", "mechanism gave a str"),
        ([], "mechanism gave a list"),
        ([[1], [1, 2]], "mechanism gave"),
        (math.nan, "mechanism gave NaN or infinity"),
        ([0] * 1025, "mechanism gave 1025 numbers: expected at most 1024"),
    ],
)
def test_bad_outputs(output, message: str) -> None:
    with pytest.raises(DataError, match=message):
        fastdp.audit(lambda data, generator: output, 0, 1, trials=200)


def test_outputs_of_changing_length() -> None:
    with pytest.raises(DataError, match="expected as many in every run"):
        fastdp.audit(lambda data, generator: [0] * int(generator.integers(1, 9)), 0, 1, trials=200)


def test_a_factory_is_a_callable() -> None:
    with pytest.raises(ParameterError, match="factory = 3: expected a callable that takes a seed"):
        fastdp.auditing.Publishing(3)


@pytest.mark.parametrize(("hits", "runs"), [(0, 50), (1, 50), (17, 1000), (999, 1000), (1000, 1000)])
@pytest.mark.parametrize("alpha", [0.1, 1e-9])
def test_the_ends_of_an_interval_are_those_of_clopper_and_pearson(hits: int, runs: int, alpha: float) -> None:
    """At the lower end so many hits or more have probability alpha, at the upper end so many or fewer."""
    low, high = (end(np.array([hits]), runs, alpha)[0] for end in (bounds.at_least, bounds.at_most))
    assert 0.0 <= low <= hits / runs <= high <= 1.0
    if hits:
        assert stats.binom.sf(hits - 1, runs, low) == pytest.approx(alpha, rel=1e-6)
    if hits < runs:
        assert stats.binom.cdf(hits, runs, high) == pytest.approx(alpha, rel=1e-6)
    both = bounds.epsilon_at_least(np.array([runs - 1]), np.array([hits]), runs, alpha)[0]
    first, second = (np.array([runs - 1]), np.array([hits]))
    assert both == pytest.approx(
        math.log(bounds.at_least(first, runs, alpha / 2)[0] / bounds.at_most(second, runs, alpha / 2)[0])
    )


@pytest.mark.parametrize("one_sided", [False, True])
def test_exact_winners_are_those_of_the_kernel(one_sided: bool) -> None:
    """Ties, which are frequent at this scale, included: they go to the lowest index."""
    counts, unit, penalties, runs = np.array([0, 1, 0, 1]), 1, np.array([0, 1, 1]), 200_000
    scores, scale = unit * np.cumsum(counts)[1:] - penalties, 1.5
    law = sampler.geometric_law(Fraction(3, 2)) if one_sided else sampler.discrete_laplace_law(Fraction(3, 2))
    winners = np.empty(runs, np.int64)
    noise = draw_noise(law, runs, 3, Key.from_seed(stat.seed(307)))
    noisy_max.choose_rows(counts.reshape(1, -1), unit, penalties, noise, winners)
    found = np.bincount(winners - 1, minlength=3)
    stat.accept(stat.chi_square_p(found, exact.winner_probabilities(scores, scale, one_sided=one_sided)))
    last_wins = exact.winner_probabilities(scores[::-1], scale, one_sided=one_sided)[::-1]
    stat.reject(stat.chi_square_p(found, last_wins))


@pytest.mark.parametrize(
    ("method", "name", "x", "x_adjacent"),
    [
        ("choices", "noisy-max-laplace", [0, 0, 0], [4, 0, 0]),
        ("choose_rows", "tops-holdout", [0, 0, 0, 0, 4], [4, 0, 0, 0, 4]),
        ("choose", "tops-withheld", [[4] * 4, [0, 0], [0] * 4], [[4] * 4, [0, 0], [4, 0, 0, 0]]),
    ],
)
def test_noise_that_is_lost_in_the_shipped_choice_is_caught(
    monkeypatch: pytest.MonkeyPatch, method: str, name: str, x, x_adjacent
) -> None:
    """Where scores keep their penalties and only the noise is a fiftieth."""
    right = getattr(noisy_max_rule._NoisyMaxChooser, method)

    def weaker(chooser, *arguments):
        task = chooser._task
        chooser._task = replace(task, epsilon=50 * task.epsilon)
        try:
            return right(chooser, *arguments)
        finally:
            chooser._task = task

    case = next(case for case in SHIPPED if case.name == name)
    case = replace(case, x=x, x_adjacent=x_adjacent)
    assert not run(case, 1_000, stat.seed(308)).violated
    monkeypatch.setattr(noisy_max_rule._NoisyMaxChooser, method, weaker)
    assert run(case, 1_000, stat.seed(308)).violated


def test_the_sum_of_a_choice_and_its_kernel_is_the_same() -> None:
    """Scores that are enumerated are those that win."""
    for rule in choices(1.0).values():
        chooser = rule.chooser([1, 2, 2])
        law = exact.winner_probabilities(
            np.rint(chooser.scores() * (64 / chooser.sensitivity)).astype(np.int64),
            64.0,
            one_sided=chooser.law.one_sided,
        )
        thetas = chooser.choices(Key.from_seed(stat.seed(309)), 100_000)
        assert chooser.choose(Key.from_seed(5)) == chooser.choices(Key.from_seed(5), 1)[0]
        found = [int((thetas == candidate).sum()) for candidate in np.arange(1.0, 5.0)]
        stat.accept(stat.chi_square_p(np.array(found), law))
        stat.reject(stat.chi_square_p(np.array(found), law[::-1]))


@pytest.mark.parametrize("name", ["laplace", "gaussian", "cauchy"])
def test_exact_loss_of_smooth_noise(name: str) -> None:
    delta = 0.0 if name == "cauchy" else 1e-3
    law = calibrate(name, 1.0, delta, 2.0)
    loss = exact.smooth_noise_loss(law, 1.0, delta)
    assert 0.2 < loss.worst <= 1.0
    assert exact.smooth_noise_loss(replace(law, a=16 * law.a), 1.0, delta).violated


@pytest.mark.parametrize("beta", [0.006, 0.1, 0.4])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_kappa_hides_the_offset_and_costs_nothing(noise: str, beta: float) -> None:
    """PAK Eq. 11: with it the loss is the plain quantile's; without it more, at the paper's beta than is claimed."""
    rule = PAKQuantile(beta=beta, delta=1e-3, noise=noise)
    task = ThresholdTask(epsilon=1.0, bound=1024.0, holdout=8, max_range=1024, resolution=2.0**-10)
    law, offset = rule.law(task), rule.law(task).upper(beta)
    plain = exact.smooth_noise_loss(law, 1.0, 1e-3)
    hidden = exact.smooth_noise_loss(law, 1.0, 1e-3, kappa=rule.kappa(task), offset=offset)
    open_ = exact.smooth_noise_loss(law, 1.0, 1e-3, offset=offset)
    assert abs(hidden.worst - plain.worst) < 1e-3
    assert open_.worst > hidden.worst + 0.01
    assert open_.violated == (noise == "laplace" and beta == 0.006)


def test_exact_loss_of_a_step_with_half_of_its_noise() -> None:
    split, data = SplitTrials(1.0, 12), (np.zeros(5), np.zeros(0))
    less = sampler.discrete_laplace_law(split.plan.split_law.scale / 2)
    assert not exact.split_loss(split, data, 300, Key.from_seed(1)).violated
    assert exact.split_loss(split, data, 300, Key.from_seed(1), split_law=less).violated


@dataclass(frozen=True)
class Leaking:
    """A right count, but that the secret leaves with probability p, as a value that nothing else can give."""

    probability: float

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(epsilon=1.0)

    def draw_trials(self, data: int, trials: int, key: Key) -> np.ndarray:
        counts = Count(1.0).draw_trials(data, trials, key)[:, 0]
        generator = np.random.default_rng(int.from_bytes(key.derive("leak").reveal(), "big"))
        counts[generator.random(trials) < self.probability] = 1000 + data
        return counts


def test_a_rare_leak_is_found_by_what_it_promises() -> None:
    """Six times or so among the runs that choose: a low bound there, and a high one on those that count."""
    result = fastdp.audit(Leaking(6e-5), 0, 1, trials=2_000_000, seed=stat.seed(310))
    assert result.violated
    assert "100" in result.event
    assert not fastdp.audit(Leaking(0.0), 0, 1, trials=2_000_000, seed=stat.seed(310)).violated


def test_an_event_of_ones_own_is_counted_whatever_else_is_found() -> None:
    def leaked(outputs: np.ndarray) -> np.ndarray:
        return (outputs[:, 0] >= 1000).astype(float) * (outputs[:, 0] - 998)

    found = fastdp.audit(Leaking(1e-2), 0, 1, trials=40_000, events=leaked, seed=stat.seed(311))
    assert found.violated
    # What was found can be counted again, in outputs of one's own.
    fresh = Leaking(1e-2).draw_trials(1 if found.swapped else 0, 40_000, Key.from_seed(7))
    assert found.chosen is not None
    assert 300 < found.chosen.count(fresh.reshape(-1, 1).astype(float)) < 500
    assert "chosen" not in found.as_dict()


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


def test_a_factory_that_ignores_its_seed_is_told() -> None:
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


def test_wide_outputs_are_drawn_a_few_at_a_time() -> None:
    rows: list[int] = []

    class Wide:
        def draw_trials(self, data, trials, key):
            rows.append(trials)
            generator = np.random.default_rng(int.from_bytes(key.reveal(), "big"))
            return np.broadcast_to(data + generator.random((trials, 1)), (trials, 1024))

    fastdp.audit(Wide(), 0, 0, trials=40_000, epsilon=1.0, seed=1)
    assert max(rows) * 1024 <= 2**23


def test_two_looks_share_no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[str] = []
    right = page._line

    def line(case, trials, seed):
        seeds.append(seed)
        return right(case, trials, seed)

    monkeypatch.setattr(page, "_line", line)
    page._caught_after(next(case for case in BROKEN if case.name == "broken-papers-score"), 4_000, 1)
    assert len(set(seeds)) == len(seeds) > 1
