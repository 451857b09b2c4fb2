"""Planted mistakes stay plantable: a table that its source has outgrown would say nothing of the tests any more."""

from __future__ import annotations

import pytest

from benchmarks.mutation.__main__ import ROOT
from benchmarks.mutation.matching import plant
from benchmarks.mutation.table import TABLES, mutations


@pytest.mark.parametrize("area", sorted(table.stem for table in TABLES.glob("*.toml")))
def test_each_mistake_has_its_place_and_its_tests(area: str) -> None:
    mine = [mutation for mutation in mutations() if mutation.area == area]
    assert mine
    assert [f"{m.label}: {problem}" for m in mine if (problem := m.problem(ROOT))] == []


def test_no_two_mistakes_have_one_name() -> None:
    labels = [mutation.label for mutation in mutations()]
    assert len(labels) == len(set(labels))


SOURCE = """
LIMIT = 3

class Counter:
    def step(self, values, key):
        total = 0
        for value in values:
            total += value  # exact
        return draw(total, key=key), f"{total} of {LIMIT}"

    def other(self, values, key):
        return draw(values, key=key)
"""
RENAMED = """
LIMIT = 3

class Counter:
    def step(self, batch, secret):
        if batch:
            partial = 0
            for each in batch:
                # The value.
                partial += each
            return draw(
                partial,
                key=secret,
            ), f"{partial} of {LIMIT}"

    def other(self, values, key):
        return draw(values, key=0)
"""


@pytest.mark.parametrize(
    ("old", "new", "planted", "renamed"),
    [
        ("            total += value\n", "            total -= value\n", "total -= value", "partial -= each\n   "),
        ("draw(total, key=key)", "draw(key, key=value)", "draw(key, key=value)", "draw(secret, key=value)"),
        ('f"{total} of', 'f"{total + 1} of', 'f"{total + 1} of', 'f"{partial + 1} of'),
        ("        total = 0", "        n = 0\n        total = n", "\n        total = n", "\n            partial = n"),
        ("for value in values:\n", "for key in values:\n", "for key in values:\n", "for key in batch:\n"),
    ],
)
def test_a_mistake_is_planted_under_other_local_names(old: str, new: str, planted: str, renamed: str) -> None:
    for source, text in ((SOURCE, planted), (RENAMED, renamed)):
        found = plant(source, old, new)
        assert text in found
        compile(found, "planted", "exec")


def test_a_place_is_never_guessed() -> None:
    old, new = "draw(numbers, key=secret)", "draw(0, key=secret)"
    with pytest.raises(ValueError, match="0 times, and 2 times"):
        plant(SOURCE, old, new)
    assert plant(SOURCE, old, new, within="Counter.other").endswith("return draw(0, key=key)\n")
    with pytest.raises(ValueError, match="0 functions or classes are called third"):
        plant(SOURCE, old, new, within="Counter.third")
    # LIMIT is a global; ``total`` and ``value`` are two variables; an attribute is none.
    for text in ("draw(LIMIT, key=key)", "total += total", "self.total"):
        with pytest.raises(ValueError, match="0 times, and 0 times"):
            plant(SOURCE, text, "")


def test_names_that_the_old_text_lacks() -> None:
    assert "total += secret" in plant(SOURCE, "n += x", "n += secret")
    assert "total += key" in plant(SOURCE, "n += x", "n += secret", beside="draw(n, key=secret)")
