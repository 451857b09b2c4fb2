"""Mechanisms of the local model (ToPL Appendix E)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.data import column as columns
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import CONTEXT, Guarantee, exp_below, pure
from fastdp.kinds import Array, Floats, Integers, NumberColumn
from fastdp.local.reports import (
    WORDS,
    BitDistribution,
    Estimator,
    MixtureDistribution,
    ReportDistribution,
    WindowDistribution,
    Words,
    bit_distribution,
    window_distribution,
)
from fastdp.noise.canonical import encode, identity
from fastdp.record import Real, parameter, record

if TYPE_CHECKING:
    from fastdp.local.distribution import Distribution, EstimateOptions, Method
    from fastdp.noise.key import Key


class WordOptions(TypedDict, total=False):
    """Options of :meth:`Mechanism.perturb` for random words."""

    seed: int | str | None
    key: Key | bytes | None
    stream: int
    start: int | None


#: Accepted epsilon of a report.
LOCAL_EPSILON = Real(least=1e-6, most=32.0)
#: Widths whose squares, times the largest variance, are ordinary floats.
MIN_WIDTH, MAX_WIDTH = 1e-140, 1e140
#: Up to so many values plain Python is fast enough, and a client loads no compiler.
SMALL_COUNT = 64


@record
class Mechanism(ABC):
    """Turns one value into one private report.

    Parameters
    ----------
    epsilon : float
        Privacy loss of one report, in [1e-6, 32].
    low, high : float
        Public domain; values are clipped to it.  high - low is in [1e-140, 1e140].
    """

    #: D: the grid has STEPS + 1 points.
    STEPS: ClassVar[int] = 2**20
    #: Words of values and words of thresholds never meet: the level of their streams.
    WORD_LEVEL: ClassVar[int] = 0

    epsilon: float = parameter(LOCAL_EPSILON)
    low: float = parameter(Real(), default=-1.0)
    high: float = parameter(Real(), default=1.0)

    def _check(self) -> None:
        if not MIN_WIDTH <= self.high - self.low <= MAX_WIDTH:
            raise ParameterError(
                f"high = {self.high!r}: expected a number above low = {self.low!r}, "
                f"by at least {MIN_WIDTH:g} and at most {MAX_WIDTH:g}"
            )

    @property
    @abstractmethod
    def distribution(self) -> ReportDistribution:
        """Distribution of a report."""

    @property
    def _step_of_proof(self) -> str:
        return self.distribution.PROOF

    @cached_property
    def _words(self) -> bytes:
        return encode(identity(self))

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon-DP of one report; void with a ``seed``."""
        proof = "one report a value: each depends on its own value and on one random word of its own"
        return replace(pure(self.epsilon, f"{type(self).__name__}: {self._step_of_proof}", proof), model="local")

    @property
    def n_outputs(self) -> int:
        """Number of possible reports."""
        return self.distribution.outputs

    @overload
    def steps_of(self, values: float) -> int: ...
    @overload
    def steps_of(self, values: NumberColumn) -> NDArray[np.int32]: ...
    def steps_of(self, values: object) -> int | NDArray[np.int32]:
        """Grid steps rint((v - low) STEPS / (high - low)) after clipping; errors as of :meth:`perturb`."""
        if columns.is_number(values):
            return self._step(values, "values")
        column = columns.as_column(values, "values")
        if column.size <= SMALL_COUNT:
            return np.array(self._few_steps(column), np.int32)
        out: NDArray[np.int32] = np.empty(column.size, np.int32)
        for begin, piece in columns.pieces(column):
            self._snap(piece, begin, out[begin : begin + piece.size])
        return out

    @overload
    def perturb(self, values: float, **word: Unpack[WordOptions]) -> int: ...
    @overload
    def perturb(self, values: NumberColumn, **word: Unpack[WordOptions]) -> NDArray[np.int32]: ...
    def perturb(
        self,
        values: object,
        *,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
        stream: int = 0,
        start: int | None = None,
    ) -> int | NDArray[np.int32]:
        """Return a private report of each value, on the client: int or int32[n] in 0..n_outputs - 1.

        Parameters
        ----------
        values : number, or one column of numbers
            In units of the input; clipped to [low, high].
        seed : int or str, optional
            For simulations: reproducible, not private.
        key : Key or 32 bytes, optional
            The client's; by default words are the operating system's.
        stream : int
            Number of the key's stream, below 2^40.
        start : int, optional
            Required with a key: report i uses word start + i of 2^33; use each word once.

        Raises
        ------
        DataError
            If a value is not a finite real number.
        """
        source = Words(seed, key, self.WORD_LEVEL, stream, start, (self._words,))
        if columns.is_number(values):
            x = self._step(values, "values")
            return self.distribution.report(source.few(1)[0], x)
        column = columns.as_column(values, "values")
        if column.size <= SMALL_COUNT:
            steps = self._few_steps(column)
            words = source.few(column.size)
            report = self.distribution.report
            return np.array([report(word, x) for word, x in zip(words, steps, strict=True)], np.int32)
        return self._perturb_column(column, source)

    def _perturb_column(self, column: Array, source: Words) -> NDArray[np.int32]:
        out: NDArray[np.int32] = np.empty(column.size, np.int32)
        begin = 0
        steps: NDArray[np.int32] | None = None
        for words in source.blocks(column.size):
            steps = np.empty(words.size, np.int32) if steps is None else steps[: words.size]
            self._snap(columns.as_floats(column[begin : begin + words.size]), begin, steps)
            self.distribution.fill(words, steps, out[begin : begin + words.size])
            begin += words.size
        return out

    @property
    def _steps_per_unit(self) -> float:
        return self.STEPS / (self.high - self.low)

    def _step(self, value: Any, name: str) -> int:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise DataError(f"{name}: {columns.NOT_FINITE}; expected a finite one")
        return self._grid_step(number)

    def _grid_step(self, number: float) -> int:
        return round(min(max((number - self.low) * self._steps_per_unit, 0.0), float(self.STEPS)))

    def _few_steps(self, column: Array) -> list[int]:
        floats = columns.as_floats(column).tolist()
        return [self._step(value, f"values[{i}]") for i, value in enumerate(floats)]

    def _snap(self, floats: Floats, begin: int, out: NDArray[np.int32]) -> None:
        if self._grid_steps(floats, out):
            first = int(np.flatnonzero(~np.isfinite(floats))[0])
            raise DataError(f"values[{begin + first}]: {columns.NOT_FINITE}; expected finite ones")

    def _grid_steps(self, floats: Floats, out: NDArray[np.int32]) -> bool:
        from fastdp_kernels.local import local_reports

        return bool(local_reports.snap_values(floats, self.low, self._steps_per_unit, self.STEPS, out))

    def check_reports(self, reports: object) -> NDArray[np.int32] | Integers:
        """`reports` as integers in 0..n_outputs - 1; else DataError."""
        column = columns.as_column(reports, "reports")
        if column.size and column.dtype.kind not in "iub":
            raise DataError(f"reports holds {columns.kind_of(column.dtype)} entries: expected whole numbers")
        if column.size and not 0 <= column.min() <= column.max() < self.n_outputs:
            entry = columns.entry_at("reports", (column < 0) | (column >= self.n_outputs), "out of range")
            raise DataError(f"{entry}; expected whole numbers in 0..{self.n_outputs - 1}")
        # Results of perturb() are not converted.
        checked: Integers = np.ascontiguousarray(column, np.int32 if column.dtype == np.int32 else np.int64)
        return checked


