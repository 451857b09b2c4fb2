"""The common parts of studies: tables become checked records, data sets are loaded once, systems are built by name.

A study is a module, ``values``, ``points`` or ``statistics``.  Its names, which the rest of a sweep uses:

* ``METRICS``, ``WORKLOADS``, ``KEYS``: all metrics; queries by default; keys at the top of a specification that the
  other studies do not have; ``systems()``: systems by name;
* ``claims(table)``, ``read_data_set(table, place, name, top)``, ``read_workload(table, place)``: whether a
  ``[[datasets]]`` table is of this study; records from tables;
* ``build(specification, mechanism, truth, epsilon)``: a mechanism, checked, as a function without arguments, which
  does the work that repetitions share and returns the run of a cell: from repetition, key and the seeds of workloads
  (a function) to the threshold and rows: workload, group, number of queries, and numbers;
* ``columns(metrics)``: the columns of these numbers.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta

from fastdp import counters, perturbers, smoothers, thresholds, validation
from fastdp.errors import FastDPError, ParameterError
from fastdp.kinds import Json

T = TypeVar("T")
Table = Mapping[str, Any]
#: A row of results; what builds a system, a generator or a publisher from options.
Row = tuple[Any, ...]
Make = Callable[..., Any]
Name = Annotated[str, Meta(min_length=1)]
Positive = Annotated[float, Meta(gt=0, le=1e300)]
Count = Annotated[int, Meta(ge=1)]
#: Keys of a data set's table that say where it comes from.
KINDS = ("generator", "file", "download")
#: Data sets that a process holds in memory.
MAX_LOADED = 4
_NOUNS = {"int": "a whole number", "float": "a number", "str": "a text", "bool": "true or false", "array": "a list"}
_SIGNS = {" of length >= 1": ", not empty", ">=": "of at least", "<=": "of at most", ">": "above"}
_ROLES: Json = {"threshold": thresholds, "perturber": perturbers, "smoother": smoothers, "counter": counters}
#: Parameters of publishers that the cell gives, or that no sweep varies.
_OF_THE_CELL = {"self", "epsilon", "bound", "holdout", "max_range", "length", "domain", "seed", "key", "sensitivity"}
_OF_THE_CELL |= {"renewal", "contributions"}


def check_keys(table: object, place: str, accepted: Sequence[str] | None, required: Sequence[str] = ()) -> None:
    """ParameterError unless this is a table with accepted keys (None: any) and all required ones."""
    if not isinstance(table, Mapping):
        raise ParameterError(f"{place or 'specification'} = {validation.shown(table)}: expected a table")
    dot = f"{place}." if place else ""
    for key, value in table.items():
        if accepted is not None and key not in accepted:
            listed = f"one of {', '.join(accepted)}" if accepted else "no parameters"
            raise ParameterError(f"{dot}{key} = {validation.shown(value)}: unknown key; expected {listed}")
    for key in required:
        if key not in table:
            raise ParameterError(f"{dot}{key} is missing: expected a value for it")


def tables(table: Table, key: str) -> Iterator[tuple[str, Json]]:
    """The entries of an array of tables, with their paths."""
    check_keys(table, "", None, (key,))
    if not isinstance(table[key], list) or not table[key]:
        raise ParameterError(f"{key} = {validation.shown(table[key])}: expected [[{key}]] tables")
    for k, each in enumerate(table[key]):
        check_keys(each, f"{key}[{k}]", None)
        yield f"{key}[{k}]", each


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Put the path in front of errors that begin with an argument's name."""
    try:
        yield
    except FastDPError as error:
        raise type(error)(f"{place}.{error}" if place else str(error)) from error


def read(kind: type[T], table: Table, place: str) -> T:
    """A record from a table: msgspec checks types and ranges; errors name the key by its path in the file."""
    required = [each.name for each in fields(kind) if each.default is each.default_factory]  # type: ignore[arg-type]
    check_keys(table, place, None, required)
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        with placed(place):
            if isinstance(error.__cause__, FastDPError):
                raise error.__cause__ from None
            raise ParameterError(_told(str(error), table)) from None


def _told(message: str, table: Any) -> str:
    """The words of msgspec in ours: ``epsilons[1] = -1: expected a number above 0``."""
    said, _, path = message.partition(" - at `$.")
    for key, index in re.findall(r"(\w+)|\[(\d+)\]", path):
        table = table[key or int(index)]
    found = re.match(r"Expected `([^`]*)`([^,]*)", said)
    if found is None:
        return f"{path.rstrip('`')} = {validation.shown(table)}: expected another value ({said})"
    kinds, limit = " or ".join(_NOUNS.get(each, each) for each in found[1].split(" | ") if each != "null"), found[2]
    for sign, words in _SIGNS.items():
        limit = limit.replace(sign, words)
    return f"{path.rstrip('`')} = {validation.shown(table)}: expected {kinds}{limit.removesuffix('.0')}"


