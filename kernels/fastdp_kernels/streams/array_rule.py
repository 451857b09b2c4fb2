"""Counts, distances and block sums of a finished array, and the one answer they give (``docs/streams_proofs.md``).

Steps are grid steps, at least 0.  Sums, levels and noise are in units of the input, noise by variance.
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import bits_of, inline, kernel

#: Histograms that are counted in turn, so that equal neighbours do not wait for each other.
TURNS = 4
#: Points of the tail's grid and of a mean's, besides 0.
POINTS = 400
#: Prior that nothing lies above theta.
NO_TAIL = 0.05
#: A total below so many noise scales is shrunk; below the second, levels are even.
CLEAR, EVEN = 12.0, 2.0
#: Independent part of a level and steps of its random walk: factors on the noise, and on the variance of levels.
WHITES = np.array([0.0, 0.1, 0.4, 1.6, 6.4])
WALKS = 4.0 ** np.arange(-9, 2)
#: Entries of ``numbers``: sum below theta and its variance, that of the blocks' alone, of a group's sum, the mean of
#: the tail, its fraction of a correction, total before and after shrinking.
CLIPPED, V_CLIPPED, V_SUM, V_GROUP, ABOVE, PULL, RAW, TOTAL, NUMBERS = range(9)


@kernel
def count_levels(steps: np.ndarray, levels: np.ndarray, first: np.ndarray, counts: np.ndarray) -> None:
    """Add to ``counts[:, k]``, int64[TURNS, m + 1], the values at most ``levels[k - 1]`` and above ``levels[k]``.

    `levels`, int64[m + 2], descend and end with two of -1, two at most between powers of two; those before
    ``first[e]`` are 2^e and more.
    """
    for i in range(steps.size):
        v = steps[i]
        k = first[(bits_of(np.float64(v)) >> 52) & 2047]
        k += v <= levels[k]
        k += v <= levels[k]
        counts[i % TURNS, k] += 1


@inline
def _count_over(part: np.ndarray, c: int) -> int:
    over = 0
    for i in range(part.size):
        over += part[i] > c
    return over


@inline
def _median(part: np.ndarray, low: int, high: int) -> int:
    while low < high:
        c = (low + high) >> 1
        over = _count_over(part, c)
        if 2 * over > part.size:
            low = c + 1
        else:
            high = c
            if 2 * over == part.size:
                return c
    return high


@kernel
def distances(values: np.ndarray, block: int, medians: np.ndarray, out: np.ndarray) -> None:
    """Sum distances from the median in blocks of ``block * 2**i`` values, int64[m].

    `values`, int32[n]; `medians`, int32[ceil(n / block)], is scratch.
    """
    out[:] = 0
    wide = block << (out.size - 1)
    for first in range(0, values.size, wide):
        # All lengths of one stretch, while it is in the first caches.
        stretch = values[first : first + wide]
        for k in range(out.size):
            width = block << k
            for j in range(-(-stretch.size // width)):
                part = stretch[j * width : (j + 1) * width]
                if k == 0:
                    low, high = part[0], part[0]
                    for i in range(part.size):
                        low, high = min(low, part[i]), max(high, part[i])
                else:
                    # A median lies between those of the halves.
                    low = medians[2 * j]
                    high = low if part.size <= width // 2 else medians[2 * j + 1]
                    low, high = min(low, high), max(low, high)
                middle = _median(part, low, high)
                medians[j] = middle
                for i in range(part.size):
                    gap = part[i] - middle
                    out[k] += max(gap, -gap)


@kernel
def rescale(steps: np.ndarray, theta: int, fine: int, out: np.ndarray) -> None:
    """Clip values to theta and round them to `fine` steps a theta, int32[n]."""
    per_step = fine / theta
    for i in range(steps.size):
        out[i] = np.int32(np.floor(min(steps[i], theta) * per_step + 0.5))


@kernel
def sum_clipped(steps: np.ndarray, theta: int, block: int, out: np.ndarray) -> None:
    """Sum blocks of values clipped to theta exactly, int64[ceil(n / block)]."""
    for j in range(out.size):
        total = np.int64(0)
        for i in range(j * block, min((j + 1) * block, steps.size)):
            total += min(steps[i], theta)
        out[j] = total


@inline
def shrunk(total: float, scale: float, count: int, bound: float) -> float:
    """Posterior mean of a noisy total; prior of its `count` values' mean about 1 / (mean + bound / 300)."""
    if total > CLEAR * scale:
        return min(total, count * bound)
    low, high = np.log(bound * 1e-5), np.log(bound)
    step = (high - low) / (POINTS - 1)
    least = abs(total) / scale
    for i in range(POINTS):
        least = min(least, abs(total - count * np.exp(low + i * step)) / scale)
    weights, moment, before, m = 0.0, 0.0, 0.0, 0.0
    following = np.exp(low)
    for i in range(POINTS + 1):
        # The weight of a point is half of the way between its neighbours.
        if i == 0:
            width = following
        elif i == POINTS:
            width = m - before
        else:
            width = (following - before) / 2.0
        w = width / (m + bound / 300.0) * np.exp(least - abs(total - count * m) / scale)
        weights += w
        moment += w * m
        before, m = m, following
        following = np.exp(low + (i + 1) * step)
    return count * moment / weights


