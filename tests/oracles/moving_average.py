"""Moving averages from running sums, one at a time; and the nodes of which two running sums are made."""

from __future__ import annotations


def averages(running_sums, window):
    """``running_sums`` by position t, those published only; the mean of all values where the window is not known."""
    out = []
    for t in sorted(running_sums):
        if window is not None and t - window in running_sums:
            out.append((running_sums[t] - running_sums[t - window]) / window)
        else:
            out.append(running_sums[t] / t)
    return out


def nodes_in_the_difference(t, window):
    """How many nodes of the binary tree are in just one of the running sums after t and t - window values."""

    def tiles(end):
        return {(height, end >> height) for height in range(end.bit_length()) if end >> height & 1}

    return len(tiles(t) ^ tiles(t - window))
