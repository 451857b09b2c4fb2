"""Binary tree of Chan, Shi and Song, and Dwork et al., as a counter (PAK section II-D)."""

from __future__ import annotations

import numpy as np

from fastdp_kernels._jit import inline, kernel, plus


@inline
def _big_endian(x: np.uint64) -> np.uint64:
    out = np.uint64(0)
    for _ in range(8):
        out = (out << np.uint64(8)) | (x & np.uint64(255))
        x >>= np.uint64(8)
    return out


@kernel
def node_counters(
    seen: int, after: int, levels: int, stream: int, member: int, counters: np.ndarray, offsets: np.ndarray
) -> int:
    """Fill counter blocks for nodes that values ``seen`` to ``after`` complete; returns their number.

    ``stream``: id of the words of height 0, to which a height is added at bit 40; ``member``: the key's stream
    number; ``counters``, uint64[after - seen + 2 levels, 2], in the cipher's bytes; ``offsets``, int64[levels]: the
    node of height j after value (k + 1) 2^j has word offsets[j] + k.
    """
    at = 0
    for height in range(levels):
        first, stop = seen >> height, after >> height
        begin = first >> 1
        offsets[height] = 2 * (at - begin)
        if stop == first:
            continue
        name = _big_endian(np.uint64(stream + (height << 40)))
        for block in range(begin, (stop + 1) >> 1):
            counters[at, 0] = name
            counters[at, 1] = _big_endian((np.uint64(member) << np.uint64(32)) | np.uint64(block))
            at += 1
    return at


@kernel
def count_on(
    steps: np.ndarray,
    seen: int,
    total: int,
    above: np.ndarray,
    noise: np.ndarray,
    offsets: np.ndarray,
    out: np.ndarray,
) -> int:
    """Publish the noisy running sum, modulo 2^64, after each value; returns the exact sum of all.

    ``seen``, ``total``: number and exact sum of values before; ``above``, int64[levels + 1]: noise of the open nodes
    of height j and more, 0 at first; ``noise``: by ``offsets`` of :func:`node_counters`.
    """
    exact = np.int64(total)
    for i in range(steps.size):
        t = seen + i + 1
        exact = plus(exact, steps[i])
        height = 0
        while (t >> height) & 1 == 0:
            height += 1
        own = noise[offsets[height] + (t >> height) - 1]
        above[height] = plus(above[height + 1], own)
        for j in range(height):
            above[j] = above[height]
        out[i] = plus(exact, above[0])
    return int(exact)


# AES-CTR's counter blocks (not the binary counter's nodes) of the words of many rows.


@kernel
def write_counters(common: np.ndarray, names: np.ndarray, members: np.ndarray, counters: np.ndarray) -> None:
    """Fill counters of all rows, uint64[n, 2 k]: ``common`` halves with the row's ``names`` and ``members``."""
    for row in range(names.size):
        name, member, own = names[row], members[row], counters[row]
        # One loop over all halves: vectors take it as it lies.
        for half in range(common.size):
            own[half] = common[half] | (member if half & 1 else name)
