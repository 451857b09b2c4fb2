"""Noise without a tree: on values (ToPS section 3, Appendix F), or on blocks sized by released sums."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from numbers import Integral
from typing import ClassVar, Literal, NamedTuple, get_args

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, pure
from fastdp.kinds import Floats, Integers, Json, Records
from fastdp.noise.key import Key
from fastdp.noise.sampler import Distribution, NoiseName, concentrated, noise_distribution
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers.base import HierarchyShape, fill, independent_constant
from fastdp.perturbers.hierarchy import Hierarchy
from fastdp.record import Checked, Choice, Flag, parameter, record
from fastdp.releases.intervals import SumNoise, tree_variances
from fastdp.validation import refusal
from fastdp_kernels.streams import block_lengths as b

#: Number of values for which noise is drawn at a time.
DRAWN = 2**16


@record
class Flat:
    """Adds exact noise to each value: discrete Laplace of scale theta / epsilon, or discrete Gaussian.

    Parameters
    ----------
    noise : "laplace" or "gaussian"
        Gaussian noise has sigma theta / epsilon, where rho = epsilon^2 / 2 is the loss of the publisher's epsilon and
        ``delta``.

    Notes
    -----
    Privacy: pure epsilon, or (epsilon, delta).  A range's error grows with the root of its length; w values of one
    unit widen Laplace noise by w, Gaussian by sqrt(w).

    Examples
    --------
    >>> import fastdp
    >>> flat = fastdp.perturbers.Flat()
    >>> publisher = fastdp.StreamPublisher(
    ...     epsilon=1.0, bound=100, threshold=50.0, perturber=flat
    ... )
    >>> publisher.guarantee.epsilon
    1.0
    """

    noise: NoiseName = parameter(Choice(get_args(NoiseName)), default="laplace", kw_only=True)
    released_nodes: ClassVar[bool] = False
    rule: ClassVar[int] = 1

    def plan(self, epsilon: float, max_range: int) -> HierarchyShape:
        return HierarchyShape(leaves=DRAWN, tops=DRAWN, tree_blocks=DRAWN)

    def guarantee(self, plan: HierarchyShape, epsilon: float) -> Guarantee:
        if self.noise == "gaussian":
            drawn = f"each value gets discrete Gaussian noise of sigma theta / {epsilon:g} once"
            return concentrated(epsilon, f"{drawn}: rho = {epsilon:g}^2 / 2")
        return pure(epsilon, "each value gets discrete Laplace noise of scale theta / epsilon once: epsilon")

    def noise_constant(self, plan: HierarchyShape, max_range: int) -> float:
        return independent_constant(max_range) * (1.0 if self.noise == "laplace" else 0.5)

    def group_square(self, plan: HierarchyShape, size: int) -> int:
        return size

    def moved_draws(self, plan: HierarchyShape, size: int) -> int:
        return plan.levels * size

    def leaf_distribution(self, theta_steps: int, epsilon: float) -> Distribution | None:
        kind = type(self)
        overridden = kind.leaf_noise is not Flat.leaf_noise or kind.node_noise is not Flat.node_noise
        return None if overridden else noise_distribution(self.noise, theta_steps, 1, epsilon)

    def leaf_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        return self.node_noise(plan, theta_steps, epsilon, key, tree)

    def node_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        noise: Integers = np.empty(plan.leaves, np.int64)
        fill(noise, noise_distribution(self.noise, theta_steps, 1, epsilon), key, StreamId(Purpose.TREE, 1, tree))
        return noise


#: Lengths of the ranges that matter: one, from and to, or r.
Focus = int | tuple[int, int] | Literal["longest"]
#: Number of blocks for which noise is drawn at a time.
BATCH = 2**10
#: The prior signal, in squared thresholds: variance of a value about its level, and how far the level moves over
#: max_range values.
PRIOR_WHITE = 0.02
PRIOR_DRIFT = 0.02
#: The first block is at most max_range >> MAX_FIRST long, no block longer than max_range >> MAX_EVER.
MAX_FIRST = 6
MAX_EVER = 2
#: With a focus max_range >> FOCUS_FIRST: short blocks show the signal soon, and lengths double with each pair.  But a
#: pair of blocks of less than 2^CHOOSING values is no choice (``block_lengths.CADENCE``).
FOCUS_FIRST = 12
CHOOSING = int(math.log2(b.CADENCE)) - 1
#: Groups of blocks have max_range >> GROUP values at least; there are none where that is less than LEAST_GROUP.
GROUP = 4
LEAST_GROUP = 2**14
#: Grid steps of a theta below which blocks form no groups: whole steps would miss 6/5 of it by more than 2 %.
FINE = 64
#: Weight of noise in the choice of theta, against its weight in the longest ranges alone.
THETA_WEIGHT = 1.5
#: At most the last eighth of the hold-out, a power of two of values, is released as blocks and does not choose theta.
WARM_UP = 8
#: Without a focus, ranges up to r, r / 7, r / 70 and r / 700 count alike, by their mean lengths; of events, those of
#: 1, 10, ... values.
DIVISORS = (1.0, 7.0, 70.0, 700.0)
MEAN_OF_LONGEST = 3.0
#: The prior signal of events, in squared sensitivities: one event a value, and a level that stands still.
PRIOR_EVENTS = 1.0


@dataclass(frozen=True)
class BlocksShape(HierarchyShape):
    """Shape with the first length, 2^first, and 2^usual without a focus; least group."""

    first: int = 0
    usual: int = 0
    group: int = 0


def _checked_focus(name: str, focus: object) -> Focus:
    if not isinstance(focus, (tuple, list)):
        return validation.integer(name, focus, 1, 2**40)
    if len(focus) != 2:
        raise ParameterError(f"{name} has {len(focus)} entries: expected a length, or (shortest, longest)")
    if not all(isinstance(length, Integral) for length in focus):
        raise refusal(name, focus, "two whole numbers, (shortest, longest)")
    low, high = (validation.integer(f"{name}[{i}]", length, 1, 2**40) for i, length in enumerate(focus))
    if low > high:
        raise ParameterError(f"{name} = ({low}, {high}): expected the shortest length first")
    return low, high


@record
class Blocks(Flat):
    """Adds exact noise to each block's sum, scaled as by :class:`Flat`; released sums choose the next block's length.

    The difference between a block's released sum and its published values is spread over the next values, half as
    many as the longer of the two blocks has (fewer with a focus on long ranges).

    Parameters
    ----------
    focus : int, (int, int) or "longest", optional
        Public length of the ranges that matter, their shortest and longest, or "longest" for the longest alone;
        by default all lengths.
    rising : bool
        True lets a theta that is not public follow a stream that outgrows its hold-out.
    season : float, optional
        Public period in values, at least 2: predictions follow waves of this period and of seven that released sums
        show.
    noise : "laplace" or "gaussian"
        Gaussian noise needs ``delta``; values of one unit may lie in one block, so ``contributions`` of w cost
        w times the scale.

    Notes
    -----
    Privacy: pure epsilon, or (epsilon, delta) with Gaussian noise: a block's end depends only on earlier released
    sums.  Many short blocks share a second sum (``docs/streams_proofs.md``).

    Examples
    --------
    >>> import fastdp
    >>> blocks = fastdp.perturbers.Blocks(focus=(10, 1000))
    >>> publisher = fastdp.Adaptive(
    ...     1.0, bound=100, threshold=50.0, perturber=blocks
    ... )
    >>> publisher.guarantee.epsilon
    1.0
    """

    focus: Focus | None = parameter(Checked(_checked_focus, words=("longest",)), default=None)
    rising: bool = parameter(Flag(), default=True)
    season: float | None = parameter(Checked(validation.period), default=None)
    rule: ClassVar[int] = 1
    constant_parameters: ClassVar[Json] = {"closing": "spread"}

    def _focused(self, max_range: int) -> tuple[int, int]:
        if isinstance(self.focus, tuple):
            return self.focus
        length = self.focus if isinstance(self.focus, int) else max_range
        return length, length

    def query_lengths(self, max_range: int, *, events: bool = False) -> Floats:
        """Query lengths that block lengths are chosen for."""
        count = b.EVENT_CLASSES if events else b.CLASSES
        lengths: Floats
        if self.focus is not None:
            lengths = np.geomspace(*self._focused(max_range), count)
        elif events:
            lengths = np.minimum(10.0 ** np.arange(count), max_range)
        else:
            lengths = np.maximum(1.0, max_range / MEAN_OF_LONGEST / np.array(DIVISORS))
        return lengths

    def group_square(self, plan: HierarchyShape, size: int) -> int:
        return size * size

    def plan(self, epsilon: float, max_range: int) -> BlocksShape:
        first = int(self.shape(epsilon, max_range, 0)["first"][0])
        usual = first if self.focus is None else replace(self, focus=None).plan(epsilon, max_range).first
        flat = super().plan(epsilon, max_range)
        sizes = {**vars(flat), "leaves": BATCH, "tops": BATCH, "tree_blocks": BATCH}
        return BlocksShape(**sizes, first=first, usual=usual, group=self._least_group(max_range))

    def noise_constant(self, plan: HierarchyShape, max_range: int) -> float:
        """K of a range of r / 3 over first blocks or groups, times THETA_WEIGHT, for any focus."""
        assert isinstance(plan, BlocksShape)  # noqa: S101 - made by plan()
        block, noises = 2.0**plan.usual, max(1.0, max_range / 3.0) / 2.0**plan.usual - 1.0 / 3.0
        size = max(plan.group, b.MEMBERS * block)
        if plan.group and size <= b.WIDER * plan.group:
            by_blocks, by_group = size / block * b.LOUDER**2, b.GROUP_SCALE**2
            # Groups within the range, and the blocks cut at its two ends.
            noises = max_range / 3.0 / size * by_blocks * by_group / (by_blocks + by_group) + by_blocks / 3.0
        return self._variance * THETA_WEIGHT * noises

    def guarantee(self, plan: HierarchyShape, epsilon: float) -> Guarantee:
        assert isinstance(plan, BlocksShape)  # noqa: S101 - made by plan()
        rest: tuple[str, ...] = (
            "blocks are disjoint, and their ends depend only on sums released earlier (adaptive parallel)",
            "predictions and revisions are functions of the noisy sums (post-processing)",
        )
        if self.noise == "gaussian":
            drawn = f"each block's integer sum gets discrete Gaussian noise of sigma theta / {epsilon:g} once"
            return concentrated(epsilon, f"{drawn}: rho = {epsilon:g}^2 / 2", *rest)
        if plan.group:
            rest = ("a value in a group of blocks loses 5/6 epsilon in its block's sum, 1/6 in the group's", *rest)
        drawn = "each block's integer sum gets discrete Laplace noise of scale theta / epsilon once: epsilon"
        return pure(epsilon, drawn, *rest)

    @property
    def _variance(self) -> float:
        return 2.0 if self.noise == "laplace" else 1.0

    def _least_group(self, max_range: int) -> int:
        least = max_range.bit_length() - 1 - GROUP
        grouped = self.noise == "laplace" and self.season is None and least >= math.log2(LEAST_GROUP)
        return 1 << least if grouped else 0

    def warm_up(self, holdout: int) -> int:
        """Values released as sums, which do not choose theta: a power of two up to `holdout` / 8."""
        return 0 if holdout < 2 * WARM_UP else 1 << ((holdout // WARM_UP).bit_length() - 1)

    def shape(self, epsilon: float, max_range: int, warm_up: int, *, events: bool = False) -> Records:
        """Public parameters of the kernels, SHAPE[1]."""
        shape = np.zeros(1, b.SHAPE)
        # Of the continuous distribution; a discrete one on a fine grid differs by a sixth of a squared grid step.
        # Divided twice: the square of an epsilon that the grid will refuse may be 0 or too large.
        shape["noise"] = self._variance / epsilon / epsilon
        lengths = self.query_lengths(max_range, events=events)
        shape["queries"][0, : lengths.size] = lengths
        shape["prior_white"] = PRIOR_WHITE
        shape["prior_drift"] = PRIOR_DRIFT / max_range
        top = max_range.bit_length() - 1
        shape["most"] = max(top - MAX_EVER, 0)
        shape["focused"] = self.focus is not None and not events
        first = b.fill_shares(shape)
        if self.focus is not None:
            first = min(first, max(top - FOCUS_FIRST, CHOOSING))
        shape["first"] = min(first, max(top - MAX_FIRST, 0))
        shape["limit"] = warm_up
        shape["group"] = self._least_group(max_range)
        if events:
            # Blocks begin with one value: whatever they hold, the next ones are at most twice as long.
            shape["events"], shape["first"] = 1.0, 0.0
            shape["prior_white"], shape["prior_drift"] = PRIOR_EVENTS, 0.0
        return shape


# The best tree for sums over the last w values.

#: Candidate fan-outs, and tree sizes in windows.
FAN_OUTS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
WINDOWS = (1, 2, 4)
#: Largest number of positions in a tree that are averaged over.
POSITIONS = 4096


class WindowTree(NamedTuple):
    """Result of :func:`tree_for_window`.

    Attributes
    ----------
    perturber, max_range
        Consistent hierarchy with every value a leaf, and r of the publisher.
    variance : float
        Of a window's noise at a random position, in theta^2 / epsilon^2.
    """

    perturber: Hierarchy
    max_range: int
    variance: float


def tree_for_window(window: int) -> WindowTree:
    """Tree under which sums over `window` values (public, 1 to 2^20) have the least noise on average.

    Notes
    -----
    A window across two trees has the noise of both (least squares, ToPS Appendix C).

    Examples
    --------
    >>> import fastdp
    >>> tree = fastdp.perturbers.tree_for_window(256)
    >>> tree.perturber.fan_out, tree.max_range, round(tree.variance)
    (8, 256, 143)
    """
    return _best(validation.integer("window", window, 1, 2**20))


@lru_cache(maxsize=64)
def _best(window: int) -> WindowTree:
    trees = [_tree(window, fan_out, count * window) for fan_out in FAN_OUTS for count in WINDOWS]
    return min(trees, key=lambda tree: (round(tree.variance, 9), tree.max_range))


def _tree(window: int, fan_out: int, max_range: int) -> WindowTree:
    perturber = Hierarchy(fan_out, prune=0)
    plan = perturber.plan(1.0, max_range)
    shape = SumNoise("tree", 1.0, 1.0, fan_out=fan_out, levels=plan.levels, tree_blocks=plan.tree_blocks)
    starts = np.unique(np.linspace(0, plan.tree_blocks - 1, min(plan.tree_blocks, POSITIONS)).round())
    variances = tree_variances(shape, starts, starts + window)
    return WindowTree(perturber, max_range, float(2 * plan.levels**2 * variances.mean()))
