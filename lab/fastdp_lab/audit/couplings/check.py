"""Couplings: proofs, instance by instance, that public outputs are functions of the noisy sums alone.

Two adjacent inputs are published with noise from one table.  For the second one a few draws are shifted so that each
noisy sum, and each noisy choice, stays the same.  Then every public output must be equal, bit for bit, and the shifts
may cost at most epsilon: the density of a draw of scale s changes by a factor of at most exp(abs(shift) / s).  With
Gaussian noise the cost is rho: shift^2 / (2 sigma^2) of a draw, and half the square of what else a source of draws
costs.  The coupling holds for all draws, so the table has few different ones, or only 0.

Noise that is bound to the prefix of sums is shifted by the difference of the two inputs' sums, so that it needs no
rule of its own; other noise is shifted as the proof says.

Not tested: distributions and words of the draws (``sampler``, ``gaussian``, ``words``, ``chacha``), which have tests
of their own.  Smooth sensitivity and local reports draw real numbers, or whole reports: they have no coupling.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fastdp import Key
from fastdp_lab.audit.couplings.noise import BoundSums, Name, Shifts, Table

Generator = np.random.Generator
#: Public outputs of one run, in order: the name, and values.
Outputs = Iterable[tuple[Any, ...]]
#: Adds the proof's shifts, with this table.
Shift = Callable[[Table, Shifts], None]
#: Doubles that add up the decisions' logarithms are right to this.
ROUNDING = 1e-9


def pick(rng: Generator, *options: Any) -> Any:
    """One of several."""
    return options[int(rng.integers(len(options)))]


def no_shifts(table: Table, shifts: Shifts) -> None:
    """None that are known beforehand."""


def seen(outputs: Callable[[], Outputs]) -> list[tuple[str, bytes]]:
    """Names and bytes of all outputs, with the log lines between them, and the warnings at the end."""
    found: list[tuple[str, bytes]] = []

    def add(name: str, *values: Any) -> None:
        found.extend((name, _bytes(value)) for value in values)

    logger, lines = logging.getLogger("fastdp"), logging.Handler()
    lines.emit = lambda record: add("log", record.levelname, record.getMessage())  # type: ignore[method-assign]
    level = logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for output in outputs():
                add(*output)
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)
    for warning in caught:
        add("warning", str(warning.category), str(warning.message))
    return found


def _bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return repr((value.dtype, value.shape)).encode() + value.tobytes()
    return repr(value).encode()


def reloaded(publisher: Any, **own: Any) -> Any:
    """The publisher that a saved state gives, with the same table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        publisher.save(path)
        loaded = type(publisher).load(path, **own)
    # A file holds secrets, no tables.
    loaded._key = publisher._key
    loaded._state = loaded.machine.unpack(loaded.machine.pack(loaded.state), publisher._key)
    return loaded


class Finding(NamedTuple):
    """What one instance showed.

    Attributes
    ----------
    compared : int
        Outputs compared.
    ratio : float
        Cost of the coupling over the claim.
    unequal : tuple of str
        Names of the outputs that were not equal; ``scales`` where the scale of noise depends on the input.
    """

    compared: int
    ratio: float
    unequal: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether the instance refutes the claim's proof."""
        return bool(self.unequal) or self.ratio > 1.0 + ROUNDING


@dataclass(frozen=True)
class Instance:
    """A pair of adjacent inputs, and the coupling that the proof names for it."""

    #: The claim: epsilon, or rho.
    claim: float
    #: The public outputs for one of the inputs, under the key of a table.
    publish: Callable[[Key, Any], Outputs]
    x: Any
    x_adjacent: Any
    #: The shifts for the adjacent input.
    shifts: Shift = no_shifts
    #: Whether the claim is rho.
    concentrated: bool = False

    def check(self, seed: int) -> Finding:
        """Publish both inputs, the second one with shifted noise, and compare."""
        shifts = Shifts()
        self.shifts(Table(seed), shifts)
        return self.coupled(Table(seed), lambda sums: Table(seed, shifts, sums))

    def coupled(self, table: Table, adjacent: Callable[[BoundSums], Table], *uncounted: Name) -> Finding:
        """Compare the runs with two tables; ``uncounted`` may be drawn in one of them alone."""
        here = seen(lambda: self.publish(table.key, self.x))
        moved = adjacent(table.bound)
        there = seen(lambda: self.publish(moved.key, self.x_adjacent))
        unequal = dict.fromkeys(one[0] for one, other in zip(here, there, strict=False) if one != other)
        unequal |= {"number of outputs": None} if len(here) != len(there) else {}
        scales = ({name: each.scales[name] for name in each.scales.keys() - {*uncounted}} for each in (table, moved))
        unequal |= {"scales": None} if next(scales) != next(scales) else {}
        return Finding(len(here), moved.losses()[self.concentrated] / self.claim, tuple(unequal))


#: Draws a small instance of a publisher.
Draw = Callable[[Generator], Instance]


def findings(draw: Draw, instances: int, seed: int) -> list[Finding]:
    """So many random instances; ``seed`` determines them."""
    with warnings.catch_warnings():
        # Instances are too small to be of use; the warnings of a run are still among its outputs.
        warnings.simplefilter("ignore")
        return [
            draw(np.random.default_rng([seed, number])).check(seed * instances + number)
            for number in range(instances)
        ]
