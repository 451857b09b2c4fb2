"""Planning before any data: the width of a window's interval, and the epsilon for a wanted width."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import get_args

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.guarantee import zcdp_loss
from fastdp.noise.draws import NoiseName, better_noise, checked_noise, l2_square, sigma_above
from fastdp.record import Checked, Kind, Real, Whole, parameter, record
from fastdp.releases.intervals import DrawnNoise, checked_confidence

#: Grid steps of the bound, as a release chooses them by default.
STEPS = 2**32
#: Seconds of the units whose length is fixed.
UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
LONGER = {"day": 86_400, "week": 604_800}


@record
class Plan:
    """Widths of intervals at an epsilon (:func:`plan`); ``print`` shows it as a few lines.

    Parameters
    ----------
    epsilon : float
        Privacy loss of one unit.
    bound : float
        Largest value of one row, in units of the input.
    contributions : int
        Rows of one unit.
    confidence : float
        Confidence of the intervals.
    every : str or None
        Length of a window.
    rows_per_window : float or None
        Rows expected in a window.
    mean : float or None
        Value expected of a row, in units of the input.
    delta : float
        Delta beside epsilon; 0 for pure epsilon.
    per_window : int or None
        Rows of one unit that count in one window.

    Examples
    --------
    >>> import fastdp
    >>> found = fastdp.plan(epsilon=1.0, bound=10.0, every="1h")
    >>> round(found.half_width, 2), round(found.epsilon_for(15.0), 2)
    (29.96, 2.0)
    """

    epsilon: float = parameter(Real(above=0.0))
    bound: float = parameter(Real(above=0.0))
    contributions: int = parameter(Whole(1, 2**20), default=1)
    confidence: float = parameter(Checked(lambda _, value: checked_confidence(value)), default=0.95)
    every: str | None = parameter(Kind(), default=None)
    rows_per_window: float | None = parameter(Real(above=0.0), default=None)
    mean: float | None = parameter(Real(above=0.0), default=None)
    delta: float = parameter(Real(least=0.0, below=1.0), default=0.0)
    per_window: int | None = parameter(Whole(1, 2**20), default=None)

    def _check(self) -> None:
        if self.every is not None and not isinstance(self.every, str):
            raise ParameterError(
                f"every = {validation.shown(self.every)}: expected the length of a window, such as '1h'"
            )

    @property
    def noise(self) -> NoiseName:
        """Noise of smaller variance at this guarantee; "gaussian" only with a delta."""
        if not self.delta:
            return "laplace"
        return better_noise(self.epsilon, self.delta, self.contributions, self.per_window)

    @cached_property
    def _noise(self) -> DrawnNoise:
        return self._draw(self.noise)

    def _draw(self, noise: NoiseName) -> DrawnNoise:
        """Distribution of one draw with this noise, in steps of the bound."""
        if noise == "laplace":
            return DrawnNoise(Fraction(self.contributions * STEPS) / Fraction(self.epsilon))
        square = l2_square(self.contributions, self.per_window) * STEPS**2
        return DrawnNoise(sigma_above(square, zcdp_loss(self.epsilon, self.delta)), gaussian=True)

    def half_width_of(self, windows: int) -> float:
        """Half-width of the interval of a sum over `windows` windows, in units of the input."""
        windows = validation.integer("windows", windows, 0, 2**40)
        steps = self._noise.quantiles(np.array([windows]), self.confidence)[0]
        return float(steps) / STEPS * self.bound

    @property
    def half_width(self) -> float:
        """Half-width of a window's interval, in units of the input."""
        return self.half_width_of(1)

    @property
    def std_error(self) -> float:
        """Standard deviation of a window's noise, in units of the input."""
        return self.std_error_with(self.noise)

    def std_error_with(self, noise: NoiseName) -> float:
        """Standard deviation with this noise, in units of the input; "gaussian" needs a delta."""
        return math.sqrt(self._draw(checked_noise(noise)).variance) / STEPS * self.bound

    @property
    def relative_error(self) -> float | None:
        """Half-width divided by the expected total of a window; None without ``rows_per_window`` and ``mean``."""
        if self.rows_per_window is None or self.mean is None:
            return None
        return self.half_width / (self.rows_per_window * self.mean)

    def epsilon_for(self, half_width: float) -> float:
        """Epsilon at which a window's interval has this half-width."""
        wanted = validation.positive("half_width", half_width)
        if self.delta:
            return self._epsilon_at_delta(wanted)
        return -math.log1p(-self.confidence) * self.contributions * self.bound / wanted

    def _epsilon_at_delta(self, wanted: float) -> float:
        """Epsilon for a half-width, by bisection: widths fall as epsilon rises."""
        low, high = 2.0**-20, 2.0**20
        for _ in range(60):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if replace(self, epsilon=middle).half_width > wanted else (low, middle)
        return high

    def __str__(self) -> str:
        level = f"{100.0 * self.confidence:g} %"
        rows = f", {self.contributions} rows a unit" if self.contributions > 1 else ""
        window = "A window" if self.every is None else f"A window of {self.every}"
        lines = [
            f"epsilon = {self.epsilon:.4g}, bound = {self.bound:g}{rows}",
            f"{window}: total +- {self.half_width:.4g} ({level}), standard error {self.std_error:.4g}",
        ]
        if self.rows_per_window is not None:
            share = self.half_width / self.rows_per_window
            lines.append(f"Mean of {self.rows_per_window:g} rows: +- {share:.4g}")
        if self.relative_error is not None:
            total = f"{self.rows_per_window:g} rows of {self.mean:g}"
            lines.append(f"Relative to {total}: +- {100.0 * self.relative_error:.3g} %")
        lines += [
            f"A {name} of {count} windows: total +- {self.half_width_of(count):.4g}" for name, count in self._longer()
        ]
        if self.delta:
            each = {noise: self.std_error_with(noise) for noise in get_args(NoiseName)}
            lines.append(
                f"{self.noise.capitalize()} noise is better: standard errors {each['laplace']:.4g} (Laplace, "
                f"delta = 0) and {each['gaussian']:.4g} (Gaussian, delta = {self.delta:g})"
            )
        lines.append(f"Half of that width needs epsilon = {self.epsilon_for(self.half_width / 2.0):.4g}")
        return "\n".join(lines)

    def _longer(self) -> list[tuple[str, int]]:
        """Names of day and week, each with its number of windows, where that is an integer above 1."""
        found = re.fullmatch(r"(\d*)([a-z]+)", self.every or "")
        if not found or found[2] not in UNITS:
            return []
        seconds = int(found[1] or 1) * UNITS[found[2]]
        whole = ((name, *divmod(length, seconds)) for name, length in LONGER.items() if seconds)
        return [(name, count) for name, count, rest in whole if count > 1 and not rest]


