"""Lengths that follow what was released: against the oracle, and functions of released sums alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdp_kernels.streams import adaptive_pass
from fastdp_kernels.streams import block_lengths as b
from tests.kernels.adaptive_runs import (
    THETA_STEPS,
    no_counts,
    public,
    revise,
    run_kernel,
    run_oracle,
    shape_of,
    start,
    sum_adaptive,
)
from tests.kernels.streams_for_adaptive import STREAMS, laplace, make_stream
from tests.oracles import adaptive

close = {"rtol": 1e-9, "atol": 1e-9}
#: Of the block left open.
LEFT_OPEN = ["exponent", "prediction", "extra"]


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(
    ("epsilon", "exponent", "limit", "spreads"),
    [(0.02, 0, 0, True), (0.5, 0, 0, True), (0.5, 5, 1024, True), (0.5, 9, 256, False), (20.0, 3, 256, False)],
)
def test_the_pass_equals_the_oracle(name: str, epsilon: float, exponent: int, limit: int, spreads: bool) -> None:
    check_pass(name, epsilon, exponent, limit, spreads)


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("focus", [(1, 1), (700, 700), (30, 9000)])
def test_the_pass_with_a_focus_equals_the_oracle(name: str, focus: tuple[int, int]) -> None:
    check_pass(name, 0.5, 4, 512, True, focus=focus)


def check_pass(
    name: str, epsilon: float, exponent: int, limit: int, spreads: bool, focus: tuple[int, int] | None = None
) -> None:
    p = public(epsilon=epsilon, limit=limit, spreads=spreads, focus=focus)
    n = 10_000
    steps, noise = make_stream(name, n, 3), laplace(n, THETA_STEPS / epsilon, 4)
    got = run_kernel(p, steps, noise, exponent, spikes=not spreads)
    expected = run_oracle(p, steps, noise, exponent)
    assert got.blocks["exponent"][:-1].tolist() == [block.exponent for block in expected.blocks]
    assert got.blocks["released"][:-1].tolist() == [block.total for block in expected.blocks]
    np.testing.assert_allclose(
        got.blocks["prediction"][:-1], [block.prediction for block in expected.blocks], **close
    )
    np.testing.assert_allclose(got.blocks["extra"][:-1], [block.extra for block in expected.blocks], **close)
    assert got.memory["exponent"][0] == expected.exponent
    assert got.memory["position"][0] == expected.position
    assert got.counters.tolist()[0][:2] == (n - expected.position, int(steps[expected.position :].sum()))
    signal = [expected.white, expected.drift, expected.level, expected.variance, expected.carry]
    np.testing.assert_allclose(
        [
            got.memory["white"][0],
            got.memory["drift"][0],
            got.memory["level"][0],
            got.memory["variance"][0],
            got.memory["carry"][0],
        ],
        signal,
        **close,
    )
    np.testing.assert_allclose(got.published, adaptive.published(expected, n, spikes=not spreads), **close)


def test_the_first_choice_is_the_oracles() -> None:
    for epsilon in (2.0**-10, 0.01, 0.05, 0.5, 5.0, 2.0**20):
        for max_range in (1, 2, 3, 4, 100, 2**14, 2**20, 2**40):
            p = public(epsilon=epsilon, max_range=max_range)
            for white, drift, seen in ((0.02, 0.02 / max_range, 0), (0.5, 0.0, 3), (0.0, 1e-6, 5), (0.0, 0.0, 2)):
                expected = adaptive.choose_exponent(white, drift, seen, p)
                assert b.choose_exponent(white, drift, seen, shape_of(p)[0]) == expected, (epsilon, max_range, seen)


@pytest.mark.parametrize("max_range", [1, 100, 2**16])
def test_the_first_choice_with_a_focus_is_the_oracles(max_range: int) -> None:
    for epsilon in (0.05, 5.0):
        for focus in ((1, max_range), (max_range, max_range)):
            p = public(epsilon=epsilon, max_range=max_range, focus=focus)
            for white, drift, seen in ((0.02, 0.02 / max_range, 0), (0.5, 0.0, 3)):
                expected = adaptive.choose_exponent(white, drift, seen, p)
                assert b.choose_exponent(white, drift, seen, shape_of(p)[0]) == expected, (epsilon, focus, seen)


@pytest.mark.parametrize("focus", [None, (1, 1), (1000, 1000), (1000, 100_000), (2**20, 2**20)])
def test_accounts_are_settled_as_the_oracle_says(focus: tuple[int, int] | None) -> None:
    p = public(max_range=2**20, focus=focus)
    ups = shape_of(p)["catch_ups"][0, : p.most + 1].tolist()
    assert ups == [adaptive.catch_up(k, p) for k in range(p.most + 1)]
    assert set(ups) == ({b.CATCH_UP} if focus is None else {*ups})
    if focus == (2**20, 2**20):
        assert set(ups) == {b.MAX_CATCH_UP}, "no block is longer: soon is better than slowly"
    if focus == (1, 1):
        assert set(ups[3:]) == {b.CATCH_UP}, "a steep way back is met by short ranges"


@pytest.mark.slow
@given(
    white=st.floats(-8.0, 1.0),
    drift=st.floats(-20.0, -2.0),
    seen=st.integers(0, 12),
    epsilon=st.sampled_from([0.01, 0.3, 20.0, 300.0]),
    focus=st.sampled_from([None, (10, 10), (1000, 2**20)]),
)
@settings(max_examples=60)
def test_a_choice_that_stops_early_is_the_best_of_all(
    white: float, drift: float, seen: int, epsilon: float, focus: tuple[int, int] | None
) -> None:
    p = public(epsilon=epsilon, max_range=2**20, focus=focus)
    products = adaptive.products_of_errors(10.0**white, 10.0**drift, seen, p)
    chosen = b.choose_exponent(10.0**white, 10.0**drift, seen, shape_of(p)[0])
    assert products[chosen] <= min(products.values()) * (1.0 + 1e-9)


@given(
    totals=st.lists(st.floats(-1e9, 1e9), max_size=60),
    epsilon=st.sampled_from([2.0**-20, 0.01, 1.0, 2.0**10, 2.0**30]),
    exponent=st.integers(0, 12),
    spreads=st.booleans(),
    focus=st.sampled_from([None, (1, 1), (2**14, 2**14)]),
)
def test_numbers_stay_finite_whatever_is_released(
    totals: list[float], epsilon: float, exponent: int, spreads: bool, focus: tuple[int, int] | None
) -> None:
    p = public(epsilon=epsilon, spreads=spreads, focus=focus)
    memory, shape = start(p, exponent), shape_of(p)
    blocks = np.zeros(len(totals) + 1, adaptive_pass.BLOCK)
    for j, total in enumerate(totals):
        blocks["exponent"][j], blocks["released"][j] = memory["exponent"][0], total
        b.close_block(memory[0], total, shape[0], None)
        assert np.isfinite(memory.view(np.float64)).all()
        assert memory["exponent"][0] in range(p.most + 1) or memory["exponent"][0] <= exponent
        assert min(memory["white"][0], memory["drift"][0], memory["variance"][0], memory["before"][0]) >= 0.0
        assert 0.0 <= memory["prediction"][0] <= 1.0
        assert spreads or memory["carry"][0] == memory["extra"][0] == 0.0
    if totals:
        means, levels = revise(p, start(p, exponent), blocks)
        assert np.isfinite(means).all()
        assert np.isfinite(levels).all()


@pytest.mark.parametrize("spikes", [False, True])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("focus", [None, (500, 5000)])
def test_everything_public_is_a_function_of_released_sums(
    spikes: bool, seed: int, focus: tuple[int, int] | None
) -> None:
    """The proof's step, directly: other values, and noise that makes up for them, give the same of everything."""
    p = public(limit=1024, spreads=not spikes, focus=focus)
    generator = np.random.default_rng(seed)
    n = 30_000
    first, second = make_stream("alternating", n, seed), make_stream("wandering", n, seed + 100)
    noise = laplace(n, THETA_STEPS / 0.5, seed)
    one = run_kernel(p, first, noise, 6, spikes=spikes)
    edges = np.cumsum(2 ** one.blocks["exponent"][:-1].astype(np.int64))
    closed = edges.size
    own, others = (
        np.diff(np.concatenate([[0], np.cumsum(steps)])[np.concatenate([[0], edges])]) for steps in (first, second)
    )
    assert closed > 10
    assert (own != others).sum() > closed / 2
    adjusted = noise.copy()
    adjusted[:closed] += own - others
    # What comes behind the last closed block is in no released sum yet.
    second[edges[-1] :] = generator.integers(0, THETA_STEPS + 1, n - edges[-1])
    two = run_kernel(p, second, adjusted, 6, spikes=spikes)
    assert np.array_equal(one.blocks[:-1], two.blocks[:-1])
    assert np.array_equal(one.blocks[-1:][LEFT_OPEN], two.blocks[-1:][LEFT_OPEN])
    assert np.array_equal(one.memory, two.memory)
    assert np.array_equal(one.published, two.published)
    revised = [revise(p, start(p, 6), got.blocks) for got in (one, two)]
    assert np.array_equal(revised[0], revised[1])
    assert one.counters["filled"][0] == two.counters["filled"][0]
    assert one.counters["open_sum"][0] != two.counters["open_sum"][0], "the open sum is the one secret number"


