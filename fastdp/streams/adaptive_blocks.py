"""Publishing in blocks whose length follows released sums (:class:`fastdp.Adaptive`; ``docs/streams_proofs.md``).

The kernel closes blocks; here are draws that need exact arithmetic, and changes of the noise's scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from fastdp.integer_grid import EventGrid, Grid
from fastdp.kinds import Flags, Floats, Indices, Records
from fastdp.noise import chain_keys
from fastdp.noise.chain_keys import Chain
from fastdp.noise.key import ENABLED, Key
from fastdp.noise.sampler import Distribution, noise_distribution
from fastdp.perturbers import Blocks, HierarchyShape
from fastdp.perturbers.blocks import FINE
from fastdp.releases.revised import RevisedStream
from fastdp.streams.columns import RowKeys, RowValues, Streams, new_rows
from fastdp.streams.fixed_blocks import next_chain, start_chains
from fastdp_kernels.streams import adaptive_pass, block_lengths, seasons
from fastdp_kernels.streams.adaptive_pass import ADAPTIVE_ROW, BLOCK, BY_SCALE, SINGLES

#: Blocks of a visit of the kernel to rows with bound noise.
ROOM = 2**16
#: Largest rise of theta.
MAX_UNIT = 2.0**64
#: Prior before any release: values of theta / 2, with a deviation of theta / 2.
FIRST_LEVEL = 0.5
FIRST_VARIANCE = 0.25
#: Prior for events: a level of 0, with a variance of so many times that of a first sum.
FIRST_EVENTS = 1e6
NO_FLOATS, NO_ENDS = np.empty(0), np.empty(0, np.int64)


@dataclass
class Closed:
    """Blocks that a call closed, for revised answers."""

    #: MEMORY[n]. The rows' memories before the first of them; None before the first published value.
    before: Records | None = None
    #: `rows`, `blocks`: row of each block, in visits of the kernel.
    rows: list[Indices] = field(default_factory=list)
    blocks: list[Records] = field(default_factory=list)


class Law(NamedTuple):
    """Public numbers of rows with one scale of noise; `group`: that of a group's sum, or 0."""

    public: Records
    shape: Records
    constants: Floats
    scale: int
    group: int


