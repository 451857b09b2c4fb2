"""Ids of many streams: distinct whole numbers, or names."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastdp import validation
from fastdp.data.column import as_column, kind_of
from fastdp.data.kinds import Indices
from fastdp.errors import ParameterError
from fastdp.noise.key import MAX_STREAMS

#: What came in: numbers of streams as int64[n], or ids of which some are texts.
Ids = Indices | tuple[int | str, ...]


def as_ids(ids: Any, n: int) -> Ids:
    """Numbers as int64[n]; ids of which some are texts as a tuple."""
    if ids is None:
        return np.arange(n)
    listed = _as_list(ids)
    if listed is not None and any(isinstance(each, str) for each in listed):
        return _as_names(listed, n)
    column = as_column(ids, "ids") if listed is None or n else np.empty(0, np.int64)
    if column.dtype.kind not in "iu" or column.size != n:
        raise ParameterError(
            f"ids has {column.size} entries of {kind_of(column.dtype)}: expected {n} texts or whole numbers, one for "
            "each stream"
        )
    wrong = np.flatnonzero((column < 0) | (column >= MAX_STREAMS))
    if wrong.size:
        raise ParameterError(
            f"ids[{wrong[0]}] = {column[wrong[0]]}: expected a whole number of at least 0 and below {MAX_STREAMS}"
        )
    numbers = column.astype(np.int64)
    distinct, times = np.unique(numbers, return_counts=True)
    if distinct.size < n:
        raise _twice(int(distinct[times > 1][0]))
    return numbers


def _as_list(ids: Any) -> list[Any] | None:
    """The entries of what may hold texts; None for columns of numbers."""
    if isinstance(ids, (list, tuple)):
        return list(ids)
    for method in ("to_pylist", "to_list", "tolist"):
        if hasattr(ids, method) and getattr(getattr(ids, "dtype", None), "kind", "O") not in "iuf":
            return list(getattr(ids, method)())
    return None


def _as_names(listed: list[Any], n: int) -> tuple[int | str, ...]:
    """Ids of which some are texts."""
    if len(listed) != n:
        raise ParameterError(f"ids has {len(listed)} entries: expected {n}, one for each stream")
    names: list[int | str] = []
    for i, each in enumerate(listed):
        if isinstance(each, str) and each and validation.encodes(each):
            names.append(str(each))
        elif isinstance(each, str):
            raise ParameterError(
                f"ids[{i}] = {validation.shown(each)}: expected a text that is not empty and that UTF-8 can encode"
            )
        else:
            names.append(validation.integer(f"ids[{i}]", each, 0, MAX_STREAMS - 1))
    seen: set[int | str] = set()
    for name in names:
        if name in seen:
            raise _twice(name)
        seen.add(name)
    return tuple(names)


def _twice(name: object) -> ParameterError:
    return ParameterError(
        f"ids has {validation.shown(name)} more than once: expected distinct ids (equal noise reveals differences)"
    )
