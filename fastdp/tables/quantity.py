"""One integer sum of each window and key: how rows enter it, and its noise."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.kinds import Integers
from fastdp.noise import binding
from fastdp.noise.draws import Distribution, NoiseName, noise_distribution
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.key import Key
from fastdp.releases.intervals import DrawnNoise
from fastdp.tables.sums import NoisySums
from fastdp_kernels.tables import window_sums


@dataclass(frozen=True)
class Quantity:
    """One sum of each window and key, and its noise.

    Attributes
    ----------
    name : str
        "total", "count", "deviation", or "beyond", which is released as one share only.
    low, high, centre : int
        Values are clipped to [low, high] steps, and the centre is subtracted.  A count adds 1 for each row, "beyond"
        for each that the clip changes.
    resolution : float
        One step.
    epsilon : float
        Its budget; with Gaussian noise rho = epsilon^2 / 2.
    contributions : int
        Rows of one unit.
    noise : "laplace" or "gaussian"
        Which noise.
    square : int
        Squared L2 norm of what the rows of one unit change, in squared sensitivities of one row.
    """

    name: str
    low: int
    high: int
    centre: int
    resolution: float
    epsilon: float
    contributions: int
    noise: NoiseName = "laplace"
    square: int = 1

    @property
    def sensitivity(self) -> int:
        """Most that one row moves a sum by, in steps."""
        return 1 if self.name == "count" else max(abs(self.low - self.centre), abs(self.high - self.centre))

    @cached_property
    def law(self) -> Distribution:
        """Of the noise of each sum."""
        if self.noise == "laplace":
            return noise_distribution("laplace", self.contributions * self.sensitivity, 1, self.epsilon)
        return noise_distribution("gaussian", self.sensitivity, self.square, self.epsilon)

    def add(self, rows: tuple[Integers, NDArray[Any], NDArray[np.float64]], first: int, sums: Integers) -> int:
        """Add rows (windows, keys, values); the first that counts and is not finite, or -1."""
        windows, keys, values = rows
        if self.name == "count":
            window_sums.add_ones(windows, keys, first, sums)
            return -1
        low, high = float(self.low), float(self.high)
        if self.name == "beyond":
            outside = np.flatnonzero((values > high * self.resolution) | (values < low * self.resolution))
            window_sums.add_ones(windows[outside], keys[outside], first, sums)
            return -1
        return window_sums.add_values(
            windows, keys, values, first, 1.0 / self.resolution, low, high, self.centre, sums
        )

    @property
    def labels(self) -> tuple[str | float, ...]:
        """Of the key: noise of another scale, or under another clip, shares no word with it."""
        return self.name, self.low, self.high, self.centre, self.resolution, self.epsilon

    def described(self, noisy: Integers) -> NoisySums:
        """Noisy sums in steps, with the law of their noise."""
        law = self.law
        drawn = DrawnNoise(law.sigma, True) if isinstance(law, GaussianDistribution) else DrawnNoise(law.scale)
        return NoisySums(noisy, self.resolution, drawn)


def release(
    quantities: Sequence[Quantity], sums: Integers, key: Key, first: int, rows: NDArray[np.uint64]
) -> dict[str, NoisySums]:
    """The sums of all quantities with noise, by name.

    Sums and noise are taken modulo 2^64, which is post-processing of the exact noisy sum: privacy does not depend on
    how many rows there are.

    Parameters
    ----------
    quantities : sequence of Quantity
        What is released; noise is bound to all of a cell's.
    sums : int64[n, W, K]
        Exact sums of each, windows in order.
    key : Key
        Of the composition.
    first : int
        Number of the first window.
    rows : uint64[K, 2]
        Digests of the keys (:attr:`fastdp.tables.columns.KeyTable.digests`).
    """
    own, exact = key.within("sums", *itertools.chain(*(q.labels for q in quantities))), np.ascontiguousarray(sums)
    noisy = binding.draw_cells(exact, [q.law for q in quantities], own, first, rows)
    noisy += exact
    noisy.flags.writeable = False
    return {q.name: q.described(each) for q, each in zip(quantities, noisy, strict=True)}