def text(name: str, value: object) -> str:
    """A text that is not empty and can be stored."""
    if not isinstance(value, str) or not value or not validation.encodes(value):
        raise ParameterError(f"{name} = {validation.shown(value)}: expected a text of Unicode characters, not empty")
    return value


def check_different(name: str, values: Sequence[Any], *, rising: bool = False) -> None:
    """ParameterError unless all entries of a list are different."""
    if len(set(values)) < len(values):
        raise ParameterError(f"{name} = {validation.shown(list(values))}: expected no entry twice")
    if rising and list(values) != sorted(values):
        raise ParameterError(f"{name} = {list(values)}: expected rising numbers")


def canonical(value: object) -> str:
    """The one text of plain values, on which keys and hashes stand."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def plain(record: Any, *without: str) -> Json:
    """The fields of a record that identify it."""
    return {
        each.name: getattr(record, each.name) for each in fields(record) if each.compare and each.name not in without
    }


@dataclass(frozen=True, kw_only=True)
class DataSet(ABC):
    """A named source of a stream; ``STUDY`` is the name of its study."""

    STUDY: ClassVar[str]

    name: str
    kind: str
    source: str
    parameters: Json = field(default_factory=dict, hash=False)
    place: str = field(default="datasets", compare=False)

    @abstractmethod
    def load(self, folder: Path) -> Any:
        """The data with exact answers to queries: ``data_set``, ``size``, and ``facts`` with their ``sha256``."""


@dataclass(frozen=True)
class Maker:
    """A generator or loader: a function with keywords, and the fields of its data set that follow from these."""

    make: Make
    defaults: Callable[[Table], Json] = lambda parameters: {}

    @property
    def accepted(self) -> list[str]:
        """The parameters that a table may have."""
        return [key for key in inspect.signature(self.make).parameters if key not in ("path", "box")]


def source_of(table: Table, place: str, known: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Kind and source of a data set's table, which has exactly one of the keys ``KINDS``."""
    there = [key for key in KINDS if key in table]
    if len(there) != 1:
        raise ParameterError(f"{place} has {', '.join(there) or 'no source'}: expected one of {', '.join(KINDS)}")
    (kind,) = there
    if kind in known:
        return kind, validation.choice(f"{place}.{kind}", table[kind], known[kind])
    return kind, text(f"{place}.{kind}", table[kind])


def load_truth(data_set: DataSet, folder: Path, digest: str | None = None) -> Any:
    """A loaded data set, from the process's cache unless its digest is another."""
    # Threads that need the same data wait for one of them to load it.
    with _LOADING:
        truth = _load(data_set, folder)
        if digest not in (None, truth.facts["sha256"]):
            forget()
            truth = _load(data_set, folder)
        return truth


_LOADING = threading.Lock()


@lru_cache(maxsize=MAX_LOADED)
def _load(data_set: DataSet, folder: Path) -> Any:
    return data_set.load(folder)


#: Load data sets again: their files may have changed.
forget = _load.cache_clear


@dataclass(frozen=True)
class System:
    """A kind of mechanism.

    Attributes
    ----------
    build : callable
        Takes a :class:`Setting` (or domain and epsilon, for points) and the parameters of a ``[[mechanisms]]`` table
        as keywords, looks at no data, and raises ParameterError.  For values it returns a function of the stream,
        float64[holdout + published], which does what repetitions share and returns a function from a
        :class:`fastdp.Key` to a :class:`RunResult`; for points a function from the key to a publisher.
    accepted : tuple of str
        The parameters.
    merges : bool
        For points: whether the output depends only on the points that are present, so that the batches between two
        queries can be sent as one.
    """

    build: Make
    accepted: tuple[str, ...] = ()
    merges: bool = False


def parameter_names(system: Make, *further: str) -> tuple[str, ...]:
    """A publisher's parameters without those that the cell gives."""
    return (*(name for name in inspect.signature(system).parameters if name not in _OF_THE_CELL), *further)


def build_parts(parameters: Table) -> Json:
    """The parameters with every part's table replaced by the part."""
    return {
        name: _build_part(name, value) if name in _ROLES and isinstance(value, Mapping) else value
        for name, value in parameters.items()
    }


def _build_part(role: str, table: Table) -> Any:
    given, module = dict(table), _ROLES[role]
    known = [name for name in module.__all__ if dataclasses.is_dataclass(getattr(module, name))]
    kind = getattr(module, validation.choice(f"{role}.part", given.pop("part", None), known))
    required = [name for name, each in inspect.signature(kind).parameters.items() if each.default is each.empty]
    check_keys(given, role, tuple(kind.__dataclass_fields__), required)
    with placed(role):
        return kind(**given)
