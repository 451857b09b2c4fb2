"""Couplings of a stream of values: shifts of the proofs, and the public outputs of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import fastdp
from fastdp import Key, Release
from fastdp.kinds import Floats, Json
from fastdp.noise.chain_keys import StepNoise, bound_distribution, theta_key
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers import Blocks, Flat, Hierarchy
from fastdp.streams.array_rule import ArrayRule, array_rule, shares_of_sums
from fastdp.streams.methods import SMOOTHERS
from fastdp.streams.stream_machine import Schedule
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree
from fastdp.thresholds.base import draw_noise, held_out
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from fastdp.thresholds.scale_free import COUNT_LEVEL
from fastdp_lab import repetitions
from fastdp_lab.audit.couplings.check import (
    KEY,
    Draw,
    Generator,
    Instance,
    Outputs,
    Shift,
    Shifts,
    Table,
    pick,
    reloaded,
)
from fastdp_lab.baselines.w_event import DISSIMILARITY, SCHEMES, VALUE, WEvent

#: A new publisher with this ``key``.
Make = Callable[..., Any]

BOUND = 8.0
#: Values of the small streams: below, at and above the bound, on the grid and off it.
VALUES = np.array([-3.0, 0.0, 0.0, 0.3, 1.0, 2.0, 3.7, 4.0, 8.0, 8.0, 20.0])
#: Up to so many values all ranges are compared; of a longer stream a few.
ALL_RANGES = 40
#: Public properties of a publisher, besides its outputs.
PROPERTIES = ("threshold", "block", "n_seen", "n_published", "running_sum", "guarantee")


def values_of(rng: Generator, count: int) -> Floats:
    """A stream in pieces: calm ones, and wild ones."""
    wild: Floats = rng.choice(VALUES, count)
    calm = np.repeat(rng.choice(VALUES, count // 16 + 1), 16)[:count]
    return np.where(np.repeat(rng.random(count // 16 + 1) < 0.5, 16)[:count], wild, calm)


def altered(rng: Generator, values: Floats, *places: int) -> Floats:
    """The stream with another value at each of these places."""
    other = values.copy()
    for place in places:
        other[place] = rng.choice(VALUES[values[place] != VALUES])
    return other


# Couplings, from the proofs.


def choice_shift(start: Callable[[], Any], key: Key, held: Floats, there: Floats, shifts: Shifts) -> None:
    """Noisy max: only the winner's draw, by what keeps it the winner (``fastdp.thresholds.noisy_max``)."""
    choosers = [start() for _ in range(2)]
    for chooser, values in zip(choosers, (held, there), strict=True):
        chooser.observe(values)
    own = held_out(key, choosers[0].pack())
    scores = [chooser.scores for chooser in choosers]
    free = hasattr(choosers[0], "released_above")
    if free:
        # Its first number is kept as it is; the scores depend on that.
        released = choosers[0].released_above(own, 1)[0]
        scores = [partial(each, released) for each in scores]
        if choosers[0].count_epsilon:
            moved = choosers[0].above_lowest - choosers[1].above_lowest
            shifts.add(own, StreamId(Purpose.THRESHOLD, COUNT_LEVEL), 0, moved)
    before, after = (each() for each in scores)
    noise = draw_noise(choosers[0].distribution, 1, before.size, own)[0]
    # ScaleFree gives its draws from the largest candidate down.
    places = np.arange(before.size)[:: -1 if free else 1]
    winner = int(np.argmax(before + noise[places]))
    rise = after - before
    shift = max(0, int(rise.max())) - int(rise[winner])
    shifts.add(own, StreamId(Purpose.THRESHOLD), int(places[winner]), shift)


def in_steps(value: float, resolution: float, top: int) -> int:
    """A value clipped and rounded to the grid."""
    return int(min(max(np.rint(value * (1.0 / resolution)), 0.0), float(top)))


#: Numbers of a stream's row that say where it is; Adaptive withholds none.
PLACE = ("theta_steps", "blocks", "filled", "cycle", "held")


