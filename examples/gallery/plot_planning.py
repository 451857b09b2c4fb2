"""
Planning epsilon
================

How accurate a release will be is known before it is made: the noise depends on public numbers only. ``fastdp.plan``
looks at no data and costs no epsilon.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastdp

meters = {"bounds": fastdp.Value(clip=10.0), "every": "1h", "windows": 168, "rows": 400, "mean": 0.4}
print(fastdp.plan({"kwh": ["sum", "mean"]}, epsilon=1.0, **meters))

# %%
# How wide is the interval of an hour, for several units of privacy? A person with 48 readings a day needs 48 times
# the noise of one reading.

# At a smaller epsilon noise would hide the household's whole week, and plan refuses.
epsilons = np.geomspace(1.0, 20.0, 10)
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
for name, rows in (("one reading", 1), ("a household's day (48 readings)", 48)):
    unit = fastdp.Rows(rows)
    widths = [fastdp.plan({"kwh": "sum"}, epsilon=e, unit=unit, **meters).half_width for e in epsilons]
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

print(fastdp.plan({"kwh": "sum"}, half_width=16.0, **meters).epsilon)
