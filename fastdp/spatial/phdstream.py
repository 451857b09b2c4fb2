"""PHDStream (2024): private synthetic points that follow a set of points through additions and removals.

Algorithms 6 and 7 with a counter for every cell, and with a score for which the privacy claim holds: readings,
errata and proofs are in ``docs/phdstream.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

from fastdp import validation
from fastdp.counters.counter import BinaryTree, Block, Counter, Simple, counter_guarantee, event_guarantee
from fastdp.guarantee import Guarantee, remainder, round_up, sequential
from fastdp.kinds import Integers
from fastdp.noise.binding import step_key
from fastdp.noise.key import Key
from fastdp.releases.intervals import laplace_variance
from fastdp.spatial import decomposition
from fastdp.spatial.cells import CellParameters, Domain, Outside, make_plan
from fastdp.spatial.spatial_publisher import (
    MAX_STEPS,
    PointMachine,
    SpatialPublisher,
    WholeCount,
    WholeParameters,
    as_share,
    for_events,
    split,
)
from fastdp.spatial.tree import KEPT, MAX_COUNT, RELEASED, Tree, TreeVersion

NAMED_COUNTERS: dict[str, Counter] = {"simple": Simple(), "block": Block(), "binary": BinaryTree(settles=True)}


#: Part of epsilon for the cells' decisions where the whole is counted; where it is not, half, as in the paper.
CELLS = 0.4


def _parts(epsilon: float, total_share: float) -> tuple[float, float]:
    """Epsilon of the cells' decisions and of their counts."""
    rest = split(epsilon, total_share)[1]
    cells = CELLS * rest if total_share else rest / 2
    return cells, remainder(rest, cells)