@given(cuts=st.lists(st.integers(0, 9000), max_size=8), noises=st.integers(1, 7))
def test_any_cut_and_any_batch_of_noise_gives_the_same(cuts: list[int], noises: int) -> None:
    """The pass stops where noise ends, and goes on where it stopped."""
    p = public(epsilon=5.0)
    steps, noise = make_stream("jump", 9000, 1), laplace(9000, THETA_STEPS / 5.0, 1)
    whole = run_kernel(p, steps, noise, 2)
    memory, counters = start(p, 2), no_counts()
    published, closed = [], 0
    for part in np.split(steps.astype(np.float64), sorted(cuts)):
        at, filled, rows = 0, int(counters["filled"][0]), []
        while True:
            batch = noise[closed : closed - closed % noises + noises]
            blocks = np.full(batch.size + 1, np.nan, adaptive_pass.BLOCK)
            counters["closed"][0] = 0
            public_ones = part[at:], 1.0, float(THETA_STEPS), float(THETA_STEPS), shape_of(p), None
            at += sum_adaptive(*public_ones, noise=batch, counters=counters, memory=memory, blocks=blocks)
            closed += int(counters["closed"][0])
            rows.append(blocks[: counters["closed"][0] + (at == part.size)])
            if at == part.size:
                break
        out = np.empty(part.size)
        adaptive_pass.emit_adaptive(np.concatenate(rows), filled, 1.0, False, False, out)
        published.append(out)
    assert np.array_equal(np.concatenate(published), whole.published)
    assert np.array_equal(memory, whole.memory)
    assert np.array_equal(counters[["filled", "open_sum"]], whole.counters[["filled", "open_sum"]])


