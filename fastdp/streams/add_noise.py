"""``fastdp.add_noise``: exact discrete Laplace noise on numbers computed elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fastdp import validation
from fastdp.data.column import Nonfinite, as_finite, as_floats
from fastdp.data.frames import as_shaped
from fastdp.errors import ParameterError, argument
from fastdp.guarantee import Account, Guarantee, charge
from fastdp.integer_grid import MAX_BOUND, MAX_SCALE, MIN_BOUND, MIN_SCALE
from fastdp.kinds import Array, Integers
from fastdp.noise import sampler
from fastdp.noise.chain_keys import step_key
from fastdp.noise.key import Key, stream_key
from fastdp.noise.words import CHUNK, MAX_WORDS, Purpose, StreamId
from fastdp.validation import refusal
from fastdp_kernels.streams import online_pass

#: Values saturate at so many steps.
MAX_VALUE = 2**62
#: A default grid has at least 2^20 steps to the sensitivity, and 2^10 times as many as there are values.
MIN_FINENESS, STEPS_A_VALUE = 20, 10
UNIT = "one contribution to the values"
ADJACENCY = "add, remove or replace one contribution, which moves the values by at most the stated sensitivity"


@dataclass(frozen=True)
class VectorNoise:
    """Laplace mechanism on at most ``size`` numbers; ``wanted``: the caller's resolution."""

    rule: ClassVar[int] = 1

    sensitivity: float
    epsilon: float
    size: int
    integers: bool
    wanted: float | None = None

    def __post_init__(self) -> None:
        if not MIN_BOUND <= self.sensitivity <= MAX_BOUND:
            raise refusal("sensitivity", self.sensitivity, f"between {MIN_BOUND} and {MAX_BOUND}")
        validation.integer("size", self.size, 0, MAX_WORDS)
        if self.wanted is not None and self.integers:
            raise refusal("resolution", self.wanted, "None for integers, their grid has step 1")
        # Products with any other resolution are rounded, which would move distant values by full steps.
        if self.wanted is not None and math.frexp(self.wanted)[0] != 0.5:
            near = 2.0 ** round(math.log2(self.wanted))
            raise refusal("resolution", self.wanted, f"a power of two, such as {near!r}")
        if not MIN_SCALE <= self.scale <= MAX_SCALE:
            raise ParameterError(
                f"epsilon = {self.epsilon!r}: noise of sensitivity / epsilon = {float(self.scale):.3g} steps of "
                f"{self.resolution!r}; expected between 2^-40 and 2^56 steps (a coarser resolution= has fewer)"
            )

    @cached_property
    def resolution(self) -> float:
        if self.integers:
            return 1.0
        if self.wanted is not None:
            return self.wanted
        fine = max(MIN_FINENESS, max(self.size - 1, 0).bit_length() + STEPS_A_VALUE)
        finest = math.frexp(self.sensitivity)[1] - 1
        while fine and self._steps(2.0 ** (finest - fine)) > MAX_SCALE * Fraction(self.epsilon):
            fine -= 1
        return float(2.0 ** (finest - fine))

    def _steps(self, resolution: float, distance: Fraction | None = None) -> Fraction:
        """L1 distance in grid steps of values that move by `distance`, at most ceil(A) + n - 1."""
        moved = Fraction(self.sensitivity) if distance is None else distance
        if self.integers or not moved:
            return moved
        return Fraction(math.ceil(moved / Fraction(resolution)) + max(self.size - 1, 0))

    def loss(self, distance: Fraction) -> Fraction:
        return self._steps(self.resolution, distance) / self.scale

    @property
    def scale(self) -> Fraction:
        return self._steps(self.resolution) / Fraction(self.epsilon)

    @cached_property
    def distribution(self) -> sampler.LaplaceDistribution:
        return sampler.laplace_distribution(self.scale)

    def guarantee(self, *, simulated: bool) -> Guarantee:
        grid = "integers" if self.integers else f"multiples of {self.resolution!r}"
        return Guarantee(
            epsilon=self.epsilon,
            unit=UNIT,
            adjacency=ADJACENCY,
            arithmetic="exact",
            simulated=simulated,
            derivation=(
                f"the caller states that a contribution moves the values by at most {self.sensitivity!r} in total",
                f"values become {grid}; discrete Laplace noise of scale sensitivity / epsilon on each: epsilon",
            ),
        )

    def noisy(self, column: Array, key: Key, nonfinite: Nonfinite = "raise", *, bound: bool = False) -> Array:
        """Add noise; `bound` binds it to the values, if the key may meet others."""
        steps = self._in_steps(column, nonfinite)
        if bound:
            key, _ = step_key(key.bind(self), "", 0, steps)
        out = steps if self.integers else steps.view(np.float64)
        noise: Integers = np.empty(min(CHUNK, steps.size), np.int64)
        for begin in range(0, steps.size, CHUNK):
            chunk = slice(begin, begin + CHUNK)
            drawn = noise[: steps[chunk].size]
            sampler.fill(drawn, self.distribution, key, StreamId(Purpose.DRAWS), begin)
            if self.integers:
                steps[chunk] += drawn
            else:
                online_pass.add_noise(steps[chunk], drawn, self.resolution, out[chunk])
        return out

    def _in_steps(self, column: Array, nonfinite: Nonfinite) -> Integers:
        steps: Integers = np.empty(column.size, np.int64)
        if self.integers:
            steps[:] = np.minimum(column, np.uint64(MAX_VALUE)) if column.dtype == np.uint64 else column
            return np.clip(steps, -MAX_VALUE, MAX_VALUE, out=steps)
        floats = as_floats(column)
        per_unit, most = 1.0 / self.resolution, float(MAX_VALUE)
        if online_pass.round_half_up(floats, per_unit, most, steps):
            finite = as_finite(floats, nonfinite, "values", f" ({argument(nonfinite='zero')} makes them count as 0)")
            online_pass.round_half_up(finite, per_unit, most, steps)
        return steps


