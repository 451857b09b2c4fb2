"""S-P and S-PAK: a quantile of the hold-out with noise scaled to its smooth sensitivity.

Source: PAK (NDSS 2019) section IV-C, Eq. 11 and 12; ToPS section 5.4, Appendix B.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

import numpy as np

from fastdp import validation
from fastdp.data.column import as_column, as_floats
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, exp_below, pure
from fastdp.integer_grid import Grid
from fastdp.kinds import Floats, Integers
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId, word_at
from fastdp.record import Choice, Flag, Kind, Real, parameter, put, record
from fastdp.thresholds.base import ThresholdTask
from fastdp.validation import refusal
from fastdp_kernels.streams import online_pass, threshold_choice

# Noise scaled to smooth sensitivity: how wide, how smooth, how drawn, and why that is private.
#
# Source: ToPS Appendix A and PAK section IV-C (Laplace constants); Nissim, Raskhodnikova and Smith 2007, section 2
# (the framework: tolerate a shift by a and a stretch by e^b).
#
# A release is f(x) + S(x)/a Z.  For neighbours x, y: |f(x) - f(y)| <= S(y) and e^-b <= S(x)/S(y) <= e^b.  Stretch
# first: the densities h of Z and of e^s Z, |s| <= b, differ by a factor above e^(eps/2) only on a set of
# probability delta_1; then shift by at most a at the scale of y: factor above e^(eps/2) with delta_2.  In all
# (eps, delta_1 + e^(eps/2) delta_2).
#
# laplace (a = eps/2, b = eps/(2 L), L = ln(1/delta), as printed)
#     The shift is pure.  So is the stretch for s < 0: ln(h(z) / (e^s h(e^s z))) = |z|(e^s - 1) - s <= b <= eps/2.
#     For s = b it exceeds eps/2 beyond |z| = q = (eps/2 + b)/(e^b - 1), and delta_1 = e^-q (1 - e^-b).  That is at
#     most delta for eps up to about 4 and more; where it is not, b = ln(1 + eps/(2 L)) is taken, for which q >= L.
# gaussian (l = ln(2/delta) + eps/2; b = ln(1 + eps/(2 l))/2; a = sqrt(2 l + eps) - sqrt(2 l))
#     Not as printed.  The papers' a = eps/sqrt(L), b = eps/(2 L) do not give delta: at eps = .05 and delta = 8e-13
#     neighbours that far apart have delta = 1.8e-7 (exact integral; ``tests/thresholds/test_quantile.py``).
#     Here, for s = b, the stretch exceeds eps/2 where z^2 > (eps + 2 b) 2 l/eps >= 2 l, the shift where
#     z > eps/(2 a) - a/2 = sqrt(2 l); both have probability at most e^-l = delta/2 e^(-eps/2).  For s < 0 the
#     stretch is pure.  The noise is 2.9 times the printed one.
# cauchy (density proportional to 1/(1 + |z|^gamma); a = b = eps/(2 (gamma + 1)); delta = 0)
#     The logarithm of the density has slope at most gamma, and stretching changes it by at most max(1, gamma - 1) b.
#
# The scale kappa S/a is computed in doubles.  :func:`decay_table` and :meth:`SmoothNoise.scale` leave a margin for
# every rounding, so that the inequalities above hold for the doubles themselves: ``docs/streams_proofs.md``.

#: Tails go down to 2^-960, an ordinary float whose noise is one too.
MAX_TAIL_BITS = 959
#: Entries of a decay table below this count as 0 (``fastdp_kernels.streams.threshold_choice``).
MIN_DECAY = 2.0**-900
#: A table's exponent is b (1 - B_SLACK): margin for the roundings of b and kappa.
B_SLACK = Fraction(1, 2**40)
#: Factor from entry to entry above e^-b: margin for twelve roundings in the ratio of two neighbours' scales.
RATIO_SLACK = 1 + Fraction(1, 2**49)
#: Scales are rounded up by this factor: margin for four roundings and for those of a.
SCALE_SLACK = 1.0 + 2.0**-48


def decay_table(b: float, holdout: int) -> Floats:
    """Weights e^(-b k), rounded up, for k = 0, ..., holdout + 1, all 1 for b below about 2^-49.

    Entry k + 1 is at least e^-b (1 + 2^-50) times entry k.
    """
    # e^-1000 is below MIN_DECAY already.
    exponent = -Fraction(min(b, 1000.0)) * (1 - B_SLACK)
    factor = min(1.0, float(exp_below(exponent) * RATIO_SLACK))
    # Entries further on are below MIN_DECAY; computed, they would be subnormal and slow.
    used = holdout + 2 if b * holdout <= 700.0 else int(700.0 / b) + 2
    table: Floats = np.zeros(holdout + 2)
    table[0], table[1:used] = 1.0, factor
    np.multiply.accumulate(table[:used], out=table[:used])
    table[table < MIN_DECAY] = 0.0
    return table


@dataclass(frozen=True)
class SmoothNoise:
    """Distribution of Z with the constants that make f + S/a Z private."""

    #: "laplace", "gaussian" or "cauchy".
    name: str
    #: `a`, `b`: Tolerated shift, in Z's scale; log of the largest ratio of neighbours' smooth sensitivities S.
    a: float
    b: float
    #: Exponent of the Cauchy-type density.
    gamma: float

    def scale(self, values: Integers, bound: int, rank: int, kappa: float = 1.0) -> float:
        """`kappa` S / a in grid steps, rounded up."""
        sensitivity = threshold_choice.smooth_sensitivity(values, bound, rank, decay_table(self.b, values.size))
        return kappa * sensitivity / self.a * SCALE_SLACK

    def magnitude(self, tail: float) -> float:
        if self.name == "laplace":
            return -math.log(tail)
        # scipy takes longer to load than fastdp, and no other threshold needs it.
        from scipy import special

        if self.name == "gaussian":
            return float(-special.ndtri(0.5 * tail))
        # y = |Z|^gamma / (1 + |Z|^gamma) follows Beta(1/gamma, 1 - 1/gamma); both y and 1 - y without cancellation.
        low, high = 1.0 / self.gamma, 1.0 - 1.0 / self.gamma
        y = float(special.betainccinv(low, high, tail))
        rest = float(special.betaincinv(high, low, tail))
        return math.exp((math.log(y) - math.log(rest)) / self.gamma) if y > 0.0 else 0.0

    def upper(self, beta: float) -> float:
        return self.magnitude(2.0 * beta)

    @property
    def numeric_distance(self) -> float:
        """Total variation distance of a drawn theta from the exact distribution."""
        return {"laplace": 2.0**-25, "gaussian": 2.0**-22, "cauchy": 2.0**-16}[self.name]

    def draw(self, key: Key) -> float:
        stream = StreamId(Purpose.THRESHOLD)
        word = word_at(key, stream, 0)
        leading, bits = word >> 1, 63
        while leading < 2**53 and bits < MAX_TAIL_BITS:
            leading = leading << 64 | word_at(key, stream._replace(refinement=bits // 64 + 1), 0)
            bits += 64
        magnitude = self.magnitude((2 * leading + 1) / 2 ** (bits + 1))
        return -magnitude if word & 1 else magnitude


def calibrate(name: str, epsilon: float, delta: float, gamma: float) -> SmoothNoise:
    """Noise with the constants above; `delta` in (0, 1/4]."""
    if name == "cauchy":
        width = epsilon / (2.0 * (gamma + 1.0))
        return SmoothNoise(name, width, width, gamma)
    if name == "gaussian":
        l_half = math.log(2.0 / delta) + 0.5 * epsilon
        # sqrt(2 l + eps) - sqrt(2 l) without cancellation.
        a = epsilon / (math.sqrt(2.0 * l_half + epsilon) + math.sqrt(2.0 * l_half))
        return SmoothNoise(name, a, 0.5 * math.log1p(epsilon / (2.0 * l_half)), gamma)
    b = epsilon / (2.0 * math.log(1.0 / delta))
    if laplace_stretch_delta(epsilon, b) > delta:
        b = math.log1p(b)
    return SmoothNoise(name, 0.5 * epsilon, b, gamma)


def laplace_stretch_delta(epsilon: float, b: float) -> float:
    """delta_1 of Laplace noise stretched by e^b."""
    return 1.0 if b > 700.0 else math.exp(-(0.5 * epsilon + b) / math.expm1(b)) * -math.expm1(-b)


FIRST_CAPACITY = 1024
#: Hold-out (sorted unless the rule says otherwise) and bound, both in grid steps, and a key, to theta in grid steps.
ReleaseSorted = Callable[[Integers, int, Key], float]


class QuantileChooser:
    """Chooser that keeps the hold-out as grid steps."""

    def __init__(self, task: ThresholdTask, release: ReleaseSorted, clip: bool, *, sort: bool = True) -> None:
        self._task, self._release, self._clip, self._sort = task, release, clip, sort
        self._top = Grid(task.bound, task.resolution).bound_steps
        self._steps: Integers = np.empty(min(task.holdout, FIRST_CAPACITY), np.int64)
        self._count = 0

    def copy(self) -> QuantileChooser:
        twin = QuantileChooser(self._task, self._release, self._clip, sort=self._sort)
        twin._steps, twin._count = self._steps.copy(), self._count
        return twin

    def observe(self, values: Floats) -> None:
        floats = as_floats(as_column(values, "values"))
        count = self._count + floats.size
        if count > self._steps.size:
            larger: Integers = np.empty(max(count, min(2 * count, self._task.holdout)), np.int64)
            larger[: self._count] = self._steps[: self._count]
            self._steps = larger
        step = 1.0 / self._task.resolution
        online_pass.round_values(floats, step, float(self._top), self._steps[self._count : count])
        self._count = count

    def choose(self, key: Key) -> float:
        # The hold-out stays in order, by which further choices are bound to it.
        values = np.sort(self._steps[: self._count]) if self._sort else self._steps[: self._count]
        theta = self._release(values, self._top, key) * self._task.resolution
        theta = max(theta, self._task.resolution)
        return min(theta, self._task.bound) if self._clip else theta

    def pack(self) -> Integers:
        return self._steps[: self._count].copy()

    def unpack(self, packed: Integers) -> None:
        if packed.size > self._task.holdout or min(packed.min(initial=0), self._top - packed.max(initial=0)) < 0:
            raise ValueError("a hold-out that is too long, or values off the grid")
        self._steps, self._count = packed.astype(np.int64), packed.size


def rank_of(p: float, m: int) -> int:
    """P = ceil(p m) in [1, m], `p` read as a decimal."""
    return min(m, max(1, math.ceil(Fraction(repr(float(p))) * m)))


#: Outside, the Cauchy-type inverse CDF leaves the range of doubles: far out below, near 0 above (|Z|^gamma).
MIN_GAMMA, MAX_GAMMA = 1.125, 16.0
#: Theta is rounded to cells of bound / CELLS or one grid step, which hides the spacing of floats.
CELLS = 2**24
FRACTION = Real(above=0.0, below=1.0)
#: The stretch of the noise needs ln(1/delta) >= 1 (above).
DELTA = Real(above=0.0, most=0.25)


class SmoothRule(ABC):
    """Base of S-P and S-PAK: theta = quantile + kappa SS/a (Z + offset)."""

    uses_holdout: ClassVar[bool] = True
    p: float
    delta: float | None
    noise: str
    clip: bool
    #: Exponent of Cauchy-type noise.
    gamma: float = 2.0

    @abstractmethod
    def kappa(self, task: ThresholdTask) -> float:
        """Factor of the noise's scale."""

    @abstractmethod
    def offset(self, task: ThresholdTask) -> float:
        """Number added to Z."""

    def smooth_noise(self, task: ThresholdTask) -> SmoothNoise:
        return calibrate(self.noise, task.epsilon, self._delta(task), self.gamma)

    def start(self, task: ThresholdTask) -> QuantileChooser:
        noise, kappa, offset = self.smooth_noise(task), self.kappa(task), self.offset(task)

        def release(values: Integers, bound: int, key: Key) -> float:
            rank = rank_of(self.p, values.size)
            shift = noise.scale(values, bound, rank, kappa) * (noise.draw(key) + offset)
            return _in_cells(int(values[rank - 1]), shift, bound)

        return QuantileChooser(task, release, self.clip)

    def guarantee(self, task: ThresholdTask) -> Guarantee:
        noise, delta, kappa = self.smooth_noise(task), self._delta(task), self.kappa(task)
        delta = 0.0 if noise.name == "cauchy" else delta
        distance = noise.numeric_distance
        if not self.clip:
            # It grows with the noise's width in bounds; a Cauchy-type distribution is too wide for any bound.
            wide = math.inf if noise.name == "cauchy" else kappa / noise.a * (1.0 + self.offset(task))
            distance = min(1.0, distance * max(1.0, wide))
        scaled = "smooth sensitivity"
        if kappa != 1.0:
            scaled = f"{kappa:.6g} times {scaled}, which hides the offset (PAK Eq. 11),"
        loss = f"epsilon, delta = {delta:.6g}" if delta else "pure epsilon"
        step = (
            f"{self.p:g} quantile of {task.holdout} held-out values, {noise.name} noise of {scaled} / a, "
            f"a = {noise.a:.6g}, b = {noise.b:.6g} (stretch by e^b and shift by a take epsilon / 2 each): {loss}, "
            "for real arithmetic"
        )
        return Guarantee(task.epsilon, delta, arithmetic="real", numeric_distance=distance, derivation=(step,))

    def _delta(self, task: ThresholdTask) -> float:
        return 1.0 / float(task.holdout + task.max_range) ** 2 if self.delta is None else self.delta


