"""Trees sized for a window: the noise that is stated is the noise there is, and less than other trees have."""

from __future__ import annotations

import numpy as np
import pytest

from fastdp.errors import ParameterError
from fastdp.perturbers import Hierarchy, tree_for_window


def covariance(perturber: Hierarchy, max_range: int) -> np.ndarray:
    """Of a tree's leaves, by least squares on all nodes: one variance of a node's noise each, tops not tied."""
    plan = perturber.plan(1.0, max_range)
    rows = []
    for level in range(plan.levels):
        width = plan.fan_out**level
        rows += [np.repeat(np.eye(plan.leaves // width)[i], width) for i in range(plan.leaves // width)]
    nodes = np.array(rows)
    return 2.0 * plan.levels**2 * np.linalg.inv(nodes.T @ nodes)


@pytest.mark.parametrize("window", [3, 16, 40])
def test_the_variance_is_that_of_least_squares(window: int) -> None:
    perturber, size, variance = tree_for_window(window)
    one = covariance(perturber, size)[:size, :size]
    found = []
    for start in range(size):
        parts, left = [], window
        begin = start
        while left:
            end = min(size, begin + left)
            parts.append(one[begin:end, begin:end].sum())
            left, begin = left - (end - begin), 0
        found.append(sum(parts))
    assert variance == pytest.approx(np.mean(found), rel=1e-9)


@pytest.mark.parametrize(("window", "target"), [(256, 192.0), (4096, 450.0), (65_536, 968.0)])
def test_windows_have_less_noise_than_asked_for(window: int, target: float) -> None:
    assert tree_for_window(window).variance < target


@pytest.mark.parametrize("window", [0, 2**21, 2.5])
def test_what_a_window_may_be(window: object) -> None:
    with pytest.raises(ParameterError, match="window"):
        tree_for_window(window)  # type: ignore[arg-type]
