"""OpenDP's exact noise and tree consistency, through its Python binding as a user calls it.

The binding copies arguments and results (a list comes back), which its timings include.
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

INSTALLED = importlib.util.find_spec("opendp") is not None


def _prelude() -> Any:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp


def discrete_laplace(scale: float) -> Callable[[NDArray[np.int64]], list[int]]:
    """A vector measurement that adds exact discrete Laplace noise to int64 data."""
    dp = _prelude()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    measurement: Callable[[NDArray[np.int64]], list[int]] = dp.m.make_laplace(*space, scale=scale)
    return measurement


def one_number(scale: float) -> dict[str, Callable[[int], int]]:
    """Measurements of one integer with exact discrete Laplace noise: OpenDP's, and fastdp's for OpenDP."""
    from fastdp.interop.opendp import make_discrete_laplace

    dp = _prelude()
    dp.enable_features("honest-but-curious")
    space = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
    return {
        "OpenDP": dp.m.make_laplace(*space, scale=scale),
        "fastdp for OpenDP": make_discrete_laplace(*space, sensitivity=1.0, epsilon=1.0 / scale),
    }


def discrete_gaussian(sigma: float) -> Callable[[list[int]], list[int]]:
    """The same with exact discrete Gaussian noise."""
    dp = _prelude()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    measurement: Callable[[list[int]], list[int]] = dp.m.make_gaussian(*space, scale=sigma)
    return measurement


def consistent_leaves(fan_out: int) -> Callable[[NDArray[np.int64]], list[float]]:
    """A postprocessor: a complete tree in breadth-first order, its root first, to consistent leaves."""
    dp = _prelude()
    postprocessor: Callable[[NDArray[np.int64]], list[float]] = dp.t.make_consistent_b_ary_tree(
        fan_out, TIA="i64", TOA="f64"
    )
    return postprocessor
