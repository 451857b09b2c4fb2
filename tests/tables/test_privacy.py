"""Couplings: with noise shifted so that every noisy sum stays the same, all that is public is equal, for epsilon."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdp.noise import binding
from fastdp.noise.sampler import LaplaceDistribution
from fastdp.tables.columns import Keys
from fastdp.thresholds import scale_free
from tests.tables import flat
from tests.tables.rows import as_family, random_rows

ROWS = random_rows(300, 11)
END = {"start": "2024-03-29", "stop": "2024-04-02"}

CHOICES = scale_free._ScaleFreeChooser.choices


class Coupled:
    """Noise from a generator at first; then whatever keeps every noisy sum and the choice as they were."""

    def __init__(self) -> None:
        self.sums: list[tuple[np.ndarray, np.ndarray, Fraction]] = []
        self.noise: list[np.ndarray] = []
        self.winner = -1
        self.again = False
        self.cost = Fraction(0)
        self._generator = np.random.default_rng(5)
        self._calls: Iterator[Any] = iter(())

    def repeat(self) -> None:
        self.again, self._calls = True, iter(self.sums)

    def draw_cells(self, sums: np.ndarray, distributions: list[LaplaceDistribution], *_: Any) -> np.ndarray:
        return np.stack(
            [self.draw(each, distribution) for each, distribution in zip(sums, distributions, strict=True)]
        )

    def draw(self, sums: np.ndarray, distribution: LaplaceDistribution, *_: Any) -> np.ndarray:
        if not self.again:
            noise = np.rint(self._generator.laplace(0.0, float(distribution.scale), sums.shape)).astype(np.int64)
            self.sums.append((sums.copy(), noise, distribution.scale))
            return noise.copy()
        before, noise, scale = next(self._calls)
        assert (sums.shape, distribution.scale) == (before.shape, scale), "public sizes and scales"
        moved = before + noise - sums
        self.cost += Fraction(int(np.abs(moved - noise).sum())) / scale
        return moved

    def draw_noise(self, distribution: LaplaceDistribution, count: int, candidates: int, key: Any) -> np.ndarray:
        if not self.again:
            self.noise.append(
                self._generator.geometric(-math.expm1(-1 / float(distribution.scale)), (count, candidates)) - 1
            )
            return self.noise[-1].copy()
        moved = self.noise.pop(0)
        # Monotone scores: the winner's noise alone goes up, by the most that scores move.
        moved[0, self.winner] += self.shift
        self.cost += Fraction(self.shift) / distribution.scale
        return moved

    shift = 0


@contextmanager
def noise_of(coupled: Coupled, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(binding.PrefixNoise, "draw", lambda _, *given: coupled.draw(*given))
        patch.setattr(binding, "draw_cells", coupled.draw_cells)
        patch.setattr(scale_free, "draw_noise", coupled.draw_noise)
        yield


def public(sums: Any) -> Any:
    measured = [(each.level, each.steps.tolist(), each.noise) for each in sums.measured]
    plain = sums.edges.tolist(), sums.nodes, sums.quantities, sums.rows, sums.every, sums.time_zone
    tails = {name: [*map(str, vars(tail).values())] for name, tail in sums.tails.items()}
    return measured, plain, tails, sums.guarantee


def cost(
    release: Callable[[list[tuple]], Any], rows: list[tuple], adjacent: list[tuple], monkeypatch: pytest.MonkeyPatch
) -> float:
    """Cost of the coupling; an assertion if anything public differs."""
    coupled, sides = Coupled(), []

    def choices(chooser: Any, key: Any, count: int) -> np.ndarray:
        if coupled.again:
            # Of a unit's rows, those that are on this side of 0.
            coupled.winner, before = sides.pop(0)
            coupled.shift = chooser.sensitivity * abs(int(before.sum() - chooser.counts[1:].sum()))
        thetas = CHOICES(chooser, key, count)
        if not coupled.again:
            place = int(np.argmin(np.abs(chooser.candidates * chooser._task.resolution - thetas[0])))
            sides.append((chooser.candidates.size - 1 - place, chooser.counts[1:].copy()))
        return thetas

    monkeypatch.setattr(scale_free._ScaleFreeChooser, "choices", choices)
    with noise_of(coupled, monkeypatch):
        here = public(release(rows))
        coupled.repeat()
        there = public(release(adjacent))
    assert here == there
    return float(coupled.cost)


def releasing(kind: str, **options: Any) -> Callable[[list[tuple]], Any]:
    value = () if kind == "counts" else ("kwh",)
    given = {"epsilon": 0.7, "by": "meter", "keys": ["a", "b", "c"], "seed": 1, **END} | options
    return lambda rows: getattr(flat, kind)(as_family(rows, "pyarrow", Path()), *value, "at", "3h", **given).released


@pytest.mark.parametrize("row", [0, 7, 150])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("counts", {}),
        ("totals", {"clip": 2.5}),
        ("totals", {"bound": 2.5}),
        ("totals", {"bound": (-1.0, 2.5)}),
        ("means", {"clip": 2.5}),
        ("means", {"bound": 2.5}),
        ("counts", {"keys": None, "delta": 1e-3, "epsilon": 20.0}),
        ("totals", {"keys": None, "delta": 1e-3, "epsilon": 20.0, "bound": 2.5}),
    ],
)
def test_one_row(kind: str, options: dict[str, Any], row: int, monkeypatch: pytest.MonkeyPatch) -> None:
    release, epsilon = releasing(kind, **options), options.get("epsilon", 0.7)
    alone = ROWS[:row] + ROWS[row + 1 :]
    for here, there in ((ROWS, alone), (alone, ROWS)):
        assert cost(release, here, there, monkeypatch) <= epsilon * (1 + 1e-9)
    # Two rows are two units.
    twice = cost(releasing("counts"), ROWS, ROWS[2:], monkeypatch)
    assert twice == pytest.approx(sum(row[1] in "abc" for row in ROWS[:2]) * 0.7)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("counts", {}),
        ("counts", {"per_window": 1}),
        ("totals", {"bound": 2.5}),
        ("means", {"clip": 2.5}),
        # For so few rows keys have Laplace noise.
        ("counts", {"keys": None, "delta": 1e-3, "epsilon": 40.0, "contributions": 1}),
    ],
)
@pytest.mark.parametrize("period", [None, "1d", "36h"])
def test_all_rows_of_one_person(
    kind: str, options: dict[str, Any], period: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"who": "person", "contributions": 4, "period": period} | options
    release = releasing(kind, **given)
    length = {None: 10**6, "1d": 24, "36h": 36}[period]
    origin = np.datetime64("1970-01-01T00")

    def period_of(at: Any) -> int:
        return int((np.datetime64(at) - origin) // np.timedelta64(length, "h"))

    most = 0.0
    for person in range(4):
        span = period_of(next(row[0] for row in ROWS if row[3] == person))
        alone = [row for row in ROWS if row[3] != person or period_of(row[0]) != span]
        most = max(most, cost(release, ROWS, alone, monkeypatch))
    epsilon = options.get("epsilon", 0.7)
    assert 0.2 * epsilon < most <= epsilon * (1 + 1e-9)


def test_rare_keys_are_not_released() -> None:
    rows = [(ROWS[0][0], "rare", 1.0, 0), *[(row[0], "often", *row[2:]) for row in ROWS]]
    release = releasing("counts", keys=None, delta=1e-9, epsilon=3.0)
    assert release(rows).keys == {"meter": ["often"]}
    assert release(rows).guarantee.delta == 1e-9
    assert releasing("counts", keys=None, delta=1e-9, epsilon=0.01)(rows).cells("count").shape == (32, 0)


def test_altered_rows_meet_other_noise() -> None:
    """The same secret and parameters: noise differs where a sum differs, and nowhere else."""
    release = releasing("counts", epsilon=0.01)
    here = release(ROWS).cells("count").ravel()
    last = max(row for row in ROWS if row[1] == "b")
    there = release([row for row in ROWS if row != last]).cells("count").ravel()
    (differ,) = np.flatnonzero(here != there)
    assert abs(here[differ] - there[differ]) > 1
    assert np.array_equal(here, release(ROWS[::-1]).cells("count").ravel())


def test_every_part_of_epsilon_is_composed() -> None:
    options: dict[str, Any] = {"bound": 2.5, "keys": None, "delta": 1e-6, "who": "person", "contributions": 30}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        guarantee = releasing("means", **options)(ROWS).guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.arithmetic) == (0.7, 1e-6, "exact")
    parts = [line.split(" (epsilon = ") for line in guarantee.derivation if " (epsilon = " in line]
    of = " of 'kwh'"
    assert [name for name, _ in parts] == [
        "sums",
        "sums",
        f"rows{of}",
        f"clip{of}",
        "keys",
        f"tail{of}",
        "counted",
        "dropped",
    ]
    spent = sum(float(line.split(",")[0].split(")")[0]) for _, line in parts)
    assert spent == pytest.approx(0.7, rel=1e-4)
    assert "one person" in str(guarantee)


def test_the_chosen_clip_is_near_the_best() -> None:
    """On a long tail: at most a third above the least error of sums of five hours, between one and a day of them."""
    import pyarrow as pa

    generator = np.random.default_rng(3)
    values = generator.lognormal(0.0, 1.0, 120_000)
    hours = np.repeat(np.arange(1200), 100)
    table = pa.table({"at": np.datetime64("2024-01-01", "s") + hours.astype("timedelta64[h]"), "kwh": values})
    sums_of = values.reshape(240, 500)

    def error(theta: float) -> float:
        return 5 * 2 * theta**2 + float(np.mean(np.maximum(sums_of - theta, 0.0).sum(axis=1) ** 2))

    best = min(error(theta) for theta in np.geomspace(0.1, 100.0, 100))
    for bound in (60.0, 1e6):
        sums = flat.totals(table, "kwh", "at", "1h", epsilon=1.0, bound=bound, seed=2).released
        assert flat.clip(sums) is not None
        assert error(flat.clip(sums)[1]) < 1.33 * best
        # As small a share as a good choice needs, beside those for rows beyond the clip and for all rows.
        assert float(flat.noise(sums, "total").scale) * sums.quantities[0].resolution < 1.27 * flat.clip(sums)[1]


def test_a_replaced_value_costs_epsilon_of_totals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guarantee claims it for totals; of means it moves the deviations by two sensitivities."""
    at = ROWS[0][0]
    here, there = ([(at, "a", value, 0), *ROWS[1:]] for value in (0.0, 2.5))
    claimed = {}
    for kind in ("totals", "means"):
        release = releasing(kind, clip=2.5)
        loss = cost(release, here, there, monkeypatch)
        claimed[kind] = any("replacing the values" in line for line in release(ROWS).guarantee.derivation)
        assert claimed[kind] == (loss <= 0.7 * (1 + 1e-9))
    assert claimed == {"totals": True, "means": False}


