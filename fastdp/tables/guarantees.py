"""What a release of windows promises: the guarantee of each part, their composition, and the caller's word."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from fastdp.guarantee import Guarantee, parallel, sequential
from fastdp.noise.noise import concentrated
from fastdp.tables.quantity import Quantity
from fastdp.units import Rows

if TYPE_CHECKING:
    from fastdp.tables.plan import TablePlan


def in_units(plan: TablePlan, guarantee: Guarantee) -> Guarantee:
    """The guarantee with what is protected, and when two tables are adjacent."""
    k, period = plan.contributions, "" if plan.periods is None else f" in any period of {plan.periods.every}"
    rows = Rows(plan.who, 1 if plan.who is not None else k, None if plan.periods is None else plan.periods.period)
    if plan.who is not None:
        unit, adjacency = f"one person{period}", f"add or remove all rows of one person{period.replace('any', 'one')}"
    elif k == 1:
        unit, adjacency = "one row of the table", "add or remove one row"
    else:
        unit, adjacency = (
            f"{k} rows of the table{period}",
            f"add or remove up to {k} rows{period.replace('any', 'one')}",
        )
    return replace(guarantee, unit=unit, adjacency=adjacency, rows=rows)


def _part(plan: TablePlan, epsilon: float, *derivation: str, delta: float = 0.0) -> Guarantee:
    return in_units(plan, Guarantee(epsilon, delta, arithmetic="exact", derivation=derivation))


def of_everything(plan: TablePlan, simulated: bool) -> Guarantee:
    """Of everything that is released."""
    k = plan.contributions
    parts = [_sums_part(plan, q).of("sums") for q in plan.quantities()]
    rows, choice = plan.clip_epsilons
    if plan.chooses_clip:
        counted = f"how many rows lie above the lowest candidate: sensitivity {k}, discrete Laplace noise"
        chosen = f"noisy max over counts of rows above candidates: monotone, sensitivity {k}"
        parts += [_part(plan, rows, counted).of("clip"), _part(plan, choice, chosen).of("clip")]
    if plan.key_rule == "private":
        step = "a key is released if its noisy count of rows passes a threshold that delta gives"
        parts.append(_part(plan, plan.key_epsilon, step, delta=0.0 if plan.gaussian else plan.delta).of("keys"))
    if plan.reports_clip:
        step = (
            f"rows beyond the clip and rows within it: {k} rows change them by {k} in all, a replaced value by 2; "
            f"noise for {plan.beyond_sensitivity}"
        )
        parts.append(_part(plan, plan.beyond_epsilon, step).of("share clipped"))
    if plan.reports_persons:
        where = "" if plan.periods is None else f" (in each period of {plan.periods.every})"
        step = f"counts of persons with and without dropped rows{where}, which are disjoint"
        parts.append(_part(plan, plan.person_epsilon, step).of("persons"))
    whole = sequential(*parts) if len(parts) > 1 else parallel(*parts)
    if plan.gaussian:
        return _approximate(plan, whole, simulated)
    # The parts are rounded so that they never exceed epsilon; they may fall short of it by a rounding.
    return Guarantee(
        *(plan.epsilon, whole.delta, whole.unit, whole.adjacency, whole.model, whole.arithmetic),
        simulated=simulated,
        derivation=(*whole.derivation, *_public_knowledge(plan)),
        rows=whole.rows,
    )


def _sums_part(plan: TablePlan, q: Quantity) -> Guarantee:
    """Of one sum of each window and key."""
    k, sums = plan.contributions, f"{q.name}: disjoint windows and keys, k rows of a unit change the sums by"
    clip = f"{q.sensitivity}" if q.name == "count" or not plan.chooses_clip else "clip"
    if plan.gaussian:
        step = (
            f"{sums} sqrt({plan.square}) * {clip} in the L2 norm (k = {k}), discrete Gaussian noise of sigma "
            f"sqrt({plan.square}) * {clip} / {q.epsilon:g}: rho = {q.epsilon:g}^2 / 2"
        )
        return in_units(plan, concentrated(q.epsilon, step))
    if clip == "clip":
        step = f"{sums} k clips in all, discrete Laplace noise of scale k * clip / epsilon (k = {k})"
    else:
        step = f"{sums} k * {clip} steps in all, discrete Laplace noise of scale k * {clip} / epsilon (k = {k})"
    return _part(plan, q.epsilon, step)


def _approximate(plan: TablePlan, whole: Guarantee, simulated: bool) -> Guarantee:
    """Epsilon and delta of parts in rho; keys add a delta of their own."""
    stated = whole.approximate(plan.epsilon, plan.noise_delta)
    if plan.key_delta:
        # All but an event of this probability is concentrated (Bun and Steinke 2016, section 8).
        step = f"keys: released beyond that with probability {plan.key_delta:g}: delta = {plan.delta:g} in all"
        stated = replace(stated, delta=plan.delta, rho=math.inf, derivation=(*stated.derivation, step))
    derivation = (*stated.derivation, *_public_knowledge(plan))
    return replace(stated, simulated=simulated, derivation=derivation)


def _public_knowledge(plan: TablePlan) -> list[str]:
    """What the guarantee takes the caller's word for."""
    said = []
    ends = plan.taken or [name for name, end in (("first", plan.start), ("last", plan.stop)) if end is None]
    if plan.online:
        said.append("the clock that closes windows is public")
    elif ends:
        said.append(f"the {' and '.join(ends)} window of the table is public knowledge (start=, stop=)")
    if plan.key_rule == "public":
        said.append(
            "the keys of all rows, dropped ones too, are public knowledge, on the caller's word (keys='public')"
        )
    if plan.who is None and plan.contributions > 1:
        said.append(f"a unit has at most {plan.contributions} rows, on the caller's word (who= enforces it)")
    if plan.who is not None:
        where = "in all" if plan.periods is None else f"in each period of {plan.periods.every}"
        said.append(
            f"of a person (column {plan.who!r}) the {plan.contributions} rows of least keyed hash {where} count, "
            "whatever other persons do"
        )
        if plan.per_window is not None:
            said.append(f"of a person at most {plan.per_window} rows of one window count, those of least hash")
    # Not for means: of deviations from the middle of the clip a replaced value moves two sensitivities.
    row_alone = plan.periods is None and plan.who is None and plan.contributions == 1
    if row_alone and plan.kind == "totals" and plan.bound and plan.bound[0] >= 0:
        said.append("replacing the value of one row, in its window and key, is covered too")
    return said
