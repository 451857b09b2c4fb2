"""Growth: every length is measured, and the picture has a curve for every publisher."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.speed import growth


@pytest.mark.parametrize(("longest", "last"), [(10**4, 10**4), (999_999, 10**5), (10**9, 10**9)])
def test_marks_are_powers_of_ten_up_to_the_longest(longest: int, last: int) -> None:
    marks = growth.marks(longest)
    assert marks[0] == 10**4
    assert marks[-1] == last
    assert marks == [10**4 * 10**k for k in range(len(marks))]


def test_a_stream_has_its_numbers_at_every_mark() -> None:
    costs, rises = growth.stream("Adaptive", 10**5, 1)
    ones, chunks = growth.latency("Adaptive", 10**5)
    assert len(costs) == len(rises) == len(ones) == len(chunks) == 2
    assert min(costs + ones + chunks) > 0.0


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    points = np.column_stack([[1e4, 1e5], *np.ones((4, 2))])
    growth.draw(dict.fromkeys(growth.PUBLISHERS, points), tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")
