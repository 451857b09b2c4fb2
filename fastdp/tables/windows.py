"""``fastdp.Windows``: windows of rows that arrive one after the other, closed by a public clock."""

from __future__ import annotations

import dataclasses
from datetime import date, datetime, timedelta
from typing import Any, ClassVar

import numpy as np

from fastdp import validation
from fastdp.data.column import Nonfinite
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee
from fastdp.noise.key import Key
from fastdp.state.machine import single_caller
from fastdp.state.publisher import Publisher
from fastdp.tables.calendar import MICROSECOND, parse_length
from fastdp.tables.parameters import names_of
from fastdp.tables.sums import WindowSums
from fastdp.tables.table import Table
from fastdp.tables.windows_machine import Batch, WindowsMachine, WindowsState


def _text(value: Any) -> Any:
    """A public point in time, or a length, as text that a state file holds; anything else as it is."""
    if isinstance(value, (datetime, date)):
        return value.isoformat()
    if isinstance(value, np.datetime64):
        return str(value)
    return f"{value // MICROSECOND}us" if isinstance(value, timedelta) else value


class Windows(Publisher[WindowsState]):
    """Totals, counts or means of windows online: a window is released when the clock passes its end.

    Parameters
    ----------
    every : str or timedelta
        Length of the windows, as for :func:`fastdp.totals`.
    epsilon : float
        Privacy loss for one unit (by default one row) over everything that is ever released.
    start : datetime, date or ISO text
        Where the first window begins; rows before it are late.
    bound : float or (float, float), optional
        What values are clipped to, public: from 0, or from a lower end.
    counts : bool
        True: rows are counted, and there is no bound.
    means : bool
        True: means in place of totals.
    by : str or list of str, optional
        Names of the key columns.
    keys : list or mapping
        The keys that are released: texts, whole numbers or bools.  Rows with other keys are dropped.
    lateness : str or timedelta, optional
        A fixed length ("10min"): the clock stands at the latest time seen, less this.  By default :meth:`advance`
        alone moves it.  The latest time seen is then public knowledge, and whether a row is late depends on it.
    contributions, period, per_window
        As for :func:`fastdp.totals`.
    who : bool
        True: each row comes with its person, and waits until its window closes; then the rows of least keyed hash
        count.  It needs a ``period``; where that has rows in several windows, also ``per_window``, and
        ``contributions`` of at least ``per_window`` times these windows.
    origin, time_zone, resolution, nonfinite, seed, key
        As for :func:`fastdp.totals`.

    Notes
    -----
    Privacy: as of :func:`fastdp.totals`; a late row changes nothing that is released.  Rows cut into other batches
    give the same output, bit for bit, and so does ``fastdp.totals`` with the same key and parameters on a table of
    rows that are not late.  The shares of rows beyond the clip and of persons with dropped rows are not released;
    their two hundredths of epsilon are left unspent.  State files, copies, replays: ``docs/state.md``.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> windows = fastdp.Windows("1h", epsilon=1.0, bound=10.0, start="2024-05-01", seed=1)
    >>> times = np.arange("2024-05-01T00:00", "2024-05-01T03:00", 60, "datetime64[s]")
    >>> windows.add(times, np.full(times.size, 2.0)).sums.edges.size
    1
    >>> windows.advance("2024-05-01T02:30").sums.edges.size
    3
    """

    _MACHINE: ClassVar[Any] = WindowsMachine
    _machine: WindowsMachine
    #: The library that the last rows came from.
    _family = "pyarrow"

    @validation.plain
    def __init__(
        self,
        every: Any,
        epsilon: float,
        start: Any,
        bound: Any = None,
        *,
        counts: bool = False,
        means: bool = False,
        by: Any = None,
        keys: Any = None,
        lateness: Any = None,
        contributions: int = 1,
        period: Any = None,
        per_window: int | None = None,
        who: bool = False,
        origin: Any = None,
        time_zone: str | None = None,
        resolution: float | None = None,
        nonfinite: Nonfinite = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        counting, averaging = validation.flag("counts", counts), validation.flag("means", means)
        if counting and (averaging or bound is not None):
            raise ParameterError("counts = True: expected neither means=True nor a bound, because rows are counted")
        if (keys is None and by is not None) or isinstance(keys, str):
            raise ParameterError("keys: expected the list of keys, because windows close before all rows are there")
        if lateness is not None and not parse_length("lateness", _text(lateness))[1]:
            raise ParameterError(f"lateness = {validation.shown(lateness)}: expected a fixed length such as '10min'")
        if start is None:
            raise ParameterError("start = None: expected where the first window begins, such as '2024-05-01'")
        machine = WindowsMachine(
            kind="counts" if counting else "means" if averaging else "totals",
            every=_text(every),
            epsilon=epsilon,
            begin=_text(start),
            bound=list(bound) if isinstance(bound, tuple) else bound,
            resolution=resolution,
            by=by,
            keys=keys,
            origin=_text(origin),
            time_zone=time_zone,
            contributions=contributions,
            period=_text(period),
            per_window=per_window,
            who=validation.flag("who", who),
            lateness=_text(lateness),
            nonfinite=nonfinite,
        )
        plan = machine.plan
        # As a state file holds them.
        listed = [list(row) if len(plan.by) > 1 else row[0] for row in plan.keys] if plan.by else None
        named = list(names_of("by", by)) if plan.by else None
        machine = dataclasses.replace(machine, by=named, keys=listed)
        self._begin(machine, Key.choose(seed, key).bind(machine.plan))

    @property
    def guarantee(self) -> Guarantee:
        """Of everything that is ever released."""
        return self._machine.guarantee(self._key)

    @property
    def n_seen(self) -> int:
        """Calls so far that added rows or moved the clock: after a restart, where the input goes on."""
        return self._state.n_seen

    @property
    def late(self) -> int:
        """Rows so far that came after their window was closed: for the operator, never to be published."""
        return self._state.late

    @single_caller
    def add(self, times: Any, values: Any = None, keys: Any = None, persons: Any = None) -> Table:
        """Add rows; gives the windows that they close (with ``lateness``), with no rows if there are none.

        Parameters
        ----------
        times : array-like of datetimes or dates, [n]
            In any order.
        values : array-like of numbers, [n], optional
            What is summed; None for counts.
        keys : array-like, [n], or mapping of column names to them, optional
            With ``by``.
        persons : array-like, [n], optional
            With ``who=True``.

        Raises
        ------
        DataError
            For rows that are not accepted; nothing is consumed then.
        """
        home = type(times).__module__.partition(".")[0]
        self._family = home if home in ("pandas", "polars") else "pyarrow"
        return self._table(self._machine.read(times, values, keys, persons, None))

    @single_caller
    def advance(self, to: Any) -> Table:
        """Move the public clock to a datetime, date or ISO text, and release the windows that end up to there."""
        return self._table(self._machine.read(None, None, None, None, to))

    def _table(self, batch: Batch) -> Table:
        sums: WindowSums = self._call(batch)
        return Table(dataclasses.replace(sums, family=self._family))
