"""Verdicts: ratios of means by hand, and Eq. 6 beside the rule that chooses by it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdp_lab import sweeps
from fastdp_lab.sweeps.claims import Claim, as_row, decide

pandas = pytest.importorskip("pandas", reason="pandas is not installed")

#: Errors by mechanism and budget, of two repetitions.
ERRORS = {
    ("A", 1.0): (1.0, 1.0),
    ("A", 2.0): (0.5, 0.5),
    ("B", 1.0): (3.0, 3.0),
    ("B", 2.0): (0.75, 0.75),
    ("loud", 1.0): (1.0, 3.0),
    ("once", 1.0): (9.0,),
    ("F, theta=1", 1.0): (2.0, 2.0),
    ("F, theta=2", 1.0): (8.0, 8.0),
    ("G, theta=2", 1.0): (8.0, 8.0),
    ("G, theta=1", 1.0): (4.0, 4.0),
}


def rows(**more: Any) -> Any:
    found = [
        {"mechanism": name, "epsilon": epsilon, "repetition": k, "mse": error}
        for (name, epsilon), errors in ERRORS.items()
        for k, error in enumerate(errors)
    ]
    same = {"dataset": "D", "workload": "W", "group": "all", "queries": 10, **more}
    return pandas.DataFrame([each | same for each in found])


@pytest.mark.parametrize(
    ("claim", "found", "counts", "ratios"),
    [
        ({"better": "A", "worse": "B"}, "agrees", (2, 0, 2), (1.5, 3.0)),
        ({"better": "A", "worse": "B", "least": 2.0}, "differs", (1, 1, 2), (1.5, 3.0)),
        ({"better": "A", "worse": "B", "least": 2.0, "share": 0.5}, "agrees", (1, 1, 2), (1.5, 3.0)),
        ({"better": "A", "worse": "B", "most": 2.0, "epsilons": (1.0,)}, "differs", (0, 1, 1), (3.0, 3.0)),
        ({"better": "A", "worse": "loud"}, "open", (0, 0, 1), (2.0, 2.0)),
        ({"better": "A", "worse": "once"}, "open", (0, 0, 1), (9.0, 9.0)),
        ({"better": "A", "worse": "A", "better_epsilon": 2.0, "epsilons": (1.0,)}, "agrees", (1, 0, 1), (2.0, 2.0)),
        ({"better": "A", "least": 0.75, "most": 1.0}, "differs", (1, 1, 2), (0.5, 1.0)),
        ({"better": "F", "worse": "G"}, "agrees", (2, 0, 2), (1.0, 2.0)),
        ({"better": "A", "worse": "F"}, "agrees", (2, 0, 2), (2.0, 8.0)),
        ({"better": ("A", "B"), "worse": ("B", "G"), "epsilons": (1.0,)}, "agrees", (6, 0, 6), (1.0, 8.0)),
        ({"better": "A", "worse": "B", "pooled": True, "least": 2.0}, "agrees", (1, 0, 1), (4.5**0.5, 4.5**0.5)),
        ({"better": "A", "worse": "B", "datasets": ("E",)}, "open", (0, 0, 0), None),
    ],
)
def test_means_decide(
    claim: dict[str, Any], found: str, counts: tuple[int, int, int], ratios: tuple[float, float] | None
) -> None:
    verdict = decide(Claim(says="", **claim), rows())
    assert (verdict.found, (verdict.holds, verdict.fails, verdict.cells)) == (found, counts)
    if ratios is not None:
        assert verdict.ratios[::2] == pytest.approx(ratios)
    assert as_row(verdict)[1].startswith("mse of ")


def drawn(**errors: Any) -> Any:
    """Results of mechanisms whose errors are an array by data set, budget and repetition."""
    levels = ["dataset", "epsilon", "repetition"]
    frames = [
        pandas.MultiIndex.from_product(map(range, each.shape), names=levels)
        .to_frame(index=False)
        .assign(mse=each.ravel(), mechanism=name)
        for name, each in errors.items()
    ]
    return pandas.concat(frames).assign(workload="W", group="all")


@pytest.mark.parametrize("repetitions", [2, 3, 4, 20])
def test_equal_mechanisms_are_decided_apart_in_5_percent_of_cells(repetitions: int) -> None:
    noise = np.random.default_rng(repetitions).standard_normal((2, 1000, 1, repetitions))
    verdict = decide(Claim("", "A", "B"), drawn(A=1 + 0.05 * noise[0], B=1 + 0.05 * noise[1]))
    assert 0.03 < (verdict.holds + verdict.fails) / verdict.cells < 0.07


def test_budgets_that_share_queries_are_not_independent() -> None:
    queries = 1 + 0.1 * np.random.default_rng(1).standard_normal((300, 1, 5))
    errors = drawn(A=np.ones((300, 6, 5)), B=np.repeat(queries, 6, axis=1))
    for claim in Claim("", "A", "B", pooled=True), Claim("", "A", "B", pooled=True, better_epsilon=1.0):
        verdict = decide(claim, errors)
        assert verdict.cells == 300
        assert 0.02 < (verdict.holds + verdict.fails) / 300 < 0.09


@pytest.mark.parametrize(("fails", "found"), [(0, "agrees"), (1, "agrees"), (2, "differs"), (3, "differs")])
def test_a_share_is_not_rounded(fails: int, found: str) -> None:
    """1 - 0.9 is less than a tenth in floating point."""
    ratio = np.full((10, 1, 2), 2.0)
    ratio[:fails] = 0.5
    assert decide(Claim("", "A", "B", share=0.9), drawn(A=np.ones((10, 1, 2)), B=ratio)).found == found
    ratio[9:, 0, 1] = 40.0  # one cell is open
    rest = {0: "agrees", 1: "open", 2: "differs", 3: "differs"}[fails]
    assert decide(Claim("", "A", "B", share=0.9), drawn(A=np.ones((10, 1, 2)), B=ratio)).found == rest


@pytest.mark.parametrize("pooled", [False, True])
def test_errors_of_exactly_0_decide(pooled: bool) -> None:
    """The one without error is better, at every budget or at one of several."""
    exact = np.ones((1, 2, 2))
    exact[0, 0] = 0.0
    errors = drawn(A=np.ones((1, 2, 2)), exact=exact)
    better, worse = (
        decide(Claim("", *names, least=least, pooled=pooled), errors)
        for names, least in ((("exact", "A"), 1.0), (("A", "exact"), 0.5))
    )
    assert (better.found, better.holds, better.ratios[2]) == ("agrees", 2 - pooled, float("inf"))
    assert (worse.found, worse.fails, worse.ratios[0]) == ("differs", 1, 0.0)


def test_repetitions_are_paired_and_a_margin_leaves_cells_open() -> None:
    """A is 1 and 3, B twice as much each time: the ratio is sure, though each error varies."""
    paired = rows().assign(mse=lambda each: each["mse"] * (1 + 2 * each["repetition"]))
    claim = Claim("", "A", "B", epsilons=(1.0,), least=2.5)
    assert decide(claim, paired).found == "agrees"
    assert decide(replace(claim, margin=1.5), paired).found == "open"
    assert decide(replace(claim, worse="loud"), paired).found == "open"


def test_entries_of_other_columns_are_compared() -> None:
    both = pandas.concat([rows(), rows(dataset="E").assign(mse=lambda each: 4.0 * each["mse"])])
    verdict = decide(Claim("", "D", "E", by="dataset", mechanisms=("A", "B")), both)
    assert (verdict.found, verdict.cells, verdict.ratios) == ("agrees", 4, (4.0, 4.0, 4.0))
    by_budget = decide(Claim("", 2.0, 1.0, by="epsilon", mechanisms=("A", "B"), least=1.5), rows())
    assert (by_budget.found, by_budget.ratios[::2]) == ("agrees", (2.0, 4.0))
    looks = pandas.concat([rows(time=float(k)).assign(mse=lambda each, k=k: k * each["mse"]) for k in (10, 30)])
    assert decide(Claim("", 0, 1, by="look", mechanisms=("A",)), looks).ratios == (3.0, 3.0, 3.0)
    assert as_row(by_budget)[1] == "mse of epsilon 1.0 / 2.0 at least 1.5 in 100%"


THETAS = list(range(5, 60, 2))


def test_equation_6_is_least_where_noisy_max_without_noise_chooses(tmp_path: Path) -> None:
    fixed = {"threshold": {"part": "Fixed", "theta": THETAS}}
    chosen = {"system": "publisher", "threshold": {"part": "NoisyMax", "step": 2.0}, "perturber": {"part": "Flat"}}
    table = {
        "epsilons": [0.5],
        "repetitions": 2,
        "holdout": 4096,
        "max_range": 4096,
        "metrics": ["mse"],
        "datasets": [{"name": "POS", "generator": "table1", "stream": "pos", "n": 9000}],
        "mechanisms": [
            {
                "name": "Eq. 6",
                "system": "equation 6",
                "threshold": {"part": "Fixed", "theta": [t + 1 for t in THETAS]},
            },
            {"name": "measured", "system": "publisher", "perturber": {"part": "Flat"}, **fixed},
            {"name": "least", "threshold_epsilon": 1e6, "publish_epsilon": 0.5, **chosen},
        ],
    }
    folder = sweeps.run(sweeps.from_table(table), tmp_path / "out")
    found = sweeps.load(folder)
    said = found[found["mechanism"].str.startswith("Eq. 6")].groupby("threshold")["mse"].mean()
    (theta,) = found[found["mechanism"] == "least"]["threshold"].unique()
    assert said.idxmin() == theta
    assert THETAS[3] < theta < THETAS[-3]
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    (path,) = sweeps.draw(folder, tmp_path / "pictures", formats=["svg"])
    assert path.name == "mse.svg"
    drawn = path.read_text()
    assert r"threshold $\theta$" in drawn
    lines = [line.count("L") + 1 for line in re.findall(r'<path d="(M [^"zZ]*)" clip-path', drawn)]
    assert lines.count(len(THETAS)) == 2
