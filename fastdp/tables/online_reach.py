"""Entries of a column so far, in the state of ``Windows``, for their reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from fastdp.kinds import Integers
from fastdp.state import codec
from fastdp.tables.columns import Numbers
from fastdp.tables.online import row_parts
from fastdp.tables.plan import TablePlan
from fastdp.tables.quantities import Quantity
from fastdp.tables.reach import EntryRows, Newcomers

#: Kinds of a log's parts: digests of entries, their keys, and the numbers of the last window.
_ENTRIES, _CELLS, _LAST = b"entries", b"cells", b"last"


@dataclass(frozen=True, eq=False, repr=False)
class Reached:
    """Entries of a column so far, 16 bytes each, and the keys in which they count: secret.

    ``entries``: digests, the first ``size`` of this state; ``cells``: an entry's number and a key, the first
    ``held``; ``last``: :func:`released` and secret exact numbers of the last windows of each height, int64[levels, 4,
    K].
    """

    entries: Numbers = field(default_factory=Numbers)
    cells: Numbers = field(default_factory=Numbers)
    size: int = 0
    held: int = 0
    last: Mapping[Quantity, Integers] = field(default_factory=dict)

    def alone(self) -> Reached:
        return Reached(last=self.last).with_pairs(self.entries.pairs[: self.size], self.cells.pairs[: self.held])

    def with_pairs(self, entries: Integers, cells: Integers) -> Reached:
        """State with more digests of entries, and cells, int64[n, 2] each."""
        self.entries.of(*entries.T.copy())
        self.cells.of(*cells.T.copy())
        return replace(self, size=self.entries.size, held=self.cells.size)

    def after(
        self, named: Integers, rows: EntryRows, quantities: Sequence[Quantity], span: tuple[int, int], plan: TablePlan
    ) -> tuple[Reached, dict[Quantity, Integers]]:
        """State after windows [first, last), and its counter's sums."""
        state, found, last = self, dict[Quantity, Integers](), dict[Quantity, Integers]()
        if (self.entries.size, self.cells.size) != (self.size, self.held):
            # Another state has more.
            state = self.alone()
        most, keys = None if plan.all_keys else plan.most_keys, max(1, len(plan.keys))
        rows = rows._replace(entries=state.entries.of(*named.T.copy()))
        for quantity in quantities:
            fresh, left = rows.entries >= state.size, None
            if quantity.name == "key reach":
                left = (most or keys) - np.bincount(state.cells.pairs[: state.held, 0], minlength=state.entries.size)
                fresh = left[rows.entries] > 0
                fresh[fresh] = state.cells.of(rows.entries[fresh], rows.codes[fresh]) >= state.held
            new = Newcomers(quantity, (span[1] - span[0], keys), most)
            new.see(rows.take(fresh), span[0])
            counter, width = quantity.counter, keys if quantity.name == "key reach" else 1
            before = self.last.get(quantity, np.zeros((counter.levels, 4, width), np.int64))
            first = span[0] - (plan.start or 0)
            found[quantity], total = counter.sums(new.new(left), before[:, 3], first)
            exact = counter.latest(total, before[:, 3], first)
            last[quantity] = np.concatenate([before[:, :3], exact[:, None]], axis=1)
        found = {quantity: sums[None] for quantity, sums in found.items()}
        return replace(state, size=state.entries.size, held=state.cells.size, last=last), found

    def with_released(self, measured: Mapping[Quantity, Integers], first: int) -> Reached:
        """State with released numbers, int64[3, W, K], of windows after ``first``."""
        found = {}
        for quantity, last in self.last.items():
            counter, steps = quantity.counter, measured[quantity].transpose(1, 0, 2)
            shown = counter.latest(steps, last[:, :3], first)
            found[quantity] = np.concatenate([shown, last[:, 3:]], axis=1)
        return replace(self, last=found)

    # Parts of a state file's log, of the column of a number.

    def parts(self, before: Reached, number: int) -> list[bytes]:
        last: Integers = np.empty((0, 0), np.int64)
        if self.last:
            joined = np.concatenate([*self.last.values()], axis=2)
            last = joined.reshape(-1, joined.shape[2])
        listed = (
            (_ENTRIES, self.entries.pairs[before.size : self.size]),
            (_CELLS, self.cells.pairs[before.held : self.held]),
            (_LAST, last[:0] if self.last is before.last else last),
        )
        return [part for kind, rows in listed for part in row_parts(rows, b"%b%d" % (kind, number))]

    def with_part(self, part: bytes, number: int, quantities: Sequence[Quantity], keys: int) -> Reached:
        """State after a log's part of this column."""
        kind, _, raw = part.partition(b":")
        name = kind.removesuffix(b"%d" % number)
        if name == kind or name not in (_ENTRIES, _CELLS, _LAST):
            return self
        given, none = codec.unpack(raw, "<i8").astype(np.int64), np.empty((0, 2), np.int64)
        if name == _LAST:
            levels = quantities[0].counter.levels
            last = np.split(given.reshape(levels, 4, -1), [1], axis=2)
            if last[1].shape[2] != (keys if len(quantities) > 1 else 0):
                raise ValueError("a key out of range")
            return replace(self, last=dict(zip(quantities, last, strict=False)))
        pairs = given.reshape(-1, 2)
        if name == _ENTRIES:
            return self.with_pairs(pairs, none)
        if pairs.min(initial=0) < 0 or (pairs.max(axis=0, initial=-1) >= (self.size, keys)).any():
            raise ValueError("a key out of range")
        return self.with_pairs(none, pairs)
