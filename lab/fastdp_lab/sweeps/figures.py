"""Pictures of a sweep, from its files only; needs matplotlib (extra ``plot``), imported on use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fastdp import validation
from fastdp.errors import DataError
from fastdp_lab.sweeps.drawing import Table
from fastdp_lab.sweeps.specification import STUDIES

FORMATS = ("png", "svg")


def draw_all(
    folder: str | Path,
    output: str | Path,
    *,
    metrics: Sequence[str] | None = None,
    group: str = "all",
    formats: Sequence[str] = FORMATS,
) -> list[Path]:
    """Every picture that the results allow.

    Parameters
    ----------
    folder : str or Path
        Of the sweep, finished or not.
    output : str or Path
        The folder of the pictures; created if absent.
    metrics : sequence of str, optional
        Which errors; by default all that were measured.
    group : str
        Which group of queries: "all", or a length class; for points a class of size, "all" for each.
    formats : sequence of str
        Suffixes.

    Returns
    -------
    list of Path
        Errors against epsilon (a picture for each metric), thresholds, the parts of the error, and streams over time;
        for points errors over time and against epsilon, totals over time, and maps.

    Raises
    ------
    DataError
        If there are no results, or no such group.
    ImportError
        If matplotlib is not installed.
    """
    for name in formats:
        validation.choice("format", name, FORMATS)
    table = Table(Path(folder))
    study = next(each for each in STUDIES.values() if all(name in table for name in each.columns(())))
    measured = [name for name in study.metrics if name in table]
    chosen = measured if metrics is None else [validation.choice("metric", name, measured) for name in metrics]
    drawn = study.draw(table, chosen, group)
    if not drawn:
        groups = dict.fromkeys(["all", *table.names("group")[:30]])
        raise DataError(f"group = {group!r}: expected one of {', '.join(map(repr, groups))}")
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in drawn:
        for suffix in formats:
            paths.append(folder / f"{name}.{suffix}")
            figure.savefig(paths[-1], metadata={"Date": None} if suffix == "svg" else None)
    return paths