def test_values_that_are_not_finite_are_noticed_anywhere() -> None:
    p = public()
    blocks, noise = np.empty(1001, adaptive_pass.BLOCK), np.zeros(1000, np.int64)
    for place, wrong in itertools.product((0, 7, 8, 100, 999), (np.nan, np.inf, -np.inf)):
        values = np.full(1000, 5.0)
        values[place] = wrong
        places = {"counters": no_counts(), "memory": start(p, 3), "blocks": blocks}
        consumed = sum_adaptive(values, 1.0, 10.0, 10.0, shape_of(p), None, noise=noise, **places)
        assert consumed == -1


@pytest.mark.parametrize(("mean", "factor"), [(0.9, 1.0), (0.6, b.MAX_RISE)])
def test_behind_a_rise_blocks_are_no_longer_than_a_span(mean: float, factor: float) -> None:
    """And where most is cut off, theta rises to the hold-out's mean itself."""
    p = public(epsilon=1.0, max_range=2**16, limit=64, rises=True)
    memory, shape = start(p, 6), shape_of(p)
    b.close_block(memory[0], 0.1 * 64, shape[0], None)
    reference = memory["reference"][0]
    assert 0.1 < reference < 0.2
    memory["exponent"][0] = 10.0
    b.close_block(memory[0], mean * 1024, shape[0], None)
    assert memory["unit"][0] >= mean * 0.99 / (factor * reference) > memory["unit"][0] / b.RISE_BY**1.1
    assert memory["exponent"][0] == 6.0


