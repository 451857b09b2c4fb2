"""One release in a ledger: what it promised, on which stream, on which part of it; and its form in the file."""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from fastdp import validation
from fastdp.errors import ParameterError, StateError
from fastdp.guarantee import Guarantee
from fastdp.units import UnitRows

LONGEST_NAME, LONGEST_NOTE = 200, 2000
#: Bytes of an entry, and how deeply its mechanism may be nested.
LONGEST_ENTRY, DEEPEST = 2**16, 32
#: The largest position that SQLite stores.
LAST = 2**63 - 1


class Kind(NamedTuple):
    """Unit of privacy, and the change that it covers."""

    unit: str
    adjacency: str
    rows: UnitRows | None = None

    def __str__(self) -> str:
        return f"{self.unit} ({self.adjacency}{'' if self.rows is None else f'; {self.rows}'})"


VALUE = Kind(Guarantee.unit, Guarantee.adjacency)
#: A value that is replaced is one such element less and one more.
ELEMENTS = (
    Kind("one event (one addition or one removal)", "add or remove one event"),
    Kind("one point", "add or remove one point"),
)
#: Arguments of publishers that are secrets, or that the guarantee says already.
_SECRET = ("seed", "key", "options")


@dataclass(frozen=True)
class Entry:
    """A release, as a ledger stores it.

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
        ``"spent"``, ``"reserved"`` (it was never ended, so it counts), or ``"cancelled"`` (it does not).
    nonce : str
        Random digits of its line: no other line has them, in no copy of the ledger and no other one.
    fingerprint : str or None
        Keyed digest of the secret, composition and stream that the publisher's noise follows from
        (:attr:`fastdp.state.Publisher.noise_fingerprint`); None where that is unknown, and for a simulation.
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
    nonce: str = ""
    fingerprint: str | None = None

    @property
    def counts(self) -> bool:
        """Whether it uses budget: neither cancelled nor a simulation."""
        return self.state != "cancelled" and not self.guarantee.simulated

    @property
    def kind(self) -> Kind:
        """Unit and adjacency of its guarantee."""
        return Kind(self.guarantee.unit, self.guarantee.adjacency, self.guarantee.rows)

    @property
    def extent(self) -> str:
        """The part and positions in words."""
        where = [] if self.part is None else [f"part {self.part!r}"]
        if self.start is not None:
            where.append(f"[{self.start}, {'...' if self.stop is None else self.stop})")
        return " ".join(where) or "whole stream"


def text(name: str, value: object, longest: int, *, empty: bool = False) -> str:
    """A text that a line of the ledger can store."""
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


def name(what: str, value: object) -> str:
    """The name of a stream or part as the ledger knows it: two that look alike are one, or refused.

    Returns
    -------
    str
        In Unicode's normal form C.
    """
    given = unicodedata.normalize("NFC", text(what, value, LONGEST_NAME))
    if not given.isprintable() or given != given.strip() or len(given) > LONGEST_NAME:
        raise ParameterError(
            f"{what} = {validation.shown(value)}: expected printable characters, without a blank at either end"
        )
    return given


def checked(entry: Entry) -> Entry:
    """The entry with plain, accepted values.

    Raises
    ------
    ParameterError
        Naming the argument, its value and what is accepted.
    """
    text("stream", entry.stream, LONGEST_NAME)
    text("note", entry.note, LONGEST_NOTE, empty=True)
    if entry.part is not None:
        text("part", entry.part, LONGEST_NAME)
    start, stop = _positions(entry.start, entry.stop)
    return dataclasses.replace(entry, guarantee=_plain_guarantee(entry.guarantee), start=start, stop=stop)


def _plain_guarantee(guarantee: object) -> Guarantee:
    """A plain one with accepted values, whatever class of one's own it was."""
    if not isinstance(guarantee, Guarantee):
        raise ParameterError(
            f"guarantee = {validation.shown(guarantee)}: expected a fastdp.Guarantee, or a publisher that has one"
        )
    # An infinite epsilon may be recorded: something was released without privacy.
    epsilon = math.inf if guarantee.epsilon == math.inf else _not_less("epsilon", guarantee.epsilon)
    delta = _not_less("delta", guarantee.delta)
    distance = _not_less("numeric_distance", guarantee.numeric_distance)
    rho = math.inf if guarantee.rho == math.inf else _not_less("rho", guarantee.rho)
    for said, value in (("rho", rho), ("epsilon", epsilon), ("numeric_distance", distance)):
        if value < 0.0:
            raise ParameterError(f"{said} = {value!r}: expected at least 0")
    if not 0.0 <= delta <= 1.0:
        raise ParameterError(f"delta = {delta!r}: expected a number from 0 to 1")
    steps: Any = guarantee.derivation
    if not isinstance(steps, (tuple, list)) or not all(isinstance(step, str) for step in steps):
        raise ParameterError(f"derivation = {validation.shown(steps)}: expected a tuple of texts")
    simulated = validation.flag("simulated", guarantee.simulated)
    try:
        rows = UnitRows.read(guarantee.rows)
    except (TypeError, ValueError):
        raise ParameterError(f"rows = {validation.shown(guarantee.rows)}: expected None or Rows") from None
    for said in ("unit", "adjacency", "model", "arithmetic"):
        text(said, getattr(guarantee, said), LONGEST_NAME)
    return Guarantee(
        *(epsilon, delta, guarantee.unit, guarantee.adjacency, guarantee.model, guarantee.arithmetic),
        *(distance, simulated, tuple(steps), rho, rows),
    )


