"""Noise scaled to smooth sensitivity: how wide, how smooth, how drawn, and why that is private.

Source: ToPS Appendix A and PAK section IV-C (Laplace constants); Nissim, Raskhodnikova and Smith 2007, section 2
(the framework: tolerate a shift by a and a stretch by e^b).

A release is f(x) + S(x)/a Z.  For neighbours x, y: |f(x) - f(y)| <= S(y) and e^-b <= S(x)/S(y) <= e^b.  Stretch
first: the densities h of Z and of e^s Z, |s| <= b, differ by a factor above e^(eps/2) only on a set of
probability delta_1; then shift by at most a at the scale of y: factor above e^(eps/2) with delta_2.  In all
(eps, delta_1 + e^(eps/2) delta_2).

laplace (a = eps/2, b = eps/(2 L), L = ln(1/delta), as printed)
    The shift is pure.  So is the stretch for s < 0, where ln(h(z) / (e^s h(e^s z))) = |z|(e^s - 1) - s <= b <= eps/2.
    For s = b it exceeds eps/2 beyond |z| = q = (eps/2 + b)/(e^b - 1), and delta_1 = e^-q (1 - e^-b).  That is at
    most delta for eps up to about 4 and more; where it is not, b = ln(1 + eps/(2 L)) is taken, for which q >= L.
gaussian (l = ln(2/delta) + eps/2; b = ln(1 + eps/(2 l))/2; a = sqrt(2 l + eps) - sqrt(2 l))
    Not as printed.  The papers' a = eps/sqrt(L), b = eps/(2 L) do not give delta: at eps = .05 and delta = 8e-13
    neighbours that far apart have delta = 1.8e-7 (exact integral; ``tests/thresholds/test_quantile.py``).
    Here, for s = b, the stretch exceeds eps/2 where z^2 > (eps + 2 b) 2 l/eps >= 2 l, the shift where
    z > eps/(2 a) - a/2 = sqrt(2 l); both have probability at most e^-l = delta/2 e^(-eps/2).  For s < 0 the
    stretch is pure.  The noise is 2.9 times the printed one.
cauchy (density proportional to 1/(1 + |z|^gamma); a = b = eps/(2 (gamma + 1)); delta = 0)
    The logarithm of the density has slope at most gamma, and stretching changes it by at most max(1, gamma - 1) b.

The scale kappa S/a is computed in doubles.  :func:`decay_table` and :meth:`SmoothNoise.scale` leave room for every
rounding, so that the inequalities above hold for the doubles themselves (``docs/privacy.md``, section 3).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fastdp.kinds import Floats, Integers
from fastdp.local.reports import exp_below
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId, word_at
from fastdp_kernels.streams import threshold_choice

#: Tails go down to 2^-960, an ordinary float whose noise is one too.
MAX_TAIL_BITS = 959
#: Entries of a decay table below this count as 0 (``fastdp_kernels.streams.threshold_choice``).
MIN_DECAY = 2.0**-900
#: A table's exponent is b (1 - B_SLACK): room for the roundings of b and kappa.
B_SLACK = Fraction(1, 2**40)
#: Factor from entry to entry above e^-b: room for twelve roundings in the ratio of two neighbours' scales.
RATIO_SLACK = 1 + Fraction(1, 2**49)
#: Scales are rounded up by this factor: room for four roundings and for those of a.
SCALE_SLACK = 1.0 + 2.0**-48


def decay_table(b: float, holdout: int) -> Floats:
    """Weights for e^(-b k), k = 0 .. holdout + 1, as the smooth-sensitivity kernels require.

    Powers of one factor r, each rounded once: entry k + 1 is at least e^-b (1 + 2^-50) times entry k.  Where that
    needs r >= 1 (b below 2^-49 or so) all entries are 1, and the smooth sensitivity is the bound.
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
    """A symmetric law Z with the constants that make f + S/a Z private; use :func:`calibrate`.

    Attributes
    ----------
    name : str
        "laplace", "gaussian" or "cauchy".
    a : float
        Tolerated shift, in units of Z's scale: noise is S/a Z.
    b : float
        Smoothing: the smooth sensitivity S changes by at most e^b between neighbours.
    gamma : float
        Exponent of the Cauchy-type density.
    """

    name: str
    a: float
    b: float
    gamma: float

    def scale(self, values: Integers, bound: int, rank: int, kappa: float = 1.0) -> float:
        """Kappa S/a of a sorted hold-out, all in grid steps, rounded up.

        S is the smooth sensitivity of the value of that rank.
        """
        sensitivity = threshold_choice.divide_pairs(values, bound, rank, decay_table(self.b, values.size))
        return kappa * sensitivity / self.a * SCALE_SLACK

    def magnitude(self, tail: float) -> float:
        """The z >= 0 with P[|Z| >= z] = tail, 0 < tail <= 1."""
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
        """G^-1(1 - beta): exceeded with probability beta, 0 < beta < 1/2."""
        return self.magnitude(2.0 * beta)

    @property
    def numeric_distance(self) -> float:
        """Distance in total variation of a drawn and clipped theta from the law (``docs/pak.md``)."""
        return {"laplace": 2.0**-25, "gaussian": 2.0**-22, "cauchy": 2.0**-16}[self.name]

    def draw(self, key: Key) -> float:
        """Z by inverse CDF: the lowest bit of a word is the sign, the others begin the tail probability.

        Small tails take further words, so that every tail has 53 significant bits: with fixed ones the values of
        theta far out would have gaps that differ between neighbours.
        """
        stream = StreamId(Purpose.THRESHOLD)
        word = word_at(key, stream, 0)
        leading, bits = word >> 1, 63
        while leading < 2**53 and bits < MAX_TAIL_BITS:
            leading = leading << 64 | word_at(key, stream._replace(refinement=bits // 64 + 1), 0)
            bits += 64
        magnitude = self.magnitude((2 * leading + 1) / 2 ** (bits + 1))
        return -magnitude if word & 1 else magnitude


def calibrate(name: str, epsilon: float, delta: float, gamma: float) -> SmoothNoise:
    """The constants of the module's derivations; delta in (0, 1/4], of no effect for "cauchy"."""
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
    """delta_1 of stretching Laplace noise by e^b beyond eps/2: e^-q (1 - e^-b), q = (eps/2 + b)/(e^b - 1)."""
    if b > 700.0:
        return 1.0
    return math.exp(-(0.5 * epsilon + b) / math.expm1(b)) * -math.expm1(-b)
