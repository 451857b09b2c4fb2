"""PHDStream (2024): synthetic points that follow additions and removals (``docs/points.md``)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, cast

import numpy as np

from fastdp import validation
from fastdp.counters.counter import (
    BinaryTree,
    Block,
    Counter,
    OpenCounter,
    Simple,
    check_rows,
    counter_guarantee,
    event_guarantee,
    noise_scale,
)
from fastdp.counters.running import COUNTERS
from fastdp.errors import MissingError, ParameterError, StateError
from fastdp.guarantee import Guarantee, remainder, round_up, sequential
from fastdp.kinds import Floats, Integers, Values
from fastdp.noise import sampler
from fastdp.noise.chain_keys import StepChain, step_key
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.points import decomposition
from fastdp.points.decomposition import KEPT, MAX_COUNT, RELEASED, KeptTree, Tree
from fastdp.points.domains import Box, CellParameters, Domain, Outside, PointParameters
from fastdp.points.maps import Network, Polygons
from fastdp.points.released_tree import Counts, ReleasedTree
from fastdp.record import Choice, Kind, Real, Whole, constructor, parameter, record
from fastdp.releases.intervals import laplace_variance
from fastdp.state import codec
from fastdp.state.codec import LIKE_START
from fastdp.state.driver import Publisher
from fastdp.state.machine import Machine, Transition, single_caller

#: Steps have 40 bits in the words' stream id.
MAX_STEPS = 2**40
#: Largest number of events of a person.
MAX_EVENTS = 2**30
#: Components that a state file may name.
PARTS: codec.Parts = {**COUNTERS, **{kind.__name__: kind for kind in (Box, Polygons, Network)}}
NAMED_COUNTERS: dict[str, Counter] = {"simple": Simple(), "block": Block(), "binary": BinaryTree(settles=True)}
#: Share of the cells' epsilon for their decisions where all points are counted; otherwise half, as in the paper.
CELLS = 0.4
#: Counter of all points.  It counts at every step, so Block is unbiased, with far less noise than Simple.
COUNTER = Block(16)
#: Level of the words' stream id; 0 is that of cells, and 1 that of cells whose counters close.
LEVEL = 2
#: Largest fraction of epsilon, and largest scale of the noise, of the count of all points.
MAX_FRACTION, MAX_SCALE = 0.5, 2**40


def split_total(epsilon: float, fraction: float) -> tuple[float, float]:
    """Epsilon of the count of all points, and the rest."""
    total = fraction * epsilon
    return total, remainder(epsilon, total)


@dataclass(frozen=True)
class TotalCount:
    """Count of all points; the counter's ``row`` is secret."""

    steps: Annotated[int, Whole(0, MAX_COUNT)] = 0
    released: Annotated[int, Whole(-MAX_COUNT, MAX_COUNT)] = 0
    row: Annotated[Integers, LIKE_START] = field(
        default_factory=lambda: np.zeros((1, COUNTER.width), np.int64), repr=False
    )


@dataclass(frozen=True)
class TotalCounter:
    """Counter of all points; ``epsilon`` is for one event."""

    epsilon: Fraction

    @classmethod
    def of_fraction(cls, epsilon: float, sensitivity: int, fraction: float) -> TotalCounter | None:
        """Counter with this `fraction` of epsilon for `sensitivity` events; None for 0."""
        if not fraction:
            return None
        made = cls(Fraction(split_total(epsilon, fraction)[0]) / sensitivity)
        if not made.epsilon or noise_scale(COUNTER, made.epsilon) > MAX_SCALE:
            raise ParameterError("epsilon is too small: expected a noise scale of at most 2^40 points for the whole")
        return made

    @cached_property
    def distribution(self) -> sampler.LaplaceDistribution:
        return sampler.laplace_distribution(noise_scale(COUNTER, self.epsilon))

    @cached_property
    def variance(self) -> float:
        return laplace_variance(self.distribution.scale)

    def step(self, total: TotalCount, net: int, step: int, key: Key) -> TotalCount:
        row: Integers = total.row.copy()
        noise = sampler.draws(1, self.distribution, key, StreamId(Purpose.CELL, level=LEVEL, number=step))
        return TotalCount(total.steps + 1, total.released + net + int(COUNTER.step(row, noise)[0]), row)

    def missing(self, released: int, steps: int, counted: int, variance: float) -> float:
        """Points to add to the cells' sum `counted` (least squares) after `steps`."""
        own_variance = self.variance * COUNTER.open_draws(steps)
        return (released - counted) * (variance / (variance + own_variance)) if variance > 0.0 else 0.0

    @staticmethod
    def check(total: TotalCount) -> None:
        check_rows(COUNTER, total.row)
        if total.row[0, 0] != total.steps % COUNTER.size:
            raise ValueError("a counter of the whole out of step")


