"""Couplings of a stream of values: shifts of the proofs, and the public outputs of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fastdp
from fastdp import Key, Release
from fastdp.noise.words import Purpose, StreamId
from fastdp.perturbers.base import bound_law, theta_key
from fastdp.perturbers.hat_noise import HatsShape
from fastdp.streams.stages import Schedule
from fastdp.thresholds import NoisyMax, ScaleFree
from fastdp.thresholds.base import ThresholdTask, held_out
from fastdp.thresholds.noisy_max import draw_noise
from fastdp.thresholds.scale_free import COUNT_LEVEL
from fastdp_lab.audit.couplings.check import Generator, Outputs, Shifts, Table, reloaded
from fastdp_lab.baselines.w_event import DISSIMILARITY, VALUE
from fastdp_lab.repetitions import repeat

Floats = NDArray[np.float64]
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


def choice_shift(
    rule: NoisyMax | ScaleFree, task: ThresholdTask, key: Key, held: Floats, there: Floats, shifts: Shifts
) -> None:
    """Noisy max: only the winner's draw, by what keeps it the winner (``fastdp.thresholds.noisy_max``)."""
    choosers: list[Any] = [rule.start(task) for _ in range(2)]
    for chooser, values in zip(choosers, (held, there), strict=True):
        chooser.observe(values)
    own = held_out(key, choosers[0].pack())
    scores = [chooser.scores for chooser in choosers]
    free = isinstance(rule, ScaleFree)
    if free:
        # Its first number is kept as it is; the scores depend on that.
        released = choosers[0].released_above(own, 1)[0]
        scores = [partial(each, released) for each in scores]
        if choosers[0].count_epsilon:
            moved = choosers[0].above_lowest - choosers[1].above_lowest
            shifts.add(own, StreamId(Purpose.THRESHOLD, COUNT_LEVEL), 0, moved)
    before, after = (each() for each in scores)
    noise = draw_noise(choosers[0].law, 1, before.size, own)[0]
    # ScaleFree gives its draws from the largest candidate down.
    places = np.arange(before.size)[:: -1 if free else 1]
    winner = int(np.argmax(before + noise[places]))
    rise = after - before
    shift = max(0, int(rise.max())) - int(rise[winner])
    shifts.add(own, StreamId(Purpose.THRESHOLD), int(places[winner]), shift)


def in_steps(value: float, resolution: float, top: int) -> int:
    """A value clipped and rounded to the grid."""
    return int(min(max(np.rint(value * (1.0 / resolution)), 0.0), float(top)))


def stream_shifts(make: Make, x: Floats, there: Floats, places: Sequence[int], table: Table, shifts: Shifts) -> None:
    """Of each value one draw on each level of a tree, and one of each threshold that any of them chooses.

    Noise that is bound to the prefix of sums needs no shift here.
    """
    chosen: set[int] = set()
    for place in places:
        publisher = make(key=table.key)
        publisher.publish(x[:place])
        key, c, progress = publisher._key, publisher.composition, publisher.state.progress
        stage, _ = Schedule(c).stage(progress)
        bound = bound_law(c.perturber, key, progress.theta_steps or 1, c.publish_epsilon) is not None
        if stage == "publish" and not bound:
            top = min(progress.theta_steps, c.grid.bound_steps)
            here, other = (in_steps(float(values[place]), c.grid.resolution, top) for values in (x, there))
            own = theta_key(key, progress.theta_steps)
            tree, leaf = divmod(progress.blocks, c.plan.tree_blocks)
            for level in range(c.plan.levels):
                stream, width = StreamId(Purpose.TREE, level + 1, tree), c.plan.fan_out**level
                knot, beside = divmod(leaf, width)
                # A hat falls by one a leaf, from its height at the knot.
                heights = [width - beside, beside] if isinstance(c.plan, HatsShape) else [1]
                for further, height in enumerate(heights):
                    if height:
                        shifts.add(own, stream, knot + further, height * (here - other))
        start, task = 0, c.task
        if stage == "withhold":
            start, task = place - progress.held, c.renewal_task
        elif stage == "publish" and c.renewal is not None and c.renewal.share and c.period is not None:
            start = place - (progress.blocks * c.plan.block + progress.filled - (progress.cycle - 1) * c.period)
            task = c.renewal_task
        elif stage != "holdout":
            continue
        held = slice(start, start + task.holdout)
        if held.stop <= x.size and start not in chosen:
            chosen.add(start)
            own = key.derive("threshold", progress.cycle) if progress.cycle else key
            choice_shift(c.threshold, task, own, x[held], there[held], shifts)


def pak_shifts(make: Make, x: Floats, there: Floats, place: int, table: Table, shifts: Shifts) -> None:
    """The threshold's winner and the hold-out's sum, or every node of the counter that holds the value."""
    key, pak = table.key, make(key=table.key)
    pak.publish(x)
    plan, theta = pak._plan, pak._state.tree.theta_steps
    top, m = min(theta, plan.bound_steps), plan.holdout
    here, other = (in_steps(float(values[place]), pak.resolution, top) for values in (x, there))
    own, held = theta_key(key, theta), place < m
    if held:
        if isinstance(plan.threshold, NoisyMax):
            choice_shift(plan.threshold, plan.task, key, x[:m], there[:m], shifts)
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
    """All that a release answers."""
    n = len(release)
    starts, stops = np.triu_indices(min(n, ALL_RANGES) + 1)
    if n > ALL_RANGES:
        starts, stops = np.sort(np.random.default_rng(0).integers(0, n + 1, (2, 400)), axis=0)
    yield "values", release.values, release.offset, release.threshold, release.guarantee, release.block
    yield "range sums", release.sum(starts, stops)
    yield "revised sums", release.sum(starts, stops, revised=True)
    yield "revised", release.revised
    if release.noise is not None:
        yield "noise", release.noise
        for revised in (False, True):
            yield "intervals", *release.interval(starts, stops, revised=revised)
            yield "standard errors", release.std_error(starts, stops, revised)
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
    yield from see_release(whole.release(values))
    yield "share", whole.share


def see_many(composition: dict[str, Any], key: Key, values: Floats) -> Outputs:
    """Rows through ``release_many``."""
    many = fastdp.release_many(values, **composition, key=key)
    yield "values", many.values, many.thresholds, many.guarantee, many.ids, repr(many)
    for release in many:
        yield from see_release(release)


def see_repeated(make: Make, count: int, key: Key, values: Floats) -> Outputs:
    """Rows of ``repeat``: each costs epsilon."""
    done: Any = repeat(make(key=key), values, count)
    yield "thresholds", done.thresholds
    for release in done.releases:
        yield from see_release(release)
