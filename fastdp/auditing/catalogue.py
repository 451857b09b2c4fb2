"""What is audited on the page ``docs/audit.md``: mechanisms, adjacent inputs that hurt, numbers of trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.auditing import broken
from fastdp.auditing.blocks import BlocksTrials, turning_point
from fastdp.auditing.inputs import (
    CHOICE,
    EVENT,
    HOLDOUTS,
    LATER_HOLDOUT,
    LEFT,
    PERIOD,
    POINTS,
    THETA,
    TREES,
    TREES_IN_PIECES,
    VALUE,
    attack,
    late_event,
    open_nodes,
    open_sums,
    repeated_counts,
    two_late_events,
)
from fastdp.auditing.mechanisms import (
    BinaryTreeTrials,
    Count,
    CounterTrials,
    HierarchyTrials,
    LocalTrials,
    NodesTrials,
    NoisyMaxTrials,
    PublisherTrials,
    RepeatedTrials,
    SelectiveTrials,
    SettlingTrials,
    SmoothQuantileTrials,
    SpatialTrials,
    SplitTrials,
    StreamTrials,
    ToPLTrials,
)
from fastdp.counters import BinaryTree, Block, Simple
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp.perturbers import Flat, Hierarchy, Perturber
from fastdp.randomness.key import Key
from fastdp.renewals import Refined, Renewal, Withheld
from fastdp.spatial import Box
from fastdp.systems.adaptive_phdstream import AdaptivePHDStream
from fastdp.systems.pak import PAK
from fastdp.systems.phdstream import PHDStream
from fastdp.systems.stream_publisher import StreamPublisher
from fastdp.systems.topl import ToPL
from fastdp.systems.tops import ToPS
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile, ScaleFree, SmoothQuantile
from fastdp.thresholds import SquareWave as SquareWaveRule
from fastdp.thresholds.base import ThresholdTask

Floats = NDArray[np.float64]

FAST, MEDIUM, REPEATED, SLOW = 10_000_000, 1_000_000, 300_000, 30_000


@dataclass(frozen=True)
class Case:
    """One line of the page.

    Attributes
    ----------
    name : str
        For the command line.
    mechanism, x, x_adjacent : any
        As :func:`fastdp.audit` takes them.
    trials : int
        Usual number.
    broken : bool
        Whether it must be caught.
    events : tuple of callables
        Statistics beyond the automatic ones: known likelihood ratios.
    """

    name: str
    mechanism: Any
    x: Any
    x_adjacent: Any
    trials: int
    broken: bool = False
    events: tuple[Callable[[Floats], Floats], ...] = ()


def _published(perturber: Perturber, epsilon: float, max_range: int) -> PublisherTrials:
    def make(key: Key) -> StreamPublisher:
        return StreamPublisher(
            threshold=Fixed(1.0),
            perturber=perturber,
            epsilon=epsilon,
            bound=1.0,
            max_range=max_range,
            resolution=2.0**-10,
            key=key,
        )

    return PublisherTrials(make)


def _composed(epsilon: float, renewal: Renewal | None = None) -> StreamPublisher:
    """Few candidates, and two leaves a tree: theta and each value's noise show as much as they ever do."""
    return StreamPublisher(
        threshold=NoisyMax(step=1.0, fan_out=2),
        perturber=Hierarchy(2, prune=0),
        epsilon=epsilon,
        bound=4.0,
        holdout=4,
        max_range=2,
        resolution=1.0,
        renewal=renewal,
        seed=0,
    )


def choices(epsilon: float) -> dict[str, NoisyMaxTrials]:
    """The noisy-max rules on three held-out values, few enough to enumerate."""
    task = ThresholdTask(
        epsilon=epsilon, bound=4.0, holdout=3, max_range=4, resolution=1.0, publish_epsilon=1.0, noise_constant=1.0
    )
    rules: dict[str, NoisyMax | ScaleFree] = {
        "noisy-max-laplace": NoisyMax(step=1.0),
        "noisy-max-exponential": NoisyMax(step=1.0, noise="exponential"),
        "scale-free-laplace": ScaleFree("laplace"),
        "scale-free-exponential": ScaleFree("exponential"),
    }
    return {name: NoisyMaxTrials(rule, task) for name, rule in rules.items()}


