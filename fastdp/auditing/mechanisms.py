"""What an audit runs: callables, publishers, and mechanisms that run many trials in one call."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.data.column import as_array, kind_of
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats
from fastdp.noise.key import Key

#: Runs in one call of ``draw_trials``, and runs in one batch of other mechanisms.
BATCH, SLOW_BATCH = 2**17, 256
#: Numbers of one output, and of all that are drawn at once.
MAX_NUMBERS, MAX_AT_ONCE = 1024, 2**23
#: Larger whole numbers do not all fit into a double.
MAX_WHOLE = 2**53


class TrialMechanism(Protocol):
    """A mechanism that runs many trials at once."""

    @property
    def guarantee(self) -> Guarantee:
        """The claim; not read where the audit is given ``epsilon``."""
        ...

    def draw_trials(self, data: Any, trials: int, key: Key) -> NDArray[Any]:
        """Outputs of independent runs on the same data, [trials] or [trials, k]: fixed by the arguments."""
        ...


class Publishing:
    """A publisher as a mechanism: every run makes a fresh one and publishes the data with it.

    Parameters
    ----------
    factory : callable
        ``factory(seed)`` gives a fresh publisher with that seed: ``lambda seed: fastdp.ToPS(..., seed=seed)``.
    method : str
        What is called with the data: ``"publish"`` or another method that returns numbers.
    """

    def __init__(self, factory: Callable[[int], Any], method: str = "publish") -> None:
        if not callable(factory):
            raise ParameterError(f"factory = {validation.shown(factory)}: expected a callable that takes a seed")
        self._factory = factory
        self._method = method
        self.guarantee: Guarantee | None = getattr(factory(0), "guarantee", None)

    def __call__(self, data: Any, seed: int) -> Any:
        """One run."""
        return getattr(self._factory(seed), self._method)(data)


def runs(mechanism: Any, data: Any, trials: int, key: Key) -> Iterator[Floats]:
    """Outputs of independent runs, batch after batch: float64[n, k], the same k throughout.

    Raises
    ------
    DataError
        If an output is not numeric, not finite, a whole number beyond 2^53, or not as long as the one before.
    ParameterError
        If the data cannot be copied: every run gets a copy, which it may change.
    """
    width: int | None = None
    vectorised = draws_trials(mechanism)
    number = begin = 0
    while begin < trials:
        # The first batch shows how many numbers an output has.
        size = SLOW_BATCH if width is None or not vectorised else min(BATCH, MAX_AT_ONCE // width)
        count = min(size, trials - begin)
        own = key.derive("batch", number)
        rows = (
            _as_rows(mechanism.draw_trials(_copied(data), count, own), count)
            if vectorised
            else _one_by_one(mechanism, data, count, own, width)
        )
        number, begin = number + 1, begin + count
        if width is not None and rows.shape[1] != width:
            raise DataError(
                f"mechanism gave {rows.shape[1]} numbers after {width}: expected as many in every run (pad them)"
            )
        width = rows.shape[1]
        if width > MAX_NUMBERS:
            raise DataError(
                f"mechanism gave {width} numbers: expected at most {MAX_NUMBERS} (sum them up, or take a few)"
            )
        if not np.isfinite(rows).all():
            raise DataError("mechanism gave NaN or infinity: expected finite numbers")
        yield rows


def draws_trials(mechanism: Any) -> bool:
    """Whether it runs many trials at once."""
    return callable(getattr(mechanism, "draw_trials", None))


def check_mechanism(mechanism: Any) -> None:
    """ParameterError unless it can be run."""
    if isinstance(mechanism, type) or not (draws_trials(mechanism) or callable(mechanism)):
        raise ParameterError(
            f"mechanism = {validation.shown(mechanism)}: expected a callable that takes data and a generator "
            "(or a seed), or a publisher's factory in fastdp.auditing.Publishing"
        )


def _one_by_one(mechanism: Callable[..., Any], data: Any, count: int, key: Key, width: int | None) -> Floats:
    generator = np.random.default_rng(int.from_bytes(key.reveal(), "big"))
    seeded = wants_seed(mechanism)
    rows: list[Floats] = []
    for _ in range(count):
        output = mechanism(_copied(data), int(generator.integers(2**63)) if seeded else generator)
        row = _as_row(output)
        if width is not None and row.size != width:
            raise DataError(
                f"mechanism gave {row.size} numbers after {width}: expected as many in every run (pad them)"
            )
        width = row.size
        rows.append(row)
    return np.stack(rows)


def _copied(data: Any) -> Any:
    """A copy, because a run may change its data."""
    try:
        return copy.deepcopy(data)
    except TypeError:
        raise ParameterError("x: expected data that can be copied, because runs may change them") from None


def wants_seed(mechanism: Callable[..., Any]) -> bool:
    """Whether the second parameter is called ``seed``; otherwise it gets a generator."""
    try:
        names = list(inspect.signature(mechanism).parameters)
    except (TypeError, ValueError):
        return False
    return len(names) > 1 and names[1] == "seed"


def _as_row(output: Any) -> Floats:
    # The output is not shown: it may be the input.
    row = as_array(output)
    if row is None or row.dtype.kind not in "biuf" or row.size == 0:
        kind = type(output).__name__
        raise DataError(f"mechanism gave a {kind}: expected a number or a filled array of numbers")
    return _as_doubles(row).ravel()


def _as_rows(outputs: NDArray[Any], count: int) -> Floats:
    rows = np.asarray(outputs)
    if rows.dtype.kind not in "biuf" or rows.ndim not in (1, 2) or rows.shape[0] != count or rows.size == 0:
        raise DataError(
            f"draw_trials gave shape {rows.shape} and dtype {kind_of(rows.dtype)}: expected numbers, {count} rows of "
            "them"
        )
    return _as_doubles(rows.reshape(count, -1))


def _as_doubles(numbers: NDArray[Any]) -> Floats:
    if numbers.dtype.kind in "iu" and ((numbers > MAX_WHOLE).any() or (numbers < -MAX_WHOLE).any()):
        raise DataError(
            "mechanism gave whole numbers beyond 2^53, whose last bits a double loses: expected smaller ones (give "
            "the high and the low half of each)"
        )
    return numbers.astype(np.float64)


# Numbers computed from an output, on which events are made.
#
# Any fixed function of the output gives a valid bound; a good one gives a high bound.  So features may be trained,
# as long as the bound is computed from other trials.

#: Outputs of many trials in, one number for each trial out.
Statistic = Callable[[Floats], Floats]

#: Coordinates that get features of their own: those that differ most.
MAX_COORDINATES = 32
#: Bins of the learned likelihood ratio.
BINS = 32
EXPONENT_BITS = 52


@dataclass(frozen=True)
class Feature:
    """A named function of outputs.

    Attributes
    ----------
    name : str
        For the report.
    of : callable
        float64[n, k] to float64[n].
    discrete_only : bool
        A fingerprint: its order means nothing, only equality does.
    """

    name: str
    of: Statistic
    discrete_only: bool = False


def make_features(outputs: Floats, adjacent: Floats, given: Sequence[tuple[str, Statistic]]) -> list[Feature]:
    """The features for these outputs: the caller's, and those of ``events="auto"``.

    Parameters
    ----------
    outputs, adjacent : float64[n, k]
        Outputs on either input, from trials that only train features.
    given : sequence of (name, statistic)
        The caller's own.

    Returns
    -------
    list of Feature
        Those, coordinates, their distances from the median, running sums, a linear discriminant, a learned likelihood
        ratio, a fingerprint of the whole output, and the grain of floating-point outputs.
    """
    features = [Feature(name, statistic) for name, statistic in given]
    k = outputs.shape[1]
    chosen = _most_different(outputs, adjacent)
    pooled = np.concatenate([outputs, adjacent])
    for j in chosen:
        label = "output" if k == 1 else f"output[{j}]"
        features.append(Feature(label, _coordinate(j)))
        features.append(Feature(f"|{label} - median|", _distance(j, float(np.median(pooled[:, j])))))
        if not (pooled[:, j] == np.rint(pooled[:, j])).all():
            features.append(Feature(f"grain of {label}", _grain_of(j)))
    if k > 1:
        features.extend(Feature(f"sum of output[:{j + 1}]", _running_sum(j + 1)) for j in chosen if j > 0)
        features.append(Feature("linear discriminant", _discriminant(outputs, adjacent)))
        features.append(Feature("learned likelihood ratio", _likelihood_ratio(outputs, adjacent, chosen)))
        features.append(Feature("whole output", fingerprint, discrete_only=True))
    return features


def fingerprint(outputs: Floats) -> Floats:
    """A 53-bit hash of each row; equal rows have equal hashes; collisions do not invalidate a bound."""
    # Adding 0 makes -0 and 0 the same number.
    words = np.ascontiguousarray(outputs + 0.0).view(np.uint64)
    mixed: NDArray[np.uint64] = np.zeros(outputs.shape[0], np.uint64)
    for j in range(outputs.shape[1]):
        mixed = (mixed ^ words[:, j]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return (mixed >> np.uint64(11)).astype(np.float64)


def grain(numbers: Floats) -> Floats:
    """Exponent of the lowest set bit of each double: the coarsest grid of powers of two that it lies on.

    Textbook noise in floating point reveals the value's exponent here (Mironov 2012).
    """
    bits = np.ascontiguousarray(numbers).view(np.int64)
    exponent = (bits >> EXPONENT_BITS) & 0x7FF
    mantissa = (bits & ((1 << EXPONENT_BITS) - 1)) | np.where(exponent > 0, np.int64(1) << EXPONENT_BITS, 0)
    lowest = (mantissa & -mantissa).astype(np.float64)
    zeros = np.log2(np.where(lowest > 0.0, lowest, 1.0))
    return np.where(lowest > 0.0, np.maximum(exponent, 1) - 1023.0 - EXPONENT_BITS + zeros, 1024.0)


def _most_different(outputs: Floats, adjacent: Floats) -> list[int]:
    spread = np.sqrt(outputs.var(axis=0) + adjacent.var(axis=0))
    scale = np.where(spread > 0.0, spread, 1.0)
    # Where the spread is 0, any difference is clear.
    difference = np.abs(outputs.mean(axis=0) - adjacent.mean(axis=0)) / scale
    difference += np.abs(outputs.std(axis=0) - adjacent.std(axis=0)) / scale
    order = np.argsort(-difference, kind="stable")[:MAX_COORDINATES]
    return sorted(int(j) for j in order)


def _coordinate(j: int) -> Statistic:
    return lambda outputs: outputs[:, j]


def _distance(j: int, centre: float) -> Statistic:
    return lambda outputs: np.abs(outputs[:, j] - centre)


def _grain_of(j: int) -> Statistic:
    return lambda outputs: grain(outputs[:, j])


def _running_sum(stop: int) -> Statistic:
    return lambda outputs: outputs[:, :stop].sum(axis=1)


def _discriminant(outputs: Floats, adjacent: Floats) -> Statistic:
    """Fisher's direction, with a ridge that keeps it defined where outputs depend on each other."""
    centre = (outputs.mean(axis=0) + adjacent.mean(axis=0)) / 2.0
    both = np.concatenate([outputs - outputs.mean(axis=0), adjacent - adjacent.mean(axis=0)])
    scale = both.std(axis=0)
    scale[scale == 0.0] = 1.0
    both /= scale
    spread = both.T @ both / both.shape[0]
    gap = (outputs.mean(axis=0) - adjacent.mean(axis=0)) / scale
    direction = np.linalg.solve(spread + 1e-6 * np.eye(spread.shape[0]), gap) / scale
    return lambda rows: (rows - centre) @ direction


def _likelihood_ratio(outputs: Floats, adjacent: Floats, chosen: list[int]) -> Statistic:
    """Sum over coordinates of learned ln(P / P'), each a step function over bins of equal weight."""
    parts: list[tuple[int, Floats, Floats]] = []
    for j in chosen:
        pooled = np.concatenate([outputs[:, j], adjacent[:, j]])
        edges = np.unique(np.quantile(pooled, np.linspace(0.0, 1.0, BINS + 1)[1:-1]))
        here, there = (
            np.bincount(np.searchsorted(edges, side[:, j], side="right"), minlength=edges.size + 1) + 0.5
            for side in (outputs, adjacent)
        )
        parts.append((j, edges, np.log(here / there)))

    def ratio(rows: Floats) -> Floats:
        total = np.zeros(rows.shape[0])
        for j, edges, logs in parts:
            total += logs[np.searchsorted(edges, rows[:, j], side="right")]
        return total

    return ratio
