"""
How Adaptive chooses its blocks
===============================

``Adaptive`` releases one noisy sum for each block of values. The length of the next block follows from the sums
that were released before, so it costs no privacy. Where the stream moves, blocks are short; where the noise hides
the movement, blocks are long.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastdp

rng = np.random.default_rng(5)
time = np.arange(60_000)
level = np.where(time < 25_000, 20.0, 20.0 + 15.0 * np.sin(time / 900.0))
values = rng.gamma(2.0, level / 2.0)

figure, panels = plt.subplots(2, 2, figsize=(10, 5.5), sharex=True, sharey="row", layout="constrained")
for column, epsilon in zip(panels.T, (1.0, 0.05), strict=True):
    publisher = fastdp.Adaptive(epsilon=epsilon, bound=200.0, threshold=100.0, seed=1)
    release = publisher.release(values)
    edges, means = release.revision.edges, release.revision.means
    top, bottom = column
    top.plot(time, level, "k", linewidth=0.8, label="mean of the stream (synthetic)")
    top.stairs(means, edges, baseline=None, label="revised mean of each block")
    top.set(title=f"epsilon = {epsilon}: {means.size:,} blocks")
    top.legend(fontsize=7, loc="upper left")
    bottom.stairs(np.diff(edges), edges, baseline=None)
    bottom.set_yscale("log", base=2)
    bottom.set(xlabel="position in the stream")
panels[0, 0].set(ylabel="value")
panels[1, 0].set(ylabel="values in a block")
