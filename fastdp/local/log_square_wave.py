"""The square wave on a logarithmic scale: as many steps for 1 to 2 as for 1,000 to 2,000."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.arrays.kinds import Floats
from fastdp.errors import ParameterError
from fastdp.local import octaves
from fastdp.local.square_wave import SquareWave

if TYPE_CHECKING:
    from fastdp.local.distribution import Distribution, EstimateOptions, Method

MAX_OCTAVES = 256


@dataclass(frozen=True)
class LogSquareWave(SquareWave):
    """Square-wave reports of a value's place on a logarithmic scale.

    Parameters
    ----------
    epsilon : float
        Privacy loss of one report, in [1e-6, 32].
    low, high : float
        The public domain, low above 0 and high at most 2^256 times as much; values outside are clipped, so that all
        below low (and 0) look alike.

    Notes
    -----
    Value v is first mapped to a grid step, rint(STEPS p(v / low) / p(high / low)), p the octaves of
    :mod:`fastdp.local.octaves`; the law of the report given the step is :class:`SquareWave`'s, to the last word.

    Privacy: unchanged.  Any two steps are e^epsilon-indistinguishable, and whatever two values become two steps, so
    the map needs no property at all, not even that it is the same on two machines.
    """

    low: float = 1.0 / 2**14
    high: float = 1.0
    rule: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Check the parameters and compute the law."""
        super().__post_init__()
        if not 0.0 < self.low * 2.0 <= self.high <= self.low * 2.0**MAX_OCTAVES:
            raise ParameterError(
                f"low = {validation.shown(self.low)}: expected a number above 0, at most high / 2 and at least "
                f"high / 2^{MAX_OCTAVES}, for high = {self.high!r}"
            )

    @property
    def _steps_per_octave(self) -> float:
        return self.STEPS / octaves.position(self.high / self.low)

    def _place(self, number: float) -> int:
        return round(octaves.position(min(number, self.high) / self.low) * self._steps_per_octave)

    def _place_all(self, floats: Floats, out: NDArray[np.int32]) -> bool:
        if not np.isfinite(floats).all():
            return True
        at = octaves.positions(np.minimum(floats, self.high) / self.low)
        out[...] = np.rint(at * self._steps_per_octave)
        return False

    def estimate_counts(
        self, counts: Any, bins: int = 56, method: Method = "em", **options: Unpack[EstimateOptions]
    ) -> Distribution:
        """The distribution on a logarithmic grid; as :meth:`SquareWave.estimate_counts`."""
        found = super().estimate_counts(counts, bins, method, **options)
        return replace(found, scale="logarithmic")
