"""A threshold looks at its hold-out, at all of it and at nothing behind it, however the stream is cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.perturbers import Flat, Hierarchy
from fastdp.thresholds import NoisyMax, PAKQuantile, ScaleFree, SmoothQuantile, SquareWave, TruePercentile
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from tests.shared import release_many

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
    return fastdp.Adaptive(8.0, BOUND, holdout=16, max_range=16, threshold=threshold, resolution=0.25, seed=3)


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
    ids=repr,
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


@pytest.mark.parametrize("perturber", [Flat(), Hierarchy(2, prune=1)])
def test_rows_look_at_their_hold_outs_only(perturber) -> None:
    values = np.full((3, 20), 3.0)
    values[:, HOLDOUT - 1], values[:, HOLDOUT] = (5.0, 6.0, 7.0), 60.0
    options = {"holdout": HOLDOUT, "max_range": 16, "resolution": 0.25, "seed": 3, "perturber": perturber}
    smoother = None if isinstance(perturber, Flat) else "recent"
    released = release_many(values, 8.0, BOUND, threshold=LARGEST, smoother=smoother, **options)
    assert released.thresholds.tolist() == [5.0, 6.0, 7.0]
    rule = NoisyMax(step=1.0)
    thetas = []
    for following in (0.0, BOUND):
        values[:, HOLDOUT:] = following
        thetas.append(release_many(values, 8.0, BOUND, threshold=rule, smoother=smoother, **options).thresholds)
    assert np.array_equal(*thetas)


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
