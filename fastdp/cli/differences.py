"""PAK as a publisher of values, which is what a release is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdp.guarantee import Guarantee
    from fastdp.systems.pak.publisher import PAK


class Differences:
    """Publishes the differences of PAK's neighbouring running sums, bit for bit as ``PAK.release`` gives them.

    Parameters
    ----------
    pak : PAK
        A fresh one, of plain running sums.
    """

    def __init__(self, pak: PAK) -> None:
        self.pak = pak
        self.n_published = 0

    @property
    def n_seen(self) -> int:
        """Values consumed, the hold-out included."""
        return self.pak.n_seen

    @property
    def holdout(self) -> int:
        """Length of the hold-out."""
        return self.pak.holdout

    @property
    def threshold(self) -> float | None:
        """Values were clipped to it; None until the hold-out is complete."""
        return self.pak.threshold

    @property
    def guarantee(self) -> Guarantee:
        """Of the running sums; their differences are post-processing."""
        return self.pak.guarantee

    def publish(self, chunk: NDArray[np.float64]) -> NDArray[np.float64]:
        """Consume the next values; float64[k], one for each behind the hold-out."""
        before = self.pak.running_sum
        sums = self.pak.publish(chunk)
        if before is None and sums.size and self.holdout:
            # The hold-out's sum is where the running sums begin.
            before, sums = float(sums[0]), sums[1:]
        steps = np.diff(sums, prepend=0.0 if before is None else before)
        self.n_published += steps.size
        return steps
