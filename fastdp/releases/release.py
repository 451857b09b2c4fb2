"""A finished release: the private stream, its guarantee, and answers to range queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.arrays.column import as_array, kind_of
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.releases.revised import RevisedStream
from fastdp_kernels import ranges

PREFIX_BLOCK = 256


@dataclass(frozen=True, eq=False)
class ReleasedNodes:
    """Noisy sums of all nodes of an inconsistent hierarchy.

    Attributes
    ----------
    sums : float64[trees, nodes]
        In units of the input, the leaf level first.  Nodes that were not complete when the stream ended are NaN;
        no range needs them.
    leaves, fan_out, levels, tree_values : int
        Shape of a tree, and how many values each serves.
    """

    sums: NDArray[np.float64]
    leaves: int
    fan_out: int
    levels: int
    tree_values: int

    def range_sum(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.float64]:
        """Answers from the fewest nodes that tile each range (ToPS section 3, the hierarchy approach)."""
        out = np.empty(starts.size)
        ranges.sum_nodes(self.sums, self.leaves, self.fan_out, self.levels, self.tree_values, starts, stops, out)
        return out


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """What a publisher released from a whole array.

    Attributes
    ----------
    values : float64[n_published]
        The private stream, in units of the input.
    offset : int
        Index, in the input, of the first published value (the hold-out's length).
    threshold : float
        Theta: values were clipped to [0, theta]; where it was renewed, the last one.
    guarantee : Guarantee
        What the release promises.
    block : int
        g: values under one noisy sum.  Within a block values are predictions, and the last one closes the
        account, so sums over whole blocks are the noisy sums.  1 with ``revision``, which knows each block's length.
    nodes : ReleasedNodes or None
        All released sums of an inconsistent hierarchy, from which ranges are then answered.
    revision : RevisedStream or None
        The stream seen again from all released sums, where blocks follow the stream (:class:`fastdp.Adaptive`).
    """

    values: NDArray[np.float64]
    offset: int
    threshold: float
    guarantee: Guarantee
    block: int = 1
    nodes: ReleasedNodes | None = None
    revision: RevisedStream | None = None
    _prefix: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.values.size

    def __repr__(self) -> str:
        behind = f" after a hold-out of {self.offset:,}" if self.offset else ""
        return "\n".join(
            [
                f"{type(self).__name__} of {self.values.size:,} values{behind}",
                f"  values     {preview(self.values)}",
                f"  threshold  {self.threshold:g}",
                f"  guarantee  {self.guarantee}",
            ]
        )

    def range_sum(
        self, starts: Any, stops: Any, revised: bool = False, *, retrospective: bool | None = None
    ) -> NDArray[np.float64]:
        """Private answers to sums over [start, stop).

        Parameters
        ----------
        starts, stops : int or int[q]
            Indices into ``values``; 0 <= start <= stop <= n_published.
        revised : bool
            False: the sum of the values as they were published.  True: from everything released so far.  With
            ``revision`` that is the revised stream; else a block that the range cuts is answered from its own noisy
            sum, spread evenly, which avoids the last value of a block, with the noise of the whole block.
        retrospective : bool, optional
            The former name of ``revised``.

        Returns
        -------
        float64[q]
            In units of the input.  Post-processing: no further privacy loss.

        Raises
        ------
        ParameterError
            If the indices are no whole numbers in order and in range, naming the first that is not.
        """
        first, last = self._ranges(starts, stops)
        if self.nodes is not None:
            return self.nodes.range_sum(first, last)
        revised = revised if retrospective is None else retrospective
        if revised and self.revision is not None:
            return self.revision.sums_before(last) - self.revision.sums_before(first)
        if revised and self.block > 1:
            return self._spread_before(last) - self._spread_before(first)
        out = np.empty(first.size)
        ranges.sum_ranges(self.values, self._block_prefix(PREFIX_BLOCK), PREFIX_BLOCK, first, last, out)
        return out

    @property
    def revised(self) -> NDArray[np.float64]:
        """The stream in the light of everything released, in units of the input: float64[n_published].

        Post-processing.  Where no block was ever longer than one value these are the values themselves.
        """
        if self.revision is not None:
            return self.revision.values(self.values.size)
        if self.block == 1:
            return self.values
        return np.diff(self._spread_before(np.arange(self.values.size + 1)))

    def _ranges(self, starts: Any, stops: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Checked ranges, as two arrays of one length."""
        first, last = as_indices("starts", starts), as_indices("stops", stops)
        if first.size != last.size:
            if 1 not in (first.size, last.size):
                raise ParameterError(f"stops has {last.size} entries: expected {first.size}, as starts has")
            size = last.size if first.size == 1 else first.size
            first, last = (np.ascontiguousarray(np.broadcast_to(index, size)) for index in (first, last))
        wrong = np.flatnonzero((first < 0) | (last > self.values.size) | (first > last))
        if wrong.size:
            k = int(wrong[0])
            raise ParameterError(
                f"starts[{k}] = {first[k]}, stops[{k}] = {last[k]}: expected 0 <= start <= stop <= {self.values.size}"
            )
        return first, last

    def _block_prefix(self, block: int) -> NDArray[np.float64]:
        prefix = self._prefix.get(block)
        if prefix is None:
            prefix = np.empty(self.values.size // block + 1)
            ranges.prefix_blocks(self.values, block, prefix)
            self._prefix[block] = prefix
        return prefix

    def _spread_before(self, stops: NDArray[np.int64]) -> NDArray[np.float64]:
        """Sum before ``stops`` of the stream in which each closed block is spread evenly."""
        prefix = self._block_prefix(self.block)
        closed = prefix.size - 1
        j, rest = np.divmod(stops, self.block)
        # The block left open at the end still holds its predictions, which are all equal.
        tail = self.values[closed * self.block] if closed * self.block < self.values.size else 0.0
        means = np.append(np.diff(prefix) / self.block, tail)
        sums: NDArray[np.float64] = prefix[j] + rest * means[np.minimum(j, closed)]
        return sums


def preview(values: NDArray[np.float64]) -> str:
    """The first values and the last one, for a repr."""
    shown = [f"{value:.6g}" for value in values[:4].tolist()]
    return ", ".join(shown if values.size <= 4 else [*shown, "...", f"{values[-1]:.6g}"])


def as_indices(name: str, values: Any) -> NDArray[np.int64]:
    """One row of whole numbers: int64[q], contiguous; ParameterError for anything else."""
    found = as_array(values)
    if found is None:
        raise ParameterError(f"{name} is a {type(values).__name__} that is no array: expected whole numbers, one row")
    array = np.atleast_1d(found)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        raise ParameterError(
            f"{name} has shape {array.shape} and dtype {kind_of(array.dtype)}: expected whole numbers, one row"
        )
    return np.ascontiguousarray(array, dtype=np.int64)
