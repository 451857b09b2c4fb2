"""How long a stream will be and how fast it comes, where that is public: what a default hold-out is chosen from."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fastdp import validation
from fastdp.errors import AccuracyWarning, ParameterError, warn
from fastdp.perturbers import Blocks, Perturber
from fastdp.smoothers import Smoother
from fastdp.streams.parameters import DEFAULT_HOLDOUT, StreamParameters, composed
from fastdp.thresholds import ScaleFree, Threshold
from fastdp.thresholds.scale_free import ENOUGH, MIN_COUNT
from fastdp.validation import DAY, FIXED, split_duration

DEFAULT_RANGE = 2**20
#: A hold-out takes at most this part of the stream.
HOLDOUT_PART = 4
#: A stream with a rate and no length is planned for a year.
PLANNED = 365.0 * 86_400.0
#: A hold-out that lasts longer than a day is warned of; one that would last longer than a week is made shorter.
LONG = 86_400.0
WEEK = 7.0 * LONG
#: Seconds of the units, of which a day has always 24 hours here.
UNITS = {name: size / 1e6 for name, size in {**FIXED, "d": DAY, "w": 7 * DAY}.items()}


def paced(
    threshold: Threshold | float,
    perturber: Perturber,
    smoother: Smoother | None,
    epsilon: float,
    bound: float | None,
    holdout: int | None,
    max_range: int | None,
    expected_length: int | None,
    rate: float | None,
    every: str | float | timedelta | None,
    *rest: Any,
) -> StreamParameters:
    """The composition of a publisher's arguments; ``rest`` are fields of StreamParameters from ``resolution`` on.

    The longest query is as given, or all that is planned for, at most 2^20 values; the hold-out as given, or the
    default one.  Warns of one that lasts long.
    """
    seconds = seconds_of(rate, every)
    length = None if seconds is None else max(1, int(min(PLANNED / seconds, 2.0**50)))
    if expected_length is not None:
        length = validation.integer("expected_length", expected_length, 1, 2**50)
    longest = max_range if max_range is not None else min(DEFAULT_RANGE, length or DEFAULT_RANGE)

    def make(held: int | None) -> StreamParameters:
        return composed(threshold, perturber, smoother, epsilon, bound, held, longest, *rest)

    made = make(holdout)
    if holdout is None and length is not None and made.threshold.uses_holdout:
        made = make(_holdout(make(1), length, seconds))
    if seconds is not None and made.holdout * seconds > LONG:
        warn(
            f"holdout = {made.holdout:,} values at one value every {_lasting(seconds)} last "
            f"{_lasting(made.holdout * seconds)}: publishing begins {_when(made.holdout * seconds)}; "
            "expected a shorter hold-out, or a threshold known publicly: threshold=50.0, that is Fixed(50.0), "
            "publishes from the first value on",
            AccuracyWarning,
        )
    return made


def seconds_of(rate: object, every: object) -> float | None:
    """Between two values, where that is known; ParameterError for what is not accepted."""
    if rate is None:
        return None if every is None else _seconds(every)
    if every is not None:
        raise ParameterError(
            f"rate = {validation.shown(rate)}: expected either rate (values a second) or every (time between two "
            "values), not both"
        )
    # The slowest one has an interval that is an ordinary float.
    return 1.0 / max(validation.positive("rate", rate), 1e-300)


def _holdout(usual: StreamParameters, length: int, seconds: float | None) -> int:
    """At most a quarter of what is planned for; of ``ScaleFree`` the fewest values that choose well.

    Where those take longer than a week: the fewest that choose without a warning, or a week.
    """
    most = max(1, min(DEFAULT_HOLDOUT, length // HOLDOUT_PART))
    rule = usual.threshold
    if not isinstance(rule, ScaleFree):
        return most
    well = _fewest(rule, usual, ENOUGH, most)
    if seconds is None or well * seconds <= WEEK:
        return well
    return max(_fewest(rule, usual, MIN_COUNT, well), math.ceil(WEEK / seconds))


def _fewest(rule: ScaleFree, usual: StreamParameters, wanted: float, most: int) -> int:
    """Of hold-outs up to ``most``, the shortest whose choice is resolved so well; ``most`` if none is."""
    least = 1
    while least < most:
        middle = (least + most) // 2
        warm_up = usual.perturber.warm_up(middle) if isinstance(usual.perturber, Blocks) else 0
        if rule.chooser(replace(usual.task, holdout=middle - warm_up)).resolved >= wanted:
            most = middle
        else:
            least = middle + 1
    return most


def _seconds(every: object) -> float:
    """Of a timedelta, a number of seconds, or a text such as "30min"."""
    if isinstance(every, timedelta):
        every = every.total_seconds()
    if isinstance(every, str):
        count, unit = split_duration(every)
        if not count or unit not in UNITS:
            raise ParameterError(
                f"every = {validation.shown(every)}: expected a time such as '30min' (units: {', '.join(UNITS)}), "
                "a timedelta, or a number of seconds"
            )
        return float(count) * UNITS[unit]
    return validation.positive("every", every)


def _lasting(seconds: float) -> str:
    """A time in the largest unit that it fills."""
    unit = next((name for name in ("d", "h", "min", "s") if seconds >= UNITS[name]), "ms")
    return f"{seconds / UNITS[unit]:,.3g} {unit}" if seconds < 1e9 else f"{seconds / PLANNED:,.3g} years"


def _when(seconds: float) -> str:
    """The moment that long from now."""
    try:
        return f"about {datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%d %H:%M} UTC, if it starts now"
    except OverflowError:
        return "after the year 9999"
