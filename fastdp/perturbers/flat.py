"""Flat: independent noise on every value, the baseline without a hierarchy (ToPS section 3, Appendix F)."""

from __future__ import annotations

from typing import ClassVar, get_args

import numpy as np

from fastdp.guarantee import Guarantee
from fastdp.kinds import Integers
from fastdp.noise import gaussian, sampler
from fastdp.noise.draws import Distribution, NoiseName, concentrated, noise_distribution
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers.base import HierarchyShape, independent_constant
from fastdp.record import Choice, parameter, record

#: Noise is drawn for so many values at a time.
BATCH = 2**16


@record
class Flat:
    """Exact noise on each value: discrete Laplace of scale theta / epsilon, or discrete Gaussian.

    Parameters
    ----------
    noise : "laplace" or "gaussian"
        Gaussian noise has sigma theta / epsilon, where rho = epsilon^2 / 2 is the concentrated loss that the
        publisher's epsilon and ``delta`` buy.

    Notes
    -----
    Privacy: pure epsilon, or (epsilon, delta); each value is published once.  The error of a range grows with the
    root of its length.  w values of one unit cost Laplace noise w times, Gaussian noise sqrt(w) times its scale.
    """

    noise: NoiseName = parameter(Choice(get_args(NoiseName)), default="laplace", kw_only=True)
    released_nodes: ClassVar[bool] = False
    rule: ClassVar[int] = 1

    def plan(self, epsilon: float, max_range: int) -> HierarchyShape:
        """One level, one value a block, noise in batches."""
        return HierarchyShape(
            fan_out=2, height=1, pruned=0, levels=1, block=1, tops=BATCH, leaves=BATCH, tree_blocks=BATCH
        )

    def guarantee(self, plan: HierarchyShape, epsilon: float) -> Guarantee:
        """Pure epsilon, or rho: values are disjoint."""
        if self.noise == "gaussian":
            return concentrated(
                epsilon,
                f"each value gets discrete Gaussian noise of sigma theta / {epsilon:g} once: rho = {epsilon:g}^2 / 2",
            )
        return Guarantee(
            epsilon=epsilon,
            arithmetic="exact",
            derivation=("each value gets discrete Laplace noise of scale theta / epsilon once: epsilon",),
        )

    def noise_constant(self, plan: HierarchyShape, max_range: int) -> float:
        """K = 2 (r + 2) / 3: twice the mean length of a range; half of it with Gaussian noise."""
        return independent_constant(max_range) * (1.0 if self.noise == "laplace" else 0.5)

    def group_square(self, plan: HierarchyShape, size: int) -> int:
        """Squared L2 sensitivity of ``size`` consecutive values, in squares of that of one: each has its sum."""
        return size

    def moved_draws(self, plan: HierarchyShape, size: int) -> int:
        """Draws of the sums that ``size`` values enter."""
        return plan.levels * size

    def leaf_law(self, theta_steps: int, epsilon: float) -> Distribution | None:
        """Of each released sum: noise is drawn when the sum is known, and bound to all sums so far.

        None for a subclass with noise of its own (``leaf_noise``, ``node_noise``), which is drawn as it says.
        """
        kind = type(self)
        own = kind.leaf_noise is not Flat.leaf_noise or kind.node_noise is not Flat.node_noise
        return None if own else noise_distribution(self.noise, theta_steps, 1, epsilon)

    def leaf_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        """Noise of one batch of values, drawn before they are known: for audits of the part alone."""
        return self.node_noise(plan, theta_steps, epsilon, key, tree)

    def node_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        """The same: leaves are all the nodes there are."""
        noise: Integers = np.empty(plan.leaves, np.int64)
        fill(noise, noise_distribution(self.noise, theta_steps, 1, epsilon), key, StreamId(Purpose.TREE, 1, tree))
        return noise


def fill(out: Integers, law: Distribution, key: Key, stream: StreamId) -> None:
    """Overwrite ``out`` with draws of either law."""
    if isinstance(law, GaussianDistribution):
        gaussian.fill(out, law, key, stream)
    else:
        sampler.fill(out, law, key, stream)
