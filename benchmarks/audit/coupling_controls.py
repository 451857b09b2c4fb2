"""Negative controls that couplings must catch.  FOR AUDITS ONLY: each loses more privacy than it claims."""

from __future__ import annotations

import dataclasses
from functools import cached_property, partial
from typing import Any

import numpy as np

from benchmarks.audit.controls import RecountingPHDStream, SharedNoise
from benchmarks.audit.coupling_cases import turning
from benchmarks.audit.parts import attack
from benchmarks.audit.table_controls import TABLE_CONTROLS
from fastdp.counters import BinaryTree, Block
from fastdp.data.column import as_floats
from fastdp.kinds import Floats, Integers
from fastdp.noise.binding import GivenKey
from fastdp.noise.key import Key
from fastdp.perturbers import Blocks, Flat, Hierarchy, HierarchyShape
from fastdp.record import values_of
from fastdp.smoothers import Recent
from fastdp.spatial import Box
from fastdp.spatial.phdstream import PHDStream
from fastdp.state.machine import Column, Transition
from fastdp.streams.adaptive_blocks import AdaptiveBlocks
from fastdp.streams.publisher import StreamPublisher
from fastdp.streams.release import WholeStream
from fastdp.streams.stream_machine import Schedule, fill_in
from fastdp.streams.stream_state import Progress, Step, StreamState, TreeNoise
from fastdp.thresholds import Fixed, ScaleFree
from fastdp.thresholds.renewals import RenewFromHoldout, RenewFromPublished
from fastdp_lab.audit.couplings.check import Draw, Generator, Instance, pick
from fastdp_lab.audit.couplings.points import Event, of_points, running_counts, selective_counting
from fastdp_lab.audit.couplings.streams import Make, events, of_pair, of_stream, publisher, whole, windows


class PeekingSchedule(Schedule):
    """The threshold looks at the first value behind its hold-out, too."""

    def step(self, state: StreamState, batch: Column, key: Key) -> Transition[StreamState]:
        """With the value behind the hold-out counted before its last ones."""
        stage, room = self.stage(state.progress)
        if stage == "holdout" and room < batch.values.size:
            peeked = as_floats(batch.values[room : room + 1])
            state = state._replace(pending=[*state.pending, peeked])
        return super().step(state, batch, key)


class SilentBlocks(Blocks):
    """Blocks without noise."""

    def leaf_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        """None."""
        return np.zeros(plan.leaves, np.int64)


class TrueLengths(AdaptiveBlocks):
    """Blocks are as long as true sums would have them; all that is published has its noise."""

    @cached_property
    def _silent(self) -> dict[int, Progress]:
        """Where the same stream without noise stands, by values seen."""
        return {}

    def in_one_pass(self, theta_steps: int) -> bool:
        """Not by the kernel that leaves blocks open."""
        return False

    def prepare(self, progress: Progress, noise: TreeNoise | None, values: Floats) -> Step | None:
        """Value by value, so that each length is overruled when its block begins."""
        quiet = AdaptiveBlocks(**{**values_of(self), "perturber": SilentBlocks(self.perturber.closing)})
        true, begun = self._silent.get(progress.n_seen, progress), progress.filled
        step = super().prepare(progress, noise, values[:0])
        assert step is not None
        parts = [step.blocks]
        for value in np.split(values, np.arange(1, values.size)):
            noisy, bare = super().prepare(progress, noise, value), quiet.prepare(true, None, value)
            assert noisy is not None
            assert bare is not None
            true, progress, noise = bare.following, noisy.following, noisy.noise
            if progress.filled == 0:
                memory = progress.smoother.copy()
                memory["exponent"][0] = true.smoother["exponent"][0]
                progress = progress._replace(smoother=memory)
            parts = [*parts[:-1], noisy.blocks[:-1], noisy.blocks[-1:]]
            self._silent[progress.n_seen] = true
        blocks, theta = np.concatenate(parts), progress.theta_steps * self.grid.resolution
        emit = partial(self._emit, blocks, begun, theta, np.empty(0))
        return Step(progress, noise, values.size, write=emit, blocks=blocks, before=step.before)


class TrueLengthsSchedule(Schedule):
    """The schedule of such blocks."""

    def pipeline_of(self, key: Key) -> AdaptiveBlocks:
        """With true lengths."""
        right = super().pipeline_of(key)
        assert isinstance(right, AdaptiveBlocks)
        return TrueLengths(**values_of(right))


class ShortFlat(Flat):
    """Noise for a threshold that is one step too low."""

    def leaf_noise(self, plan: HierarchyShape, theta_steps: int, epsilon: float, key: Key, tree: int) -> Integers:
        """Of theta less one step."""
        return super().leaf_noise(plan, max(theta_steps - 1, 1), epsilon, key, tree)


class WithheldMeanSchedule(Schedule):
    """What is published in the place of withheld values is their own mean, without noise."""

    def step(self, state: StreamState, batch: Column, key: Key) -> Transition[StreamState]:
        """With what was withheld in the emission."""
        made = super().step(state, batch, key)
        parts = made.emit.parts
        for number, part in enumerate(parts):
            if getattr(part.write, "func", None) is fill_in:
                begin = sum(each.size for each in parts[:number]) + batch.values.size - made.emit.size
                held = batch.values[begin : begin + part.size]
                parts[number] = part._replace(write=partial(fill_in, float(held.mean())))
        return made


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


