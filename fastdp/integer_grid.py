"""The integer grid on which all that touches data is computed, and the proof that int64 holds it.

Source: ``docs/noise.md``: values are clipped, then rounded to whole multiples of a
public resolution.  Sensitivities are then whole numbers of steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

from fastdp import validation
from fastdp.errors import ParameterError

MAX_STEPS = 2**50
#: The largest scale of noise the sampler takes (see ``docs/noise.md``, section 4).
MAX_SCALE = 2**56
MAX_TOTAL = 2**62
#: What sums of hats must stay below, of which differences are taken.
MAX_DIFFERENCE = 2**63
#: Up to this scale a draw takes one word (``docs/noise.md``, section 4).
QUICK_SCALE = 2**40
MIN_SCALE = Fraction(1, 2**40)
#: 1 / resolution, and the noisy sum of max_range values, are ordinary floats within these.
MIN_BOUND, MAX_BOUND = 1e-250, 1e250
#: A node's noise exceeds this many scales with probability below e^-64.
HEADROOM = 64


@dataclass(frozen=True)
class Grid:
    """Whole multiples of ``resolution`` in [0, bound].

    Parameters
    ----------
    bound : float
        Public upper bound of a value, in units of the input.
    resolution : float
        One step, in units of the input.
    ceiling_steps : int
        The largest threshold, in steps, whose noise provably fits; at least the bound.
    """

    bound: float
    resolution: float
    ceiling_steps: int = 0

    @cached_property
    def bound_steps(self) -> int:
        """The bound in whole steps, at least 1."""
        # As integers: fractions would be reduced at each step.
        (a, b), (c, d) = self.bound.as_integer_ratio(), self.resolution.as_integer_ratio()
        return max(1, a * d // (b * c))

    def snap(self, theta: float) -> int:
        """A threshold in steps: the nearest whole number, at least 1 and at most the bound.

        A threshold above the bound (it only adds noise, and reproduces published figures) stays, up to the ceiling.
        """
        most = self.bound_steps if theta <= self.bound else max(self.bound_steps, self.ceiling_steps)
        if theta >= most * self.resolution:
            return most
        steps = float(theta) / self.resolution if self._exact else Fraction(theta) / Fraction(self.resolution)
        return max(1, round(steps))

    @cached_property
    def _exact(self) -> bool:
        """Whether a quotient of floats is exact: the resolution is a power of two, as by default."""
        return math.frexp(self.resolution)[0] == 0.5


@dataclass(frozen=True)
class EventGrid(Grid):
    """Whole multiples of ``resolution`` in [-bound, bound], of values that an event moves by at most ``sensitivity``.

    Parameters
    ----------
    sensitivity : float
        In units of the input.
    """

    sensitivity: float = 1.0

    def snap(self, theta: float) -> int:
        """The steps that an event moves a rounded value by, at most.

        The resolution is a power of two, so values in steps are exact; rounded with halves up they are moved by at
        most so many steps as the sensitivity has, rounded up.
        """
        del theta
        return math.ceil(Fraction(self.sensitivity) / Fraction(self.resolution))


def _about(number: Fraction | int) -> str:
    """Three digits, or the power of two where floats end."""
    try:
        return f"{float(number):.3g}"
    except OverflowError:
        return f"2^{round(number).bit_length() - 1}"


def _headroom(per_step: Fraction, levels: int, fan_out: int) -> Fraction:
    """Noise of a range, in thresholds: a sum of at most 2 (b - 1) h nodes within HEADROOM scales each."""
    return 2 * (fan_out - 1) * levels * HEADROOM * per_step


def _shortfall(
    grid: Grid, per_step: Fraction, max_range: int, levels: int, fan_out: int, theta: float, reach: int
) -> str | None:
    """Why the grid does not fit int64, or None if it provably does.

    A range of max_range values sums to at most bound * max_range steps.  Its noise is as ``_headroom`` says but for a
    probability below e^-64; consistency only averages such sums.  ``per_step`` is the scale of a node's noise for a
    threshold of one step, levels / epsilon.
    """
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
    hats = grid.snap(theta) * per_step * reach
    if hats >= MAX_DIFFERENCE:
        return f"noise of hats may reach {_about(hats)} steps, less than 2^63 fit"
    return None


def _with_ceiling(grid: Grid, per_step: Fraction, max_range: int, levels: int, fan_out: int, reach: int) -> Grid:
    """Values stay within the bound, so only the noise of a threshold above it must still fit."""
    by_total = (MAX_TOTAL - grid.bound_steps * max_range) / _headroom(per_step, levels, fan_out)
    by_reach = (MAX_DIFFERENCE - 1) // (per_step * reach) if reach else MAX_SCALE // per_step
    return replace(grid, ceiling_steps=min(MAX_SCALE // per_step, math.floor(by_total), by_reach))


def make_grid(
    bound: float,
    resolution: float | None,
    epsilon: float,
    max_range: int,
    levels: int,
    fan_out: int,
    *,
    theta: float = math.inf,
    reach: int = 0,
) -> Grid:
    """The grid for these parameters, proved to fit int64.

    By default the resolution is the largest power of two not above bound * 2^-32 (whole numbers up to
    2^32 stay exact).  Where the noise of so fine a grid would not fit, or would exceed 2^40 steps and so take
    the sampler's slow path, it is doubled until it does not: noise of 2^40 steps drowns the rounding.

    Of hats the noise of a threshold ``theta``, or of the bound if that is less, reaches ``reach`` scales
    (:attr:`fastdp.perturbers.HierarchyShape.reach`).

    Raises
    ------
    ParameterError
        If a resolution given by the user does not fit.
    """
    if not MIN_BOUND <= bound <= MAX_BOUND:
        raise ParameterError(f"bound = {bound!r}: expected between {MIN_BOUND} and {MAX_BOUND}")
    step = None if resolution is None else validation.positive("resolution", resolution)
    # Thetas of boxes need no grid of their own.
    return _proved_grid(
        bound, step, epsilon, max_range, levels, fan_out, min(theta, bound) if reach else bound, reach
    )


@lru_cache(maxsize=256, typed=True)
def _proved_grid(
    bound: float,
    resolution: float | None,
    epsilon: float,
    max_range: int,
    levels: int,
    fan_out: int,
    theta: float,
    reach: int,
) -> Grid:
    per_step = levels / Fraction(epsilon)
    if resolution is not None:
        if resolution > bound:
            raise ParameterError(f"resolution = {resolution!r}: expected at most the bound, {bound!r}")
        grid = Grid(bound, resolution)
        problem = _shortfall(grid, per_step, max_range, levels, fan_out, theta, reach)
        if problem is not None:
            raise ParameterError(
                f"resolution = {resolution!r}: {problem}; expected a coarser resolution "
                f"(bound = {bound!r}, max_range = {max_range}, epsilon = {epsilon!r})"
            )
        return _with_ceiling(grid, per_step, max_range, levels, fan_out, reach)
    step = 2.0 ** (math.frexp(bound)[1] - 1 - 32)
    coarsest: Grid | None = None
    while step <= bound:
        grid = Grid(bound, step)
        fits = _shortfall(grid, per_step, max_range, levels, fan_out, theta, reach) is None
        if fits and grid.bound_steps * per_step <= QUICK_SCALE:
            return _with_ceiling(grid, per_step, max_range, levels, fan_out, reach)
        coarsest = grid if fits else coarsest
        step *= 2.0
    if coarsest is not None:
        return _with_ceiling(coarsest, per_step, max_range, levels, fan_out, reach)
    raise ParameterError(
        f"epsilon = {epsilon!r}: with bound = {bound!r} and max_range = {max_range} no grid fits 64-bit "
        "integers; expected a larger epsilon or a smaller max_range"
        if epsilon < 1.0
        else f"epsilon = {epsilon!r}: expected a smaller epsilon, noise below 2^-40 steps cannot be drawn"
    )


#: Steps that a sensitivity, and the scale of its noise, have at least.
EVENT_STEPS = 2**10


def make_event_grid(sensitivity: float, resolution: float | None, epsilon: float, max_range: int) -> EventGrid:
    """The grid of values without a bound, proved to fit int64: a public magnitude beyond which values saturate.

    A block's sum is within bound * max_range steps and its noise within 64 scales, but for a probability below e^-64.
    By default the resolution is the largest power of two of which the sensitivity, and the scale of the noise, have
    2^10, or a coarser one where noise would exceed 2^40 steps.

    Raises
    ------
    ParameterError
        If a resolution given by the user is no power of two or does not fit.
    """
    if not MIN_BOUND <= sensitivity <= MAX_BOUND:
        raise ParameterError(f"sensitivity = {sensitivity!r}: expected between {MIN_BOUND} and {MAX_BOUND}")

    def grid_of(step: float) -> EventGrid | None:
        steps = math.ceil(Fraction(sensitivity) / Fraction(step))
        scale = Fraction(steps) / Fraction(epsilon)
        most = min(MAX_STEPS, math.floor((MAX_TOTAL - 2 * HEADROOM * scale) / max_range))
        if scale > MAX_SCALE or scale < MIN_SCALE or most < steps:
            return None
        return EventGrid(most * step, step, most, sensitivity)

    if resolution is not None:
        step = validation.positive("resolution", resolution)
        found = grid_of(step) if math.frexp(step)[0] == 0.5 and MIN_BOUND <= step <= sensitivity else None
        if found is None:
            raise ParameterError(
                f"resolution = {resolution!r}: expected a power of two up to the sensitivity, {sensitivity!r}, for "
                f"which sums of {max_range} values and their noise (epsilon = {epsilon!r}) fit 64-bit integers"
            )
        return found
    finest = 2.0 ** (math.frexp(sensitivity * min(1.0, 1.0 / epsilon) / EVENT_STEPS)[1] - 1)
    while finest <= sensitivity and (sensitivity / finest) / epsilon > QUICK_SCALE:
        finest *= 2.0
    found = grid_of(finest) if MIN_BOUND <= finest <= sensitivity else None
    if found is None:
        raise ParameterError(
            f"epsilon = {epsilon!r}: with sensitivity = {sensitivity!r} and max_range = {max_range} no grid fits "
            "64-bit integers; expected an epsilon nearer to 1 or a smaller max_range"
        )
    return found
