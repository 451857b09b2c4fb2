"""The key of one step, and the chain behind it (docs/noise.md, section 1)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from fastdp.noise import sampler
from fastdp.noise.chain_keys import StepChain, step_key
from fastdp.state.codec import restore
from tests.noise_values import bound_key
from tests.state.saved_objects import CASES

KEY = bound_key(1)
CHAIN = "ab" * 32
INPUTS = np.array([1, 2], np.int64), np.array([3], np.int64)


class Kept(NamedTuple):
    chain: StepChain


def words(chain: str = CHAIN, step: int = 7, *inputs: np.ndarray) -> tuple[str, str]:
    own, following = step_key(KEY, chain, step, *(inputs or INPUTS))
    return own.reveal().hex(), following


def test_the_noise_key_and_the_next_chain_are_two() -> None:
    """Who learnt the one would have the other."""
    own, following = words()
    assert own != following
    assert len(own) == len(following) == 64


def test_both_depend_on_all_that_came_before() -> None:
    first, second = INPUTS
    others = [
        words("cd" * 32),
        words(CHAIN, 8),
        words(CHAIN, 7, first[::-1].copy(), second),
        words(CHAIN, 7, first, second + 1),
        words(CHAIN, 7, second, first),
        words(CHAIN, 7, np.array([1], np.int64), np.array([2, 3], np.int64)),
        words(CHAIN, 7, np.concatenate([first, second])),
    ]
    for own, following in others:
        assert own != words()[0]
        assert following != words()[1]
    assert len(set(others)) == len(others)
    assert words() == words()


@pytest.mark.parametrize("chain", ["ab", "ab" * 31, "ab" * 33, "x" * 64])
def test_a_chain_has_32_bytes_or_none(chain: str) -> None:
    with pytest.raises(ValueError, match=r"length|non-hexadecimal"):
        restore(Kept, {"chain": chain})
    assert [restore(Kept, {"chain": kept}).chain for kept in ("", CHAIN)] == ["", CHAIN]


@pytest.mark.parametrize("name", ["phdstream", "adaptive_phdstream"])
def test_noise_of_points_is_bound_to_all_batches_so_far(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal batches have equal noise; one point elsewhere changes the noise of its step and of all that follow."""
    drawn: list[bytes] = []
    real = sampler.fill

    def fill(out, distribution, key, stream, start=0) -> None:
        drawn.append(key.reveal())
        real(out, distribution, key, stream, start)

    monkeypatch.setattr(sampler, "fill", fill)

    def keys(batches: list[np.ndarray]) -> list[set[bytes]]:
        publisher, found = CASES[name].make(), []
        for batch in batches:
            drawn.clear()
            publisher.advance(batch)
            found.append(set(drawn))
        return found

    points = np.random.default_rng(1).random((4, 50, 2))
    moved = points.copy()
    moved[1, 7] = 1.0 - moved[1, 7]
    first, again, other = keys(list(points)), keys(list(points)), keys(list(moved))
    assert first == again
    # Not all steps draw where the time between releases adapts.
    assert first[0]
    assert any(first[1:])
    assert first[0] == other[0]
    for one, two in zip(first[1:], other[1:], strict=True):
        assert not one & two
