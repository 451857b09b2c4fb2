"""ToPS (CCS 2021, Algorithm 1) and Adaptive (``docs/streams.md``) with their defaults."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from fastdp import validation
from fastdp.data.column import Nonfinite
from fastdp.errors import AccuracyWarning, ParameterError, argument, warn
from fastdp.noise.key import Key
from fastdp.perturbers import Blocks, Hierarchy
from fastdp.record import shared
from fastdp.smoothers import Exponential, Mean, Median, MovingAverage, Recent, Smoother
from fastdp.streams.parameters import DEFAULT_RANGE, StreamParameters, as_blocks, composed
from fastdp.streams.publisher import StreamPublisher
from fastdp.thresholds import ScaleFree, Threshold
from fastdp.thresholds.base import DEFAULT_HOLDOUT
from fastdp.thresholds.scale_free import ENOUGH, MIN_COUNT
from fastdp.validation import DAY, FIXED, split_duration

SmootherName = Literal["recent", "mean", "median", "moving", "exponential"]
SMOOTHERS: dict[str, type[Smoother]] = {
    "recent": Recent,
    "mean": Mean,
    "median": Median,
    "moving": MovingAverage,
    "exponential": Exponential,
}


class ToPS(StreamPublisher):
    """Publishes an endless stream under pure epsilon-DP, online.

    Parameters
    ----------
    epsilon : float
        Privacy loss for one value of the stream.
    bound : float
        Public upper bound of a value, in units of the input.  The threshold's constant c suits counts
        (:class:`fastdp.thresholds.NoisyMax`).
    holdout : int, optional
        m: the first values, which choose the threshold and are not published; by default at most 65,536 and a quarter
        of ``expected_length``.
    max_range : int, optional
        r: the longest query; a new tree of noise begins every r published values.  By default at most 2^20 and
        ``expected_length``.
    fan_out : int
        b: fan-out of the tree.
    prune : int, optional
        s: blocks hold b^s values; by default of the least proven error of a steady stream.
    smoother : "recent", "mean", "median", "moving", "exponential" or Smoother
        Predicts the values within a block.
    threshold : Threshold or float, optional
        By default ``NoisyMax(fan_out=fan_out)``; a number is publicly known and withholds no values.
    expected_length : int, optional
        Public estimate of the stream's length, for defaults.
    every : str, float or timedelta, optional
        Public time between two values, such as "30min" or seconds; without a length, a year is planned.  Warns of
        hold-outs of over a day.
    resolution, nonfinite, contributions
        As for :class:`StreamPublisher`, which also takes Gaussian noise and renewed thresholds.
    seed, key
        As for :func:`fastdp.release`.

    Notes
    -----
    Source: ToPS sections 3.3 to 3.6.  Privacy: pure epsilon, event level, exact on this machine.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> publisher = fastdp.ToPS(
    ...     epsilon=0.5, bound=100, holdout=1000, max_range=4096, seed=1
    ... )
    >>> publisher.publish(np.full(1500, 20.0)).size
    500
    """

    @validation.plain
    def __init__(
        self,
        epsilon: float,
        bound: float,
        holdout: int | None = None,
        max_range: int | None = None,
        fan_out: int = 16,
        prune: int | None = None,
        smoother: SmootherName | Smoother = "recent",
        *,
        threshold: Threshold | float | None = None,
        expected_length: int | None = None,
        every: str | float | timedelta | None = None,
        resolution: float | None = None,
        nonfinite: Nonfinite = "raise",
        contributions: int = 1,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        composition: StreamParameters = shared(
            _tops,
            fan_out=fan_out,
            prune=prune,
            smoother=smoother,
            threshold=threshold,
            epsilon=epsilon,
            bound=bound,
            holdout=holdout,
            max_range=max_range,
            expected_length=expected_length,
            every=every,
            resolution=resolution,
            nonfinite=nonfinite,
            contributions=contributions,
            warns=every is not None,
        )
        self._compose(composition, seed, key)


def _tops(*, fan_out: int, prune: int | None, smoother: SmootherName | Smoother, **sizes: Any) -> StreamParameters:
    return paced(perturber=Hierarchy(fan_out=fan_out, prune=prune), smoother=as_smoother(smoother), **sizes)


def as_smoother(smoother: SmootherName | Smoother) -> Smoother:
    """Return `smoother`, or make the one with this name."""
    if isinstance(smoother, str):
        return SMOOTHERS[validation.choice("smoother", smoother, tuple(SMOOTHERS))]()
    return smoother


class Adaptive(StreamPublisher):
    """Publishes an endless stream online, in blocks whose length follows the stream.

    Parameters
    ----------
    epsilon : float
        Privacy loss for one value of the stream, or for one event.
    bound : float
        Public upper bound of a value, in units of the input; it may be generous.  None with a sensitivity.
    holdout : int, optional
        m: the first values, which choose the threshold; from 16 on the last 1/16 to 1/8 are released as block sums.
        By default 65,536, fewer for a known length or rate; 0 with a fixed threshold.
    max_range : int, optional
        r: the longest query; by default at most 2^20 and ``expected_length``.
    perturber : Blocks, optional
        By default :class:`fastdp.perturbers.Blocks`, which has options for ranges, a season and a rising theta.
    threshold : Threshold or float, optional
        By default ``fastdp.thresholds.ScaleFree(lengths="all")``; a number is publicly known.
    sensitivity : float, optional
        In place of a bound, for values of any size and sign that count events, such as people a minute: the most by
        which an event moves one value.  Nothing is clipped or held out; ``resolution`` is a power of two.
    contributions : int
        w: epsilon is for any w consecutive values (w-event privacy), or any w events.
    delta : float
        Above 0: Gaussian noise and an (epsilon, delta)-DP release.
    expected_length, every
        As for :class:`fastdp.ToPS`.
    resolution, nonfinite
        As for :class:`fastdp.StreamPublisher`.
    seed, key
        As for :func:`fastdp.release`.

    Warns
    -----
    AccuracyWarning
        In ``release``, if released sums show that theta is far below the values.

    Notes
    -----
    Privacy: pure epsilon, or (epsilon, delta) with ``delta``; exact on this machine.

    :attr:`fastdp.Release.revised` errs several times less for ranges up to 10^5 values (``docs/streams.md``).

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> publisher = fastdp.Adaptive(
    ...     epsilon=0.5, bound=100, holdout=1000, max_range=4096, seed=1
    ... )
    >>> publisher.publish(np.full(1500, 20.0)).size
    500
    """

    @validation.plain
    def __init__(
        self,
        epsilon: float,
        bound: float | None = None,
        holdout: int | None = None,
        max_range: int | None = None,
        *,
        perturber: Blocks | None = None,
        threshold: Threshold | float | None = None,
        sensitivity: float | None = None,
        contributions: int = 1,
        delta: float = 0.0,
        expected_length: int | None = None,
        every: str | float | timedelta | None = None,
        resolution: float | None = None,
        nonfinite: Nonfinite = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        composition = paced(
            threshold=threshold,
            perturber=as_blocks(perturber, delta),
            smoother=None,
            epsilon=epsilon,
            bound=bound,
            holdout=holdout,
            max_range=max_range,
            expected_length=expected_length,
            every=every,
            resolution=resolution,
            nonfinite=nonfinite,
            contributions=contributions,
            sensitivity=sensitivity,
            delta=delta,
        )
        self._compose(composition, seed, key)


# Default hold-outs, from the public length and rate of a stream.

#: A hold-out takes at most one value in so many.
HOLDOUT_PART = 4
#: A stream with a rate and no length is planned for a year.
PLANNED = 365.0 * 86_400.0
#: A hold-out longer than a day causes a warning; one longer than a week is shortened.
LONG = 86_400.0
WEEK = 7.0 * LONG
#: Seconds of the units; a day has 24 hours.
UNITS = {name: size / 1e6 for name, size in {**FIXED, "d": DAY, "w": 7 * DAY}.items()}


def paced(
    *,
    holdout: int | None,
    max_range: int | None,
    expected_length: int | None,
    every: str | float | timedelta | None,
    **fields: Any,
) -> StreamParameters:
    """Compose a method's arguments; `fields` are the other fields of StreamParameters."""
    seconds = None if every is None else _seconds(every)
    length = None if seconds is None else max(1, int(min(PLANNED / seconds, 2.0**50)))
    if expected_length is not None:
        length = validation.integer("expected_length", expected_length, 1, 2**50)
    longest = max_range if max_range is not None else min(DEFAULT_RANGE, length or DEFAULT_RANGE)

    def make(held: int | None) -> StreamParameters:
        return composed(holdout=held, max_range=longest, **fields)

    made = make(holdout)
    if holdout is None and length is not None and made.threshold.uses_holdout:
        made = make(_holdout(make(1), length, seconds))
    if seconds is not None and made.holdout * seconds > LONG:
        warn(
            f"holdout = {made.holdout:,} values at one value every {_lasting(seconds)} last "
            f"{_lasting(made.holdout * seconds)}: publishing begins {_when(made.holdout * seconds)}; "
            f"expected a shorter hold-out, or a threshold known publicly: {argument(threshold=50.0)} "
            "publishes from the first value on",
            AccuracyWarning,
        )
    return made


