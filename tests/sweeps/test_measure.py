"""Errors and their parts against the definition, one value at a time; runs against publishers used by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fastdp
import fastdp_lab
from fastdp.errors import DataError, ParameterError
from fastdp.noise.key import Key
from fastdp.smoothers import Mean, MovingAverage, Recent
from fastdp_lab import queries, sweeps
from fastdp_lab.sweeps import SYSTEMS, RunResult
from fastdp_lab.sweeps.specification import parts, query_seed, run_part
from fastdp_lab.sweeps.study import DataSet, load_truth
from fastdp_lab.sweeps.systems import value_systems
from fastdp_lab.sweeps.values import Values, Workload, columns, measure, split_errors
from tests.oracles.sweep import split_error

PREDICT = {
    "recent": (Recent(), lambda means: means[-1]),
    "mean": (Mean(), lambda means: sum(means) / len(means)),
    "moving": (MovingAverage(3), lambda means: sum([10.0, *means][-3:]) / len([10.0, *means][-3:])),
}


@pytest.fixture
def scene(small):
    data_set = sweeps.from_table(small).datasets[1]
    return load_truth(data_set, Path())


@pytest.mark.parametrize("name", list(PREDICT))
def test_parts_are_as_defined_and_sum_to_the_error(scene, name) -> None:
    smoother, predict = PREDICT[name]
    publisher = fastdp.StreamPublisher(
        threshold=fastdp.thresholds.Fixed(20.0), perturber=fastdp.perturbers.Hierarchy(16, prune=1),
        smoother=smoother, epsilon=0.7, bound=1657, max_range=2048, seed=1,
    )  # fmt: skip
    release = publisher.release(scene.body)
    assert scene.body.size % release.block, "the last block must be open"
    starts = np.array([0, 0, 5, 16, 17, 100, 2490, 2495, 0])
    stops = np.array([1, 16, 9, 32, 31, 2300, 2499, 2500, 2500])
    outcome = RunResult(release.sum, release.threshold, release.block, smoother)
    errors = release.sum(starts, stops) - (scene.prefix[stops] - scene.prefix[starts])
    split = split_errors(scene, outcome, starts, stops, errors)
    np.testing.assert_allclose(
        split["noise"] + split["truncation"] + split["smoothing"], errors, rtol=1e-12, atol=1e-9
    )
    for k, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        want = split_error(scene.body.tolist(), release.values, 20.0, 16, predict, start, stop)
        found = (split["noise"][k], split["truncation"][k], split["smoothing"][k])
        np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-6)
    assert np.any(split["smoothing"] != 0.0)
    assert split["smoothing"][1] == split["smoothing"][3] == 0.0, "whole blocks are not smoothed"


def test_rows_are_the_metrics_of_their_queries(small, scene) -> None:
    found = sweeps.from_table(small)
    asked = found.workloads[0]
    range_starts, range_stops, _ = asked.draw(scene.size, 2048, 9)
    release = fastdp.ToPS(0.5, 1657, 500, 2048, seed=2).release(scene.values)
    outcome = RunResult(release.sum, release.threshold, release.block, Recent())
    names = columns(found.metrics)
    rows = {label: (count, dict(zip(names, row, strict=True))) for label, count, row in
            (row[1:] for row in measure(found, scene, asked, 9, outcome))}  # fmt: skip
    lengths = range_stops - range_starts
    for label, which in (
        ("all", lengths > 0),
        ("[1, 10)", lengths < 10),
        ("[10, 1000)", (lengths >= 10) & (lengths < 1000)),
        ("[1000, ...)", lengths >= 1000),
    ):
        if not which.any():
            assert label not in rows
            continue
        starts, stops = range_starts[which], range_stops[which]
        truth = np.array([scene.body[a:b].sum() for a, b in zip(starts, stops, strict=True)])
        answers = release.sum(starts, stops)
        count, row = rows[label]
        assert count == which.sum()
        assert row["mse"] == pytest.approx(queries.mse(truth, answers))
        assert row["mae"] == pytest.approx(queries.mae(truth, answers))
        assert row["mmse"] == pytest.approx(queries.mmse(truth, answers, stops - starts))
        assert row["mmae"] == pytest.approx(queries.mmae(truth, answers, stops - starts))
        assert row["relative_error"] == pytest.approx(queries.relative_error(truth, answers, 1.0))
        total = row["noise_mean"] + row["truncation_mean"] + row["smoothing_mean"]
        assert total == pytest.approx(row["answer"] - row["truth"])
    assert set(rows) >= {"all", "[1000, ...)"}


def test_queries_are_shared_by_mechanisms_and_new_in_each_repetition(small) -> None:
    found = sweeps.from_table(small)
    root, first, second = Key.from_seed(3), *found.datasets
    free, fixed, renamed = Workload(name="w"), Workload(name="w", fixed=True), Workload(name="renamed")

    def seed(workload: Workload, data_set: DataSet, repetition: int) -> int:
        return query_seed(root, workload, data_set, repetition)

    seeds = {seed(free, each, k) for each in (first, second) for k in range(3)}
    assert len(seeds) == 6
    assert seed(fixed, first, 0) == seed(fixed, first, 5)
    assert seed(free, first, 1) == seed(renamed, first, 1)


def test_a_cell_is_what_the_publisher_releases_under_its_key(small, scene) -> None:
    """Hold-outs are shown to the threshold once for all repetitions; nothing may change by that."""
    found = sweeps.from_table(small)
    root = Key.from_seed(found.seed)
    starts, stops = np.array([0, 3, 700]), np.array([2500, 900, 701])
    seen = set()
    for group in dict.fromkeys(group for part in parts(found) for group, _ in part.cells):
        if group.data_set != scene.data_set:
            continue
        setting = sweeps.Setting(1657.0, 500, scene.size, 2048, group.epsilon)
        run = SYSTEMS[group.mechanism.system].build(setting, **group.mechanism.parameters)(scene.values)
        for repetition in (4, 0, 1):
            key = group.key(root, repetition)
            outcome = run(key)
            common = {"epsilon": group.epsilon, "bound": 1657.0, "holdout": 500, "key": key}
            ranged = {**common, "max_range": 2048}
            publishers = {
                "ToPS, prune=0": (fastdp.ToPS, {**ranged, "prune": 0}),
                "ToPS, prune=1": (fastdp.ToPS, {**ranged, "prune": 1}),
                "ToPL": (fastdp.ToPL, ranged),
                "running": (fastdp.PAK, {**common, "delta": 1.0 / 3000**2, "length": 3000}),
                "Base": (fastdp_lab.baselines.Zeros, {"holdout": 500}),
            }
            if group.mechanism.name in publishers:
                kind, arguments = publishers[group.mechanism.name]
                release = kind(**arguments).release(scene.values)
                np.testing.assert_array_equal(outcome.answer(starts, stops), release.sum(starts, stops))
                assert outcome.theta == release.threshold
                seen.add(group.mechanism.name)
    assert len(seen) == 5


@pytest.mark.parametrize("bound", [1657.0, 100.0, 33.3])
def test_a_threshold_above_the_bound_is_what_the_publisher_releases(small, scene, bound: float) -> None:
    """Values stay within the bound, and so does what the parts of the error presume."""
    parameters = {"threshold": {"part": "PAKQuantile", "p": 0.995, "clip": False}, "perturber": {"part": "Flat"}}
    narrow = Values(replace(scene.data_set, bound=bound), scene.values)
    setting = sweeps.Setting(bound, 500, scene.body.size, 2048, 0.05)
    key = Key.from_seed(1)
    outcome = SYSTEMS["publisher"].build(setting, **parameters)(scene.values)(key)
    parts = {"threshold": fastdp.thresholds.PAKQuantile(0.995, clip=False), "perturber": fastdp.perturbers.Flat()}
    publisher = fastdp.StreamPublisher(**parts, epsilon=0.05, bound=bound, holdout=500, max_range=2048, key=key)
    release = publisher.release(scene.values)
    asked = Workload(name="w", count=40)
    starts, stops, _ = asked.draw(scene.size, 2048, 9)
    assert outcome.theta == release.threshold > bound
    np.testing.assert_array_equal(outcome.answer(starts, stops), release.sum(starts, stops))
    exact = {**parameters, "publish_epsilon": 1e6}
    run, ratios = SYSTEMS["publisher"].build(setting, **exact)(scene.values), []
    for seed in range(40):
        truncated = run(Key.from_seed(seed))
        ((*_, row),) = measure(sweeps.from_table(small), narrow, asked, 9, truncated)
        by_name = dict(zip(columns(sweeps.from_table(small).metrics), row, strict=True))
        noise = 2.0 * (truncated.theta / 1e6) ** 2 * np.mean(stops - starts)
        ratios.append(by_name["noise_mse"] / noise)
    assert np.mean(ratios) == pytest.approx(1.0, rel=0.5)


def test_a_worker_with_other_values_refuses(small) -> None:
    found = sweeps.from_table(small)
    part = next(parts(found))
    digest = load_truth(part.cells[0][0].data_set, Path()).facts["sha256"]
    assert repr(run_part(found, part, Path(), digest)) == repr(run_part(found, part, Path()))
    with pytest.raises(DataError, match="a worker has other values"):
        run_part(found, part, Path(), "0" * 32)


def test_a_mechanism_without_a_threshold_and_blocks_that_follow_have_no_parts_of_noise(small, scene) -> None:
    small["mechanisms"], small["max_range"] = [{"system": "binary tree"}], 256
    found, asked = sweeps.from_table(small), Workload(name="w", count=9)
    setting = sweeps.Setting(1657.0, 500, scene.size, 256, 1.0)
    blocks = {"threshold": {"part": "NoisyMax"}, "perturber": {"part": "Blocks"}}
    for system, parameters in (("publisher", blocks), ("binary tree", {})):
        outcome = value_systems()[system].build(setting, **parameters)(scene.values)(Key.from_seed(1))
        ((*_, row),) = measure(found, scene, asked, 9, outcome)
        by_name = dict(zip(columns(found.metrics), row, strict=True))
        assert np.isnan(by_name["noise_mse"])
        assert np.isnan(by_name["smoothing_mse"])
        assert np.isnan(by_name["truncation_mse"]) == (parameters is not blocks)
        assert by_name["mse"] > 0.0
    with pytest.raises(ParameterError, match="no one threshold to clip at"):
        next(measure(replace(found, truth="clipped"), scene, asked, 1, outcome))
