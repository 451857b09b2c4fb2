"""Exact discrete Gaussian noise; proof in ``docs/noise.md``, section 6.

Source: Canonne, Kamath and Steinke 2020 (the distribution); the sampler is ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Integers
from fastdp.noise.key import Key
from fastdp.noise.words import CHUNK, StreamId, Words, WordStream, words_at
from fastdp_kernels.noise.strips import FIRST, HEIGHT, draw_strips

MIN_SIGMA, MAX_SIGMA = Fraction(1, 2**10), Fraction(2**44)
STRIPS = 256
#: H, the cells of heights at m = 0, is 2^MAX_HEIGHT_BITS at most, and all cells are about 2^CELL_BITS.
MAX_HEIGHT_BITS, CELL_BITS = 50, 58
#: Refinements below this one are attempts of a draw; the others are FURTHER words of each, for a doubtful one.
ATTEMPTS = 64
FURTHER = 3
WORD_BITS = 64
_NO_CONSTANTS: Floats = np.empty(0)
_NO_CONSTANTS.flags.writeable = False


@dataclass(frozen=True)
class GaussianDistribution:
    """P[X = k] proportional to f(k) = exp(-k^2 / (2 sigma^2)), and the strips that cover it.

    `table`, `inverses`, `cells`, `covered` and `unfair` are arguments of ``draw_strips``; `heights` is H; the strips
    hold abs(k) below `edge`, and f(edge) H <= 1.
    """

    sigma: Fraction
    table: Integers
    inverses: Floats
    cells: int
    covered: int
    unfair: int
    heights: int
    edge: int

    @property
    def constants(self) -> Floats:
        return _NO_CONSTANTS

    def below(self, k: int, height: Fraction) -> bool:
        """True if `height` < f(k) H, exactly."""
        if height <= 0 or k == 0:
            return height < self.heights
        # ln(H / height) against k^2 / (2 sigma^2), with ever more digits.
        exponent = Fraction(k * k) / (2 * self.sigma * self.sigma)
        digits = 40 + math.ceil(math.log10(2 + float(exponent)))
        while True:
            context = Context(prec=digits)
            ratio = Fraction(self.heights) / height
            log = context.ln(context.divide(Decimal(ratio.numerator), Decimal(ratio.denominator)))
            other = context.divide(Decimal(exponent.numerator), Decimal(exponent.denominator))
            slack = (abs(log) + other + 1) * Decimal(10) ** (6 - digits)
            if abs(log - other) > slack:
                return log > other
            digits *= 2


@lru_cache(maxsize=256)
def gaussian_distribution(sigma: Fraction) -> GaussianDistribution:
    """Distribution with this sigma; ParameterError outside [2^-10, 2^44]."""
    if not MIN_SIGMA <= sigma <= MAX_SIGMA:
        raise ParameterError(
            f"sigma = {Decimal(sigma.numerator) / Decimal(sigma.denominator):.3g}: expected between 2^-10 and 2^44"
        )
    wide = max(float(sigma), 1.0)
    heights = 2 ** min(MAX_HEIGHT_BITS, CELL_BITS - 1 - math.frexp(wide)[1])
    low, high = heights * wide / STRIPS / 8, 8.0 * heights * wide / STRIPS
    # The area of a strip for which about STRIPS of them reach the top.
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if len(_strips(float(sigma), heights, middle)) > STRIPS else (low, middle)
    strips = _strips(float(sigma), heights, high)
    first = np.cumsum([0, *((2 * reach + 1) * height for reach, height, _ in strips)])
    covered, edge = int(first[-1]), strips[0][0] + 1
    tail = math.ceil(1.0 / -math.expm1(-float(edge / (sigma * sigma))) * (1.0 + 1e-9)) + 1
    cells = covered + 2 * tail
    sure = [_sure(sigma, heights, y + height) for _, height, y in strips]
    reaches, tall, base = zip(*strips, strict=True)
    table = np.array([first[:-1], tall, base, reaches, sure], np.int64)
    inverses: Floats = 1.0 / table[HEIGHT]
    for array in (table, inverses):
        array.flags.writeable = False
    return GaussianDistribution(sigma, table, inverses, cells, covered, 2**64 % cells, heights, edge)


def _strips(sigma: float, heights: int, area: float) -> list[tuple[int, int, int]]:
    """Cover the curve by strips of about equal area: reaches, heights, lower ends."""
    strips, y = [], 0
    while y < heights:
        # At least as far as the curve: points above it are rejected.
        reach = math.floor(sigma * math.sqrt(2.0 * _log_ratio(heights, max(y, 1))) * (1.0 + 1e-12))
        height = min(max(1, int(area / (2 * reach + 1))), heights - y)
        strips.append((reach, height, y))
        y += height
        if len(strips) > 4 * STRIPS:
            break
    return strips


def _log_ratio(heights: int, y: int) -> float:
    return math.log1p((heights - y) / y)


def _sure(sigma: Fraction, heights: int, top: int) -> int:
    if top >= heights:
        return 0
    reach = float(sigma) * math.sqrt(2.0 * _log_ratio(heights, top))
    return math.floor(reach * (1.0 - 1e-9)) + 1


def fill(out: Integers, distribution: GaussianDistribution, key: Key, stream: StreamId, start: int = 0) -> None:
    """Overwrite `out` with draws from `start` on; draw i depends on (key, stream, i)."""
    if key.given is not None:
        key.given.fill(out, distribution, key, stream, start)
        return
    words: Words = np.empty(min(CHUNK, out.size), np.uint64)
    source = WordStream(key, stream, start)
    for begin in range(0, out.size, CHUNK):
        chunk = out[begin : begin + CHUNK]
        source.fill(words[: chunk.size])

        def further(k: int, where: Integers, first: int = start + begin) -> Words:
            return words_at(key, stream._replace(refinement=k), first + where)

        fill_from(chunk, distribution, words, further)


def fill_from(
    out: Integers, distribution: GaussianDistribution, words: Words, further: Callable[[int, Integers], Words]
) -> None:
    """Overwrite `out` with draws from one word each; ``further(k, where)``: words k at ascending positions."""
    count = out.size
    where: Integers = np.arange(count)
    doubtful: Integers = np.empty(count, np.int64)
    drawn, attempt = words, 0
    cells, covered = np.uint64(distribution.cells), np.int64(distribution.covered)
    sizes = np.uint64(distribution.unfair), float(distribution.sigma), float(distribution.heights)
    strips = distribution.table, distribution.inverses, cells, covered, *sizes
    while count:
        count, undecided = draw_strips(drawn, where, count, *strips, out, doubtful)
        for position in doubtful[:undecided].tolist():

            def word(k: int, at: int = position) -> int:
                return int(further(k, np.array([at]))[0] if k else words[at])

            out[position] = resolve(distribution, word, attempt)
        attempt += 1
        if count:
            _check_attempt(attempt)
            drawn = further(attempt, where[:count])


def resolve(distribution: GaussianDistribution, word: Callable[[int], int], attempt: int = 0) -> int:
    """Make one draw in exact arithmetic from words ``word(k)``, from `attempt` on."""
    while True:
        _check_attempt(attempt)
        first = ATTEMPTS + attempt * FURTHER
        drawn = _attempt(distribution, word(attempt), _Bits([word(first + j) for j in range(FURTHER)]))
        if drawn is not None:
            return drawn
        attempt += 1


def _check_attempt(attempt: int) -> None:
    if attempt == ATTEMPTS:
        raise OverflowError(f"{ATTEMPTS} attempts at a draw failed, which has probability below 2^-60")


class _Bits:
    """Holds the drawn bits of a uniform number in [0, 1)."""

    def __init__(self, further: list[int]) -> None:
        self._further, self.number, self.bits = further, 0, 0

    def extend(self) -> None:
        if not self._further:
            raise OverflowError("a draw is doubtful after all further bits, which has probability below 2^-150")
        self.number = self.number << WORD_BITS | self._further.pop(0)
        self.bits += WORD_BITS

    def interval(self) -> tuple[Fraction, Fraction]:
        return Fraction(self.number, 2**self.bits), Fraction(self.number + 1, 2**self.bits)


def _attempt(distribution: GaussianDistribution, word: int, bits: _Bits) -> int | None:
    cell, lower = divmod(word * distribution.cells, 2**WORD_BITS)
    if lower < distribution.unfair:
        return None
    if cell >= distribution.covered:
        side, cell = divmod(cell - distribution.covered, (distribution.cells - distribution.covered) // 2)
        behind = _tail(distribution, cell, bits)
        return None if behind is None else (distribution.edge + behind) * (-1 if side else 1)
    j = int(np.searchsorted(distribution.table[FIRST], cell, side="right")) - 1
    first, height, base, reach, _ = distribution.table[:, j].tolist()
    m, r = divmod(cell - first, height)
    k = m - reach
    while True:
        # The curve may pass through the cell.
        low, high = bits.interval()
        if not distribution.below(k, base + r + low):
            return None
        if k == 0 or distribution.below(k, base + r + high):
            return int(k)
        bits.extend()


def _tail(distribution: GaussianDistribution, cell: int, bits: _Bits) -> int | None:
    """Return a draw beyond the strips, counted from their edge, or None."""
    while True:
        low, high = (_behind(distribution, cell + end, bits.bits) for end in bits.interval())
        # Two points above the curve, in different steps, have points below it between them.
        if low == high:
            return None if low is None or not low[1] else low[0]
        bits.extend()


def _behind(distribution: GaussianDistribution, point: Fraction, bits: int) -> tuple[int, bool] | None:
    """Return a tail point's step, and True if it is below the curve."""
    context = Context(prec=80 + bits // 3)

    def decimal(number: Fraction) -> Decimal:
        return context.divide(Decimal(number.numerator), Decimal(number.denominator))

    square = distribution.sigma * distribution.sigma
    log_rho = context.minus(decimal(distribution.edge / square))
    rest = context.subtract(Decimal(1), context.exp(log_rho))
    left = context.subtract(Decimal(1), context.multiply(decimal(point), rest))
    if left <= Decimal(0):
        return None
    j = int(context.divide(context.ln(left), log_rho))
    inside = context.divide(context.subtract(context.exp(context.multiply(log_rho, Decimal(j))), left), rest)
    k = distribution.edge + j
    curve = context.multiply(
        context.exp(context.minus(decimal(Fraction(k * k) / (2 * square)))), Decimal(distribution.heights)
    )
    return j, bool(inside < curve)
