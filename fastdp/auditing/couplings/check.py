"""Couplings: proofs, instance by instance, that public outputs are functions of the noisy sums alone.

A stream and an adjacent one are published with noise from one table.  For the adjacent one a few draws are shifted so
that each noisy sum, and each noisy choice, stays the same.  Then every public output must be equal, bit for bit, and
the shifts may cost at most epsilon: the density of a draw of scale s changes by a factor of at most
exp(abs(shift) / s).  The coupling holds for all draws, so the table has few different ones, or only 0.

Not tested: the table takes the place of :func:`fastdp.randomness.sampler.fill`, ``fill_pieces``, ``draw_nodes`` and
:func:`fastdp.randomness.row_sampler.fill_rows`, through which all draws of a key of the first noise format go, so the
laws of the draws, the words, the derivation of keys, and noise that is bound to the prefix of sums (``sampler``,
``words``, ``key``, ``prefix``, ``chacha``) are not used here; they have tests of their own.  Smooth sensitivity and
local reports draw real numbers, or whole reports: they have no coupling.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import tempfile
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from logging.handlers import BufferingHandler
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastdp.randomness import row_sampler, sampler
from fastdp.randomness.key import Binding, Key
from fastdp.randomness.row_words import RowWords
from fastdp.randomness.sampler import Law
from fastdp.randomness.words import Purpose, StreamId

Integers = NDArray[np.int64]
#: The key of all couplings: of the first noise format, so that all noise is drawn by position.
KEY = Key(bytes(32), simulated=True, binding=Binding.FIRST_FORMAT)
#: Draws of a table, in spreads; and the spreads, in scales of the law.
DRAWS = np.array([-3.0, -2.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 2.0, 3.0])
SPREADS = (0.0, 0.05, 0.3, 1.0)
#: Doubles that add up the decisions' logarithms are right to this.
ROUNDING = 1e-9


#: A stream of draws: secret and member of the key, and which stream under it.
Source = tuple[bytes, int, StreamId]


def source(key: Key, stream: StreamId) -> Source:
    """The draws of a stream under a key."""
    return key.reveal(), key.member, stream


class Shifts:
    """By how much each draw is shifted, and what else the adjacent run costs (decisions, by exact tails)."""

    def __init__(self) -> None:
        self.by: dict[Source, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.loss = 0.0

    def add(self, key: Key, stream: StreamId, position: int, shift: int) -> None:
        """Shift one draw further."""
        self.by[source(key, stream)][position] += shift


class Table:
    """Noise from a table in place of the sampler's, while entered; ``seed`` determines it, and ``shifts`` are added.

    One at a time in a process.
    """

    def __init__(self, seed: int, shifts: Shifts | None = None) -> None:
        self.seed = seed
        self._spread = SPREADS[seed % len(SPREADS)]
        self._shifts = Shifts() if shifts is None else shifts
        self._real = (sampler.fill, row_sampler.fill_rows, sampler.fill_pieces, sampler.draw_nodes)
        #: Scales that a stream of draws was asked for, and how many draws at most.
        self.scales: dict[Source, set[Fraction]] = defaultdict(set)
        self._drawn: dict[Source, int] = defaultdict(int)
        #: What was drawn last.
        self.last: tuple[Key, StreamId] = (KEY, StreamId(Purpose.DRAWS))

    def __enter__(self) -> Self:
        sampler.fill, row_sampler.fill_rows = self.fill, self.fill_rows
        sampler.fill_pieces, sampler.draw_nodes = sampler.fill_one_by_one, sampler.draw_nodes_by_height
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        sampler.fill, row_sampler.fill_rows, sampler.fill_pieces, sampler.draw_nodes = self._real

    def fill(self, out: Integers, law: Law, key: Key, stream: StreamId, start: int = 0) -> None:
        """As :func:`fastdp.randomness.sampler.fill`."""
        own, end = source(key, stream), start + out.size
        digest = hashlib.blake2b(repr((self.seed, own)).encode(), digest_size=8).digest()
        places = np.random.default_rng(int.from_bytes(digest, "big")).random(end)[start:] * DRAWS.size
        drawn = np.rint(DRAWS[places.astype(np.intp)] * (self._spread * float(law.scale))).astype(np.int64)
        out[:] = np.abs(drawn) if law.one_sided else drawn
        for position, shift in self._shifts.by[own].items() if own in self._shifts.by else ():
            if start <= position < end:
                out[position - start] += shift
        self.scales[own].add(law.scale)
        self._drawn[own] = max(self._drawn[own], end)
        self.last = (key, stream)

    def fill_rows(
        self,
        out: Integers,
        laws: Sequence[Law],
        which: Integers,
        words: RowWords,
        streams: Integers,
        numbers: Integers,
    ) -> None:
        """As :func:`fastdp.randomness.row_sampler.fill_rows`."""
        for row, (stream, number) in enumerate(zip(streams.tolist(), numbers.tolist(), strict=True)):
            begin = 0
            for piece, count in words.pieces:
                part = out[row, begin : begin + count]
                self.fill(part, laws[which[row]], words.key_of(row, stream), piece._replace(number=number))
                begin += count

    @property
    def cost(self) -> float:
        """Sum of shift over scale, of the draws that were asked for; decisions cost by their tails instead."""
        shifts = Fraction(0)
        for own, by in self._shifts.by.items():
            if own[2].purpose is not Purpose.SPLIT and own in self.scales:
                size = sum(abs(shift) for position, shift in by.items() if position < self._drawn[own])
                shifts += size / min(self.scales[own])
        return float(shifts) + self._shifts.loss


@dataclass
class Seen:
    """Everything public that one run gave, in order: what it is, and its bytes."""

    outputs: list[tuple[str, bytes]] = field(default_factory=list)

    def add(self, name: str, *values: Any) -> None:
        """Note outputs."""
        self.outputs += [(name, _bytes(value)) for value in values]

    @contextlib.contextmanager
    def warned(self) -> Iterator[None]:
        """Note the warnings and log lines of a block."""
        log, lines, before = logging.getLogger("fastdp"), BufferingHandler(2**20), logging.getLogger("fastdp").level
        log.addHandler(lines)
        log.setLevel(logging.DEBUG)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                yield
        finally:
            log.removeHandler(lines)
            log.setLevel(before)
        for warning in caught:
            self.add("warning", str(warning.category), str(warning.message))
        for line in lines.buffer:
            self.add("log line", line.getMessage())

    def reloaded(self, publisher: Any, **own: Any) -> Any:
        """The publisher that a saved state gives."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "state"
            publisher.save(path)
            return type(publisher).load(path, **own)


