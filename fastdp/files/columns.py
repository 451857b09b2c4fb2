"""``--column``: which of several columns is the stream."""

from __future__ import annotations

from collections.abc import Sequence

from fastdp.errors import DataError

MAX_LISTED = 30


def pick_column(column: str | None, names: Sequence[str] | None, width: int, where: str) -> int:
    """The zero-based number of the requested column.

    Parameters
    ----------
    column : str, optional
        A name or a zero-based number; a name counts first, so that columns named by numbers are reachable.
    names : sequence of str, optional
        The columns' names, where they have any.
    width : int
        How many columns there are.
    where : str
        The file, for messages.

    Raises
    ------
    DataError
        Listing the columns there are.
    """
    if column is None:
        if width == 1:
            return 0
        raise DataError(f"{where} has {width} columns: expected --column, one of {listed(names, width)}")
    if names is not None and column in names:
        if list(names).count(column) > 1:
            raise DataError(f"--column {column!r}: {where} has several columns of that name; expected a number")
        return list(names).index(column)
    if is_index(column) and int(column) < width:
        return int(column)
    raise DataError(f"--column {column!r}: {where} has no such column; expected one of {listed(names, width)}")


def is_index(column: str) -> bool:
    """Whether the text is a zero-based number."""
    return column.isascii() and column.isdigit()


def listed(names: Sequence[str] | None, width: int) -> str:
    """The columns there are, for a message."""
    shown = range(min(width, MAX_LISTED))
    listed = [str(k) if names is None or not is_name(names[k]) else f"{names[k]!r} ({k})" for k in shown]
    return ", ".join(listed) + (", ..." if width > MAX_LISTED else "")


def is_name(cell: str) -> bool:
    """Whether a cell of a first row may be shown as a column's name: one that begins like a number may be data."""
    return cell[:1].isalpha() or cell.startswith("_")
