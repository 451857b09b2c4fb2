"""One integer sum for each window and key: how rows enter it, and its noise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from fastdp.guarantee import Guarantee, parallel, sequential
from fastdp.kinds import Array, Floats, Integers
from fastdp.noise import binding
from fastdp.noise.draws import Distribution, NoiseName, concentrated, noise_distribution
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.key import Key
from fastdp.releases.intervals import DrawnNoise
from fastdp.units import UnitRows
from fastdp_kernels.tables import window_sums

if TYPE_CHECKING:
    from fastdp.tables.plan import TablePlan


# Noisy sums of windows and keys: all that a release of a table gives out, before it becomes a frame.

#: The kinds of a release.
Kind = Literal["totals", "counts", "means"]


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Noisy sums of every window and key, int64[W, K] in steps of the resolution, with independent noise."""

    steps: Integers
    resolution: float
    noise: DrawnNoise

    @property
    def values(self) -> Floats:
        """The noisy sums in units of the input: float64[W, K]."""
        units: Floats = self.steps * np.float64(self.resolution)
        return units


@dataclass(frozen=True, eq=False)
class WindowSums:
    """Everything that was released of a table; nothing in it is private.

    Attributes
    ----------
    edges : int64[W + 1]
        Borders of the windows: microseconds since 1970-01-01, in UTC, or of the local clock if there is no zone.
    time_zone : str or None
        Zone of the windows; None if times without a zone were taken unchanged.
    keys : dict of str to list
        Key column's name to its K values, one for each released key; empty without ``by``, then K is 1.
    columns : dict of str to NoisySums
        "total" or "count".  Means have "count" and "deviation", the sum of value - ``centre``: the mean is centre +
        deviation / count, the total deviation + centre * count.
    clip : (float, float) or None
        Ends that values were clipped to, in units of the input; None for counts.
    family : str
        The library that the table came from.
    clipped_rows, kept_persons : float or None
        Released shares of rows beyond the clip, and of persons (in each period) without dropped rows; None if
        unknown.
    """

    kind: Kind
    edges: Integers
    time_zone: str | None
    every: str
    keys: dict[str, list[object]]
    columns: dict[str, NoisySums]
    clip: tuple[float, float] | None
    guarantee: Guarantee = field(repr=False)
    family: str = "pyarrow"
    centre: float = 0.0
    clipped_rows: float | None = None
    kept_persons: float | None = None


@dataclass(frozen=True)
class Quantity:
    """One sum of each window and key, and its noise.

    Values are clipped to [``low``, ``high``] steps, and ``centre`` is subtracted.  A "count" adds 1 for each row,
    "beyond"
    1 for each that the clip changes, and is released as one share only.  With Gaussian noise rho = ``epsilon``^2 / 2.
    ``contributions`` is the number of a unit's rows, ``square`` the squared L2 norm of their change, in squared
    sensitivities of one row.
    """

    name: str
    low: int
    high: int
    centre: int
    resolution: float
    epsilon: float
    contributions: int
    noise: NoiseName = "laplace"
    square: int = 1

    @property
    def sensitivity(self) -> int:
        """Largest change of a sum by one row, in steps."""
        return 1 if self.name == "count" else max(abs(self.low - self.centre), abs(self.high - self.centre))

    @cached_property
    def distribution(self) -> Distribution:
        """Distribution of each sum's noise."""
        if self.noise == "laplace":
            return noise_distribution("laplace", self.contributions * self.sensitivity, 1, self.epsilon)
        return noise_distribution("gaussian", self.sensitivity, self.square, self.epsilon)

    def add(self, rows: tuple[Integers, Array, Floats], first: int, sums: Integers) -> int:
        """Add rows (windows, keys, values) to `sums`; returns the index of the first non-finite row, or -1."""
        windows, keys, values = rows
        if self.name == "count":
            window_sums.add_ones(windows, keys, first, sums)
            return -1
        low, high = float(self.low), float(self.high)
        if self.name == "beyond":
            outside = np.flatnonzero((values > high * self.resolution) | (values < low * self.resolution))
            window_sums.add_ones(windows[outside], keys[outside], first, sums)
            return -1
        return window_sums.add_values(
            windows, keys, values, first, 1.0 / self.resolution, low, high, self.centre, sums
        )

    @property
    def labels(self) -> tuple[str | float, ...]:
        """Labels for the noise key, so that noise of another scale or clip is independent."""
        return self.name, self.low, self.high, self.centre, self.resolution, self.epsilon


