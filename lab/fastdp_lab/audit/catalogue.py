"""The audited mechanisms of the package: adjacent inputs chosen to show a large loss, and numbers of trials."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

import fastdp
from fastdp import AdaptivePHDStream, Guarantee, Key, PHDStream, StreamPublisher, local, validation
from fastdp.counters import BinaryTree, Block, Counter, RunningCounts, SelectiveCounting, Simple, event_guarantee
from fastdp.kinds import Floats, Integers, Json
from fastdp.noise import sampler
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers import Blocks, Flat, Hierarchy, Perturber, Toeplitz
from fastdp.points import Box
from fastdp.smoothers import Recent
from fastdp.tables.columns import Keys
from fastdp.tables.functions import make_plan
from fastdp.tables.promise import promise
from fastdp.tables.shares import shares_of
from fastdp.tables.statistics import statistics_of
from fastdp.tables.sums import release
from fastdp.thresholds import Fixed, NoisyMax, PAKQuantile, SquareWave
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from fastdp_lab import repetitions
from fastdp_lab.audit import runs
from fastdp_lab.audit.exact import DELTA, LOCAL, RULES, observed, small_task
from fastdp_lab.audit.runs import Batches, Case, ManyRuns, OneRun, See, one_run, pieces
from fastdp_lab.contestants import w_event

FAST, MEDIUM, REPEATED, MANY, SLOW = 10_000_000, 1_000_000, 300_000, 60_000, 20_000
Pair = tuple[Any, Any]
Statistic = Callable[[Floats], Floats]

#: One event more at the first step.
EVENT: Pair = [1, 0, 0, 0], [0, 0, 0, 0]
#: Hold-outs of each rule with nearly the largest exact loss, at a candidate that wins often.
HOLDOUTS = ([2, 2, 2], [0, 2, 2]), ([2, 2, 3], [2, 2, 2]), ([2, 2, 2], [0, 2, 2]), ([0, 2, 2], [2, 2, 2])
#: One value of two trees, after the hold-out.
TREES: Pair = [1, 2, 3, 4, 4, 0, 0, 0], [1, 2, 3, 4, 0, 0, 0, 0]
#: Hold-out, a published period, a later hold-out: one value differs in the later hold-out, or in the period.
LATER_HOLDOUT: Pair = [[4, 4, 4, 4], [0, 0], [1, 1, 2, 2]], [[4, 4, 4, 4], [0, 0], [1, 1, 1, 2]]
PERIOD: Pair = [[4, 4, 4, 4], [4, 0], [0, 0, 0, 0]], [[4, 4, 4, 4], [0, 0], [0, 0, 0, 0]]
#: Two published values, of one window.
PAIR: Pair = [[4, 4, 0, 0]], [[0, 0, 0, 0]]
#: A hold-out, and so much growth behind it that theta rises to the bound of 64; then the value that differs,
#: and the rest of its block.
GROWTH: list[float] = [0.0, 0.0, 0.0, 8.0] * 256 + [64.0] * 640
RISEN: Pair = [*GROWTH, 64.0, *[0.0] * 31], [*GROWTH, 0.0, *[0.0] * 31]
#: A stream and its altered copy, which differ in a value before their first difference, or after it.
REPLAY_PREFIX: Pair = ([4, 0], [4, 4]), ([0, 0], [0, 4])
REPLAY_AFTER: Pair = ([0, 4], [4, 0]), ([0, 0], [4, 4])
#: Noise of four values a run.
FOUR = Toeplitz(length=4)


# Many runs in one call.


def count(epsilon: float) -> ManyRuns:
    """A count with discrete Laplace noise of scale 1 / epsilon."""
    distribution = sampler.laplace_distribution(1 / Fraction(epsilon))

    def draw(data: int, trials: int, key: Key) -> Integers:
        return data + sampler.draws(trials, distribution, key, StreamId(Purpose.DRAWS)).reshape(-1, 1)

    return ManyRuns(Guarantee(epsilon=epsilon, arithmetic="exact"), draw)


def cut_stream(perturber: Perturber, epsilon: float, delta: float = 0.0) -> ManyRuns:
    """One long stream through one publisher, one piece of it a run; values above theta are clipped.

    Noise trees and epochs must begin where pieces begin, and there is no smoother, so pieces are independent.
    """
    options: Json = {"epsilon": epsilon, "delta": delta, "resolution": 2.0**-10}
    make = partial(StreamPublisher, threshold=Fixed(1.0), perturber=perturber, bound=4.0, max_range=1024, **options)

    def draw(data: Sequence[float], trials: int, key: Key) -> Floats:
        return make(key=key).publish(np.tile(np.asarray(data, np.float64), trials)).reshape(trials, -1)

    return ManyRuns(make(seed=0).guarantee, draw)


def counter(kind: Counter, epsilon: float) -> ManyRuns:
    """``RunningCounts`` with one running sum a run."""

    def draw(data: Sequence[int], trials: int, key: Key) -> Integers:
        counts = RunningCounts(kind, epsilon, trials, key=key)
        return np.stack([counts.step(np.full(trials, value)) for value in data], axis=1)

    return ManyRuns(RunningCounts(kind, epsilon, 1, seed=0).guarantee, draw)


def repeat(make: Callable[..., StreamPublisher]) -> ManyRuns:
    """Many runs at once by ``repeat``: theta and published values."""

    def draw(data: Sequence[float], trials: int, key: Key) -> Floats:
        # Only a simulation can be repeated.
        done: Any = repetitions.repeat(
            make(key=Key(key.reveal(), simulated=True)), np.asarray(data, np.float64), trials
        )
        return np.column_stack([done.thresholds, done.releases.values.reshape(trials, -1)])

    return ManyRuns(make(key=Key.from_seed(0)).guarantee, draw)


def person_of_two_days(epsilon: float) -> ManyRuns:
    """Totals with a delta: one long row of windows, two of them a run."""
    time, value = fastdp.Time("at", "1d"), fastdp.Value(clip=4.0, resolution=1.0)
    unit = fastdp.Person("who", rows=2, per="1w", per_window=1)
    asked = statistics_of({"value": "sum"})
    plan = make_plan(asked, time, unit=unit, epsilon=epsilon, bounds=value, delta=DELTA)
    shares = shares_of(replace(plan, noise="gaussian", delta=DELTA))

    def draw(data: Sequence[int], trials: int, key: Key) -> Floats:
        sums = np.tile(np.asarray(data, np.int64), trials).reshape(1, -1, 1)
        (released,) = release(shares, shares.quantities, [sums], key, (0, sums.shape[1]), Keys(()))
        return released.steps.reshape(trials, -1).astype(np.float64)

    return ManyRuns(promise(shares, simulated=False), draw)


def filtered(outputs: Floats) -> Floats:
    """The sums that tell the first of four values best: C y, weighed as C says."""
    keeps, shares = 1.0 - np.array(FOUR.rates), np.array(FOUR.shares)
    factor = np.array([1.0, *(shares @ keeps**j for j in range(3))])
    undone = np.stack([outputs[:, : t + 1] @ factor[: t + 1][::-1] for t in range(4)], axis=1)
    return np.asarray(undone @ factor)


def both_days(outputs: Floats) -> Floats:
    """Sum of both days: the best evidence for a person who has rows in both."""
    return np.asarray(outputs.sum(axis=1))


# A new object for each run.


def composed(epsilon: float, **options: Any) -> partial[StreamPublisher]:
    """Few candidates, and two leaves a tree: the noise of theta and of each value is as visible as it can be."""
    options = {"perturber": Hierarchy(2, prune=0), "threshold": NoisyMax(step=1.0, fan_out=2), **options}
    shape: Json = {"bound": 4.0, "holdout": 4, "max_range": 2, "resolution": 1.0}
    return partial(StreamPublisher, epsilon=epsilon, **shape, **options)


def fixed(perturber: Perturber, epsilon: float, **options: Any) -> partial[StreamPublisher]:
    """A publisher with a known threshold."""
    known: Json = {"threshold": Fixed(4.0), "bound": 4.0, "resolution": 1.0}
    return partial(StreamPublisher, perturber=perturber, epsilon=epsilon, **known, **options)


def single_blocks(epsilon: float) -> partial[StreamPublisher]:
    """Blocks of one value, published with its noise."""
    return fixed(Flat(), epsilon)


def events(epsilon: float, sensitivity: float = 1.0) -> partial[fastdp.Adaptive]:
    """Counts without a bound; few steps a count, so that few outputs are possible."""
    resolution = min(1.0, sensitivity)
    return partial(fastdp.Adaptive, epsilon, sensitivity=sensitivity, max_range=64, resolution=resolution)


def rising(epsilon: float) -> partial[fastdp.Adaptive]:
    """Theta begins at about 8."""
    return partial(fastdp.Adaptive, epsilon, 64.0, 1024, 1024, resolution=1.0)


def topl(epsilon: float) -> partial[fastdp.ToPL]:
    """One user before the threshold."""
    return partial(fastdp.ToPL, epsilon, 4.0, 1, 16, threshold=SquareWave(bins=16))


def lagging(epsilon: float, length: int, *, lag_sums: bool) -> partial[fastdp.PAK]:
    """PAK with nearly all of epsilon for the hold-out's sums."""
    rule = NoisyMax(step=1.0, fan_out=2)
    options: Json = {"threshold": rule, "lag_sums": lag_sums, "resolution": 1.0}
    return partial(fastdp.PAK, epsilon, 0.0, 4.0, length, holdout=4, share=0.1, **options)


