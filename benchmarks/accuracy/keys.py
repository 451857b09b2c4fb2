"""Private keys of counts without windows at (1, 1e-6): keys released, recall of the most frequent, beside rivals.

Expected numbers: sums of the probabilities with which keys pass.  Every rival has all of epsilon and delta, and the
same `k` distinct keys of each person.  OpenDP 0.16 releases counts from its threshold on, but states the delta of
those above it, which is less by a factor of exp(1 / scale): "as stated".  With a threshold higher by 1 it is true.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from scipy import special

from benchmarks.shared import DATA, Data, table
from fastdp.guarantee import gaussian_loss
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.sampler import Distribution, laplace_distribution
from fastdp.tables import keys

EPSILON, DELTA = 1.0, 1e-6
MOST_FREQUENT = 500
SECRET = np.array([3, 5], np.uint64)


class Pairs(NamedTuple):
    """Rows of persons (numbers from 0) with keys (numbers from 0)."""

    persons: Any
    keys: Any


def in_groups(column: Any, size: int) -> Pairs:
    """Persons of geometric numbers of consecutive rows, of this mean."""
    codes = np.unique(column, return_inverse=True)[1].reshape(-1)
    sizes = np.random.default_rng(1).geometric(1.0 / size, codes.size)
    return Pairs(np.repeat(np.arange(sizes.size), sizes)[: codes.size], codes)


def data_sets(data: Path) -> dict[str, Pairs]:
    """Three tables, a stream, and Zipf's keys of 20,000 persons."""
    import pandas as pd

    retail = pd.read_parquet(data / "tables" / "retail_lines.parquet").dropna()
    bikes = pd.read_parquet(data / "tables" / "bike_trips.parquet")
    walks = pd.read_parquet(data / "tables" / "pedestrians.parquet")
    checks = pd.read_csv(data / "gowalla_sample.csv.gz")
    cells = checks.lat.round(2).astype(str) + " " + checks.lon.round(2).astype(str)
    generator = np.random.default_rng(1)
    sizes = np.minimum(generator.geometric(1 / 5, 20_000), 50)
    zipf = np.minimum(generator.zipf(1.3, sizes.sum()), 10**6)
    return {
        "retail: amounts of customers": Pairs(pd.factorize(retail.customer)[0], pd.factorize(retail.amount_pence)[0]),
        "bikes: station and hour": in_groups(
            bikes.start_station.astype(str) + bikes.time.dt.floor("h").dt.strftime("%a%H"), 8
        ),
        "pedestrians: counts of days": in_groups(walks["count"], 24),
        "check-ins: cells of 1 km": in_groups(cells, 10),
        "Zipf, 20,000 persons": Pairs(
            np.repeat(np.arange(sizes.size), sizes), np.unique(zipf, return_inverse=True)[1]
        ),
    }


# Probabilities of passing, by true count or weight.


def laplace(counts: Any, scale: float, threshold: float) -> Any:
    """P[count + discrete Laplace noise >= threshold]."""
    q, x = math.exp(-1.0 / scale), threshold - counts
    return np.where(x > 0, q**x / (1 + q), 1 - q ** (1.0 - np.minimum(x, 0)) / (1 + q)) * (counts > 0)


def gaussian(sums: Any, sigma: float, threshold: float) -> Any:
    """P[sum + normal noise >= threshold]."""
    return special.ndtr((sums - threshold) / sigma) * (sums > 0)


def passing(distribution: Distribution) -> Any:
    """The probability of passing under noise of this distribution."""
    return gaussian if isinstance(distribution, GaussianDistribution) else laplace


def deviation(distribution: Distribution) -> float:
    """Sigma, or the scale of Laplace noise."""
    return float(distribution.sigma if isinstance(distribution, GaussianDistribution) else distribution.scale)


