"""One release of a table: rows to choices, noisy sums and all that leaves."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from fastdp.data.source import Source, arrow_type
from fastdp.errors import AccuracyWarning, DataError, ParameterError, warn
from fastdp.guarantee import Guarantee, round_up
from fastdp.kinds import Flags, Integers
from fastdp.noise.key import Key
from fastdp.noise.sampler import noise_distribution
from fastdp.tables import choices
from fastdp.tables.choices import Clip
from fastdp.tables.columns import Keys
from fastdp.tables.keys import choose_keys
from fastdp.tables.plan import MOST_ROWS, Clips, TablePlan
from fastdp.tables.promise import promise
from fastdp.tables.quantities import FIRST_SUMS, CellRows, Quantity, drawn
from fastdp.tables.released import Released, RowNumbers, released_of
from fastdp.tables.rows import NO_ROWS, Ends, HeldRows, Kept, Reads, check_finite, hashing_of, read_persons, read_rows
from fastdp.tables.shares import MOST_DROPPED, Shares, shares_of
from fastdp.tables.sums import exact_sums, release
from fastdp.tables.tails import KNOWN, Number, count_tail, tail_edges
from fastdp.units import shown_time

#: Chosen clips by column.
Chosen = dict[str, Clip]


@dataclass(frozen=True)
class TableRelease:
    """One release under the key of its composition, with the facts for a ledger."""

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
        nunique = any("distinct" in each.needs for each in plan.statistics)
        if self.source.add is not None and (nunique or plan.chooses_rows or not plan.has_public_cells):
            public = "Time(start=, stop=), keys= where there is by=, a number of rows of a Person, no nunique"
            raise ParameterError(f"expected {public}: an engine adds up numbers of public windows and keys")
        if self.source.rows == 0 and (plan.start is None or plan.stop is None):
            raise DataError(NO_ROWS)

    def run(self) -> Released:
        plan, keys, ends = self.plan, self._keys, Ends(self.plan)
        if self.source.add is not None:
            return self._on_engine()
        if plan.who is not None:
            return self._of_persons(keys, ends)
        source = self.source if plan.is_public else self.source.twice()
        read = HeldRows(lambda: (each.rows for each in read_rows(source, plan, keys, ends.see)))
        return self._choose(keys, ends, read.once if plan.is_public else read.again, None)

    def _of_persons(self, keys: Keys, ends: Ends) -> Released:
        plan, shares, key = self.plan, self.shares, self.key
        found = read_persons(self.source, plan, keys, hashing_of(self.key), ends.see)
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
        kept = found.kept(shares.plan)._replace(weights=weights)
        return replace(self, shares=shares, key=key)._choose(keys, ends, lambda: iter((kept.rows,)), kept)

    def _choose(self, keys: Keys, ends: Ends, read: Reads, kept: Kept | None) -> Released:
        plan, counts, counters = self.plan, np.zeros(0, np.int64), _counters(self.plan)
        shares = self.shares
        rows_of_persons = None if kept is None else self._number(shares, "counted", kept.rows.codes.size)
        for rows in () if plan.is_public else read():
            counted = (rows.codes >= 0) & plan.has(rows.windows)
            seen = np.bincount(rows.codes[counted], minlength=keys.size)
            counts = seen + np.pad(counts, (0, seen.size - counts.size))
            _observe(plan, counters, rows, counted, kept)
        numbers: Integers | None = None
        published = None
        if plan.key_rule in ("public", "private"):
            counts = np.pad(counts, (0, keys.size - counts.size))
            noisy, chosen = counts, np.ones(keys.size, np.bool_)
            if plan.key_rule == "private":
                exact = counts if kept is None or kept.weights is None else kept.weights
                exact = np.where(keys.missing(), 0, exact) if plan.has_others else exact
                noisy, chosen = choose_keys(exact, keys, shares.key_rule(), self.key)
            keys, numbers = keys.select(chosen, others=plan.has_others)
            if plan.selects_cells:
                published = np.empty(keys.size, np.int64)
                published[numbers[chosen]] = noisy[chosen]
                if plan.has_others:
                    published[-1] = int(self._number(shares, "others", int(counts[~chosen].sum())).value)
        shares = shares_of(plan.settled(*ends.found(), *keys.sizes))
        shares, clips = self._clips(shares, counters, rows_of_persons)
        again = read if numbers is None else lambda: (rows._replace(codes=numbers[rows.codes]) for rows in read())
        return self._release(shares, keys, again, kept, rows_of_persons, clips, published)

    def _clips(self, shares: Shares, counters: Counters, counted: Number | None) -> tuple[Shares, Chosen]:
        """Clips, and the shares again: sums get what the choices leave."""
        plan, clips = shares.plan, Chosen()
        for column in plan.chooses:
            key = self._key_of(plan, column.name)
            clips[column.name] = choices.choose_clip(shares.task(column.name), counters[column.name], key, counted)
        spent = {name: clip.epsilon for name, clip in clips.items()}
        return shares_of(replace(plan, spent=spent)) if clips else shares, clips

    def _on_engine(self) -> Released:
        plan, keys, counters = self.plan, self._keys, _counters(self.plan)
        plan, counted = plan.settled(plan.start or 0, plan.stop or 0, *keys.sizes), None
        shares, clips = shares_of(plan), Chosen()
        if plan.chooses:
            rows, _ = self._add(plan, None, [part for each in counters.values() for part in each.arrays])
            counted = None if plan.who is None else self._number(shares, "counted", rows)
            shares, clips = self._clips(shares, counters, counted)
        return self._release(shares, keys, None, None, counted, clips)

    def _add(self, plan: TablePlan, quantities: list[Quantity] | None, into: list[Integers]) -> tuple[int, int]:
        assert self.source.add is not None  # noqa: S101 - an engine's
        sums, begin = self.source.add(PartReading(plan, hashing_of(self.key), quantities), plan.who), 0
        for each in into:
            each[...] = sums[begin : begin + each.size].reshape(each.shape)
            begin += each.size
        return int(sums[-2]), int(sums[-1])

    def _key_of(self, plan: TablePlan, column: str) -> Key:
        return self.key.within("column", plan.place(column))

    def _release(
        self,
        shares: Shares,
        keys: Keys,
        read: Reads | None,
        kept: Kept | None,
        counted: Number | None,
        clips: Chosen,
        published: Integers | None = None,
    ) -> Released:
        plan = shares.plan
        span = plan.start or 0, plan.stop or 0
        ends: Clips = {name: clip[:2] for name, clip in clips.items()}
        quantities = shares.quantities_at(ends)
        exact, beyond, number, dropped = self._exact(plan, keys, read, quantities)
        dropped = dropped if kept is None else kept.dropped
        if read is None and plan.who is not None:
            counted = counted or self._number(shares, "counted", number)
        tails, row_numbers = {}, None
        if shares.helper("counted"):
            counted = counted or self._number(shares, "counted", beyond.rows)
            for q, edges, counts in zip(beyond.firsts, beyond.edges, beyond.counts, strict=True):
                given = shares.task(q.column), q.ends, edges, counts, counted, self._key_of(plan, q.column)
                before = q.column not in clips or clips[q.column].counted
                tails[q.column] = choices.release_tail(*given, counted=before)
            poor = {name for name, tail in tails.items() if name in clips and not tail.resolved}
            if poor:
                # A clip that released numbers do not resolve is not used: what is left goes to the bound.
                quantities = shares.quantities_at({name: clip for name, clip in ends.items() if name not in poor})
                exact = self._exact(plan, keys, read, quantities)[0]
                tails |= {name: tails[name].at(plan.column(name).ends) for name in poor}
            for name, tail in tails.items():
                choices.warn_of_clip(name, tail, plan.column(name).ends, counted)
            if plan.who is not None:
                released = self._number(shares, "dropped", dropped, MOST_DROPPED)
                shorter = "" if plan.periods is None else f" shorter than {plan.periods.every}"
                row_numbers = RowNumbers(counted, released)
                choices.warn_of_dropped(row_numbers, plan.contributions, f"a larger rows=, or a per={shorter}")
        measured = release(shares, quantities, exact, self.key, span, keys, published)
        for name in clips:
            # Where totals are measured too, cells may be small.
            widest = min(
                (each for each in measured if not each.quantities[0].counts), key=lambda each: each.steps.size
            )
            choices.warn_of_noise(name, tails[name], widest)
        found = released_of(shares, span, keys, measured, tails, simulated=self.key.simulated)
        selection, others = shares.key_rule() if plan.selects_cells else None, None
        if share := shares.helper("others"):
            others = drawn(noise_distribution(plan.noise, plan.contributions, 1, share))
        warn_of_cells(found, given=plan.key_rule == "given")
        return replace(found, family=self.source.family, rows=row_numbers, selection=selection, others=others)

    def _exact(
        self, plan: TablePlan, keys: Keys, read: Reads | None, quantities: list[Quantity]
    ) -> tuple[list[Integers], _Beyond, int, int]:
        beyond = _Beyond(plan, quantities)
        exact = exact_sums(beyond.watched(iter(()) if read is None else read()), quantities, plan, keys.size)
        number, dropped = (0, 0) if read else self._add(plan, quantities, [*exact, *beyond.arrays])
        return exact, beyond, number, dropped

    def _number(self, shares: Shares, name: str, exact: int, times: int = 1) -> Number:
        plan = shares.plan
        given = times * plan.contributions, shares.helper(name), plan.noise, self.key.within(name)
        return choices.noisy_number(exact, *given)


#: So many windows are looked at in blocks, of which a wrong clock leaves few with rows.
LONG, BLOCKS, FEW_BLOCKS = 5_000, 200, 4
#: A block has rows if its number is so many deviations of its noise.
STANDS = 5.0
#: A key has next to no rows below this share of the mean.
RARE = 0.05


def warn_of_cells(found: Released, *, given: bool) -> None:
    """Warnings of windows by a wrong clock, and of given keys without rows."""
    firsts = [(i, q) for i, q in enumerate(found.quantities) if q.name in ("count", "total")]
    if not firsts or not found.sums[0].steps.size:
        return
    place, quantity = max(firsts, key=lambda each: each[1].name == "count")
    steps, variance = found.sums[0].steps[place], found.sums[0].noise[place].variance
    windows, keys = steps.shape
    if found.taken and windows >= LONG:
        begins = np.arange(0, windows, -(-windows // BLOCKS))
        sums = np.add.reduceat(steps.sum(axis=1, dtype=np.float64), begins)
        variances = variance * keys * np.diff(begins, append=windows)
        seen = np.abs(sums) > STANDS * np.sqrt(variances)
        rest = Number(abs(float(sums[~seen].sum())), float(variances[~seen].sum()))
        if 0 < np.count_nonzero(seen) <= FEW_BLOCKS and not rest.known:
            first, last = (shown_time(int(found.edges[at]), found.time_zone) for at in (0, -1))
            warn(
                f"{windows:,} windows of {found.every} from {first} to {last} were made, and released numbers show "
                f"rows in about {np.mean(seen):.2g} of them; probably a row's clock is wrong: expected "
                "Time(start=, stop=), which drops rows outside",
                AccuracyWarning,
            )
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


class _Beyond:
    """Exact numbers of rows in released cells, and in bins beyond each column's clip."""

    def __init__(self, plan: TablePlan, quantities: Sequence[Quantity]) -> None:
        self._plan, self._rows = plan, np.zeros(1, np.int64)
        self.firsts = [each for each in quantities if each.name in FIRST_SUMS]
        self.edges = [tail_edges(q.ends, plan.column(q.column).bound) for q in self.firsts]
        self.counts: list[Integers] = [np.zeros(low.size + high.size + 1, np.int64) for low, high in self.edges]

    @property
    def arrays(self) -> list[Integers]:
        return [*self.counts, self._rows]

    @property
    def rows(self) -> int:
        return int(self._rows[0])

    def watched(self, batches: Iterator[CellRows]) -> Iterator[CellRows]:
        plan = self._plan
        places = [plan.place(q.column) for q in self.firsts]
        for rows in batches:
            if places:
                counted = (rows.codes >= 0) & plan.has(rows.windows)
                self._rows += np.count_nonzero(counted)
                for place, edges, counts in zip(places, self.edges, self.counts, strict=True):
                    counts += count_tail(rows.values[place][counted], edges)
            yield rows


