"""Releases of many streams in one object, which holds them one after another."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.data.frames import FrameSource
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats, Indices
from fastdp.releases.intervals import SumNoise
from fastdp.releases.release import PREFIX_BLOCK, Release, ReleasedNodes, as_indices, check_ranges, preview
from fastdp.releases.revised import RevisedStream
from fastdp_kernels.streams import ranges


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedMany:
    """What was released from many streams; ``many[i]`` is stream i's :class:`Release`, sharing memory.

    Attributes
    ----------
    values : float64[all], read-only
        The private streams one after another, in units of the input.
    borders : int64[n + 1]
        Stream i is ``values[borders[i]:borders[i + 1]]``.
    offset : int
        Index, in each input stream, of the first published value (the hold-out's length).
    thresholds : float64[n]
        Theta of each stream: its values were clipped to [0, theta]; where it rose, the highest one.
    guarantee : Guarantee
        What is promised for one value of one stream; the same for all streams together.
    ids : int64[n], or tuple of int and str
        What the streams' noise belongs to.
    block : int
        g: values under one noisy sum, as in :class:`Release`.
    nodes : ReleasedNodes or None
        Trees of all streams one after another, where ranges are answered from the nodes of a hierarchy.
    tree_borders : int64[n + 1]
        The trees of stream i are ``tree_borders[i]`` to ``tree_borders[i + 1]``.
    revisions : tuple of RevisedStream, or None
        Streams seen again from all released sums, where blocks follow them.
    source : FrameSource or None
        The data frame that the streams came in, which :attr:`frame` is like.
    noise : SumNoise or None
        Which noise the sums carry, as in :class:`Release`.
    noise_fingerprint : str or None
        For a ledger: names the noise of all streams under this key and composition, whatever their ids; it refuses
        another release of any of them.  None for a simulation.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> many = fastdp.release_many(np.full((3, 100), 2.0), 1.0, bound=5.0, threshold=4.0, ids=[7, 8, 9], seed=1)
    >>> many.matrix.shape
    (3, 100)
    >>> many.sum([0, 2], [0, 50], [100, 100]).shape  # streams, starts, stops
    (2,)
    """

    values: Floats
    borders: Indices
    offset: int
    thresholds: Floats
    guarantee: Guarantee
    ids: Indices | tuple[int | str, ...]
    block: int = 1
    nodes: ReleasedNodes | None = None
    tree_borders: Indices = field(default_factory=lambda: np.zeros(1, np.int64))
    revisions: tuple[RevisedStream, ...] | None = None
    source: FrameSource | None = None
    noise: SumNoise | None = None
    noise_fingerprint: str | None = None

    def __len__(self) -> int:
        return self.borders.size - 1

    def __repr__(self) -> str:
        return "\n".join(
            [
                f"{type(self).__name__} of {len(self):,} streams, {self.values.size:,} values, "
                f"each after a hold-out of {self.offset:,}",
                f"  values      {preview(self.values)}",
                f"  thresholds  {preview(self.thresholds)}",
                f"  guarantee   {self.guarantee}",
            ]
        )

    def __iter__(self) -> Iterator[Release]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, stream: int | str) -> Release:
        """The release of one stream, by its place or its name, as its own publisher would have made it."""
        i = self._place(stream) if isinstance(stream, str) else self._checked(stream)
        nodes = self.nodes
        if nodes is not None:
            own = nodes.sums[self.tree_borders[i] : self.tree_borders[i + 1]]
            nodes = replace(nodes, sums=own)
        values = self.values[self.borders[i] : self.borders[i + 1]]
        revision = None if self.revisions is None else self.revisions[i]
        theta = float(self.thresholds[i])
        return Release(values, self.offset, theta, self.guarantee, self.block, nodes, revision, noise=self.noise)

    def _checked(self, stream: int) -> int:
        try:
            place = operator.index(stream)
        except TypeError:
            raise _unknown(stream) from None
        return range(len(self))[place]

    def _place(self, name: str) -> int:
        found = self._places.get(name)
        if found is None:
            raise _unknown(name)
        return found

    @cached_property
    def _places(self) -> dict[int | str, int]:
        """The place of each id."""
        return {name: i for i, name in enumerate(self._listed)}

    @property
    def _listed(self) -> list[int | str]:
        return list(self.ids) if isinstance(self.ids, tuple) else self.ids.tolist()

    @property
    def frame(self) -> Any:
        """The private streams in a data frame of the family that came in, with a row for each published value.

        Columns: the id, the time (or the position in the input), the value, and ``revised`` where blocks follow the
        stream.  ParameterError if the streams came in no frame.
        """
        if self.source is None:
            raise ParameterError("frame: expected streams that came in a data frame (use ids, borders and values)")
        columns: dict[str, Floats] = {"values": self.values}
        if self.revisions is not None:
            columns["revised"] = np.concatenate([each.revised for each in self])
        return self.source.long(self._listed, np.diff(self.borders), self.offset, columns)

    @property
    def matrix(self) -> Floats:
        """The values as float64[n, length], read-only; ParameterError if the streams differ in length."""
        lengths = np.diff(self.borders)
        if lengths.size and (lengths != lengths[0]).any():
            raise ParameterError(
                f"matrix: expected streams of one length, they have from {lengths.min()} to {lengths.max()} values"
            )
        return self.values.reshape(len(self), -1 if self.values.size else 0)

    @validation.plain
    def sum(self, streams: Any, starts: Any, stops: Any, revised: bool = False) -> Floats:
        """Private answers to sums over [start, stop) of each query's stream.

        Parameters
        ----------
        streams, starts, stops : int or int[q]
            The stream's place in this object (or its name), and indices into its published values,
            0 <= start <= stop <= their number.
        revised : bool
            As for :meth:`Release.sum`.

        Returns
        -------
        float64[q]
            Bit for bit what ``many[stream].sum(start, stop, revised)`` gives.  Post-processing: no further
            privacy loss.

        Raises
        ------
        ParameterError
            If the indices are no whole numbers in order and in range, naming the first that is not.
        """
        whose, first, last = self.queries(streams, starts, stops)
        if self.nodes is not None:
            before = self.tree_borders[whose] * self.nodes.tree_values
            return self.nodes.sum(before + first, before + last)
        out = np.empty(whose.size)
        if revised:
            for release, own in self._asked(whose):
                out[own] = release.sum(first[own], last[own], revised)
            return out
        places, prefix = self._prefix
        ranges.sum_stream_ranges(self.values, self.borders, prefix, places, PREFIX_BLOCK, whose, first, last, out)
        return out

    def interval(
        self, streams: Any, starts: Any, stops: Any, confidence: float = 0.95, revised: bool = False
    ) -> tuple[Floats, Floats]:
        """Intervals for the true sums of the clipped streams: :meth:`Release.interval` of each query's stream.

        Parameters
        ----------
        streams, starts, stops : int or int[q]
            As for :meth:`sum`.
        confidence, revised
            As for :meth:`Release.interval`.

        Returns
        -------
        low, high : float64[q]
            In units of the input.
        """
        whose, first, last = self.queries(streams, starts, stops)
        low, high = np.empty(whose.size), np.empty(whose.size)
        for release, own in self._asked(whose):
            low[own], high[own] = release.interval(first[own], last[own], confidence, revised)
        return low, high

    def std_error(self, streams: Any, starts: Any, stops: Any, revised: bool = False) -> Floats:
        """Root mean square errors of answers: :meth:`Release.std_error` of each query's stream, float64[q]."""
        whose, first, last = self.queries(streams, starts, stops)
        errors = np.empty(whose.size)
        for release, own in self._asked(whose):
            errors[own] = release.std_error(first[own], last[own], revised)
        return errors

    def _asked(self, whose: Indices) -> Iterator[tuple[Release, NDArray[np.bool_]]]:
        """Each release that queries are of, and which of them."""
        return ((self[stream], whose == stream) for stream in np.unique(whose).tolist())

    def queries(self, streams: Any, starts: Any, stops: Any) -> tuple[Indices, Indices, Indices]:
        """Checked queries of :meth:`sum`, three arrays of one length; ParameterError as there."""
        if isinstance(streams, str):
            streams = self._place(streams)
        elif isinstance(streams, (list, tuple)) and any(isinstance(each, str) for each in streams):
            strange = [isinstance(each, str) and each not in self._places for each in streams]
            if any(strange):
                raise ParameterError(f"streams[{strange.index(True)}] names no stream of this release: expected one")
            streams = [self._places[each] if isinstance(each, str) else each for each in streams]
        columns = [
            as_indices(name, given) for name, given in (("streams", streams), ("starts", starts), ("stops", stops))
        ]
        try:
            whose, first, last = (np.ascontiguousarray(each) for each in np.broadcast_arrays(*columns))
        except ValueError:
            sizes = ", ".join(str(each.size) for each in columns)
            raise ParameterError(f"streams, starts, stops have {sizes} entries: expected as many each") from None
        unknown = np.flatnonzero((whose < 0) | (whose >= len(self)))
        if unknown.size:
            k = int(unknown[0])
            raise ParameterError(
                f"streams[{k}] = {whose[k]}: expected a whole number of at least 0, below {len(self)}"
            )
        check_ranges(first, last, np.diff(self.borders)[whose])
        return whose, first, last

    @cached_property
    def _prefix(self) -> tuple[Indices, Floats]:
        """Where each stream's block prefix sums lie, and the sums; made once."""
        places: Indices = np.zeros(len(self) + 1, np.int64)
        np.cumsum(np.diff(self.borders) // PREFIX_BLOCK + 1, out=places[1:])
        prefix = np.empty(int(places[-1]))
        ranges.prefix_streams(self.values, self.borders, PREFIX_BLOCK, places, prefix)
        return places, prefix


def _unknown(stream: object) -> ParameterError:
    return ParameterError(
        f"stream = {validation.shown(stream)}: expected a whole number, the stream's place in this object, or the "
        "name of a stream"
    )
