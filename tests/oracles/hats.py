"""A hierarchy of hat functions by dense linear algebra and exact integers; slow and readable."""

from __future__ import annotations

import numpy as np


def weights(leaves, fan_out, level):
    """Whole weights of a level's sums, knots by leaves: b^j at the knot, falling by 1 a leaf."""
    width = fan_out**level
    knots = range(leaves // width + 1) if level else range(leaves)
    return [[max(width - abs(leaf - knot * width), 0) for leaf in range(leaves)] for knot in knots]


def all_hats(leaves, fan_out, levels):
    """Hats of the levels above the leaves, float64[knots, leaves]."""
    return np.concatenate([np.array(weights(leaves, fan_out, level)) / fan_out**level for level in range(1, levels)])


def covariance(leaves, fan_out, levels):
    """Of least squares, with noise of variance 1 on every sum."""
    hats = all_hats(leaves, fan_out, levels)
    return np.linalg.inv(np.eye(leaves) + hats.T @ hats)


def least_squares(nodes, leaves, fan_out, levels):
    """Leaves nearest to noisy sums: the leaves' own noise, then each level's times b^j."""
    hats = all_hats(leaves, fan_out, levels)
    scales = np.repeat(
        [float(fan_out**level) for level in range(1, levels)],
        [leaves // fan_out**level + 1 for level in range(1, levels)],
    )
    own, above = np.array(nodes[:leaves], float), np.array(nodes[leaves:], float) / scales
    return np.linalg.solve(np.eye(leaves) + hats.T @ hats, own + hats.T @ above)