def fast(epsilon: float) -> list[Case]:
    """Mechanisms that run many trials at once, pure and with a budget of one's choice."""
    rules = choices(epsilon)
    nodes = Hierarchy(2, prune=0, consistent=False)
    tops = ToPS(epsilon, 4.0, 4, 16, prune=0, resolution=1.0, seed=0)
    return [
        Case("count", Count(epsilon), 0, 1, FAST),
        *(Case(name, rule, *HOLDOUTS[name], FAST) for name, rule in rules.items()),
        # Where noise is far too weak that pair has one winner; this one has two.
        *(Case(f"{name}-ends", rule, [0, 0, 0], [4, 0, 0], FAST) for name, rule in rules.items() if "max" in name),
        Case("hierarchy", HierarchyTrials(Hierarchy(2, prune=0), epsilon, 8, THETA), *VALUE, MEDIUM),
        Case("hierarchy-pruned", HierarchyTrials(Hierarchy(4, prune=1), epsilon, 64, THETA), *VALUE, MEDIUM),
        Case("hierarchy-nodes", NodesTrials(nodes, epsilon, 8, THETA), *VALUE, MEDIUM, events=(open_nodes,)),
        Case("adaptive-blocks", BlocksTrials(epsilon, THETA), *turning_point(THETA, epsilon), MEDIUM),
        Case("binary-tree", BinaryTreeTrials(epsilon, 4, THETA), *VALUE, FAST, events=(open_sums,)),
        Case("counter-simple", CounterTrials(Simple(), epsilon), *EVENT, FAST),
        Case("counter-block", CounterTrials(Block(2), epsilon), *EVENT, MEDIUM),
        Case("counter-binary", CounterTrials(BinaryTree(4), epsilon), *EVENT, MEDIUM),
        Case("counter-block-settling", SettlingTrials(Block(3, settles=True), epsilon), *LEFT, MEDIUM),
        Case("counter-binary-settling", SettlingTrials(BinaryTree(4, settles=True), epsilon), *LEFT, MEDIUM),
        Case("privtree", SplitTrials(epsilon, 12), *POINTS, MEDIUM),
        Case("stream-flat", _published(Flat(), epsilon, 1024), [0.0], [1.0], FAST),
        Case(
            "stream-hierarchy",
            _published(Hierarchy(32, prune=0), epsilon, 1024),
            [0.0] * 32,
            [1.0] + [0.0] * 31,
            MEDIUM,
        ),
        Case("tops", RepeatedTrials(tops._fresh), *TREES, REPEATED),
        Case("tops-holdout", RepeatedTrials(_composed(epsilon)._fresh), *CHOICE, REPEATED),
        Case("tops-trees", RepeatedTrials(_composed(epsilon)._fresh), *TREES, REPEATED),
        *(
            Case(f"local-{law.__name__.lower()}", LocalTrials(law(epsilon)), -1.0, 1.0, FAST)
            for law in (SquareWave, StochasticRounding, Piecewise, Hybrid)
        ),
    ]


def quantiles() -> list[Case]:
    """The thresholds with a delta."""
    wide = ThresholdTask(epsilon=1.0, bound=1024.0, holdout=8, max_range=1024, resolution=2.0**-10)
    rules: dict[str, SmoothQuantile | PAKQuantile] = {
        "smooth-quantile": SmoothQuantile(p=0.5, delta=1e-3),
        "pak-quantile": PAKQuantile(p=0.5, beta=0.25, delta=1e-3),
    }
    return [
        Case(
            name,
            SmoothQuantileTrials(rule, wide),
            [0, 0, 0, 0, 1024, 1024, 1024, 1024],
            [0, 0, 0, 1024, 1024, 1024, 1024, 1024],
            FAST,
        )
        for name, rule in rules.items()
    ]


def slow(epsilon: float) -> list[Case]:
    """Whole streams, a fresh object for each."""
    rule = PAKQuantile(p=0.5, beta=0.4, delta=1e-3)
    pak = PAK(epsilon, 1e-3, 4.0, 5, holdout=4, threshold=rule, seed=0)
    lag_sums = PAK(epsilon, 1e-3, 4.0, 5, holdout=4, share=0.5, threshold=rule, lag_sums=True, seed=0)
    topl = _topl(epsilon)
    return [
        Case("tops-withheld", StreamTrials(_composed(epsilon, Withheld(1, 4))._fresh), *LATER_HOLDOUT, SLOW),
        Case("tops-withheld-period", StreamTrials(_composed(epsilon, Withheld(1, 4))._fresh), *PERIOD, SLOW),
        Case("tops-refined", StreamTrials(_composed(epsilon, Refined(0.5, 1))._fresh), *PERIOD, SLOW),
        Case("pak", StreamTrials(pak._fresh), [[4, 4, 4, 4], [4]], [[4, 4, 4, 4], [0]], SLOW),
        Case("pak-holdout", StreamTrials(pak._fresh), [[0, 0, 4, 4], [4]], [[0, 4, 4, 4], [4]], SLOW),
        Case("pak-lag-sums", StreamTrials(lag_sums._fresh), [[0, 4, 4, 4], [4]], [[0, 0, 4, 4], [4]], SLOW),
        Case("topl", ToPLTrials(topl._fresh), [4.0, 0.0], [4.0, 4.0], SLOW),
        Case("topl-holdout", ToPLTrials(topl._fresh), [0.0, 2.0], [4.0, 2.0], SLOW),
        Case("selective-counting", SelectiveTrials(epsilon), *EVENT, SLOW),
        Case(
            "phdstream",
            SpatialTrials(PHDStream(Box(0, 1), epsilon, max_depth=4, seed=0)._fresh),
            [[0.1] * 4, [0.1] * 3],
            [[0.1] * 5, [0.1] * 3],
            SLOW,
        ),
        Case(
            "phdstream-settling",
            SpatialTrials(PHDStream(Box(0, 1), epsilon, Block(2, settles=True), max_depth=2, seed=0)._fresh),
            *late_event(4),
            SLOW,
        ),
        Case(
            "phdstream-adaptive",
            SpatialTrials(AdaptivePHDStream(Box(0, 1), epsilon, max_depth=2, period=2, seed=0)._fresh),
            *late_event(4),
            SLOW,
        ),
        Case(
            "phdstream-two-events",
            SpatialTrials(_adaptive(epsilon, 2)._fresh),
            *two_late_events(4),
            SLOW,
            events=(repeated_counts,),
        ),
    ]


