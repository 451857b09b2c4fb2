"""Couplings: proofs, instance by instance, that public outputs are functions of the noisy sums alone.

Two adjacent inputs are published with noise from one table.  For the second one a few draws are shifted so that each
noisy sum, and each noisy choice, stays the same.  Then every public output must be equal, bit for bit, and the shifts
may cost at most epsilon: the density of a draw of scale s changes by a factor of at most exp(abs(shift) / s).  With
Gaussian noise the cost is rho: shift^2 / (2 sigma^2) of a draw, and half the square of what else a source of draws
costs.  The coupling holds for all draws, so the table has few different ones, or only 0.

Noise that is bound to the prefix of sums is shifted by the difference of the two inputs' sums, so that it needs no
rule of its own; other noise is shifted as the proof says.

Not tested: laws and words of the draws (``sampler``, ``gaussian``, ``words``, ``chacha``); they have tests of their
own.  Smooth sensitivity and local reports draw real numbers, or whole reports: they have no coupling.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdp.randomness.gaussian import GaussianLaw
from fastdp.randomness.given import Name, given, name_of
from fastdp.randomness.key import Key
from fastdp.randomness.noise import AnyLaw
from fastdp.randomness.words import Purpose, StreamId

Integers = NDArray[np.int64]
#: Exact and noisy sum of each name and position.
BoundSums = dict[Name, dict[int, tuple[int, int]]]
#: Draws of a table, in spreads; and the spreads, in scales of the law.
DRAWS = np.array([-3.0, -2.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 2.0, 3.0])
SPREADS = (0.0, 0.05, 0.3, 1.0)
#: Doubles that add up the decisions' logarithms are right to this.
ROUNDING = 1e-9


class Shifts:
    """By how much each draw is shifted, and what else the adjacent run costs (decisions, by exact tails).

    Attributes
    ----------
    by : dict
        Position to shift, of each name.
    fixed : dict
        Position to noise, of each name; the cost of these draws is in ``loss``.
    loss : float
        Cost of decisions.
    """

    def __init__(self) -> None:
        self.by: dict[Name, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.fixed: dict[Name, dict[int, int]] = {}
        self.loss = 0.0

    def add(self, key: Key, stream: StreamId, position: int, shift: int) -> None:
        """Shift one draw further."""
        self.by[name_of(key, stream)][position] += shift


class Table:
    """Noise of all draws under :attr:`key`.

    Parameters
    ----------
    seed : int
        Determines the noise.
    shifts : Shifts, optional
        Added to it.
    wanted : dict, optional
        Of the first input's table, after its run, :attr:`bound`: noise that is bound to sums is shifted so that noisy
        sums are the same.
    """

    def __init__(self, seed: int, shifts: Shifts | None = None, wanted: BoundSums | None = None) -> None:
        self.seed = seed
        self.key = given(self)
        self._spread = SPREADS[seed % len(SPREADS)]
        self._shifts = Shifts() if shifts is None else shifts
        self._wanted = {} if wanted is None else wanted
        self._uniform: dict[Name, NDArray[np.float64]] = {}
        #: Scales that a stream of draws was asked for, and how many draws at most.
        self.scales: dict[Name, set[Fraction]] = defaultdict(set)
        self._drawn: dict[Name, int] = defaultdict(int)
        self._gaussian: set[Name] = set()
        #: What noise was bound to, and the shifts that made noisy sums equal to those wanted.
        self.bound: BoundSums = defaultdict(dict)
        self._moved: dict[Name, dict[int, int]] = defaultdict(dict)
        #: What a name gave last, before it was bound.
        self.last_drawn: dict[Name, Integers] = {}
        #: Which draws were asked for last.
        self.last: Name | None = None

    def __call__(self, name: Name, law: AnyLaw, start: int, out: Integers, sums: Integers | None) -> None:
        """As :class:`fastdp.randomness.given.NoiseTable`."""
        end = start + out.size
        scale = law.sigma if isinstance(law, GaussianLaw) else law.scale
        drawn = np.rint(self._draws(name, end)[start:] * (self._spread * float(scale))).astype(np.int64)
        out[:] = np.abs(drawn) if not isinstance(law, GaussianLaw) and law.one_sided else drawn
        for position, shift in self._shifts.by[name].items() if name in self._shifts.by else ():
            if start <= position < end:
                out[position - start] += shift
        fixed = self._shifts.fixed.get(name, {})
        for position, noise in fixed.items():
            if start <= position < end:
                out[position - start] = noise
        self.last_drawn[name] = out.copy()
        if sums is not None:
            self._bind(name, start, out, sums, fixed)
        self.scales[name].add(scale)
        self._drawn[name] = max(self._drawn[name], end)
        if isinstance(law, GaussianLaw):
            self._gaussian.add(name)
        self.last = name

    def _draws(self, name: Name, count: int) -> NDArray[np.float64]:
        """The first draws of a name, in spreads."""
        found = self._uniform.get(name)
        if found is None or found.size < count:
            digest = hashlib.blake2b(repr((self.seed, name)).encode(), digest_size=8).digest()
            found = np.random.default_rng(int.from_bytes(digest, "big")).random(2 * count)
            self._uniform[name] = found
        return DRAWS[(found[:count] * DRAWS.size).astype(np.intp)]

    def _bind(self, name: Name, start: int, out: Integers, sums: Integers, fixed: dict[int, int]) -> None:
        """Keep sums and noisy sums; these are the first input's where it had such a sum too."""
        wanted = self._wanted.get(name, {})
        for index, total in enumerate(sums.tolist()):
            position = start + index
            if position in wanted and position not in fixed:
                before, noisy = wanted[position]
                self._moved[name][position] = before - total
                out[index] = noisy - total
            self.bound[name][position] = total, total + int(out[index])

    def losses(self) -> tuple[float, float]:
        """Cost of the draws that were asked for: epsilon of those that are not Gaussian, and rho of all.

        Decisions cost by their tails instead (:attr:`Shifts.loss`).
        """
        epsilon = rho = Fraction(0)
        moved = {**{name: dict(by) for name, by in self._shifts.by.items()}, **self._moved}
        for name, by in moved.items():
            if name.stream.purpose is Purpose.SPLIT or name not in self.scales:
                continue
            sizes = [abs(shift) for position, shift in by.items() if shift and position < self._drawn[name]]
            scale = min(self.scales[name])
            if name in self._gaussian:
                rho += sum(size * size for size in sizes) / (2 * scale * scale)
            else:
                epsilon += sum(sizes) / scale
                rho += (sum(sizes) / scale) ** 2 / 2
        more = self._shifts.loss
        return float(epsilon) + more, float(rho) + more * more / 2.0

    @property
    def cost(self) -> float:
        """Sum of shift over scale, and the cost of decisions."""
        return self.losses()[0]


