"""
Ten thousand meters in one call
===============================

``release_many`` publishes many finished streams at once, each as if a publisher of its own had published it. Ten
thousand synthetic meters report a day of quarter-hours. One meter's private values are mostly noise; sums over many
meters are accurate, because the noises are independent.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastdp

rng = np.random.default_rng(6)
hour = np.arange(96) / 4
shape = 0.15 + 0.3 * np.exp(-(((hour - 7.5) / 1.5) ** 2)) + 0.5 * np.exp(-(((hour - 19.0) / 2.5) ** 2))
meters = np.minimum(rng.gamma(2.0, shape / 2.0, (10_000, 96)), 2.0)

# %%
# The threshold is public: a fuse limits a quarter-hour to 2 kWh. ``prune=0`` keeps the resolution of single values.

day = fastdp.ToPS(1.0, bound=2.0, threshold=2.0, prune=0, max_range=96).release_many(meters)
print(day)

figure, panels = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
panels[0].plot(hour, meters[17], "k", label="meter 17 (synthetic)")
panels[0].plot(hour, day.matrix[17], ".", label="private")
panels[0].set(title="One meter", xlabel="hour", ylabel="kWh in a quarter-hour")
panels[1].plot(hour, meters.sum(axis=0), "k", label="all meters (synthetic)")
panels[1].plot(hour, day.matrix.sum(axis=0), ".", label="sum of the private values")
panels[1].set(title="Ten thousand meters", xlabel="hour")
for panel in panels:
    panel.legend(fontsize=8)
