"""Every mechanism that enters the suites: unit, budget, determinism of the key, shapes; and verdicts on claims."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

from fastdp.errors import ParameterError
from fastdp_lab.mechanism import UNITS, Answer, Mechanism, registered
from fastdp_lab.sweeps.claims import Claim, decide
from fastdp_lab.sweeps.systems import OURS

pd = pytest.importorskip("pandas", reason="pandas is not installed")

# Inputs are short on purpose.
pytestmark = pytest.mark.filterwarnings("ignore::fastdp.errors.AccuracyWarning")

HERE = Path(__file__).parent
MECHANISMS = registered()
# Few persons: noise of the others hides what one loses.
STEPS, W, PERSONS = 64, 4, 8
#: Runs of each of two neighbours, and the probability that a mechanism that keeps its budget fails.
RUNS, ALARM = 800, 1e-8


def public_of(unit: str, size: int, bound: int = 8) -> dict[str, Any]:
    if unit == "points":
        return {"times": np.arange(size) * 4 // STEPS}
    held = 0 if unit in ("series", "local") else STEPS // 4
    w = {"w-event": W, "local": W, "series": STEPS}.get(unit, 1)
    return {"bound": bound, "sensitivity": float(bound), "w": w, "holdout": held, "max_range": STEPS - held}


def neighbours(unit: str, bound: int = 8) -> tuple[Any, Any, Any]:
    """Two inputs that differ in one unit as much as they can, and a statistic that sees it."""
    if unit == "points":
        far = np.full((STEPS, 2), 0.9)
        far[-1] = 0.1
        return far[:-1], far, lambda found: float((found < 0.5).all(axis=1).sum())
    if unit == "local":
        low = np.zeros((STEPS, PERSONS), np.int64)
        high = low.copy()
        high[:W, 0] = bound
        return low, high, lambda found: float(found[:W].sum())
    low, start = np.zeros(STEPS, np.int64), STEPS // 2
    length = {"event": 1, "w-event": W, "series": STEPS}[unit]
    changed = slice(0, STEPS) if length == STEPS else slice(start, start + length)
    high = low.copy()
    high[changed] = bound
    return low, high, lambda found: float(found[changed].sum())


def released(mechanism: Mechanism, values: Any, key: int, epsilon: float = 1.0) -> Any:
    found = mechanism.run(values, epsilon, key.to_bytes(32, "big"), **public_of(mechanism.unit, len(values)))
    return found.values if isinstance(found, Answer) else found


def test_the_units_that_suites_need_have_contestants() -> None:
    assert {each.unit for each in MECHANISMS.values()} <= set(UNITS)
    assert "event" in {each.unit for each in MECHANISMS.values()}


@pytest.mark.parametrize("name", MECHANISMS)
def test_an_answer_follows_from_its_key(name: str) -> None:
    mechanism = MECHANISMS[name]
    assert len(mechanism.source) > 10
    _, values, _ = neighbours(mechanism.unit)
    if mechanism.unit == "local":
        # Eight persons who say the same may get the same answer.
        values = np.random.default_rng(1).integers(0, 9, (STEPS, 60))
    kept = values.copy()
    first, again, other = (released(mechanism, values, key, 8.0) for key in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert first.shape != other.shape or (first != other).any()
    np.testing.assert_array_equal(values, kept)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "name", [name for name, each in MECHANISMS.items() if each.breaks is None and name not in OURS]
)
def test_neighbours_are_not_told_apart_by_more_than_the_budget(name: str) -> None:
    """A lower bound on epsilon from runs; those that break their claim say so, fastdp's own are audited elsewhere."""
    assert least_epsilon(MECHANISMS[name], 1.0) <= 1.0


