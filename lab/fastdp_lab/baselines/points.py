"""The three baselines of PHDStream's section 5.3: PrivTree run again and again, and PrivTree run once.

They release what :class:`fastdp.PHDStream` releases, for comparison with it.  Readings: ``docs/phdstream.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fastdp import Guarantee, Key, validation
from fastdp.counters import Counter, Simple, event_guarantee
from fastdp.counters.counter import check_rows, counter_guarantee, noise_scale
from fastdp.guarantee import parallel
from fastdp.kinds import Integers
from fastdp.noise import sampler
from fastdp.noise.words import Purpose, StreamId
from fastdp.spatial import Domain, decomposition
from fastdp.spatial.cells import CellParameters, Outside, make_plan
from fastdp.spatial.spatial_publisher import PointMachine, SpatialPublisher, in_halves
from fastdp.spatial.tree import Tree, check_codes
from fastdp.state.codec import expect


def _none() -> Integers:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class BaselineState:
    """State of a baseline.

    Attributes
    ----------
    n_steps : int
        Batches consumed.
    tree : Tree or None
        Released by the last step.
    added, removed : int64[n]
        Codes of all points so far, ascending, for the baseline that keeps them.  Secret.
    size : int
        |f|: additions less removals so far.
    rows : int64[leaves, width]
        The leaves' counters, for the baseline that has them.
    """

    n_steps: int = 0
    tree: Tree | None = None
    added: Integers = field(default_factory=_none, repr=False)
    removed: Integers = field(default_factory=_none, repr=False)
    size: int = 0
    rows: Integers = field(default_factory=_none)
    chain: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class OfflineMachine(PointMachine):
    """PrivTree at a threshold; half of epsilon is for the cells, half for their counts.

    Attributes
    ----------
    threshold
        As of :class:`fastdp.PHDStream`.
    """

    REPAIRED: ClassVar[bool] = True

    threshold: float
    rule: ClassVar[int] = 1

    @cached_property
    def plan(self) -> CellParameters:
        """Sizes, threshold and noise."""
        half = Fraction(self.epsilon) / 2
        fixed = (self.domain, self.fan_out, self.max_depth, half, half, Simple())
        return make_plan(*fixed, threshold=self.threshold, repaired=self.REPAIRED)

    def start(self, key: Key) -> BaselineState:
        """Before the first batch."""
        return BaselineState()

    def offline(self, added: Integers, removed: Integers, step: int, key: Key) -> Tree:
        """PrivTree and counts, from nothing."""
        return decomposition.take_step(self.plan, self.root, added, removed, step, key)[1]


@dataclass(frozen=True, kw_only=True)
class OnStreamMachine(OfflineMachine):
    """PrivTree on all points so far, at each step."""

    REPAIRED: ClassVar[bool] = False
    rule: ClassVar[int] = 1

    def follow(self, state: BaselineState, added: Integers, removed: Integers, key: Key, chain: str) -> BaselineState:
        """PrivTree on all points so far."""
        every = np.sort(np.concatenate([state.added, added])), np.sort(np.concatenate([state.removed, removed]))
        tree = self.offline(*every, state.n_steps, key)
        return BaselineState(state.n_steps + 1, tree, *every, chain=chain)

    def unpacked(self, described: Any) -> BaselineState:
        """The state that was described."""
        state: BaselineState = super().unpacked(described)
        for codes in (state.added, state.removed):
            check_codes(codes, self.plan)
        return state


@dataclass(frozen=True, kw_only=True)
class OnBatchMachine(OfflineMachine):
    """PrivTree on each batch."""

    rule: ClassVar[int] = 1

    def follow(self, state: BaselineState, added: Integers, removed: Integers, key: Key, chain: str) -> BaselineState:
        """PrivTree on the batch."""
        tree = self.offline(added, removed, state.n_steps, key)
        size = state.size + added.size - removed.size
        total = float(tree.projected[0])
        factor = max(size, 0) / total if total > 0.0 else 0.0
        scaled = replace(tree, projected=tree.projected * factor)
        return BaselineState(state.n_steps + 1, scaled, size=size, chain=chain)


@dataclass(frozen=True, kw_only=True)
class FixedTreeMachine(OfflineMachine):
    """PrivTree on the first batch, then counters.

    Attributes
    ----------
    counter
        As of :class:`FixedTree`.
    """

    counter: Counter
    rule: ClassVar[int] = 1

    @cached_property
    def law(self) -> sampler.LaplaceDistribution:
        """Of the counters' noise."""
        return sampler.laplace_distribution(noise_scale(self.counter, Fraction(self.epsilon)))

    def follow(self, state: BaselineState, added: Integers, removed: Integers, key: Key, chain: str) -> BaselineState:
        """Count in the first batch's cells."""
        tree = state.tree
        if tree is None:
            first = self.offline(added, removed, 0, key)
            rows: Integers = np.zeros((first.leaves.size, self.counter.width), np.int64)
            return BaselineState(1, first, rows=rows, chain=chain)
        widths = np.array([self.fan_out**k for k in range(self.max_depth, -1, -1)], np.int64)[tree.depth[tree.leaves]]
        begins = tree.code[tree.leaves] * widths
        net = sum(
            sign * (np.searchsorted(codes, begins + widths) - np.searchsorted(codes, begins))
            for sign, codes in ((1, added), (-1, removed))
        )
        noise = sampler.draws(tree.leaves.size, self.law, key, StreamId(Purpose.CELL, number=state.n_steps))
        rows = state.rows.copy()
        increments = net + self.counter.step(rows, noise)
        changed = {name: getattr(tree, name).copy() for name in ("released", "held", "projected")}
        following = replace(tree, **changed)
        decomposition.add_increments(self.fan_out, following, increments)
        return BaselineState(state.n_steps + 1, following, rows=rows, chain=chain)

    def unpacked(self, described: Any) -> BaselineState:
        """The state that was described."""
        state: BaselineState = super().unpacked(described)
        if state.tree is not None:
            expect(state.rows, np.empty((state.tree.leaves.size, self.counter.width), np.int64))
            check_rows(self.counter, state.rows)
        return state