@kernel
def tail(
    missing: float,
    sd: float,
    clipped: float,
    theta: float,
    most: float,
    usual: float,
    grid: np.ndarray,
    p: np.ndarray,
) -> float:
    """Posterior of the sum above theta, given that `missing` +- `sd` was seen: grid, probabilities, mean."""
    low = np.log(min(max(theta, 1e-3 * sd), most / 2.0))
    step = (np.log(most) - low) / (POINTS - 1)
    grid[0], p[0] = 0.0, 0.0
    whole = 0.0
    far = max(2.0 * clipped, usual)
    for i in range(1, POINTS + 1):
        grid[i] = np.exp(low + (i - 1) * step)
        p[i] = 0.7 / (1.0 + grid[i] / usual) + 0.3 / (1.0 + grid[i] / far)
        whole += p[i]
    least = np.inf
    for i in range(POINTS + 1):
        least = min(least, 0.5 * ((missing - grid[i]) / sd) ** 2)
    p[0] = NO_TAIL * whole
    total, mean = 0.0, 0.0
    for i in range(POINTS + 1):
        p[i] *= np.exp(least - 0.5 * ((missing - grid[i]) / sd) ** 2)
        total += p[i]
        mean += p[i] * grid[i]
    for i in range(POINTS + 1):
        p[i] /= total
    return mean / total


@kernel
def combine(
    sums: np.ndarray,
    groups: np.ndarray,
    wide: int,
    total: float,
    count: int,
    block: int,
    theta: float,
    bound: float,
    variances: np.ndarray,
    usual: float,
    numbers: np.ndarray,
) -> None:
    """Move the blocks' sums towards those of groups of `wide` blocks and to the total, by all `variances`."""
    v_block, v_group, v_total = variances[0], variances[1], variances[2]
    blocks = sums.size
    v_sum = blocks * v_block
    numbers[V_GROUP] = 0.0
    if groups.size:
        v_sum = 0.0
        for k in range(groups.size):
            begin, end = k * wide, min((k + 1) * wide, blocks)
            both = (end - begin) * v_block + v_group
            lacking = (groups[k] - sums[begin:end].sum()) * v_block / both
            for j in range(begin, end):
                sums[j] += lacking
            v_sum += (end - begin) * v_block * v_group / both
        numbers[V_GROUP] = v_sum / groups.size
    clipped = sums.sum()
    missing, above = total - clipped, 0.0
    pull = v_sum / (v_sum + v_total)
    if theta < bound:
        grid, p = np.empty(POINTS + 1), np.empty(POINTS + 1)
        most = count * (bound - theta)
        above = tail(missing, np.sqrt(v_sum + v_total), clipped, theta, most, usual, grid, p)
    moved = pull * (missing - above)
    for j in range(blocks):
        sums[j] += moved * (min((j + 1) * block, count) - j * block) / count
    numbers[V_SUM], numbers[V_CLIPPED] = v_sum, v_sum * v_total / (v_sum + v_total)
    numbers[CLIPPED], numbers[ABOVE], numbers[PULL] = clipped + moved, above, pull
    numbers[RAW] = clipped + moved + above


