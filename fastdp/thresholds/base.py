"""What every threshold optimiser offers to a publisher."""

from __future__ import annotations

import hashlib
import numbers
from dataclasses import dataclass
from typing import ClassVar, Protocol, cast, runtime_checkable

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Array, Floats, Integers
from fastdp.noise.key import Key
from fastdp.record import Real, parameter, record


@dataclass(frozen=True)
class ThresholdTask:
    """The public facts a threshold is chosen under.

    Attributes
    ----------
    epsilon : float
        Budget for the hold-out.
    bound : float
        B, in units of the input.
    holdout : int
        m, the number of values that choose theta.
    max_range : int
        r, the longest query.
    resolution : float
        One step of the grid that values are rounded to, in units of the input.
    publish_epsilon : float, optional
        Budget of the noise that theta is chosen for; by default epsilon too.
    noise_constant : float, optional
        K: a random range of up to r values has noise of variance K (theta / publish_epsilon)^2; what publishes says
        so (:meth:`fastdp.perturbers.Perturber.noise_constant`).
    """

    epsilon: float
    bound: float
    holdout: int
    max_range: int
    resolution: float
    publish_epsilon: float | None = None
    noise_constant: float | None = None

    @property
    def noise_epsilon(self) -> float:
        """Budget of the noise on published values."""
        return self.epsilon if self.publish_epsilon is None else self.publish_epsilon


class Chooser(Protocol):
    """Collects the hold-out and chooses theta; holds no more than the choice needs."""

    def copy(self) -> Chooser:
        """An independent copy, so that a rejected chunk can be forgotten."""

    def observe(self, values: Floats) -> None:
        """Add values (finite; publishers check that), which may be the caller's memory: what is kept is copied."""

    def choose(self, key: Key) -> float:
        """Theta in units of the input, in (0, bound]."""

    def pack(self) -> Integers:
        """What has been collected, for a state file."""

    def unpack(self, packed: Integers) -> None:
        """Take over what :meth:`pack` gave; ValueError or IndexError if it does not fit."""


@runtime_checkable
class RowChooser(Protocol):
    """A chooser that can choose for many streams in one call; others are asked stream by stream."""

    @property
    def row_words(self) -> int:
        """Draws in a row of :meth:`choose_rows`."""

    @property
    def counts(self) -> Integers:
        """What has been observed, as a histogram."""

    def histograms(self, values: Floats, starts: Integers) -> Integers:
        """Histograms of many hold-outs that begin at ``starts``, finite: int64[n, bins]."""

    def choose_rows(self, histograms: Integers, key: Key, streams: Integers) -> Floats:
        """Theta of many streams, each what ``choose`` gives under the key of its stream and hold-out: float64[n].

        Parameters
        ----------
        histograms : int64[n, bins] or int64[1, bins]
            Of each hold-out, or of the one that all share.
        key : Key
            The secret of all streams; row i draws under ``held_out(key, hold-out i).of_stream(streams[i])``.
        streams : int64[n]
            Their numbers.
        """


def held_out(key: Key, values: Array) -> Key:
    """The key of a choice from this hold-out: another hold-out meets independent noise.

    ``values`` is the hold-out (contiguous), or what a chooser keeps of it (``Chooser.pack``).
    """
    # Not BLAKE2b: this is the one long message, and processors have instructions for SHA-256.
    return key.within("holdout", hashlib.sha256(values.data).digest())


class Threshold(Protocol):
    """A rule that chooses theta."""

    @property
    def uses_holdout(self) -> bool:
        """Whether the rule looks at data at all."""

    def start(self, task: ThresholdTask) -> Chooser:
        """A chooser for one publisher."""

    def guarantee(self, task: ThresholdTask) -> Guarantee | None:
        """What choosing theta costs; None if no data are looked at."""


@record
class Fixed:
    """Theta is public: no hold-out, no budget.

    Parameters
    ----------
    theta : float
        In units of the input, above 0 and at most the bound.  It must not come from the data.
    """

    theta: float = parameter(Real(above=0.0))
    uses_holdout: ClassVar[bool] = False
    rule: ClassVar[int] = 1

    def start(self, task: ThresholdTask) -> _FixedChooser:
        """A chooser that returns theta."""
        if self.theta > task.bound:
            raise ParameterError(
                f"theta = {self.theta!r} (the threshold): expected at most the bound, {task.bound!r}"
            )
        return _FixedChooser(self.theta)

    def guarantee(self, task: ThresholdTask) -> Guarantee | None:
        """Nothing is looked at."""
        return None


def as_rule(name: str, threshold: object) -> Threshold:
    """The rule itself; for a number, the threshold known publicly."""
    if type(threshold) is not bool and isinstance(threshold, numbers.Real):
        return Fixed(validation.positive(name, threshold))
    validation.part(name, threshold, Threshold, "fastdp.thresholds")
    return cast("Threshold", threshold)


@dataclass(frozen=True)
class _FixedChooser:
    theta: float

    def copy(self) -> _FixedChooser:
        return self

    def observe(self, values: Floats) -> None:
        """Hold-out values, if the user asks for a hold-out, are dropped unseen."""

    def choose(self, key: Key) -> float:
        return self.theta

    def pack(self) -> Integers:
        return np.empty(0, np.int64)

    def unpack(self, packed: Integers) -> None:
        if packed.size:
            raise ValueError("a fixed threshold holds no data")
