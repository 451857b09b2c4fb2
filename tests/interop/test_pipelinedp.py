"""PipelineDP's calls on rows in memory, where that package is installed."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

import fastdp
from fastdp.errors import DataError, ParameterError
from fastdp.interop.pipelinedp import DPEngine

pipeline_dp = pytest.importorskip("pipeline_dp")
report_generator = pytest.importorskip("pipeline_dp.report_generator")
Metrics = pipeline_dp.Metrics
LISTED = [
    Metrics.COUNT,
    Metrics.SUM,
    Metrics.MEAN,
    Metrics.VARIANCE,
    Metrics.PRIVACY_ID_COUNT,
    Metrics.PERCENTILE(50),
]
ROWS = [(f"p{i % 2_000}", f"k{i % 7}", float(i % 5)) for i in range(14_000)]
TAKE = pipeline_dp.DataExtractors(
    privacy_id_extractor=lambda row: row[0],
    partition_extractor=lambda row: row[1],
    value_extractor=lambda row: row[2],
)


def params(metrics=LISTED, **given):
    usual = {"max_partitions_contributed": 7, "max_contributions_per_partition": 1, "min_value": 0, "max_value": 4}
    return pipeline_dp.AggregateParams(metrics=list(metrics), **{**usual, **given})


def released(asked, public, epsilon=200.0, delta=1e-6, rows=ROWS):
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=delta)
    found = DPEngine(accountant).aggregate(rows, asked, TAKE, public)
    accountant.compute_budgets()
    return dict(found)


@pytest.mark.parametrize("noise", ["LAPLACE", "GAUSSIAN"])
@pytest.mark.parametrize("public", [None, ["k0", "k3", "unknown"]])
def test_metrics_have_their_names_and_are_near_the_truth(noise, public) -> None:
    kind = getattr(pipeline_dp.NoiseKind, noise)
    found = released(params(noise_kind=kind), public)
    assert sorted(found) == sorted(public or [f"k{i}" for i in range(7)])
    counted = Counter(key for _, key, _ in ROWS)
    for key in set(found) - {"unknown"}:
        values = np.array([value for _, other, value in ROWS if other == key])
        of = found[key]
        assert of.count == pytest.approx(counted[key], rel=0.02)
        assert of.sum == pytest.approx(values.sum(), rel=0.05)
        assert of.mean == pytest.approx(values.mean(), rel=0.05)
        assert of.variance == pytest.approx(values.var(), rel=0.1)
        assert of.privacy_id_count == pytest.approx(2_000, rel=0.02)
        assert abs(of.percentile_50 - 2.0) <= 1.0


def test_aggregations_share_the_budget_by_weight_and_run_when_asked() -> None:
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1.0, total_delta=1e-6)
    engine = DPEngine(accountant, pipeline_dp.LocalBackend())
    asked = [params([Metrics.COUNT], noise_kind=pipeline_dp.NoiseKind.LAPLACE, budget_weight=w) for w in (1, 3)]
    rows = [(i, "k", 1.0) for i in range(1_000)]
    pairs = [engine.aggregate(rows, each, TAKE, ["k"]) for each in asked]
    early = engine.aggregate(rows, asked[0], TAKE, ["k"])
    with pytest.raises(ParameterError, match=r"expected accountant.compute_budgets\(\) first"):
        list(early)
    accountant.compute_budgets()
    assert [spec.eps for spec in accountant.mechanism_specs] == pytest.approx([0.2, 0.6, 0.2])
    assert list(early) == list(early)
    (key, metrics), *more = pairs[1]
    assert (key, more) == ("k", [])
    assert metrics._fields == ("count",)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"metrics": [Metrics.VECTOR_SUM], "vector_size": 2, "vector_max_norm": 1.0}, "vector_size"),
        ({"metrics": [Metrics.SUM], "min_value": None, "max_value": None,
          "min_sum_per_partition": 0, "max_sum_per_partition": 2}, "min_sum_per_partition"),
        ({"metrics": []}, "metrics"),
    ],
)  # fmt: skip
def test_what_is_not_here_is_refused_before_the_budget(given, named) -> None:
    accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=1.0, total_delta=1e-6)
    with pytest.raises(ParameterError, match=f"^{named} = "):
        DPEngine(accountant).aggregate(ROWS, params(**given), TAKE, ["k0"])
    assert not accountant.mechanism_specs


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([(1, "a", 1.0), (1, "a", "SECRET")], "value: expected numbers"),
        ([(1, "a", 1.0), (1, 2.5, 1.0)], "partition: expected texts"),
        ([([1], "a", 1.0)], "privacy_id: expected entries with a hash"),
    ],
)
def test_errors_name_a_column_and_no_entry(rows, named) -> None:
    with pytest.raises(DataError, match=f"^{named}") as raised:
        released(params([Metrics.SUM]), ["a"], rows=rows)
    assert "SECRET" not in str(raised.value)
    with pytest.raises(ParameterError, match=r"^budget_accountant is a list: expected a pipeline_dp"):
        DPEngine([])


def test_bounds_of_persons_are_those_of_fastdp() -> None:
    crowd = [(i % 200, "k0", 4.0) for i in range(1_000)]
    asked = params([Metrics.COUNT], max_partitions_contributed=1, noise_kind=pipeline_dp.NoiseKind.LAPLACE)
    with pytest.warns(fastdp.errors.AccuracyWarning, match="dropped"):
        found = released(asked, ["k0"], rows=crowd)
    # Of five rows of a person one counts; the others are estimated.
    assert found["k0"].count == pytest.approx(1_000, rel=0.2)


def test_a_program_changes_its_import_alone() -> None:
    """Names, places of metrics and the report are the package's."""
    from fastdp.interop import pipelinedp as changed

    asked = [
        LISTED,
        [Metrics.SUM, Metrics.COUNT, Metrics.MEAN],
        [Metrics.PRIVACY_ID_COUNT, Metrics.SUM, Metrics.COUNT],
    ]
    fields = []
    for theirs, listed in itertools.product((pipeline_dp, changed), asked):
        accountant = theirs.NaiveBudgetAccountant(total_epsilon=100, total_delta=1e-6)
        report = report_generator.ExplainComputationReport()
        found = theirs.DPEngine(accountant, theirs.LocalBackend()).aggregate(
            ROWS,
            params(listed, noise_kind=theirs.NoiseKind.LAPLACE),
            TAKE,
            public_partitions=["k0"],
            out_explain_computation_report=report,
        )
        with pytest.raises(ValueError, match="compute_budget"):
            report.text()
        accountant.compute_budgets()
        assert "sum" in report.text().lower()
        ((key, metrics),) = found
        assert key == "k0"
        fields.append(metrics._fields)
    assert fields[:3] == fields[3:]
    with pytest.raises(AttributeError):
        _ = changed.NoSuchName
