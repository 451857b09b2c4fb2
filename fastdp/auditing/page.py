"""The page of audits: every mechanism of the package, exact where its law is finite, and the broken twins."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastdp import validation
from fastdp._version import __version__
from fastdp.auditing import coupling_page
from fastdp.auditing.catalogue import Case, audit_cases
from fastdp.auditing.couplings import Line as CouplingLine
from fastdp.auditing.exact_catalogue import exact_losses
from fastdp.auditing.run import LEAST_TRIALS, audit
from fastdp.auditing.trials import draws_trials
from fastdp.errors import ParameterError

#: Trials after which a broken twin is looked at, until it is caught.
LOOKS = tuple(factor * 10**power for power in range(3, 10) for factor in (1, 3))
WARM_TRIALS = 1000
GROUPS = ("all", "shipped", "broken", "exact")


@dataclass(frozen=True)
class Line:
    """One audit on the page.

    Attributes
    ----------
    name : str
        Of the mechanism.
    kind : str
        ``"shipped"``, ``"broken"`` or ``"exact"``.
    epsilon, delta : float
        The claim.
    found : float
        Lower bound on epsilon, or the exact loss.
    confidence : float
        Of the bound; 1 for an exact one.
    trials : int
        Runs on each input, or ratios compared.  For a broken twin, how many it took.
    seconds : float
        Time of that audit alone, after compilation.
    violated : bool
        Whether what was found is above the claim.
    expected : bool
        Whether it should be.
    """

    name: str
    kind: str
    epsilon: float
    delta: float
    found: float
    confidence: float
    trials: int
    seconds: float
    violated: bool
    expected: bool

    @property
    def as_it_should(self) -> bool:
        """Shipped and not violated, or broken and caught."""
        return self.violated == self.expected

    @property
    def verdict(self) -> str:
        """In words."""
        if self.expected:
            return "caught" if self.violated else "NOT CAUGHT"
        return "CLAIM VIOLATED" if self.violated else "consistent"


def lines(name: str, most_trials: int | None, seed: int | str | None) -> Iterator[Line]:
    """Audits, one after the other.

    Parameters
    ----------
    name : str
        A mechanism, or ``"all"``, ``"shipped"``, ``"broken"``, ``"exact"``.
    most_trials : int, optional
        At most so many runs on each input; by default each mechanism's usual number.
    seed : int or str, optional
        To repeat the page.

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
        kind = "broken" if case.broken else "shipped"
        if name in ("all", kind, case.name):
            yield _caught_after(case, most_trials, seed) if case.broken else _audited(case, most_trials, seed)
    for label, (compute, expected) in exact.items():
        if name in ("all", "exact", label):
            begin = time.perf_counter()
            loss = compute()
            duration = time.perf_counter() - begin
            yield Line(
                *(
                    label,
                    "exact",
                    loss.epsilon,
                    loss.delta,
                    loss.worst,
                    1.0,
                    loss.cases,
                    duration,
                    loss.violated,
                    expected,
                )
            )


def _audited(case: Case, most_trials: int | None, seed: int | str | None) -> Line:
    _warm(case)
    return _line(case, case.trials if most_trials is None else min(case.trials, most_trials), seed)


def _caught_after(case: Case, most_trials: int | None, seed: int | str | None) -> Line:
    """The first look that finds the violation, or the last one."""
    _warm(case)
    last = case.trials if most_trials is None else most_trials
    for trials in (*(look for look in LOOKS if look < last), last):
        # Runs of its own: with the same seed a longer look would see the shorter one's again.
        line = _line(case, trials, None if seed is None else f"{seed} {trials}")
        if line.violated:
            break
    return line


def _warm(case: Case) -> None:
    """Compilation is not part of an audit's time."""
    trials = WARM_TRIALS if draws_trials(case.mechanism) else LEAST_TRIALS
    audit(case.mechanism, case.x, case.x_adjacent, trials=trials, events=case.events or "auto", seed=0)


def _line(case: Case, trials: int, seed: int | str | None) -> Line:
    result = audit(case.mechanism, case.x, case.x_adjacent, trials=trials, events=case.events or "auto", seed=seed)
    assert result.epsilon is not None  # noqa: S101 - every mechanism of the catalogue has a guarantee
    return Line(
        case.name,
        "broken" if case.broken else "shipped",
        result.epsilon,
        result.delta,
        result.epsilon_lower,
        result.confidence,
        result.trials,
        result.seconds,
        result.violated,
        case.broken,
    )


