"""Budget of a release of a table: shares, the noise that each buys, and the guarantee.

Shares are of epsilon, or of rho with Gaussian noise.  First come :data:`OF_ALL`; columns, with the rows ("*") as one,
divide the rest by weight; of a column's first come :data:`OF_COLUMN`, then its sums and counts, equally.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from fastdp.errors import ParameterError
from fastdp.guarantee import Guarantee, parallel, sequential, zcdp_loss
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.sampler import (
    Distribution,
    concentrated,
    geometric_distribution,
    l2_square,
    laplace_distribution,
    noise_distribution,
)
from fastdp.tables import consistent
from fastdp.tables.choices import MAX_ROWS, MOST_DROPPED, UNIT, WEIGHT, ColumnTask
from fastdp.tables.consistent import Level
from fastdp.tables.keys import MOST_KEYS, KeyRule, count_rule, shared_weight_rule, weight_rule
from fastdp.tables.quantities import ROWS, Quantity
from fastdp.thresholds.base import score_unit
from fastdp.units import UnitRows
from fastdp.validation import DAY, refusal

if TYPE_CHECKING:
    from fastdp.tables.plan import TablePlan

#: Shares of the total: rows that count, persons' rows that are dropped, the choice of a person's rows ("auto"), and
#: rows of other keys where those that are released have the counts that chose them.  That of private keys is
#: ``PrivateKeys.share``.
OF_ALL = {
    "counted": Fraction(1, 100),
    "dropped": Fraction(3, 100),
    "others": Fraction(1, 20),
    "auto": Fraction(1, 50),
}
#: Shares of a column's budget: rows above the lowest candidates of the clip, its choice, rows in bins beyond it.  All
#: helpers together take at most a quarter.
OF_COLUMN = {"rows": Fraction(1, 200), "clip": Fraction(15, 200), "tail": Fraction(8, 100)}
#: Derivations of these helpers, for k rows of a unit, or dropped ones, and those without noise of the plan's kind.
STEPS = {
    "rows": "how many rows lie beyond the lowest candidates: sensitivity {k}, discrete Laplace noise",
    "clip": "noisy max on either side of 0, counts of rows beyond candidates: monotone, {k} rows in all; a clip that "
    "released numbers do not resolve gives way to the bound",
    "tail": "rows in bins beyond the clip, past the bound and within the clip: {k} rows change them by {k} in all",
    "counted": "rows that count: sensitivity {k}",
    "dropped": "rows that the bound drops, at most {most} of a person: sensitivity {most}",
    "others": "rows of keys that are not released, after these are chosen: sensitivity {k}",
    "auto": "a person's rows: noisy max over numbers of persons with more, monotone, sensitivity 1",
}
PURE = ("rows", "clip", "auto")
#: The last where the clip is known publicly.
TAIL_OF_KNOWN = Fraction(1, 100)
#: Weight of the rows beside a column's where they are counted for means alone, with Laplace and with Gaussian noise:
#: of one mean the deviations then have .6 of epsilon, or .65 of rho, near the best for means from 0 to .3 theta.
ROWS_OF_MEANS = {"laplace": Fraction(2, 3), "gaussian": Fraction(7, 13)}
#: Share of the cells by which the noise is chosen before the table is read, if levels are asked for.
CELLS_SHARE = Fraction(1, 2)
#: The clip of windows shorter than the first is chosen for sums over as many as fill it, and so on.
SPANS = (DAY, 7 * DAY, 365 * DAY)


@dataclass(frozen=True, eq=False)
class Budget:
    """Shares of a plan's budget: amounts of epsilon or of twice rho; a loss is the amount or its root."""

    plan: TablePlan

    @property
    def gaussian(self) -> bool:
        return self.plan.noise == "gaussian"

    @property
    def key_delta(self) -> float:
        plan = self.plan
        if plan.key_rule != "private" or (self.gaussian and plan.who is not None and not plan.online):
            return 0.0
        return plan.delta / 2.0 if self.gaussian else plan.delta

    @property
    def noise_delta(self) -> float:
        """Delta of Gaussian noise, with the choice of persons' keys; 0 for Laplace."""
        return self.plan.delta - self.key_delta if self.gaussian else 0.0

    @cached_property
    def loss(self) -> float:
        return zcdp_loss(self.plan.epsilon, self.noise_delta) if self.gaussian else self.plan.epsilon

    def _amount(self, loss: float) -> Fraction:
        return Fraction(loss) ** 2 if self.gaussian else Fraction(loss)

    def _loss(self, amount: Fraction) -> float:
        found = math.sqrt(amount) if self.gaussian else float(amount)
        while self._amount(found) > amount:
            found = math.nextafter(found, 0.0)
        return found

    # Helpers.

    @cached_property
    def of_all(self) -> dict[str, Fraction]:
        plan = self.plan
        persons, others = plan.who is not None, plan.has_others and plan.selects_cells
        used = persons or bool(plan.columns), persons, others, plan.chooses_rows
        found = {name: share for (name, share), wanted in zip(OF_ALL.items(), used, strict=True) if wanted}
        if plan.private is not None and not plan.selects_cells:
            found["keys"] = Fraction(plan.private.share)
        return found

    @cached_property
    def of_columns(self) -> dict[str, Fraction]:
        weights = {column.name: Fraction(column.weight) for column in self.plan.columns}
        if self.plan.counts_rows:
            asked = any(statistic.column == ROWS for statistic in self.plan.statistics)
            weights[ROWS] = Fraction(1) if asked else ROWS_OF_MEANS[self.plan.noise]
        rest, whole = 1 - sum(self.of_all.values()), sum(weights.values())
        return {name: rest * weight / whole for name, weight in weights.items()}

    @cached_property
    def helpers(self) -> dict[tuple[str, str], float]:
        """Losses of helpers: (one of :data:`OF_ALL`, "*"), (one of :data:`OF_COLUMN`, column).

        A clip's choice takes at most its share.
        """
        whole = self._amount(self.loss)
        found = {(name, ROWS): self._loss(whole * share) for name, share in self.of_all.items()}
        for column in self.plan.columns:
            shares = OF_COLUMN if column.chooses else {"tail": TAIL_OF_KNOWN}
            for purpose, share in shares.items() if self.plan.first_sum(column.name) else ():
                most = self._loss(whole * self.of_columns[column.name] * share)
                spent = self.plan.spent.get(column.name, most) if purpose == "clip" else most
                found[purpose, column.name] = min(most, spent)
        return found

    def helper(self, purpose: str, column: str = ROWS) -> float:
        return self.helpers.get((purpose, column), 0.0)

    def task(self, column: str) -> ColumnTask:
        plan, own = self.plan, self.plan.column(column)
        counting, choosing, tail = (self.helper(purpose, column) for purpose in OF_COLUMN)
        public = column, plan.cells or 0, plan.epsilon
        alike, wanted = plan.first_sum(column) == "total", self.rows_above(column)
        losses = counting, choosing, tail, plan.noise
        return ColumnTask(own.ends, plan.contributions, wanted, *losses, alike, *public)

    def check_sums(self) -> None:
        """ParameterError for noise of a sum that cannot be drawn, however narrow the clip."""
        for quantity, level in itertools.product(self.plan.quantities(), self.levels):
            # Squares within a narrower clip may take all their bits.
            most = 2**self.plan.square_bits if quantity.name == "square" else quantity.sensitivity
            moved, loss = self.moved(quantity, level.each), self.loss_of(quantity, level)
            noise_distribution(self.plan.noise, most, moved, loss)

    def check_helpers(self) -> None:
        """ParameterError for a helper whose noise cannot be drawn."""
        plan = self.plan
        # Most by which a unit changes the counts that choose a clip.
        weights = Fraction(plan.contributions if plan.who is None else WEIGHT)
        try:
            for (purpose, _), loss in self.helpers.items():
                if purpose == "auto":
                    geometric_distribution(UNIT / Fraction(loss))
                elif purpose == "rows":
                    laplace_distribution(weights / Fraction(loss))
                elif purpose == "clip":
                    # At least 2^-34 where the choice takes less than its share: see ``choices``.
                    each = float(Fraction(loss) / weights)
                    score_unit(each, MAX_ROWS, counts=2)
                elif purpose != "keys":
                    most = plan.contributions * (MOST_DROPPED if purpose == "dropped" else 1)
                    noise_distribution(plan.noise, most, 1, loss)
        except ParameterError as error:
            accepted = f"shares that buy noise that can be drawn ({error})"
            raise refusal("epsilon", plan.epsilon, accepted) from None

    def key_rule(self) -> KeyRule:
        plan = self.plan
        if plan.who is None:
            distribution: Distribution
            if plan.selects_cells:
                distribution = self.distribution(Quantity("count"), self.levels[0])
            else:
                distribution = laplace_distribution(Fraction(plan.contributions) / Fraction(self.helper("keys")))
            return count_rule(distribution, plan.contributions, self.key_delta)
        most = min(plan.contributions, MOST_KEYS)
        if self.gaussian:
            return shared_weight_rule(self.loss, self.helper("keys"), plan.epsilon, plan.delta, most)
        return weight_rule(self.helper("keys"), plan.delta, most)

    def rows_above(self, column: str) -> float:
        """Rows above the clip, in all windows, for which noise and clipping err alike.

        The squared error of a sum of g windows of n rows is least where n p = sqrt(2 / g) s / eps, s the sensitivity
        in clips (:class:`fastdp.thresholds.ScaleFree`).
        """
        plan, share = self.plan, self.of_columns[column] * self.level_shares[self.levels[0]]
        clips = 0.5 if plan.first_sum(column) == "deviation" else 1.0
        deviation = clips * self.deviation(Quantity("count"))
        loss = self._loss(self._amount(self.loss) * share) * (1.0 - float(sum(OF_COLUMN.values())))
        return max(1, plan.cells or 1) * deviation / loss / math.sqrt(math.sqrt(self.together))

    @property
    def together(self) -> float:
        """Windows in the sums that the clip is chosen for: hours of a day, days of a week, else of a year."""
        plan = self.plan
        if plan.calendar is None:
            return 1.0
        length = plan.calendar.edge(1) - plan.calendar.edge(0)
        span = next((span for span in SPANS if length < span), length)
        return max(1.0, min(span / length, (plan.stop or 0) - (plan.start or 0)))

    # Sums.

    @property
    def cells_alone(self) -> bool:
        plan = self.plan
        return plan.levels is False or plan.online or plan.selects_cells or not (plan.by or plan.calendar)

    @property
    def knows_levels(self) -> bool:
        """True if the levels that are measured follow from public numbers of windows and keys."""
        return self.cells_alone or len(self.plan.nodes or ()) > len(self.plan.by)

    @cached_property
    def level_shares(self) -> dict[Level, Fraction]:
        """Share of each level of a sum's budget; the cells come first."""
        plan, cells = self.plan, Level(len(self.plan.by), True)
        if not self.knows_levels:
            return {cells: CELLS_SHARE if plan.levels else Fraction(1)}
        if self.cells_alone:
            return {cells: Fraction(1)}
        windows = (plan.stop or 0) - (plan.start or 0)
        return consistent.level_shares(windows, plan.nodes or (), plan.levels, gaussian=self.gaussian)

    @property
    def levels(self) -> list[Level]:
        return list(self.level_shares)

    @cached_property
    def rest(self) -> dict[str, Fraction]:
        """Amount of each column's numbers after its helpers, unused ones included."""
        whole = self._amount(self.loss)
        spent = {name: [self.helper(purpose, name) for purpose in OF_COLUMN] for name in self.of_columns}
        return {name: whole * share - sum(map(self._amount, spent[name])) for name, share in self.of_columns.items()}

    def loss_of(self, quantity: Quantity, level: Level | None) -> float:
        """Privacy loss of a quantity's sums at one level (None: all levels): epsilon, sqrt(2 rho) if Gaussian."""
        amount = self.rest[quantity.column] / len(self.plan.parts[quantity.column])
        return self._loss(amount * (1 if quantity.counts or level is None else self.level_shares[level]))

    def moved(self, quantity: Quantity, each: bool) -> int:
        """Change of a vector by one unit, in sensitivities: squared L2 norm for Gaussian noise, else L1.

        Of k rows at most j are in one sum of a window, each in so many levels of counts.
        """
        plan = self.plan
        if not self.gaussian:
            return plan.contributions * quantity.levels
        return l2_square(plan.contributions, plan.per_window if each else None) * quantity.levels

    def deviation(self, quantity: Quantity) -> float:
        moved = self.moved(quantity, True)
        return math.sqrt(moved) if self.gaussian else math.sqrt(2.0) * moved

    def distribution(self, quantity: Quantity, level: Level) -> Distribution:
        loss, moved = self.loss_of(quantity, level), self.moved(quantity, level.each)
        return noise_distribution(self.plan.noise, quantity.sensitivity, moved, loss)

    def log_variance(self) -> float:
        """Sum of logarithms of cells' variances, in squared changes by one row."""
        cells = self.levels[0]
        return sum(
            2.0 * math.log(self.deviation(each) / self.loss_of(each, cells)) for each in self.plan.quantities()
        )

    # The guarantee: of each component, their composition, and the caller's word.

    def in_units(self, guarantee: Guarantee) -> Guarantee:
        plan, k = self.plan, self.plan.contributions
        period = "" if plan.periods is None else f" in any period of {plan.periods.every}"
        one = period.replace("any", "one")
        rows = UnitRows(plan.who, 1 if plan.who else k, None if plan.periods is None else plan.periods.period)
        if plan.who is not None:
            unit, adjacency = f"one person{period}", f"add or remove all rows of one person{one}"
        elif k == 1:
            unit, adjacency = "one row of the table", "add or remove one row"
        else:
            unit, adjacency = f"{k} rows of the table{period}", f"add or remove up to {k} rows{one}"
        return replace(guarantee, unit=unit, adjacency=adjacency, rows=rows, times=plan.times_of(rows))

    def _pure(self, name: str, loss: float, step: str, delta: float = 0.0) -> Guarantee:
        return self.in_units(Guarantee(loss, delta, arithmetic="exact", derivation=(step,))).of(name)

    def components(self) -> list[Guarantee]:
        plan, k = self.plan, self.plan.contributions
        listed = plan.quantities()
        levels: list[Level | None] = [*self.levels] if self.knows_levels else [None]
        parts = [self._numbers(q, level) for level in levels for q in listed if not q.counts]
        parts += [self._numbers(q, self.levels[0]) for q in listed if q.counts]
        chosen = [(purpose, column.name) for column in plan.chooses for purpose in ("rows", "clip")]
        numbers = [("tail", column.name) for column in plan.columns] + [(purpose, ROWS) for purpose in OF_ALL]
        for purpose, column in [*chosen, ("keys", ROWS), *numbers]:
            if purpose == "keys":
                parts += [self._keys()] if plan.key_rule == "private" else []
            elif (loss := self.helper(purpose, column)) and not plan.online:
                guarantee = self._pure if purpose in PURE else self._noisy
                step = STEPS[purpose].format(k=k, most=MOST_DROPPED * k)
                parts.append(guarantee(_named(purpose, column), loss, step))
        return parts

    def guarantee(self, *, simulated: bool) -> Guarantee:
        plan, parts = self.plan, self.components()
        whole = sequential(*parts) if len(parts) > 1 else parallel(*parts)
        if self.gaussian:
            return self._approximate(whole, simulated)
        # The parts are rounded so that they never exceed epsilon; they may fall short of it by a rounding.
        derivation = (*whole.derivation, *self._public_knowledge(whole))
        return replace(whole, epsilon=plan.epsilon, rho=math.inf, simulated=simulated, derivation=derivation)

    def _noisy(self, name: str, loss: float, step: str) -> Guarantee:
        if self.gaussian:
            return self.in_units(concentrated(loss, f"{step}, discrete Gaussian noise")).of(name)
        return self._pure(name, loss, f"{step}, discrete Laplace noise")

    def _keys(self) -> Guarantee:
        plan, loss = self.plan, self.helper("keys")
        if plan.online:
            step = (
                "a key appears once its running weight and fresh one-sided noise reach a threshold with one-sided "
                "noise of the key: weights only grow, so all windows cost one choice; the chances that a unit's own "
                "keys pass add up to delta over all windows"
            )
        elif plan.who is None:
            step = "a key is released if its noisy count of rows passes a threshold that delta gives"
            step += ", as it is published" if plan.selects_cells else ""
        else:
            rule = self.key_rule()
            noise = "Gaussian" if isinstance(rule.distribution, GaussianDistribution) else "Laplace"
            step = (
                f"weights of at most {rule.most} keys of a person, of norm 1, discrete {noise} noise, a threshold: "
                "loss by moved weights and the chance that a person's own keys pass stay within delta together"
            )
            if self.gaussian:
                return self.in_units(concentrated(loss, step)).of("keys")
        return self._pure("keys", loss, step, 0.0 if self.gaussian else plan.delta)

    def _numbers(self, q: Quantity, level: Level | None) -> Guarantee:
        plan, k, loss = self.plan, self.plan.contributions, self.loss_of(q, level)
        name, kind = _named(q.name, q.column), "counts" if q.counts else "sums"
        if level is None:
            step = f"{name}: cells and totals together, in shares of this loss that follow from their numbers, "
            return self._noisy(kind, loss, f"{step}k = {k} rows of a unit")
        moved, most = self.moved(q, level.each), f"{q.sensitivity}"
        if not q.counts and q.column != ROWS and plan.column(q.column).chooses:
            most = "clip" if q.name == "total" else f"the most that a chosen clip allows, up to {most},"
        nodes = f"keys of {', '.join(map(repr, plan.by[: level.depth]))}" if level.depth else "all rows"
        where = f"{nodes}, {'each window' if level.each else 'all windows'}"
        where = "disjoint windows and keys" if level == self.levels[0] else where
        bins = f"; a row is in one bin of each of {q.levels} levels" if q.levels > 1 else ""
        numbers = f"{name}: {where}, k rows of a unit change the {kind} by"
        if self.gaussian:
            step = (
                f"{numbers} sqrt({moved}) * {most} in the L2 norm (k = {k}{bins}), discrete Gaussian noise of sigma "
                f"sqrt({moved}) * {most} / {loss:g}: rho = {loss:g}^2 / 2"
            )
            return self.in_units(concentrated(loss, step)).of(kind)
        rows = "k" if q.levels == 1 else f"{q.levels} k"
        step = f"{numbers} {rows} * {most} steps in all, discrete Laplace noise of scale {rows} * {most} / epsilon"
        return self._pure(kind, loss, f"{step} (k = {k}{bins})")

    def _approximate(self, whole: Guarantee, simulated: bool) -> Guarantee:
        """Guarantee in (epsilon, delta) from rho; a choice of keys adds its delta."""
        plan = self.plan
        stated = whole.approximate(plan.epsilon, self.noise_delta)
        if plan.key_rule == "private":
            # All but an event of small probability is concentrated (Bun and Steinke 2016, section 8).
            step = f"keys: released beyond that with probability {self.key_delta:g}: delta = {plan.delta:g} in all"
            if not self.key_delta:
                step = f"keys of one person alone: within delta = {plan.delta:g} as other weights then move less"
            stated = replace(stated, delta=plan.delta, rho=math.inf, derivation=(*stated.derivation, step))
        derivation = (*stated.derivation, *self._public_knowledge(whole))
        return replace(stated, simulated=simulated, derivation=derivation)

    def _public_knowledge(self, whole: Guarantee) -> list[str]:
        plan, said = self.plan, []
        if whole.times is not None:
            but = " but their keys" if plan.key_rule == "public" else ""
            said.append(f"rows at other times than {whole.times} change nothing that is released{but}")
        ends = plan.taken or [name for name, end in (("first", plan.start), ("last", plan.stop)) if end is None]
        if plan.online:
            said.append("the clock that closes windows is public")
        elif ends:
            said.append(f"the {' and '.join(ends)} window of the table is public knowledge (start=, stop=)")
        if plan.key_rule == "public":
            keys = "the keys of all rows, dropped ones too, are public knowledge, on the caller's word"
            said.append(f"{keys} (keys='public')")
        k = plan.contributions
        if plan.who is None and k > 1:
            said.append(f"a unit has at most {k} rows, on the caller's word (fastdp.Person enforces it)")
        if plan.who is not None:
            where = "in all" if plan.periods is None else f"in each period of {plan.periods.every}"
            rows = f"of a person (column {plan.who!r}) the {k} rows of least keyed hash {where} count"
            said.append(f"{rows}, whatever other persons do")
        if plan.per_window is not None:
            said.append(f"of a person at most {plan.per_window} rows of one window count, those of least hash")
        # Of deviations from the middle of the clip a replaced value moves two sensitivities.
        totals = all(q.name == "count" or (q.name == "total" and q.low >= 0) for q in plan.quantities())
        if plan.who is None and k == 1 and plan.columns and totals and not self.gaussian:
            # Two bins beyond a clip, one sum otherwise.
            most = plan.epsilon + sum(self.helper("tail", column.name) for column in plan.columns) * (not plan.online)
            said.append(f"replacing the values of one row, in its window and key, costs at most {most:g}")
        return said


def _named(name: str, column: str) -> str:
    return name if column == ROWS else f"{name} of {column!r}"
