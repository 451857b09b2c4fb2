"""The choice of theta, from the hold-out of one stream or of many."""

from __future__ import annotations

import numpy as np

from fastdp.errors import AccuracyWarning, argument, warn
from fastdp.kinds import Floats, Indices
from fastdp.noise.key import Key
from fastdp.streams.columns import RowKeys
from fastdp.thresholds import Chooser
from fastdp.thresholds.base import RowChooser, held_out

AT_BOUND = (
    "threshold: the hold-out does not show that one below the bound cuts off little, so it is the bound, {:g}, and "
    "noise is at its largest; expected a longer hold-out, fewer zeros, a larger epsilon, or a threshold known "
    "publicly ({})"
)


def choose_theta(chooser: Chooser, key: Key) -> float:
    """Choose theta from a chooser's values, with noise bound to them."""
    theta = chooser.choose(held_out(key, chooser.pack()))
    if getattr(chooser, "unresolved", False):
        warn(AT_BOUND.format(theta, argument(threshold=50.0)), AccuracyWarning)
    return theta


def choose_thetas(
    chooser: Chooser, holdout: int, values: Floats, starts: Indices, which: Indices, keys: RowKeys
) -> Floats:
    """Choose theta of streams `which` from hold-outs at `starts`; `chooser` stays empty."""
    same = starts.size and (starts == starts[0]).all()
    if keys.numbers is not None and isinstance(chooser, RowChooser):
        histograms = chooser.histograms(values, starts[:1] if same else starts)
        return chooser.choose_rows(histograms, keys.key, keys.numbers[which])
    thetas, one = np.empty(which.size), chooser
    for row, (start, stream) in enumerate(zip(starts.tolist(), which.tolist(), strict=True)):
        if row == 0 or not same:
            one = chooser.copy()
            one.observe(values[start : start + holdout])
        thetas[row] = choose_theta(one, keys.of(stream))
    return thetas