def least_epsilon(mechanism: Mechanism, epsilon: float) -> float:
    """Clopper-Pearson's lower bound from the best of some thresholds, chosen on the first half of the runs."""
    low, high, statistic = neighbours(mechanism.unit)
    runs = [
        np.array([statistic(released(mechanism, values, begin + k, epsilon)) for k in range(RUNS)])
        for begin, values in ((10**6, low), (2 * 10**6, high))
    ]
    (first, second), half = runs, RUNS // 2
    cuts = np.quantile(np.concatenate([first[:half], second[:half]]), np.linspace(0.05, 0.95, 19))
    part = [np.array([(each[:half] > cut).mean() for cut in cuts]) for each in (first, second)]
    cut = cuts[np.argmax(np.log((part[1] + 0.01) / (part[0] + 0.01)))]
    tests = RUNS - half
    count = [int((each[half:] > cut).sum()) for each in (first, second)]
    # Half of the probability of an alarm for each of the two.
    most = beta.ppf(1 - ALARM / 2, count[0] + 1, tests - count[0]) if count[0] < tests else 1.0
    least = beta.ppf(ALARM / 2, count[1], tests - count[1] + 1) if count[1] else 0.0
    return float(np.log(max(least, 1e-300) / most))


@pytest.mark.statistical
def test_a_mechanism_with_too_little_noise_is_told() -> None:
    def release(values: Any, epsilon: float, key: bytes, *, bound: int) -> Any:
        noise = np.random.default_rng(int.from_bytes(key, "big")).laplace(0.0, bound / (4.0 * epsilon), values.size)
        return values + noise

    assert least_epsilon(Mechanism("too loud", "event", release, "tests of fastdp"), 1.0) > 1.0


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda values, epsilon, key: values, "int64[64]: expected finite float64[64]"),
        (lambda values, epsilon, key: values[1:] * 1.0, "float64[63]"),
        (lambda values, epsilon, key: values * np.inf, "float64[64] with NaN or infinity: expected finite"),
    ],
)
def test_answers_of_another_shape_are_refused(answer: Any, said: str) -> None:
    mechanism = Mechanism("wrong", "event", answer, "tests of fastdp")
    with pytest.raises(ParameterError) as found, np.errstate(invalid="ignore"):
        mechanism.run(np.zeros(64, np.int64), 1.0, bytes(32), **public_of("event", 64))
    assert said in str(found.value)


def test_declarations_are_checked() -> None:
    for given, said in (
        (("x", "user", len, "s"), "unit = 'user': expected one of"),
        (("", "event", len, "s"), "name = '': expected a text"),
        (("x", "event", 3, "s"), "release = 3: expected a function"),
        (("x", "event", lambda values, epsilon, key: values, "s", {"more": 1}), "release has no {'more'}"),
    ):
        with pytest.raises(ParameterError) as found:
            Mechanism(*given)  # type: ignore[arg-type]
        assert said in str(found.value)


SPECIFICATION = """
name = "Strangers"
epsilons = [1.0]
holdout = 100
max_range = 500
metrics = ["mse", "coverage"]
unit = "event"
[[datasets]]
name = "POS"
generator = "table1"
stream = "pos"
n = 600
[[mechanisms]]
unit = "event"
[[workloads]]
kind = "random_ranges"
"""


