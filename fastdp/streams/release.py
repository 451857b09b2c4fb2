"""``fastdp.release``: a finished array in one call, without a hold-out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from fastdp import validation
from fastdp.data.column import Nonfinite, as_column, as_floats, as_whole, check_size
from fastdp.data.files import read_numbers
from fastdp.data.frames import source_of
from fastdp.errors import AccuracyWarning, StateError, argument, warn
from fastdp.guarantee import Account, Guarantee, charge, check_charge, remainder, sequential, square_remainder
from fastdp.kinds import Floats, Values
from fastdp.noise.key import Key, stream_key
from fastdp.perturbers.block_noise import Blocks, Focus, Total
from fastdp.record import values_of
from fastdp.releases.release import Release
from fastdp.smoothers import Recent
from fastdp.state.driver import LOG
from fastdp.streams.methods import Adaptive
from fastdp.streams.parameters import (
    DEFAULT_RANGE,
    StreamParameters,
    altered,
    approximated,
    as_blocks,
    composed,
    default_threshold,
    in_units,
)
from fastdp.streams.publisher import StreamPublisher
from fastdp.streams.stream_machine import Schedule
from fastdp.thresholds import Chooser, Fixed, ScaleFree, Threshold, ThresholdTask
from fastdp.thresholds.base import as_rule, held_out


@validation.plain
def release(
    values: Values,
    epsilon: float,
    bound: float | None = None,
    *,
    sensitivity: float | None = None,
    contributions: int = 1,
    delta: float = 0.0,
    threshold: Threshold | float | None = None,
    season: float | None = None,
    focus: Focus | None = None,
    nonfinite: Nonfinite = "raise",
    ledger: Account | None = None,
    stream: str | None = None,
    part: str | None = None,
    seed: int | str | None = None,
    key: Key | bytes | None = None,
) -> Release:
    """Release a finished array of values under differential privacy, by :class:`fastdp.Adaptive`.

    Nothing is withheld: the threshold is chosen from all values, for at most a tenth of epsilon.  Other methods:
    ``fastdp.ToPS(epsilon, bound, expected_length=len(values)).release(values)``.

    Of 2 to 1,000 values at an epsilon up to 1, or mostly zeros, only the total is released, with the noise of the
    bound, and each value is published as the mean.  A public threshold gives a curve (``docs/streams.md``).

    Parameters
    ----------
    values : array-like
        The stream, in order: a list, NumPy array, pandas or polars series, Arrow array; or a path or
        :class:`fastdp.Csv` of one column.
    epsilon : float
        Privacy loss for one value of the stream.
    bound : float
        Public upper bound of a value, not computed from the data; None with a sensitivity.
    sensitivity : float, optional
        In place of a bound: values are counts, and one event moves one of them by at most so much.
    contributions : int
        Consecutive values, or events, that epsilon protects together.
    delta : float
        Above 0: Gaussian noise, and an (epsilon, delta)-DP release, for units of many values (``docs/noise.md``).
    threshold : Threshold or float, optional
        A rule of :mod:`fastdp.thresholds`, or a publicly known threshold, which costs nothing.
    season, focus : optional
        Public period of the stream, and lengths of ranges that matter: see :class:`fastdp.perturbers.Blocks`.
    nonfinite : "raise" or "zero"
        Missing values, NaN and infinity are refused, or count as 0.
    ledger : Ledger, optional
        Reserves the release, or refuses it: beyond a limit, or if it would reuse an entry's noise.
    stream : str, optional
        The stream's name, which a ledger needs.  Under one key, other names get independent noise.
    part : str, optional
        With a ledger: label of this partition of the stream.
    seed : int or str, optional
        Simulation: reproducible noise, no privacy.
    key : Key or 32 bytes, optional
        A secret of your own (:meth:`fastdp.Key.from_bytes`); by default the operating system's.

    Returns
    -------
    Release
        The private stream with its guarantee; ``sum(..., revised=True)`` and ``revised`` are more accurate.

    Raises
    ------
    ParameterError, DataError
        For an argument that is not accepted.  Values are checked after a ledger has recorded: an error about them
        leaves the budget spent.
    BudgetError
        If the ledger's limit leaves too little, or an entry has the same noise.

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
    # Whether every entry of a list is a number depends on the data: it is checked once the budget is reserved.
    given, values = values, read_numbers(values)
    column = values if _is_list(values) else as_column(values, "values")
    size, blocks = len(column), Blocks(focus=focus, season=season)  # type: ignore[arg-type]
    secret, longest = Key.choose(seed, key), max(1, min(DEFAULT_RANGE, size))
    check_charge(ledger, stream, part)
    if stream is not None:
        secret = stream_key(secret, stream)
    rule = None if threshold is None else as_rule("threshold", threshold)
    options: dict[str, Any] = {"perturber": blocks, "contributions": contributions, "delta": delta}
    options |= {"nonfinite": nonfinite, "key": secret}
    publisher: Adaptive | WholeStream
    if sensitivity is not None or (rule is not None and not rule.uses_holdout):
        publisher = Adaptive(epsilon, bound, 0, longest, threshold=threshold, sensitivity=sensitivity, **options)
        check_size(size, 0)
    else:
        check_size(size, 0)
        publisher = WholeStream(size, epsilon, bound, longest, threshold=rule, **options)
    with charge(publisher, ledger, stream, part=part):
        return replace(publisher.release(column), source=source_of(given))


