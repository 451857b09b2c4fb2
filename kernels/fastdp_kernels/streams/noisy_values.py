"""Real numbers to whole steps of a grid, for noise on values that nothing clips."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel
from fastdp_kernels.streams.online_pass import finite_flag


@kernel
def round_half_up(values: np.ndarray, steps_per_unit: float, most: float, steps: np.ndarray) -> bool:
    """Round to the nearest step, halves up, and saturate at ``most`` steps on either side.

    Exact, so that two values at most k steps apart, k a whole number, are at most k steps apart afterwards: rounding
    halves to even is not (0.5 and 1.5 become 0 and 2), nor is adding 0.5 in doubles.

    Parameters
    ----------
    values : float64[n]
        In units of the input.
    steps_per_unit : float
        1 / resolution, a power of two, so that the product is exact.
    most : float
        A whole number up to 2^62.
    steps : int64[n]
        Receives the steps.

    Returns
    -------
    bool
        Whether a value is NaN or infinite; the steps are then of no use.
    """
    flags = np.int64(0)
    for i in range(values.size):
        flags |= finite_flag(values[i])
        x = values[i] * steps_per_unit
        x = x if x < most else most
        x = x if x > -most else -most
        low = np.floor(x)
        # The difference is exact, or rounded on the same side of a half.
        steps[i] = np.int64(low) + np.int64(x - low >= 0.5)
    return bool(flags < 0)
