"""What is audited on the page ``docs/audit.md``: mechanisms, adjacent inputs that hurt, numbers of trials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    NoisyMaxTrials,
    PublisherTrials,
    SmoothQuantileTrials,
    SpatialTrials,
    SplitTrials,
)
from fastdp.auditing.trials import Publishing
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
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile, SmoothQuantile
from fastdp.thresholds.base import ThresholdTask

Floats = NDArray[np.float64]

FAST, MEDIUM, SLOW = 10_000_000, 1_000_000, 20_000
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


def _published(perturber: Perturber, max_range: int) -> PublisherTrials:
    def make(key: Key) -> StreamPublisher:
        return StreamPublisher(
            threshold=Fixed(1.0),
            perturber=perturber,
            epsilon=1.0,
            bound=1.0,
            max_range=max_range,
            resolution=2.0**-10,
            key=key,
        )

    return PublisherTrials(make)


def shipped() -> list[Case]:
    """The mechanisms of the package: an audit must find them consistent with their claims."""
    task = ThresholdTask(epsilon=1.0, bound=4.0, holdout=3, max_range=4, resolution=1.0)
    wide = ThresholdTask(epsilon=1.0, bound=1024.0, holdout=8, max_range=1024, resolution=2.0**-10)
    value = [THETA, 0, 0, 0], [0, 0, 0, 0]
    event = [1, 0, 0, 0], [0, 0, 0, 0]
    added, removed = attack(12, 1.0)
    cases = [
        Case("count", Count(1.0), 0, 1, FAST),
        Case("noisy-max-laplace", NoisyMaxTrials(NoisyMax(step=1.0), task), [0, 0, 0], [4, 0, 0], FAST),
        Case(
            "noisy-max-exponential",
            NoisyMaxTrials(NoisyMax(step=1.0, noise="exponential"), task),
            [0, 0, 0],
            [4, 0, 0],
            FAST,
        ),
        Case(
            "smooth-quantile",
            SmoothQuantileTrials(SmoothQuantile(p=0.5, delta=1e-3), wide),
            [0, 0, 0, 0, 1024, 1024, 1024, 1024],
            [0, 0, 0, 1024, 1024, 1024, 1024, 1024],
            FAST,
        ),
        Case("hierarchy", HierarchyTrials(Hierarchy(2, prune=0), 1.0, 8, THETA), *value, FAST),
        Case("hierarchy-pruned", HierarchyTrials(Hierarchy(4, prune=1), 1.0, 64, THETA), *value, FAST),
        Case("adaptive-blocks", BlocksTrials(1.0, THETA), *turning_point(THETA, 1.0), MEDIUM),
        Case("binary-tree", BinaryTreeTrials(1.0, 4, THETA), *value, FAST, events=(open_sums,)),
        Case("counter-simple", CounterTrials(Simple(), 1.0), *event, FAST),
        Case("counter-block", CounterTrials(Block(2), 1.0), *event, FAST),
        Case("counter-binary", CounterTrials(BinaryTree(4), 1.0), *event, FAST),
        Case("privtree", SplitTrials(1.0, 12), (added, removed), (np.append(added, 0.0), removed), MEDIUM),
        Case("stream-flat", _published(Flat(), 1024), [0.0], [1.0], FAST),
        Case("stream-hierarchy", _published(Hierarchy(32, prune=0), 1024), [0.0] * 32, [1.0] + [0.0] * 31, MEDIUM),
        Case(
            "tops",
            Publishing(lambda seed: ToPS(1.0, 4.0, 4, 16, prune=0, resolution=1.0, seed=seed)),
            [1, 2, 3, 4, 4, 0, 0, 0],
            [1, 2, 3, 4, 0, 0, 0, 0],
            SLOW,
        ),
        Case(
            "pak",
            Publishing(
                lambda seed: PAK(
                    *(1.0, 1e-3, 4.0, 5), holdout=4, threshold=PAKQuantile(p=0.5, beta=0.4, delta=1e-3), seed=seed
                )
            ),
            [4, 4, 4, 4, 4],
            [4, 4, 4, 4, 0],
            SLOW,
        ),
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
    for law in (SquareWave, StochasticRounding, Piecewise, Hybrid):
        cases.append(Case(f"local-{law.__name__.lower()}", LocalTrials(law(1.0)), -1.0, 1.0, FAST))
    return cases


def broken_twins() -> list[Case]:
    """Broken on purpose: an audit must find each of them in violation of its claim."""
    value = [THETA, 0, 0, 0], [0, 0, 0, 0]
    added, removed = attack(12, 1.0)
    return [
        Case("broken-halved-noise", broken.halved_noise(1.0), 0, 1, FAST, True),
        Case("broken-theta-missing", broken.theta_missing(1.0, Hierarchy(4, prune=1), 64), *value, FAST, True),
        Case("broken-blocks-halved", broken.halved_blocks(1.0, THETA), *turning_point(THETA, 1.0), MEDIUM, True),
        Case("broken-blocks-peeking", broken.PeekingBlocks(1.0, THETA), *turning_point(THETA, 1.0), MEDIUM, True),
        Case("broken-log2-levels", broken.log2_levels(1.0, 4, THETA), *value, FAST, True, events=(open_sums,)),
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