# Publishers of points.


@dataclass(frozen=True, kw_only=True)
class PointState:
    """``tree`` is the last release, ``chain`` the secret hash of the input."""

    n_steps: Annotated[int, Whole(0, MAX_STEPS)] = 0
    tree: Annotated[Tree | None, RELEASED] = None
    chain: StepChain = field(default="", repr=False)


S = TypeVar("S", bound=PointState)


class PointMachine(Machine[S], Generic[S]):
    """Transition function; subclasses are :class:`PointParameters` too."""

    PARTS: ClassVar[codec.Parts] = PARTS

    @property
    @abstractmethod
    def plan(self) -> CellParameters: ...

    @abstractmethod
    def codes(self, points: Values | None, name: str) -> Integers: ...

    @abstractmethod
    def follow(self, state: S, added: Integers, removed: Integers, key: Key, chain: str) -> S: ...

    @cached_property
    def root(self) -> KeptTree:
        return decomposition.root_only(self.plan)

    def read(self, *batch: Any) -> tuple[Integers, Integers]:
        added, removed = batch
        return self.codes(added, "added"), self.codes(removed, "removed")

    def step(self, state: S, batch: tuple[Integers, Integers], key: Key) -> Transition[S]:
        if state.n_steps >= MAX_STEPS:
            raise StateError(f"{state.n_steps} steps were taken: expected at most 2^40")
        added, removed = batch
        noise_key, chain = step_key(key, state.chain, state.n_steps, added, removed)
        return Transition(self.follow(state, added, removed, noise_key, chain))

    def consumed(self, state: S) -> int:
        return state.n_steps


class PointPublisher(Publisher[S]):
    """Publishes points; its parameters are attributes."""

    _machine: PointMachine[S]
    domain: Domain
    epsilon: float
    max_depth: int
    fan_out: int
    outside: Outside

    def _begin(self, machine: PointMachine[S], key: Key) -> None:
        super()._begin(machine, key)
        self._made: tuple[Tree, ReleasedTree] | None = None

    @property
    def _plan(self) -> CellParameters:
        return self._machine.plan

    @property
    def n_steps(self) -> int:
        """Number of batches consumed."""
        return self._state.n_steps

    @property
    def tree(self) -> ReleasedTree:
        """Cells and counts of the last release; else StateError."""
        tree = self._state.tree
        if tree is None:
            raise MissingError("there is no tree yet: expected a step first")
        # Made on demand, with the tree that it belongs to: a reader beside a step must not put an old one back.
        made = self._made
        if made is None or made[0] is not tree:
            made = self._made = (tree, ReleasedTree(self._plan, tree, self._variances()))
        return made[1]

    @property
    def total(self) -> float:
        """Estimated number of points; 0 before the first batch."""
        tree = self._state.tree
        return 0.0 if tree is None else float(tree.projected[0])

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """Guarantee of all releases together."""

    def step(self, added: Values, removed: Values | None = None) -> Floats:
        """Consume one batch and release synthetic points.

        Parameters
        ----------
        added, removed : array-like, n rows of d numbers, optional
            Points that appear and disappear.

        Returns
        -------
        float64[N, d]
            Synthetic points, uniform in each cell of :attr:`tree`; N is unbiased for :attr:`total`.

        Raises
        ------
        DataError
            For points that are not finite, of another dimension, or outside the domain; nothing is consumed.
        """
        self.advance(added, removed)
        return self.sample()

    @single_caller
    def advance(self, added: Values | None, removed: Values | None = None) -> None:
        """Consume one batch as :meth:`step`, without drawing points."""
        self._call(self._machine.read(added, removed))

    def sample(self) -> Floats:
        """Synthetic points of the last step, float64[N, d], equal at each call."""
        secret = self._key.derive("synthetic points", self.n_steps).reveal()
        return self.tree.sample(np.random.Generator(np.random.SFC64(int.from_bytes(secret, "big"))))

    def count(self, lower: Values, upper: Values) -> Counts:
        """Count points in boxes as :meth:`ReleasedTree.count`."""
        return self.tree.count(lower, upper)

    def interval(self, lower: Values, upper: Values, confidence: float = 0.95) -> tuple[Counts, Counts]:
        """Intervals as of :meth:`ReleasedTree.interval`; StateError if the noise is unknown."""
        return self.tree.interval(lower, upper, confidence)

    def std_error(self, lower: Values, upper: Values) -> Counts:
        """Standard errors of :meth:`count`, as of :meth:`ReleasedTree.std_error`."""
        return self.tree.std_error(lower, upper)

    def _variances(self) -> float | None:
        return None