@record
class SmoothQuantile(SmoothRule):
    """S-P: theta = quantile + SS/a Z (ToPS Appendix B; PAK section IV-C, "Warm").

    Parameters
    ----------
    p : float
        Quantile, in (0, 1).
    delta : float, optional
        In (0, 1/4], by default 1 / n^2 with n = holdout + max_range; None or 0 with Cauchy-type noise.
    noise : "laplace", "gaussian" or "cauchy"
        Of Z; "cauchy" is pure epsilon, with heavy tails.
    gamma : float
        Cauchy-type density 1 / (1 + abs(z)^gamma), up to a factor; from 1.125 to 16.
    clip : bool
        True clips theta to [resolution, bound].  False only below, as published; values still end at the bound.

    Notes
    -----
    Half of all draws lie below the quantile (:class:`PAKQuantile`).  Privacy in real arithmetic:
    ``docs/streams_proofs.md``.

    Examples
    --------
    >>> import fastdp
    >>> rule = fastdp.thresholds.SmoothQuantile(p=0.99, delta=1e-9)
    >>> chosen = {"holdout": 5000, "threshold": rule}
    >>> fastdp.ToPS(1.0, bound=1000, **chosen).guarantee.delta >= 1e-9
    True
    """

    p: float = parameter(FRACTION, default=0.995)
    delta: float | None = parameter(Kind(), default=None)
    noise: Literal["laplace", "gaussian", "cauchy"] = parameter(
        Choice(("laplace", "gaussian", "cauchy")), default="laplace"
    )
    gamma: float = parameter(Real(least=MIN_GAMMA, most=MAX_GAMMA), default=2.0)
    clip: bool = parameter(Flag(), default=True)

    rule: ClassVar[int] = 1

    def _check(self) -> None:
        if self.delta is None:
            return
        if self.noise != "cauchy":
            put(self, delta=DELTA.check("delta", self.delta))
        elif validation.real("delta", self.delta) != 0.0:
            raise refusal("delta", self.delta, "None or 0, because noise = 'cauchy' has no delta")

    def kappa(self, task: ThresholdTask) -> float:
        return 1.0

    def offset(self, task: ThresholdTask) -> float:
        return 0.0


