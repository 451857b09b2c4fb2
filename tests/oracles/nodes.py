"""Range answers from the nodes of a forest: the fewest that tile a range, by dynamic programming."""

from __future__ import annotations


def tile_counts(start, stop, leaves, fan_out, levels):
    """Least number of disjoint nodes whose union is [start, stop)."""
    best = {start: 0}
    for position in range(start, stop):
        if position not in best:
            continue
        for level in range(levels):
            width = fan_out**level
            end = position + width
            if position % width == 0 and end <= min(stop, leaves):
                best[end] = min(best.get(end, 10**9), best[position] + 1)
    return best[stop]


def noisy_sums(steps, noise, leaves, fan_out, levels):
    """Each level's sums of integers plus its noise, the leaf level first."""
    padded = list(steps) + [0] * (leaves - len(steps))
    out, start = [], 0
    for level in range(levels):
        width = fan_out**level
        sums = [sum(padded[j * width : (j + 1) * width]) for j in range(leaves // width)]
        out += [s + int(z) for s, z in zip(sums, noise[start : start + len(sums)], strict=True)]
        start += len(sums)
    return out