#: The mean of an unclipped value, in first thresholds, in the hold-out and behind it.
FOLLOWED = {
    "jumps of 1,000": (0.2, 200.0),
    "an empty hold-out": (0.97, 1000.0),
    "values as large as theta": (0.9, 0.9),
    "growth by 2": (0.2, 0.4),
    "a day": (0.2, 0.36),
    "a day that grows": (0.2, 0.36),
    "none": (0.2, 0.2),
}
#: Half a day, in values.
HALF_DAY = 2**12


def level_at(name: str, position: int) -> float:
    before, behind = FOLLOWED[name]
    if "day" in name:
        grown = 2.0 if "grows" in name and position >= 4 * HALF_DAY else 1.0
        return grown * (before, behind)[position // HALF_DAY % 2]
    return behind if position >= (256 if name == "an empty hold-out" else 4096) else before


def follow(name: str, epsilon: float, seed: int) -> tuple[np.ndarray, adaptive.Learner, list[float]]:
    """Released sums of values that are clipped, as a share, to the threshold of their block; kernel and oracle."""
    p = public(epsilon=epsilon, max_range=2**16, limit=256, rises=True, top=1e9)
    shape, memory, generator = shape_of(p), start(p, 6), np.random.default_rng(seed)
    shape["top_unit"][0] = p.top
    learner, units = adaptive.Learner(p, 0.5, 0.25, 6), []
    end = 8 * HALF_DAY if "day" in name else 2**17
    while memory["position"][0] < end:
        length, unit = 2 ** int(memory["exponent"][0]), memory["unit"][0]
        assert length == 2**learner.exponent
        level = level_at(name, int(memory["position"][0]))
        # Of an exponential distribution a value above theta counts as theta; the two smaller levels are below it.
        mean = level if level < 1.0 else level * -np.expm1(-unit / level)
        total = length * mean + unit * generator.laplace(0.0, 1.0 / epsilon)
        b.close_block(memory[0], total, shape[0], None)
        learner.close(total)
        units.append(memory["unit"][0])
    return memory, learner, units


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLLOWED)
@pytest.mark.parametrize(("epsilon", "seed"), [(1.0, 1), (0.1, 2), (0.02, 3)])
def test_a_threshold_that_follows_equals_the_oracle(name: str, epsilon: float, seed: int) -> None:
    memory, learner, units = follow(name, epsilon, seed)
    found = [
        memory["unit"][0],
        memory["reference"][0],
        memory["jump"][0],
        memory["cut_mean"][0],
        memory["highest"][0],
        memory["exponent"][0],
    ]
    expected = [
        learner.unit,
        learner.reference,
        learner.jump,
        learner.tried or 0.0,
        learner.highest,
        learner.exponent,
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert memory["highest"][0] == max(units) >= 1.0 == min(units)
    level = FOLLOWED[name][1]
    if name == "none":
        assert set(units) == {1.0}
    elif name == "values as large as theta":
        assert memory["unit"][0] == 1.0, "or noise would be that of a threshold far above all values"
    elif level > 1.0:
        assert level < memory["unit"][0] < 10 * level
