"""Reports of the local model from random words: window, bit and hybrid (ToPL Appendix E, in integers).

A uniform 64-bit word and a grid step x in 0..D give a report.  Window: of outputs 0..M-1, M = D + N, x..x+N-1 have
``near_weight`` words each, the others ``far_weight``; left-over words are dealt out evenly.  Bit: 1 for low_weight +
floor(rise x / D) words.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastdp_kernels._jit import inline, kernel

LARGEST = np.finfo(np.float64).max
ELEVEN = np.uint64(11)
LAST_WORD = np.uint64(2**64 - 1)
#: Less than 1 by more than four roundings.
ROUNDED_DOWN = 1.0 - 2.0**-50
#: Steps and reports of a block stay in the first-level cache between the two passes.
BLOCK = 2048


class WindowWeights(NamedTuple):
    """Window distribution.

    Attributes
    ----------
    near, outputs : int
        N and M.
    near_weight, far_weight : uint64
        Words of an output, at least 2^12; quotients stay below 2^22.
    near_words, far_words : uint64
        N near_weight and D far_weight.
    """

    near: int
    near_weight: np.uint64
    far_weight: np.uint64
    near_words: np.uint64
    far_words: np.uint64
    outputs: int


class BitWeights(NamedTuple):
    """Bit distribution.

    Attributes
    ----------
    low_weight : uint64
        Words of output 1 at x = 0.
    rise_quotient, rise_rest : uint64
        Quotient and remainder by D of its growth up to x = D.
    shift : uint64
        log2 D, at most 31.
    """

    low_weight: np.uint64
    rise_quotient: np.uint64
    rise_rest: np.uint64
    shift: np.uint64


@kernel
def snap_values(values: np.ndarray, low: float, steps_per_unit: float, steps: int, out: np.ndarray) -> int:
    """Fill grid steps rint((v - low) steps_per_unit) in 0..steps, 0 for NaN; returns how many are not finite."""
    strange = 0
    last = np.float64(steps)
    for i in range(values.size):
        t = (values[i] - low) * steps_per_unit
        t = t if t > 0.0 else 0.0
        t = t if t < last else last
        out[i] = np.int32(np.rint(t))
        strange += not (abs(values[i]) <= LARGEST)
    return strange


@inline
def _reciprocal(weight: np.uint64) -> float:
    return 2048.0 / np.float64(weight) * ROUNDED_DOWN


@inline
def _window_report(word: np.uint64, x: int, window: WindowWeights, by_near: float, by_far: float) -> int:
    # t // weight by a product c, which carries four roundings of at most 2^-53, outweighed by the reciprocal's factor
    # 1 - 2^-50: t / weight - 1 < c <= t / weight, and the remainder decides between floor(c) and the next.
    is_near = word < window.near_words
    t = word if is_near else word - window.near_words
    weight = window.near_weight if is_near else window.far_weight
    reciprocal = by_near if is_near else by_far
    quotient = int(np.float64(np.int64(t >> ELEVEN)) * reciprocal)
    quotient += int(t - np.uint64(quotient) * weight >= weight)
    return quotient + (x if is_near else (0 if quotient < x else window.near))


@inline
def _bit_report(word: np.uint64, x: int, bit: BitWeights) -> int:
    # rise = rise_quotient D + rise_rest, so that no product exceeds 64 bits.
    step = np.uint64(x)
    return int(word < bit.low_weight + bit.rise_quotient * step + ((bit.rise_rest * step) >> bit.shift))


@inline
def _deal_left_over(words: np.ndarray, window: WindowWeights, last: np.uint64, out: np.ndarray) -> None:
    for i in range(words.size):
        word = words[i]
        if word <= last and word >= window.near_words and word - window.near_words >= window.far_words:
            out[i] = np.int64((word - window.near_words - window.far_words) % np.uint64(window.outputs))


@kernel
def draw_window(words: np.ndarray, steps: np.ndarray, window: WindowWeights, out: np.ndarray) -> None:
    """Fill reports, int32[n] in 0..M-1, of words uint64[n] and steps int32[n]."""
    by_near, by_far = _reciprocal(window.near_weight), _reciprocal(window.far_weight)
    for begin in range(0, words.size, BLOCK):
        # Slices, so that the compiler sees indices from zero and vectorises.
        block_words, block_out = words[begin : begin + BLOCK], out[begin : begin + BLOCK]
        block_steps = steps[begin : begin + BLOCK]
        left_over = 0
        for i in range(block_words.size):
            word = block_words[i]
            block_out[i] = _window_report(word, int(block_steps[i]), window, by_near, by_far)
            left_over += (word >= window.near_words) & (word - window.near_words >= window.far_words)
        if left_over:
            _deal_left_over(block_words, window, LAST_WORD, block_out)


@kernel
def draw_bit(words: np.ndarray, steps: np.ndarray, bit: BitWeights, out: np.ndarray) -> None:
    """Fill reports of the bit, 0 or 1, as :func:`draw_window`; D = 2^shift."""
    for i in range(words.size):
        out[i] = _bit_report(words[i], int(steps[i]), bit)


@kernel
def draw_hybrid(
    words: np.ndarray,
    steps: np.ndarray,
    window_total: np.uint64,
    window: WindowWeights,
    bit: BitWeights,
    out: np.ndarray,
) -> None:
    """Fill reports: words below ``window_total`` by the window, others by the bit as M, M + 1."""
    by_near, by_far = _reciprocal(window.near_weight), _reciprocal(window.far_weight)
    assigned, last = window.near_words + window.far_words, window_total - np.uint64(1)
    for begin in range(0, words.size, BLOCK):
        block_words, block_out = words[begin : begin + BLOCK], out[begin : begin + BLOCK]
        block_steps = steps[begin : begin + BLOCK]
        left_over = 0
        for i in range(block_words.size):
            word, x = block_words[i], int(block_steps[i])
            from_window = _window_report(word, x, window, by_near, by_far)
            from_bit = window.outputs + _bit_report(word - window_total, x, bit)
            block_out[i] = from_window if word < window_total else from_bit
            left_over += (word >= assigned) & (word < window_total)
        if left_over:
            _deal_left_over(block_words, window, last, block_out)


@kernel
def estimate_reports(
    reports: np.ndarray,
    border: int,
    offset: float,
    gain: float,
    later_offset: float,
    later_gain: float,
    out: np.ndarray,
) -> None:
    """Fill estimates offset + gain * report; from ``border`` on the later ones of report - border."""
    for i in range(reports.size):
        report = np.int64(reports[i])
        first = report < border
        along = np.float64(report if first else report - border)
        out[i] = (offset if first else later_offset) + (gain if first else later_gain) * along
