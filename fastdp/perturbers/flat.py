"""Flat: independent noise on every value, the baseline without a hierarchy (ToPS section 3, Appendix F)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fastdp.guarantee import Guarantee
from fastdp.perturbers.base import HierarchyShape
from fastdp.perturbers.range_variance import independent_constant
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId

#: Noise is drawn for so many values at a time.
BATCH = 2**16


@dataclass(frozen=True)
class Flat:
    """Exact discrete Laplace noise of scale theta / epsilon on each value.

    Notes
    -----
    Privacy: pure epsilon, each value is published once.  The error of a range grows with the root of its length.
    """

    @property
    def released_nodes(self) -> bool:
        """There is one level only."""
        return False

    def plan(self, epsilon: float, max_range: int) -> HierarchyShape:
        """One level, one value a block, noise in batches."""
        del epsilon, max_range
        return HierarchyShape(
            fan_out=2, height=1, pruned=0, levels=1, block=1, tops=BATCH, leaves=BATCH, tree_blocks=BATCH
        )

    def guarantee(self, plan: HierarchyShape, epsilon: float) -> Guarantee:
        """Pure epsilon: values are disjoint."""
        del plan
        return Guarantee(
            epsilon=epsilon,
            arithmetic="exact",
            derivation=("each value gets discrete Laplace noise of scale theta / epsilon once: epsilon",),
        )

    def noise_constant(self, plan: HierarchyShape, max_range: int) -> float:
        """K = 2 (r + 2) / 3: twice the mean length of a range."""
        del plan
        return independent_constant(max_range)

    def leaf_law(self, theta_steps: int, epsilon: float) -> sampler.Law | None:
        """Of each released sum: noise is drawn when the sum is known, and bound to all sums so far.

        None for a subclass with noise of its own (``leaf_noise``, ``node_noise``), which is drawn as it says.
        """
        kind = type(self)
        own = kind.leaf_noise is not Flat.leaf_noise or kind.node_noise is not Flat.node_noise
        return None if own else _law(theta_steps, epsilon)

    def leaf_noise(
        self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int
    ) -> NDArray[np.int64]:
        """Noise of one batch of values, drawn before they are known: for streams of the first noise format."""
        return self.node_noise(plan, theta_steps, epsilon, key, tree)

    def node_noise(
        self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int
    ) -> NDArray[np.int64]:
        """The same: leaves are all the nodes there are."""
        noise: NDArray[np.int64] = np.empty(plan.leaves, np.int64)
        sampler.fill(noise, _law(theta_steps, epsilon), key, StreamId(Purpose.TREE, 1, tree))
        return noise


@lru_cache(maxsize=256)
def _law(theta_steps: int, epsilon: float) -> sampler.Law:
    return sampler.discrete_laplace_law(Fraction(theta_steps) / Fraction(epsilon))