@dataclass(frozen=True)
class PHDState:
    """Where the stream stands.

    Attributes
    ----------
    n_steps, tree, chain
        As :class:`fastdp.spatial.spatial_publisher.PointMachine` says.
    kept : TreeVersion
        The tree that the next step begins with.
    whole : WholeCount or None
        The count of the whole, where there is one.
    drawn : int
        Counts of cells so far, each with noise of its own; 0 where the whole is not counted.
    """

    n_steps: int
    kept: TreeVersion
    tree: Tree | None = None
    whole: WholeCount | None = None
    drawn: int = 0
    chain: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class PHDMachine(PointMachine):
    """PHDStream as a machine.

    Attributes
    ----------
    counter, sensitivity, threshold, score, retention, total_share
        As of :class:`PHDStream`.
    """

    TREES: ClassVar[Any] = {"kept": KEPT, "tree": RELEASED}

    counter: Counter
    sensitivity: int
    threshold: float
    score: str
    retention: int
    total_share: float = 0.0
    rule: ClassVar[int] = 1

    @cached_property
    def plan(self) -> CellParameters:
        """Public parameters."""
        cells, counts = (Fraction(part) / self.sensitivity for part in _parts(self.epsilon, self.total_share))
        return make_plan(
            self.domain,
            self.fan_out,
            self.max_depth,
            cells,
            counts,
            self.counter,
            threshold=self.threshold,
            repaired=self.score == "repaired",
            retention=self.retention,
        )

    @cached_property
    def whole(self) -> WholeParameters | None:
        """What is fixed of the count of the whole."""
        return WholeParameters.of_share(self.epsilon, self.sensitivity, self.total_share)

    def start(self, key: Key) -> PHDState:
        """Before the first batch."""
        whole = None if self.whole is None else WholeCount()
        return PHDState(0, self.root, whole=whole)

    def follow(self, state: PHDState, added: Integers, removed: Integers, key: Key, chain: str) -> PHDState:
        """Algorithm 7 for one batch."""
        return self.decide(state, added, removed, key, chain)[0]

    def decide(
        self, state: PHDState, added: Integers, removed: Integers, key: Key, chain: str
    ) -> tuple[PHDState, Tree]:
        """The state after a batch, and the tree with the scores of its decisions."""
        expected = 0 if state.tree is None else state.tree.first.size
        kept, tree, scored = decomposition.take_step(
            self.plan, state.kept, added, removed, state.n_steps, key, expected
        )
        whole, drawn = state.whole, state.drawn
        if self.whole is not None and whole is not None:
            whole = self.whole.step(whole, added.size - removed.size, state.n_steps, key)
            drawn += tree.leaves.size
            variance = drawn * laplace_variance(self.plan.cell_law.scale)
            missing = self.whole.missing(whole, int(tree.released[0]), variance)
            tree = decomposition.adjusted(self.plan, tree, missing)
        return PHDState(state.n_steps + 1, kept, tree, whole, drawn, chain), scored

    def scored(self, state: PHDState, batch: Any, key: Key) -> tuple[PHDState, Tree]:
        """State after :meth:`step`, and the tree with the scores of its decisions."""
        added, removed = batch
        own, chain = step_key(key, state.chain, state.n_steps, added, removed)
        return self.decide(state, added, removed, own, chain)

    def packed(self, state: Any) -> dict[str, Any]:
        """The state as JSON."""
        return super().packed(replace(state, kept=state.kept.tree))

    def unpacked(self, described: Any) -> PHDState:
        """The state that was described."""
        state: Any = super().unpacked(described)
        if self.whole is not None:
            self.whole.check(state.whole)
            if state.whole.steps != state.n_steps or not 0 <= state.drawn <= MAX_COUNT:
                raise ValueError("a number of counts out of range")
        following: PHDState = replace(state, kept=TreeVersion.of(self.plan.fan_out, state.kept))
        return following


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
    total_share : float
        Share of epsilon, 0 to 0.5, for a count of all points beside those of the cells, which least squares adjusts
        to it.  0 is the paper's: the total's error is then five times as large and grows with the number of cells and
        steps, and that of boxes larger by 4 to 8 % in most streams (``docs/phdstream.md``, "A count of the whole").
    outside : str
        ``"raise"`` refuses a batch with points outside the domain, ``"clip"`` moves them to its bounding box (and on
        a network to the nearest road).  A point in a cell without any of the domain is counted in a cell beside.
        Note that an error depends on the data and reveals to anyone who sees it that there was such a point.
    seed, key
        As for :class:`fastdp.StreamPublisher`.

    Notes
    -----
    Privacy: streams are adjacent if they differ in one event, one addition or one removal in one batch.  A batch's
    additions enter the split decisions of that step, each event enters one cell's counter and that of all points,
    once.  The latter has ``total_share`` of epsilon; of the rest two fifths are for decisions and three for cells.
    With ``total_share=0`` decisions and cells have epsilon / 2 each.  The number of batches and their times are
    public, their sizes are not released.

    The first batch may hold everything up to an initial time t0 (paper, section 5.2).  PHDStream keeps counts, no
    points: it cannot detect that a removed point was never added.  Such a removal still lowers its cell's count,
    and what is released never falls below 0.  After an interrupt compare ``n_steps``: a batch that was consumed must
    not be sent again.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> stream = fastdp.PHDStream(fastdp.spatial.Box((0, 0), (1, 1)), epsilon=1.0, seed=1)
    >>> points = np.random.default_rng(1).random((1000, 2)) / 2
    >>> synthetic = stream.step(points, np.empty((0, 2)))  # additions, removals
    >>> abs(stream.count((0, 0), (0.5, 0.5)) - 1000) < 100
    True
    """

    _MACHINE: ClassVar[Any] = PHDMachine
    _machine: PHDMachine
    _state: PHDState
    counter: Counter
    sensitivity: int
    threshold: float
    score: str
    retention: int
    total_share: float

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
        total_share: float = 0.05,
        outside: Outside = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        if isinstance(counter, str):
            counter = NAMED_COUNTERS[validation.choice("counter", counter, tuple(NAMED_COUNTERS))]
        validation.part("counter", counter, Counter, "fastdp.counters")
        machine = PHDMachine(
            domain=domain,
            epsilon=validation.positive("epsilon", epsilon),
            counter=counter,
            max_depth=max_depth,
            fan_out=fan_out,
            sensitivity=validation.integer("sensitivity", sensitivity, 1, 2**30),
            threshold=validation.real("threshold", threshold),
            score=validation.choice("score", score, ("repaired", "paper")),
            retention=validation.integer("retention", retention, 0, MAX_STEPS),
            total_share=as_share(total_share),
            outside=outside,
        )
        self._start(machine, seed, key)

    @property
    def n_nodes(self) -> int:
        """Cells in memory: those of the last release, and what ``retention`` keeps."""
        return self._state.kept.tree.first.size

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for ``sensitivity`` events over all releases, composed of the decisions' and the counts' parts."""
        part, counts = _parts(self.epsilon, self.total_share)
        if self.score == "repaired":
            cells = event_guarantee(part, "repaired score: (2 beta - 1) / (beta - 1) / lambda, whatever the depth")
        else:
            # Every decision on an event's path may lose 1 / lambda, and nothing better is true.
            decision = Fraction(self.fan_out - 1, 2 * self.fan_out - 1) * Fraction(part)
            cells = event_guarantee(
                round_up(self.max_depth * decision),
                f"the paper's score: the claimed {part:g} is NOT proved (Theorem 3.2 fails where counts are noisy or "
                f"points are removed); what holds is max_depth / lambda, for {self.max_depth} decisions",
            )
        whole = sequential(cells.of("cells"), counter_guarantee(self.counter, counts).of("counts"))
        if self.total_share:
            whole = sequential(whole, WholeParameters.guarantee(split(self.epsilon, self.total_share)[0]))
        return replace(for_events(whole, self.sensitivity), simulated=self._key.simulated)

    def _variances(self) -> float | None:
        """Of a cell that was counted at every step; None for counters of one's own."""
        draws = getattr(self.counter, "open_draws", None)
        return None if draws is None else draws(self.n_steps) * laplace_variance(self._plan.cell_law.scale)
