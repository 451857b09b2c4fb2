"""The study of statistics of a stream as a whole: its quantiles, PAK's best parameters, errors of PAK's runs.

A data set that has a ``unit`` is read here.  A system returns numbers by name, each a group of the results.  Those
that look at values alone see another stretch of the stream in each repetition, so that the spread over repetitions
says how much of a number is chance or the time of day.  Nothing here is private: use public or synthetic streams.

Source: PAK (NDSS 2019) Definition 11 and 12, sections III-B, V-B, VI and VII.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple
from zoneinfo import available_timezones

import numpy as np
from msgspec import Meta

import fastdp
from fastdp import Key, validation
from fastdp.errors import DataError, ParameterError
from fastdp.kinds import Floats, Indices
from fastdp_lab.planning import Optimum, optimise_pak, sample_quantile, sample_sensitivity
from fastdp_lab.planning.formulas import outlier_error
from fastdp_lab.sweeps import values
from fastdp_lab.sweeps.study import Count, Name, Row, System, Table, check_keys, plain, read
from fastdp_lab.sweeps.values import Values, ValueSet

if TYPE_CHECKING:
    from fastdp_lab.sweeps.specification import Mechanism, Specification

METRICS, KEYS = ("value",), ("holdout",)
Share = Annotated[float, Meta(gt=0, lt=1)]
Numbers = dict[str, float]
#: A quantile is asked for where so many values lie above it.
LEAST_ABOVE = 10
#: Of all of PAK's experiments.
DELTA, BETA = 2.0**-20, 0.02
_OWN = ("unit", "times", "zone", "days")


@dataclass(frozen=True, kw_only=True)
class SampleSet(ValueSet):
    """A stream whose values are looked at as a sample.

    ``times`` names the column of times, in UTC, which ``zone`` turns into those of a city; a stream without them
    lasts ``days`` at an even pace.
    """

    STUDY: ClassVar[str] = "statistics"

    unit: Name
    times: Name | None = None
    zone: Name = "UTC"
    days: Count | None = None

    def __post_init__(self) -> None:
        """Check the name of the time zone."""
        super().__post_init__()
        if self.zone not in available_timezones():
            raise ParameterError(
                f"zone = {validation.shown(self.zone)}: expected the name of a time zone, such as Europe/Paris"
            )

    def load(self, folder: Path) -> Sample:
        """The values, cut off at the bound as a publisher does."""
        stream = super().load(folder)
        found = stream.values.clip(0.0, self.bound)
        return Sample(self, found, None if self.times is None else self._hours(folder))

    def _hours(self, folder: Path) -> Any:
        """Hours of the city since the midnight that began 1970, a Thursday."""
        import pandas as pd

        try:
            times = pd.read_parquet(folder / self.source)[self.times]
            if pd.api.types.is_numeric_dtype(times) or times.isna().any():
                raise ValueError
            local = pd.to_datetime(times, utc=True).dt.tz_convert(self.zone).dt.tz_localize(None)
        except (KeyError, ValueError):
            # Their texts may quote values.
            given = f"{self.place}.times = {validation.shown(self.times)}"
            raise DataError(f"{given}: expected a column of times, none absent, of a Parquet file") from None
        return local.to_numpy().astype("datetime64[h]").astype(np.int64)


@dataclass(frozen=True, eq=False)
class Sample(Values):
    """The values, and the hours in which they came."""

    data_set: SampleSet
    hours: Indices | None = None

    @cached_property
    def _when(self) -> dict[str, Indices]:
        hours = self.hours
        if hours is None:
            # The first day is a Monday.
            hours = 24 * 4 + np.arange(self.values.size) * 24 * (self.data_set.days or 1) // self.values.size
        return {"hour": hours % 24, "weekday": (hours // 24 + 3) % 7}

    def stretch(self, number: int, count: int, by: str | None) -> Iterator[tuple[str, Floats]]:
        """One of as many equal stretches; by hour or weekday its parts with a label each."""
        low, high = (self.values.size * k // count for k in (number, number + 1))
        part = self.values[low:high]
        if by is None:
            yield "", part
            return
        codes = self._when[by][low:high]
        yield from ((f"{by} {code}: ", part[codes == code]) for code in np.unique(codes))


def claims(table: Table) -> bool:
    """Streams with a unit of their values."""
    return "unit" in table


def read_data_set(table: Table, place: str, name: str, top: Table) -> SampleSet:
    """A data set from its table, lists expanded."""
    of_stream, usual = {key: each for key, each in table.items() if key not in _OWN}, {"holdout": 0, **top}
    of_values = values.read_data_set(of_stream, place, name, usual)
    own = {key: table[key] for key in _OWN if key in table}
    return read(SampleSet, {**plain(of_values), "place": place, **own}, place)


@dataclass(frozen=True, kw_only=True)
class Question:
    """The numbers of a system, all or ``only`` some; or upper quantiles at shares of values above them."""

    name: Name = "numbers"
    kind: str = "numbers"
    only: tuple[Name, ...] = ()
    shares: tuple[Share, ...] = ()
    by: Literal["hour", "weekday"] | None = None
    fixed: bool = field(default=True, init=False)

    def check(self, size: int) -> None:
        """Streams of every length can be asked."""

    @property
    def groups(self) -> tuple[str, ...] | None:
        """Labels of all groups, None if they depend on the system."""
        if self.kind == "numbers":
            return self.only or None
        parts = {None: [""], "hour": [f"hour {k}: " for k in range(24)]}
        parts["weekday"] = [f"weekday {k}: " for k in range(7)]
        return tuple(f"{part}{share:g}" for part in parts[self.by] for share in self.shares)


#: Keys of each kind of questions.
_QUESTIONS = {"numbers": ("name", "kind", "only"), "quantiles": ("name", "kind", "shares", "by")}


def read_workload(table: Table, place: str) -> Question:
    """A question from its table."""
    kind = validation.choice(f"{place}.kind", table.get("kind", "numbers"), tuple(_QUESTIONS))
    check_keys(table, place, _QUESTIONS[kind], ("shares",) if kind == "quantiles" else ())
    return read(Question, {"name": kind, **table}, place)


WORKLOADS = (Question(),)


class Cell(NamedTuple):
    """Inputs of a cell besides its stream and question."""

    epsilon: float
    repetition: int
    repetitions: int
    key: Key


# Quantiles.


def _quantiles(of: Callable[..., Floats], sample: Sample, question: Question, cell: Cell) -> Numbers:
    """Upper quantiles of a stretch, or of its parts by time, each from ``of(values, shares, everything)``."""
    found: Numbers = {}
    (_, everything), *_ = sample.stretch(cell.repetition, cell.repetitions, None)
    for label, part in sample.stretch(cell.repetition, cell.repetitions, question.by):
        shares = np.array([each for each in question.shares if part.size * each >= LEAST_ABOVE])
        asked = of(part, shares, everything).tolist()
        found |= {f"{label}{share:g}": x for share, x in zip(shares.tolist(), asked, strict=True)}
    return found


def upper(sample: Floats, shares: Floats) -> Floats:
    """The smallest values with at most these shares of the sample above them (Definition 11)."""
    # A share of 600 values that is a whole number may be above it by a rounding.
    ranks = np.ceil(sample.size * (1.0 - shares) * (1.0 - 1e-12)).astype(np.int64)
    found: Floats = np.sort(sample)[ranks - 1]
    return found


def _of_sample(whole: bool = False) -> Any:
    return partial(_quantiles, lambda part, shares, everything: upper(everything if whole else part, shares))


def _of_exponential(p: float) -> Any:
    """Of the exponential distribution with the sample's p-quantile: r x_p with r = ln q / ln p (Proposition 1)."""
    p = validation.probability("p", p)
    return partial(_quantiles, lambda part, shares, _: upper(part, np.array([p]))[0] * np.log(shares) / math.log(p))


