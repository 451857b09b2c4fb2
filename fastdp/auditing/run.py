"""``fastdp.audit``: an empirical lower bound on epsilon.

Source: Clopper and Pearson 1934 (interval); Jagielski, Ullman and Oprea 2020 (design).
"""

from __future__ import annotations

import copy
import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
from tqdm import tqdm

from fastdp import validation
from fastdp.auditing.events import Event, Statistic, choose_events, epsilon_at_least, make_features
from fastdp.data.column import as_array, kind_of
from fastdp.errors import DataError, ParameterError, warn
from fastdp.guarantee import Guarantee, Guaranteed
from fastdp.kinds import Array, Floats
from fastdp.noise.key import Key
from fastdp.record import Real
from fastdp.validation import refusal

#: Runs in one call of ``draw_trials``, and runs in one batch of other mechanisms.
BATCH, SLOW_BATCH = 2**17, 256
#: Numbers of one output, and of all that are drawn at once.
MAX_NUMBERS, MAX_AT_ONCE = 1024, 2**23
#: Larger integers do not all fit into a double.
MAX_WHOLE = 2**53


class TrialMechanism(Protocol):
    """Mechanism that runs many trials at once."""

    @property
    def guarantee(self) -> Guarantee:
        """The audited claim, unless ``epsilon`` is given."""
        ...

    def draw_trials(self, data: Any, trials: int, key: Key) -> Array:
        """Outputs of independent runs, [trials] or [trials, k], by the arguments alone."""
        ...


class Publishing:
    """Audits a publisher: every run publishes the data with a fresh one.

    Parameters
    ----------
    factory : callable
        ``factory(seed)`` returns a fresh publisher.
    method : str
        Method that takes the data and returns numbers.

    Examples
    --------
    >>> import numpy as np, fastdp
    >>> mechanism = fastdp.auditing.Publishing(
    ...     lambda seed: fastdp.ToPS(
    ...         1.0, bound=10, threshold=10.0, prune=0, seed=seed
    ...     )
    ... )
    >>> day, neighbour = np.full(16, 5), np.append(np.full(15, 5), 10)
    >>> result = fastdp.audit(
    ...     mechanism, day, neighbour, epsilon=1.0,
    ...     trials=400, progress=False,
    ... )
    >>> result.violated
    False
    """

    def __init__(self, factory: Callable[[int], object], method: str = "publish") -> None:
        if not callable(factory):
            raise refusal("factory", factory, "a callable that takes a seed")
        self._factory = factory
        self._method = method
        made = factory(0)
        self.guarantee = made.guarantee if isinstance(made, Guaranteed) else None

    def __call__(self, data: object, seed: int) -> object:
        return methodcaller(self._method, data)(self._factory(seed))


Mechanism: TypeAlias = Callable[..., object] | TrialMechanism


