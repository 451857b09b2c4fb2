"""A measurement for OpenDP whose noise and privacy map are fastdp's."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from fastdp import validation
from fastdp._lazy import imported
from fastdp.errors import ParameterError
from fastdp.guarantee import round_up
from fastdp.noise.key import Key
from fastdp.noise.pooled import Laplace
from fastdp.streams.add_noise import VectorNoise

CARRIERS = ("i32", "i64", "u32", "u64", "f32", "f64")
#: Metrics by the kind of domain.
METRICS = {"AtomDomain": "AbsoluteDistance", "VectorDomain": "L1Distance"}


def make_discrete_laplace(
    input_domain: Any, input_metric: Any, sensitivity: float, epsilon: float, *, resolution: float | None = None
) -> Any:
    """A measurement that adds fastdp's exact discrete Laplace noise of scale sensitivity / epsilon.

    Parameters
    ----------
    input_domain : opendp.Domain
        ``atom_domain(T=...)`` of integers or floats, or a ``vector_domain`` of such.  Floats need ``nan=False``,
        their vectors a ``size``.
    input_metric : opendp.Metric
        ``absolute_distance(T=...)`` for a number, ``l1_distance(T=...)`` for a vector.
    sensitivity, epsilon : float
        The map gives epsilon at distance ``sensitivity``.
    resolution : float, optional
        Only for floats, as for :func:`fastdp.add_noise`.

    Returns
    -------
    opendp.Measurement
        To ``max_divergence()``, with the map d_in * epsilon / sensitivity, rounded up, for floats after rounding to
        the grid. Outputs saturate at their type's ends; no draw serves twice.

    Raises
    ------
    ParameterError
        For another domain or metric, or without OpenDP and its features ``contrib`` and ``honest-but-curious``.

    Examples
    --------
    >>> import opendp.prelude as dp
    >>> from fastdp.interop.opendp import make_discrete_laplace
    >>> dp.enable_features("contrib", "honest-but-curious")
    >>> domain = dp.vector_domain(dp.atom_domain(bounds=(0, 10)))
    >>> total = dp.t.make_sum(domain, dp.symmetric_distance())
    >>> space = total.output_space
    >>> noise = make_discrete_laplace(*space, sensitivity=10, epsilon=0.5)
    >>> private = total >> noise
    >>> private.map(1)
    0.5
    """
    dp = _opendp()
    kind = type(input_domain).__name__
    atom = getattr(input_domain, "element_domain", input_domain)
    carrier = getattr(atom, "carrier_type", "")
    if kind not in METRICS or carrier not in CARRIERS or getattr(atom, "nan", None):
        raise ParameterError(
            f"input_domain = {input_domain}: expected an atom_domain of integers, or of floats with nan=False, or a "
            "vector_domain of such"
        )
    if str(input_metric) != f"{METRICS[kind]}({carrier})":
        raise ParameterError(f"input_metric = {input_metric}: expected {METRICS[kind]}({carrier})")
    integers, size = carrier[0] != "f", 1 if kind == "AtomDomain" else input_domain.size
    if size is None and not integers:
        raise ParameterError(f"input_domain = {input_domain}: expected a size, because floats are rounded")
    noise = VectorNoise(
        validation.positive("sensitivity", sensitivity),
        validation.positive("epsilon", epsilon),
        size or 1,
        integers,
        None if resolution is None else validation.positive("resolution", resolution),
    )

    # Noise itself stays within int64.
    ends = np.iinfo(f"{carrier[0]}{int(carrier[1:]) // 8}") if integers else np.finfo(carrier.replace("f", "float"))
    least, most = ends.min, min(ends.max, 2**63 - 1) if integers else ends.max

    # Whole numbers share draws made together, by any number of calls.
    pool = Laplace(noise.scale) if integers else None

    def release(values: Any) -> Any:
        if pool is not None and kind == "AtomDomain":
            return min(max(pool.add(int(values)), least), most)
        if pool is not None:
            return [min(max(noisy, least), most) for noisy in map(pool.add, map(int, values))]
        # Infinity is in the domain: it saturates like every large value.
        column = np.nan_to_num(np.atleast_1d(np.array(values, np.float64)))
        listed: list[Any] = noise.noisy(column, Key.choose(None, None)).tolist()
        return listed if kind == "VectorDomain" else listed[0]

    def privacy_map(distance: Any) -> float:
        if distance < 0:
            raise ValueError("d_in: expected a distance of at least 0")
        return round_up(noise.loss(Fraction(distance)))

    try:
        measurement = dp.m.make_user_measurement(
            input_domain, input_metric, dp.max_divergence(), release, privacy_map, TO=input_domain.carrier_type
        )
    except dp.OpenDPException as error:
        if "enable_features" not in str(error):
            raise
        raise ParameterError(
            'OpenDP\'s features are not enabled: expected dp.enable_features("contrib", "honest-but-curious") first'
        ) from None
    if integers or (kind == "AtomDomain" and carrier != "f32"):
        measurement.__class__ = _direct_class()
        measurement.release, measurement.kind, measurement.ends = release, int if integers else float, (least, most)
        measurement.lengths = None if kind == "AtomDomain" else () if input_domain.size is None else (size,)
    return measurement


@cache
def _direct_class() -> Any:
    """OpenDP's class without its conversions of numbers around a Python function."""
    parent = _opendp().Measurement

    class Measurement(parent):  # type: ignore[misc, valid-type]
        # Of ctypes: inherited, it would not reach C's side, which frees the pointer.
        _type_ = parent._type_

        def __call__(self, arg: Any) -> Any:
            low, high = self.ends
            if self.lengths is None:
                direct = type(arg) is self.kind and low <= arg <= high
            else:
                direct = type(arg) is list and {*map(type, arg)} == {int} and low <= min(arg) <= max(arg) <= high
                direct = direct and (not self.lengths or len(arg) in self.lengths)
            return self.release(arg) if direct else super().__call__(arg)

        invoke = __call__

    return Measurement


def _opendp() -> Any:
    told = "OpenDP is not installed: expected the package opendp (pip install 'fastdp-streams[opendp]')"
    return imported("opendp.prelude", ParameterError(told))