COLUMNS = ("mechanism", "claimed epsilon", "delta", "lower bound", "confidence", "trials", "seconds", "verdict")


def cells(line: Line) -> tuple[str, ...]:
    """A line as text, by :data:`COLUMNS`."""
    return (
        line.name,
        f"{line.epsilon:g}",
        f"{line.delta:g}",
        f"{line.found:.4f}",
        "exact" if line.kind == "exact" else f"{line.confidence:.10g}",
        f"{line.trials:,}",
        f"{line.seconds:.2f}",
        line.verdict,
    )


def markdown(done: Sequence[Line], command: str, coupled: Sequence[CouplingLine] = ()) -> str:
    """The whole page.

    Parameters
    ----------
    done : sequence of Line
        What was audited.
    command : str
        How.
    coupled : sequence of Line of couplings
        Couplings that were checked.
    """
    sections = (
        ("shipped", "Mechanisms of the package", SHIPPED),
        ("exact", "Exact losses", EXACT),
        ("broken", "Broken on purpose", BROKEN),
    )
    parts = [HEAD.format(command=command, machine=_machine(), version=__version__)]
    for kind, title, text in sections:
        chosen = [line for line in done if line.kind == kind]
        if chosen:
            parts.append(f"## {title}\n\n{text}\n\n{_table(COLUMNS, [cells(line) for line in chosen])}\n")
    if coupled:
        table = _table(coupling_page.COLUMNS, [coupling_page.cells(line) for line in coupled])
        parts.append(f"## Couplings\n\n{coupling_page.TEXT}\n\n{table}\n")
    return "\n".join((*parts, TAIL))


def _table(columns: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (columns, tuple("---" for _ in columns), *rows))


def _machine() -> str:
    return f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"


HEAD = """# Audits

Made by `{command}` with fastdp {version} on {machine}. Do not edit: run the command again.

An audit runs a mechanism on two adjacent inputs, looks for an event that tells them apart, and bounds epsilon from
below by how often the event holds on either. It can refute a claim; it cannot prove one. The proofs are on the other
pages; an audit looks for what they overlooked, in the code that runs.
"""

SHIPPED = """Inputs are chosen to hurt; trials are runs on each of the two. "Consistent" means that the lower bound is
not above the claim. A bound far below it means that no event of the family comes near the worst one, or that the
mechanism has a slack on this pair of inputs.

What runs is the package's own code. `noisy-max` and `scale-free` are the rules' own choices, of which a publisher
takes one; `adaptive-blocks`, `binary-tree`, `privtree` and the counters that settle draw the noise of all runs at
once and loop over the mechanism's own steps; `smooth-quantile` and `pak-quantile` are vectorised twins, which a test
holds against the rules themselves. The lines from `tops` on are whole streams, but for the local reports: theta after
each piece, what the server collects, all that is published, or of points what the released tree says where the inputs
differ; those up to `tops-levels` by `repeat`, the others by a fresh object for every run.

The inputs differ in one published value or one event, or where the name says so: in the hold-out (`holdout`,
`lag-sum` with one sum for all of it, `lag-sums` with running ones); in the hold-out of a later threshold
(`withheld`), or in the period before it (`withheld-period`); in a value that is published and chooses the next
threshold (`refined`); in two events of one person (`two-events`, with `sensitivity=2`). `adaptive-revised` and
`-retrospective` see `revised` and the retrospective sums beside what is published. `replay` is a stream and its
altered copy under one key, both outputs seen together. A value in front of the first difference meets one noise and
loses epsilon (`replay-prefix`); a value behind it meets two independent noises and loses 2 epsilon, which is the
claim (`replay-after`). That the streams differ, and where first, is public. `phdstream-counts`, `-removal`,
`-two-events` and `adaptive-first` have a single cell, which leaves half of epsilon: that is the claim. Seconds are
wall-clock, after compilation, on a machine that others use too.

What has no line of its own: Gaussian and Cauchy-type noise as drawn (their laws are under "exact"), the logarithmic
scale of ToPL, averages and tail factors of PAK (post-processing), polygons, networks and more than one dimension of
PHDStream, its baselines, and other epsilons than 1 and 2. Tests and proofs stand for them (`docs/privacy.md`)."""