@pytest.mark.slow
def test_a_mechanism_of_a_stranger_is_run_and_in_the_page(tmp_path: Path) -> None:
    (tmp_path / "spec.toml").write_text(SPECIFICATION)
    path = os.pathsep.join([str(HERE / "stranger"), *(each for each in sys.path if each)])
    command = "from fastdp_lab.cli.bench_command import bench; bench()"
    given = [str(tmp_path / "spec.toml"), "-o", str(tmp_path / "out"), "--archive"]
    done = subprocess.run(
        [sys.executable, "-c", command, *given],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = pd.read_parquet(tmp_path / "out" / "results.parquet")
    assert set(rows["mechanism"]) > {"stranger's cells", "Laplace"}
    mine = rows[rows["mechanism"] == "stranger's cells"]
    assert mine["error"].isna().all()
    assert mine["coverage"].iloc[0] > 0.9
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("stranger&#x27;s cells") >= 2, "in the table, and with its source"
    assert "<td>stranger</td><td>1.0</td>" in page, "its version"
    assert "tests of fastdp" in page
    assert (tmp_path / "out.zip").stat().st_size > 1000
    assert "stranger's cells" not in MECHANISMS


def frame(**errors: tuple[float, ...]) -> Any:
    """Errors of repetitions by mechanism, the same in two data sets."""
    return pd.DataFrame(
        [
            {"dataset": name, "epsilon": 1.0, "workload": "w", "group": "all", "repetition": k}
            | {"mechanism": mechanism, "mse": error}
            for name in "ab"
            for mechanism, every in errors.items()
            for k, error in enumerate(every)
        ]
    )


@pytest.mark.parametrize(
    ("worse", "rule", "found"),
    [
        ((20.0, 22.0, 21.0), {"least": 10.0}, "agrees"),
        ((20.0, 22.0, 21.0), {"least": 30.0}, "differs"),
        ((20.0, 22.0, 21.0), {"least": 5.0, "most": 15.0}, "differs"),
        ((1.0, 40.0, 22.0), {"least": 10.0}, "open"),
    ],
)
def test_the_rule_decides(worse: tuple[float, ...], rule: dict[str, float], found: str) -> None:
    verdict = decide(Claim("a is better", "a", "b", **rule), frame(a=(1.0, 1.0, 1.0), b=worse))
    assert verdict.found == found
    assert (verdict.cells, verdict.repetitions) == (2, 3)
    assert verdict.ratios == pytest.approx([21.0] * 3)


def test_repetitions_are_paired() -> None:
    """Both errors rise and fall together: the ratio is known well."""
    found = decide(Claim("a is better", "a", "b", least=1.9), frame(a=(1.0, 2.0, 3.0), b=(2.0, 4.0, 6.1)))
    assert found.found == "agrees"


def test_one_repetition_leaves_a_claim_open() -> None:
    assert decide(Claim("a is better", "a", "b"), frame(a=(1.0,), b=(20.0,))).found == "open"


def test_entry_points_without_mechanisms_and_names_of_systems_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "from fastdp_lab.mechanism import Mechanism\nNUMBER = 3\n"
        "def copy(values, epsilon, key): return values * 1.0\n"
        "TAKEN = [Mechanism(name, 'event', copy, 'tests') for name in ('tops', 'phdstream', 'mine')]\n"
    )
    facts = tmp_path / "odd-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[fastdp.mechanisms]\na = odd:NUMBER\nb = odd:TAKEN\n")
    code = (
        "from fastdp_lab.mechanism import registered\n"
        "from fastdp_lab.sweeps.systems import value_systems\n"
        "print({'Laplace', 'mine'} <= set(registered()), {'tops', 'phdstream'} & set(registered()))\n"
        "print(len(value_systems()))\n"
    )
    path = os.pathsep.join([str(tmp_path), *(each for each in sys.path if each)])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("True set()")
    for said in ("odd:NUMBER: TypeError", "'tops' is a name that is taken", "'phdstream' is a name that is taken"):
        assert said in done.stderr


@pytest.mark.parametrize("name", ["Uniform", "binary tree", "Laplace, series", "EFPA", "PeGaSus", "kd-hybrid", "UG"])
def test_an_epsilon_without_parts_is_refused(name: str) -> None:
    mechanism = MECHANISMS[name]
    with pytest.raises(ParameterError, match=r"^epsilon: a share of it is below"):
        released(mechanism, neighbours(mechanism.unit)[1], 1, 1e-8)


def test_a_report_that_hangs_on_those_before_the_window_is_told() -> None:
    """With equal noise a person's first value changes no report behind the window, or the mechanism says so."""
    low = np.zeros((STEPS, PERSONS), np.int64)
    high = low.copy()
    high[0] = 8
    for name in ("SR", "PM", "HM", "SW+EM", "CAPP"):
        first, second = (released(MECHANISMS[name], values, 1)[W + 1 :] for values in (low, high))
        assert MECHANISMS[name].breaks or np.array_equal(first, second), name


def test_noise_by_the_bound_where_the_sensitivity_is_smaller_is_told() -> None:
    for each in registered("event").values():
        assert "sensitivity" in inspect.signature(each.release).parameters or "by the bound" in each.source


def test_nobody_reports_twice_where_persons_are_few() -> None:
    with pytest.raises(ParameterError, match=r"^w = 4: expected at most the 3 persons"):
        released(MECHANISMS["LPU"], np.zeros((STEPS, 3), np.int64), 1)
