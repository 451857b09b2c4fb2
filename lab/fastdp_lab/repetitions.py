"""Many repetitions of one release, for simulations: everything that is not noise is done once.

Repetition k has the noise of stream number k under the publisher's seed, so it can be made again on its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tqdm import tqdm

from fastdp import Release, StreamPublisher, validation
from fastdp.data.column import as_floats, as_whole
from fastdp.data.frames import StreamRows, Streams
from fastdp.errors import ParameterError
from fastdp.kinds import Floats
from fastdp.noise.key import MAX_STREAMS
from fastdp.streams.release_many import release_rows

#: Published values, a thread, of the repetitions that are held at once for queries (16 MiB).
VALUES = 2**21


@dataclass(frozen=True, eq=False)
class Repetitions:
    """Simulated releases of the same values.

    Attributes
    ----------
    thresholds : float64[repetitions]
        Theta of each.
    answers : float64[repetitions, q] or None
        Range sums, if queries were given.
    releases : Release or None
        The releases themselves, if no queries were given; its guarantee is that of one repetition.
    """

    thresholds: Floats
    answers: Floats | None
    releases: Release | None

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
    composition, key = publisher._machine.composition, publisher._key
    if not key.simulated:
        raise ParameterError("seed = None: expected a seed, each repetition of a real release costs epsilon again")
    if key.member:
        raise ParameterError(f"key = {key!r}: expected a seed, or a simulated key without a stream number")
    if composition.renewal is not None:
        raise ParameterError(f"renewal = {composition.renewal!r}: expected None where a release is repeated")
    begin = validation.integer("first", first, 0, MAX_STREAMS - 1)
    count = validation.integer("repetitions", repetitions, 1, MAX_STREAMS - begin)
    shown, threads = validation.flag("progress", progress), validation.threads(threads)
    column = as_floats(as_whole(values, publisher.n_seen, publisher.holdout))
    floats = as_floats(composition.finite(column, 0, "values"))

    own = key.again()

    def release(begun: int, size: int) -> Release:
        """Release of `size` repetitions after the first `begun`."""
        shares = StreamRows(floats, np.zeros(size, np.int64), np.full(size, floats.size))
        return release_rows(composition, own, Streams(shares), begin + begun + np.arange(size), threads)

    if queries is None:
        many = release(0, count)
        alone = f"one repetition alone: all {count} of the same values would lose {count} epsilon"
        guarantee = composition.guarantee(simulated=True)
        guarantee = replace(guarantee, derivation=(*guarantee.derivation, alone))
        return Repetitions(many.thresholds, None, replace(many, guarantee=guarantee))
    try:
        starts, stops = queries
    except (TypeError, ValueError):
        raise ParameterError(
            f"queries = {validation.shown(queries)}: expected (starts, stops), two columns of whole numbers"
        ) from None
    published = np.broadcast_to(0.0, floats.size - publisher.holdout)
    _, starts, stops = Release(published, 0, np.zeros(1), publisher.guarantee)._queries(starts, stops, None)
    thresholds, answers = np.empty(count), np.empty((count, starts.size))
    at_once = max(1, threads * VALUES // published.size)
    with tqdm(total=count, unit=" repetitions", disable=not shown) as bar:
        for begun in range(0, count, at_once):
            many = release(begun, min(at_once, count - begun))
            size, which = len(many), slice(begun, begun + len(many))
            whose = np.repeat(np.arange(size), starts.size)
            sums = many._sums(whose, np.tile(starts, size), np.tile(stops, size))
            thresholds[which], answers[which] = many.thresholds, sums.reshape(size, -1)
            bar.update(size)
    return Repetitions(thresholds, answers, None)
