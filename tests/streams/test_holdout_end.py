"""Values that choose the first threshold and later ones; renewals against periods under fixed thresholds."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.smoothers import Recent
from fastdp.streams.columns import RowKeys
from fastdp.streams.methods import as_smoother
from fastdp.thresholds import (
    Fixed,
    NoisyMax,
    PAKQuantile,
    ScaleFree,
    SmoothQuantile,
    SquareWave,
    ThresholdTask,
    TruePercentile,
)
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from tests.noise_values import chain_noise, threshold_key, unbound_key

BOUND, HOLDOUT = 64.0, 12
#: The largest of at most a hundred values, without noise: one value more or less shows.
LARGEST = TruePercentile(0.999)

Maker = Callable[..., Any]


def parts(threshold=LARGEST, **options: Any) -> fastdp.StreamPublisher:
    usual = {"epsilon": 8.0, "bound": BOUND, "holdout": HOLDOUT, "max_range": 16, "resolution": 0.25, "seed": 3}
    return fastdp.StreamPublisher(threshold=threshold, **{"perturber": Flat(), **usual, **options})


def blocks(threshold=LARGEST, **options: Any) -> fastdp.StreamPublisher:
    return parts(threshold, perturber=Hierarchy(2, prune=1), smoother=fastdp.smoothers.Recent(), **options)


def pak(threshold=LARGEST) -> fastdp.PAK:
    return fastdp.PAK(8.0, 1e-2, BOUND, 64, holdout=HOLDOUT, threshold=threshold, resolution=0.25, seed=3)


def topl(threshold=None) -> fastdp.ToPL:
    return fastdp.ToPL(8.0, BOUND, HOLDOUT, 16, threshold=threshold, seed=3)


def adaptive(threshold=LARGEST) -> fastdp.Adaptive:
    """The last 2 of the hold-out's 16 values are released as blocks, not looked at: 14 choose."""
    return fastdp.Adaptive(
        8.0,
        BOUND,
        holdout=16,
        max_range=16,
        threshold=threshold,
        resolution=0.25,
        seed=3,
        perturber=Blocks(rising=False),
    )


def theta_of(publisher: Any, values: np.ndarray, cut: int) -> float:
    publisher.publish(values[:cut])
    publisher.publish(values[cut:])
    return float(publisher.threshold)


CUTS = [0, 1, HOLDOUT - 1, HOLDOUT, HOLDOUT + 1, HOLDOUT + 2, 20]


@pytest.mark.parametrize("make", [parts, blocks, pak])
@pytest.mark.parametrize("cut", CUTS)
def test_the_last_value_of_the_hold_out_counts_and_the_next_does_not(make: Maker, cut: int) -> None:
    values = np.full(20, 3.0)
    values[HOLDOUT - 1], values[HOLDOUT] = 5.0, 60.0
    assert theta_of(make(), values, cut) == 5.0
    values[HOLDOUT - 2 : HOLDOUT] = 7.0, 3.0
    assert theta_of(make(), values, cut) == 7.0


@pytest.mark.parametrize("cut", [0, 13, 14, 15, 16, 17])
def test_the_warm_up_of_adaptive_is_behind_what_chooses(cut: int) -> None:
    assert adaptive().composition.warm_up == 2
    values = np.full(20, 3.0)
    values[13], values[14:] = 5.0, 60.0
    assert theta_of(adaptive(), values, cut) == 5.0


RULES = [
    NoisyMax(step=1.0),
    NoisyMax(step=1.0, noise="exponential"),
    ScaleFree(),
    SmoothQuantile(),
    SmoothQuantile(noise="cauchy"),
    PAKQuantile(delta=1e-3, beta=0.2),
    SquareWave(bins=64),
    LARGEST,
]


@pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")
@pytest.mark.parametrize(
    ("make", "rule"),
    [*((make, rule) for make in (parts, blocks, pak, adaptive) for rule in RULES), (topl, None)],
    ids=lambda given: getattr(given, "__name__", repr(given)),
)
def test_what_is_behind_the_hold_out_has_no_influence_on_any_threshold(make: Maker, rule) -> None:
    """The same key, the same hold-out: the same theta to the bit, whatever follows and wherever the stream is cut."""
    if make is pak and isinstance(rule, ScaleFree):
        pytest.skip("weighs theta against a perturber's noise")
    chosen = 14 if make is adaptive else HOLDOUT
    values = np.linspace(1.0, 9.0, 20)
    thetas = set()
    for following in (0.0, BOUND):
        values[chosen:] = following
        thetas |= {theta_of(make(rule), values, cut) for cut in (0, chosen - 1, chosen, chosen + 1)}
    assert len(thetas) == 1