def _of_bound() -> Any:
    def bound(sample: Sample, question: Question, cell: Cell) -> Numbers:
        return _quantiles(lambda part, shares, _: np.full(shares.size, sample.data_set.bound), sample, question, cell)

    return bound


# PAK's analysis, and its runs.


@lru_cache(maxsize=8)
def _best(sample: Sample, first: int, n: int | None, epsilon: float, as_printed: bool) -> Optimum:
    """The best parameters by m values from ``first`` on, which the paper looks at without noise too."""
    m, bound = sample.data_set.holdout, sample.data_set.bound
    part = sample.values[first : first + m]
    quantile, sensitivity = sample_quantile(part), sample_sensitivity(part, bound)
    given = n or sample.values.size, m, bound, epsilon, DELTA, BETA
    return optimise_pak(quantile, *given, smooth_sensitivity=sensitivity, as_printed=as_printed)


def _of_optimum(n: int | None = None, as_printed: bool = False, renewed: bool = False) -> Any:
    """The columns of Tables I and II, and the bound of clipping in units of B; ``renewed``: of later values too."""

    def optimum(sample: Sample, question: Question, cell: Cell) -> Numbers:
        m = sample.data_set.holdout
        stretch = cell.repetition % (sample.values.size // m) if renewed else 0
        best = _best(sample, stretch * m, n, cell.epsilon, as_printed)
        clipping = 0.0 if best.fallback else outlier_error(best.quantile, best.n, best.p, best.r, best.beta_out)
        columns = {"IF": best.improvement, "r": best.r, "lambda": best.lambda_, "p": best.p, "share": best.share}
        return columns | {"clipping error / B": clipping / best.bound}

    return optimum


def _of_runs(plain: bool = False) -> Any:
    """Absolute errors of the sum of all values at the last one (section VII-A), and of it by clipping, over B."""

    def run(sample: Sample, question: Question, cell: Cell) -> Numbers:
        arguments, bound, size = _best(sample, 0, None, cell.epsilon, False).arguments(), sample.data_set.bound, 2**20
        if plain:
            arguments |= {"threshold": bound, "holdout": 0}
        publisher = fastdp.PAK(**arguments, key=cell.key)
        for start in range(0, sample.values.size, size):
            released = publisher.publish(sample.values[start : start + size])
        truth = sample.values.sum()
        clipped = truth - np.minimum(sample.values, publisher.threshold or bound).sum()
        return {"error at n / B": abs(released[-1] - truth) / bound, "clipping error / B": clipped / bound}

    return run


def _of_print(numbers: Any) -> Any:
    """Numbers that a paper prints, the same for all data sets, or by their names."""
    check_keys(numbers, "numbers", None)

    def printed(sample: Sample, question: Question, cell: Cell) -> Numbers:
        found = numbers.get(sample.data_set.name, numbers)
        return {name: float(each) for name, each in found.items() if not isinstance(each, dict)}

    return printed


#: Systems by their name in a specification.
SYSTEMS: dict[str, System] = {
    "quantiles": System(_of_sample, ("whole",)),
    "exponential": System(_of_exponential, ("p",)),
    "bound": System(_of_bound),
    "pak_optimum": System(_of_optimum, ("n", "as_printed", "renewed")),
    "pak_runs": System(_of_runs, ("plain",)),
    "printed": System(_of_print, ("numbers",)),
}


def systems() -> dict[str, System]:
    """All systems of statistics."""
    return SYSTEMS


def columns(chosen: Sequence[str]) -> tuple[str, ...]:
    """The one column of numbers."""
    return METRICS


def build(specification: Specification, mechanism: Mechanism, sample: Sample, epsilon: float) -> Callable[[], Any]:
    """A system, checked, as the run of a cell."""
    data_set = sample.data_set
    if data_set.times is None and data_set.days is None and any(each.by for each in specification.workloads):
        raise ParameterError(
            f"by: expected times or days in {data_set.place}, which tell the hours of {data_set.name}"
        )
    if mechanism.system.startswith("pak") and not data_set.holdout:
        raise ParameterError("holdout = 0: expected the first m values of the stream, which PAK looks at")
    statistic = systems()[mechanism.system].build(**mechanism.parameters)

    def run_cell(repetition: int, key: Key, seed: Any) -> tuple[float, list[Row]]:
        cell = Cell(epsilon, repetition, specification.repetitions, key)
        return math.nan, [
            (question.name, label, 1, [number])
            for question in specification.workloads
            for label, number in statistic(sample, question, cell).items()
            if not question.only or label in question.only
        ]

    return lambda: run_cell
