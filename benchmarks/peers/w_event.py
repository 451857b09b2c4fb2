"""Uniform, Sample, budget distribution and budget absorption (Kellaris et al. 2014), with floating-point noise.

For comparisons on long streams only, some hundred times as fast as :class:`fastdp_lab.baselines.WEvent`, which draws
its noise exactly and binds it to the values.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from fastdp_lab.baselines.w_event import SCHEMES, Scheme

Floats = NDArray[np.float64]
_SAMPLE, _DISTRIBUTION, _ABSORPTION = (SCHEMES.index(name) for name in ("sample", "distribution", "absorption"))


def release(
    scheme: Scheme, values: Floats, bound: float, epsilon: float, w: int, noises: tuple[Floats, Floats]
) -> Floats:
    """What is published for each value.

    Parameters
    ----------
    scheme
        As for :class:`fastdp_lab.baselines.WEvent`.
    values : float64[n]
        Within [0, bound].
    bound, epsilon, w
        Sensitivity, and the budget of any w consecutive values.
    noises : (float64[n], float64[n])
        Standard Laplace draws of each step: of its comparison, and of its release.
    """
    out = np.empty(values.size)
    if scheme == "uniform":
        return values + noises[1] * (bound * w / epsilon)
    _release(SCHEMES.index(scheme), values, bound, epsilon, w, *noises, out)
    return out


@numba.njit(cache=False)
def _release(
    scheme: int,
    values: Floats,
    bound: float,
    epsilon: float,
    w: int,
    comparisons: Floats,
    releases: Floats,
    out: Floats,
) -> None:
    # Budgets of the last w steps; absorption: the last step whose budget is used or given up.
    spent, covered, last = np.zeros(w), -1, 0.0
    for i in range(values.size):
        spent[i % w] = 0.0
        if scheme == _SAMPLE:
            budget = epsilon if i % w == 0 else 0.0
        elif scheme == _DISTRIBUTION:
            budget = (epsilon / 2.0 - spent.sum()) / 2.0
        else:
            budget = epsilon / (2.0 * w) * min(max(i - covered, 0), w)
        if budget > 0.0 and scheme != _SAMPLE:
            far = abs(last - values[i]) + comparisons[i] * (2.0 * w * bound / epsilon)
            if far <= bound / budget:
                budget = 0.0
        if budget > 0.0:
            last = values[i] + releases[i] * (bound / budget)
            spent[i % w] = budget
            if scheme == _ABSORPTION:
                covered = i + min(i - covered, w) - 1
        out[i] = last
