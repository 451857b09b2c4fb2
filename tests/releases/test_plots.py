"""Releases draw themselves: a line, its interval, the revised line; at most a thousand points."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fastdp
from fastdp.errors import ParameterError
from fastdp.releases import pictures
from fastdp.releases.release import MAX_DRAWN

pytest.importorskip("matplotlib")
VALUES = np.random.default_rng(5).integers(0, 20, 5000).astype(float)


def lines(axes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {line.get_label(): (line.get_xdata(), line.get_ydata()) for line in axes.lines}


def test_a_picture_shows_means_with_their_interval(tmp_path) -> None:
    before = "matplotlib.pyplot" in sys.modules
    release = fastdp.Adaptive(0.5, 50, holdout=1000, max_range=4096, seed=1).release(VALUES)
    axes = release.plot(tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 20_000
    drawn = lines(axes)
    assert set(drawn) == {"published", "revised"}
    x, y = drawn["published"]
    assert x.size == MAX_DRAWN == 1000
    assert x[[0, -1]].tolist() == [1002.0, 4998.0]
    assert np.array_equal(y, release.sum(np.arange(0, 4000, 4), np.arange(4, 4001, 4)) / 4.0)
    np.testing.assert_allclose(drawn["revised"][1], release.revised.reshape(-1, 4).mean(axis=1), atol=1e-6)
    border = axes.collections[0].get_paths()[0].vertices[:, 1]
    low, high = release.interval(np.arange(0, 4000, 4), np.arange(4, 4001, 4), revised=True)
    assert border.min() == pytest.approx(low.min() / 4.0)
    assert border.max() == pytest.approx(high.max() / 4.0)
    assert ("matplotlib.pyplot" in sys.modules) == before, "pyplot would open a window manager"


def test_few_values_are_drawn_one_by_one_on_axes_of_the_callers() -> None:
    release = fastdp.StreamPublisher(
        threshold=20.0, perturber=fastdp.perturbers.Flat(), epsilon=1.0, bound=20, seed=1
    ).release(VALUES[:50])
    axes = pictures.new_axes(2)[1]
    assert release.plot(ax=axes) is axes
    drawn = lines(axes)
    assert set(drawn) == {"published"}
    assert np.array_equal(drawn["published"][1], release.values)
    assert axes.get_ylabel() == "value"
    assert "revised" not in lines(
        fastdp.Adaptive(1.0, 20, threshold=20.0, seed=1).release(VALUES).plot(revised=False)
    )


def test_what_cannot_be_drawn_is_refused(tmp_path, monkeypatch) -> None:
    release = fastdp.Adaptive(0.5, 50, threshold=20.0, seed=1).release(VALUES)
    with pytest.raises(ParameterError, match="expected a suffix among"):
        release.plot(tmp_path / "p.kwh")
    nothing = fastdp.Release(np.empty(0), 0, np.ones(1), release.guarantee)
    with pytest.raises(ParameterError, match="has no values"):
        nothing.plot()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'fastdp-streams\[plot\]'"):
        release.plot()
