"""Noise whose sums stay small: y = C^-1 z, C a lower triangular Toeplitz matrix (``docs/noise.md``, section 8).

C has the coefficients 1, c_1, c_2 and c_j = sum over i of w_i (1 - mu_i)^(j - 3); buffer b_i holds earlier y.

Source: Dvijotham, McMahan, Pillutla, Steinke and Thakurta 2024.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel

BUFFERS = 8
#: The buffers, and the last value and the one before it.
MEMORY = BUFFERS + 2


@kernel
def correlate(
    noise: np.ndarray, near: np.ndarray, weights: np.ndarray, keeps: np.ndarray, memory: np.ndarray
) -> None:
    """Turn draws z (``noise``, int64[n], below 2^52 in size) into y, in place.

    ``near``: c_1, c_2; ``weights``, ``keeps``: w_i, 1 - mu_i; ``memory``, float64[MEMORY]: earlier y, moved on.
    """
    c1, c2 = near[0], near[1]
    w0, w1, w2, w3 = weights[0], weights[1], weights[2], weights[3]
    w4, w5, w6, w7 = weights[4], weights[5], weights[6], weights[7]
    k0, k1, k2, k3 = keeps[0], keeps[1], keeps[2], keeps[3]
    k4, k5, k6, k7 = keeps[4], keeps[5], keeps[6], keeps[7]
    b0, b1, b2, b3 = memory[0], memory[1], memory[2], memory[3]
    b4, b5, b6, b7 = memory[4], memory[5], memory[6], memory[7]
    last, before = memory[BUFFERS], memory[BUFFERS + 1]
    for t in range(noise.size):
        # The next value waits for the last one alone: all else is summed meanwhile.
        far = ((w0 * b0 + w1 * b1) + (w2 * b2 + w3 * b3)) + ((w4 * b4 + w5 * b5) + (w6 * b6 + w7 * b7)) + c2 * before
        y = np.float64(noise[t]) - np.rint(far + c1 * last)
        noise[t] = np.int64(y)
        b0 = k0 * b0 + before
        b1 = k1 * b1 + before
        b2 = k2 * b2 + before
        b3 = k3 * b3 + before
        b4 = k4 * b4 + before
        b5 = k5 * b5 + before
        b6 = k6 * b6 + before
        b7 = k7 * b7 + before
        before = last
        last = y
    memory[0], memory[1], memory[2], memory[3] = b0, b1, b2, b3
    memory[4], memory[5], memory[6], memory[7] = b4, b5, b6, b7
    memory[BUFFERS], memory[BUFFERS + 1] = last, before