@record
class MeanMechanism(Mechanism):
    """Makes reports with unbiased estimates."""

    @overload
    def estimate(self, reports: int) -> float: ...
    @overload
    def estimate(self, reports: NumberColumn) -> Floats: ...
    def estimate(self, reports: object) -> float | Floats:
        """Unbiased estimates of the clipped values: float or float64[n]."""
        single = columns.is_number(reports)
        estimates = self._estimator(self.check_reports([reports] if single else reports))
        return float(estimates[0]) if single else estimates

    @cached_property
    def _estimator(self) -> Estimator:
        return Estimator.of(self.distribution.terms(), self.low, Fraction(self.high - self.low) / self.STEPS)

    @overload
    def variance(self, values: float) -> float: ...
    @overload
    def variance(self, values: NumberColumn) -> Floats: ...
    def variance(self, values: float | NumberColumn) -> float | Floats:
        """Variance of an estimate at each value."""
        constant, slope, curvature = self._quadratic
        position = 2.0 * np.asarray(self.steps_of(values), np.float64) / self.STEPS - 1.0
        variances = constant + position * (slope + curvature * position)
        return float(variances) if columns.is_number(values) else variances

    @cached_property
    def worst_variance(self) -> float:
        """Largest variance over the domain."""
        constant, slope, curvature = self._quadratic
        positions = [-1.0, 1.0]
        if curvature < 0.0:
            positions.append(min(max(-slope / (2.0 * curvature), -1.0), 1.0))
        return max(constant + t * (slope + curvature * t) for t in positions)

    @cached_property
    def _quadratic(self) -> tuple[float, float, float]:
        unit = Fraction(self.high - self.low) / self.STEPS
        ends = (Fraction(0), Fraction(self.STEPS, 2), Fraction(self.STEPS))
        left, middle, right = (self.distribution.variance_at(x) * unit**2 for x in ends)
        return float(middle), float((right - left) / 2), float((left + right) / 2 - middle)