def _not_less(name: str, value: Any) -> float:
    """A number as a float that does not understate it: 1/3 as a fraction lies between two."""
    number = validation.real(name, value)
    return math.nextafter(number, math.inf) if number < value else number


def new(entry: Entry) -> Entry:
    """An entry as a line of the ledger returns it, or ParameterError: no entry may be unreadable later."""
    entry = checked(entry)
    entry = dataclasses.replace(
        entry, stream=name("stream", entry.stream), part=None if entry.part is None else name("part", entry.part)
    )
    _refuse_parts(entry)
    try:
        line = json.dumps(to_line(entry), ensure_ascii=False, allow_nan=False)
        size = len(line.encode())
        if size > LONGEST_ENTRY or _depth(line) > DEEPEST:
            raise ValueError(f"at most {LONGEST_ENTRY} bytes, {DEEPEST} levels deep")
        return from_line({"id": entry.id, "time": entry.time, "nonce": "", **json.loads(line)}, entry.state)
    except (TypeError, ValueError, RecursionError) as error:
        raise ParameterError(
            f"mechanism = {validation.shown(entry.mechanism)}, derivation of "
            f"{len(entry.guarantee.derivation)} steps: expected a text, or what JSON can hold ({error})"
        ) from None


def _depth(line: str) -> int:
    """How deeply a JSON text is nested."""
    deepest = level = 0
    for mark in re.sub(r'"(?:[^"\\]|\\.)*"|[^][{}"]', "", line):
        level += 1 if mark in "[{" else -1
        deepest = max(deepest, level)
    return deepest


def _refuse_parts(entry: Entry) -> None:
    """Which releases on parts of a stream are disjoint is proved for some units only (``docs/privacy.md``)."""
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


def _positions(start: object, stop: object) -> tuple[int | None, int | None]:
    if start is None and stop is None:
        return None, None
    first = 0 if start is None else validation.integer("start", start, 0, LAST - 1)
    return first, None if stop is None else validation.integer("stop", stop, first + 1, LAST)


