"""A release in a ledger, and its line in the file."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from functools import lru_cache
from typing import Any, NamedTuple, cast

import msgspec

from fastdp import validation
from fastdp.errors import ParameterError, StateError
from fastdp.guarantee import Guarantee
from fastdp.kinds import Json
from fastdp.record import Text, parameter, put, record, values_of
from fastdp.units import LONGEST_NAME, NAME, Times, UnitRows, normal_name

LONGEST_NOTE = 2000
#: Bytes of an entry, and how deeply its mechanism may be nested.
LONGEST_ENTRY, DEEPEST = 2**16, 32
#: The largest position that SQLite stores.
LAST = 2**63 - 1
#: Arguments of publishers that are secret, or stated by the guarantee.
_SECRET = ("seed", "key", "options")


class Kind(NamedTuple):
    """Unit of privacy, and its adjacency."""

    unit: str
    adjacency: str
    rows: UnitRows | None = None

    def __str__(self) -> str:
        return f"{self.unit} ({self.adjacency}{'' if self.rows is None else f'; {self.rows}'})"


VALUE = Kind(Guarantee.unit, Guarantee.adjacency)
#: Replacing a value removes one such element and adds one.
ELEMENTS = (
    Kind("one event (one addition or one removal)", "add or remove one event"),
    Kind("one point", "add or remove one point"),
)


NOTE, LABEL = Text(LONGEST_NOTE, 0), Text(LONGEST_NAME, optional=True)


@record
class Entry:
    """Describes a release in a ledger.

    Attributes
    ----------
    id, time : int, str
        Number, and time of the record (UTC, ISO 8601).
    stream, part : str
        Stream, and label of the part that the release reads (None: all).
    start, stop : int or None
        Positions [start, stop) that it reads; None: no end, or all.
    guarantee : Guarantee
        Of the release.
    mechanism : dict or str or None
        Class and public parameters, or a description.
    note : str
        The caller's text.
    state : str
        ``"spent"``, ``"reserved"`` (it counts), or ``"cancelled"`` (it does not).
    nonce : str
        Random digits, unique among all ledgers.
    fingerprint : str or None
        Of the noise; None if unknown or simulated.

    Examples
    --------
    >>> import tempfile, fastdp
    >>> ledger = fastdp.Ledger(tempfile.mkdtemp() + "/budget")
    >>> entry = ledger.spend(fastdp.Guarantee(0.75), stream="meter 17")
    >>> entry.id, entry.stream, entry.state
    (1, 'meter 17', 'spent')
    >>> ledger.close()
    """

    id: int
    time: str
    stream: str = parameter(NAME)
    guarantee: Guarantee
    part: str | None = parameter(LABEL)
    start: int | None
    stop: int | None
    mechanism: Any
    note: str = parameter(NOTE)
    state: str
    nonce: str = parameter(Text(LONGEST_NAME, 0), default="")
    fingerprint: str | None = parameter(LABEL, default=None)

    def _check(self) -> None:
        if self.start is not None or self.stop is not None:
            start = 0 if self.start is None else validation.integer("start", self.start, 0, LAST - 1)
            stop = None if self.stop is None else validation.integer("stop", self.stop, start + 1, LAST)
            put(self, start=start, stop=stop)

    @property
    def counts(self) -> bool:
        """True if it uses budget."""
        return self.state != "cancelled" and not self.guarantee.simulated

    @property
    def kind(self) -> Kind:
        """Unit and adjacency of the guarantee."""
        return Kind(self.guarantee.unit, self.guarantee.adjacency, self.guarantee.rows)

    @property
    def extent(self) -> str:
        """Label and positions for a message."""
        where = [] if self.part is None else [f"part {self.part!r}"]
        if self.start is not None:
            where.append(f"[{self.start}, {'...' if self.stop is None else self.stop})")
        if self.guarantee.times is not None:
            where.append(str(self.guarantee.times))
        return " ".join(where) or "whole stream"

    def to_line(self) -> Json:
        """Encode the entry as a line, without its state."""
        return values_of(self, *_IN_LINE) | {"guarantee": self.guarantee.to_dict()}

    @classmethod
    def from_line(cls, line: Json, state: str) -> Entry:
        """Decode a ledger's line; else LookupError, TypeError or ValueError."""
        said = {**line["guarantee"], "derivation": tuple(line["guarantee"]["derivation"])}
        said |= {"rows": UnitRows.read(said["rows"]), "times": Times.read(said["times"])}
        fields = {name: line[name] for name in _IN_LINE}
        return cls(**fields | {"guarantee": _recorded_guarantee(**said)}, state=state)

    def checked(self) -> Entry:
        """Entry as read back from its line; ParameterError for contents that do not fit."""
        part = None if self.part is None else normal_name("part", self.part)
        guarantee, stream = _plain_guarantee(self.guarantee), normal_name("stream", self.stream)
        plain = {**values_of(self), "stream": stream, "part": part, "guarantee": guarantee.to_dict()}
        try:
            line = json.dumps(plain, ensure_ascii=False, allow_nan=False)
            if len(line.encode()) > LONGEST_ENTRY or line.count("[") + line.count("{") > DEEPEST < _depth(line):
                raise ValueError(f"at most {LONGEST_ENTRY} bytes, {DEEPEST} levels deep")
            entry = Entry.from_line(json.loads(line), self.state)
        except (TypeError, ValueError, RecursionError) as error:
            raise ParameterError(
                f"mechanism = {validation.shown(self.mechanism)}, derivation of "
                f"{len(guarantee.derivation)} steps: expected a text, or what JSON can hold ({error})"
            ) from None
        _refuse_parts(entry)
        return entry


