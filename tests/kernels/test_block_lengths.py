"""Adaptive block lengths, seasons, revision and waves against their oracles."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastdp_kernels.streams import adaptive_pass, revision, seasons, wave_filter
from fastdp_kernels.streams import block_lengths as b
from tests.kernels.adaptive_runs import (
    THETA_STEPS,
    no_counts,
    public,
    public_of,
    revise,
    run_kernel,
    run_oracle,
    shape_of,
    start,
    sum_adaptive,
    sums_before,
)
from tests.kernels.streams_for_adaptive import STREAMS, laplace, make_stream
from tests.oracles import adaptive, waves
from tests.oracles.seasons import Follower

close = {"rtol": 1e-9, "atol": 1e-9}
#: Of the block left open.
LEFT_OPEN = ["exponent", "prediction", "extra"]


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(
    ("epsilon", "exponent", "limit", "focus"),
    [
        *((0.02, 0, 0, None), (0.5, 0, 0, None), (0.5, 5, 1024, None), (20.0, 3, 256, None), (0.5, 5, 16, None)),
        *((0.5, 4, 512, focus) for focus in ((1, 1), (700, 700), (30, 9000))),
    ],
)
def test_the_pass_equals_the_oracle(
    name: str, epsilon: float, exponent: int, limit: int, focus: tuple[int, int] | None
) -> None:
    p = public(epsilon=epsilon, limit=limit, focus=focus)
    n = 10_000
    steps, noise = make_stream(name, n, 3), laplace(n, THETA_STEPS / epsilon, 4)
    got = run_kernel(p, steps, noise, exponent)
    expected = run_oracle(p, steps, noise, exponent)
    assert got.blocks["exponent"][:-1].tolist() == [block.exponent for block in expected.blocks]
    assert got.blocks["released"][:-1].tolist() == [block.total for block in expected.blocks]
    for field in ("prediction", "extra"):
        wanted = [getattr(block, field) for block in expected.blocks]
        np.testing.assert_allclose(got.blocks[field][:-1], wanted, **close)
    for field in ("exponent", "position", "white", "drift", "level", "variance", "carry"):
        np.testing.assert_allclose(got.memory[field][0], getattr(expected, field), **close)
    rest = steps[expected.position :]
    assert got.counters[["filled", "open_sum"]].tolist()[0] == (rest.size, int(rest.sum()))
    np.testing.assert_allclose(got.published, adaptive.published(expected, n), **close)


def test_the_first_choice_is_the_oracles() -> None:
    cases = itertools.product((2.0**-10, 0.05, 0.5, 2.0**20), (1, 2, 3, 100, 2**16, 2**40), (None, 1, 0))
    for epsilon, max_range, shortest in cases:
        focus = None if shortest is None else (shortest or max_range, max_range)
        if focus and max_range > 2**16:
            continue
        p = public(epsilon=epsilon, max_range=max_range, focus=focus)
        for white, drift, seen in ((0.02, 0.02 / max_range, 0), (0.5, 0.0, 3), (0.0, 1e-6, 5), (0.0, 0.0, 2)):
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
    focus=st.sampled_from([None, (1, 1), (2**14, 2**14)]),
)
def test_numbers_stay_finite_whatever_is_released(
    totals: list[float], epsilon: float, exponent: int, focus: tuple[int, int] | None
) -> None:
    p = public(epsilon=epsilon, focus=focus)
    memory, shape = start(p, exponent), shape_of(p)
    blocks = np.zeros(len(totals) + 1, adaptive_pass.BLOCK)
    for j, total in enumerate(totals):
        blocks["exponent"][j], blocks["released"][j] = memory["exponent"][0], total
        b.close_block(memory[0], total, shape[0], None)
        assert np.isfinite(memory.view(np.float64)).all()
        assert memory["exponent"][0] in range(p.most + 1) or memory["exponent"][0] <= exponent
        assert min(memory["white"][0], memory["drift"][0], memory["variance"][0], memory["before"][0]) >= 0.0
        assert 0.0 <= memory["prediction"][0] <= 1.0
    if totals:
        means, levels = revise(p, start(p, exponent), blocks)
        assert np.isfinite(means).all()
        assert np.isfinite(levels).all()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("focus", [None, (500, 5000)])
def test_everything_public_is_a_function_of_released_sums(seed: int, focus: tuple[int, int] | None) -> None:
    """The proof's step, directly: other values, and noise that makes up for them, give the same of everything."""
    p = public(limit=1024, focus=focus)
    generator = np.random.default_rng(seed)
    n = 30_000
    first, second = make_stream("alternating", n, seed), make_stream("wandering", n, seed + 100)
    noise = laplace(n, THETA_STEPS / 0.5, seed)
    one = run_kernel(p, first, noise, 6)
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
    two = run_kernel(p, second, adjusted, 6)
    assert one.blocks[:-1].tobytes() == two.blocks[:-1].tobytes()
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
        adaptive_pass.emit_adaptive(np.concatenate(rows), filled, 1.0, False, out)
        published.append(out)
    assert np.array_equal(np.concatenate(published), whole.published)
    assert np.array_equal(memory, whole.memory)
    assert np.array_equal(counters[["filled", "open_sum"]], whole.counters[["filled", "open_sum"]])


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
@pytest.mark.parametrize(
    ("name", "epsilon", "seed"),
    [
        *((name, 0.1, 2) for name in FOLLOWED),
        *(("jumps of 1,000", epsilon, seed) for epsilon, seed in ((1.0, 1), (0.02, 3))),
        *((name, 0.02, 3) for name in ("values as large as theta", "a day that grows")),
    ],
)
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


