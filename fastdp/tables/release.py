"""One release of a table: its rows in batches, bounded by least hashes of persons, to choices and noisy sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastdp.data.source import Source, arrow_type
from fastdp.errors import AccuracyWarning, DataError, ParameterError, warn
from fastdp.guarantee import Guarantee
from fastdp.kinds import Flags, Floats, Integers
from fastdp.noise.key import Key
from fastdp.noise.sampler import noise_distribution
from fastdp.tables import choices
from fastdp.tables.choices import Clip, count_tail, tail_edges
from fastdp.tables.columns import Entries, Growing, Keys, Numbers, digests_of, floats_of, times_of
from fastdp.tables.keys import KeyRule, choose_keys, key_weights, weigh
from fastdp.tables.plan import MOST_ROWS, Clips, ColumnPlan, TablePlan
from fastdp.tables.quantities import FIRST_SUMS, MISSING_ENTRY, NOT_FINITE, CellRows, Quantity, drawn
from fastdp.tables.released import KNOWN, Number, Released, RowNumbers
from fastdp.tables.sums import exact_sums, release
from fastdp.units import shown_time
from fastdp_kernels.tables import person_rows

if TYPE_CHECKING:
    import pyarrow as pa


class BatchRows(NamedTuple):
    """Rows of a batch that may count, their instants, and persons' digests."""

    rows: CellRows
    times: Integers
    persons: Integers | None


class Kept(NamedTuple):
    """Rows that count, how many of each one's person (and period), how many were dropped, and weights of keys."""

    rows: CellRows
    sizes: Integers
    dropped: int
    weights: Integers | None = None


def read_rows(
    source: Source,
    plan: TablePlan,
    keys: Keys,
    see_times: Callable[[Integers], None] | None = None,
    persons: Entries | None = None,
) -> Iterator[BatchRows]:
    """Rows that may count, by batch; ``keys`` and ``persons`` number all rows'."""
    begin = 0
    for batch in source.batches():
        size, present = batch.num_rows, None
        codes = keys.codes([batch.column(name) for name in plan.by], size)
        times: Integers = np.zeros(size, np.int64)
        if plan.time is not None and plan.calendar is not None:
            times, present = times_of(batch.column(plan.time.column), plan.calendar.zone, plan.time)
        who = None
        if plan.who is not None and persons is not None:
            who, named = persons.of(batch.column(plan.who))
            if named is not None:
                present = named if present is None else present & named
        if present is not None and not present.all() and (plan.time is None or plan.time.missing == "raise"):
            many = f"{np.count_nonzero(~present):,} of the {size:,} rows read with it"
            row = f"row {begin + int(np.argmin(present))} has no time or no person ({many})"
            raise DataError(f"{row}; expected both in every row (Time(missing='drop') drops such rows)")
        begin += size
        if see_times is not None:
            see_times(times if present is None else times[present])
        windows = times if plan.calendar is None else plan.calendar.numbers(times)
        listed = [column_values(batch.column(column.name), column) for column in plan.columns]
        values = np.empty((0, size))
        if listed:
            values = np.stack(listed) if len(listed) > 1 else listed[0][None]
        if who is not None:
            counted = (codes >= 0) & plan.has(windows)
            present = counted if present is None else present & counted
        if present is not None and not present.all():
            windows, times, codes, values = windows[present], times[present], codes[present], values[:, present]
            who = None if who is None else who[present]
        yield BatchRows(CellRows(windows, codes, values), times, who)


def column_values(column: pa.Array, plan: ColumnPlan) -> Floats:
    """Values of a column, 0 for non-finite ones that count so; 52 bits of entries."""
    if plan.entries:
        digests, present = digests_of(column)
        numbers = (digests[:, 0] & (2**52 - 1)).astype(np.float64)
        return numbers if present is None else np.where(present, numbers, MISSING_ENTRY)
    return finite_values(floats_of(column), plan)


def finite_values(values: Floats, plan: ColumnPlan) -> Floats:
    """Values, 0 for non-finite ones that count so."""
    return np.where(np.isfinite(values), values, 0.0) if plan.nonfinite == "zero" else values


