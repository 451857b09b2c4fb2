"""Baselines of the literature for w-event privacy: Uniform, Sample, budget distribution and budget absorption.

Source: Kellaris, Papadopoulos, Xiao and Papadias 2014, "Differentially private event sequences over infinite streams"
(VLDB).  There a value is a vector of counts; here it is one number in [0, bound], and the unit any w consecutive
values.  Each step has a budget, and those of any w consecutive steps add up to at most epsilon (``docs/streams.md``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np

from fastdp import Guarantee, Key, Release, validation
from fastdp.data.column import as_finite, as_floats, as_whole
from fastdp.guarantee import fraction_of
from fastdp.integer_grid import MAX_SCALE, Grid, make_grid
from fastdp.kinds import Floats, Integers
from fastdp.noise import chain_keys, sampler
from fastdp.noise.words import Purpose, StreamId
from fastdp.state import Machine, Publisher, Transition
from fastdp.state.codec import COUNT, INT64, LIKE_START
from fastdp.state.machine import Column, single_caller

Scheme = Literal["uniform", "sample", "distribution", "absorption"]
SCHEMES = get_args(Scheme)
#: Budget distribution halves what is left of epsilon / 2: in whole parts, so that sums are exact.
PARTS_OF_HALF = 2**60
MAX_WINDOW = 2**20
#: Draws of a step: the dissimilarity's noise, and the value's.
DISSIMILARITY, VALUE = 1, 2


@dataclass(frozen=True)
class WEventState:
    """State of a stream; everything but the chain is a function of released values."""

    n_seen: Annotated[int, COUNT]
    released: Annotated[int, INT64]
    blocked: Annotated[int, COUNT]
    spent: Annotated[Integers, LIKE_START, COUNT]
    chain: chain_keys.StepChain


@dataclass(frozen=True)
class WEventMachine(Machine[WEventState]):
    """One of the four schemes; fields as :class:`WEvent`'s."""

    SPLITS: ClassVar[bool] = True

    scheme: Scheme
    epsilon: float
    bound: float
    contributions: int
    resolution: float | None
    rule: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Check the parameters."""
        epsilon, bound = validation.positive("epsilon", self.epsilon), validation.positive("bound", self.bound)
        w = validation.integer("contributions", self.contributions, 1, MAX_WINDOW)
        scheme = validation.choice("scheme", self.scheme, SCHEMES)
        self.__dict__.update(scheme=scheme, epsilon=epsilon, bound=bound, contributions=w)
        self.__dict__["resolution"] = self.grid.resolution

    @cached_property
    def grid(self) -> Grid:
        """The integers that values are rounded to."""
        least = fraction_of(self.epsilon, 2 * self.contributions)
        return make_grid(self.bound, self.resolution, least, 1, 1, 2)

    @cached_property
    def _unit(self) -> Fraction:
        """Scale of noise with the whole of epsilon."""
        return self.grid.bound_steps / Fraction(self.epsilon)

    def scale(self, state: WEventState) -> Fraction | None:
        """Scale of the noise with which the next value may be released; None if it may not, whatever it is."""
        i, w = state.n_seen, self.contributions
        if self.scheme == "uniform":
            return self._unit * w
        if self.scheme == "sample":
            return None if i % w else self._unit
        if self.scheme == "absorption":
            absorbed = min(i + 1 - state.blocked, w)
            return None if absorbed < 1 else self._unit * Fraction(2 * w, absorbed)
        given = (PARTS_OF_HALF - int(state.spent.sum())) // 2
        scale = self._unit * Fraction(2 * PARTS_OF_HALF, given) if given else None
        return None if scale is None or scale > MAX_SCALE else scale

    def _after(self, state: WEventState, released: int, *, shown: bool, chain: str) -> WEventState:
        """The state behind one more step; ``shown``: its value was released with the budget that it might have."""
        i, w, blocked, spent = state.n_seen, self.contributions, state.blocked, state.spent
        if self.scheme == "absorption" and shown:
            # As many steps as were absorbed, the present one among them, have no budget left.
            blocked = i + min(i + 1 - blocked, w)
        if spent.size:
            spent = spent.copy()
            spent[i % spent.size] = (PARTS_OF_HALF - int(spent.sum())) // 2 if shown else 0
        return WEventState(i + 1, released, blocked, spent, chain)

    def start(self, key: Key) -> WEventState:
        """Nothing is released yet: 0 is known."""
        size = self.contributions - 1 if self.scheme == "distribution" else 0
        return WEventState(0, 0, 0, np.zeros(size, np.int64), "")

    def step(self, state: WEventState, batch: Column, key: Key) -> Transition[WEventState]:
        """Flags of released values, and the published values."""
        values = as_finite(as_floats(batch.values), "raise", batch.name)
        resolution, top = self.grid.resolution, self.grid.bound_steps
        published: Integers = np.empty(values.size, np.int64)
        exact = np.rint(np.clip(values * (1.0 / resolution), 0.0, float(top))).astype(np.int64)
        for place, value in enumerate(exact):
            scale = self.scale(state)
            own, chain = chain_keys.step_key(key, state.chain, state.n_seen, exact[place : place + 1])
            released, shown = state.released, False
            if scale is not None:
                shown = self.scheme in ("uniform", "sample") or self._moved(state, int(value), scale, own)
                if shown:
                    released = int(value) + _noise(scale, own, VALUE, state.n_seen)
            state = self._after(state, released, shown=shown, chain=chain)
            published[place] = released
        return Transition(state, lambda: published * resolution)

    def _moved(self, state: WEventState, value: int, scale: Fraction, key: Key) -> bool:
        """Noisy test whether the value is farther from the last released one than its noise would be."""
        far = abs(value - state.released)
        return far + _noise(self._unit * 2 * self.contributions, key, DISSIMILARITY, state.n_seen) > scale

    def restored(self, state: WEventState, key: Key) -> WEventState:
        """Budgets are those of the steps before."""
        if sum(state.spent.tolist()) > PARTS_OF_HALF:
            raise ValueError("budgets out of range")
        if not state.blocked < state.n_seen + self.contributions:
            raise ValueError("a step out of range")
        return state

    def guarantee(self) -> Guarantee:
        """Guarantee for any w consecutive values."""
        w = self.contributions
        steps = {
            "uniform": (f"each value is released with epsilon / {w}",),
            "sample": (f"every {w}th value is released with epsilon, those between are not looked at",),
            "distribution": (
                f"each step compares its value with the last release, with epsilon / {2 * w}",
                f"and releases it, if it is far from it, with half of what {w - 1} steps before left of epsilon / 2",
            ),
            "absorption": (
                f"each step compares its value with the last release, with epsilon / {2 * w}",
                f"and releases it, if it is far from it, with the epsilon / {2 * w} of each step since the last "
                "release but as many as that one absorbed, as many steps again going without",
            ),
        }
        total = f"any {w} consecutive steps spend epsilon at most (sequential); what they spend follows from releases"
        one = Guarantee(self.epsilon, arithmetic="exact", derivation=(*steps[self.scheme], total))
        return one if w == 1 else replace(one, unit=f"any {w} consecutive values", adjacency="replace them")


def _noise(scale: Fraction, key: Key, draw: int, step: int) -> int:
    return int(sampler.draws(1, sampler.laplace_distribution(scale), key, StreamId(Purpose.TREE, draw, step))[0])


class WEvent(Publisher[WEventState]):
    """Publishes a stream under w-event privacy, value by value, as the literature does.

    Parameters
    ----------
    scheme : "uniform", "sample", "distribution" or "absorption"
        Each value with epsilon / w; every w-th value with epsilon; or only values far from the last release, with
        half of the budget that the window has left, or with the budgets of the steps that went without.
    epsilon : float
        Privacy loss for any w consecutive values together.
    bound : float
        Public upper bound of a value, in units of the input; values outside [0, bound] are clipped.
    contributions : int
        w.
    resolution : float, optional
        Grid step; by default the largest power of two not above bound * 2^-32, or a coarser one.
    seed, key
        As for :class:`fastdp.StreamPublisher`.

    Notes
    -----
    Source: Kellaris et al. 2014.  Privacy: pure epsilon, exact on this machine; noise is bound to the values so far.
    """

    _MACHINE: ClassVar[Any] = WEventMachine
    _machine: WEventMachine

    def __init__(
        self,
        scheme: Scheme,
        epsilon: float,
        bound: float,
        contributions: int,
        *,
        resolution: float | None = None,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        super().__init__(WEventMachine(scheme, epsilon, bound, contributions, resolution), seed=seed, key=key)

    @property
    def n_seen(self) -> int:
        """Values consumed."""
        return self._state.n_seen

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the whole endless stream."""
        return replace(self._machine.guarantee(), simulated=self._key.simulated)

    @single_caller
    def publish(self, chunk: Any) -> Floats:
        """Consume the next values; publish the last release for each: float64[n]."""
        published: Floats = self._call(self._machine.read(chunk))
        return published

    @single_caller
    def release(self, values: Any) -> Release:
        """Publish a whole array at once (a fresh publisher only)."""
        published = self._call(Column(as_whole(values, self.n_seen, 0), "values"))
        published.flags.writeable = False
        return Release(published, 0, np.array([self._machine.bound]), self.guarantee)