class _Baseline(SpatialPublisher):
    """A baseline with the threshold of :class:`fastdp.PHDStream`."""

    threshold: float

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        *,
        max_depth: int = 20,
        fan_out: int = 2,
        threshold: float = 0.0,
        outside: Outside = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        given = {"domain": domain, "epsilon": epsilon, "max_depth": max_depth, "fan_out": fan_out, "outside": outside}
        self._open(given, threshold, seed, key)

    def _open(self, given: dict[str, Any], threshold: float, seed: int | str | None, key: Key | bytes | None) -> None:
        self._start(self._MACHINE(**given, threshold=validation.real("threshold", threshold)), seed, key)


class OfflineOnStream(_Baseline):
    """Baseline 1: PrivTree and new counts at each step on all points present.  NOT private at epsilon.

    Parameters as for :class:`fastdp.PHDStream`.

    Notes
    -----
    Every step costs epsilon again for every point that has come or gone so far.  Keeps a code for every event.
    """

    _MACHINE: ClassVar[Any] = OnStreamMachine

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
    Private at epsilon: each event is in one batch.  The number of points present, ``|f(t)|``, is used as it is and
    treated as public, as the paper does.  A batch whose noisy net count is not positive releases nothing: there is
    nothing to scale up (spread evenly, errors on the circles with deletion are 12 to 16 % above the published code's
    instead of 1 to 3 %).  Cells are chosen by the batch's additions; with the net counts that the paper seems to
    use, scores may rise along a path and the proof fails.
    """

    _MACHINE: ClassVar[Any] = OnBatchMachine

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

    _MACHINE: ClassVar[Any] = FixedTreeMachine
    counter: Counter

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        counter: Counter | None = None,
        *,
        max_depth: int = 20,
        fan_out: int = 2,
        threshold: float = 0.0,
        outside: Outside = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        counter = Simple() if counter is None else counter
        validation.part("counter", counter, Counter, "fastdp.counters")
        given = {"domain": domain, "epsilon": epsilon, "max_depth": max_depth, "fan_out": fan_out, "outside": outside}
        self._open({**given, "counter": counter}, threshold, seed, key)

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for one event: in the first batch by cells and counts, in a later one by a counter."""
        later = counter_guarantee(self.counter, self.epsilon)
        return replace(parallel(in_halves(self.epsilon), later.of("later counts")), simulated=self._key.simulated)
