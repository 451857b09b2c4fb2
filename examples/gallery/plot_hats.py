"""
Detail within a block: hats and their energies
==============================================

A released sum is spread evenly over its block, which hides what happens within. The error of the running sum is
zero at the block's ends. Halfway it is half the difference of the two halves, and it is linear on both sides: a
hat. Each half has a hat of its own, and so on; the whole error is the sum of these hats. ``docs/streams.md``
derives the length of a block from their mean squares, the energies.
"""

import matplotlib.pyplot as plt
import numpy as np

rng = np.random.default_rng(4)
size = 64
values = 10.0 + np.cumsum(rng.normal(0.0, 0.6, size)) + rng.normal(0.0, 1.0, size)
error = np.concatenate([[0.0], np.cumsum(values - values.mean())])
position = np.arange(size + 1)


def hats(depth: int) -> np.ndarray:
    """The sum of all hats of one scale: 2^depth parts, each with its halves' difference."""
    part = size >> depth
    out = np.zeros(size + 1)
    for start in range(0, size, part):
        halves = values[start : start + part].reshape(2, -1).sum(axis=1)
        height = (halves[0] - halves[1]) / 2
        middle = start + part / 2
        inside = slice(start, start + part + 1)
        out[inside] += height * (1 - np.abs(position[inside] - middle) / (part / 2))
    return out


figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
axes.plot(position, error, "k", linewidth=2, label="error of the running sum")
total = np.zeros(size + 1)
for depth in range(6):
    total += hats(depth)
    if depth < 3:
        axes.plot(position, hats(depth), "--", label=f"hats of {size >> depth} values")
axes.plot(position, total, "r:", linewidth=2, label="sum of the hats of all scales")
axes.set(title="One block of 64 values", xlabel="position in the block", ylabel="error")
axes.legend(fontsize=7)

# %%
# The identity is exact.

print("largest difference:", np.abs(total - error).max())

# %%
# The energy at scale k is the mean square of the difference of neighbouring sums of 2^k values. Independent values
# give 2 s^2 2^k, a wandering level 8^k; a stream that is both has a bend. A block should end about where its hats'
# energy passes that of its noise.

walk = np.cumsum(rng.normal(0.0, 0.02, 2**18))
noise = rng.normal(0.0, 1.0, 2**18)
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
for name, stream in {"independent values": noise, "wandering level": walk, "both": noise + walk}.items():
    energies = []
    for k in range(12):
        sums = stream.reshape(-1, 2, 1 << k).sum(axis=2)
        energies.append(np.mean((sums[:, 0] - sums[:, 1]) ** 2))
    axes.plot(1 << np.arange(12), energies, "o-", markersize=3, label=name)
axes.axhline(2 * 2 * 30.0**2, color="gray", linestyle="--", label="noise of two blocks (scale 30)")
axes.set_xscale("log", base=2)
axes.set_yscale("log")
axes.set(title="Energies", xlabel="values in each of two neighbouring sums", ylabel="mean squared difference")
axes.legend(fontsize=7)