def test_choices_with_other_scales_share_no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows and secret, windows that end later: other scales of the clip's choice, so other keys."""
    drawn, real = {}, scale_free.draw_noise

    def draw_noise(distribution: LaplaceDistribution, count: int, candidates: int, key: Any) -> np.ndarray:
        drawn[distribution.scale] = key.fingerprint()
        return real(distribution, count, candidates, key)

    monkeypatch.setattr(scale_free, "draw_noise", draw_noise)
    rows = random_rows(20_000, 3)
    for stop in ("2024-04-02", "2024-05-02"):
        releasing("totals", bound=1e3, stop=stop)(rows)
    assert len(drawn) == 2
    assert len(set(drawn.values())) == 2


@pytest.mark.parametrize("columns", [1, 2])
def test_rows_of_equal_keys_are_counted_together(columns: int) -> None:
    """NaN, and zeros of two signs, which Arrow counts apart: one row changes the counts by one, wherever it is."""
    import pyarrow as pa

    def counted(*batches: list[float | None]) -> dict[Any, int]:
        keys, codes = Keys(["k"] * columns), []
        for batch in batches:
            codes += keys.codes([pa.array(batch, pa.float64())] * columns).tolist()
        chosen, place = keys.chosen(np.ones(keys.size, bool))
        return dict(zip(chosen.columns()["k"], np.bincount(place[codes]).tolist(), strict=True))

    nan = float("nan")
    whole = counted([-0.0, 0.0, *[-0.0] * 5, nan, None], [nan, nan, 1.0])
    fewer = counted([0.0, *[-0.0] * 5, nan, None], [nan, nan, 1.0])
    assert list(map(str, whole)) in (["0.0", "1.0", "nan", "None"], ["-0.0", "1.0", "nan", "None"])
    assert list(whole.values()) == [7, 1, 3, 1]
    assert list(fewer.values()) == [6, 1, 3, 1]
    given = Keys(["k"] * columns, [(each,) * columns for each in (0.0, 1.0, nan, None)])
    column = pa.array([-0.0, 0.0, nan, None, 1.0, 2.0], pa.float64())
    assert given.codes([column] * columns).tolist() == [0, 0, 2, 3, 1, -1]
    # The digest of a key is that of its entries, wherever it stands.
    other = Keys(["k"] * columns, [(None,) * columns, (1.0,) * columns])
    assert np.array_equal(other.digests()[[1, 0]], given.digests()[[1, 3]])
