"""What the publishers of a changing set of points share: batches in, cells, counts and synthetic points out."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, get_type_hints

from fastdp import validation
from fastdp.arrays.kinds import Floats, Integers
from fastdp.counters.base import counter_guarantee, event_guarantee
from fastdp.counters.blocks import Simple
from fastdp.counters.running import COUNTERS
from fastdp.errors import StateError
from fastdp.guarantee import Guarantee, sequential
from fastdp.randomness.key import Key
from fastdp.randomness.prefix import check_chain, step_key
from fastdp.spatial import decomposition, saved
from fastdp.spatial.cell_parameters import CellParameters
from fastdp.spatial.cells import StepTree, encode
from fastdp.spatial.checks import as_points, inside
from fastdp.spatial.domain import Domain
from fastdp.spatial.tree import ReleasedTree, sampling_generator
from fastdp.spatial.tree_version import TreeVersion
from fastdp.state import codec
from fastdp.state.machine import Machine, Transition, parameters_of
from fastdp.state.publisher import Publisher
from fastdp.state.single_caller import single_caller

#: Steps have 40 bits in the words' stream id.
MAX_STEPS = 2**40


@dataclass(frozen=True, kw_only=True)
class PointMachine(Machine[Any]):
    """A mechanism on batches of points; subclasses have a plan and take the steps.

    A state has ``n_steps``, the number of batches consumed; ``visit``, the StepTree that the last step released (None
    before the first); and ``chain``, what noise is bound to (:func:`fastdp.randomness.prefix.step_key`), secret.

    Attributes
    ----------
    domain, epsilon, max_depth, fan_out, outside
        As of :class:`fastdp.PHDStream`.
    """

    PARTS: ClassVar[codec.Parts] = {**COUNTERS, **saved.DOMAINS}

    domain: Domain
    epsilon: float
    max_depth: int
    fan_out: int
    outside: str

    def __post_init__(self) -> None:
        """Check the parameters that all share, and those of the plan."""
        validation.positive("epsilon", self.epsilon)
        validation.choice("outside", self.outside, ("raise", "clip"))
        plan = self.plan
        # Plain numbers, whatever kind of whole number was given.
        self.__dict__.update(epsilon=float(self.epsilon), max_depth=plan.max_depth, fan_out=plan.fan_out)

    @cached_property
    @abstractmethod
    def plan(self) -> CellParameters:
        """What is fixed."""

    @abstractmethod
    def follow(self, state: Any, added: Integers, removed: Integers, key: Key, chain: str) -> Any:
        """The state after a batch, given by codes; ``key`` is this step's own."""

    @cached_property
    def root(self) -> TreeVersion:
        """The tree before any step."""
        return decomposition.root_only(self.plan)

    def packed(self, state: Any) -> dict[str, Any]:
        """The state as JSON."""
        return {**codec.describe(replace(state, visit=None)), "visit": saved.describe_visit(state.visit)}

    def unpacked(self, described: Any) -> Any:
        """The state that was described, checked."""
        kind = get_type_hints(type(self).start)["return"]
        visit = saved.restore_visit(described["visit"], self.plan)
        return replace(codec.restore(kind, {**described, "visit": None}), visit=visit)

    def read(self, *batch: Any) -> tuple[Integers, Integers]:
        """A batch as ascending codes of cells of the greatest depth."""
        added, removed = batch
        rows = [
            inside(as_points(values, name, self.domain.dim), self.domain, self.outside, name)
            for name, values in (("added", added), ("removed", removed))
        ]
        return encode(self.plan, rows[0]), encode(self.plan, rows[1])

    def step(self, state: Any, batch: Any, key: Key) -> Transition[Any]:
        """What a batch leads to, with noise bound to all batches so far."""
        if state.n_steps >= MAX_STEPS:
            raise StateError(f"{state.n_steps} steps were taken: expected at most 2^40")
        added, removed = batch
        own, chain = step_key(key, state.chain, state.n_steps, added, removed)
        return Transition(self.follow(state, added, removed, own, chain))

    def consumed(self, state: Any) -> int:
        """Batches consumed."""
        n_steps: int = state.n_steps
        return n_steps

    def pack(self, state: Any) -> dict[str, Any]:
        """The state as JSON."""
        return {"n_seen": state.n_steps, "state": self.packed(state)}

    def unpack(self, packed: dict[str, Any], key: Key) -> Any:
        """The state that was packed."""
        state = self.unpacked(packed["state"])
        if state.n_steps < 0 or (state.visit is None) != (state.n_steps == 0):
            raise ValueError("a release out of range")
        check_chain(state.chain)
        if state.n_steps != codec.whole(packed["n_seen"]):
            raise ValueError("a position out of range")
        return state


