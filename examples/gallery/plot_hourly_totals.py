"""
Hourly totals of smart meters
=============================

Forty households report every half hour. The table is released as one private total an hour; the unit of privacy is
one reading. The picture shows each estimate, its 95 % interval, and the revised line, which uses the other hours
too.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import fastdp
from fastdp.errors import AccuracyWarning

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

# %%
# A household wants its whole week protected, not one reading. It is in every hour, so noise in each hour hides the
# totals of 2,000 households; noise in a few numbers of a calendar, from which all hours follow, does not.

homes = 2000
kwh = np.minimum(rng.gamma(2.0, 0.2, (times.size, homes)) * shape.to_numpy()[:, None], 10.0)
meters = np.tile(np.arange(homes), times.size)
frame = pd.DataFrame({"time": times.repeat(homes), "meter": meters, "kwh": kwh.ravel()})
truth = kwh.sum(axis=1).reshape(-1, 2).sum(axis=1)
figure, axes = plt.subplots(figsize=(9, 4))
for basis, name, style in (("windows", "noise in each hour", "0.8"), ("auto", "by a calendar", "tab:red")):
    home = fastdp.Person("meter", rows=336, per_window=2, basis=basis)
    with warnings.catch_warnings():
        # Of noise in each hour, which is what the picture shows.
        warnings.simplefilter("ignore", AccuracyWarning)
        table = fastdp.totals(frame, "kwh", "time", "1h", epsilon=1.0, clip=1.5, unit=home)
    axes.plot(table.frame["window"], table.frame["estimate"], color=style, label=name)
axes.plot(table.frame["window"], truth, "k", linewidth=0.8, label="truth (synthetic)")
axes.set(ylabel="kWh an hour", ylim=(-1500, 5500), title="A household's whole week is the unit, epsilon = 1")
axes.legend(ncols=3, loc="upper center", fontsize=8)
figure.autofmt_xdate()
