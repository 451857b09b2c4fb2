"""One integer sum of each window and key: how rows enter it, and its noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.randomness import prefix
from fastdp.randomness.gaussian import GaussianLaw
from fastdp.randomness.key import Key
from fastdp.randomness.noise import AnyLaw, NoiseName, noise_law
from fastdp.releases.intervals import DrawnNoise
from fastdp.tables.sums import NoisySums
from fastdp_kernels import window_sums

Integers = NDArray[np.int64]


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
    def law(self) -> AnyLaw:
        """Of the noise of each sum."""
        if self.noise == "laplace":
            return noise_law("laplace", self.contributions * self.sensitivity, 1, self.epsilon)
        return noise_law("gaussian", self.sensitivity, self.square, self.epsilon)

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

    def start_chain(self, key: Key) -> Integers:
        """The chain key before the first sum, as int64[4], which state files hold.

        It depends on the noise's scale and the clip: noise under others shares no word with it.
        """
        own = key.within("sums", self.name, self.low, self.high, self.centre, self.resolution, self.epsilon)
        return prefix.start_chain(own).view(np.int64)

    def release(self, sums: Integers, key: Key, chain: Integers, index: int) -> tuple[NoisySums, Integers]:
        """The sums (int64[W, K], windows in order) with noise, and the chain behind them.

        Sums and noise are taken modulo 2^64, which is post-processing of the exact noisy sum: privacy does not depend
        on how many rows there are.
        """
        moved = np.ascontiguousarray(chain).view(np.uint64).copy()
        flat = np.ascontiguousarray(sums).reshape(-1)
        noise = prefix.draw(flat, self.law, key, moved, index)
        noise += flat
        noise.flags.writeable = False
        law = self.law
        drawn = DrawnNoise(law.sigma, True) if isinstance(law, GaussianLaw) else DrawnNoise(law.scale)
        return NoisySums(noise.reshape(sums.shape), self.resolution, drawn), moved.view(np.int64)
