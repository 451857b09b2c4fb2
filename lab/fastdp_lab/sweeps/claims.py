"""Verdicts on a paper's statements, by a rule that stands beside each statement.

A claim compares mechanisms, or says how large a number of one is.  In each cell (data set, budget, kind of
queries, pair of mechanisms) the ratio of their mean errors over repetitions, or the mean itself, is taken; it decides
the cell where it differs from the stated one by more than two standard errors of its logarithm.

A name stands for a mechanism, or for all that a list in the specification makes of it ("measured" for "measured,
theta=1", ...).  Two such lists are compared entry by entry, others each with each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta

from fastdp import validation

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
    better, worse : str or tuple of str
        Names of mechanisms; without a worse one the number of the better one itself is judged.
    least, most : float
        The error of the worse one is so many times that of the better one, or the number is: from ``least`` to
        ``most``.
    share : float
        Part of the cells in which this holds, at least.
    metric : str
        A column of results, "threshold" among them.
    better_epsilon : float, optional
        The budget of the better one, where it is another than the worse one's.
    datasets, epsilons, workloads, groups : tuple, optional
        Which cells; by default all, and the group "all" where there is one.
    """

    says: str
    better: str | tuple[str, ...]
    worse: str | tuple[str, ...] = ()
    least: Annotated[float, Meta(ge=0)] = 1.0
    most: float = math.inf
    share: Annotated[float, Meta(gt=0, le=1)] = 1.0
    metric: str = "mse"
    better_epsilon: float | None = None
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


_KEYS = ["dataset", "workload", "group", "epsilon"]


def stands_for(side: str, names: str | tuple[str, ...], mechanisms: Iterable[str]) -> dict[str, str]:
    """The mechanisms that a claim's names stand for, each with its entry of a list, "" where there is none.

    ParameterError if a name stands for none.
    """
    every, found = dict.fromkeys(mechanisms), {}
    for name in (names,) if isinstance(names, str) else names:
        listed = {each: each[len(name) :] for each in every if each.startswith(f"{name}, ")}
        if name not in every and not listed:
            validation.choice(side, name, tuple(every))
        found |= {name: ""} if name in every else listed
    return found


def decide(claim: Claim, rows: DataFrame) -> Verdict:
    """The verdict that results give."""
    own = (claim.better_epsilon,) if claim.better_epsilon is not None else claim.epsilons
    found = _means(claim, "better", own, rows).rename(columns={"mean": "ratio"})
    if claim.worse:
        other = _means(claim, "worse", claim.epsilons, rows)
        keys = _KEYS if claim.better_epsilon is None else _KEYS[:-1]
        pairs = ["entry"] if found["entry"].all() and other["entry"].all() else []
        found = found.merge(other, on=[*keys, *pairs], suffixes=("", " of worse"))
        found["ratio"] = found["mean"] / found["ratio"]
        found["deviation"] = np.hypot(found["deviation"], found["deviation of worse"])
    found = found[np.isfinite(found["ratio"])]
    # One repetition has no deviation: NaN leaves the cell open.
    ratio, error = found["ratio"].to_numpy(), np.exp(DECISIVE * found["deviation"].to_numpy())
    holds = int(np.sum((ratio >= claim.least * error) & (ratio * error <= claim.most)))
    fails = int(np.sum((ratio * error < claim.least) | (ratio > claim.most * error)))
    return Verdict(
        claim,
        _word(claim, holds, fails, ratio.size),
        holds,
        fails,
        ratio.size,
        int(found["count"].max()) if ratio.size else 0,
        tuple(np.quantile(ratio, [0.0, 0.5, 1.0]).tolist()) if ratio.size else (math.nan,) * 3,
    )


def _means(claim: Claim, side: str, epsilons: tuple[float, ...], rows: DataFrame) -> DataFrame:
    """Mean, its relative standard error and the number of repetitions of one side in each of the claim's cells."""
    named = stands_for(side, getattr(claim, side), rows["mechanism"])
    mine = rows[rows["mechanism"].isin(named)]
    groups = claim.groups or (("all",) if "all" in set(mine["group"]) else ())
    for column, chosen in zip(_KEYS, (claim.datasets, claim.workloads, groups, epsilons), strict=True):
        if chosen:
            mine = mine[mine[column].isin(chosen)]
    # Stretches of a stream, and times of a stream of points, are averaged before repetitions are.
    mine = mine.assign(group=mine["group"].where(mine["queries"] > 1, "single"))
    each = mine.groupby([*_KEYS, "mechanism", "repetition"], sort=False)[claim.metric].mean()
    found = each.groupby([*_KEYS, "mechanism"], sort=False).agg(["mean", "std", "count"]).reset_index()
    deviation = found["std"] / found["mean"] / np.sqrt(found["count"])
    return found.assign(deviation=deviation, entry=found["mechanism"].map(named))


def _word(claim: Claim, holds: int, fails: int, cells: int) -> str:
    if cells and holds >= claim.share * cells:
        return "agrees"
    return "differs" if fails > (1.0 - claim.share) * cells else "open"


def as_row(verdict: Verdict) -> list[Any]:
    """The verdict as a line of a table."""
    claim = verdict.claim
    most = "" if math.isinf(claim.most) else f", at most {claim.most:g}"
    sides = [each if isinstance(each, str) else " or ".join(each) for each in (claim.worse, claim.better)]
    of = " / ".join(filter(None, sides))
    rule = f"{claim.metric} of {of} at least {claim.least:g}{most} in {claim.share:.0%}"
    low, middle, high = verdict.ratios
    counts = f"{verdict.holds} of {verdict.cells} hold, {verdict.fails} do not"
    return [claim.says, rule, verdict.found, counts, f"{low:.3g} / {middle:.3g} / {high:.3g}", verdict.repetitions]
