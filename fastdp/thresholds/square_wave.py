"""Theta from square-wave reports of the hold-out: ToPL's threshold optimiser.

Source: ToPS section 4.1, Eq. 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from fastdp import local, validation
from fastdp.data.kinds import Integers
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.local.base import MIN_WIDTH, local_epsilon
from fastdp.noise.key import Key
from fastdp.thresholds import log_concave, log_estimate
from fastdp.thresholds.base import ThresholdTask
from fastdp.thresholds.local_objective import OBJECTIVES, best_threshold, prune_tail
from fastdp.thresholds.sorted_holdout import QuantileChooser

Scale = Literal["linear", "logarithmic"]
SCALES = get_args(Scale)
DEFAULT_BINS = 1024
MAX_BINS = 2**16


@dataclass(frozen=True)
class SquareWave:
    """Every hold-out value becomes one square-wave report; theta is chosen from their estimated distribution.

    Parameters
    ----------
    report_epsilon : float, optional
        Privacy loss of a report; by default the task's epsilon.
    objective : "corrected" or "paper"
        See :func:`fastdp.thresholds.local_objective.range_errors`.
    method : "sw-w", "sw", "percentile" or "concave"
        EM with its tail pruned; EMS as a black box; the quantile of EMS instead of the objective; on the logarithmic
        scale, an estimate whose logarithm is concave (:mod:`fastdp.thresholds.log_concave`).
    percentile : float
        For ``method="percentile"``: a fraction, above 0 and below 1.
    publish_epsilon : float, optional
        Budget of the hybrid reports that theta clips, in the objective; by default the task's.
    bins : int, optional
        Bins of the estimate on [0, bound]; by default 1,024, or 56 on the logarithmic scale.  Their upper edges are
        the candidates for theta (on the logarithmic scale 8 a bin).  From 4 to 512 with ``method="concave"``.
    accelerate : bool
        SQUAREM for EM: in a tenth of the time nearer to the maximum of the likelihood, where the estimate breaks up
        into peaks and SW-W finds the tail's end too early (``docs/topl.md``).  False stops where the published code
        does.  The logarithmic scale is always accelerated.
    scale : "linear" or "logarithmic"
        Linear as in the paper.  Logarithmic: users report through :class:`fastdp.local.LogSquareWave` on
        [bound / 2^14, bound]; with ``method="concave"``, which is ToPL's default, or with ``method="sw-w"``, where
        theta comes from the mean of resampled free estimates, cut where the tail's share is noise
        (:mod:`fastdp.thresholds.log_estimate`).  Measured in ``docs/topl.md``.

    Notes
    -----
    Privacy: each report alone is epsilon-DP, exactly; theta is computed from reports only.  The logarithmic map comes
    before the grid of the reports' law, which holds for any two grid steps, whatever values they stand for.
    """

    report_epsilon: float | None = None
    objective: Literal["corrected", "paper"] = "corrected"
    method: Literal["sw-w", "sw", "percentile", "concave"] = "sw-w"
    percentile: float = 0.995
    publish_epsilon: float | None = None
    bins: int | None = None
    accelerate: bool = False
    scale: Scale = "linear"
    uses_holdout: ClassVar[bool] = True
    rule: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name in ("report_epsilon", "publish_epsilon"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, local_epsilon(name, getattr(self, name)))
        validation.choice("objective", self.objective, OBJECTIVES)
        validation.choice("method", self.method, ("sw-w", "sw", "percentile", "concave"))
        object.__setattr__(self, "percentile", validation.real("percentile", self.percentile))
        if not 0.0 < self.percentile < 1.0:
            raise ParameterError(f"percentile = {self.percentile!r}: expected a fraction above 0 and below 1")
        validation.choice("scale", self.scale, SCALES)
        accepted = ("sw-w", "concave") if self.logarithmic else ("sw-w", "sw", "percentile")
        if self.method not in accepted:
            raise ParameterError(
                f"method = {self.method!r}: expected {' or '.join(map(repr, accepted))} with scale = {self.scale!r}"
            )
        if self.bins is not None:
            concave = self.method == "concave"
            least, most = (log_concave.MIN_BINS, log_concave.MAX_BINS) if concave else (1, MAX_BINS)
            object.__setattr__(self, "bins", validation.integer("bins", self.bins, least, most))
        object.__setattr__(self, "accelerate", validation.flag("accelerate", self.accelerate))

    @property
    def logarithmic(self) -> bool:
        """Whether the scale is."""
        return self.scale == "logarithmic"

    @property
    def n_bins(self) -> int:
        """Bins of the estimate."""
        if self.bins is not None:
            return self.bins
        return log_estimate.OCTAVES * log_estimate.BINS_PER_OCTAVE if self.logarithmic else DEFAULT_BINS

    def start(self, task: ThresholdTask) -> QuantileChooser:
        """An empty collection."""
        client = self.client(task)

        def release(values: Integers, bound: int, key: Key) -> float:
            reports = client.perturb(values * task.resolution, key=key, start=0)
            counts = np.bincount(reports, minlength=client.law.outputs)
            return self.choose_from(self.estimate(client, counts), task) / task.resolution

        return QuantileChooser(task, release, clip=True, sort=False)

    def client(self, task: ThresholdTask) -> local.SquareWave:
        """The users' side, on [0, bound]; refuses now what theta could not be chosen with later."""
        local_epsilon("publish_epsilon", self._noise_epsilon(task))
        if task.bound < 2.0 * MIN_WIDTH * local.SquareWave.STEPS:
            raise ParameterError(f"bound = {task.bound!r}: expected at least {2 * MIN_WIDTH * 2**20:.2g}")
        if self.logarithmic:
            low = task.bound / 2.0**log_estimate.OCTAVES
            return local.LogSquareWave(self._report_epsilon(task), low=low, high=task.bound)
        return local.SquareWave(self._report_epsilon(task), low=0.0, high=task.bound)

    def estimate(self, client: local.SquareWave, counts: Integers) -> local.Distribution:
        """The server's side: the distribution behind the counts of reports (int64[outputs], or of cells)."""
        if isinstance(client, local.LogSquareWave):
            if self.method == "concave":
                return log_concave.concave_estimate(client, counts, self.n_bins)
            return log_estimate.cut_tail(log_estimate.mean_estimate(client, counts, self.n_bins), client.law)
        if self.method == "sw-w":
            return prune_tail(client.estimate_counts(counts, self.n_bins, "em", accelerate=self.accelerate))
        return client.estimate_counts(counts, self.n_bins, "ems", accelerate=self.accelerate)

    def choose_from(self, distribution: local.Distribution, task: ThresholdTask) -> float:
        """Theta, in units of the input, at most the bound and at least one step of the clients' grid."""
        if self.method == "percentile":
            theta = distribution.quantile(self.percentile)
        else:
            doubt = log_concave.DOUBT if self.method == "concave" else 1.0
            theta = best_threshold(distribution, task.max_range, self._noise_epsilon(task), self.objective, doubt)
        return min(max(theta, task.bound / local.SquareWave.STEPS), task.bound)

    def guarantee(self, task: ThresholdTask) -> Guarantee:
        """Pure epsilon, exact: the reports are."""
        return Guarantee(
            epsilon=self._report_epsilon(task),
            arithmetic="exact",
            derivation=(
                f"one exact square-wave report of each of {task.holdout} held-out values, by itself epsilon-DP "
                "(local model); theta is computed from the reports: epsilon",
            ),
        )

    def _noise_epsilon(self, task: ThresholdTask) -> float:
        return task.noise_epsilon if self.publish_epsilon is None else self.publish_epsilon

    def _report_epsilon(self, task: ThresholdTask) -> float:
        return task.epsilon if self.report_epsilon is None else self.report_epsilon
