"""Noise from a table: draws by name, shifts of the adjacent run, and what they cost.

All of the laboratory that reads :mod:`fastdp.randomness.given` is in this file.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from fastdp import Key
from fastdp.randomness.gaussian import GaussianLaw
from fastdp.randomness.given import Name, given, name_of
from fastdp.randomness.noise import AnyLaw
from fastdp.randomness.words import Purpose, StreamId

__all__ = ["KEY", "KEYS", "BoundSums", "Integers", "Name", "Shifts", "Table", "name_of"]

Integers = NDArray[np.int64]
#: Exact and noisy sum of each name and position.
BoundSums = dict[Name, dict[int, tuple[int, int]]]
#: Draws of a table, in spreads; and the spreads, in scales of the distribution.
DRAWS = np.array([-3.0, -2.0, -1.0, -0.5, 0.0, 0.0, 0.5, 1.0, 2.0, 3.0])
SPREADS = (0.0, 0.05, 0.3, 1.0)
#: Draws of the counts of a table's private keys.
KEYS = Name(("keys",), 0, StreamId(Purpose.CHAIN))


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

    def __init__(self, fixed: dict[Name, dict[int, int]] | None = None) -> None:
        self.by: dict[Name, dict[int, int]] = defaultdict(lambda: defaultdict(int))
        self.fixed: dict[Name, dict[int, int]] = fixed or {}
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

    Attributes
    ----------
    scales : dict
        Scales that each name was asked for.
    bound : dict
        Sums that noise was bound to, and the noisy sums.
    last : Name
        Of the last draws.
    """

    last: Name

    def __init__(self, seed: int, shifts: Shifts | None = None, wanted: BoundSums | None = None) -> None:
        self.seed, self.key = seed, given(self)
        self._spread = SPREADS[seed % len(SPREADS)]
        self._shifts, self._wanted = shifts or Shifts(), wanted or {}
        self.scales: dict[Name, set[Fraction]] = defaultdict(set)
        self.bound: BoundSums = defaultdict(dict)
        #: Shifts that made noisy sums equal to those wanted.
        self._moved: dict[Name, dict[int, int]] = defaultdict(dict)
        self._random: dict[Name, NDArray[np.float64]] = {}
        self._drawn: dict[Name, int] = defaultdict(int)
        self._gaussian: set[Name] = set()

    def __call__(self, name: Name, law: AnyLaw, start: int, out: Integers, sums: Integers | None) -> None:
        """As :class:`fastdp.randomness.given.NoiseTable`."""
        end, gaussian = start + out.size, isinstance(law, GaussianLaw)
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

    def _draws(self, name: Name, count: int) -> NDArray[np.float64]:
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
