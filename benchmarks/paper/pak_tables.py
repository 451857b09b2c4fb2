"""PAK's Tables I and II, Figure 7 and criteria for m, under stated assumptions, and the same for real streams.

The paper does not publish its streams.  We assume exponential distributions with the p = 0.005 quantile that its text
suggests: 150 minutes for trips ("very few take more than 150 minutes"), and 300 dollars, a tenth of B, for
purchases (no hint at all).  SS is taken in two ways: Eq. 19 as corrected, and exactly, of the ideal sample
with value Q((m - i + 1/2) / m) at rank i, which also sees that B is only m q steps away.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from fastdp.kinds import Floats
from fastdp_lab import planning
from fastdp_lab.planning import Noise, Optimum, Quantile

DELTA, BETA, P_MAX = 2.0**-20, 0.02, 0.005
#: name, unit, assumed quantile at p = 0.005, B, n, the paper's rows m: (IF, r, lambda, p, eps1 / eps).
PAPER = {
    "Table I, train trips": (
        *("minutes", 150.0, 1440.0, 25_000_000),
        {
            40_000: (1.00, 1.00, 1.00, 0.0050, 0.00),
            50_000: (2.32, 1.63, 0.85, 0.0050, 0.80),
            60_000: (2.80, 1.49, 0.83, 0.0049, 0.90),
            100_000: (3.69, 1.76, 0.87, 0.0048, 0.90),
            300_000: (4.34, 1.91, 0.87, 0.0050, 0.79),
        },
    ),
    "Table II, supermarket": (
        *("dollars", 300.0, 3000.0, 150_000),
        {
            40_000: (1.00, 1.00, 1.00, 0.0050, 0.00),
            50_000: (4.23, 1.00, 0.81, 0.0050, 0.82),
            60_000: (4.86, 1.08, 0.82, 0.0049, 0.88),
            100_000: (6.67, 1.11, 0.85, 0.0046, 0.81),
        },
    ),
}
#: name, file, unit, B.
REAL = (
    ("smart meter", "smartmeter10_wh.npz", "Wh", 10_000.0),
    ("taxi distance", "green_taxi_streethail_distance_centimiles.npz", "0.01 mile", 30_000.0),
)
LAGS = (5_000, 10_000, 20_000, 40_000, 50_000, 60_000, 100_000)
FIGURE_7_LAG = 50_000
EPSILONS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
HEADER = (
    f"{'m':>7} {'SS by':>7} {'IF':>6} {'r':>5} {'lambda':>6} {'p':>7} {'eps1':>5}   "
    f"{'qt':>5} {'lt':>5} {'Lap':>5} {'out':>5} {'rt':>5}  {'x':>7} {'SS':>8} {'tau_max':>8}"
)


class SampleSensitivity:
    """Smooth sensitivity of a sample's quantiles, by the paper's scan; between ranks on the line through both.

    The largest change by k + 1 steps does not depend on b: it is found once for each rank, as far as needed.
    """

    def __init__(self, ascending: Floats, bound: float) -> None:
        self.size, self.bound = ascending.size, bound
        side = ascending.size + 2
        self.padded = np.concatenate([np.zeros(side), ascending, np.full(side, bound)])
        self.origin = side - 1  # padded[origin + i] is the value of rank i
        self.steps: dict[int, list[float]] = {}

    def at_rank(self, rank: int, smooth: float) -> float:
        steps, best, k = self.steps.setdefault(rank, []), 0.0, 0
        here = self.origin + rank
        while k <= self.size + 1 and math.exp(-smooth * k) * self.bound > best:
            if k == len(steps):
                high, low = self.padded[here : here + k + 2], self.padded[here - k - 1 : here + 1]
                steps.append(float(np.max(high[: low.size] - low[: high.size])))
            best = max(best, math.exp(-smooth * k) * steps[k])
            k += 1
        return best

    def __call__(self, q: float, smooth: float) -> float:
        rank = min(max((1.0 - q) * self.size, 1.0), float(self.size))
        left = min(math.floor(rank), self.size - 1)
        weight = rank - left
        return (1.0 - weight) * self.at_rank(left, smooth) + weight * self.at_rank(left + 1, smooth)


def ideal_sample(quantile: Quantile, m: int) -> Floats:
    return np.array([quantile((m - i + 0.5) / m) for i in range(1, m + 1)])


def best(
    quantile: Quantile, exact: SampleSensitivity | None, n: int, m: int | None, bound: float, **more: object
) -> Optimum:
    options: dict[str, object] = {"epsilon": 1.0, "delta": DELTA, "beta": BETA, "p_max": P_MAX} | more
    return planning.optimise_pak(quantile, n, m, bound, smooth_sensitivity=exact, **options)  # type: ignore[arg-type]


def line(m: int, how: str, row: Optimum) -> str:
    betas = (row.beta_qt, row.beta_lt, row.beta_lap, row.beta_out, row.beta_rt)
    shown = " ".join(f"{part / sum(betas):5.3f}" for part in betas)
    tail = "" if row.fallback else f"  {row.quantile:7.0f} {row.sensitivity:8.2f} {row.tau_max:8.0f}"
    return (
        f"{m:7,} {how:>7} {row.improvement:6.2f} {row.r:5.2f} {row.lambda_:6.2f} {row.p:7.4f} {row.share:5.2f}   "
        f"{shown}{tail}"
    )


def criteria() -> None:
    print(f"Criteria for m: beta = {BETA}, delta = 2^-20, eps = 1, p_max = {P_MAX}")
    print(f"  first, g(0.5, p_max, m) < beta (paper: 20,000): {planning.quantile_criterion(BETA, P_MAX):,}")
    print(f"    with lambda = 0.8: {planning.quantile_criterion(BETA, P_MAX, 0.8):,}")
    print(f"    with delta in place of beta: {planning.quantile_criterion(DELTA, P_MAX):,}")
    printed = planning.sensitivity_criterion(1.0, DELTA, BETA, P_MAX, as_printed=True)
    print(f"  second, Laplace quantile with the Gaussian's a, as printed (paper: 80,000): {printed:,}")
    for noise in ("laplace", "gaussian"):
        print(f"    {noise} throughout: {planning.sensitivity_criterion(1.0, DELTA, BETA, P_MAX, noise):,}")
    print("  all three, with 0.85 of the budget (recommended_lag), and what it is worth:")
    for name, (_, x, bound, n, _) in PAPER.items():
        quantile = planning.exponential_quantile(x / -math.log(P_MAX), bound)
        m = best(quantile, None, n, None, bound).m
        exact = SampleSensitivity(ideal_sample(quantile, m), bound)
        print(f"    {name}: m = {m:,}, IF by scan {best(quantile, exact, n, m, bound).improvement:.2f}")


def tables(options: dict[str, object]) -> None:
    for name, (unit, x, bound, n, rows) in PAPER.items():
        quantile = planning.exponential_quantile(x / -math.log(P_MAX), bound)
        print(f"\n{name}: n = {n:,}, B = {bound:g} {unit}; assumed: exponential, p = {P_MAX} quantile {x:g} {unit}")
        print(HEADER)
        for m, (factor, r, lambda_, p, share) in rows.items():
            print(f"{m:7,} {'paper':>7} {factor:6.2f} {r:5.2f} {lambda_:6.2f} {p:7.4f} {share:5.2f}")
            print(line(m, "Eq. 19", best(quantile, None, n, m, bound, **options)))
            exact = SampleSensitivity(ideal_sample(quantile, m), bound)
            print(line(m, "scan", best(quantile, exact, n, m, bound, **options)))


def figure_seven(options: dict[str, object]) -> None:
    """The improvement factor by the bound, against epsilon and m."""
    unit, x, bound, n, _ = PAPER["Table I, train trips"]
    quantile = planning.exponential_quantile(x / -math.log(P_MAX), bound)
    print(f"\nFigure 7: assumptions of Table I (x = {x:g} {unit}); IF with SS by Eq. 19, and by scan")
    for m, epsilons in ((FIGURE_7_LAG, EPSILONS), *((m, (1.0,)) for m in LAGS)):
        exact = SampleSensitivity(ideal_sample(quantile, m), bound)
        for epsilon in epsilons:
            found = [best(quantile, how, n, m, bound, epsilon=epsilon, **options) for how in (None, exact)]
            print(f"  m = {m:7,}, eps = {epsilon:4}: " + " ".join(f"{each.improvement:5.2f}" for each in found))


def real_streams(folder: Path, options: dict[str, object]) -> None:
    for name, file, unit, bound in REAL:
        path = folder / file
        if not path.exists():
            print(f"\n{name}: {file} is not in the folder given by --data; skipped")
            continue
        with np.load(path) as archive:
            values = archive["values"].astype(np.float64)
        print(f"\n{name}: n = {values.size:,}, B = {bound:g} {unit}")
        for p in (0.05, 0.01, 0.005, 0.001):
            check = planning.check_light_tail(values, p)
            verdict = "light" if check.light else "not light"
            print(
                f"  beyond p = {p:5}: {verdict}, x_p = {check.x_p:g}, largest violation "
                f"{check.largest_violation:.2e} at {check.at:g} (accepted {check.tolerance:.2e}), "
                f"share of points violated {check.violated_share:.3f}"
            )
        search = planning.search_p_max(values)
        print(f"  p_max by the search of section V-B: {search.p_max}; smallest r x_p / x_(p^r) - 1 for each p:")
        shortfall = np.nanmin(search.error, axis=1)
        print("    " + ", ".join(f"{p:g}: {error:+.2f}" for p, error in zip(search.p, shortfall, strict=True)))
        print(HEADER)
        for m in LAGS:
            first = np.sort(values[:m])
            quantile, exact = planning.sample_quantile(first), SampleSensitivity(first, bound)
            for how, sensitivity in (("Eq. 19", None), ("scan", exact)):
                print(line(m, how, best(quantile, sensitivity, values.size, m, bound, **options)))


def show(data: Path, noise: Noise = "laplace", first_sum: bool = True) -> None:
    """Everything, as text; ``first_sum=False`` is Eq. 16 without the noise of the first sum, as printed."""
    options: dict[str, object] = {"noise": noise, "first_sum": first_sum}
    criteria()
    tables(options)
    figure_seven(options)
    real_streams(data, options)
