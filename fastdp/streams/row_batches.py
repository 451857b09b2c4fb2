"""Many streams a slab at a time: which go together, who works on them, and their thresholds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import Lock, Thread
from typing import TypeVar

import numpy as np

from fastdp.data.kinds import Floats, Indices
from fastdp.integer_grid import Grid
from fastdp.noise.key import Key
from fastdp.thresholds import Chooser
from fastdp.thresholds.base import RowChooser, held_out

T = TypeVar("T")


def slabs(order: Indices, counts: Indices, rows_at_once: Callable[[int], int]) -> Iterator[Indices]:
    """Streams, given from the shortest to the longest, in groups that are worked on together."""
    begin = 0
    while begin < order.size:
        end = min(order.size, begin + rows_at_once(int(counts[order[begin]])))
        end = min(end, begin + rows_at_once(int(counts[order[end - 1]])))
        yield order[begin:end]
        begin = end


def worth(threads: int, amount: int, slab: int) -> int:
    """How many threads gain by so much work: one for each slab's worth of it, at most so many."""
    return max(1, min(threads, -(-amount // slab)))


def even(count: int, most: int, threads: int) -> int:
    """How many of ``count`` make a slab, at most ``most``, so that every thread has as many slabs."""
    turns = max(1, -(-count // (most * threads)))
    return max(1, -(-count // (turns * threads)))


def concurrently(threads: int, work: Callable[[T], object], slabs: Iterable[T]) -> None:
    """Work on every slab; the first error, in the order of the slabs, is raised once no thread works any more.

    The calling thread is one of them: short work would wait for the others to begin.
    """
    if threads == 1:
        for slab in slabs:
            work(slab)
        return
    source, turn = enumerate(slabs), Lock()
    errors: list[tuple[int, BaseException]] = []

    def take() -> None:
        number = -1
        try:
            # Slabs may bring memory along, so none is made before its turn.
            while not errors:
                with turn:
                    number, slab = next(source, (number, None))
                if slab is None:
                    return
                work(slab)
        except BaseException as error:
            errors.append((number, error))

    others = [Thread(target=take) for _ in range(threads - 1)]
    try:
        for each in others:
            each.start()
        take()
    except BaseException as error:
        # A thread that cannot start, or an interrupt: the others begin nothing more.
        errors.append((-1, error))
    for each in others:
        while each.is_alive():
            try:
                each.join()
            except BaseException as error:
                errors.append((-1, error))
    if errors:
        raise min(errors, key=lambda found: found[0])[1]


def choose_thetas(
    chooser: Chooser, holdout: int, values: Floats, starts: Indices, key: Key, streams: Indices
) -> Floats:
    """Theta of each stream, whose hold-out begins at ``starts[i]``; the chooser has seen nothing, and stays so."""
    if isinstance(chooser, RowChooser):
        return chooser.choose_rows(chooser.histograms(values, starts), key, streams)
    thetas = np.empty(streams.size)
    for row, (start, number) in enumerate(zip(starts.tolist(), streams.tolist(), strict=True)):
        one = chooser.copy()
        one.observe(values[start : start + holdout])
        thetas[row] = one.choose(held_out(key, one.pack()).of_stream(number))
    return thetas


def snapped(grid: Grid, thetas: Floats) -> Indices:
    """Thresholds in grid steps; few are distinct."""
    distinct, place = np.unique(thetas, return_inverse=True)
    steps: Indices = np.array([grid.snap(theta) for theta in distinct.tolist()], np.int64)
    return steps[place]


def borders_of(counts: Indices) -> Indices:
    """Where each of some runs begins, and the last ends, if one follows the other: int64[n + 1]."""
    borders: Indices = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=borders[1:])
    return borders