def closeness(epsilon: float) -> Decimal:
    """Half the window's length on [0, 1]: b = (eps e^eps - e^eps + 1) / (2 e^eps (e^eps - 1 - eps))."""
    # In decimals, because differences cancel.
    with localcontext(CONTEXT):
        eps = Decimal(epsilon)
        power = eps.exp()
        return (eps * power - power + 1) / (2 * power * (power - 1 - eps))


@record
class SquareWave(Mechanism):
    """Prefers reports close to the value, e^epsilon times likelier than others (ToPL Appendix E.1).

    Parameters
    ----------
    epsilon, low, high
        As for :class:`Mechanism`.

    Notes
    -----
    The window has 2 w + 1 grid steps, w = rint(b STEPS), b of :func:`closeness`.  Report j stands for low + (high -
    low) (j - w) / STEPS, which is biased.

    Examples
    --------
    >>> from fastdp.local import SquareWave
    >>> mechanism = SquareWave(1.0, 0.0, 44.0)
    >>> reports = mechanism.perturb([12.5, 3.0])
    >>> bool((reports < mechanism.n_outputs).all())
    True
    """

    WORD_LEVEL: ClassVar[int] = 1
    rule: ClassVar[int] = 1

    low: float = parameter(Real(), default=0.0)

    @cached_property
    def distribution(self) -> WindowDistribution:
        half = round(CONTEXT.multiply(closeness(self.epsilon), Decimal(self.STEPS)))
        return window_distribution(self.epsilon, 2 * half + 1, self.STEPS)

    def estimate(self, reports: NumberColumn, bins: int = 1024, method: Method = "em") -> Distribution:
        """Estimate the distribution of values by expectation maximisation, on the server.

        Parameters
        ----------
        reports : one column of integers
            From :meth:`perturb` of an equal mechanism; DataError if out of range.
        bins : int
            Cells of equal width over [low, high].
        method : "em" or "ems"
            Without or with binomial smoothing.
        """
        counts = np.bincount(self.check_reports(reports), minlength=self.n_outputs)
        return self.estimate_counts(counts, bins, method)

    def estimate_counts(
        self, counts: NumberColumn, bins: int = 1024, method: Method = "em", **options: Unpack[EstimateOptions]
    ) -> Distribution:
        """Estimate from counts; options as of :func:`fastdp.local.distribution.estimate`."""
        from fastdp.local.distribution import estimate

        distribution, low, high = self.distribution, self.low, self.high
        return estimate(distribution, self.epsilon, counts, bins=bins, method=method, low=low, high=high, **options)


def octave(ratio: float) -> float:
    """Position e + (x / 2^e - 1) of a ratio x in [2^e, 2^(e + 1)), 0 below 1."""
    mantissa, exponent = math.frexp(max(ratio, 1.0))
    return (exponent - 1) + (2.0 * mantissa - 1.0)


def octaves(ratios: Floats) -> Floats:
    """:func:`octave` of ratios, float64[n]; NaN stays NaN."""
    mantissas, exponents = np.frexp(np.maximum(ratios, 1.0))
    return (exponents - 1) + (2.0 * mantissas - 1.0)


def ratios_at(at: Floats) -> Floats:
    """Inverse of :func:`octaves` from 0 on."""
    floor = np.floor(at)
    return np.ldexp(1.0 + (at - floor), floor.astype(np.int64))


MAX_OCTAVES = 256


@record
class LogSquareWave(SquareWave):
    """Reports a value's position on a logarithmic scale by :class:`SquareWave`.

    Parameters
    ----------
    epsilon
        As for :class:`Mechanism`.
    low, high : float
        Public domain, 0 < 2 low <= high <= 2^256 low.

    Notes
    -----
    Value v has the grid step rint(STEPS p(v / low) / p(high / low)), p of :func:`fastdp.local.mechanisms.octave`.
    Privacy: as :class:`SquareWave`.

    Examples
    --------
    >>> from fastdp.local import LogSquareWave
    >>> mechanism = LogSquareWave(1.0, 1.0, 16.0)
    >>> mechanism.steps_of([1.0, 2.0, 4.0, 16.0]) / mechanism.STEPS
    array([0.  , 0.25, 0.5 , 1.  ])
    """

    rule: ClassVar[int] = 1

    low: float = parameter(Real(), default=1.0 / 2**14)

    def _check(self) -> None:
        super()._check()
        if not 0.0 < self.low * 2.0 <= self.high <= self.low * 2.0**MAX_OCTAVES:
            raise ParameterError(
                f"low = {validation.shown(self.low)}: expected a number above 0, at most high / 2 and at least "
                f"high / 2^{MAX_OCTAVES}, for high = {self.high!r}"
            )

    @property
    def _steps_per_octave(self) -> float:
        return self.STEPS / octave(self.high / self.low)

    def _grid_step(self, number: float) -> int:
        return round(octave(min(number, self.high) / self.low) * self._steps_per_octave)

    def _grid_steps(self, floats: Floats, out: NDArray[np.int32]) -> bool:
        if not np.isfinite(floats).all():
            return True
        at = octaves(np.minimum(floats, self.high) / self.low)
        out[...] = np.rint(at * self._steps_per_octave)
        return False

    def estimate_counts(
        self, counts: NumberColumn, bins: int = 56, method: Method = "em", **options: Unpack[EstimateOptions]
    ) -> Distribution:
        """Estimate on the logarithmic scale."""
        return replace(super().estimate_counts(counts, bins, method, **options), scale="logarithmic")


