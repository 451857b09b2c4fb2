"""State of ``Windows`` between calls: open windows, their rows, and private keys so far.

A key appears when its running weight with fresh noise N passes T + Z, with one Z for each key
(``docs/tables_proofs.md``, "Private keys online").
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastdp.data.column import arrow, as_arrow
from fastdp.kinds import Flags, Integers
from fastdp.noise import bound_noise
from fastdp.noise.key import Key
from fastdp.noise.sampler import LaplaceDistribution, geometric_distribution, laplace_distribution
from fastdp.state import codec
from fastdp.tables.columns import Keys, Numbers, as_texts
from fastdp.tables.keys import MOST_KEYS, WEIGHT, count_rule, weigh, weights_of_norm
from fastdp.tables.quantities import CellRows
from fastdp.tables.shares import Shares
from fastdp.units import LAST
from fastdp_kernels.tables import person_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from fastdp.data.calendar import Calendar
    from fastdp.tables.plan import TablePlan


def texts(entries: Sequence[object]) -> list[pa.Array]:
    """Columns of a row's key."""
    return [as_texts(as_arrow([each], "keys")) for each in entries]


class Closing(NamedTuple):
    """Windows that close one by one, or with their period."""

    calendar: Calendar
    periods: Calendar | None
    #: The window after the last.
    stop: int

    def number(self, clock: int) -> int:
        if self.periods is None:
            return min(self.calendar.number(min(clock, LAST)), self.stop)
        return int(self.numbers(np.array([min(clock, LAST)]))[0])

    def numbers(self, clock: Integers) -> Integers:
        found = self.calendar.numbers(clock)
        if self.periods is not None:
            numbers = self.periods.numbers(clock)
            low, high = int(numbers.min()), int(numbers.max())
            begins = self.calendar.numbers(self.periods.edges(low, high)[numbers - low])
            found = np.where(found < self.stop, begins, found)
        return np.minimum(found, self.stop)

    def end(self, first: int) -> int:
        if self.periods is None:
            return first + 1
        period = self.periods.number(self.calendar.edge(first))
        return min(self.calendar.number(self.periods.edge(period + 1)), self.stop)

    def next(self, first: int, clock: int) -> int:
        """First window that a call leaves open."""
        found = max(first, self.number(clock))
        return found if self.periods is None or found == first else self.end(first)


#: Rows of closed windows stay as long as they are no more than the others, or than these; so do rows of one cell.
SPARE = 1024
#: Rows in one part of a state file's log.
PART_ROWS = 2**20


@dataclass(frozen=True, eq=False)
class Waiting:
    """Rows of open windows: window, key, and further numbers.

    Rows are appended, so states share them and a failed call changes nothing.  ``rows``, int64[capacity, c + 1]: the
    last column links to the window's previous row (-1: none), the last row holds the number filled by any state, and
    rows from ``size`` on are free. ``gone``: rows of closed windows; ``ends``: last row of each open window (-1:
    none); ``moved``, ``base``: compactions, and rows after the last; ``merges``: cells are added up.
    """

    rows: Integers
    ends: Integers
    merges: bool
    size: int = 0
    gone: int = 0
    moved: int = 0
    base: int = 0

    def __repr__(self) -> str:
        return f"Waiting(windows={self.ends.size})"

    @classmethod
    def none(cls, columns: int, *, merges: bool) -> Waiting:
        return cls(np.empty((0, columns + 1), np.int64), np.empty(0, np.int64), merges)

    def compact(self, first: int) -> Waiting:
        """Drop rows of windows before ``first`` and merge cells, if worthwhile."""
        live = self.size - self.gone
        crowded = self.merges and live > 2 * self.base + SPARE
        if self.gone <= max(live, SPARE) and not crowded:
            return self
        rows = self.of_first(self.ends.size)
        rows = _merged(rows) if self.merges else rows
        fresh = Waiting.none(rows.shape[1], merges=self.merges).with_rows(rows, first, self.ends.size)
        return replace(fresh, moved=self.moved + 1, base=fresh.size)

    def with_rows(self, said: Integers, first: int, windows: int = 0) -> Waiting:
        """State with rows, int64[m, c], and at least so many open windows."""
        places = said[:, 0] - first
        windows = max(windows, self.ends.size, int(places.max()) + 1 if len(places) else 0)
        ends = self.ends.copy()
        if windows > ends.size:
            ends = np.append(ends, np.full(windows - ends.size, -1, np.int64))
        rows, size = self.rows, self.size + len(said)
        if size >= len(rows) or rows[-1, 0] != self.size:
            # No free rows, or another state has filled them.
            rows = np.empty((2 * size + 2, self.rows.shape[1]), np.int64)
            rows[: self.size] = self.rows[: self.size]
        rows[self.size : size, :-1] = said
        person_rows.link_rows(places, rows, self.size, ends)
        rows[-1, 0] = size
        return Waiting(rows, ends, self.merges, size, self.gone, self.moved, self.base)

    def added_since(self, before: Waiting) -> Integers:
        """Rows since `before`, and after a compaction all that it left."""
        return self.rows[before.size if before.moved == self.moved else self.base : self.size, :-1]

    def of_first(self, windows: int) -> Integers:
        return self.rows[person_rows.chained_rows(self.rows, self.ends[:windows]), :-1]

    def without_first(self, windows: int, rows: int) -> Waiting:
        return replace(self, ends=self.ends[windows:], gone=self.gone + rows)

    def alone(self) -> Waiting:
        return replace(self, rows=self.rows[: self.size].copy())


