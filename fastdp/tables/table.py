"""``Table``, the result of ``fastdp.aggregate`` and others."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdp import validation
from fastdp.data.calendar import as_instants
from fastdp.data.source import FAMILIES
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Array, Floats, Integers, Json, Values
from fastdp.notebook import SHOWN_ROWS, as_html
from fastdp.releases.intervals import checked_confidence
from fastdp.releases.queries import as_indices
from fastdp.tables import output
from fastdp.tables.answers import Answers
from fastdp.tables.output import METADATA, described, readable, shown_rows
from fastdp.tables.released import Released
from fastdp.tables.statistics import Answer, Statistic
from fastdp.units import local_time, shown_time, zone_of
from fastdp.validation import refusal

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Released windows of a table, with error bars, from released and public numbers alone.

    Intervals are about the true answer; an end of which released numbers say too little is NaN, and :attr:`metadata`
    and ``print`` say why.

    Attributes
    ----------
    released : Released
        The noisy sums.
    confidence : float
        Of the intervals.
    depth : int or None
        Number of key columns (:meth:`level`); None: all.
    """

    released: Released
    confidence: float = 0.95
    depth: int | None = None

    def with_confidence(self, confidence: float) -> Table:
        """A copy with another confidence, in (0, 1)."""
        return replace(self, confidence=checked_confidence(confidence))

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the release."""
        return self.released.guarantee

    @cached_property
    def frame(self) -> Any:
        """A data frame of the table's library, one row for each window and key.

        Columns are ``window`` (its start) and the keys.  One statistic adds ``estimate``, ``std_error``, ``low``,
        ``high``, from the window's own sum, and ``revised``, ``revised_low``, ``revised_high``, from a model of all
        windows of the key; several add NAME, NAME_low, NAME_revised and so on, such as "kwh_sum".  A key column of
        such a name is ``NAME_key``.  Metadata are in ``frame.attrs["fastdp"]`` (pandas) or the schema's
        "fastdp" (pyarrow).
        """
        family = self.released.family
        frame = FAMILIES[family](readable(self._arrow(), family))
        if family == "pandas":
            frame.attrs[METADATA] = self.metadata
        return frame

    @cached_property
    def arrow(self) -> pa.Table:
        """:attr:`frame` as a pyarrow table."""
        return self._arrow()

    def _arrow(self) -> pa.Table:
        # A table of which only the frame is asked for holds its numbers once.
        table = output.arrow_table(self.released, self._answers, self._depth)
        return table.replace_schema_metadata({METADATA: json.dumps(self.metadata, allow_nan=False)})

    @property
    def metadata(self) -> Json:
        """Guarantee, clip, dropped shares, windows, noise."""
        return output.metadata(self.released, self._answers, self._depth)

    @property
    def names(self) -> list[str]:
        """Names of the statistics: "kwh_sum", or "count"."""
        return [each.name for each in self.released.statistics]

    # A table is no sequence of statistics, and __getitem__ alone would make it one.
    __iter__ = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        starts = np.arange(len(self))
        return np.array(self.estimate(starts, starts + 1), dtype, copy=copy)

    def __getitem__(self, name: str) -> Table:
        """The table of one statistic; ParameterError for another name."""
        found = tuple(each for each in self.released.statistics if each.name == name)
        if not found:
            raise ParameterError(f"{validation.shown(name)}: expected one of {', '.join(map(repr, self.names))}")
        return replace(self, released=replace(self.released, statistics=found))

    def level(self, depth: int) -> Table:
        """The table of totals of the first ``depth`` key columns; 0: of all keys.

        Numbers add up to the level above.  Distinct entries have no levels, reach that of all keys.
        """
        depth = validation.integer("depth", depth, 0, len(self.released.parents))
        if depth < len(self.released.parents) and not all(each.has_level(depth) for each in self.released.statistics):
            raise ParameterError(
                "level of a table with nunique or reach: expected another statistic, table[name], or 0 of a reach"
            )
        return replace(self, depth=None if depth == len(self.released.parents) else depth)

    @property
    def _depth(self) -> int:
        return len(self.released.parents) if self.depth is None else self.depth

    @property
    def keys(self) -> dict[str, list[object]]:
        """Entries of the released keys, by column."""
        return self.released.nodes[self._depth]

    def whole_numbers(self, *, revised: bool = False) -> Any:
        """A data frame of counts or sums as integers from 0 that add up over keys in each window.

        ``revised``: from all windows.  ParameterError unless the table has one count or sum.
        """
        if not self._one().adds_up:
            raise ParameterError(f"whole_numbers of a table of {self.names[0]}: expected a count or a sum")
        family = self.released.family
        found = output.whole_numbers(self.released, self._answers, self._one(), self._depth, revised=revised)
        return FAMILIES[family](readable(found, family))

    @property
    def clipped_rows(self) -> float | None:
        """Largest estimated share of rows beyond a column's clip; None for counts, online, or much noise."""
        shares = [each.share for each in self.released.tails.values() if each.share is not None]
        return max(shares, default=None)

    @property
    def dropped_rows(self) -> float | None:
        """Estimated share of dropped rows, at most 5 ``rows`` of a person; None without persons, and online."""
        return None if self.released.rows is None else self.released.rows.share

    @cached_property
    def _answers(self) -> Answers:
        return Answers(self.released, checked_confidence(self.confidence))

    def __len__(self) -> int:
        """Number of windows."""
        return self.released.edges.size - 1

    @property
    def _keys(self) -> int:
        return self.released.sizes[self._depth]

    def estimate(self, starts: Values, stops: Values, *, revised: bool = False) -> Floats:
        """The statistic over windows [start, stop) of each key: float64[q, K], or float64[q] without keys.

        Parameters
        ----------
        starts, stops : int or int[q], or one or more of datetime, date and ISO text
            Windows by number, 0 <= start < stop <= ``len(table)``; or by time, where a window begins or ends.
        revised : bool
            True: from all windows of the key.

        Raises
        ------
        ParameterError
            For ends out of order or range, or several statistics (use ``table[name]``).
        """
        return self._shaped(self._ranges(starts, stops, revised, None).estimate)

    def sum(self, starts: Values, stops: Values, *, revised: bool = False) -> Floats:
        """Totals or counts, as :meth:`estimate`."""
        return self._of("sum", starts, stops, revised)

    def mean(self, starts: Values, stops: Values, *, revised: bool = False) -> Floats:
        """Means, as :meth:`estimate`."""
        return self._of("mean", starts, stops, revised)

    def std_error(self, starts: Values, stops: Values, *, revised: bool = False) -> Floats:
        """Standard errors: exact for sums, by the delta method for means, modelled if revised."""
        return self._shaped(self._ranges(starts, stops, revised, None).std_error)

    def interval(
        self, starts: Values, stops: Values, confidence: float | None = None, *, revised: bool = False
    ) -> tuple[Floats, Floats]:
        """Ends (low, high) about the true answer of :meth:`estimate`, with the given probability.

        An end is NaN where released numbers say too little; revised ones follow from a model.  ParameterError also
        unless ``confidence``, by default the table's, is in (0, 1).
        """
        answer = self._ranges(starts, stops, revised, confidence)
        return self._shaped(answer.low), self._shaped(answer.high)

    @validation.plain
    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Any:
        """Draw estimates, intervals and the revised line; partly covered windows are shaded.

        Parameters
        ----------
        path : str or Path, optional
            Output file; its suffix chooses the format.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on, one for each statistic, with keys pooled; all are returned.  By default a new figure with
            a panel for each of several statistics, or each of up to six keys (more are pooled).

        Raises
        ------
        ImportError
            Without matplotlib.
        ParameterError
            Without windows to draw, or for another suffix.
        """
        from fastdp.releases.table_pictures import draw_table

        texts = described(self.released, self._answers, self._depth)
        caption = "\n".join(text if name == "clip" else f"{name}: {text}" for name, text in texts)
        return draw_table(self.released, self._answers, self._depth, caption, path, ax)

    def write(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the frame and its :attr:`metadata` to a file.

        Parameters
        ----------
        path : str or Path
            ``.parquet`` (metadata under "fastdp" in the schema) or ``.csv`` (in ``PATH.json``).
        overwrite : bool
            True: replace a file.

        Raises
        ------
        ParameterError
            For another suffix, or an existing file.
        """
        output.write(self.arrow, self.metadata, path, overwrite=overwrite)

    def __repr__(self) -> str:
        return "\n".join([self.title(), *(f"  {name:<10} {text}" for name, text in self.facts())])

    def _repr_html_(self) -> str:
        rows = self.arrow.slice(0, SHOWN_ROWS)
        cells = zip(*([_cell(value) for value in column.to_pylist()] for column in rows.columns), strict=True)
        notes = [f"{name}: {text}" for name, text in self.facts()]
        return as_html(self.title(), rows.column_names, cells, self.arrow.num_rows - rows.num_rows, notes)

    def title(self) -> str:
        """Statistics, windows and keys in one line."""
        released = self.released
        keys = f" x {_number(self._keys, 'key')} ({', '.join(self.keys)})" if self.keys else ""
        name = (released.statistics[0].title if len(self.names) == 1 else "") or ", ".join(self.names)
        if released.every is None:
            return f"{name} of all rows{keys}"
        begin, end = (_time(local_time(int(released.edges[at]), zone_of(released.time_zone))) for at in (0, -1))
        shown = f"{begin} to {end} {released.time_zone or ''}".rstrip()
        windows = _number(int(np.count_nonzero(np.diff(released.edges))), "window")
        return f"{name} of {windows} of {released.every}{keys}, {shown}"

    def facts(self) -> list[tuple[str, str]]:
        """Names and texts of the other lines of ``print``."""
        return list(self._facts)

    @cached_property
    def _facts(self) -> list[tuple[str, str]]:
        found, one = [], len(self.released.statistics) == 1
        rows = shown_rows(self.released, self._depth)
        for statistic in self.released.statistics:
            name, error = "estimate" if one else statistic.name, "no window was released"
            if len(self) and not self._keys:
                error = "no key was released: none is listed, or with delta none has enough rows"
            elif len(self):
                answer = self._answers.windows(statistic, self._depth)
                half = (answer.high - answer.low)[rows] / 2.0
                error = f"half-width of the {self.confidence} interval {_spread(half, 4)}"
                error = f"std_error {_spread(answer.std_error[rows], 4)}; {error}" if one else error
                found.append((name, _spread(answer.estimate[rows], 6)))
            found.append(("error", error))
        return [*found, *described(self.released, self._answers, self._depth), ("guarantee", str(self.guarantee))]

    def _one(self) -> Statistic:
        if len(self.names) > 1:
            names = ", ".join(self.names)
            raise ParameterError(f"a table of {names}: expected one statistic, table[{self.names[0]!r}]")
        return self.released.statistics[0]

    def _of(self, name: str, starts: Values, stops: Values, revised: bool) -> Floats:
        right = self._one().method
        if right != name:
            raise ParameterError(f"{name} of a table of {self.names[0]}: expected {right}(starts, stops)")
        return self.estimate(starts, stops, revised=revised)

    @validation.plain
    def _ranges(self, starts: Values, stops: Values, revised: bool, confidence: float | None) -> Answer:
        first, last = self._windows("starts", starts), self._windows("stops", stops)
        if first.size != last.size and 1 not in (first.size, last.size):
            raise ParameterError(f"stops has {last.size} entries: expected {first.size}, as starts has")
        first, last = np.broadcast_arrays(first, last)
        wrong = np.flatnonzero((first < 0) | (last > len(self)) | (first >= last))
        if wrong.size:
            k = int(wrong[0])
            raise ParameterError(
                f"starts[{k}] = {first[k]}, stops[{k}] = {last[k]}: expected 0 <= start < stop <= {len(self)}, "
                "the number of windows"
            )
        answers = self._answers if confidence is None else Answers(self.released, checked_confidence(confidence))
        return answers.about(self._one(), first, last, revised=revised, depth=self._depth)

    def _windows(self, name: str, values: Values) -> Integers:
        """Window numbers from numbers or times."""
        edges, every, zone = self.released.edges, self.released.every, zone_of(self.released.time_zone)
        moments = as_instants(name, values, lambda: None if every is None else (edges, zone))
        if moments is None:
            return as_indices(name, values)
        found = np.searchsorted(edges, moments)
        wrong = np.flatnonzero(edges[np.minimum(found, len(self))] != moments)
        if wrong.size:
            near = (int(found[wrong[0]]) + at for at in (-1, 0))
            texts = [shown_time(int(edges[at]), self.released.time_zone) for at in near if 0 <= at <= len(self)]
            wanted = f"times where a window of {every} begins or ends, such as {' or '.join(texts)}"
            raise refusal(name, values, wanted)
        return found

    def _shaped(self, array: Floats) -> Floats:
        return array if self.keys else array[:, 0]


def _number(count: int, of: str) -> str:
    return f"{count:,} {of}{'' if count == 1 else 's'}"


def _spread(values: Floats, digits: int) -> str:
    known = values[~np.isnan(values)]
    if not known.size:
        return "missing"
    least, middle, most = (f"{each:.{digits}g}" for each in (known.min(), np.median(known), known.max()))
    return most if least == most else f"median {middle}, from {least} to {most}"


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S.%f}".removesuffix(".000000").removesuffix(":00")


def _cell(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else str(value)
