"""Blocks whose length follows what was released, in plain Python, as ``docs/streams_proofs.md`` tells it.

Nothing is updated that could be computed anew: all differences of neighbours are kept, and every mean is taken over
all of them; levels given all sums come from one system of linear equations; the revised stream is integrated value by
value.  Sums are in thresholds, noise comes in from outside, and so do constants: ``constants`` is anything that has
the names CADENCE, CATCH_UP, MAX_CATCH_UP, FORGET, PRIOR_COUNT, MAX_WHITE, FALL, SEEN, CLASSES, MAX_RISE, MAX_SWING,
CUT_OFF, RISE_BY, CERTAIN, MARGIN, MIN_REFERENCE, KNOWN, MAX_JUMP, EARLY, EMPTY_REFERENCE, USELESS, MEMBERS, WIDER,
LOUDER, GROUP_SCALE, REPAID; where values are counts of events, ``events`` has the names FALL, SEEN, CLASSES, MISFIT.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np


@dataclass(frozen=True)
class Public:
    """Public parameters: nu, r, the prior signal, bounds of k, the warm-up's end, whether accounts are spread."""

    noise: float
    max_range: int
    prior_white: float
    prior_drift: float
    least: int
    most: int
    first: int
    limit: int
    constants: Any
    events: Any = None
    focus: tuple[int, int] | None = None
    rises: bool = False
    top: float = 1.0
    group: int = 0


class Run(NamedTuple):
    """Neighbouring blocks seen as one: 2^k values, their released sum, and how many noises are in it."""

    begin: int
    end: int
    total: float
    noises: float


class Difference(NamedTuple):
    """Of two runs of 2^scale values each, seen when so many blocks had closed."""

    scale: int
    square: float
    noises: float
    seen: int


class Block(NamedTuple):
    """Released and known numbers of a block when it closed."""

    exponent: int
    total: float
    prediction: float
    extra: float
    white: float
    drift: float
    level: float
    noises: float = 1.0


def energy_of(white, drift, k):
    """h_k of independent values of variance white and of a level that wanders by drift a value."""
    return white * 2 * 2.0**k + drift * 2 / 3 * 8.0**k


def query_lengths(public):
    """A third of r in the mean, and 7, 70, 700 times less, never less than one value; of a focus, evenly on a log."""
    if public.focus:
        low, high = public.focus
        count = public.constants.CLASSES if public.events is None else public.events.EVENT_CLASSES
        return [low * (high / low) ** (i / (count - 1)) for i in range(count)]
    if public.events is not None:
        return [min(10.0**i, public.max_range) for i in range(public.events.EVENT_CLASSES)]
    return [max(1.0, public.max_range / 3 / d) for d in (1.0, 7.0, 70.0, 700.0)]


def noise_of_query(length, block):
    """Noises of a block in a range of this length at a random place, when each is spread evenly."""
    if length >= block:
        return length / block - 1 / 3
    return (length / block) ** 2 * (1 - length / block / 3)


def hidden(length, block):
    """Share of the energy between the halves (of ``block`` values each) that a range of this length meets."""
    return ((length / block) ** 2 / 4) / (1 + 1.5 * (length / block) ** 2)


def choose_exponent(white, drift, seen, public):
    """The first k with the least product."""
    products = products_of_errors(white, drift, seen, public)
    return min(products, key=lambda k: (products[k], k))


def products_of_errors(white, drift, seen, public):
    """By k: the product, over classes of queries, of the errors of revised and published answers."""
    independent = min(white, public.constants.MAX_WHITE)

    def parts(k):
        """Of what is independent between values, and of what moves."""
        if k >= seen:
            return energy_of(white, 0.0, k), energy_of(0.0, drift, k)
        within = energy_of(white, drift, seen) - energy_of(independent, 0.0, seen)
        return energy_of(independent, 0.0, k), within / public.constants.FALL ** (seen - k)

    products = {}
    for k in range(public.least, public.most + 1):
        products[k], share = 1.0, 2.0 ** -catch_up(k, public)
        closing = settled_error(*parts(k), public.noise) / public.noise
        for length in query_lengths(public):
            error = sum(sum(parts(j)) * hidden(length, 2.0**j) for j in range(k)) / public.noise
            late = closing * strayed(length / 2.0**k, share)
            # The account of a block is settled within a share of the next one.
            late += share * noise_of_query(length, share * 2.0**k)
            revised = error + noise_of_query(length, 2.0**k)
            # A focus is on revised answers first.
            products[k] *= revised ** (2 if public.focus else 1) * (error + late)
    return products


