"""ToPL's threshold from square-wave reports of the hold-out (ToPS section 4.1, Eq. 8)."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, Literal, get_args

import numpy as np

from fastdp import local, validation
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, pure
from fastdp.kinds import Floats, Integers
from fastdp.local import Hybrid
from fastdp.local.distribution import TOLERANCE, Distribution, in_cells, transition
from fastdp.local.mechanisms import LOCAL_EPSILON, MIN_WIDTH
from fastdp.local.reports import WindowDistribution
from fastdp.noise.key import Key
from fastdp.record import Choice, Flag, Kind, parameter, put, record
from fastdp.thresholds.base import ThresholdTask
from fastdp.thresholds.quantile import QuantileChooser
from fastdp_kernels.local import band_matrix

#: Candidates in a bin of a logarithmic scale, whose bins are wide.
CANDIDATES_A_BIN = 8
#: SW-W: so many estimates in a row below this frequency end the distribution, of 1,024 bins or in proportion of more.
RUN = 5
SMALL_FREQUENCY = 1e-4
PAPER_BINS = 1024


def range_errors(
    distribution: Distribution, max_range: int, publish_epsilon: float, doubt: float = 1.0
) -> tuple[Floats, Floats]:
    """Candidates for theta, each with its expected squared error of a random range sum: two float64[k].

    The error is (r / 3) Var (theta / 2)^2 + `doubt` (r^2 / 6) bias^2, with r = `max_range`, bias the mean of max(v -
    theta, 0), Var the worst of :class:`Hybrid` (Eq. 14).  Candidates are upper edges of bins, or of eighths of
    logarithmic bins.
    """
    per_bin = 1 if distribution.scale == "linear" else CANDIDATES_A_BIN
    candidates = distribution.divide(per_bin * distribution.frequencies.size)[1:]
    r = float(max_range)
    noise = r / 3.0 * Hybrid(publish_epsilon).worst_variance * (candidates / 2.0) ** 2
    return candidates, noise + doubt * r**2 / 6.0 * distribution.excess(candidates) ** 2


def prune_tail(distribution: Distribution) -> Distribution:
    """SW-W: cut the tail from five estimates in a row below 0.01 % (of 1,024 bins)."""
    frequencies = distribution.frequencies
    after = int(frequencies.argmax()) + 1
    finer = max(1.0, frequencies.size / PAPER_BINS)
    small, run = frequencies[after:] < SMALL_FREQUENCY / finer, round(RUN * finer)
    if small.size < run:
        return distribution
    # Starts of runs of small frequencies.
    others = np.concatenate([[0], np.cumsum(~small)])
    runs = others[run:] == others[:-run]
    if not runs.any():
        return distribution
    kept = frequencies.copy()
    kept[after + int(runs.argmax()) :] = 0.0
    kept /= kept.sum()
    return replace(distribution, frequencies=kept, method=f"{distribution.method}, tail pruned")


# Estimates on a logarithmic scale: the mean over resampled reports (bagging, Breiman 1996), at no cost of privacy.
#
# A free estimate has a few peaks at random positions, which the mean spreads, and its tail is noise from where a
# window's share is within a standard error.  A log-concave one has a single peak, and its tail goes on falling at
# least as fast as observed, so that the threshold may lie where no report could show a tail.  Source: ours; the shape
# is that of log-concave maximum likelihood (Walther 2009).

#: The values that an estimate distinguishes: from bound / 2^OCTAVES to the bound.
OCTAVES, BINS_PER_OCTAVE = 14, 4
#: Estimates from resampled counts, free and log-concave; their seed is fixed, so equal counts give equal estimates.
RESAMPLES, CONCAVE_RESAMPLES, SEED = 16, 8, 1
#: A tail frequency below so many standard errors counts as noise.
STANDARD_ERRORS = 1.5
#: Fewest and most bins: curvature needs three behind the first, and a step solves so many equations.
LEAST_BINS, MOST_BINS = 4, 512
#: Prior of each curvature (decrease of slope from bin to bin): density proportional to this power of it.
POWER = 0.03
#: Prior of the logarithm of a frequency: normal with this precision, so that no tail falls without end.
PRECISION = 3e-4
#: Factor on the estimate's squared bias: an unobserved tail may be longer than the extrapolated one
#: (``docs/local.md``).
DOUBT = 5.0
MAX_STEPS = 200
#: Smaller frequencies count as this in a mean of logarithms.
LEAST_FREQUENCY = 1e-300
#: Added to the diagonal of a numerically singular system, relative to its largest entry.
RIDGES = (0.0, 1e-15, 1e-12, 1e-9)
#: The search ends when a step gains less than this in log density, and a step changes no logarithm by more than that.
GAIN, STRIDE = 1e-6, 10.0


def mean_estimate(client: local.LogSquareWave, counts: Integers, bins: int) -> Distribution:
    """Mean of free estimates from resampled counts of reports."""
    counts = in_cells(client.distribution, counts, bins)
    estimate = client.estimate_counts(counts, bins, tolerance=TOLERANCE)
    generator, total = np.random.default_rng(SEED), estimate.frequencies.copy()
    for _ in range(RESAMPLES):
        again = generator.poisson(counts)
        if again.any():
            total += client.estimate_counts(again, bins, tolerance=TOLERANCE).frequencies
    return replace(estimate, frequencies=total / total.sum(), method=f"em, mean of {RESAMPLES} resamples")


def cut_tail(distribution: Distribution, reports: WindowDistribution) -> Distribution:
    """Cut bins whose tail frequency is below 1.5 standard errors of a window's."""
    far, near = (weight * reports.near / reports.total for weight in (reports.far_weight, reports.near_weight))
    error = math.sqrt(far * (1.0 - far) / distribution.n_reports) / (near - far)
    frequencies = distribution.frequencies
    tails = np.cumsum(frequencies[::-1])[::-1]
    kept = np.where(tails >= min(STANDARD_ERRORS * error, float(tails[0])), frequencies, 0.0)
    kept /= kept.sum()
    return replace(distribution, frequencies=kept, method=f"{distribution.method}, tail cut")


