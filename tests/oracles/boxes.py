"""Contents of boxes, one item at a time: points exactly, cells by their shared part of the volume in fractions."""

from __future__ import annotations

from fractions import Fraction


def count_points(points, lower, upper):
    """Points with lower <= point <= upper in every coordinate, for each box."""
    return [
        sum(all(a <= x <= b for a, x, b in zip(low, point, high, strict=True)) for point in points)
        for low, high in zip(lower, upper, strict=True)
    ]


def shared_part(cell_low, cell_high, low, high):
    """Volume of the intersection over the cell's volume; an axis without extent asks only whether it is inside."""
    share = Fraction(1)
    for a, b, c, d in zip(cell_low, cell_high, low, high, strict=True):
        begin, end = max(a, c), min(b, d)
        if begin > end:
            return Fraction(0)
        if b > a:
            share *= (Fraction(end) - Fraction(begin)) / (Fraction(b) - Fraction(a))
    return share


def count_cells(cell_lower, cell_upper, counts, lower, upper):
    """Sum over the cells of count times shared part, for each box."""
    return [
        float(
            sum(
                Fraction(count) * shared_part(a, b, low, high)
                for a, b, count in zip(cell_lower, cell_upper, counts, strict=True)
            )
        )
        for low, high in zip(lower, upper, strict=True)
    ]


def bisection(lower, upper, depth, generator, axis=0):
    """Cells of a random tree that halves the axes in turn, as lists of bounds."""
    if depth == 0 or generator.random() < 0.15:
        return [(list(lower), list(upper))]
    middle = (lower[axis] + upper[axis]) / 2
    left, right = list(upper), list(lower)
    left[axis] = right[axis] = middle
    following = (axis + 1) % len(lower)
    return bisection(lower, left, depth - 1, generator, following) + bisection(
        right, upper, depth - 1, generator, following
    )
