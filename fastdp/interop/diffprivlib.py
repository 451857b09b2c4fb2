"""Mechanisms and the histogram of diffprivlib by name and arguments, with fastdp's noise."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any, Self

import numpy as np

from fastdp import validation
from fastdp.data.column import as_column, as_floats
from fastdp.errors import ParameterError
from fastdp.guarantee import zcdp_loss
from fastdp.noise import pooled
from fastdp.noise.public_draws import discrete_laplace
from fastdp.releases.intervals import laplace_variance

#: A float is rounded to so many parts of the sensitivity.
PARTS = 2**20
MOST_BINS = 2**28
#: Sensitivities with squares that are floats.
LEAST, MOST = 2.0**-400, 2.0**400


class _Mechanism:
    """One number at a time; `randomise` is the pool's `add`."""

    _noise: pooled.Laplace | pooled.Gaussian
    _variance: float

    def randomise(self, value: float) -> float:
        """Return the number with noise."""
        return self._noise.add(value)

    def bias(self, value: float) -> float:
        return 0.0

    def variance(self, value: float) -> float:
        return self._variance

    mse = variance

    def copy(self) -> Self:
        """Return a mechanism with a fresh key, or from its seed."""
        import copy

        return copy.deepcopy(self)


def _seed(random_state: object) -> int | None:
    if random_state is not None and (isinstance(random_state, bool) or not isinstance(random_state, int)):
        kind = type(random_state).__name__
        raise ParameterError(f"random_state is a {kind}: expected None or a whole number, a seed for simulations")
    return random_state


def _grid(sensitivity: object) -> tuple[float, Fraction]:
    moved = validation.positive("sensitivity", sensitivity)
    if not LEAST <= moved <= MOST:
        raise validation.refusal("sensitivity", sensitivity, f"between {LEAST:.3g} and {MOST:.3g}")
    step = 2.0 ** (math.frexp(moved)[1] - 1) / PARTS
    return step, pooled.steps_moved(moved, step) * Fraction(step)


class Laplace(_Mechanism):
    """``diffprivlib.mechanisms.Laplace`` on a grid of sensitivity / 2^20, whose rounding the noise pays for.

    Parameters
    ----------
    epsilon, sensitivity : float
        Both positive.
    delta : float
        In [0, 1); it buys nothing here, the loss is pure epsilon.
    random_state : int, optional
        Simulation: reproducible noise, no privacy.

    Examples
    --------
    >>> from fastdp.interop.diffprivlib import Laplace
    >>> type(Laplace(epsilon=1.0, sensitivity=2.0).randomise(3.5))
    <class 'float'>
    """

    def __init__(
        self, *, epsilon: float, delta: float = 0.0, sensitivity: float, random_state: int | None = None
    ) -> None:
        _checked_delta(delta)
        step, moved = _grid(sensitivity)
        scale = moved / Fraction(validation.positive("epsilon", epsilon))
        self._noise = pooled.Laplace(scale, step, seed=_seed(random_state))
        self._variance = laplace_variance(scale / Fraction(step)) * step**2


class Geometric(_Mechanism):
    """``diffprivlib.mechanisms.Geometric``: whole numbers stay whole; arguments of :class:`Laplace`."""

    def __init__(self, *, epsilon: float, sensitivity: float = 1, random_state: int | None = None) -> None:
        moved = validation.positive("sensitivity", sensitivity)
        scale = Fraction(moved) / Fraction(validation.positive("epsilon", epsilon))
        self._noise, self._variance = pooled.Laplace(scale, seed=_seed(random_state)), laplace_variance(scale)


class Gaussian(_Mechanism):
    """``diffprivlib.mechanisms.Gaussian`` for any epsilon, with discrete noise by zCDP's delta."""

    def __init__(self, *, epsilon: float, delta: float, sensitivity: float, random_state: int | None = None) -> None:
        loss = zcdp_loss(validation.positive("epsilon", epsilon), _checked_delta(delta, 0.0))
        step, moved = _grid(sensitivity)
        sigma = moved / Fraction(loss)
        self._noise = pooled.Gaussian(sigma, step, seed=_seed(random_state))
        self._variance = float(sigma) ** 2


def histogram(
    sample: Any,
    epsilon: float = 1.0,
    bins: Any = 10,
    range: tuple[float, float] | None = None,
    weights: None = None,
    density: bool | None = None,
    random_state: int | None = None,
    accountant: Any = None,
) -> tuple[Any, Any]:
    """``diffprivlib.tools.histogram``: :func:`numpy.histogram` with exact noise, counts below 0 as 0.

    Parameters
    ----------
    sample, bins, range, density
        As for :func:`numpy.histogram`; bins are public: a number with a range, or edges.
    epsilon : float
        Privacy loss of one added or removed value.
    weights : None
        Refused: a weight would be a row's sensitivity.
    random_state : int, optional
        Simulation: reproducible noise, no privacy.
    accountant : diffprivlib.BudgetAccountant, optional
        Pays epsilon before the sample is read; by default diffprivlib's default, if loaded.

    Returns
    -------
    counts : int64 array
        Densities are floats.
    edges : float64 array

    Raises
    ------
    ParameterError
        For a range that would be the sample's.
    """
    if weights is not None:
        raise ParameterError("weights: expected None, because a weight would change the sensitivity of a row")
    edges = bins if isinstance(bins, (list, tuple, np.ndarray)) else validation.integer("bins", bins, 1, MOST_BINS)
    if range is None and isinstance(edges, int):
        raise ParameterError("range = None: expected public ends of the bins, the sample's own would be released")
    scale = 1 / Fraction(validation.positive("epsilon", epsilon))
    seed = _seed(random_state)
    _check_public(edges, range)
    if accountant is None and "diffprivlib.accountant" in sys.modules:
        accountant = sys.modules["diffprivlib.accountant"].BudgetAccountant.load_default(None)
    if accountant is not None:
        accountant.spend(epsilon, 0)
    floats = as_floats(as_column(sample, "sample"))
    exact, edges = np.histogram(floats, edges, range)
    counts = np.maximum(exact + discrete_laplace(scale, exact.shape, seed=seed), 0)
    if not density:
        return counts, edges
    total = counts.sum()
    return counts / np.diff(edges) / max(total, 1), edges


def _check_public(edges: Any, ends: Any) -> None:
    name, given = ("range", ends) if isinstance(edges, int) else ("bins", edges)
    try:
        numbers = np.asarray(given, np.float64) if np.asarray(given).dtype.kind in "iuf" else np.empty(0)
        if numbers.ndim != 1 or numbers.size < 2 or np.isnan(numbers).any():
            raise ValueError
        np.histogram_bin_edges(np.empty(0), edges, ends)
    except (TypeError, ValueError):
        raise validation.refusal(name, given, "rising numbers, two ends or more edges") from None


def _checked_delta(delta: object, low: float = -1.0) -> float:
    given = validation.real("delta", delta)
    if not low < given < 1 or given < 0:
        raise validation.refusal("delta", delta, "a number from 0 to below 1, above 0 for Gaussian noise")
    return given
