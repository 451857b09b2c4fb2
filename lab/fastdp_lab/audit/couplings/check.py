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

import hashlib
import logging
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from fastdp import Key
from fastdp.kinds import Floats, Integers
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.given_noise import Name, given, name_of
from fastdp.noise.sampler import Distribution
from fastdp.noise.words import Purpose, StreamId

#: Names of draws, for those who shift them.
__all__ = ["Name", "name_of"]

#: Exact and noisy sum of each name and position.
BoundSums = dict[Name, dict[int, tuple[int, int]]]
#: Draws of a table, in spreads; and the spreads, in scales of the distribution.
DRAWS = np.array([-3.0, -2.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 2.0, 3.0])
SPREADS = (0.0, 0.05, 0.3, 1.0)
#: Draws of the counts of a table's private keys.
KEYS = Name(("keys",), 0, StreamId(Purpose.CELL))


# Noise from a table: all of the laboratory that reads ``fastdp.noise.given_noise``.


class Shifts:
    """Shift of each draw, and the other costs of the adjacent run (decisions, by exact tails)."""

    def __init__(self, fixed: dict[Name, dict[int, int]] | None = None) -> None:
        self.by: dict[Name, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.fixed: dict[Name, dict[int, int]] = fixed or {}
        self.loss = 0.0

    def add(self, key: Key, stream: StreamId, position: int, shift: int) -> None:
        """Shift one draw further."""
        self.by[name_of(key, stream)][position] += shift


class Table:
    """Noise of all draws under :attr:`key`."""

    last: Name

    def __init__(self, seed: int, shifts: Shifts | None = None, wanted: BoundSums | None = None) -> None:
        self.seed, self.key = seed, given(self)
        self._spread = SPREADS[seed % len(SPREADS)]
        self._shifts, self._wanted = shifts or Shifts(), wanted or {}
        self.scales: dict[Name, set[Fraction]] = defaultdict(set)
        self.bound: BoundSums = defaultdict(dict)
        #: Shifts that made noisy sums equal to those wanted.
        self._moved: dict[Name, dict[int, int]] = defaultdict(dict)
        self._random: dict[Name, Floats] = {}
        self._drawn: dict[Name, int] = defaultdict(int)
        self._gaussian: set[Name] = set()

    def __call__(
        self, name: Name, distribution: Distribution, start: int, out: Integers, sums: Integers | None
    ) -> None:
        """As :class:`fastdp.noise.given_noise.NoiseTable`."""
        end, gaussian = start + out.size, isinstance(distribution, GaussianDistribution)
        scale = distribution.sigma if isinstance(distribution, GaussianDistribution) else distribution.scale
        drawn = np.rint(self._draws(name, end)[start:] * (self._spread * float(scale))).astype(np.int64)
        out[:] = (
            np.abs(drawn) if not isinstance(distribution, GaussianDistribution) and distribution.one_sided else drawn
        )
        for position, shift in self._shifts.by[name].items() if name in self._shifts.by else ():
            if start <= position < end:
                out[position - start] += shift
        fixed = self._shifts.fixed.get(name, {})
        for position, noise in fixed.items():
            if start <= position < end:
                out[position - start] = noise
        wanted = self._wanted.get(name, {})
        for index, total in enumerate([] if sums is None else sums.tolist()):
            # Noisy sums are kept where the first input had such a sum too.
            position = start + index
            if position in wanted and position not in fixed:
                before, noisy = wanted[position]
                self._moved[name][position], out[index] = before - total, noisy - total
            self.bound[name][position] = total, total + int(out[index])
        self.scales[name].add(scale)
        self._drawn[name] = max(self._drawn[name], end)
        self._gaussian |= {name} if gaussian else set()
        self.last = name

    def _draws(self, name: Name, count: int) -> Floats:
        """The first draws of a name, in spreads."""
        if name not in self._random or self._random[name].size < count:
            digest = hashlib.blake2b(repr((self.seed, name)).encode(), digest_size=8).digest()
            self._random[name] = np.random.default_rng(int.from_bytes(digest, "big")).random(2 * count)
        return DRAWS[(self._random[name][:count] * DRAWS.size).astype(np.intp)]

    def losses(self) -> tuple[float, float]:
        """Cost of the draws that were asked for: epsilon of those that are not Gaussian, and rho of all.

        Decisions cost by their tails instead (:attr:`Shifts.loss`).
        """
        epsilon = rho = Fraction(0)
        for name, by in {**self._shifts.by, **self._moved}.items():
            if name.stream.purpose is Purpose.SPLIT or name not in self.scales:
                continue
            sizes = [abs(shift) for position, shift in by.items() if position < self._drawn[name]]
            scale = min(self.scales[name])
            if name in self._gaussian:
                rho += sum(size * size for size in sizes) / (2 * scale * scale)
            else:
                epsilon += sum(sizes) / scale
                rho += (sum(sizes) / scale) ** 2 / 2
        more = self._shifts.loss
        return float(epsilon) + more, float(rho) + more * more / 2.0


#: A key for parameters, and for names of draws; its noise is 0.
KEY = Table(SPREADS.index(0.0)).key

# Outputs, and their comparison.

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
    """Return no shifts: none are known beforehand."""


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
    loaded = type(publisher).from_bytes(publisher.to_bytes(), **own)
    # They hold secrets, no tables.
    loaded._key = publisher._key
    loaded._state = loaded.machine.unpack(loaded.machine.pack(loaded.state), publisher._key)
    return loaded


class Finding(NamedTuple):
    """Result of one instance."""

    compared: int
    ratio: float
    unequal: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """True if the instance refutes the claim's proof."""
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
