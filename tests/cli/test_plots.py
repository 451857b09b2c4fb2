from __future__ import annotations

import sys

import numpy as np
import pytest

from fastdp.errors import ParameterError
from fastdp.plots import bin_means, truth_and_releases


def test_bin_means():
    np.testing.assert_allclose(bin_means([1, 2, 3, 4, 5, 6], 3), [1.5, 3.5, 5.5])
    np.testing.assert_allclose(bin_means([1, 2, 3], 120), [1, 2, 3])
    values = np.random.default_rng(0).random(1009)
    sizes = np.diff(np.linspace(0, 1009, 121).astype(int))
    assert bin_means(values, 120) @ sizes == pytest.approx(values.sum())
    with pytest.raises(ParameterError):
        bin_means([], 3)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_a_picture_without_a_screen(suffix, tmp_path):
    pytest.importorskip("matplotlib")
    before = "matplotlib.pyplot" in sys.modules
    values = np.random.default_rng(0).random(1000)
    released = {"one": -values, "two": 2 * values}
    truth_and_releases(values, released, tmp_path / f"p{suffix}", clock=True, span=(10.0, 34.0), title="t")
    assert (tmp_path / f"p{suffix}").stat().st_size > 5000
    assert ("matplotlib.pyplot" in sys.modules) == before, "pyplot would open a window manager"
    for wrong, said in (({"one": values[:1]}, r"released\[0\] has shape"), ({}, "0 streams: expected 1 to 3")):
        with pytest.raises(ParameterError, match=said):
            truth_and_releases(values, wrong, tmp_path / "q.png")
