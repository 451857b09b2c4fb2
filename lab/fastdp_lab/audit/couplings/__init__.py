"""``fastdp audit --couplings``: the couplings of all publishers, one line for each."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp_lab.audit.couplings.check import Case, Line, run
from fastdp_lab.audit.couplings.point_cases import point_cases
from fastdp_lab.audit.couplings.stream_cases import stream_cases
from fastdp_lab.audit.couplings.table_cases import table_cases

#: Random instances of each case.
INSTANCES = 100


def coupling_cases() -> list[Case]:
    """Publishers of values, those of points, and tables."""
    return [*stream_cases(), *point_cases(), *table_cases()]


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
