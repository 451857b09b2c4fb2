"""Pictures of spatial streams are drawn without a screen, show what they are given, and refuse what does not fit."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fastdp.errors import ParameterError
from fastdp.plots import MAX_DRAWN, points_and_cells
from fastdp_lab.datasets import concentric_circles

pytest.importorskip("matplotlib")

LOW = np.stack(np.meshgrid(np.arange(-1.25, 1.25, 0.5), np.arange(-1.25, 1.25, 0.5)), -1).reshape(-1, 2)


def test_points_and_cells(tmp_path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    stream = concentric_circles(4000, seed=1)
    true = [stream.present(t) for t in (0, 5)]
    figure = points_and_cells(
        {"true": true, "synthetic": [true[1], np.empty((0, 2))]},
        tmp_path / "p.png",
        cells={"synthetic": [(LOW, LOW + 0.5), (LOW[:1], LOW[:1] + 0.5)]},
        columns=["start", "later"],
        box=(stream.lower, stream.upper),
    )
    assert (tmp_path / "p.png").stat().st_size > 20_000
    assert len(figure.axes) == 4
    assert np.array_equal(figure.axes[0].collections[0].get_offsets(), true[0])
    # 25 cells and 36 nodes of the lattice have 60 sides; one cell has 4.
    assert [len(ax.collections) for ax in figure.axes] == [1, 1, 2, 2]
    assert [len(ax.collections[1].get_segments()) for ax in figure.axes[2:]] == [60, 4]
    assert figure.axes[0].get_xlim() == (-1.25, 1.25)
    assert ("matplotlib.pyplot" in sys.modules) == before, "pyplot would open a window manager"


def test_many_points_are_thinned() -> None:
    points = np.random.default_rng(1).random((3 * MAX_DRAWN + 1, 2))
    figure = points_and_cells({"true": [points]})
    assert MAX_DRAWN / 2 < len(figure.axes[0].collections[0].get_offsets()) <= MAX_DRAWN


CLOUD = np.zeros((3, 2))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: points_and_cells({}), "rows"),
        (lambda: points_and_cells({"true": [CLOUD, CLOUD], "synthetic": [CLOUD]}), "rows"),
        (lambda: points_and_cells({"true": [CLOUD]}, cells={"other": [(LOW, LOW)]}), "cells"),
        (lambda: points_and_cells({"true": [CLOUD]}, columns=["a", "b"]), "columns"),
        (lambda: points_and_cells({"true": [CLOUD]}, "p.nothing"), "suffix"),
    ],
)
def test_what_does_not_fit_is_named(call, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        call()
