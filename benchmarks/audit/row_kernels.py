"""Many independent trials at once, for the audit: each row goes through a mechanism's own kernel.

Nothing of a mechanism is repeated here.  Letters: n trials.
"""

import numpy as np

from fastdp_kernels._jit import kernel
from fastdp_kernels.noise.binary_counter import count_on
from fastdp_kernels.streams.adaptive_pass import ADAPTIVE_ROW, BLOCK, PUBLIC, sum_bound
from fastdp_kernels.streams.block_lengths import MEMORY


@kernel
def count_streams(steps: np.ndarray, levels: int, noise: np.ndarray, offsets: np.ndarray, out: np.ndarray) -> None:
    """``binary_counter.count_on`` from its beginning, for each row of noise."""
    above = np.zeros(levels + 1, np.int64)
    for i in range(noise.shape[0]):
        above[:] = 0
        count_on(steps, 0, np.int64(0), above, noise[i], offsets, out[i])


@kernel
def release_blocks(
    values: np.ndarray, theta_steps: int, shape: np.ndarray, start: np.ndarray, noise: np.ndarray, out: np.ndarray
) -> None:
    """``adaptive_pass.sum_bound`` from its beginning, for each row of noise, all of it given."""
    theta = np.float64(theta_steps)
    counters, public, memory = np.zeros(1, ADAPTIVE_ROW), np.zeros(1, PUBLIC), np.zeros(1, MEMORY)
    public[0].per_unit, public[0].top, public[0].theta_steps = 1.0, theta, theta
    blocks, unbound, no_law = np.empty(noise.shape[1] + 1, BLOCK), np.empty(0, np.uint64), np.empty(0)
    for i in range(noise.shape[0]):
        memory[0] = start[0]
        counters[0].filled = counters[0].open_sum = counters[0].closed = 0
        drawn = noise[i]
        given = values, public[0], theta, shape[0], None, drawn, unbound, no_law
        sum_bound(*given, counters[0], memory[0], blocks, None, None)
        for j in range(noise.shape[1]):
            closed = j < counters[0].closed
            out[i, 2 * j] = np.int64(blocks[j].exponent) if closed else -1
            out[i, 2 * j + 1] = np.int64(np.rint(blocks[j].released * theta)) if closed else 0
