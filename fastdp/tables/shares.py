"""Shares of the budget, the noise that each buys, and steps of the grids, from a plan.

Shares are of epsilon, or of rho with Gaussian noise.  First come :data:`OF_ALL`; columns, and the rows ("*"), divide
the rest by weight; in a column come :data:`OF_COLUMN`, then its sums and counts, equally.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

from fastdp.errors import ParameterError
from fastdp.guarantee import zcdp_loss
from fastdp.integer_grid import make_grid
from fastdp.noise.sampler import (
    Distribution,
    NoiseName,
    geometric_distribution,
    l2_square,
    laplace_distribution,
    noise_distribution,
)
from fastdp.notebook import as_html, as_text
from fastdp.tables import consistent, reach
from fastdp.tables.calendar_basis import BITS, Basis
from fastdp.tables.consistent import Level
from fastdp.tables.keys import MOST_KEYS, KeyRule, count_rule, shared_weight_rule, weight_rule
from fastdp.tables.plan import Clips, TablePlan
from fastdp.tables.quantities import COUNTS, NEW, ROWS, Quantity
from fastdp.tables.sizes import Noise
from fastdp.tables.statistics import ranks_of
from fastdp.units import MOST_DROPPED
from fastdp.validation import DAY, refusal

#: Shares of the total: persons' rows that count, and that are dropped; rows of other keys, if those that are released
#: have the counts that chose them; the choice of a person's rows ("auto").  That of private keys is
#: ``PrivateKeys.share``.
OF_ALL = {
    "counted": Fraction(1, 100),
    "dropped": Fraction(1, 20),
    "others": Fraction(1, 20),
    "auto": Fraction(1, 50),
}
#: Shares of a column's budget: rows by size, which choose the clips, and the sum beyond the body; sums have the rest.
OF_COLUMN = {"sizes": Fraction(3, 20), "tail": Fraction(1, 20)}
#: Share of a column's, or the rows', budget for the norm that a calendar leaves of their sums.
RESIDUAL = Fraction(1, 10)
#: The first where the clip is known publicly; the second is then spent on the sums.
SIZES_OF_KNOWN = Fraction(1, 100)
#: Weight of the rows beside a column's where they are counted for means alone, with Laplace and with Gaussian noise:
#: of one mean the deviations then have .6 of epsilon, or .65 of rho, near the best for means from 0 to .3 theta.
ROWS_OF_MEANS = {"laplace": Fraction(2, 3), "gaussian": Fraction(7, 13)}
#: Parts of a quantile in one sum's share: the table's counts, cells' bins, excesses.
OF_QUANTILES = {"table": Fraction(2, 25), "histogram": Fraction(23, 50), "excess": Fraction(23, 50)}
#: The same of reach: the whole, and keys.
OF_REACH = {"reach": Fraction(1, 3), "key reach": Fraction(2, 3)}
#: Share of the budget that the choice of keys and of a person's rows leave, at least.
LEFT = Fraction(1, 20)
#: Share of the cells by which the noise is chosen before the table is read, if levels are asked for.
CELLS_SHARE = Fraction(1, 2)
#: The clip of windows shorter than the first is chosen for sums over as many as fill it, and so on.
SPANS = (DAY, 7 * DAY, 365 * DAY)
#: Bits of the largest square of a deviation, in steps of a square's resolution, for up to :data:`FINE_ROWS` rows of a
#: unit; of more rows the noise, which grows with them, needs no finer steps, and must fit.
SQUARE_BITS, FINE_ROWS = 32, 32
#: Least length of a clip: errors of variances take its fourth power.
LEAST_END = 1e-65
#: Counts of a choice stay below this, so that its scores fit; more rows count as so many.
MAX_ROWS = 2**39
#: Parts of a person's weight by size, which their rows share: doubles hold those of 2^27 persons.
WEIGHT = 2**26
#: Integer weight of one count in a score, and the most that a candidate's size takes off.
UNIT, MAX_PENALTY = 2**10, 2.0**61
#: Where clips are known.
NO_NOISE = Noise(0.0, 0.0, 0.0, 0.0)
#: Heads of the printed table.
HEADS = ("purpose", "of", "level", "loss", "share", "a unit moves")


class Line(NamedTuple):
    """A released choice, number or vector: loss, and sensitivities moved."""

    purpose: str
    column: str
    quantity: Quantity | None
    #: None: all levels together, whose shares follow from numbers of windows and keys.
    level: Level | None
    loss: float
    moved: int


@dataclass(frozen=True)
class ColumnTask:
    """Public numbers for the choices about one column.

    ``ends``: of the sizes; ``weighs``: with persons; ``sizes``: loss of rows by size; ``noise``, ``errors``: kind and
    deviations; ``cells``, ``together``: windows and keys, and windows in usual sums.
    """

    column: str
    ends: tuple[float, float]
    contributions: int
    weighs: bool
    sizes: float
    noise: NoiseName
    errors: Noise
    cells: int
    together: float
    grid: float

    @property
    def parts(self) -> int:
        return WEIGHT if self.weighs else 1

    @property
    def least(self) -> float:
        """No clip lies below both ends of the bound."""
        low, high = self.ends
        return 1.5 * max(low, -high, 0.0)


@dataclass(frozen=True, eq=False)
class Shares:
    """Every number of a release's budget; ``print`` shows :attr:`lines` as a table.

    A loss is epsilon, or x with rho = x^2 / 2 of Gaussian noise.
    """

    plan: TablePlan
    #: Of the whole; delta of the choice of keys, and of Gaussian noise (with persons' keys; 0 for Laplace).
    loss: float
    key_delta: float
    noise_delta: float
    #: Share of each level of a sum's budget, the cells' first; and if they follow from public numbers.
    levels: Mapping[Level, Fraction]
    knows_levels: bool
    #: Losses of helpers: (one of :data:`OF_ALL`, "*"), (one of :data:`OF_COLUMN`, column).
    helpers: Mapping[tuple[str, str], float]
    #: Losses of sums and counts by quantity, column and level (None: all).
    losses: Mapping[tuple[str, str, Level | None], float]
    #: Sensitivities by which a unit moves a vector, in each window or in all: squared L2 norm for Gaussian, else L1.
    moves: Mapping[bool, int]
    #: By column: steps of its values; deviations of noise a unit of length.
    grids: Mapping[str, float]
    errors: Mapping[str, Noise]

    def settled(self, first: int, last: int, *nodes: int) -> Shares:
        """Those of :meth:`TablePlan.settled`."""
        plan = self.plan.settled(first, last, *nodes)
        return replace(self, plan=plan) if self.knows_levels else shares_of(plan)

    @property
    def gaussian(self) -> bool:
        return self.plan.noise == "gaussian"

    @cached_property
    def cells(self) -> Level:
        return next(iter(self.levels))

    def level_of(self, quantity: Quantity) -> Level:
        return Level(0, True) if quantity.name == "reach" else self.cells

    def helper(self, purpose: str, column: str = ROWS) -> float:
        """Loss of a helper; 0 if there is none."""
        return self.helpers.get((purpose, column), 0.0)

    def loss_of(self, quantity: Quantity, level: Level | None) -> float:
        return self.losses[quantity.name, quantity.column, level]

    def moved(self, quantity: Quantity, each: bool) -> int:
        if quantity.name in NEW:
            return reach.moved_by(self.plan, quantity.name, squares=self.gaussian)
        return self.moves[each and quantity.name != "table"] * quantity.layers

    def moved_by(self, purpose: str) -> int:
        """Most by which a unit moves a helper (the tail: in lengths)."""
        k = self.plan.contributions
        if purpose == "sizes" and self.plan.who is not None:
            return WEIGHT
        if purpose == "residual":
            return 1 + math.isqrt(l2_square(k, self.plan.per_window) - 1)
        return MOST_DROPPED * k if purpose == "dropped" else k

    def distribution(self, quantity: Quantity, level: Level) -> Distribution:
        moved = self.moved(quantity, level.each)
        return noise_distribution(self.plan.noise, quantity.sensitivity, moved, self.loss_of(quantity, level))

    @cached_property
    def quantities(self) -> list[Quantity]:
        return self.quantities_at({})

    def quantities_at(self, clips: Clips) -> list[Quantity]:
        """Sums, the rows, and counts at these clips, in noise's order."""
        plan, sums, counts = self.plan, list[Quantity](), list[Quantity]()
        for column in plan.columns:
            names, sums_of = plan.parts[column.name], plan.outcome(column.name)[0]
            ranks = ranks_of(plan.statistics, column.name)
            counts += [
                Quantity(name, column.name, *column.ends, ranks=ranks if name == "excess" else ())
                for name in names
                if name in COUNTS and name not in NEW
            ]
            counts += [Quantity(name, column.name, counter=reach.counter_of(plan)) for name in names if name in NEW]
            grid = self.grids.get(column.name)
            if grid is None or not sums_of:
                continue
            low, high = (_steps(end, grid) for end in clips.get(column.name, column.ends))
            # A chosen clip may be narrower than a step.
            high = max(high, low + 1)
            middle = (low + high) // 2
            shift = max(0, 2 * max(high - middle, middle - low).bit_length() - square_bits(plan))
            steps = {"total": (0, grid), "deviation": (middle, grid), "square": (middle, grid**2 * 2.0**shift)}
            sums += [
                Quantity(name, column.name, low, high, steps[name][0], grid, steps[name][1])
                for name in names
                if name in steps
            ]
        return [*sums, *([Quantity("count")] if plan.counts_rows else []), *counts]

    def log_variance(self) -> float:
        """Sum of logarithms of cells' variances in sensitivities."""
        deviations = (_deviation(self.moved(each, True), gaussian=self.gaussian) for each in self.quantities)
        losses = (self.loss_of(each, self.cells) for each in self.quantities)
        return sum(2.0 * math.log(deviation / loss) for deviation, loss in zip(deviations, losses, strict=True))

    def task(self, column: str) -> ColumnTask:
        plan, own = self.plan, self.plan.column(column)
        facts = own.bound or own.ends, plan.contributions, plan.who is not None, self.helper("sizes", column)
        return ColumnTask(
            column,
            *facts,
            plan.noise,
            self.errors.get(column, NO_NOISE),
            max(1, plan.cells or 1),
            _together(plan),
            self.grids[column],
        )

    def key_rule(self) -> KeyRule:
        """Noise and threshold that choose keys, all at once."""
        plan = self.plan
        if plan.who is None or plan.selects_cells:
            distribution: Distribution
            if plan.selects_cells:
                distribution = self.distribution(Quantity("count"), self.cells)
            else:
                distribution = laplace_distribution(Fraction(plan.contributions) / Fraction(self.helper("keys")))
            return count_rule(distribution, plan.contributions, self.key_delta)
        most = min(plan.contributions, MOST_KEYS)
        if self.gaussian:
            return shared_weight_rule(self.loss, self.helper("keys"), plan.epsilon, plan.delta, most)
        return weight_rule(self.helper("keys"), plan.delta, most)

    # Refusals before any row is read.

    def check_sums(self) -> None:
        """ParameterError for a sum's noise that cannot be drawn."""
        for quantity, level in itertools.product(self.quantities, self.levels):
            # Squares within a narrower clip may take all their bits.
            most = 2 ** square_bits(self.plan) if quantity.name == "square" else quantity.sensitivity
            moved = self.moved(quantity, level.each)
            noise_distribution(self.plan.noise, most, moved, self.loss_of(quantity, level))

    def check_helpers(self) -> None:
        """ParameterError for a helper's noise that cannot be drawn."""
        plan = self.plan
        try:
            for (purpose, column), loss in self.helpers.items():
                if purpose == "auto":
                    geometric_distribution(UNIT / Fraction(loss))
                elif purpose == "tail":
                    low, high = plan.column(column).ends
                    longest = _steps(max(-low, high), self.grids[column])
                    noise_distribution(plan.noise, plan.contributions * longest, 1, loss)
                elif purpose != "keys":
                    noise_distribution(plan.noise, self.moved_by(purpose), 1, loss)
        except ParameterError as error:
            accepted = f"shares that buy noise that can be drawn ({error})"
            raise refusal("epsilon", plan.epsilon, accepted) from None

    # The table.

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """All that is released: sums by level, counts, helpers."""
        plan, found = self.plan, list[Line]()
        for level in self.levels if self.knows_levels else [None]:
            for q in (each for each in self.quantities if not each.counts):
                moved = self.moved(q, level is None or level.each)
                found.append(Line("sums", q.column, q, level, self.loss_of(q, level), moved))
        for q in (each for each in self.quantities if each.counts):
            level = self.level_of(q)
            found.append(Line("counts", q.column, q, level, self.loss_of(q, level), self.moved(q, True)))
        of_columns = [(purpose, column.name) for column in plan.columns for purpose in OF_COLUMN]
        of_columns += [each for each in self.helpers if each[0] == "residual"]
        for purpose, column in [*of_columns, ("keys", ROWS), *((purpose, ROWS) for purpose in OF_ALL)]:
            loss = self.helper(purpose, column)
            if purpose == "keys" and plan.key_rule == "private":
                found.append(Line("keys", ROWS, None, None, loss, plan.contributions))
            elif purpose != "keys" and loss and not plan.online:
                # Weights are shown as one for each person.
                moved = 1 if purpose == "sizes" and plan.who is not None else self.moved_by(purpose)
                found.append(Line(purpose, column, None, None, loss, moved))
        return tuple(found)

    def share(self, line: Line) -> float:
        return (line.loss / self.loss) ** (2 if self.gaussian else 1)

    def __getitem__(self, purpose: str) -> float:
        """Share of a purpose, such as "sums" or "keys"; else KeyError."""
        found = [self.share(line) for line in self.lines if line.purpose == purpose]
        if not found:
            raise KeyError(f"{purpose!r}: expected one of {', '.join(self.keys())}")
        return sum(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        return list(dict.fromkeys(line.purpose for line in self.lines))

    @property
    def rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = []
        for line in self.lines:
            of = line.column if line.quantity is None else f"{line.quantity.name} of {line.column}"
            level = "" if line.quantity is None else "all levels"
            if line.level is not None:
                keys = f"{line.level.depth} key columns, " if self.plan.by else ""
                level = f"{keys}{'each window' if line.level.each else 'all windows'}"
            # All in sensitivities: the L2 norm of Gaussian sums and counts, not its square.
            moved = math.sqrt(line.moved) if self.gaussian and line.quantity is not None else line.moved
            if self.plan.basis is not None and line.quantity is not None:
                level, moved = f"{self.plan.basis}", moved / 2**BITS
            numbers = f"{line.loss:.5g}", f"{self.share(line):.3f}", f"{moved:.5g}"
            rows.append((line.purpose, of, level, *numbers))
        return rows

    def __str__(self) -> str:
        return as_text([HEADS, *self.rows])

    def _repr_html_(self) -> str:
        return as_html(f"Shares of {'rho' if self.gaussian else 'epsilon'}", HEADS, self.rows)


def shares_of(plan: TablePlan) -> Shares:
    """All numbers of a plan; ParameterError if keys take nearly all."""
    gaussian = plan.noise == "gaussian"
    key_delta, noise_delta = deltas_of(plan)
    loss = _zcdp_loss(plan.epsilon, noise_delta) if gaussian else plan.epsilon
    # Amounts of epsilon, or of twice rho, add up; a loss is the amount or its root.
    whole, k, power = Fraction(loss) ** (2 if gaussian else 1), plan.contributions, 2 if gaussian else 1
    used = {
        "counted": plan.bounds_rows,
        "dropped": plan.bounds_rows and not plan.keeps_all,
        "others": plan.has_others and plan.selects_cells,
        "auto": plan.chooses_rows,
    }
    of_all = {name: share for name, share in OF_ALL.items() if used[name]}
    if plan.private is not None and not plan.selects_cells:
        of_all["keys"] = Fraction(plan.key_share)
    left = 1 - sum(of_all.values())
    if left < LEFT:
        raise refusal("share", plan.key_share if plan.private else 1.0, "at most .9 for keys")
    weights = {column.name: Fraction(column.weight) for column in plan.columns}
    if plan.counts_rows:
        asked = any(each.column == ROWS for each in plan.statistics)
        weights[ROWS] = Fraction(1) if asked else ROWS_OF_MEANS[plan.noise]
    weight = sum(weights.values())
    of_columns = {name: whole * (left * each / weight) for name, each in weights.items()}
    helpers = {(name, ROWS): _loss(whole * share, power) for name, share in of_all.items()}
    summed = plan.summed
    rest, whole_of = dict(of_columns), dict(of_columns)
    for name in of_columns if plan.basis is not None else ():
        if name == ROWS or plan.outcome(name)[0]:
            helpers["residual", name] = _loss(of_columns[name] * RESIDUAL, power)
            rest[name] = whole_of[name] = of_columns[name] * (1 - RESIDUAL)
    for column in summed:
        name, (cells_have, has_tail) = column.name, plan.outcome(column.name)
        sizes = _loss(of_columns[name] * (OF_COLUMN["sizes"] if column.chooses else SIZES_OF_KNOWN), power)
        helpers["sizes", name] = sizes
        whole_of[name] = rest[name] = rest[name] - Fraction(sizes) ** power
        if not column.chooses:
            continue
        rest[name] -= of_columns[name] * OF_COLUMN["tail"]
        if has_tail:
            # Where cells have no sums, the one number has their shares.
            given = whole_of[name] - rest[name]
            given += 0 if cells_have else rest[name] * _of_sums(plan.parts[name])
            helpers["tail", name] = _loss(given, power)
        else:
            rest[name] = whole_of[name]
    levels, knows_levels = _levels(plan, gaussian=gaussian)
    losses: dict[tuple[str, str, Level | None], float] = {}
    for name, amount in rest.items():
        for part, own in _within(plan.parts[name]).items():
            each = amount * own
            if not knows_levels:
                losses[part, name, None] = _loss(each, power)
            # Cells alone have counts, or the whole.
            for level, share in {Level(0, True): Fraction(1), **levels}.items():
                losses[part, name, level] = _loss(each * (1 if part in COUNTS else share), power)
    moves = {each: k if not gaussian else l2_square(k, plan.per_window if each else None) for each in (True, False)}
    moved, window = float(k), 1.0
    if plan.basis is not None:
        moves[True] = moved_by_calendar(plan, plan.basis, gaussian=gaussian)
        moved, window = math.sqrt(moves[True]) if gaussian else moves[True], plan.basis.window
    cells, grids, errors = next(iter(levels)), dict[str, float](), dict[str, Noise]()
    for column in summed:
        name, first = column.name, plan.parts[column.name][0]
        own = _within(plan.parts[name])[first] * levels[cells]
        # Of the share that a body has beside a tail, whatever was chosen.
        less = of_columns[name] * OF_COLUMN["tail"] if column.chooses else Fraction(0)
        body, alone = (_loss(amount * own, power) for amount in (whole_of[name] - less, whole_of[name]))
        # Noise of the bound itself fits; that of a smaller clip does too.
        most = max(abs(column.low), abs(column.high))
        if not LEAST_END <= most <= 1.0 / LEAST_END:
            doubles = "as doubles hold the errors of these"
            raise refusal("bounds", most, f"the larger end from {LEAST_END:g} to {1.0 / LEAST_END:g}, {doubles}")
        # Numbers of a calendar hold the sums of all windows, times its longest entry.
        rows = 1 if plan.basis is None else max(MAX_ROWS, plan.most_counted * plan.basis.longest)
        grids[name] = make_grid(most, column.resolution, body / moved, rows, 1, 2).resolution
        if column.chooses:
            both = less + (whole_of[name] - less) * _of_sums(plan.parts[name])
            tail, one = _loss(less, power), _loss(both, power)
            # Deviations from the middle are half as long, if values have one sign.
            length = 0.5 if first == "deviation" and column.low * column.high >= 0.0 else 1.0
            cell = length * window * _deviation(moves[True], gaussian=gaussian)
            number = k if gaussian else k * math.sqrt(2.0)
            errors[name] = Noise(cell / body, cell / alone, number / tail, number / one)
    return Shares(plan, loss, key_delta, noise_delta, levels, knows_levels, helpers, losses, moves, grids, errors)


def moved_by_calendar(plan: TablePlan, basis: Basis, *, gaussian: bool) -> int:
    """Most by which a unit moves a calendar's numbers."""
    k, keys = plan.contributions, (plan.nodes or (1,))[-1]
    return basis.moved(l2_square(k, plan.per_window), min(k, keys, plan.unit.keys or keys), gaussian=gaussian)


@lru_cache(maxsize=256)
def _within(parts: tuple[str, ...]) -> Mapping[str, Fraction]:
    found = {part: (OF_QUANTILES | OF_REACH).get(part, Fraction(1)) for part in parts}
    whole = sum(found.values())
    return {part: own / whole for part, own in found.items()}


def _of_sums(parts: tuple[str, ...]) -> Fraction:
    return sum((own for part, own in _within(parts).items() if part not in COUNTS), Fraction(0))


def with_noise(plan: TablePlan) -> Shares:
    """Shares of the plan with the noise of less variance."""
    laplace = shares_of(plan)
    if not plan.delta:
        return laplace
    gaussian = shares_of(replace(plan, noise="gaussian"))
    if gaussian.log_variance() < laplace.log_variance():
        return gaussian
    # Laplace noise of sums needs no delta; keys that are chosen do.
    return laplace if plan.key_rule == "private" else shares_of(replace(plan, delta=0.0))


def deltas_of(plan: TablePlan) -> tuple[float, float]:
    """Deltas of the choice of keys and of Gaussian noise."""
    gaussian = plan.noise == "gaussian"
    # Keys by persons' weights and Gaussian sums are proved together, for all of delta.
    weighed = plan.who is not None and not plan.selects_cells
    if plan.key_rule != "private" or (gaussian and weighed and not plan.online):
        return 0.0, plan.delta if gaussian else 0.0
    return (plan.delta / 2.0, plan.delta / 2.0) if gaussian else (plan.delta, 0.0)


def square_bits(plan: TablePlan) -> int:
    """Most bits of the square of a deviation."""
    return SQUARE_BITS - max(0, (plan.contributions // FINE_ROWS).bit_length())


@lru_cache(maxsize=256)
def _zcdp_loss(epsilon: float, delta: float) -> float:
    return zcdp_loss(epsilon, delta)


def _loss(amount: Fraction, power: int) -> float:
    """Largest float whose power does not exceed an amount."""
    # In integers, which cost a tenth of fractions.
    top, bottom = amount.numerator, amount.denominator
    found = math.sqrt(top / bottom) if power == 2 else top / bottom
    while _over(*found.as_integer_ratio(), power, top, bottom):
        found = math.nextafter(found, 0.0)
    return found


def _over(numerator: int, denominator: int, power: int, top: int, bottom: int) -> bool:
    return bool(numerator**power * bottom > top * denominator**power)


def _deviation(moved: int, *, gaussian: bool) -> float:
    return math.sqrt(moved) if gaussian else math.sqrt(2.0) * moved


def _levels(plan: TablePlan, *, gaussian: bool) -> tuple[Mapping[Level, Fraction], bool]:
    """Share of each level, cells first; False if not known yet."""
    cells = Level(len(plan.by), True)
    if plan.levels is False or plan.online or plan.selects_cells or not (plan.by or plan.calendar):
        return {cells: Fraction(1)}, True
    if len(plan.nodes or ()) <= len(plan.by):
        return {cells: CELLS_SHARE if plan.levels else Fraction(1)}, False
    windows = (plan.stop or 0) - (plan.start or 0)
    return consistent.level_shares(windows, plan.nodes or (), plan.levels, gaussian=gaussian), True


def _together(plan: TablePlan) -> float:
    """Windows in the sums that the clip is chosen for."""
    if plan.calendar is None:
        return 1.0
    length = plan.calendar.edge(1) - plan.calendar.edge(0)
    span = next((span for span in SPANS if length < span), length)
    return max(1.0, min(span / length, (plan.stop or 0) - (plan.start or 0)))


def _steps(value: float, grid: float) -> int:
    """A bound in steps, rounded towards 0, at least 1 unless 0."""
    top, bottom = abs(value).as_integer_ratio()
    steps, step = grid.as_integer_ratio()
    top, bottom = top * step, bottom * steps
    down, rest = divmod(top, bottom)
    near = down + (2 * rest > bottom)
    whole = near if abs(top - near * bottom) << 52 <= near * bottom else down
    return (1 if value >= 0 else -1) * (max(1, whole) if top else 0)