def concave_estimate(client: local.LogSquareWave, counts: Integers, bins: int) -> Distribution:
    """Geometric mean of log-concave estimates from resampled counts; the first bin is free."""
    counts = in_cells(client.distribution, counts, bins)
    matrix = _matrix(client.distribution, bins, counts.size)
    frequencies, likelihood, steps, converged = fit(matrix, counts.astype(np.float64))
    generator, logs = np.random.default_rng(SEED), np.log(np.maximum(frequencies, LEAST_FREQUENCY))
    for _ in range(CONCAVE_RESAMPLES):
        again = fit(matrix, generator.poisson(counts).astype(np.float64))[0]
        logs += np.log(np.maximum(again, LEAST_FREQUENCY))
    # Of logarithms, so that the flat tail of one resample does not decide; the mean is log-concave as well.
    total = np.exp(logs / (1 + CONCAVE_RESAMPLES))
    method = f"log-concave, geometric mean of {CONCAVE_RESAMPLES} resamples"
    total, n = total / total.sum(), int(counts.sum())
    return Distribution(total, client.low, client.high, method, steps, converged, likelihood, n, "logarithmic")


@lru_cache(maxsize=8)
def _matrix(window: WindowDistribution, bins: int, cells: int) -> Floats:
    reports = transition(window, bins, np.zeros(cells, np.int64))
    column, matrix = np.empty(cells), np.empty((cells, bins))
    for i, unit in enumerate(np.eye(bins)):
        band_matrix.multiply_band(reports.forward, unit, column)
        matrix[:, i] = reports.flat + reports.peak * column
    matrix.flags.writeable = False
    return matrix


