"""``python -m benchmarks.audit``: audit everything with many runs, and write the tables of ``docs/audit.md``."""

from __future__ import annotations

import argparse
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.audit.catalogue import exact_controls, negative_controls, shipped
from benchmarks.audit.coupling_cases import shipped as coupling_cases
from benchmarks.audit.coupling_controls import negative_controls as coupling_controls
from benchmarks.shared import heading
from fastdp_lab.audit.catalogue import Case
from fastdp_lab.audit.catalogue.exact_losses import exact_losses
from fastdp_lab.audit.couplings import INSTANCES, check
from fastdp_lab.audit.lines import COLUMNS, Line, audited, computed, warm

#: A negative control is audited with so many runs, one after the other, until its claim is refuted.
LOOKS = tuple(factor * 10**power for power in range(3, 10) for factor in (1, 3))
GROUPS = ("shipped", "exact", "controls", "couplings")


def main(arguments: list[str] | None = None) -> int:
    """Exits with 1 if a shipped claim is refuted, or a negative control is not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.audit", description=__doc__)
    parser.add_argument("only", nargs="*", help=f"groups ({', '.join(GROUPS)}) or names; by default all")
    parser.add_argument("--trials", type=int, help="at most so many runs on each input")
    parser.add_argument("--seed", type=int, help="to repeat the audit; by default fresh randomness")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the rows into the tables of this page")
    given = sys.argv[1:] if arguments is None else arguments
    options = parser.parse_args(given)
    jobs = {group: list(all_jobs(group, options.trials, options.seed)) for group in GROUPS}
    names = {name for several in jobs.values() for name, _, _ in several}
    if unknown := set(options.only) - names - set(GROUPS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; expected {', '.join(GROUPS)}, or {', '.join(names)}")
    heading("audit", given)
    wrong: list[str] = []
    rows: dict[str, dict[str, tuple[str, ...]]] = {group: {} for group in GROUPS}
    for group, several in jobs.items():
        for name, control, run in several:
            if options.only and not {group, name} & set(options.only):
                continue
            line = run()
            cells = line.cells()
            if control:
                cells = (*cells[:-1], "caught" if line.failed else "NOT CAUGHT")
            if line.failed != control:
                wrong.append(name)
            rows[group][name] = cells
            print(f"| {' | '.join(cells)} |", flush=True)
    if options.write is not None:
        order = {group: [name for name, _, _ in several] for group, several in jobs.items()}
        options.write.write_text(with_rows(options.write.read_text(), rows, order))
    if wrong:
        print(f"not as expected: {', '.join(wrong)}", file=sys.stderr)
    return int(bool(wrong))


#: Name, whether it is a negative control, and what makes its line.
Job = tuple[str, bool, Callable[[], Any]]


def all_jobs(group: str, trials: int | None, seed: int | None) -> Iterator[Job]:
    if group == "shipped":
        yield from ((case.name, False, lambda case=case: consistent(case, trials, seed)) for case in shipped())
    elif group == "controls":
        yield from ((case.name, True, lambda case=case: caught(case, trials, seed)) for case in negative_controls())
    elif group == "exact":
        for control, losses in ((False, exact_losses(seed)), (True, exact_controls(seed))):
            yield from (
                (name, control, lambda name=name, loss=loss: computed(name, loss)) for name, loss in losses.items()
            )
    else:
        own = secrets.randbits(32) if seed is None else seed
        for control, cases in ((False, coupling_cases()), (True, coupling_controls())):
            yield from ((case.name, control, lambda case=case: check.run(case, INSTANCES, own)) for case in cases)


def consistent(case: Case, trials: int | None, seed: int | None) -> Line:
    """A shipped mechanism with its usual number of runs."""
    warm(case)
    return audited(case, case.trials if trials is None else min(case.trials, trials), seed)


def caught(case: Case, trials: int | None, seed: int | None) -> Line:
    """The first look that refutes the claim, or the last one."""
    warm(case)
    last = case.trials if trials is None else trials
    for look in (*(look for look in LOOKS if look < last), last):
        # A seed for each look: with one seed a longer look would repeat the runs of the shorter one.
        line = audited(case, look, None if seed is None else f"{seed} {look}")
        if line.failed:
            break
    return line


def with_rows(page: str, rows: dict[str, dict[str, tuple[str, ...]]], order: dict[str, Sequence[str]]) -> str:
    """The page with these rows in its tables (``<!-- table: GROUP -->`` to ``<!-- end -->``); others stay."""
    for group, names in order.items():
        columns = check.COLUMNS if group == "couplings" else COLUMNS
        start = re.search(rf"<!-- table: {group} -->\n(.*?)<!-- end -->", page, re.DOTALL)
        if start is None:
            raise SystemExit(f"the page has no table {group!r}: expected a line <!-- table: {group} -->")
        old = [tuple(line.strip("| ").split(" | ")) for line in start[1].splitlines()[2:]]
        known = {row[0]: row for row in old} | rows.get(group, {})
        cells = [columns, ("---",) * len(columns), *(known[name] for name in names if name in known)]
        table = "".join(f"| {' | '.join(row)} |\n" for row in cells)
        page = page[: start.start(1)] + table + page[start.end(1) :]
    return page


if __name__ == "__main__":
    sys.exit(main())
