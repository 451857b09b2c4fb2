"""Options from signatures, one for each parameter of a public call, with help from its docstring.

A record as parameter, such as :class:`fastdp.Time`, becomes one option for each field.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import EllipsisType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import click

import fastdp
from fastdp.errors import ParameterError
from fastdp.kinds import Json
from fastdp.record import meanings

Public = Callable[..., Any]
#: A type in an annotation.
Hint = Any
_origin: Callable[[Hint], Any] = get_origin
#: Records whose fields are options.
RECORDS = ("Time", "Rows", "Person", "Value", "PrivateKeys", "Blocks", "Csv")
#: Options whose names are not those of the parameters, by function or record.
RENAMED: dict[str, dict[str, str]] = {
    "Time": {"column": "time", "unit": "time_unit", "format": "time_format"},
    "Rows": {"k": "rows"},
    "Person": {"column": "person"},
    "PrivateKeys": {"share": "key_share"},
    "plan": {"rows": "expected_rows", "mean": "expected_mean"},
    "replay": {"unit": "time_unit", "format": "time_format"},
}
#: Parameters that are no options: commands give them themselves, and of :class:`fastdp.PAK` publish plain sums.
GIVEN = {"self", "frame", "values", "publisher", "domain", "path", "seed", "key", "ledger", "stream", "part"}
GIVEN |= {"average", "lag_sums"}
_REFERENCE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)`")


@dataclass(frozen=True)
class Parameter:
    """Option of parameter ``of``, or of its records' fields; ``columns``: by column."""

    name: str
    of: str
    arms: tuple[Hint, ...]
    default: object
    help: str
    fields: tuple[tuple[Public, str], ...] = ()
    columns: bool = False

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def has(self, kind: Hint) -> bool:
        return any(_origin(arm) is kind for arm in self.arms)


def parameters(public: Public) -> list[Parameter]:
    """Options of a function, method, class or record, in order."""
    found: dict[str, Parameter] = {}
    hints, renamed = _hints(public), RENAMED.get(public.__name__, {})
    for name, given in inspect.signature(public).parameters.items():
        if name in GIVEN:
            continue
        arms = _arms(hints[name])
        if any(_origin(arm) is Sequence for arm in arms):
            arms = [arm for arm in arms if _origin(arm) is not Mapping]
        in_columns = [arm for each in arms if _origin(each) is Mapping for arm in _arms(get_args(each)[1])]
        for record in dict.fromkeys(arm for arm in (*arms, *in_columns) if _is_record(arm)):
            for each in parameters(record):
                field = each.of
                before = found.get(each.name)
                if before is None:
                    fields = ((record, field),)
                    found[each.name] = dataclasses.replace(each, of=name, fields=fields, columns=bool(in_columns))
                elif before.of == name:
                    both = (*before.arms, *(arm for arm in each.arms if arm not in before.arms))
                    more = (*before.fields, (record, field))
                    if before.help != each.help:
                        told = f"{before.help}  With {record.__name__}: {each.help}"
                        before = dataclasses.replace(before, help=told)
                    found[each.name] = dataclasses.replace(before, arms=both, fields=more)
        shown = renamed.get(name, name)
        plain = tuple(arm for arm in arms if _reader(arm) is not None)
        if plain and shown not in found and not (in_columns and any(map(_is_record, in_columns))):
            found[shown] = Parameter(shown, name, plain, given.default, meaning(public, name))
    return list(found.values())


def _is_record(hint: Hint) -> bool:
    return isinstance(hint, type) and hint.__name__ in RECORDS


def _hints(public: Public) -> dict[str, Hint]:
    if dataclasses.is_dataclass(public):
        return get_type_hints(public)
    made = public.__init__ if isinstance(public, type) else public  # type: ignore[misc]
    return get_type_hints(vars(made).get("record", made))


def _arms(hint: Hint) -> list[Hint]:
    if _origin(hint) in (Union, UnionType):
        return [arm for each in get_args(hint) for arm in _arms(each)]
    return [] if hint is NoneType else [hint]


def meaning(public: Public, name: str, seen: tuple[str, ...] = ()) -> str:
    """Meaning of a parameter by this docstring or a referenced one."""
    own, head = meanings(public), (inspect.getdoc(public) or "").partition("Parameters\n---")[0]
    text = own.get(name, "")
    # Without an entry of its own the parameter is one of "others", or of the call that the first lines name.
    told = text if text.startswith("As for") else "" if text else own.get("others", "") + head
    for other in _REFERENCE.findall(told):
        made = getattr(fastdp, other, None)
        if other not in seen and callable(made) and (found := meaning(made, name, (*seen, public.__name__, other))):
            return found
    return re.sub(r"^\w: ", "", _REFERENCE.sub(r"\1", text))