def fit(matrix: Floats, counts: Floats) -> tuple[Floats, float, int, bool]:
    """Most likely log-concave frequencies (Fisher scoring), log-likelihood, steps, True if converged."""
    bins, n = matrix.shape[1], float(counts.sum())
    # The first bin is free.
    bend: Floats = -np.diff(np.eye(bins), 2, axis=0)[1:]

    def density(logs: Floats) -> tuple[Floats, Floats, float, float]:
        frequencies = np.exp(logs - logs.max())
        frequencies /= frequencies.sum()
        chances = matrix @ frequencies
        likelihood = float(counts @ np.log(chances))
        curvature = bend @ logs
        prior = POWER * float(np.log(curvature).sum()) if curvature.min() > 0.0 else -np.inf
        return frequencies, chances, likelihood, likelihood + prior - 0.5 * PRECISION * float(logs @ logs)

    logs: Floats = -0.5 * ((np.arange(bins) - bins / 3.0) / (bins / 7.0)) ** 2
    frequencies, chances, likelihood, value = density(logs)
    for step in range(MAX_STEPS):
        curvature, moves = bend @ logs, matrix * frequencies - np.outer(chances, frequencies)
        slope = moves.T @ (counts / chances) - PRECISION * logs + bend.T @ (POWER / curvature)
        information = moves.T @ ((n / chances)[:, None] * moves) + (bend.T * (POWER / curvature**2)) @ bend
        way = _solution(information + PRECISION * np.eye(bins), slope)
        if way is None:
            return frequencies, likelihood, step, False
        falls = bend @ way
        ends = curvature[falls < 0.0] / -falls[falls < 0.0]
        length = min(1.0, STRIDE / max(float(np.abs(way).max()), 1e-300), 0.99 * float(ends.min(initial=np.inf)))
        further = density(logs + length * way)
        while further[3] <= value and length > 1e-9:
            length /= 2.0
            further = density(logs + length * way)
        gain = further[3] - value
        if gain <= 0.0:
            return frequencies, likelihood, step, True
        logs = logs + length * way
        frequencies, chances, likelihood, value = further
        if gain < GAIN:
            return frequencies, likelihood, step + 1, True
    return frequencies, likelihood, MAX_STEPS, False


def _solution(matrix: Floats, right: Floats) -> Floats | None:
    largest = float(np.abs(np.diag(matrix)).max())
    for ridge in RIDGES if np.isfinite(matrix).all() and np.isfinite(right).all() else ():
        try:
            raised = matrix + ridge * largest * np.eye(right.size)
            solution: Floats = np.linalg.solve(raised, right).astype(np.float64)
        except np.linalg.LinAlgError:
            continue
        if np.isfinite(solution).all():
            return solution
    return None


Scale = Literal["linear", "logarithmic"]
Method = Literal["sw-w", "sw", "concave"]
DEFAULT_BINS = 1024
MAX_BINS = 2**16


