"""Parameters of PAK, their grid and their guarantee."""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, cast

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, parallel, remainder, sequential
from fastdp.integer_grid import Grid, make_grid
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import MAX_WORDS
from fastdp.record import Flag, Keyed, Kind, Real, Whole, parameter, record, values_of
from fastdp.state import codec
from fastdp.streams.parameters import PARTS, noise_key
from fastdp.thresholds import PAKQuantile, SmoothQuantile, Threshold, ThresholdTask
from fastdp.thresholds.base import as_rule

MIN_EPSILON = 2.0**-60
#: A threshold further out than this tail probability of its noise is cut off there, public post-processing.
MIN_TAIL = 2.0**-54
#: Covers the rounding of the highest threshold.
ABOVE_ROUNDING = 1.0 + 2.0**-30


@record
class PAKParameters(Keyed):
    """The parameters of :class:`fastdp.PAK`; ParameterError if one is not accepted."""

    epsilon: float = parameter(Real(above=0.0))
    delta: float = parameter(Real(least=0.0, below=1.0))
    bound: float = parameter(Real(above=0.0))
    length: int = parameter(Whole(1, MAX_WORDS))
    _: KW_ONLY
    holdout: int = parameter(Kind(), default=65_536)
    share: float = parameter(Real(above=0.0, below=1.0), default=0.85)
    tail_factor: float = parameter(Real(least=1.0), default=1.0)
    threshold: Threshold | float | None = parameter(Kind(), default=None)
    lag_sums: bool = parameter(Flag(), default=False)
    clip: bool = parameter(Flag(), default=True)
    average: int | Literal["all"] | None = parameter(Kind(), default=None)
    resolution: float | None = parameter(Real(above=0.0), default=None)

    rule: ClassVar[int] = 1

    def _check(self) -> None:
        """ParameterError for parameters that conflict: nothing fails later."""
        put = partial(object.__setattr__, self)
        given = self.threshold
        put("threshold", usual_threshold(self.delta, self.clip) if given is None else as_rule("threshold", given))
        self._check_threshold(self.clip)
        rule = self.chosen_by
        holdout = self.holdout if rule.uses_holdout else 0
        put("holdout", validation.integer("holdout", holdout, 0, self.length - 1))
        if rule.uses_holdout and self.holdout == 0:
            raise ParameterError(
                f"holdout = {self.holdout!r}: expected at least 1 and less than the length, {self.length}"
            )
        if self.average is not None and self.average != "all":
            put("average", validation.integer("average", self.average, 1, self.length))
        if min(self.epsilon_threshold, self.epsilon_lag) < MIN_EPSILON:
            raise ParameterError(
                f"share = {self.share!r}: expected both parts of epsilon = {self.epsilon!r} above 2^-60"
            )
        object.__setattr__(self, "resolution", self.grid.resolution)
        # The narrowest noise must be drawable; checked now, not at the end of the hold-out.
        sampler.laplace_distribution(Fraction(1) / Fraction(self.epsilon))
        chosen = rule.guarantee(self.task)
        if chosen is not None and chosen.delta > self.delta:
            raise ParameterError(
                f"delta = {self.delta!r}: expected at least {chosen.delta!r}, which the threshold uses"
            )

    def _check_threshold(self, clip: bool) -> None:
        """ParameterError if the threshold is no rule or does not fit `clip`."""
        rule = self.threshold
        validation.part("threshold", rule, Threshold, "fastdp.thresholds")
        endless = isinstance(rule, (PAKQuantile, SmoothQuantile)) and not rule.clip and rule.noise != "cauchy"
        if not clip and not endless:
            raise ParameterError(
                f"threshold = {validation.shown(rule)}: expected PAKQuantile(clip=False), or "
                "SmoothQuantile(clip=False) without Cauchy-type noise (whose theta may be any number), because "
                "clip = False"
            )

    @property
    def chosen_by(self) -> Threshold:
        """The rule that chooses the threshold."""
        return cast("Threshold", self.threshold)

    @cached_property
    def epsilon_threshold(self) -> float:
        """epsilon_1, the threshold's budget."""
        return self.epsilon * self.share

    @cached_property
    def epsilon_lag(self) -> float:
        """epsilon_2: epsilon_1 + epsilon_2 is at most epsilon, exactly."""
        return remainder(self.epsilon, self.epsilon_threshold)

    @cached_property
    def grid(self) -> Grid:
        """The grid from 0 to the highest threshold, proved to fit int64.

        That is the bound, or with ``clip=False`` a value that noise exceeds with probability 2^-54.
        """
        top = self.bound if self.clip else self._highest()
        least = self.epsilon_lag if self.holdout else self.epsilon
        levels = max(self.length - self.holdout, self.holdout).bit_length()
        try:
            grid = make_grid(top, self.resolution, least, self.length, levels, 2)
        except ParameterError as error:
            reach = "" if self.clip else f"clip = False: r tau may reach {top:.3g}, and then "
            part = f"; {least!r} is epsilon_2, the rest of epsilon = {self.epsilon!r}" if self.holdout else ""
            raise ParameterError(f"{reach}{error}{part if repr(least) in str(error) else ''}") from None
        if grid.resolution > self.bound:
            raise ParameterError(
                f"clip = False: r tau may reach {top:.3g}, whose grid has a resolution of {grid.resolution:g}; "
                f"expected at most the bound, {self.bound!r} (a larger epsilon or a shorter stream)"
            )
        return grid

    def _highest(self) -> float:
        """Largest r tau without a clip, except with probability 2^-54."""
        rule, task = self.threshold, self._task_on(self.bound)
        assert isinstance(rule, (PAKQuantile, SmoothQuantile))  # noqa: S101 - checked on construction
        noise = rule.smooth_noise(task)
        farthest = rule.kappa(task) / noise.a * (noise.magnitude(MIN_TAIL) + rule.offset(task))
        return self.tail_factor * self.bound * (1.0 + farthest) * ABOVE_ROUNDING

    @cached_property
    def bound_steps(self) -> int:
        """B in grid steps."""
        return Grid(self.bound, self.grid.resolution).bound_steps

    @property
    def task(self) -> ThresholdTask:
        """Public inputs of the threshold's choice."""
        return self._task_on(self.grid.resolution)

    def _task_on(self, resolution: float) -> ThresholdTask:
        holdout = max(self.holdout, 1)
        return ThresholdTask(self.epsilon_threshold, self.bound, holdout, self.length, resolution, self.epsilon)

    def guarantee(self, *, simulated: bool) -> Guarantee:
        """Threshold and sum share the first values, the tree has the others (section III-C)."""
        levels = (self.length - self.holdout).bit_length()
        whole = Guarantee(
            epsilon=self.epsilon,
            arithmetic="exact",
            derivation=(f"binary tree over the other values: each enters at most {levels} nodes, epsilon in all",),
        )
        chosen = self.chosen_by.guarantee(self.task)
        if self.holdout and chosen is not None:
            total = Guarantee(
                epsilon=self.epsilon_lag,
                arithmetic="exact",
                derivation=(self._lag_step,),
            )
            whole = parallel(sequential(chosen.of("threshold"), total), whole)
        return replace(whole, simulated=simulated or whole.simulated)

    @property
    def _lag_step(self) -> str:
        """Derivation step for the first values' sum(s)."""
        if self.lag_sums:
            return (
                f"running sums of the first values: each enters at most {self.holdout.bit_length()} nodes, epsilon_2"
            )
        return "sum of the first values, noise of scale r tau / epsilon_2: epsilon_2"

    def noise_key(self, secret: Key) -> Key:
        """Noise key under a secret."""
        return noise_key(self, secret)

    def describe(self) -> dict[str, Any]:
        """Parameters as JSON, the threshold by name."""
        return {**values_of(self), "threshold": codec.describe_part(self.threshold, PARTS)}

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> PAKParameters:
        """The parameters that :meth:`describe` gave."""
        return cls(**{**description, "threshold": codec.build_part(description["threshold"], PARTS)})


def usual_threshold(delta: object, clip: bool) -> PAKQuantile:
    """PAK's own rule; ParameterError for delta = 0."""
    number = validation.real("delta", delta)
    if number == 0.0:
        raise ParameterError(
            f"delta = {delta!r}: expected a number above 0 for PAKQuantile, or another threshold, such as "
            "SmoothQuantile(noise='cauchy')"
        )
    return PAKQuantile(delta=number, clip=clip)
