"""The guarantee of a release, from its shares: components, composition, public knowledge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from fastdp.guarantee import Guarantee, parallel, sequential
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.sampler import concentrated
from fastdp.tables.calendar_basis import BITS
from fastdp.tables.quantities import NEW, ROWS, Quantity
from fastdp.tables.reach import counter_of
from fastdp.tables.shares import Line, Shares
from fastdp.units import MOST_DROPPED, Times, UnitRows

#: Derivations of choices and numbers, for k rows of a unit, or dropped ones, and those without noise of the plan's
#: kind.
STEPS = {
    "sizes": "rows by size, those of value 0 and those past the bound: a row is in one bin, {of_unit}",
    "tail": "the sum of values within the second clip, less those within the body's, which follow from the rows by "
    "size: sensitivity {k} times the clips' difference",
    "counted": "rows that count: sensitivity {k}",
    "dropped": "rows that the bound drops, at most {most} of a person: sensitivity {most}",
    "others": "rows of keys that are not released, after these are chosen: sensitivity {k}",
    "residual": "what the calendar leaves of all sums: a norm, rounded down; a unit moves it by at "
    "most the L2 norm of its rows",
    "auto": "a person's rows: noisy max over numbers of persons with more, monotone, sensitivity 1",
}
PURE = ("auto",)


def promise(shares: Shares, *, simulated: bool, notes: Sequence[str] = ()) -> Guarantee:
    """The guarantee of a release; ``notes``: further public facts."""
    parts = components(shares)
    whole = sequential(*parts) if len(parts) > 1 else parallel(*parts)
    public = [*_public_knowledge(shares, whole), *notes]
    if shares.gaussian:
        stated = _approximate(shares, whole)
        return replace(stated, simulated=simulated, derivation=(*stated.derivation, *public))
    # The parts are rounded so that they never exceed epsilon; they may fall short of it by a rounding.
    derivation = (*whole.derivation, *public)
    return replace(whole, epsilon=shares.plan.epsilon, rho=math.inf, simulated=simulated, derivation=derivation)


def components(shares: Shares) -> list[Guarantee]:
    """Guarantee of each line."""
    unit, found = _unit(shares), []
    for line in shares.lines:
        name, step, delta = _words(shares, line)
        if shares.gaussian and line.purpose not in PURE and not (line.purpose == "keys" and not _weighs(shares)):
            bare = concentrated(line.loss, step)
        else:
            bare = Guarantee(line.loss, delta, arithmetic="exact", derivation=(step,))
        of = f"{name} ({bare.cost}): {step}"
        found.append(replace(unit, epsilon=bare.epsilon, delta=bare.delta, rho=bare.rho, derivation=(of,)))
    return found


def times_of(shares: Shares, unit: UnitRows) -> Times | None:
    """Public times outside which no row counts, else None."""
    plan = shares.plan
    if plan.time is None or plan.calendar is None or plan.start is None or plan.stop is None or plan.taken:
        return None
    ends = plan.calendar.edge(plan.start), plan.calendar.edge(plan.stop)
    times = Times(plan.time.column, plan.calendar.time_zone, *ends)
    return times if unit.keeps(times) else None


def _unit(shares: Shares) -> Guarantee:
    plan, k = shares.plan, shares.plan.contributions
    period = "" if plan.periods is None else f" in any period of {plan.periods.every}"
    one = period.replace("any", "one")
    rows = UnitRows(plan.who, 1 if plan.who else k, None if plan.periods is None else plan.periods.period)
    if plan.who is not None:
        unit, adjacency = f"one person{period}", f"add or remove all rows of one person{one}"
    elif k == 1:
        unit, adjacency = "one row of the table", "add or remove one row"
    else:
        unit, adjacency = f"{k} rows of the table{period}", f"add or remove up to {k} rows{one}"
    times = times_of(shares, rows)
    return Guarantee(0.0, unit=unit, adjacency=adjacency, arithmetic="exact", rows=rows, times=times)


def _weighs(shares: Shares) -> bool:
    """True if persons' weights choose keys at once (concentrated if Gaussian)."""
    plan = shares.plan
    return plan.who is not None and not plan.online and not plan.selects_cells


