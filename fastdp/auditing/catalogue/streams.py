"""Whole streams of values through the publishers."""

from __future__ import annotations

from fastdp.auditing.catalogue.case import MANY, REPEATED, SLOW, Case
from fastdp.auditing.inputs import (
    CHOICE,
    LATER_HOLDOUT,
    PERIOD,
    REPLAY_AFTER,
    REPLAY_PREFIX,
    REVISED,
    TREES,
    open_lag_sums,
    open_tree,
)
from fastdp.auditing.mechanisms import (
    ManyTrials,
    RepeatedTrials,
    ReplayTrials,
    RevisedTrials,
    StreamTrials,
    ToPLTrials,
)
from fastdp.perturbers import Blocks, Hierarchy, Perturber
from fastdp.smoothers import Recent, Smoother
from fastdp.systems.pak.publisher import PAK
from fastdp.systems.stream.publisher import StreamPublisher
from fastdp.systems.stream.tops import ToPS
from fastdp.systems.topl.publisher import ToPL
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile, Threshold
from fastdp.thresholds import SquareWave as SquareWaveRule
from fastdp.thresholds.renewals import Renewal, RenewFromHoldout, RenewFromPublished


def composed(epsilon: float, renewal: Renewal | None = None) -> StreamPublisher:
    """Few candidates, and two leaves a tree: theta and each value's noise show as much as they ever do."""
    return _publisher(NoisyMax(step=1.0, fan_out=2), Hierarchy(2, prune=0), epsilon, 2, renewal=renewal)


def _publisher(
    threshold: Threshold,
    perturber: Perturber,
    epsilon: float,
    max_range: int,
    *,
    smoother: Smoother | None = None,
    renewal: Renewal | None = None,
) -> StreamPublisher:
    return StreamPublisher(
        threshold=threshold,
        perturber=perturber,
        smoother=smoother,
        epsilon=epsilon,
        bound=4.0,
        holdout=4 if threshold.uses_holdout else 0,
        max_range=max_range,
        resolution=1.0,
        renewal=renewal,
        seed=0,
    )


def single_blocks(epsilon: float) -> StreamPublisher:
    """Blocks of one value, published with its noise."""
    return _publisher(Fixed(4.0), Blocks("spike"), epsilon, 64)


def repeated(epsilon: float) -> list[Case]:
    """By ``repeat``, many at once."""
    tops = ToPS(epsilon, 4.0, 4, 16, prune=0, resolution=1.0, seed=0)
    levels = _publisher(Fixed(4.0), Hierarchy(2, prune=0), epsilon, 8)
    return [
        Case("tops", RepeatedTrials(tops._fresh), *TREES, REPEATED),
        Case("tops-holdout", RepeatedTrials(composed(epsilon)._fresh), *CHOICE, REPEATED),
        Case("tops-trees", RepeatedTrials(composed(epsilon)._fresh), *TREES, REPEATED),
        Case("tops-levels", RepeatedTrials(levels._fresh), [4] + [0] * 7, [0] * 8, REPEATED),
    ]


def one_by_one(epsilon: float) -> list[Case]:
    """A fresh object for each stream."""
    blocks = _publisher(Fixed(4.0), Hierarchy(2, prune=1), epsilon, 4, smoother=Recent())
    adaptive = single_blocks(epsilon)
    revised = _publisher(Fixed(4.0), Blocks(), epsilon, 256)
    withheld = composed(epsilon, RenewFromHoldout(1, 4))
    return [
        Case("tops-blocks", StreamTrials(blocks._fresh), [[4], [0], [0], [0]], [[0], [0], [0], [0]], SLOW),
        Case("tops-withheld", StreamTrials(withheld._fresh), *LATER_HOLDOUT, SLOW),
        Case("tops-withheld-period", StreamTrials(withheld._fresh), *PERIOD, SLOW),
        Case("tops-refined", StreamTrials(composed(epsilon, RenewFromPublished(0.5, 1))._fresh), *PERIOD, MANY),
        Case("adaptive", StreamTrials(adaptive._fresh), [[4, 0, 0, 0], [0] * 4], [[0] * 4, [0] * 4], SLOW),
        Case("adaptive-revised", RevisedTrials(revised._fresh), *REVISED, SLOW),
        Case("adaptive-retrospective", RevisedTrials(revised._fresh, retrospective=True), *REVISED, SLOW),
        Case("replay-prefix", ReplayTrials(adaptive._fresh, noises=1), *REPLAY_PREFIX, SLOW),
        Case("replay-after", ReplayTrials(adaptive._fresh, noises=2), *REPLAY_AFTER, SLOW),
        Case("release-many", ManyTrials(epsilon), [[4, 0, 0, 0], [0] * 4], [[0] * 4, [0] * 4], SLOW),
        *_pak(epsilon),
        Case("topl", ToPLTrials(topl(epsilon)._fresh), [4.0, 0.0], [4.0, 4.0], SLOW),
        Case("topl-holdout", ToPLTrials(topl(epsilon)._fresh), [0.0, 2.0], [4.0, 2.0], SLOW),
        Case(
            "topl-chunks",
            StreamTrials(ToPL(epsilon, 4.0, 1, 16, threshold=Fixed(4.0), seed=0)._fresh),
            [[4.0], [4.0]],
            [[0.0], [4.0]],
            SLOW,
        ),
    ]


def _pak(epsilon: float) -> list[Case]:
    quantile = PAKQuantile(p=0.5, beta=0.4, delta=1e-3)
    whole = PAK(epsilon, 1e-3, 4.0, 5, holdout=4, threshold=quantile, seed=0)
    tree = PAK(epsilon, 0.0, 4.0, 4, threshold=Fixed(4.0), resolution=1.0, seed=0)

    def lagging(length: int, *, lag_sums: bool) -> StreamTrials:
        """Nearly all of epsilon for the hold-out's sums."""
        rule = NoisyMax(step=1.0, fan_out=2)
        pak = PAK(
            *(epsilon, 0.0, 4.0, length),
            holdout=4,
            share=0.1,
            threshold=rule,
            lag_sums=lag_sums,
            resolution=1.0,
            seed=0,
        )
        return StreamTrials(pak._fresh)

    return [
        Case("pak", StreamTrials(whole._fresh), [[4, 4, 4, 4], [4]], [[4, 4, 4, 4], [0]], SLOW),
        Case("pak-holdout", StreamTrials(whole._fresh), [[0, 0, 4, 4], [4]], [[0, 4, 4, 4], [4]], SLOW),
        Case("pak-tree", StreamTrials(tree._fresh), [[4, 0], [0, 0]], [[0, 0], [0, 0]], SLOW, events=(open_tree,)),
        Case("pak-lag-sum", lagging(5, lag_sums=False), [[4, 4, 4, 4], [4]], [[0, 4, 4, 4], [4]], SLOW),
        Case(
            "pak-lag-sums",
            lagging(8, lag_sums=True),
            [[4, 4, 4, 4], [0] * 4],
            [[0, 4, 4, 4], [0] * 4],
            SLOW,
            events=(open_lag_sums,),
        ),
    ]


def topl(epsilon: float) -> ToPL:
    """One user before the threshold, whose report shows."""
    return ToPL(epsilon, 4.0, 1, 16, threshold=SquareWaveRule(bins=16), seed=0)