def many_rows(epsilon: float) -> OneRun:
    """Two short streams through ``release_many``: what both publish."""
    options: Json = {"threshold": Fixed(4.0), "perturber": Hierarchy(2, prune=0), "max_range": 4}
    make = partial(fastdp.StreamPublisher, epsilon=epsilon, bound=4.0, resolution=1.0, **options)
    see: See = lambda fresh, data: fresh().release_many(np.asarray(data, np.float64)).values  # noqa: E731
    return OneRun(make(seed=0).release_many(np.zeros((2, 4))).guarantee, make, see)


@dataclass(frozen=True)
class Coin:
    """A selector of two counters by randomised response: whether the input is positive, reported truly or not."""

    epsilon: float
    seed: int

    @property
    def guarantee(self) -> Guarantee:
        """Epsilon for an event, which changes one input."""
        return event_guarantee(self.epsilon, "randomised response to one input")

    def select(self, values: Integers, step: int, last: Any) -> int:
        """The second counter if the input is positive, or with probability 1 / (1 + e^epsilon) if it is not."""
        del last
        word = np.random.default_rng([self.seed, step]).random()
        return int((values[0] > 0) == (word < 1.0 / (1.0 + math.exp(-self.epsilon))))


def selective(key: Key, *, epsilon: float) -> SelectiveCounting:
    """Two counters; half of epsilon for the selector, half for the counters."""
    coin = Coin(epsilon / 2.0, int.from_bytes(key.derive("coin").reveal(), "big"))
    return SelectiveCounting([Simple(), Simple()], coin, epsilon / 2.0, key=key)


