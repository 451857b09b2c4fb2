"""Reports of users, and the whole local model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fastdp.guarantee import Guarantee
from fastdp.local.base import Mechanism
from fastdp.randomness.key import Key
from fastdp.systems.topl.publisher import ToPL

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LocalTrials:
    """Reports of one value: ``Mechanism.perturb`` on as many copies as trials."""

    mechanism: Mechanism

    @property
    def guarantee(self) -> Guarantee:
        """The mechanism's."""
        return self.mechanism.guarantee

    def draw_trials(self, data: float, trials_: int, key: Key) -> NDArray[np.int32]:
        """Data: the value."""
        return self.mechanism.perturb(np.full(trials_, data), key=key, start=0)


@dataclass(frozen=True)
class ToPLTrials:
    """Users and server a trial, from a fresh simulation: what the server gets before the threshold, and its outputs.

    Of the reports before the threshold the sum of their bins is an output; of one user that is the report, in bins.

    Attributes
    ----------
    make : callable
        A fresh simulation with this key.
    """

    make: Callable[[Key], ToPL]

    @property
    def guarantee(self) -> Guarantee:
        """The simulation's."""
        return self.make(Key.from_seed(0)).guarantee

    def __call__(self, data: Sequence[float], seed: int) -> Floats:
        """Data: the users' values, the hold-out first."""
        simulation = self.make(Key.from_seed(seed))
        collector = simulation.server._collector
        published = simulation.publish(data)
        assert collector is not None  # noqa: S101 - audited with a hold-out
        reported = collector.totals @ np.arange(collector.totals.size)
        return np.concatenate([[float(reported), float(simulation.threshold or 0.0)], published])
