"""Private keys online beside the batch selection again at each trigger, whose budget is divided between triggers.

A stream of windows in which persons have rows of Zipf's keys; the unit is a person in one window.  Both give the
number of rows of each key so far: online the released windows add up, from that on in which the key appears; the
others select and count all rows so far at each trigger, with the better of a part of epsilon and delta each, and of a
part of rho each.  A key that is not released counts as 0.
"""

from __future__ import annotations

import math
import time
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Annotated, Any

import numpy as np

import fastdp
from benchmarks.shared import table
from fastdp.guarantee import zcdp_loss
from fastdp.noise.gaussian import GaussianDistribution, gaussian_distribution
from fastdp.noise.sampler import Distribution, laplace_distribution, sigma_above
from fastdp.tables import keys
from fastdp.tables.online import person_cells
from fastdp.tables.sums import CellRows

BEGIN, SHARE, MEAN, FREQUENT = datetime(2024, 1, 1), 0.25, 8, 1000


def drawn(law: Distribution, size: int, generator: np.random.Generator) -> Any:
    """Noise of this distribution, for a simulation."""
    if isinstance(law, GaussianDistribution):
        return generator.normal(0.0, float(law.sigma), size)
    return generator.laplace(0.0, float(law.scale), size)


def again(epsilon: float, delta: float, triggers: int, most: int) -> list[tuple[str, keys.KeyRule, Distribution]]:
    """Selection and noise of counts at each trigger: parts of epsilon, and of rho."""
    loss = zcdp_loss(epsilon, delta / 2.0) / math.sqrt(triggers)
    sigma = sigma_above(most**2, math.sqrt(1.0 - SHARE) * loss)
    own = keys._gaussian_rule(math.sqrt(SHARE) * loss, delta / (2.0 * triggers), most)
    part = keys.weight_rule(SHARE * epsilon / triggers, delta / triggers, most)
    return [
        ("epsilon", part, laplace_distribution(Fraction(most * triggers) / Fraction((1.0 - SHARE) * epsilon))),
        ("rho", own, gaussian_distribution(sigma)),
    ]


def error(off: Any) -> str:
    """Root of the mean of squares."""
    return f"{math.sqrt(float((off**2).mean())):,.0f}" if off.size else "-"


def errors(found: Any, truth: Any, shown: Any) -> list[str]:
    """Released keys, errors of their counts and of the most frequent keys' ones, and the sum of all errors."""
    frequent, off = np.argsort(-truth, kind="stable")[:FREQUENT], found - truth
    return [f"{shown.size:,}", error(off[shown]), error(off[frequent]), f"{np.abs(off).sum():,.0f}"]


def run(
    *,
    triggers: Annotated[int, "windows, each of which is a trigger"] = 100,
    persons: Annotated[int, "persons in a window"] = 10_000,
    size: Annotated[int, "Zipf's keys"] = 10**6,
    most: Annotated[int, "rows of a person in a window that count"] = 8,
    epsilon: float = 1.0,
    delta: float = 1e-9,
) -> None:
    """Print recall and errors at some triggers."""
    generator, secret = np.random.default_rng(1), fastdp.Key.from_seed(2)
    unit, day = fastdp.Person("person", most, per="1d"), fastdp.Time("at", "1d", start=BEGIN)
    online = fastdp.Windows({"*": "count"}, day, epsilon=epsilon, delta=delta, by="key", unit=unit, seed=1)
    chances = np.cumsum(1.0 / np.arange(1, size + 1))
    rules = again(epsilon, delta, triggers, most)
    words = generator.integers(-(2**62), 2**62, size)
    truth, seen, weights = np.zeros(size), np.zeros(size), [np.zeros(size) for _ in rules]
    rows, seconds = 0, 0.0
    for number in range(triggers):
        sizes = np.minimum(generator.geometric(1.0 / MEAN, persons), most)
        who = np.repeat(generator.choice(50 * persons, persons, replace=False), sizes)
        codes = np.searchsorted(chances, generator.random(who.size) * chances[-1])
        truth += np.bincount(codes, minlength=size)
        digests = np.column_stack((who, who + 1))
        said = CellRows(np.zeros_like(who), codes, np.empty((0, who.size)))
        for (_, rule, _), total in zip(rules, weights, strict=True):
            table_of = keys.key_weights(rule.distribution, most)
            _, own, each = person_cells(said, np.zeros_like(who), digests, words, table_of, secret)
            total += np.bincount(own, each, size)
        begin = time.perf_counter()
        online.add(np.full(who.size, np.datetime64(BEGIN + timedelta(days=number), "us")), keys=codes, persons=who)
        closed = online.advance(BEGIN + timedelta(days=number + 1)).released
        seconds, rows = seconds + time.perf_counter() - begin, rows + who.size
        seen[np.array(closed.keys["key"], np.int64)] += closed.cells("count")[0]
        if number + 1 not in (triggers // 10, triggers // 2, triggers):
            continue
        found = [["online", *errors(seen, truth, np.array(closed.keys["key"], np.int64))]]
        for (name, rule, law), total in zip(rules, weights, strict=True):
            passed = (total > 0) & (total + drawn(rule.distribution, size, generator) >= rule.threshold)
            counts = np.where(passed, truth + drawn(law, size, generator), 0.0)
            found.append([f"again, parts of {name}", *errors(counts, truth, np.flatnonzero(passed))])
        print(f"trigger {number + 1}: {rows:,} rows, {np.count_nonzero(truth):,} keys so far")
        names = "rule", "keys", "error of theirs", f"of the {FREQUENT:,} most frequent", "sum of errors, all keys"
        table("", list(names), found)
    keys_now = online.state.keys
    begin = time.perf_counter()
    state = online.to_bytes()
    taken, each = time.perf_counter() - begin, len(state) / keys_now.size
    print(
        f"{rows / seconds:,.0f} rows a second; state of {keys_now.size:,} keys: {each:.0f} bytes a key, {taken:.1f} s"
    )