def adaptive_points(epsilon: float, *, max_depth: int = 0, **options: Any) -> partial[AdaptivePHDStream]:
    """Cells on [0, 1] that follow counts; of depth 0 it only counts."""
    return partial(AdaptivePHDStream, Box(0, 1), epsilon, max_depth=max_depth, **{"period": 1, **options})


# Cases.


def additions(*batches: Sequence[float]) -> Batches:
    """Batches of points that are added."""
    return [(batch, []) for batch in batches]


def late_events(batches: int, events: int = 1) -> Pair:
    """Streams on [0, 1]; the second has one addition more in each of the first ``events`` batches after batch 0."""
    none: list[list[float]] = [[]] * (batches - 1)
    return additions([0.1] * 40, *none), additions([0.1] * 40, *[[0.1]] * events, *none[events:])


def audit_cases(epsilon: float = 1.0) -> list[Case]:
    """The mechanisms of the package: an audit must find them consistent with their claims."""
    epsilon = validation.positive("epsilon", epsilon)
    return [*_at_once(epsilon), *_streams(epsilon), *_points(epsilon), *_tables(epsilon)]


def _at_once(epsilon: float) -> list[Case]:
    def choice(name: str) -> ManyRuns:
        """Choices from one hold-out, of which a publisher makes one."""
        rule, task = RULES[name], small_task(epsilon)

        def winners(data: Any, trials: int, key: Key) -> Floats:
            return observed(rule, task, data, winner=True).choices(key, trials)

        return ManyRuns(rule.guarantee(task), winners)

    def report(mechanism: Any) -> ManyRuns:
        """Reports of one user's value."""
        draw = lambda data, trials, key: mechanism.perturb(np.full(trials, data), key=key, start=0)  # noqa: E731
        return ManyRuns(mechanism.guarantee, draw)

    first, zeros, small = [1.0] + [0.0] * 31, [0.0] * 32, composed(epsilon)
    trees, gaussian = Hierarchy(32, prune=0), Hierarchy(32, prune=0, noise="gaussian")
    levels = fixed(Hierarchy(2, prune=0), epsilon, max_range=8)
    return [
        Case("count", count(epsilon), 0, 1, FAST),
        *(Case(name, choice(name), *pair, FAST) for name, pair in zip(RULES, HOLDOUTS, strict=True)),
        # With far too little noise the pairs above have one winner; this pair has two.
        *(Case(f"{name}-ends", choice(name), [0, 0, 0], [4, 0, 0], FAST) for name in RULES if "max" in name),
        Case("counter-simple", counter(Simple(), epsilon), *EVENT, FAST),
        Case("counter-block", counter(Block(2), epsilon), *EVENT, MEDIUM),
        Case("counter-binary", counter(BinaryTree(4), epsilon), *EVENT, MEDIUM),
        Case("stream-flat", cut_stream(Flat(), epsilon), [-3.0], [9.0], FAST),
        Case("stream-hierarchy", cut_stream(trees, epsilon), zeros, first, MEDIUM),
        Case("stream-flat-gaussian", cut_stream(Flat(noise="gaussian"), epsilon, DELTA), [-3.0], [9.0], FAST),
        Case("stream-hierarchy-gaussian", cut_stream(gaussian, epsilon, DELTA), zeros, first, MEDIUM),
        Case("stream-toeplitz", cut_stream(FOUR, epsilon, DELTA), zeros[:4], first[:4], FAST, (filtered,)),
        *(Case(f"local-{name.lower()}", report(getattr(local, name)(epsilon)), -1.0, 1.0, FAST) for name in LOCAL),
        Case("tops", repeat(partial(fastdp.ToPS, epsilon, 4.0, 4, 16, prune=0, resolution=1.0)), *TREES, REPEATED),
        # Four held-out values and a published one, which is most likely to show theta (by enumeration).
        Case("tops-holdout", repeat(small), [1, 1, 2, 2, 4], [1, 1, 1, 2, 4], REPEATED),
        Case("tops-trees", repeat(small), *TREES, REPEATED),
        # The last held-out value, which chooses theta, and the first published one: both of one window.
        Case("windows", repeat(composed(epsilon, contributions=2)), [1, 1, 2, 2, 4], [1, 1, 2, 1, 0], REPEATED),
        Case("tops-levels", repeat(levels), [4] + [0] * 7, [0] * 8, REPEATED),
    ]


