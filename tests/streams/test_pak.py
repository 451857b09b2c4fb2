"""PAK whole: against the binary mechanism of the paper, any chunking, guarantee, levels, bad input."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError, StateError
from fastdp.noise import sampler
from fastdp.noise.key import Key
from fastdp.noise.words import Purpose, StreamId
from fastdp.thresholds import Fixed, NoisyMax
from tests.noise_values import bound_key, tree_key
from tests.oracles import binary_counter as oracle


def stream(n: int) -> np.ndarray:
    return np.floor(np.random.default_rng(101).gamma(2.0, 6.0, n) * 4) / 4


def make(**options) -> fastdp.PAK:
    settings = {"epsilon": 1.0, "delta": 1e-9, "bound": 100, "length": 700, "holdout": 200, "seed": 6}
    return fastdp.PAK(**{**settings, **options})


def node_noise(key: Key, levels: int, theta_steps: int, epsilon: float, length: int):
    """Of the tree behind the hold-out, from the publisher's key."""
    distribution = sampler.laplace_distribution(Fraction(theta_steps * levels) / Fraction(epsilon))
    draws = []
    for height in range(levels):
        draws.append(np.empty((length >> height) + 1, np.int64))
        sampler.fill(draws[-1], distribution, tree_key(key, theta_steps), StreamId(Purpose.COUNTER, height))
    return lambda height, k: int(draws[height][k])


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7, 8, 9, 63, 64, 65, 500])
def test_the_tree_equals_the_papers(n: int) -> None:
    values = stream(n)
    publisher = make(threshold=Fixed(20.0), length=n)
    out = publisher.publish(values)
    per_unit = round(1 / publisher.resolution)
    steps = (np.minimum(values, 20.0) * per_unit).astype(np.int64).tolist()
    levels = n.bit_length()
    expected = oracle.running_sums(steps, node_noise(publisher._key, levels, 20 * per_unit, 1.0, n))
    assert out.tolist() == [e * publisher.resolution for e in expected]
    assert publisher.running_sum == out[-1]


def test_a_stream_has_no_value_more_than_its_length() -> None:
    publisher = make(threshold=Fixed(20.0), length=5)
    assert publisher.publish(stream(3)).size == 3
    with pytest.raises(DataError, match="chunk has 3 values: expected at most 2, the stream has 5"):
        publisher.publish(stream(3))
    assert publisher.publish(stream(2)).size == 2
    with pytest.raises(DataError, match="expected at most 0"):
        publisher.publish([1.0])


def test_levels_for_a_power_of_two() -> None:
    """A value enters floor(log2 N) + 1 nodes; with log2 N the first of 8 values would cost 4/3 epsilon."""
    for n, levels in ((7, 3), (8, 4), (9, 4), (2**20, 21)):
        text = "\n".join(make(threshold=Fixed(20.0), length=n).guarantee.derivation)
        assert f"at most {levels} nodes" in text
        entered = max(sum(1 for j in range(n.bit_length()) if (i | ((1 << j) - 1)) + 1 <= n) for i in (0,))
        assert entered == levels


def test_the_guarantee_adds_up() -> None:
    guarantee = make(seed=None).guarantee
    assert (guarantee.epsilon, guarantee.delta, guarantee.arithmetic) == (1.0, 1e-9, "real")
    exact = make(seed=None, threshold=NoisyMax()).guarantee
    assert (exact.epsilon, exact.delta, exact.arithmetic) == (1.0, 0.0, "exact")
    assert make(seed=None, threshold=Fixed(1.0)).guarantee.epsilon == 1.0
    assert make().guarantee.simulated
    for epsilon in (0.1, 0.3, 0.7, 1.1):
        for share in (0.1, 0.35, 0.85, 0.9):
            assert make(epsilon=epsilon, share=share, threshold=NoisyMax()).guarantee.epsilon <= epsilon


