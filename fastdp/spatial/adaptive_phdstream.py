"""PHDStream with cells chosen from released counts: all of epsilon goes to the counts, which are rare.

Where past counts say too little about what comes, PrivTree chooses cells again, as for the first batch.

Beyond the paper; the same guarantee, proof and measurements in ``docs/phdstream.md`` ("Counts alone").
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fastdp import validation
from fastdp.counters.counter import Simple, event_guarantee, noise_scale
from fastdp.guarantee import Guarantee, parallel, sequential
from fastdp.kinds import Integers
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.releases.intervals import laplace_variance
from fastdp.spatial import count_only, decomposition
from fastdp.spatial.cells import CellParameters, Domain, Outside, make_plan
from fastdp.spatial.count_only import (
    FIRST_PERIOD,
    MAX_COARSE,
    CountParameters,
    ReleaseSchedule,
    after_jump,
    check_pace,
    following_pace,
)
from fastdp.spatial.spatial_publisher import (
    PointMachine,
    SpatialPublisher,
    WholeCount,
    WholeParameters,
    as_share,
    for_events,
    in_halves,
    split,
)
from fastdp.spatial.tree import COUNTED, Tree, check_codes

#: Events wait for this many steps at most.
MAX_PERIOD = 2**16


@dataclass(frozen=True)
class AdaptiveState:
    """Where the stream stands.

    Attributes
    ----------
    n_steps, tree
        As :class:`fastdp.spatial.spatial_publisher.PointMachine` says.
    counted : Tree or None
        The tree at the last count.
    pace : ReleaseSchedule
        When to count next.
    last_count : int
        Steps up to the last count.
    added, removed : tuple of int64[n]
        Codes of the batches since.  Secret.
    anew : bool
        Whether the next count lets PrivTree choose its cells.
    whole : WholeCount or None
        The count of the whole at the last count, where there is one.
    """

    n_steps: int
    tree: Tree | None
    counted: Tree | None
    pace: ReleaseSchedule
    last_count: int = 0
    added: tuple[Integers, ...] = field(default=(), repr=False)
    removed: tuple[Integers, ...] = field(default=(), repr=False)
    anew: bool = False
    chain: str = field(default="", repr=False)
    whole: WholeCount | None = None


@dataclass(frozen=True, kw_only=True)
class AdaptiveMachine(PointMachine):
    """AdaptivePHDStream as a machine.

    Attributes
    ----------
    sensitivity, period, max_period, shrink, total_share
        As of :class:`AdaptivePHDStream`.
    """

    #: What a step between two counts releases follows from the last count.
    TREES: ClassVar[Any] = {"tree": (), "counted": COUNTED}

    sensitivity: int
    period: int | None
    max_period: int
    shrink: bool
    total_share: float = 0.0
    rule: ClassVar[int] = 1

    @cached_property
    def rest(self) -> Fraction:
        """Epsilon of the cells for one event: what the count of the whole leaves."""
        return Fraction(split(self.epsilon, self.total_share)[1]) / self.sensitivity

    @cached_property
    def whole(self) -> WholeParameters | None:
        """What is fixed of the count of the whole."""
        return WholeParameters.of_share(self.epsilon, self.sensitivity, self.total_share)

    @cached_property
    def plan(self) -> CellParameters:
        """Public parameters."""
        half = self.rest / 2
        return make_plan(self.domain, self.fan_out, self.max_depth, half, half, Simple(), threshold=0.0)

    @cached_property
    def counting(self) -> CountParameters:
        """What is fixed of counts."""
        scale = noise_scale(Simple(), self.rest)
        # Cells are cut by deviations of half a point at least, so that the first counts' is compared with that; it
        # must not grow with a later noise that vanishes, or nothing would ever be cut.
        least = count_only.MIN_DEVIATION**2
        noise = laplace_variance(scale)
        first = round(max(laplace_variance(2 * scale), least) / max(noise, least))
        return CountParameters(self.plan, sampler.laplace_distribution(scale), noise, first, self.shrink)

    def start(self, key: Key) -> AdaptiveState:
        """Before the first batch."""
        period = min(FIRST_PERIOD, self.max_period) if self.period is None else self.period
        whole = None if self.whole is None else WholeCount()
        return AdaptiveState(0, None, None, ReleaseSchedule(period), whole=whole)

    def follow(self, state: AdaptiveState, added: Integers, removed: Integers, key: Key, chain: str) -> AdaptiveState:
        """Count, or forecast until the next count is due."""
        plan, now = self.counting, state.n_steps + 1
        if state.counted is None:
            _, tree, _ = decomposition.take_step(plan.cells, self.root, added, removed, 0, key)
            tree = count_only.initial_tree(plan, tree)
            whole, tree = self._count_whole(state, tree, added, removed, key)
            anew = count_only.is_empty(plan, tree)
            return AdaptiveState(now, tree, tree, state.pace, now, anew=anew, chain=chain, whole=whole)
        waiting = (*state.added, added), (*state.removed, removed)
        elapsed = now - state.last_count
        if elapsed < state.pace.period:
            missing = self._missing(state.whole, state.counted)
            tree = count_only.forecast(plan, state.counted, state.pace, elapsed, missing)
            return replace(state, n_steps=now, tree=tree, added=waiting[0], removed=waiting[1], chain=chain)
        come, gone = (np.sort(np.concatenate(chunks)) for chunks in waiting)
        made = count_only.recount if state.anew else count_only.count
        tree, growth = made(plan, state.counted, come, gone, now - 1, elapsed, key)
        whole, tree = self._count_whole(state, tree, come, gone, key)
        total = float(state.counted.projected[0])
        most = self.max_period if self.period is None else None
        pace = following_pace(state.pace, growth, total, now, plan.noise, most)
        anew = growth.coarse > MAX_COARSE
        if most is not None:
            pace, anew = after_jump(pace, anew, now)
        return AdaptiveState(now, tree, tree, pace, now, anew=anew, chain=chain, whole=whole)

    def _count_whole(
        self, state: AdaptiveState, tree: Tree, come: Integers, gone: Integers, key: Key
    ) -> tuple[WholeCount | None, Tree]:
        """Count the whole too, where that is asked for, and adjust the cells' counts to it."""
        if self.whole is None or state.whole is None:
            return None, tree
        whole = self.whole.step(state.whole, come.size - gone.size, state.n_steps, key)
        return whole, count_only.adjusted(self.counting, tree, self._missing(whole, tree))

    def _missing(self, whole: WholeCount | None, tree: Tree) -> float:
        if self.whole is None or whole is None:
            return 0.0
        variance = self.counting.noise * float(tree.weight[0])
        return self.whole.missing(whole, int(tree.released[0]), variance)

    def unpacked(self, described: Any) -> AdaptiveState:
        """The state that was described."""
        state: AdaptiveState = super().unpacked(described)
        check_pace(state.pace, self.period, self.max_period)
        started, elapsed = state.n_steps > 0, state.n_steps - state.last_count
        if len(state.added) != elapsed or len(state.removed) != elapsed:
            raise ValueError("batches that do not wait")
        if started != (state.last_count > 0) or not 0 <= elapsed < state.pace.period:
            raise ValueError("a count out of time")
        if self.whole is not None:
            self.whole.check(state.whole)
        for codes in (*state.added, *state.removed):
            check_codes(codes, self.plan)
        if state.counted is None or not elapsed:
            return replace(state, tree=state.counted)
        missing = self._missing(state.whole, state.counted)
        tree = count_only.forecast(self.counting, state.counted, state.pace, elapsed, missing)
        return replace(state, tree=tree)


