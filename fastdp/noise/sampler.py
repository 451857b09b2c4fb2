"""Exact discrete Laplace and geometric noise, and the distribution for a budget (``docs/noise.md``)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, round_up
from fastdp.kinds import Floats, Integers
from fastdp.noise import gaussian
from fastdp.noise.gaussian import GaussianDistribution, gaussian_distribution
from fastdp.noise.key import Key
from fastdp.noise.words import (
    CHUNK,
    Purpose,
    RowWords,
    StreamId,
    Words,
    WordStream,
    distinct_of,
    joined_words,
    located,
    node_words,
    word_at,
)
from fastdp_kernels.noise import double_double, guarded_log, wide_log

MIN_SCALE = Fraction(1, 2**40)
MAX_SCALE = Fraction(2**56)
#: Above this scale doubles decide too few draws to be worth a pass; two words a draw are used at once.
ONE_WORD_SCALE = Fraction(2**40)
WORD_BITS = 63
#: Streams of more draws than this gain nothing from one cipher for all.
MAX_TOGETHER = CHUNK // 4
#: Noise of nodes, and the offset of each height in it.
Nodes = tuple[Integers, Integers]
NO_WORDS: Words = np.empty(0, np.uint64)


@dataclass(frozen=True)
class LaplaceDistribution:
    """P[X = k] proportional to exp(-|k| / scale), or for k >= 0 only."""

    scale: Fraction
    one_sided: bool
    scale_pair: tuple[float, float]
    offset_pair: tuple[float, float]

    @cached_property
    def constants(self) -> Floats:
        constants: Floats = np.array([*self.scale_pair, *self.offset_pair])
        constants.flags.writeable = False
        return constants

    @cached_property
    def two_words(self) -> bool:
        return self.scale > ONE_WORD_SCALE


def _pair(value: Decimal, context: Context) -> tuple[float, float]:
    high = float(value)
    return high, float(context.subtract(value, Decimal(high)))


@lru_cache(maxsize=1024)
def _distribution(scale: Fraction, one_sided: bool) -> LaplaceDistribution:
    if not MIN_SCALE <= scale <= MAX_SCALE:
        raise ParameterError(
            f"scale = {Decimal(scale.numerator) / Decimal(scale.denominator):.3g}: expected a noise scale in "
            "[2^-40, 2^56] grid steps"
        )
    context = Context(prec=80)
    ratio = context.divide(Decimal(scale.numerator), Decimal(scale.denominator))
    return LaplaceDistribution(
        scale,
        one_sided,
        scale_pair=_pair(ratio, context),
        offset_pair=_pair(offset(scale, one_sided, context), context),
    )


def laplace_distribution(scale: Fraction | int) -> LaplaceDistribution:
    """Two-sided distribution, exp(-|k| / scale)."""
    return _distribution(Fraction(scale), False)


def geometric_distribution(scale: Fraction | int) -> LaplaceDistribution:
    """One-sided distribution, exp(-k / scale), k >= 0."""
    return _distribution(Fraction(scale), True)


def fill(out: Integers, distribution: LaplaceDistribution, key: Key, stream: StreamId, start: int = 0) -> None:
    """Overwrite `out` with draws from `start` on, modulo 2^64; draw i depends on (key, stream, i)."""
    if key.given is not None:
        key.given.fill(out, distribution, key, stream, start)
        return
    size = min(CHUNK, out.size)
    words: Words = np.empty(size, np.uint64)
    positions: Integers = np.empty(size, np.int64)
    source = WordStream(key, stream, start)
    second = WordStream(key, stream._replace(refinement=1), start) if distribution.two_words else None
    further: Words = np.empty(size, np.uint64) if distribution.two_words else NO_WORDS
    for begin in range(0, out.size, CHUNK):
        chunk = out[begin : begin + CHUNK]
        count = chunk.size
        source.fill(words[:count])
        if second is not None:
            second.fill(further[:count])
        for i in _draw_certain(distribution, words[:count], further[:count], chunk, positions):
            chunk[i] = resolve_at(int(words[i]), distribution, key, stream, start + begin + i)


def fill_from(
    out: Integers, distribution: LaplaceDistribution, words: Words, further: Callable[[int, Integers], Words]
) -> None:
    """Overwrite `out` as :func:`fastdp.noise.gaussian.fill_from`."""
    positions: Integers = np.empty(out.size, np.int64)
    second = further(1, np.arange(out.size)) if distribution.two_words else NO_WORDS
    for i in _draw_certain(distribution, words, second, out, positions):

        def word(k: int, at: int = i) -> int:
            return int(further(k, np.array([at]))[0])

        out[i] = resolve(int(words[i]), distribution, word)


def draws(count: int, distribution: LaplaceDistribution, key: Key, stream: StreamId) -> Integers:
    """First draws of :func:`fill`: int64[count]."""
    out: Integers = np.empty(count, np.int64)
    fill(out, distribution, key, stream)
    return out


def _draw_certain(
    distribution: LaplaceDistribution, words: Words, further: Words, out: Integers, positions: Integers
) -> list[int]:
    """Overwrite `out` by the first two stages; return indices of doubtful draws."""
    sign_bit = np.uint64(0 if distribution.one_sided else 1)
    pairs = *distribution.scale_pair, *distribution.offset_pair
    if distribution.two_words:
        waiting = wide_log.draw_wide(words, further, *pairs, sign_bit, out, positions)
    else:
        waiting = guarded_log.draw_double(
            words, distribution.scale_pair[0], distribution.offset_pair[0], sign_bit, out, positions
        )
    if waiting:
        waiting = double_double.draw_double_double(words, further, *pairs, sign_bit, positions, waiting, out)
    left: list[int] = positions[:waiting].tolist()
    return left


#: Streams with the number 0, and how many draws of each.
Pieces = tuple[tuple[StreamId, int], ...]


def fill_one_by_one(out: Integers, distribution: LaplaceDistribution, key: Key, pieces: Pieces, number: int) -> None:
    """Do as :func:`fill_pieces` by one :func:`fill` per stream."""
    begin = 0
    for stream, count in pieces:
        fill(out[begin : begin + count], distribution, key, stream._replace(number=number))
        begin += count


def fill_pieces(out: Integers, distribution: LaplaceDistribution, key: Key, pieces: Pieces, number: int) -> None:
    """Overwrite `out` with the first draws of streams; `number` is in all ids."""
    if out.size > MAX_TOGETHER or distribution.two_words or key.given is not None:
        fill_one_by_one(out, distribution, key, pieces, number)
        return
    words = joined_words(key, pieces, number)
    positions: Integers = np.empty(out.size, np.int64)
    for i in _draw_certain(distribution, words, NO_WORDS, out, positions):
        stream, position = located(pieces, i)
        out[i] = resolve_at(int(words[i]), distribution, key, stream._replace(number=number), position)


def draw_counter_noise(
    distribution: LaplaceDistribution, key: Key, number: int, seen: int, after: int, levels: int
) -> Nodes:
    """Draw noise of the nodes of a binary counter that values `seen`, ..., `after` - 1 complete.

    Return noise and offsets int64[levels]: node k of height j, the sum of values k 2^j to (k + 1) 2^j - 1, has
    ``noise[offsets[j] + k]``, draw k of ``StreamId(Purpose.COUNTER, j, number)``.  Other entries are undefined.
    """
    if after - seen > MAX_TOGETHER or distribution.two_words or key.given is not None:
        firsts, ends = (np.array([at >> j for j in range(levels)], np.int64) for at in (seen, after))
        stops = np.cumsum(ends - firsts)
        noise: Integers = np.empty(int(stops[-1]), np.int64)
        for height, (first, end, stop) in enumerate(zip(*map(np.ndarray.tolist, (firsts, ends, stops)), strict=True)):
            if end > first:
                stream = StreamId(Purpose.COUNTER, height, number)
                fill(noise[stop - (end - first) : stop], distribution, key, stream, first)
        return noise, stops - ends
    words, offsets = node_words(key, StreamId(Purpose.COUNTER, 0, number), seen, after, levels)
    noise = np.empty(words.size, np.int64)
    positions: Integers = np.empty(words.size, np.int64)
    for i in _draw_certain(distribution, words, NO_WORDS, noise, positions):
        for height, offset in enumerate(offsets.tolist()):
            if seen >> height <= i - offset < after >> height:
                stream = StreamId(Purpose.COUNTER, height, number)
                noise[i] = resolve_at(int(words[i]), distribution, key, stream, i - offset)
    return noise, offsets


def resolve_at(word: int, distribution: LaplaceDistribution, key: Key, stream: StreamId, position: int) -> int:
    """One draw of a stream in exact arithmetic."""
    return resolve(word, distribution, lambda k: word_at(key, stream._replace(refinement=k), position))


def resolve(word: int, distribution: LaplaceDistribution, further: Callable[[int], int]) -> int:
    """One draw, modulo 2^64, from `word` and further ones in exact arithmetic."""
    magnitude = draw_exactly(word >> 1, WORD_BITS, distribution.scale, distribution.one_sided, further)
    value = -magnitude if not distribution.one_sided and word & 1 else magnitude
    return (value + 2**63) % 2**64 - 2**63


# Exact draws of many streams in one call, each those that ``sampler.fill`` gives for its key.

#: Rows of more draws than this gain nothing from being drawn together.
LONG_ROW = 4 * CHUNK


def fill_rows(
    out: Integers,
    distributions: Sequence[LaplaceDistribution],
    which: Integers,
    words: RowWords,
    streams: Integers,
    numbers: Integers,
) -> None:
    """Overwrite rows of `out` with draws of many streams, as :func:`fill`.

    Row i has ``distributions[which[i]]``, all one-sided or none.
    """
    alone = words.width > LONG_ROW or words.keys[0].given is not None
    if alone or max(distribution.scale for distribution in distributions) > ONE_WORD_SCALE:
        for row, (stream, number) in enumerate(zip(streams.tolist(), numbers.tolist(), strict=True)):
            begin = 0
            for piece, count in words.pieces:
                drawn = out[row, begin : begin + count]
                fill(drawn, distributions[which[row]], words.key_of(row, stream), piece._replace(number=number))
                begin += count
        return
    sign_bit = np.uint64(0 if distributions[0].one_sided else 1)
    scales = np.array([distribution.scale_pair[0] for distribution in distributions])[which]
    offsets = np.array([distribution.offset_pair[0] for distribution in distributions])[which]
    # The counters, words and draws of one chunk stay in the second-level cache.
    size = max(1, CHUNK // max(words.width, 1))
    positions: Integers = np.empty(size * words.width, np.int64)
    doubtful: list[tuple[Integers, Words]] = []
    for first, raw in words.parts(streams, numbers, size):
        chunk = out[first : first + size]
        flat, drawn = raw.reshape(-1), chunk.reshape(-1)
        if len(distributions) == 1:
            waiting = guarded_log.draw_double(flat, scales[0], offsets[0], sign_bit, drawn, positions)
        else:
            selected = slice(first, first + size)
            waiting = guarded_log.draw_rows(raw, scales[selected], offsets[selected], sign_bit, chunk, positions)
        if waiting:
            doubtful.append((positions[:waiting] + first * words.width, flat[positions[:waiting]]))
    if doubtful:
        places, open_words = map(np.concatenate, zip(*doubtful, strict=True))
        _resolve_rows(out.reshape(-1), places, open_words, distributions, which, words, streams, numbers)


def _resolve_rows(
    drawn: Integers,
    places: Integers,
    raw: Words,
    distributions: Sequence[LaplaceDistribution],
    which: Integers,
    words: RowWords,
    streams: Integers,
    numbers: Integers,
) -> None:
    owners = which[places // words.width]
    sign_bit = np.uint64(0 if distributions[0].one_sided else 1)
    resolved: Integers = np.empty(places.size, np.int64)
    k: int
    for k in distinct_of(owners)[0].tolist():
        distribution = distributions[k]
        mine = np.flatnonzero(owners == k)
        left = double_double.draw_double_double(
            raw, NO_WORDS, *distribution.scale_pair, *distribution.offset_pair, sign_bit, mine, mine.size, resolved
        )
        for i in mine[:left].tolist():
            row, column = divmod(int(places[i]), words.width)
            stream, position = words.locate(column)
            row_key = words.key_of(row, int(streams[row]))
            resolved[i] = resolve_at(
                int(raw[i]), distribution, row_key, stream._replace(number=int(numbers[row])), position
            )
    drawn[places] = resolved


def draw_rows(
    words: RowWords,
    scales: Integers,
    distribution_of: Callable[[int], LaplaceDistribution],
    streams: Integers,
    numbers: Integers,
) -> Integers:
    """Draws of many streams, int64[n, words.width], by ``distribution_of(scales[i])``."""
    rows: Integers = np.empty((streams.size, words.width), np.int64)
    distinct, which = distinct_of(scales)
    fill_rows(rows, [distribution_of(scale) for scale in distinct.tolist()], which, words, streams, numbers)
    return rows


# The last stage: exact arithmetic with as many further bits as it takes.
#
# ``decimal`` computes ln correctly rounded, so intervals with a proven width follow from plain calls.

#: Digits by which the slack exceeds the rounding errors of the six operations in :func:`_bounds`.
GUARD = 6


def offset(scale: Fraction, one_sided: bool, context: Context) -> Decimal:
    """ln(2 / (1 + exp(-1/scale))), or 0 if one-sided."""
    if one_sided:
        return Decimal(0)
    inverse = context.divide(Decimal(scale.denominator), Decimal(scale.numerator))
    q = context.exp(context.minus(inverse))
    return context.ln(context.divide(Decimal(2), context.add(Decimal(1), q)))


def draw_exactly(u: int, bits: int, scale: Fraction, one_sided: bool, further: Callable[[int], int]) -> int:
    """Floor of scale * (offset - ln U), U in [u, u + 1) / 2^bits, narrowed by further words."""
    k = 0
    while True:
        if u > 0:
            # Enough digits for U itself and for the integer part of the result.
            precision = 30 + bits // 3 + scale.numerator.bit_length() // 3
            low, high = _bounds(u, bits, scale, one_sided, precision)
            if low == high:
                return low
        k += 1
        u = u << 64 | further(k)
        bits += 64


def _bounds(u: int, bits: int, scale: Fraction, one_sided: bool, precision: int) -> tuple[int, int]:
    context = Context(prec=precision)
    shift = context.multiply(Decimal(bits), context.ln(Decimal(2)))
    base = context.add(offset(scale, one_sided, context), shift)
    factor = context.divide(Decimal(scale.numerator), Decimal(scale.denominator))
    # Every operation errs by at most half a unit of the last digit of a number below base + 1.
    slack = context.multiply(context.multiply(factor, base), Decimal(10) ** (GUARD - precision))
    ends = []
    for end, sign in ((u + 1, -1), (u, 1)):
        value = context.multiply(factor, context.subtract(base, context.ln(Decimal(end))))
        bounded = context.add(value, context.multiply(slack, Decimal(sign)))
        ends.append(max(0, int(bounded.to_integral_value(rounding=ROUND_FLOOR))))
    return ends[0], ends[1]


# Noise of perturbers, and the distribution that a budget buys.
#
# A perturber's ``epsilon`` is its pure loss where noise is discrete Laplace.  Where noise is discrete Gaussian it
# stands for rho = epsilon^2 / 2, which is also the cost of a pure loss of epsilon in concentrated DP (Bun and
# Steinke 2016, Proposition 1.4): budgets of thresholds and of perturbers are one kind of number.  An integer that a
# unit moves by theta, released on h levels, then has noise of scale theta h / epsilon, or of sigma theta sqrt(h) /
# epsilon.

NoiseName = Literal["laplace", "gaussian"]
Distribution = LaplaceDistribution | GaussianDistribution


@lru_cache(maxsize=256)
def noise_distribution(noise: NoiseName, theta_steps: int, levels: int, loss: float) -> Distribution:
    """Distribution for an integer that a unit moves by `theta_steps` on `levels` levels.

    `loss` is epsilon, or sqrt(2 rho) of Gaussian noise.
    """
    if noise == "laplace":
        return laplace_distribution(Fraction(theta_steps * levels) / Fraction(loss))
    return gaussian_distribution(sigma_of_loss(theta_steps * theta_steps * levels, loss))


def sigma_of_loss(square: int, loss: float) -> Fraction:
    """Sigma, rounded up, that costs rho for squared L2 sensitivity `square`; `loss` = sqrt(2 rho)."""
    wanted = Fraction(square) / Fraction(loss) ** 2
    sigma = math.sqrt(wanted)
    while Fraction(sigma) ** 2 < wanted:
        sigma = math.nextafter(sigma, math.inf)
    return Fraction(sigma)


def fill_noise(
    out: Integers, distribution: Distribution, words: Words, further: Callable[[int, Integers], Words]
) -> None:
    """Overwrite `out` as ``fill_from``, for either distribution."""
    if isinstance(distribution, GaussianDistribution):
        gaussian.fill_from(out, distribution, words, further)
    else:
        fill_from(out, distribution, words, further)


def draw_scale(noise: NoiseName, levels: int, epsilon: float) -> float:
    """Laplace scale or Gaussian sigma in units of theta."""
    return float(Fraction(levels) / Fraction(epsilon)) if noise == "laplace" else math.sqrt(levels) / epsilon


def concentrated(epsilon: float, *derivation: str) -> Guarantee:
    """Guarantee of Gaussian noise: rho, with epsilon infinite until delta is chosen."""
    rho = round_up(Fraction(epsilon) ** 2 / 2)
    return Guarantee(math.inf, rho=rho, arithmetic="exact", derivation=derivation)


def group_share(epsilon: float, square: int | Fraction) -> float:
    """Largest float s found with s sqrt(`square`) <= `epsilon`: a unit's loss in a group."""
    fraction = epsilon / math.sqrt(square)
    while square * Fraction(fraction) ** 2 > Fraction(epsilon) ** 2:
        fraction = math.nextafter(fraction, 0.0)
    return fraction


def l2_square(contributions: int, per_window: int | None) -> int:
    """Squared L2 norm of a unit's change: k rows, at most `per_window` in one sum."""
    k, j = contributions, per_window or contributions
    return k // j * j**2 + (k % j) ** 2