def _merged(rows: Integers) -> Integers:
    rows = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    cells = rows[:, :2]
    starts = np.flatnonzero(np.append(True, (cells[1:] != cells[:-1]).any(axis=1))[: len(rows)])
    return np.column_stack((cells[starts], np.add.reduceat(rows[:, 2:], starts, axis=0))) if len(rows) else rows


def row_parts(rows: Integers, kind: bytes) -> list[bytes]:
    """Rows as parts of a log, small enough for state files."""
    return [b"%b:%b" % (kind, codec.pack(rows[i : i + PART_ROWS], "<i8")) for i in range(0, len(rows), PART_ROWS)]


#: In place of the window in which a key appears, while it is hidden.
HIDDEN = int(np.iinfo(np.int64).max)
#: Keys times windows whose noise is drawn at a time.
CELLS = 2**22
#: Keys that are remembered by their entries.
MOST_KNOWN = 2**16
#: Beginnings of texts in a state file's log.
_NAMES, _NUMBERS = b"names", b"numbers"
#: Rounding of a window's part of delta.
_ROUNDING = 2.0**-40


class KeyNoise(NamedTuple):
    """Rule by which keys appear.

    ``total``: largest norm of a unit's weights, of sums (``power`` 1) or squares (2); ``least``: smallest weight;
    ``loss``: cost.
    """

    total: int
    least: int
    power: int
    loss: float
    delta: float

    @classmethod
    def of(cls, shares: Shares) -> KeyNoise:
        """Rows count 1 each; distinct keys of a person and window have norm 1."""
        plan, loss, delta = shares.plan, shares.helper("keys"), shares.key_delta
        if plan.who is None:
            return cls(plan.contributions, 1, 1, loss, delta)
        power = 2 if shares.gaussian else 1
        return cls(plan.windows_of_unit * WEIGHT, int(weights_of(plan)[-1]), power, loss, delta)

    @property
    def scale(self) -> Fraction:
        return Fraction(self.total) / Fraction(self.loss)

    @property
    def noise(self) -> LaplaceDistribution:
        return geometric_distribution(self.scale)

    def thresholds(self, first: int, last: int) -> Integers:
        """T in windows `first` to `last` - 1: int64[last - first]."""
        octaves = np.array([number.bit_length() - 1 for number in range(first + 1, last + 1)], np.int64)
        found, index = np.unique(octaves, return_inverse=True)
        return np.array([_threshold(self, octave) for octave in found.tolist()], np.int64)[index]


@lru_cache(maxsize=256)
def _threshold(rule: KeyNoise, octave: int) -> int:
    """T in windows 2^i to 2^(i + 1) - 1, with 1 / ((i + 1) (i + 2)) of delta."""
    part = rule.delta / (2.0**octave * (octave + 1) * (octave + 2)) * (1.0 - _ROUNDING)
    return count_rule(laplace_distribution(rule.scale), rule.total, part, rule.least, rule.power).threshold


def weights_of(plan: TablePlan) -> Integers:
    """Weights of a person's distinct keys in a window."""
    return weights_of_norm(
        2 if plan.noise == "gaussian" else 1, min(plan.per_window or plan.contributions, MOST_KEYS)
    )


def person_cells(
    rows: CellRows, units: Integers, digests: Integers, words: Integers, weights: Integers, key: Key
) -> tuple[Integers, Integers, Integers]:
    """Window, key and weight of persons' keys, int64[m] each."""
    persons, periods, both = Numbers(), Numbers(), Numbers()
    groups = both.of(periods.of(persons.of(*digests.T.copy()), units), rows.windows)
    own, windows = both.pairs.T.copy()
    secret = np.frombuffer(key.derive("keys").reveal(), np.uint64)[:2]
    named = persons.pairs[periods.pairs[own, 0]]
    of, keys, found = weigh(groups, rows.codes.astype(np.int64), named, windows, words, weights, secret)
    return windows[of], keys, found


