"""Many repetitions of one release, for simulations: everything that is not noise is done once.

Repetition k has the noise of stream number k under the publisher's seed, so it can be made again on its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tqdm import tqdm

from fastdp import Key, ReleasedMany, StreamPublisher, validation
from fastdp.data.column import as_floats, as_whole
from fastdp.errors import ParameterError
from fastdp.kinds import Floats, Indices
from fastdp.noise.key import MAX_STREAMS
from fastdp.streams.parameters import StreamParameters
from fastdp.streams.row_pipeline import (
    BATCH_VALUES,
    BATCH_WORDS,
    RowBatch,
    RowOutput,
    RowPipeline,
    Sums,
    concurrently,
    even,
    snapped,
    worth,
)
from fastdp.thresholds.base import RowChooser, held_out

#: Slabs that a thread takes at a time, at most.
RUN = 16


@dataclass(frozen=True, eq=False)
class Repetitions:
    """Simulated releases of the same values.

    Attributes
    ----------
    thresholds : float64[repetitions]
        Theta of each.
    answers : float64[repetitions, q] or None
        Range sums, if queries were given.
    releases : ReleasedMany or None
        The releases themselves, if no queries were given; its guarantee is that of one repetition.
    """

    thresholds: Floats
    answers: Floats | None
    releases: ReleasedMany | None

    def __len__(self) -> int:
        return self.thresholds.size


def repeat(
    publisher: StreamPublisher,
    values: Any,
    repetitions: int,
    *,
    queries: tuple[Any, Any] | None = None,
    first: int = 0,
    threads: int = 1,
    progress: bool = False,
) -> Repetitions:
    """Simulate many releases of the same array; work without noise is done once for all.

    Repetition k is bit for bit what a publisher with the same parameters and ``key=Key.from_seed(seed).of_stream(k)``
    releases.  Repetitions of a real release would each cost epsilon again.

    Parameters
    ----------
    publisher : StreamPublisher
        Fresh, with a seed, without renewals.
    values : array-like
        Longer than the hold-out.
    repetitions, first : int
        How many, and the number of the first, to go on where a call before ended.
    queries : (starts, stops), optional
        Ranges [start, stop) as :meth:`fastdp.Release.sum` takes them; then only their answers are kept.  Without
        queries all published values are: 8 bytes a value and repetition.
    threads : int
        How many work at once, fewer where there is little work; the output does not depend on it.
    progress : bool
        Whether a bar shows on standard error.
    """
    if not isinstance(publisher, StreamPublisher):
        raise ParameterError(
            f"publisher is a {type(publisher).__name__}: expected a publisher of a stream, with a seed"
        )
    composition = publisher._machine.composition
    repeater = _Repeater.checked(composition, publisher._key, repetitions, first, threads, progress)
    floats = as_floats(as_whole(values, publisher.n_seen, publisher.holdout))
    return repeater.run(as_floats(publisher._machine.finite(floats, 0, "values")), queries)


@dataclass(frozen=True)
class _Repeater:
    """One call of :func:`repeat`."""

    pipeline: RowPipeline
    numbers: Indices
    threads: int
    progress: bool

    @classmethod
    def checked(
        cls, composition: StreamParameters, key: Key, repetitions: int, first: int, threads: int, progress: bool
    ) -> _Repeater:
        """The repeater for a publisher's parts, or ParameterError."""
        if not key.simulated:
            raise ParameterError(
                "seed = None: expected a seed, each repetition of a real release costs epsilon again"
            )
        if key.member:
            raise ParameterError(f"key = {key!r}: expected a seed, or a simulated key without a stream number")
        if composition.renewal is not None:
            raise ParameterError(f"renewal = {composition.renewal!r}: expected None where a release is repeated")
        begin = validation.integer("first", first, 0, MAX_STREAMS - 1)
        count = validation.integer("repetitions", repetitions, 1, MAX_STREAMS - begin)
        shown = validation.flag("progress", progress)
        numbers = np.arange(begin, begin + count)
        return cls(RowPipeline(composition, key.again()), numbers, validation.threads(threads), shown)

    def run(self, values: Floats, queries: tuple[Any, Any] | None) -> Repetitions:
        """All repetitions of a whole stream, float64[n], finite."""
        composition, size, steps = self.pipeline.composition, self.numbers.size, self._thresholds(values)
        thetas: Floats = np.multiply(steps, composition.grid.resolution)

        def room(which: Indices) -> RowOutput:
            """Memory for these releases."""
            return RowOutput.of(composition, np.full(which.size, values.size), self.numbers[which])

        def fill(which: Indices, sums: Sums | None, into: RowOutput, rows: Indices) -> None:
            slab = self._slab(values, steps[which], self.numbers[which])
            self.pipeline.publish(slab, into.values, into.borders[rows], sums)
            if into.nodes is not None and into.trees is not None:
                self.pipeline.release_nodes(slab, into.nodes, into.trees[rows])

        if queries is None:
            whole = room(np.arange(size))
            self._each(values, steps, lambda which, sums: fill(which, sums, whole, which))
            guarantee = composition.guarantee(simulated=True)
            alone = f"one repetition alone: all {size} of the same values would lose {size} epsilon"
            guarantee = replace(guarantee, derivation=(*guarantee.derivation, alone))
            return Repetitions(thetas, None, replace(whole.released(steps, simulated=True), guarantee=guarantee))
        try:
            first, second = queries
        except (TypeError, ValueError):
            raise ParameterError(
                f"queries = {validation.shown(queries)}: expected (starts, stops), two columns of whole numbers"
            ) from None
        _, starts, stops = room(np.arange(1)).released(steps[:1], simulated=True).queries(0, first, second)
        width = starts.size
        answers = np.empty((size, width))

        def answer(which: Indices, sums: Sums | None) -> None:
            rows, scratch = np.arange(which.size), room(which)
            fill(which, sums, scratch, rows)
            released = scratch.released(steps[which], simulated=True)
            firsts, lasts = np.tile(starts, rows.size), np.tile(stops, rows.size)
            answers[which] = released.sum(np.repeat(rows, width), firsts, lasts).reshape(rows.size, width)

        self._each(values, steps, answer)
        return Repetitions(thetas, answers, None)

    def _count(self, values: Floats) -> int:
        """Values that each repetition publishes."""
        return values.size - self.pipeline.composition.task.holdout

    def _slab(self, values: Floats, steps: Indices, streams: Indices) -> RowBatch:
        n, holdout = steps.size, self.pipeline.composition.task.holdout
        return RowBatch(values, np.full(n, holdout), np.full(n, self._count(values)), steps, streams)

    def _thresholds(self, values: Floats) -> Indices:
        """Theta of each repetition in grid steps; the hold-out is summarised once."""
        composition, key = self.pipeline.composition, self.pipeline.key
        chooser = composition.threshold.start(composition.task)
        chooser.observe(values[: composition.task.holdout])
        if not isinstance(chooser, RowChooser):
            own = held_out(key, chooser.pack())
            thetas = np.array([chooser.choose(own.of_stream(number)) for number in self.numbers.tolist()])
            return snapped(composition.grid, thetas)
        threads = worth(self.threads, self.numbers.size * chooser.row_words, BATCH_WORDS)
        size = even(self.numbers.size, max(1, BATCH_WORDS // chooser.row_words), threads)
        histograms = chooser.counts[None]
        thetas = np.empty(self.numbers.size)

        def choose(begin: int) -> None:
            part = slice(begin, begin + size)
            thetas[part] = chooser.choose_rows(histograms, key, self.numbers[part])

        concurrently(threads, choose, range(0, self.numbers.size, size))
        return snapped(composition.grid, thetas)

    def _each(self, values: Floats, steps: Indices, work: Callable[[Indices, Sums | None], None]) -> None:
        count = self._count(values)
        rows = self.pipeline.rows_at_once(count)
        threads = worth(self.threads, steps.size * count, BATCH_VALUES)
        # In order of their thresholds, so that few are summed by two threads.
        order, size = np.argsort(steps, kind="stable"), even(steps.size, RUN * rows, threads)
        with tqdm(total=steps.size, unit=" repetitions", disable=not self.progress) as bar:

            def run(which: Indices) -> None:
                for slab, sums in self._slabs(values, steps, which, rows):
                    work(slab, sums)
                    bar.update(slab.size)

            concurrently(threads, run, np.array_split(order, -(-order.size // size)))

    def _slabs(
        self, values: Floats, steps: Indices, order: Indices, rows: int
    ) -> Iterator[tuple[Indices, Sums | None]]:
        """Slabs of some repetitions, and block sums: those of one threshold are summed once."""
        last: tuple[int, Indices] | None = None
        for i in range(0, order.size, rows):
            which = order[i : i + rows]
            if not self.pipeline.blocks:
                yield which, None
                continue
            distinct, places = np.unique(steps[which], return_inverse=True)
            sums = [last[1]] if last is not None and last[0] == distinct[0] else []
            if distinct.size > len(sums):
                new = distinct[len(sums) :]
                found = self.pipeline.sums(self._slab(values, new, new))
                assert isinstance(found, Sums)  # noqa: S101 - the values are finite
                sums.append(found.rows)
            joined = sums[0] if len(sums) == 1 else np.concatenate(sums)
            last = int(distinct[-1]), joined[-1:]
            yield which, Sums(joined, places)