def release(
    quantities: Sequence[Quantity], sums: Integers, key: Key, first: int, rows: NDArray[np.uint64]
) -> dict[str, NoisySums]:
    """Noisy sums of all quantities, by name; noise is bound to all sums of a cell.

    Sums and noise are taken modulo 2^64, which is post-processing of the exact noisy sum: privacy does not depend on
    the number of rows.

    Parameters
    ----------
    sums : int64[n, W, K]
        Exact sums of each quantity, in windows from number ``first`` on.
    key : Key
        Of the composition.
    rows : uint64[K, 2]
        Digests of the keys.
    """
    own, exact = key.within("sums", *itertools.chain(*(q.labels for q in quantities))), np.ascontiguousarray(sums)
    noisy = binding.draw_cells(exact, [q.distribution for q in quantities], own, first, rows)
    noisy += exact
    noisy.flags.writeable = False
    found = {}
    for q, each in zip(quantities, noisy, strict=True):
        noise = q.distribution
        drawn = DrawnNoise(noise.sigma, True) if isinstance(noise, GaussianDistribution) else DrawnNoise(noise.scale)
        found[q.name] = NoisySums(each, q.resolution, drawn)
    return found


# The guarantee of a release of windows: of each part, their composition, and the caller's word.


def in_units(plan: TablePlan, guarantee: Guarantee) -> Guarantee:
    """`guarantee` with the plan's unit of privacy and adjacency."""
    k, period = plan.contributions, "" if plan.periods is None else f" in any period of {plan.periods.every}"
    rows = UnitRows(plan.who, 1 if plan.who is not None else k, None if plan.periods is None else plan.periods.period)
    if plan.who is not None:
        unit, adjacency = f"one person{period}", f"add or remove all rows of one person{period.replace('any', 'one')}"
    elif k == 1:
        unit, adjacency = "one row of the table", "add or remove one row"
    else:
        unit, adjacency = (
            f"{k} rows of the table{period}",
            f"add or remove up to {k} rows{period.replace('any', 'one')}",
        )
    return replace(guarantee, unit=unit, adjacency=adjacency, rows=rows, times=plan.times_of(rows))


def _part(plan: TablePlan, epsilon: float, *derivation: str, delta: float = 0.0) -> Guarantee:
    return in_units(plan, Guarantee(epsilon, delta, arithmetic="exact", derivation=derivation))


def of_everything(plan: TablePlan, simulated: bool) -> Guarantee:
    """Guarantee of everything that is released, with its derivation."""
    k = plan.contributions
    parts = [_sums_part(plan, q).of("sums") for q in plan.quantities()]
    rows, choice = plan.clip_epsilons
    if plan.chooses_clip:
        counted = f"how many rows lie above the lowest candidate: sensitivity {k}, discrete Laplace noise"
        chosen = f"noisy max over counts of rows above candidates: monotone, sensitivity {k}"
        parts += [_part(plan, rows, counted).of("clip"), _part(plan, choice, chosen).of("clip")]
    if plan.key_rule == "private":
        step = "a key is released if its noisy count of rows passes a threshold that delta gives"
        parts.append(_part(plan, plan.key_epsilon, step, delta=0.0 if plan.gaussian else plan.delta).of("keys"))
    if plan.reports_clip:
        step = (
            f"rows beyond the clip and rows within it: {k} rows change them by {k} in all, a replaced value by 2; "
            f"noise for {plan.beyond_sensitivity}"
        )
        parts.append(_part(plan, plan.beyond_epsilon, step).of("share clipped"))
    if plan.reports_persons:
        where = "" if plan.periods is None else f" (in each period of {plan.periods.every})"
        step = f"counts of persons with and without dropped rows{where}, which are disjoint"
        parts.append(_part(plan, plan.person_epsilon, step).of("persons"))
    whole = sequential(*parts) if len(parts) > 1 else parallel(*parts)
    if plan.gaussian:
        return _approximate(plan, whole, simulated)
    # The parts are rounded so that they never exceed epsilon; they may fall short of it by a rounding.
    return Guarantee(
        *(plan.epsilon, whole.delta, whole.unit, whole.adjacency, whole.model, whole.arithmetic),
        simulated=simulated,
        derivation=(*whole.derivation, *_public_knowledge(plan, whole)),
        rows=whole.rows,
        times=whole.times,
    )