def _words(shares: Shares, line: Line) -> tuple[str, str, float]:
    plan, k, purpose = shares.plan, shares.plan.contributions, line.purpose
    noise = f"discrete {'Gaussian' if shares.gaussian else 'Laplace'} noise"
    if purpose == "keys":
        return purpose, _keys(shares), 0.0 if shares.gaussian else plan.delta
    if line.quantity is None:
        of_unit = f"{k} rows change them by {k} in all"
        if plan.who is not None:
            of_unit = "those of a person share one"
        step = STEPS[purpose].format(k=k, most=MOST_DROPPED * k, of_unit=of_unit)
        return _named(purpose, line.column), step + (f", {noise}" if purpose not in PURE else ""), 0.0
    name = _named(line.quantity.name, line.quantity.column)
    if line.level is None:
        step = f"{name}: cells and totals together, in shares of this loss that follow from their numbers, k = {k}"
        return purpose, f"{step} rows of a unit, {noise}", 0.0
    return purpose, _numbers(shares, line, line.quantity, f"{name}: {_where(shares, line)}"), 0.0


def _where(shares: Shares, line: Line) -> str:
    level, by = line.level, shares.plan.by
    if line.quantity is not None and line.quantity.name == "table":
        return "all rows"
    if level is None or level == shares.cells:
        return "disjoint windows and keys"
    nodes = f"keys of {', '.join(map(repr, by[: level.depth]))}" if level.depth else "all rows"
    return f"{nodes}, {'each window' if level.each else 'all windows'}"


def _new_entries(shares: Shares, line: Line, where: str) -> str:
    plan = shares.plan
    told = "a row takes an entry from one window to another"
    if plan.who is not None:
        each = f" in each of its first {plan.most_keys} keys" if line.level == shares.cells and plan.by else ""
        told = f"a person is new once{each}" + (", or in another window" if plan.periods is not None else "")
    moved, scale = f"{line.moved} in all", f"Laplace noise of scale {line.moved} / epsilon"
    if shares.gaussian:
        sigma = f"sqrt({line.moved}) / {line.loss:g}: rho = {line.loss:g}^2 / 2"
        moved, scale = f"sqrt({line.moved}) in the L2 norm", f"Gaussian noise of sigma {sigma}"
    levels = counter_of(plan).levels
    sums = "" if levels == 1 else f", in a sum of each of {levels} levels"
    return f"{where}, {told}{sums}: a unit changes the numbers of new ones by {moved}, discrete {scale}"


def _numbers(shares: Shares, line: Line, q: Quantity, where: str) -> str:
    if q.name in NEW:
        return _new_entries(shares, line, where)
    plan, k, moved, most = shares.plan, shares.plan.contributions, line.moved, f"{q.sensitivity}"
    if not q.counts and q.column != ROWS and plan.column(q.column).chooses:
        most = "clip" if q.name == "total" else f"the most that a chosen clip allows, up to {most},"
    if plan.basis is not None:
        norm = f"sqrt({moved})" if shares.gaussian else f"{moved}"
        sigma = f"Gaussian noise of sigma {norm}" if shares.gaussian else f"Laplace noise of scale {norm}"
        change = f"{norm} * {most} in the {'L2' if shares.gaussian else 'L1'} norm"
        return (
            f"{plan.basis}, of integer columns 2^{BITS} long: rows of a unit change those "
            f"of all keys by {change}, discrete {sigma} * {most} / {line.loss:g}"
        )
    bins = f"; a row is in one bin of each of {q.layers} levels" if q.layers > 1 else ""
    numbers = f"{where}, k rows of a unit change the {line.purpose} by"
    if shares.gaussian:
        return (
            f"{numbers} sqrt({moved}) * {most} in the L2 norm (k = {k}{bins}), discrete Gaussian noise of sigma "
            f"sqrt({moved}) * {most} / {line.loss:g}: rho = {line.loss:g}^2 / 2"
        )
    rows = "k" if q.layers == 1 else f"{q.layers} k"
    step = f"{numbers} {rows} * {most} steps in all, discrete Laplace noise of scale {rows} * {most} / epsilon"
    return f"{step} (k = {k}{bins})"


