"""Protocols of threshold rules, and the rule of a public threshold."""

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
    """Public inputs of a threshold's choice.

    Attributes
    ----------
    epsilon : float
        Budget for the hold-out.
    bound, resolution : float
        B, and the grid step, in units of the input.
    holdout : int
        m, the number of values that choose theta.
    max_range : int
        r, the longest query.
    publish_epsilon : float, optional
        Budget of the noise; by default `epsilon`.
    noise_constant : float, optional
        K of :meth:`fastdp.perturbers.Perturber.noise_constant`.
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
    """Collects the hold-out and chooses theta."""

    def copy(self) -> Chooser:
        """Independent copy, so that a rejected chunk can be dropped."""

    def observe(self, values: Floats) -> None:
        """Add finite `values`, copied: the caller owns their memory."""

    def choose(self, key: Key) -> float:
        """Theta in units of the input, in (0, bound]."""

    def pack(self) -> Integers:
        """Collected data, for a state file."""

    def unpack(self, packed: Integers) -> None:
        """Restore data from :meth:`pack`; else ValueError or IndexError."""


@runtime_checkable
class RowChooser(Protocol):
    """Chooser for many streams in one call."""

    @property
    def row_words(self) -> int:
        """Number of draws in a row of :meth:`choose_rows`."""

    @property
    def counts(self) -> Integers:
        """Histogram of the observed values."""

    def histograms(self, values: Floats, starts: Integers) -> Integers:
        """Histograms of finite hold-outs that begin at `starts`: int64[n, bins]."""

    def choose_rows(self, histograms: Integers, key: Key, streams: Integers) -> Floats:
        """Theta of each stream, float64[n], by ``choose`` under ``held_out(key, hold-out).of_stream(number)``.

        `histograms`: int64[n, bins], or int64[1, bins] for a shared one.
        """


def held_out(key: Key, values: Array) -> Key:
    """Key of a choice from this hold-out, or from ``Chooser.pack``."""
    # Not BLAKE2b: this is the one long message, and processors have instructions for SHA-256.
    return key.within("holdout", hashlib.sha256(values.data).digest())


class Threshold(Protocol):
    """Rule that chooses theta from a hold-out, or knows it."""

    @property
    def uses_holdout(self) -> bool:
        """True if the rule uses data."""

    def start(self, task: ThresholdTask) -> Chooser:
        """Empty chooser for one publisher."""

    def guarantee(self, task: ThresholdTask) -> Guarantee | None:
        """Privacy cost of the choice; None without data."""


@record
class Fixed:
    """Public theta: no hold-out, no budget.

    Parameters
    ----------
    theta : float
        In units of the input, above 0, at most the bound; not from the data.
    """

    theta: float = parameter(Real(above=0.0))
    uses_holdout: ClassVar[bool] = False
    rule: ClassVar[int] = 1

    def start(self, task: ThresholdTask) -> _FixedChooser:
        """Chooser of theta; ParameterError if theta exceeds the bound."""
        if self.theta > task.bound:
            raise ParameterError(
                f"theta = {self.theta!r} (the threshold): expected at most the bound, {task.bound!r}"
            )
        return _FixedChooser(self.theta)

    def guarantee(self, task: ThresholdTask) -> Guarantee | None:
        """None: no data are used."""
        return None


def as_rule(name: str, threshold: object) -> Threshold:
    """`threshold` as a rule, a number as :class:`Fixed`; else ParameterError."""
    if type(threshold) is not bool and isinstance(threshold, numbers.Real):
        return Fixed(validation.positive(name, threshold))
    validation.part(name, threshold, Threshold, "fastdp.thresholds")
    return cast("Threshold", threshold)


@dataclass(frozen=True)
class _FixedChooser:
    """Chooser that ignores the hold-out and returns the public theta."""

    theta: float

    def copy(self) -> _FixedChooser:
        return self

    def observe(self, values: Floats) -> None:
        """Ignore the hold-out values."""

    def choose(self, key: Key) -> float:
        return self.theta

    def pack(self) -> Integers:
        return np.empty(0, np.int64)

    def unpack(self, packed: Integers) -> None:
        if packed.size:
            raise ValueError("a fixed threshold holds no data")