_IN_LINE = tuple(field.name for field in dataclasses.fields(Entry) if field.name != "state")


def _depth(line: str) -> int:
    deepest = level = 0
    for mark in re.sub(r'"(?:[^"\\]|\\.)*"|[^][{}"]', "", line):
        level += 1 if mark in "[{" else -1
        deepest = max(deepest, level)
    return deepest


def _refuse_parts(entry: Entry) -> None:
    """ParameterError for parts of a unit that may lie in several."""
    if entry.start is not None and entry.kind != VALUE:
        raise ParameterError(
            f"start = {entry.start!r}, stop = {entry.stop!r}: expected None for {entry.kind}: only "
            f"{VALUE} lies at one position in both of two adjacent streams (an element more moves "
            "all later positions; part= takes a label that follows from an element itself, such as its day)"
        )
    if entry.part is not None and entry.kind not in (VALUE, *ELEMENTS):
        raise ParameterError(
            f"part = {entry.part!r}: expected None for {entry.kind}, which may lie in several parts; one "
            "value (replace) or one event or point (add or remove) lies in one"
        )


def _plain_guarantee(guarantee: object) -> Guarantee:
    if not isinstance(guarantee, Guarantee):
        wanted = "expected a fastdp.Guarantee, or a publisher that has one"
        raise ParameterError(f"guarantee = {validation.shown(guarantee)}: {wanted}")
    # Of a subclass the same fields.
    fields = values_of(guarantee, *(field.name for field in dataclasses.fields(Guarantee)))
    for name in ("unit", "adjacency", "model", "arithmetic"):
        NAME.check(name, fields[name])
    validation.real("numeric_distance", fields["numeric_distance"])
    if not fields["delta"] <= 1.0:
        raise ParameterError(f"delta = {fields['delta']!r}: expected a number from 0 to 1")
    return Guarantee(**fields)


@lru_cache(maxsize=256, typed=True)
def _recorded_guarantee(**said: Any) -> Guarantee:
    return _plain_guarantee(Guarantee.from_dict(said))


def described(publisher: object) -> Json:
    """Class and public parameters of a publisher, without its key."""
    machine = getattr(publisher, "machine", None)
    composed = (getattr(machine, name, None) for name in ("composition", "plan"))
    plan = next((one for one in composed if hasattr(one, "describe")), None)
    if plan is not None:
        try:
            parameters = msgspec.to_builtins(plan.describe())
        except StateError:
            # A user's component has no name that a state file could restore; here a text is enough.
            parameters = {name: _plain(value) for name, value in values_of(plan).items()}
    else:
        # A simulation of the local model keeps the parameters with its server.
        holders = (publisher, getattr(publisher, "server", None))
        asked = _public_parameters(cast("type", type(publisher)))
        attributes = {
            one: getattr(holder, one) for holder in reversed(holders) for one in asked if hasattr(holder, one)
        }
        parameters = {one: _plain(value) for one, value in attributes.items() if not callable(value)}
    return {"class": type(publisher).__name__, "parameters": parameters}


@lru_cache(maxsize=256)
def _public_parameters(kind: type) -> list[str]:
    # Read once for a class: it takes a tenth of a release's entry.
    return [one for one in inspect.signature(kind).parameters if one not in _SECRET]


def _plain(value: object) -> object:
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if isinstance(value, (str, int, float, type(None))) and finite else validation.shown(value)
