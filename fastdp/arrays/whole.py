"""Checks of ``release``: a whole array at once, from a publisher that has seen nothing."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from fastdp.arrays.column import as_column
from fastdp.errors import DataError, StateError


def as_whole(values: Any, n_seen: int, holdout: int) -> NDArray[Any]:
    """The values as a column, longer than the hold-out; StateError if values came before, else DataError."""
    if n_seen:
        raise StateError(
            f"release() on a publisher that has seen {n_seen} values: expected a fresh one (use publish())"
        )
    column = as_column(values, "values")
    check_size(column.size, holdout)
    return column


def check_size(size: int, holdout: int, name: str = "values") -> None:
    """DataError unless there are more values than the hold-out takes; their number is public."""
    if size <= holdout:
        hint = " (choose a smaller holdout)" if holdout > 1 else ""
        raise DataError(
            f"{name} has {size} entries: expected more than the hold-out of {holdout}, "
            f"after which published values begin{hint}"
        )
