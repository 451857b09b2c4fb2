"""The three baselines of PHDStream's section 5.3: PrivTree run again and again, and PrivTree run once.

They release what :class:`fastdp.PHDStream` releases, for comparison with it.  Readings: ``docs/phdstream.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.counters.base import Counter, check_rows, counter_guarantee, event_guarantee, noise_scale
from fastdp.counters.simple import Simple
from fastdp.guarantee import Guarantee, parallel, sequential
from fastdp.randomness import sampler
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp.spatial import decomposition, saved
from fastdp.spatial.cell_parameters import make_plan
from fastdp.spatial.cells import StepTree
from fastdp.spatial.domain import Domain, Outside
from fastdp.state import codec
from fastdp.state.stepwise import expect
from fastdp.systems.phdstream.spatial_publisher import SpatialPublisher
from fastdp_kernels import tree_maps

Integers = NDArray[np.int64]


def _none() -> Integers:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class _State:
    """Where a baseline stands; replaced as a whole.

    Attributes
    ----------
    n_steps : int
        Batches consumed.
    visit : StepTree or None
        What the last step released.
    added, removed : int64[n]
        Codes of all points so far, ascending, for the baseline that keeps them.  Secret.
    size : int
        |f|: additions less removals so far.
    rows : int64[leaves, width]
        The leaves' counters, for the baseline that has them.
    """

    n_steps: int = 0
    visit: StepTree | None = None
    added: Integers = field(default_factory=_none)
    removed: Integers = field(default_factory=_none)
    size: int = 0
    rows: Integers = field(default_factory=_none)
    chain: str = field(default="", repr=False)


class SpatialBaseline(SpatialPublisher):
    """What the baselines share: parameters, checks, releases.

    Parameters
    ----------
    domain, epsilon, max_depth, fan_out, threshold, outside, seed, key
        As for :class:`fastdp.PHDStream`.
    """

    _repaired = True
    _state: _State

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
        self.epsilon = validation.positive("epsilon", epsilon)
        self.threshold = validation.real("threshold", threshold)
        half = Fraction(self.epsilon) / 2
        plan = make_plan(
            domain, fan_out, max_depth, half, half, Simple(), threshold=threshold, repaired=self._repaired
        )
        self._root = decomposition.root_only(plan)
        super().__init__(domain, plan, _State(), outside=outside, seed=seed, key=key)

    def _offline(self, added: Integers, removed: Integers, step: int, key: Key) -> StepTree:
        """PrivTree and counts, from nothing."""
        return decomposition.take_step(self._plan, self._root, added, removed, step, key)[1]

    # State files.

    @property
    def _arguments(self) -> dict[str, Any]:
        names = ("domain", "epsilon", "max_depth", "fan_out", "threshold", "outside")
        return {name: getattr(self, name) for name in names}

    def _packed(self, state: _State) -> dict[str, Any]:
        plain = codec.describe(replace(state, visit=None))
        return {**plain, "visit": saved.describe_visit(state.visit)}

    def _unpacked(self, described: Any) -> _State:
        state: _State = codec.restore(_State, {**described, "visit": None})
        return replace(state, visit=saved.restore_visit(described["visit"], self._plan))

    def _check(self, state: Any) -> None:
        super()._check(state)
        for codes in (state.added, state.removed):
            saved.check_codes(codes, self._plan)

    def _halves(self) -> Guarantee:
        half = self.epsilon / 2
        cells = event_guarantee(half, "PrivTree: (2 beta - 1) / (beta - 1) / lambda, whatever the depth")
        return sequential(cells.of("cells"), counter_guarantee(Simple(), half).of("counts"))


class OfflineOnStream(SpatialBaseline):
    """Baseline 1: PrivTree and counts anew at each step on all points present.  NOT private at epsilon.

    Parameters as for :class:`SpatialBaseline`.

    Notes
    -----
    Every step costs epsilon again for every point that has come or gone so far.  Keeps a code for every event.
    """

    _repaired = False

    @property
    def guarantee(self) -> Guarantee:
        """No finite epsilon holds for a stream that goes on."""
        endless = (
            "NOT private: each step looks at all events again, epsilon = steps x the one asked for, without bound"
        )
        return replace(event_guarantee(math.inf, endless), simulated=self._key.simulated)

    def _following(self, added: Integers, removed: Integers) -> _State:
        state = self._state
        every = np.sort(np.concatenate([state.added, added])), np.sort(np.concatenate([state.removed, removed]))
        key, chain = self._step_key(added, removed)
        visit = self._offline(*every, state.n_steps, key)
        return _State(state.n_steps + 1, visit, *every, chain=chain)


class OfflineOnBatch(SpatialBaseline):
    """Baseline 2: PrivTree and counts on each batch alone, scaled up to the number of points present.

    Parameters as for :class:`SpatialBaseline`.

    Notes
    -----
    Private at epsilon: each event is in one batch.  The number of points present, |f(t)|, is used as it is and
    treated as public, as the paper does.  A batch whose noisy net count is not positive releases nothing: there is
    nothing to scale up (spread evenly, errors on the circles with deletion are 12 to 16 % above the published code's
    instead of 1 to 3 %).  Cells are chosen by the batch's additions; with the net counts that the paper seems to
    use, scores may rise along a path and the proof fails.
    """

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for one event, given the public sizes."""
        whole = self._halves()
        known = "the number of points present at each time is public"
        return replace(whole, simulated=self._key.simulated, derivation=(*whole.derivation, known))

    def _following(self, added: Integers, removed: Integers) -> _State:
        state = self._state
        key, chain = self._step_key(added, removed)
        visit = self._offline(added, removed, state.n_steps, key)
        size = state.size + added.size - removed.size
        total = float(visit.projected[0])
        factor = max(size, 0) / total if total > 0.0 else 0.0
        scaled = replace(visit, projected=visit.projected * factor)
        return _State(state.n_steps + 1, scaled, size=size, chain=chain)


