"""The three baselines of PHDStream's section 5.3: PrivTree run again and again, and PrivTree run once.

They release what :class:`fastdp.PHDStream` releases, for comparison with it.  Readings: ``docs/explanation/papers.md``.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from fastdp import Guarantee, Key
from fastdp.counters import Counter, Simple, event_guarantee
from fastdp.counters.counter import check_rows, counter_guarantee, noise_scale
from fastdp.guarantee import parallel
from fastdp.kinds import Integers
from fastdp.noise import sampler
from fastdp.noise.words import Purpose, StreamId
from fastdp.points import decomposition
from fastdp.points.decomposition import Tree, check_codes
from fastdp.points.domains import CellParameters, PointParameters
from fastdp.points.phdstream import PointMachine, PointPublisher, PointState, in_halves
from fastdp.record import PartOf, Real, constructor, parameter, record
from fastdp.state.codec import expect


def _none() -> Integers:
    return np.empty(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class BaselineState(PointState):
    """State of a baseline.

    Attributes
    ----------
    added, removed : int64[n]
        Codes of all points so far, ascending, for the baseline that keeps them.  Secret.
    size : int
        |f|: additions less removals so far.
    rows : int64[leaves, width]
        The leaves' counters, for the baseline that has them.
    """

    added: Integers = field(default_factory=_none, repr=False)
    removed: Integers = field(default_factory=_none, repr=False)
    size: int = 0
    rows: Integers = field(default_factory=_none)


@record
class OfflineMachine(PointParameters, PointMachine[BaselineState]):
    """PrivTree at a threshold; half of epsilon is for the cells, half for their counts."""

    REPAIRED: ClassVar[bool] = True

    _: KW_ONLY
    threshold: float = parameter(Real(), default=0.0)
    rule: ClassVar[int] = 1

    @cached_property
    def plan(self) -> CellParameters:
        """Sizes, threshold and noise."""
        half, shape = Fraction(self.epsilon) / 2, (self.domain, self.fan_out, self.max_depth)
        return CellParameters(*shape, half, half, Simple(), self.threshold, self.REPAIRED)

    def start(self, key: Key) -> BaselineState:
        """Before the first batch."""
        return BaselineState()

    def offline(self, added: Integers, removed: Integers, step: int, key: Key) -> Tree:
        """PrivTree and counts, from nothing."""
        return decomposition.take_step(self.plan, self.root, added, removed, step, key)[1].shown

    def restored(self, state: BaselineState, key: Key) -> BaselineState:
        """ValueError unless the tree, the codes and the counters are those of a step."""
        if (state.tree is None) != (state.n_steps == 0):
            raise ValueError("a release out of range")
        return state


@record
class OnStreamMachine(OfflineMachine):
    """PrivTree on all points so far, at each step."""

    REPAIRED: ClassVar[bool] = False
    rule: ClassVar[int] = 1

    def follow(self, state: BaselineState, added: Integers, removed: Integers, key: Key, chain: str) -> BaselineState:
        """PrivTree on all points so far."""
        every = np.sort(np.concatenate([state.added, added])), np.sort(np.concatenate([state.removed, removed]))
        tree = self.offline(*every, state.n_steps, key)
        return BaselineState(n_steps=state.n_steps + 1, chain=chain, tree=tree, added=every[0], removed=every[1])

    def restored(self, state: BaselineState, key: Key) -> BaselineState:
        """ValueError for codes of no batch, too."""
        super().restored(state, key)
        for codes in (state.added, state.removed):
            check_codes(codes, self.plan)
        return state


@record
class OnBatchMachine(OfflineMachine):
    """PrivTree on each batch."""

    rule: ClassVar[int] = 1

    def follow(self, state: BaselineState, added: Integers, removed: Integers, key: Key, chain: str) -> BaselineState:
        """PrivTree on the batch."""
        tree = self.offline(added, removed, state.n_steps, key)
        size = state.size + added.size - removed.size
        total = float(tree.projected[0])
        factor = max(size, 0) / total if total > 0.0 else 0.0
        return BaselineState(
            n_steps=state.n_steps + 1, chain=chain, tree=tree._replace(projected=tree.projected * factor), size=size
        )


@record
class FixedTreeMachine(OfflineMachine):
    """PrivTree on the first batch, then counters."""

    counter: Counter = parameter(PartOf(Counter, "fastdp.counters"), default=Simple())
    rule: ClassVar[int] = 1

    @cached_property
    def distribution(self) -> sampler.LaplaceDistribution:
        """Distribution of the counters' noise."""
        return sampler.laplace_distribution(noise_scale(self.counter, Fraction(self.epsilon)))

    def follow(self, state: BaselineState, added: Integers, removed: Integers, key: Key, chain: str) -> BaselineState:
        """Count in the first batch's cells."""
        tree = state.tree
        if tree is None:
            first = self.offline(added, removed, 0, key)
            rows: Integers = np.zeros((first.leaves.size, self.counter.width), np.int64)
            return BaselineState(n_steps=state.n_steps + 1, chain=chain, tree=first, rows=rows)
        widths = np.array([self.fan_out**k for k in range(self.max_depth, -1, -1)], np.int64)[tree.depth[tree.leaves]]
        begins = tree.code[tree.leaves] * widths
        net = sum(
            sign * (np.searchsorted(codes, begins + widths) - np.searchsorted(codes, begins))
            for sign, codes in ((1, added), (-1, removed))
        )
        noise = sampler.draws(tree.leaves.size, self.distribution, key, StreamId(Purpose.CELL, number=state.n_steps))
        rows = state.rows.copy()
        increments = net + self.counter.step(rows, noise)
        changed = {name: getattr(tree, name).copy() for name in ("released", "held", "projected")}
        following = tree._replace(**changed)
        decomposition.add_increments(self.fan_out, following, increments)
        return BaselineState(n_steps=state.n_steps + 1, chain=chain, tree=following, rows=rows)

    def restored(self, state: BaselineState, key: Key) -> BaselineState:
        """ValueError for rows of no counter, too."""
        super().restored(state, key)
        if state.tree is not None:
            expect(state.rows, np.empty((state.tree.leaves.size, self.counter.width), np.int64))
            check_rows(self.counter, state.rows)
        return state