def _is_list(values: object) -> bool:
    if isinstance(values, Sequence):
        return not isinstance(values, (str, bytes, bytearray))
    dtype = getattr(values, "dtype", None)
    return isinstance(dtype, np.dtype) and dtype.kind == "O" and getattr(values, "ndim", 0) == 1


#: The threshold costs at most this fraction of epsilon, or of rho.
MAX_FRACTION = 0.1
#: So many noise scales separate the candidates of a threshold that is well chosen (``resolved`` of its chooser):
#: with more, the fraction costs more than a better theta saves (``accuracy short --shares`` of commit 921ab19).
WELL_CHOSEN = 2.0
#: Below the first the user is warned; below the second a choice of theta is worthless.
POORLY_CHOSEN = 1.0
NOT_CHOSEN = 0.1
#: Derivation step for a theta that is not resolved.
OR_TOTAL = "a theta that released numbers do not resolve gives way to the bound, and one block holds all values"
#: Up to so many values and this epsilon of a value all are one block, with theta at the bound: a fraction of
#: epsilon would not show how many values a smaller one cuts.  The same holds for more values at a smaller epsilon.
FEW, FEW_EPSILON = 1000, 1.0


class WholeStream:
    """Runs :class:`fastdp.Adaptive` on a finished array of known size.

    A fraction of epsilon (``share``, from public numbers) chooses theta from all values; the rest publishes them
    (``docs/streams.md``, "Blocks that follow released sums").
    """

    holdout = 0
    rule: ClassVar[int] = 1

    def __init__(
        self,
        size: int,
        epsilon: float,
        bound: float | None,
        max_range: int,
        *,
        perturber: Blocks | None = None,
        threshold: Threshold | None = None,
        contributions: int = 1,
        delta: float = 0.0,
        resolution: float | None = None,
        nonfinite: Nonfinite = "raise",
        key: Key,
    ) -> None:
        blocks = as_blocks(perturber, delta)
        self.size = validation.integer("size", size, 1, 2**50)
        self.threshold = default_threshold(blocks, finished=True) if threshold is None else threshold
        # Parameters are checked as the publisher's own are, with the full epsilon and no hold-out.
        # The key of the noise follows from the number, not from its type.
        bound = validation.positive("bound", bound)
        full = composed(
            threshold=bound,
            perturber=blocks,
            smoother=None,
            epsilon=epsilon,
            bound=bound,
            holdout=0,
            max_range=max_range,
            resolution=resolution,
            nonfinite=nonfinite,
            contributions=contributions,
            delta=delta,
        )
        validation.part("threshold", self.threshold, Threshold, "fastdp.thresholds")
        self.epsilon, self.bound, self.max_range = full.epsilon, bound, full.max_range
        self.contributions, self.delta, self._full = full.contributions, full.delta, full
        self.perturber, self.nonfinite = blocks, nonfinite
        usual = blocks == Blocks() and self.threshold == ScaleFree()
        #: True if one number is released: the total.
        few = self.size <= FEW and full.unit_epsilon <= FEW_EPSILON
        self.few = usual and self.size > 1 and (few or not self._resolved(full, resolution))
        if self.few:
            components = {"perturber": Total(length=self.size), "smoother": Recent(), "max_range": self.size}
            full = self._full = altered(full, **components, resolution=resolution)
        self.share = self._fraction(full, resolution)
        #: Composition of the published stream, except theta.
        self.composition = _published(full, resolution, self.share)
        self.resolution = self.composition.resolution
        self._key = key.bind(self)
        if self.delta:
            # A threshold with a delta of its own is refused before there are values.
            _ = self.guarantee

    def identity(self) -> dict[str, Any]:
        fields = values_of(self, "size", "threshold", "share", "epsilon", "delta", "contributions")
        return {**fields, "published": self.composition}

    def _fraction(self, full: StreamParameters, resolution: float | None) -> float:
        if not self.threshold.uses_holdout:
            return 0.0
        if not isinstance(self.threshold, ScaleFree):
            return _most(full)
        if self.few:
            warn(
                f"values: {self.size:,} at epsilon = {self.epsilon:g} are few, so only their total is released, and "
                "each value as the mean; expected, for a curve, more values, a larger epsilon, or a threshold known "
                f"publicly ({argument(threshold=50.0)})",
                AccuracyWarning,
            )
            return 0.0
        resolved = self._resolved(full, resolution)
        if resolved < POORLY_CHOSEN:
            instead = "the threshold is chosen poorly"
            if resolved < NOT_CHOSEN:
                instead = (
                    f"the threshold is the bound, {self.bound:g}: nothing is clipped, and noise is at its largest"
                )
            warn(
                f"values: {self.size:,} are too few to choose a threshold with a tenth of epsilon = "
                f"{self.epsilon:g}, so {instead}; expected more values, a larger epsilon, or a threshold known "
                f"publicly ({argument(threshold=50.0)})",
                AccuracyWarning,
            )
        # The resolution is proportional to the fraction.
        return 0.0 if resolved < NOT_CHOSEN else _most(full) * min(1.0, WELL_CHOSEN / resolved)

    def _resolved(self, full: StreamParameters, resolution: float | None) -> float:
        # Noise scales that separate candidates under the largest fraction; 0 if only the bound can be chosen.
        assert isinstance(self.threshold, ScaleFree)  # noqa: S101 - others are not asked
        most = _most(full)
        task = _task(_published(full, resolution, most), full.unit_epsilon * most, self.size)
        chooser = self.threshold.chooser(task)
        return chooser.resolved if chooser.can_clear else 0.0

    @cached_property
    def task(self) -> ThresholdTask:
        return _task(self.composition, self._full.unit_epsilon * self.share, self.size)

    @property
    def guarantee(self) -> Guarantee:
        published = self.composition.guarantee(simulated=self._key.simulated)
        chosen = self.threshold.guarantee(self.task) if self.share else None
        if chosen is not None:
            if isinstance(self.threshold, ScaleFree):
                published = replace(published, derivation=(*published.derivation, OR_TOTAL))
            published = sequential(chosen.of("threshold, from all values"), published)
        if self.delta:
            return approximated(in_units(self._full, published), self.epsilon, self.delta, self.threshold)
        return in_units(self._full, published, "each value loses its fraction of epsilon in the choice and its block")

    @property
    def noise_fingerprint(self) -> str | None:
        return None if self._key.simulated else self._key.fingerprint()

    def release(self, values: Values) -> Release:
        """Choose theta from all of the ``size`` values, then publish all."""
        column = as_whole(values, 0, 0)
        if column.size != self.size:
            raise StateError(f"values has {column.size} entries: expected {self.size}, as was said before")
        floats = self.composition.finite(as_floats(column), 0, "values")
        return self.complete(self.machine((floats,)).release(floats, "values", self._key, warns=True))

    def complete(self, made: Release) -> Release:
        """Add the threshold's loss and noise to the release of :meth:`publisher`; values of a total are its mean."""
        noise = made.noise
        if noise is not None and self.share and isinstance(self.threshold, ScaleFree):
            noise = replace(noise, above=self.threshold.fraction_above(self.task), bound=self.bound)
        values = made.values
        if made.revision is None:
            # Nothing was online: there is no prediction to keep.
            values = made.revised.clip(0.0, made.threshold)
            values.flags.writeable = False
        return replace(made, values=values, guarantee=self.guarantee, noise=noise, _prefix={})

    def chooser(self) -> Chooser:
        """Empty chooser of theta."""
        if not isinstance(self.threshold, ScaleFree):
            return self.threshold.start(self.task)
        # Without warnings: this class has its own.
        return self.threshold.chooser(self.task)

    @property
    def _total(self) -> StreamParameters:
        # One block of all values, with theta at the bound and the budget of the published stream.
        number = Total(length=self.size, noise=self.perturber.noise)
        # The full array may need a coarser grid than blocks do.
        return altered(self.composition, perturber=number, smoother=Recent(), max_range=self.size, resolution=None)

    def machine(self, chunks: Iterable[Floats]) -> Schedule:
        """Choose theta from all values, in finite `chunks`; return the machine that publishes them or their total."""
        composition, rule = self.composition, self.threshold
        if self.share or not rule.uses_holdout:
            chooser = self.chooser()
            for chunk in chunks:
                chooser.observe(chunk)
            theta = chooser.choose(held_out(self._key, chooser.pack()))
            LOG.info("%s: threshold chosen: %g, from all %d values", type(self).__name__, theta, self.size)
            if getattr(chooser, "unresolved", False):
                warn(
                    f"threshold: the values do not show that one below the bound, {self.bound:g}, cuts off little, "
                    "so only their total is released, and each value as the mean; expected, for a curve, fewer "
                    f"values at 0, a larger epsilon, or a threshold known publicly ({argument(threshold=50.0)})",
                    AccuracyWarning,
                )
                return Schedule(self._total)
            composition = replace(composition, threshold=Fixed(theta))
        return Schedule(composition)

    def publisher(self, chunks: Iterable[Floats]) -> StreamPublisher:
        """Publisher of the values; if it publishes a total, its release must go through :meth:`complete`."""
        return StreamPublisher._of(self.machine(chunks), self._key)


def _most(full: StreamParameters) -> float:
    # A tenth of rho costs noise half of what a tenth of epsilon does.
    return math.sqrt(MAX_FRACTION) if full.gaussian else MAX_FRACTION


def _published(full: StreamParameters, resolution: float | None, fraction: float) -> StreamParameters:
    # Budget of one value; several may be protected together.
    unit = full.unit_epsilon
    if full.gaussian:
        return altered(full, budget=square_remainder(unit, unit * fraction), contributions=1, resolution=resolution)
    return altered(full, epsilon=remainder(unit, unit * fraction), contributions=1, resolution=resolution)


def _task(published: StreamParameters, epsilon: float, size: int) -> ThresholdTask:
    return replace(published.task, epsilon=epsilon, holdout=size, publish_epsilon=published.publish_epsilon)
