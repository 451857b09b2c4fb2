"""Planted mistakes stay plantable: a table that its source has outgrown would say nothing of the tests any more."""

from __future__ import annotations

import pytest

from benchmarks.mutation.__main__ import ROOT
from benchmarks.mutation.table import TABLES, mutations


@pytest.mark.parametrize("area", sorted(table.stem for table in TABLES.glob("*.toml")))
def test_each_mistake_has_its_place_and_its_tests(area: str) -> None:
    mine = [mutation for mutation in mutations() if mutation.area == area]
    assert mine
    assert [f"{m.label}: {problem}" for m in mine if (problem := m.problem(ROOT))] == []


def test_no_two_mistakes_have_one_name() -> None:
    labels = [mutation.label for mutation in mutations()]
    assert len(labels) == len(set(labels))
