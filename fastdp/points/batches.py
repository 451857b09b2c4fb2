"""Cut a stream of events into batches by number or time."""

from __future__ import annotations

from datetime import timedelta
from typing import cast

import numpy as np

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.kinds import Duration, Floats, Indices
from fastdp.record import Checked, Real, parameter, record
from fastdp.units import parse_length
from fastdp.validation import DAY, refusal

#: Points that appear, and points that disappear.
Batch = tuple[Floats, Floats]
MAX_PERIODS = 2**24


def _size(name: str, value: object) -> int | float:
    if isinstance(value, float):
        return validation.positive(name, value)
    if not isinstance(value, (str, timedelta)):
        return validation.integer(name, value, 1)
    _, microseconds, months, days = parse_length(name, value)
    if months:
        raise refusal(name, value, "a length of days at most, such as '6h', '1d' or '1w'")
    return float(microseconds + days * DAY)


@record
class Cuts:
    """Batches of one size, a number of events or a length of time, after a first one with the share ``initial``."""

    batch: int | float | Duration = parameter(Checked(_size))
    initial: float = parameter(Real(least=0.0, below=1.0), default=0.0)

    def of(self, times: Floats, origin: float | None = None) -> Indices:
        """Ends of batches as event indices; periods count from `origin` or the first event."""
        n, first = times.size, int(self.initial * times.size)
        if n == 0:
            return np.array([0])
        if isinstance(self.batch, int):
            return np.append(np.arange(first, n, self.batch), n)
        # The number of an event's period follows from its own time: borders in floats would shift with the first.
        zero = times[0] if origin is None else validation.real("origin", origin)
        numbers = np.floor_divide(times - zero, cast("float", self.batch))
        periods = int(numbers[-1] - numbers[0]) + 1
        if periods > MAX_PERIODS:
            raise ParameterError(
                f"batch = {self.batch!r}: expected at most {MAX_PERIODS} periods from the first event to the last"
            )
        ends = np.append(np.searchsorted(numbers, numbers[0] + np.arange(periods), side="left"), n)
        return ends[np.searchsorted(ends, first) :]
