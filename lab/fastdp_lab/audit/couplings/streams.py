"""Couplings of a stream of values: what the proofs shift, and what is seen of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdp.perturbers.base import bound_law, theta_key
from fastdp.perturbers.hat_noise import HatsShape
from fastdp.randomness.key import Key
from fastdp.randomness.words import Purpose, StreamId
from fastdp.releases.release import Release
from fastdp.systems.pak.publisher import PAK
from fastdp.systems.release_many import release_many
from fastdp.systems.stream.publisher import StreamPublisher
from fastdp.systems.stream.stages import Schedule
from fastdp.systems.stream.whole import WholeStream
from fastdp.thresholds import NoisyMax, ScaleFree
from fastdp.thresholds.base import ThresholdTask, held_out
from fastdp.thresholds.noisy_choice import draw_noise
from fastdp.thresholds.scale_free import COUNT_LEVEL
from fastdp_lab.audit.couplings.check import Seen, Shifts, Table
from fastdp_lab.baselines.w_event import DISSIMILARITY, VALUE, WEvent
from fastdp_lab.repetitions import repeat

Floats = NDArray[np.float64]
Generator = np.random.Generator
#: A new publisher with this key.
Make = Callable[[Key], StreamPublisher]

BOUND = 8.0
#: Values of the small streams: below, at and above the bound, on the grid and off it.
VALUES = np.array([-3.0, 0.0, 0.0, 0.3, 1.0, 2.0, 3.7, 4.0, 8.0, 8.0, 20.0])
#: Up to so many values all ranges are compared; of a longer stream a few.
ALL_RANGES = 40
#: What a publisher shows beside what it publishes.
PROPERTIES = ("threshold", "block", "n_seen", "n_published", "running_sum", "guarantee")


def pick(generator: Generator, *options: Any) -> Any:
    """One of several."""
    return options[int(generator.integers(len(options)))]


def values_of(generator: Generator, count: int) -> Floats:
    """A stream in pieces: calm ones, and wild ones."""
    wild: Floats = generator.choice(VALUES, count)
    calm = np.repeat(generator.choice(VALUES, count // 16 + 1), 16)[:count]
    return np.where(np.repeat(generator.random(count // 16 + 1) < 0.5, 16)[:count], wild, calm)


def altered(generator: Generator, values: Floats, *places: int) -> Floats:
    """The stream with another value at each of these places."""
    other = values.copy()
    for place in places:
        other[place] = generator.choice(VALUES[values[place] != VALUES])
    return other


# Couplings, from the proofs.


def choice_shift(
    rule: NoisyMax | ScaleFree, task: ThresholdTask, key: Key, held: Floats, there: Floats, shifts: Shifts
) -> None:
    """Noisy max: only the winner's draw, by what keeps it the winner (``fastdp.thresholds.noisy_choice``)."""
    choosers: list[Any] = [rule.start(task) for _ in range(2)]
    for chooser, values in zip(choosers, (held, there), strict=True):
        chooser.observe(values)
    own = held_out(key, choosers[0].pack())
    scores = [chooser.scores for chooser in choosers]
    if isinstance(rule, ScaleFree):
        # Its first number is kept as it is; the scores depend on that.
        released = choosers[0].released_above(own, 1)[0]
        scores = [partial(each, released) for each in scores]
        if choosers[0].count_epsilon:
            moved = choosers[0].above_lowest - choosers[1].above_lowest
            shifts.add(own, StreamId(Purpose.THRESHOLD, COUNT_LEVEL), 0, moved)
    before, after = (each() for each in scores)
    noise = draw_noise(choosers[0].law, 1, before.size, own)[0]
    # ScaleFree gives its draws from the largest candidate down.
    places = np.arange(before.size)[:: -1 if isinstance(rule, ScaleFree) else 1]
    winner = int(np.argmax(before + noise[places]))
    rise = after - before
    shift = max(0, int(rise.max())) - int(rise[winner])
    shifts.add(own, StreamId(Purpose.THRESHOLD), int(places[winner]), shift)


def in_steps(value: float, resolution: float, top: int) -> int:
    """A value clipped and rounded to the grid."""
    return int(min(max(np.rint(value * (1.0 / resolution)), 0.0), float(top)))


def window_shifts(make: Make, key: Key, x: Floats, there: Floats, places: Sequence[int], shifts: Shifts) -> None:
    """Where several values differ: draws of each, and of each threshold that any of them chooses, once."""
    chosen: set[int] = set()
    for place in places:
        stream_shifts(make, key, x, there, place, shifts, chosen)


def stream_shifts(
    make: Make, key: Key, x: Floats, there: Floats, place: int, shifts: Shifts, chosen: set[int] | None = None
) -> None:
    """One draw on each level of a tree, and one of each threshold that the value chooses; ``chosen`` are done.

    Noise that is bound to the prefix of sums needs no shift here.
    """
    publisher = make(key)
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
            stream = StreamId(Purpose.TREE, level + 1, tree)
            knot, beside = divmod(leaf, c.plan.fan_out**level)
            if isinstance(c.plan, HatsShape):
                # A hat falls by one a leaf, from its height at the knot.
                shifts.add(own, stream, knot, (c.plan.fan_out**level - beside) * (here - other))
                if beside:
                    shifts.add(own, stream, knot + 1, beside * (here - other))
            else:
                shifts.add(own, stream, knot, here - other)
    start, task = 0, c.task
    if stage == "withhold":
        start, task = place - progress.held, c.renewal_task
    elif stage == "publish" and c.renewal is not None and c.renewal.share and c.period is not None:
        start = place - (progress.blocks * c.plan.block + progress.filled - (progress.cycle - 1) * c.period)
        task = c.renewal_task
    elif stage != "holdout":
        return
    held = slice(start, start + task.holdout)
    if held.stop <= x.size and (chosen is None or start not in chosen):
        if chosen is not None:
            chosen.add(start)
        own = key.derive("threshold", progress.cycle) if progress.cycle else key
        assert isinstance(c.threshold, (NoisyMax, ScaleFree))  # noqa: S101 - the others here look at no values
        choice_shift(c.threshold, task, own, x[held], there[held], shifts)


