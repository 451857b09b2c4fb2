"""ToPS in plain Python, as the paper tells it (with the readings of docs/explanation/papers.md).

Section 3.3, Eq. 5 and 6 (threshold); Appendix C, Eq. 10 and 11 (consistency) in exact integers;
Algorithm 1 and Appendix D (publishing).  Noise comes in from outside.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np


def threshold_scores(holdout, candidates, unit, c, epsilon, max_range, fan_out):
    """K times Eq. 6, up to a constant: K #{v <= theta} - rint(K public term)."""
    m = len(holdout)
    scores = []
    for theta in candidates:
        public = 3.0 * m / (c * max_range * epsilon)
        public *= math.sqrt(2.0 * (fan_out - 1) * (math.log(max_range) / math.log(fan_out)) ** 3)
        at_most = sum(1 for v in holdout if v <= theta)
        scores.append(unit * at_most - int(np.rint(min(unit * public * theta, 2.0**61))))
    return scores


def argmax_first(scores):
    """The lowest index with the largest score."""
    return max(range(len(scores)), key=lambda j: (scores[j], -j))


def consistent_integers(levels, fan_out):
    """Eq. 10 and 11 on integer noise; ``levels[0]`` are the leaves, ``levels[-1]`` the tops."""
    b = fan_out
    z = [[int(x) for x in level] for level in levels]
    for l in range(2, len(z) + 1):  # noqa: E741 - the paper's letter
        weight = float(Fraction(b**l - b ** (l - 1), b**l - 1))
        for j in range(len(z[l - 1])):
            below = sum(z[l - 2][j * b : (j + 1) * b])
            z[l - 1][j] = below + int(np.rint(float(z[l - 1][j] - below) * weight))
    for l in range(len(z) - 1, 0, -1):  # noqa: E741
        for j in range(len(z[l])):
            lack = z[l][j] - sum(z[l - 1][j * b : (j + 1) * b])
            share, extra = divmod(lack, b)
            for child in range(b):
                z[l - 1][j * b + child] += share + (1 if child < extra else 0)
    return z


def least_squares(levels, fan_out):
    """Leaves that minimise the squared distance to all noisy nodes: dense linear algebra."""
    leaves = len(levels[0])
    rows, right = [], []
    for height, level in enumerate(levels):
        width = fan_out**height
        for j, value in enumerate(level):
            row = np.zeros(leaves)
            row[j * width : (j + 1) * width] = 1.0
            rows.append(row)
            right.append(float(value))
    solution, *_ = np.linalg.lstsq(np.array(rows), np.array(right), rcond=None)
    return solution


def leaf_covariance(leaves, fan_out, height):
    """Covariance of the least-squares leaves for unit node variance: (A^T A)^-1."""
    rows = []
    for level in range(height):
        width = fan_out**level
        for j in range(leaves // width):
            row = np.zeros(leaves)
            row[j * width : (j + 1) * width] = 1.0
            rows.append(row)
    matrix = np.array(rows)
    return np.linalg.inv(matrix.T @ matrix)


def publish(values, theta_steps, resolution, block, leaf_noise, tree_blocks):
    """Algorithm 1 with the Recent smoother, value by value; ``leaf_noise(tree)`` gives a tree's leaves."""
    prediction = theta_steps * resolution / 2.0
    out, total, filled, closed = [], 0, 0, 0
    for v in values:
        step = int(np.rint(min(max(v, 0.0) / resolution, float(theta_steps))))
        total, filled = total + step, filled + 1
        if filled < block:
            out.append(prediction)
            continue
        tree, leaf = divmod(closed, tree_blocks)
        u = float(total + int(leaf_noise(tree)[leaf])) * resolution
        out.append(u - prediction * float(block - 1) if block > 1 else u)
        prediction = u / block
        total, filled, closed = 0, 0, closed + 1
    return np.array(out)


def range_variance(start, stop, leaves, fan_out, height):
    """Variance of the least-squares answer to [start, stop) for unit node variance, in closed form.

    (A^T A)^-1 = sum over j of (P_j - P_(j+1)) / lambda_j, where P_j averages over blocks of b^j leaves
    (P_h = 0: the tops are not tied) and lambda_j = 1 + b + ... + b^j.
    """
    squares = []
    for j in range(height):
        width = fan_out**j
        first, last = start // width, stop // width
        if first == last:
            squares.append((stop - start) ** 2 / width)
            continue
        head, tail = (first + 1) * width - start, stop - last * width
        squares.append(head**2 / width + (last - first - 1) * width + tail**2 / width)
    squares.append(0.0)
    weights = [(fan_out - 1) / (fan_out ** (j + 1) - 1) for j in range(height)]
    return sum(w * (squares[j] - squares[j + 1]) for j, w in enumerate(weights))
