"""What an audit runs: callables, publishers, and mechanisms that run many trials in one call."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fastdp import validation
from fastdp.data.column import as_array, kind_of
from fastdp.errors import DataError, ParameterError
from fastdp.guarantee import Guarantee
from fastdp.noise.key import Key

Floats = NDArray[np.float64]

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
