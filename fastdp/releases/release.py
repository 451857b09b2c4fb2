"""Finished releases, and answers to range queries."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np

from fastdp import validation
from fastdp.data.calendar import as_instants
from fastdp.data.frames import FrameSource
from fastdp.errors import MissingError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Array, Floats, Indices, Integers, Values
from fastdp.notebook import SHOWN_ROWS, as_html
from fastdp.record import put
from fastdp.releases import pictures
from fastdp.releases.array_answer import ArrayAnswer
from fastdp.releases.intervals import SumNoise
from fastdp.releases.published_answer import PREFIX_BLOCK, PublishedAnswer, ReleasedNodes, prefix_sums
from fastdp.releases.queries import as_indices, check_ranges
from fastdp.releases.revised import RevisedStream
from fastdp.validation import refusal
from fastdp_kernels.streams import ranges

if TYPE_CHECKING:
    from matplotlib.axes import Axes

T = TypeVar("T")
#: Points of a picture, and characters of a line of its caption.
MAX_DRAWN, CAPTION = 1_000, 110

#: Names of streams.
Ids = Indices | tuple[str, ...]
_UNSET: Indices = np.empty(0, np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class Release:
    """A finished release of one stream (``one[i]`` gives values), or of many (``many[i]``).

    Values, sums and intervals agree.  NumPy's functions take ``numpy.asarray(one)``.

    Attributes
    ----------
    values : float64[n_published]
        The private stream, in units of the input, or many one after another.
    offset : int
        Index of the first published value in the input.
    thresholds : float64[streams]
        Theta of each stream: the last one, or the highest if raised.
    guarantee : Guarantee
        Of all streams together.
    block : int
        Number of values of one noisy sum.
    nodes : ReleasedNodes or None
        Sums of an inconsistent hierarchy, which answer ranges.
    revisions : tuple of RevisedStream
        Revised streams of :class:`fastdp.Adaptive`.
    answers : tuple of ArrayAnswer
        Released numbers of :func:`fastdp.release`, and their answer.
    online : bool
        True for values as published one after another; see :attr:`revised`.
    noise : SumNoise or None
        Noise of the sums; None if unknown, as after a renewed threshold.
    ids : int64[streams], or tuple of str, or None
        Names of many streams in their noise keys.
    borders : int64[streams + 1]
        Stream i is ``values[borders[i]:borders[i + 1]]``.
    tree_borders : int64[streams + 1]
        The same of trees, if nodes answer ranges.
    source : FrameSource or None
        Form of the input, which :attr:`frame` has too.
    noise_fingerprint : str or None
        Identity of the noise for a ledger; None for a simulation.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> values = np.full(4000, 20.0)
    >>> released = fastdp.release(values, 1.0, 100, threshold=40.0, seed=1)
    >>> low, high = released.interval([0], [1000])
    >>> bool(low[0] < released.sum([0], [1000])[0] < high[0])
    True
    >>> streams = np.full((3, 100), 2.0)
    >>> many = fastdp.release_many(streams, 1.0, 5.0, threshold=4.0, seed=1)
    >>> many.sum([0, 50], [100, 100], streams=[0, 2]).shape
    (2,)
    """

    values: Floats
    offset: int
    thresholds: Floats
    guarantee: Guarantee
    block: int = 1
    nodes: ReleasedNodes | None = None
    revisions: tuple[RevisedStream, ...] = ()
    noise: SumNoise | None = None
    ids: Ids | None = None
    borders: Indices = field(default_factory=lambda: _UNSET)
    tree_borders: Indices = field(default_factory=lambda: _UNSET)
    source: FrameSource | None = None
    noise_fingerprint: str | None = None
    answers: tuple[ArrayAnswer, ...] = ()
    online: bool = False
    #: Values as published, from which :attr:`revised` was made.
    _base: Floats | None = None

    def __post_init__(self) -> None:
        if self.ids is None:
            put(self, borders=np.array([0, self.values.size]))

    def __len__(self) -> int:
        return self.values.size if self.ids is None else self.borders.size - 1

    def __repr__(self) -> str:
        lines = (f"{name:<10} {text}" for name, text in (("values", preview(self.values)), *self._facts()))
        return "\n  ".join((self._title(), *lines))

    def _repr_html_(self) -> str:
        shown = range(min(len(self), SHOWN_ROWS))
        if self.ids is None:
            columns = ("index", "value")
            rows = [(str(self.offset + i), f"{self.values[i]:.6g}") for i in shown]
        else:
            columns = ("stream", "sum of its values")
            rows = [(str(self.ids[i]), f"{self[i].values.sum():.6g}") for i in shown]
        notes = [f"{name}: {text}" for name, text in self._facts()]
        return as_html(self._title(), columns, rows, len(self) - len(shown), notes)

    def _title(self) -> str:
        after = f" after a hold-out of {self.offset:,}" if self.offset else ""
        if self.ids is not None:
            return f"Release of {len(self):,} streams, {self.values.size:,} values{after and f', each{after}'}"
        return f"Release of {self.values.size:,} values{after}"

    def _facts(self) -> list[tuple[str, str]]:
        many = self.ids is not None
        theta = ("thresholds", preview(self.thresholds)) if many else ("threshold", f"{self.threshold:g}")
        chosen = [] if many or self.answer is None else self.answer.facts
        return [theta, *chosen, ("intervals", self._held), ("guarantee", str(self.guarantee))]

    @property
    def _held(self) -> str:
        if self.answers and self.answers[0].clips:
            return "for sums of values clipped to the threshold, not for true ones"
        if self.answers:
            return "for true sums, by a model of values beyond the threshold and within blocks"
        if self.noise is None:
            return "none: the noise of sums is not stated"
        thetas = [self.thresholds, *(revision.thetas for revision in self.revisions)]
        unclipped = self.noise.kind != "reports" and bool(np.all(np.concatenate(thetas) >= self.noise.bound))
        if unclipped or (not self.noise.bounded and self.noise.kind != "reports"):
            return "for true sums"
        if self.noise.above:
            beyond = "as many values lie beyond the threshold as in the hold-out, more where released sums grew"
            return f"for true sums, by a model: {beyond}"
        return "for sums of values clipped to the threshold, not for true ones"

    # One stream of many.

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self.values if self.ids is None else self.matrix, dtype, copy=copy)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, stream: Any) -> Any:
        """Release of one of many streams, or values of one."""
        if self.ids is None:
            return self.values[stream]
        if isinstance(stream, slice):
            return (*map(self.__getitem__, range(len(self))[stream]),)
        i = self._index(stream)
        trees = slice(self.tree_borders[i], self.tree_borders[i + 1]) if self.nodes is not None else slice(0)
        return type(self)(
            self.values[self.borders[i] : self.borders[i + 1]],
            self.offset,
            self.thresholds[i : i + 1],
            self.guarantee,
            self.block,
            self.nodes and replace(self.nodes, sums=self.nodes.sums[trees]),
            self.revisions[i : i + 1],
            self.noise,
            source=self.source and self.source.only(i),
            noise_fingerprint=self.noise_fingerprint,
            answers=self.answers[i : i + 1],
            online=self.online,
            _base=None if self._base is None else self._base[self.borders[i] : self.borders[i + 1]],
        )

    def _index(self, stream: int | str) -> int:
        try:
            return self._indices[stream] if isinstance(stream, str) else range(len(self))[operator.index(stream)]
        except (KeyError, TypeError):
            raise refusal(
                "stream", stream, "a whole number, the place in this object, or the name of a stream"
            ) from None

    @cached_property
    def _indices(self) -> dict[int | str, int]:
        names: Iterable[int | str] = self.ids.tolist() if isinstance(self.ids, np.ndarray) else self.ids or ()
        return {name: i for i, name in enumerate(names)}

    @property
    def threshold(self) -> float:
        """Theta of the only stream."""
        return float(self._only(self.thresholds.tolist()))

    @property
    def revision(self) -> RevisedStream | None:
        """The revised stream, if blocks adapt to it."""
        return self._only(self.revisions) if self.revisions else None

    @property
    def answer(self) -> ArrayAnswer | None:
        """Released numbers of the only array, with their answer."""
        return self._only(self.answers) if self.answers else None

    def _only(self, entries: Sequence[T]) -> T:
        if len(entries) != 1:
            raise MissingError(f"this release has {len(entries)} streams: expected one of them, such as many[0]")
        return entries[0]

    # Answers.

    @validation.plain
    def sum(self, starts: Values, stops: Values, *, streams: Values | str | None = None) -> Floats:
        """Private sums over [start, stop), in units of the input: float64[q].

        Parameters
        ----------
        starts, stops : int or int[q], or one or more of datetime, date and ISO text
            Indices of published values, 0 <= start <= stop <= their number; of an input with times also times, start
            <= time < stop.
        streams : int, str, int[q] or str[q], optional
            Of many streams: that of each query, by index or name.

        Raises
        ------
        ParameterError
            For the first index or time out of order or range.
        """
        return self._sums(*self._queries(starts, stops, streams))

    def _sums(self, whose: Indices, first: Indices, last: Indices) -> Floats:
        if self.ids is None:
            return self._reading.sums_over(first, last)
        if self.nodes is not None:
            before = self.tree_borders[whose] * self.nodes.tree_values
            return self.nodes.sum(before + first, before + last)
        if not self.online and (self.revisions or self.answers or self.block > 1):
            return self._each(whose, first, last, Release._sums)[0]
        at, prefix = self._prefix
        out = np.empty(first.size)
        ranges.sum_ranges(self.values, self.borders, prefix, at, PREFIX_BLOCK, whose, first, last, out)
        return out

    @cached_property
    def _prefix(self) -> tuple[Indices, Floats]:
        return prefix_sums(self.values, self.borders, PREFIX_BLOCK)

    @cached_property
    def _reading(self) -> ArrayAnswer | PublishedAnswer:
        if self.answer is not None:
            return self.answer
        base = self.values if self._base is None else self._base
        return PublishedAnswer(base, self.threshold, self.block, self.nodes, self.revision, self.noise, self.online)

    @validation.plain
    def interval(
        self, starts: Values, stops: Values, confidence: float = 0.95, *, streams: Values | str | None = None
    ) -> tuple[Floats, Floats]:
        """Ends (low, high) about the true or the clipped sum over each [start, stop).

        Parameters
        ----------
        starts, stops, streams
            As for :meth:`sum`, whose answer lies between the ends.
        confidence : float
            Above 0, at most 1 - 10^-9.

        Notes
        -----
        Of a finished array it is for true sums, by a model: a burst beyond the threshold may lie within the range or
        not.  Of a publisher's release it is exact on full blocks for values clipped to their block's theta
        (consistent hierarchies: a bound), else by a model (``docs/streams_proofs.md``); high allows for values beyond
        a theta that :class:`fastdp.thresholds.ScaleFree` or ``NoisyMax`` chose, not beyond any other. StateError for
        unknown noise, of a renewed threshold or a foreign perturber.
        """
        return self._interval(*self._queries(starts, stops, streams), confidence)

    def _interval(self, whose: Indices, first: Indices, last: Indices, confidence: float) -> tuple[Floats, Floats]:
        if self.ids is not None:
            low, high = self._each(whose, first, last, lambda one, *asked: one._interval(*asked, confidence), 2)
            return low, high
        return self._reading.interval(first, last, confidence)

    @validation.plain
    def std_error(self, starts: Values, stops: Values, *, streams: Values | str | None = None) -> Floats:
        """Root mean square error of :meth:`sum` without clipping: float64[q]."""
        return self._std_error(*self._queries(starts, stops, streams))

    def _std_error(self, whose: Indices, first: Indices, last: Indices) -> Floats:
        if self.ids is not None:
            return self._each(whose, first, last, Release._std_error)[0]
        return self._reading.std_error(first, last)

    def _each(
        self, whose: Indices, first: Indices, last: Indices, answer: Callable[..., Any], count: int = 1
    ) -> list[Floats]:
        out = np.empty((count, whose.size))
        for stream in np.unique(whose).tolist():
            which = whose == stream
            asked = np.zeros(int(which.sum()), np.int64), first[which], last[which]
            out[:, which] = answer(self[stream], *asked)
        return list(out)

    def _queries(
        self, starts: Values, stops: Values, streams: Values | str | None
    ) -> tuple[Indices, Indices, Indices]:
        """Checked queries: stream, start and stop of each."""
        indices: dict[str, object] = {"starts": starts, "stops": stops}
        if self.ids is not None:
            indices = {"streams": self._numbered(streams), **indices}
        elif streams is not None:
            raise refusal("streams", streams, "None for the release of one stream")
        source = self.source
        moments = {
            name: as_instants(name, indices[name], lambda: None if source is None else source.clock)
            for name in ("starts", "stops")
        }
        columns = [
            as_indices(name, entries) if (found := moments.get(name)) is None else found
            for name, entries in indices.items()
        ]
        try:
            *named, first, last = (np.ascontiguousarray(column) for column in np.broadcast_arrays(*columns))
        except ValueError:
            sizes = ", ".join(str(column.size) for column in columns)
            raise ParameterError(f"{', '.join(indices)} have {sizes} entries: expected as many each") from None
        whose: Indices = named[0] if named else np.zeros(first.size, np.int64)
        streams_of = self.borders.size - 1
        unknown = np.flatnonzero((whose < 0) | (whose >= streams_of))
        if unknown.size:
            k = int(unknown[0])
            raise ParameterError(
                f"streams[{k}] = {whose[k]}: expected a whole number of at least 0, below {streams_of}"
            )
        first, last = (
            column if moments[name] is None or source is None else self._published_before(name, column, whose, source)
            for name, column in (("starts", first), ("stops", last))
        )
        check_ranges(first, last, np.diff(self.borders)[whose])
        return whose, first, last

    def _published_before(self, name: str, moments: Integers, whose: Indices, source: FrameSource) -> Integers:
        found, lengths = np.empty_like(moments), np.diff(self.borders) + self.offset
        for stream in np.unique(whose).tolist():
            which = whose == stream
            found[which] = source.numbers_before(moments[which], stream, int(lengths[stream])) - self.offset
        if (found < 0).any():
            raise ParameterError(
                f"{name}: expected times after the hold-out of {self.offset} values, where published values begin"
            )
        return found

    def _numbered(self, streams: Values | str | None) -> object:
        if streams is None:
            raise ParameterError("streams = None: expected each query's stream, by index or name")
        if isinstance(streams, str):
            return self._index(streams)
        if isinstance(streams, (list, tuple)) and any(isinstance(stream, str) for stream in streams):
            strange = [isinstance(stream, str) and stream not in self._indices for stream in streams]
            if any(strange):
                raise ParameterError(f"streams[{strange.index(True)}] names no stream of this release: expected one")
            return [self._indices[stream] if isinstance(stream, str) else stream for stream in streams]
        return streams

    @validation.plain
    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Axes:
        """Draw mean values over time, at most 1,000 points, with 95 % intervals (of the revised line, if any).

        Parameters
        ----------
        path : str or Path, optional
            Output file; its suffix chooses the format.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on, which are returned.

        Raises
        ------
        ParameterError
            Without values, or for another suffix.
        StateError
            As for :meth:`interval`.
        ImportError
            Without matplotlib.
        """
        if not self.values.size:
            raise ParameterError("this release has no values: expected at least one to draw")
        self._only(self.thresholds.tolist())
        edges = np.linspace(0, self.values.size, min(self.values.size, MAX_DRAWN) + 1).astype(np.int64)
        drawn, lengths = (np.zeros(edges.size - 1, np.int64), edges[:-1], edges[1:]), np.diff(edges)
        middles = self.offset + (edges[:-1] + edges[1:]) / 2.0
        both, label = (
            self.online and (bool(self.revisions) or self.block > 1),
            "published" if self.online else "released",
        )
        drawn_too = self.revised if both else self
        low, high = (border / lengths for border in drawn_too._interval(*drawn, 0.95))
        estimate, line = self._sums(*drawn) / lengths, drawn_too._sums(*drawn) / lengths if both else None
        axes = pictures.new_axes() if ax is None else ax
        pictures.band(axes, middles, estimate, low, high, line, label=label)
        about = f"band: 95 % interval of the {'revised' if both else label} line; threshold: {self.threshold:g}"
        chosen = [] if self.answer is None else [f"{name}: {text}" for name, text in self.answer.facts]
        caption = "position in the input", about, *chosen, fill(str(self.guarantee), CAPTION)
        axes.set_xlabel("\n".join(caption), fontsize=8)
        axes.set_ylabel("value" if lengths.max() == 1 else f"mean of about {round(float(lengths.mean())):,} values")
        axes.legend(frameon=False, loc="best")
        axes.margins(x=0.0)
        if path is not None:
            pictures.save(axes.figure, path)
        return axes

    def write(self, path: str | Path, *, columns: Sequence[str] = ("values",), overwrite: bool = False) -> None:
        """Write one stream's release to a file, with offset, threshold and guarantee.

        Parameters
        ----------
        path : str or Path
            ``.parquet`` (facts under "fastdp" in the schema), or ``.csv``, ``.csv.gz``, ``.npy`` (in ``PATH.json``).
        columns : sequence of str
            "values", "revised" or both.
        overwrite : bool
            True: replace a file.

        Raises
        ------
        ParameterError
            For another suffix, or an existing file.
        """
        from fastdp.releases import writing

        writing.write(self, path, columns=columns, overwrite=overwrite)

    def with_season(self, period: float) -> Self:
        """Release with answers for a stream that repeats, if released sums show it.

        Parameters
        ----------
        period : float
            Public number of values after which the stream repeats, at least 2 (1,440 for days of minutes).  Seven
            times as many (a week) are tried too.

        Raises
        ------
        ParameterError
            Unless it is of :func:`fastdp.release` or :class:`fastdp.Adaptive`.

        Examples
        --------
        >>> import numpy as np, fastdp
        >>> rate = 3 + 3 * np.sin(np.arange(60_000) * 2 * np.pi / 480)
        >>> counts = np.random.default_rng(1).poisson(rate)
        >>> release = fastdp.release(counts, epsilon=0.02, sensitivity=1, seed=1)
        >>> both = release, release.with_season(480)
        >>> errors = [np.abs(each.values - rate).mean() for each in both]
        >>> bool(errors[1] < errors[0])
        True
        """
        if not self.revisions and not self.answers:
            raise ParameterError(
                "with_season changes answers of blocks that follow a stream, and this release is of another method: "
                "expected fastdp.release or fastdp.Adaptive"
            )
        season = validation.period("period", period)
        made = replace(
            self,
            revisions=tuple(replace(one, season=season) for one in self.revisions),
            answers=tuple(replace(one, season=season) for one in self.answers),
        )
        return made if self.online else replace(made, values=made._told)

    @property
    def revised(self) -> Self:
        """The release with the answer given everything released so far."""
        if not self.online:
            return self
        values = self._told
        values.flags.writeable = False
        return replace(self, values=values, online=False, _base=self.values)

    @property
    def _told(self) -> Floats:
        """Values given all that was released: float64[n]."""
        if self.ids is not None:
            return np.concatenate([np.empty(0), *(one._told for one in self)])
        return self._reading.values

    @property
    def frame(self) -> Any:
        """A data frame of the input's library, one row per value.

        Columns: id (of many streams), the input's public time or position, value, and revised if blocks adapt.
        """
        columns = {"values": self.values, **({"revised": self._told} if self.online and self.revisions else {})}
        if self.source is None:
            raise MissingError("frame: expected streams that came in a data frame (use ids, borders and values)")
        return self.source.long(list(self._indices), np.diff(self.borders), self.offset, columns)

    @property
    def matrix(self) -> Floats:
        """Values as float64[streams, length]; MissingError if lengths differ."""
        lengths = np.diff(self.borders)
        if lengths.size and (lengths != lengths[0]).any():
            raise MissingError(
                f"matrix: expected streams of one length, they have from {lengths.min()} to {lengths.max()} values"
            )
        return self.values.reshape(lengths.size, -1 if self.values.size else 0)


def preview(values: Floats) -> str:
    """First values and the last."""
    shown = [f"{value:.6g}" for value in values[:4].tolist()]
    return ", ".join(shown if values.size <= 4 else [*shown, "...", f"{values[-1]:.6g}"])
