"""Pictures of growth: one panel a question, one line a task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

#: Sizes and what was measured there.
Line = tuple[Sequence[float], Sequence[float]]


def panel(axes: Any, lines: Mapping[str, Line], *, dotted: Mapping[str, Line] | None = None, **labels: Any) -> None:
    """Lines over sizes on a logarithmic axis; ``dotted`` are limits, ``labels`` what ``axes.set`` takes."""
    for name, (sizes, measured) in lines.items():
        axes.semilogx(sizes, measured, marker="o", markersize=4, label=name)
    for name, (sizes, measured) in (dotted or {}).items():
        axes.semilogx(sizes, measured, color="black", linestyle=":", label=name)
    axes.set(**labels)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", ncols=1 + (len(lines) > 4))


def draw(path: Path, *panels: Callable[[Any], None]) -> None:
    """Panels side by side in a file."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(panels), 4), layout="constrained")
    for axes, fill in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        fill(axes)
    figure.savefig(path, dpi=120)