def _keys(shares: Shares) -> str:
    plan = shares.plan
    if plan.online:
        return (
            "a key appears once its running weight and fresh one-sided noise reach a threshold with one-sided noise "
            "of the key: weights only grow, so all windows cost one choice; the chances that a unit's own keys pass "
            "add up to delta over all windows"
        )
    if not _weighs(shares):
        step = "a key is released if its noisy count of rows passes a threshold that delta gives"
        return step + (", as it is published" if plan.selects_cells else "")
    rule = shares.key_rule()
    noise = "Gaussian" if isinstance(rule.distribution, GaussianDistribution) else "Laplace"
    return (
        f"weights of at most {rule.most} keys of a person, of norm 1, discrete {noise} noise, a threshold: loss by "
        "moved weights and the chance that a person's own keys pass stay within delta together"
    )


def _approximate(shares: Shares, whole: Guarantee) -> Guarantee:
    plan = shares.plan
    stated = whole.approximate(plan.epsilon, shares.noise_delta)
    if plan.key_rule != "private":
        return stated
    # All but an event of small probability is concentrated (Bun and Steinke 2016, section 8).
    step = f"keys: released beyond that with probability {shares.key_delta:g}: delta = {plan.delta:g} in all"
    if not shares.key_delta:
        step = f"keys of one person alone: within delta = {plan.delta:g} as other weights then move less"
    return replace(stated, delta=plan.delta, rho=math.inf, derivation=(*stated.derivation, step))


def _public_knowledge(shares: Shares, whole: Guarantee) -> list[str]:
    plan, said = shares.plan, []
    if whole.times is not None:
        but = " but their keys" if plan.key_rule == "public" else ""
        said.append(f"rows at other times than {whole.times} change nothing that is released{but}")
    ends = plan.taken or [name for name, end in (("first", plan.start), ("last", plan.stop)) if end is None]
    if plan.closes != "table":
        said.append(f"the clock that closes {plan.closes} is public")
    elif ends:
        said.append(f"the {' and '.join(ends)} window of the table is public knowledge (start=, stop=)")
    if plan.key_rule == "public":
        keys = "the keys of all rows, dropped ones too, are public knowledge, on the caller's word"
        said.append(f"{keys} (keys='public')")
    k = plan.contributions
    if plan.who is None and k > 1:
        said.append(f"a unit has at most {k} rows, on the caller's word (fastdp.Person enforces it)")
    if plan.bounds_rows:
        where = "in all" if plan.periods is None else f"in each period of {plan.periods.every}"
        rows = f"of a person (column {plan.who!r}) the {k} rows of least keyed hash {where} count"
        said.append(f"{rows}, whatever other persons do")
    if plan.per_window is not None:
        said.append(f"of a person at most {plan.per_window} rows of one window count, those of least hash")
    if plan.unit.keys is not None and plan.bounds_rows:
        said.append(f"of a person rows in at most {plan.unit.keys} keys count, those of least keyed hash")
    if plan.basis is not None:
        said.append(path_taken(shares))
    # Of deviations from the middle of the clip a replaced value moves two sensitivities.
    totals = all(q.name in ("count", "total") for q in shares.quantities)
    totals = totals and all(column.ends[0] >= 0.0 for column in plan.columns)
    if plan.who is None and k == 1 and plan.columns and totals and not shares.gaussian:
        # Two bins of sizes, one sum otherwise.
        sizes = sum(shares.helper("sizes", column.name) for column in plan.columns) * (not plan.online)
        said.append(f"replacing the values of one row, in its window and key, costs at most {plan.epsilon + sizes:g}")
    return said


def path_taken(shares: Shares) -> str:
    """Sentence about a table by a calendar."""
    plan = shares.plan
    assert plan.basis is not None  # noqa: S101 - called with one
    whose = "as asked for" if plan.asks_calendar else "taken because it is expected to err three times less"
    each = "windows and keys" if plan.by else "windows"
    hold = f"intervals hold true sums on average over {each}, and may miss those unlike the others"
    return f"windows follow from {plan.basis} with noise, {whose}; {hold}"


def _named(name: str, column: str) -> str:
    return name if column == ROWS else f"{name} of {column!r}"