def _topl(epsilon: float) -> ToPL:
    """One user before the threshold, whose report shows."""
    return ToPL(epsilon, 4.0, 1, 16, threshold=SquareWaveRule(bins=16), seed=0)


def _adaptive(epsilon: float, sensitivity: int) -> AdaptivePHDStream:
    """One cell, counted in every step."""
    return AdaptivePHDStream(Box(0, 1), epsilon, max_depth=0, period=1, sensitivity=sensitivity, seed=0)


def shipped() -> list[Case]:
    """The mechanisms of the package: an audit must find them consistent with their claims."""
    return [*fast(1.0), *quantiles(), *slow(1.0)]


#: Whole streams whose halves come near enough to what they lose to be caught in the trials that they take.
CAUGHT_WHOLE = (
    *("tops-withheld", "tops-withheld-period", "tops-refined", "pak", "topl", "topl-holdout"),
    *("selective-counting", "phdstream-two-events"),
)


def halved() -> list[Case]:
    """Mechanisms with the noise that twice their claim needs."""
    whole = [
        replace(case, mechanism=broken.MisclaimedRuns(case.mechanism, 1.0), trials=SLOW)
        for case in slow(2.0)
        if case.name in CAUGHT_WHOLE
    ]
    many = [replace(case, mechanism=broken.Misclaimed(case.mechanism, 1.0), trials=FAST) for case in fast(2.0)]
    return [replace(case, name=f"broken-half-{case.name}", broken=True) for case in (*many, *whole)]


def broken_twins() -> list[Case]:
    """Broken on purpose: an audit must find each of them in violation of its claim."""
    added, removed = attack(12, 1.0)
    three_quarters = NodesTrials(Hierarchy(2, prune=0, consistent=False), 4.0 / 3.0, 8, THETA)
    recounting = broken.RecountingPHDStream(Box(0, 1), 1.0, max_depth=0, period=1, seed=0)
    one_event = broken.MisclaimedRuns(SpatialTrials(_adaptive(1.0, 1)._fresh), 1.0)
    return [
        *halved(),
        Case(
            "broken-hierarchy-three-quarters",
            broken.Misclaimed(three_quarters, 1.0),
            *VALUE,
            FAST,
            True,
            (open_nodes,),
        ),
        Case("broken-theta-missing", broken.theta_missing(1.0, Hierarchy(4, prune=1), 64), *VALUE, FAST, True),
        Case(
            "broken-trees-share",
            StreamTrials(broken.shared_noise),
            *TREES_IN_PIECES,
            SLOW,
            True,
        ),
        Case("broken-refined-free", broken.free_refinement(_composed(1.0, Refined(0.5, 1))), *PERIOD, SLOW, True),
        Case("broken-withheld-mean", broken.telling_mean(_composed(1.0, Withheld(1, 4))), *LATER_HOLDOUT, SLOW, True),
        Case("broken-blocks-peeking", broken.PeekingBlocks(1.0, THETA), *turning_point(THETA, 1.0), MEDIUM, True),
        Case("broken-log2-levels", broken.log2_levels(1.0, 4, THETA), *VALUE, FAST, True, events=(open_sums,)),
        Case("broken-settling-free", broken.FreeSettling(Block(3, settles=True), 1.0), *LEFT, MEDIUM, True),
        Case("broken-selective-one-key", SelectiveTrials(1.0, broken.OneKeyCounting), *EVENT, SLOW, True),
        Case("broken-topl-twice", broken.TwiceReporting(_topl(1.0)._fresh), [0.0], [4.0], SLOW, True),
        Case(
            "broken-papers-score",
            broken.papers_score(1.0, 12),
            (added, removed),
            (np.append(added, 0.0), removed),
            FAST,
            True,
        ),
        Case(
            "broken-recounted",
            SpatialTrials(recounting._fresh),
            *late_event(10),
            SLOW,
            True,
            events=(repeated_counts,),
        ),
        Case("broken-one-event", one_event, *two_late_events(4), SLOW, True, (repeated_counts,)),
        Case("broken-piecewise-leak", broken.LeakingPiecewise(1.0), [0.0, 0.3, 0.5], [0.0, 0.3, -0.5], FAST, True),
        Case("broken-floating-point", broken.FloatingPointLaplace(1.0), 0.0, 1.0, FAST, True),
    ]


def audit_cases() -> list[Case]:
    """Shipped mechanisms first, then the broken twins."""
    return [*shipped(), *broken_twins()]
