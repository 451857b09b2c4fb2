"""Results as HTML for notebooks, and tables as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

#: Rows of a result that a notebook shows.
SHOWN_ROWS = 8


def as_html(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    more: int = 0,
    notes: Iterable[str] = (),
) -> str:
    """Title, table, number of rows left out, and lines below, all escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    lines = [f"... and {more:,} rows more"] if more else []
    lines += map(escape, notes)
    return f"<div><strong>{escape(title)}</strong>{table}{'<br>'.join(lines)}</div>"


def as_text(rows: Sequence[Sequence[str]]) -> str:
    """Rows as lines of aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in shown)