class _Baseline(PointPublisher[BaselineState]):
    """A baseline with the threshold of :class:`fastdp.PHDStream`."""

    threshold: float


class OfflineOnStream(_Baseline):
    """Baseline 1: PrivTree and new counts at each step on all points present.  NOT private at epsilon.

    Parameters as for :class:`fastdp.PHDStream`.

    Notes
    -----
    Every step costs epsilon again for every point that has come or gone so far.  Keeps a code for every event.
    """

    _MACHINE: ClassVar[type] = OnStreamMachine

    @constructor(OnStreamMachine)
    def __init__(self, machine: OnStreamMachine, seed: int | str | None, key: Key | bytes | None) -> None:
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    @property
    def guarantee(self) -> Guarantee:
        """No finite epsilon holds for a stream that goes on."""
        endless = (
            "NOT private: each step looks at all events again, epsilon = steps x the one asked for, without bound"
        )
        return replace(event_guarantee(math.inf, endless), simulated=self._key.simulated)


class OfflineOnBatch(_Baseline):
    """Baseline 2: PrivTree and counts on each batch alone, scaled up to the number of points present.

    Parameters as for :class:`fastdp.PHDStream`.

    Notes
    -----
    Private at epsilon: each event is in one batch.  The number of points present, ``|f(t)|``, is treated as public,
    as the paper does.  A batch whose noisy net count is not positive releases nothing (spread evenly, errors on the
    circles with deletion are 12 to 16 % above the published code's instead of 1 to 3 %).  Cells are chosen by the
    batch's additions; with the net counts that the paper seems to use, scores may rise along a path and the proof
    fails.
    """

    _MACHINE: ClassVar[type] = OnBatchMachine

    @constructor(OnBatchMachine)
    def __init__(self, machine: OnBatchMachine, seed: int | str | None, key: Key | bytes | None) -> None:
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for one event, given the public sizes."""
        whole = in_halves(self.epsilon)
        known = "the number of points present at each time is public"
        return replace(whole, simulated=self._key.simulated, derivation=(*whole.derivation, known))


class FixedTree(_Baseline):
    """Baseline 3: PrivTree on the first batch, then counters at its leaves for ever.

    Parameters
    ----------
    counter : Counter
        What counts at the leaves from the second batch on, with all of epsilon.
    domain, epsilon, and others
        As for :class:`fastdp.PHDStream`.

    Notes
    -----
    From the second batch on points in cells without any of the domain, on its very border, are not counted.
    """

    _MACHINE: ClassVar[type] = FixedTreeMachine
    counter: Counter

    @constructor(FixedTreeMachine)
    def __init__(self, machine: FixedTreeMachine, seed: int | str | None, key: Key | bytes | None) -> None:
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for one event: in the first batch by cells and counts, in a later one by a counter."""
        later = counter_guarantee(self.counter, self.epsilon)
        return replace(parallel(in_halves(self.epsilon), later.of("later counts")), simulated=self._key.simulated)
