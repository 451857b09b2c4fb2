"""Mechanisms that run many trials at once."""

from __future__ import annotations

from fastdp.auditing.blocks import BlocksTrials, turning_point
from fastdp.auditing.catalogue.case import FAST, MEDIUM, SLOW, Case
from fastdp.auditing.inputs import (
    EVENT,
    HOLDOUTS,
    LEFT,
    LEFT_LATE,
    POINTS,
    SECOND,
    THETA,
    VALUE,
    open_nodes,
    open_sums,
)
from fastdp.auditing.mechanisms import (
    BinaryTreeTrials,
    Count,
    CounterTrials,
    HierarchyTrials,
    LocalTrials,
    NodesTrials,
    NoisyMaxTrials,
    OneTreeTrials,
    PublisherTrials,
    SettlingTrials,
    SmoothQuantileTrials,
    SplitTrials,
)
from fastdp.counters import BinaryTree, Block, Simple
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp.perturbers import Flat, Hierarchy, Perturber
from fastdp.randomness.key import Key
from fastdp.systems.stream.publisher import StreamPublisher
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile, ScaleFree, SmoothQuantile
from fastdp.thresholds.base import ThresholdTask


def _published(perturber: Perturber, epsilon: float) -> PublisherTrials:
    """Values are clipped at theta, which is below the bound."""

    def make(key: Key) -> StreamPublisher:
        return StreamPublisher(
            threshold=Fixed(1.0),
            perturber=perturber,
            epsilon=epsilon,
            bound=4.0,
            max_range=1024,
            resolution=2.0**-10,
            key=key,
        )

    return PublisherTrials(make)


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
    return [
        Case("count", Count(epsilon), 0, 1, FAST),
        *(Case(name, rule, *HOLDOUTS[name], FAST) for name, rule in rules.items()),
        # Where noise is far too weak that pair has one winner; this one has two.
        *(Case(f"{name}-ends", rule, [0, 0, 0], [4, 0, 0], FAST) for name, rule in rules.items() if "max" in name),
        Case("hierarchy", HierarchyTrials(Hierarchy(2, prune=0), epsilon, 8, THETA), *VALUE, MEDIUM),
        Case("hierarchy-pruned", HierarchyTrials(Hierarchy(4, prune=1), epsilon, 64, THETA), *VALUE, MEDIUM),
        Case("hierarchy-nodes", NodesTrials(nodes, epsilon, 8, THETA), *VALUE, MEDIUM, events=(open_nodes,)),
        Case("hierarchy-one-tree", OneTreeTrials(nodes, epsilon, 8, THETA), *SECOND, SLOW),
        Case("adaptive-blocks", BlocksTrials(epsilon, THETA), *turning_point(THETA, epsilon), MEDIUM),
        Case("binary-tree", BinaryTreeTrials(epsilon, 4, THETA), *VALUE, FAST, events=(open_sums,)),
        Case("counter-simple", CounterTrials(Simple(), epsilon), *EVENT, FAST),
        Case("counter-block", CounterTrials(Block(2), epsilon), *EVENT, MEDIUM),
        Case("counter-binary", CounterTrials(BinaryTree(4), epsilon), *EVENT, MEDIUM),
        Case("counter-block-settling", SettlingTrials(Block(3, settles=True), epsilon), *LEFT, MEDIUM),
        Case("counter-binary-settling", SettlingTrials(BinaryTree(6, settles=True), epsilon), *LEFT_LATE, MEDIUM),
        Case("privtree", SplitTrials(epsilon, 12), *POINTS, MEDIUM),
        Case("stream-flat", _published(Flat(), epsilon), [-3.0], [9.0], FAST),
        Case(
            "stream-hierarchy",
            _published(Hierarchy(32, prune=0), epsilon),
            [0.0] * 32,
            [1.0] + [0.0] * 31,
            MEDIUM,
        ),
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
