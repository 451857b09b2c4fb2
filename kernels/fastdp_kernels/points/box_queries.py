"""Contents of many boxes: exact counts of points, and counts of a released tree.

n points lie in the order of a balanced k-d tree: node 2^l + k holds those from k n >> l to (k + 1) n >> l.  A box
holds its border, and enters O(n^(1 - 1/d)) nodes (Bentley, CACM 18(9), 1975).
"""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel

_APART, _ACROSS, _WITHIN = 0, 1, 2


@inline
def _widest_axis(keys: np.ndarray, low: int, high: int) -> int:
    best = 0
    widest = -1.0
    for axis in range(keys.shape[1]):
        least = most = keys[low, axis]
        for i in range(low + 1, high):
            least = min(least, keys[i, axis])
            most = max(most, keys[i, axis])
        if most - least > widest:
            widest = most - least
            best = axis
    return best


@inline
def _select(keys: np.ndarray, axis: int, low: int, high: int, middle: int) -> None:
    """Reorder items so that none before ``middle`` exceeds a later one."""
    left, right = low, high - 1
    while left < right:
        pivot = keys[(left + right) // 2, axis]
        i, j = left, right
        while i <= j:
            while keys[i, axis] < pivot:
                i += 1
            while keys[j, axis] > pivot:
                j -= 1
            if i <= j:
                for a in range(keys.shape[1]):
                    keys[i, a], keys[j, a] = keys[j, a], keys[i, a]
                i += 1
                j -= 1
        if middle <= j:
            right = j
        elif middle >= i:
            left = i
        else:
            break


@kernel
def sort_into_tree(points: np.ndarray, levels: int) -> None:
    """Bring points in tree order, node by node across the widest axis; n >= 2^levels, or no levels."""
    n = points.shape[0]
    for level in range(levels):
        for k in range(1 << level):
            low, high = (k * n) >> level, ((k + 1) * n) >> level
            middle = ((2 * k + 1) * n) >> (level + 1)
            _select(points, _widest_axis(points, low, high), low, high, middle)


@kernel
def enclose_points(points: np.ndarray, levels: int, node_lower: np.ndarray, node_upper: np.ndarray) -> None:
    """Fill the smallest box around each node's points."""
    n, dim = points.shape
    leaves = 1 << levels
    node_lower[:] = np.inf
    node_upper[:] = -np.inf
    for k in range(leaves):
        for i in range((k * n) >> levels, ((k + 1) * n) >> levels):
            for a in range(dim):
                node_lower[leaves + k, a] = min(node_lower[leaves + k, a], points[i, a])
                node_upper[leaves + k, a] = max(node_upper[leaves + k, a], points[i, a])
    for node in range(leaves - 1, 0, -1):
        for a in range(dim):
            node_lower[node, a] = min(node_lower[2 * node, a], node_lower[2 * node + 1, a])
            node_upper[node, a] = max(node_upper[2 * node, a], node_upper[2 * node + 1, a])


@inline
def _relation(
    node_lower: np.ndarray, node_upper: np.ndarray, node: int, lower: np.ndarray, upper: np.ndarray, i: int
) -> int:
    answer = _WITHIN
    for a in range(lower.shape[1]):
        if node_upper[node, a] < lower[i, a] or node_lower[node, a] > upper[i, a]:
            return _APART
        if node_lower[node, a] < lower[i, a] or node_upper[node, a] > upper[i, a]:
            answer = _ACROSS
    return answer


@kernel
def count_points(
    points: np.ndarray,
    node_lower: np.ndarray,
    node_upper: np.ndarray,
    levels: int,
    lower: np.ndarray,
    upper: np.ndarray,
    out: np.ndarray,
) -> None:
    """Count the points in each box, int64[q], possibly infinite, by :func:`enclose_points`."""
    n, dim = points.shape
    nodes = np.empty(levels + 2, np.int64)
    depths = np.empty(levels + 2, np.int64)
    for i in range(out.size):
        total = 0
        nodes[0], depths[0] = 1, 0
        waiting = 1
        while waiting > 0:
            waiting -= 1
            node, level = nodes[waiting], depths[waiting]
            relation = _relation(node_lower, node_upper, node, lower, upper, i)
            if relation == _APART:
                continue
            k = node - (1 << level)
            low, high = (k * n) >> level, ((k + 1) * n) >> level
            if relation == _WITHIN:
                total += high - low
            elif level == levels:
                for p in range(low, high):
                    inside = 1
                    for a in range(dim):
                        inside &= (points[p, a] >= lower[i, a]) & (points[p, a] <= upper[i, a])
                    total += inside
            else:
                for child in range(2):
                    nodes[waiting], depths[waiting] = 2 * node + child, level + 1
                    waiting += 1
        out[i] = total


@kernel
def count_boxes(
    fan_out: int,
    first: np.ndarray,
    counts: np.ndarray,
    cell_lower: np.ndarray,
    cell_upper: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    by_volume: bool,
    stack: np.ndarray,
    cut_query: np.ndarray,
    cut_leaf: np.ndarray,
    out: np.ndarray,
) -> int:
    """Answer box queries, float64[q], by descent in a released tree (``privtree``); returns the number of cut leaves.

    ``first``, ``counts``: int64[v], float64[v], consistent; ``by_volume``: a cut leaf counts by its volume, else it
    is listed in ``cut_query`` and ``cut_leaf``, as far as they fit; ``stack``, int64[v], is scratch.
    """
    listed = 0
    for k in range(out.size):
        total = 0.0
        stack[0] = 0
        depth = 1
        while depth > 0:
            depth -= 1
            node = stack[depth]
            part = 1.0
            for axis in range(lower.shape[1]):
                low = cell_lower[node, axis]
                high = cell_upper[node, axis]
                inside = min(high, upper[k, axis]) - max(low, lower[k, axis])
                if not inside > 0.0:
                    part = 0.0
                    break
                if inside < high - low:
                    part *= inside / (high - low)
            if part == 0.0 or counts[node] == 0.0:
                continue
            if part == 1.0:
                total += counts[node]
            elif first[node] >= 0:
                for j in range(fan_out):
                    stack[depth] = first[node] + j
                    depth += 1
            elif by_volume:
                total += counts[node] * part
            else:
                if listed < cut_query.size:
                    cut_query[listed] = k
                    cut_leaf[listed] = node
                listed += 1
        out[k] = total
    return listed
