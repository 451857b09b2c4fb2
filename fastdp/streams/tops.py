"""ToPS: threshold by noisy max, consistent pruned hierarchy, smoother (CCS 2021, Algorithm 1)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Literal

from fastdp import validation
from fastdp.data.column import Nonfinite
from fastdp.noise.key import Key
from fastdp.perturbers import Hierarchy
from fastdp.record import shared
from fastdp.smoothers import Exponential, Mean, Median, MovingAverage, Recent, Smoother
from fastdp.streams.pace import paced
from fastdp.streams.parameters import StreamParameters
from fastdp.streams.publisher import StreamPublisher
from fastdp.thresholds import NoisyMax
from fastdp.thresholds.noisy_max import NoiseKind
from fastdp.thresholds.renewals import Renewal

SmootherName = Literal["recent", "mean", "median", "moving", "exponential"]
SMOOTHERS: dict[str, type[Smoother]] = {
    "recent": Recent,
    "mean": Mean,
    "median": Median,
    "moving": MovingAverage,
    "exponential": Exponential,
}


class ToPS(StreamPublisher):
    """Publishes an endless stream under pure epsilon-DP, online.

    Parameters
    ----------
    epsilon : float
        Privacy loss for one value of the stream.
    bound : float
        Public upper bound of a value, in units of the input.  The threshold's rule has a constant in the same
        units (``c``), which fits counts; for cents or watt-hours set it to about the mean excess of large values.
    holdout : int, optional
        m: the first values, which choose the threshold; published values begin after them.  By default 65,536, or a
        quarter of the values that the stream will have, whichever is less.
    max_range : int, optional
        r: the longest query; a new tree of noise begins every r published values,
        rounded up to whole blocks.  By default 2^20, or the values that the stream will have, whichever is less.
    fan_out : int
        b.
    prune : int or "optimal"
        s: blocks hold b^s values; by default the minimiser of Eq. 7.
    smoother : "recent", "mean", "median", "moving", "exponential" or Smoother
        What predicts the values within a block; names stand for their default parameters.
    c : float
        Constant of Eq. 6, in units of a value; the paper's 60 fits item counts.
    noise : "laplace" or "exponential"
        Noise of the threshold's noisy max.
    delta : float
        Above 0: block sums get Gaussian noise, and the release is (epsilon, delta)-DP (``docs/gaussian.md``).
    expected_length, rate, every, resolution, nonfinite, renewal, contributions, seed, key
        As for :class:`StreamPublisher`.

    Notes
    -----
    Source: ToPS sections 3.3 to 3.6.  Privacy: pure epsilon, or (epsilon, delta) with ``delta``; event level,
    exact on this machine.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> publisher = fastdp.ToPS(epsilon=0.5, bound=100, holdout=1000, max_range=4096, seed=1)
    >>> publisher.publish(np.full(1500, 20.0)).size
    500
    """

    @validation.plain
    def __init__(
        self,
        epsilon: float,
        bound: float,
        holdout: int | None = None,
        max_range: int | None = None,
        fan_out: int = 16,
        prune: int | Literal["optimal"] = "optimal",
        smoother: SmootherName | Smoother = "recent",
        *,
        expected_length: int | None = None,
        rate: float | None = None,
        every: str | float | timedelta | None = None,
        c: float = 60.0,
        noise: NoiseKind = "laplace",
        resolution: float | None = None,
        nonfinite: Nonfinite = "raise",
        renewal: Renewal | None = None,
        contributions: int = 1,
        delta: float = 0.0,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        composition: StreamParameters = shared(
            _composition,
            *(c, noise, fan_out, prune, smoother, delta, epsilon, bound, holdout, max_range, expected_length, rate),
            *(every, resolution, nonfinite, renewal, contributions),
            warns=any(each is not None for each in (rate, every, renewal)),
        )
        self._compose(composition, seed, key)


def _composition(
    c: float,
    noise: NoiseKind,
    fan_out: int,
    prune: int | Literal["optimal"],
    smoother: SmootherName | Smoother,
    delta: float,
    *rest: Any,
) -> StreamParameters:
    """What the arguments of a publisher stand for; ``rest`` are those of StreamPublisher."""
    if isinstance(smoother, str):
        smoother = SMOOTHERS[validation.choice("smoother", smoother, tuple(SMOOTHERS))]()
    threshold = NoisyMax(c=c, noise=noise, fan_out=fan_out)
    perturber = Hierarchy(fan_out=fan_out, prune=prune, noise="gaussian" if delta else "laplace")
    return paced(threshold, perturber, smoother, *rest, None, delta)
