"""
A survey without a trusted server
=================================

Twenty thousand people report a value each, randomised on their own device. The server never sees a value; it
estimates the distribution of all values from the reports.
"""

import matplotlib.pyplot as plt
import numpy as np

from fastdp.local import SquareWave

rng = np.random.default_rng(9)
hours = np.clip(np.concatenate([rng.normal(1.5, 0.6, 14_000), rng.normal(5.0, 1.0, 6_000)]), 0.0, 10.0)

mechanism = SquareWave(epsilon=2.0, low=0.0, high=10.0)
reports = mechanism.perturb(hours)  # on the devices: words come from the operating system
estimate = mechanism.estimate(reports, bins=100, method="ems")  # on the server
print(mechanism.guarantee)
print(f"mean {hours.mean():.2f} hours, estimated {estimate.mean():.2f}")

# %%
# A report is a whole number. A report near the value is e^epsilon times as likely as one that is far from it.

window = (mechanism.n_outputs - mechanism.STEPS - 1) // 2
seen = 10.0 * (reports - window) / mechanism.STEPS
figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
axes.hist(hours, 100, range=(0.0, 10.0), density=True, alpha=0.4, label="values (synthetic)")
axes.hist(seen, 100, density=True, histtype="step", label="reports that the server sees")
axes.stairs(estimate.frequencies * 10.0, estimate.edges, label="the server's estimate")
axes.set(xlabel="hours", ylabel="density", title="Square wave reports, epsilon = 2")
axes.legend(fontsize=8)