@validation.spelled
def add_noise(
    values: Any,
    sensitivity: float,
    epsilon: float,
    *,
    resolution: float | None = None,
    nonfinite: Nonfinite = "raise",
    seed: int | str | None = None,
    key: Key | bytes | None = None,
    ledger: Account | None = None,
    stream: str | None = None,
    return_guarantee: bool = False,
) -> Any:
    """Add exact Laplace noise once to numbers that were computed elsewhere: the Laplace mechanism on a vector.

    Parameters
    ----------
    values : number or array-like
        A number, nested lists, NumPy arrays, pandas, polars or Arrow data; shape and type are public.  Integers stay
        integers; values beyond 2^62 (grid steps) saturate.
    sensitivity : float
        L1 sensitivity: the largest sum of absolute changes of all values by one contribution, not computed from the
        data.  For floats it must hold for computed numbers, whose sums depend on order.
    epsilon : float
        Privacy loss of the call.
    resolution : float, optional
        For floats: grid step, a power of two.  By default at most sensitivity * 2^-20, finer for more than 1,024
        values. The noise has scale (sensitivity + (n - 1) * resolution) / epsilon.
    nonfinite : "raise" or "zero"
        NaN, infinity and missing values are refused, or count as 0 (also for the sensitivity).
    seed, key
        As for :func:`fastdp.release`; with either the same call gives the same output.
    ledger, stream : Ledger and str, optional
        Reserves the loss of this stream before values are read.
    return_guarantee : bool
        True returns the :class:`fastdp.Guarantee` too.

    Returns
    -------
    noisy : int, float, or int64 or float64 numbers in the family and shape of ``values``
        Floats are multiples of the resolution (rounded beyond 2^53 of them).
    guarantee : Guarantee
        With ``return_guarantee``.

    Raises
    ------
    ParameterError, DataError
        For an argument that is not accepted.
    BudgetError
        If the ledger refuses the loss.

    Notes
    -----
    Privacy: pure epsilon, exact on this machine, for each call.

    Examples
    --------
    >>> import fastdp
    >>> noisy, guarantee = fastdp.add_noise(
    ...     [120, 0, 7], sensitivity=1, epsilon=0.5, return_guarantee=True
    ... )
    >>> noisy.dtype
    dtype('int64')
    >>> guarantee.epsilon
    0.5
    """
    validation.choice("nonfinite", nonfinite, ("raise", "zero"))
    wants = validation.flag("return_guarantee", return_guarantee)
    column, back = as_shaped(values, "values")
    chosen_key = seed is not None or key is not None
    secret = stream_key(Key.choose(seed, key), stream)
    integers = column.dtype.kind in "biu"
    noise = VectorNoise(
        validation.positive("sensitivity", sensitivity),
        validation.positive("epsilon", epsilon),
        column.size,
        integers,
        None if resolution is None else validation.positive("resolution", resolution),
    )
    guarantee = noise.guarantee(simulated=secret.simulated)
    with charge(guarantee, ledger, stream):
        noisy = back(noise.noisy(column, secret, nonfinite, bound=chosen_key))
    return (noisy, guarantee) if wants else noisy
