"""``fastdp.audit``: an empirical lower bound on epsilon, with its confidence.

There are three sets of runs on each input.  The first trains features, the second chooses the events that distinguish
the inputs best, the third counts how often they hold, each with its share of the confidence.  Only the third enters
the bound, so the choice does not bias it.  Sources: Clopper and Pearson 1934 (interval);
Jagielski, Ullman and Oprea 2020 (design).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from fastdp import validation
from fastdp.auditing.events import Event, choose_events, epsilon_at_least
from fastdp.auditing.mechanisms import Statistic, check_mechanism, draws_trials, make_features, runs, wants_seed
from fastdp.errors import ParameterError, warn
from fastdp.guarantee import Guarantee
from fastdp.kinds import Floats
from fastdp.noise.key import Key

# What an audit found.


@dataclass(frozen=True)
class AuditResult:
    """An empirical lower bound on epsilon.

    Attributes
    ----------
    epsilon_lower : float
        With probability ``confidence`` or more the true epsilon (at ``delta``) is not below this; at least 0.
    epsilon : float or None
        The claim; None if there is none.
    delta : float
        The claim's delta.
    confidence : float
        One minus the probability that the bound is above the truth, at most.
    trials : int
        Runs on each input.
    event : str
        The event that the bound comes from.
    swapped : bool
        Whether the event is likelier on the adjacent input.
    counted : int
        Runs on each input that the bound comes from; the others chose the event.
    hits, hits_adjacent : int
        In how many of them the event held.
    seconds : float
        Time taken.
    chosen : Event or None
        The event itself: ``chosen.count(outputs)`` says in how many rows of other outputs it holds.
    """

    epsilon_lower: float
    epsilon: float | None
    delta: float
    confidence: float
    trials: int
    event: str
    swapped: bool
    counted: int
    hits: int
    hits_adjacent: int
    seconds: float
    chosen: Event | None = field(default=None, repr=False, compare=False)

    @property
    def violated(self) -> bool:
        """Whether the bound is above the claim."""
        return self.epsilon is not None and self.epsilon_lower > self.epsilon

    @property
    def verdict(self) -> str:
        """In words."""
        if self.epsilon is None:
            return "no claim to check"
        return "claim violated" if self.violated else "consistent with the claim"

    def as_dict(self) -> dict[str, Any]:
        """All of it, the verdict included, as plain numbers and texts."""
        numbers = {part.name: getattr(self, part.name) for part in fields(self) if part.name != "chosen"}
        return {**numbers, "verdict": self.verdict}

    def __str__(self) -> str:
        """A few lines."""
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
    mechanism: Any,
    x: Any,
    x_adjacent: Any,
    *,
    trials: int = 100_000,
    epsilon: float | None = None,
    delta: float | None = None,
    events: str | Callable[[Floats], Floats] | Sequence[Callable[[Floats], Floats]] = "auto",
    confidence: float = 0.99999,
    seed: int | str | None = None,
    progress: bool = True,
) -> AuditResult:
    """Run a mechanism on two adjacent inputs and bound its privacy loss from below.

    Parameters
    ----------
    mechanism : callable
        ``mechanism(data, generator)``, the generator NumPy's, or ``mechanism(data, seed)`` if its second parameter
        has that name: a number or an array of numbers, as many in every run.  For publishers there is
        :class:`fastdp.auditing.Publishing`.
        An object with ``draw_trials`` (:class:`fastdp.auditing.TrialMechanism`) runs many trials in one call.
    x, x_adjacent : any
        Adjacent inputs.  The caller makes sure that they are adjacent, and chooses a pair with a large loss.
    trials : int
        Runs on each input, at least 100.  Half of them choose the event, of many an eighth: a leak is found if
        it occurs in several of the runs that choose, n / 16 for n trials.
    epsilon, delta : float, optional
        The claim, by default that of ``mechanism.guarantee`` if it has one; otherwise delta is 0.
    events : "auto", a callable, or a sequence of callables
        A callable computes a number of each output, float64[n, k] to float64[n], such as a known log-likelihood
        ratio; the best event on each is always counted.  They are added to those of "auto": thresholds
        on outputs and on learned directions, sets of values, the grain of floating-point numbers.
    confidence : float
        1 minus the probability that the bound is above the truth, in [0.5, 1).
    seed : int or str, optional
        To repeat an audit; fresh randomness by default.
    progress : bool
        Show a bar on a terminal if it takes long.

    Returns
    -------
    AuditResult
        The bound, the event, the verdict; ``print`` it.

    Raises
    ------
    ParameterError
        Naming the argument, its value and what is accepted.
    DataError
        If outputs are not finite numbers, are whole numbers beyond 2^53, or are not as many in every run.

    Warns
    -----
    UserWarning
        If a mechanism that takes a seed gives one output whatever the seed.

    Notes
    -----
    A bound above the claim refutes it, except with probability 1 - confidence.  A bound below proves nothing: another
    pair of inputs, another event or more trials may give a higher one.

    Examples
    --------
    >>> import fastdp
    >>> def careless(values, generator):  # needs twice this noise
    ...     return sum(values) + int(fastdp.discrete_laplace(0.5, 1, rng=generator)[0])
    >>> found = fastdp.audit(careless, [1, 0], [1, 1], epsilon=1.0, trials=2000, seed=1, progress=False)
    >>> found.epsilon_lower > 1.0
    True
    """
    begin = time.perf_counter()
    check_mechanism(mechanism)
    runs_each = validation.integer("trials", trials, MIN_TRIALS, MAX_TRIALS)
    level = validation.real("confidence", confidence)
    if not 0.5 <= level < 1.0:
        raise ParameterError(f"confidence = {confidence!r}: expected a number of at least 0.5 and below 1")
    claim, at = _claim(mechanism, epsilon, delta)
    given, shows = _statistics(events), validation.flag("progress", progress)
    key = Key.choose(seed, None).derive("audit")
    learning = min(runs_each // 4, max(LEARNING, runs_each // LEARNING_SHARE))
    with tqdm(
        total=2 * runs_each, unit=" runs", delay=TIMEOUT_SECONDS, disable=None if shows else True, leave=False
    ) as bar:

        def collect(purpose: str, count: int) -> tuple[Floats, Floats]:
            both = []
            for side, data in enumerate((x, x_adjacent)):
                parts: list[Floats] = []
                kept = 0
                for part in runs(mechanism, data, count, key.derive(purpose, side)):
                    # Wide outputs: fewer of them.
                    most = min(count, max(MIN_TRIALS // 4, MAX_KEPT // part.shape[1]))
                    parts.append(part[: most - kept])
                    kept += parts[-1].shape[0]
                    bar.update(parts[-1].shape[0])
                    if kept == most:
                        break
                both.append(np.concatenate(parts))
            if both[0].shape != both[1].shape:
                raise ParameterError(
                    f"x_adjacent: the mechanism gives {both[1].shape[1]} numbers on it and {both[0].shape[1]} on x; "
                    "expected as many on both"
                )
            return both[0], both[1]

        def count_hits(events: list[Event]) -> NDArray[np.int64]:
            hits: NDArray[np.int64] = np.zeros((2, len(events)), np.int64)
            for side, data in enumerate((x, x_adjacent)):
                for part in runs(mechanism, data, counted, key.derive("count", side)):
                    hits[side] += [event.count(part) for event in events]
                    bar.update(part.shape[0])
            return hits

        learned = collect("learn", learning)
        _warn_of_a_seed(mechanism, learned)
        learning = learned[0].shape[0]
        counted = runs_each - 2 * learning
        features = make_features(*learned, given)
        fresh = collect("choose", learning)
        chosen = choose_events(features, learned, fresh, counted, 1.0 - level, at, len(given))
        del learned, fresh
        hits = count_hits(chosen) if chosen else np.zeros((2, 0), np.int64)
    # Where no event is chosen, each has probability delta or less, and the bound is 0.
    best, bound, both = None, 0.0, [0, 0]
    if chosen:
        swapped = np.array([event.swapped for event in chosen])
        first, second = np.where(swapped, hits[::-1], hits)
        bounds = epsilon_at_least(first, second, counted, (1.0 - level) / len(chosen), at)
        place = int(bounds.argmax())
        best, bound, both = chosen[place], max(0.0, float(bounds[place])), hits[:, place].tolist()
    return AuditResult(
        epsilon_lower=bound,
        epsilon=claim,
        delta=at,
        confidence=level,
        trials=runs_each,
        event="none" if best is None else str(best),
        swapped=best is not None and best.swapped,
        counted=counted,
        hits=both[0],
        hits_adjacent=both[1],
        seconds=time.perf_counter() - begin,
        chosen=best,
    )


def _warn_of_a_seed(mechanism: Any, learned: tuple[Floats, Floats]) -> None:
    """Warn where every run has the same noise, which means that a factory ignores its seed."""
    if draws_trials(mechanism) or not wants_seed(mechanism):
        return
    if all((side == side[0]).all() for side in learned):
        warn(
            f"the mechanism gave one output for each input in {learned[0].shape[0]} runs with different seeds: "
            "expected noise that follows the seed (is the seed passed on?)",
            UserWarning,
        )


def _claim(mechanism: Any, epsilon: float | None, delta: float | None) -> tuple[float | None, float]:
    """What is claimed, from the arguments first."""
    guarantee = getattr(mechanism, "guarantee", None)
    if not isinstance(guarantee, Guarantee):
        guarantee = None
    claim = None if guarantee is None else guarantee.epsilon
    if epsilon is not None:
        claim = validation.real("epsilon", epsilon)
        if claim < 0.0:
            raise ParameterError(f"epsilon = {epsilon!r}: expected a number of at least 0")
    if delta is None:
        return claim, 0.0 if guarantee is None else guarantee.delta
    at = validation.real("delta", delta)
    if not 0.0 <= at < 1.0:
        raise ParameterError(f"delta = {delta!r}: expected a number of at least 0 and below 1")
    return claim, at


def _statistics(
    events: str | Callable[[Floats], Floats] | Sequence[Callable[[Floats], Floats]],
) -> list[tuple[str, Statistic]]:
    """The caller's statistics, checked at their first use, by name."""
    if isinstance(events, str):
        validation.choice("events", events, ("auto",))
        return []
    listed: list[Any] = list(events) if isinstance(events, Sequence) else [events]
    if not listed or not all(callable(statistic) for statistic in listed):
        raise ParameterError(f"events = {validation.shown(events)}: expected 'auto' or callables on outputs")
    return [(getattr(f, "__name__", f"statistic {i}"), _checked(f)) for i, f in enumerate(listed)]


def _checked(statistic: Callable[[Floats], Floats]) -> Statistic:
    def numbers(outputs: Floats) -> Floats:
        found = np.asarray(statistic(outputs))
        if found.shape != (outputs.shape[0],) or found.dtype.kind not in "biuf":
            raise ParameterError(
                f"events: a callable gave shape {found.shape} and dtype {found.dtype} for {outputs.shape[0]} "
                "outputs; expected one number for each"
            )
        return found.astype(np.float64)

    return numbers