@dataclass(frozen=True)
class AdaptiveBlocks:
    """Turns values into noisy block sums, and these into predictions and later lengths."""

    #: Noise follows from the sums so far.
    is_bound: ClassVar[bool] = True

    #: `plan`, `grid`, `perturber`, `epsilon`, `key`: as for :class:`FixedBlocks`.
    plan: HierarchyShape
    grid: Grid
    perturber: Blocks
    epsilon: float
    key: Key
    #: `max_range`, `warm_up`: r, and the number of values released as blocks before anything is published.
    max_range: int
    warm_up: int
    #: True if theta follows a stream that outgrows its hold-out.
    rises: bool

    @cached_property
    def events(self) -> bool:
        return isinstance(self.grid, EventGrid)

    @cached_property
    def shape(self) -> Records:
        return self.perturber.shape(self.epsilon, self.max_range, self.warm_up, events=self.events)

    @cached_property
    def lengths(self) -> Floats | None:
        return block_lengths.lengths_of_events(self.shape)

    @cached_property
    def _laws(self) -> dict[tuple[int, int, bool], Law]:
        return {}

    def law(self, theta_steps: int, steps: int, *, grouped: bool) -> Law:
        made = self._laws.get((theta_steps, steps, grouped))
        if made is None:
            shape, resolution = self.shape.copy(), self.grid.resolution
            if theta_steps < FINE:
                shape["group"] = 0.0
            if self.rises:
                shape["top_unit"] = max(1.0, self.grid.bound_steps / theta_steps)
            numbers = 1.0 / resolution, self.top(theta_steps), theta_steps, theta_steps * resolution
            public = np.array([(*numbers, self.grid.bound_steps)], adaptive_pass.PUBLIC)
            # LOUDER and GROUP_SCALE, exactly; rounded up, so that no fraction of epsilon is passed.
            scale, group = (-(-6 * steps // 5), 6 * steps) if grouped else (steps, 0)
            tables = [self.distribution(each).constants for each in (scale, group) if each]
            # Without a distribution the pass leaves every draw to its caller.
            constants = NO_FLOATS if self.key.given is not None else np.concatenate([NO_FLOATS, *tables])
            made = self._laws[theta_steps, steps, grouped] = Law(public, shape, constants, scale, group)
        return made

    def _law_of(self, rows: Records, row: int) -> Law:
        theta_steps = int(rows["theta_steps"][row])
        if not (self.rises or self._groups):
            return self.law(theta_steps, theta_steps, grouped=False)
        steps = self._in_steps(theta_steps, float(rows["unit"][row]))
        return self.law(theta_steps, steps, grouped=bool(rows["group"][row]))

    @cached_property
    def _groups(self) -> bool:
        return bool(self.shape["group"][0])

    def _by_law(self, rows: Records, which: Indices, calls: Indices) -> Iterator[tuple[Law, Indices]]:
        if calls.size == 1:
            yield self._law_of(rows, int(which[calls[0]])), calls
            return
        mine = which[calls]
        numbers = rows["theta_steps"][mine]
        if self.rises or self._groups:
            numbers = numbers + 1j * np.copysign(rows["unit"][mine], 0.5 - (rows["group"][mine] > 0.0))
        if (numbers == numbers[0]).all():
            yield self._law_of(rows, int(mine[0])), calls
            return
        distinct, firsts, owners = np.unique(numbers, return_index=True, return_inverse=True)
        for k in range(distinct.size):
            yield self._law_of(rows, int(mine[firsts[k]])), calls[owners == k]

    def distribution(self, scale: int) -> Distribution:
        return noise_distribution(self.perturber.noise, scale, 1, self.epsilon)

    def columns(self, count: int) -> Streams:
        waves = new_rows(0 if self.perturber.season is None else count, seasons.SEASON)
        # One stream has all scales at once, as it would return from the kernel for more of them.
        scales = np.zeros((count, BY_SCALE, block_lengths.SCALES if count == 1 else 0))
        return Streams(new_rows(count, ADAPTIVE_ROW), [None] * count, scales=scales, season=waves)

    def open(self, state: Streams, which: Indices, thetas: Floats, keys: RowKeys) -> Streams:
        rows = state.rows
        first, noise = int(self.shape["first"][0]), float(self.shape["noise"][0])
        level, variance = FIRST_LEVEL, FIRST_VARIANCE
        if self.events:
            level, variance = 0.0, FIRST_EVENTS * (1.0 + noise)
        elif not self.warm_up:
            # A guess is published first: only until its error meets that of a noisy mean.
            first = min(first, math.frexp(math.sqrt(noise / FIRST_VARIANCE))[1])
        each = thetas.tolist()
        snapped = {theta: self.grid.snap(theta) for theta in set(each)}
        steps = np.array([snapped[theta] for theta in each], np.int64)
        memory: Records = np.zeros(1, block_lengths.MEMORY)
        block_lengths.start_memory(level, variance, max(first, 0), self.rises, self.shape, memory)
        for name in SINGLES:
            rows[name][which] = memory[name]
        rows["theta_steps"][which] = steps
        if state.season.size:
            state.season["period"][which] = self.perturber.season
        rows["cycle"][which] += 1
        before = rows["chain"][which]
        rows["chain"][which] = start_chains(self.perturber, self.epsilon, before, which, steps, keys)
        return state

    def publish(self, state: Streams, batch: RowValues, keys: RowKeys, into: Closed | None = None) -> Streams | int:
        rows, one = state.rows, batch.counts.size == 1
        if into is not None and into.before is None:
            into.before = self.memories(state, batch.which)
        before = (rows["chain"][batch.which], rows["blocks"][batch.which]) if ENABLED else None
        left = NO_ENDS if one else np.arange(batch.counts.size)
        while one:
            # Without arrays of calls, which cost a single value as much as its pass.
            made = self._visit(state, batch, self._law_of(rows, int(batch.which[0])), keys, into)
            if isinstance(made, int):
                return made
            state, one = made[0], made[1].size > 0
        while left.size:
            waiting: list[Indices] = []
            for law, calls in self._by_law(rows, batch.which, left):
                part = batch if calls.size == batch.counts.size else batch.at(calls)
                made = self._visit(state, part, law, keys, into)
                if isinstance(made, int):
                    return -1 - int(calls[-1 - made])
                state, stays = made
                if stays.size:
                    waiting.append(calls[stays])
            left = np.sort(np.concatenate(waiting)) if waiting else NO_ENDS
        if before is not None:
            self._record(rows, batch.which, *before, keys)
        return state

    def _visit(
        self, state: Streams, batch: RowValues, law: Law, keys: RowKeys, into: Closed | None
    ) -> tuple[Streams, Indices] | int:
        values, starts, counts, which, out, out_starts = batch
        size = min(int(counts[0]) if counts.size == 1 else int(counts.sum()), ROOM)
        blocks, waiting = np.empty(size + 1, BLOCK), np.empty(counts.size, np.int64)
        ends = NO_ENDS if into is None else np.empty(counts.size, np.int64)
        waits = adaptive_pass.advance_rows(
            values,
            starts,
            counts,
            which,
            law.public,
            law.shape,
            self.lengths,
            law.constants,
            state.rows,
            state.scales,
            state.season if state.season.size else None,
            blocks,
            ends,
            waiting,
            out,
            out_starts,
        )
        if waits < 0:
            return waits
        if into is not None:
            into.rows.append(np.repeat(which, np.diff(ends, prepend=0)))
            into.blocks.append(blocks[: ends[-1]].copy())
        if not waits:
            return state, NO_ENDS
        stays = waiting[:waits]
        return self._settled(state, batch.at(stays), law, keys, into), stays

    def _settled(self, state: Streams, batch: RowValues, law: Law, keys: RowKeys, into: Closed | None) -> Streams:
        rows, which = state.rows, np.unique(batch.which)
        reasons = rows["stopped"][which]
        if (reasons == adaptive_pass.REACHED).any():
            state = reaching(state, batch.which, batch.counts)
        rows["stopped"][which] = 0
        settles = (reasons != adaptive_pass.REACHED) & (reasons != adaptive_pass.FULL)
        for i, stopped in zip(which[settles].tolist(), reasons[settles].tolist(), strict=True):
            row = rows[i]
            if stopped != adaptive_pass.SCALED:
                # The few draws that need exact arithmetic.
                ended = stopped == adaptive_pass.ENDED
                distribution = self.distribution(law.group if ended else law.scale)
                index = int(row.blocks) + (adaptive_pass.OF_GROUP - 1 if ended else 0)
                total = int(row.group_sum if ended else row.open_sum)
                row.drawn = chain_keys.resolve(distribution, self.key, row.chain, index, total)
                row.given = adaptive_pass.OF_ENDED if ended else adaptive_pass.OF_BLOCK
                if ended and into is not None:
                    last = np.flatnonzero(into.rows[-1] == i)[-1]
                    into.blocks[-1]["group"][last] = float(total + int(row.drawn)) / float(row.theta_steps)
            elif (following := self._law_of(rows, i).scale) != law.scale:
                # No random word is used with two scales, also where another version lets theta rise elsewhere.
                row.chain[:] = next_chain(self.perturber, keys.of(i), following, self.epsilon, row.chain)
        return state

    def _record(self, rows: Records, which: Indices, before: Chain, blocks: Indices, keys: RowKeys) -> None:
        closed = rows["blocks"][which] - blocks
        for row, call in zip(*np.unique(which, return_index=True), strict=True):
            chain_keys.record(keys.of(row), before[call], rows["chain"][row], int(closed[call]))

    # Releases, and states from files.

    @staticmethod
    def memories(state: Streams, which: Indices) -> Records:
        made: Records = np.zeros(which.size, block_lengths.MEMORY)
        numbers, scales = made.view(np.float64).reshape(which.size, made.itemsize // 8), state.scales.shape[2]
        for kind, begin in enumerate(range(0, FIRST_SINGLE, block_lengths.SCALES)):
            numbers[:, begin : begin + scales] = state.scales[which, kind]
        numbers[:, FIRST_SINGLE:] = singles_of(state.rows)[which]
        return made

    def revised(self, closed: Closed, theta_steps: Indices, which: Indices) -> tuple[RevisedStream, ...]:
        assert closed.before is not None  # noqa: S101 - some of the values were published
        owners = np.concatenate(closed.rows)
        order = np.argsort(owners, kind="stable")
        edges = np.searchsorted(owners[order], np.arange(which.size + 1))
        # Records as such would be joined field by field.
        names = ("exponent", "released", "place", "group")
        columns = [np.concatenate([part[name] for part in closed.blocks])[order] for name in names]
        made = []
        for i, steps in enumerate(theta_steps.tolist()):
            exponents, totals, places, groups = (column[edges[i] : edges[i + 1]] for column in columns)
            revised = RevisedStream(
                exponents=exponents,
                totals=totals,
                places=places,
                groups=groups,
                threshold=steps * self.grid.resolution,
                memory=closed.before[i : i + 1],
                shape=self.law(steps, steps, grouped=False).shape,
                season=self.perturber.season,
            )
            made.append(revised)
        return tuple(made)

    def top(self, theta_steps: int) -> float:
        """Largest value after clipping, in steps; negative for both signs."""
        return -float(self.grid.bound_steps) if self.events else float(min(theta_steps, self.grid.bound_steps))

    def steps(self, state: Streams) -> int:
        first = int(state.rows["theta_steps"][0])
        return self._in_steps(first, float(state.rows["unit"][0])) if first else 0

    def highest(self, rows: Records) -> Indices:
        pairs = zip(rows["theta_steps"].tolist(), rows["highest"].tolist(), strict=True)
        return np.array([self._in_steps(*each) for each in pairs], np.int64)

    def _in_steps(self, theta_steps: int, unit: float) -> int:
        if unit == 1.0:
            return theta_steps
        # In floats, unit * theta_steps may miss the bound by rounding.
        bound = self.grid.bound_steps
        return bound if unit >= bound / theta_steps else int(unit * theta_steps)

    def clips(self, state: Streams) -> bool:
        if self.events or not self.steps(state) or self.steps(state) >= self.grid.bound_steps:
            return False
        row = state.rows[0]
        certain = row.level - block_lengths.CERTAIN * math.sqrt(row.variance)
        return bool(certain > block_lengths.CUT_OFF * row.unit)

    def block(self, state: Streams) -> int:
        row = state.rows[0]
        return 1 << int(row.exponent if row.theta_steps else self.shape["first"][0])

    def restored(self, state: Streams, arrays: dict[str, Floats]) -> Streams:
        memory, scales, season = arrays["memory"], arrays["scales"], arrays["season"]
        fits = not arrays["smoother"].size and not arrays["correlated"].size and memory.size == len(SINGLES)
        fits &= scales.size % BY_SCALE == 0 and scales.size < BY_SCALE * block_lengths.SCALES
        if not fits or season.nbytes != state.season.nbytes:
            raise ValueError("a memory out of range")
        singles_of(state.rows)[:] = memory
        state.season.view(np.float64)[:] = season
        return state._replace(scales=scales.reshape(1, BY_SCALE, -1))

    def fits(self, state: Streams) -> Flags:
        rows, most, scales = state.rows, float(self.shape["most"][0]), state.scales
        fits: Flags = rows["filled"] >= 0
        fits &= np.isfinite(singles_of(rows)).all(axis=1)
        fits &= np.isfinite(scales).all(axis=(1, 2))
        if self.perturber.season is not None:
            numbers = state.season.view(np.float64).reshape(rows.size, state.season.itemsize // 8)
            fits &= np.isfinite(numbers).all(axis=1)
            fits &= np.equal(state.season["period"], self.perturber.season)
        with np.errstate(invalid="ignore"):
            for name in ("position", "decided", "exponent", "last"):
                fits &= rows[name] == np.floor(rows[name])
            for name in ("exponent", "last"):
                fits &= (rows[name] >= 0.0) & (rows[name] <= most)
            lengths = np.ldexp(1.0, np.where(fits, rows["exponent"], 0.0).astype(np.int64))
            fits &= (rows["filled"] < lengths) & (rows["position"] < 2.0 ** scales.shape[2])
            fits &= (rows["decided"] >= 0.0) & (rows["decided"] <= rows["position"])
            fits &= (rows["unit"] >= 1.0) & (rows["unit"] <= rows["highest"]) & (rows["highest"] <= MAX_UNIT)
            fits &= (rows["members"] >= 0.0) & (rows["group"] >= 0.0) & (rows["group"] <= self.max_range)
        return fits


#: Where the single numbers of a memory begin.
FIRST_SINGLE = BY_SCALE * block_lengths.SCALES


def singles_of(rows: Records) -> Floats:
    """View a memory's single numbers by row: float64[n, k]."""
    numbers: Floats = rows.view(np.float64).reshape(rows.size, rows.itemsize // 8)
    return numbers[:, numbers.shape[1] - len(SINGLES) :]


def reach_of(state: Streams) -> int:
    """Number of scales that the streams have reached."""
    return int(state.rows["position"].max(initial=0.0)).bit_length()


def reaching(state: Streams, which: Indices, counts: Indices) -> Streams:
    """Add scales for further values of these rows."""
    rows = state.rows[which]
    # A row may have a call for each of its values.
    calls = np.bincount(which, counts)[which] - rows["taken"]
    ends = rows["position"] + rows["filled"] + calls
    missing = int(ends.max(initial=0.0)).bit_length() - state.scales.shape[2]
    if missing <= 0:
        return state
    rooms = *state.scales.shape[:2], missing
    return state._replace(scales=np.concatenate([state.scales, np.zeros(rooms)], axis=2))
