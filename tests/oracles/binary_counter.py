"""The binary mechanism as the paper tells it: tile [1, t] by nodes, add each node's noisy sum."""

from __future__ import annotations


def running_sums(steps, node_noise):
    """``node_noise(height, k)`` is the noise of the k-th node (from 0) of 2^height values."""
    out = []
    for t in range(1, len(steps) + 1):
        total, position = 0, 0
        for height in reversed(range(t.bit_length())):
            if t >> height & 1:
                width = 1 << height
                total += sum(steps[position : position + width]) + node_noise(height, position // width)
                position += width
        out.append(total)
    return out
