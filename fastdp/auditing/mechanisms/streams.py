"""Whole streams through the publishers themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fastdp.guarantee import Guarantee
from fastdp.perturbers import Hierarchy
from fastdp.randomness.key import Key
from fastdp.releases.batch import ReleasedMany
from fastdp.systems.pak.publisher import PAK
from fastdp.systems.release_many import release_many
from fastdp.systems.stream.publisher import StreamPublisher
from fastdp.systems.topl.publisher import ToPL
from fastdp.thresholds import Fixed

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PublisherTrials:
    """One long stream through one ``StreamPublisher``, a piece of it a trial.

    Attributes
    ----------
    make : callable
        A fresh publisher with this key; trees of its noise must begin where pieces do, and nothing may be predicted
        from the piece before (no smoother).
    """

    make: Callable[[Key], StreamPublisher]

    @property
    def guarantee(self) -> Guarantee:
        """The publisher's."""
        return self.make(Key.from_seed(0)).guarantee

    def draw_trials(self, data: Sequence[float], trials_: int, key: Key) -> Floats:
        """Data: one piece."""
        return self.make(key).publish(np.tile(np.asarray(data, np.float64), trials_)).reshape(trials_, -1)


@dataclass(frozen=True)
class RepeatedTrials:
    """A whole stream a trial, by ``StreamPublisher.repeat``: theta, which is public, and what is published.

    Attributes
    ----------
    make : callable
        A fresh publisher with this key.
    """

    make: Callable[[Key], StreamPublisher]

    @property
    def guarantee(self) -> Guarantee:
        """The publisher's."""
        return self.make(Key.from_seed(0)).guarantee

    def draw_trials(self, data: Sequence[float], trials_: int, key: Key) -> Floats:
        """Data: the stream, the hold-out first."""
        done = self.make(key).repeat(np.asarray(data, np.float64), trials_)
        assert done.releases is not None  # noqa: S101 - no queries were given
        return np.column_stack([done.thresholds, done.releases.values.reshape(trials_, -1)])


@dataclass(frozen=True)
class StreamTrials:
    """A whole stream a trial, from a fresh publisher: after each piece theta, and what the piece published.

    Attributes
    ----------
    make : callable
        A fresh publisher with this key.
    """

    make: Callable[[Key], StreamPublisher | PAK | ToPL]

    @property
    def guarantee(self) -> Guarantee:
        """The publisher's."""
        return self.make(Key.from_seed(0)).guarantee

    def __call__(self, data: Sequence[Sequence[float]], seed: int) -> Floats:
        """Data: the stream in pieces; the first one is the hold-out, if there is any."""
        publisher = self.make(Key.from_seed(seed))
        outputs = []
        for piece in data:
            published = publisher.publish(piece)
            outputs += [np.asarray([publisher.threshold], np.float64), published]
        return np.concatenate(outputs)


@dataclass(frozen=True)
class RevisedTrials:
    """A whole stream a trial, released at once: what is published, and what all released sums say of it later.

    Attributes
    ----------
    make : callable
        A fresh publisher with this key.
    retrospective : bool
        Answers to all ranges that begin with the stream, by everything released; or else the revised stream.
    """

    make: Callable[[Key], StreamPublisher]
    retrospective: bool = False

    @property
    def guarantee(self) -> Guarantee:
        """The publisher's."""
        return self.make(Key.from_seed(0)).guarantee

    def __call__(self, data: Sequence[float], seed: int) -> Floats:
        """Data: the stream."""
        release = self.make(Key.from_seed(seed)).release(data)
        if self.retrospective:
            later = release.range_sum(0, np.arange(1, len(release) + 1), retrospective=True)
        else:
            later = release.revised
        return np.concatenate([release.values, later])


@dataclass(frozen=True)
class ReplayTrials:
    """A stream and its altered copy under one key a trial: what both publish.

    That they differ, and where first, is public: noise is the same up to there.

    Attributes
    ----------
    make : callable
        A fresh publisher with this key.
    noises : int
        In how many independent noises the value is published in which the inputs differ: one in the common prefix,
        two from the first difference on.
    """

    make: Callable[[Key], StreamPublisher]
    noises: int

    @property
    def guarantee(self) -> Guarantee:
        """The publisher's, for each noise."""
        once = self.make(Key.from_seed(0)).guarantee
        return replace(once, epsilon=self.noises * once.epsilon)

    def __call__(self, data: tuple[Sequence[float], Sequence[float]], seed: int) -> Floats:
        """Data: the stream, and the copy."""
        return np.concatenate([self.make(Key.from_seed(seed)).publish(stream) for stream in data])


@dataclass(frozen=True)
class ManyTrials:
    """Two short streams through ``release_many`` a trial, with a fresh key: what both publish."""

    epsilon: float

    def _released(self, data: Sequence[Sequence[float]], seed: int) -> ReleasedMany:
        rows = np.asarray(data, np.float64)
        threshold, perturber = Fixed(4.0), Hierarchy(2, prune=0)
        return release_many(
            rows,
            self.epsilon,
            4.0,
            threshold=threshold,
            perturber=perturber,
            smoother=None,
            resolution=1.0,
            seed=seed,
        )

    @property
    def guarantee(self) -> Guarantee:
        """Of both streams together."""
        return self._released([[0.0] * 4] * 2, 0).guarantee

    def __call__(self, data: Sequence[Sequence[float]], seed: int) -> Floats:
        """Data: the streams, equally long."""
        return self._released(data, seed).values
