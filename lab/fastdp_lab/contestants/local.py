"""The local model: a person protects any w consecutive values by epsilon, and the server estimates each step's mean.

A row of the values is a step, a column a person.  Reports for means are those of :mod:`fastdp.local`, exact; of
reports on cells only the counts are drawn, by their law in double precision.  Cells are multiples of bound / (d - 1),
to one of which a person rounds a value at random, so that the mean of the cells is that of the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

import fastdp
from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Integers
from fastdp.local import Hybrid, Piecewise, SquareWave, StochasticRounding
from fastdp_lab.contestants.budget import UNITS, parts
from fastdp_lab.mechanism import Mechanism

Oracle = Literal["grr", "oue", "olh", "better"]
CELLS = 16

# Frequency oracles.


def probabilities(oracle: Oracle, epsilon: float, cells: int) -> tuple[float, float]:
    """Probability that a report supports a person's own cell, and any other one."""
    power = math.exp(epsilon)
    if oracle == "oue":
        return 0.5, 1.0 / (power + 1.0)
    if oracle == "olh":
        # Each value's support is independent where hashes are.
        hashes = round(power) + 1
        return power / (power + hashes - 1.0), 1.0 / hashes
    return power / (power + cells - 1.0), 1.0 / (power + cells - 1.0)


def better(epsilon: float, cells: int) -> Oracle:
    """The oracle of the smaller variance (Wang et al. 2017, section 5)."""
    return "grr" if cells < 3.0 * math.exp(epsilon) + 2.0 else "oue"


def variance(epsilon: float, cells: int, persons: int) -> float:
    """Mean variance of a frequency by the better oracle (Ren et al. 2022, equations 2 and 4)."""
    p, q = probabilities(better(epsilon, cells), epsilon, cells)
    return (q * (1.0 - q) + (p * (1.0 - p) - q * (1.0 - q)) / cells) / (persons * (p - q) ** 2)


def frequencies(counts: Integers, epsilon: float, oracle: Oracle, rng: np.random.Generator) -> Floats:
    """Estimated frequencies of cells from one report of each person."""
    n, cells = int(counts.sum()), counts.size
    oracle = better(epsilon, cells) if oracle == "better" else oracle
    p, q = probabilities(oracle, epsilon, cells)
    if oracle == "grr":
        reports = rng.multinomial(counts, np.where(np.eye(cells, dtype=bool), p, q)).sum(0)
    else:
        reports = rng.binomial(counts, p) + rng.binomial(n - counts, q)
    return np.asarray((reports / n - q) / (p - q))


@dataclass
class Population:
    """Persons who report in turn, each again once all others have."""

    values: Integers
    bound: int
    rng: np.random.Generator
    turn: int = 0
    order: Integers = field(init=False)
    points: Floats = field(init=False)

    def __post_init__(self) -> None:
        """Put the persons into a random order."""
        self.order = self.rng.permutation(self.values.shape[1])
        self.points = np.linspace(0.0, self.bound, CELLS)

    def ask(self, step: int, epsilon: float, persons: int | None = None, oracle: Oracle = "better") -> Floats:
        """Frequencies of a step from the next persons, or all."""
        row = self.values[step]
        if persons is not None:
            row = row[np.take(self.order, np.arange(self.turn, self.turn + persons), mode="wrap")]
            self.turn = (self.turn + persons) % self.order.size
        place = row * ((CELLS - 1) / self.bound)
        cells = np.floor(place + self.rng.random(row.size)).astype(np.int64)
        counts = np.bincount(np.minimum(cells, CELLS - 1), minlength=CELLS)
        return frequencies(counts, epsilon, oracle, self.rng)

    def answered(self, each: Callable[[int], Floats]) -> Floats:
        """Mean of every step's frequencies."""
        return np.array([each(step) @ self.points for step in range(len(self.values))])


def _population(values: Integers, bound: int, key: bytes) -> Population:
    return Population(values, bound, np.random.Generator(np.random.Philox(int.from_bytes(key, "little"))))


def by_budget(
    values: Integers, epsilon: float, key: bytes, *, bound: int, w: int, oracle: Oracle = "better"
) -> Floats:
    """All persons at each step, with epsilon / w."""
    people = _population(values, bound, key)
    return people.answered(lambda step: people.ask(step, epsilon / w, oracle=oracle))