def cells_and_counts(decisions: float, counts: float, where: str = "") -> Guarantee:
    """Guarantee of PrivTree: epsilon `decisions` for cells, `counts` for counts."""
    cells = event_guarantee(decisions, "PrivTree: (2 beta - 1) / (beta - 1) / lambda, whatever the depth")
    return sequential(cells.of(f"{where}cells"), counter_guarantee(Simple(), counts).of(f"{where}counts"))


def in_halves(epsilon: float) -> Guarantee:
    """Guarantee of PrivTree with half of `epsilon` each."""
    return cells_and_counts(epsilon / 2, epsilon / 2)


def composed(cells: Guarantee, total_epsilon: float, events: int) -> Guarantee:
    """Guarantee for `events` events in cells and, with `total_epsilon`, in the total count."""
    if total_epsilon:
        cells = sequential(cells, counter_guarantee(COUNTER, total_epsilon).of("count of the whole"))
    if events == 1:
        return cells
    step = f"group privacy: {events} events of a person, each at 1 / {events} of that"
    return replace(
        cells,
        unit=f"{events} events (additions or removals) of one person",
        adjacency=f"add or remove at most {events} events",
        derivation=(*cells.derivation, step),
    )


# PHDStream.


def cell_budgets(epsilon: float, total_share: float) -> tuple[float, float]:
    """Epsilon of decisions, and of the cells' counts."""
    rest = split_total(epsilon, total_share)[1]
    cells = CELLS * rest if total_share else rest / 2
    return cells, remainder(rest, cells)


@dataclass(frozen=True, kw_only=True)
class PHDState(PointState):
    """``kept`` is the next step's tree, ``drawn`` the number of cells' counts (0 without a total)."""

    kept: Annotated[KeptTree, KEPT]
    total: TotalCount = field(default_factory=TotalCount)
    drawn: Annotated[int, Whole(0, MAX_COUNT)] = 0


@dataclass(frozen=True)
class CounterKind(Kind):
    """Kind of a counter or its name."""

    def check(self, name: str, value: object) -> Counter:
        if isinstance(value, str):
            value = NAMED_COUNTERS[validation.choice(name, value, tuple(NAMED_COUNTERS))]
        validation.part(name, value, Counter, "fastdp.counters")
        return cast("Counter", value)


@record
class PHDMachine(PointParameters, PointMachine[PHDState]):
    """Transition function of :class:`PHDStream`."""

    counter: Literal["simple", "block", "binary"] | Counter = parameter(CounterKind(), default="simple")
    _: KW_ONLY
    sensitivity: int = parameter(Whole(1, MAX_EVENTS), default=1)
    threshold: float = parameter(Real(), default=0.0)
    score: Literal["repaired", "paper"] = parameter(Choice(("repaired", "paper")), default="repaired")
    retention: int = parameter(Whole(0, MAX_STEPS), default=16)
    total_share: float = parameter(Real(least=0.0, most=MAX_FRACTION), default=0.05)
    rule: ClassVar[int] = 1

    @cached_property
    def plan(self) -> CellParameters:
        cells, counts = (
            Fraction(epsilon) / self.sensitivity for epsilon in cell_budgets(self.epsilon, self.total_share)
        )
        shape, counter = (self.domain, self.fan_out, self.max_depth), cast("Counter", self.counter)
        return CellParameters(
            *shape, cells, counts, counter, self.threshold, self.score == "repaired", self.retention
        )

    @cached_property
    def total(self) -> TotalCounter | None:
        return TotalCounter.of_fraction(self.epsilon, self.sensitivity, self.total_share)

    @cached_property
    def variance(self) -> float:
        return laplace_variance(self.plan.cell_distribution.scale)

    def start(self, key: Key) -> PHDState:
        return PHDState(kept=self.root)

    def follow(self, state: PHDState, added: Integers, removed: Integers, key: Key, chain: str) -> PHDState:
        expected = 0 if state.tree is None else state.tree.first.size
        kept, tree = decomposition.take_step(self.plan, state.kept, added, removed, state.n_steps, key, expected)
        tree, total, drawn = tree.shown, state.total, state.drawn
        if self.total is not None:
            total = self.total.step(total, added.size - removed.size, state.n_steps, key)
            drawn += tree.leaves.size
            variance = drawn * self.variance
            missing = self.total.missing(total.released, total.steps, int(tree.released[0]), variance)
            tree = decomposition.adjusted(self.plan, tree, missing)
        return PHDState(n_steps=state.n_steps + 1, tree=tree, chain=chain, kept=kept, total=total, drawn=drawn)

    def restored(self, state: PHDState, key: Key) -> PHDState:
        if (state.tree is None) != (state.n_steps == 0):
            raise ValueError("a release out of range")
        if self.total is not None:
            self.total.check(state.total)
            if state.total.steps != state.n_steps:
                raise ValueError("a number of counts out of range")
        return state


