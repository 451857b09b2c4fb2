"""Adaptive: a publisher that finds its time resolution by itself (``docs/adaptive.md``)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.data.column import Nonfinite, as_floats, as_whole
from fastdp.errors import AccuracyWarning, ParameterError, StateError, warn
from fastdp.guarantee import Guarantee, remainder, sequential, square_remainder
from fastdp.noise.draws import NoiseName
from fastdp.noise.key import Key
from fastdp.perturbers.block_noise import Blocks, Closing, Focus
from fastdp.releases.release import Release
from fastdp.state.publisher import LOG
from fastdp.streams.guarantees import approximated, in_units
from fastdp.streams.pace import paced
from fastdp.streams.parameters import StreamParameters, altered, composed
from fastdp.streams.publisher import StreamPublisher
from fastdp.streams.stages import Schedule
from fastdp.thresholds import Chooser, Fixed, ScaleFree, Threshold, ThresholdTask
from fastdp.thresholds.base import held_out

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

    Error: published values answer a range at once; ``release(...).sum(..., revised=True)`` and
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


# A finished array with nothing withheld: the threshold takes a share of epsilon from all values.

#: The threshold costs at most this share of epsilon, or of rho.
MAX_SHARE = 0.1
#: So many noise scales separate the candidates of a threshold that is well chosen (``resolved`` of its chooser):
#: with more, the share costs more than a better theta saves (``python -m benchmarks accuracy short --shares``).
WELL_CHOSEN = 2.0
#: Below the first the user is warned; below the second theta falls anywhere, and a choice is worth nothing.
POORLY_CHOSEN = 1.0
NOT_CHOSEN = 0.1
#: A theta below this part of the bound clips nearly everything: the stream is zero, or too few of its values are not.
NEXT_TO_NOTHING = 2.0**-26


class WholeStream:
    """:class:`fastdp.Adaptive` on an array that is there as a whole.

    Parameters
    ----------
    size : int
        n, the number of values: public, because streams of different lengths are not adjacent.
    threshold : Threshold
        Chooses theta from all values; :class:`fastdp.thresholds.Fixed` from none.
    epsilon, bound, max_range, closing, contributions, focus, workload, window, season, delta, resolution, nonfinite,
    key
        As for :class:`fastdp.Adaptive`.
    rising : bool
        Nothing: a threshold that was chosen from all values stays as it is.

    Attributes
    ----------
    share : float
        Part of epsilon that the threshold takes, a function of public numbers; 0 if theta is public.  With Gaussian
        noise, of the loss x with rho = x^2 / 2.

    Warns
    -----
    AccuracyWarning
        If a tenth of epsilon is too little to choose a threshold well from so few values; if it is far too little,
        theta is the bound, which costs nothing and clips nothing.  It follows from public numbers only.  And if the
        theta that was chosen, which is public then, clips nearly everything: where few values are not 0.

    Notes
    -----
    Privacy: every value enters the choice of theta with ``share`` of epsilon and, in one block, the published sums
    with the rest: sequential composition (``docs/adaptive.md``, "Nothing withheld").  The noise of the choice is
    bound to what the choice sees, that of the blocks to theta and the prefix of their sums.
    """

    holdout = 0
    rule: ClassVar[int] = 1

    def __init__(
        self,
        size: int,
        epsilon: float,
        bound: float,
        max_range: int,
        closing: Closing = "spread",
        *,
        threshold: Threshold,
        contributions: int = 1,
        focus: Focus | None = None,
        workload: Workload = "ranges",
        window: int | None = None,
        rising: bool = True,
        season: float | None = None,
        delta: float = 0.0,
        resolution: float | None = None,
        nonfinite: Nonfinite = "raise",
        key: Key,
    ) -> None:
        self.size = validation.integer("size", size, 1, 2**50)
        self.threshold: Threshold = threshold
        self.closing, self.nonfinite = closing, nonfinite
        focus = focus_of(workload, window, focus)
        noise: NoiseName = "gaussian" if delta else "laplace"
        blocks = Blocks(closing, focus=focus, rising=rising, season=season, noise=noise)
        # Parameters are checked as the publisher's own are, with the whole epsilon and no hold-out.
        # The key of the noise follows from the number, not from its type.
        bound = validation.positive("bound", bound)
        whole = composed(
            *(Fixed(bound), blocks, None, epsilon, bound, 0, max_range),
            *(resolution, nonfinite, None, contributions, None, delta),
        )
        validation.part("threshold", threshold, Threshold, "fastdp.thresholds")
        self.epsilon, self.bound, self.max_range = whole.epsilon, bound, whole.max_range
        self.contributions, self.delta, self._whole = whole.contributions, whole.delta, whole
        self.share = self._share(whole, resolution)
        #: What publishes, but for theta.
        self.composition = _published(whole, resolution, self.share)
        self.resolution = self.composition.resolution
        self._key = key.bind(self)
        if self.delta:
            # A threshold with a delta of its own is refused before there are values.
            _ = self.guarantee

    def identity(self) -> dict[str, Any]:
        """The parameters, what publishes among them, for noise keys."""
        names = ("size", "threshold", "share", "epsilon", "delta", "contributions")
        return {**{name: getattr(self, name) for name in names}, "published": self.composition}

    def _share(self, whole: StreamParameters, resolution: float | None) -> float:
        """Part of epsilon that the rule needs to choose well, at most a tenth; 0 if theta is public."""
        if not self.threshold.uses_holdout:
            return 0.0
        # A tenth of rho costs noise half of what a tenth of epsilon does.
        most = math.sqrt(MAX_SHARE) if whole.gaussian else MAX_SHARE
        if not isinstance(self.threshold, ScaleFree):
            return most
        tenth = _published(whole, resolution, most)
        resolved = self.threshold.chooser(_task(tenth, whole.unit_epsilon * most, self.size)).resolved
        if resolved < POORLY_CHOSEN:
            instead = "the threshold is chosen poorly"
            if resolved < NOT_CHOSEN:
                instead = (
                    f"the threshold is the bound, {self.bound:g}: nothing is clipped, and noise is at its largest"
                )
            warn(
                f"values: {self.size:,} are too few to choose a threshold with a tenth of epsilon = "
                f"{self.epsilon:g}, so {instead}; expected more values, a larger epsilon, or a threshold known "
                "publicly (threshold=50.0)",
                AccuracyWarning,
            )
        # What is resolved grows with the share, in proportion.
        return 0.0 if resolved < NOT_CHOSEN else most * min(1.0, WELL_CHOSEN / resolved)

    @cached_property
    def task(self) -> ThresholdTask:
        """What the threshold is told."""
        return _task(self.composition, self._whole.unit_epsilon * self.share, self.size)

    @property
    def guarantee(self) -> Guarantee:
        """Threshold and perturber see the same values: sequential composition."""
        published = self.composition.guarantee(simulated=self._key.simulated)
        chosen = self.threshold.guarantee(self.task) if self.share else None
        if chosen is not None:
            published = sequential(chosen.of("threshold, from all values"), published)
        if self.delta:
            return approximated(in_units(self._whole, published), self.epsilon, self.delta, self.threshold)
        return in_units(
            self._whole, published, "each value loses its fraction of epsilon in the choice and its block"
        )

    @property
    def noise_fingerprint(self) -> str | None:
        """As :attr:`fastdp.state.Publisher.noise_fingerprint`."""
        return None if self._key.simulated else self._key.fingerprint()

    def release(self, values: Any) -> Release:
        """Choose theta from all values, then publish all.

        Parameters
        ----------
        values : array-like
            ``size`` values.
        """
        column = as_whole(values, 0, 0)
        if column.size != self.size:
            raise StateError(f"values has {column.size} entries: expected {self.size}, as was said before")
        floats = self.finite(as_floats(column), 0)
        return replace(self.publisher((floats,)).release(floats), guarantee=self.guarantee)

    def _chooser(self) -> Chooser:
        """The rule's, without the warnings that speak of a hold-out."""
        rule = self.threshold
        return rule.chooser(self.task) if isinstance(rule, ScaleFree) else rule.start(self.task)

    def finite(self, floats: NDArray[np.float64], before: int) -> NDArray[np.float64]:
        """Values in front of which ``before`` others came, without NaN and infinity; DataError if there are any."""
        return Schedule(self.composition).finite(floats, before, "values")

    def publisher(self, parts: Iterable[NDArray[np.float64]]) -> StreamPublisher:
        """What publishes the values under the theta that they, all and finite, choose; ``guarantee`` is its part."""
        composition = self.composition
        if self.share or not self.threshold.uses_holdout:
            chooser = self._chooser()
            for part in parts:
                chooser.observe(part)
            theta = chooser.choose(held_out(self._key, chooser.pack()))
            LOG.info("%s: threshold chosen: %g, from all %d values", type(self).__name__, theta, self.size)
            if theta < NEXT_TO_NOTHING * self.bound:
                # Theta is public from here on.
                warn(
                    f"threshold: {theta:.3g} was chosen, next to nothing beside the bound, {self.bound:g}; values "
                    "are clipped to it, so answers are about 0: expected, unless all values are 0, a stream with "
                    "fewer values at 0, or a threshold known publicly (threshold=50.0)",
                    AccuracyWarning,
                )
            composition = replace(composition, threshold=Fixed(theta))
        return StreamPublisher._of(Schedule(composition), self._key)


def _published(whole: StreamParameters, resolution: float | None, share: float) -> StreamParameters:
    """The composition with what the threshold's share leaves of epsilon."""
    # For one value, of which several may be protected together.
    unit = whole.unit_epsilon
    if whole.gaussian:
        return altered(whole, budget=square_remainder(unit, unit * share), contributions=1, resolution=resolution)
    return altered(whole, epsilon=remainder(unit, unit * share), contributions=1, resolution=resolution)


def _task(published: StreamParameters, epsilon: float, size: int) -> ThresholdTask:
    """The threshold's task for noise of the published values' own budget."""
    return replace(published.task, epsilon=epsilon, holdout=size, publish_epsilon=published.publish_epsilon)
