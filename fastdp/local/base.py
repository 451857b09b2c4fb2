"""What the mechanisms of the local model share: a domain on an integer grid, reports, and estimates.

A value is clipped to [low, high] and rounded to one of STEPS + 1 grid steps; a law in integers (``laws.py``)
turns the step and one random word into one report.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.data import column as columns
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats, Integers
from fastdp.local.laws import Estimator, Law, estimator
from fastdp.noise.canonical import encode, identity

if TYPE_CHECKING:
    from fastdp.noise.key import Key

WORD_BYTES = 8
MAX_STREAMS = 2**40
#: Words of one stream; those that follow are another stream's.
MAX_START = 2**33


class WordOptions(TypedDict, total=False):
    """Which random words a call of :meth:`Mechanism.perturb` takes."""

    seed: int | str | None
    key: Key | bytes | None
    stream: int
    start: int | None


@dataclass(frozen=True)
class Words:
    """Words of one call: report i uses word ``start + i`` of a stream.

    Parameters
    ----------
    seed, key
        A simulation's seed, or a key; None for fresh words.
    level : int
        Separates the streams of different mechanisms.
    stream, start : int
        Number of the stream and position in it; a key needs the position.  A stream has 2^33 words.
    of : labels
        What reports depend on besides: words belong to one mechanism with its parameters.
    """

    seed: int | str | None
    key: Key | bytes | None
    level: int
    stream: int
    start: int | None
    of: tuple[str | int | bytes, ...] = ()

    def __post_init__(self) -> None:
        """Check the parameters."""
        validation.integer("stream", self.stream, 0, MAX_STREAMS - 1)
        if self.start is not None:
            validation.integer("start", self.start, 0, MAX_START)
        elif self.key is not None and self.seed is None:
            raise ParameterError(
                "start = None: expected the position of the first unused word, because a key is given"
            )

    def _check_end(self, count: int) -> None:
        if (self.start or 0) + count > MAX_START:
            raise ParameterError(
                f"start = {self.start}: expected at most {MAX_START - count} for {count} reports, "
                f"because a stream has {MAX_START} words"
            )

    def few(self, count: int) -> list[int]:
        """A few words as Python integers; without seed or key they need neither cipher nor compiler."""
        self._check_end(count)
        if self.seed is None and self.key is None:
            raw = os.urandom(WORD_BYTES * count)
            return [int.from_bytes(raw[i : i + WORD_BYTES], "little") for i in range(0, len(raw), WORD_BYTES)]
        return [int(word) for block in self.blocks(count) for word in block]

    def blocks(self, count: int) -> Iterator[NDArray[np.uint64]]:
        """The words block by block; each block overwrites the one before."""
        from fastdp.noise.key import Key

        self._check_end(count)
        from fastdp.noise.words import CHUNK, Purpose, StreamId, WordStream

        stream = StreamId(Purpose.LOCAL, self.level, self.stream)
        key = Key.choose(self.seed, self.key).within(*self.of)
        source = WordStream(key, stream, self.start or 0)
        words: NDArray[np.uint64] = np.empty(min(CHUNK, count), np.uint64)
        for begin in range(0, count, CHUNK):
            part = words[: min(CHUNK, count - begin)]
            source.fill(part)
            yield part


MIN_EPSILON, MAX_EPSILON = 1e-6, 32.0
#: Widths whose squares, times the largest variance, are ordinary floats.
MIN_WIDTH, MAX_WIDTH = 1e-140, 1e140
#: Up to so many values plain Python is quick enough, and a client loads no compiler.
SMALL_COUNT = 64


def local_epsilon(name: str, value: object) -> float:
    """An epsilon that mechanisms of the local model accept."""
    epsilon = validation.positive(name, value)
    if not MIN_EPSILON <= epsilon <= MAX_EPSILON:
        raise ParameterError(
            f"{name} = {value!r}: expected a number of at least {MIN_EPSILON:g} and at most {MAX_EPSILON:g}"
        )
    return epsilon


@dataclass(frozen=True)
class Mechanism(ABC):
    """One value in, one private report out.

    Parameters
    ----------
    epsilon : float
        Privacy loss of one report, in [1e-6, 32].
    low, high : float
        The public domain, in units of the input; values outside are clipped.  high - low in [1e-140, 1e140].

    Attributes
    ----------
    law : Law
        The law of a report, in integers, over the grid steps 0..STEPS.

    Raises
    ------
    ParameterError
        Naming the argument, its value and what is accepted.
    """

    #: D: the grid has STEPS + 1 points.
    STEPS: ClassVar[int] = 2**20
    #: Words of values and words of thresholds never meet: the level of their streams.
    WORDS: ClassVar[int] = 0

    epsilon: float
    low: float = -1.0
    high: float = 1.0
    law: Law = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the parameters and compute the law."""
        epsilon = local_epsilon("epsilon", self.epsilon)
        low, high = validation.real("low", self.low), validation.real("high", self.high)
        if not MIN_WIDTH <= high - low <= MAX_WIDTH:
            raise ParameterError(
                f"high = {self.high!r}: expected a number above low = {self.low!r}, "
                f"by at least {MIN_WIDTH:g} and at most {MAX_WIDTH:g}"
            )
        for name, value in (("epsilon", epsilon), ("low", low), ("high", high), ("law", self._make_law(epsilon))):
            object.__setattr__(self, name, value)

    @classmethod
    @abstractmethod
    def _make_law(cls, epsilon: float) -> Law: ...

    @property
    def _step_of_proof(self) -> str:
        """Why the law is epsilon-DP, in one line."""
        return self.law.PROOF

    @cached_property
    def _words(self) -> bytes:
        """What the words of reports belong to: the mechanism with its parameters."""
        return encode(identity(self))

    @property
    def guarantee(self) -> Guarantee:
        """Pure epsilon-DP of one report in the local model, proved for the integers that the machine computes.

        It presumes secret random words: with ``seed`` a report is a simulation and protects nothing.
        """
        own_word = "one report a value: each depends on its own value and on one random word of its own"
        derivation = (f"{type(self).__name__}: {self._step_of_proof}", own_word)
        return Guarantee(epsilon=self.epsilon, model="local", arithmetic="exact", derivation=derivation)

    @property
    def n_outputs(self) -> int:
        """Number of possible reports: 0, ..., n_outputs - 1."""
        return self.law.outputs

    @property
    def total_weight(self) -> int:
        """Number of words; P[report | x] = weight(x, report) / total_weight."""
        return self.law.total

    def weight(self, x: int, output: int) -> int:
        """How many random words turn grid step x into this report (both whole numbers)."""
        x = validation.integer("x", x, 0, self.STEPS)
        return self.law.weight(x, validation.integer("output", output, 0, self.n_outputs - 1))

    @overload
    def steps_of(self, values: float) -> int: ...
    @overload
    def steps_of(self, values: Any) -> NDArray[np.int32]: ...
    def steps_of(self, values: Any) -> int | NDArray[np.int32]:
        """Grid steps x = rint((v - low) STEPS / (high - low)) after clipping; errors as :meth:`perturb`."""
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
    def perturb(self, values: Any, **word: Unpack[WordOptions]) -> NDArray[np.int32]: ...
    def perturb(
        self,
        values: Any,
        *,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
        stream: int = 0,
        start: int | None = None,
    ) -> int | NDArray[np.int32]:
        """A private report of each value; the client's side.

        Parameters
        ----------
        values : number, or one column of numbers (list, NumPy, pandas, polars, Arrow)
            In units of the input; clipped to [low, high] and rounded to the grid.
        seed : int or str, optional
            For simulations: reproducible, and not private.
        key : Key or 32 bytes, optional
            The client's own secret.  By default words are fresh from the operating system (a fresh key for more than
            64 values).
        stream : int
            With a key: the number of the stream, below 2^40.
        start : int, optional
            Report i uses word start + i of the stream, which has 2^33 words.  A key of your own needs it: use each
            word once, because two reports by one word are not independent, and together they do not have this
            guarantee.

        Returns
        -------
        int or int32[n]
            Reports in 0..n_outputs - 1, the same whether values come one by one or in arrays.

        Raises
        ------
        DataError
            If a value is NaN or infinite (the message names its index), or this is no column of real numbers.
        ParameterError
            If seed, key, stream or start are not accepted.
        """
        source = Words(seed, key, self.WORDS, stream, start, (self._words,))
        if columns.is_number(values):
            x = self._step(values, "values")
            return self.law.report(source.few(1)[0], x)
        column = columns.as_column(values, "values")
        if column.size <= SMALL_COUNT:
            steps = self._few_steps(column)
            words = source.few(column.size)
            return np.array([self.law.report(word, x) for word, x in zip(words, steps, strict=True)], np.int32)
        return self._perturb_column(column, source)

    def _perturb_column(self, column: NDArray[Any], source: Words) -> NDArray[np.int32]:
        """Block by block, so that words and steps stay in the cache."""
        out: NDArray[np.int32] = np.empty(column.size, np.int32)
        begin = 0
        steps: NDArray[np.int32] | None = None
        for words in source.blocks(column.size):
            steps = np.empty(words.size, np.int32) if steps is None else steps[: words.size]
            self._snap(columns.as_floats(column[begin : begin + words.size]), begin, steps)
            self.law.fill(words, steps, out[begin : begin + words.size])
            begin += words.size
        return out

    @property
    def _steps_per_unit(self) -> float:
        return self.STEPS / (self.high - self.low)

    def _step(self, value: Any, name: str) -> int:
        """The grid step of one value."""
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise DataError(f"{name}: {columns.NOT_FINITE}; expected a finite one")
        return self._place(number)

    def _place(self, number: float) -> int:
        """One finite number in plain Python, the same arithmetic as for arrays."""
        return round(min(max((number - self.low) * self._steps_per_unit, 0.0), float(self.STEPS)))

    def _few_steps(self, column: NDArray[Any]) -> list[int]:
        floats = columns.as_floats(column).tolist()
        return [self._step(value, f"values[{i}]") for i, value in enumerate(floats)]

    def _snap(self, floats: Floats, begin: int, out: NDArray[np.int32]) -> None:
        if self._place_all(floats, out):
            first = int(np.flatnonzero(~np.isfinite(floats))[0])
            raise DataError(f"values[{begin + first}]: {columns.NOT_FINITE}; expected finite ones")

    def _place_all(self, floats: Floats, out: NDArray[np.int32]) -> bool:
        """Grid steps of an array; whether a number is not finite."""
        from fastdp_kernels.local import local_reports

        return bool(local_reports.snap_values(floats, self.low, self._steps_per_unit, self.STEPS, out))

    def check_reports(self, reports: Any) -> NDArray[np.int32] | Integers:
        """Reports as whole numbers in 0..n_outputs - 1, or a DataError: their senders are not checked."""
        column = columns.as_column(reports, "reports")
        if column.size and column.dtype.kind not in "iub":
            raise DataError(f"reports holds {columns.kind_of(column.dtype)} entries: expected whole numbers")
        if column.size and not 0 <= column.min() <= column.max() < self.n_outputs:
            place = columns.entry_at("reports", (column < 0) | (column >= self.n_outputs), "out of range")
            raise DataError(f"{place}; expected whole numbers in 0..{self.n_outputs - 1}")
        # Reports as perturb() gave them stay as they are.
        if column.dtype == np.int32:
            return np.ascontiguousarray(column, np.int32)
        return np.ascontiguousarray(column, np.int64)