@record
class PAKQuantile(SmoothRule):
    """S-PAK: theta = quantile + kappa SS/a (Z + G^-1(1 - beta)), rarely below the quantile (PAK Eq. 12).

    G is the CDF of Z; kappa = (1 - (e^b - 1) G^-1(1 - beta)/a)^-1 (PAK Eq. 11) hides that the offset depends on data.

    Parameters
    ----------
    p : float
        Quantile, in (0, 1).  The paper's .99575 aims at .995; its code ran .995.
    beta : float
        Probability that theta is below the quantile, in (0, 1/2).
    delta, noise, clip
        As for :class:`SmoothQuantile`; no Cauchy-type noise, whose kappa would be negative.

    Examples
    --------
    >>> import fastdp
    >>> rule = fastdp.thresholds.PAKQuantile(delta=1e-9)
    >>> chosen = {"holdout": 5000, "threshold": rule}
    >>> fastdp.ToPS(1.0, bound=1000, **chosen).guarantee.delta >= 1e-9
    True
    """

    p: float = parameter(FRACTION, default=0.99575)
    beta: float = parameter(Real(above=0.0, below=0.5), default=0.3 * 0.02)
    delta: float | None = parameter(DELTA, default=None)
    noise: Literal["laplace", "gaussian"] = parameter(Choice(("laplace", "gaussian")), default="laplace")
    clip: bool = parameter(Flag(), default=True)

    rule: ClassVar[int] = 1

    def offset(self, task: ThresholdTask) -> float:
        return self.smooth_noise(task).upper(self.beta)

    def kappa(self, task: ThresholdTask) -> float:
        noise = self.smooth_noise(task)
        # Cut off where e^b ends: the rest is 0 or below in any case.
        rest = 1.0 - math.expm1(min(noise.b, 700.0)) * noise.upper(self.beta) / noise.a
        if rest <= 0.0:
            raise ParameterError(
                f"beta = {self.beta!r}: kappa = 1 / {rest:.3g} is not positive; expected a larger beta, or a smaller "
                f"epsilon or delta (epsilon = {task.epsilon!r}, delta = {self._delta(task):.3g})"
            )
        return 1.0 / rest