PERIOD = 96.0


@dataclass
class Pass:
    """Results of the kernels."""

    blocks: np.ndarray
    memory: np.ndarray
    published: np.ndarray


def shape_for(p: adaptive.Public) -> np.ndarray:
    shape = shape_of(p)
    if p.rises:
        shape["top_unit"][0] = p.top
    if p.events:
        shape["queries"] = adaptive.query_lengths(p)
        shape["events"][0] = 1.0
    return shape


def begin(p: adaptive.Public, exponent: int, period: float) -> np.ndarray:
    memory = np.zeros(1, seasons.SEASON)
    memory["period"] = period
    b.start_memory(0.5, 0.25, exponent, p.rises and not p.events, shape_for(p), memory["plain"])
    return memory


def run(
    p: adaptive.Public, steps: np.ndarray, noise: np.ndarray, exponent: int, period: float = PERIOD, cut: int = 2**40
) -> Pass:
    """The pass in chunks of ``cut`` values, each of them again from where theta rose."""
    memory, counters = begin(p, exponent, period), no_counts()
    closed, at, out, rows = 0, 0, np.empty(steps.size), []
    while at < steps.size:
        part, filled = steps[at : at + cut - at % cut].astype(np.float64), int(counters["filled"][0])
        top = -(2.0**60) if p.events else float(int(memory["plain"]["unit"][0] * THETA_STEPS))
        blocks, bends = np.zeros(noise.size - closed + 1, adaptive_pass.BLOCK), np.empty(part.size)
        shape = shape_for(p)
        consumed = adaptive_pass.sum_bound(
            *(part, public_of(1.0, top, float(THETA_STEPS))[0], top, shape[0], b.lengths_of_events(shape)),
            *(noise[closed:], np.empty(0, np.uint64), np.empty(0)),
            *(counters[0], memory[0].plain, blocks, memory[0], bends),
        )
        assert consumed == part.size or counters["stopped"][0] == adaptive_pass.SCALED, "more noise was needed"
        new, mine = int(counters["closed"][0]), out[at : at + consumed]
        adaptive_pass.emit_adaptive(blocks[: new + 1], filled, 1.0, bool(p.events), mine)
        mine += bends[:consumed]
        rows.append(blocks[:new])
        at, closed = at + consumed, closed + new
        counters["closed"] = counters["stopped"] = 0
    return Pass(np.concatenate([*rows, blocks[new : new + 1]]), memory, out)


def daily(n: int, seed: int, period: float = PERIOD) -> np.ndarray:
    """A day, a week and a level that wanders, in [0, THETA_STEPS]."""
    generator, at = np.random.default_rng(seed), np.arange(n)
    day = 200 * np.sin(2 * np.pi * at / period) + 80 * np.cos(6 * np.pi * at / period)
    week = 90 * np.sin(2 * np.pi * at / period / 7)
    level = 400 + np.cumsum(generator.normal(0.0, 1.0, n))
    return np.rint(np.clip(level + day + week + generator.normal(0.0, 60.0, n), 0, THETA_STEPS)).astype(np.int64)


def follow_seasons(
    p: adaptive.Public, steps: np.ndarray, noise: np.ndarray, exponent: int, period: float
) -> Follower:
    """The oracle on the same stream."""
    follower = Follower(adaptive.Learner(p, 0.5, 0.25, exponent), period, seasons)
    drawn, at = iter(noise.tolist()), 0
    while at + 2**follower.plain.exponent <= steps.size:
        length = 2**follower.plain.exponent
        part = steps[at : at + length]
        if p.rises:
            part = np.minimum(part, int(follower.plain.unit * THETA_STEPS))
        follower.close(float(part.sum() + next(drawn)) / THETA_STEPS)
        at += length
    return follower


