"""
Hourly totals of smart meters
=============================

Forty households report every half hour. The table is released as one private total an hour; the unit of privacy is
one reading. The picture shows each estimate, its 95 % interval, and the revised line, which uses the other hours
too.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fastdp

rng = np.random.default_rng(3)
times = pd.date_range("2026-01-05", periods=7 * 48, freq="30min", tz="Europe/Paris")
hour = times.hour + times.minute / 60
shape = 0.3 + 0.9 * np.exp(-(((hour - 8) / 1.5) ** 2)) + 1.7 * np.exp(-(((hour - 19) / 2.5) ** 2))
kwh = np.minimum(rng.gamma(2.0, 0.2, (times.size, 40)) * shape.to_numpy()[:, None], 10.0)
frame = pd.DataFrame({"time": times.repeat(40), "meter": np.tile(np.arange(40), times.size), "kwh": kwh.ravel()})

# %%
# The bound is public: what a fuse allows in half an hour.

table = fastdp.totals(frame, "kwh", "time", "1h", epsilon=1.0, bound=10.0)
print(table)

# %%
# The truth is drawn because the data are synthetic; never draw a real truth beside its release. Intervals are about
# it, or missing.

truth = frame.groupby(frame["time"].dt.floor("1h"))["kwh"].sum()
out = table.frame
figure, axes = plt.subplots(figsize=(9, 4))
axes.fill_between(out["window"], out["low"], out["high"], alpha=0.25, label="95 % interval")
axes.plot(out["window"], out["estimate"], ".", markersize=3, label="estimate")
axes.plot(out["window"], out["revised"], linewidth=1.5, label="revised")
axes.plot(truth.index, truth.to_numpy(), "k", linewidth=0.8, label="truth (synthetic)")
axes.set(ylabel="kWh an hour", title="Private hourly totals, epsilon = 1")
axes.legend(ncols=4, loc="upper center", fontsize=8)
figure.autofmt_xdate()