def _bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return repr((value.dtype, value.shape)).encode() + value.tobytes()
    return repr(value).encode()


@dataclass(frozen=True)
class Instance:
    """A pair of adjacent inputs, and the coupling that the proof names for it."""

    #: The claim.
    epsilon: float
    #: What is seen of one of the inputs, with the table in force.
    publish: Callable[[Any], Seen]
    x: Any
    x_adjacent: Any
    #: The shifts for the adjacent input, with this table in force.
    shifts: Callable[[Table], Shifts]


@dataclass(frozen=True)
class Finding:
    """What one instance showed."""

    #: Outputs compared.
    compared: int
    #: Cost of the coupling over epsilon.
    ratio: float
    #: Names of the outputs that were not equal; ``scales`` where the scale of noise depends on the input.
    unequal: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether the instance refutes the claim's proof."""
        return bool(self.unequal) or self.ratio > 1.0 + ROUNDING


def check(instance: Instance, seed: int) -> Finding:
    """Publish both inputs, the second one with shifted noise, and compare."""
    table = Table(seed)
    with table:
        here = instance.publish(instance.x)
    with Table(seed) as scratch:
        shifts = instance.shifts(scratch)
    moved = Table(seed, shifts)
    with moved:
        there = instance.publish(instance.x_adjacent)
    pairs = zip(here.outputs, there.outputs, strict=False)
    unequal = dict.fromkeys(first[0] for first, second in pairs if first != second)
    if len(here.outputs) != len(there.outputs):
        unequal["number of outputs"] = None
    if table.scales != moved.scales:
        unequal["scales"] = None
    return Finding(len(here.outputs), moved.cost / instance.epsilon, tuple(unequal))


class Case(NamedTuple):
    """A publisher by name, and how to draw a small instance of it."""

    name: str
    draw: Callable[[np.random.Generator], Instance]


COLUMNS = ("case", "instances", "outputs compared", "largest cost / epsilon", "failures", "verdict")


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
            findings.append(check(case.draw(generator), seed * instances + number))
    return Line(
        case.name,
        instances,
        sum(one.compared for one in findings),
        max((one.ratio for one in findings), default=math.nan),
        sum(one.failed for one in findings),
        tuple(dict.fromkeys(name for one in findings for name in one.unequal)),
    )