class FixedTree(SpatialBaseline):
    """Baseline 3: PrivTree on the first batch, then counters at its leaves for ever.

    Parameters
    ----------
    counter : Counter
        What counts at the leaves from the second batch on, with all of epsilon.
    domain, epsilon, and others
        As for :class:`SpatialBaseline`.

    Notes
    -----
    From the second batch on points in cells without any of the domain, on its very border, are not counted.
    """

    def __init__(self, domain: Domain, epsilon: float, counter: Counter | None = None, **options: Any) -> None:
        self.counter = Simple() if counter is None else counter
        validation.part("counter", self.counter, Counter, "fastdp.counters")
        super().__init__(domain, epsilon, **options)
        self._law = sampler.discrete_laplace_law(noise_scale(self.counter, Fraction(self.epsilon)))

    @property
    def _arguments(self) -> dict[str, Any]:
        return {**super()._arguments, "counter": self.counter}

    def _check(self, state: Any) -> None:
        super()._check(state)
        if state.visit is not None:
            expect(state.rows, np.empty((state.visit.leaves.size, self.counter.width), np.int64))
            check_rows(self.counter, state.rows)

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for one event: in the first batch by cells and counts, in a later one by a counter."""
        later = counter_guarantee(self.counter, self.epsilon)
        return replace(parallel(self._halves(), later.of("later counts")), simulated=self._key.simulated)

    def _following(self, added: Integers, removed: Integers) -> _State:
        state = self._state
        visit = state.visit
        key, chain = self._step_key(added, removed)
        if visit is None:
            first = self._offline(added, removed, 0, key)
            rows: Integers = np.zeros((first.leaves.size, self.counter.width), np.int64)
            return _State(1, first, rows=rows, chain=chain)
        widths = np.array([self.fan_out**k for k in range(self.max_depth, -1, -1)], np.int64)[
            visit.depth[visit.leaves]
        ]
        begins = visit.code[visit.leaves] * widths
        net = sum(
            sign * (np.searchsorted(codes, begins + widths) - np.searchsorted(codes, begins))
            for sign, codes in ((1, added), (-1, removed))
        )
        noise: Integers = np.empty(visit.leaves.size, np.int64)
        sampler.fill(noise, self._law, key, StreamId(Purpose.CELL, number=state.n_steps))
        rows = state.rows.copy()
        increments = net + self.counter.step(rows, noise)
        released, held, projected = visit.released.copy(), visit.held.copy(), visit.projected.copy()
        tree_maps.project_counts(
            visit.leaves,
            increments,
            self.fan_out,
            np.empty_like(released),
            visit.first,
            released,
            visit.measure,
            held,
            projected,
        )
        following = replace(visit, released=released, held=held, projected=projected)
        return _State(state.n_steps + 1, following, rows=rows, chain=chain)
