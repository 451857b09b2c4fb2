"""The three stages of the sampler against 200 digits, on the same words."""

from __future__ import annotations

import random
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId, word_at
from fastdp_kernels.noise import double_double, guarded_log, wide_log
from tests.grid import exhaustive
from tests.oracles import exact_noise

SCALES = [
    Fraction(1, 3),
    Fraction(1000, 7),
    Fraction(2**36),
    *exhaustive(
        Fraction(1, 1000), Fraction(1), Fraction(10), Fraction(3 * 58 * 2**22) / Fraction(0.05), Fraction(2**40)
    ),
]
LARGE_SCALES = [Fraction(2**41 + 1), *exhaustive(Fraction(2**48, 3), Fraction(2**56))]
NO_WORDS = np.empty(0, np.uint64)


def hard_words(scale: Fraction, count: int, seed: int) -> np.ndarray:
    """Uniform words, words of every magnitude, the extremes, and words next to the whole numbers."""
    source = random.Random(seed)
    words = [source.getrandbits(64) for _ in range(count)]
    words += [source.getrandbits(1 + source.randrange(64)) for _ in range(count)]
    words += [0, 1, 2, 3, 4, 5, 6, 7, 2**64 - 1, 2**64 - 2, 2**63, 2**63 - 1, 2**54, 2**53 + 1]
    with mpmath.workdps(60):
        for _ in range(count):
            # The word whose U sits where the draw jumps from k - 1 to k.
            k = source.randrange(1, max(2, int(scale * 40)))
            log_u = exact_noise.real_value(1, 0, scale, False) / (scale.numerator / mpmath.mpf(scale.denominator))
            u = int(mpmath.floor(mpmath.exp(log_u - k * mpmath.mpf(scale.denominator) / scale.numerator) * 2**63))
            for near in (u - 1, u, u + 1):
                words.append(min(max(near, 0), 2**63 - 1) << 1 | source.randrange(2))
    return np.array(words, np.uint64)


def further_words(seed: int):
    def further(k: int) -> int:
        return random.Random(seed * 1000 + k).getrandbits(64)

    return further


def distribution_of(scale: Fraction, one_sided: bool) -> sampler.LaplaceDistribution:
    return sampler.geometric_distribution(scale) if one_sided else sampler.laplace_distribution(scale)


def check_settled(
    words: np.ndarray,
    out: np.ndarray,
    scale: Fraction,
    one_sided: bool,
    further: np.ndarray = NO_WORDS,
    more: int = 64,
) -> np.ndarray:
    """The draws that a stage settled, each of which its words (and so many bits of further ones) leave no choice."""
    settled = np.flatnonzero(out != guarded_log.DOUBTFUL)
    for i in settled.tolist():
        word, u, bits = int(words[i]), int(words[i]) >> 1, 63
        if further.size:
            u, bits = u << more | int(further[i]) >> (64 - more), 63 + more
        least, most = exact_noise.magnitude(u, bits, scale, one_sided)
        assert least == most, "a draw that its words leave open passed as certain"
        assert out[i] == (-least if not one_sided and word & 1 else least)
    return settled


@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("scale", SCALES)
def test_first_stage_is_certain_or_silent(scale: Fraction, one_sided: bool) -> None:
    words, distribution = hard_words(scale, 400, 1), distribution_of(scale, one_sided)
    out, positions = np.empty(words.size, np.int64), np.empty(words.size, np.int64)
    sign_bit = np.uint64(0 if one_sided else 1)
    waiting = guarded_log.draw_double(
        words, distribution.scale_pair[0], distribution.offset_pair[0], sign_bit, out, positions
    )
    assert np.array_equal(positions[:waiting], np.flatnonzero(out == guarded_log.DOUBTFUL))
    assert {0, 1} <= {int(words[i]) >> 1 for i in positions[:waiting]}
    check_settled(words, out, scale, one_sided)