class PHDStream(PointPublisher[PHDState]):
    """Releases synthetic points after every batch of additions and removals.

    Parameters
    ----------
    domain : Domain
        Public region, such as ``fastdp.points.Box(lower, upper)``.
    epsilon : float
        Privacy loss of all releases for ``sensitivity`` events.
    counter : str or Counter
        Noise of the leaves' counts: ``"simple"`` (mostly best), ``"block"`` (of 8 steps, as printed: biased, unlike
        one that settles), ``"binary"`` (1,024 activations a tree), or another one.
    max_depth : int
        D: depth of the smallest cells; ``fan_out`` to the power D is at most 2^62.
    fan_out : int
        beta: equal children of a cut cell, along one axis; the axes take turns.
    sensitivity : int
        k: events (additions and removals) of one person that are protected together, with epsilon / k each.
    threshold : float
        theta: cells that seem to hold more points, after a penalty for depth, are cut.
    score : str
        ``"repaired"``, or ``"paper"`` for comparison only: its guarantee states the much larger epsilon that holds.
    retention : int
        Steps for which an uncut cell remembers its children's counts; memory grows with it.
    total_share : float
        Share of epsilon, 0 to 0.5, for a count of all points, to which the others are adjusted; 0 is the paper's,
        with five times the error of the total.
    outside : str
        ``"raise"`` refuses a batch with points outside the domain (the error reveals that); ``"clip"`` moves them to
        its bounding box, on a network to the nearest road.
    seed, key
        As for :func:`fastdp.release`.

    Notes
    -----
    Privacy: adjacent streams differ in one event, an addition or a removal in one batch (``docs/points.md``).  Number
    and times of batches are public, sizes are not released.

    Removal of a point that was never added is not detected.  After an interrupt compare ``n_steps``: send no consumed
    batch again.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> domain = fastdp.points.Box((0, 0), (1, 1))
    >>> stream = fastdp.PHDStream(domain, epsilon=1.0, seed=1)
    >>> points = np.random.default_rng(1).random((1000, 2)) / 2
    >>> synthetic = stream.step(points, np.empty((0, 2)))  # added, removed
    >>> abs(stream.count((0, 0), (0.5, 0.5)) - 1000) < 100
    True
    """

    _MACHINE: ClassVar[type] = PHDMachine
    _machine: PHDMachine
    counter: Counter
    sensitivity: int
    threshold: float
    score: str
    retention: int
    total_share: float

    @constructor(PHDMachine)
    def __init__(self, machine: PHDMachine, seed: int | str | None, key: Key | bytes | None) -> None:
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    @property
    def n_nodes(self) -> int:
        """Number of cells in memory, kept ones included."""
        return self._state.kept.tree.first.size

    @property
    def guarantee(self) -> Guarantee:
        decisions, counts = cell_budgets(self.epsilon, self.total_share)
        if self.score == "repaired":
            cells = event_guarantee(
                decisions, "repaired score: (2 beta - 1) / (beta - 1) / lambda, whatever the depth"
            )
        else:
            # Every decision on an event's path may lose 1 / lambda, and nothing better is true.
            decision = Fraction(self.fan_out - 1, 2 * self.fan_out - 1) * Fraction(decisions)
            cells = event_guarantee(
                round_up(self.max_depth * decision),
                f"the paper's score: the claimed {decisions:g} is NOT proved (Theorem 3.2 fails where counts are "
                f"noisy or points are removed); what holds is max_depth / lambda, for {self.max_depth} decisions",
            )
        both = sequential(cells.of("cells"), counter_guarantee(self.counter, counts).of("counts"))
        guarantee = composed(both, split_total(self.epsilon, self.total_share)[0], self.sensitivity)
        return replace(guarantee, simulated=self._key.simulated)

    def _variances(self) -> float | None:
        if not isinstance(self.counter, OpenCounter):
            return None
        return self.counter.open_draws(self.n_steps) * self._machine.variance
