"""Verdicts on a paper's statements, by a rule that stands beside each statement.

A claim compares entries of a column, mechanisms say, or says how large a number of one is.  In each cell, a
combination of the other columns, the ratio of their mean errors over repetitions, or the mean itself, is taken; it
decides the cell where it differs from the stated one by more than the two-sided 95 % quantile of Student's
distribution, in standard errors of its logarithm, repetitions paired, and by more than the claim's margin.

A mechanism's name stands for it, or for all that a list in the specification makes of it ("measured" for "measured,
theta=1", ...).  Two such lists are compared entry by entry, others each with each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta
from scipy.special import stdtrit

from fastdp import validation

if TYPE_CHECKING:
    from pandas import DataFrame

#: Columns that make a cell.  A look is the number of a time among those of its data set and queries, from 0.
LEVELS = ("mechanism", "dataset", "epsilon", "workload", "group")
BY = (*LEVELS, "look")
#: Metrics without noise: one repetition decides.
EXACT = ("truth", "points")
Entries = str | float | tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and what decides it.

    Attributes
    ----------
    says : str
        The statement, with its place in the paper.
    better, worse : str, float or tuple of str
        Entries of the column ``by``.  Without ``worse`` the metric itself is judged, not a ratio.
    by : str
        "mechanism", "dataset", "epsilon", "workload", "group" or "look".
    better_epsilon : float, optional
        The budget of the better one, where it is another than the worse one's.
    least, most : float
        The error of the worse one is so many times that of the better one, or the number is: from ``least`` to
        ``most``.
    share : float
        Part of the cells in which this holds, at least.
    margin : float
        Factor within which a cell decides nothing.
    pooled : bool
        Whether budgets make one cell, with the geometric mean of their ratios.
    metric : str
        A column of results, "threshold" among them.
    mechanisms, datasets, epsilons, workloads, groups : tuple, optional
        Which cells; by default all, and the group "all" where there is one.
    """

    says: str
    better: Entries
    worse: Entries | None = None
    by: str = "mechanism"
    better_epsilon: float | None = None
    least: Annotated[float, Meta(ge=0)] = 1.0
    most: float = math.inf
    share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    margin: Annotated[float, Meta(ge=1)] = 1.0
    pooled: bool = False
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


def named(claim: Claim, side: str, known: Iterable[Any], *, strict: bool = False) -> dict[Any, str]:
    """The entries that a side stands for, each with what a list adds to its name, "" where there is none.

    ParameterError if ``strict`` and a name stands for none; in results it does where every run of it failed.
    """
    given: Any = getattr(claim, side)
    every = dict.fromkeys(known)
    found: dict[Any, str] = {}
    for name in given if isinstance(given, tuple) else (given,):
        listed = {} if claim.by != "mechanism" else {e: e[len(name) :] for e in every if e.startswith(f"{name}, ")}
        if strict and name not in every and not listed:
            validation.choice(side, name, tuple(every))
        found |= {name: ""} if name in every else listed
    return found


