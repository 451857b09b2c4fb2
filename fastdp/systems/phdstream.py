"""PHDStream (2024): private synthetic points that follow a set of points through additions and removals.

Algorithms 6 and 7 with a counter for every cell, and with a score for which the privacy claim holds: readings,
errata and proofs are in ``docs/phdstream.md``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

from fastdp import packing, validation
from fastdp.alone import exclusive
from fastdp.counters.base import Counter, counter_guarantee, event_guarantee
from fastdp.counters.binary_tree import BinaryTree
from fastdp.counters.block import Block
from fastdp.counters.running import PARTS
from fastdp.counters.simple import Simple
from fastdp.errors import StateError
from fastdp.privacy import Guarantee, round_up, sequential
from fastdp.randomness.key import Key
from fastdp.spatial import decomposition, saved
from fastdp.spatial.checks import as_points
from fastdp.spatial.decomposition import Evidence, Integers, Residents, Visit
from fastdp.spatial.domain import Domain, Floats
from fastdp.spatial.plan import make_plan
from fastdp.spatial.points import inside
from fastdp.spatial.tree import ReleasedTree, sampling_generator
from fastdp.stepwise import Stepwise

COUNTERS: dict[str, Counter] = {"simple": Simple(), "block": Block(), "binary": BinaryTree(settles=True)}
#: Steps have 40 bits in the words' stream id.
MOST_STEPS = 2**40


@dataclass(frozen=True)
class _State:
    """Where the stream stands; replaced as a whole.

    Attributes
    ----------
    n_steps : int
        Batches consumed.
    residents : Residents
        The tree that the next step begins with.
    visit : Visit or None
        What the last step released.
    """

    n_steps: int
    residents: Residents
    visit: Visit | None = None


class PHDStream(Stepwise):
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

    _PARTS: ClassVar[packing.Parts] = {**PARTS, **saved.DOMAINS}
    _state: _State

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        counter: str | Counter = "simple",
        *,
        max_depth: int = 20,
        fan_out: int = 2,
        sensitivity: int = 1,
        threshold: float = 0.0,
        score: str = "repaired",
        retention: int = 16,
        outside: str = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        super().__init__()
        self.epsilon = validation.positive("epsilon", epsilon)
        if isinstance(counter, str):
            self.counter = COUNTERS[validation.choice("counter", counter, tuple(COUNTERS))]
        else:
            validation.part("counter", counter, "step", "fastdp.counters")
            self.counter = counter
        self.sensitivity = validation.integer("sensitivity", sensitivity, 1, 2**30)
        self.score = validation.choice("score", score, ("repaired", "paper"))
        self.retention = validation.integer("retention", retention, 0, MOST_STEPS)
        self.outside = validation.choice("outside", outside, ("raise", "clip"))
        self.threshold = validation.real("threshold", threshold)
        half = Fraction(self.epsilon) / (2 * self.sensitivity)
        self._plan = make_plan(
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
        self.domain, self.max_depth, self.fan_out = domain, self._plan.max_depth, self._plan.fan_out
        self._key = Key.choose(seed, key)
        self._state = _State(0, decomposition.root_only(self._plan))
        self._made: tuple[Visit, ReleasedTree] | None = None

    @property
    def n_steps(self) -> int:
        """Batches consumed."""
        return self._state.n_steps

    @property
    def n_nodes(self) -> int:
        """Cells in memory: those of the last release, and what ``retention`` keeps."""
        return self._state.residents.first.size

    @property
    def tree(self) -> ReleasedTree:
        """The cells and counts released last; StateError before the first batch."""
        visit = self._state.visit
        if visit is None:
            raise StateError("there is no tree yet: expected a step first")
        # Made on demand, with the visit that it belongs to: a reader beside a step must not put an old one back.
        made = self._made
        if made is None or made[0] is not visit:
            made = self._made = (visit, ReleasedTree(self._plan, visit))
        return made[1]

    @property
    def total(self) -> float:
        """Estimated number of points now; 0 before the first batch."""
        visit = self._state.visit
        return 0.0 if visit is None else float(visit.projected[0])

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
        if self.sensitivity > 1:
            k = self.sensitivity
            step = f"group privacy: {k} events of a person, each at 1 / {k} of that"
            whole = replace(
                whole,
                unit=f"{k} events (additions or removals) of one person",
                adjacency=f"add or remove at most {k} events",
                derivation=(*whole.derivation, step),
            )
        return replace(whole, simulated=self._key.simulated)

    def step(self, added: Any, removed: Any = None) -> Floats:
        """Consume one batch and release synthetic points.

        Parameters
        ----------
        added, removed : array-like, n rows of d numbers, optional
            Points that appear and disappear; None or an empty array for none.  Their order has no influence.

        Returns
        -------
        float64[N, d]
            Synthetic points: uniform in each cell of :attr:`tree`, N unbiased for :attr:`total`.

        Raises
        ------
        DataError
            For points that are not finite, of another dimension, or outside the domain; nothing is consumed then.
        """
        self.advance(added, removed)
        return self.sample()

    @exclusive
    def advance(self, added: Any, removed: Any = None) -> None:
        """Consume one batch without drawing points; parameters and errors as :meth:`step`."""
        codes = self._encoded(added, removed)
        self._check_batch(*codes)
        following, _ = self._prepare(*codes)
        self._commit(following, *codes)

    def sample(self) -> Floats:
        """The synthetic points of the last step, the same at every call; ``tree.sample()`` draws others."""
        return self.tree.sample(sampling_generator(self._key, self.n_steps))

    def count(self, lower: Any, upper: Any) -> Any:
        """Counts of boxes straight from the released tree: see :meth:`ReleasedTree.count`."""
        return self.tree.count(lower, upper)

    def _encoded(self, added: Any, removed: Any) -> list[Integers]:
        """The batch as sorted codes, all that it is to the stream."""
        batch = [
            inside(as_points(values, name, self.domain.dim), self.domain, self.outside, name)
            for name, values in (("added", added), ("removed", removed))
        ]
        return [decomposition.encode(self._plan, rows) for rows in batch]

    def _prepare(self, added: Integers, removed: Integers) -> tuple[_State, Evidence]:
        """The state after a batch of codes, and what its decisions were made from; changes nothing."""
        state = self._state
        if state.n_steps >= MOST_STEPS:
            raise StateError(f"{state.n_steps} steps were taken: expected at most 2^40")
        expected = 0 if state.visit is None else state.visit.first.size
        residents, visit, evidence = decomposition.take_step(
            self._plan, state.residents, added, removed, state.n_steps, self._key, expected
        )
        return _State(state.n_steps + 1, residents, visit), evidence

    # State files.

    @property
    def _consumed(self) -> int:
        return self.n_steps

    @property
    def _arguments(self) -> dict[str, Any]:
        names = ("domain", "epsilon", "counter", "max_depth", "fan_out", "sensitivity")
        others = ("threshold", "score", "retention", "outside")
        return {name: getattr(self, name) for name in (*names, *others)}

    def _packed(self, state: _State) -> dict[str, Any]:
        visit = saved.describe_visit(state.visit)
        return {"n_steps": state.n_steps, "residents": packing.describe(state.residents), "visit": visit}

    def _unpacked(self, described: Any) -> _State:
        residents = packing.restore(Residents, described["residents"])
        visit = saved.restore_visit(described["visit"], self._plan)
        return _State(packing.whole(described["n_steps"]), residents, visit)

    def _check(self, state: _State) -> None:
        saved.check_residents(state.residents, self._plan)
        if state.n_steps < 0 or (state.visit is None) != (state.n_steps == 0):
            raise ValueError("a release out of range")