def _scheduled(make: Make, kind: type[Schedule]) -> Make:
    """Publishers with another schedule."""

    def other(key: Key) -> StreamPublisher:
        publisher = make(key=key)
        changed: StreamPublisher = publisher._of(kind(publisher.composition), publisher._key.again())
        return changed

    return other


def peeking_threshold(generator: Generator) -> Instance:
    """The streams differ in the value behind the hold-out."""
    make = publisher(generator, perturber=Hierarchy(2, prune=0), threshold=ScaleFree(), holdout=3, epsilon=6.0)
    return of_stream(generator, _scheduled(make, PeekingSchedule), 12, saves=False, place=0)


def true_lengths(generator: Generator) -> Instance:
    """At the value that changes the true lengths."""
    make, x, there, place = turning(generator)
    return of_pair(generator, _scheduled(make, TrueLengthsSchedule), x, there, [place], saves=False)


def shared_trees(generator: Generator) -> Instance:
    """Several trees."""
    return of_stream(generator, publisher(generator, perturber=SharedNoise(2, prune=0)), 40, saves=False)


def refined_free(generator: Generator) -> Instance:
    """Published values choose the next threshold with half of epsilon more, which the claim leaves out."""
    epsilon, renewal = float(pick(generator, 0.5, 1.0, 6.0)), RenewFromPublished(1 / 3, 1)
    options = {"threshold": ScaleFree(), "max_range": 4, "epsilon": 1.5 * epsilon}
    make = publisher(generator, perturber=Hierarchy(2, prune=0), renewal=renewal, **options)
    return dataclasses.replace(of_stream(generator, make, 30, saves=False), claim=epsilon)


class FreeChoice(WholeStream):
    """Theta is chosen from all values, and the blocks have the whole of epsilon too."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.composition = dataclasses.replace(self.composition, epsilon=self.epsilon)


def choice_free(generator: Generator) -> Instance:
    """The threshold's share is not paid."""
    return whole(generator, FreeChoice)


def withheld_mean(generator: Generator) -> Instance:
    """What is withheld is published as its mean."""
    make = publisher(generator, perturber=Hierarchy(2, prune=0), renewal=RenewFromHoldout(1, 5), max_range=4)
    return of_stream(generator, _scheduled(make, WithheldMeanSchedule), 40, saves=False)


def short_scale(generator: Generator) -> Instance:
    """Noise for theta less one step."""
    make = publisher(generator, perturber=ShortFlat(), threshold=Fixed(8.0), resolution=0.1)
    return of_stream(generator, make, 10, saves=False)


def value_shown(generator: Generator) -> Instance:
    """The last value is shown while its block is open."""
    options = {"perturber": Hierarchy(2, prune=1), "smoother": Recent(), "threshold": Fixed(8.0), "max_range": 8}
    return of_stream(generator, publisher(generator, LastValueShown, **options), 15, saves=False)


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
    batches = [(left, none, 0), (right, left, 0), (none, right, 0), (left, none, 0), (none, left, 0)]
    return of_points(
        generator,
        partial(PHDStream, Box(0, 1), 6.0, FreeBlock(4, settles=True), max_depth=4),
        len(batches),
        saves=False,
        batches=batches,
    )


def printed_tree(generator: Generator) -> Instance:
    """Noise for one sum too few, wherever the event is in all of them."""
    return running_counts(generator, PrintedTree(4))


def papers_score(generator: Generator) -> Instance:
    """The printed score, on a batch that keeps it at the threshold along a path, under the claim that is printed."""
    added, removed = (points.reshape(-1, 1) for points in attack(20, 1.0))
    event = Event(0, np.zeros((1, 1)), removal=False, here=False)
    kind = {"max_depth": 20, "score": "paper", "threshold": -1.0, "total_share": 0.0}
    make = partial(PHDStream, Box(0, 1), 2.0, **kind)
    right = of_points(generator, make, 1, saves=False, event=event, batches=[(added, removed, 0)])
    return dataclasses.replace(right, claim=2.0)


def one_counter_key(generator: Generator) -> Instance:
    """Two counters with one noise."""
    return selective_counting(generator, lambda key: OneCounterKey.of(key, key.given, ()))


#: Each must fail in some instance.
CONTROLS: dict[str, Draw] = {
    "control-threshold-peeking": peeking_threshold,
    "control-true-lengths": true_lengths,
    "control-trees-share": shared_trees,
    "control-refined-free": refined_free,
    "control-choice-free": choice_free,
    "control-withheld-mean": withheld_mean,
    "control-theta-less-one": short_scale,
    "control-value-shown": value_shown,
    "control-recounted": recounted,
    "control-settling-free": settling_free,
    "control-log2-levels": printed_tree,
    "control-papers-score": papers_score,
    "control-selective-one-key": one_counter_key,
    "control-events-half": partial(events, factor=0.5),
    "control-windows-less-one": partial(windows, claimed=-1),
    **TABLE_CONTROLS,
}
