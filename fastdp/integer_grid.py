"""The integer grid of clipped and rounded values, and the proof that int64 holds it (``docs/noise.md``)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.validation import refusal

MAX_STEPS = 2**50
#: The largest scale of noise the sampler takes (see ``docs/noise.md``, section 4).
MAX_SCALE = 2**56
MAX_TOTAL = 2**62
#: Up to this scale a draw takes one word (``docs/noise.md``, section 4).
QUICK_SCALE = 2**40
MIN_SCALE = Fraction(1, 2**40)
#: Within these, 1 / resolution and the noisy sum of max_range values are normal floats.
MIN_BOUND, MAX_BOUND = 1e-250, 1e250
#: A node's noise exceeds this many scales with probability below e^-64.
HEADROOM = 64


@dataclass(frozen=True)
class Grid:
    """Whole multiples of ``resolution`` in [0, bound]; ``ceiling_steps``: largest threshold whose noise fits."""

    bound: float
    resolution: float
    ceiling_steps: int = 0

    @cached_property
    def bound_steps(self) -> int:
        # As integers: fractions would be reduced at each step.
        (a, b), (c, d) = self.bound.as_integer_ratio(), self.resolution.as_integer_ratio()
        return max(1, a * d // (b * c))

    def snap(self, theta: float) -> int:
        """Round `theta` to whole grid steps, at least 1 and at most the bound or, above it, the ceiling."""
        most = self.bound_steps if theta <= self.bound else max(self.bound_steps, self.ceiling_steps)
        if theta >= most * self.resolution:
            return most
        steps = float(theta) / self.resolution if self._exact else Fraction(theta) / Fraction(self.resolution)
        return max(1, round(steps))

    @cached_property
    def _exact(self) -> bool:
        return math.frexp(self.resolution)[0] == 0.5


@dataclass(frozen=True)
class EventGrid(Grid):
    """Multiples of ``resolution`` in [-bound, bound]; an event moves a value by at most ``sensitivity``."""

    sensitivity: float = 1.0

    def snap(self, theta: float) -> int:
        """Round the sensitivity up to whole steps, for any theta."""
        del theta
        return math.ceil(Fraction(self.sensitivity) / Fraction(self.resolution))


def _about(number: Fraction | int) -> str:
    try:
        return f"{float(number):.3g}"
    except OverflowError:
        return f"2^{round(number).bit_length() - 1}"


def _headroom(per_step: Fraction, levels: int, fan_out: int) -> Fraction:
    return 2 * (fan_out - 1) * levels * HEADROOM * per_step


def _shortfall(grid: Grid, per_step: Fraction, max_range: int, levels: int, fan_out: int) -> str | None:
    """Reason why `grid` does not fit int64, or None; `per_step`: noise scale per step of theta."""
    steps = grid.bound_steps
    scale = steps * per_step
    if per_step < MIN_SCALE:
        return f"noise of scale {_about(per_step)} steps, at least 2^-40 can be drawn"
    if steps > MAX_STEPS:
        return f"bound / resolution = {_about(steps)} steps, at most 2^50 fit"
    if scale > MAX_SCALE:
        return f"noise of scale {_about(scale)} steps, at most 2^56 fit"
    total = steps * (max_range + _headroom(per_step, levels, fan_out))
    if total > MAX_TOTAL:
        return f"a range may sum to {_about(total)} steps, noise included, at most 2^62 fit"
    return None


def _with_ceiling(grid: Grid, per_step: Fraction, max_range: int, levels: int, fan_out: int) -> Grid:
    by_total = (MAX_TOTAL - grid.bound_steps * max_range) / _headroom(per_step, levels, fan_out)
    return replace(grid, ceiling_steps=min(MAX_SCALE // per_step, math.floor(by_total)))


def make_grid(
    bound: float, resolution: float | None, epsilon: float, max_range: int, levels: int, fan_out: int
) -> Grid:
    """Grid, proved to fit int64; ParameterError if a given resolution does not."""
    if not MIN_BOUND <= bound <= MAX_BOUND:
        raise refusal("bound", bound, f"between {MIN_BOUND} and {MAX_BOUND}")
    step = None if resolution is None else validation.positive("resolution", resolution)
    return _proved_grid(bound, step, epsilon, max_range, levels, fan_out)


@lru_cache(maxsize=256, typed=True)
def _proved_grid(
    bound: float, resolution: float | None, epsilon: float, max_range: int, levels: int, fan_out: int
) -> Grid:
    per_step = levels / Fraction(epsilon)
    if resolution is not None:
        if resolution > bound:
            raise refusal("resolution", resolution, f"at most the bound, {bound!r}")
        grid = Grid(bound, resolution)
        problem = _shortfall(grid, per_step, max_range, levels, fan_out)
        if problem is not None:
            raise ParameterError(
                f"resolution = {resolution!r}: {problem}; expected a coarser resolution "
                f"(bound = {bound!r}, max_range = {max_range}, epsilon = {epsilon!r})"
            )
        return _with_ceiling(grid, per_step, max_range, levels, fan_out)
    # The largest power of two up to bound * 2^-32, doubled until noise fits in 2^40 steps, above which the sampler is
    # slow.
    step = 2.0 ** (math.frexp(bound)[1] - 1 - 32)
    coarsest: Grid | None = None
    while step <= bound:
        grid = Grid(bound, step)
        fits = _shortfall(grid, per_step, max_range, levels, fan_out) is None
        if fits and grid.bound_steps * per_step <= QUICK_SCALE:
            return _with_ceiling(grid, per_step, max_range, levels, fan_out)
        coarsest = grid if fits else coarsest
        step *= 2.0
    if coarsest is not None:
        return _with_ceiling(coarsest, per_step, max_range, levels, fan_out)
    raise ParameterError(
        f"epsilon = {epsilon!r}: with bound = {bound!r} and max_range = {max_range} no grid fits 64-bit "
        "integers; expected a larger epsilon or a smaller max_range"
        if epsilon < 1.0
        else f"epsilon = {epsilon!r}: expected a smaller epsilon, noise below 2^-40 steps cannot be drawn"
    )


#: Least number of steps in a sensitivity and in its noise scale.
EVENT_STEPS = 2**10


def make_event_grid(sensitivity: float, resolution: float | None, epsilon: float, max_range: int) -> EventGrid:
    """Grid of values without a bound, which saturate at a public magnitude; errors as of :func:`make_grid`."""
    if not MIN_BOUND <= sensitivity <= MAX_BOUND:
        raise refusal("sensitivity", sensitivity, f"between {MIN_BOUND} and {MAX_BOUND}")

    def grid_of(step: float) -> EventGrid | None:
        steps = math.ceil(Fraction(sensitivity) / Fraction(step))
        scale = Fraction(steps) / Fraction(epsilon)
        most = min(MAX_STEPS, math.floor((MAX_TOTAL - 2 * HEADROOM * scale) / max_range))
        if scale > MAX_SCALE or scale < MIN_SCALE or most < steps:
            return None
        return EventGrid(most * step, step, most, sensitivity)

    if resolution is not None:
        step = validation.positive("resolution", resolution)
        grid = grid_of(step) if math.frexp(step)[0] == 0.5 and MIN_BOUND <= step <= sensitivity else None
        if grid is None:
            raise ParameterError(
                f"resolution = {resolution!r}: expected a power of two up to the sensitivity, {sensitivity!r}, for "
                f"which sums of {max_range} values and their noise (epsilon = {epsilon!r}) fit 64-bit integers"
            )
        return grid
    # The largest power of two that splits sensitivity and noise scale into 2^10 steps, or a coarser one if noise
    # exceeds 2^40.
    finest = 2.0 ** (math.frexp(sensitivity * min(1.0, 1.0 / epsilon) / EVENT_STEPS)[1] - 1)
    while finest <= sensitivity and (sensitivity / finest) / epsilon > QUICK_SCALE:
        finest *= 2.0
    grid = grid_of(finest) if MIN_BOUND <= finest <= sensitivity else None
    if grid is None:
        raise ParameterError(
            f"epsilon = {epsilon!r}: with sensitivity = {sensitivity!r} and max_range = {max_range} no grid fits "
            "64-bit integers; expected an epsilon nearer to 1 or a smaller max_range"
        )
    return grid