def _sums_part(plan: TablePlan, q: Quantity) -> Guarantee:
    """Guarantee of one sum of each window and key."""
    k, sums = plan.contributions, f"{q.name}: disjoint windows and keys, k rows of a unit change the sums by"
    clip = f"{q.sensitivity}" if q.name == "count" or not plan.chooses_clip else "clip"
    if plan.gaussian:
        step = (
            f"{sums} sqrt({plan.square}) * {clip} in the L2 norm (k = {k}), discrete Gaussian noise of sigma "
            f"sqrt({plan.square}) * {clip} / {q.epsilon:g}: rho = {q.epsilon:g}^2 / 2"
        )
        return in_units(plan, concentrated(q.epsilon, step))
    if clip == "clip":
        step = f"{sums} k clips in all, discrete Laplace noise of scale k * clip / epsilon (k = {k})"
    else:
        step = f"{sums} k * {clip} steps in all, discrete Laplace noise of scale k * {clip} / epsilon (k = {k})"
    return _part(plan, q.epsilon, step)


def _approximate(plan: TablePlan, whole: Guarantee, simulated: bool) -> Guarantee:
    """Guarantee in epsilon and delta from components in rho; a choice of keys adds its own delta."""
    stated = whole.approximate(plan.epsilon, plan.noise_delta)
    if plan.key_delta:
        # All but an event of this probability is concentrated (Bun and Steinke 2016, section 8).
        step = f"keys: released beyond that with probability {plan.key_delta:g}: delta = {plan.delta:g} in all"
        stated = replace(stated, delta=plan.delta, rho=math.inf, derivation=(*stated.derivation, step))
    derivation = (*stated.derivation, *_public_knowledge(plan, whole))
    return replace(stated, simulated=simulated, derivation=derivation)


def _public_knowledge(plan: TablePlan, whole: Guarantee) -> list[str]:
    """Public facts that the guarantee assumes on the caller's word, as texts."""
    said = [] if whole.times is None else [f"rows at other times than {whole.times} change nothing that is released"]
    ends = plan.taken or [name for name, end in (("first", plan.start), ("last", plan.stop)) if end is None]
    if plan.online:
        said.append("the clock that closes windows is public")
    elif ends:
        said.append(f"the {' and '.join(ends)} window of the table is public knowledge (start=, stop=)")
    if plan.key_rule == "public":
        said.append(
            "the keys of all rows, dropped ones too, are public knowledge, on the caller's word (keys='public')"
        )
    if plan.who is None and plan.contributions > 1:
        said.append(f"a unit has at most {plan.contributions} rows, on the caller's word (fastdp.Person enforces it)")
    if plan.who is not None:
        where = "in all" if plan.periods is None else f"in each period of {plan.periods.every}"
        said.append(
            f"of a person (column {plan.who!r}) the {plan.contributions} rows of least keyed hash {where} count, "
            "whatever other persons do"
        )
        if plan.per_window is not None:
            said.append(f"of a person at most {plan.per_window} rows of one window count, those of least hash")
    # Not for means: of deviations from the middle of the clip a replaced value moves two sensitivities.
    row_alone = plan.periods is None and plan.who is None and plan.contributions == 1
    if row_alone and plan.kind == "totals" and plan.bound and plan.bound[0] >= 0:
        said.append("replacing the value of one row, in its window and key, is covered too")
    return said
