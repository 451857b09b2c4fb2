"""
Planning epsilon
================

How accurate a release will be is known before it is made: the noise depends on public numbers only. ``fastdp.plan``
looks at no data and costs no epsilon.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastdp

print(fastdp.plan(epsilon=1.0, bound=10.0, every="1h", rows_per_window=400, mean=0.4))

# %%
# How wide is the interval of an hour, for several units of privacy? A person with 48 readings a day needs 48 times
# the noise of one reading.

epsilons = np.geomspace(0.05, 5.0, 30)
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
for name, rows in (("one reading", 1), ("a household's day (48 readings)", 48)):
    widths = [fastdp.plan(epsilon=e, bound=10.0, contributions=rows).half_width for e in epsilons]
    axes.loglog(epsilons, widths, label=name)
axes.axhline(400 * 0.4 * 0.1, color="gray", linestyle="--", label="a tenth of the hour's expected total")
axes.set(
    xlabel="epsilon",
    ylabel="half-width of the 95 % interval, kWh",
    title="An hour of 400 readings, at most 10 kWh each",
)
axes.legend(fontsize=8)

# %%
# The other way round: the epsilon that a wanted interval needs.

print(fastdp.plan(half_width=16.0, bound=10.0, every="1h", rows_per_window=400, mean=0.4).epsilon)