@dataclass(frozen=True)
class MeanMechanism(Mechanism):
    """A mechanism whose every report gives an unbiased estimate of its value."""

    @overload
    def estimate(self, reports: int) -> float: ...
    @overload
    def estimate(self, reports: Any) -> Floats: ...
    def estimate(self, reports: Any) -> float | Floats:
        """Unbiased estimates of the clipped values; the server's side.

        Parameters
        ----------
        reports : whole number, or one column of them
            From :meth:`perturb` of the same epsilon, low and high.

        Returns
        -------
        float or float64[n]
            One estimate a report, in units of the input; add them up for sums.  Unbiased for the value's grid
            point, which is within (high - low) / 2^21 of the value.

        Raises
        ------
        DataError
            If a report is no whole number in 0..n_outputs - 1; the message names its index.
        """
        single = columns.is_number(reports)
        checked = self.check_reports([reports] if single else reports)
        estimates = self._estimator(checked)
        return float(estimates[0]) if single else estimates

    @cached_property
    def _estimator(self) -> Estimator:
        return estimator(self.law.terms(), self.low, Fraction(self.high - self.low) / self.STEPS)

    @overload
    def variance(self, values: float) -> float: ...
    @overload
    def variance(self, values: Any) -> Floats: ...
    def variance(self, values: Any) -> float | Floats:
        """Variance of one report's estimate at each value, in units of the input squared.

        Computed from the integer law itself, so it holds where the paper's formulas (for real numbers) do not:
        a coarse window at large epsilon.  Errors as :meth:`perturb`.
        """
        constant, slope, curvature = self._quadratic()
        position = 2.0 * np.asarray(self.steps_of(values), np.float64) / self.STEPS - 1.0
        variances = constant + position * (slope + curvature * position)
        return float(variances) if columns.is_number(values) else variances

    @cached_property
    def worst_variance(self) -> float:
        """The largest variance over the domain, in units of the input squared."""
        constant, slope, curvature = self._quadratic()
        positions = [-1.0, 1.0]
        if curvature < 0.0:
            positions.append(min(max(-slope / (2.0 * curvature), -1.0), 1.0))
        return max(constant + t * (slope + curvature * t) for t in positions)

    def _quadratic(self) -> tuple[float, float, float]:
        """Coefficients of the variance in t = (v - centre) / half width, from three exact values."""
        unit = Fraction(self.high - self.low) / self.STEPS
        ends = (Fraction(0), Fraction(self.STEPS, 2), Fraction(self.STEPS))
        left, middle, right = (self.law.variance_at(x) * unit**2 for x in ends)
        return float(middle), float((right - left) / 2), float((left + right) / 2 - middle)
