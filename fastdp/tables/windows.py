"""``fastdp.Windows``: windows of arriving rows, closed by a public clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any, ClassVar

import numpy as np

from fastdp import validation
from fastdp.data.calendar import Time
from fastdp.data.source import FAMILIES
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Bounds, Duration, Instant, Keys
from fastdp.noise.key import Key
from fastdp.state.driver import Publisher
from fastdp.state.machine import single_caller
from fastdp.tables.arguments import PrivateKeys, Value, values_of
from fastdp.tables.arriving import Batch
from fastdp.tables.released import Released
from fastdp.tables.statistics import statistics_of
from fastdp.tables.table import Table
from fastdp.tables.windows_machine import WindowsMachine, WindowsState
from fastdp.units import ONE_ROW, Unit, parse_length
from fastdp.validation import refusal


class Windows(Publisher[WindowsState]):
    """Statistics of windows online; each is released when the clock passes its end.

    Parameters
    ----------
    statistics : dict of str to str or list of str
        As for :func:`fastdp.aggregate`, of columns named in :meth:`add`.
    time : Time
        The windows.  Rows before its ``start`` are late; rows from its ``stop`` on are dropped.
    epsilon : float
        Privacy loss of one unit over all windows.
    by : str or list of str, optional
        Key columns.
    keys : list, mapping, PrivateKeys or None
        Released keys: texts, integers or bools; rows with others are dropped.  :class:`fastdp.PrivateKeys`, or None
        with ``delta``: a key is released once its noisy number of rows so far, or sum of persons' weights, passes a
        noisy threshold, and from then on, as a text (its type could be that of one row).
    unit : Rows or Person
        As for :func:`fastdp.aggregate`.  A :class:`fastdp.Person` needs ``per``; if a period has several windows also
        ``per_window``, and ``rows`` of at least ``per_window`` times these.  Rows wait until their window closes;
        then those of least keyed hash count.  With ``basis="calendar"``, or a curve, windows are released together
        when their period closes: a period a call.
    bounds : dict, number, pair or Value
        Public clips of the columns: a bound is the clip, except for a calendar's windows.
    delta : float
        As for :func:`fastdp.aggregate`, over all windows.
    lateness : str or timedelta, optional
        Fixed length ("10min") by which the clock follows the latest time seen, which is then public.  By default
        :meth:`advance` alone moves it.
    seed, key
        As for :func:`fastdp.release`.

    Notes
    -----
    Privacy: as of :func:`fastdp.aggregate`; a late row changes nothing.  Output does not depend on batches. Files,
    copies, replays: ``docs/state.md``.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> time = fastdp.Time("at", "1h", start="2024-05-01")
    >>> windows = fastdp.Windows(
    ...     {"kwh": "sum"}, time, epsilon=1.0, bounds=10.0, seed=1
    ... )
    >>> times = np.datetime64("2024-05-01T00", "s") + 60 * np.arange(180)
    >>> len(windows.add(times, np.full(times.size, 2.0)))
    0
    >>> len(windows.advance("2024-05-01T02:30"))
    2
    """

    _MACHINE: ClassVar[Any] = WindowsMachine
    _machine: WindowsMachine
    #: The library that the last rows came from.
    _family = "pyarrow"

    @validation.plain
    def __init__(
        self,
        statistics: Mapping[str, str | Sequence[str]],
        time: Time,
        *,
        epsilon: float,
        by: str | Sequence[str] | None = None,
        keys: Keys | PrivateKeys | None = None,
        unit: Unit = ONE_ROW,
        bounds: Mapping[str, Bounds | Value] | Bounds | Value | None = None,
        delta: float = 0.0,
        lateness: Duration | None = None,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        if not isinstance(time, Time):
            raise refusal("time", time, "a fastdp.Time with start=")
        if by is not None and (isinstance(keys, str) or (keys is None and not delta)):
            raise ParameterError(
                "keys: expected the list of keys, or fastdp.PrivateKeys() with delta > 0, because windows close "
                "before all rows are there"
            )
        if time.start is None:
            raise ParameterError("start = None: expected where the first window begins, such as '2024-05-01'")
        asked = statistics_of(statistics)
        time = replace(time, start=_text(time.start), stop=_text(time.stop), origin=_text(time.origin))
        pairs = [[each.column, each.kind] for each in asked]
        machine = WindowsMachine(
            statistics=pairs,
            time=time,
            unit=unit,
            epsilon=epsilon,
            bounds=values_of(asked, bounds),
            by=by,
            keys=keys,
            delta=delta,
            lateness=_fixed(lateness),
        )
        plan = machine.plan
        # Keys that no column could hold are refused now, not by each call.
        _ = machine.table
        # As a state file holds them.
        listed = None
        if plan.by:
            listed = [list(row) if len(plan.by) > 1 else row[0] for row in plan.keys]
        machine = replace(machine, by=list(plan.by) or None, keys=plan.private or listed)
        self._begin(machine, Key.choose(seed, key).bind(machine.plan))

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of all windows together."""
        return self._machine.guarantee(self._key)

    @property
    def n_seen(self) -> int:
        """Rows so far, for a restart: never publish them."""
        return self._state.n_seen

    @property
    def late(self) -> int:
        """Rows of closed windows: never publish them."""
        return self._state.late

    @single_caller
    def add(self, times: Any, values: Any = None, keys: Any = None, persons: Any = None) -> Table:
        """Add rows and return the windows that close (with ``lateness``, or by periods), possibly none.

        Parameters
        ----------
        times : array-like of datetimes or dates, [n]
            In any order.
        values : array-like of numbers, [n], or mapping of column names to them, optional
            Columns of ``statistics``; None for counts.
        keys : array-like, [n], or mapping of column names to them, optional
            With ``by``.
        persons : array-like, [n], optional
            With a :class:`fastdp.Person`.

        Raises
        ------
        DataError
            For rows that are not accepted; none is added.
        """
        home = type(times).__module__.partition(".")[0]
        self._family = home if home in FAMILIES else "pyarrow"
        return self._table(self._machine.read(times, values, keys, persons, None))

    @single_caller
    def advance(self, to: Instant) -> Table:
        """Move the public clock to a datetime, date or ISO text, and release the windows that end by then.

        By periods one a call: ``while len(table := windows.advance(to))`` has each.
        """
        return self._table(self._machine.read(None, None, None, None, to))

    def _table(self, batch: Batch) -> Table:
        found: Released = self._call(batch)
        return Table(found if found.family == self._family else replace(found, family=self._family))


def _text(value: Instant | None) -> Any:
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    return str(value) if isinstance(value, np.datetime64) else value


def _fixed(lateness: Duration | None) -> str | None:
    text, microseconds = (None, 1) if lateness is None else parse_length("lateness", lateness)[:2]
    if not microseconds:
        raise refusal("lateness", lateness, "a fixed length such as '10min'")
    return text
