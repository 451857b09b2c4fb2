"""Runs of mechanisms, many in one call or with a new object for each, and the outputs of a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

import fastdp
from fastdp import Guarantee, Key
from fastdp.errors import AccuracyWarning
from fastdp.kinds import Array, Floats, Integers

#: A new object, with the key of the run.
Fresh = Callable[..., Any]
See = Callable[[Fresh, Any], Array]
#: Points added and removed, batch by batch.
Batches = list[tuple[Sequence[float], Sequence[float]]]

#: The place of the events in which streams of points differ.
TARGET = 0.1
#: Whether tables can be audited: the extra ``tables``.
TABLES_INSTALLED = all(find_spec(name) is not None for name in ("pyarrow", "narwhals"))
#: First day of tables, and the day after the last one.
START, STOP = "2024-05-01", "2024-05-03"


@dataclass(frozen=True)
class ManyRuns:
    """A mechanism that makes many runs in one call of ``draw(data, trials, key)``."""

    guarantee: Guarantee
    draw: Callable[[Any, int, Key], Array]

    def draw_trials(self, data: Any, trials: int, key: Key) -> Array:
        """Rows of outputs."""
        return self.draw(data, trials, key)


@dataclass(frozen=True)
class OneRun:
    """A mechanism that makes one run a call: ``see(fresh, data)``; ``fresh()`` is a new object with the run's key."""

    guarantee: Guarantee
    make: Callable[..., Any]
    see: See

    def __call__(self, data: Any, seed: int) -> Array:
        """Outputs of the run with this seed."""
        return self.see(partial(self.make, key=Key.from_seed(seed)), data)


def one_run(make: Callable[..., Any], see: See, factor: float = 1.0) -> OneRun:
    """An object's runs under its own guarantee, whose epsilon is multiplied by ``factor``."""
    whole: Guarantee = make(key=Key.from_seed(0)).guarantee
    return OneRun(replace(whole, epsilon=factor * whole.epsilon), make, see)


@dataclass(frozen=True)
class Case:
    """One audit.

    Attributes
    ----------
    name : str
        For the command line.
    mechanism, x, x_adjacent : any
        As :func:`fastdp.audit` takes them.
    trials : int
        Usual number.
    events : tuple of callables
        Statistics beyond the automatic ones: known likelihood ratios.
    """

    name: str
    mechanism: Any
    x: Any
    x_adjacent: Any
    trials: int
    events: tuple[Callable[[Floats], Floats], ...] = ()


# Streams of values.


def pieces(fresh: Fresh, data: Sequence[Sequence[float]]) -> Floats:
    """Theta and published values, after each piece of the stream."""
    publisher = fresh()
    outputs = [(publisher.publish(piece), publisher.threshold) for piece in data]
    return np.concatenate([[theta, *published] for published, theta in outputs])


def revised(fresh: Fresh, data: Sequence[float]) -> Floats:
    """Published values, and the stream revised by all released sums."""
    release = fresh().release(data)
    return np.concatenate([release.values, release.revised.values])


def revised_sums(fresh: Fresh, data: Sequence[float]) -> Floats:
    """Published values, and sums of all prefixes estimated from all released sums."""
    release = fresh().release(data)
    return np.concatenate([release.values, release.revised.sum(0, np.arange(1, len(release) + 1))])


def replay(fresh: Fresh, data: tuple[Sequence[float], Sequence[float]]) -> Floats:
    """Values that a stream and its altered copy publish under one key."""
    return np.concatenate([fresh().publish(stream) for stream in data])


def risen(grown: int) -> See:
    """The new theta, and the released sum of the block with the first value after the growth."""

    def see(fresh: Fresh, data: Sequence[float]) -> Floats:
        publisher = fresh()
        release = publisher.release(data)
        block = np.searchsorted(release.revision.edges, grown - publisher.holdout, side="right") - 1
        return np.array([release.threshold, release.revision.totals[block]])

    return see


def collected(fresh: Fresh, data: Sequence[float]) -> Floats:
    """The distribution that ToPL's server estimates before the threshold (its mean), theta, and published values."""
    simulation = fresh()
    published = simulation.publish(data)
    weights = simulation.server.distribution.frequencies
    return np.concatenate([[weights @ np.arange(weights.size), simulation.threshold], published])


def open_sums(columns: Sequence[int], before: Sequence[float] = (0.0,)) -> Callable[[Floats], Floats]:
    """Log-likelihood ratio, times the scale, of running sums of PAK for a first value of 4 or 0.

    Node [1, 2^j] is released alone at time 2^j; a shift of Laplace noise has a clipped linear log-ratio.
    """
    return lambda outputs: np.clip(outputs[:, columns] - np.array(before), 0.0, 4.0).sum(axis=1)


# Counters and points.


def chosen_counts(fresh: Fresh, data: Sequence[int]) -> Integers:
    """Active counter at each time, and its sum."""
    counting = fresh()
    steps = [counting.step(value) for value in data]
    return np.array([number for one in steps for number in (one.counter, *one.counts.tolist())])


def trees(fresh: Fresh, data: Batches) -> Floats:
    """After each batch: number of leaves, depth and count of the leaf around :data:`TARGET`, and the total."""
    stream, seen = fresh(), list[float]()
    for batch in data:
        stream.advance(*(np.asarray(points, np.float64).reshape(-1, 1) for points in batch))
        tree = stream.tree
        leaf = int(np.flatnonzero((tree.lower[:, 0] <= TARGET) & (tree.upper[:, 0] > TARGET))[0])
        seen += [tree.n_leaves, tree.depths[leaf], tree.counts[leaf], tree.total]
    return np.array(seen, np.float64)


def repeated_counts(outputs: Floats) -> Floats:
    """Log-likelihood ratio of one point more in every count after the first, from the totals after each batch."""
    return np.asarray(np.clip(np.diff(outputs[:, 3::4], axis=1), 0.0, 1.0).sum(axis=1))


# Tables.


def windows_of(*, values: bool = True, who: bool = False) -> See:
    """All noisy sums of both days, in steps; rows are the day, the value and the person."""

    def see(fresh: Fresh, rows: Sequence[tuple[int, float, str]]) -> Floats:
        windows = fresh()
        days, given, persons = zip(*rows, strict=True)
        times = np.datetime64(START) + np.array(days)
        windows.add(times, given if values else None, persons=persons if who else None)
        steps = windows.advance(STOP).released.measured[0].steps
        return np.asarray(steps.ravel(), np.float64)

    return see


def keys_of_table(epsilon: float) -> OneRun:
    """Number of released keys, and the first day's count of the last one; rows are pairs of person and key."""
    time, unit = fastdp.Time("at", "1d", start=START, stop=STOP), fastdp.Person("who", per="1w")

    def counts(rows: Sequence[tuple[str, str]], key: Key) -> Any:
        import pyarrow

        persons, keys = zip(*rows, strict=True)
        table = pyarrow.table({"at": np.full(len(rows), START, "M8[s]"), "who": persons, "key": keys})
        with warnings.catch_warnings():
            # Most persons are cut, on purpose.
            warnings.simplefilter("ignore", AccuracyWarning)
            return fastdp.counts(table, time, by="key", keys="public", unit=unit, epsilon=epsilon, key=key)

    def see(fresh: Fresh, rows: Sequence[tuple[str, str]]) -> Floats:
        steps = counts(rows, fresh()).released.cells("count")
        return np.array([steps.shape[1], steps[0, -1]], np.float64)

    return OneRun(counts([("b", "x")], Key.from_seed(0)).guarantee, lambda key: key, see)