def check_equal(found: Pass, follower: Follower, n: int) -> None:
    assert found.blocks["exponent"][:-1].tolist() == [block.exponent for block in follower.plain.blocks]
    assert found.memory["gained"][0] == pytest.approx(follower.gained, rel=1e-6)
    assert found.memory["left"]["white"][0] == pytest.approx(follower.left.white, rel=1e-6, abs=1e-12)
    assert found.memory["left"]["drift"][0] == pytest.approx(follower.left.drift, rel=1e-6, abs=1e-12)
    np.testing.assert_allclose(found.published, follower.published(n), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("n", "epsilon", "exponent", "events", "period"),
    [
        *((600, 3.0, 3, False, 96.5), (2000, 0.8, 4, False, 96.5), (2000, 0.8, 4, False, 24.0)),
        *((1200, 0.3, 0, True, 96.5), (1000, 1.5, 0, True, 96.5)),
    ],
)
def test_published_values_equal_the_oracle(
    n: int, epsilon: float, exponent: int, events: bool, period: float
) -> None:
    """Also with a period that is no whole number, in blocks that are too long for it or still open."""
    p = public(epsilon=epsilon, max_range=2**11, **({"events": b, "first": 0} if events else {}))
    steps, noise = daily(n, 1, period), laplace(n, THETA_STEPS / epsilon, 2)
    follower = follow_seasons(p, steps, noise, exponent, period)
    assert follower.gained > 0.5
    longest = 2 ** max(block.exponent for block in follower.plain.blocks)
    assert (longest > seasons.REACH * period) == (epsilon == 0.3 or period == 24.0)
    check_equal(run(p, steps, noise, exponent, period), follower, n)


def test_under_a_theta_that_rises_too() -> None:
    """A block's noise then counts as several of the first theta's."""
    n = 600
    p = public(epsilon=4.0, max_range=2**11, limit=128, rises=True, top=8.0)
    steps = daily(n, 3) * np.where(np.arange(n) < 200, 1, 4)
    shape = shape_for(p)
    assert shape["top_unit"][0] == 8.0
    noise = laplace(n, THETA_STEPS / 4.0, 3)
    found, follower = run(p, steps, noise, 3), follow_seasons(p, steps, noise, 3, PERIOD)
    assert found.memory["plain"]["unit"][0] == pytest.approx(follower.plain.unit)
    assert follower.plain.unit > 2.0
    check_equal(found, follower, n)


@given(st.integers(1, 700), st.integers(0, 3))
@settings(max_examples=8)
def test_chunks_do_not_matter(cut: int, seed: int) -> None:
    p = public(epsilon=1.0, max_range=2**11)
    steps, noise = daily(3000, seed), laplace(3000, THETA_STEPS, seed)
    one, several = run(p, steps, noise, 3), run(p, steps, noise, 3, cut=cut)
    assert one.blocks.tobytes() == several.blocks.tobytes()
    assert np.array_equal(one.memory, several.memory)
    assert np.array_equal(one.published, several.published)


@pytest.mark.parametrize("seed", range(3))
def test_everything_public_is_a_function_of_released_sums_of_seasons(seed: int) -> None:
    """The proof's step: other values, and noise that makes up for them, give the same of everything."""
    p, n = public(epsilon=1.0, max_range=2**11), 6000
    first, second = daily(n, seed), daily(n, seed + 50, 70.0)
    noise = laplace(n, THETA_STEPS, seed)
    one = run(p, first, noise, 3)
    edges = np.concatenate([[0], np.cumsum(2 ** one.blocks["exponent"][:-1].astype(np.int64))])
    moved = np.diff(np.concatenate([[0], np.cumsum(first - second)])[edges])
    assert (moved != 0).mean() > 0.5
    assert one.memory["gained"][0] > 0.0
    adjusted = noise.copy()
    adjusted[: moved.size] += moved
    two = run(p, second, adjusted, 3)
    assert one.blocks.tobytes() == two.blocks.tobytes()
    assert np.array_equal(one.memory, two.memory)
    assert np.array_equal(one.published, two.published)


