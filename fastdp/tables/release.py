"""One release of a table: from rows through choices to noisy sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from fastdp.data.source import Source, arrow_type
from fastdp.errors import AccuracyWarning, ParameterError, argument, warn
from fastdp.guarantee import Guarantee, round_up
from fastdp.kinds import Floats, Integers
from fastdp.noise.key import Key
from fastdp.noise.sampler import noise_distribution
from fastdp.tables import choices
from fastdp.tables.choices import Sizes, ends_within
from fastdp.tables.columns import Keys
from fastdp.tables.keys import choose_keys
from fastdp.tables.paths import with_path
from fastdp.tables.plan import MOST_ROWS, TablePlan
from fastdp.tables.promise import promise
from fastdp.tables.quantities import ROWS, Quantity, drawn
from fastdp.tables.released import Released, RowNumbers, released_of
from fastdp.tables.rows import Ends, HeldRows, Part, PersonRows, hashing_of, no_rows, read_persons, read_rows
from fastdp.tables.shares import Shares, shares_of
from fastdp.tables.sizes import KNOWN, Choice, Number
from fastdp.tables.sums import release
from fastdp.tables.tails import Tail
from fastdp.tables.tally import Rest, Tally, Tallying
from fastdp.units import shown_time

#: No noise has so many deviations: rows are no more than their released number and these.
SURELY = 40.0
#: Released rows by size and chosen clips, by column.
Chosen = dict[str, tuple[Sizes, Choice]]


@dataclass(frozen=True)
class TableRelease:
    """A release under its composition's key, with a ledger's facts."""

    shares: Shares
    source: Source
    key: Key

    @property
    def plan(self) -> TablePlan:
        return self.shares.plan

    @cached_property
    def _keys(self) -> Keys:
        return Keys(self.plan.by, self.plan.keys if self.plan.key_rule == "given" else None)

    @property
    def guarantee(self) -> Guarantee:
        found = promise(self.shares, simulated=self.key.simulated)
        if not self.shares.gaussian:
            return found
        # Levels that follow from the table divide the same whole, and their parts round otherwise.
        return replace(found, rho=max(found.rho, round_up(Fraction(self.shares.loss) ** 2 / 2)))

    @property
    def noise_fingerprint(self) -> str | None:
        return None if self.key.simulated else self.key.fingerprint()

    def check(self) -> None:
        plan = self.plan
        for name in plan.by:
            if (type_of := arrow_type(self.source, name)) is not None:
                self._keys.check_type(name, type_of)
        sets = any(each.kind == "nunique" or (each.kind == "reach" and plan.who is None) for each in plan.statistics)
        if self.source.add is not None and (sets or plan.chooses_rows or not plan.has_public_cells):
            public = (
                f"{argument('Time', start=..., stop=...)}, {argument(keys=...)} where there is {argument(by=...)}"
            )
            public = f"{public}, a number of rows of a Person, no nunique"
            raise ParameterError(
                f"expected {public}, no reach but of persons: an engine adds up numbers of public windows and keys"
            )
        if self.source.rows == 0 and (plan.start is None or plan.stop is None):
            raise no_rows()

    def run(self) -> Released:
        plan, keys, ends = self.plan, self._keys, Ends(self.plan)
        if self.source.add is not None:
            return self._choose(keys, ends, None)
        if plan.who is not None:
            return self.of_persons(read_persons(self.source, plan, keys, hashing_of(self.key), ends.see), keys, ends)
        source = self.source if plan.is_public else self.source.twice()
        held = HeldRows(lambda: (each.rows for each in read_rows(source, plan, keys, ends.see)))
        return self._choose(keys, ends, Part(held.once if plan.is_public else held.again))

    def of_persons(self, found: PersonRows, keys: Keys, ends: Ends) -> Released:
        plan, shares, key = self.plan, self.shares, self.key
        first, last = ends.found()
        plan.check_cells(last - first, 1)
        if plan.chooses_rows:
            dropped = shares.helper("dropped"), plan.noise, shares.helper("auto")
            rows = choices.choose_rows(found.totals(), MOST_ROWS, *dropped, key)
            # Noise for other numbers of rows shares no word.
            shares, key = shares_of(replace(plan, chosen_rows=rows)), key.within("auto rows", rows)
        weights = None
        if plan.key_rule == "private" and not shares.plan.selects_cells:
            weights = found.sum_key_weights(keys.words(), shares.key_rule(), self.key)
        part = found.part(shares.plan, keys.words())
        return replace(self, shares=shares, key=key)._choose(keys, ends, part, weights)

    def _tally(
        self, plan: TablePlan, keys: Keys, part: Part | None, quantities: list[Quantity] | None, rest: Rest
    ) -> Tally:
        """Integers of the only part, or as an engine adds them up."""
        found = Tally(plan, keys.size, quantities, rest)
        if part is not None:
            return found.with_rows(part)
        assert self.source.add is not None  # noqa: S101 - an engine's
        return found.filled(self.source.add(Tallying(plan, hashing_of(self.key), quantities, rest), plan.who))

    def _choose(self, keys: Keys, ends: Ends, part: Part | None, weights: Integers | None = None) -> Released:
        plan, shares = self.plan, self.shares
        tally = None if plan.is_public else self._tally(plan, keys, part, None, {})
        counted = None
        if tally is not None and plan.bounds_rows:
            counted = self._number(shares, "counted", int(tally.rows[0]))
        published: Integers | None = None
        if tally is not None and plan.key_rule in ("public", "private"):
            counts = np.pad(tally.by_key, (0, keys.size - tally.by_key.size))
            noisy, chosen = counts, np.ones(keys.size, np.bool_)
            if plan.key_rule == "private":
                exact = counts if weights is None else weights
                exact = np.where(keys.missing(), 0, exact) if plan.has_others else exact
                noisy, chosen = choose_keys(exact, keys, shares.key_rule(), self.key)
            keys, numbers = keys.select(chosen, others=plan.has_others)
            part = None if part is None else part.numbered(numbers)
            if plan.selects_cells:
                published = np.empty(keys.size, np.int64)
                published[numbers[chosen]] = noisy[chosen]
                if plan.has_others:
                    published[-1] = int(self._number(shares, "others", int(counts[~chosen].sum())).value)
        shares = shares.settled(*ends.found(), *keys.sizes)
        if counted is not None:
            most = math.ceil(max(0.0, counted.value) + SURELY * math.sqrt(counted.variance))
            shares = with_path(shares, counted.value / max(1, shares.plan.cells or 1), most)
        clips = Chosen()
        for name, each in tally.sizes.items() if tally else ():
            sizes = choices.release_sizes(shares.task(name), each.counts, self._key_of(plan, name), counted)
            clips[name] = sizes, choices.choose_clips(shares.task(name), sizes)
        if clips:
            # Sums get the budget that the choices leave.
            outcomes = {name: (choice.cells, choice.tail) for name, (_, choice) in clips.items()}
            plan = replace(shares.plan, outcomes=outcomes)
            has_cells = plan.counts_rows or any(plan.outcome(each.name)[0] for each in plan.summed)
            shares = shares_of(plan if has_cells else replace(plan, basis=None))
        return self._release(shares, keys, part, counted, clips, published)

    def _key_of(self, plan: TablePlan, column: str) -> Key:
        return self.key.within("column", plan.place(column))

    def _release(
        self,
        shares: Shares,
        keys: Keys,
        part: Part | None,
        counted: Number | None,
        clips: Chosen,
        published: Integers | None,
    ) -> Released:
        plan = shares.plan
        span = plan.start or 0, plan.stop or 0
        chosen = {name: choice for name, (_, choice) in clips.items()}
        ends = {name: ends_within(plan.column(name).ends, choice.clip) for name, choice in chosen.items()}
        quantities = shares.quantities_at(ends)
        tally = self._tally(plan, keys, part, quantities, _rest(shares, chosen))
        row_numbers = None
        if plan.bounds_rows:
            counted = counted or self._number(shares, "counted", int(tally.rows[0]))
            shorter = "" if plan.periods is None else f" shorter than {plan.periods.every}"
            dropped = Number(0.0, 0.0) if plan.keeps_all else self._number(shares, "dropped", int(tally.rows[1]))
            row_numbers = RowNumbers(counted, dropped)
            wider = f"a larger {argument(rows=...)}, or a {argument(per=...)}{shorter}"
            choices.warn_of_dropped(row_numbers, plan.contributions, wider)
        tails = {
            each.name: self._tail(shares, each.name, tally, clips.get(each.name), counted) for each in plan.summed
        }
        for name, tail in tails.items():
            choices.warn_of_past(name, tail)
        measured = release(shares, quantities, tally.exact, self.key, span, keys, published)
        found = released_of(shares, span, keys, measured, tails, simulated=self.key.simulated)
        if plan.basis is not None:
            left = tuple(
                self._residual(shares, q, each) for q, each in zip(found.quantities, tally.exact[0], strict=True)
            )
            found = replace(found, residuals=left)
        selection, others = shares.key_rule() if plan.selects_cells else None, None
        if share := shares.helper("others"):
            others = drawn(noise_distribution(plan.noise, plan.contributions, 1, share))
        if plan.basis is not None or not warn_of_cells(found, given=plan.key_rule == "given"):
            # Where totals are measured too, cells may be small.
            widest = min(found.in_windows, key=lambda each: each.steps.size, default=None)
            for name in (*tails, ROWS):
                choices.warn_of_noise(shares, name, tails.get(name), widest)
        return replace(found, family=self.source.family, rows=row_numbers, selection=selection, others=others)

    def _tail(
        self, shares: Shares, name: str, tally: Tally, found: tuple[Sizes, Choice] | None, counted: Number | None
    ) -> Tail:
        plan, task, key, number = shares.plan, shares.task(name), self._key_of(shares.plan, name), None
        if found is None:
            sizes = choices.release_sizes(task, tally.sizes[name].counts, key, counted)
            return choices.tail_of(shares, name, sizes)
        if found[1].tail:
            moved, loss = choices.moved_by_tail(task, found[1]), shares.helper("tail", name)
            of = choices.noisy_number(int(tally.tails[name][0]), moved, loss, plan.noise, key.within("tail"))
            number = Number(of.value * task.grid, of.variance * task.grid**2)
        return choices.tail_of(shares, name, *found, number)

    def _residual(self, shares: Shares, q: Quantity, exact: Integers) -> Number:
        assert shares.plan.basis is not None  # noqa: S101 - called with one
        key = self.key if q.column == ROWS else self._key_of(shares.plan, q.column)
        given = q.sensitivity * shares.moved_by("residual"), shares.helper("residual", q.column), shares.plan.noise
        return choices.noisy_number(shares.plan.basis.residual(exact), *given, key.within("residual"))

    def _number(self, shares: Shares, name: str, exact: int) -> Number:
        given = shares.moved_by(name), shares.helper(name), shares.plan.noise, self.key.within(name)
        return choices.noisy_number(exact, *given)


def _rest(shares: Shares, chosen: Mapping[str, Choice]) -> Rest:
    found: dict[str, tuple[float, Floats]] = {}
    for name, choice in chosen.items():
        grid, bound = shares.grids[name], shares.plan.column(name).ends
        if choice.tail:
            ends = [ends_within(bound, clip) for clip in (choice.second, choice.clip)]
            found[name] = grid, np.rint(np.array(ends) / grid)
    return found


#: So many windows are looked at in blocks, of which a wrong clock leaves few with rows; or none that noise does not
#: hide, where windows are MANY.
LONG, MANY, BLOCKS, FEW_BLOCKS = 5_000, 100_000, 200, 4
#: A block has rows if its number is so many deviations of its noise.
STANDS = 5.0
#: A key has next to no rows below this share of the mean.
RARE = 0.05


def warn_of_cells(found: Released, *, given: bool) -> bool:
    """Warn of a wrong clock, or of keys without rows; True if so."""
    firsts = [(i, q) for i, q in enumerate(found.quantities) if q.name in ("count", "total")]
    if not firsts or not found.sums[0].steps.size:
        return False
    place, quantity = max(firsts, key=lambda each: each[1].name == "count")
    steps, variance = found.sums[0].steps[place], found.sums[0].noise[place].variance
    windows, keys = steps.shape
    if found.taken and windows >= LONG:
        begins = np.arange(0, windows, -(-windows // BLOCKS))
        sums = np.add.reduceat(steps.sum(axis=1, dtype=np.float64), begins)
        variances = variance * keys * np.diff(begins, append=windows)
        seen = np.abs(sums) > STANDS * np.sqrt(variances)
        rest = Number(abs(float(sums[~seen].sum())), float(variances[~seen].sum()))
        if (windows < MANY) <= np.count_nonzero(seen) <= FEW_BLOCKS and not rest.known:
            first, last = (shown_time(int(found.edges[at]), found.time_zone) for at in (0, -1))
            drops = f"expected {argument('Time', start=..., stop=...)}, which drops rows outside"
            told = f"in about {np.mean(seen):.2g} of them; probably a row's clock is wrong: {drops}"
            if not seen.any():
                told = f"in none of them; {drops}, if a row's clock is wrong, or longer windows"
            warn(
                f"{windows:,} windows of {found.every} from {first} to {last} were made, and released numbers show "
                f"rows {told}",
                AccuracyWarning,
            )
            return True
    if given and quantity.low >= 0:
        # Of each key in all windows, perhaps measured by itself.
        whole = [each for each in found.sums if each.level.depth == len(found.parents)]
        each = min(whole, key=lambda each: each.noise[place].variance * each.steps.shape[1])
        sums = each.steps[place].sum(axis=0, dtype=np.float64)
        deviation = math.sqrt(each.noise[place].variance * each.steps.shape[1])
        limit = RARE * sums.mean() - KNOWN * deviation
        rare = (sums <= min(KNOWN * deviation, limit)) & (limit > 0.0)
        if not Number(float(sums.sum()), keys * deviation**2).known:
            # Of many keys without rows some stand out by chance.
            rare[:] = sums.max() <= (KNOWN + math.sqrt(2.0 * math.log(keys))) * deviation
        if rare.any():
            # By its index: a list of keys may have been made from the rows.
            warn(
                f"keys: released numbers show no row of {np.count_nonzero(rare):,} of {keys:,}, the first keys["
                f"{int(np.argmax(rare))}]; expected keys as the columns spell them (case, spaces), or longer windows",
                AccuracyWarning,
            )
            return True
    return False
