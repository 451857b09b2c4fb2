"""Verdicts on a paper's statements, by a rule that stands beside each statement.

A claim compares two entries of a column, mechanisms say.  In each cell, a combination of all other columns, the ratio
of their mean errors over repetitions is taken; it decides the cell where it differs from the stated ratio by more
than two standard errors of its logarithm, and by more than the claim's margin.
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
#: Columns that make a cell.  A look is the number of a time among those of its data set and queries, from 0.
LEVELS = ("mechanism", "dataset", "epsilon", "workload", "group")
BY = (*LEVELS, "look")
#: Metrics without noise: one repetition decides.
EXACT = ("truth", "points")


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and what decides it.

    Attributes
    ----------
    says : str
        The statement, with its place in the paper.
    better, worse : str or float
        Entries of the column ``by``.  Without ``worse`` the metric itself is judged, not a ratio.
    by : str
        "mechanism", "dataset", "epsilon", "workload", "group" or "look".
    least, most : float
        The error of the worse one is so many times that of the better one: from ``least`` to ``most``.
    share : float
        Part of the cells in which this holds, at least.
    margin : float
        Factor within which a cell decides nothing.
    metric : str
        A column of results.
    mechanisms, datasets, epsilons, workloads, groups : tuple, optional
        Which cells; by default all, and the group "all" where there is one.
    """

    says: str
    better: str | float
    worse: str | float | None = None
    by: str = "mechanism"
    least: Annotated[float, Meta(ge=0)] = 1.0
    most: float = math.inf
    share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    margin: Annotated[float, Meta(ge=1)] = 1.0
    metric: str = "mse"
    mechanisms: tuple[str, ...] = ()
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
    if "time" in rows:
        rows = rows.assign(look=rows.groupby(["dataset", "workload"])["time"].rank("dense") - 1.0)
    names = [claim.better] if claim.worse is None else [claim.better, claim.worse]
    for name in names:
        if name not in set(rows[claim.by]):
            raise DataError(f"claims: no {claim.by} {name!r} in the results; expected its name in the specification")
    asked = rows[rows[claim.by].isin(names)]
    chosen = {each: getattr(claim, f"{each}s") for each in LEVELS}
    if "all" in set(asked["group"]) and claim.by != "group":
        chosen["group"] = chosen["group"] or ("all",)
    for column, some in chosen.items():
        if some:
            asked = asked[asked[column].isin(some)]
    if asked[claim.by].nunique() < len(names):
        return Verdict(claim, "open", 0, 0, 0, 0, (math.nan,) * 3)
    keys = [each for each in LEVELS if each != claim.by]
    # Times of a stream of points are averaged before repetitions are.
    each = asked.groupby([*keys, claim.by, "repetition"], sort=False)[claim.metric].mean()
    found = each.groupby([*keys, claim.by], sort=False).agg(["mean", "std", "count"]).unstack(claim.by)
    ratio = found["mean"][claim.better].to_numpy()
    if claim.worse is not None:
        ratio = found["mean"][claim.worse].to_numpy() / ratio
    # One repetition has no deviation: NaN leaves the cell open.
    deviation = found["std"] / found["mean"] / np.sqrt(found["count"])
    squares = sum(deviation[name].to_numpy() ** 2 for name in names)
    error = np.maximum(np.exp(DECISIVE * np.sqrt(squares)), claim.margin)
    if claim.metric in EXACT:
        error = np.full(ratio.size, claim.margin)
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
        int(found["count"].max().max()) if len(each) else 0,
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
    names = (claim.better,) if claim.worse is None else (claim.worse, claim.better)
    pair = " / ".join(f"{each:g}" if isinstance(each, float) else str(each) for each in names)
    of = pair if claim.by == "mechanism" else f"{claim.by} {pair}"
    margin = f", margin {claim.margin:g}" if claim.margin > 1.0 else ""
    rule = f"{claim.metric} of {of} at least {claim.least:g}{most} in {claim.share:.0%}{margin}"
    low, middle, high = verdict.ratios
    counts = f"{verdict.holds} of {verdict.cells} hold, {verdict.fails} do not"
    return [claim.says, rule, verdict.found, counts, f"{low:.3g} / {middle:.3g} / {high:.3g}", verdict.repetitions]