@dataclass(frozen=True, eq=False)
class OnlineKeys:
    """Keys so far, hidden ones too: secret, except those in ``shown``.

    ``table`` numbers the keys, ``size`` of them this state's.  ``facts``, int64[n, 3], of keys in closed windows: sum
    of weights, threshold's noise Z, window of appearance.
    """

    table: Keys
    size: int
    facts: Integers
    known: dict[object, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"OnlineKeys(shown={self.shown[0].size})"

    @classmethod
    def none(cls, names: tuple[str, ...]) -> OnlineKeys:
        return cls(Keys(names), 0, np.empty((0, 3), np.int64))

    @property
    def begins(self) -> Integers:
        """Window in which each key appeared, or HIDDEN: int64[n]."""
        return self.facts[:, 2]

    @cached_property
    def shown(self) -> tuple[Keys, Integers]:
        """Keys that have appeared, sorted, and their numbers (-1: hidden)."""
        return self.table.select(self.begins < HIDDEN)

    def learned(self, columns: list[pa.Array]) -> tuple[OnlineKeys, Integers]:
        # Another state may have more keys.
        state = self if self.table.size == self.size else self.alone()
        codes = state.table.codes(columns)
        return state if state.table.size == state.size else state._with(size=state.table.size), codes

    def alone(self) -> OnlineKeys:
        table = Keys(self.table.names)
        table.codes(self.table.entries(np.arange(self.size)))
        return self._with(table=table, known={})

    def _with(self, **changes: Any) -> OnlineKeys:
        found = replace(self, **changes)
        vars(found)["shown"] = self.shown
        return found

    def learned_one(self, entries: tuple[object, ...]) -> tuple[OnlineKeys, int]:
        code = self.known.get(entries, self.size)
        if code < self.size:
            return self, code
        found, codes = self.learned(texts(entries))
        if len(found.known) >= MOST_KNOWN:
            found.known.clear()
        code = found.known[entries] = int(codes[0])
        return found, code

    def after(
        self, cells: tuple[Integers, Integers, Integers], span: tuple[int, int], start: int, rule: KeyNoise, key: Key
    ) -> OnlineKeys:
        """State after windows `span`, [first, last), from windows, keys and weights, int64[n] each.

        `start`: the first window of all.
        """
        old, named, new = len(self.facts), self.table.named()[: self.size], np.zeros((self.size, 3), np.int64)
        new[:old], new[old:, 2] = self.facts, HIDDEN
        if self.size > old:
            own, zeros = key.within("keys", "bars"), np.zeros((1, 1, self.size - old), np.int64)
            new[old:, 1] = bound_noise.draw_cell_noise(zeros, [rule.noise], own, 0, named[old:])[0, 0]
        running, bars, begins = new.T
        windows, codes, weights = cells
        weighed = np.zeros(self.size, np.bool_)
        weighed[codes] = True
        hidden = np.flatnonzero((begins == HIDDEN) & (weighed | (running > 0)))
        place: Integers = np.full(self.size, -1, np.int64)
        place[hidden] = np.arange(hidden.size)
        length = max(1, CELLS // max(1, hidden.size))
        for first in range(span[0], span[1] if hidden.size else span[0], length):
            last = min(first + length, span[1])
            inside = (windows >= first) & (windows < last) & (place[codes] >= 0)
            exact: Integers = np.zeros((last - first, hidden.size), np.int64)
            np.add.at(exact, (windows[inside] - first, place[codes[inside]]), weights[inside])
            exact[0] += running[hidden]
            np.cumsum(exact, axis=0, out=exact)
            own = key.within("keys", "windows")
            noise = bound_noise.draw_cell_noise(exact[None], [rule.noise], own, first, named[hidden])[0]
            bar = rule.thresholds(first - start, last - start)[:, None] + bars[hidden]
            passed: Flags = (exact + noise >= bar) & (exact > 0)
            come = passed.any(axis=0) & (begins[hidden] == HIDDEN)
            begins[hidden[come]] = first + passed[:, come].argmax(axis=0)
            running[hidden] = exact[-1]
        return replace(self, facts=new)

    # Parts of a state file's log, which begin with names.

    def parts(self, before: OnlineKeys) -> list[bytes]:
        found = []
        if self.size > before.size:
            columns = self.table.entries(np.arange(before.size, self.size))
            table = arrow.table(columns, [str(i) for i in range(len(columns))])
            into = arrow.BufferOutputStream()
            with arrow.ipc.new_stream(into, table.schema) as writer:
                writer.write_table(table)
            found.append(b"%b:%b" % (_NAMES, into.getvalue().to_pybytes()))
        if self.facts is not before.facts:
            changed = np.ones(len(self.facts), np.bool_)
            changed[: len(before.facts)] = (self.facts[: len(before.facts)] != before.facts).any(axis=1)
            numbers = np.column_stack((np.flatnonzero(changed), self.facts[changed]))
            found += row_parts(numbers, _NUMBERS)
        return found

    def with_part(self, part: bytes) -> OnlineKeys:
        kind, _, raw = part.partition(b":")
        if kind == _NAMES:
            table = arrow.ipc.open_stream(raw).read_all()
            return self.learned([column.combine_chunks() for column in table.columns])[0]
        given = codec.unpack(raw, "<i8").reshape(-1, 4).astype(np.int64)
        size = max(len(self.facts), int(given[:, 0].max(initial=-1)) + 1)
        if kind != _NUMBERS or given[:, 0].min(initial=0) < 0 or size > self.size:
            raise ValueError("a key out of range")
        facts = np.pad(self.facts, ((0, size - len(self.facts)), (0, 0)))
        facts[given[:, 0]] = given[:, 1:]
        return replace(self, facts=facts)
