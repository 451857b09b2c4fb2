"""The plans that Adaptive is measured against: right without noise, and asked through a sweep like all else."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.accuracy import plans, streams
from benchmarks.accuracy.adaptive import mechanisms
from fastdp import experiments
from fastdp.experiments import Setting
from fastdp.randomness.key import Key

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
    for name in ("flat_blocks", "shrunken_tree", "holdout_mean", "pegasus", "dpcrpy"):
        monkeypatch.setitem(experiments.SYSTEMS, name, None)  # taken out again afterwards
    plans.register()
    specification = experiments.from_table(
        {
            "epsilons": [1.0],
            "metrics": ["mse", "parts"],
            "holdout": 2000,
            "max_range": 4096,
            "datasets": [{"name": "POS", "generator": "table1", "stream": "pos", "n": 6096}],
            "mechanisms": mechanisms(),
            "workloads": [{"kind": "random_ranges", "count": 20, "max_range": 500}],
        }
    )
    frame = experiments.load(experiments.run(specification, tmp_path / "out"))
    assert set(frame["mechanism"]) == {table["name"] for table in mechanisms()}
    assert frame["error"].isna().all()
    assert (frame["mse"] > 0.0).all()
