"""The sum beyond a clip from numbers of rows, its errors, and its shares."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fastdp.tables.beyond import Beyond, Tail, count_tail, shares, sum_beyond, tail_edges
from tests.oracles import table_choices
from tests.tables.test_consistent import TREES


@pytest.mark.parametrize(
    ("clip", "bound"),
    [
        ((-1.0, 4.0), (-40.0, 100.0)),
        ((0.0, 4.0), (0.0, 4.0 * 1.5**7)),
        ((0.0, 3.9), (0.0, 4.0 * 1.5**7)),
        ((-3.0, 7.0), (-3.0, 7.1)),
    ],
)
def test_rows_in_bins_are_those_of_the_oracle(clip, bound):
    edges = tail_edges(clip, bound)
    for side, each in zip((-1, 1), edges, strict=True):
        near, far = side * clip[side > 0], side * bound[side > 0]
        wanted = table_choices.edges(near, far) if near < far else [near]
        np.testing.assert_allclose(each, wanted, rtol=1e-12)
    rng = np.random.default_rng(1)
    values = np.concatenate([rng.normal(0.0, 30.0, 300), edges[1], -edges[0], [0.0, 1e9, -1e9]])
    counts = count_tail(values, edges)
    assert counts.tolist() == table_choices.tail(values.tolist(), *edges)
    # One row more is in one bin at most.
    for value in values[-60:]:
        more = count_tail(np.append(values, value), edges) - counts
        ends = (value < -edges[0][0] and edges[0].size > 1, value > edges[1][0] and edges[1].size > 1)
        assert more.sum() == any(ends)
        assert np.abs(more).sum() in (0, 1)
    assert count_tail(np.empty(0), edges).tolist() == [0] * counts.size


def test_ends_without_a_bound_are_counted_only():
    for clip, bound in (((0.0, 9.0), None), ((2.0, 9.0), (0.0, 9.0))):
        edges = tail_edges(clip, bound)
        counts = count_tail(np.array([-5.0, 1.0, 8.0, 10.0, 11.0]), edges)
        assert counts.tolist() == ([1, 2] if bound is None else [2])
        ends = Tail(clip, edges, counts, 0.5).ends
        assert [each.known for each in ends] == ([False, False] if bound is None else [False, True])
        assert ends[0].excess == ends[1].excess == 0.0
    unknown = Tail((0.0, 4.0), tail_edges((0.0, 4.0), (0.0, 9.0)), np.empty(0, np.int64), 0.0)
    assert [each.known for each in unknown.ends] == [True, False]


TAILS = {
    "pareto": lambda rng, n: 10.0 * (rng.pareto(2.2, n) + 1.0),
    "log-normal": lambda rng, n: rng.lognormal(2.0, 1.3, n),
    "exponential": lambda rng, n: rng.exponential(30.0, n),
    "uniform": lambda rng, n: rng.uniform(0.0, 500.0, n),
}


@pytest.mark.parametrize("noise", [0.0, 5.0, 40.0])
@pytest.mark.parametrize("name", TAILS)
@pytest.mark.parametrize("beyond", [0.5, 0.03])
def test_the_excess_lies_within_its_errors(name, noise, beyond):
    rng, bound, errors = np.random.default_rng(2), 2000.0, []
    for _ in range(20):
        values = np.minimum(TAILS[name](rng, 100_000), bound)
        clip = float(np.quantile(values, 1.0 - beyond))
        edges = tail_edges((0.0, clip), (0.0, bound))
        counts = count_tail(values, edges) + np.rint(rng.laplace(0.0, noise, edges[1].size - 1)).astype(np.int64)
        found = sum_beyond(edges[1], counts, 2.0 * noise**2)
        true = np.maximum(values - clip, 0.0)
        assert found.known
        errors.append((found.excess - true.sum()) / math.sqrt(found.variance))
        # Of all values together.
        assert abs(found.excess - true.sum()) < (0.04 if noise < 10.0 else 0.2) * values.sum()
        if not noise and name != "uniform":
            assert found.squares == pytest.approx((true**2).sum(), rel=0.3)
        assert 0.0 <= found.after <= found.excess
    assert np.mean(np.abs(errors) < 1.96) >= 0.9


def test_rows_within_the_noise_are_unknown():
    edges, rng = tail_edges((0.0, 4.0), (0.0, 4000.0))[1], np.random.default_rng(3)
    counts = np.rint(rng.laplace(0.0, 30.0, (200, edges.size - 1))).astype(np.int64)
    found = [sum_beyond(edges, each, 1800.0) for each in counts]
    assert np.mean([each.known for each in found]) < 0.1
    assert all(each.excess == 0.0 for each in found if not each.known)
    assert sum_beyond(edges[:1], counts[0, :0], 1800.0) == Beyond()


@pytest.mark.parametrize("name", ["none", "one", "two", "three"])
def test_shares_are_positive_parts_by_window_then_by_key(name):
    parents, rng = TREES[name], np.random.default_rng(4)
    values = [rng.normal(1.0, 2.0, (40, 1)), *(rng.normal(1.0, 2.0, (40, up.size)) for up in parents)]
    values[-1][3] = -1.0
    found = shares(values, parents)
    positive = np.maximum(values[0][:, 0], 0.0)
    np.testing.assert_allclose(found[0][:, 0], positive / positive.sum())
    for depth, up in enumerate(parents):
        assert found[depth + 1].min() >= 0.0
        for node in range(values[depth].shape[1]):
            own = np.flatnonzero(up == node)
            if not own.size:
                continue
            np.testing.assert_allclose(found[depth + 1][:, own].sum(axis=1), found[depth][:, node])
            parts = np.maximum(values[depth + 1][:, own], 0.0)
            parts[parts.sum(axis=1) == 0.0] = 1.0
            wanted = found[depth][:, [node]] * parts / parts.sum(axis=1, keepdims=True)
            np.testing.assert_allclose(found[depth + 1][:, own], wanted)
    np.testing.assert_allclose(shares([np.full((4, 1), -1.0)], [])[0], 0.25)


def test_errors_of_shares_of_the_excess():
    beyond = Beyond(excess=100.0, variance=9.0, squares=400.0)
    whole = beyond.variances(np.ones((1, 1)), np.ones(1))
    np.testing.assert_allclose(whole, 9.0)
    # Half of the windows of all keys: half of the noise; which rows it has is as by chance.
    np.testing.assert_allclose(beyond.variances(np.full((1, 1), 0.5), np.ones(1)), 0.25 * (9.0 + 2500.0) + 100.0)
    # A key that has half of the whole, over all windows.
    np.testing.assert_allclose(
        beyond.variances(np.full((1, 1), 0.5), np.array([0.5])), 0.25 * (9.0 + 3906.25) + 100.0
    )
    np.testing.assert_array_equal(beyond.variances(np.zeros((1, 2)), np.zeros(2)), 0.0)
