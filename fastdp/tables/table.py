"""``Table``: the result of ``fastdp.totals``, ``counts`` and ``means``."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastdp import validation
from fastdp.data.frames import in_family
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats, Integers, Json, Values
from fastdp.releases.intervals import checked_confidence
from fastdp.releases.release import as_indices, preview
from fastdp.tables import choices, output
from fastdp.tables.answers import Answer, Answers
from fastdp.tables.output import METADATA, readable
from fastdp.tables.sums import WindowSums
from fastdp.units import zone_of

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

#: Rows that a notebook shows.
SHOWN_ROWS = 8


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Released windows of a table, with error bars.

    Everything here is computed from released and public numbers: no further privacy loss.  Intervals are about the
    sums of the clipped values that count; ``clipped_rows`` and ``cut_persons`` estimate the effect of clipping and of
    the bounds on a person's rows.

    Attributes
    ----------
    sums : WindowSums
        The noisy sums.
    confidence : float
        Of the intervals.
    """

    sums: WindowSums
    confidence: float = 0.95

    def with_confidence(self, confidence: float) -> Table:
        """A copy of the table whose intervals have another confidence, between 0 and 1."""
        return replace(self, confidence=checked_confidence(confidence))

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of the release."""
        return self.sums.guarantee

    @cached_property
    def frame(self) -> Any:
        """A data frame of the library that the table came from, one row for each window and key.

        Columns: ``window``, its start, with the time zone if there is one; the keys; ``estimate``, ``std_error``,
        ``low``, ``high``, from the window's own noisy sum, whose distribution is known exactly; ``revised``,
        ``revised_low``,
        ``revised_high``, from all windows of the key, by a model (docs/tables.md); for means also the noisy ``total``
        and ``count``.  A key column with the name of one of these is called ``NAME_key``.  The metadata of
        :meth:`write` are
        in ``frame.attrs["fastdp"]`` for pandas, in the schema's "fastdp" for pyarrow.
        """
        frame = in_family(readable(self.arrow, self.sums.family), self.sums.family)
        if self.sums.family == "pandas":
            frame.attrs[METADATA] = self.metadata
        return frame

    @cached_property
    def arrow(self) -> pa.Table:
        """:attr:`frame` as a pyarrow table."""
        starts = np.arange(len(self))
        exact, revised = (self._answer(starts, starts + 1, revised=which) for which in (False, True))
        table = output.arrow_table(self.sums, exact, revised)
        return table.replace_schema_metadata({METADATA: json.dumps(self.metadata, allow_nan=False)})

    @property
    def metadata(self) -> Json:
        """Metadata that :meth:`write` adds to the numbers: guarantee, clip, dropped shares, windows, noise."""
        return output.metadata(self.sums, self.confidence)

    @property
    def clipped_rows(self) -> float | None:
        """Estimated share of the rows whose values lie beyond the clip; None for counts, and if it is unknown.

        It is released with a hundredth of epsilon; unknown online, and if the rows are too few.
        """
        return self.sums.clipped_rows

    @property
    def cut_persons(self) -> float | None:
        """Estimated share of persons (in each period) with dropped rows; None without persons, or if unknown."""
        kept = self.sums.kept_persons
        return None if kept is None else 1.0 - kept

    @cached_property
    def _answers(self) -> Answers:
        return Answers(self.sums, checked_confidence(self.confidence))

    def __len__(self) -> int:
        """Number of windows."""
        return self.sums.edges.size - 1

    @property
    def _keys(self) -> int:
        steps: Integers = next(iter(self.sums.columns.values())).steps
        return int(steps.shape[1])

    def sum(self, starts: Values, stops: Values, *, revised: bool = False) -> Floats:
        """Totals or counts over windows [start, stop) of each key; a table of means has :meth:`mean`.

        Parameters
        ----------
        starts, stops : int or int[q]
            Windows by number; 0 <= start < stop <= number of windows.
        revised : bool
            From all windows of the key instead of these alone.

        Returns
        -------
        float64[q, K]
            In units of the input; float64[q] if the table has no keys.

        Raises
        ------
        ParameterError
            If the numbers are not integers in order and in range, or the table has means.
        """
        return self._estimate("sum", starts, stops, revised)

    def mean(self, starts: Values, stops: Values, *, revised: bool = False) -> Floats:
        """Means over windows [start, stop) of each key of a table of means; parameters and errors as :meth:`sum`."""
        return self._estimate("mean", starts, stops, revised)

    def std_error(self, starts: Values, stops: Values, *, revised: bool = False) -> Floats:
        """Standard errors of the answers: exact for sums, by the delta method for means, modelled if revised."""
        return self._shaped(self._ranges(starts, stops, revised, None).std_error)

    def interval(
        self, starts: Values, stops: Values, confidence: float | None = None, *, revised: bool = False
    ) -> tuple[Floats, Floats]:
        """Interval that holds the true answer of :meth:`sum` or :meth:`mean` with the given probability.

        Parameters
        ----------
        starts, stops, revised
            As for :meth:`sum`; intervals about revised answers follow from a model.
        confidence : float, optional
            By default the table's.

        Returns
        -------
        low, high : float64[q, K]
            In units of the input; float64[q] if the table has no keys.  Never too narrow for sums and counts: from
            the
            exact distribution of the noise of m windows.

        Raises
        ------
        ParameterError
            If the windows are not in range or the confidence is not in (0, 1).
        """
        answer = self._ranges(starts, stops, revised, confidence)
        return self._shaped(answer.low), self._shaped(answer.high)

    @validation.plain
    def plot(self, path: str | Path | None = None, ax: Axes | None = None) -> Any:
        """Draw estimates, their intervals and the revised line.

        Parameters
        ----------
        path : str or Path, optional
            Output file; its suffix chooses the format.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on, with all keys pooled.  By default a new figure: one panel for each of up to six keys, the
            keys
            pooled if there are more.

        Returns
        -------
        Axes or array of Axes
            The axes drawn on.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        ParameterError
            If there is nothing to draw, or the suffix is not an image format.
        """
        from fastdp.tables import output

        return output.draw(self.sums, self._answers, path, ax)

    def write(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the frame to a file, with guarantee, clip, windows and noise as metadata.

        Parameters
        ----------
        path : str or Path
            ``.parquet`` (metadata: JSON under "fastdp" in the schema), ``.csv`` (metadata in ``PATH.json``) or
            ``.npz`` (one array for each column; metadata: JSON in the array "fastdp").
        overwrite : bool
            Whether an existing file may be replaced.

        Raises
        ------
        ParameterError
            If the suffix is unknown or the file exists.
        """
        output.write(self.arrow, self.metadata, path, overwrite=overwrite)

    def __repr__(self) -> str:
        return "\n".join([self.title(), *(f"  {name:<10} {text}" for name, text in self.facts())])

    def _repr_html_(self) -> str:
        rows = self.arrow.slice(0, SHOWN_ROWS)
        cells = [[_cell(value) for value in column.to_pylist()] for column in rows.columns]
        head = "".join(f"<th>{escape(name)}</th>" for name in rows.column_names)
        body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in zip(*cells, strict=True))
        more = self.arrow.num_rows - rows.num_rows
        facts = "".join(f"<br>{name}: {escape(text)}" for name, text in self.facts()[1:])
        return (
            f"<div><strong>{escape(self.title())}</strong><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{f'... and {more:,} rows more' if more else ''}{facts}</div>"
        )

    def title(self) -> str:
        """One line of text: kind, windows and keys of the release."""
        sums = self.sums
        keys = f" x {_number(self._keys, 'key')} ({', '.join(sums.keys)})" if sums.keys else ""
        begin, end = (self._moment(int(sums.edges[at])) for at in (0, -1))
        zone = "" if sums.time_zone is None else f" {sums.time_zone}"
        windows = _number(len(self), "window")
        return f"{sums.kind.capitalize()} of {windows} of {sums.every}{keys}, {begin} to {end}{zone}"

    def facts(self) -> list[tuple[str, str]]:
        """Names and texts of the repr's other lines."""
        error, first = "no window was released", ""
        if len(self) and not self._keys:
            error = "no key was released: none is listed, or with delta none has enough rows for epsilon and delta"
        if len(self) and self._keys:
            one = self._answer(np.zeros(1, np.int64), np.ones(1, np.int64), revised=False)
            half = (one.high - one.low)[0, 0] / 2.0
            error = f"std_error {one.std_error[0, 0]:.4g}, {self.confidence:.3g} interval +-{half:.4g}"
            error += " in the first window" if self.sums.kind == "means" else " in every window"
            first = preview(self._answer(*self._first(), revised=False).estimate[:, 0])
        cut = choices.described(self.sums)
        return [("estimate", first), ("error", error), *cut, ("guarantee", str(self.guarantee))]

    def _estimate(self, name: str, starts: Values, stops: Values, revised: bool) -> Floats:
        own = "mean" if self.sums.kind == "means" else "sum"
        if name != own:
            raise ParameterError(f"{name} of a table of {self.sums.kind}: expected {own}(starts, stops)")
        return self._shaped(self._ranges(starts, stops, revised, None).estimate)

    def _first(self) -> tuple[Integers, Integers]:
        starts = np.unique(np.minimum([0, 1, 2, 3, len(self) - 1], len(self) - 1))
        return starts, starts + 1

    def _moment(self, microseconds: int) -> str:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
        local = moment if self.sums.time_zone is None else moment.astimezone(zone_of(self.sums.time_zone))
        return f"{local:%Y-%m-%d %H:%M}"

    def _answer(self, starts: Integers, stops: Integers, *, revised: bool) -> Answer:
        answers = self._answers
        return answers.revised(starts, stops) if revised and len(self) else answers.exact(starts, stops)

    @validation.plain
    def _ranges(self, starts: Values, stops: Values, revised: bool, confidence: float | None) -> Answer:
        first, last = np.broadcast_arrays(*_same_size(as_indices("starts", starts), as_indices("stops", stops)))
        wrong = np.flatnonzero((first < 0) | (last > len(self)) | (first >= last))
        if wrong.size:
            k = int(wrong[0])
            raise ParameterError(
                f"starts[{k}] = {first[k]}, stops[{k}] = {last[k]}: expected 0 <= start < stop <= {len(self)}, "
                "the number of windows"
            )
        answers = self._answers if confidence is None else Answers(self.sums, checked_confidence(confidence))
        return answers.revised(first, last) if revised else answers.exact(first, last)

    def _shaped(self, array: Floats) -> Floats:
        return array if self.sums.keys else array[:, 0]


def _same_size(first: Integers, last: Integers) -> tuple[Integers, Integers]:
    if first.size != last.size and 1 not in (first.size, last.size):
        raise ParameterError(f"stops has {last.size} entries: expected {first.size}, as starts has")
    return first, last


def _number(count: int, of: str) -> str:
    return f"{count:,} {of}{'' if count == 1 else 's'}"


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}"
    return escape(f"{value:.5g}" if isinstance(value, float) else str(value))
