"""Blocks for AES of noise bound to sums: questions about sums, and for words.

Source: Bellare, Guerin and Rogaway 1995 (XOR MACs); ``docs/noise.md``, section 2.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import kernel
from fastdp_kernels.noise.guarded_log import DOUBTFUL, draw_one

#: The highest bit of a question about words, and of no other.
WORDS = np.uint64(1 << 63)


@kernel
def ask(sums: np.ndarray, first: int, asked: np.ndarray) -> None:
    """Fill questions, uint64[W K, 2], about sums, int64[W, K], of rows from ``first`` on."""
    windows, keys = sums.shape
    for w in range(windows):
        for k in range(keys):
            asked[w * keys + k, 0] = np.uint64(sums[w, k])
            asked[w * keys + k, 1] = np.uint64(first + w)


@kernel
def tag(prefixes: np.ndarray, asked: np.ndarray) -> None:
    """Fill a question for words of each prefix, uint64[n, 2]."""
    for i in range(prefixes.shape[0]):
        asked[i, 0] = prefixes[i, 0]
        asked[i, 1] = prefixes[i, 1] | WORDS


@kernel
def follow(answers: np.ndarray, chain: np.ndarray) -> None:
    """Turn answers about sums, uint64[n, 2], into questions for words, and move ``chain`` on."""
    low, high = chain[0], chain[1]
    for i in range(answers.shape[0]):
        low ^= answers[i, 0]
        high ^= answers[i, 1]
        answers[i, 0] = low
        answers[i, 1] = high | WORDS
    chain[0] = low
    chain[1] = high


@kernel
def draw_few(words: np.ndarray, distribution: np.ndarray, noise: np.ndarray) -> bool:
    """Draw discrete Laplace noise, int64[n], from words, uint64[n, 2]; True if doubles are certain of all.

    ``distribution``: scale and offset as double-doubles; empty where the caller draws.
    """
    if not distribution.size:
        return False
    for i in range(noise.size):
        noise[i] = draw_one(words[i, 0], distribution[0], distribution[2])
        if noise[i] == DOUBTFUL:
            return False
    return True