@record
class TruePercentile:
    """Quantile itself, NOT PRIVATE (epsilon = inf): for comparisons on public data (ToPS section 5.4, Figure 6).

    Parameters
    ----------
    p : float
        Quantile, in (0, 1).

    Examples
    --------
    >>> import fastdp
    >>> rule = fastdp.thresholds.TruePercentile(0.995)
    >>> publisher = fastdp.ToPS(1.0, bound=1000, holdout=500, threshold=rule)
    >>> publisher.guarantee.epsilon
    inf
    """

    p: float = parameter(FRACTION)
    uses_holdout: ClassVar[bool] = True
    rule: ClassVar[int] = 1

    def start(self, task: ThresholdTask) -> QuantileChooser:
        return QuantileChooser(task, lambda values, *_: float(values[rank_of(self.p, values.size) - 1]), clip=True)

    def guarantee(self, task: ThresholdTask) -> Guarantee:
        held = f"the true {self.p:g} quantile of {task.holdout} held-out values without noise"
        return pure(math.inf, f"NOT PRIVATE: {held}: epsilon = inf")


def _in_cells(quantile: int, shift: float, bound: int) -> float:
    if not math.isfinite(shift):
        return shift
    cell = max(1, bound // CELLS)
    return float(math.floor((quantile + Fraction(shift) + Fraction(1, 2)) / cell) * cell + cell // 2)