def test_a_block_is_bent_about_the_mean_that_it_accounts_for() -> None:
    """So sums of whole blocks, and what is made up for, are as without bends."""
    p, n = public(epsilon=1.0, max_range=2**11), 6000
    found = run(p, daily(n, 5), laplace(n, THETA_STEPS, 5), 3)
    at, bent = 0, 0
    for exponent, _, prediction, extra, catch, _, _ in found.blocks[:-1].tolist():
        length = 1 << int(exponent)
        values = found.published[at : at + length] - extra * (np.arange(length) < catch)
        assert values.mean() == pytest.approx(prediction, abs=1e-12)
        assert values.min() > -1e-12
        assert values.max() < 1.0 + 1e-12
        assert np.unique(values.round(14)).size <= 128
        bent += values.max() - values.min() > 0.05
        at += length
    assert bent > 20


@given(
    totals=st.lists(st.one_of(st.floats(-1e9, 1e9), st.floats(-1.0, 40.0)), max_size=60),
    epsilon=st.sampled_from([2.0**-20, 0.01, 1.0, 2.0**10, 2.0**30]),
    exponent=st.integers(0, 8),
    period=st.sampled_from([2.0, 7.5, 96.0, 2.0**40]),
    events=st.booleans(),
)
@settings(max_examples=20)
def test_numbers_stay_finite_whatever_is_released_of_seasons(
    totals: list[float], epsilon: float, exponent: int, period: float, events: bool
) -> None:
    p = public(epsilon=epsilon, **({"events": b, "first": 0} if events else {}))
    memory, shape = begin(p, exponent, period), shape_for(p)
    for total in totals:
        plain = memory["plain"][0]
        closed, before = int(plain["exponent"]), [float(plain[name]) for name in ("level", "unit", "last")]
        b.close_block(plain, total, shape[0], b.lengths_of_events(shape))
        seasons.follow_season(memory[0], total, closed, *before, shape[0])
        assert np.isfinite(memory.view(np.float64)).all()
        bends = np.empty(min(1 << int(plain["exponent"]), 512))
        seasons.bend(memory[0], shape[0], 0, bends)
        assert np.isfinite(bends).all()
        assert events or 0.0 <= plain["prediction"] <= 1.0
        entries = np.arange(seasons.STATES)
        assert memory["covariance"][0, entries * (entries + 3) // 2].min() >= 0.0


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize(("epsilon", "exponent"), [(0.05, 6), (0.5, 0), (20.0, 6)])
def test_levels_means_and_sums_equal_the_oracle(name: str, epsilon: float, exponent: int) -> None:
    p = public(epsilon=epsilon, max_range=2**12)
    n = 1500
    steps, noise = make_stream(name, n, 5), laplace(n, THETA_STEPS / epsilon, 6)
    got, learner = run_kernel(p, steps, noise, exponent), run_oracle(p, steps, noise, exponent)
    means, levels = revise(p, start(p, exponent), got.blocks)
    expected = adaptive.levels_given_all(learner)
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(levels, expected, rtol=1e-9, atol=1e-9 * scale)
    np.testing.assert_allclose(means, adaptive.block_means(learner, expected), rtol=1e-9, atol=1e-9 * scale)
    values = adaptive.revised(got.blocks["exponent"][:-1], means, levels, n)
    stops = np.arange(n + 1)
    sums = sums_before(got.blocks, means, levels, stops)
    np.testing.assert_allclose(sums, np.concatenate([[0.0], np.cumsum(values)]), rtol=1e-9, atol=1e-8 * scale)


def test_what_the_warm_up_said_is_where_the_revision_begins() -> None:
    p = public(limit=1024)
    steps, noise = make_stream("wandering", 12_000, 7), laplace(12_000, THETA_STEPS / 0.5, 8)
    learner = run_oracle(p, steps, noise, 6)
    held = run_kernel(p, steps[:1024], noise, 6)
    skip = int(held.counters["closed"][0])
    assert held.counters["filled"][0] == 0, "a block ends where the warm-up does"
    rest = run_kernel(p, steps[1024:], noise[skip:], 0, memory=held.memory)
    means, levels = revise(p, held.memory, rest.blocks)
    expected = adaptive.levels_given_all(learner, skip)
    np.testing.assert_allclose(levels, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(means, adaptive.block_means(learner, expected, skip), rtol=1e-9, atol=1e-9)


def test_under_a_pattern_levels_are_those_of_what_is_left() -> None:
    """As if the rest had been released, with the noise that the sums had; of a theta that rose as well."""
    p = public(max_range=2**12)
    got = run_kernel(p, make_stream("wandering", 6000, 9), laplace(6000, THETA_STEPS / 0.5, 10), 0)
    exponents, totals = got.blocks["exponent"][:-1].copy(), got.blocks["released"][:-1].copy()
    pattern = 0.1 * np.sin(np.arange(totals.size))

    def revised(sums: np.ndarray, explained: np.ndarray, noises: np.ndarray, unit: float) -> list[np.ndarray]:
        memory = start(p, 0)
        memory["unit"], memory["reference"] = unit, 0.0 if explained.size else -1.0
        means, levels, *others = np.empty((5, totals.size))
        arrays = (exponents, sums, np.zeros(sums.size), explained, means, levels, noises, *others)
        revision.revise_blocks(memory, shape_of(p), None, *arrays)
        return [means, levels, *others]

    for unit in (1.0, 1.5):
        expected = revised(totals - pattern, np.empty(0), np.empty(totals.size), unit)
        found = revised(totals, pattern, np.full(totals.size, unit**2), 1.0)
        assert not np.array_equal(found, revised(totals, np.empty(0), np.empty(totals.size), unit))
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_sums_that_do_not_touch_are_not_compared() -> None:
    """Two blocks of a value, one of four values, and two of a value again."""
    p, exponents = public(), np.array([0.0, 0.0, 2.0, 0.0, 0.0])
    memory = start(p, 0)
    sums = np.arange(5.0), np.zeros(5), np.empty(0)
    revision.revise_blocks(memory, shape_of(p), None, exponents, *sums, *np.empty((6, 5)))
    assert memory["counts"][0, 0] > 1.0
    assert memory["counts"][0, 1] == 0.0


def test_what_a_block_hides_is_by_its_level_under_the_theta_in_use() -> None:
    p = public()
    memory, shape, rates = start(p, 0), shape_of(p), np.empty(1)
    memory["unit"], memory["reference"] = 2.0, -1.0
    rate = float(memory["white"][0] + memory["drift"][0] / 3.0)
    revision.hidden_rates(memory, shape, None, *np.empty((3, 0)), np.ones(1), rates)
    assert rates[0] == pytest.approx(4.0 * revision.cautious_rate(rate / 4.0, 0.5, p.noise, 1.0, 1.5))


def test_without_a_closed_block_there_is_a_level() -> None:
    out = np.empty(3)
    empty = np.empty(0)
    revision.sum_revised(
        *(np.zeros(1, np.int64), empty, np.array([0.5]), np.zeros(1), 62, np.empty(0, np.int64)),
        *(np.array([0, 1, 10]), out),
    )
    assert out.tolist() == [0.0, 0.5, 5.0]


def distribution_of(seed: int, count: int, size: int) -> tuple[np.ndarray, ...]:
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(count, size))
    gaps = np.concatenate([[0.0], generator.uniform(0.5, 4.0, count - 1)])
    noises, rates, spreads = (generator.uniform(0.1, 2.0, n) for n in (count, size, size))
    # One entry that stands still, and one that is known.
    rates[-1], spreads[-2:] = 0.0, (0.0, 1.0)
    return rows, noises, gaps, rates, generator.normal(size=size), spreads


@pytest.mark.parametrize(("seed", "count", "size"), [(1, 1, 3), (2, 2, 3), (3, 30, 3), (4, 25, 7)])
def test_likelihood_and_states_equal_the_oracle(seed: int, count: int, size: int) -> None:
    distribution = distribution_of(seed, count, size)
    rows, noises, gaps, rates, start, spreads = distribution
    totals = np.random.default_rng(seed + 100).normal(size=count) * 3.0
    errors, gains, states = np.empty(count), np.empty((count, size)), np.empty((count, size))
    found = wave_filter.filter_waves(totals, rows, noises, gaps, rates, start, spreads, errors, gains)
    assert found == pytest.approx(waves.log_likelihood(totals, *distribution), rel=1e-9)
    without = wave_filter.filter_waves(totals, rows, noises, gaps, rates, start, spreads, errors, np.empty((0, size)))
    assert without == found
    wave_filter.smooth_waves(rows, errors, gains, gaps, rates, start, spreads, states)
    np.testing.assert_allclose(states, waves.states(totals, *distribution), rtol=1e-8, atol=1e-9)


def test_values_that_are_not_finite_are_noticed_anywhere() -> None:
    p = public()
    blocks, noise = np.empty(1001, adaptive_pass.BLOCK), np.zeros(1000, np.int64)
    for place, wrong in itertools.product((0, 7, 8, 100, 999), (np.nan, np.inf, -np.inf)):
        values = np.full(1000, 5.0)
        values[place] = wrong
        places = {"counters": no_counts(), "memory": start(p, 3), "blocks": blocks}
        consumed = sum_adaptive(values, 1.0, 10.0, 10.0, shape_of(p), None, noise=noise, **places)
        assert consumed == -1
