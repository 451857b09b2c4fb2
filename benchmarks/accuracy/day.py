"""A stream over time, as ToPS publishes it, as Adaptive does, and revised."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np

import fastdp
from benchmarks.accuracy.streams import REAL, extended
from benchmarks.shared import DATA, Data
from fastdp.perturbers import Hierarchy
from fastdp.smoothers import Recent
from fastdp.thresholds import ScaleFree

#: Values that a picture shows, and stretches whose means are drawn.
SHOWN, STRETCHES = 262_144, 512


def releases(values: Any, bound: float, holdout: int, epsilon: float) -> dict[str, Any]:
    """Streams by title, the true one first."""
    options: dict[str, Any] = {"epsilon": epsilon, "bound": bound, "holdout": holdout, "seed": 1}
    tops = fastdp.StreamPublisher(threshold=ScaleFree(), perturber=Hierarchy(), smoother=Recent(), **options)
    adaptive = fastdp.Adaptive(**options).release(values)
    return {
        "the stream (not private)": values[holdout:],
        "ToPS, as published": tops.publish(values),
        "Adaptive, as published": adaptive.values,
        "Adaptive, looking back": adaptive.revised,
    }


def draw(streams: dict[str, Any], title: str, picture: Path) -> None:
    """Means over stretches; the truth in grey behind each release."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(streams), 1, figsize=(9, 8), sharex=True, layout="constrained")
    places = (np.arange(STRETCHES) + 0.5) * (SHOWN / STRETCHES)
    means = {name: stream[:SHOWN].reshape(STRETCHES, -1).mean(axis=1) for name, stream in streams.items()}
    truth = next(iter(means.values()))
    spread = np.ptp(truth)
    for axis, (name, curve) in zip(axes, means.items(), strict=True):
        axis.plot(places, truth, color="0.75", linewidth=1)
        axis.plot(places, curve, color="tab:blue", linewidth=0.9)
        error = float(np.sqrt(np.mean((curve - truth) ** 2)))
        axis.set_title(name if curve is truth else f"{name}: error of a stretch {error:.3g}", fontsize=10)
        # One scale for all but what leaves it by far.
        top = max(truth.max() + spread, min(curve.max(), truth.max() + 6 * spread))
        axis.set_ylim(min(truth.min() - spread, max(curve.min(), truth.min() - 6 * spread)), top)
        axis.grid(alpha=0.3)
    axes[-1].set_xlabel(f"values (means of {SHOWN // STRETCHES} in a row)")
    figure.suptitle(title)
    figure.savefig(picture, dpi=110)


def run(
    picture: Path,
    *,
    stream: Annotated[str, f"{', '.join(REAL)} or a synthetic one"] = "dns diurnal",
    epsilon: float = 0.1,
    data: Data = DATA,
) -> None:
    values, bound, holdout = extended(stream, data)
    draw(releases(values, bound, holdout, epsilon), f"{stream}, epsilon = {epsilon:g}", picture)
    print(f"picture: {picture}")
