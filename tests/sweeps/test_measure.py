"""Errors against the definition, one value at a time; runs against publishers used by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fastdp
import fastdp_lab
from fastdp.errors import DataError, ParameterError
from fastdp.noise.key import Key
from fastdp_lab import queries, sweeps
from fastdp_lab.sweeps import SYSTEMS, RunResult
from fastdp_lab.sweeps.specification import parts, query_seed, run_part
from fastdp_lab.sweeps.study import DataSet, load_truth
from fastdp_lab.sweeps.systems import value_systems
from fastdp_lab.sweeps.values import Values, Workload, columns, measure


@pytest.fixture
def scene(small):
    data_set = sweeps.from_table(small).datasets[1]
    return load_truth(data_set, Path())


def test_rows_are_the_metrics_of_their_queries(small, scene) -> None:
    found = sweeps.from_table(small)
    asked = found.workloads[0]
    range_starts, range_stops, _ = asked.draw(scene.size, 2048, 9)
    release = fastdp.ToPS(0.5, 1657, 500, 2048, seed=2).release(scene.values)
    outcome = RunResult(release.sum, release.threshold)
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
        above = scene.body - scene.body.clip(0.0, outcome.theta)
        removed = [above[a:b].sum() for a, b in zip(starts, stops, strict=True)]
        assert row["truncation_mean"] == pytest.approx(-np.mean(removed))
        assert row["truncation_mse"] == pytest.approx(np.mean(np.square(removed)))
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
    """Values stay within the bound, and so does what truncation presumes."""
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
    exact, keys = {**parameters, "publish_epsilon": 1e6}, map(Key.from_seed, range(40))
    run = SYSTEMS["publisher"].build(setting, **exact)(scene.values)
    found = replace(sweeps.from_table(small), truth="clipped", metrics=("mse",))
    errors = [next(measure(found, narrow, asked, 9, result))[3][2] / result.theta**2 for result in map(run, keys)]
    assert np.mean(errors) == pytest.approx(2.0 * np.mean(stops - starts) / 1e12, rel=0.5)


def test_a_worker_with_other_values_refuses(small) -> None:
    found = sweeps.from_table(small)
    part = next(parts(found))
    digest = load_truth(part.cells[0][0].data_set, Path()).facts["sha256"]
    assert repr(run_part(found, part, Path(), digest)) == repr(run_part(found, part, Path()))
    with pytest.raises(DataError, match="a worker has other values"):
        run_part(found, part, Path(), "0" * 32)


def test_a_mechanism_without_a_threshold_has_no_truncation(small, scene) -> None:
    small["mechanisms"], small["max_range"] = [{"system": "binary tree"}], 256
    found, asked = sweeps.from_table(small), Workload(name="w", count=9)
    setting = sweeps.Setting(1657.0, 500, scene.size, 256, 1.0)
    outcome = value_systems()["binary tree"].build(setting)(scene.values)(Key.from_seed(1))
    ((*_, row),) = measure(found, scene, asked, 9, outcome)
    by_name = dict(zip(columns(found.metrics), row, strict=True))
    assert np.isnan(by_name["truncation_mse"])
    assert by_name["mse"] > 0.0
    with pytest.raises(ParameterError, match="no one threshold to clip at"):
        next(measure(replace(found, truth="clipped"), scene, asked, 1, outcome))


@pytest.mark.parametrize(("part", "draws"), [({"part": "Simple"}, 1), ({"part": "Block", "size": 8}, 2)])
def test_running_sums_have_the_noise_of_their_counter(small, part, draws: int) -> None:
    """By hand: noise on every increment, or a sum that replaces a block's."""
    small["datasets"] = [{"name": "bits", "generator": "panel", "course": "still", "steps": 60, "persons": 1}]
    small["mechanisms"], small["epsilons"], small["repetitions"] = [{"system": "counter", "counter": part}], [0.5], 1
    small["workloads"] = [{"kind": "running_sums", "count": 60}]
    small |= {"metrics": ["mae"], "holdout": 0}
    found = sweeps.from_table(small)
    ((group, _),) = (part := next(parts(found))).cells
    rows = run_part(found, part, Path())
    key = group.key(Key.from_seed(found.seed), 0)
    noise = fastdp.noise.discrete_laplace(draws / 0.5, 60, key=key.reveal()).astype(float)
    error = noise.cumsum()
    if draws == 2:
        error = np.array([noise[7 : t + 1 : 8].sum() + noise[8 * ((t + 1) // 8) : t + 1].sum() for t in range(60)])
    stops = np.array([int(row[7]) for row in rows])
    assert stops[[0, -1]].tolist() == [1, 60]
    np.testing.assert_allclose([row[-2] for row in rows], np.abs(error)[stops - 1])
