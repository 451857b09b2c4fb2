"""``fastdp.plan``: how accurate a release of a table will be, from public numbers, before any data.

A release is planned with the sums that are expected in place of noisy ones; its errors follow from the same formulas
as those of a real one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.kinds import Bounds, Duration
from fastdp.noise.draws import NoiseName
from fastdp.releases.intervals import checked_confidence
from fastdp.tables.calendar import Time
from fastdp.tables.plan import MAX_CELLS, PrivateKeys, Value, make_plan, statistics_of
from fastdp.units import ONE_ROW, Unit
from fastdp.validation import DAY

#: Longer spans that are shown, in microseconds.
SPANS = {"day": DAY, "week": 7 * DAY, "year": 365 * DAY}
#: Windows that are worked out for each key; more behave like these.
MAX_WINDOWS, MAX_KEYS = 2**16, 2**12


@dataclass(frozen=True)
class Expected:
    """Error of one statistic in one window and key.

    Attributes
    ----------
    std_error, half_width : float
        Standard error, and half of the interval's width, in units of the input; of quantiles in rows.
    value : float or None
        The number that is expected; None if nothing is said about it.
    longer : dict of str to float
        Half-widths of sums or means over a day, a week, a year of windows.
    """

    std_error: float
    half_width: float
    value: float | None
    longer: Mapping[str, float]

    @property
    def drowned(self) -> bool:
        """True if the interval is as wide as the number itself."""
        return self.value is not None and self.half_width >= abs(self.value)


@dataclass(frozen=True)
class Plan:
    """Errors and shares of a release at an epsilon (:func:`plan`); ``print`` shows them as lines.

    Attributes
    ----------
    epsilon, confidence : float
        Privacy loss of one unit, and confidence of the intervals.
    noise : "laplace" or "gaussian"
        Noise of the sums.
    errors : dict of str to Expected
        Of each statistic, by name.
    shares : dict of str to float
        Share of epsilon, or of rho with Gaussian noise, of everything that is released.
    unit : str
        What is protected.
    """

    epsilon: float
    confidence: float
    noise: NoiseName
    errors: Mapping[str, Expected]
    shares: Mapping[str, float]
    unit: str
    every: str | None

    @property
    def half_width(self) -> float:
        """Half-width of the first statistic's interval in one window and key."""
        return next(iter(self.errors.values())).half_width

    @property
    def std_error(self) -> float:
        """Standard error of the first statistic in one window and key."""
        return next(iter(self.errors.values())).std_error

    def __str__(self) -> str:
        window = "All rows" if self.every is None else f"A window of {self.every}"
        lines = [f"epsilon = {self.epsilon:.4g} for {self.unit}, {self.noise} noise"]
        for name, each in self.errors.items():
            rows = " rows of rank" if each.value is None and not each.longer and name[-1].isdigit() else ""
            told = f"{window}: {name} +- {each.half_width:.4g}{rows} ({100.0 * self.confidence:g} %)"
            if each.value is not None:
                told += f" of {each.value:.4g}"
            lines.append(f"{told}, standard error {each.std_error:.4g}")
            lines += [f"  over a {span}: +- {width:.4g}" for span, width in each.longer.items()]
            if each.drowned:
                lines.append(
                    f"  {name}: noise is as large as the number; expected longer windows, fewer keys, or a larger epsilon"
                )
        shares = ", ".join(f"{name} {share:.3g}" for name, share in self.shares.items())
        return "\n".join([*lines, f"Shares of {'rho' if self.noise == 'gaussian' else 'epsilon'}: {shares}"])


@validation.plain
def plan(
    statistics: Mapping[str, str | Sequence[str]],
    *,
    epsilon: float | None = None,
    half_width: float | None = None,
    bounds: Mapping[str, Bounds | Value] | Bounds | Value | None = None,
    every: Duration | None = None,
    windows: int = 1,
    keys: int | PrivateKeys = 1,
    unit: Unit = ONE_ROW,
    delta: float = 0.0,
    levels: bool | None = None,
    rows: float | None = None,
    mean: float | Mapping[str, float] | None = None,
    confidence: float = 0.95,
) -> Plan:
    """How accurate a release of a table will be; reads no data and costs no epsilon.

    Parameters
    ----------
    statistics, bounds, every, unit, delta, levels
        As for :func:`fastdp.aggregate`.
    epsilon : float, optional
        Privacy loss of one unit.
    half_width : float, optional
        The wanted half-width of the first statistic's interval in one window and key, in place of ``epsilon``, which
        is then computed.
    windows : int
        Number of windows.
    keys : int or PrivateKeys
        Number of keys; :class:`fastdp.PrivateKeys`, with ``delta``, if they are chosen privately.
    rows : float, optional
        Rows expected in each window and key: a guess, or a public number.  Means and variances need it.
    mean : float or dict of str to float, optional
        Value expected of a row, of each column.
    confidence : float
        Of the intervals, above 0, at most 1 - 10^-9.

    Returns
    -------
    Plan
        ``print`` it; attributes ``epsilon``, ``errors`` of each statistic, ``shares`` of the budget, ``noise``.

    Raises
    ------
    ParameterError
        If an argument is out of range, or not exactly one of ``epsilon`` and ``half_width`` is given.

    Notes
    -----
    Values are clipped at the bound, or at a clip that is given: one that is chosen from the rows is smaller, so that
    errors are.  Not included is the error of clipping.

    Examples
    --------
    >>> import fastdp
    >>> print(fastdp.plan({"kwh": "sum"}, epsilon=1.0, bounds=fastdp.Value(clip=2.0), every="1h", windows=168))
    epsilon = 1 for one row of the table, laplace noise
    """
    confidence = checked_confidence(confidence)
    if (epsilon is None) == (half_width is None):
        raise ParameterError(
            f"epsilon = {validation.shown(epsilon)}, half_width = {validation.shown(half_width)}: expected one of "
            "the two, the other follows from it"
        )
    windows = validation.integer("windows", windows, 1, MAX_CELLS)
    asked = statistics_of(statistics)
    private = keys if isinstance(keys, PrivateKeys) else None
    width = 1 if isinstance(keys, PrivateKeys) else validation.integer("keys", keys, 1, MAX_CELLS)
    if rows is not None:
        rows = validation.positive("rows", rows)
    given = {"unit": unit, "bounds": bounds, "delta": delta, "levels": levels}
    given |= {
        "by": None if private is None and width == 1 else "key",
        "keys": private or list(range(min(width, MAX_KEYS))),
    }
    if given["by"] is None:
        given["keys"] = None
    time = None if every is None else Time("time", every, start="2000-01-01")

    def at(number: float) -> Plan:
        """The plan at this epsilon."""
        made = make_plan(asked, time, epsilon=number, **given)
        return _planned(made.settled(0, min(windows, MAX_WINDOWS), width), rows, mean, confidence)

    if epsilon is not None:
        return at(validation.positive("epsilon", epsilon))
    wanted, low, high = validation.positive("half_width", half_width), 2.0**-20, 2.0**20
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if at(middle).half_width > wanted else (low, middle)
    return at(high)
