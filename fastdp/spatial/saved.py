"""Released and resident trees for state files: as few numbers as they follow from, checked before kernels see them.

A tree's cells stand breadth first and the parts of a cell side by side, so which cells are cut says everything about
its shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastdp.arrays.kinds import Floats, Integers
from fastdp.counters.base import check_rows
from fastdp.spatial.cell_parameters import CellParameters
from fastdp.spatial.cells import KeptTree, StepTree, measures
from fastdp.spatial.count_only import CountedTree
from fastdp.spatial.domain import Box
from fastdp.spatial.network import Network
from fastdp.spatial.polygons import Polygons
from fastdp.state import codec
from fastdp.state.codec import expect

#: Domains that a state file may name.
DOMAINS = {kind.__name__: kind for kind in (Box, Polygons, Network)}
#: A tree's counts stay below this, or sums of them leave 64 bits.
MAX_COUNT = 2**62
_NUMBERS = ("released", "measure", "held", "projected")
_GROWN = ("weight", "variance", "rate")
_NONE: Integers = np.empty(0, np.int64)
_KINDS: dict[str, Any] = {"released": Integers, "weight": Integers}


def describe_visit(visit: StepTree | None) -> dict[str, Any] | None:
    """A released tree."""
    if visit is None:
        return None
    cut = np.flatnonzero(visit.first >= 0)
    return {"cut": codec.describe(cut), **{name: codec.describe(getattr(visit, name)) for name in _NUMBERS}}


def restore_visit(described: Any, plan: CellParameters) -> StepTree | None:
    """The released tree that was described, but for ``origin``, which is not read after the step: all -1."""
    if described is None:
        return None
    numbers = _numbers(described, _NUMBERS)
    size = numbers["released"].size
    first, starts = shape(codec.restore(Integers, described["cut"]), size, plan)
    _check_numbers(numbers, size, ())
    _check_measures(numbers["measure"], first, starts, plan)
    parent, code = _paths(first, starts, plan)
    leaves = np.flatnonzero((first < 0) & (numbers["measure"] > 0.0))
    origin: Integers = np.full(size, -1, np.int64)
    return StepTree(starts, parent, first, code, origin, leaves=leaves, **numbers)


def describe_grown(grown: CountedTree) -> dict[str, Any]:
    """A tree that grows by counts."""
    visit = describe_visit(grown.visit)
    return {"visit": visit, **{name: codec.describe(getattr(grown, name)) for name in _GROWN}}


def restore_grown(described: Any, plan: CellParameters) -> CountedTree:
    """The tree that was described."""
    visit, numbers = restore_visit(described["visit"], plan), _numbers(described, _GROWN)
    if visit is None:
        raise ValueError("no tree")
    _check_numbers(numbers, visit.first.size, ("weight", "variance"))
    return CountedTree(visit, **numbers)


def _numbers(described: Any, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: codec.restore(_KINDS.get(name, Floats), described[name]) for name in names}


def _check_numbers(numbers: dict[str, Any], size: int, positive: tuple[str, ...]) -> None:
    """ValueError unless each is one finite number a node, and some are not negative."""
    for array in numbers.values():
        expect(array, np.empty(size, array.dtype))
    if not all(np.isfinite(array).all() for array in numbers.values()):
        raise ValueError("a tree with numbers out of range")
    if any((numbers[name] < 0).any() for name in positive):
        raise ValueError("a tree with numbers out of range")
    _check_counts(numbers.get("released", _NONE))


def _check_counts(released: Integers) -> None:
    """ValueError for counts to which no further ones can be added."""
    if ((released > MAX_COUNT) | (released < -MAX_COUNT)).any():
        raise ValueError("a tree with numbers out of range")


def _check_measures(measure: Floats, first: Integers, starts: Integers, plan: CellParameters) -> None:
    """ValueError unless none is below 0, and cells that are cut have a measure, as one of their parts has.

    Parts may lose theirs to rounding, so the domain is asked before a tree is refused.
    """
    whole = first >= 0
    whole[0] = True
    if not np.isfinite(measure).all() or measure.min() < 0.0 or measure[whole].min() <= 0.0:
        raise ValueError("a tree with numbers out of range")
    barren = np.flatnonzero(~measure[1:].reshape(-1, plan.fan_out).any(axis=1))
    code = _paths(first, starts, plan)[1] if barren.size else _NONE
    for begin in (1 + plan.fan_out * barren).tolist():
        depth = int(np.searchsorted(starts, begin, "right")) - 1
        if measures(plan, code[begin : begin + plan.fan_out], depth).any():
            raise ValueError("a tree with numbers out of range")


def _paths(first: Integers, starts: Integers, plan: CellParameters) -> tuple[Integers, Integers]:
    """Parent and path code of each node."""
    parent: Integers = np.concatenate([[-1], np.repeat(np.flatnonzero(first >= 0), plan.fan_out)])
    code: Integers = np.zeros(first.size, np.int64)
    for begin, end in zip(starts[1:-1].tolist(), starts[2:].tolist(), strict=True):
        level = np.arange(begin, end)
        code[level] = code[parent[level]] * plan.fan_out + (level - 1) % plan.fan_out
    return parent, code


def check_residents(residents: KeptTree, plan: CellParameters) -> None:
    """ValueError for a resident tree that no step can have left."""
    size = residents.first.size
    first, starts = shape(np.flatnonzero(residents.first >= 0), size, plan)
    for array in (residents.first, residents.released, residents.split_at):
        expect(array, first)
    expect(residents.measure, np.empty(size))
    expect(residents.state, np.empty((size, plan.counter.width), np.int64))
    if not np.array_equal(first, residents.first):
        raise ValueError("a tree of another shape")
    _check_measures(residents.measure, first, starts, plan)
    _check_counts(residents.released)
    check_rows(plan.counter, residents.state)


def check_codes(codes: Integers, plan: CellParameters) -> None:
    """ValueError for what is not the ascending codes of a batch."""
    if codes.ndim != 1 or (np.diff(codes) < 0).any():
        raise ValueError("codes out of order")
    if codes.size and not 0 <= codes[0] <= codes[-1] < plan.fan_out**plan.max_depth:
        raise ValueError("codes of no cell")


def shape(cut: Integers, size: int, plan: CellParameters) -> tuple[Integers, Integers]:
    """First children of a tree's nodes and the first node of each depth, from the nodes that are cut."""
    first: Integers = np.full(size, -1, np.int64)
    if cut.ndim != 1 or size != 1 + cut.size * plan.fan_out or (np.diff(cut) <= 0).any():
        raise ValueError("a tree of another shape")
    children = 1 + plan.fan_out * np.arange(cut.size)
    if cut.size and (cut[0] != 0 or (cut >= children).any()):
        raise ValueError("a tree of another shape")
    first[cut] = children
    starts = [0, 1]
    while starts[-1] < size:
        inner = int(np.searchsorted(cut, starts[-1]))
        starts.append(1 + plan.fan_out * inner)
    if len(starts) > plan.max_depth + 2:
        raise ValueError("a tree deeper than max_depth")
    starts += [size] * (plan.max_depth + 2 - len(starts))
    return first, np.array(starts, np.int64)