@record
class StochasticRounding(MeanMechanism):
    """Reports a bit that is 1 with a probability linear in the value (ToPL Appendix E.2; Duchi et al. 2018).

    Parameters
    ----------
    epsilon, low, high
        As for :class:`Mechanism`.  On [-1, 1] the variance is ((e^eps + 1) / (e^eps - 1))^2 - v^2.

    Examples
    --------
    >>> from fastdp.local import StochasticRounding
    >>> mechanism = StochasticRounding(1.0)
    >>> mechanism.perturb(0.5) in (0, 1)
    True
    >>> mechanism.estimate([0, 1]).round(2)
    array([-2.16,  2.16])
    """

    rule: ClassVar[int] = 1

    @cached_property
    def distribution(self) -> BitDistribution:
        return bit_distribution(self.epsilon, self.STEPS)


def piecewise_distribution(epsilon: float, steps: int, total: int) -> WindowDistribution:
    """Window of N = max(1, rint(D e^(-epsilon / 2))) steps."""
    return window_distribution(epsilon, max(1, round(steps / exp_below(epsilon / 2.0))), steps, total)


@record
class Piecewise(MeanMechanism):
    """Prefers reports in a window that moves with the value (ToPL Appendix E.2; Wang et al. 2019).

    Parameters
    ----------
    epsilon, low, high
        As for :class:`Mechanism`.

    Notes
    -----
    On [-1, 1] the variance is v^2 / (E - 1) + (E + 3) / (3 (E - 1)^2), E = e^(eps / 2).

    Examples
    --------
    >>> from fastdp.local import Piecewise
    >>> Piecewise(1.0).variance([-1.0, 0.0, 1.0]).round(1)
    array([5.2, 3.7, 5.2])
    """

    rule: ClassVar[int] = 1

    @cached_property
    def distribution(self) -> WindowDistribution:
        return piecewise_distribution(self.epsilon, self.STEPS, WORDS)


#: Up to this epsilon the piecewise mechanism does not help (Wang et al. 2019, Eq. 8).
ROUNDING_ONLY = 0.61


@record
class Hybrid(MeanMechanism):
    """Mixes :class:`Piecewise` and :class:`StochasticRounding` (ToPL Appendix E.2; Wang et al. 2019).

    Parameters
    ----------
    epsilon, low, high
        As for :class:`Mechanism`.

    Notes
    -----
    Piecewise has share 1 - e^(-eps / 2) above epsilon 0.61, 0 below.  Worst variance on [-1, 1] (ToPL Eq. 14), E =
    e^(eps / 2): ((e^eps + 1) / (e^eps - 1))^2 up to 0.61, 1/E [((e^eps + 1) / (e^eps - 1))^2 + (E + 3) / (3 (E - 1))]
    for every v above.

    Examples
    --------
    >>> from fastdp.local import Hybrid
    >>> mechanism = Hybrid(1.0, 0.0, 44.0)
    >>> mechanism.perturb(12.5) < mechanism.n_outputs
    True
    >>> mechanism.guarantee.epsilon
    1.0
    """

    rule: ClassVar[int] = 1

    @cached_property
    def distribution(self) -> BitDistribution | MixtureDistribution:
        epsilon = self.epsilon
        if epsilon <= ROUNDING_ONLY:
            return bit_distribution(epsilon, self.STEPS)
        first = int(WORDS * (1 - 1 / exp_below(epsilon / 2.0)))
        window = piecewise_distribution(epsilon, self.STEPS, first)
        return MixtureDistribution(window, bit_distribution(epsilon, self.STEPS, WORDS - first))

    @property
    def _step_of_proof(self) -> str:
        proof = self.distribution.PROOF
        return f"stochastic rounding alone: {proof}" if self.epsilon <= ROUNDING_ONLY else proof
