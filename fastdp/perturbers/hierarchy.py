"""The hierarchy of ToPS (CCS 2021, sections 3.4 and 3.5): noise of block sums from one tree for ``max_range`` values.

``plan`` chooses the public shape; ``leaf_noise`` draws noise of all nodes and makes it consistent (Appendix C, Eq.
10), ``noise_rows`` for many streams at once.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, cast, get_args

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, pure
from fastdp.kinds import Floats, Integers, Json
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.sampler import NoiseName, concentrated, noise_distribution
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers.base import (
    HierarchyShape,
    TreeRows,
    consistent_constant,
    fill,
    tiling_constant,
)
from fastdp.record import Choice, Flag, Whole, parameter, record
from fastdp.validation import refusal
from fastdp_kernels.streams import hierarchy_nodes

MAX_LEAVES = 2**28


@lru_cache(maxsize=256)
def best_prune(epsilon: float, max_range: int, fan_out: int, noise: NoiseName = "laplace") -> int:
    """Number s of pruned levels with the least proven error of a steady stream (``docs/streams_proofs.md``, ToPS).

    A range's noise is K / epsilon^2; the blocks that it cuts add at most max(5 g / 12, g^3 / (6 r)), g = b^s.
    """
    # Any epsilon beyond these has the same minimiser; the square stays a float.
    epsilon = min(max(epsilon, 1e-100), 1e100)

    def error(shape: HierarchyShape) -> float:
        g = float(shape.block)
        cut = max(5.0 * g / 12.0, g**3 / (6.0 * max_range)) if shape.pruned else 0.0
        return hierarchy.noise_constant(shape, max_range) / epsilon**2 + cut

    hierarchy = Hierarchy(fan_out, noise=noise)
    height = _height(max_range, fan_out)
    return min((_shape(max_range, fan_out, height, s) for s in range(height)), key=error).pruned


def _height(max_range: int, fan_out: int) -> int:
    height = 1
    while fan_out**height < max_range:
        height += 1
    return height


def _shape(max_range: int, fan_out: int, height: int, pruned: int) -> HierarchyShape:
    levels, block, tops = height - pruned, fan_out**pruned, -(-max_range // fan_out ** (height - 1))
    return HierarchyShape(
        fan_out=fan_out,
        height=height,
        pruned=pruned,
        levels=levels,
        block=block,
        tops=tops,
        leaves=tops * fan_out ** (levels - 1),
        tree_blocks=-(-max_range // block),
    )


@record
class Hierarchy:
    """Noisy block sums from one tree of noise for every ``max_range`` published values, endlessly.

    ``Hierarchy()`` is ToPS's; ``Hierarchy(2, consistent=False, prune=0)`` is the binary tree of PAK and of Chan, Shi
    and Song.

    Parameters
    ----------
    fan_out : int
        b, from 2 to 1024; 16 is best for random ranges (Qardaji et al. 2013).
    consistent : bool
        True: published values answer every range (Appendix C).  False: the fewest nodes that tile a range do; needs
        prune = 0.
    prune : int, optional
        s, lowest levels without noise; by default of the least proven error of a steady stream.
    noise : "laplace" or "gaussian"
        Gaussian noise has sigma theta sqrt(levels) / epsilon; epsilon as for :class:`Flat`.

    Notes
    -----
    Privacy: a value enters one node of each released level, whose sum gets exact discrete Laplace noise of scale
    theta * levels / epsilon; consistency is a function of noisy sums (``docs/noise.md``, section 5).

    Examples
    --------
    >>> import fastdp
    >>> binary = fastdp.perturbers.Hierarchy(2, consistent=False, prune=0)
    >>> publisher = fastdp.StreamPublisher(
    ...     epsilon=1.0, bound=100, threshold=50.0, perturber=binary
    ... )
    >>> publisher.guarantee.epsilon
    1.0
    """

    fan_out: int = parameter(Whole(2, 1024), default=16)
    consistent: bool = parameter(Flag(), default=True)
    prune: int | None = parameter(Whole(0), default=None)
    noise: NoiseName = parameter(Choice(get_args(NoiseName)), default="laplace", kw_only=True)
    rule: ClassVar[int] = 1
    constant_parameters: ClassVar[Json] = {"basis": "boxes"}

    def _check(self) -> None:
        if not self.consistent and self.prune != 0:
            raise refusal("prune", self.prune, "0, because without consistency no sum of nodes closes a block")

    @property
    def released_nodes(self) -> bool:
        return not self.consistent

    def plan(self, epsilon: float, max_range: int) -> HierarchyShape:
        b, height = self.fan_out, _height(max_range, self.fan_out)
        pruned = best_prune(epsilon, max_range, b, self.noise) if self.prune is None else self.prune
        if pruned >= height:
            raise ParameterError(
                f"prune = {validation.shown(pruned)}: expected less than the {height} levels of a hierarchy with "
                f"fan_out = {b} and max_range = {max_range}"
            )
        shape = _shape(max_range, b, height, pruned)
        if shape.leaves > MAX_LEAVES:
            raise ParameterError(
                f"max_range = {max_range}: a tree of {shape.leaves} released leaves takes "
                f"{shape.leaves * 8 / 2**30:.1f} GiB; expected at most {MAX_LEAVES} leaves (raise prune or lower "
                "max_range)"
            )
        return shape

    def guarantee(self, plan: HierarchyShape, epsilon: float) -> Guarantee:
        sums, scale, level = "one integer sum and gives it", f"theta * {plan.levels}", f"epsilon / {plan.levels}"
        noise, loss, one = f"discrete Laplace noise of scale {scale} / epsilon", "epsilon", "epsilon"
        if self.noise == "gaussian":
            noise = f"discrete Gaussian noise of sigma theta * sqrt({plan.levels}) / {epsilon:g}"
            level, loss, one = "the same rho", f"rho = {epsilon:g}^2 / 2", "the same rho"
        made = concentrated if self.noise == "gaussian" else pure
        return made(
            epsilon,
            f"each of {plan.levels} released levels adds a value to {sums} {noise}",
            f"{plan.levels} levels of {level} each: {loss} (sequential)",
            f"trees hold disjoint values: {one} for the endless stream (parallel)",
            "consistency, smoothing and range answers are functions of the noisy sums (post-processing)",
        )

    def noise_constant(self, plan: HierarchyShape, max_range: int) -> float:
        """K for ranges within one tree; rounding adds less than 0.5 %."""
        constant = consistent_constant if self.consistent else tiling_constant
        # The constants are of nodes with variance 2 levels^2 / epsilon^2.
        return constant(plan, max_range) / (1.0 if self.noise == "laplace" else 2.0 * plan.levels)

    def group_square(self, plan: HierarchyShape, size: int) -> Fraction:
        """Bound on the squared L2 sensitivity of `size` consecutive values."""
        widths = [plan.block * plan.fan_out**level for level in range(plan.levels)]
        return Fraction(sum(size * min(size, width) for width in widths), plan.levels)

    def moved_draws(self, plan: HierarchyShape, size: int) -> int:
        """Number of nodes that `size` consecutive values can change."""
        return plan.levels * size

    def leaf_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        if not self.consistent:
            return self._draw(plan, theta_steps, epsilon, key, tree, levels=1)
        nodes = self.node_noise(plan, theta_steps, epsilon, key, tree)
        if plan.levels > 1:
            hierarchy_nodes.make_consistent(
                nodes[None], plan.tops, plan.fan_out, plan.levels, consistency_weights(plan)
            )
        return nodes[: plan.leaves]

    def node_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        return self._draw(plan, theta_steps, epsilon, key, tree, levels=plan.levels)

    def _draw(
        self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int, levels: int
    ) -> Integers:
        widths = plan.widths[:levels]
        nodes: Integers = np.empty(sum(widths), np.int64)
        if self.noise == "laplace":
            sampler.fill_pieces(nodes, _laplace(plan, theta_steps, epsilon), key, _pieces(plan, levels), tree)
            return nodes
        start, distribution = 0, noise_distribution(self.noise, theta_steps, plan.levels, epsilon)
        for level, width in enumerate(widths):
            fill(nodes[start : start + width], distribution, key, StreamId(Purpose.TREE, level + 1, tree))
            start += width
        return nodes

    def noise_rows(self, rows: TreeRows) -> Integers | None:
        """Draw one tree's noise a row, of all nodes where leaves need them."""
        if self.noise == "gaussian":
            return None
        plan, all_nodes = rows.plan, self.consistent or rows.nodes
        words = rows.words(_pieces(plan, plan.levels) if all_nodes else [(StreamId(Purpose.TREE, 1), rows.needed)])
        noise = sampler.draw_rows(
            words, rows.theta_steps, lambda steps: _laplace(plan, steps, rows.epsilon), rows.streams, rows.trees
        )
        if self.consistent and not rows.nodes and plan.levels > 1:
            hierarchy_nodes.make_consistent(noise, plan.tops, plan.fan_out, plan.levels, consistency_weights(plan))
        return noise


def _laplace(plan: HierarchyShape, theta_steps: int, epsilon: float) -> sampler.LaplaceDistribution:
    return cast("sampler.LaplaceDistribution", noise_distribution("laplace", theta_steps, plan.levels, epsilon))


@lru_cache(maxsize=64)
def _pieces(plan: HierarchyShape, levels: int) -> tuple[tuple[StreamId, int], ...]:
    return tuple((StreamId(Purpose.TREE, level + 1), width) for level, width in enumerate(plan.widths[:levels]))


@lru_cache(maxsize=64)
def consistency_weights(plan: HierarchyShape) -> Floats:
    """Weight of a node against its children, by height: (b^l - b^(l-1)) / (b^l - 1), Eq. 10."""
    b = plan.fan_out
    weights = np.zeros(plan.levels + 1)
    for height in range(2, plan.levels + 1):
        weights[height] = float(Fraction(b**height - b ** (height - 1), b**height - 1))
    weights.flags.writeable = False
    return weights
