"""Arguments of a release: bounds of columns, names, and sources of keys."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from fastdp import validation
from fastdp.data.column import Nonfinite
from fastdp.errors import ParameterError, argument
from fastdp.kinds import Bounds, Keys
from fastdp.record import Choice, Flag, Kind, Real, parameter, record
from fastdp.tables.columns import KeyRow
from fastdp.tables.statistics import Statistic, columns_of
from fastdp.validation import refusal

#: Where keys come from.
KeySource = Literal["none", "given", "public", "private"]


@record
class Value:
    """Public bounds of a column of values.

    Parameters
    ----------
    bound : float or (float, float), optional
        Upper bound (from 0) or both bounds of a value, never computed from the table.
    clip : float or (float, float), optional
        Public ends to which values are clipped; then ``bound`` may be omitted.  By default chosen privately from the
        rows.
    weight : float
        The column's budget relative to others'.
    nonfinite : "raise", "zero" or "drop"
        Missing values, NaN and infinity are refused, count as 0, or their rows are in no statistic.
    resolution : float, optional
        Step of the integer grid; by default the bound's 2^32th part, or coarser where the noise is.  A cell holds
        2^63 steps: 10^9 rows and more by default.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.Value(10.0, resolution=0.001).nonfinite
    'raise'
    """

    bound: Bounds | None = parameter(Kind(), default=None)
    clip: Bounds | None = parameter(Kind(), default=None)
    weight: float = parameter(Real(above=0.0, most=2.0**20), default=1.0)
    nonfinite: Nonfinite | Literal["drop"] = parameter(Choice(("raise", "zero", "drop")), default="raise")
    resolution: float | None = parameter(Real(above=0.0, optional=True), default=None)

    def _check(self) -> None:
        given = [
            ends_of(name, each) for name, each in (("bound", self.bound), ("clip", self.clip)) if each is not None
        ]
        if not given:
            accepted = f"a public upper bound of a value, such as {argument(bound=10.0)}, or (low, high)"
            raise refusal("bound", None, f"{accepted} where values may be negative")
        if given[-1][0] < given[0][0] or given[-1][1] > given[0][1]:
            raise refusal("clip", self.clip, f"a clip within the bound, {self.bound}")


def ends_of(name: str, given: object) -> tuple[float, float]:
    """Ends of a bound or clip, from 0 if one is given."""
    if not isinstance(given, (tuple, list)):
        return 0.0, validation.positive(name, given)
    low, high = validation.ends(name, given)
    if not low < high:
        raise ParameterError(f"{name} = ({low!r}, {high!r}): expected low below high")
    return low, high


@record
class PrivateKeys:
    """Keys that are chosen privately, with ``delta``: those with enough rows or persons.

    Parameters
    ----------
    share : float, optional
        Share of the budget, by default .5 with persons, else .25; without use where released counts choose keys.
    others : bool
        Release the rows of all other keys as a last key with missing entries.

    Examples
    --------
    >>> import fastdp
    >>> fastdp.PrivateKeys(share=0.3).share
    0.3
    """

    share: float | None = parameter(Real(above=0.0, below=1.0, optional=True), default=None)
    others: bool = parameter(Flag(), default=False)


def values_of(statistics: Sequence[Statistic], bounds: object) -> list[tuple[str, Value]]:
    """Columns with bounds; ParameterError without one, or for another column."""
    names, _ = columns_of(statistics)
    if isinstance(bounds, Mapping):
        given = dict(bounds)
    elif bounds is not None and len(names) != 1:
        several = f"a mapping of {len(names)} columns with values to bounds"
        wanted = several if names else "None, because no statistic reads values"
        raise ParameterError(f"bounds: expected {wanted}", parameter="bounds")
    else:
        given = dict.fromkeys(names, bounds)
    if unknown := set(given) - set(names):
        told = f"bounds of columns without statistics of values: {len(unknown)}"
        raise ParameterError(f"{told}; expected those of {names}")
    for name in names:
        if given.get(name) is None:
            raise ParameterError(
                f"bounds: column {name!r} has none; expected a public upper bound of its values, such as "
                f"{argument(bounds={name: 10.0})}, or (low, high) where they may be negative"
            )
    return [(name, each if isinstance(each := given.get(name), Value) else Value(each)) for name in names]


def names_of(name: str, given: object) -> tuple[str, ...]:
    """Column names from one, several or None, each once."""
    if given is None:
        return ()
    listed = [given] if isinstance(given, str) else given
    if not isinstance(listed, (list, tuple)) or not all(isinstance(each, str) for each in listed):
        raise refusal(name, given, "the name of a column, or a list of names")
    if len(set(listed)) != len(listed):
        raise refusal(name, given, "each column once")
    return tuple(listed)


def keys_of(
    by: tuple[str, ...], given: Keys | PrivateKeys | None, delta: float
) -> tuple[KeySource, tuple[KeyRow, ...]]:
    """Source of the keys, and given ones; ParameterError for conflicts."""
    if not by:
        if given is not None:
            raise ParameterError(f"keys: expected None without {argument(by=...)}, the columns that they are of")
        return "none", ()
    if isinstance(given, str):
        return cast("KeySource", validation.choice("keys", given, ("public",))), ()
    if given is None or isinstance(given, PrivateKeys):
        if delta:
            return "private", ()
        if given is not None:
            raise ParameterError("delta = 0: expected above 0, such as 1e-6, because keys are chosen privately")
        listed = f"the list of keys of {', '.join(map(repr, by))} that are released"
        public = f"{argument(keys='public')} if it is no secret which keys the table has"
        raise refusal("keys", None, f"{listed}, or {public}, or delta > 0 to choose them privately")
    rows = _key_rows(by, given)
    try:
        distinct, odd = len(set(rows)), any(each != each for each in itertools.chain.from_iterable(rows))
    except TypeError:
        raise ParameterError("keys: expected texts, numbers, dates or times, and no lists of them") from None
    if odd:
        raise ParameterError("keys: an entry is NaN, which equals nothing; expected None for rows without an entry")
    if not rows or distinct != len(rows):
        raise ParameterError(f"keys has {len(rows)} entries, {distinct} of them distinct: expected distinct keys")
    return "given", tuple(rows)


def _key_rows(by: tuple[str, ...], given: Keys) -> list[KeyRow]:
    if isinstance(given, Mapping):
        if set(given) != set(by):
            raise ParameterError(f"keys: expected a list for each of {', '.join(map(repr, by))}")
        return list(itertools.product(*(_listed(given[name]) for name in by)))
    listed = _listed(given)
    if len(by) == 1:
        if tuple not in set(map(type, listed)):
            return list(zip(listed, strict=True))
        return [key if isinstance(key, tuple) and len(key) == 1 else (key,) for key in listed]
    if not all(isinstance(key, (tuple, list)) and len(key) == len(by) for key in listed):
        accepted = f"tuples of {len(by)} entries, or a mapping of each column of by= to a list"
        raise ParameterError(f"keys: expected {accepted}, whose combinations are the keys")
    return [tuple(key) for key in listed]


def _listed(given: Any) -> list[Any]:
    convert = next(
        (getattr(given, name) for name in ("tolist", "to_list", "to_pylist") if hasattr(given, name)), None
    )
    try:
        return cast("list[Any]", convert() if convert else list(given))
    except TypeError:
        raise ParameterError(f"keys is a {type(given).__name__}: expected a list of keys") from None