class SpatialPublisher(Publisher[Any]):
    """A publisher of points; subclasses make a machine.

    Attributes
    ----------
    domain, epsilon, max_depth, fan_out, outside
        As given.
    """

    _machine: PointMachine
    domain: Domain
    epsilon: float
    max_depth: int
    fan_out: int
    outside: str

    def _start(self, machine: PointMachine, seed: int | str | None, key: Key | bytes | None) -> None:
        """Begin with a key of this mechanism and these parameters."""
        self._begin(machine, machine.bind(Key.choose(seed, key)))

    def _begin(self, machine: PointMachine, key: Key) -> None:
        super()._begin(machine, key)
        self.__dict__.update(parameters_of(machine))
        self._made: tuple[StepTree, ReleasedTree] | None = None

    @property
    def _plan(self) -> CellParameters:
        return self._machine.plan

    @property
    def n_steps(self) -> int:
        """Batches consumed."""
        n_steps: int = self._state.n_steps
        return n_steps

    @property
    def tree(self) -> ReleasedTree:
        """The cells and counts released last; StateError before the first batch."""
        visit = self._state.visit
        if visit is None:
            raise StateError("there is no tree yet: expected a step first")
        # Made on demand, with the visit that it belongs to: a reader beside a step must not put an old one back.
        made = self._made
        if made is None or made[0] is not visit:
            made = self._made = (visit, ReleasedTree(self._plan, visit, self._variances()))
        return made[1]

    @property
    def total(self) -> float:
        """Estimated number of points now; 0 before the first batch."""
        visit = self._state.visit
        return 0.0 if visit is None else float(visit.projected[0])

    @property
    @abstractmethod
    def guarantee(self) -> Guarantee:
        """What all releases together promise."""

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

    @single_caller
    def advance(self, added: Any, removed: Any = None) -> None:
        """Consume one batch without drawing points; parameters and errors as :meth:`step`."""
        self._call(self._machine.read(added, removed))

    def sample(self) -> Floats:
        """The synthetic points of the last step, the same at every call; ``tree.sample()`` draws others."""
        return self.tree.sample(sampling_generator(self._key, self.n_steps))

    def count(self, lower: Any, upper: Any) -> Any:
        """Counts of boxes straight from the released tree: see :meth:`ReleasedTree.count`."""
        return self.tree.count(lower, upper)

    def count_interval(self, lower: Any, upper: Any, confidence: float = 0.95) -> Any:
        """Intervals for true counts of boxes, (low, high), by a model: see :meth:`ReleasedTree.count_interval`.

        StateError where points may wait to be counted (:class:`fastdp.AdaptivePHDStream`).
        """
        return self.tree.count_interval(lower, upper, confidence)

    def count_std_error(self, lower: Any, upper: Any) -> Any:
        """Standard errors of :meth:`count`, by a model: see :meth:`ReleasedTree.count_std_error`."""
        return self.tree.count_std_error(lower, upper)

    def _variances(self) -> float | None:
        """Variance of the noise of each cell of :attr:`tree`, in points^2; None where it is not known."""
        return None


def in_halves(epsilon: float, where: str = "") -> Guarantee:
    """Cells that PrivTree chooses, with half of epsilon, and one count in each, with the other half."""
    half = epsilon / 2
    cells = event_guarantee(half, "PrivTree: (2 beta - 1) / (beta - 1) / lambda, whatever the depth")
    return sequential(cells.of(f"{where}cells"), counter_guarantee(Simple(), half).of(f"{where}counts"))


def for_events(guarantee: Guarantee, events: int) -> Guarantee:
    """A guarantee for one event at epsilon / ``events``, said for that many events of one person at epsilon."""
    if events == 1:
        return guarantee
    step = f"group privacy: {events} events of a person, each at 1 / {events} of that"
    return replace(
        guarantee,
        unit=f"{events} events (additions or removals) of one person",
        adjacency=f"add or remove at most {events} events",
        derivation=(*guarantee.derivation, step),
    )
