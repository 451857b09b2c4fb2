"""Variances of answers, slowly: dense least squares, and tilings by hand."""

from __future__ import annotations

import numpy as np


def consistent_covariance(fan_out: int, levels: int, tops: int) -> np.ndarray:
    """Covariance of a tree's consistent leaves, in variances of a node: (A^T A)^-1 over all nodes."""
    leaves = tops * fan_out ** (levels - 1)
    rows = [
        [float(j * width <= leaf < (j + 1) * width) for leaf in range(leaves)]
        for width in (fan_out**level for level in range(levels))
        for j in range(leaves // width)
    ]
    matrix = np.array(rows)
    return np.linalg.inv(matrix.T @ matrix)


def shares(first: float, last: float, leaves: int) -> np.ndarray:
    """How much of each leaf lies in [first, last)."""
    return np.array([max(0.0, min(last, k + 1.0) - max(first, float(k))) for k in range(leaves)])


def counter_nodes(seen: int) -> set[tuple[int, int]]:
    """Nodes of a binary counter's running sum after so many values: (height, place)."""
    nodes, begin = set(), 0
    for height in range(62, -1, -1):
        if seen & 1 << height:
            nodes.add((height, begin >> height))
            begin += 1 << height
    return nodes
