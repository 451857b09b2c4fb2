"""The smoothers of ToPS Appendix D in plain Python, one block at a time (readings of docs/explanation/papers.md)."""

from __future__ import annotations

import statistics


def recent(first, means):
    """Item 1: the block before."""
    return list(means)


def mean(first, means):
    """Item 2: the mean of the blocks seen."""
    return [sum(means[: t + 1]) / (t + 1) for t in range(len(means))]


def median(first, means):
    """Item 3: the median of the blocks seen, per value."""
    return [statistics.median(means[: t + 1]) for t in range(len(means))]


def median_of_bins(first, means, bins):
    """The same after sorting values into bins over [-theta, 2 theta]: the middle of the bin, ends included."""
    theta = 2.0 * first
    low, width = -theta, 3.0 * theta / bins
    places = [min(max(int((m - low) / width), 0), bins - 1) if m > low else 0 for m in means]
    out = []
    for t in range(len(means)):
        ordered = sorted(places[: t + 1])
        lower, upper = ordered[t // 2], ordered[(t + 1) // 2]
        out.append(low + 0.5 * width * (lower + upper + 1.0))
    return out


def moving_average(first, means, window):
    """Item 4: w terms; before w blocks the guess u_0 counts as one."""
    history = [first, *means]
    return [statistics.fmean(history[max(0, t + 2 - window) : t + 2]) for t in range(len(means))]


def exponential(first, means, alpha):
    """Item 5."""
    out, previous = [], first
    for m in means:
        previous = alpha * m + (1.0 - alpha) * previous
        out.append(previous)
    return out
