"""What the publishers of a changing set of points share: batches in, cells, counts and synthetic points out."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, ClassVar, Protocol

from fastdp import validation
from fastdp.counters.running import PARTS
from fastdp.errors import StateError
from fastdp.guarantee import Guarantee
from fastdp.randomness.key import Key
from fastdp.randomness.prefix import check_chain, step_key
from fastdp.spatial import saved
from fastdp.spatial.cell_parameters import CellParameters
from fastdp.spatial.cells import Integers, StepTree, encode
from fastdp.spatial.checks import as_points
from fastdp.spatial.domain import Domain, Floats
from fastdp.spatial.points import inside
from fastdp.spatial.tree import ReleasedTree, sampling_generator
from fastdp.state import codec
from fastdp.state.single_caller import exclusive
from fastdp.state.stepwise import Stepwise

#: Steps have 40 bits in the words' stream id.
MAX_STEPS = 2**40


class StreamState(Protocol):
    """Where a stream stands: batches consumed, and what the last step released (None before the first)."""

    @property
    def n_steps(self) -> int:
        """Batches consumed."""
        ...

    @property
    def visit(self) -> StepTree | None:
        """The released tree."""
        ...

    @property
    def chain(self) -> str:
        """What noise is bound to (:func:`fastdp.randomness.prefix.step_key`); secret."""
        ...


class SpatialPublisher(Stepwise):
    """A publisher of points; subclasses make a plan and take the steps.

    Parameters
    ----------
    domain : Domain
        The public region.
    plan : CellParameters
        What is fixed.
    state : StreamState
        Before the first batch; replaced as a whole by every step.
    outside, seed, key
        As for :class:`fastdp.PHDStream`.
    """

    _PARTS: ClassVar[codec.Parts] = {**PARTS, **saved.DOMAINS}
    _state: StreamState

    def __init__(
        self,
        domain: Domain,
        plan: CellParameters,
        state: StreamState,
        *,
        outside: str,
        seed: int | str | None,
        key: Key | bytes | None,
    ) -> None:
        super().__init__()
        self.outside = validation.choice("outside", outside, ("raise", "clip"))
        self.domain, self.max_depth, self.fan_out = domain, plan.max_depth, plan.fan_out
        self._plan = plan
        self._key = Key.choose(seed, key).bind(type(self).__name__, self._arguments)
        self._state = state
        self._made: tuple[StepTree, ReleasedTree] | None = None

    @property
    def n_steps(self) -> int:
        """Batches consumed."""
        return self._state.n_steps

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

    @exclusive
    def advance(self, added: Any, removed: Any = None) -> None:
        """Consume one batch without drawing points; parameters and errors as :meth:`step`."""
        codes = self._codes(added, removed)
        self._check_batch(*codes)
        self._commit(self._following(*codes), *codes)

    def sample(self) -> Floats:
        """The synthetic points of the last step, the same at every call; ``tree.sample()`` draws others."""
        return self.tree.sample(sampling_generator(self._key, self.n_steps))

    def count(self, lower: Any, upper: Any) -> Any:
        """Counts of boxes straight from the released tree: see :meth:`ReleasedTree.count`."""
        return self.tree.count(lower, upper)

    def _codes(self, added: Any, removed: Any) -> tuple[Integers, Integers]:
        """A batch as ascending codes of cells of the greatest depth."""
        if self.n_steps >= MAX_STEPS:
            raise StateError(f"{self.n_steps} steps were taken: expected at most 2^40")
        batch = [
            inside(as_points(values, name, self.domain.dim), self.domain, self.outside, name)
            for name, values in (("added", added), ("removed", removed))
        ]
        codes = [encode(self._plan, rows) for rows in batch]
        return codes[0], codes[1]

    def _step_key(self, added: Integers, removed: Integers) -> tuple[Key, str]:
        """The key of this batch's noise, bound to all batches so far, and the chain after it."""
        return step_key(self._key, self._state.chain, self.n_steps, added, removed)

    @abstractmethod
    def _following(self, added: Integers, removed: Integers) -> StreamState:
        """The state after a batch, given by codes; changes nothing."""

    # State files.

    @property
    def _consumed(self) -> int:
        return self.n_steps

    def _check(self, state: Any) -> None:
        if state.n_steps < 0 or (state.visit is None) != (state.n_steps == 0):
            raise ValueError("a release out of range")
        check_chain(state.chain)


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