def check_finite(values: Floats) -> None:
    """DataError for values that are not finite."""
    if not np.isfinite(values).all():
        raise DataError(NOT_FINITE)


class PersonRows:
    """Collects rows of persons, about 40 bytes each, and selects those that count."""

    def __init__(self, plan: TablePlan, hashing: bytes, rows: int | None = None) -> None:
        self._plan, size = plan, rows or 0
        self._hashing = np.frombuffer(hashing, np.uint64)[:2]
        self.persons, self._periods = Entries("", persons=True), Numbers()
        self._groups, self._hashes = Growing(np.int64, size), Growing(np.uint64, size)
        self._windows, self._codes = Growing(np.int64, size), Growing(np.int64, size)
        self._values = [Growing(np.float64, size) for _ in plan.columns]

    def add(self, batch: BatchRows, words: Integers) -> None:
        (windows, codes, values), times, persons = batch
        assert persons is not None  # noqa: S101 - the plan names their column
        if not persons.size:
            return
        # Not of the rows that count alone, which the secret chooses.
        check_finite(values)
        groups, digests = persons, self.persons.digests.pairs.take(persons, axis=0)
        if self._plan.periods is not None:
            groups = self._periods.of(persons, self._plan.periods.numbers(times))
        hashes = person_rows.hash_rows(self._hashing, digests, times, words, np.ascontiguousarray(values))
        columns = self._groups, self._hashes, self._windows, self._codes, *self._values
        for column, part in zip(columns, (groups, hashes, windows, codes, *values), strict=True):
            column.add(part)

    @property
    def _size(self) -> int:
        return self.persons.digests.size if self._plan.periods is None else self._periods.size

    def totals(self) -> Integers:
        """Rows of each person (and period): int64[p]."""
        found: Integers = np.bincount(self._groups.array, minlength=self._size)
        return found

    def sum_key_weights(self, words: Integers, rule: KeyRule, key: Key) -> Integers:
        """Sum by key, over persons, the weight that a person gives to each of its distinct keys.

        ``words``: a 64-bit word of each key, int64[K].  Returns int64[K], in steps of ``rule``'s weights; rows count
        here even if they are dropped from sums.
        """
        persons, periods = np.arange(self.persons.digests.size), np.zeros(self._size, np.int64)
        if self._plan.periods is not None:
            persons, periods = (np.ascontiguousarray(each) for each in self._periods.pairs.T)
        groups, codes = self._groups.array, self._codes.array
        secret = np.frombuffer(key.derive("keys").reveal(), np.uint64)[:2]
        sums: Integers = np.zeros(words.size, np.int64)
        table, named = key_weights(rule.distribution, rule.most), self.persons.digests.pairs[persons]
        _, keys, weights = weigh(groups, codes, named, periods, words, table, secret)
        np.add.at(sums, keys, weights)
        return sums

    def kept(self, plan: TablePlan) -> Kept:
        columns = self._groups, self._hashes, self._windows, self._codes
        groups, hashes, windows, codes = (each.array for each in columns)
        first, spans = (int(windows.min()), int(np.ptp(windows)) + 1) if windows.size else (0, 0)
        flags, _ = person_rows.least_rows(
            self._hashing, groups, hashes, windows, first, spans, plan.contributions, plan.per_window or 0, self._size
        )
        values = np.empty((len(self._values), np.count_nonzero(flags)))
        for into, column in zip(values, self._values, strict=True):
            into[:] = column.array[flags]
        dropped = choices.dropped_rows(groups, flags, self._size, plan.contributions)
        groups = groups[flags]
        return Kept(CellRows(windows[flags], codes[flags], values), np.bincount(groups)[groups], dropped)


def hashing_of(key: Key) -> bytes:
    """128 bits under which rows of persons are chosen."""
    return key.derive("rows").reveal()[:16]


def read_persons(
    source: Source, plan: TablePlan, keys: Keys, hashing: bytes, see_times: Callable[[Integers], None] | None = None
) -> PersonRows:
    """Rows of persons, chosen by :func:`hashing_of` a key."""
    found = PersonRows(plan, hashing, source.rows)
    for batch in read_rows(source, plan, keys, see_times, found.persons):
        found.add(batch, keys.words()[batch.rows.codes])
    return found


