"""Pictures of points are drawn without a screen, and show the given points."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fastdp.releases.pictures import MAX_DRAWN, draw_points

pytest.importorskip("matplotlib")

LOW = np.stack(np.meshgrid(np.arange(-1.25, 1.25, 0.5), np.arange(-1.25, 1.25, 0.5)), -1).reshape(-1, 2)


def test_points_and_cells() -> None:
    before = "matplotlib.pyplot" in sys.modules
    many = np.random.default_rng(1).random((3 * MAX_DRAWN + 1, 2))
    cells = (LOW, LOW + 0.5), (LOW[:1], LOW[:1] + 0.5)
    clouds = {"true": [LOW, many], "synthetic": [LOW[:3], np.empty((0, 2))]}
    figure = draw_points(clouds, dict.fromkeys(clouds, cells), ["start", "later"], ([-1.25, -1.25], [1.25, 1.25]))
    drawn = [ax.collections[0].get_offsets() for ax in figure.axes]
    assert np.array_equal(drawn[0], LOW)
    assert MAX_DRAWN / 2 < len(drawn[1]) <= MAX_DRAWN
    # 25 cells and 36 nodes of the lattice have 60 sides; one cell has 4.
    assert [len(ax.collections[1].get_segments()) for ax in figure.axes] == [60, 4, 60, 4]
    assert figure.axes[0].get_xlim() == (-1.25, 1.25)
    assert ("matplotlib.pyplot" in sys.modules) == before, "pyplot would open a window manager"
