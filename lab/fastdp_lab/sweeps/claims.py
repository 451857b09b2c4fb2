"""Verdicts on a paper's statements, by a rule that stands beside each statement.

A claim compares two mechanisms.  In each cell (data set, budget, kind of queries) the ratio of their mean errors over
repetitions is taken; it decides the cell where it differs from the stated ratio by more than two standard errors of
its logarithm, repetitions paired.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta

from fastdp.errors import DataError

if TYPE_CHECKING:
    from pandas import DataFrame

#: Standard errors of a cell's logarithmic ratio that decide.
DECISIVE = 2.0


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and what decides it.

    Attributes
    ----------
    says : str
        The statement, with its place in the paper.
    better, worse : str
        Names of mechanisms.
    least, most : float
        The error of the worse one is so many times that of the better one: from ``least`` to ``most``.
    share : float
        Part of the cells in which this holds, at least.
    metric : str
        A column of results.
    datasets, epsilons, workloads, groups : tuple, optional
        Which cells; by default all, and the group "all" where there is one.
    """

    says: str
    better: str
    worse: str
    least: Annotated[float, Meta(ge=0)] = 1.0
    most: float = math.inf
    share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    metric: str = "mse"
    datasets: tuple[str, ...] = ()
    epsilons: tuple[float, ...] = ()
    workloads: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The outcome of a claim.

    Attributes
    ----------
    claim : Claim
        The statement.
    found : "agrees", "differs" or "open"
        Open where too many cells are within the noise of the repetitions.
    holds, fails, cells, repetitions : int
        Cells that hold, that do not, all cells; repetitions of each.
    ratios : (float, float, float)
        The least, the middle and the largest ratio.
    """

    claim: Claim
    found: str
    holds: int
    fails: int
    cells: int
    repetitions: int
    ratios: tuple[float, float, float]


def decide(claim: Claim, rows: DataFrame) -> Verdict:
    """The verdict that results give."""
    for name in (claim.better, claim.worse):
        if name not in set(rows["mechanism"]):
            raise DataError(f"claims: no mechanism {name!r} in the results; expected its name in the specification")
    asked = rows[rows["mechanism"].isin([claim.better, claim.worse])]
    groups = claim.groups or (("all",) if "all" in set(asked["group"]) else ())
    for column, chosen in {
        "dataset": claim.datasets,
        "epsilon": claim.epsilons,
        "workload": claim.workloads,
        "group": groups,
    }.items():
        if chosen:
            asked = asked[asked[column].isin(chosen)]
    if asked["mechanism"].nunique() < 2:
        return Verdict(claim, "open", 0, 0, 0, 0, (math.nan,) * 3)
    keys = ["dataset", "epsilon", "workload", "group"]
    # Times of a stream of points are averaged before repetitions are.
    each = asked.groupby([*keys, "mechanism", "repetition"], sort=False)[claim.metric].mean()
    pairs = each.unstack("mechanism")[[claim.worse, claim.better]].dropna()
    means = pairs.groupby(keys, sort=False).mean()
    ratio = (means[claim.worse] / means[claim.better]).to_numpy()
    # Both see the same queries, so that their errors may rise and fall together.
    relative = pairs / pairs.groupby(keys, sort=False).transform("mean")
    differences = (relative[claim.worse] - relative[claim.better]).groupby(keys, sort=False)
    # One repetition has no deviation: NaN leaves the cell open.
    error = np.exp(DECISIVE * (differences.std() / np.sqrt(differences.count())).to_numpy())
    kept = np.isfinite(ratio)
    ratio, error = ratio[kept], error[kept]
    holds = int(np.sum((ratio >= claim.least * error) & (ratio * error <= claim.most)))
    fails = int(np.sum((ratio * error < claim.least) | (ratio > claim.most * error)))
    return Verdict(
        claim,
        _word(claim, holds, fails, ratio.size),
        holds,
        fails,
        ratio.size,
        int(each.groupby(keys).size().max() // 2) if len(each) else 0,
        tuple(np.quantile(ratio, [0.0, 0.5, 1.0]).tolist()) if ratio.size else (math.nan,) * 3,
    )


def _word(claim: Claim, holds: int, fails: int, cells: int) -> str:
    if cells and holds >= claim.share * cells:
        return "agrees"
    return "differs" if fails > (1.0 - claim.share) * cells else "open"


def as_row(verdict: Verdict) -> list[Any]:
    """The verdict as a line of a table."""
    claim = verdict.claim
    most = "" if math.isinf(claim.most) else f", at most {claim.most:g}"
    rule = f"{claim.metric} of {claim.worse} / {claim.better} at least {claim.least:g}{most} in {claim.share:.0%}"
    low, middle, high = verdict.ratios
    counts = f"{verdict.holds} of {verdict.cells} hold, {verdict.fails} do not"
    return [claim.says, rule, verdict.found, counts, f"{low:.3g} / {middle:.3g} / {high:.3g}", verdict.repetitions]
