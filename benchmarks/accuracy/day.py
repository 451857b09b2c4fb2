"""A stream over time, as ToPS publishes it, as Adaptive does, and revised."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import fastdp
from benchmarks import shared
from benchmarks.accuracy.streams import REAL, data_sets, register
from benchmarks.shared import add_data_option
from fastdp.perturbers import Hierarchy
from fastdp.smoothers import Recent
from fastdp.thresholds import ScaleFree
from fastdp_lab.sweeps import from_table
from fastdp_lab.sweeps.study import load_truth

#: Values that a picture shows, and stretches whose means are drawn.
SHOWN, STRETCHES = 262_144, 512


def releases(values: Any, bound: float, epsilon: float) -> dict[str, Any]:
    """Streams by title, the true one first."""
    options: dict[str, Any] = {"epsilon": epsilon, "bound": bound, "holdout": shared.HOLDOUT, "seed": 1}
    tops = fastdp.StreamPublisher(threshold=ScaleFree(), perturber=Hierarchy(), smoother=Recent(), **options)
    adaptive = fastdp.Adaptive(**options).release(values)
    return {
        "the stream (not private)": values[shared.HOLDOUT :],
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


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("picture", type=Path)
    parser.add_argument("--stream", default="dns diurnal", help=f"{', '.join(REAL)} or a synthetic one")
    parser.add_argument("--epsilon", type=float, default=0.1)
    add_data_option(parser)


def run(options: argparse.Namespace) -> None:
    register(options.data)
    tables = [found for found in data_sets(options.data, quick=False) if found["name"] == options.stream]
    if not tables:
        raise SystemExit(f"--stream {options.stream}: no such stream, or its file is not in {options.data}")
    chosen = from_table({"epsilons": [1.0], "datasets": tables, "mechanisms": [{"name": "-", "system": "base"}]})
    data_set = chosen.datasets[0]
    values = np.asarray(load_truth(data_set, options.data).values)
    title = f"{options.stream}, epsilon = {options.epsilon:g}"
    draw(releases(values, data_set.bound, options.epsilon), title, options.picture)
    print(f"picture: {options.picture}")
