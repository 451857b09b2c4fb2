"""Lists in parameters expand to a grid: ``prune = [0, 1, 2]`` makes three mechanisms."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from fastdp.errors import ParameterError

Path = tuple[str, ...]


def expand(table: Mapping[str, Any], place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every choice of one entry from each list, the last list changing fastest.

    Parameters
    ----------
    table : mapping
        Values, lists of values, and tables of them.
    place : str
        Where the table stands, for messages.

    Yields
    ------
    suffix : str
        What distinguishes the choice, for labels: "prune=2, smoother=MovingAverage/window=3"; empty without lists.
    chosen : dict
        The table without lists.
    """
    lists = list(_lists(table, ()))
    for path, values in lists:
        if not values:
            raise ParameterError(f"{place}.{'.'.join(path)} = []: expected a value, or a list that is not empty")
    for choice in itertools.product(*(values for _, values in lists)):
        chosen = _copy(table)
        said = []
        for (path, _), value in zip(lists, choice, strict=True):
            target = chosen
            for name in path[:-1]:
                target = target[name]
            target[path[-1]] = value
            shown = _summary(value) if isinstance(value, Mapping) else value
            said.append(f"{'.'.join(path)}={shown}")
        yield ", ".join(said), chosen


def _summary(part: Mapping[str, Any]) -> str:
    """A part in one word: its name, and its other fields with theirs."""
    return "/".join(str(value) if name == "part" else f"{name}={value}" for name, value in part.items())


def _lists(table: Mapping[str, Any], path: Path) -> Iterator[tuple[Path, list[Any]]]:
    for name, value in table.items():
        if isinstance(value, (list, tuple)):
            yield (*path, name), list(value)
        elif isinstance(value, Mapping):
            yield from _lists(value, (*path, name))


def _copy(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copy(value) if isinstance(value, Mapping) else value for name, value in table.items()}
