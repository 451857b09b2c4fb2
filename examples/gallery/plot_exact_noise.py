"""
Why noise is drawn on integers
==============================

Textbook Laplace noise in floating point leaves gaps: which doubles ``value + noise`` can be depends on the value,
so some outputs reveal it for certain. fastdp rounds values to a public grid and adds exact integer noise, whose
support is the same for every value.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastdp

draws = 200_000
rng = np.random.default_rng(1)
textbook = {value: value + rng.laplace(0.0, 1.0, draws) for value in (0.0, 1.0)}


def on_grid(values: np.ndarray, bits: int) -> float:
    """The share of outputs that are a multiple of 2^-bits."""
    return float(np.mean(values * 2.0**bits == np.floor(values * 2.0**bits)))


# %%
# An output near 0 that is no multiple of 2^-53 cannot come from 1.0 + noise in doubles: the sum was rounded to that
# grid.

bits = np.arange(46, 64)
exact = {value: fastdp.add_noise(np.full(draws, value), 1.0, 1.0, seed=2) for value in (0.0, 1.0)}
figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
for panel, name, outputs in ((panels[0], "floating point", textbook), (panels[1], "fastdp", exact)):
    for value, style in ((0.0, "o-"), (1.0, "s--")):
        small = outputs[value][np.abs(outputs[value]) < 0.25]
        panel.plot(bits, [on_grid(small, b) for b in bits], style, markersize=4, label=f"true value {value:g}")
    panel.set(title=name, xlabel="b", xticks=bits[::4])
    panel.legend()
panels[0].set(ylabel="share of small outputs on the grid of $2^{-b}$")

# %%
# The distribution of the integers is the discrete Laplace distribution.

noise = fastdp.discrete_laplace(3.0, draws, rng=rng)
k = np.arange(-15, 16)
q = np.exp(-1 / 3.0)
distribution = (1 - q) / (1 + q) * q ** np.abs(k)
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
axes.bar(k, [(noise == j).mean() for j in k], color="lightgray", label="200,000 draws")
axes.plot(k, distribution, "k.", label="the distribution")
axes.set(xlabel="noise", ylabel="probability", title="discrete_laplace(3)")
axes.legend()
