"""Statistical tests with one false-alarm budget for the whole suite, and a demand for power.

All tests together may reject a right sampler with probability 1e-6; each of the COUNTED tests gets an
equal share.  Every such test must also reject a sampler that is wrong by a stated amount: a test that
cannot fail shows nothing.  Seeds are fixed in the suite; FASTDP_FRESH_SEEDS=1 draws fresh ones and prints
them.
"""

from __future__ import annotations

import itertools
import os
import secrets

import numpy as np
from numpy.typing import NDArray
from scipy import stats

BUDGET = 1e-6
#: Counted statistical decisions in the suite (each call of ``accept``); raise it when you add some.
COUNTED = 465
ALPHA = BUDGET / COUNTED


def seed(fixed: int) -> int:
    """The suite's fixed seed, or a fresh one that is printed."""
    if os.environ.get("FASTDP_FRESH_SEEDS") != "1":
        return fixed
    fresh = secrets.randbits(48)
    print(f"fresh seed instead of {fixed}: {fresh}")
    return fresh


def chi_square_p(observed: NDArray[np.int64], probabilities: NDArray[np.float64]) -> float:
    """P-value of counts against exact probabilities; cells expecting fewer than 10 are merged."""
    total = int(observed.sum())
    expected = probabilities * total
    order = np.argsort(expected, kind="stable")
    small = order[np.cumsum(expected[order]) < 10.0]
    large = np.setdiff1d(order, small)
    cells = np.append(observed[large], observed[small].sum())
    means = np.append(expected[large], expected[small].sum())
    if means[-1] <= 0.0:
        assert cells[-1] == 0, "draws in a cell of probability 0"
        cells, means = cells[:-1], means[:-1]
    statistic = float(np.sum((cells - means) ** 2 / means))
    return float(stats.chi2.sf(statistic, cells.size - 1))


_decisions = itertools.count(1)


def accept(p_value: float) -> None:
    """A right sampler passes; the suite's budget bounds the false alarms."""
    assert next(_decisions) <= COUNTED, "more decisions than the budget is divided over: raise COUNTED"
    assert p_value > ALPHA, f"p = {p_value:.3g}, budget {ALPHA:.3g}"


def reject(p_value: float) -> None:
    """A wrong sampler must be caught."""
    assert p_value < ALPHA, f"no power: p = {p_value:.3g}, budget {ALPHA:.3g}"
