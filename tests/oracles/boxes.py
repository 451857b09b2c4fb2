"""Contents of boxes, one point at a time."""

from __future__ import annotations


def count_points(points, lower, upper):
    """Points with lower <= point <= upper in every coordinate, for each box."""
    return [
        sum(all(a <= x <= b for a, x, b in zip(low, point, high, strict=True)) for point in points)
        for low, high in zip(lower, upper, strict=True)
    ]
