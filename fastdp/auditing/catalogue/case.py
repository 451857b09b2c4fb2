"""One line of the page, and how many runs it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FAST, MEDIUM, REPEATED, MANY, SLOW = 10_000_000, 1_000_000, 300_000, 60_000, 20_000


@dataclass(frozen=True)
class Case:
    """One line of the page.

    Attributes
    ----------
    name : str
        For the command line.
    mechanism, x, x_adjacent : any
        As :func:`fastdp.audit` takes them.
    trials : int
        Usual number.
    broken : bool
        Whether it must be caught.
    events : tuple of callables
        Statistics beyond the automatic ones: known likelihood ratios.
    """

    name: str
    mechanism: Any
    x: Any
    x_adjacent: Any
    trials: int
    broken: bool = False
    events: tuple[Callable[[Floats], Floats], ...] = ()
