"""What the publishers of a changing set of points share: batches in, cells, counts and synthetic points out.

A noisy count of all points may stand beside those of the cells.  The sum of the cells' counts has the noise of every
cell; a count of the whole with a small share of epsilon has far less.  Both are unbiased and independent, so each has
weight in proportion to the other's variance, and the difference goes to the counts in proportion to their variances:
post-processing (``docs/phdstream.md``, "A count of the whole").
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, get_type_hints

import numpy as np

from fastdp import validation
from fastdp.counters.counter import (
    Block,
    Counter,
    Simple,
    check_rows,
    counter_guarantee,
    event_guarantee,
    noise_scale,
)
from fastdp.counters.running import COUNTERS
from fastdp.errors import ParameterError, StateError
from fastdp.guarantee import Guarantee, remainder, sequential
from fastdp.kinds import Floats, Integers
from fastdp.noise import sampler
from fastdp.noise.binding import check_chain, step_key
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.releases.intervals import laplace_variance
from fastdp.spatial import decomposition
from fastdp.spatial.boxes import Box, as_points
from fastdp.spatial.cells import CellParameters, Domain, encode, inside
from fastdp.spatial.maps import Network, Polygons
from fastdp.spatial.released_tree import ReleasedTree, sampling_generator
from fastdp.spatial.tree import MAX_COUNT, RELEASED, Tree, TreeVersion, describe_tree, restore_tree
from fastdp.state import codec
from fastdp.state.codec import expect
from fastdp.state.machine import Machine, Transition, parameters_of, single_caller
from fastdp.state.publisher import Publisher

#: Steps have 40 bits in the words' stream id.
MAX_STEPS = 2**40
#: Domains that a state file may name.
DOMAINS = {kind.__name__: kind for kind in (Box, Polygons, Network)}
#: Counts the whole.  That is active at every step, so Block is unbiased, with far less noise than Simple.
COUNTER = Block(16)
#: Level of the words' stream id; 0 is the cells' and 1 that of cells which settle.
LEVEL = 2
#: Largest share of epsilon, and largest scale of the noise.
MAX_SHARE, MAX_SCALE = 0.5, 2**40


def _row() -> Integers:
    return np.zeros((1, COUNTER.width), np.int64)


@dataclass(frozen=True)
class WholeCount:
    """Counts of the whole.

    Attributes
    ----------
    steps : int
        How often.
    released : int
        The noisy count of all points.
    row : int64[1, width]
        The counter.  Secret.
    """

    steps: int = 0
    released: int = 0
    row: Integers = field(default_factory=_row, repr=False)


def split(epsilon: float, share: float) -> tuple[float, float]:
    """Epsilon of the count of the whole, and what is left for the cells; they never exceed ``epsilon`` together."""
    total = share * epsilon
    return total, remainder(epsilon, total)


def as_share(share: object) -> float:
    """A share from 0 to 1/2, or ParameterError."""
    number = validation.real("total_share", share)
    if not 0.0 <= number <= MAX_SHARE:
        raise ParameterError(f"total_share = {validation.shown(share)}: expected from 0 to {MAX_SHARE}, such as 0.05")
    return number


@dataclass(frozen=True)
class WholeParameters:
    """Public parameters.

    Attributes
    ----------
    epsilon : Fraction
        For one event.
    counter : Counter
        Of the whole.
    """

    epsilon: Fraction
    counter: Counter = COUNTER

    @classmethod
    def of_share(cls, epsilon: float, sensitivity: int, share: float) -> WholeParameters | None:
        """For so many events of a person; None where no share is spent."""
        if not share:
            return None
        made = cls(Fraction(split(epsilon, share)[0]) / sensitivity)
        if not made.epsilon or noise_scale(made.counter, made.epsilon) > MAX_SCALE:
            raise ParameterError("epsilon is too small: expected a noise scale of at most 2^40 points for the whole")
        return made

    @staticmethod
    def guarantee(epsilon: float) -> Guarantee:
        """Of all counts of the whole."""
        return counter_guarantee(COUNTER, epsilon).of("count of the whole")

    @cached_property
    def law(self) -> sampler.LaplaceDistribution:
        """Of the counter's noise."""
        return sampler.laplace_distribution(noise_scale(self.counter, self.epsilon))

    def step(self, whole: WholeCount, net: int, step: int, key: Key) -> WholeCount:
        """The count after so many additions less removals."""
        row: Integers = whole.row.copy()
        noise = sampler.draws(1, self.law, key, StreamId(Purpose.CELL, level=LEVEL, number=step))
        return WholeCount(whole.steps + 1, whole.released + net + int(self.counter.step(row, noise)[0]), row)

    def missing(self, whole: WholeCount, counted: int, variance: float) -> float:
        """The correction by least squares of the sum of the cells' counts, which has this variance, in points^2."""
        own = laplace_variance(self.law.scale) * COUNTER.open_draws(whole.steps)
        return (whole.released - counted) * (variance / (variance + own)) if variance > 0.0 else 0.0

    def check(self, whole: WholeCount | None) -> None:
        """ValueError for a count that no step leaves."""
        if whole is None or abs(whole.released) > MAX_COUNT or not 0 <= whole.steps <= MAX_COUNT:
            raise ValueError("a count of the whole out of range")
        expect(whole.row, _row())
        check_rows(self.counter, whole.row)
        if whole.row[0, 0] != whole.steps % COUNTER.size:
            raise ValueError("a counter of the whole out of step")