EXACT = """Here probabilities are computed, not estimated. Local reports: ratios of integer weights. Noisy max and
ScaleFree: all winners by the rule's own scores and noise law, over all adjacent hold-outs of three values among five.
Smooth sensitivity: integrals over the corners of what two neighbouring releases may be, by the rule's own constants;
the density is written anew. Its Gaussian and Cauchy-type noise have so much to spare that half of it is no violation.
`exact-pak` is PAK's quantile with its offset: kappa (PAK Eq. 11) hides it at no loss at all, and without kappa the
claim fails. PHDStream's step: exact log-ratios of the decisions at trees that came out, for one event more or less in
any leaf. "Trials" are ratios that were compared."""

BROKEN = """What an audit must catch. "Trials" is how many it took: looks at 1,000, 3,000, 10,000 and so on, each a
fresh audit, until the claim was refuted. `broken-half` is a mechanism above with half of the noise; that of
`hierarchy` must also be caught with three quarters. Halves of the quantiles are under "exact". Those of
`pak-holdout`, `phdstream` and `phdstream-settling` are left out: on these inputs too little of the claim is lost to
tell.

Errors of papers and of code: `theta-missing`, `log2-levels`, `papers-score`, `piecewise-leak`, `floating-point`.
Errors that are easily made: all trees with one noise (`trees-share`), values that choose the next threshold for
nothing (`refined-free`), the mean of withheld values published in their place (`withheld-mean`), blocks that end by
true sums (`blocks-peeking`), noise that is tied to its position, so that an altered replay meets it again
(`replay-first-format`), open noise taken back without a new one (`settling-free`), two counters with one key
(`selective-one-key`), users who report before and after the threshold (`topl-twice`), events that are counted again
(`recounted`), and one event's noise for two of them (`one-event`)."""

TAIL = """## How to read a line, and how to audit your own code

- **lower bound**: with the stated confidence the true epsilon (at the claim's delta) is not below it. The probability
  is over the runs that were counted; others chose the event and learned what it is made of, so looking for the best
  event costs no confidence. The interval is Clopper and Pearson's, which holds for any number of trials.
- **consistent** does not mean private. Another pair of inputs may hurt more: that pair is yours to find.
- **rare events.** What chooses the event sees a quarter of n runs, of more than half a million 131,072, of more
  than two million n / 16 (fewer where these are more than 2^24 numbers). An event that shows itself in fewer than
  about ten of those is not found: with 10,000,000 runs one of probability 1.6e-5 or less, with 100,000 one of 4e-4.
  If you suspect one, name it with `events=`: the best event on each statistic of your own is counted whatever else
  is found.
- **many audits**: each has its own chance of a false alarm, 1e-5 by default. A page of fifty has 5e-4.

```python
import fastdp


def noisy_mean(data, generator):  # NumPy's generator; or call the parameter `seed` to get a whole number
    return sum(data) / len(data) + generator.laplace(0.0, 1.0)


print(fastdp.audit(noisy_mean, [0, 1], [1, 1], trials=100_000, epsilon=0.5))

# A publisher: a fresh one for every run; the claim is its guarantee.
mechanism = fastdp.auditing.Publishing(lambda seed: fastdp.ToPS(1.0, 4.0, holdout=4, max_range=16, seed=seed))
print(fastdp.audit(mechanism, [1, 2, 3, 4, 4, 0], [1, 2, 3, 4, 0, 0], trials=5_000))
```

The first one is refuted although its noise is right for real numbers: floating-point noise betrays the exponent of
what it was added to. Which events are tried: thresholds on each output, on its distance from the median, on running
sums and on a linear discriminant; thresholds on a learned likelihood ratio; sets of values where there are few; the
lowest set bit of floating-point outputs. `events=` adds functions of your own, such as a likelihood ratio that you
know. Several events are counted, each with its share of the error. Every run gets a copy of the data; outputs must be
finite, as many in every run, and whole numbers at most 2^53. A mechanism with a method
`draw_trials(data, trials, key)` and a `guarantee` runs all trials at the speed of its arrays.
"""
