"""A stream of events cut into batches, by number or by time."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.kinds import Duration, Floats, Indices
from fastdp.record import Checked, Real, Whole, parameter, record
from fastdp.units import parse_length
from fastdp.validation import DAY, refusal

#: Points that appear, and points that disappear.
Batch = tuple[Floats, Floats]
MAX_PERIODS = 2**24


def _length(name: str, value: object) -> float:
    if not isinstance(value, (str, timedelta)):
        return validation.positive(name, value)
    _, microseconds, months, days = parse_length(name, value)
    if months:
        raise refusal(name, value, "a length of days at most, such as '6h', '1d' or '1w'")
    return float(microseconds + days * DAY)


@record
class Cuts:
    """Batches of ``batch`` events or of a length ``every``, after the share ``initial``.

    Parameters
    ----------
    batch : int, optional
        Events in a batch, in their order.  Which batch an event is in counts as public: the guarantee is for one
        event of a batch, while all others stay in theirs.
    every : str, timedelta or float, optional
        Length of time of a batch: "90s", "15min", "6h", "1d", "1w", where times are microseconds; or a number in the
        unit of the times.  Batches begin at its multiples, counted from 1970 in UTC.  The first and the last
        batch that hold events count as public.
    initial : float
        Share of the events that make up the first batch, 0 to less than 1.
    """

    batch: int | None = parameter(Whole(1, optional=True), default=None)
    every: Duration | float | None = parameter(Checked(_length, optional=True), default=None)
    initial: float = parameter(Real(least=0.0, below=1.0), default=0.0)

    def _check(self) -> None:
        if (self.batch is None) == (self.every is None):
            raise ParameterError("batch, every: expected exactly one of the two")

    def of(self, times: Floats, origin: float | None = None) -> Indices:
        """Borders as event indices: the initial set's end first, the end of all last.

        Periods count from the origin, or first event.
        """
        n, first = times.size, int(self.initial * times.size)
        if n == 0:
            return np.array([0])
        if self.every is None:
            return np.append(np.arange(first, n, self.batch), n)
        # The number of an event's period follows from its own time: borders in floats would shift with the first.
        zero = times[0] if origin is None else validation.real("origin", origin)
        numbers = np.floor_divide(times - zero, cast("float", self.every))
        periods = int(numbers[-1] - numbers[0]) + 1
        if periods > MAX_PERIODS:
            raise ParameterError(
                f"every = {self.every!r}: expected at most {MAX_PERIODS} periods from the first event to the last"
            )
        ends = np.append(np.searchsorted(numbers, numbers[0] + np.arange(periods), side="left"), n)
        return ends[np.searchsorted(ends, first) :]
