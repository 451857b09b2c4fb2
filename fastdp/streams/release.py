"""``fastdp.release``: a whole array in one call."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import chain
from typing import Any, Literal, cast

import numpy as np

from fastdp import validation
from fastdp.data.column import Nonfinite, as_column, check_size
from fastdp.errors import ParameterError
from fastdp.ledger import Ledger
from fastdp.ledger.ledger import charge, stream_key
from fastdp.noise.key import Key
from fastdp.perturbers.block_noise import Closing, Focus
from fastdp.releases.release import Release
from fastdp.smoothers import Smoother
from fastdp.streams.adaptive import Adaptive, WholeStream, Workload
from fastdp.streams.pace import DEFAULT_RANGE
from fastdp.streams.pak_publisher import PAK
from fastdp.streams.parameters import DEFAULT_HOLDOUT
from fastdp.streams.topl import ToPL
from fastdp.streams.tops import SmootherName, ToPS
from fastdp.thresholds import ScaleFree, Threshold
from fastdp.thresholds.base import as_rule
from fastdp.thresholds.noisy_max import NoiseKind
from fastdp.thresholds.renewals import Renewal

Method = Literal["adaptive", "tops", "topl", "pak"]
METHODS: dict[str, type[Adaptive | ToPS | ToPL | PAK]] = {
    "adaptive": Adaptive,
    "tops": ToPS,
    "topl": ToPL,
    "pak": PAK,
}
#: The options of each method's class, by name; the length of an array is known.
OWN = ("epsilon", "bound", "seed", "key", "expected_length", "rate", "every")
OPTIONS = {
    method: [name for name in inspect.signature(system).parameters if name not in OWN]
    for method, system in METHODS.items()
}


@validation.plain
def release(
    values: Any,
    epsilon: float,
    bound: float | None = None,
    method: Method = "adaptive",
    seed: int | str | None = None,
    *,
    sensitivity: float | None = None,
    contributions: int | None = None,
    key: Key | bytes | None = None,
    ledger: Ledger | None = None,
    stream: str | None = None,
    part: str | None = None,
    holdout: int | None = None,
    max_range: int | None = None,
    threshold: Threshold | float | Literal["linear", "logarithmic"] | None = None,
    resolution: float | None = None,
    nonfinite: Nonfinite | None = None,
    closing: Closing | None = None,
    focus: Focus | None = None,
    workload: Workload | None = None,
    window: int | None = None,
    rising: bool | None = None,
    season: float | None = None,
    fan_out: int | None = None,
    prune: int | Literal["optimal"] | None = None,
    smoother: SmootherName | Smoother | None = None,
    c: float | None = None,
    noise: NoiseKind | None = None,
    renewal: Renewal | None = None,
    threshold_epsilon: float | None = None,
    publish_epsilon: float | None = None,
    delta: float | None = None,
    length: int | None = None,
    share: float | None = None,
    tail_factor: float | None = None,
    lag_sums: bool | None = None,
    clip: bool | None = None,
    average: int | Literal["all"] | None = None,
) -> Release:
    """Release a whole stream under differential privacy.

    Parameters
    ----------
    values : array-like
        The stream, in order: a list, NumPy array, pandas or polars series, Arrow array.
    epsilon : float
        Privacy loss for one value of the stream.
    bound : float
        Public upper bound of a value, in units of the input.  It must not be computed from the data.  None with a
        sensitivity.
    method : "adaptive", "tops", "topl" or "pak"
        The system: :class:`fastdp.Adaptive`; the paper's :class:`fastdp.ToPS`; the local model, simulated
        (:class:`fastdp.ToPL`); or :class:`fastdp.PAK`, whose values are the differences of its running sums.
    seed : int or str, optional
        Simulation: reproducible noise, no privacy.
    key : Key or 32 bytes, optional
        A secret of your own (:meth:`fastdp.Key.from_bytes`); by default a fresh one from the operating system.
    sensitivity : float, optional
        Of :class:`fastdp.Adaptive` alone, in place of a bound: values are counts, and one event moves one of them by
        at most so much.  Nothing is held out.
    contributions : int, optional
        Of :class:`fastdp.Adaptive` and :class:`fastdp.ToPS`: epsilon is for any so many consecutive values together.
    ledger : Ledger, optional
        Where the release is reserved before it happens, and refused if it would pass a limit or use the noise of an
        earlier entry.
    stream : str, optional
        The stream's name, which a ledger needs.  Under one key, streams with different names get independent noise.
    part : str, optional
        With a ledger: the label of the part of the stream that ``values`` are; by default all of it.
    holdout : int, optional
        Values at the beginning that choose the threshold and are not published.  By default "adaptive" withholds
        nothing: the threshold is chosen from all values, for a share of epsilon that follows from their number and
        epsilon, a tenth at most (``docs/adaptive.md``, "Nothing withheld").  The papers' methods withhold 65,536 or a
        quarter of the stream, whichever is less.
    max_range : int, optional
        The longest query; by default 2^20 values or what follows the hold-out, whichever is less (the length of a
        stream is public under replace-one adjacency).  Not for "pak".
    threshold : Threshold or float, optional
        A rule of :mod:`fastdp.thresholds`, or a publicly known threshold.  Not for "tops".
    resolution, nonfinite
        As for :class:`fastdp.StreamPublisher`; "topl" has no resolution, "pak" no ``nonfinite``.
    closing, focus, workload, window, rising, season
        Of :class:`fastdp.Adaptive` alone.
    fan_out, prune, smoother, c, noise, renewal
        Of :class:`fastdp.ToPS` alone.
    threshold_epsilon, publish_epsilon
        Of :class:`fastdp.ToPL` alone.
    delta : float, optional
        Of "adaptive" and "tops": above 0 noise is Gaussian and the release (epsilon, delta)-DP, which pays where a
        unit has many values (``docs/gaussian.md``).  Of "pak": its delta, by default 1 / n^2.
    length, share, tail_factor, lag_sums, clip, average
        Of :class:`fastdp.PAK` alone; by default ``length`` is n, the number of values.

    Returns
    -------
    Release
        The private stream and what belongs to it.  With "adaptive", ``sum(..., revised=True)`` and
        ``revised`` are the more accurate answers.

    Raises
    ------
    ParameterError, DataError
        Naming the argument and what is accepted, of data never a value.  With a ledger: parameters and the number of
        values are checked before anything is recorded; what the values are, afterwards, so an error about them leaves
        the budget spent.
    BudgetError
        If the ledger's limit leaves less than the release costs, or if an entry has the same noise.

    Notes
    -----
    An option that is None has the default of the method's class.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> values = np.random.default_rng(2).gamma(2.0, 9.0, 4000)
    >>> released = fastdp.release(values, epsilon=1.0, bound=100, seed=1)
    >>> print(released.guarantee)  # doctest: +ELLIPSIS
    epsilon = 1 for one value of the stream (replace one value), central model, exact on this machine, SIMULATED...
    >>> released.sum([0, 100], [4000, 300], revised=True).shape
    (2,)
    """
    # First of all, while nothing else has a name here.
    given = {name: value for name, value in locals().items() if value is not None}
    system = METHODS[validation.choice("method", method, tuple(METHODS))]
    options = {name: given[name] for name in chain(*OPTIONS.values()) if name in given}
    for name in options:
        if name not in OPTIONS[method]:
            raise ParameterError(
                f"{name} = {validation.shown(options[name])}: expected an option of method = {method!r}: "
                f"{', '.join(OPTIONS[method])}"
            )
    # Whether every entry of a list is a number depends on the data: it is checked once the budget is reserved.
    column = values if _is_list(values) else as_column(values, "values")
    size = len(column)
    withheld, rule = max(1, min(DEFAULT_HOLDOUT, size // 4)), None
    if sensitivity is not None:
        withheld = 0
    elif system is Adaptive and holdout is None:
        withheld, rule = 0, as_rule("threshold", ScaleFree() if threshold is None else threshold)
    options.setdefault("holdout", withheld)
    if system is PAK:
        options.setdefault("length", max(1, size))
        options.setdefault("delta", 1.0 / max(2, size) ** 2)
    elif isinstance(options["holdout"], int):
        options.setdefault("max_range", max(1, min(DEFAULT_RANGE, size - options["holdout"])))
    secret = stream_key(Key.choose(seed, key), stream)
    publisher: WholeStream | Adaptive | ToPS | ToPL | PAK
    if rule is not None and getattr(rule, "uses_holdout", False):
        del options["holdout"]
        options["threshold"] = rule
        check_size(size, 0)
        publisher = WholeStream(size, epsilon, cast("float", bound), key=secret, **options)
    else:
        publisher = system(epsilon=epsilon, bound=cast("float", bound), key=secret, **options)
    check_size(size, publisher.holdout)
    if isinstance(publisher, PAK):
        publisher.check_plain(size)
    with charge(publisher, ledger, stream, part=part):
        return publisher.release(column)


def _is_list(values: Any) -> bool:
    """Whether each entry has a type of its own."""
    if isinstance(values, Sequence):
        return not isinstance(values, (str, bytes, bytearray))
    return getattr(values, "dtype", None) == np.dtype(object) and values.ndim == 1