@dataclass(frozen=True, kw_only=True)
class PointMachine(Machine[Any]):
    """A mechanism on batches of points; subclasses have a plan and take the steps.

    A state has ``n_steps``, the number of batches consumed; ``tree``, which the last step released (None before the
    first); and ``chain``, what noise is bound to (:func:`fastdp.noise.binding.step_key`), secret.

    Attributes
    ----------
    domain, epsilon, max_depth, fan_out, outside
        As of :class:`fastdp.PHDStream`.
    """

    PARTS: ClassVar[codec.Parts] = {**COUNTERS, **DOMAINS}
    #: Trees of a state, and the columns that a file has of each; none of those that follow from the others.
    TREES: ClassVar[Mapping[str, tuple[str, ...]]] = {"tree": RELEASED}

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
        """Public parameters."""

    @abstractmethod
    def follow(self, state: Any, added: Integers, removed: Integers, key: Key, chain: str) -> Any:
        """The state after a batch, given by codes; ``key`` is this step's own."""

    @cached_property
    def root(self) -> TreeVersion:
        """The tree before any step."""
        return decomposition.root_only(self.plan)

    def packed(self, state: Any) -> dict[str, Any]:
        """The state as JSON."""
        trees = {name: getattr(state, name) for name, columns in self.TREES.items() if columns}
        described = {name: describe_tree(tree, self.TREES[name]) for name, tree in trees.items() if tree is not None}
        return {**codec.describe(replace(state, **dict.fromkeys(self.TREES))), **described}

    def unpacked(self, described: Any) -> Any:
        """The state that was described, checked."""
        kind = get_type_hints(type(self).start)["return"]
        hints, found = get_type_hints(kind), {}
        for name in (each.name for each in fields(kind)):
            if name in self.TREES and described[name] is not None:
                found[name] = restore_tree(described[name], self.TREES[name], self.plan)
            else:
                found[name] = codec.restore(hints[name], described[name])
        return kind(**found)

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
        if state.n_steps < 0 or (state.tree is None) != (state.n_steps == 0):
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
        self._made: tuple[Tree, ReleasedTree] | None = None

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
        tree = self._state.tree
        if tree is None:
            raise StateError("there is no tree yet: expected a step first")
        # Made on demand, with the tree that it belongs to: a reader beside a step must not put an old one back.
        made = self._made
        if made is None or made[0] is not tree:
            made = self._made = (tree, ReleasedTree(self._plan, tree, self._variances()))
        return made[1]

    @property
    def total(self) -> float:
        """Estimated number of points now; 0 before the first batch."""
        tree = self._state.tree
        return 0.0 if tree is None else float(tree.projected[0])

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

    def interval(self, lower: Any, upper: Any, confidence: float = 0.95) -> Any:
        """Intervals for true counts of boxes, (low, high), by a model: see :meth:`ReleasedTree.interval`.

        StateError where points may wait to be counted (:class:`fastdp.AdaptivePHDStream`).
        """
        return self.tree.interval(lower, upper, confidence)

    def std_error(self, lower: Any, upper: Any) -> Any:
        """Standard errors of :meth:`count`, by a model: see :meth:`ReleasedTree.std_error`."""
        return self.tree.std_error(lower, upper)

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
