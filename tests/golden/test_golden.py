"""The bytes that every public mechanism gives are those of ``digests.json``.

For changes that must not change an output: moves, renames, faster code.  A digest may change only together with a
commit that says which outputs change and why; ``python -m tests.golden`` then writes the file again and
lists the changed cases.  Cases that depend on the processor or on libraries are skipped where those are others.
"""

from __future__ import annotations

import pytest

pytest.importorskip("shapely")

from tests.golden.cases import CASES, digest, environment, recorded

ENVIRONMENT, DIGESTS = recorded()


def test_every_case_has_a_digest() -> None:
    assert list(CASES) == list(DIGESTS), "python -m tests.golden writes them"


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_those_recorded(name: str) -> None:
    if not CASES[name].portable and environment() != ENVIRONMENT:
        pytest.skip("depends on the processor or on libraries, which are others here")
    assert digest(name) == DIGESTS[name]