def second_stage(
    words: np.ndarray, further: np.ndarray, distribution: sampler.LaplaceDistribution, one_sided: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of the second stage, and the positions that it leaves."""
    out, positions, sign_bit = np.empty(words.size, np.int64), np.arange(words.size), np.uint64(not one_sided)
    pairs = (*distribution.scale_pair, *distribution.offset_pair)
    waiting = double_double.draw_double_double(words, further, *pairs, sign_bit, positions, words.size, out)
    return out, positions[:waiting]


@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("has_further", [False, True])
@pytest.mark.parametrize("scale", SCALES + LARGE_SCALES)
def test_second_stage_is_certain_or_silent(scale: Fraction, has_further: bool, one_sided: bool) -> None:
    words, source = hard_words(scale, 200, 2), random.Random(3)
    further = np.array([source.getrandbits(64) for _ in words], np.uint64) if has_further else NO_WORDS
    out, waiting = second_stage(words, further, distribution_of(scale, one_sided), one_sided)
    assert np.array_equal(waiting, np.flatnonzero(out == guarded_log.DOUBTFUL))
    settled = check_settled(words, out, scale, one_sided, further)
    # The first 200 words are uniform; the stage is there to settle those.
    if has_further or scale <= 2**36:
        assert np.count_nonzero(settled < 200) >= 198


@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("scale", LARGE_SCALES)
def test_the_stage_of_two_words_is_certain_or_silent(scale: Fraction, one_sided: bool) -> None:
    distribution, (words, further) = distribution_of(scale, one_sided), words_at_jumps(scale, 100, 12)
    uniform, source = hard_words(scale, 200, 2), random.Random(3)
    words = np.concatenate([uniform, words])
    further = np.concatenate([np.array([source.getrandbits(64) for _ in uniform], np.uint64), further])
    out, positions = np.empty(words.size, np.int64), np.empty(words.size, np.int64)
    sign_bit = np.uint64(0 if one_sided else 1)
    waiting = wide_log.draw_wide(
        words, further, *distribution.scale_pair, *distribution.offset_pair, sign_bit, out, positions
    )
    assert np.array_equal(positions[:waiting], np.flatnonzero(out == guarded_log.DOUBTFUL))
    # The first 200 words are uniform, and at scale 2^56 one in some thousand is left over.
    assert np.count_nonzero(check_settled(words, out, scale, one_sided, further, 63) < 200) >= 198


def test_the_margins_of_the_stage_of_two_words_matter() -> None:
    """Nothing nearer to a whole number than the error bound is settled, and not much that is farther is left."""
    scale = Fraction(2**56)
    words, further = words_at_jumps(scale, 150, 11)
    distribution, out, positions = sampler.laplace_distribution(scale), *np.empty((2, words.size), np.int64)
    wide_log.draw_wide(
        words, further, *distribution.scale_pair, *distribution.offset_pair, np.uint64(1), out, positions
    )
    distances = {True: [1.0], False: [0.0]}
    with mpmath.workdps(80):
        for i in range(words.size):
            y = exact_noise.real_value((int(words[i]) >> 1) << 64 | int(further[i]), 127, scale, False)
            distance = min(y - mpmath.floor(y), mpmath.ceil(y) - y) / scale.numerator
            distances[bool(out[i] != guarded_log.DOUBTFUL)].append(float(distance))
    assert min(distances[True]) > wide_log.ERROR_LOG
    assert max(distances[False]) < 1.1 * wide_log.ERROR_LOG


def test_the_logarithm_of_the_stage_of_two_words_to_73_bits() -> None:
    mantissas = np.linspace(0.7071, 1.41422, 10**5)
    places = (mantissas * 128.0 + 0.5).astype(int) - double_double.TABLE_FIRST
    assert np.abs(mantissas * wide_log.INVERSES[places] - 1.0).max() < 2.0**-7.05
    source, worst = random.Random(9), 0.0
    with mpmath.workdps(60):
        for step, high, low in zip(wide_log.INVERSES, wide_log.LOG_HIGH, wide_log.LOG_LOW, strict=True):
            assert abs(mpmath.log(mpmath.mpf(step)) - mpmath.mpf(high) - mpmath.mpf(low)) < mpmath.mpf(2) ** -106
        assert abs(mpmath.log(2) - mpmath.mpf(wide_log.LN2_UPPER) - mpmath.mpf(wide_log.LN2_REST)) < 2.0**-93
        for _ in range(3000):
            f, low = source.uniform(-1, 1) * 2.0**-7.05, source.uniform(-1, 1) * 2.0**-51
            square, tiny = wide_log.log_one_plus(f, low)
            true = mpmath.log1p(mpmath.mpf(f) + mpmath.mpf(low))
            worst = max(worst, float(abs(mpmath.mpf(f) + mpmath.mpf(square) + mpmath.mpf(tiny) - true)))
    assert 2.0**-76 < worst < 2.0**-73


@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("scale", SCALES + LARGE_SCALES)
def test_last_stage_equals_the_formula(scale: Fraction, one_sided: bool) -> None:
    for number, word in enumerate(hard_words(scale, 40, 4).tolist()):
        further = further_words(number)
        settled = sampler.draw_exactly(word >> 1, 63, scale, one_sided, further)
        assert settled == abs(exact_noise.draw(word, further, scale, one_sided))


@pytest.mark.parametrize("scale", [*SCALES, *LARGE_SCALES])
def test_filled_draws_equal_the_formula(scale: Fraction) -> None:
    key, stream = Key.from_seed(5), StreamId(Purpose.TREE, 2, 7)
    out = np.empty(300, np.int64)
    distribution = sampler.laplace_distribution(scale)
    sampler.fill(out, distribution, key, stream)
    for i in range(0, out.size, 3):
        expected = exact_noise.draw(
            word_at(key, stream, i), lambda k, i=i: word_at(key, stream._replace(refinement=k), i), scale, False
        )
        assert out[i] == expected


def test_a_draw_does_not_depend_on_how_many_are_drawn() -> None:
    for scale in (Fraction(2**22), Fraction(2**39), Fraction(2**45)):
        distribution, key, stream = sampler.laplace_distribution(scale), Key.from_seed(6), StreamId(Purpose.TREE)
        long = np.empty(70_001, np.int64)
        sampler.fill(long, distribution, key, stream)
        for size in (0, 1, 2, 511, 513, 32_767, 32_769):
            short = np.empty(size, np.int64)
            sampler.fill(short, distribution, key, stream)
            assert np.array_equal(short, long[:size])


def left_over(words: np.ndarray, *arguments: np.ndarray) -> int:
    """In place of a first stage: nothing is certain."""
    arguments[-1][: words.size] = np.arange(words.size)
    return words.size


def test_the_last_stage_reads_on_where_its_draw_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every chunk, behind every start: further words are those of the draw's own position in the stream."""
    distribution, key, stream = sampler.laplace_distribution(2**56), Key.from_seed(7), StreamId(Purpose.TREE, 2, 3)
    whole, part = np.empty(1000, np.int64), np.empty(700, np.int64)
    sampler.fill(whole, distribution, key, stream)
    # Chunks of 64 draws, all of them left to the last stage.
    monkeypatch.setattr(sampler, "CHUNK", 64)
    monkeypatch.setattr(wide_log, "draw_wide", left_over)
    monkeypatch.setattr(double_double, "draw_double_double", lambda *arguments: arguments[8])
    sampler.fill(part, distribution, key, stream, 300)
    assert np.array_equal(part, whole[300:])


@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("further", [1, 2, 5])
def test_the_last_stage_takes_as_many_further_words_as_it_needs(
    monkeypatch: pytest.MonkeyPatch, further: int, sign: int
) -> None:
    """U begins with all bits of a jump but those of the last further word, which decides."""
    scale, bits = Fraction(1000, 7), 63 + 64 * further
    with mpmath.workdps(200):
        s = mpmath.mpf(1000) / 7
        jump = 2 / (1 + mpmath.exp(-1 / s)) * mpmath.exp(-12 / s)
        u = int(mpmath.floor(jump * 2**bits))
    leading = u >> 64 * further << 1 | sign
    words = [leading, *(u >> 64 * (further - k) & 2**64 - 1 for k in range(1, further + 1))]
    distribution, values = sampler.laplace_distribution(scale), []
    for last in (words[-1] - 2**40, words[-1] + 2**40):
        given = [*words[:-1], last]
        monkeypatch.setattr(sampler, "word_at", lambda _key, stream, position, g=given: g[stream.refinement])
        values.append(sampler.resolve_at(leading, distribution, Key.from_seed(1), StreamId(Purpose.TREE), 0))
        assert values[-1] == exact_noise.draw(leading, lambda k, g=given: g[k], scale, False)
    assert values == ([-12, -11] if sign else [12, 11])


def test_the_error_bound_has_slack_but_not_much() -> None:
    """The y that the first stage computes, redone in NumPy, errs by half of its bound at most."""
    worst = 0.0
    for scale in (Fraction(10), Fraction(2**22), Fraction(2**34), Fraction(2**40)):
        distribution = sampler.laplace_distribution(scale)
        words = hard_words(scale, 500, 8)
        u = (words >> np.uint64(1)).astype(np.int64)
        u = u[u >= 2]
        x = (u | 1).astype(np.float64)
        mantissa, exponent = np.frexp(x)
        low = mantissa < float(np.int64(guarded_log.LOWEST).view(np.float64)) * 1.0
        mantissa, exponent = np.where(low, mantissa * 2, mantissa), np.where(low, exponent - 1, exponent)
        f = (mantissa - 1.0) / (mantissa + 1.0)
        v = f * f
        p = np.full(v.shape, guarded_log.K7)
        for name in range(6, 0, -1):
            p = p * v + getattr(guarded_log, f"K{name}")
        g = 2.0 * f
        log = g + g * (v * p)
        y = distribution.scale_pair[0] * (((63 - exponent) * guarded_log.LN2 + distribution.offset_pair[0]) - log)
        width = 2.0 ** -np.floor(np.log2(x) + 1e-12)
        error = distribution.scale_pair[0] * (guarded_log.ERROR_SCALE + guarded_log.ERROR_WORD * width)
        error = error + y * guarded_log.ERROR_VALUE
        with mpmath.workdps(60):
            for j in range(u.size):
                for end in (int(u[j]), int(u[j]) + 1):
                    true = exact_noise.real_value(end, 63, scale, False)
                    worst = max(worst, float(abs(mpmath.mpf(float(y[j])) - true) / mpmath.mpf(float(error[j]))))
    assert 0.05 < worst < 0.6


def test_the_polynomial_of_draws_is_as_near_to_the_logarithm_as_the_proof_takes_it() -> None:
    coefficients = [getattr(guarded_log, f"K{name}") for name in range(1, 8)]
    with mpmath.workdps(40):
        end = (mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1)
        worst = mpmath.mpf(0)
        for i in range(1, 2001):
            f = end * i / 2000
            p = sum(mpmath.mpf(each) * f ** (2 * j) for j, each in enumerate(coefficients))
            worst = max(worst, abs(2 * f + 2 * f**3 * p - 2 * mpmath.atanh(f)))
        assert 0.01 < worst * 2**53 < 0.016


def words_at_jumps(scale: Fraction, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """127-bit U on both sides of the jumps from k - 1 to k, as word and further word."""
    source = random.Random(seed)
    words, further = [], []
    with mpmath.workdps(80):
        s = mpmath.mpf(scale.numerator) / scale.denominator
        offset = mpmath.log(2 / (1 + mpmath.exp(-1 / s)))
        for _ in range(count):
            k = source.randrange(1, int(min(scale * 12, 2**62)))
            jump = int(mpmath.floor(mpmath.exp(offset - k / s) * mpmath.mpf(2) ** 127))
            for near in (jump - source.randrange(1, 2**20), jump - 1, jump, jump + 1, jump + source.randrange(2**20)):
                if 2**100 < near < 2**127:
                    words.append((near >> 64) << 1 | source.randrange(2))
                    further.append(near & (2**64 - 1))
    return np.array(words, np.uint64), np.array(further, np.uint64)


@pytest.mark.parametrize("scale", [Fraction(2**22), *exhaustive(Fraction(3), Fraction(2**40)), *LARGE_SCALES])
def test_second_and_last_stage_next_to_the_jumps(scale: Fraction) -> None:
    words, further = words_at_jumps(scale, 150, 10)
    check_settled(words, second_stage(words, further, sampler.laplace_distribution(scale))[0], scale, False, further)
    for i, (word, more) in enumerate(zip(words.tolist(), further.tolist(), strict=True)):

        def rest(k: int, more: int = more, i: int = i) -> int:
            return more if k == 1 else further_words(i)(k)

        expected = abs(exact_noise.draw(word, rest, scale, False))
        assert sampler.draw_exactly(word >> 1, 63, scale, False, rest) == expected


def test_the_margins_of_the_second_stage_matter() -> None:
    """Intervals around the whole numbers must be left to the last stage: none is settled within the error bound."""
    scale = Fraction(2**50)
    words, further = words_at_jumps(scale, 150, 11)
    out, _ = second_stage(words, further, sampler.laplace_distribution(scale))
    with mpmath.workdps(80):
        for i in np.flatnonzero(out != guarded_log.DOUBTFUL).tolist():
            y = exact_noise.real_value((int(words[i]) >> 1) << 64 | int(further[i]), 127, scale, False)
            distance = min(y - mpmath.floor(y), mpmath.ceil(y) - y)
            assert distance > (y + scale.numerator) * mpmath.mpf(2) ** -90


def test_double_double_log_to_96_bits() -> None:
    source = random.Random(9)
    worst = 0.0
    with mpmath.workdps(60):
        for _ in range(2000):
            high = source.uniform(0.7072, 1.4141)
            low = high * source.uniform(-1, 1) * 2.0**-54
            lh, ll = double_double.log_mantissa(high, low)
            true = mpmath.log(mpmath.mpf(high) + mpmath.mpf(low))
            worst = max(worst, float(abs(mpmath.mpf(lh) + mpmath.mpf(ll) - true)))
    assert worst < 2.0**-98


@pytest.mark.parametrize("scale", [*SCALES, *LARGE_SCALES])
def test_constants_of_laws_are_right_to_a_hundred_bits(scale: Fraction) -> None:
    distribution = sampler.laplace_distribution(scale)
    with mpmath.workdps(200):
        s = mpmath.mpf(scale.numerator) / scale.denominator
        offset = mpmath.log(2 / (1 + mpmath.exp(-1 / s)))
        for pair, true in ((distribution.scale_pair, s), (distribution.offset_pair, offset)):
            assert abs(mpmath.mpf(pair[0]) + mpmath.mpf(pair[1]) - true) <= abs(true) * mpmath.mpf(2) ** -100
    assert sampler.geometric_distribution(scale).offset_pair == (0.0, 0.0)


def test_laws_refuse_scales_out_of_range() -> None:
    for scale in (Fraction(1, 2**41), Fraction(2**56 + 1)):
        with pytest.raises(ValueError, match="scale"):
            sampler.laplace_distribution(scale)