class AdaptivePHDStream(SpatialPublisher):
    """Releases a synthetic version of a changing set of points, with less error than PHDStream where its shape lasts.

    PrivTree chooses the first cells.  After that cells are cut and merged by released counts alone, so that all of
    epsilon goes to the counts; a cell is counted every few steps, by a period that follows from released counts too,
    and forecast in between; estimates are shrunken where noise drowns the difference between a cell's parts.  If much
    of what a count finds is in cells that past ones did not cut, it does what :class:`fastdp.PHDStream` does,
    PrivTree and a count in every step, for 32 steps (unless ``period`` is given: then PrivTree chooses the next
    count's cells).

    For many batches, and releases that may lag a few steps behind.  Where each batch must show at once, and where
    batches are few, :class:`fastdp.PHDStream` is better (measured in ``docs/phdstream.md``, "The better of the two").

    Parameters
    ----------
    domain : Domain
        The public region, such as ``fastdp.spatial.Box(lower, upper)``.
    epsilon : float
        Privacy loss of all releases for ``sensitivity`` events.
    max_depth : int
        D: cells of this depth are not cut any more; fan_out^D at most 2^62.
    fan_out : int
        beta: parts that a cell is cut into, along one axis; the axes take turns, the first one first.
    sensitivity : int
        k: events (additions and removals) of one person that are protected together; each gets epsilon / k.
    period : int, optional
        Steps from one count to the next, 1 to 65,536; by default chosen again at every count.
    max_period : int
        The longest one that may be chosen.
    shrink : bool
        Whether the estimates of a cell's parts are drawn towards equal shares, by as much as noise suggests.
    total_share : float
        Share of epsilon, 0 to 0.5, for a count of all points beside those of the cells, which least squares adjusts
        to it.  Rare counts leave little to gain: boxes lose up to 4 % with 0.05 (``docs/phdstream.md``).
    outside : str
        As for :class:`fastdp.PHDStream`.
    seed, key
        As for :class:`fastdp.StreamPublisher`.

    Notes
    -----
    Privacy: streams are adjacent if they differ in one event, one addition or one removal in one batch.  An event is
    in one count: with epsilon in cells that past releases chose, or, in the first batch and where cells are chosen
    again, with epsilon / 2 beside PrivTree's decisions with epsilon / 2.  Past releases determine which of the two.
    The number of batches is public; nothing else is.

    Unlike :class:`fastdp.PHDStream` it keeps the events that wait to be counted, those of at most one period, in
    memory.  The first batch should hold all points so far; if it is empty, the first cells come from the
    second count.  After an interrupt compare ``n_steps``: a batch that was consumed must not be sent again.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> stream = fastdp.AdaptivePHDStream(fastdp.spatial.Box((0, 0), (1, 1)), epsilon=1.0, seed=1)
    >>> points = np.random.default_rng(1).random((1000, 2))
    >>> stream.step(points, np.empty((0, 2))).shape[1]  # synthetic points
    2
    >>> abs(stream.total - 1000) < 200
    True
    """

    _MACHINE: ClassVar[Any] = AdaptiveMachine
    _machine: AdaptiveMachine
    _state: AdaptiveState
    sensitivity: int
    period: int | None
    max_period: int
    shrink: bool
    total_share: float

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        *,
        max_depth: int = 20,
        fan_out: int = 2,
        sensitivity: int = 1,
        period: int | None = None,
        max_period: int = 64,
        shrink: bool = True,
        total_share: float = 0.0,
        outside: Outside = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        machine = AdaptiveMachine(
            domain=domain,
            epsilon=validation.positive("epsilon", epsilon),
            max_depth=max_depth,
            fan_out=fan_out,
            sensitivity=validation.integer("sensitivity", sensitivity, 1, 2**30),
            period=None if period is None else validation.integer("period", period, 1, MAX_PERIOD),
            max_period=validation.integer("max_period", max_period, 1, MAX_PERIOD),
            shrink=validation.flag("shrink", shrink),
            total_share=as_share(total_share),
            outside=outside,
        )
        self._start(machine, seed, key)

    @property
    def next_count(self) -> int:
        """The step, counted from 1, in which cells are counted next: public, as it follows from past releases."""
        state = self._state
        return state.last_count + (state.pace.period if state.n_steps else 1)

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for ``sensitivity`` events over all releases: an event is in one count, of either kind."""
        total, rest = split(self.epsilon, self.total_share)
        once = "an event waits until its cell is counted and is in that count only"
        follows = "cells, times of counts, and which of them PrivTree prepares, follow from past releases"
        alone = event_guarantee(rest, follows, once)
        whole = parallel(in_halves(rest, "where PrivTree chooses, "), alone.of("other counts"))
        if self.total_share:
            whole = sequential(whole, WholeParameters.guarantee(total))
        return replace(for_events(whole, self.sensitivity), simulated=self._key.simulated)
