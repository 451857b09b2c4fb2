"""``fastdp audit``: the package's mechanisms, audited or computed one after the other, and the lines of its table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fastdp import validation
from fastdp.auditing.mechanisms import draws_trials
from fastdp.auditing.run import MIN_TRIALS, audit
from fastdp.errors import ParameterError
from fastdp_lab.audit.catalogue import Case, audit_cases
from fastdp_lab.audit.catalogue.exact_losses import exact_losses
from fastdp_lab.audit.exact import ExactLoss

WARM_TRIALS = 1000
GROUPS = ("all", "shipped", "exact")
COLUMNS = ("mechanism", "claimed epsilon", "delta", "lower bound", "confidence", "trials", "seconds", "verdict")


@dataclass(frozen=True)
class Line:
    """One audit, or one exact loss.

    Attributes
    ----------
    name : str
        Of the mechanism.
    epsilon, delta : float
        The claim.
    found : float
        Lower bound on epsilon, or the exact loss.
    confidence : float or None
        Of the bound; None for an exact loss.
    trials : int
        Runs on each input, or ratios compared.
    seconds : float
        Time of that audit alone, after compilation.
    """

    name: str
    epsilon: float
    delta: float
    found: float
    confidence: float | None
    trials: int
    seconds: float

    @property
    def failed(self) -> bool:
        """Whether what was found is above the claim."""
        return self.found > self.epsilon

    @property
    def verdict(self) -> str:
        """In words."""
        return "CLAIM VIOLATED" if self.failed else "consistent"

    def cells(self) -> tuple[str, ...]:
        """As text, by :data:`COLUMNS`."""
        return (
            self.name,
            f"{self.epsilon:g}",
            f"{self.delta:g}",
            f"{self.found:.4f}",
            "exact" if self.confidence is None else f"{self.confidence:.10g}",
            f"{self.trials:,}",
            f"{self.seconds:.2f}",
            self.verdict,
        )


def lines(name: str, max_trials: int | None, seed: int | str | None) -> Iterator[Line]:
    """Audits, one after the other.

    Parameters
    ----------
    name : str
        A mechanism, or ``"all"``, ``"shipped"`` (audited by runs) or ``"exact"``.
    max_trials : int, optional
        At most so many runs on each input; by default each mechanism's usual number.
    seed : int or str, optional
        To repeat the table.

    Raises
    ------
    ParameterError
        For a name that is not in the catalogue; before any audit.
    """
    cases, exact = audit_cases(), exact_losses(seed)
    known = [*(case.name for case in cases), *exact]
    if name not in GROUPS and name not in known:
        raise ParameterError(
            f"mechanism = {validation.shown(name)}: expected one of {', '.join(GROUPS)}, or {', '.join(known)}"
        )
    for case in cases:
        if name in ("all", "shipped", case.name):
            warm(case)
            yield audited(case, case.trials if max_trials is None else min(case.trials, max_trials), seed)
    for label, compute in exact.items():
        if name in ("all", "exact", label):
            yield computed(label, compute)


def warm(case: Case) -> None:
    """Compile what the case needs; compilation is not part of an audit's time."""
    trials = WARM_TRIALS if draws_trials(case.mechanism) else MIN_TRIALS
    audit(case.mechanism, case.x, case.x_adjacent, trials=trials, events=case.events or "auto", seed=0)


def audited(case: Case, trials: int, seed: int | str | None) -> Line:
    """One audit by runs."""
    found = audit(case.mechanism, case.x, case.x_adjacent, trials=trials, events=case.events or "auto", seed=seed)
    assert found.epsilon is not None  # noqa: S101 - every mechanism of the catalogue has a guarantee
    bound = found.epsilon_lower, found.confidence
    return Line(case.name, found.epsilon, found.delta, *bound, found.trials, found.seconds)


def computed(name: str, compute: Callable[[], ExactLoss]) -> Line:
    """One exact loss."""
    begin = time.perf_counter()
    loss = compute()
    return Line(name, loss.epsilon, loss.delta, loss.worst, None, loss.cases, time.perf_counter() - begin)