@record
class SquareWave:
    """Chooses theta from square-wave reports of the hold-out.

    Parameters
    ----------
    report_epsilon : float, optional
        Privacy loss of a report; by default the task's epsilon.
    method : "sw-w", "sw" or "concave"
        EM with a pruned tail; EMS; a log-concave estimate, on the logarithmic scale only.
    publish_epsilon : float, optional
        Budget of the reports that theta clips; by default the task's.
    bins : int, optional
        By default 1,024, or 56 on the logarithmic scale (4 to 512 if "concave").
    accelerate : bool
        SQUAREM for EM: ten times faster, but SW-W ends the tail too early.  The logarithmic scale always uses it.
    scale : "linear" or "logarithmic"
        Linear as in the paper.  Logarithmic: :class:`fastdp.local.LogSquareWave` on [bound / 2^14, bound], with
        "concave", ToPL's default, or "sw-w": the mean of resampled estimates with the tail cut (``docs/local.md``).

    Notes
    -----
    Privacy: each report is exactly epsilon-DP, and theta is computed from reports only.
    """

    report_epsilon: float | None = parameter(LOCAL_EPSILON, default=None)
    method: Method = parameter(Choice(get_args(Method)), default="sw-w")
    publish_epsilon: float | None = parameter(LOCAL_EPSILON, default=None)
    bins: int | None = parameter(Kind(), default=None)
    accelerate: bool = parameter(Flag(), default=False)
    scale: Scale = parameter(Choice(get_args(Scale)), default="linear")
    uses_holdout: ClassVar[bool] = True
    rule: ClassVar[int] = 1

    def _check(self) -> None:
        methods = ("sw-w", "concave") if self.logarithmic else ("sw-w", "sw")
        if self.method not in methods:
            accepted = f"{' or '.join(map(repr, methods))} with scale = {self.scale!r}"
            raise ParameterError(f"method = {self.method!r}: expected {accepted}")
        if self.bins is not None:
            concave = self.method == "concave"
            least, most = (LEAST_BINS, MOST_BINS) if concave else (1, MAX_BINS)
            put(self, bins=validation.integer("bins", self.bins, least, most))

    @property
    def logarithmic(self) -> bool:
        """True if the scale is logarithmic."""
        return self.scale == "logarithmic"

    @property
    def n_bins(self) -> int:
        """Number of bins of the estimate."""
        if self.bins is not None:
            return self.bins
        return OCTAVES * BINS_PER_OCTAVE if self.logarithmic else DEFAULT_BINS

    def start(self, task: ThresholdTask) -> QuantileChooser:
        client = self.client(task)

        def release(values: Integers, bound: int, key: Key) -> float:
            reports = client.perturb(values * task.resolution, key=key, start=0)
            counts = np.bincount(reports, minlength=client.distribution.outputs)
            return self.choose_from(self.estimate(client, counts), task) / task.resolution

        return QuantileChooser(task, release, clip=True, sort=False)

    def client(self, task: ThresholdTask) -> local.SquareWave:
        """Mechanism of the reports; ParameterError if theta could not be chosen."""
        LOCAL_EPSILON.check("publish_epsilon", self._noise_epsilon(task))
        if task.bound < 2.0 * MIN_WIDTH * local.SquareWave.STEPS:
            raise ParameterError(f"bound = {task.bound!r}: expected at least {2 * MIN_WIDTH * 2**20:.2g}")
        if self.logarithmic:
            low = task.bound / 2.0**OCTAVES
            return local.LogSquareWave(self._report_epsilon(task), low=low, high=task.bound)
        return local.SquareWave(self._report_epsilon(task), low=0.0, high=task.bound)

    def estimate(self, client: local.SquareWave, counts: Integers) -> local.Distribution:
        """Estimate the distribution of values from counts of reports."""
        if isinstance(client, local.LogSquareWave):
            if self.method == "concave":
                return concave_estimate(client, counts, self.n_bins)
            return cut_tail(mean_estimate(client, counts, self.n_bins), client.distribution)
        if self.method == "sw-w":
            return prune_tail(client.estimate_counts(counts, self.n_bins, "em", accelerate=self.accelerate))
        return client.estimate_counts(counts, self.n_bins, "ems", accelerate=self.accelerate)

    def choose_from(self, distribution: local.Distribution, task: ThresholdTask) -> float:
        """Theta in units of the input."""
        doubt = DOUBT if self.method == "concave" else 1.0
        candidates, errors = range_errors(distribution, task.max_range, self._noise_epsilon(task), doubt)
        return float(candidates[int(errors.argmin())])

    def guarantee(self, task: ThresholdTask) -> Guarantee:
        reports = f"one exact square-wave report of each of {task.holdout} held-out values, by itself epsilon-DP"
        step = f"{reports} (local model); theta is computed from the reports: epsilon"
        return pure(self._report_epsilon(task), step)

    def _noise_epsilon(self, task: ThresholdTask) -> float:
        return task.noise_epsilon if self.publish_epsilon is None else self.publish_epsilon

    def _report_epsilon(self, task: ThresholdTask) -> float:
        return task.epsilon if self.report_epsilon is None else self.report_epsilon