#: A key for parameters, and for names of draws; its noise is 0.
KEY = Table(SPREADS.index(0.0)).key


@dataclass
class Seen:
    """Everything public that one run gave, in order: what it is, and its bytes."""

    outputs: list[tuple[str, bytes]] = field(default_factory=list)

    def add(self, name: str, *values: Any) -> None:
        """Note outputs."""
        self.outputs += [(name, _bytes(value)) for value in values]

    @contextlib.contextmanager
    def warned(self) -> Iterator[None]:
        """Note the warnings and the log lines of a block."""
        logger, lines = logging.getLogger("fastdp"), logging.Handler()
        lines.emit = lambda record: self.add("log", record.levelname, record.getMessage())  # type: ignore[method-assign]
        level = logger.level
        logger.addHandler(lines)
        logger.setLevel(logging.DEBUG)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                yield
        finally:
            logger.removeHandler(lines)
            logger.setLevel(level)
        for warning in caught:
            self.add("warning", str(warning.category), str(warning.message))

    def reloaded(self, publisher: Any, **own: Any) -> Any:
        """The publisher that a saved state gives, with the same table."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state"
            publisher.save(path)
            loaded = type(publisher).load(path, **own)
        # A file holds secrets, no tables.
        loaded._key = publisher._key
        loaded._state = loaded.machine.unpack(loaded.machine.pack(loaded.state), publisher._key)
        return loaded


def _bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return repr((value.dtype, value.shape)).encode() + value.tobytes()
    return repr(value).encode()


@dataclass(frozen=True)
class Instance:
    """A pair of adjacent inputs, and the coupling that the proof names for it."""

    #: The claim: epsilon, or rho.
    claim: float
    #: What is seen of one of the inputs, under the key of a table.
    publish: Callable[[Key, Any], Seen]
    x: Any
    x_adjacent: Any
    #: The shifts for the adjacent input, with this table.
    shifts: Callable[[Table], Shifts]
    #: Whether the claim is rho.
    concentrated: bool = False

    def check(self, seed: int) -> Finding:
        """Publish both inputs, the second one with shifted noise, and compare."""
        table = Table(seed)
        here = self.publish(table.key, self.x)
        moved = Table(seed, self.shifts(Table(seed)), table.bound)
        return self.compared((table, here), (moved, self.publish(moved.key, self.x_adjacent)))

    def compared(self, one: tuple[Table, Seen], other: tuple[Table, Seen]) -> Finding:
        """Outputs of two runs."""
        (table, here), (moved, there) = one, other
        pairs = zip(here.outputs, there.outputs, strict=False)
        unequal = dict.fromkeys(first[0] for first, second in pairs if first != second)
        if len(here.outputs) != len(there.outputs):
            unequal["number of outputs"] = None
        if table.scales != moved.scales:
            unequal["scales"] = None
        cost = moved.losses()[self.concentrated]
        return Finding(len(here.outputs), cost / self.claim, tuple(unequal))


@dataclass(frozen=True)
class Finding:
    """What one instance showed."""

    #: Outputs compared.
    compared: int
    #: Cost of the coupling over the claim.
    ratio: float
    #: Names of the outputs that were not equal; ``scales`` where the scale of noise depends on the input.
    unequal: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether the instance refutes the claim's proof."""
        return bool(self.unequal) or self.ratio > 1.0 + ROUNDING