#: Counts of values of each column that chooses its clip.
Counters = dict[str, choices.ValueCounts]


def _counters(plan: TablePlan) -> Counters:
    persons = plan.who is not None
    return {each.name: choices.ValueCounts(each.ends, persons=persons) for each in plan.chooses}


def _observe(plan: TablePlan, counters: Counters, rows: CellRows, counted: Flags, kept: Kept | None) -> None:
    for name, counter in counters.items():
        values = rows.values[plan.place(name)]
        values = values if counted.all() else values[counted]
        check_finite(values)
        if kept is None:
            counter.observe(values)
        else:
            counter.weigh(values, kept.sizes[counted])


@dataclass(frozen=True)
class PartReading:
    """Integers of a part of a table with all rows of its persons, on a worker: those of all parts add up.

    Exact sums and numbers beyond clips, or counts of values before clips are chosen (``quantities`` None); last,
    persons' rows that count and dropped ones.
    """

    plan: TablePlan
    hashing: bytes
    quantities: Sequence[Quantity] | None

    def __call__(self, source: Source) -> Integers:
        plan, keys, kept = self.plan, Keys(self.plan.by, self.plan.keys if self.plan.by else None), None
        if plan.who is None:
            rows = (each.rows for each in read_rows(source, plan, keys))
        else:
            kept = read_persons(source, plan, keys, self.hashing).kept(plan)
            rows = (each for each in (kept.rows,))
        if self.quantities is None:
            counters = _counters(plan)
            for part in rows:
                _observe(plan, counters, part, (part.codes >= 0) & plan.has(part.windows), kept)
            found = [part for each in counters.values() for part in each.arrays]
        else:
            beyond = _Beyond(plan, self.quantities)
            found = [*exact_sums(beyond.watched(rows), self.quantities, plan, keys.size), *beyond.arrays]
        last = [0, 0] if kept is None else [kept.rows.codes.size, kept.dropped]
        return np.concatenate([*(each.ravel() for each in found), last])
