"""PHDStream (2024): private synthetic points that follow a set of points through additions and removals.

Algorithms 6 and 7 with a counter for every cell, and with a score for which the privacy claim holds: readings,
errata and proofs are in ``docs/phdstream.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal

from fastdp import validation
from fastdp.counters.base import Counter, counter_guarantee, event_guarantee
from fastdp.counters.binary_tree import BinaryTree
from fastdp.counters.block import Block
from fastdp.counters.simple import Simple
from fastdp.guarantee import Guarantee, round_up, sequential
from fastdp.randomness.key import Key
from fastdp.spatial import decomposition, saved
from fastdp.spatial.cell_parameters import make_plan
from fastdp.spatial.cells import Integers, KeptTree, SplitScores, StepTree
from fastdp.spatial.domain import Domain, Outside
from fastdp.state import codec
from fastdp.systems.phdstream.spatial_publisher import MAX_STEPS, SpatialPublisher, for_events

COUNTERS: dict[str, Counter] = {"simple": Simple(), "block": Block(), "binary": BinaryTree(settles=True)}


@dataclass(frozen=True)
class _State:
    """Where the stream stands; replaced as a whole.

    Attributes
    ----------
    n_steps, visit, chain
        As :class:`fastdp.systems.phdstream.spatial_publisher.StreamState` says.
    residents : KeptTree
        The tree that the next step begins with.
    """

    n_steps: int
    residents: KeptTree
    visit: StepTree | None = None
    chain: str = field(default="", repr=False)


class PHDStream(SpatialPublisher):
    """Releases a synthetic version of a changing set of points after every batch of additions and removals.

    Parameters
    ----------
    domain : Domain
        The public region, such as ``fastdp.spatial.Box(lower, upper)``.
    epsilon : float
        Privacy loss of all releases for ``sensitivity`` events.
    counter : str or Counter
        How the counts at the leaves get their noise: ``"simple"`` (best in most cases), ``"block"`` (of 8 steps, as
        printed: biased here, which ``Block(settles=True)`` is not), ``"binary"`` (trees of 1,024 activations that
        settle), or an object from ``fastdp.counters``.
    max_depth : int
        D: cells of this depth are not cut any more; fan_out^D at most 2^62.
    fan_out : int
        beta: parts that a cell is cut into, along one axis; the axes take turns, the first one first.
    sensitivity : int
        k: events (additions and removals) of one person that are protected together; each gets epsilon / k.
    threshold : float
        theta: cells that seem to hold more points, after a penalty for depth, are cut.
    score : str
        ``"repaired"``, or ``"paper"`` for comparison only: its guarantee states the much larger epsilon that holds.
    retention : int
        Steps for which a cell that is not cut remembers how its count was spread over its parts.  Memory grows with
        it, slowly; 0 remembers the cells of the last release only.
    outside : str
        ``"raise"`` refuses a batch with points outside the domain, ``"clip"`` moves them to its bounding box (and on
        a network to the nearest road).  A point in a cell without any of the domain is counted in a cell beside.
        Note that an error depends on the data and shows to whoever sees it that there was such a point.
    seed, key
        As for :class:`fastdp.StreamPublisher`.

    Notes
    -----
    Privacy: streams are adjacent if they differ in one event, one addition or one removal in one batch.  A batch's
    additions enter the split decisions of that step (epsilon / 2), each event enters one cell's counter once
    (epsilon / 2).  The number of batches and their times are public, their sizes are not released.

    The first batch may hold everything up to an initial time t0 (paper, section 5.2).  PHDStream keeps counts, no
    points: that a removed point was never added it cannot know; such a removal lowers its cell's count all the same,
    and what is released never falls below 0.  After an interrupt compare ``n_steps``: a batch that was consumed must
    not be sent again.
    """

    _state: _State

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        counter: Literal["simple", "block", "binary"] | Counter = "simple",
        *,
        max_depth: int = 20,
        fan_out: int = 2,
        sensitivity: int = 1,
        threshold: float = 0.0,
        score: Literal["repaired", "paper"] = "repaired",
        retention: int = 16,
        outside: Outside = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        self.epsilon = validation.positive("epsilon", epsilon)
        if isinstance(counter, str):
            self.counter = COUNTERS[validation.choice("counter", counter, tuple(COUNTERS))]
        else:
            validation.part("counter", counter, Counter, "fastdp.counters")
            self.counter = counter
        self.sensitivity = validation.integer("sensitivity", sensitivity, 1, 2**30)
        self.score = validation.choice("score", score, ("repaired", "paper"))
        self.retention = validation.integer("retention", retention, 0, MAX_STEPS)
        self.threshold = validation.real("threshold", threshold)
        half = Fraction(self.epsilon) / (2 * self.sensitivity)
        plan = make_plan(
            domain,
            fan_out,
            max_depth,
            half,
            half,
            self.counter,
            threshold=threshold,
            repaired=self.score == "repaired",
            retention=self.retention,
        )
        start = _State(0, decomposition.root_only(plan))
        super().__init__(domain, plan, start, outside=outside, seed=seed, key=key)

    @property
    def n_nodes(self) -> int:
        """Cells in memory: those of the last release, and what ``retention`` keeps."""
        return self._state.residents.first.size

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for ``sensitivity`` events over all releases, composed of the decisions' and the counts' parts."""
        half = self.epsilon / 2
        if self.score == "repaired":
            cells = event_guarantee(half, "repaired score: (2 beta - 1) / (beta - 1) / lambda, whatever the depth")
        else:
            # Every decision on an event's path may lose 1 / lambda, and nothing better is true.
            decision = Fraction(self.fan_out - 1, 2 * self.fan_out - 1) * Fraction(self.epsilon) / 2
            cells = event_guarantee(
                round_up(self.max_depth * decision),
                f"the paper's score: the claimed {half:g} is NOT proved (Theorem 3.2 fails where counts are noisy or "
                f"points are removed); what holds is max_depth / lambda, for {self.max_depth} decisions",
            )
        whole = sequential(cells.of("cells"), counter_guarantee(self.counter, half).of("counts"))
        return replace(for_events(whole, self.sensitivity), simulated=self._key.simulated)

    def _following(self, added: Integers, removed: Integers) -> _State:
        return self._decided(added, removed)[0]

    def _prepare(self, added: Any, removed: Any) -> tuple[_State, SplitScores]:
        """The state after a batch, and what its decisions were made from; changes nothing."""
        return self._decided(*self._codes(added, removed))

    def _decided(self, added: Integers, removed: Integers) -> tuple[_State, SplitScores]:
        state = self._state
        expected = 0 if state.visit is None else state.visit.first.size
        key, chain = self._step_key(added, removed)
        residents, visit, evidence = decomposition.take_step(
            self._plan, state.residents, added, removed, state.n_steps, key, expected
        )
        return _State(state.n_steps + 1, residents, visit, chain), evidence

    # State files.

    @property
    def _arguments(self) -> dict[str, Any]:
        names = ("domain", "epsilon", "counter", "max_depth", "fan_out", "sensitivity")
        others = ("threshold", "score", "retention", "outside")
        return {name: getattr(self, name) for name in (*names, *others)}

    def _packed(self, state: _State) -> dict[str, Any]:
        visit = saved.describe_visit(state.visit)
        residents = codec.describe(state.residents)
        return {"n_steps": state.n_steps, "residents": residents, "visit": visit, "chain": state.chain}

    def _unpacked(self, described: Any) -> _State:
        residents = codec.restore(KeptTree, described["residents"])
        visit = saved.restore_visit(described["visit"], self._plan)
        # States of the first noise format have no chain.
        return _State(codec.whole(described["n_steps"]), residents, visit, str(described.get("chain", "")))

    def _check(self, state: Any) -> None:
        super()._check(state)
        saved.check_residents(state.residents, self._plan)