def by_population(values: Integers, epsilon: float, key: bytes, *, bound: int, w: int) -> Floats:
    """A w-th of the persons at each step, with epsilon."""
    people, n = _population(values, bound, key), values.shape[1]
    if n < w:
        raise ParameterError(f"w = {w}: expected at most the {n} persons, so that no person reports twice in w steps")
    return people.answered(lambda step: people.ask(step, epsilon, n // w))


def by_sampling(values: Integers, epsilon: float, key: bytes, *, bound: int, w: int) -> Floats:
    """All persons at every w-th step, with epsilon."""
    return np.repeat(by_budget(values[::w], epsilon, key, bound=bound, w=1), w)[: len(values)]


def adaptive(
    values: Integers, epsilon: float, key: bytes, *, bound: int, w: int, absorb: bool = False, persons: bool = False
) -> Floats:
    """Half of the budget, or of the persons, tests whether a step is far from the last release; half releases it."""
    people, (steps, n) = _population(values, bound, key), values.shape
    total = n if persons else parts(epsilon)
    testing, spent = total // (2 * w), [0] * steps
    last, blocked, left = np.zeros(CELLS), 0, total // 2
    last[0] = 1.0

    def ask(step: int, given: int) -> Floats:
        return people.ask(step, epsilon, given) if persons else people.ask(step, given / UNITS)

    def error(given: int) -> float:
        return variance(epsilon, CELLS, given) if persons else variance(given / UNITS, CELLS, n)

    def each(step: int) -> Floats:
        nonlocal last, blocked, left
        left += spent[step - w] if step >= w else 0
        given = testing * max(min(step + 1 - blocked, w), 0) if absorb else left // 2
        if testing > 0:
            far = float(np.mean((ask(step, testing) - last) ** 2)) - error(testing)
            if given > 0 and far > error(given):
                last, spent[step], blocked = ask(step, given), given, step + given // testing
                left -= given
        return last

    return people.answered(each)


# Reports of numbers.

_MEANS: dict[str, Any] = {"SR": StochasticRounding, "PM": Piecewise, "HM": Hybrid}


def of_means(values: Integers, epsilon: float, key: bytes, *, bound: int, w: int, kind: str = "HM") -> Floats:
    """The mean of unbiased reports, each with epsilon / w."""
    mechanism = _MEANS[kind](epsilon / w, low=0.0, high=float(bound))
    reports = mechanism.perturb(values.reshape(-1), key=key, start=0)
    return np.asarray(mechanism.estimate(reports).reshape(values.shape).mean(1))


def square_wave(values: Integers, epsilon: float, key: bytes, *, bound: int, w: int, bins: int = 32) -> Floats:
    """The mean of the distribution that explains reports best."""
    mechanism = SquareWave(epsilon / w, low=0.0, high=float(bound))
    reports = mechanism.perturb(values.reshape(-1), key=key, start=0).astype(np.int64)
    # Cells of reports, as there are more outputs than reports.
    cells = (reports * (4 * bins) // mechanism.n_outputs).reshape(values.shape)
    counts = [np.bincount(row, minlength=4 * bins) for row in cells]
    return np.array([mechanism.estimate_counts(each, bins).mean() for each in counts])


def topl(values: Integers, epsilon: float, key: bytes, *, bound: int, w: int, holdout: int) -> Floats:
    """Means below a threshold that the first steps' square waves choose."""
    held = max(holdout, 1)
    publisher: Any = fastdp.ToPL(epsilon / w, float(bound), holdout=held * values.shape[1], key=key)
    means = publisher.release(values.reshape(-1)).values.reshape(-1, values.shape[1]).mean(1)
    return np.concatenate([np.full(held, means.mean()), means])


def capp(values: Integers, epsilon: float, key: bytes, *, bound: int, w: int, margin: float = 0.25) -> Floats:
    """Square waves of values plus what earlier reports missed, clipped; then a moving average of three steps."""
    mechanism = SquareWave(epsilon / w, low=-margin * bound, high=(1.0 + margin) * bound)
    near, width = (mechanism.n_outputs - mechanism.STEPS - 1) // 2, (1.0 + 2.0 * margin) * bound
    missed, means = np.zeros(values.shape[1]), np.empty(len(values))
    for step, row in enumerate(values):
        reports = mechanism.perturb(row + missed, key=key, stream=step, start=0)
        found = (reports - near) * (width / mechanism.STEPS) - margin * bound
        missed += row - found
        means[step] = found.mean()
    padded = np.pad(means, 1, mode="edge")
    return (padded[:-2] + padded[1:-1] + padded[2:]) / 3.0


def _local(name: str, release: Callable[..., Any], source: str, **parameters: Any) -> Mechanism:
    return Mechanism(name, "local", release, source, parameters)


_WANG = "Wang, Blocki, Li and Jha 2017 (USENIX Security), "
_REN = "Ren et al. 2022 (SIGMOD), LDP-IDS, "
_MEAN = "Wang et al. 2019 (ICDE), "
LOCAL = (
    _local("GRR", by_budget, _WANG + "section 4.1: epsilon / w a step", oracle="grr"),
    _local("OUE", by_budget, _WANG + "section 4.4: epsilon / w a step", oracle="oue"),
    _local("OLH", by_budget, _WANG + "section 4.5, ideal hashes: epsilon / w a step", oracle="olh"),
    _local("SW+EM", square_wave, "Li et al. 2020 (SIGMOD), square wave and EM: epsilon / w a step"),
    _local("SR", of_means, "Duchi, Jordan and Wainwright 2018, one dimension: epsilon / w a step", kind="SR"),
    _local("PM", of_means, _MEAN + "Algorithm 2: epsilon / w a step", kind="PM"),
    _local("HM", of_means, _MEAN + "section 3.3, hybrid of PM and SR: epsilon / w a step", kind="HM"),
    _local("ToPL", topl, "Wang et al. 2021 (CCS), section 4: epsilon / w a step"),
    Mechanism(
        *("CAPP", "local", capp, "Du et al. 2024 (arXiv:2504.14993), fixed margin: epsilon / w a step"),
        parameters={"margin": 0.25},
        breaks="what earlier reports missed goes into every later one, so that a value is in all reports after it",
    ),
    _local("LBU", by_budget, _REN + "section 5.1: epsilon / w a step", oracle="better"),
    _local("LSP", by_sampling, _REN + "section 5.1: epsilon every w steps"),
    _local("LBD", adaptive, _REN + "Algorithm 1: epsilon / 2 for tests, and for releases"),
    _local("LBA", adaptive, _REN + "Algorithm 2: epsilon / 2 for tests, and for releases", absorb=True),
    _local("LPU", by_population, _REN + "section 6.1: epsilon, once in w steps"),
    _local("LPD", adaptive, _REN + "Algorithm 3: half of the persons test, half release", persons=True),
    _local("LPA", adaptive, _REN + "Algorithm 4: half of the persons test, half release", absorb=True, persons=True),
)