def decide(claim: Claim, rows: DataFrame) -> Verdict:
    """The verdict that results give."""
    if "time" in rows:
        rows = rows.assign(look=rows.groupby(["dataset", "workload"])["time"].rank("dense") - 1.0)
    keys = [each for each in LEVELS if each != claim.by and (each != "epsilon" or claim.better_epsilon is None)]
    found = _numbers(claim, "better", rows)
    if claim.worse is None:
        found = found.assign(over=found["number"], number=1.0)
    else:
        other = _numbers(claim, "worse", rows).rename(columns={"number": "over"})
        pairs = ["entry"] if found["entry"].all() and other["entry"].all() else []
        found = found.merge(other, on=[*keys, *pairs, "repetition"], suffixes=("", " of worse"))
    cell = [each for each in found if each not in ("number", "over", "repetition")]
    rest = [each for each in cell if not (claim.pooled and str(each).startswith("epsilon"))]
    groups = found.groupby(cell, sort=False)[["over", "number"]]
    means = groups.mean()
    ratio = means["over"] / means["number"]
    if claim.pooled:
        with np.errstate(divide="ignore"):
            logs: Any = np.log(ratio)
            ratio = np.exp(logs.groupby(level=rest, sort=False).mean())
    # Both see the same queries, and all budgets do, so that errors of a repetition may rise and fall together.
    relative = found[["over", "number"]] / groups.transform("mean").replace(0.0, 1.0)
    paired = found.assign(difference=relative["over"] - relative["number"])
    each = paired.groupby([*rest, "repetition"], sort=False)["difference"].mean().groupby(level=rest, sort=False)
    count = each.count()
    # One repetition has no deviation: NaN leaves the cell open.
    deviation = 0.0 if claim.metric in EXACT else (student(count) * each.std() / np.sqrt(count)).to_numpy()
    kept = ~np.isnan(ratio.to_numpy())
    ratio, error = ratio.to_numpy()[kept], np.maximum(np.exp(deviation) + np.zeros(kept.size), claim.margin)[kept]
    holds = int(np.sum((ratio >= claim.least * error) & (ratio * error <= claim.most)))
    fails = int(np.sum((ratio * error < claim.least) | (ratio > claim.most * error)))
    return Verdict(
        claim,
        _word(claim, holds, fails, ratio.size),
        holds,
        fails,
        ratio.size,
        int(count.max()) if ratio.size else 0,
        (float(ratio.min()), float(np.median(ratio)), float(ratio.max())) if ratio.size else (math.nan,) * 3,
    )


def student(count: Any) -> Any:
    """Standard errors of a mean of so many numbers within which it lies with 95 %; NaN for one."""
    return stdtrit(count - 1, 0.975)


def _numbers(claim: Claim, side: str, rows: DataFrame) -> DataFrame:
    """The number of one side in each of the claim's cells and repetitions."""
    entries = named(claim, side, rows[claim.by].unique())
    mine = rows[rows[claim.by].isin(entries)]
    chosen = {each: getattr(claim, f"{each}s") for each in LEVELS}
    if "all" in set(mine["group"]) and claim.by != "group":
        chosen["group"] = chosen["group"] or ("all",)
    if side == "better" and claim.better_epsilon is not None:
        chosen["epsilon"] = (claim.better_epsilon,)
    for column, some in chosen.items():
        if some:
            mine = mine[mine[column].isin(some)]
    # Times of a stream of points are averaged before repetitions are.
    keys = [*dict.fromkeys([*LEVELS, claim.by]), "repetition"]
    found = mine.groupby(keys, sort=False)[claim.metric].mean().rename("number").reset_index()
    return found.assign(entry=found[claim.by].map(entries))


def _word(claim: Claim, holds: int, fails: int, cells: int) -> str:
    # 9 of 10 cells are 90 %, whichever way the product is rounded.
    needed = claim.share * cells - 1e-9
    if cells and holds >= needed:
        return "agrees"
    return "differs" if cells - fails < needed else "open"


def as_row(verdict: Verdict) -> list[Any]:
    """The verdict as a line of a table."""
    claim = verdict.claim
    most = "" if math.isinf(claim.most) else f", at most {claim.most:g}"
    sides = [claim.better] if claim.worse is None else [claim.worse, claim.better]
    of = " / ".join(" or ".join(each) if isinstance(each, tuple) else str(each) for each in sides)
    of = of if claim.by == "mechanism" else f"{claim.by} {of}"
    margin = f", margin {claim.margin:g}" if claim.margin > 1.0 else ""
    margin += ", budgets together" if claim.pooled else ""
    rule = f"{claim.metric} of {of} at least {claim.least:g}{most} in {claim.share:.0%}{margin}"
    low, middle, high = verdict.ratios
    counts = f"{verdict.holds} of {verdict.cells} hold, {verdict.fails} do not"
    return [claim.says, rule, verdict.found, counts, f"{low:.3g} / {middle:.3g} / {high:.3g}", verdict.repetitions]
