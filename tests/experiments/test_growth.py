"""Growth: fits that would show a curve which is not linear, and pictures of every part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import growth


def test_a_fit_shows_what_is_not_linear() -> None:
    x = np.geomspace(10.0, 1e4, 7)
    slope, constant, worst = growth.linear_fit(x, 3.0 * x + 50.0)
    assert (slope, constant) == pytest.approx((3.0, 50.0))
    assert worst < 1e-9
    assert growth.linear_fit(x, x**1.3)[2] > 0.3


@pytest.mark.parametrize(("longest", "last"), [(10**4, 10**4), (999_999, 10**5), (10**9, 10**9)])
def test_marks_are_powers_of_ten_up_to_the_longest(longest: int, last: int) -> None:
    marks = growth._marks(longest)
    assert marks[0] == 10**4
    assert marks[-1] == last
    assert marks == [10**4 * 10**k for k in range(len(marks))]


def test_every_part_has_its_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from benchmarks import growth_pictures

    lengths = [{"values": n, "ns_a_value": 1.0, "MiB_more": 1.0, "us_one_value": 15.0, "us_chunk": 20.0}
               for n in (10**4, 10**5)]  # fmt: skip
    step = {"present": 100, "batch": 5, "depth": 20, "visited": 9, "us_a_step": 3.0, "ns_each": 1.0}
    found = {
        "streams": dict.fromkeys(growth.PUBLISHERS, lengths),
        "em": [{"bins": d, "us_a_step": d / 100.0, "ns_a_step_and_bin": 10.0} for d in (256, 512)],
        "spatial": [step, step, {**step, "batch": 50, "us_a_step": 9.0}, {**step, "depth": 10, "visited": 5}],
        "many": [{"kind": "prune 0", "streams": n, "ms": 1.0, "ns_a_value": 5.0} for n in (10, 100)],
    }
    assert set(found) == set(growth.PARTS)
    paths = growth_pictures.draw(found, tmp_path)
    assert [path.name for path in paths] == [f"growth_{part}.png" for part in growth.PARTS]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
