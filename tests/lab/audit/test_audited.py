"""Every mechanism is consistent with its claim, and every negative control is caught (``docs/audit.md``)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

import fastdp
from benchmarks.audit import __main__ as long_audit
from benchmarks.audit import catalogue
from benchmarks.shared import call
from fastdp.auditing.run import draws_trials
from fastdp.thresholds import noisy_max as noisy_max_rule
from fastdp_lab.audit import Case, audit_cases
from tests import stat

SHIPPED = {case.name: case for case in (*audit_cases(), *catalogue.parts(1.0))}
CONTROLS = {case.name.removeprefix("control-"): case for case in catalogue.negative_controls()}
#: One of each kind; the others are statistical.
QUICK = {"count", "noisy-max-laplace", "local-piecewise", "tops-holdout", "pak-lag-sum", "counter-binary"}
QUICK_CONTROLS = {
    *("half-count", "half-local-piecewise", "half-hierarchy-nodes", "theta-missing"),
    *("floating-point", "piecewise-leak"),
}
#: Runs that catch a control, where the usual number is too small or larger than needed.
CATCHING = {
    "half-noisy-max-laplace": 300_000,
    "half-hierarchy": 100_000,
    "half-counter-binary-settling": 100_000,
    "half-tops-holdout": 100_000,
    "half-tops-levels": 100_000,
    "hierarchy-three-quarters": 100_000,
    "rising-first-noise": 600,
    "half-w-event-uniform": 10_000,
}
#: These need more runs than a test may take: only ``python -m benchmarks.audit`` audits them.
LONG = {
    *("one-event", "half-adaptive-rising"),
    *(f"half-tops-{name}" for name in ("withheld", "refined")),
    *(f"half-pak-{name}" for name in ("tree", "lag-sums")),
    *(f"half-phdstream-{name}" for name in ("two-events", "adaptive", "adaptive-two-events", "adaptive-planted")),
    *("half-release-many", "half-w-event-absorption", "half-totals-gaussian", "half-totals-persons"),
    "half-counts-public-keys",
    *(f"half-stream-{name}" for name in ("flat-gaussian", "hierarchy-gaussian", "toeplitz")),
}


def run(case: Case, runs: int, seed: int) -> fastdp.auditing.AuditResult:
    return fastdp.audit(
        case.mechanism,
        case.x,
        case.x_adjacent,
        trials=runs,
        events=case.events or "auto",
        confidence=1 - stat.ALPHA,
        seed=seed,
    )


def quick(names: Iterable[str], kept: set[str]) -> list[Any]:
    return [pytest.param(name, marks=[] if name in kept else pytest.mark.statistical) for name in names]


@pytest.mark.parametrize("name", quick(SHIPPED, QUICK))
def test_shipped_mechanisms_are_consistent_with_their_claims(name: str) -> None:
    case = SHIPPED[name]
    result = run(case, 20_000 if draws_trials(case.mechanism) else 400, stat.seed(301))
    assert result.epsilon is not None
    stat.accept(0.0 if result.violated else 1.0)
    assert result.verdict == ("claim violated" if result.violated else "consistent with the claim")


@pytest.mark.parametrize("name", quick([name for name in CONTROLS if name not in LONG], QUICK_CONTROLS))
def test_negative_controls_are_caught(name: str) -> None:
    case = CONTROLS[name]
    usual = 20_000 if draws_trials(case.mechanism) else 3_000
    stat.reject(0.0 if run(case, CATCHING.get(name, usual), stat.seed(302)).violated else 1.0)


def test_the_kept_results_have_these_rows() -> None:
    results, jobs = json.loads(long_audit.RESULTS.read_text()), long_audit.all_jobs(None, 1)
    for group in long_audit.GROUPS:
        assert list(results[group]) == list(jobs[group])
        # A failed row names what was wrong.
        verdicts = {name: row["verdict"] for name, row in results[group].items()}
        wrong = [name for name, verdict in verdicts.items() if (verdict == "caught") != long_audit.is_control(name)]
        assert not wrong
    assert {*QUICK, *QUICK_CONTROLS, *CATCHING, *LONG} <= {*SHIPPED, *CONTROLS}


def test_rows_are_put_among_the_kept_ones() -> None:
    order = {group: ["first", "second"] if group == "exact" else [] for group in long_audit.GROUPS}
    once = long_audit.with_rows({}, {"exact": {"second": {"trials": "2"}}}, order)
    assert long_audit.with_rows(once, {}, order) == once
    both = long_audit.with_rows(once, {"exact": {"first": {"trials": "1"}}, "shipped": {"second": {}}}, order)
    assert list(both["exact"].items()) == [("first", {"trials": "1"}), ("second", {"trials": "2"})]
    assert both["shipped"] == {}


def test_the_long_audit_fails_where_a_control_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("audit", long_audit.main, ["count", "control-half-count", "--trials", "3000", "--seed", "1"]) == 0
    assert call("audit", long_audit.main, ["control-half-noisy-max-laplace", "--trials", "200", "--seed", "1"]) == 1
    out, err = capsys.readouterr()
    assert out.count("consistent |") == out.count("| caught |") == out.count("| NOT CAUGHT |") == 1
    assert "not as expected: control-half-noisy-max-laplace" in err
    with pytest.raises(SystemExit):
        call("audit", long_audit.main, ["nope"])


def test_two_looks_share_no_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[str] = []
    right = long_audit.audited

    def line(case, trials, seed):
        seeds.append(seed)
        return right(case, trials, seed)

    monkeypatch.setattr(long_audit, "audited", line)
    long_audit.caught(CONTROLS["half-noisy-max-laplace"], 4_000, 1)
    assert len(set(seeds)) == len(seeds) > 1


@pytest.mark.parametrize(
    ("method", "name", "x", "x_adjacent"),
    [
        ("choices", "noisy-max-laplace", [0, 0, 0], [4, 0, 0]),
        ("choose_rows", "tops-holdout", [0, 0, 0, 0, 4], [4, 0, 0, 0, 4]),
        pytest.param(
            "choose",
            "tops-withheld",
            [[4] * 4, [0, 0], [0] * 4],
            [[4] * 4, [0, 0], [4, 0, 0, 0]],
            marks=pytest.mark.statistical,
        ),
    ],
)
def test_noise_that_is_lost_in_the_shipped_choice_is_caught(
    monkeypatch: pytest.MonkeyPatch, method: str, name: str, x, x_adjacent
) -> None:
    """Scores keep their penalties and only the noise is a fiftieth."""
    right = getattr(noisy_max_rule._NoisyMaxChooser, method)

    def weaker(chooser, *arguments):
        chooser._epsilon *= 50
        try:
            return right(chooser, *arguments)
        finally:
            chooser._epsilon /= 50

    case = replace(SHIPPED[name], x=x, x_adjacent=x_adjacent)
    assert not run(case, 1_000, stat.seed(308)).violated
    monkeypatch.setattr(noisy_max_rule._NoisyMaxChooser, method, weaker)
    assert run(case, 1_000, stat.seed(308)).violated