def test_what_stands_for_withheld_values_is_no_value_that_theta_forbids() -> None:
    """The mean of what a period released, cut at 0 and at theta, whatever the noise was."""
    imputed = []
    for seed in range(12):
        publisher = blocks(renewal=RenewFromHoldout(holdout=6), epsilon=1.0, seed=seed)
        publisher.publish(np.full(12, 3.0))
        theta = publisher.threshold
        out = publisher.publish(np.zeros(22))
        assert len(set(out[16:].tolist())) == 1
        imputed.append(out[16] / theta)
    assert min(imputed) == 0.0
    assert max(imputed) <= 1.0
    assert len(set(imputed)) > 3


@pytest.mark.parametrize("cut", [0, 11, 12, 27, 28, 29, 33, 34])
@pytest.mark.parametrize(
    ("renewal", "period", "counts", "behind"),
    [(RenewFromHoldout(holdout=6), 28, 33, 34), (RenewFromPublished(share=0.5), 12, 27, 28)],
)
def test_a_later_threshold_looks_at_its_own_values(renewal, period: int, counts: int, behind: int, cut: int) -> None:
    """12 values choose, 16 are published; then 6 are withheld, or the 16 refine theta."""
    values = np.full(40, 3.0)
    values[period - 1], values[period], values[behind] = 61.0 if period > 12 else 4.0, 5.0, 62.0
    for last, expected in ((6.0, 6.0), (4.0, 5.0)):
        values[counts] = last
        publisher, thetas = blocks(renewal=renewal), []
        publisher.publish(values[:cut])
        for value in values[cut:]:
            publisher.publish([value])
            thetas.append(publisher.threshold)
        assert thetas[-6:] == [expected] * 6


TREE = 256
RENEWALS = [
    RenewFromHoldout(),
    RenewFromHoldout(trees=2, holdout=37),
    RenewFromPublished(0.2),
    RenewFromPublished(0.05, trees=3),
]


def make(renewal, fan_out=4, prune=1, smoother="recent", **options) -> fastdp.StreamPublisher:
    given = {"epsilon": 2.0, "bound": 500, "holdout": 100, "max_range": TREE, "seed": 11}
    parts = {"perturber": Hierarchy(fan_out, prune=prune), "smoother": as_smoother(smoother)}
    return fastdp.StreamPublisher(**{**parts, "renewal": renewal, **given, **options})


