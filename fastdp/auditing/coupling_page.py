"""``fastdp audit --couplings``: all couplings, and the twins that must fail, line by line."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from fastdp import validation
from fastdp.auditing.coupled_points import point_cases
from fastdp.auditing.coupled_streams import stream_cases
from fastdp.auditing.coupled_twins import twin_cases
from fastdp.auditing.couplings import Case, Line, run
from fastdp.errors import ParameterError

#: Random instances of each case.
INSTANCES = 100
COLUMNS = ("case", "instances", "outputs compared", "largest cost / epsilon", "failures", "verdict")


def coupling_cases() -> list[Case]:
    """Shipped publishers first, then the broken twins."""
    return [*stream_cases(), *point_cases(), *twin_cases()]


def coupling_lines(only: str | None = None, seed: int | None = None, instances: int = INSTANCES) -> Iterator[Line]:
    """The cases, one after the other.

    Parameters
    ----------
    only : str, optional
        One case; by default all.
    seed : int, optional
        Repeats the instances; by default fresh ones.
    instances : int
        How many of each case.

    Raises
    ------
    ParameterError
        For a name that is not in the catalogue; before any case is run.
    """
    cases = coupling_cases()
    names = [case.name for case in cases]
    if only is not None and only not in names:
        raise ParameterError(f"only = {validation.shown(only)}: expected one of {', '.join(names)}")
    own = secrets.randbits(32) if seed is None else seed
    for case in cases:
        if only in (None, case.name):
            yield run(case, instances, own)


def cells(line: Line) -> tuple[str, ...]:
    """A line as text, by :data:`COLUMNS`; of a case that is not as it should be, what was unequal."""
    unequal = "" if line.as_it_should or not line.unequal else f" ({', '.join(line.unequal)})"
    return (
        line.name,
        f"{line.instances:,}",
        f"{line.compared:,}",
        f"{line.ratio:.4f}",
        f"{line.failures:,}",
        f"{line.verdict}{unequal}",
    )
