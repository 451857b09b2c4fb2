"""
Places that come and go
=======================

Points appear on rings, and older ones disappear. After every batch ``PHDStream`` releases synthetic points and the
counts of cells; the cells are finer where there are more points. A private count of any box comes from the released
tree.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastdp
from fastdp.points import Box

rng = np.random.default_rng(8)


def ring(radius: float, count: int) -> np.ndarray:
    angle = rng.uniform(0.0, 2.0 * np.pi, count)
    far = radius + rng.normal(0.0, 0.02, count)
    return np.clip(np.column_stack([0.5 + far * np.cos(angle), 0.5 + far * np.sin(angle)]), 0.0, 1.0)


stream = fastdp.PHDStream(Box((0.0, 0.0), (1.0, 1.0)), epsilon=1.0, seed=1)
figure, panels = plt.subplots(2, 3, figsize=(9, 6), sharex=True, sharey=True, layout="constrained")
present = np.empty((0, 2))
nothing = np.empty((0, 2))
for step, radius in enumerate((0.15, 0.3, 0.45)):
    arriving = ring(radius, 4_000)
    leaving = present[:3_000] if step == 2 else nothing
    synthetic = stream.step(arriving, leaving)
    present = np.concatenate([present[len(leaving) :], arriving])
    for panel, points, name in ((panels[0, step], present, "present"), (panels[1, step], synthetic, "synthetic")):
        panel.plot(*points[:, :2].T, ",")
        panel.set(title=f"{name}, step {step + 1}", aspect="equal")

# %%
# A count with its interval, without further privacy loss.

corner = (0.5, 0.5), (1.0, 1.0)
print("present:", int(np.all(present >= 0.5, axis=1).sum()))
print("private:", stream.count(*corner), stream.interval(*corner))