def described(publisher: object) -> dict[str, Any]:
    """Class and public parameters of a publisher; never its key."""
    machine = getattr(publisher, "machine", None)
    composed = (getattr(machine, name, None) for name in ("composition", "plan"))
    plan = next((one for one in composed if hasattr(one, "describe")), None)
    if plan is not None:
        try:
            parameters = plan.describe()
        except StateError:
            # A part of one's own has no name that a state file could give back; here a text does.
            fields = dataclasses.fields(plan) if dataclasses.is_dataclass(plan) else ()
            parameters = {field.name: _plain(getattr(plan, field.name)) for field in fields}
    else:
        # A simulation of the local model keeps the parameters with its server.
        holders = (publisher, getattr(publisher, "server", None))
        asked = [one for one in inspect.signature(type(publisher)).parameters if one not in _SECRET]
        found = {one: getattr(each, one) for each in reversed(holders) for one in asked if hasattr(each, one)}
        parameters = {one: _plain(value) for one, value in found.items() if not callable(value)}
    return {"class": type(publisher).__name__, "parameters": parameters}


def _plain(value: object) -> Any:
    finite = not isinstance(value, float) or math.isfinite(value)
    return value if isinstance(value, (str, int, float, type(None))) and finite else validation.shown(value)


def to_line(entry: Entry) -> dict[str, Any]:
    """The content of an entry's line; floats as the shortest decimals that read back as the same float."""
    named = ("stream", "part", "start", "stop", "mechanism", "note", "fingerprint")
    return {**{field: getattr(entry, field) for field in named}, "guarantee": entry.guarantee.to_dict()}


def from_line(line: dict[str, Any], state: str) -> Entry:
    """The entry that :func:`to_line` described; LookupError, TypeError or ValueError if it is none."""
    said = dict(line["guarantee"])
    said["derivation"], said["rows"] = tuple(said["derivation"]), UnitRows.read(said["rows"])
    part, (start, stop) = line["part"], _positions(line["start"], line["stop"])
    fingerprint = line["fingerprint"]
    return Entry(
        id=line["id"],
        time=line["time"],
        stream=text("stream", line["stream"], LONGEST_NAME),
        guarantee=_recorded_guarantee(**said),
        part=None if part is None else text("part", part, LONGEST_NAME),
        start=start,
        stop=stop,
        mechanism=line["mechanism"],
        note=text("note", line["note"], LONGEST_NOTE, empty=True),
        state=state,
        nonce=text("nonce", line["nonce"], LONGEST_NAME, empty=True),
        fingerprint=None if fingerprint is None else text("fingerprint", fingerprint, LONGEST_NAME),
    )


@lru_cache(maxsize=256, typed=True)
def _recorded_guarantee(**said: Any) -> Guarantee:
    """Cached: most lines state the same guarantee.  By type too, because True is no epsilon, though it equals 1."""
    return _plain_guarantee(Guarantee.from_dict(said))


# Invisible characters: two names that differ in one look alike, and would have a budget each.

#: Default_Ignorable_Code_Point of Unicode (DerivedCoreProperties.txt, 15.1): what displays leave out.
_IGNORABLE = (
    *(range(0xAD, 0xAE), range(0x34F, 0x350), range(0x61C, 0x61D), range(0x115F, 0x1161), range(0x17B4, 0x17B6)),
    *(range(0x180B, 0x1810), range(0x200B, 0x2010), range(0x202A, 0x202F), range(0x2060, 0x2070)),
    *(range(0x3164, 0x3165), range(0xFE00, 0xFE10), range(0xFEFF, 0xFF00), range(0xFFA0, 0xFFA1)),
    *(range(0xFFF0, 0xFFF9), range(0x1BCA0, 0x1BCA4), range(0x1D173, 0x1D17B), range(0xE0000, 0xE1000)),
)
#: Letters and symbols whose picture is empty: braille without dots, a filler, hieroglyph blanks, a null note head.
_BLANK = (range(0x2800, 0x2801), range(0x13441, 0x13443), range(0x16FE4, 0x16FE5), range(0x1D159, 0x1D15A))
UNSEEN = frozenset(chain(*_IGNORABLE, *_BLANK))


def refuse_unseen(what: str, name: str) -> None:
    """ParameterError if a name that is new to a ledger has such a character; older ledgers may have some."""
    for at, character in enumerate(name):
        if ord(character) in UNSEEN:
            shown, found = validation.shown(name), f"U+{ord(character):04X} at {at}"
            raise ParameterError(f"{what} = {shown}: expected characters that can be seen, got {found}")
