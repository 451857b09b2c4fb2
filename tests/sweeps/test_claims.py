"""Verdicts on tables of errors that are written down here: which cells hold, by which entries of which column."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from fastdp.errors import DataError
from fastdp_lab.sweeps.claims import Claim, as_row, decide

#: Errors by mechanism, budget and time: B's are twice A's, and all fall with epsilon and rise with time.
ROWS = pd.DataFrame(
    [
        {"mechanism": name, "dataset": "x", "epsilon": epsilon, "workload": "boxes", "group": "small", "time": time,
         "repetition": repetition, "points": 10.0 * time, "mae": factor * time / epsilon * spread}
        for name, factor in (("A", 1.0), ("B", 2.0))
        for epsilon in (0.5, 2.0)
        for time in (3.0, 12.0)
        for repetition, spread in enumerate((0.99, 1.0, 1.01))
    ]
)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "found", "cells", "middle"),
    [
        ({"better": "A", "worse": "B"}, "agrees", 2, 2.0),
        ({"better": "B", "worse": "A"}, "differs", 2, 0.5),
        ({"better": "A", "worse": "B", "least": 2.0}, "open", 2, 2.0),
        ({"better": "A", "worse": "B", "margin": 3.0}, "open", 2, 2.0),
        ({"better": "A", "worse": "B", "epsilons": (2.0,), "most": 1.5}, "differs", 1, 2.0),
        ({"by": "epsilon", "better": 2.0, "worse": 0.5, "least": 3.9}, "agrees", 2, 4.0),
        ({"by": "epsilon", "better": 2.0, "worse": 0.5, "mechanisms": ("A",)}, "agrees", 1, 4.0),
        ({"by": "look", "better": 0, "worse": 1, "most": 4.1}, "agrees", 4, 4.0),
        ({"better": "B", "least": 7.0, "most": 31.0}, "agrees", 2, 18.75),
        ({"by": "look", "better": 0, "worse": 1, "metric": "points", "least": 4.0}, "agrees", 4, 4.0),
    ],
)
def test_a_claim_compares_entries_of_a_column(given: dict[str, Any], found: str, cells: int, middle: float) -> None:
    verdict = decide(Claim("said", **{"metric": "mae", **given}), ROWS)
    assert (verdict.found, verdict.cells, verdict.repetitions) == (found, cells, 3)
    assert verdict.ratios[1] == pytest.approx(middle, rel=0.02)


def test_one_repetition_decides_what_has_no_noise() -> None:
    alone = ROWS[ROWS["repetition"] == 0]
    assert decide(Claim("said", 0, 1, "look", metric="points", least=2.0), alone).found == "agrees"
    assert decide(Claim("said", 0, 1, "look", metric="mae", least=2.0), alone).found == "open"


def test_a_verdict_says_its_rule() -> None:
    row = as_row(decide(Claim("said", 2.0, 0.5, "epsilon", least=1.5, margin=1.2, metric="mae"), ROWS))
    assert row[1] == "mae of epsilon 0.5 / 2 at least 1.5 in 100%, margin 1.2"
    assert row[2:4] == ["agrees", "2 of 2 hold, 0 do not"]
    with pytest.raises(DataError, match="no mechanism 'C' in the results"):
        decide(Claim("said", "A", "C"), ROWS)
