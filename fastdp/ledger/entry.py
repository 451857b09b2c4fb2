"""One release in a ledger: what it promised, on which stream, on which part of it; and its form in the file."""

from __future__ import annotations

import dataclasses
import inspect
import math
from dataclasses import dataclass
from typing import Any

from fastdp import validation
from fastdp.errors import ParameterError
from fastdp.privacy import Guarantee

LONGEST_NAME, LONGEST_NOTE = 200, 2000
#: Arguments of publishers that are secrets, or that the guarantee says already.
_UNSAID = ("seed", "key", "options")


@dataclass(frozen=True)
class Entry:
    """A release, as a ledger holds it.

    Attributes
    ----------
    id : int
        Its number in the ledger.
    time : str
        When it was recorded: UTC, ISO 8601.
    stream : str
        Name of the stream.
    guarantee : Guarantee
        What the release promises, whole.
    part : str or None
        Label of the part of the stream that the release looks at; None for all of it.
    start, stop : int or None
        Positions in the stream (or in the part): [start, stop), without end if stop is None; both None for all.
    mechanism : dict or str or None
        What released: class and public parameters, or a description.
    note : str
        Anything.
    state : str
        ``"spent"``, ``"reserved"`` (nobody has said how it ended, so it counts), or ``"cancelled"`` (it does not).
    """

    id: int
    time: str
    stream: str
    guarantee: Guarantee
    part: str | None
    start: int | None
    stop: int | None
    mechanism: Any
    note: str
    state: str

    @property
    def counts(self) -> bool:
        """Whether it uses budget: neither cancelled nor a simulation."""
        return self.state != "cancelled" and not self.guarantee.simulated

    @property
    def extent(self) -> str:
        """The part and positions in words."""
        where = [] if self.part is None else [f"part {self.part!r}"]
        if self.start is not None:
            where.append(f"[{self.start}, {'...' if self.stop is None else self.stop})")
        return " ".join(where) or "whole stream"


def text(name: str, value: object, longest: int, *, empty: bool = False) -> str:
    """A text that a line of the ledger can hold."""
    least = 0 if empty else 1
    if not isinstance(value, str) or not least <= len(value) <= longest:
        raise ParameterError(
            f"{name} = {validation.shown(value)}: expected a text of {least} to {longest} characters"
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ParameterError(f"{name} = {validation.shown(value)}: expected a text that UTF-8 can encode") from None
    return value


def checked(entry: Entry) -> Entry:
    """The entry with plain, accepted values.

    Raises
    ------
    ParameterError
        Naming the argument, its value and what is accepted.
    """
    guarantee = entry.guarantee
    if not isinstance(guarantee, Guarantee):
        raise ParameterError(
            f"guarantee = {validation.shown(guarantee)}: expected a fastdp.Guarantee, or a publisher that has one"
        )
    # An infinite epsilon is one that may be recorded: it tells that something was released without privacy.
    epsilon = guarantee.epsilon if guarantee.epsilon == math.inf else validation.real("epsilon", guarantee.epsilon)
    delta = validation.real("delta", guarantee.delta)
    if epsilon < 0.0:
        raise ParameterError(f"epsilon = {epsilon!r}: expected at least 0")
    if not 0.0 <= delta <= 1.0:
        raise ParameterError(f"delta = {delta!r}: expected a number from 0 to 1")
    for name in ("unit", "adjacency", "model", "arithmetic"):
        text(name, getattr(guarantee, name), LONGEST_NAME)
    text("stream", entry.stream, LONGEST_NAME)
    text("note", entry.note, LONGEST_NOTE, empty=True)
    if entry.part is not None:
        text("part", entry.part, LONGEST_NAME)
    start, stop = _positions(guarantee, entry.start, entry.stop)
    return dataclasses.replace(
        entry,
        guarantee=dataclasses.replace(guarantee, epsilon=float(epsilon), delta=delta),
        start=start,
        stop=stop,
    )


def _positions(guarantee: Guarantee, start: object, stop: object) -> tuple[int | None, int | None]:
    if start is None and stop is None:
        return None, None
    if not guarantee.adjacency.startswith("replace"):
        # One element more moves all later ones to other positions: releases on ranges of them are not disjoint.
        raise ParameterError(
            f"start = {start!r}, stop = {stop!r}: expected None under the adjacency {guarantee.adjacency!r}, because "
            "one element more or less moves all later positions (part= takes a label that follows from an element "
            "itself, such as its day)"
        )
    first = 0 if start is None else validation.integer("start", start, 0)
    return first, None if stop is None else validation.integer("stop", stop, first + 1)


def described(publisher: object) -> dict[str, Any]:
    """Class and public parameters of a publisher; never its key."""
    plan = getattr(publisher, "_described", None)
    if plan is not None:
        parameters = plan.describe()
    else:
        # A simulation of the local model keeps the parameters with its server.
        homes = (publisher, getattr(publisher, "server", None))
        names = [name for name in inspect.signature(type(publisher)).parameters if name not in _UNSAID]
        found = {name: getattr(home, name) for home in reversed(homes) for name in names if hasattr(home, name)}
        parameters = {name: _plain(value) for name, value in found.items() if not callable(value)}
    return {"class": type(publisher).__name__, "parameters": parameters}


def _plain(value: object) -> Any:
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if isinstance(value, (str, int, float, type(None))) and finite else validation.shown(value)


def to_line(entry: Entry) -> dict[str, Any]:
    """What the ledger's line says of an entry; floats as the shortest decimals that read back as they were."""
    guarantee = dataclasses.asdict(entry.guarantee)
    if guarantee["epsilon"] == math.inf:
        guarantee["epsilon"] = "infinite"
    names = ("stream", "part", "start", "stop", "mechanism", "note")
    return {**{name: getattr(entry, name) for name in names}, "guarantee": guarantee}


def from_line(line: dict[str, Any], state: str) -> Entry:
    """The entry that :func:`to_line` described; LookupError, TypeError or ValueError if it is none."""
    said = dict(line["guarantee"])
    if said["epsilon"] == "infinite":
        said["epsilon"] = math.inf
    said["derivation"] = tuple(said["derivation"])
    names = ("id", "time", "stream", "part", "start", "stop", "mechanism", "note")
    return checked(Entry(guarantee=Guarantee(**said), state=state, **{name: line[name] for name in names}))
