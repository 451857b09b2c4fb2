"""A tree whose size fits one length of window: noise of sums over the last w values."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fastdp import validation
from fastdp.perturbers.hierarchy import Hierarchy
from fastdp.releases.error_bars import SumNoise, tree_variances

#: Fan-outs that are tried, and trees of so many windows.
FAN_OUTS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
WINDOWS = (1, 2, 4)
#: Of a tree's places at most so many are looked at.
PLACES = 4096


class WindowTree(NamedTuple):
    """What :func:`tree_for_window` found.

    Attributes
    ----------
    perturber : Hierarchy
        Consistent, with every value a leaf.
    max_range : int
        r of the publisher: values of one tree.
    variance : float
        Of the noise of a window at a random place, in theta^2 / epsilon^2.
    """

    perturber: Hierarchy
    max_range: int
    variance: float


def tree_for_window(window: int) -> WindowTree:
    """The tree under which sums over ``window`` values have the least noise, at any place of an endless stream.

    Parameters
    ----------
    window : int
        w, from 1 to 2^20: public.

    Returns
    -------
    WindowTree
        Perturber and ``max_range`` for :class:`fastdp.StreamPublisher`.

    Notes
    -----
    A window that lies in two trees has the noise of both parts.  The variance is that of least squares (ToPS Appendix
    C) in closed form, averaged over places; no data are looked at.

    Examples
    --------
    >>> import fastdp
    >>> tree = fastdp.perturbers.tree_for_window(256)
    >>> tree.perturber.fan_out, tree.max_range, round(tree.variance)
    (8, 256, 143)
    """
    return _best(validation.integer("window", window, 1, 2**20))


@lru_cache(maxsize=64)
def _best(window: int) -> WindowTree:
    found = [_tree(window, fan_out, count * window) for fan_out in FAN_OUTS for count in WINDOWS]
    return min(found, key=lambda tree: (round(tree.variance, 9), tree.max_range))


def _tree(window: int, fan_out: int, max_range: int) -> WindowTree:
    """With the mean variance over all places in a tree, or many of them."""
    perturber = Hierarchy(fan_out, prune=0)
    plan = perturber.plan(1.0, max_range)
    shape = SumNoise("tree", 1.0, 1.0, fan_out=fan_out, levels=plan.levels, tree_blocks=plan.tree_blocks)
    starts = np.unique(np.linspace(0, plan.tree_blocks - 1, min(plan.tree_blocks, PLACES)).round())
    variances = tree_variances(shape, starts, starts + window)
    return WindowTree(perturber, max_range, float(2 * plan.levels**2 * variances.mean()))