def stream_shifts(make: Make, x: Floats, there: Floats, places: Sequence[int], table: Table, shifts: Shifts) -> None:
    """Shifts of one draw a level for each value, and of one draw for each threshold that any of them chooses.

    Noise that is bound to the prefix of sums needs no shift here.
    """
    chosen: set[int] = set()
    for place in places:
        publisher = make(key=table.key)
        publisher.publish(x[:place])
        key, c, row = publisher._key, publisher.composition, publisher.state.rows[0]
        theta_steps, blocks, filled, cycle, withheld = (
            int(row[name]) if name in row.dtype.names else 0 for name in PLACE
        )
        stage, _ = Schedule(c).stage(row)
        bound = bound_distribution(c.perturber, theta_steps or 1, c.publish_epsilon) is not None
        if stage == "publish" and not bound:
            top = min(theta_steps, c.grid.bound_steps)
            here, other = (in_steps(float(values[place]), c.grid.resolution, top) for values in (x, there))
            own = theta_key(key, theta_steps)
            tree, leaf = divmod(blocks, c.plan.tree_blocks)
            for level in range(c.plan.levels):
                stream, width = StreamId(Purpose.TREE, level + 1, tree), c.plan.fan_out**level
                shifts.add(own, stream, leaf // width, here - other)
        start, task = 0, c.task
        if stage == "withhold":
            start, task = place - withheld, c.renewal_task
        elif stage == "publish" and c.renewal is not None and c.renewal.share and c.period is not None:
            start = place - (blocks * c.plan.block + filled - (cycle - 1) * c.period)
            task = c.renewal_task
        elif stage != "holdout":
            continue
        held = slice(start, start + task.holdout)
        if held.stop <= x.size and start not in chosen:
            chosen.add(start)
            own = key.derive("threshold", cycle) if cycle else key
            choice_shift(partial(c.threshold.start, task), own, x[held], there[held], shifts)


def pak_shifts(make: Make, x: Floats, there: Floats, place: int, table: Table, shifts: Shifts) -> None:
    """The threshold's winner and the hold-out's sum, or every node of the counter that holds the value."""
    key, pak = table.key, make(key=table.key)
    pak.publish(x)
    plan, theta = pak._machine, pak._state.tree.theta_steps
    top, m = min(theta, plan.bound_steps), plan.holdout
    here, other = (in_steps(float(values[place]), pak.resolution, top) for values in (x, there))
    own, held = theta_key(key, theta), place < m
    if held:
        if isinstance(plan.threshold, NoisyMax):
            choice_shift(partial(plan.threshold.start, plan.task), key, x[:m], there[:m], shifts)
        own = theta_key(held_out(key, x[:m]), theta).within("lag")
        if not plan.lag_sums:
            shifts.add(own, StreamId(Purpose.LAG), 0, here - other)
            return
    index, length = (place, m) if held else (place - m, plan.length - m)
    for height in range(length.bit_length()):
        shifts.add(own, StreamId(Purpose.COUNTER, height, int(held)), index >> height, here - other)


def baseline_shifts(
    make: Make, x: Floats, there: Floats, places: Sequence[int], table: Table, shifts: Shifts
) -> None:
    """A comparison's draw by what keeps its outcome, a release's by what keeps the release."""
    key, publisher = table.key, make(key=table.key)
    machine = publisher.machine
    for place in range(x.size):
        state = publisher.state
        if place in places and machine.scale(state) is not None:
            here, other = (
                in_steps(float(values[place]), machine.grid.resolution, machine.grid.bound_steps)
                for values in (x, there)
            )
            if machine.scheme not in ("uniform", "sample"):
                nearer = abs(here - state.released) - abs(other - state.released)
                shifts.add(key, StreamId(Purpose.TREE, DISSIMILARITY, place), 0, nearer)
            shifts.add(key, StreamId(Purpose.TREE, VALUE, place), 0, here - other)
        publisher.publish(x[place : place + 1])


# Public outputs.


def see_release(release: Release) -> Outputs:
    """Outputs of a release: everything that it answers."""
    n = len(release)
    starts, stops = np.triu_indices(min(n, ALL_RANGES) + 1)
    if n > ALL_RANGES:
        starts, stops = np.sort(np.random.default_rng(0).integers(0, n + 1, (2, 400)), axis=0)
    yield "values", release.values, release.offset, release.threshold, release.guarantee, release.block
    yield "range sums", release.sum(starts, stops)
    yield "revised sums", release.revised.sum(starts, stops)
    yield "revised", release.revised.values
    if release.noise is not None or release.answers:
        yield "noise", release.noise
        for each in {id(one): one for one in (release, release.revised)}.values():
            yield "intervals", *each.interval(starts, stops)
            yield "standard errors", each.std_error(starts, stops)
    if release.nodes is not None:
        yield "nodes", release.nodes.sums
    if release.revision is not None:
        yield "blocks", release.revision.exponents, release.revision.totals, release.revision.means
    yield "repr", repr(release), str(release), n


def see_stream(make: Make, cuts: list[int], saved: int, releases: bool, key: Key, values: Floats) -> Outputs:
    """A stream in chunks, with the state saved and loaded after one of them; and, if it can be, released at once."""
    publisher = make(key=key)
    for number, chunk in enumerate(np.split(values, cuts)):
        yield "published", publisher.publish(chunk)
        if number == saved:
            publisher = reloaded(publisher)
        yield from ((name, getattr(publisher, name, None)) for name in PROPERTIES)
        # The default one shows an address.
        if not repr(publisher).startswith("<"):
            yield "repr", repr(publisher), str(publisher)
    if releases:
        yield from see_release(make(key=key).release(values))


def see_whole(make: Make, key: Key, values: Floats) -> Outputs:
    """A finished array, with nothing withheld."""
    whole = make(key=key)
    release = whole.release(values)
    yield from see_release(release)
    answer = release.answer
    assert answer is not None  # noqa: S101 - of every array
    yield "numbers", answer.block, answer.sums, answer.groups, answer.total, answer.threshold, whole.shares


def see_many(composition: Json, key: Key, values: Floats) -> Outputs:
    """Rows through ``release_many``."""
    many = fastdp.StreamPublisher(**composition, key=key).release_many(values)
    yield "values", many.values, many.thresholds, many.guarantee, many.ids, repr(many)
    for release in many:
        yield from see_release(release)


def see_repeated(make: Make, count: int, key: Key, values: Floats) -> Outputs:
    """Rows of ``repeat``: each costs epsilon."""
    done: Any = repetitions.repeat(make(key=key), values, count)
    yield "thresholds", done.thresholds
    for release in done.releases:
        yield from see_release(release)


# Small random instances of everything that publishes a stream of values.


EPSILONS, RESOLUTIONS = (0.5, 1.0, 6.0), (1.0, 0.25, 0.1)
#: Longest ranges.
RANGES = (4, 64, 1024)
NODES = Hierarchy(2, consistent=False, prune=0)


# Parameters.


def noisy_choice(rng: Generator) -> NoisyMax | ScaleFree:
    """A rule that looks at the hold-out."""
    noise = pick(rng, "laplace", "exponential")
    return pick(rng, NoisyMax(step=1.0, fan_out=2, noise=noise), ScaleFree(noise))  # type: ignore[no-any-return]


def parameters_of(rng: Generator, **options: Any) -> Json:
    """Draw parameters of ``StreamPublisher`` and ``release_many``; ``options`` replace the random ones."""
    rule = noisy_choice(rng)
    if "renewal" not in options:
        rule = pick(rng, Fixed(pick(rng, 1.0, 3.0, 8.0)), rule, rule)
    threshold = options.get("threshold", rule)
    return {
        "threshold": threshold,
        "smoother": None,
        "epsilon": pick(rng, *EPSILONS),
        "bound": BOUND,
        "holdout": pick(rng, 3, 8, 24) if threshold.uses_holdout else 0,
        "max_range": pick(rng, 2, 5, 8),
        "resolution": pick(rng, *RESOLUTIONS),
        **options,
    }


def pruned(rng: Generator, fan_out: int, *levels: int) -> Json:
    """A hierarchy that leaves out one of these numbers of levels, and a smoother where there are any."""
    prune = pick(rng, *levels)
    smoother = pick(rng, *SMOOTHERS.values())() if prune else None
    return {"perturber": Hierarchy(fan_out, prune=prune), "smoother": smoother}


def publisher(rng: Generator, kind: type = fastdp.StreamPublisher, **options: Any) -> Make:
    """A publisher of random parameters, by key."""
    return partial(kind, **parameters_of(rng, **options))


def place_of(rng: Generator, size: int, holdout: int, borders: int) -> int:
    """Position where the streams differ: at an end, at a border of hold-outs or trees, or anywhere."""
    marks = [0, holdout - 1, holdout, holdout + 1, size - 1]
    marks += [holdout + border + by for border in range(borders, size, borders) for by in (-1, 0)]
    inside = [mark for mark in marks if 0 <= mark < size]
    return int(pick(rng, int(rng.integers(size)), pick(rng, *inside)))


# Instances.


def of_stream(rng: Generator, make: Make, size: int, place: int | None = None, *, saves: bool = True) -> Instance:
    """A publisher on ``size`` values after its hold-out; ``place`` counts from the end of the hold-out."""
    c = make(key=KEY).composition
    x = values_of(rng, c.task.holdout + c.warm_up + size)
    trees = c.plan.tree_blocks * c.plan.block
    at = place_of(rng, x.size, c.task.holdout, trees) if place is None else c.task.holdout + place
    return of_pair(rng, make, x, altered(rng, x, at), [at], saves=saves)


def of_pair(
    rng: Generator,
    make: Make,
    x: Floats,
    there: Floats,
    places: Sequence[int],
    shift: Shift | None = None,
    *,
    saves: bool = True,
    releases: bool = True,
) -> Instance:
    """A publisher on streams that differ at these places; by default with the shifts of ``StreamPublisher``."""
    cuts = sorted(rng.integers(0, x.size + 1, 3).tolist())
    saved = int(rng.integers(4)) if saves else -1
    publish = partial(see_stream, make, cuts, saved, releases)
    shift = shift or partial(stream_shifts, make, x, there, places)
    return Instance(make(key=KEY).guarantee.epsilon, publish, x, there, shift)


def adaptive(rng: Generator) -> Instance:
    """Draw an Adaptive, with a warm-up from 16 values of hold-out on."""
    options = parameters_of(rng, max_range=pick(rng, *RANGES))
    del options["smoother"]
    options["holdout"] *= pick(rng, 1, 4)
    make = partial(fastdp.Adaptive, **options, perturber=Blocks(season=pick(rng, None, 4.0, 9.5)))
    return of_stream(rng, make, int(rng.integers(1, 120)))


def whole(rng: Generator, kind: type[ArrayRule] = ArrayRule) -> Instance:
    """A finished array: each value enters the choices of theta and of a number of blocks, the total and one block."""
    size, epsilon = int(rng.integers(1, 120)), pick(rng, 1.0, 6.0, 25.0)
    rule = pick(rng, None, None, None, Fixed(4.0), noisy_choice(rng))
    x = values_of(rng, size)
    there = altered(rng, x, place_of(rng, size, 0, 16))
    make = partial(array_rule, size, epsilon, BOUND, threshold=rule, kind=kind)
    return Instance(epsilon, partial(see_whole, make), x, there, partial(array_shifts, make, x, there))


def array_shifts(make: Make, x: Floats, there: Floats, table: Table, shifts: Shifts) -> None:
    """Shifts of the limit and of the level that stopped, of the winner, and of every sum that holds the value."""
    made, first = make(key=table.key), np.zeros(1, np.int64)
    grid, own = made.grid, made._key.within("values", made.size)
    here, other = (np.array([in_steps(float(v), grid.resolution, made.top) for v in values]) for values in (x, there))
    answer = make(key=table.key).release(x).answer
    theta = grid.snap(answer.threshold * answer.scale)
    if made.threshold is not None and made.threshold.uses_holdout:
        free = isinstance(made.threshold, ScaleFree)
        choice_shift(
            partial(made.threshold.chooser if free else made.threshold.start, made.task), own, x, there, shifts
        )
    elif made.shares.threshold:
        before, after = made.above(np.stack([here, other]))
        rise = after - before
        stopped, up = int(made.stops(before[None], first, StepNoise([own]))[0]), int(rise.max(initial=0))
        shifts.add(own, StreamId(Purpose.THRESHOLD), 0, up)
        if stopped < rise.size:
            shifts.add(own, StreamId(Purpose.THRESHOLD, 1), stopped, up - int(rise[stopped]))
    if len(made.block_lengths) > 1:
        scores = made.scores(here, theta)
        rise = made.scores(other, theta) - scores
        winner = int(made.winners(scores[None], first, StepNoise([own]))[0])
        shifts.add(own, StreamId(Purpose.THRESHOLD, 2), winner, max(0, int(rise.max())) - int(rise[winner]))
    shifts.add(own, StreamId(Purpose.DRAWS, 0), 0, int(here.sum() - other.sum()))
    moved = np.minimum(here, theta) - np.minimum(other, theta)
    (place,) = np.flatnonzero(moved) if moved.any() else (0,)
    block = place // answer.block
    if answer.sums.size:
        shifts.add(own, StreamId(Purpose.DRAWS, 1), block, int(moved[place]))
    if shares_of_sums(made.shares.rest, theta, made.top, -(-x.size // answer.block)).groups:
        shifts.add(own, StreamId(Purpose.DRAWS, 2), block // answer.wide, int(moved[place]))


def flat(rng: Generator) -> Instance:
    """Noise on every value."""
    return of_stream(rng, publisher(rng, perturber=Flat()), int(rng.integers(1, 60)))


def tops(rng: Generator) -> Instance:
    """A consistent hierarchy, several trees, pruned or not."""
    options = pruned(rng, pick(rng, 2, 3), 0, 1, 2)
    return of_stream(rng, publisher(rng, max_range=pick(rng, 10, 16), **options), 70)


def nodes(rng: Generator) -> Instance:
    """An inconsistent hierarchy, whose nodes are released."""
    perturber = Hierarchy(pick(rng, 2, 3), consistent=False, prune=0)
    return of_stream(rng, publisher(rng, perturber=perturber), int(rng.integers(1, 40)))


def renewed(rng: Generator) -> Instance:
    """Thresholds that follow the stream, from withheld or published values."""
    held = RenewFromHoldout(1, 5), RenewFromHoldout(2, None)
    renewal = pick(rng, *held, RenewFromPublished(0.3, 1), RenewFromPublished(0.5, 2))
    return of_stream(rng, publisher(rng, renewal=renewal, max_range=4, **pruned(rng, 2, 0, 1)), 60)


def pak(rng: Generator) -> Instance:
    """Running sums, lag sums, averages; with a threshold from the hold-out, or a known one."""
    rule, holdout = pick(rng, (Fixed(3.0), 0), (Fixed(8.0), 5), (NoisyMax(step=1.0, fan_out=2), 9))
    length = holdout + pick(rng, 3, 7, 8, 17)
    lag_sums, average = holdout and pick(rng, False, True), pick(rng, None, "all", 3)
    epsilon, tail_factor = pick(rng, *EPSILONS), pick(rng, 1.0, 1.5)
    options = {"lag_sums": bool(lag_sums), "average": average, "resolution": pick(rng, *RESOLUTIONS)}
    options |= {"holdout": holdout, "tail_factor": tail_factor, "threshold": rule}
    make = partial(fastdp.PAK, epsilon, 0.0, BOUND, length, **options)
    x = values_of(rng, length)
    place = place_of(rng, length, holdout, 4)
    there = altered(rng, x, place)
    shift = partial(pak_shifts, make, x, there, place)
    return of_pair(rng, make, x, there, [place], shift, releases=average is None and not lag_sums)


def events(rng: Generator, factor: float = 1.0) -> Instance:
    """Counts without a bound: events that each move one of them; noise is for ``factor`` times as much."""
    sensitivity, several = pick(rng, 0.5, 1.0, 3.0), pick(rng, 1, 1, 3)
    epsilon, longest = pick(rng, *EPSILONS), pick(rng, *RANGES)
    options: Json = {"resolution": pick(rng, None, 0.25), "max_range": longest}
    blocks = Blocks(season=pick(rng, None, 7.0))
    options |= {"sensitivity": factor * sensitivity, "contributions": several, "perturber": blocks}
    make = partial(fastdp.Adaptive, epsilon, **options)
    x = values_of(rng, int(rng.integers(1, 120))) * pick(rng, -1.0, 1.0, 50.0)
    there, places = x.copy(), rng.integers(0, x.size, several)
    for place in places:
        there[place] += sensitivity * pick(rng, -1.0, 0.5, 1.0)
    return of_pair(rng, make, x, there, sorted(set(places.tolist())))


def windows(rng: Generator, claimed: int = 0) -> Instance:
    """w consecutive values, often some of a hold-out and some behind it; noise is for ``claimed`` more."""
    w = pick(rng, 2, 3, 5)
    renewal = pick(rng, None, RenewFromHoldout(1, 5), RenewFromPublished(0.3, 1))
    blocks = {"perturber": Blocks(), "max_range": 64}
    trees = pruned(rng, 2, 0, 1) | ({"renewal": renewal, "max_range": 4} if renewal else {"max_range": 8})
    kind = pick(rng, blocks, {"perturber": Flat()}, {"perturber": NODES}, trees)
    make = publisher(rng, contributions=w + claimed, **kind)
    c = make(key=KEY).composition
    x = values_of(rng, c.task.holdout + c.warm_up + 40)
    begin = place_of(rng, x.size - w + 1, c.task.holdout, c.plan.tree_blocks * c.plan.block)
    if c.task.holdout and pick(rng, False, True):
        begin = c.task.holdout - int(rng.integers(1, min(w, c.task.holdout + 1)))
    places = range(begin, begin + w)
    return of_pair(rng, make, x, altered(rng, x, *places), places)


def w_event(rng: Generator) -> Instance:
    """The baselines for w-event privacy: a window of w values."""
    w = pick(rng, 1, 2, 5)
    scheme, epsilon = pick(rng, *SCHEMES), pick(rng, 0.5, 6.0, 60.0)
    make = partial(WEvent, scheme, epsilon, BOUND, w, resolution=pick(rng, 1.0, 0.25))
    x = values_of(rng, 30)
    begin = int(rng.integers(0, x.size - w + 1))
    places = range(begin, begin + w)
    there = altered(rng, x, *places)
    return of_pair(rng, make, x, there, places, partial(baseline_shifts, make, x, there, places))


def row_parameters(rng: Generator) -> Json:
    """Draw parameters of ``release_many``."""
    perturber = pick(rng, {"perturber": NODES}, {"perturber": Flat()}, pruned(rng, 2, 0, 1))
    return parameters_of(rng, max_range=pick(rng, 5, 8), **perturber)


def of_row(make: Make, row: int, *, key: Key) -> Any:
    """The publisher of one of several rows."""
    return make(key=key.of_stream(row))


def release_many(rng: Generator) -> Instance:
    """``release_many``: a value of one row."""
    parameters = row_parameters(rng)
    x = np.stack([values_of(rng, parameters["holdout"] + 30) for _ in range(4)])
    row, place = int(rng.integers(4)), place_of(rng, x.shape[1], parameters["holdout"], 4)
    there = x.copy()
    there[row] = altered(rng, x[row], place)
    make = partial(of_row, partial(fastdp.StreamPublisher, **parameters), row)
    shift = partial(stream_shifts, make, x[row], there[row], [place])
    return Instance(parameters["epsilon"], partial(see_many, parameters), x, there, shift)


def repeat(rng: Generator) -> Instance:
    """``repeat``: all repetitions of a stream, each of which loses epsilon."""
    parameters, count = row_parameters(rng), 3
    make = partial(fastdp.StreamPublisher, **parameters)
    x = values_of(rng, parameters["holdout"] + 30)
    place = place_of(rng, x.size, parameters["holdout"], 4)
    there = altered(rng, x, place)

    def shift(table: Table, shifts: Shifts) -> None:
        for number in range(count):
            stream_shifts(partial(of_row, make, number), x, there, [place], table, shifts)

    return Instance(count * parameters["epsilon"], partial(see_repeated, make, count), x, there, shift)


_DRAWN = (adaptive, whole, flat, tops, nodes, renewed, pak, events, windows, w_event, release_many, repeat)
#: Publishers of values.
STREAMS: dict[str, Draw] = {draw.__name__.replace("_", "-"): draw for draw in _DRAWN}