def test_a_value_opens_streams_for_its_own_nodes_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most heights have no new node; a cipher for each of them made one call 20 times as long."""
    publisher = fastdp.PAK(1.0, 1e-9, 100.0, 2**33, threshold=Fixed(100.0), seed=1)
    drawn: list[int] = []
    of_nodes = sampler.node_words

    def watched(*names: Any) -> Any:
        words, offsets = of_nodes(*names)
        drawn.append(words.size)
        return words, offsets

    monkeypatch.setattr(sampler, "node_words", watched)
    for position in range(8):
        publisher.publish([1.0])
        # The node of height h ends with value position + 1 where 2^h divides that; two words a block.
        assert drawn.pop() == 2 * sum((position + 1) % 2**h == 0 for h in range(34))


def test_the_holdout_is_forgotten_and_delta_is_the_users() -> None:
    publisher = make(threshold=NoisyMax())
    publisher.publish(stream(300))
    assert publisher._state.lag.size == 0
    with pytest.raises(ParameterError, match=r"delta = 1e-12: expected at least"):
        make(delta=1e-12, threshold=fastdp.thresholds.SmoothQuantile())
    with pytest.raises(ParameterError, match=r"delta = 0.0.*cauchy"):
        make(delta=0.0)
    assert make(delta=0.0, threshold=fastdp.thresholds.SmoothQuantile(noise="cauchy")).guarantee.delta == 0.0


def test_the_law_holds_at_the_extremes() -> None:
    """Any epsilon, down to a grid of a single step: integer noise of just the scale that epsilon asks for."""
    for resolution, epsilon in itertools.product((None, 0.25, 60.0, 100.0), (1e-3, 0.1, 1.0, 30.0, 1e3, 1e6)):
        values = stream(100)
        publisher = make(threshold=Fixed(100.0), length=100, epsilon=epsilon, resolution=resolution)
        out = publisher.publish(values)
        step = publisher.resolution
        theta_steps = round(publisher.threshold / step)
        assert theta_steps == max(1, int(100 / step))
        steps = np.minimum(np.rint(values / step), theta_steps).astype(np.int64).tolist()
        expected = oracle.running_sums(steps, node_noise(publisher._key, 7, theta_steps, epsilon, 100))
        assert out.tolist() == [e * step for e in expected]
        # Every node's noise, exactly: seven levels share epsilon, and one value moves a node by at most theta.
        distribution = publisher._state.tree.distribution
        assert 7 * Fraction(theta_steps) / distribution.scale == Fraction(epsilon)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 1e14, "resolution": 100.0}, "noise of scale"),
        ({"epsilon": 1e14, "threshold": Fixed(100.0), "resolution": 100.0}, "noise of scale"),
        ({"epsilon": 1e300}, r"expected a smaller epsilon.*the rest of epsilon = 1e\+300"),
        ({"epsilon": 1e-16}, "epsilon = .*expected a larger epsilon"),
        ({"epsilon": 1e-6, "resolution": 1e-8}, "resolution = 1e-08: noise of scale"),
        ({"resolution": 101.0}, "resolution = 101.0: expected at most the bound"),
        ({"delta": 0.02}, "kappa = .* is not positive"),
    ],
)
def test_what_no_noise_can_do_is_refused_at_once(options: dict, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make(**options)


def test_release_answers_ranges_from_running_sums() -> None:
    values = np.random.default_rng(4).gamma(2.0, 8.0, 3000)
    options = {"epsilon": 1.0, "delta": 1e-6, "bound": 200.0, "length": 3000, "holdout": 1000, "seed": 3}
    sums = fastdp.PAK(**options).publish(values)
    release = fastdp.PAK(**options).release(values)
    assert release.offset == 1000
    assert len(release) == 2000
    starts, stops = np.array([0, 5, 100, 1999]), np.array([2000, 6, 1900, 1999])
    assert release.sum(starts, stops) == pytest.approx(sums[stops] - sums[starts], abs=1e-6)
    plain = fastdp.PAK(**{**options, "threshold": fastdp.thresholds.Fixed(50.0)}).release(values)
    assert plain.offset == 0
    assert plain.sum(0, 3000)[0] == pytest.approx(values.clip(0, 50).sum(), rel=0.2)
    with pytest.raises(StateError, match="average=None"):
        fastdp.PAK(**options, average="all").release(values)
    with pytest.raises(DataError, match="more than the hold-out"):
        fastdp.PAK(**options).release(values[:1000])
    publisher = fastdp.PAK(**options)
    publisher.publish(values[:5])
    with pytest.raises(StateError, match="has seen 5"):
        publisher.release(values)


def test_a_choice_and_the_sum_of_its_holdout_have_noise_of_that_holdout() -> None:
    """Another hold-out under the same key meets independent noise, even where the rule's summary is the same."""
    values = stream(200)
    drawn: list[bytes] = []
    for lag in (values, values[::-1].copy(), values):
        publisher = make(threshold=NoisyMax(), epsilon=0.05)
        with pytest.MonkeyPatch.context() as patch:
            real = sampler.fill

            def fill(out, distribution, key, stream, start=0, real=real) -> None:
                if stream.purpose in (Purpose.THRESHOLD, Purpose.LAG):
                    drawn.append(key.reveal())
                real(out, distribution, key, stream, start)

            patch.setattr(sampler, "fill", fill)
            patch.setattr(sampler, "fill_pieces", sampler.fill_one_by_one)
            publisher.publish(lag)
    choices, sums = drawn[::2], drawn[1::2]
    for keys in (choices, sums):
        assert keys[0] == keys[2] != keys[1]


def test_the_grid_has_room_for_the_running_sums_of_a_longer_holdout() -> None:
    """Their tree has more levels than that of the other values."""
    with pytest.raises(ParameterError, match="no grid fits"):
        fastdp.PAK(epsilon=2.0**-47, delta=1e-6, bound=10.0, length=1000, holdout=990, lag_sums=True)


@pytest.mark.statistical
def test_the_sum_of_the_holdout_comes_first() -> None:
    values = stream(700)
    errors = []
    for seed in range(300):
        publisher = make(threshold=NoisyMax(), seed=seed, share=0.8)
        assert publisher.publish(values[:199]).size == 0
        assert publisher.threshold is None
        first = publisher.publish(values[199:200])
        assert first.size == 1
        errors.append((first[0] - np.minimum(values[:200], publisher.threshold).sum()) / publisher.threshold)
    assert np.std(errors) == pytest.approx(np.sqrt(2) / 0.2, rel=0.25)


def test_clipping_at_r_tau() -> None:
    plain, wide = (
        make(threshold=NoisyMax(), tail_factor=factor, seed=None, key=bound_key(6)) for factor in (1.0, 1.5)
    )
    for publisher in (plain, wide):
        publisher.publish(stream(700))
    assert wide.threshold == pytest.approx(1.5 * plain.threshold)
    capped = make(threshold=NoisyMax(), tail_factor=100.0)
    capped.publish(stream(700))
    assert capped.threshold == 100
