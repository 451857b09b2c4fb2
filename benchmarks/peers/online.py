"""PeGaSus (Chen et al., CCS 2017), with floating-point noise, for comparisons only.

The perturber gives each bucket Laplace noise; the grouper cuts the stream, from the true counts under a budget of its
own, where a group's deviation from its mean passes a noisy threshold; the smoother answers with the median of the
noisy counts of a group.  One event moves one bucket by 1.
"""

from dataclasses import dataclass

import numba
import numpy as np

from fastdp.kinds import Floats


@dataclass(frozen=True)
class PeGaSus:
    """The system with the constants that its experiments recommend."""

    epsilon: float
    share: float = 0.8
    spread: float = 5.0

    def release(self, counts: Floats, generator: np.random.Generator) -> Floats:
        """The median of each value's group."""
        for_counts, for_groups = self.share * self.epsilon, (1.0 - self.share) * self.epsilon
        noisy = counts + generator.laplace(0.0, 1.0 / for_counts, counts.size)
        # Deviation has sensitivity 2; the threshold's noise is drawn again for each group.
        thresholds = self.spread / for_groups + generator.laplace(0.0, 4.0 / for_groups, counts.size + 1)
        deviations = generator.laplace(0.0, 8.0 / for_groups, counts.size)
        medians = np.empty(counts.size)
        _smooth(counts, noisy, thresholds, deviations, medians)
        return medians


@numba.njit(cache=False)
def _middle(ordered: Floats, size: int) -> float:
    half = size // 2
    return ordered[half] if size % 2 else (ordered[half - 1] + ordered[half]) / 2.0


@numba.njit(cache=False)
def _smooth(counts: Floats, noisy: Floats, thresholds: Floats, deviations: Floats, medians: Floats) -> None:
    ordered = np.empty(counts.size)
    begin, group, total = 0, 0, 0.0
    for t in range(counts.size):
        mean = (total + counts[t]) / (t - begin + 1)
        deviation = 0.0
        for i in range(begin, t + 1):
            deviation += abs(counts[i] - mean)
        if t > begin and deviation + deviations[t] > thresholds[group]:
            medians[begin:t] = _middle(ordered, t - begin)
            begin, group, total = t, group + 1, 0.0
        total += counts[t]
        place = np.searchsorted(ordered[: t - begin], noisy[t])
        for i in range(t - begin, place, -1):
            ordered[i] = ordered[i - 1]
        ordered[place] = noisy[t]
    medians[begin:] = _middle(ordered, counts.size - begin)
