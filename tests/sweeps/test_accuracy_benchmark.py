"""The plans that Adaptive is measured against: right without noise, and asked through a sweep like all else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchmarks.accuracy import plans, report, streams
from benchmarks.accuracy.adaptive import mechanisms
from benchmarks.peers import w_event
from fastdp.noise.key import Key
from fastdp_lab import sweeps
from fastdp_lab.baselines.w_event import SCHEMES
from fastdp_lab.sweeps import Setting
from tests.oracles import w_event as oracle

SETTING = Setting(bound=100.0, holdout=2000, published=4096, max_range=4096, epsilon=1e7)
VALUES = np.clip(np.random.default_rng(1).gamma(2.0, 8.0, 6096), 0.0, 90.0)


def test_shrinking_keeps_sums_and_pulls_children_together() -> None:
    leaves = np.random.default_rng(2).normal(10.0, 3.0, 16 * 16 * 2 + 5)
    shrunken = plans.shrink(leaves, 16, 3, 9.0)
    assert shrunken.size == leaves.size
    assert shrunken[: 2 * 256].sum() == pytest.approx(leaves[: 2 * 256].sum())
    assert plans.shrink(leaves, 16, 3, 0.0) == pytest.approx(leaves), "without noise nothing moves"
    assert np.ptp(plans.shrink(leaves, 16, 3, 1e9)[:256]) < 1e-6 * np.ptp(leaves)


@pytest.mark.parametrize(
    ("plan", "parameters", "grain"),
    [(plans.FlatBlocks(), {"length": 64}, 64), (plans.ShrunkenTree(), {}, 1), (plans.HoldoutMean(), {}, None)],
)
def test_without_noise_whole_blocks_are_exact(plan, parameters, grain) -> None:
    outcome = plan.prepare(parameters, SETTING, VALUES)(Key.from_seed(1))
    starts, stops = np.array([0, 512, 1024]), np.array([512, 4096, 1024 + 64])
    clipped = np.clip(VALUES, 0.0, outcome.theta)
    prefix = np.concatenate([[0.0], np.cumsum(clipped[SETTING.holdout :])])
    if grain is None:
        expected = (stops - starts) * clipped[: SETTING.holdout].mean()
    else:
        expected = prefix[stops] - prefix[starts]
    assert outcome.answer(starts, stops) == pytest.approx(expected, rel=1e-3)
    noiseless = outcome.exact(lambda ends: prefix[ends], stops) - outcome.exact(lambda ends: prefix[ends], starts)
    assert noiseless == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("w", [1, 2, 7])
def test_fast_w_event_schemes_publish_what_the_slow_ones_do(scheme, w) -> None:
    generator = np.random.default_rng(w)
    values = np.repeat(generator.integers(0, 101, 40), 5)
    noises = generator.laplace(size=(2, values.size))
    found = w_event.release(scheme, values.astype(float), 100.0, 50.0, w, tuple(noises))

    def noise(scale, draw, seen):
        return float(scale) * noises[draw - 1][len(seen) - 1]

    expected, _ = oracle.release(scheme, values.tolist(), 50.0, 100, w, noise)
    assert found == pytest.approx(np.array(expected, float), rel=1e-9, abs=1e-9)
    assert scheme == "uniform" or w == 1 or np.unique(found).size < values.size, "or no step was left out"


def test_no_w_values_choose_theta_and_enter_a_plan() -> None:
    setting, parameters = replace(SETTING, epsilon=400.0), {"scheme": "uniform", "contributions": 40}

    def theta(changed: int) -> float:
        values = np.full(VALUES.size, 5.0)
        values[SETTING.holdout - changed :] = 99.0
        return plans.WEventScheme().prepare(parameters, setting, values)(Key.from_seed(1)).theta

    assert theta(0) == theta(39)
    assert theta(0) != theta(1000)


def test_windows_of_values_get_noise_of_their_own() -> None:
    setting = replace(SETTING, epsilon=100.0)
    spreads = []
    for w in (1, 40):
        outcome = plans.FlatBlocks().prepare({"length": 64, "contributions": w}, setting, VALUES)(Key.from_seed(1))
        prefix = np.concatenate([[0.0], np.cumsum(np.clip(VALUES, 0.0, outcome.theta)[SETTING.holdout :])])
        edges = np.arange(0, 4097, 64)
        errors = outcome.answer(edges[:-1], edges[1:]) - (prefix[edges[1:]] - prefix[edges[:-1]])
        spreads.append(np.abs(errors).mean() * setting.epsilon / outcome.theta / w)
    assert spreads == pytest.approx([1.0, 1.0], abs=0.4)


def test_ratios_are_under_one_unit_of_privacy() -> None:
    index = pd.MultiIndex.from_tuples(
        [("a", 0.1, "1e3"), ("b", 0.1, "1e3")], names=["dataset", "epsilon", "workload"]
    )
    names = [report.ADAPTIVE, "flat 256", report.ADAPTIVE + report.WINDOW, "BD" + report.WINDOW]
    mse = pd.DataFrame([[2.0, 6.0, 10.0, 40.0], [1.0, 0.5, 4.0, 4.0]], index, names)
    expected = [[1.0, 3.0, 1.0, 4.0], [1.0, 0.5, 1.0, 1.0]]
    assert report.beside(mse).to_numpy() == pytest.approx(np.array(expected))
    assert [report.unit(name) for name in names] == ["one value"] * 2 + ["any 40 consecutive values"] * 2


def test_halves_follow_from_names_alone() -> None:
    names = [*streams.REAL, *streams.GROWTHS, *(f"{s} {o}" for s in streams.SYNTHETIC for o in streams.ORDERS)]
    halves = {name: streams.half(name) for name in names}
    assert 0.3 < np.mean([each == streams.TUNING for each in halves.values()]) < 0.7
    assert (halves["POS"], halves["MSNBC"]) == (streams.TUNING, streams.REPORTING), "the rule may not change"


@pytest.mark.parametrize("growth", streams.GROWTHS)
def test_growing_streams_outgrow_their_holdout(growth: str) -> None:
    values = streams.growing(growth, 2**18)
    ratio = values[-2000:].mean() / values[: 2**16].mean()
    assert ratio == pytest.approx(streams.GROWTHS[growth][1], rel=0.15)


def test_all_mechanisms_of_the_benchmark_run(tmp_path, monkeypatch) -> None:
    for name in ("flat_blocks", "shrunken_tree", "holdout_mean", "pegasus", "w_event", "dpcrpy"):
        monkeypatch.setitem(sweeps.SYSTEMS, name, None)  # taken out again afterwards
    plans.register()
    specification = sweeps.from_table(
        {
            "epsilons": [100.0],
            "metrics": ["mse", "parts"],
            "holdout": 2000,
            "max_range": 4096,
            "datasets": [{"name": "POS", "generator": "table1", "stream": "pos", "n": 6096}],
            "mechanisms": mechanisms(),
            "workloads": [{"kind": "random_ranges", "count": 20, "max_range": 500}],
        }
    )
    frame = sweeps.load(sweeps.run(specification, tmp_path / "out"))
    assert set(frame["mechanism"]) == {table["name"] for table in mechanisms()}
    assert frame["error"].isna().all()
    assert (frame["mse"] > 0.0).all()