def pak_shifts(make: Callable[[Key], PAK], x: Floats, there: Floats, place: int, key: Key, shifts: Shifts) -> None:
    """The threshold's winner and the hold-out's sum, or every node of the counter that holds the value."""
    pak = make(key)
    pak.publish(x)
    plan, tree = pak._plan, pak._state.tree
    assert tree is not None  # noqa: S101 - the stream is longer than its hold-out
    top, m = min(tree.theta_steps, plan.bound_steps), plan.holdout
    here, other = (in_steps(float(values[place]), pak.resolution, top) for values in (x, there))
    if place < m and isinstance(plan.threshold, NoisyMax):
        choice_shift(plan.threshold, plan.task, key, x[:m], there[:m], shifts)
    own = theta_key(key, tree.theta_steps)
    if place < m:
        own = theta_key(held_out(key, x[:m]), tree.theta_steps).within("lag")
    if place < m and not plan.lag_sums:
        shifts.add(own, StreamId(Purpose.LAG), 0, here - other)
        return
    index, length, number = (place, m, 1) if place < m else (place - m, plan.length - m, 0)
    for height in range(length.bit_length()):
        shifts.add(own, StreamId(Purpose.COUNTER, height, number), index >> height, here - other)


# What is seen.


def see_release(seen: Seen, release: Release) -> None:
    """All that a release answers."""
    n = len(release)
    if n <= ALL_RANGES:
        starts, stops = np.triu_indices(n + 1)
    else:
        starts, stops = np.sort(np.random.default_rng(0).integers(0, n + 1, (2, 400)), axis=0)
    seen.add("values", release.values, release.offset, release.threshold, release.guarantee, release.block)
    seen.add("range sums", release.range_sum(starts, stops))
    seen.add("revised sums", release.range_sum(starts, stops, revised=True))
    seen.add("revised", release.revised)
    if release.noise is not None:
        seen.add("noise", release.noise)
        for revised in (False, True):
            seen.add("intervals", *release.interval(starts, stops, revised=revised))
            seen.add("standard errors", release.std_error(starts, stops, revised))
    if release.nodes is not None:
        seen.add("nodes", release.nodes.sums)
    if release.revision is not None:
        seen.add("blocks", release.revision.exponents, release.revision.totals, release.revision.means)
    seen.add("repr", repr(release), str(release), len(release))


def see_stream(
    make: Callable[[Key], Any], cuts: list[int], saved: int, releases: bool, key: Key, values: Floats
) -> Seen:
    """A stream in chunks, with the state saved and loaded after one of them; and, if it can be, released at once."""
    seen = Seen()
    with seen.warned():
        publisher = make(key)
        for number, chunk in enumerate(np.split(values, cuts)):
            seen.add("published", publisher.publish(chunk))
            if number == saved:
                publisher = seen.reloaded(publisher)
            for name in PROPERTIES:
                seen.add(name, getattr(publisher, name, None))
            # The default one shows an address.
            if not repr(publisher).startswith("<"):
                seen.add("repr", repr(publisher), str(publisher))
        if releases:
            see_release(seen, make(key).release(values))
    return seen


def see_whole(make: Callable[[Key], WholeStream], key: Key, values: Floats) -> Seen:
    """A finished array, with nothing withheld."""
    seen = Seen()
    with seen.warned():
        whole = make(key)
        see_release(seen, whole.release(values))
        seen.add("share", whole.share)
    return seen


def baseline_shifts(
    make: Callable[[Key], WEvent], x: Floats, there: Floats, places: Sequence[int], table: Table
) -> Shifts:
    """A comparison's draw by what keeps its outcome, a release's by what keeps the release."""
    key = table.key
    found, publisher = Shifts(), make(key)
    machine, top = publisher._machine, publisher._machine.grid.bound_steps
    for place in range(x.size):
        state = publisher.state
        scale = machine.scale(state)
        if place in places and scale is not None:
            here, other = (in_steps(float(values[place]), machine.grid.resolution, top) for values in (x, there))
            if machine.scheme not in ("uniform", "sample"):
                far, farther = abs(here - state.released), abs(other - state.released)
                found.add(key, StreamId(Purpose.TREE, DISSIMILARITY, place), 0, far - farther)
            found.add(key, StreamId(Purpose.TREE, VALUE, place), 0, here - other)
        publisher.publish(x[place : place + 1])
    return found


def see_many(composition: dict[str, Any], key: Key, values: Floats) -> Seen:
    """Rows through ``release_many``."""
    seen = Seen()
    with seen.warned():
        many = release_many(values, **composition, key=key)
        seen.add("values", many.values, many.thresholds, many.guarantee, many.ids, repr(many))
        for release in many:
            see_release(seen, release)
    return seen


def see_repeated(make: Make, count: int, key: Key, values: Floats) -> Seen:
    """Rows of ``repeat``: each costs epsilon."""
    seen = Seen()
    with seen.warned():
        done = repeat(make(key), values, count)
        assert done.releases is not None  # noqa: S101 - no queries were given
        seen.add("thresholds", done.thresholds)
        for release in done.releases:
            see_release(seen, release)
    return seen