def open_dp(k: int, persons: bool) -> list[tuple[str, float, float]]:
    """OpenDP's measurements of counts by key, each with noise and the least threshold that its map allows."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T="i64"))
    l1 = dp.l01inf_distance(dp.absolute_distance(T="i64"))

    def least(delta_of: Any, most: float) -> int:
        low, high = 1, 2**20
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if delta_of(middle) <= most else (middle, high)
        return high

    moved = k, k, 1 if persons else k
    found = [
        (
            "laplace",
            k / EPSILON,
            least(
                lambda t: dp.m.make_laplace_threshold(domain, l1, scale=k / EPSILON, threshold=t).map(moved)[1], DELTA
            ),
        )
    ]
    if persons:
        l2 = dp.l02inf_distance(dp.absolute_distance(T="f64"))

        def measured(sigma: float, threshold: int) -> Any:
            return dp.m.make_gaussian_threshold(domain, l2, scale=sigma, threshold=threshold)

        def epsilon(sigma: float) -> float:
            own = dp.c.make_zCDP_to_approxDP(measured(sigma, 2**40)).map((k, math.sqrt(k), 1.0))[0]
            return float(own.epsilon(DELTA / 2.0))

        low, high = 1.0, 100.0 * math.sqrt(k)
        for _ in range(40):
            middle = (low + high) / 2.0
            low, high = (low, middle) if epsilon(middle) <= EPSILON else (middle, high)
        change = k, math.sqrt(k), 1.0
        found.append(("gaussian", high, least(lambda t: measured(high, t).map(change)[1], DELTA / 2.0)))
    return found


def weighted_gaussian(k: int) -> tuple[float, float]:
    """Sigma and threshold of Gopi et al. 2020, Algorithm 1, with half of delta each."""
    sigma = 1.0 / gaussian_loss(EPSILON, DELTA / 2.0)
    each = [1.0 - (1.0 - DELTA / 2.0) ** (1.0 / t) for t in range(1, k + 1)]
    return sigma, max(t**-0.5 - sigma * special.ndtri(p) for t, p in enumerate(each, 1))


def numbers(passes: Any, frequent: Any) -> str:
    """Expected number of keys, and recall of the most frequent ones."""
    return f"{passes.sum():,.0f} ({passes[frequent].mean():.0%})"


def rows_of(pairs: Pairs, k: int) -> dict[str, str]:
    """Keys by rule, for `k` rows and for persons."""
    size = int(pairs.keys.max()) + 1
    counts = np.bincount(pairs.keys, minlength=size)
    frequent = np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
    rule = keys.count_rule(laplace_distribution(k), k, DELTA)
    found = {"k": f"{k}", "rows: fastdp": numbers(laplace(counts, k, rule.threshold), frequent)}
    ((_, scale, threshold),) = open_dp(k, False)
    found["rows: OpenDP"] = numbers(laplace(counts, scale, threshold + 1), frequent)
    found["rows: OpenDP, as stated"] = numbers(laplace(counts, scale, threshold), frequent)
    persons = int(pairs.persons.max()) + 1
    digests = np.random.default_rng(7).integers(-(2**62), 2**62, (persons, 2))
    given = pairs.persons.astype(np.int64), pairs.keys.astype(np.int64), digests, np.zeros(persons, np.int64)
    words = np.random.default_rng(8).integers(-(2**62), 2**62, size)
    own = keys.weight_rule(EPSILON, DELTA, k)

    def weighed(weights: Any) -> Any:
        _, codes, each = keys.weigh(*given, words, weights, SECRET)
        return np.bincount(codes, each, size)

    sums = weighed(keys.key_weights(own.distribution, k))
    passes = passing(own.distribution)(sums, deviation(own.distribution), own.threshold)
    found["persons: fastdp"] = numbers(passes, frequent)
    weights = weighed(keys.weights_of_norm(2, k)) / keys.WEIGHT
    sigma, least = weighted_gaussian(k)
    found["weighted Gaussian"] = numbers(gaussian(weights, sigma, least), frequent)
    # The same distinct keys, each of which counts as 1.
    once = weighed(np.ones(k + 1, np.int64))
    for name, scale, threshold in open_dp(k, True):
        passes = (laplace if name == "laplace" else gaussian)(once, scale, threshold + 1)
        found[f"persons: OpenDP, {name}"] = numbers(passes, frequent)
    return found


def run(
    *, data: Data = DATA, rows: Annotated[Sequence[int], "rows, or distinct keys of a person"] = (1, 3, 10, 30)
) -> None:
    """Print one table a data set."""
    for name, pairs in data_sets(data).items():
        found = [rows_of(pairs, k) for k in rows]
        sizes = f"{pairs.keys.size:,} rows, {pairs.keys.max() + 1:,} keys"
        table(
            f"{name}: {sizes}; (recall of the {MOST_FREQUENT} most frequent)",
            list(found[0]),
            [list(each.values()) for each in found],
        )
