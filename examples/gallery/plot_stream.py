"""
One stream, three methods
=========================

A synthetic day of DNS queries is released by three methods at the same epsilon: ``Adaptive`` (the default), ToPS as
published, and the plain sum of every value with noise. Each bar is the root mean square error of range sums of one
length, so a lower bar is better. ``Adaptive`` is ahead at all four lengths here, by less at the longest.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastdp
from fastdp_lab import datasets

values = datasets.dns_like_day(150_000)
epsilon, bound = 0.5, 2000  # a public bound of one interval's queries

released = fastdp.release(values, epsilon=epsilon, bound=bound, seed=1)
tops = fastdp.ToPS(epsilon=epsilon, bound=bound, expected_length=len(values), seed=1).release(values)
print(released)

# %%
# ToPS withholds the first values, so errors are compared on what both publish.

first = tops.offset
clip = released.threshold  # the plain sum gets the same clip, for nothing
plain = np.minimum(values[first:], clip) + fastdp.discrete_laplace(
    clip / epsilon, len(tops), rng=np.random.default_rng(1)
)
truth = np.concatenate([[0], np.cumsum(values[first:])])
noisy = np.concatenate([[0], np.cumsum(plain)])
lengths = (100, 1_000, 10_000, 100_000)
errors = {"Laplace noise on each value, same clip": [], "ToPS": [], "release": []}
rng = np.random.default_rng(2)
for length in lengths:
    starts = rng.integers(0, len(tops) - length, 300)
    stops = starts + length
    exact = truth[stops] - truth[starts]
    answers = (
        noisy[stops] - noisy[starts],
        tops.sum(starts, stops),
        released.sum(starts + first, stops + first),
    )
    for error, answer in zip(errors.values(), answers, strict=True):
        error.append(np.sqrt(np.mean((answer - exact) ** 2)))

figure, axes = plt.subplots(figsize=(8, 4))
for k, (name, error) in enumerate(errors.items()):
    axes.bar(np.arange(4) + 0.27 * (k - 1), error, width=0.25, label=name)
axes.set_yscale("log")
axes.set_xticks(range(4), [f"{length:,} values" for length in lengths])
axes.set(xlabel="length of the range", ylabel="root mean square error", title=f"Range sums, epsilon = {epsilon}")
axes.legend(fontsize=8)
figure.tight_layout()