def _once(
    name: str, make: Any, see: See, pair: Pair, trials: int = SLOW, *events: Statistic, factor: float = 1
) -> Case:
    """A new object for each run."""
    return Case(name, one_run(make, see, factor), *pair, trials, events)


def _window(scheme: str, epsilon: float) -> Case:
    """A contestant at w-event level, for two values."""
    release = partial(getattr(w_event, scheme), epsilon=epsilon, sensitivity=4.0, w=2)

    def see(fresh: runs.Fresh, data: Any) -> Floats:
        out: Floats = fresh(np.concatenate(data).astype(np.int64))
        return out

    def make(*args: Any, key: Key) -> Any:
        return release(*args, key=key.reveal())

    return Case(f"w-event-{scheme}", OneRun(Guarantee(epsilon, arithmetic="exact"), make, see), *PAIR, SLOW)


def _streams(epsilon: float) -> list[Case]:
    single, long_blocks = single_blocks(epsilon), fixed(Blocks(), epsilon, max_range=256)
    pruned = fixed(Hierarchy(2, prune=1), epsilon, max_range=4, smoother=Recent())
    withheld = composed(epsilon, renewal=RenewFromHoldout(1, 4))
    refined = composed(epsilon, renewal=RenewFromPublished(0.5, 1))
    quantile, four, zeros = PAKQuantile(p=0.5, beta=0.4, delta=1e-3), [4, 4, 4, 4], [0] * 4
    pak = partial(fastdp.PAK, epsilon, 1e-3, 4.0, 5, holdout=4, threshold=quantile)
    tree = partial(fastdp.PAK, epsilon, 0.0, 4.0, 4, threshold=Fixed(4.0), resolution=1.0)
    one_sum, sums = lagging(epsilon, 5, lag_sums=False), lagging(epsilon, 8, lag_sums=True)
    lag_statistic = runs.open_sums([1, 2, 4], [0.0, 4.0, 12.0])
    users, known = topl(epsilon), partial(fastdp.ToPL, epsilon, 4.0, 1, 16, threshold=Fixed(4.0))
    blocks_of_four: Pair = [4.0] + [0.0] * 15, [0.0] * 16
    two_rows: Pair = [[4, 0, 0, 0], zeros], [zeros, zeros]
    return [
        _once("tops-blocks", pruned, pieces, ([[4], [0], [0], [0]], [[0], [0], [0], [0]])),
        _once("tops-withheld", withheld, pieces, LATER_HOLDOUT),
        _once("tops-withheld-period", withheld, pieces, PERIOD),
        _once("tops-refined", refined, pieces, PERIOD, MANY),
        _once("adaptive", fixed(Blocks(), epsilon, max_range=64), pieces, two_rows),
        _once("adaptive-revised", long_blocks, runs.revised, blocks_of_four),
        _once("adaptive-revised-sums", long_blocks, runs.revised_sums, blocks_of_four),
        _once("adaptive-rising", rising(epsilon), runs.risen(len(GROWTH)), RISEN, SLOW // 4),
        # A value before the first difference is published with one noise, a value after it with two.
        _once("replay-prefix", single, runs.replay, REPLAY_PREFIX),
        _once("replay-after", single, runs.replay, REPLAY_AFTER, factor=2.0),
        _once("events", events(epsilon), pieces, ([EVENT[0]], [EVENT[1]])),
        *(_window(scheme, epsilon) for scheme in ("uniform", "sample", "distribution", "absorption")),
        Case("release-many", many_rows(epsilon), *two_rows, SLOW),
        _once("pak", pak, pieces, ([four, [4]], [four, [0]])),
        _once("pak-holdout", pak, pieces, ([[0, 0, 4, 4], [4]], [[0, 4, 4, 4], [4]])),
        _once("pak-tree", tree, pieces, ([[4, 0], [0, 0]], [[0, 0], [0, 0]]), SLOW, runs.open_sums([1, 2, 5])),
        _once("pak-lag-sum", one_sum, pieces, ([four, [4]], [[0, 4, 4, 4], [4]])),
        _once("pak-lag-sums", sums, pieces, ([four, zeros], [[0, 4, 4, 4], zeros]), SLOW, lag_statistic),
        _once("topl", users, runs.collected, ([4.0, 0.0], [4.0, 4.0])),
        _once("topl-holdout", users, runs.collected, ([0.0, 2.0], [4.0, 2.0])),
        _once("topl-chunks", known, pieces, ([[4.0], [4.0]], [[0.0], [4.0]])),
    ]


def _points(epsilon: float) -> list[Case]:
    def counting(name: str, pair: Pair, factor: float = 0.5, max_depth: int = 0, **options: Any) -> Case:
        """A publisher on [0, 1]; of depth 0 it only counts, with half of epsilon."""
        make = partial(PHDStream, Box(0, 1), epsilon, max_depth=max_depth, **options)
        return _once(f"phdstream{name}", make, runs.trees, pair, factor=1.0 if max_depth else factor)

    def following(
        name: str, pair: Pair, *events: Statistic, factor: float = 1.0, share: float = 1.0, **options: Any
    ) -> Case:
        """The same for cells that follow counts, by so much of epsilon."""
        make = adaptive_points(share * epsilon, **options)
        return _once(f"phdstream-adaptive{name}", make, runs.trees, pair, SLOW, *events, factor=factor)

    first = [0.1] * 40
    merged = additions([0.1] * 2, [], [], []), additions([0.1] * 3, [], [], [])
    return [
        _once("selective-counting", partial(selective, epsilon=epsilon), runs.chosen_counts, EVENT),
        counting("", (additions([0.1] * 5, [0.1] * 3), additions([0.1] * 6, [0.1] * 3)), max_depth=4),
        counting("-counts", late_events(2)),
        # A single cell: half for the whole, and three tenths for the cell, because nothing is decided.
        counting("-whole", late_events(2), 0.8, total_share=0.5),
        counting("-removal", (additions(first, []), [(first, []), ([], [0.1])])),
        counting("-two-events", late_events(3, 2), sensitivity=2),
        # Points that are added and then none: the counter of a leaf that was merged settles.
        counting("-settling", merged, counter=Block(2, settles=True), max_depth=1),
        following("", late_events(4), max_depth=2, period=2),
        following("-first", (additions(first), additions([*first, 0.1])), factor=0.5),
        # Next to nothing at first, so that PrivTree plants the second count; half needs twice epsilon to be detected.
        following("-planted", (additions([], [0.1]), additions([], [])), share=2.0, max_depth=2, shrink=False),
        following("-two-events", late_events(4, 2), runs.repeated_counts, sensitivity=2),
    ]


def _tables(epsilon: float) -> list[Case]:
    """Cases of :class:`fastdp.Windows`, whose noise is that of ``fastdp.totals``; none without their packages."""
    if not runs.TABLES_INSTALLED:
        return []
    time, four = fastdp.Time("at", "1d", start=runs.START), fastdp.Value(4.0, resolution=1.0)
    windows = partial(fastdp.Windows, {"value": "sum"}, time, epsilon=epsilon, bounds=four)
    person = partial(windows, unit=fastdp.Person("who", rows=2, per="2d", per_window=1))
    counts = partial(fastdp.Windows, {"*": "count"}, time, epsilon=epsilon)
    others, mine = [(0, 1.0, "b"), (1, 2.0, "c")], (0, 4.0, "a")
    # The third row of the person is dropped, and those of others stay.
    further = [mine, (1, 4.0, "a"), (1, 4.0, "a"), *others]
    # All other rows with the second key are dropped, so that of the rows that count only this person's has it.
    keyed = [(person, key) for person in "bc" for key in "xy"]
    row: Pair = [*others, mine], others
    return [
        _once("totals", windows, runs.windows_of(), row),
        _once("totals-persons", person, runs.windows_of(who=True), (further, others)),
        _once("counts", counts, runs.windows_of(values=False), row),
        Case("totals-gaussian", person_of_two_days(epsilon), [4, 4], [0, 0], FAST, (both_days,)),
        Case("counts-public-keys", runs.keys_of_table(epsilon), [*keyed, ("a", "y")], keyed, SLOW),
        _once(
            "means",
            partial(fastdp.Windows, {"value": "mean"}, time, epsilon=epsilon, bounds=four),
            runs.windows_of(),
            row,
        ),
    ]