@inline
def _walk(z: np.ndarray, ratio: float, ahead: np.ndarray, out: np.ndarray) -> float:
    """Solve (ratio * walk + 1) out = z; return the log determinant."""
    n = z.size
    logarithm, product = 0.0, 1.0
    d = 1.0 + ratio
    ahead[0], out[0] = ratio / d, z[0] / d
    product *= d
    for i in range(1, n):
        d = 1.0 + (ratio if i == n - 1 else 2.0 * ratio) - ratio * ahead[i - 1]
        ahead[i] = ratio / d
        out[i] = (z[i] + ratio * out[i - 1]) / d
        product *= d
        if product > 1e100:
            logarithm += np.log(product)
            product = 1.0
    for i in range(n - 2, -1, -1):
        out[i] += ahead[i] * out[i + 1]
    total: float = logarithm + np.log(product)
    return total


@kernel
def smooth(z: np.ndarray, v: float) -> np.ndarray:
    """Levels of block means `z` of noise variance `v`: a random walk and an independent part, by evidence."""
    n = z.size
    mean = z.sum() / n
    # Equal means would give steps whose ratio to the noise no float resolves.
    spread = max(((z - mean) ** 2).sum() / n, 1e-6 * v, 1e-300)
    best, out, m, ahead = -np.inf, z.copy(), np.empty(n), np.empty(n)
    for k in range(WHITES.size):
        w = WHITES[k] * v
        u = v + w
        for walk in range(WALKS.size + 1):
            fit = 1.0 if k == 0 else 0.0
            if walk == 0:
                m[:] = mean
                fit += 1.0 - 0.5 * (n * np.log(u) + np.log(n / u) + ((z - mean) ** 2).sum() / u)
            else:
                q = spread * WALKS[walk - 1]
                logarithm = _walk(z, u / q, ahead, m)
                fit -= 0.5 * ((n - 1) * np.log(q) + logarithm + ((z - m) * z).sum() / u)
            if fit > best:
                best = fit
                for i in range(n):
                    out[i] = m[i] + w / u * (z[i] - m[i])
    return out


@inline
def _add_up(levels: np.ndarray, edges: np.ndarray, before: np.ndarray) -> None:
    before[0] = 0.0
    for j in range(levels.size):
        before[j + 1] = before[j] + levels[j] * (edges[j + 1] - edges[j])


@kernel
def settle(
    levels: np.ndarray,
    edges: np.ndarray,
    theta: float,
    bound: float,
    v_total: float,
    numbers: np.ndarray,
    before: np.ndarray,
    plain: np.ndarray,
    plain_before: np.ndarray,
) -> None:
    """Scale levels between `edges` to the total, shrink a total within its noise, and keep them within [0, bound].

    ``before``: sums before each edge; ``plain``, ``plain_before``: the same without those limits.
    """
    pieces, count = levels.size, edges[edges.size - 1]
    clipped, above, raw = numbers[CLIPPED], numbers[ABOVE], numbers[RAW]
    sum_now = 0.0
    for j in range(pieces):
        sum_now += levels[j] * (edges[j + 1] - edges[j])
    # Smoothing moves no total.
    levels += (clipped - sum_now) / count
    if clipped > 0.0:
        levels *= raw / clipped
    else:
        # Nothing is known of the shape.
        levels[:] = raw / count
    scale = np.sqrt(numbers[V_CLIPPED] / 2.0)
    if theta < bound and raw > 0.0:
        scale = max(scale, np.sqrt(v_total / 2.0) * min(1.0, above / raw))
    total = min(max(raw, 0.0), count * bound)
    if raw < CLEAR * scale:
        total = shrunk(raw, scale, count, bound)
        if raw > EVEN * scale:
            levels *= total / raw
        else:
            levels[:] = total / count
    numbers[TOTAL] = total
    for j in range(pieces):
        plain[j] = levels[j]
    _add_up(plain, edges, plain_before)
    low, high = levels[0], levels[0]
    for j in range(pieces):
        low, high = min(low, levels[j]), max(high, levels[j])
    if low < 0.0 or high > bound:
        # A level of water: nothing is below 0 or above the bound, and the total stays.
        a, b = low - bound, max(high, bound)
        for _ in range(100):
            c = (a + b) / 2.0
            held = 0.0
            for j in range(pieces):
                held += min(max(levels[j] - c, 0.0), bound) * (edges[j + 1] - edges[j])
            if held > total:
                a = c
            else:
                b = c
        for j in range(pieces):
            levels[j] = min(max(levels[j] - b, 0.0), bound)
    _add_up(levels, edges, before)
