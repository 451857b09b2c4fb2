"""Thresholds that follow the stream (ToPS section 7): budgets, borders, chunks, state files."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.perturbers import Flat, Hierarchy
from fastdp.smoothers import Recent
from fastdp.streams.methods import as_smoother
from fastdp.thresholds import Fixed, NoisyMax, SmoothQuantile, ThresholdTask
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from tests.noise_values import chain_noise, threshold_key, unbound_key

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
        before = publisher._state.progress
        after = publisher._pipeline.open(before, 8.0)
        behind = publisher._key.again().within("behind", before.chain.tobytes())
        expected = chain_noise(behind, after.theta_steps, 1.0)
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
