"""``fastdp audit``: audits by runs, exact losses and couplings, one after the other, as lines of tables."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from fastdp import audit, validation
from fastdp_lab.audit.catalogue import audit_cases
from fastdp_lab.audit.couplings import COUPLINGS
from fastdp_lab.audit.couplings.check import Draw, findings
from fastdp_lab.audit.exact import ExactLoss, exact_losses
from fastdp_lab.audit.runs import Case, ManyRuns

#: Random instances of each coupling.
INSTANCES = 100
Seed = int | str | None


@dataclass(frozen=True)
class Line:
    """One audit, one exact loss, or the instances of one coupling."""

    name: str
    numbers: dict[str, str]
    found: float
    failed: bool
    verdict: str

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the table's columns."""
        return ("mechanism", *self.numbers, "verdict")

    @property
    def cells(self) -> tuple[str, ...]:
        """Texts of the line, by column."""
        return (self.name, *self.numbers.values(), self.verdict)


def audited(case: Case, trials: int | None, seed: Seed) -> Line:
    """An audit by so many runs, at most the usual number; compilation is not part of its time."""
    several = isinstance(case.mechanism, ManyRuns)
    for count, own in ((1000 if several else 100, 0), (min(case.trials, trials or case.trials), seed)):
        result = audit(case.mechanism, case.x, case.x_adjacent, trials=count, events=case.events or "auto", seed=own)
    claim, at = result.epsilon or 0.0, f"{result.confidence:.10g}"
    return _bounded(case.name, claim, result.delta, result.epsilon_lower, at, result.trials, result.seconds)


def computed(name: str, compute: Callable[[], ExactLoss]) -> Line:
    """One exact loss."""
    begin = time.perf_counter()
    loss = compute()
    seconds = time.perf_counter() - begin
    return _bounded(name, loss.epsilon, loss.delta, loss.worst, "exact", loss.cases, seconds)


def _bounded(name: str, claim: float, delta: float, found: float, at: str, trials: int, seconds: float) -> Line:
    numbers = {
        "claimed epsilon": f"{claim:g}",
        "delta": f"{delta:g}",
        "lower bound": f"{found:.4f}",
        "confidence": at,
        "trials": f"{trials:,}",
        "seconds": f"{seconds:.2f}",
    }
    failed = found > claim
    return Line(name, numbers, found, failed, "CLAIM VIOLATED" if failed else "consistent")


def coupled(name: str, draw: Draw, instances: int, seed: int) -> Line:
    """So many random instances of a coupling; the verdict names the outputs that were unequal."""
    found = findings(draw, instances, seed)
    ratio, failures = max(one.ratio for one in found), sum(one.failed for one in found)
    numbers = {
        "instances": f"{instances:,}",
        "outputs compared": f"{sum(one.compared for one in found):,}",
        "largest cost / claim": f"{ratio:.4f}",
        "failures": f"{failures:,}",
    }
    unequal = ", ".join(dict.fromkeys(name for one in found for name in one.unequal))
    return Line(name, numbers, ratio, failures > 0, f"NOT COUPLED ({unequal or 'cost'})" if failures else "coupled")


#: The calls that make lines, by group and name.
Jobs = dict[str, dict[str, Callable[[], Line]]]


def shipped(trials: int | None = None, seed: int | None = None) -> Jobs:
    """Audit everything in the package, by at most so many runs; a seed repeats the lines."""
    own = secrets.randbits(32) if seed is None else seed
    return {
        "shipped": {case.name: partial(audited, case, trials, seed) for case in audit_cases()},
        "exact": {name: partial(computed, name, loss) for name, loss in exact_losses(seed).items()},
        "couplings": {name: partial(coupled, name, draw, INSTANCES, own) for name, draw in COUPLINGS.items()},
    }


def lines(jobs: Jobs, option: str, name: str) -> Iterator[Line]:
    """Those of one name or group, or all, one after the other; ``option`` is for the message."""
    known = ("all", *jobs, *(label for several in jobs.values() for label in several))
    validation.choice(option, name, known)
    for group, several in jobs.items():
        for label, run in several.items():
            if name in ("all", group, label):
                yield run()
