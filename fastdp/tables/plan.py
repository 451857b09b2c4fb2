"""The public parameters of a release of windows, checked, and what follows from them: budgets, grid, noise, key."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fastdp.data.column import Nonfinite
from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, remainder, square_remainder, zcdp_loss
from fastdp.integer_grid import make_grid
from fastdp.kinds import Integers
from fastdp.noise.draws import NoiseName, l2_square
from fastdp.tables import sums
from fastdp.tables.calendar import Calendar, zone_rules
from fastdp.tables.columns import KeyRow
from fastdp.tables.sums import Kind, Quantity
from fastdp.validation import DAY

KINDS = ("totals", "counts", "means")
#: Windows times keys of one release: 8 bytes each, and as much again for the noise.
MAX_CELLS = 2 * 10**8
#: Means: the share of the sums of deviations.  The best one lies between .5 and .61 for means from 0 to .3 theta.
DEVIATION_SHARE = 0.6
#: The same of rho, where noise is Gaussian.
GAUSSIAN_DEVIATION_SHARE = 0.65
#: Shares of epsilon, or of rho where noise is Gaussian: keys (with delta), how many rows lie above the lowest
#: candidate, the clip (both together, at most), how many rows lie beyond the clip, how many persons had rows dropped.
KEY_SHARE, ROW_SHARE, CLIP_SHARE, BEYOND_SHARE, PERSON_SHARE = 0.1, 0.005, 0.1, 0.01, 0.01
#: The clip of windows shorter than the first is chosen for sums over as many as fill it, and so on.
SPANS = (DAY, 7 * DAY, 365 * DAY)
#: So many noise scales of the clip's choice are its target number of rows, and a step of its slope, if CLIP_SHARE
#: allows it.
RESOLVED, RESOLVED_SLOPE = 16.0, 4.0
#: ln of the number of grid steps in the bound, for the choice.
SPAN = 33.0 * math.log(2.0)
KeyRule = Literal["none", "given", "public", "private"]


@dataclass(frozen=True)
class TablePlan:
    """Everything public about a release of windows.

    Attributes
    ----------
    kind : "totals", "counts" or "means"
        What is released.
    calendar, periods : Calendar, Calendar or None
        The windows, and the periods in which a unit has its rows; None: one period.
    epsilon, delta : float
        The whole budget.
    bound : (float, float) or None
        What values are clipped to at most; None for counts.
    chooses_clip : bool
        Whether the upper end is chosen from the rows.
    resolution : float or None
        As given.
    by : tuple of str
        Key columns.
    key_rule : "none", "given", "public" or "private"
        Where the keys come from.
    keys : tuple of tuples
        The keys that were given.
    contributions, per_window : int
        Rows of one unit in a period, and in a window (None: no bound of its own).
    who : str or None
        The column of persons, whose rows beyond the bounds do not count.
    start, stop : int or None
        Numbers of the first window, and of the one behind the last.
    nonfinite : "raise" or "zero"
        What a value that is NaN or infinite does.
    online : bool
        Whether rows come one after the other and a public clock closes windows.
    cells : int or None
        Windows times keys, once they are known.
    rows : int or None
        How many rows that count lie above the lowest candidate of the clip, once that is released.
    taken : tuple of str
        Which ends of the time were taken from the table: "first", "last".
    noise : "laplace" or "gaussian"
        Of the sums.
    """

    kind: Kind
    calendar: Calendar
    epsilon: float
    bound: tuple[float, float] | None = None
    chooses_clip: bool = False
    resolution: float | None = None
    by: tuple[str, ...] = ()
    key_rule: KeyRule = "none"
    keys: tuple[KeyRow, ...] = ()
    contributions: int = 1
    periods: Calendar | None = None
    per_window: int | None = None
    who: str | None = None
    delta: float = 0.0
    start: int | None = None
    stop: int | None = None
    nonfinite: Nonfinite = "raise"
    online: bool = False
    cells: int | None = None
    rows: int | None = None
    taken: tuple[str, ...] = ()
    noise: NoiseName = "laplace"

    rule: ClassVar[int] = 1

    # Budgets.

    @property
    def gaussian(self) -> bool:
        """Whether the sums' noise is Gaussian."""
        return self.noise == "gaussian"

    @property
    def key_delta(self) -> float:
        """Of the private choice of keys: all of delta, or half of it beside Gaussian noise."""
        return 0.0 if self.key_rule != "private" else self.delta / 2.0 if self.gaussian else self.delta

    @property
    def noise_delta(self) -> float:
        """Of Gaussian noise."""
        return self.delta - self.key_delta if self.gaussian else 0.0

    @cached_property
    def loss(self) -> float:
        """The budget of all parts: epsilon, or the x whose x^2 / 2 is the rho of Gaussian noise."""
        return zcdp_loss(self.epsilon, self.noise_delta) if self.gaussian else self.epsilon

    def _share(self, share: float) -> float:
        """A part of the budget: of epsilon, or of rho."""
        return self.loss * (math.sqrt(share) if self.gaussian else share)

    def _rest(self, whole: float, *parts: float) -> float:
        """What parts leave of a budget."""
        if self.gaussian:
            return square_remainder(whole, *parts)
        for part in parts:
            whole = remainder(whole, part)
        return whole

    @property
    def reports_persons(self) -> bool:
        """Whether it is released how many persons (in each period) had rows dropped."""
        return self.who is not None and not self.online

    @property
    def reports_clip(self) -> bool:
        """Whether it is released how many rows lie beyond the clip."""
        return self.bound is not None and not self.online

    @cached_property
    def person_epsilon(self) -> float:
        """Of the report on persons; online it is left unspent, so that sums are those of a table."""
        return self._share(PERSON_SHARE) if self.who is not None else 0.0

    @cached_property
    def beyond_epsilon(self) -> float:
        """Of the report on rows beyond the clip; online as of persons."""
        return self._share(BEYOND_SHARE) if self.bound is not None else 0.0

    @property
    def beyond_sensitivity(self) -> int:
        """By how much a unit changes the counts of rows beyond and within the clip: a replaced value, both by 1."""
        return max(2, self.contributions)

    @cached_property
    def key_epsilon(self) -> float:
        """Of the counts that decide which keys are released."""
        return self._share(KEY_SHARE) if self.key_rule == "private" else 0.0

    @cached_property
    def clip_epsilons(self) -> tuple[float, float]:
        """Of the count of rows above the lowest candidate, and of the choice of the clip.

        The second one is at most CLIP_SHARE less the first, and follows from that number, once it is released: pure
        losses may be chosen as one goes, as long as their sum never exceeds epsilon.
        """
        if not self.chooses_clip:
            return 0.0, 0.0
        counting, most = self._share(ROW_SHARE), self._share(CLIP_SHARE - ROW_SHARE)
        if self.rows is None:
            return counting, most
        # As ScaleFree has it: the target is at most half of the rows, and slopes fit below the rest.
        target = min(self.rows_above, self.rows / 2.0)
        slope = 0.5 * (self.rows - target) / SPAN
        return counting, min(most, self.contributions * max(RESOLVED / target, RESOLVED_SLOPE / slope))

    @property
    def rows_above(self) -> float:
        """How many rows should lie above the clip in all windows together: where noise and clipping err alike.

        The squared error of the sum of g windows with n rows each is 2 g (s theta / eps)^2 + (g n E[(v - theta)+])^2,
        s the sensitivity in clips, least over theta where n p = sqrt(2 / g) s / eps, if p E[(v - theta)+] / theta is
        about p^2, as :class:`fastdp.thresholds.ScaleFree` takes it.
        """
        deviation = self.clips * (math.sqrt(self.square) / self.contributions if self.gaussian else math.sqrt(2.0))
        return max(1, self.cells or 1) * deviation / (self.loss * (1.0 - CLIP_SHARE)) / math.sqrt(self.together)

    @property
    def together(self) -> float:
        """Windows in the sums that the clip is chosen for: a day's of hours, a week's of days, else a year's."""
        length = self.calendar.edge(1) - self.calendar.edge(0)
        span = next((span for span in SPANS if length < span), length)
        return max(1.0, min(span / length, (self.stop or 0) - (self.start or 0)))

    @property
    def square(self) -> int:
        """Squared L2 norm of what the rows of one unit change: k rows, at most j of them in one sum."""
        return l2_square(self.contributions, self.per_window)

    @property
    def clips(self) -> float:
        """By how many clips a unit moves the sums."""
        return self.contributions * (0.5 if self.kind == "means" else 1.0)

    @cached_property
    def sum_epsilon(self) -> float:
        """What is left for the sums."""
        reports = self.person_epsilon, self.beyond_epsilon
        return self._rest(self.loss, *reports, self.key_epsilon, *self.clip_epsilons)

    def settled(self, first: int, last: int, keys: int) -> TablePlan:
        """The plan once the windows (up to before ``last``) and the number of keys are known."""
        taken = tuple(end for end, given in (("first", self.start), ("last", self.stop)) if given is None)
        self.check_cells(last - first, keys)
        return replace(self, start=first, stop=last, cells=(last - first) * keys, taken=taken)

    def has(self, windows: Integers) -> NDArray[np.bool_]:
        """Which windows are released, so far as their ends are public."""
        first = np.iinfo(np.int64).min if self.start is None else self.start
        last = np.iinfo(np.int64).max if self.stop is None else self.stop
        return (windows >= first) & (windows < last)

    # Sums.

    @property
    def value_epsilon(self) -> float:
        """Of the sums of values."""
        if self.kind != "means":
            return self.sum_epsilon
        return self.sum_epsilon * (math.sqrt(GAUSSIAN_DEVIATION_SHARE) if self.gaussian else DEVIATION_SHARE)

    @cached_property
    def step(self) -> float:
        """The grid's resolution, in units of the input."""
        if self.bound is None:
            return 1.0
        most = max(map(abs, self.bound))
        # Noise of the bound itself fits; that of a smaller clip does too.
        each = self.value_epsilon / self.contributions
        return make_grid(most, self.resolution, each, 1, 1, 2).resolution

    def steps(self, value: float) -> int:
        """A bound in whole steps, towards 0, at least 1 in absolute value unless it is 0.

        10 is a thousand steps of 0.01, although the float 0.01 is a little more than a hundredth.
        """
        size = Fraction(abs(value)) / Fraction(self.step)
        whole = round(size)
        whole = whole if abs(size - whole) <= whole * Fraction(1, 2**52) else math.floor(size)
        return (1 if value >= 0 else -1) * (max(1, whole) if size else 0)

    def quantities(self, clip: float | None = None) -> list[Quantity]:
        """What is summed, with this upper end of the clip, or the bound's."""
        k, drawn = self.contributions, (self.noise, self.square)
        found = []
        if self.bound is not None:
            low = self.steps(self.bound[0])
            high = self.steps(self.bound[1] if clip is None else clip)
            means = self.kind == "means"
            centre = (low + high) // 2 if means else 0
            name = "deviation" if means else "total"
            found.append(Quantity(name, low, high, centre, self.step, self.value_epsilon, k, *drawn))
        if self.kind != "totals":
            means = self.kind == "means"
            rest = self._rest(self.sum_epsilon, self.value_epsilon) if means else self.sum_epsilon
            found.append(Quantity("count", 0, 1, 0, 1.0, rest, k, *drawn))
        return found

    def reported(self, quantities: Sequence[Quantity]) -> list[Quantity]:
        """What is summed besides, to say what the clip cuts: rows beyond it, and all where those are not counted."""
        if not self.reports_clip:
            return []
        first = quantities[0]
        counted = [] if quantities[-1].name == "count" else [replace(first, name="count")]
        return [replace(first, name="beyond"), *counted]

    def clip_of(self, quantities: Sequence[Quantity]) -> tuple[float, float] | None:
        """What values were clipped to, in units of the input."""
        if self.bound is None:
            return None
        return quantities[0].low * self.step, quantities[0].high * self.step

    def guarantee(self, *, simulated: bool) -> Guarantee:
        """Of everything that is released."""
        return sums.of_everything(self, simulated)

    # Noise.

    def identity(self) -> dict[str, Any]:
        """All that the noise follows from besides secret and rows; the same for a table and for its stream."""
        return {
            "kind": self.kind,
            "every": self._spans(self.calendar),
            "period": None if self.periods is None else self._spans(self.periods),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "bound": self.bound,
            "chooses_clip": self.chooses_clip,
            "resolution": self.resolution,
            "by": list(self.by),
            "key_rule": self.key_rule,
            "keys": key_digest(self.keys),
            "contributions": self.contributions,
            "per_window": self.per_window,
            "who": self.who is not None,
            "start": self.start,
            "nonfinite": self.nonfinite,
            "noise": self.noise,
        }

    def _spans(self, calendar: Calendar) -> list[Any]:
        """A calendar in plain terms, without the name of its zone; two borders fix what its origin is."""
        begin = None if self.start is None else self.calendar.edge(self.start)
        return [calendar.every, zone_rules(calendar.zone, begin), calendar.edge(0), calendar.edge(1)]

    def describe(self) -> dict[str, Any]:
        """The public parameters, for a ledger."""
        return {
            **self.identity(),
            "every": self.calendar.every,
            "period": None if self.periods is None else self.periods.every,
            "time_zone": self.calendar.time_zone,
            "bound": None if self.bound is None else list(self.bound),
            "keys": len(self.keys) if self.key_rule == "given" else self.key_rule,
            "who": self.who,
            "stop": self.stop,
        }

    def check_cells(self, windows: int, keys: int) -> None:
        """ParameterError for more windows and keys than fit."""
        if windows * keys > MAX_CELLS:
            raise ParameterError(
                f"{windows:,} windows of {self.calendar.every} and {keys:,} keys: expected at most {MAX_CELLS:,} "
                "cells; use longer windows (every=), fewer keys (keys=), or a shorter time (start=, stop=)"
            )


def key_digest(keys: Sequence[KeyRow]) -> bytes:
    """Names these keys, in this order."""
    return hashlib.sha256(repr(list(keys)).encode()).digest()
