"""The three baselines of PHDStream's section 5.3: PrivTree run again and again, and PrivTree run once.

They follow a set of points as :class:`fastdp.PHDStream` does, for simulations beside it: they have no state files and
their noise is not bound to the input.  Readings: ``docs/explanation/papers.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from fractions import Fraction
from typing import Any

import numpy as np

from fastdp import Key, validation
from fastdp.counters import Counter, Simple
from fastdp.counters.counter import noise_scale
from fastdp.errors import MissingError
from fastdp.kinds import Floats, Integers
from fastdp.noise import sampler
from fastdp.noise.words import Purpose, StreamId
from fastdp.points import Domain, ReleasedTree, decomposition
from fastdp.points.decomposition import Tree
from fastdp.points.released_tree import PrivTreeParameters


class _Baseline(ABC):
    """PrivTree on what ``_follow`` chooses; half of epsilon is for the cells, half for their counts."""

    def __init__(
        self,
        domain: Domain,
        epsilon: float,
        *,
        max_depth: int = 20,
        fan_out: int = 2,
        threshold: float = 0.0,
        seed: int | str | None = None,
        key: Key | bytes | None = None,
    ) -> None:
        shape: Any = {"max_depth": max_depth, "fan_out": fan_out, "threshold": threshold}
        self._parameters = PrivTreeParameters(domain, epsilon, **shape)
        self._plan = self._parameters.plan
        self._root = decomposition.root_only(self._plan)
        self._key, self._tree, self.n_steps = Key.choose(seed, key), Tree(), 0

    @property
    def tree(self) -> ReleasedTree:
        """Cells and counts of the last release; StateError before the first."""
        if self.n_steps == 0:
            raise MissingError("there is no tree yet: expected a step first")
        return ReleasedTree(self._plan, self._tree)

    @property
    def total(self) -> float:
        """Estimated number of points; 0 before the first batch."""
        return float(self._tree.projected[0]) if self.n_steps else 0.0

    def advance(self, added: Floats | None, removed: Floats | None = None) -> None:
        """Consume one batch."""
        codes = self._parameters.codes(added, "added"), self._parameters.codes(removed, "removed")
        self._tree = self._follow(*codes, self._step_key("noise"))
        self.n_steps += 1

    def sample(self) -> Floats:
        """Synthetic points of the last step, the same at each call: float64[N, d]."""
        return self.tree.sample(int.from_bytes(self._step_key("synthetic points").reveal(), "big"))

    def _step_key(self, purpose: str) -> Key:
        return self._key.derive(purpose, self.n_steps)

    def _privtree(self, added: Integers, removed: Integers, key: Key) -> Tree:
        """PrivTree and counts, from nothing."""
        return decomposition.take_step(self._plan, self._root, added, removed, self.n_steps, key)[1].shown

    @abstractmethod
    def _follow(self, added: Integers, removed: Integers, key: Key) -> Tree:
        """The next release, from ascending codes."""


class OfflineOnStream(_Baseline):
    """Baseline 1: PrivTree and new counts at each step on all points present.  NOT private at epsilon.

    Parameters as for :class:`fastdp.PHDStream`.

    Notes
    -----
    Every step costs epsilon again for every point that has come or gone so far.
    """

    _present: Integers = np.empty(0, np.int64)

    def _follow(self, added: Integers, removed: Integers, key: Key) -> Tree:
        present = np.sort(np.concatenate([self._present, added]))
        # The k-th of equal removals takes the k-th of equal points.
        number = np.arange(removed.size) - np.searchsorted(removed, removed)
        self._present = np.delete(present, np.searchsorted(present, removed) + number)
        return self._privtree(self._present, removed[:0], key)


class OfflineOnBatch(_Baseline):
    """Baseline 2: PrivTree and counts on each batch alone, scaled up to the number of points present.

    Parameters as for :class:`fastdp.PHDStream`.

    Notes
    -----
    Private at epsilon: each event is in one batch.  The number of points present, ``|f(t)|``, is treated as public,
    as the paper does.  A batch whose noisy net count is not positive releases nothing (spread evenly, errors on the
    circles with deletion are 12 to 16 % above the published code's instead of 1 to 3 %).  Cells are chosen by the
    batch's additions; with the net counts that the paper seems to use, scores may rise along a path and the proof
    fails.
    """

    _size = 0

    def _follow(self, added: Integers, removed: Integers, key: Key) -> Tree:
        tree = self._privtree(added, removed, key)
        self._size += added.size - removed.size
        total = float(tree.projected[0])
        return tree._replace(projected=tree.projected * (max(self._size, 0) / total if total > 0.0 else 0.0))


class FixedTree(_Baseline):
    """Baseline 3: PrivTree on the first batch, then counters at its leaves for ever.

    Parameters
    ----------
    domain, epsilon, and others
        As for :class:`fastdp.PHDStream`.
    counter : Counter
        What counts at the leaves from the second batch on, with all of epsilon.

    Notes
    -----
    Private at epsilon: an event is in the first batch or in one leaf's counter.  From the second batch on points in
    cells without any of the domain, on its very border, are not counted.
    """

    def __init__(self, domain: Domain, epsilon: float, counter: Counter | None = None, **others: Any) -> None:
        super().__init__(domain, epsilon, **others)
        self._counter = Simple() if counter is None else counter
        validation.part("counter", self._counter, Counter, "fastdp.counters")
        self._noise = sampler.laplace_distribution(noise_scale(self._counter, Fraction(self._parameters.epsilon)))

    def _follow(self, added: Integers, removed: Integers, key: Key) -> Tree:
        tree, plan = self._tree, self._plan
        if self.n_steps == 0:
            tree = self._privtree(added, removed, key)
            self._rows: Integers = np.zeros((tree.leaves.size, self._counter.width), np.int64)
            return tree
        widths = np.array([plan.fan_out**k for k in range(plan.max_depth, -1, -1)], np.int64)[tree.depth[tree.leaves]]
        begins = tree.code[tree.leaves] * widths
        net = sum(
            sign * (np.searchsorted(codes, begins + widths) - np.searchsorted(codes, begins))
            for sign, codes in ((1, added), (-1, removed))
        )
        noise = sampler.draws(tree.leaves.size, self._noise, key, StreamId(Purpose.CELL, number=self.n_steps))
        increments = net + self._counter.step(self._rows, noise)
        following = tree._replace(**{name: getattr(tree, name).copy() for name in ("released", "held", "projected")})
        decomposition.add_increments(plan.fan_out, following, increments)
        return following