def shifting_stream(n: int = 3000) -> np.ndarray:
    """Small values that become twenty times larger half way."""
    values = np.random.default_rng(5).gamma(2.0, 4.0, n)
    values[n // 2 :] *= 20.0
    return values


def by_hand(renewal, values: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """Release of a publisher with a renewal, cut by hand into periods under fixed thresholds."""
    publisher = make(renewal)
    composition = publisher.composition
    period, task = renewal.trees * TREE, composition.renewal_task
    at, thetas, periods = composition.task.holdout, [], []
    chooser = composition.threshold.start(composition.task)
    held = values[:at]
    chooser.observe(held)
    while True:
        cycle = len(thetas)
        thetas.append(chooser.choose(threshold_key(publisher, held, cycle)))
        part = values[at : at + period]
        periods.append(part)
        at += part.size
        if part.size < period:
            return periods, thetas
        chooser = composition.threshold.start(task)
        held = part if renewal.share else values[at : at + task.holdout]
        if held.size < task.holdout:
            return periods, thetas
        chooser.observe(held)
        if not renewal.share:
            at += held.size


@pytest.mark.parametrize("renewal", RENEWALS, ids=repr)
def test_equals_periods_under_fixed_thresholds(renewal) -> None:
    """Block sums are those of one publisher a period, whose trees carry on the numbering."""
    values = shifting_stream()
    periods, thetas = by_hand(renewal, values)
    publisher = make(renewal, smoother="recent")
    out = publisher.publish(values)
    at, last = 0, 0.0
    assert len(thetas) > 3
    assert len(set(thetas)) > 1
    assert publisher.threshold == thetas[-1]
    for cycle, (part, theta) in enumerate(zip(periods, thetas, strict=True)):
        one = fastdp.StreamPublisher(
            threshold=Fixed(theta),
            perturber=Hierarchy(4, prune=1),
            smoother=Recent(),
            epsilon=publisher.composition.publish_epsilon,
            bound=500,
            max_range=TREE,
            resolution=publisher.resolution,
            key=publisher._key.again(),
        )
        trees = renewal.trees * cycle
        # The same trees of noise, for other values before them.
        one.publish(np.zeros(trees * TREE))
        whole = part.size // 4 * 4
        expected = one.publish(part)[:whole].reshape(-1, 4).sum(axis=1)
        if cycle:
            assert out[at] == pytest.approx(min(last, theta), rel=1e-9), "the last prediction outlives the renewal"
        last = expected[-1] / 4.0
        assert out[at : at + whole].reshape(-1, 4).sum(axis=1) == pytest.approx(expected)
        following = at + part.size
        if not renewal.share and following < out.size:
            withheld = out[following : following + publisher.composition.renewal_task.holdout]
            assert np.ptp(withheld) == 0.0
            assert withheld[0] == pytest.approx(np.clip(out[at:following].mean(), 0.0, theta))
            following += withheld.size
        at = following
    assert at == out.size


def test_the_guarantee_follows_from_the_parts() -> None:
    plain, withheld, refined = (
        make(renewal).guarantee for renewal in (None, RenewFromHoldout(), RenewFromPublished(0.3))
    )
    assert plain.epsilon == withheld.epsilon == refined.epsilon == 2.0
    assert any("renewed threshold" in line for line in withheld.derivation)
    assert "the same values: the epsilons add up" in {*refined.derivation} - {*withheld.derivation}
    assert refined.arithmetic == withheld.arithmetic == "exact"
    composition = make(RenewFromPublished(0.3)).composition
    assert Fraction(composition.publish_epsilon) + Fraction(composition.renewal_task.epsilon) <= Fraction(2.0)
    assert composition.publish_epsilon == pytest.approx(1.4)
    # One threshold a value, renewed or not: its delta counts once.
    for renewal in (RenewFromPublished(), RenewFromHoldout()):
        assert make(renewal, threshold=SmoothQuantile(delta=1e-6)).guarantee.delta == 1e-6


def test_noise_behind_a_renewal_follows_from_all_sums_before_it() -> None:
    """The next chain starts from the last one, so that the same theta again does not begin it anew."""
    values, chains = np.arange(5.0), []
    for last in (4.0, 3.0):
        options = {"threshold": Fixed(8.0), "perturber": Flat(), "epsilon": 1.0, "bound": 64, "max_range": 64}
        publisher = fastdp.StreamPublisher(**options, seed=1)
        publisher.publish(np.append(values, last))
        before = publisher._state.rows[0]
        keys, zero = RowKeys(publisher._key), np.zeros(1, np.int64)
        after = publisher._pipeline.open(publisher._state.copied(), zero, np.array([8.0]), keys).rows[0]
        behind = publisher._key.again().within("behind", before.chain.tobytes())
        expected = chain_noise(behind, int(after.theta_steps), 1.0)
        assert after.chain.astype("<u8").tobytes() == expected.chain
        assert (after.blocks, after.cycle) == (6, 2)
        chains += [before.chain.tobytes(), after.chain.tobytes()]
    assert len(set(chains)) == 4


def test_the_imputed_mean_is_a_function_of_what_was_released() -> None:
    """Sums of a whole part wrap where released numbers do not: they must not show in the imputed mean."""
    parts = {"threshold": NoisyMax(), "perturber": Flat(), "renewal": RenewFromHoldout(), "resolution": 2.0**-50}

    def publish(body: np.ndarray, cuts: int) -> np.ndarray:
        options = {"epsilon": 1.0, "bound": 1.0, "holdout": 10, "max_range": 1024, "key": unbound_key(1)}
        publisher = fastdp.StreamPublisher(**parts, **options)
        values = np.concatenate([np.full(10, 0.5), body, np.full(10, 0.5)])
        return np.concatenate([publisher.publish(part) for part in np.array_split(values, cuts)])

    body = np.full(65_536, 0.5)
    whole = publish(body, 1)
    assert np.array_equal(publish(body, 100), whole)
    assert whole[-1] == pytest.approx(np.clip(whole[:-10].mean(), 0.0, 1.0), abs=1e-9)
    body[7] += 2.0**-40
    assert publish(body, 1)[-1] == pytest.approx(whole[-1], abs=1e-9)


class Demanding(NoisyMax):
    """A threshold that could choose, but would promise nothing for the shorter hold-out of a renewal."""

    def guarantee(self, task: ThresholdTask) -> Guarantee:
        if task.holdout < 50:
            raise ParameterError(f"holdout = {task.holdout}: expected at least 50")
        return super().guarantee(task)


@pytest.mark.parametrize(
    ("renewal", "options", "told"),
    [
        (RenewFromPublished(), {"threshold": Fixed(3.0)}, r"renewal = .*Fixed looks at no values"),
        (RenewFromHoldout(), {"perturber": Hierarchy(2, consistent=False, prune=0)}, r"renewal = .*inconsistent"),
        (RenewFromPublished(1e-13), {"epsilon": 0.01}, r"2\^-44"),
        (
            RenewFromHoldout(holdout=49),
            {"threshold": Demanding(), "prune": 0},
            r"^holdout = 49: expected at least 50",
        ),
    ],
)
def test_renewals_that_could_not_choose_are_refused_at_once(renewal: Any, options: dict[str, Any], told: str) -> None:
    smoother = None if isinstance(options.get("perturber"), Hierarchy) else "recent"
    with pytest.raises(ParameterError, match=told):
        make(renewal, smoother=smoother, **options)
