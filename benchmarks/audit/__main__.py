"""``python -m benchmarks.audit``: audit everything with many runs; ``results/audit.json`` keeps the rows."""

import json
import secrets
import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated

from benchmarks import ROOT
from benchmarks.audit.catalogue import exact_controls, negative_controls, parts
from benchmarks.audit.couplings import CONTROLS as COUPLING_CONTROLS
from benchmarks.audit.couplings import SHIPPED as SHIPPED_COUPLINGS
from benchmarks.shared import call
from fastdp_lab.audit.lines import INSTANCES, Jobs, Line, audited, computed, coupled, shipped
from fastdp_lab.audit.runs import Case

#: A negative control is audited with so many runs, one after the other, until its claim is refuted.
LOOKS = tuple(factor * 10**power for power in range(3, 10) for factor in (1, 3))
GROUPS = ("shipped", "exact", "controls", "couplings")
#: Cells by column, of each row by group and name.
Rows = dict[str, dict[str, dict[str, str]]]
RESULTS = ROOT / "benchmarks" / "results" / "audit.json"


def main(
    only: Annotated[Sequence[str], f"groups ({', '.join(GROUPS)}) or names; by default all"] = (),
    *,
    trials: Annotated[int | None, "at most so many runs on each input"] = None,
    seed: Annotated[int | None, "to repeat the audit; by default fresh randomness"] = None,
    write: Annotated[bool, f"keep the rows in {RESULTS.name}"] = False,
) -> int:
    """Audit everything with many runs; exits with 1 if a shipped claim is refuted, or a negative control is not."""
    jobs = all_jobs(trials, seed)
    names = {name for several in jobs.values() for name in several}
    if unknown := set(only) - names - set(GROUPS):
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; expected {', '.join((*GROUPS, *names))}")
    wrong: list[str] = []
    rows: Rows = {group: {} for group in GROUPS}
    for group, several in jobs.items():
        for name, run in several.items():
            if only and not {group, name} & set(only):
                continue
            line, control = run(), is_control(name)
            cells = line.cells
            if control:
                cells = (*cells[:-1], "caught" if line.failed else "NOT CAUGHT")
            if line.failed != control:
                wrong.append(name)
            rows[group][name] = dict(zip(line.columns[1:], cells[1:], strict=True))
            print(f"| {' | '.join(cells)} |", flush=True)
    if write:
        kept = with_rows(json.loads(RESULTS.read_text()), rows, {group: [*jobs[group]] for group in GROUPS})
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    if wrong:
        print(f"not as expected: {', '.join(wrong)}", file=sys.stderr)
    return int(bool(wrong))


def is_control(name: str) -> bool:
    """True for a control, which must be caught."""
    return name.startswith(("control-", "exact-control-"))


def all_jobs(trials: int | None, seed: int | None) -> Jobs:
    """The maker of each line, by group and name: the package's and those of this folder."""
    jobs = shipped(trials, seed)
    jobs["shipped"] |= {case.name: partial(audited, case, trials, seed) for case in parts(1.0)}
    jobs["exact"] |= {name: partial(computed, name, loss) for name, loss in exact_controls(seed).items()}
    jobs["controls"] = {case.name: partial(caught, case, trials, seed) for case in negative_controls()}
    own = secrets.randbits(32) if seed is None else seed
    more = {**SHIPPED_COUPLINGS, **COUPLING_CONTROLS}
    jobs["couplings"] |= {name: partial(coupled, name, draw, INSTANCES, own) for name, draw in more.items()}
    return jobs


def caught(case: Case, trials: int | None, seed: int | None) -> Line:
    """The first look that refutes the claim, or the last one."""
    last = case.trials if trials is None else trials
    for look in (*(look for look in LOOKS if look < last), last):
        # A seed for each look: with one seed a longer look would repeat the runs of the shorter one.
        line = audited(case, look, None if seed is None else f"{seed} {look}")
        if line.failed:
            break
    return line


def with_rows(kept: Rows, rows: Rows, order: dict[str, list[str]]) -> Rows:
    """The kept rows of these names, with the new ones in their places."""
    known = {group: kept.get(group, {}) | rows.get(group, {}) for group in order}
    return {
        group: {name: known[group][name] for name in names if name in known[group]} for group, names in order.items()
    }


if __name__ == "__main__":
    sys.exit(call("audit", main))
