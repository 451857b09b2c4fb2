"""PeGaSus (Chen et al., CCS 2017) and the w-event schemes (Kellaris et al. 2014), with floating-point noise.

For comparisons only.  PeGaSus: the perturber gives each bucket Laplace noise; the grouper cuts the stream, from the
true counts under a budget of its own, where a group's deviation from its mean passes a noisy threshold; the smoother
answers with the median of the noisy counts of a group.  One event moves one bucket by 1.  The schemes are a hundred
times as fast as :class:`fastdp_lab.baselines.WEvent`, which draws its noise exactly and binds it to the values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from fastdp.kinds import Floats
from fastdp_lab.baselines.w_event import SCHEMES, Scheme


@dataclass(frozen=True)
class PeGaSus:
    """The system with the constants that its experiments recommend."""

    epsilon: float
    share: float = 0.8
    spread: float = 5.0

    def release(self, counts: Floats, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """Values published online (median of the group so far), and the index at which each group is complete."""
        for_counts, for_groups = self.share * self.epsilon, (1.0 - self.share) * self.epsilon
        noisy = counts + generator.laplace(0.0, 1.0 / for_counts, counts.size)
        # Deviation has sensitivity 2; the threshold's noise is drawn again for each group.
        thresholds = self.spread / for_groups + generator.laplace(0.0, 4.0 / for_groups, counts.size + 1)
        deviations = generator.laplace(0.0, 8.0 / for_groups, counts.size)
        online, whole = np.empty(counts.size), np.empty(counts.size)
        _smooth(counts, noisy, thresholds, deviations, online, whole)
        return online, whole


@numba.njit(cache=False)
def _middle(ordered: Floats, size: int) -> float:
    half = size // 2
    return ordered[half] if size % 2 else (ordered[half - 1] + ordered[half]) / 2.0


@numba.njit(cache=False)
def _smooth(
    counts: Floats, noisy: Floats, thresholds: Floats, deviations: Floats, online: Floats, whole: Floats
) -> None:
    ordered = np.empty(counts.size)
    begin, group, total = 0, 0, 0.0
    for t in range(counts.size):
        mean = (total + counts[t]) / (t - begin + 1)
        deviation = 0.0
        for i in range(begin, t + 1):
            deviation += abs(counts[i] - mean)
        if t > begin and deviation + deviations[t] > thresholds[group]:
            whole[begin:t] = _middle(ordered, t - begin)
            begin, group, total = t, group + 1, 0.0
        total += counts[t]
        place = np.searchsorted(ordered[: t - begin], noisy[t])
        for i in range(t - begin, place, -1):
            ordered[i] = ordered[i - 1]
        ordered[place] = noisy[t]
        online[t] = _middle(ordered, t - begin + 1)
    whole[begin:] = _middle(ordered, counts.size - begin)


_SAMPLE, _DISTRIBUTION, _ABSORPTION = (SCHEMES.index(name) for name in ("sample", "distribution", "absorption"))


def w_event(
    scheme: Scheme, values: Floats, bound: float, epsilon: float, w: int, noises: tuple[Floats, Floats]
) -> Floats:
    """Published value for each value.

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
    _w_event(SCHEMES.index(scheme), values, bound, epsilon, w, *noises, out)
    return out


@numba.njit(cache=False)
def _w_event(
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
