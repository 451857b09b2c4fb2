"""The rule for a finished array (``docs/streams_proofs.md``)."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, NamedTuple, Self, get_args

import numpy as np

from fastdp import validation
from fastdp.data.column import Nonfinite, as_floats, as_whole
from fastdp.errors import AccuracyWarning, ParameterError, StateError, argument, warn
from fastdp.guarantee import Guarantee, pure, root_below, sequential, zcdp_loss
from fastdp.integer_grid import Grid, make_grid
from fastdp.kinds import Floats, Indices, Integers, Values
from fastdp.noise.chain_keys import StepNoise
from fastdp.noise.gaussian import GaussianDistribution
from fastdp.noise.key import Key
from fastdp.noise.sampler import (
    Distribution,
    LaplaceDistribution,
    NoiseName,
    concentrated,
    geometric_distribution,
    noise_distribution,
)
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers import Blocks
from fastdp.record import Real, shared, values_of
from fastdp.releases.array_answer import ArrayAnswer
from fastdp.releases.intervals import laplace_variance
from fastdp.releases.release import Release
from fastdp.streams.parameters import (
    MAX_CONTRIBUTIONS,
    approximated,
    in_units,
    no_bound,
    noise_key,
    only_finite,
    share_of_each,
)
from fastdp.streams.stream_machine import FAR_BELOW
from fastdp.thresholds import Fixed, ScaleFree, Threshold, ThresholdTask
from fastdp.thresholds.base import held_out
from fastdp_kernels.streams import array_rule as kernel
from fastdp_kernels.streams import online_pass

#: n epsilon from which theta is chosen, the number of blocks is, and a least number of them is public.
CLIPPED, CHOSEN, FLOORED = 1000, 150, 4000
#: Parts of epsilon for theta and the number of blocks (times f), and for groups; of the rest for the total.
OF_THETA, OF_COUNT, OF_GROUPS = Fraction(1, 10), Fraction(3, 25), Fraction(3, 20)
OF_TOTAL, OF_TOTAL_LOW, OF_TOTAL_ALONE = Fraction(2, 5), Fraction(11, 20), Fraction(2, 3)
LOW, ALONE = Fraction(1, 5), Fraction(7, 20)
#: The least part of epsilon that a sum's noise has: blocks' groups under a low theta.
LEAST = Fraction(1, 20)
#: At most so many blocks a value and epsilon; from so many on they are summed in groups too, this many a group.
MOST_BLOCKS, GROUPED, WIDEST, NARROWEST = Fraction(3, 20), 256, 256, 8
#: Levels of theta, sqrt(2) apart; below so many grid steps none.
LEVELS, FINE = 60, 64
#: Whole steps to theta where scores are compared; lead of the first candidate in noise scales, halved.
STEPS, LEAD = 2**16, 6
#: Scores and their noise stay below it: a score that wraps has no sensitivity.
ROOM = 2**62
_THETA, _COUNT, _SUMS = range(3)
#: Names of the parts, in order.
NAMES = ("threshold", "number of blocks", "total", "blocks", "groups")


class Shares(NamedTuple):
    """Parts of the budget that add up to at most 1."""

    threshold: Fraction
    number: Fraction
    rest: Fraction


class Sums(NamedTuple):
    """Parts for the released sums."""

    total: Fraction
    blocks: Fraction
    groups: Fraction


@lru_cache(maxsize=256)
def shares_of(size: int, loss: float, *, chooses: bool = True) -> Shares:
    """Public parts for theta, unless public, and the number of blocks."""
    amount = size * Fraction(loss)
    # (1000 / N)^(1/4), rounded down.
    fall = min(Fraction(1), Fraction(math.isqrt(math.isqrt(math.floor(CLIPPED * 2**64 / amount))), 2**16))
    threshold = fall * OF_THETA if chooses and amount >= CLIPPED else Fraction(0)
    number = fall * OF_COUNT if amount >= CHOSEN and size >= 3 else Fraction(0)
    return Shares(threshold, number, 1 - threshold - number)


@lru_cache(maxsize=256)
def shares_of_sums(rest: Fraction, theta_steps: int, bound_steps: int, blocks: int) -> Sums:
    """Parts of `rest` for total, blocks and groups."""
    clipped = Fraction(theta_steps, bound_steps)
    if blocks == 1:
        of_total = OF_TOTAL_ALONE if clipped <= ALONE else Fraction(1)
    else:
        of_total = OF_TOTAL_LOW if clipped < LOW else OF_TOTAL
    total = rest * of_total
    groups = (rest - total) * OF_GROUPS if blocks >= GROUPED else Fraction(0)
    return Sums(total, rest - total - groups, groups)


@lru_cache(maxsize=1024)
def _loss(unit: float, part: Fraction, kind: NoiseName) -> float:
    return root_below(Fraction(unit) ** 2 * part) if kind == "gaussian" else rounded_down(Fraction(unit) * part)


def rounded_down(exact: Fraction) -> float:
    """The nearest float not above `exact`."""
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, 0.0)


#: Thetas and numbers of blocks whose noise a rule keeps: a rule of any grid step may choose another one each time.
MOST_DRAWN = 64


class _Drawn(NamedTuple):
    total: Distribution
    blocks: Distribution | None
    groups: Distribution | None
    wide: int
    unit: float
    public: dict[str, Any]


class ArrayRule:
    """Releases a finished array of known size, with public shares; without a key it plans."""

    rule: ClassVar[int] = 1
    holdout = 0
    sensitivity = None
    _key: Key

    def __init__(
        self,
        size: int,
        epsilon: float,
        bound: float | None,
        *,
        threshold: Threshold | None = None,
        season: float | None = None,
        contributions: int = 1,
        delta: float = 0.0,
        nonfinite: Nonfinite = "raise",
    ) -> None:
        self.size = validation.integer("size", size, 1, 2**50)
        if bound is None:
            raise no_bound()
        bound = validation.positive("bound", bound)
        self.epsilon = validation.positive("epsilon", epsilon)
        self.contributions = validation.integer("contributions", contributions, 1, MAX_CONTRIBUTIONS)
        self.delta = Real(least=0.0, below=1.0).check("delta", delta)
        validation.choice("nonfinite", nonfinite, get_args(Nonfinite))
        if threshold is not None:
            validation.part("threshold", threshold, Threshold, "fastdp.thresholds")
        self.threshold, self.bound, self.nonfinite = threshold, bound, nonfinite
        self.season = None if season is None else validation.period("season", season)
        self.gaussian = self.delta > 0.0
        self.kind: NoiseName = "gaussian" if self.gaussian else "laplace"
        self.loss = zcdp_loss(self.epsilon, self.delta) if self.gaussian else self.epsilon
        # Budget of one value; several may be protected together.
        self.unit = share_of_each(self.loss, self.contributions)
        # Errors about an epsilon without a grid name the one that was given, not a part of it.
        make_grid(bound, None, self.unit, 1, 1, 2)
        self.shares = shares_of(self.size, self.unit, chooses=threshold is None)
        if threshold is not None and threshold.uses_holdout:
            rest = Fraction(1) - OF_THETA - self.shares.number
            self.shares = Shares(OF_THETA, self.shares.number, rest)
            _ = self.task
        self.resolution = self.grid.resolution
        #: The bound, or a public theta below it, in grid steps.
        self.top = self.grid.bound_steps
        if threshold is not None and not threshold.uses_holdout:
            known = threshold.start(ThresholdTask(self.unit, bound, self.size, self.size, self.resolution))
            self.top = self.grid.snap(known.choose(Key.from_seed(0)))
        #: Shared by releases: noise of sums by theta and number of blocks, and the encoding for keys.
        self._drawn: dict[tuple[int, int], _Drawn] = {}
        self.encoding: bytes | None = None
        _ = self.stated, self._counts

    def under(self, key: Key) -> Self:
        secret = noise_key(self, key)
        keyed = copy.copy(self)
        keyed._key = secret
        return keyed

    def identity(self) -> dict[str, Any]:
        # Not the length: a ledger knows streams of all lengths under one secret by one family.
        return values_of(
            self, "threshold", "bound", "season", "epsilon", "delta", "contributions", "nonfinite", "unit"
        )

    @property
    def group_square(self) -> int:
        """Squared sensitivity of a unit's values, perhaps in one block."""
        return self.contributions**2

    def loss_of(self, part: Fraction) -> float:
        """Epsilon, or sqrt(2 rho), of a part of the budget, rounded down."""
        return _loss(self.unit, part, self.kind)

    def _left(self, *losses: float) -> float:
        """Rest of the budget after these losses, rounded down."""
        if self.delta:
            return root_below(Fraction(self.unit) ** 2 - sum(Fraction(loss) ** 2 for loss in losses))
        return rounded_down(Fraction(self.unit) - sum(map(Fraction, losses)))

    @cached_property
    def grid(self) -> Grid:
        return make_grid(self.bound, None, self.loss_of(LEAST), self.size, 1, 2)

    @cached_property
    def task(self) -> ThresholdTask:
        blocks = Blocks(season=self.season, noise=self.kind)
        noise = blocks.noise_constant(blocks.plan(self.unit, self.size), self.size)
        return ThresholdTask(
            self.loss_of(self.shares.threshold), self.bound, self.size, self.size, self.grid.resolution,
            self.loss_of(self.shares.rest), noise,
        )  # fmt: skip

    @cached_property
    def levels(self) -> Integers:
        """Levels of theta, descending, in grid steps."""
        most = self.grid.bound_steps
        levels = [math.isqrt(most * most >> j) for j in range(1, LEVELS + 1)]
        return np.array([level for level in levels if level >= FINE], np.int64)

    @cached_property
    def _counts(self) -> tuple[list[int], list[int]]:
        """Block lengths that may be chosen, if any, and their public costs."""
        if not self.shares.number:
            return [], []
        n, rest = self.size, self.loss_of(self.shares.rest)
        amount = float(n * Fraction(self.unit))
        least = int(16 * (amount / 5000) ** 0.75) if amount >= FLOORED else 1
        most = min(n, math.floor(n * Fraction(rest) * MOST_BLOCKS))
        count = max(3, 2 * least) if least == 1 else least
        if count > most:
            return ([n], [0]) if least == 1 else ([-(-n // max(most, 1))], [0])
        while 2 * count <= most:
            count *= 2
        block = -(-n // count)
        lengths = [block]
        while -(-n // (2 * lengths[-1])) >= max(least, 3):
            lengths.append(2 * lengths[-1])
        if least == 1:
            lengths.append(n)
        noise = self.loss_of(self.shares.rest * Fraction(3, 5))
        costs = [math.floor(STEPS * -(-n // length) / (2 * Fraction(noise))) for length in lengths]
        costs[-1] -= math.floor(LEAD * STEPS / Fraction(self.loss_of(self.shares.number)))
        if n * STEPS + max(map(abs, costs)) + 64 * self._score_scale >= ROOM:
            raise ParameterError(
                f"epsilon = {self.epsilon!r}: expected a larger one, scores of {n:,} values and their noise do not "
                "fit 64-bit integers"
            )
        return lengths, costs

    @property
    def block_lengths(self) -> list[int]:
        return self._counts[0]

    @cached_property
    def _score_noise(self) -> LaplaceDistribution:
        return geometric_distribution(self._score_scale)

    @property
    def _score_scale(self) -> Fraction:
        return 2 * STEPS / Fraction(self.loss_of(self.shares.number))

    # The guarantee.

    @property
    def guarantee(self) -> Guarantee:
        return replace(self.stated, simulated=True) if self._key.simulated else self.stated

    @cached_property
    def stated(self) -> Guarantee:
        steps: list[Guarantee] = []
        rule, shares = self.threshold, self.shares
        if shares.threshold and rule is None:
            said = "counts above falling levels move together by at most 1 (AboveThreshold, one-sided noise)"
            steps.append(pure(self.loss_of(shares.threshold), said).of("threshold, from all values"))
        elif shares.threshold and rule is not None:
            chosen = rule.guarantee(self.task)
            steps += [] if chosen is None else [chosen.of("threshold, from all values")]
        if shares.number:
            said = (
                "distances from blocks' medians move by at most theta, noise of scale 2 theta / epsilon (noisy max)"
            )
            steps.append(pure(self.loss_of(shares.number), said).of("number of blocks"))
        kind = "Gaussian" if self.delta else "Laplace"
        said = (
            "a value moves the total by at most the bound or a public theta, a block's sum and a group's by at most "
            f"theta: {kind} noise, by parts of epsilon that public and released numbers give and that add up"
        )
        rest = self._left(*(self.loss_of(part) for part in shares[:2] if part))
        steps.append((concentrated(rest, said) if self.delta else pure(rest, said)).of("sums"))
        stated = sequential(*steps)
        stated = replace(stated, derivation=(*stated.derivation, "values and intervals follow (post-processing)"))
        meets = "each value loses its fraction of epsilon in the choices and its sums"
        if self.delta:
            return approximated(in_units(self, stated), self.epsilon, self.delta, rule or Fixed(self.bound))
        return in_units(self, stated, meets)

    @property
    def noise_fingerprint(self) -> str | None:
        return None if self._key.simulated else self._key.fingerprint()

    # The release.

    def release(self, values: Values, name: str = "values") -> Release:
        column = as_whole(values, 0, 0)
        if column.size != self.size:
            raise StateError(f"values has {column.size} entries: expected {self.size}, as was said before")
        noise = StepNoise([self._key.within("values", self.size)])
        (answer,) = self.answers([as_floats(column)], [name], noise)
        made = answer.values
        made.flags.writeable = False
        return Release(
            made,
            0,
            np.array([answer.threshold * answer.scale]),
            self.guarantee,
            answer.block,
            answers=(answer,),
            noise_fingerprint=self.noise_fingerprint,
        )

    def noise_of(self, secret: Key, streams: Sequence[int | str]) -> StepNoise:
        numbered = noise_key(self, secret).within("values", self.size)
        return StepNoise(
            [
                numbered.of_stream(stream)
                if isinstance(stream, int)
                else noise_key(self, secret.of_stream(stream)).within("values", self.size)
                for stream in streams
            ]
        )

    def answers(self, rows: Sequence[Floats], names: Sequence[str], noise: StepNoise) -> list[ArrayAnswer]:
        steps, every = np.empty((len(rows), self.size), np.int64), np.arange(len(rows))
        for own, floats, name in zip(steps, rows, names, strict=True):
            if online_pass.round_values(floats, 1.0 / self.grid.resolution, float(self.top), own):
                floats = only_finite(floats, 0, name, self.nonfinite)
                online_pass.round_values(floats, 1.0 / self.grid.resolution, float(self.top), own)
        thetas = self._choose_thetas(rows, steps, names, noise)
        lengths = self._choose_lengths(steps, thetas, noise)
        totals, made = steps.sum(axis=1), dict[int, ArrayAnswer]()
        for theta, length in sorted({*zip(thetas.tolist(), lengths.tolist(), strict=True)}):
            which = every[(thetas == theta) & (lengths == length)]
            blocks = -(-self.size // length)
            drawn = self._drawn.get((theta, blocks)) or self._draw_for(theta, blocks)
            exact: Integers = np.empty((which.size, blocks), np.int64)
            for own, i in zip(exact, which.tolist(), strict=True):
                kernel.sum_clipped(steps[i], theta, length, own)
            total = totals[which, None]
            noise.step(which, _SUMS, total, exact)
            members = np.add.reduceat(exact, np.arange(0, blocks, drawn.wide), axis=1)
            released = [
                np.zeros((which.size, 0))
                if distribution is None
                else (sums + noise.draws(which, sums.shape[1], distribution, StreamId(Purpose.DRAWS, level)))
                * drawn.unit
                for level, (sums, distribution) in enumerate(
                    ((total, drawn.total), (exact, drawn.blocks), (members, drawn.groups))
                )
            ]
            for i, (of_all,), sums, groups in zip(which.tolist(), *released, strict=True):
                made[i] = ArrayAnswer(
                    self.size, length, sums, groups, total=float(of_all), season=self.season, **drawn.public
                )
        for i in range(len(rows)):
            if made[i].cuts_off:
                theta = made[i].threshold * made[i].scale
                warn(FAR_BELOW.format(theta, "", argument(threshold=50.0)), AccuracyWarning)
        return [made[i] for i in range(len(rows))]

    def expected(self, theta: int, length: int, mean: float) -> ArrayAnswer:
        """Answer of values that are all `mean`, without noise."""
        edges = np.minimum(np.arange(0, self.size + length, length), self.size)
        drawn = self._draw_for(theta, edges.size - 1)
        sums = np.diff(edges) * min(mean / drawn.public["scale"], drawn.public["threshold"])
        groups = np.add.reduceat(sums, np.arange(0, sums.size, drawn.wide))
        return ArrayAnswer(
            self.size,
            length,
            sums if drawn.blocks else sums[:0],
            groups if drawn.groups else sums[:0],
            total=float(sums.sum()),
            season=self.season,
            # An array of its own: the rule is shared by releases.
            **drawn.public | {"variances": drawn.public["variances"].copy()},
        )

    def _draw_for(self, theta: int, blocks: int) -> _Drawn:
        parts = shares_of_sums(self.shares.rest, theta, self.top, blocks)
        total, blocks_noise, groups_noise = (
            noise_distribution(self.kind, steps, 1, self.loss_of(part)) if part else None
            for steps, part in ((self.top, parts.total), (theta, parts.blocks), (theta, parts.groups))
        )
        assert total is not None  # noqa: S101 - the total has a part always
        # Released integers become units in which squares are ordinary floats.
        scale = 2.0 ** (math.frexp(self.bound)[1] - 1)
        unit = self.grid.resolution / scale
        top = self.bound / scale if self.top == self.grid.bound_steps else self.top * unit
        named = zip(NAMES, (self.shares.threshold, self.shares.number, *parts), strict=True)
        wide = max(NARROWEST, min(WIDEST, math.isqrt(blocks)))
        public: dict[str, Any] = {
            "wide": wide,
            "threshold": theta * unit if theta < self.top else top,
            "bound": top,
            "clips": self.top < self.grid.bound_steps,
            "usual": 4.0 * theta * unit / self.loss_of(self.shares.threshold or OF_THETA),
            "variances": np.array([_variance(each) * unit**2 for each in (blocks_noise, groups_noise, total)]),
            "scale": scale,
            "amount": float(self.size * Fraction(self.unit)),
            "shares": tuple((name, float(part)) for name, part in named if part),
        }
        if len(self._drawn) >= MOST_DRAWN:
            self._drawn.clear()
        made = self._drawn[theta, blocks] = _Drawn(total, blocks_noise, groups_noise, wide, unit, public)
        return made

    def _choose_thetas(
        self, rows: Sequence[Floats], steps: Integers, names: Sequence[str], noise: StepNoise
    ) -> Integers:
        rule, most, every = self.threshold, self.top, np.arange(len(rows))
        thetas: Integers = np.full(len(rows), most)
        if rule is not None and rule.uses_holdout:
            for i, (floats, name) in enumerate(zip(rows, names, strict=True)):
                # A scale-free rule warns of a hold-out, and there is none; unresolved, it gives the bound.
                chooser = rule.chooser(self.task) if isinstance(rule, ScaleFree) else rule.start(self.task)
                chooser.observe(only_finite(floats, 0, name, self.nonfinite))
                thetas[i] = self.grid.snap(chooser.choose(held_out(noise.keys[i], chooser.pack())))
        elif self.shares.threshold:
            above = self.above(steps)
            noise.step(every, _THETA, above)
            stops = self.stops(above, every, noise)
            chosen = (stops > 0) & (stops < self.levels.size)
            thetas[chosen] = self.levels[stops[chosen] - 1]
            return thetas
        noise.step(every, _THETA, thetas[:, None])
        return thetas

    def above(self, steps: Integers) -> Integers:
        ends, first = self._ends
        counts: Integers = np.zeros((len(steps), kernel.TURNS, ends.size - 1), np.int64)
        for own, counted in zip(steps, counts, strict=True):
            kernel.count_levels(own, ends, first, counted)
        above: Integers = np.cumsum(counts.sum(axis=1), axis=1)[:, : self.levels.size]
        return above

    def stops(self, above: Integers, rows: Indices, noise: StepNoise) -> Indices:
        """AboveThreshold: first level with enough values above it, if any."""
        of_limit, of_counts = self._counting_noise
        limit = noise.draws(rows, 1, of_limit, StreamId(Purpose.THRESHOLD))
        drawn = noise.draws(rows, above.shape[1], of_counts, StreamId(Purpose.THRESHOLD, 1))
        passed = above + drawn > limit + self._limits
        stops: Indices = np.where(passed.any(axis=1), passed.argmax(axis=1), above.shape[1])
        return stops

    @cached_property
    def _counting_noise(self) -> tuple[LaplaceDistribution, LaplaceDistribution]:
        loss = Fraction(self.loss_of(self.shares.threshold))
        return geometric_distribution(3 / loss), geometric_distribution(3 / (2 * loss))

    @cached_property
    def _limits(self) -> Integers:
        loss = self.loss_of(self.shares.threshold)
        return np.array([math.floor((4 + 3 * math.log(j)) / loss) for j in range(1, self.levels.size + 1)], np.int64)

    @cached_property
    def _ends(self) -> tuple[Integers, Indices]:
        """Levels and two below all values; first level that a value of each exponent may not exceed."""
        exponents = np.array([int(level).bit_length() + 1022 for level in self.levels.tolist()], np.int64)
        first = np.searchsorted(-exponents, -np.arange(2048), side="left").astype(np.int64)
        return np.append(self.levels, [-1, -1]), first

    def _choose_lengths(self, steps: Integers, thetas: Integers, noise: StepNoise) -> Indices:
        lengths, every = self.block_lengths, np.arange(thetas.size)
        if len(lengths) < 2:
            return np.full(thetas.size, lengths[0] if lengths else self.size)
        scores: Integers = np.array(
            [self.scores(own, theta) for own, theta in zip(steps, thetas.tolist(), strict=True)]
        )
        noise.step(every, _COUNT, scores)
        return np.array(lengths)[self.winners(scores, every, noise)]

    def scores(self, steps: Integers, theta: int) -> Integers:
        block, kept, costs = self._doubled
        whole, medians = np.empty(self.size, np.int32), np.empty(-(-self.size // block), np.int32)
        distances: Integers = np.empty(int(kept[-1]) + 1, np.int64)
        kernel.rescale(steps, theta, STEPS, whole)
        kernel.distances(whole, block, medians, distances)
        return -distances[kept] - costs

    @cached_property
    def _doubled(self) -> tuple[int, Indices, Integers]:
        """Least length, doublings of each that may be chosen, and costs."""
        lengths, costs = self._counts
        # One block of all values comes behind the others.
        most = -(-lengths[-1] // lengths[0]) - 1
        return lengths[0], np.append(np.arange(len(lengths) - 1), most.bit_length()), np.array(costs, np.int64)

    def winners(self, scores: Integers, rows: Indices, noise: StepNoise) -> Indices:
        drawn = noise.draws(rows, scores.shape[1], self._score_noise, StreamId(Purpose.THRESHOLD, 2))
        best: Indices = np.argmax(scores + drawn, axis=1)
        return best


def array_rule(
    size: int, epsilon: float, bound: float | None, *, key: Key, kind: type[ArrayRule] = ArrayRule, **options: Any
) -> ArrayRule:
    """Rule under a key; equal rules share keyless results."""
    return shared(kind, size=size, epsilon=epsilon, bound=bound, **options).under(key)


def _variance(distribution: Distribution | None) -> float:
    if distribution is None:
        return 0.0
    return (
        float(distribution.sigma) ** 2
        if isinstance(distribution, GaussianDistribution)
        else laplace_variance(distribution.scale)
    )
