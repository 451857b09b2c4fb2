"""Adaptive: a publisher that finds its time resolution by itself (``docs/adaptive.md``)."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal, get_args

from fastdp import validation
from fastdp.data.column import Nonfinite
from fastdp.errors import ParameterError
from fastdp.noise.key import Key
from fastdp.perturbers.block_noise import Blocks, Closing, Focus
from fastdp.streams.pace import paced
from fastdp.streams.publisher import StreamPublisher
from fastdp.thresholds import ScaleFree, Threshold

Workload = Literal["ranges", "prefixes", "windows"]


class Adaptive(StreamPublisher):
    """Publishes an endless stream under pure epsilon-DP, online, in blocks whose length follows the stream.

    Parameters
    ----------
    epsilon : float
        Privacy loss for one value of the stream, or for one event.
    bound : float
        Public upper bound of a value, in units of the input, which may be any.  None with a sensitivity.
    holdout : int, optional
        m: the first values; published values begin after them.  All of them choose the threshold if m < 16, else 7/8
        to 15/16 of them; the last ones are released as noisy sums of blocks, so that publishing begins with a mean.
        By default 65,536, and fewer where length or rate are known; 0 with a fixed threshold.
    max_range : int, optional
        r: the longest query; by default 2^20 values, or those that the stream will have, whichever is less.
    closing : "spread", "spike" or "none"
        How published values make up for what a block's released sum shows too late, see
        :class:`fastdp.perturbers.Blocks`.
    threshold : Threshold or float, optional
        By default ``fastdp.thresholds.ScaleFree(lengths="all")``; a number is a publicly known threshold.
    sensitivity : float, optional
        In place of a bound: each value is a bucket of events, say of people a minute, and an event that is added or
        removed moves one bucket by at most so much.  Buckets may have any size and sign: nothing is clipped or held
        out, every value is published, and blocks may be as short as one bucket, which is then published with its own
        noise at once.  ``resolution`` is then a power of two.
    contributions : int
        w: epsilon is for any w consecutive values together (w-event privacy), or for any w events.
    focus : int or (int, int), optional
        Length of the ranges that matter, or the shortest and the longest of them, in values: public.  Lengths
        of blocks are chosen for these alone, and for revised answers first; other ranges have larger errors.  By
        default all up to r count.
    workload : "ranges", "prefixes" or "windows"
        In place of a focus: "prefixes" are sums from the first value on (a focus on r), "windows" those of the last
        ``window`` values.
    window : int, optional
        Values of a window, with ``workload="windows"``.
    rising : bool
        Whether theta rises, as released sums say, where the stream outgrows its hold-out.  It costs no budget, and
        only a threshold that was chosen from a hold-out of at least 16 values rises.
    season : float, optional
        Public: after how many values the stream repeats, such as 1,440 for counts a minute that have a day.  Where
        released sums show it, published values follow waves of this period and of seven (a week), and revised ones
        as :meth:`fastdp.Release.with_season` says.  It costs no budget, and a wrong period next to no
        accuracy.
    delta : float
        Above 0: block sums get Gaussian noise, and the release is (epsilon, delta)-DP (``docs/gaussian.md``).
    expected_length, rate, every, resolution, nonfinite, seed, key
        As for :class:`fastdp.StreamPublisher`.

    Warns
    -----
    AccuracyWarning
        In ``release``: theta is far below the values, as far as released sums say.

    Notes
    -----
    Privacy: pure epsilon, or (epsilon, delta) with ``delta``; event level, exact on this machine.
    The length of a block is a function of sums released
    before it began; whatever it is, a value enters one sum.  ``guarantee`` names the unit: one value, one event, or
    several.

    Error: published values answer a range at once; ``release(...).range_sum(..., revised=True)`` and
    ``.revised`` use everything released by then, and are several times better for ranges up to 10^5 values.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> publisher = fastdp.Adaptive(epsilon=0.5, bound=100, holdout=1000, max_range=4096, seed=1)
    >>> publisher.publish(np.full(1500, 20.0)).size
    500

    Counts a minute that repeat by day: predictions know it after some days.

    >>> rate = 3 + 3 * np.sin(np.arange(100 * 1440) * 2 * np.pi / 1440)
    >>> counts = np.random.default_rng(1).poisson(rate)
    >>> plain, daily = (fastdp.Adaptive(0.02, sensitivity=1, season=day, seed=1) for day in (None, 1440))
    >>> errors = [np.abs(each.publish(counts) - rate).mean() for each in (plain, daily)]
    >>> bool(errors[1] < 0.8 * errors[0])
    True
    """

    @validation.plain
    def __init__(
        self,
        epsilon: float,
        bound: float | None = None,
        holdout: int | None = None,
        max_range: int | None = None,
        closing: Closing = "spread",
        *,
        expected_length: int | None = None,
        rate: float | None = None,
        every: str | float | timedelta | None = None,
        threshold: Threshold | float | None = None,
        sensitivity: float | None = None,
        contributions: int = 1,
        focus: Focus | None = None,
        workload: Workload = "ranges",
        window: int | None = None,
        rising: bool = True,
        season: float | None = None,
        delta: float = 0.0,
        resolution: float | None = None,
        nonfinite: Nonfinite = "raise",
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        if threshold is None:
            # What is wrong with a sensitivity is said by its name.
            threshold = (
                ScaleFree(lengths="all") if sensitivity is None else validation.positive("sensitivity", sensitivity)
            )
        blocks = Blocks(
            closing,
            focus=focus_of(workload, window, focus),
            rising=rising,
            season=season,
            noise="gaussian" if delta else "laplace",
        )
        composition = paced(
            *(threshold, blocks, None, epsilon, bound, holdout, max_range, expected_length, rate, every),
            *(resolution, nonfinite, None, contributions, sensitivity, delta),
        )
        self._compose(composition, seed, key)


def focus_of(workload: Workload, window: int | None, focus: Focus | None) -> Focus | None:
    """The focus that a workload stands for; ParameterError if it does not fit the other two."""
    validation.choice("workload", workload, get_args(Workload))
    if (window is None) == (workload == "windows"):
        raise ParameterError(
            f"window = {validation.shown(window)}: expected the number of values of a window with "
            "workload='windows', and None without"
        )
    if workload == "ranges":
        return focus
    if focus is not None:
        raise ParameterError(
            f"focus = {validation.shown(focus)}: expected None with workload={workload!r}, which says what counts"
        )
    return "longest" if window is None else validation.integer("window", window, 1, 2**40)