@validation.plain
def plan(
    *,
    epsilon: float | None = None,
    bound: float,
    every: str | None = None,
    rows_per_window: float | None = None,
    mean: float | None = None,
    half_width: float | None = None,
    confidence: float = 0.95,
    contributions: int = 1,
    per_window: int | None = None,
    delta: float = 0.0,
) -> Plan:
    """How accurate the totals of windows will be; reads no data and costs no epsilon.

    Parameters
    ----------
    epsilon : float, optional
        Privacy loss of one unit (a row, or a person with ``contributions`` rows).
    bound : float
        Largest value of one row (or the clip), in units of the input; 1 for counts.
    every : str, optional
        Length of a window, such as ``"15min"`` or ``"1h"``; sums over a day and a week are then shown as well.
    rows_per_window, mean : float, optional
        Rows expected in a window and the value expected of a row, for the relative error: guesses, or public numbers.
    half_width : float, optional
        The wanted half-width of an interval, in place of ``epsilon``, which is then computed.
    confidence : float
        Of the intervals, above 0, at most 1 - 10^-9.
    contributions : int
        Rows of one unit.
    per_window : int, optional
        Rows of a person that count in one window, as for :func:`fastdp.totals`.
    delta : float
        Above 0: plan with the better of Laplace noise, which needs no delta, and Gaussian noise, whose scale grows
        with the root of the windows that a unit is in, as a release with this ``delta`` does.

    Returns
    -------
    Plan
        ``print`` it; attributes ``epsilon``, ``half_width``, ``std_error``, ``relative_error``, ``noise``, methods
        ``epsilon_for(half_width)`` and ``std_error_with(noise)``.

    Raises
    ------
    ParameterError
        If an argument is out of range, or not exactly one of ``epsilon`` and ``half_width`` is given.

    Notes
    -----
    A window's total has one discrete Laplace draw of scale contributions * bound / epsilon, or one discrete Gaussian
    draw. Not included are the error of clipping, and the shares of epsilon for choosing a clip (at most a tenth) and
    for reporting the clipped amount (a hundredth or two).

    Examples
    --------
    >>> import fastdp
    >>> print(fastdp.plan(epsilon=1.0, bound=10.0, every="1h", rows_per_window=400, mean=0.4))
    epsilon = 1, bound = 10
    A window of 1h: total +- 29.96 (95 %), standard error 14.14
    Mean of 400 rows: +- 0.07489
    Relative to 400 rows of 0.4: +- 18.7 %
    A day of 24 windows: total +- 136.4
    A week of 168 windows: total +- 359.5
    Half of that width needs epsilon = 2
    """
    if (epsilon is None) == (half_width is None):
        raise ParameterError(
            f"epsilon = {validation.shown(epsilon)}, half_width = {validation.shown(half_width)}: expected one of "
            "the two, the other follows from it"
        )
    options = (contributions, confidence, every, rows_per_window, mean, delta, per_window)
    made = Plan(1.0 if epsilon is None else epsilon, bound, *options)
    return made if half_width is None else replace(made, epsilon=made.epsilon_for(half_width))
