"""One audit: a mechanism of the package, two adjacent inputs, and the number of runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.guarantee import Guarantee
from fastdp.randomness.key import Key

Floats = NDArray[np.float64]

FAST, MEDIUM, REPEATED, MANY, SLOW = 10_000_000, 1_000_000, 300_000, 60_000, 20_000


@dataclass(frozen=True)
class ManyRuns:
    """A mechanism that makes many runs in one call of ``draw(data, trials, key)``."""

    guarantee: Guarantee
    draw: Callable[[Any, int, Key], NDArray[Any]]

    def draw_trials(self, data: Any, trials: int, key: Key) -> NDArray[Any]:
        """Rows of outputs."""
        return self.draw(data, trials, key)


@dataclass(frozen=True)
class OneRun:
    """A mechanism that makes one run a call: ``see(fresh, data)``; ``fresh()`` is a new object with the run's key."""

    guarantee: Guarantee
    make: Callable[[Key], Any]
    see: Callable[[Callable[[], Any], Any], NDArray[Any]]

    def __call__(self, data: Any, seed: int) -> NDArray[Any]:
        """Outputs of the run with this seed."""
        return self.see(partial(self.make, Key.from_seed(seed)), data)


def one_run(
    make: Callable[[Key], Any], see: Callable[[Callable[[], Any], Any], NDArray[Any]], factor: float = 1.0
) -> OneRun:
    """An object's runs under its own guarantee, whose epsilon is multiplied by ``factor``."""
    whole: Guarantee = make(Key.from_seed(0)).guarantee
    return OneRun(replace(whole, epsilon=factor * whole.epsilon), make, see)


@dataclass(frozen=True)
class Case:
    """One audit.

    Attributes
    ----------
    name : str
        For the command line.
    mechanism, x, x_adjacent : any
        As :func:`fastdp.audit` takes them.
    trials : int
        Usual number.
    events : tuple of callables
        Statistics beyond the automatic ones: known likelihood ratios.
    """

    name: str
    mechanism: Any
    x: Any
    x_adjacent: Any
    trials: int
    events: tuple[Callable[[Floats], Floats], ...] = ()
