"""Input, output and state file are three places."""

from __future__ import annotations

from pathlib import Path

from fastdp.errors import ParameterError


def keep_all_apart(source: str, output: str, state: Path | None) -> None:
    """Refuse a command two of whose places are one.

    Parameters
    ----------
    source, output : str
        Paths; ``-`` is none.
    state : Path or None
        The state file, if there is one.

    Raises
    ------
    ParameterError
    """
    _keep_apart(source, output, "output", "the input")
    if state is not None:
        _keep_apart(source, str(state), "state file", "the input")
        _keep_apart(str(state), output, "output", "the state file")


def _keep_apart(source: str, output: str, what: str, other: str) -> None:
    if "-" in (source, output):
        return
    into, out = Path(source), Path(output)
    if into.resolve() == out.resolve() or (into.exists() and out.exists() and into.samefile(out)):
        raise ParameterError(f"{what} {output}: is {other}; expected another file")
