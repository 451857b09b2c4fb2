"""
Days in revised answers
=======================

People a minute follow the day. With a small epsilon the blocks of ``Adaptive`` are hours long, and their sums alone
do not show the morning and the evening of one day. Many days together do: ``with_season`` says after how many values
the stream repeats, and the revised answers learn the form of the day from the sums that were released anyway. That
costs no privacy.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastdp

DAY = 24 * 60
rng = np.random.default_rng(5)
minutes = np.arange(60 * DAY)
hours = minutes % DAY / 60.0
rate = 0.3 + 4.0 * np.exp(-(((hours - 8.5) / 1.5) ** 2)) + 3.0 * np.exp(-(((hours - 18.0) / 2.5) ** 2))
people = rng.poisson(rate)

release = fastdp.release(people, epsilon=0.02, sensitivity=1, seed=1)
daily = release.with_season(DAY)

# %%
# Three days of sixty
# -------------------

shown = slice(30 * DAY, 33 * DAY)
figure, panel = plt.subplots(figsize=(9, 3.5), layout="constrained")
panel.plot(minutes[shown] / DAY, rate[shown], "k", linewidth=0.8, label="rate of the stream (synthetic)")
panel.plot(minutes[shown] / DAY, release.values[shown], label="released")
panel.plot(minutes[shown] / DAY, daily.values[shown], label="released, with the day")
panel.set(xlabel="day", ylabel="people a minute", title="epsilon = 0.02 for one person in one minute")
panel.legend(fontsize=8)

# %%
# Errors of sums over an hour
# ---------------------------

starts = rng.integers(0, people.size - 60, 4000)
true = np.concatenate([[0.0], np.cumsum(people)])
true = true[starts + 60] - true[starts]
for name, answers in (("released", release), ("released, with the day", daily)):
    errors = answers.sum(starts, starts + 60) - true
    print(f"{name}: root mean square error {np.sqrt(np.mean(errors**2)):.1f} people")
plt.show()