def _holdout(usual: StreamParameters, length: int, seconds: float | None) -> int:
    """Fewest values that choose well, up to `length` / 4 and, if possible, a week."""
    most = max(1, min(DEFAULT_HOLDOUT, length // HOLDOUT_PART))
    rule = usual.threshold
    if not isinstance(rule, ScaleFree):
        return most
    well = _fewest(rule, usual, ENOUGH, most)
    if seconds is None or well * seconds <= WEEK:
        return well
    return max(_fewest(rule, usual, MIN_COUNT, well), math.ceil(WEEK / seconds))


def _fewest(rule: ScaleFree, usual: StreamParameters, wanted: float, most: int) -> int:
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
    if isinstance(every, timedelta):
        every = every.total_seconds()
    if isinstance(every, str):
        count, unit = split_duration(every)
        if not count or unit not in UNITS:
            raise ParameterError(
                f"every = {validation.shown(every)}: expected a time such as '30min' (units: {', '.join(UNITS)}) "
                "or a number of seconds"
            )
        return float(count) * UNITS[unit]
    return validation.positive("every", every)


def _lasting(seconds: float) -> str:
    unit = next((name for name in ("d", "h", "min", "s") if seconds >= UNITS[name]), "ms")
    return f"{seconds / UNITS[unit]:,.3g} {unit}" if seconds < 1e9 else f"{seconds / PLANNED:,.3g} years"


def _when(seconds: float) -> str:
    try:
        return f"about {datetime.now(UTC) + timedelta(seconds=seconds):%Y-%m-%d %H:%M} UTC, if it starts now"
    except OverflowError:
        return "after the year 9999"
