"""Releases of tables in which every noisy number is a chosen one, and what the noise had to hide for that.

All noisy numbers of a table come from a few draws: noise on integers, and noisy scores of a number of rows.
:func:`forced` replaces them, and nothing else, so that two tables take the same way through the code and release the
same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

from fastdp.noise import bound_noise
from fastdp.noise.sampler import Distribution, LaplaceDistribution
from fastdp.tables import choices, release
from fastdp.tables.columns import KeyRow
from fastdp.tables.columns import Keys as KeySet
from fastdp.tables.released import Released


@dataclass(frozen=True)
class Script:
    """The noisy numbers of a run.

    Attributes
    ----------
    seed : int
        Of the noisy integers: of all sizes, and below 0 too.
    clip : float
        The share of candidates, of numbers of rows, below the one that is chosen.
    keys : tuple of tuples
        Private keys that are released.
    """

    seed: int = 0
    clip: float = 0.0
    keys: tuple[KeyRow, ...] = ()

    def numbers(self, draw: int, size: int) -> np.ndarray:
        """The noisy integers of a draw."""
        generator = np.random.default_rng([self.seed, draw])
        return np.rint(generator.choice([-1, 1], size) * np.exp(generator.uniform(0.0, 12.0, size))).astype(np.int64)


class Integers(NamedTuple):
    """Exact integers, what was released of them, and the distribution of the noise."""

    exact: np.ndarray
    released: np.ndarray
    distribution: Distribution


class Choice(NamedTuple):
    """Exact scores, the distribution of the noise of each, and the candidate that won."""

    scores: np.ndarray
    distribution: LaplaceDistribution
    winner: int


class Keys(NamedTuple):
    """Rows or weights of each candidate, the noise of each, the threshold, and the keys that passed it.

    ``published``: the noisy counts of those that passed are released too.
    """

    counts: dict[KeyRow, int]
    distribution: Distribution
    threshold: int
    passed: tuple[KeyRow, ...]
    published: bool = False


class _Noise:
    """In the place of the noise of scores: the choice's scores are what is taken off it, its winner the script's."""

    def __init__(self, size: int, choose: Callable[[np.ndarray], int]) -> None:
        self._scores, self._choose = np.zeros(size, np.int64), choose

    def __getitem__(self, _: int) -> _Noise:
        return self

    def __sub__(self, other: np.ndarray) -> _Noise:
        self._scores = self._scores - other
        return self

    def argmax(self, **_: Any) -> int:
        return self._choose(self._scores)


def rows_of(keys: KeySet) -> list[KeyRow]:
    """Keys as tuples of their entries."""
    return list(zip(*keys.columns().values(), strict=True)) if keys.size else []


#: In the order in which they were drawn.
Hidden = list[Integers | Choice | Keys]


def without_replaced(hidden: Hidden, released: Released) -> Hidden:
    """Released draws: counts that chose the keys are published in place of the cells' own.

    The draw for the cells' counts never leaves, so it is no release: the output is a function of the other draws, and
    this one is independent of them.  In its place the noisy counts of the keys that passed are released.
    """
    if released.selection is None:
        return hidden
    rows = [row for measured in released.measured for row in measured.steps]
    before, cells = hidden[: -len(rows)], hidden[-len(rows) :]
    left = [
        draw
        for draw, row in zip(cells, rows, strict=True)
        if isinstance(draw, Integers) and np.array_equal(draw.released.reshape(-1), row.reshape(-1))
    ]
    assert len(left) == len(rows) - 1
    return [*(one._replace(published=True) if isinstance(one, Keys) else one for one in before), *left]


@contextmanager
def forced(script: Script) -> Iterator[Hidden]:
    """While it lasts, tables release the script's numbers; gives what they hid."""
    hidden: Hidden = []
    candidates: list[KeyRow] | None = None
    drawn = 0
    real_keys = release.choose_keys

    def draw(exact: np.ndarray, distribution: Distribution, *_: Any) -> np.ndarray:
        nonlocal drawn
        if candidates is not None:
            hidden.append(Keys(dict(zip(candidates, exact.tolist(), strict=True)), distribution, 0, ()))
            # Keys that are released just pass, the others just fail.
            return np.array([0 if row in script.keys else -1 for row in candidates], np.int64) - exact
        released = script.numbers(drawn, exact.size)
        hidden.append(Integers(exact.copy(), released, distribution))
        drawn += 1
        return released - exact

    def draw_cell_noise(sums: np.ndarray, distributions: Sequence[Distribution], *_: Any) -> np.ndarray:
        each = [
            draw(exact.reshape(-1), distribution).reshape(exact.shape)
            for exact, distribution in zip(sums, distributions, strict=True)
        ]
        return np.stack(each)

    def choose_keys(exact: np.ndarray, keys: KeySet, rule: Any, key: Any) -> tuple[np.ndarray, np.ndarray]:
        nonlocal candidates, drawn
        candidates = rows_of(keys)
        _, passed = real_keys(exact, keys, rule._replace(threshold=0), key)
        candidates = None
        last = hidden[-1]
        assert isinstance(last, Keys)
        counts = {row: count for row, count in last.counts.items() if count}
        names = tuple(rows_of(keys.select(passed)[0]))
        hidden[-1] = last._replace(counts=counts, threshold=rule.threshold, passed=names)
        # Counts that are published are those of the script.
        numbers = script.numbers(drawn, len(script.keys))
        drawn += 1
        place = {row: i for i, row in enumerate(script.keys)}
        return np.array([numbers[place[row]] if row in place else 0 for row in rows_of(keys)], np.int64), passed

    def chosen(exact: np.ndarray, distribution: LaplaceDistribution) -> int:
        winner = min(int(script.clip * exact.size), exact.size - 1)
        hidden.append(Choice(exact, distribution, winner))
        return winner

    def noise_of_rows(distribution: LaplaceDistribution, _: int, size: int, *__: Any) -> _Noise:
        return _Noise(size, partial(chosen, distribution=distribution))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bound_noise.PrefixNoise, "draw", lambda _, *given: draw(*given))
        patch.setattr(bound_noise, "draw_cell_noise", draw_cell_noise)
        patch.setattr(release, "choose_keys", choose_keys)
        patch.setattr(choices, "draw_noise", noise_of_rows)
        yield hidden
