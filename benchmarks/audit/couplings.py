"""Further couplings of the package, and negative controls that couplings must catch.

FOR AUDITS ONLY: each control loses more privacy than it claims.
"""

import itertools
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.audit.controls import RecountingPHDStream, SharedNoise
from benchmarks.audit.parts import attack
from fastdp import Time, record
from fastdp.counters import BinaryTree, Block
from fastdp.data.column import as_floats
from fastdp.kinds import Floats, Integers
from fastdp.noise.given_noise import GivenKey, GivenNoise
from fastdp.noise.key import Key, repeating
from fastdp.noise.sampler import Distribution
from fastdp.noise.words import Words
from fastdp.perturbers import Blocks, Flat, Hierarchy, HierarchyShape
from fastdp.points import Box
from fastdp.points.adaptive_phdstream import AdaptivePHDStream
from fastdp.points.phdstream import PHDStream
from fastdp.smoothers import Recent
from fastdp.state.machine import Column, Transition
from fastdp.streams.adaptive_blocks import AdaptiveBlocks, Closed
from fastdp.streams.array_rule import ArrayRule
from fastdp.streams.columns import RowKeys, RowValues, Streams
from fastdp.streams.publisher import StreamPublisher
from fastdp.streams.stream_machine import Schedule
from fastdp.tables import choices as table_choices
from fastdp.tables import online, shares
from fastdp.tables.quantities import Quantity
from fastdp.thresholds import Fixed, NoisyMax, ScaleFree
from fastdp.thresholds.base import ThresholdTask, held_out
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from fastdp_lab.audit.couplings import COUPLINGS
from fastdp_lab.audit.couplings.check import KEY, Draw, Generator, Instance, Outputs, Shift, pick
from fastdp_lab.audit.couplings.points import (
    COORDINATES,
    Batch,
    Event,
    event_of,
    of_points,
    running_counts,
    selective_counting,
    shape_of,
)
from fastdp_lab.audit.couplings.streams import (
    BOUND,
    Make,
    altered,
    choice_shift,
    events,
    noisy_choice,
    of_pair,
    of_stream,
    publisher,
    values_of,
    whole,
    windows,
)
from fastdp_lab.audit.couplings.tables import (
    Release,
    Rows,
    TableInstance,
    at,
    batch_release,
    draw,
    draw_online,
    see_release,
)

#: Values of a stream on which blocks have changed their length.
LONG = 1200
BINARY = Hierarchy(2, prune=0)


