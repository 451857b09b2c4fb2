"""The proof of noise bound in bulk (``docs/noise.md``, section 2), on blocks that are small enough to try all."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

#: p has so many bits, and two questions of an index: the sums 0 and 1.
BITS, INDICES = 3, 3
QUESTIONS = list(itertools.product(range(INDICES), (0, 1)))
#: Every function from the questions about sums to numbers of three bits: [function, question].
FUNCTIONS = np.array(list(itertools.product(range(2**BITS), repeat=len(QUESTIONS))), np.uint8)
#: Every function from numbers of three bits to words of one bit: [function, number].
WORDS = np.array(list(itertools.product((0, 1), repeat=2**BITS)), np.uint8)
#: A prefix: its sums, in order.
PREFIXES = [sums for length in range(1, INDICES + 1) for sums in itertools.product((0, 1), repeat=length)]


def numbers(sums: tuple[int, ...], functions: np.ndarray = FUNCTIONS, first: int = 0) -> np.ndarray:
    """The p of some sums under every function."""
    columns = [QUESTIONS.index((index, total)) for index, total in enumerate(sums, first)]
    return np.bitwise_xor.reduce(functions[:, columns], axis=1)


@pytest.mark.parametrize("near", [1, 2, 4])
def test_two_prefixes_meet_as_often_as_the_lemma_says(near: int) -> None:
    """Of any lengths and any two runs, also a later sum of one and an earlier one of the other."""
    for one, other in itertools.combinations(PREFIXES, 2):
        met = (numbers(one) ^ numbers(other)) < near
        assert met.mean() == near / 2**BITS


def test_two_cells_meet_as_often_as_the_lemma_says() -> None:
    """A vector of two sums in either of two windows, of either of two keys whose names are answers too."""
    functions = np.random.default_rng(1).integers(0, 2**BITS, (200_000, 2, 2, 2))
    names = np.random.default_rng(2).integers(0, 2**BITS, (200_000, 2))
    cells = list(itertools.product((0, 1), repeat=4))

    def number(key: int, window: int, first: int, second: int) -> np.ndarray:
        return names[:, key] ^ functions[:, window, 0, first] ^ functions[:, window, 1, second]

    for one, other in itertools.combinations(cells, 2):
        met = number(*one) == number(*other)
        # Seven deviations of 200,000 functions.
        assert abs(met.mean() - 1 / 8) < 7 * (7 / 64 / 200_000) ** 0.5


#: What a run sums next, given the words before: an adversary who looks at all outputs so far.
Run = Callable[[list[np.ndarray]], np.ndarray]


def distance(second: Run, third: Run) -> tuple[float, int]:
    """How far the words of two runs of two sums are from independent ones, and how many prefixes there are.

    The first sums are 0 and 1; the second ones follow from the words seen, in order: run by run.
    """
    words: list[np.ndarray] = []
    functions, tables = (each.reshape(-1) for each in np.meshgrid(np.arange(2**12), np.arange(len(WORDS))))
    answers = np.array(list(itertools.product(range(2**BITS), repeat=4)), np.uint8)[functions]
    for first, choose in ((0, second), (1, third)):
        p = answers[:, first]
        words.append(WORDS[tables, p])
        p = p ^ answers[np.arange(p.size), 2 + choose(words)]
        words.append(WORDS[tables, p])
    code = sum(word.astype(np.int64) << i for i, word in enumerate(words))
    distribution = np.bincount(code, minlength=16) / code.size
    return float(np.abs(distribution - 1 / 16).sum() / 2), 4


RUNS: dict[str, tuple[Run, Run]] = {
    "altered replay": (lambda seen: np.zeros_like(seen[0]), lambda seen: np.zeros_like(seen[0])),
    "the first word": (lambda seen: seen[0], lambda seen: seen[0]),
    "all words": (lambda seen: 1 - seen[0], lambda seen: seen[0] ^ seen[1] ^ seen[2]),
}


@pytest.mark.parametrize("runs", RUNS.values(), ids=RUNS)
def test_the_joint_law_of_two_runs_is_within_the_bound(runs: tuple[Run, Run]) -> None:
    """All 2^20 functions: of four questions about sums, two of each index, and of all words."""
    found, prefixes = distance(*runs)
    bound = prefixes * (prefixes - 1) / 2 / 2**BITS
    assert 0.0 < found <= bound
    # So rough a bound: the distribution itself is nearer.
    assert found < 0.25
