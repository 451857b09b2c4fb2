"""What is audited on the page ``docs/audit.md``: mechanisms, adjacent inputs that hurt, numbers of trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.auditing import broken
from fastdp.auditing.blocks import BlocksTrials, turning_point
from fastdp.auditing.mechanisms import (
    BinaryTreeTrials,
    Count,
    CounterTrials,
    HierarchyTrials,
    LocalTrials,
    NodesTrials,
    NoisyMaxTrials,
    PublisherTrials,
    SmoothQuantileTrials,
    SpatialTrials,
    SplitTrials,
    WholeTrials,
)
from fastdp.counters import BinaryTree, Block, Simple
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp.perturbers import Flat, Hierarchy, Perturber
from fastdp.randomness.key import Key
from fastdp.spatial import Box
from fastdp.systems.adaptive_phdstream import AdaptivePHDStream
from fastdp.systems.pak import PAK
from fastdp.systems.phdstream import PHDStream
from fastdp.systems.stream_publisher import StreamPublisher
from fastdp.systems.tops import ToPS
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile, ScaleFree, SmoothQuantile
from fastdp.thresholds.base import ThresholdTask

Floats = NDArray[np.float64]

FAST, MEDIUM, SLOW = 10_000_000, 1_000_000, 10_000
#: Values are clipped to so many grid steps.
THETA = 64


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


def attack(depth: int, epsilon: float) -> tuple[Floats, Floats]:
    """Additions and removals on [0, 1] that keep the paper's score at its threshold all along one path.

    The cell of depth i around 0 is to hold i penalties of a level more than nothing: additions go into the deepest
    one, removals into the siblings.
    """
    plan = SplitTrials(epsilon, depth, repaired=False).plan
    penalty = plan.bias / plan.unit
    wanted = [round((i + 0.15) * penalty) for i in range(depth)]
    siblings = 0.75 * 2.0 ** -np.arange(depth - 1.0)
    return np.zeros(wanted[-1]), np.repeat(siblings, np.diff(wanted))


def late_event(batches: int) -> tuple[list[list[float]], list[list[float]]]:
    """Streams on [0, 1], the second with one addition more, after the first batch."""
    first = [0.1] * 40
    rest: list[list[float]] = [[] for _ in range(batches - 2)]
    return [first, [], *rest], [first, [0.1], *rest]


def repeated_counts(outputs: Floats) -> Floats:
    """Log-likelihood ratio of one point more in every count after the first, from counts of four intervals each."""
    totals = outputs.reshape(outputs.shape[0], -1, 4).sum(axis=2)
    ratio: Floats = np.clip(np.diff(totals, axis=1), 0.0, 1.0).sum(axis=1)
    return ratio


def open_sums(outputs: Floats) -> Floats:
    """Log-likelihood ratio of a binary counter's outputs for a first value of 0 or THETA, times the scale.

    Node [1, 2^j] is released alone at time 2^j; a shift of Laplace noise by THETA has a clipped linear ratio.
    """
    times = [2**j - 1 for j in range(outputs.shape[1].bit_length())]
    total: Floats = np.clip(outputs[:, times], 0.0, THETA).sum(axis=1)
    return total


def open_nodes(outputs: Floats) -> Floats:
    """The same for all nodes of a tree with two children a node: those that hold the first leaf."""
    leaves = (outputs.shape[1] + 1) // 2
    first = np.cumsum([0, *(leaves >> height for height in range(leaves.bit_length() - 1))])
    total: Floats = np.clip(outputs[:, first], 0.0, THETA).sum(axis=1)
    return total


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


#: One value more in the first leaf, and one event more.
VALUE: tuple[list[int], list[int]] = [THETA, 0, 0, 0], [0, 0, 0, 0]
EVENT: tuple[list[int], list[int]] = [1, 0, 0, 0], [0, 0, 0, 0]
#: Points on [0, 1], added and removed, without any that was removed.
POINTS: tuple[tuple[Floats, Floats], tuple[Floats, Floats]] = (np.zeros(3), np.zeros(0)), (np.zeros(2), np.zeros(0))


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


#: For each of them a pair of hold-outs with nearly the largest exact loss, at a candidate that wins often.
HOLDOUTS: dict[str, tuple[list[float], list[float]]] = {
    "noisy-max-laplace": ([2, 2, 2], [0, 2, 2]),
    "noisy-max-exponential": ([2, 2, 3], [2, 2, 2]),
    "scale-free-laplace": ([2, 2, 2], [0, 2, 2]),
    "scale-free-exponential": ([0, 2, 2], [2, 2, 2]),
}


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
        Case("adaptive-blocks", BlocksTrials(epsilon, THETA), *turning_point(THETA, epsilon), MEDIUM),
        Case("binary-tree", BinaryTreeTrials(epsilon, 4, THETA), *VALUE, FAST, events=(open_sums,)),
        Case("counter-simple", CounterTrials(Simple(), epsilon), *EVENT, FAST),
        Case("counter-block", CounterTrials(Block(2), epsilon), *EVENT, MEDIUM),
        Case("counter-binary", CounterTrials(BinaryTree(4), epsilon), *EVENT, MEDIUM),
        Case("privtree", SplitTrials(epsilon, 12), *POINTS, MEDIUM),
        Case("stream-flat", _published(Flat(), epsilon, 1024), [0.0], [1.0], FAST),
        Case(
            "stream-hierarchy",
            _published(Hierarchy(32, prune=0), epsilon, 1024),
            [0.0] * 32,
            [1.0] + [0.0] * 31,
            MEDIUM,
        ),
        *(
            Case(f"local-{law.__name__.lower()}", LocalTrials(law(epsilon)), -1.0, 1.0, FAST)
            for law in (SquareWave, StochasticRounding, Piecewise, Hybrid)
        ),
    ]


def slow() -> list[Case]:
    """The mechanisms with a delta, and whole streams."""
    wide = ThresholdTask(epsilon=1.0, bound=1024.0, holdout=8, max_range=1024, resolution=2.0**-10)
    tops = WholeTrials(lambda seed: ToPS(1.0, 4.0, 4, 16, prune=0, resolution=1.0, seed=seed))
    pak = WholeTrials(
        lambda seed: PAK(
            *(1.0, 1e-3, 4.0, 5), holdout=4, threshold=PAKQuantile(p=0.5, beta=0.4, delta=1e-3), seed=seed
        )
    )
    return [
        Case(
            "smooth-quantile",
            SmoothQuantileTrials(SmoothQuantile(p=0.5, delta=1e-3), wide),
            [0, 0, 0, 0, 1024, 1024, 1024, 1024],
            [0, 0, 0, 1024, 1024, 1024, 1024, 1024],
            FAST,
        ),
        Case("tops", tops, [1, 2, 3, 4, 4, 0, 0, 0], [1, 2, 3, 4, 0, 0, 0, 0], SLOW),
        Case("tops-holdout", tops, [0, 0, 0, 0, 4], [4, 0, 0, 0, 4], SLOW),
        Case(
            "tops-trees",
            WholeTrials(lambda seed: ToPS(1.0, 4.0, 4, 2, fan_out=2, prune=0, resolution=1.0, seed=seed)),
            *TREES,
            SLOW,
        ),
        Case("pak", pak, [4, 4, 4, 4, 4], [4, 4, 4, 4, 0], SLOW),
        Case("pak-holdout", pak, [0, 0, 4, 4, 4], [0, 4, 4, 4, 4], SLOW),
        Case(
            "phdstream",
            SpatialTrials(lambda seed: PHDStream(Box(0, 1), 1.0, max_depth=4, seed=seed)),
            [[0.1] * 4, [0.1] * 3],
            [[0.1] * 5, [0.1] * 3],
            SLOW,
        ),
        Case(
            "phdstream-adaptive",
            SpatialTrials(lambda seed: AdaptivePHDStream(Box(0, 1), 1.0, max_depth=2, period=2, seed=seed)),
            *late_event(4),
            SLOW,
        ),
    ]


#: One value of two trees, behind the hold-out.
TREES: tuple[list[float], list[float]] = [1, 2, 3, 4, 4, 0, 0, 0], [1, 2, 3, 4, 0, 0, 0, 0]


def shipped() -> list[Case]:
    """The mechanisms of the package: an audit must find them consistent with their claims."""
    return [*fast(1.0), *slow()]


def halved() -> list[Case]:
    """Every fast mechanism with the noise that twice its claim needs."""
    return [
        replace(
            case,
            name=f"broken-half-{case.name}",
            mechanism=broken.Misclaimed(case.mechanism, 1.0),
            trials=FAST,
            broken=True,
        )
        for case in fast(2.0)
    ]


def broken_twins() -> list[Case]:
    """Broken on purpose: an audit must find each of them in violation of its claim."""
    added, removed = attack(12, 1.0)
    return [
        *halved(),
        Case(
            "broken-hierarchy-three-quarters",
            broken.Misclaimed(NodesTrials(Hierarchy(2, prune=0, consistent=False), 4.0 / 3.0, 8, THETA), 1.0),
            *VALUE,
            FAST,
            True,
            (open_nodes,),
        ),
        Case("broken-theta-missing", broken.theta_missing(1.0, Hierarchy(4, prune=1), 64), *VALUE, FAST, True),
        Case("broken-trees-share", WholeTrials(broken.shared_noise), *TREES, SLOW, True),
        Case("broken-blocks-peeking", broken.PeekingBlocks(1.0, THETA), *turning_point(THETA, 1.0), MEDIUM, True),
        Case("broken-log2-levels", broken.log2_levels(1.0, 4, THETA), *VALUE, FAST, True, events=(open_sums,)),
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
            SpatialTrials(lambda seed: broken.RecountingPHDStream(Box(0, 1), 1.0, max_depth=0, period=1, seed=seed)),
            *late_event(10),
            2_000,
            True,
            events=(repeated_counts,),
        ),
        Case("broken-piecewise-leak", broken.LeakingPiecewise(1.0), [0.0, 0.3, 0.5], [0.0, 0.3, -0.5], FAST, True),
        Case("broken-floating-point", broken.FloatingPointLaplace(1.0), 0.0, 1.0, FAST, True),
    ]


def audit_cases() -> list[Case]:
    """Shipped mechanisms first, then the broken twins."""
    return [*shipped(), *broken_twins()]