def catch_up(k, public):
    """How many times the longer of two blocks, of 2^k values, is halved for the part that settles the account."""
    c = public.constants
    if not public.focus or public.events:
        return c.CATCH_UP
    ratios = [length / 2.0**k for length in query_lengths(public)]
    return min(range(c.CATCH_UP, c.MAX_CATCH_UP + 1), key=lambda up: np.prod([strayed(r, 2.0**-up) for r in ratios]))


def settled_error(independent, moving, noise):
    """Variance of a block's sum about the filter's prediction, by running the filter until it settles."""
    moves, seen = 1.5 * moving, independent / 2 + noise
    variance = moves
    for _ in range(100_000):
        following = variance * seen / (variance + seen) + moves if seen else moves
        if abs(following - variance) <= 1e-15 * following:
            break
        variance = following
    return variance + independent / 2


def strayed(ratio, share):
    """Of a closing error, what ranges of so many blocks meet: one of two slopes, or two ends far apart."""
    short = (1 + 1 / share) * ratio**2
    far = 2 * (1 + share) / 3
    return short / (1 + short / far)


def noise_of_count(length, block):
    """Noises of a block in a range of this many values, over all places where it may begin."""
    found = []
    for begin in range(block):
        blocks = np.bincount(np.arange(begin, begin + length) // block)
        found.append(((blocks / block) ** 2).sum())
    return float(np.mean(found))


def hidden_count(length, half):
    """Share of energy that a range of this length meets: of one value exactly, of long ranges exactly."""
    at_one, far = 1 / half**2 / 4, (2 / 3 + 1 / (3 * half**2)) / 4
    square = (length / half) ** 2
    return 0.25 * square / (1 + (square / 4 - at_one) / far)


def choose_event_exponent(white, drift, table, level, public):
    """As ``choose_exponent``, by energies seen at each scale; classes of 1, 10, ... values; Poisson within."""
    c = public.events
    seen = next((k for k in range(public.most) if table.get(k, (0.0,))[0] >= c.SEEN), public.most)
    independent = min(white, max(level, 0.0))

    def measured(k):
        fitted = energy_of(white, drift, k)
        weight, energy, noises = table.get(k, (0.0, 0.0, 0.0))
        if weight < c.SEEN:
            return fitted
        mine, theirs = c.MISFIT * fitted**2, 2 * (fitted + noises * public.noise) ** 2 / weight
        return max((theirs * fitted + mine * energy) / (mine + theirs), 0.0)

    def within(k):
        structure = max(measured(seen) - energy_of(independent, 0.0, seen), 0.0)
        return energy_of(independent, 0.0, k) + structure / c.FALL ** (seen - k)

    products = {}
    for k in range(public.most + 1):
        products[k] = 1.0
        for length in query_lengths(public):
            error = sum((within(j) if j < seen else measured(j)) * hidden_count(length, 2.0**j) for j in range(k))
            ratio = length / 2**k
            if ratio >= 1:
                own = ratio - 1 / 3 + 1 / (3 * 4**k)
            else:
                own = ratio**2 * (1 - ratio / 3) + ratio / (3 * 4**k)
            at_own = (within(k) if k < seen else measured(k)) * hidden_count(length, 2.0**k)
            late = error + c.LAG * at_own if k else error
            products[k] *= (error / public.noise + own) * (late / public.noise + own)
    return min(products, key=lambda k: (products[k], k))


@dataclass
class Learner:
    """Everything released so far, and the choices made from it."""

    public: Public
    level: float
    variance: float
    exponent: int
    blocks: list[Block] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    waiting: dict[int, Run] = field(default_factory=dict)
    position: int = 0
    decided: int = 0
    carry: float = 0.0
    unit: float = 1.0
    reference: float | None = None
    empty: bool = False
    tried: float | None = None
    jump: float = 0.0
    highest: float = 1.0
    span: list[tuple[int, float, float]] = field(default_factory=list)
    #: Values of the open group, 0 if none is open; released sums of its blocks; what is still to be published of the
    #: last group's sum; blocks of each group that has ended, and by how much their sums are moved together.
    group: int = 0
    members: list[float] = field(default_factory=list)
    debt: float = 0.0
    groups: list[tuple[range, float]] = field(default_factory=list)

    def __post_init__(self):
        self.white, self.drift = self.public.prior_white, self.public.prior_drift
        #: Variances by which the level moves before each block, and of each block's mean about the level.
        self.moves, self.spreads = [], []
        self.start = (self.level, self.variance)
        self._open()

    def _open(self):
        """How long the next block is, and what is published in it."""
        while self.position < self.public.limit < self.position + 2**self.exponent:
            self.exponent -= 1
        self.prediction = self.level if self.public.events else min(max(self.level, 0.0), self.unit)
        self.prediction += self._repaid(self.exponent) / 2**self.exponent
        self.extra = self.carry / self.catch_up

    def _repaid(self, k):
        """Part of the debt that a block of 2^k values publishes."""
        if not self.debt or (self.public.events and k == 0):
            return 0.0
        return self.debt * min(1.0, self.public.constants.REPAID * 2**k / self.public.group)

    def _open_group(self):
        """Between two multiples of its size, which follows the last block's length."""
        size = max(self.public.group, int(self.public.constants.MEMBERS) << self.blocks[-1].exponent)
        self.members = []
        fits = size <= self.public.constants.WIDER * self.public.group
        opens = fits and self.position >= self.public.limit and self.position % size == 0
        self.group = size if opens else 0

    def end_group(self, total):
        """A group's released sum: blocks and sum are weighed by their variances."""
        c, count = self.public.constants, len(self.members)
        own = count * c.LOUDER**2
        moved = (total - sum(self.members)) * own / (own + c.GROUP_SCALE**2)
        self.groups.append((range(len(self.blocks) - count, len(self.blocks)), moved))
        self.debt += moved
        self._open_group()
        self._open()

    @property
    def catch_up(self):
        last = self.blocks[-1].exponent if self.blocks else 0
        return catch_up_length(self.exponent, last, self.public)

    def means_by_scale(self):
        """Of all differences seen, fading by block: {scale: (weight, energy, noises)}."""
        table = {}
        for scale in sorted({d.scale for d in self.differences}):
            mine = [d for d in self.differences if d.scale == scale]
            fades = [self.public.constants.FORGET ** (len(self.blocks) - d.seen) for d in mine]
            energies = [d.square - d.noises * self.public.noise for d in mine]
            table[scale] = (
                sum(fades),
                sum(f * e for f, e in zip(fades, energies, strict=True)) / sum(fades),
                sum(f * d.noises for f, d in zip(fades, mine, strict=True)) / sum(fades),
            )
        return table

    def fit(self):
        """White and drift by three rounds of weighted least squares, neither below 0."""
        p, prior = self.public, self.public.constants.PRIOR_COUNT
        table = self.means_by_scale()
        weight, energy, noises = table.get(p.first, (0.0, 0.0, 0.0))
        guess = energy_of(p.prior_white, p.prior_drift, p.first)
        table[p.first] = (
            weight + prior,
            (weight * energy + prior * guess) / (weight + prior),
            (weight * noises + prior * 2) / (weight + prior),
        )
        scales = sorted(table)
        weights, energies, noises = (np.array([table[k][i] for k in scales]) for i in range(3))
        by_white, by_drift = (np.array([energy_of(*signal, k) for k in scales]) for signal in ((1, 0), (0, 1)))
        white, drift = p.prior_white, p.prior_drift
        for _ in range(3):
            trust = weights / (white * by_white + drift * by_drift + noises * p.noise) ** 2
            normal = np.array(
                [
                    [(trust * by_white**2).sum(), (trust * by_white * by_drift).sum()],
                    [(trust * by_white * by_drift).sum(), (trust * by_drift**2).sum()],
                ]
            )
            right = np.array([(trust * by_white * energies).sum(), (trust * by_drift * energies).sum()])
            answer = np.array([-1.0, -1.0])
            # One scale alone cannot tell the two apart.
            if normal[0, 0] * normal[1, 1] - normal[0, 1] ** 2 > 1e-9 * normal[0, 0] * normal[1, 1]:
                # In units of their own, so that Gauss's pivots are about 1.
                units = np.sqrt(np.diag(normal))
                answer = np.linalg.solve(normal / np.outer(units, units), right / units) / units
            if answer.min() < 0.0:
                # The better of the two alone: which takes more off the squares.
                alone = np.maximum(right, 0.0) / np.diag(normal)
                gains = alone**2 * np.diag(normal)
                answer = np.array([alone[0], 0.0]) if gains[0] >= gains[1] * (1 - 1e-9) else np.array([0.0, alone[1]])
            white, drift = answer
        return float(white), float(drift)

    def _compare(self, scale, run):
        other = self.waiting.pop(scale, None)
        if other is None or other.end != run.begin:
            self.waiting[scale] = run
            return
        noises = other.noises + run.noises
        self.differences.append(Difference(scale, (run.total - other.total) ** 2, noises, len(self.blocks)))
        self._compare(scale + 1, Run(other.begin, run.end, other.total + run.total, noises))

    def close(self, total):
        """A block's released sum, in thresholds; true where a group ends, whose sum is to be released."""
        p, k = self.public, self.exponent
        length, caught = 2**k, self.catch_up
        # Under a theta that rose, a block has the noise of several under the first.
        quiet, unit = self.unit**2, self.unit
        noises = quiet * p.constants.LOUDER**2 if self.group else quiet
        noise = p.noise * noises
        # Counted first, so that what is seen now has not faded.
        self.blocks.append(Block(k, total, self.prediction, self.extra, 0.0, 0.0, 0.0))
        self._compare(k, Run(self.position, self.position + length, total, noises))
        self.position += length
        learns = k not in self.waiting and (
            p.events or length >= p.constants.CADENCE or self.position - self.decided >= p.constants.CADENCE
        )
        if learns:
            self.white, self.drift = self.fit()
        # A level that wanders, seen with noise.
        before = self.blocks[-2].exponent if len(self.blocks) > 1 else None
        self.moves.append(0.0 if before is None else self.drift * (length + 2**before) / 2)
        self.spreads.append(self.white / length + noise / length**2)
        predicted = self.variance + self.moves[-1]
        trust = predicted / (predicted + self.spreads[-1])
        self.level += trust * (total / length - self.level)
        self.variance = predicted * (1 - trust)
        self.blocks[-1] = self.blocks[-1]._replace(
            white=self.white, drift=self.drift, level=self.level, noises=noises
        )
        usual = total if p.events and k == 0 else length * self.prediction
        paid = self._repaid(k)
        published = usual + caught * self.extra - paid
        self.debt -= paid
        self.carry = self.carry + total - published if self.position > p.limit else 0.0
        if learns:
            self.decided = self.position
            table = self.means_by_scale()
            if p.events:
                chosen = choose_event_exponent(self.white, self.drift, table, self.level, p)
            else:
                seen = next((s for s in range(k) if table.get(s, (0.0,))[0] >= p.constants.SEEN), k)
                chosen = choose_exponent(self.white / quiet, self.drift / quiet, seen, p)
            self.exponent = min(chosen, k + 1)
        if p.rises:
            self._follow(length, total, noises)
        ends = False
        if p.group and self.group and self.unit == unit:
            self.members.append(total)
            ends = self.position % self.group == 0
        elif p.group:
            self._open_group()
        self._open()
        return ends

    def _follow(self, length, total, noises):
        """Theta follows the mean over at least as many values as the hold-out released."""
        c, limit = self.public.constants, self.public.limit
        self.span.append((length, total, noises))
        lengths, totals, drawn = (sum(each) for each in zip(*self.span, strict=True))
        if self.position < limit or lengths < limit / c.EARLY:
            return
        mean, deviation = totals / lengths, np.sqrt(self.public.noise * drawn) / lengths
        certain, before = mean - c.CERTAIN * deviation, self.unit
        known = lengths >= limit and c.CERTAIN * deviation <= c.KNOWN * self.unit
        if self.reference is None:
            if known:
                self.span = []
                self.reference = max(mean + c.MARGIN * deviation, c.MIN_REFERENCE)
                if self.reference > c.CUT_OFF:
                    self.reference, self.empty = c.EMPTY_REFERENCE, True
            return
        jumps = certain > max(c.CUT_OFF, (1 + self.reference) / 2) * self.unit
        if not (known or jumps):
            return
        self.span = []
        tried, self.tried = self.tried, None
        if tried is not None and mean < c.USELESS * tried:
            self.unit, self.reference, self.jump, self.empty = 1.0, tried, 0.0, False
        elif jumps:
            rises = range(1, 1000)
            least = next(c.RISE_BY**k for k in rises if certain <= self.reference * self.unit * c.RISE_BY**k)
            self.jump = min(max(self.jump**2, least), c.MAX_JUMP)
            self.unit = min(self.unit * self.jump, self.public.top)
        elif certain > self.reference * self.unit * (c.MAX_SWING if self._is_back() else c.MAX_RISE):
            while self.unit < self.public.top and certain > c.MAX_RISE * self.reference * self.unit:
                self.unit = min(self.unit * c.RISE_BY, self.public.top)
            self.jump **= 0.5
        elif self.jump or self.highest <= c.MAX_SWING:
            while self.unit > 1.0 and (mean + c.MARGIN * deviation) * c.RISE_BY < self.reference * self.unit:
                self.unit = max(self.unit / c.RISE_BY, 1.0)
            if self.unit == before:
                self.jump = self.jump**0.5 if self.jump**0.5 > c.RISE_BY else 0.0
        self.highest = max(self.highest, self.unit)
        if self.unit > before:
            if before == 1.0 and self.empty:
                self.tried = mean
            longest = max(k for k in range(self.public.most + 1) if 2**k <= max(limit, 2**self.public.least))
            self.exponent = min(self.exponent, longest)

    def _is_back(self):
        """True if theta is the first one again, and was never far above it."""
        return self.unit == 1.0 and 1.0 < self.highest <= self.public.constants.MAX_SWING


def release(steps, noise, theta_steps, learner, bound_steps=None, group_noise=None):
    """Sums of blocks with their noise, as long as there are values; the learner knows the rest.

    ``noise(total)`` is the noise of the next block, whose exact sum is ``total``; where theta rises, up to
    ``bound_steps``, ``noise(total, theta)`` for a theta in steps.  ``group_noise(total)`` is that of a group's sum.
    """
    steps = [int(s) for s in steps]
    at = whole = 0
    while at + 2**learner.exponent <= len(steps):
        length, group = 2**learner.exponent, learner.group
        part = steps[at : at + length]
        if bound_steps is None:
            total = sum(part)
            drawn = noise(total)
        else:
            theta = int(min(learner.unit * theta_steps, bound_steps))
            total = sum(min(step, theta) for step in part)
            drawn = noise(total, theta)
        whole = whole + total if group else 0
        if learner.close(float(total + drawn) / theta_steps):
            learner.end_group(float(whole + group_noise(whole)) / theta_steps)
            whole = 0
        at += length
    return learner


def catch_up_length(exponent, before, public):
    """A part of the longer of two neighbouring blocks, but no more than the second has."""
    longer = max(exponent, before)
    return 2 ** int(min(exponent, max(longer - catch_up(longer, public), 0)))


def published(learner, count, *, skip=0):
    """The first ``count`` values behind the first ``skip`` blocks, in thresholds."""
    before = learner.blocks[skip - 1].exponent if skip else 0
    opened = Block(learner.exponent, np.nan, learner.prediction, learner.extra, 0.0, 0.0, 0.0)
    out = []
    for block in [*learner.blocks[skip:], opened]:
        first = catch_up_length(block.exponent, before, learner.public)
        before = block.exponent
        values = [block.prediction + block.extra * (i < first) for i in range(2**block.exponent)]
        if learner.public.events and block.exponent == 0 and block is not opened:
            values = [block.total + block.extra]
        out += values
    return np.array(out[:count])


AHEAD = 32


def signals(learner, skip=0):
    """White and drift of the blocks behind the first ``skip``, as they are known 32 blocks later or at the end."""
    later = [learner.blocks[min(j + AHEAD, len(learner.blocks) - 1)] for j in range(skip, len(learner.blocks))]
    return [block.white for block in later], [block.drift for block in later]


def levels_given_all(learner, skip=0):
    """Posterior means of the levels of the blocks behind the first ``skip``, by their joint normal distribution.

    The first of these blocks begins with what the ``skip`` blocks before it said.
    """
    level, variance = learner.start
    for j in range(skip):
        predicted = variance + learner.moves[j]
        trust = predicted / (predicted + learner.spreads[j])
        block = learner.blocks[j]
        level += trust * (block.total / 2**block.exponent - level)
        variance = predicted * (1 - trust)
    blocks, noise = learner.blocks[skip:], learner.public.noise
    lengths = np.array([2.0**block.exponent for block in blocks])
    before = np.array([2.0**block.exponent for block in learner.blocks[max(skip - 1, 0) : -1]])
    white, drift = (np.array(signal) for signal in signals(learner, skip))
    moves = drift * (lengths + (before if skip else np.concatenate([[0.0], before]))) / 2
    moves[0] *= skip > 0
    spreads = white / lengths + noise * np.array([block.noises for block in blocks]) / lengths**2
    means = np.array([block.total for block in blocks]) / lengths
    reached = variance + np.cumsum(moves)
    prior = np.minimum.outer(reached, reached)
    return level + prior @ np.linalg.solve(prior + np.diag(spreads), means - level)


def block_means(learner, levels, skip=0):
    """Between the released mean and the level, by their variances."""
    means = []
    for block, level, white in zip(learner.blocks[skip:], levels, signals(learner, skip)[0], strict=True):
        own, noise = white / 2**block.exponent, block.noises * learner.public.noise / 4**block.exponent
        means.append(level + own / (own + noise) * (block.total / 2**block.exponent - level))
    return np.array(means)


def kept_means(learner, means, skip=0):
    """Means moved until aligned groups of 32, 64, ... blocks sum to what was released, give or take a deviation."""
    means, blocks = np.array(means), learner.blocks[skip:]
    size = 32
    while size <= len(blocks):
        for first in range(0, len(blocks) - size + 1, size):
            group = range(first, first + size)
            lengths = {j: 2 ** blocks[j].exponent for j in group}
            missing = sum(blocks[j].total - means[j] * lengths[j] for j in group)
            allowed = np.sqrt(learner.public.noise * sum(blocks[j].noises for j in group))
            for j in group:
                means[j] += np.sign(missing) * max(abs(missing) - allowed, 0.0) / sum(lengths.values())
        size *= 2
    for group, moved in learner.groups:
        own = [j - skip for j in group]
        lengths = {j: 2 ** blocks[j].exponent for j in own}
        missing = moved + sum(blocks[j].total - means[j] * lengths[j] for j in own)
        means[own] += missing / sum(lengths.values())
    return means


def revised(exponents, means, levels, count):
    """The first ``count`` values of the revised stream, integrated one by one."""
    lengths = [2 ** int(k) for k in exponents]
    edges = np.concatenate([[0], np.cumsum(lengths)])
    middles = (edges[:-1] + edges[1:]) / 2

    def area(a, b):
        """Of the line through the levels at the middles, flat outside, between two places."""
        inner = middles[np.searchsorted(middles, a, "right") : np.searchsorted(middles, b)]
        corners = np.concatenate([[a], inner, [b]])
        return float(np.trapezoid(np.interp(corners, middles, levels), corners))

    out = []
    for j, length in enumerate(lengths):
        shift = means[j] - area(edges[j], edges[j + 1]) / length
        out += [area(i, i + 1) + shift for i in range(int(edges[j]), int(edges[j + 1]))]
    return np.array([*out, *[levels[-1]] * max(0, count - len(out))][:count])
