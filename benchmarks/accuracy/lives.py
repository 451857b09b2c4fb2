"""Homes with a row in most windows: a calendar, noise in each window, and the best Fourier coefficients."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Annotated, Any

import numpy as np

import fastdp
from benchmarks.shared import Floats, Runs, table
from fastdp.errors import AccuracyWarning

CLIP, EPSILONS = 2.0, (0.5, 1.0, 5.0)
START = np.datetime64("2024-01-01", "us")
LENGTHS = {"1h": np.timedelta64(1, "h"), "1d": np.timedelta64(1, "D")}


def hours(days: int) -> Floats:
    """Mean load of a home: evening, morning, weekend, a slow wave."""
    t = np.arange(days * 24)
    shape = 0.25 + 0.35 * np.exp(-((((t % 24) - 19) / 3.0) ** 2)) + 0.2 * np.exp(-((((t % 24) - 8) / 2.0) ** 2))
    out: Floats = shape * np.where(t // 24 % 7 >= 5, 1.25, 1.0) * (1 + 0.1 * np.sin(2 * np.pi * t / t.size))
    return out


def shapes() -> dict[str, tuple[str, int, Floats, float]]:
    """Windows, homes, mean load, and the share of windows in which a home has a row."""
    base, t = hours(28), np.arange(672)
    days = 0.5 + 0.2 * np.cos(2 * np.pi * np.arange(366) / 365.25) + 0.1 * (np.arange(366) % 7 >= 5)
    shifts = np.where((t // 24 % 7 == 1) & (t % 24 < 6), 2.2, 1.0) * np.where(t // 24 == 10, 0.3, 1.0)
    return {
        "2,000 homes, 672 hours": ("1h", 2000, base, 1.0),
        "200 homes, 672 hours": ("1h", 200, base, 1.0),
        "2,000 homes, a year of days": ("1d", 2000, days, 1.0),
        "rows in half of the windows": ("1h", 2000, base, 0.5),
        "Tuesday nights and a holiday": ("1h", 2000, base * shifts, 1.0),
        "a step": ("1h", 2000, base * np.where(t < 300, 0.6, 1.4), 1.0),
    }


def homes(every: str, count: int, load: Floats, share: float) -> tuple[Any, Floats, Floats]:
    """Rows, and true and clipped sums of windows."""
    import pyarrow as pa

    rng = np.random.default_rng(5)
    values = rng.lognormal(0, 0.5, count)[:, None] * load * rng.gamma(4, 0.25, (count, load.size))
    has = rng.random(values.shape) < share
    who, window = np.nonzero(has)
    rows = pa.table({"at": START + window * LENGTHS[every], "home": who, "kwh": values[has]})
    return rows, (values * has).sum(axis=0), (values * has).clip(0.0, CLIP).sum(axis=0)


def hindsight(true: Floats, clipped: Floats, epsilon: float) -> float:
    """Fourier perturbation's error (Rastogi and Nath 2010) with the number of frequencies that is best afterwards.

    The k lowest frequencies, as published; L1 of 2 k - 1 real numbers of an orthonormal basis.
    """
    spectrum, size, best = np.fft.rfft(clipped, norm="ortho"), true.size, np.inf
    for k in range(1, spectrum.size):
        kept = np.where(np.arange(spectrum.size) < k, spectrum, 0.0)
        left = np.fft.irfft(kept, size, norm="ortho") - true
        numbers = 2 * k - 1
        best = min(best, float(np.mean(left**2)) + 2.0 * (CLIP * numbers / epsilon) ** 2)
    return best**0.5


def cell(made: Any, true: Floats) -> tuple[float, float, float, int]:
    """Errors of a release, estimated and revised; share of ends below the truth; numbers of a calendar, or 0."""
    shown, errors = made.arrow, list[float]()
    for each in ("estimate", "revised"):
        errors.append(float(np.sqrt(np.mean((np.asarray(shown[each]) - true) ** 2))))
    covered = float(np.mean(np.asarray(shown["low"]) <= true))
    return errors[0], errors[1], covered, made.metadata.get("basis", {}).get("numbers", 0)


def rows(runs: int, every: str, count: int, load: Floats, share: float) -> Iterator[tuple[str, ...]]:
    """A row for each epsilon and delta; the first run takes the path of the table itself."""
    frame, true, clipped = homes(every, count, load, share)
    time = fastdp.Time("at", every, start=START, stop=START + load.size * LENGTHS[every])
    for epsilon, delta in itertools.product(EPSILONS, (0.0, 1e-6)):
        found: dict[bool, list[tuple[float, float, float, int]]] = {True: [], False: []}
        for basis, seeds in (("auto", [0]), ("calendar", range(1, runs)), ("windows", range(1, runs))):
            unit = fastdp.Person("home", rows=load.size, per_window=1, basis=basis)
            given = {"epsilon": epsilon, "delta": delta, "unit": unit, "clip": CLIP}
            for seed in seeds:
                each = cell(fastdp.totals(frame, "kwh", time, seed=seed, **given), true)
                found[each[3] > 0].append(each)
                if basis == "auto":
                    taken = "calendar" if each[3] else "windows"
        calendar, windows = (np.median(found[way], axis=0) for way in (True, False))
        best = "" if delta else f"{hindsight(true, clipped, epsilon):.0f}"
        numbers = f"{calendar[0]:.0f}", f"{windows[0]:.0f}", f"{windows[1]:.0f}", best
        yield f"{epsilon:g}", f"{delta:g}", *numbers, f"{calendar[2]:.3f}", f"{calendar[3]:.0f}", taken


def run(*, runs: Runs = 5, only: Annotated[str, "part of a table's name"] = "") -> None:
    """Root mean square errors of windows at a public clip of 2, medians of runs; share of `low` below the truth."""
    warnings.simplefilter("ignore", AccuracyWarning)
    heads = ["epsilon", "delta", "calendar", "windows", "revised", "best FPA", "covered", "numbers", "taken"]
    for name, shape in shapes().items():
        if only in name:
            table(name, heads, rows(runs, *shape))