# Texts of a command line as arguments.

Reader = Callable[[str], Any]
#: Words of help in an error.
SAID = {"N": "a whole number", "X": "a number", "LOW,HIGH": "two numbers LOW,HIGH", "X,X,...": "numbers X,X,..."}


def _reader(arm: Hint) -> tuple[Reader, str] | None:
    """Reader of one type and its word in help; None for objects."""
    origin, inner = _origin(arm), get_args(arm)
    if origin is Literal:
        return (lambda text: inner[list(map(str, inner)).index(text)]), "|".join(map(str, inner))
    if arm in (int, float):
        return arm, "N" if arm is int else "X"
    if arm is str or arm is Any:
        return str, ""
    if arm is bool:
        return bool, ""
    if arm is EllipsisType:
        return (lambda text: ("none",)[("none",).index(text)]), "none"
    if origin is tuple and inner[1:] == (...,):
        return (lambda text: tuple(map(inner[0], text.split(",")))), "X,X,..."
    if origin is tuple and len(inner) == 2:
        return (lambda text: _pair(text, inner[0])), "LOW,HIGH"
    if origin is Sequence:
        return (lambda text: text.split(",")), ""
    if origin is Mapping and inner[0] is str and any(map(_reader, _arms(inner[1]))):
        return str, ""
    return None


def _pair(text: str, kind: Reader) -> tuple[Any, ...]:
    low, high = text.split(",")
    return kind(low), kind(high)


class Entry(click.ParamType):  # type: ignore[type-arg]
    """Text as the first fitting type; by columns as (column or None, value)."""

    name = "entry"

    def __init__(self, arms: Iterable[Hint], *, columns: bool, bare: bool) -> None:
        # A text is every type's text.
        ordered = sorted(arms, key=lambda arm: arm is str)
        self.readers = [each for each in map(_reader, ordered) if each is not None]
        self.columns, self.bare = columns, bare
        words = "|".join(dict.fromkeys(word for _, word in self.readers if word))
        self.said = " or ".join(SAID.get(word, word) for word in words.split("|"))
        self.word = f"COL={words or 'NAME,...'}" if columns and not bare else f"[COL=]{words}" if columns else words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        column, equals, text = value.rpartition("=") if self.columns else ("", "", value)
        if self.columns and (bool(column) != bool(equals) or not (column or self.bare)):
            self.fail(f"{value!r}: expected {self.word}.", param, ctx)
        for read, _ in self.readers:
            with suppress(ValueError):
                return (column or None, read(text)) if self.columns else read(text)
        return self.fail(f"{text!r}: expected {self.said}.", param, ctx)


def options(publics: Mapping[str, Public]) -> list[click.Option]:
    """Options of a command that calls one of `publics`, by method."""
    owners: dict[str, dict[str, Parameter]] = {}
    for method, public in publics.items():
        for each in parameters(public):
            owners.setdefault(each.name, {})[method] = each
    found = [_option(each, owners, everywhere=len(each) == len(publics)) for each in owners.values()]
    said: dict[str | None, str] = {}
    for one in found:
        first = said.setdefault(one.help, one.opts[0])
        one.help = one.help if first == one.opts[0] else f"See {first}."
    return found


def _option(owners: Mapping[str, Parameter], names: Collection[str], *, everywhere: bool) -> click.Option:
    first = next(iter(owners.values()))
    arms = list(dict.fromkeys(arm for each in owners.values() for arm in each.arms))
    defaults = {repr(each.default) for each in owners.values()}
    required = everywhere and defaults == {repr(inspect.Parameter.empty)} and not first.fields
    text = next((each.help for each in owners.values() if each.help), "")
    # A parameter that is an option too is called as such.
    text = re.sub(
        r"``(\w+)``", lambda found: "--" + found[1].replace("_", "-") if found[1] in names else found[1], text
    )
    text = (text[:1].upper() + text[1:]).replace("``", "")
    words = {"True": first.flag, "False": f"--no-{first.flag[2:]}", "None": "by default"} if arms == [bool] else {}
    # The other records' names are words.
    words |= {"Person": "--person", "PrivateKeys": "--key-share"}
    text = re.sub(r"\b[A-Z]\w+\b", lambda found: words.get(found[0], found[0]), text)
    text = re.sub(r"\bNone\b", "none", text)
    text += "" if everywhere else f"  ({', '.join(filter(None, owners))})"
    if len(defaults) == 1 and first.default != "" and type(first.default) in (int, float, str):
        text += f"  [default: {first.default:g}]" if type(first.default) is float else f"  [default: {first.default}]"
    if arms == [bool]:
        return click.Option([f"{first.flag}/--no-{first.flag[2:]}"], default=None, help=text)
    mapped = [arm for each in arms if _origin(each) is Mapping for arm in _arms(get_args(each)[1])]
    plain = [arm for each in arms for arm in (get_args(each) if _origin(each) is Sequence else [each])]
    columns = first.columns or bool(mapped)
    kind = Entry(mapped or plain, columns=columns, bare=first.columns or len(mapped) < len(plain))
    several = columns or first.has(Sequence)
    given: Json = {"type": kind, "multiple": several, "required": required, "help": text}
    # Of a text, which may be anything, the parameter's name.
    free = not columns and any(not word for _, word in kind.readers)
    return click.Option([first.flag], metavar=first.name.upper().rpartition("_")[2] if free else kind.word, **given)