def turning(generator: Generator) -> tuple[Make, Floats, Floats, int]:
    """A publisher whose blocks change their length, and streams that differ where true sums would change it.

    On the way from a calm stream to a wild one, value by value, lengths change somewhere.
    """
    make = publisher(generator, perturber=Blocks(), threshold=Fixed(8.0), resolution=1.0, max_range=256)
    wild = np.where(np.arange(LONG) // int(pick(generator, 1, 8, 32)) % 2, 8.0, 0.0)
    calm = np.full(LONG, float(pick(generator, 0.0, 3.0, 8.0)))

    def lengths(changed: int) -> bytes:
        # The noise of KEY is 0.
        revision = make(key=KEY).release(np.concatenate([wild[:changed], calm[changed:]])).revision
        assert revision is not None
        return revision.exponents.tobytes()

    low, high, first = 0, LONG, lengths(0)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if lengths(middle) == first else (low, middle)
    streams = [np.concatenate([wild[:changed], calm[changed:]]) for changed in (low, high)]
    return make, streams[0], streams[1], low


def adaptive_lengths(generator: Generator) -> Instance:
    """Streams whose true sums would change the length of blocks."""
    make, x, there, place = turning(generator)
    return of_pair(generator, make, x, there, [place])


def adaptive_batches(generator: Generator) -> Instance:
    """Blocks of one value past the border of a batch of noise."""
    make = publisher(generator, perturber=Blocks(), max_range=4, epsilon=2.0)
    return of_stream(generator, make, 2100, pick(generator, 1023, 1024, 1025, 2047, 2048))


def flat_batches(generator: Generator) -> Instance:
    """Past the border of a batch of noise."""
    make = publisher(generator, perturber=Flat())
    return of_stream(generator, make, 65_600, pick(generator, 65_535, 65_536, 65_599))


def choices(generator: Generator) -> Instance:
    """Noisy max alone, on hold-outs of few values, where ties are frequent."""
    rule = noisy_choice(generator)
    task = ThresholdTask(
        epsilon=float(pick(generator, 0.5, 1.0, 6.0)),
        bound=BOUND,
        holdout=int(pick(generator, 2, 5, 30)),
        max_range=4,
        resolution=1.0,
        publish_epsilon=1.0,
        noise_constant=1.0,
    )
    x = values_of(generator, task.holdout)
    there = altered(generator, x, int(generator.integers(task.holdout)))

    def publish(key: Key, values: Floats) -> Outputs:
        chooser = rule.start(task)
        chooser.observe(values)
        yield "theta", chooser.choose(held_out(key, chooser.pack()))

    shift: Shift = lambda table, shifts: choice_shift(partial(rule.start, task), table.key, x, there, shifts)  # noqa: E731
    return Instance(rule.guarantee(task).epsilon, publish, x, there, shift)


def planted(generator: Generator) -> Instance:
    """Next to nothing at first, then much at one place: PrivTree chooses the cells of a later count."""
    options = {**shape_of(generator), "epsilon": 6.0, "max_depth": 6, "period": int(pick(generator, 1, 2))}
    dim, count = options["domain"].dim, 6
    batches: list[Batch] = [(np.zeros((0, dim)), np.zeros((0, dim)))]
    batches += [(np.full((30, dim), generator.choice(COORDINATES)), np.zeros((0, dim))) for _ in range(count - 1)]
    event = event_of(generator, dim, count)
    return of_points(generator, partial(AdaptivePHDStream, **options), count, event=event, batches=batches)


#: The couplings of the package, and these.
SHIPPED: dict[str, Draw] = {
    **COUPLINGS,
    "adaptive-lengths": adaptive_lengths,
    "adaptive-batches": adaptive_batches,
    "flat-batches": flat_batches,
    "choices": choices,
    "phdstream-planted": planted,
}

#: Of the public windows.
START, STOP = 60, 240
_DELTAS = shares.deltas_of
_SENSITIVITY, _NUMBER = Quantity.sensitivity.fget, table_choices.noisy_number
_THRESHOLD, _KEY_SCALE = online._threshold, online.KeyNoise.scale.fget
#: Totals without a choice of a clip; private keys online.
_PLAIN: dict[str, Any] = {"kind": "totals", "keys": "none", "chooses": False}
_KEYS_ONLINE: dict[str, Any] = {"kind": "counts", "keys": "private", "unit": "row", "noise": "laplace"}


def otherwise(make: Draw, released: Callable[[Release, Key, Any], list[Any]]) -> Draw:
    """The same tables, released otherwise; the function takes the right release first."""

    def control(generator: Generator) -> Instance:
        instance = make(generator)
        assert isinstance(instance, TableInstance)
        other = partial(released, instance.release)
        return replace(instance, release=other, publish=partial(see_release, other))

    return control


def patched(target: Any, name: str, other: Any, *, online: bool = False, **given: Any) -> Draw:
    """Tables, or windows, with something in place of an attribute."""
    put = partial(mock.patch.object, target, name, property(other) if isinstance(target, type) else other)

    def make(generator: Generator) -> Instance:
        with put() if online else nullcontext():
            return (draw_online if online else draw)(generator, **given)

    def released(right: Release, key: Key, rows: Any) -> list[Any]:
        with put():
            return right(key, rows)

    return otherwise(make, released)


def keys_that_count(right: Release, key: Key, rows: Rows) -> list[Any]:
    """Public keys of the rows that count, in place of all rows."""
    return right(key, [row for row in rows if START <= row.minute < STOP])


def clip_of_the_largest(right: Any, key: Key, rows: Rows) -> list[Any]:
    """A known clip, but not above the largest value."""
    kind, options = right.args
    return batch_release(kind, {**options, "clip": max(0.5, min(10.0, *(row.value for row in rows)))}, key, rows)


def persons_by_batch(right: Release, key: Key, batches: Sequence[tuple[int, Rows]]) -> list[Any]:
    """A person of one batch is another one in the next."""
    return right(
        key,
        [
            (clock, [row._replace(person=f"{row.person} {number}") for row in rows])
            for number, (clock, rows) in enumerate(batches)
        ],
    )


def warns_of_rows(right: Release, key: Key, rows: Rows) -> list[Any]:
    """A warning where a table has few rows."""
    if len(rows) < 6:
        warnings.warn("few rows", stacklevel=1)
    return right(key, rows)


def logs_late_rows(right: Release, key: Key, batches: Sequence[tuple[int, Rows]]) -> list[Any]:
    """A log line where a row comes late."""
    for before, (_, rows) in itertools.pairwise(batches):
        if any(row.minute < before[0] - 60 for row in rows):
            logging.getLogger("fastdp").info("late rows")
    return right(key, batches)


#: Each must fail in some instance.
TABLE_CONTROLS: dict[str, Draw] = {
    # Noise for half of what a row moves a sum by.
    "control-table-half-sensitivity": patched(
        Quantity, "sensitivity", lambda quantity: max(1, _SENSITIVITY(quantity) // 2), **_PLAIN
    ),
    # Noise for the width of a clip both of whose ends lie above 0.
    "control-table-high-less-low": patched(
        *(Quantity, "sensitivity", lambda quantity: quantity.high - quantity.low),
        **{**_PLAIN, "keys": "given", "bound": (-10.0, 10.0), "clip": (5.0, 10.0)},
    ),
    "control-table-keys-that-count": otherwise(
        partial(draw, **{**_PLAIN, "keys": "public"}, time=Time("at", "1h", start=at(START), stop=at(STOP))),
        keys_that_count,
    ),
    # Gaussian noise for all of delta, beside private keys that have half of it.
    "control-table-delta-and-a-half": patched(
        *(shares, "deltas_of", lambda plan: (_DELTAS(plan)[0], plan.delta)),
        **{**_PLAIN, "keys": "private", "unit": "row", "noise": "gaussian", "bound": 10.0, "clip": 10.0},
    ),
    # Keys pass with one and a half times the probability that delta allows.
    "control-table-key-delta": patched(
        *(shares, "deltas_of", lambda plan: (1.5 * _DELTAS(plan)[0], _DELTAS(plan)[1])),
        kind="counts",
        keys="private",
        unit="row",
        noise="laplace",
    ),
    "control-table-clip-of-largest": otherwise(partial(draw, **_PLAIN, bound=10.0, clip=10.0), clip_of_the_largest),
    # Numbers of rows that count and that are dropped have a quarter of their noise.
    "control-table-persons-of-k": patched(
        table_choices,
        "noisy_number",
        lambda exact, sensitivity, budget, *more: _NUMBER(exact, sensitivity, 4.0 * budget, *more),
        **{**_PLAIN, "unit": "person", "noise": "laplace", "bound": 10.0, "clip": 4.0},
    ),
    "control-windows-persons-by-batch": otherwise(
        partial(draw_online, kind="counts", keys="none", unit="person in a period"), persons_by_batch
    ),
    "control-table-warns-of-rows": otherwise(partial(draw, kind="counts", keys="none"), warns_of_rows),
    "control-windows-logs-late-rows": otherwise(partial(draw_online, kind="totals", keys="none"), logs_late_rows),
    # Keys pass in each window with all of delta.
    "control-windows-delta-of-each": patched(
        *(online, "_threshold", lambda rule, _: _THRESHOLD(rule._replace(delta=2 * rule.delta), 0)),
        online=True,
        **_KEYS_ONLINE,
    ),
    # Keys have half of their noise.
    "control-windows-half-noise-of-keys": patched(
        *(online.KeyNoise, "scale", lambda rule: _KEY_SCALE(rule) / 2), online=True, **_KEYS_ONLINE
    ),
}


class PeekingSchedule(Schedule):
    """The threshold looks at the first value behind its hold-out, too."""

    def step(self, state: Streams, batch: Column, key: Key) -> Transition[Streams]:
        """With the value behind the hold-out counted before its last ones."""
        stage, room = self.stage(state.rows[0])
        if stage == "holdout" and room < batch.values.size:
            (chooser,) = state.choosers
            assert chooser is not None
            chooser = chooser.copy()
            chooser.observe(as_floats(batch.values[room : room + 1]))
            state = state._replace(choosers=[chooser])
        return super().step(state, batch, key)


class NoNoise(GivenNoise):
    """Zeros in place of bound noise."""

    def bound(self, total: int, distribution: Distribution, chain: Words, index: int) -> int:
        """None."""
        return 0


class TrueLengths(AdaptiveBlocks):
    """Blocks are as long as true sums would have them; all that is published has its noise."""

    @cached_property
    def _silent(self) -> dict[int, Streams]:
        """State of the same stream without noise, by values seen."""
        return {}

    def publish(self, state: Streams, batch: RowValues, keys: RowKeys, into: Closed | None = None) -> Streams | int:
        """Value by value, so that each length is overruled when its block begins."""
        silent = GivenKey.of(self.key, NoNoise(lambda *_: None), ())
        quiet = AdaptiveBlocks(**{**record.values_of(self), "key": silent})
        true = self._silent.get(int(state.rows["n_seen"][0]), state.copied())
        for k in range(int(batch.counts[0])):
            one = batch._replace(starts=batch.starts + k, counts=np.ones_like(batch.which))
            one = one._replace(out_starts=batch.out_starts + k)
            noisy = super().publish(state, one, keys, into)
            with repeating():
                bare = quiet.publish(true.copied(), one._replace(out=np.empty(1), out_starts=batch.which), keys)
            assert isinstance(noisy, Streams)
            assert isinstance(bare, Streams)
            true, state = bare, noisy
            if not state.rows["filled"][0]:
                state.rows["exponent"] = true.rows["exponent"]
            self._silent[int(state.rows["n_seen"][0])] = true
        return state


class TrueLengthsSchedule(Schedule):
    """The schedule of such blocks."""

    def pipeline_of(self, key: Key) -> AdaptiveBlocks:
        """With true lengths."""
        right = super().pipeline_of(key)
        assert isinstance(right, AdaptiveBlocks)
        return TrueLengths(**record.values_of(right))


class ShortFlat(Flat):
    """Noise for a threshold that is one step too low."""

    def leaf_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        """Of theta less one step."""
        return super().leaf_noise(plan, max(theta_steps - 1, 1), epsilon, key, tree)


class WithheldMeanSchedule(Schedule):
    """Withheld values are replaced by their own mean, without noise."""

    def _withhold(self, state: Streams, i: int, values: Floats, out: Floats) -> Streams:
        """With the mean of what was withheld."""
        after = super()._withhold(state, i, values, out)
        out[:] = values.mean()
        return after


class LastValueShown(StreamPublisher):
    """A publisher whose ``repr`` shows the last value, clipped, while its block is open."""

    _last = 0.0

    def publish(self, chunk: Any, **options: Any) -> Floats:
        published = super().publish(chunk, **options)
        if len(chunk):
            self._last = float(np.clip(chunk[-1], 0.0, self.bound))
        return published

    def __repr__(self) -> str:
        return f"{super().__repr__()} {self._last * (self.n_published % self.block)}"


class OneCounterKey(GivenKey):
    """A key that gives all counters the first one's."""

    def derive(self, *labels: str | int) -> Key:
        """Of the first counter."""
        return super().derive("counter", 0) if labels[0] == "counter" else super().derive(*labels)


class FreeBlock(Block):
    """Blocks that settle for nothing."""

    def settle(self, state: Integers, noise: Integers) -> Integers:
        """Takes back the open noise and puts none in its place."""
        return super().settle(state, np.zeros_like(noise))


class PrintedTree(BinaryTree):
    """The binary tree with noise for log2 T sums."""

    @property
    def draws(self) -> int:
        """One too few."""
        return super().draws - 1


def of_values(
    size: int,
    kind: type = StreamPublisher,
    *,
    schedule: type[Schedule] | None = None,
    place: int | None = None,
    **given: Any,
) -> Draw:
    """Streams of so many values behind the hold-out, by publishers of this kind or with this schedule."""

    def control(generator: Generator) -> Instance:
        make = publisher(generator, kind, **given)
        make = make if schedule is None else partial(_scheduled, make, schedule)
        return of_stream(generator, make, size, saves=False, place=place)

    return control


def _scheduled(make: Make, kind: type[Schedule], key: Key) -> StreamPublisher:
    """The publisher with another schedule."""
    right = make(key=key)
    changed: StreamPublisher = right._of(kind(right.composition), right._key.again())
    return changed


def true_lengths(generator: Generator) -> Instance:
    """At the value that changes the true lengths."""
    make, x, there, place = turning(generator)
    return of_pair(generator, partial(_scheduled, make, TrueLengthsSchedule), x, there, [place], saves=False)


def refined_free(generator: Generator) -> Instance:
    """Published values choose the next threshold with half of epsilon more, which the claim leaves out."""
    epsilon, renewal = float(pick(generator, 0.5, 1.0, 6.0)), RenewFromPublished(1 / 3, 1)
    options = {"threshold": ScaleFree(), "max_range": 4, "epsilon": 1.5 * epsilon, "perturber": BINARY}
    return replace(of_values(30, renewal=renewal, **options)(generator), claim=epsilon)


class FreeChoice(ArrayRule):
    """Theta and the number of blocks are chosen from all values, and the sums have the whole of epsilon too."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.shares = self.shares._replace(rest=Fraction(1))


def recounted(generator: Generator) -> Instance:
    """An addition that is counted in two counts."""
    epsilon = float(generator.choice([1.0, 6.0]))
    event = Event(1, np.full((1, 1), 0.1), removal=False, here=bool(generator.integers(2)))
    return of_points(
        generator,
        partial(RecountingPHDStream, Box(0, 1), epsilon, max_depth=2, period=1),
        6,
        saves=False,
        event=event,
    )


def settling_free(generator: Generator) -> Instance:
    """A counter that is left takes its noise back for nothing: points come to one cell, and go to another one."""
    none: Floats = np.zeros((0, 1))
    left, right = np.full((30, 1), 0.1), np.full((30, 1), 0.9)
    batches = [(left, none), (right, left), (none, right), (left, none), (none, left)]
    return of_points(
        generator,
        partial(PHDStream, Box(0, 1), 6.0, FreeBlock(4, settles=True), max_depth=4),
        len(batches),
        saves=False,
        batches=batches,
    )


def papers_score(generator: Generator) -> Instance:
    """The printed score, on a batch that keeps it at the threshold along a path, under the claim that is printed."""
    added, removed = (points.reshape(-1, 1) for points in attack(20, 1.0))
    event = Event(0, np.zeros((1, 1)), removal=False, here=False)
    kind = {"max_depth": 20, "score": "paper", "threshold": -1.0, "total_share": 0.0}
    make = partial(PHDStream, Box(0, 1), 2.0, **kind)
    right = of_points(generator, make, 1, saves=False, event=event, batches=[(added, removed)])
    return replace(right, claim=2.0)


#: Each must fail in some instance.
CONTROLS: dict[str, Draw] = {
    "control-threshold-peeking": of_values(
        12,
        schedule=PeekingSchedule,
        place=0,
        perturber=BINARY,
        threshold=NoisyMax(step=1.0, fan_out=2),
        holdout=3,
        epsilon=6.0,
    ),
    "control-true-lengths": true_lengths,
    "control-trees-share": of_values(40, perturber=SharedNoise(2, prune=0)),
    "control-refined-free": refined_free,
    # The threshold's share is not paid.
    "control-choice-free": partial(whole, kind=FreeChoice),
    "control-withheld-mean": of_values(
        40, schedule=WithheldMeanSchedule, perturber=BINARY, renewal=RenewFromHoldout(1, 5), max_range=4
    ),
    "control-theta-less-one": of_values(10, perturber=ShortFlat(), threshold=Fixed(8.0), resolution=0.1),
    "control-value-shown": of_values(
        *(15, LastValueShown), perturber=Hierarchy(2, prune=1), smoother=Recent(), threshold=Fixed(8.0), max_range=8
    ),
    "control-recounted": recounted,
    "control-settling-free": settling_free,
    # Noise for one sum too few, wherever the event is in all of them.
    "control-log2-levels": partial(running_counts, counter=PrintedTree(4)),
    "control-papers-score": papers_score,
    # Two counters with one noise.
    "control-selective-one-key": partial(selective_counting, key_of=lambda key: OneCounterKey.of(key, key.given, ())),
    "control-events-half": partial(events, factor=0.5),
    "control-windows-less-one": partial(windows, claimed=-1),
    **TABLE_CONTROLS,
}
