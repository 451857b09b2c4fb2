"""Intervals for shares of values from counts of window reports, without assumptions about the values.

Source: "strict bounds" (Rust and Burrus 1972; Stark 1992); coverage: ``docs/local.md``.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from fastdp.kinds import Floats, Integers
from fastdp.local.reports import WindowDistribution

# With counts y in cells and expected counts K p of a distribution p, chi^2(p) = sum (y - K p)^2 / var.  The interval
# of c p has its extremes over all p >= 0 with chi^2(p) <= min chi^2 + z^2.  For a true p on a face of k dimensions
# chi^2 falls by a chi^2 of k degrees of freedom; z^2 is its quantile at the fit's dimensions, because the true face
# is unknown.  The normal quantile fails for p of few values (Burrus's conjecture, refuted by Batlle et al. 2023).
#
# Atoms are steps at which an end of the window passes a border of a cell.  Between them a report's distribution over
# cells is linear in the value, so distributions on atoms suffice.

#: Most cells, and reports in each on average; the largest counts are then close to normal.
CELLS, REPORTS = 96, 40
#: Weights, in standard deviations of a share, of the sum of p (which is 1) and of a share that is aimed at.
SURE, AIMED = 100.0, 20.0
#: Largest relative error of z that is searched for, and tries.
CLOSE, TRIES = 0.02, 40


class StrictBounds:
    """Bounds shares of values by all distributions that agree with the counts."""

    def __init__(self, window: WindowDistribution, borders: Integers, counts: Integers, *steps: int) -> None:
        """`borders`: first outputs of cells, and the end; `steps` become atoms too."""
        self.n, bins = int(counts.sum()), counts.size
        merged = np.arange((cells := min(bins, CELLS, max(8, self.n // REPORTS))) + 1) * bins // cells
        edges, observed = borders[merged], np.add.reduceat(counts, merged[:-1]).astype(np.float64)
        atoms = np.concatenate([edges, edges - window.near, [0, window.steps, *steps]])
        self.atoms: Integers = np.unique(atoms[(atoms >= 0) & (atoms <= window.steps)])
        first, last = edges[:-1, None], edges[1:, None]
        near = np.maximum(np.minimum(last, self.atoms + window.near) - np.maximum(first, self.atoms), 0)
        far = (window.far_weight + window.left_over / window.outputs) / window.total
        on_top = (window.near_weight - window.far_weight) / window.total
        expected = (near * on_top + (last - first) * far) * self.n
        variances = observed + 1.0
        for _ in range(2):
            one = SURE * math.sqrt(self.n)
            weights = 1.0 / np.sqrt(variances)
            self._rows = np.vstack([expected * weights[:, None], np.full(self.atoms.size, one)])
            self._wanted = np.append(observed * weights, one)
            self.best = self._fit(self._rows, self._wanted)
            variances = np.maximum(expected @ self.best, 1.0)
        self._least = self._misfit(self.best)

    def deviations(self, confidence: float) -> float:
        """z: the true misfit is at most z^2 above the least with probability `confidence`."""
        dimensions = max(1, int(np.count_nonzero(self.best)) - 1)
        return math.sqrt(float(special.chdtri(dimensions, 1.0 - confidence)))

    def largest(self, chosen: Floats, z: float) -> float:
        """Largest `chosen` @ p of all p that agree; `chosen` is 0 or 1."""
        if not chosen.any():
            return 0.0
        at, weight = float(chosen @ self.best), AIMED * math.sqrt(self.n)
        rows = np.vstack([self._rows, weight * chosen])
        # By how much the share rises, and the root of the misfit beyond the least, almost proportional to it.
        below, above, rise = (0.0, 0.0), (math.inf, math.inf), 2.0 / math.sqrt(self.n)
        for _ in range(TRIES):
            fitted = self._fit(rows, np.append(self._wanted, weight * (at + rise)))
            found = float(chosen @ fitted) - at, math.sqrt(max(self._misfit(fitted) - self._least, 0.0))
            if abs(found[1] - z) <= CLOSE * z:
                return min(1.0, at + found[0] * max(1.0, z / found[1]))
            below, above = (found, above) if found[1] < z else (below, found)
            if above[1] < math.inf:
                rise = below[0] + (z - below[1]) / (above[1] - below[1]) * (above[0] - below[0])
            elif rise > 1.0:
                return 1.0
            else:
                rise *= 3.0
        return min(1.0, at + above[0])

    def share(self, first: int, last: int, z: float) -> tuple[float, float]:
        """Interval for the share with steps from `first` to `last`, both atoms."""
        # A value beside a border may count for the atom on it; ends of the domain have no other side.
        top = int(self.atoms[-1])
        inner = ((self.atoms > first) | (first <= 0)) & ((self.atoms < last) | (last >= top))
        outer = (self.atoms >= first) & (self.atoms <= last)
        return max(0.0, 1.0 - self.largest((~inner).astype(np.float64), z)), self.largest(outer.astype(np.float64), z)

    def quantile(self, q: float, z: float) -> tuple[int, int]:
        """Steps between which every distribution that agrees has its quantile."""
        atoms = self.atoms
        low, high = 0, atoms.size - 1
        while high - low > 1:
            middle = (low + high) // 2
            reaches = self.largest((atoms <= atoms[middle]).astype(np.float64), z) >= q
            low, high = (low, middle) if reaches else (middle, high)
        first, low, high = int(atoms[low]), low, atoms.size - 1
        while high - low > 1:
            middle = (low + high) // 2
            passed = 1.0 - self.largest((atoms >= atoms[middle]).astype(np.float64), z) >= q
            low, high = (low, middle) if passed else (middle, high)
        return first, int(atoms[high])

    def _misfit(self, fitted: Floats) -> float:
        return float(((self._rows @ fitted - self._wanted) ** 2).sum())

    @staticmethod
    def _fit(rows: Floats, wanted: Floats) -> Floats:
        # It takes longer to load than the rest of the server.
        from scipy.optimize import nnls

        found: Floats = nnls(rows, wanted)[0]
        return found
