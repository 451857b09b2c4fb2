"""The split of a range's error by its definition: every value and every prediction one by one."""

from __future__ import annotations

import numpy as np


def split_error(values, released, theta, block, predict, start, stop):
    """(noise, truncation, smoothing) of the sum over [start, stop).

    ``predict`` takes the exact clipped means of the blocks so far and gives what each value of the next is published
    as; ``released`` is what was published with noise.
    """
    clipped = [min(max(value, 0.0), theta) for value in values]
    noiseless, means = [], []
    for begin in range(0, len(values), block):
        chunk = clipped[begin : begin + block]
        prediction = predict(means) if means else theta / 2.0
        published = [prediction] * len(chunk)
        if len(chunk) == block:
            published[-1] = sum(chunk) - prediction * (block - 1)
            means.append(sum(chunk) / block)
        noiseless += published
    exact = sum(clipped[start:stop])
    truncation = exact - sum(values[start:stop])
    smoothing = sum(noiseless[start:stop]) - exact
    noise = float(np.sum(released[start:stop])) - sum(noiseless[start:stop])
    return noise, truncation, smoothing
