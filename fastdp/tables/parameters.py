"""From the arguments of ``totals``, ``counts``, ``means`` and ``Windows`` to a plan."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, cast

from fastdp import validation
from fastdp.data.column import Nonfinite
from fastdp.errors import ParameterError
from fastdp.noise.draws import NoiseName, better_noise, checked_noise
from fastdp.tables.calendar import Calendar, most_spans
from fastdp.tables.columns import KeyRow
from fastdp.tables.plan import KeyRule, TablePlan
from fastdp.tables.sums import Kind

MAX_ROWS = 2**40


def names_of(name: str, given: Any) -> tuple[str, ...]:
    """Column names from one, several or None."""
    listed = [] if given is None else [given] if isinstance(given, str) else given
    if not isinstance(listed, (list, tuple)) or not all(isinstance(each, str) for each in listed):
        raise ParameterError(f"{name} = {validation.shown(given)}: expected the name of a column, or a list of names")
    if len(set(listed)) != len(listed):
        raise ParameterError(f"{name} = {validation.shown(given)}: expected each column once")
    return tuple(listed)


def keys_of(by: tuple[str, ...], given: Any, delta: float) -> tuple[KeyRule, tuple[KeyRow, ...]]:
    """Where the keys come from, and those that are given."""
    if not by:
        if given is not None:
            raise ParameterError("keys: expected None without by=, the columns that they are of")
        return "none", ()
    if isinstance(given, str):
        return cast("KeyRule", validation.choice("keys", given, ("public",))), ()
    if given is None:
        if delta:
            return "private", ()
        raise ParameterError(
            f"keys = None: expected the list of keys of {', '.join(map(repr, by))} that are released, or "
            "keys='public' if it is no secret which keys the table has, or delta > 0 to choose them privately"
        )
    rows = _key_rows(by, given)
    # Their texts too, which name their noise: two NaNs are not equal.
    distinct = min(len(set(rows)), len(set(map(repr, rows))))
    if not rows or distinct != len(rows):
        raise ParameterError(f"keys has {len(rows)} entries, {distinct} of them distinct: expected distinct keys")
    return "given", tuple(rows)


def _key_rows(by: tuple[str, ...], given: Any) -> list[KeyRow]:
    if isinstance(given, Mapping):
        if set(given) != set(by):
            raise ParameterError(f"keys: expected a list for each of {', '.join(map(repr, by))}")
        return list(itertools.product(*(_plain(given[name]) for name in by)))
    listed = _plain(given)
    if len(by) == 1:
        if any(isinstance(key, (list, dict, set)) for key in listed):
            raise ParameterError(f"keys: expected entries of {by[0]!r}, texts or numbers, and no lists of them")
        return [tuple(key) if isinstance(key, tuple) and len(key) == 1 else (key,) for key in listed]
    if not all(isinstance(key, (tuple, list)) and len(key) == len(by) for key in listed):
        raise ParameterError(
            f"keys: expected tuples of {len(by)} entries, or a mapping of each column of by= to a list, whose "
            "combinations are the keys"
        )
    return [tuple(key) for key in listed]


def _plain(given: Any) -> list[Any]:
    """The entries of a list, array or series, as Python has them."""
    convert = next(
        (getattr(given, name) for name in ("tolist", "to_list", "to_pylist") if hasattr(given, name)), None
    )
    try:
        listed = convert() if convert else list(given)
        hash(tuple(tuple(key) if isinstance(key, list) else key for key in listed))
    except TypeError:
        raise ParameterError(f"keys is a {type(given).__name__}: expected a list of keys") from None
    return cast("list[Any]", listed)


def check_bound(bound: Any, clip: Any) -> tuple[tuple[float, float], bool]:
    """The widest clip, and whether its upper end is chosen from the rows."""
    if bound is None and clip is None:
        raise ParameterError(
            "bound = None: expected a public upper bound of a value, such as bound=10.0, or (low, high) where values "
            "may be negative"
        )
    given, name = (bound, "bound") if clip is None else (clip, "clip")
    if isinstance(given, (tuple, list)):
        low, high = validation.ends(name, given)
        if not low < high:
            raise ParameterError(f"{name} = ({low!r}, {high!r}): expected low below high")
        ends, chooses = (low, high), False
    else:
        ends, chooses = (0.0, validation.positive(name, given)), clip is None
    if bound is not None and clip is not None:
        outer, _ = check_bound(bound, None)
        if ends[0] < outer[0] or ends[1] > outer[1]:
            raise ParameterError(f"clip = {clip!r}: expected a clip within bound = {bound!r}")
    return ends, chooses


def make_plan(
    kind: Kind,
    *,
    every: Any,
    epsilon: Any,
    bound: Any = None,
    clip: Any = None,
    by: Any = None,
    keys: Any = None,
    start: Any = None,
    stop: Any = None,
    origin: Any = None,
    time_zone: str | None = None,
    contributions: Any = 1,
    period: Any = None,
    per_window: Any = None,
    who: str | None = None,
    delta: Any = 0.0,
    resolution: Any = None,
    nonfinite: Any = "raise",
    noise: Any = None,
) -> TablePlan:
    """The plan of a release, its parameters checked; the table is not looked at."""
    epsilon = validation.positive("epsilon", epsilon)
    delta = validation.real("delta", delta)
    if not 0.0 <= delta < 1.0:
        raise ParameterError(f"delta = {delta!r}: expected at least 0 and below 1")
    columns = names_of("by", by)
    rule, rows = keys_of(columns, keys, delta)
    calendar = Calendar(every, time_zone, origin)
    first = None if start is None else calendar.border("start", start)
    last = None if stop is None else calendar.border("stop", stop)
    if first is not None and last is not None and last <= first:
        raise ParameterError(f"stop = {stop!r}: expected a time behind start = {start!r}")
    ends, chooses = (None, False) if kind == "counts" else check_bound(bound, clip)
    if resolution is not None:
        resolution = validation.positive("resolution", resolution)
    most = validation.integer("contributions", contributions, 1, MAX_ROWS)
    periods = None if period is None else Calendar(period, time_zone, origin, "period")
    if per_window is not None:
        per_window = validation.integer("per_window", per_window, 1, MAX_ROWS)
        if who is None:
            raise ParameterError(
                f"per_window = {per_window}: expected who=, the column of persons whose rows it bounds"
            )
    if periods is not None and who is None and most == 1:
        raise ParameterError(
            f"period = {period!r}: expected contributions= above 1, or who=; one row lies in one period"
        )
    drawn = _noise_of(noise, rule, epsilon, delta, most, per_window)
    # Laplace noise of sums needs no delta; keys that are chosen do.
    delta = delta if drawn == "gaussian" or rule == "private" else 0.0
    plan = TablePlan(
        *(kind, calendar, epsilon, ends, chooses, resolution, columns, rule, rows, most, periods, per_window),
        *(names_of("who", who)[0] if who is not None else None, delta, first, last),
        cast("Nonfinite", validation.choice("nonfinite", nonfinite, ("raise", "zero"))),
        noise=drawn,
    )
    if first is not None and last is not None:
        plan.check_cells(last - first, max(1, len(rows)))
        _check_per_window(plan, last - first)
    # Laws that cannot be drawn are refused before any row is read.
    for quantity in plan.quantities():
        _ = quantity.law
    return plan


def _noise_of(
    noise: Any, rule: KeyRule, epsilon: float, delta: float, contributions: int, per_window: int | None
) -> NoiseName:
    """The noise of the sums: as given, or where there is a delta for it the one whose variance is less."""
    if noise is not None:
        drawn = checked_noise(noise)
        if drawn == "gaussian" and not delta:
            raise ParameterError("delta = 0: expected above 0, such as 1e-9, because noise = 'gaussian'")
        if drawn == "laplace" and delta and rule != "private":
            raise ParameterError(
                f"delta = {delta!r}: expected 0, because Laplace noise needs none and no keys are chosen privately"
            )
        return drawn
    if not delta or rule == "private":
        return "laplace"
    return better_noise(epsilon, delta, contributions, per_window)


def _check_per_window(plan: TablePlan, windows: int) -> None:
    """ParameterError for more contributions than windows allow: the noise would be larger than it need be."""
    if plan.per_window is None or plan.periods is not None:
        return
    most = plan.per_window * windows
    if plan.contributions > most:
        raise ParameterError(
            f"contributions = {plan.contributions}: a person has at most {most} rows, {plan.per_window} in each of "
            f"{windows} windows; expected at most {most}, because noise grows with contributions"
        )


def check_online(plan: TablePlan) -> None:
    """ParameterError unless the rows of a person that count are known window by window, as windows close."""
    if plan.who is None:
        return
    if plan.periods is None:
        raise ParameterError(
            "period = None: expected the period in which a person's rows are bounded, such as '1d', because windows "
            "close one by one: a number of rows for life would be used up by the first ones"
        )
    calendar, period = plan.calendar, plan.periods.every
    begin = calendar.edge(plan.start or 0)
    most = most_spans(calendar.every, period, calendar.time_zone, calendar.origin, begin)
    if most > 1 and plan.per_window is None:
        raise ParameterError(
            f"per_window = None: expected the rows of a person that count in one window, such as "
            f"{max(1, plan.contributions // most)}, because a period of {period} has up to {most} windows of "
            f"{calendar.every}, which close one by one"
        )
    needed = most * (plan.per_window or 1)
    if most > 1 and plan.contributions < needed:
        raise ParameterError(
            f"contributions = {plan.contributions}: expected at least {needed}, because a period of {period} has up "
            f"to {most} windows of {calendar.every} with per_window = {plan.per_window} rows of a person each; or a "
            "smaller per_window, longer windows, or a shorter period"
        )