def runs(mechanism: Any, data: object, trials: int, key: Key) -> Iterator[Floats]:
    """Yield outputs of independent runs, float64[n, k]; DataError for unequal lengths or inexact numbers."""
    vectorised, width, number, begin = draws_trials(mechanism), 0, 0, 0
    while begin < trials:
        # The first batch shows how many numbers an output has.
        size = SLOW_BATCH if not (width and vectorised) else min(BATCH, MAX_AT_ONCE // width)
        count, batch_key = min(size, trials - begin), key.derive("batch", number)
        if vectorised:
            rows = _as_rows(mechanism.draw_trials(_copied(data), count, batch_key), count)
        else:
            rows = _one_by_one(mechanism, data, count, batch_key)
        number, begin, width = number + 1, begin + count, _same(rows.shape[1], width)
        if width > MAX_NUMBERS:
            raise DataError(
                f"mechanism gave {width} numbers: expected at most {MAX_NUMBERS} (sum them up, or take a few)"
            )
        if not np.isfinite(rows).all():
            raise DataError("mechanism gave NaN or infinity: expected finite numbers")
        yield rows


def _same(width: int, before: int) -> int:
    if before and width != before:
        raise DataError(f"mechanism gave {width} numbers after {before}: expected as many in every run (pad them)")
    return width


def draws_trials(mechanism: object) -> bool:
    """True if `mechanism` runs many trials at once."""
    return callable(getattr(mechanism, "draw_trials", None))


def check_mechanism(mechanism: object) -> None:
    """ParameterError for a class, or neither callable nor ``draw_trials``."""
    if isinstance(mechanism, type) or not (draws_trials(mechanism) or callable(mechanism)):
        raise ParameterError(
            f"mechanism = {validation.shown(mechanism)}: expected a callable that takes data and a generator "
            "(or a seed), or a publisher's factory in fastdp.auditing.Publishing"
        )


def _one_by_one(mechanism: Callable[..., object], data: object, count: int, key: Key) -> Floats:
    generator = np.random.default_rng(int.from_bytes(key.reveal(), "big"))
    seeded = wants_seed(mechanism)
    rows: list[Floats] = []
    for _ in range(count):
        row = _as_row(mechanism(_copied(data), int(generator.integers(2**63)) if seeded else generator))
        _same(row.size, rows[-1].size if rows else 0)
        rows.append(row)
    return np.stack(rows)


def _copied(data: object) -> object:
    try:
        return copy.deepcopy(data)
    except TypeError:
        raise ParameterError("x: expected data that can be copied, because runs may change them") from None


def wants_seed(mechanism: Mechanism) -> bool:
    """True if the second parameter is ``seed``."""
    try:
        names = list(inspect.signature(cast("Callable[..., object]", mechanism)).parameters)
    except (TypeError, ValueError):
        return False
    return len(names) > 1 and names[1] == "seed"


def _as_row(output: object) -> Floats:
    # The output is not shown: it may be the input.
    row = as_array(output)
    if row is None or row.dtype.kind not in "biuf" or row.size == 0:
        raise DataError(f"mechanism gave a {type(output).__name__}: expected a number or a filled array of numbers")
    return _as_doubles(row).ravel()


def _as_rows(outputs: Array, count: int) -> Floats:
    rows = np.asarray(outputs)
    if rows.dtype.kind not in "biuf" or rows.ndim not in (1, 2) or rows.shape[0] != count or rows.size == 0:
        raise DataError(
            f"draw_trials gave shape {rows.shape} and dtype {kind_of(rows.dtype)}: expected numbers, {count} rows of "
            "them"
        )
    return _as_doubles(rows.reshape(count, -1))


def _as_doubles(numbers: Array) -> Floats:
    if numbers.dtype.kind in "iu" and ((numbers > MAX_WHOLE).any() or (numbers < -MAX_WHOLE).any()):
        raise DataError(
            "mechanism gave whole numbers beyond 2^53, whose last bits a double loses: expected smaller ones (give "
            "the high and the low half of each)"
        )
    return numbers.astype(np.float64)


@dataclass(frozen=True)
class AuditResult:
    """Holds an empirical lower bound on epsilon.

    Attributes
    ----------
    epsilon_lower : float
        At most the true epsilon (at ``delta``) with probability ``confidence``; at least 0.
    epsilon, delta
        The claim; epsilon None without one.
    confidence : float
        Probability that the bound holds.
    trials, counted : int
        Runs on each input, and those that the bound counts.
    hits, hits_adjacent : int
        Counted runs with the event.
    seconds : float
        Time that the audit took.
    chosen : Event or None
        Event of the bound.

    Examples
    --------
    >>> import fastdp
    >>> result = fastdp.audit(
    ...     lambda values, generator: 1.0, [1, 0], [1, 1],
    ...     epsilon=1.0, trials=400, progress=False,
    ... )
    >>> result.verdict
    'consistent with the claim'
    """

    epsilon_lower: float
    epsilon: float | None
    delta: float
    confidence: float
    trials: int
    counted: int
    hits: int
    hits_adjacent: int
    seconds: float
    chosen: Event | None = field(default=None, repr=False, compare=False)

    @property
    def event(self) -> str:
        """The event in words, or "none"."""
        return "none" if self.chosen is None else str(self.chosen)

    @property
    def swapped(self) -> bool:
        """True if the event is likelier on the adjacent input."""
        return self.chosen is not None and self.chosen.swapped

    @property
    def violated(self) -> bool:
        """True if the bound is above the claim."""
        return self.epsilon is not None and self.epsilon_lower > self.epsilon

    @property
    def verdict(self) -> str:
        """One of "claim violated", "consistent with the claim", "no claim to check"."""
        if self.epsilon is None:
            return "no claim to check"
        return "claim violated" if self.violated else "consistent with the claim"

    def __str__(self) -> str:
        at = f" at delta = {self.delta:g}" if self.delta else ""
        claim = "none" if self.epsilon is None else f"epsilon = {self.epsilon:g}" + at
        choosing = self.trials - self.counted
        return "\n".join(
            (
                f"{self.verdict}: epsilon is at least {self.epsilon_lower:.4f}{at}",
                f"  claim       {claim}",
                f"  confidence  {self.confidence:.10g}",
                f"  event       {self.event}{' (likelier on x_adjacent)' if self.swapped else ''}",
                f"  held        on x {self.hits:,} times, on x_adjacent {self.hits_adjacent:,}, of {self.counted:,}",
                f"  trials      {self.trials:,} on each input, {choosing:,} of them to choose the event",
                f"  time        {self.seconds:.2f} s",
            )
        )


MIN_TRIALS, MAX_TRIALS = 100, 10**12
#: Runs that train features, and as many that choose events: 1/LEARNING_SHARE of all, at least LEARNING, at most 1/4.
LEARNING, LEARNING_SHARE = 2**17, 16
#: Numbers in memory at once, for the outputs of one set of runs.
MAX_KEPT = 2**24
#: Seconds before a progress bar is shown.
TIMEOUT_SECONDS = 2.0


@validation.plain
def audit(
    mechanism: Mechanism,
    x: object,
    x_adjacent: object,
    *,
    trials: int = 100_000,
    epsilon: float | None = None,
    delta: float | None = None,
    events: str | Callable[[Floats], Floats] | Sequence[Callable[[Floats], Floats]] = "auto",
    confidence: float = 0.99999,
    seed: int | str | None = None,
    progress: bool = True,
) -> AuditResult:
    """Bound a mechanism's privacy loss from below by runs on two adjacent inputs.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(data, generator)``, or ``mechanism(data, seed)`` if its second parameter has that name; returns a
        number or an array of fixed length.  Or a :class:`fastdp.auditing.Publishing`, or a
        :class:`fastdp.auditing.TrialMechanism`.
    x, x_adjacent : any
        Adjacent inputs, chosen to have a large loss.
    trials : int
        Runs on each input, at least 100.  A leak must occur in several of the runs that choose the event: a quarter
        of up to 2^19 runs, a sixteenth from 2^21 on.
    epsilon, delta : float, optional
        The claim, by default ``mechanism.guarantee``'s, else with delta 0.
    events : "auto", a callable, or a sequence of callables
        A callable maps outputs, float64[n, k], to float64[n]; its best event is counted beside those of "auto".
    confidence : float
        Probability that the bound holds, in [0.5, 1).
    seed : int or str, optional
        To repeat an audit.
    progress : bool
        True for a bar on a terminal.

    Raises
    ------
    ParameterError
        For another argument.
    DataError
        For outputs that are not finite, integers beyond 2^53, or of unequal lengths.

    Warns
    -----
    UserWarning
        If the output is equal for all seeds.

    Notes
    -----
    A bound above the claim refutes it, except with probability 1 - confidence; a bound below proves nothing.

    Examples
    --------
    >>> import fastdp
    >>> def careless(values, generator):  # needs twice this noise
    ...     noise = fastdp.discrete_laplace(0.5, 1, rng=generator)
    ...     return sum(values) + int(noise[0])
    >>> result = fastdp.audit(
    ...     careless, [1, 0], [1, 1], epsilon=1.0,
    ...     trials=2000, seed=1, progress=False,
    ... )
    >>> result.epsilon_lower > 1.0
    True
    """
    begin = time.perf_counter()
    check_mechanism(mechanism)
    runs_each = validation.integer("trials", trials, MIN_TRIALS, MAX_TRIALS)
    level = Real(least=0.5, below=1.0).check("confidence", confidence)
    claim, at = _claim(mechanism, epsilon, delta)
    statistics, shows = _statistics(events), validation.flag("progress", progress)
    key, inputs = Key.choose(seed, None).derive("audit"), (x, x_adjacent)
    learning = min(runs_each // 4, max(LEARNING, runs_each // LEARNING_SHARE))
    with tqdm(
        total=2 * runs_each, unit=" runs", delay=TIMEOUT_SECONDS, disable=None if shows else True, leave=False
    ) as bar:

        def collect(purpose: str, count: int) -> tuple[Floats, Floats]:
            both = []
            for side, data in enumerate(inputs):
                rows: list[Floats] = []
                kept = 0
                for batch in runs(mechanism, data, count, key.derive(purpose, side)):
                    # Wide outputs: fewer of them.
                    most = min(count, max(MIN_TRIALS // 4, MAX_KEPT // batch.shape[1]))
                    rows.append(batch[: most - kept])
                    kept += rows[-1].shape[0]
                    bar.update(rows[-1].shape[0])
                    if kept == most:
                        break
                both.append(np.concatenate(rows))
            if both[0].shape != both[1].shape:
                raise ParameterError(
                    f"x_adjacent: the mechanism gives {both[1].shape[1]} numbers on it and {both[0].shape[1]} on x; "
                    "expected as many on both"
                )
            return both[0], both[1]

        learned = collect("learn", learning)
        _warn_of_a_seed(mechanism, learned)
        learning = learned[0].shape[0]
        counted = runs_each - 2 * learning
        features = make_features(*learned, statistics)
        fresh = collect("choose", learning)
        chosen = choose_events(features, learned, fresh, counted, 1.0 - level, at, len(statistics))
        del learned, fresh
        hits = np.zeros((2, len(chosen)), np.int64)
        for side, data in enumerate(inputs if chosen else ()):
            for batch in runs(mechanism, data, counted, key.derive("count", side)):
                hits[side] += [event.count(batch) for event in chosen]
                bar.update(batch.shape[0])
    # Where no event is chosen, each has probability delta or less, and the bound is 0.
    best, bound, both = None, 0.0, (0, 0)
    if chosen:
        swapped = np.array([event.swapped for event in chosen])
        first, second = np.where(swapped, hits[::-1], hits)
        bounds = epsilon_at_least(first, second, counted, (1.0 - level) / len(chosen), at)
        k = int(bounds.argmax())
        best, bound, both = chosen[k], max(0.0, float(bounds[k])), (int(hits[0, k]), int(hits[1, k]))
    return AuditResult(bound, claim, at, level, runs_each, counted, *both, time.perf_counter() - begin, best)


def _warn_of_a_seed(mechanism: Mechanism, learned: tuple[Floats, Floats]) -> None:
    if draws_trials(mechanism) or not wants_seed(mechanism):
        return
    if all((side == side[0]).all() for side in learned):
        warn(
            f"the mechanism gave one output for each input in {learned[0].shape[0]} runs with different seeds: "
            "expected noise that follows the seed (is the seed passed on?)",
            UserWarning,
        )


def _claim(mechanism: Mechanism, epsilon: float | None, delta: float | None) -> tuple[float | None, float]:
    stated: object = mechanism.guarantee if isinstance(mechanism, Guaranteed) else None
    guarantee = stated if isinstance(stated, Guarantee) else None
    claim = None if guarantee is None else guarantee.epsilon
    if epsilon is not None:
        claim = Real(least=0.0).check("epsilon", epsilon)
    if delta is None:
        return claim, 0.0 if guarantee is None else guarantee.delta
    return claim, Real(least=0.0, below=1.0).check("delta", delta)


def _statistics(
    events: str | Callable[[Floats], Floats] | Sequence[Callable[[Floats], Floats]],
) -> list[tuple[str, Statistic]]:
    if isinstance(events, str):
        validation.choice("events", events, ("auto",))
        return []
    listed: list[Any] = list(events) if isinstance(events, Sequence) else [events]
    if not listed or not all(callable(statistic) for statistic in listed):
        raise refusal("events", events, "'auto' or callables on outputs")
    return [(getattr(f, "__name__", f"statistic {i}"), _checked(f)) for i, f in enumerate(listed)]


def _checked(statistic: Callable[[Floats], Floats]) -> Statistic:
    def numbers(outputs: Floats) -> Floats:
        values = np.asarray(statistic(outputs))
        if values.shape != (outputs.shape[0],) or values.dtype.kind not in "biuf":
            raise ParameterError(
                f"events: a callable gave shape {values.shape} and dtype {values.dtype} for {outputs.shape[0]} "
                "outputs; expected one number for each"
            )
        return values.astype(np.float64)

    return numbers