NO_ROWS = "frame has no rows: expected time=fastdp.Time(..., start=, stop=), because it has no first and last window"
# A table, read once or twice, to noisy sums.

#: Chosen clips by column.
Chosen = dict[str, Clip]
#: Reads the rows that count once more.
Reads = Callable[[], Iterator[CellRows]]
#: Bytes of coded rows that are kept for a second reading.
MOST_HELD = 2**28


@dataclass(frozen=True)
class TableRelease:
    """One release under the key of its composition, with the facts for a ledger."""

    plan: TablePlan
    source: Source
    key: Key

    @cached_property
    def _keys(self) -> Keys:
        return Keys(self.plan.by, self.plan.keys if self.plan.key_rule == "given" else None)

    @property
    def guarantee(self) -> Guarantee:
        return self.plan.budget.guarantee(simulated=self.key.simulated)

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
        plan, keys, ends = self.plan, self._keys, _Ends(self.plan)
        if self.source.add is not None:
            return self._on_engine()
        if plan.who is not None:
            return self._of_persons(keys, ends)
        source = self.source if plan.is_public else self.source.twice()
        read = _Coded(lambda: (each.rows for each in read_rows(source, plan, keys, ends.see)))
        return self._choose(keys, ends, read.once if plan.is_public else read.again, None)

    def _of_persons(self, keys: Keys, ends: _Ends) -> Released:
        plan, key = self.plan, self.key
        found = read_persons(self.source, plan, keys, hashing_of(self.key), ends.see)
        first, last = ends.found()
        plan.check_cells(last - first, 1)
        if plan.chooses_rows:
            budget = plan.budget.helper("dropped"), plan.noise, plan.budget.helper("auto")
            rows = choices.choose_rows(found.totals(), MOST_ROWS, *budget, key)
            # Noise for other numbers of rows shares no word.
            plan, key = replace(plan, chosen_rows=rows), key.within("auto rows", rows)
        weights = None
        if plan.key_rule == "private":
            weights = found.sum_key_weights(keys.words(), plan.budget.key_rule(), self.key)
        kept = found.kept(plan)._replace(weights=weights)
        return replace(self, plan=plan, key=key)._choose(keys, ends, lambda: iter((kept.rows,)), kept)

    def _choose(self, keys: Keys, ends: _Ends, read: Reads, kept: Kept | None) -> Released:
        plan, counts, counters = self.plan, np.zeros(0, np.int64), _counters(self.plan)
        rows_of_persons = None if kept is None else self._number(plan, "counted", kept.rows.codes.size)
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
                noisy, chosen = choose_keys(exact, keys, plan.budget.key_rule(), self.key)
            keys, numbers = keys.select(chosen, others=plan.has_others)
            if plan.selects_cells:
                published = np.empty(keys.size, np.int64)
                published[numbers[chosen]] = noisy[chosen]
                if plan.has_others:
                    published[-1] = int(self._number(plan, "others", int(counts[~chosen].sum())).value)
        plan = plan.settled(*ends.found(), *keys.sizes)
        plan, clips = self._clips(plan, counters, rows_of_persons)
        again = read if numbers is None else lambda: (rows._replace(codes=numbers[rows.codes]) for rows in read())
        return self._release(plan, keys, again, kept, rows_of_persons, clips, published)

    def _clips(self, plan: TablePlan, counters: Counters, counted: Number | None) -> tuple[TablePlan, Chosen]:
        clips: Chosen = {}
        for column in plan.chooses:
            task = plan.budget.task(column.name)
            clip = choices.choose_clip(task, counters[column.name], self._key_of(plan, column.name), counted)
            plan = replace(plan, spent={**plan.spent, column.name: clip.epsilon})
            clips[column.name] = clip
        return plan, clips

    def _on_engine(self) -> Released:
        plan, keys, counters = self.plan, self._keys, _counters(self.plan)
        plan, counted = plan.settled(plan.start or 0, plan.stop or 0, *keys.sizes), None
        clips: Chosen = {}
        if plan.chooses:
            rows, _ = self._add(plan, None, [part for each in counters.values() for part in each.arrays])
            counted = None if plan.who is None else self._number(plan, "counted", rows)
            plan, clips = self._clips(plan, counters, counted)
        return self._release(plan, keys, None, None, counted, clips)

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
        plan: TablePlan,
        keys: Keys,
        read: Reads | None,
        kept: Kept | None,
        counted: Number | None,
        clips: Chosen,
        published: Integers | None = None,
    ) -> Released:
        span, budget = (plan.start or 0, plan.stop or 0), plan.budget
        ends: Clips = {name: clip[:2] for name, clip in clips.items()}
        quantities = plan.quantities(ends)
        exact, beyond, number, dropped = self._exact(plan, keys, read, quantities)
        dropped = dropped if kept is None else kept.dropped
        if read is None and plan.who is not None:
            counted = counted or self._number(plan, "counted", number)
        tails, row_numbers = {}, None
        if budget.helper("counted"):
            counted = counted or self._number(plan, "counted", beyond.rows)
            for q, edges, counts in zip(beyond.firsts, beyond.edges, beyond.counts, strict=True):
                given = budget.task(q.column), q.ends, edges, counts, counted, self._key_of(plan, q.column)
                before = q.column not in clips or clips[q.column].counted
                tails[q.column] = choices.release_tail(*given, counted=before)
            poor = {name for name, tail in tails.items() if name in clips and not tail.resolved}
            if poor:
                # A clip that released numbers do not resolve is not used: what is left goes to the bound.
                quantities = plan.quantities({name: clip for name, clip in ends.items() if name not in poor})
                exact = self._exact(plan, keys, read, quantities)[0]
                tails |= {name: tails[name].at(plan.column(name).ends) for name in poor}
            for name, tail in tails.items():
                choices.warn_of_clip(name, tail, plan.column(name).ends, counted)
            if plan.who is not None:
                released = self._number(plan, "dropped", dropped, choices.MOST_DROPPED)
                shorter = "" if plan.periods is None else f" shorter than {plan.periods.every}"
                row_numbers = RowNumbers(counted, released)
                choices.warn_of_dropped(row_numbers, plan.contributions, f"a larger rows=, or a per={shorter}")
        measured = release(budget, quantities, exact, self.key, span, keys, published)
        for name in clips:
            # Where totals are measured too, cells may be small.
            widest = min(
                (each for each in measured if not each.quantities[0].counts), key=lambda each: each.steps.size
            )
            choices.warn_of_noise(name, tails[name], widest)
        found = plan.released(span, keys, measured, tails, simulated=self.key.simulated)
        selection, others = budget.key_rule() if plan.selects_cells else None, None
        if share := budget.helper("others"):
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

    def _number(self, plan: TablePlan, name: str, exact: int, times: int = 1) -> Number:
        given = times * plan.contributions, plan.budget.helper(name), plan.noise, self.key.within(name)
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


class _Coded:
    def __init__(self, once: Reads) -> None:
        self.once, self._held = once, list[CellRows]()

    def again(self) -> Iterator[CellRows]:
        if self._held:
            yield from self._held
            return
        held, size = list[CellRows](), 0
        for rows in self.once():
            size += sum(part.nbytes for part in rows)
            if size <= MOST_HELD:
                held.append(rows)
            yield rows
        self._held = held if size <= MOST_HELD else []


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


class _Ends:
    def __init__(self, plan: TablePlan) -> None:
        self._plan = plan
        self._ends: list[int] = []

    def see(self, times: Integers) -> None:
        if times.size:
            both = [*self._ends, int(times.min()), int(times.max())]
            self._ends = [min(both), max(both)]

    def found(self) -> tuple[int, int]:
        plan, calendar = self._plan, self._plan.calendar
        if calendar is None or (plan.start is not None and plan.stop is not None):
            return plan.start or 0, plan.stop or 0
        if not self._ends:
            raise DataError(NO_ROWS)
        first = calendar.number(self._ends[0]) if plan.start is None else plan.start
        last = calendar.number(self._ends[1]) + 1 if plan.stop is None else plan.stop
        return first, max(first, last)