class Case(NamedTuple):
    """A publisher by name, and how to draw a small instance of it."""

    name: str
    draw: Callable[[np.random.Generator], Instance]


COLUMNS = ("case", "instances", "outputs compared", "largest cost / claim", "failures", "verdict")


@dataclass(frozen=True)
class Line:
    """What all instances of a case showed: the largest cost over epsilon, and how many failed."""

    name: str
    instances: int
    compared: int
    ratio: float
    failures: int
    unequal: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether any instance failed."""
        return self.failures > 0

    @property
    def verdict(self) -> str:
        """In words; of a case that failed, which outputs were unequal."""
        if not self.failed:
            return "coupled"
        return f"NOT COUPLED ({', '.join(self.unequal) or 'cost'})"

    def cells(self) -> tuple[str, ...]:
        """As text, by :data:`COLUMNS`."""
        numbers = f"{self.instances:,}", f"{self.compared:,}", f"{self.ratio:.4f}", f"{self.failures:,}"
        return (self.name, *numbers, self.verdict)


def run(case: Case, instances: int, seed: int) -> Line:
    """So many random instances of a case; ``seed`` determines them."""
    findings = []
    with warnings.catch_warnings():
        # Instances are too small to be of use; the warnings of a run are still among its outputs.
        warnings.simplefilter("ignore")
        for number in range(instances):
            generator = np.random.default_rng([seed, number])
            findings.append(case.draw(generator).check(seed * instances + number))
    return Line(
        case.name,
        instances,
        sum(one.compared for one in findings),
        max((one.ratio for one in findings), default=math.nan),
        sum(one.failed for one in findings),
        tuple(dict.fromkeys(name for one in findings for name in one.unequal)),
    )