# Arguments of the call from the options that were given.


def arguments(public: Public, given: Json) -> Json:
    """Arguments of `public`; click.UsageError for a record without a needed field."""
    found: Json = {}
    fields: dict[str, list[tuple[Parameter, Any]]] = {}
    for each in parameters(public):
        value = given.get(each.name)
        if value is None or value == ():
            continue
        if each.fields:
            fields.setdefault(each.of, []).append((each, value))
        elif value == "none" and EllipsisType in each.arms:
            found[each.of] = None
        elif each.has(Mapping):
            found[each.of] = _by_column(each, value)
        else:
            found[each.of] = list(value) if each.has(Sequence) and isinstance(value, tuple) else value
    for of, listed in fields.items():
        if of in found:
            raise click.UsageError(f"--{of.replace('_', '-')} and {listed[0][0].flag} exclude each other.")
        found[of] = _records(of, listed)
    for name, flag in _required(public).items():
        if name not in {*found, *GIVEN}:
            raise click.UsageError(f"Expected {flag}.")
    return found


def _required(public: Public) -> dict[str, str]:
    renamed, listed = RENAMED.get(public.__name__, {}), inspect.signature(public).parameters.items()
    needed = [name for name, one in listed if one.default is one.empty]
    return {name: "--" + renamed.get(name, name).replace("_", "-") for name in needed}


def _by_column(each: Parameter, pairs: Sequence[tuple[str | None, Any]]) -> Any:
    named = dict(pairs)
    if len(named) < len(pairs) or (None in named and len(named) > 1):
        raise click.UsageError(f"{each.flag}: expected each column once.")
    return named.get(None, named)


def _records(of: str, listed: list[tuple[Parameter, Any]]) -> Any:
    if not listed[0][0].columns:
        return _record(of, listed)
    by_column: dict[str | None, dict[str, tuple[Parameter, Any]]] = {}
    for each, pairs in listed:
        for column, value in pairs:
            if by_column.setdefault(column, {}).setdefault(each.name, (each, value)) != (each, value):
                raise click.UsageError(f"{each.flag}: expected each column once.")
    every = by_column.pop(None, {})
    if not by_column:
        return _record(of, list(every.values()))
    return {str(column): _record(of, list({**every, **own}.values())) for column, own in by_column.items()}


def _record(of: str, listed: list[tuple[Parameter, Any]]) -> Any:
    kinds = dict.fromkeys(record for each, _ in listed for record, _ in each.fields)
    shown = {field: each for each, _ in listed for _, field in each.fields}
    fits = []
    for kind in kinds:
        needed = _required(kind)
        own = {dict(each.fields)[kind]: value for each, value in listed if kind in dict(each.fields)}
        missing = [flag for name, flag in needed.items() if name not in own]
        fits.append((not missing, len(needed), kind, own, missing))
    complete, _, kind, own, missing = max(fits, key=lambda fit: fit[:2])
    if not complete or len(own) < len(listed):
        alone = next(each for each, _ in listed if not complete or kind not in dict(each.fields))
        wanted = missing or _required(alone.fields[-1][0]).values()
        raise click.UsageError(f"{alone.flag} needs {', '.join(wanted)}.")
    try:
        return kind(**own)
    except ParameterError as error:
        if error.parameter in shown:
            error.parameter = f"{of}.{error.parameter}"
        raise


def flags(public: Public) -> dict[str, str]:
    """Options by the names in errors, of arguments and fields."""
    listed = parameters(public)
    fields = [(each, record.__name__, field) for each in listed for record, field in each.fields]
    found = {field: each.flag for each, _, field in fields}
    # The first of a record's options stands for it, unless its parameter is an option too.
    found |= {each.of: each.flag for each in reversed(listed)}
    found |= {each.of: each.flag for each in listed if not each.fields}
    return found | {f"{of}.{field}": each.flag for each, record, field in fields for of in (each.of, record)}
